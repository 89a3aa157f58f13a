"""Clusters of CTAs: launches, special registers, the cluster's barrier and its shared memory; both engines give the same bits."""

import numpy as np
import pytest

import warpwright
from warpwright.errors import KernelTimeout, LaunchError, MemoryFault

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@pytest.fixture(params=["cpu", "interpreter"], scope="module")
def device(request):
    return warpwright.Device(request.param, like="h100", threads=2 if request.param == "cpu" else None)


def kernel(body: str, directives: str = "", shared: str = ".shared .align 16 .b32 s[64];") -> str:
    """A module with one kernel `k(out)`: %r0 is the thread's number in its CTA, %r1 the CTA's rank, %r2 its number in the grid (x only).

    What it leaves in %r31 goes to out[%r2 · threads + %r0].
    """
    return HEADER + f"""
.visible .entry k(.param .u64 out) {directives}
{{
    .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
    {shared}
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %ctaid.x;
    {body}
    ld.param.u64 %rd14, [out];
    mov.u32 %r29, %ntid.x;
    mad.lo.u32 %r30, %r2, %r29, %r0;
    mad.wide.u32 %rd14, %r30, 4, %rd14;
    st.global.u32 [%rd14], %r31;
    ret;
}}
"""


def run(device, text: str, grid, block, size: int, **options) -> np.ndarray:
    out = np.zeros(size, np.uint32)
    device.load(text)["k"].launch(grid, block, [out], time_limit=options.pop("time_limit", 20), **options)
    return out


SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

# ── launches ─────────────────────────────────────────────────────────────────────────────────────────────────────


PLACES = """
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %nctaid.y; mov.u32 %r7, %ctaid.z;
    mad.lo.u32 %r8, %r7, %r6, %r5; mad.lo.u32 %r2, %r8, %r4, %r3;
"""


@pytest.mark.parametrize("register,expected", [
    ("%clusterid.x", lambda x, y, z: x // 2), ("%clusterid.y", lambda x, y, z: y), ("%clusterid.z", lambda x, y, z: z // 2),
    ("%nclusterid.x", lambda x, y, z: 3), ("%nclusterid.y", lambda x, y, z: 2), ("%nclusterid.z", lambda x, y, z: 2),
    ("%cluster_ctaid.x", lambda x, y, z: x % 2), ("%cluster_ctaid.y", lambda x, y, z: 0), ("%cluster_ctaid.z", lambda x, y, z: z % 2),
    ("%cluster_nctaid.x", lambda x, y, z: 2), ("%cluster_nctaid.y", lambda x, y, z: 1), ("%cluster_nctaid.z", lambda x, y, z: 2),
    ("%cluster_ctarank", lambda x, y, z: x % 2 + 2 * (z % 2)), ("%cluster_nctarank", lambda x, y, z: 4),
    ("%clusterid.w", lambda x, y, z: 0),
])
def test_special_registers_place_a_cta_in_its_cluster(device, register, expected):
    out = run(device, kernel(f"{PLACES} mov.u32 %r31, {register};"), (6, 2, 4), 1, 48, cluster=(2, 1, 2))
    assert out.tolist() == [expected(x, y, z) for z in range(4) for y in range(2) for x in range(6)]


@pytest.mark.parametrize("directives,options,explicit,ranks", [
    ("", {}, 0, 1), ("", {"cluster": 1}, 1, 1), ("", {"cluster": 4}, 1, 4), (".reqnctapercluster 2", {}, 1, 2),
    (".explicitcluster .reqnctapercluster 2, 1, 1", {"cluster": 2}, 1, 2), (".explicitcluster", {"cluster": 8}, 1, 8),
    (".explicitcluster .maxclusterrank 4", {"cluster": 4}, 1, 4), ("", {"cluster": 16, "non_portable": True}, 1, 16),
])
def test_a_cluster_comes_from_the_launch_or_the_kernel(device, directives, options, explicit, ranks):
    body = """
        mov.pred %p1, %is_explicit_cluster; selp.u32 %r3, 1, 0, %p1;
        mov.u32 %r4, %cluster_nctarank; mad.lo.u32 %r31, %r3, 100, %r4;
    """
    assert set(run(device, kernel(body, directives), 16, 1, 16, **options).tolist()) == {100 * explicit + ranks}


def test_a_grid_of_clusters_is_counted_in_clusters(device):
    text = kernel("mov.u32 %r31, %nctaid.x;", ".blocksareclusters .reqntid 1 .reqnctapercluster 4").replace(".version 8.7", ".version 9.0")
    assert run(device, text, 3, 1, 12).tolist() == [12] * 12


@pytest.mark.parametrize("directives,grid,options,message", [
    ("", 6, {"cluster": 4}, "not a multiple of the cluster's 4"),
    ("", (4, 3), {"cluster": (2, 2)}, "y=3, which is not a multiple of the cluster's 2"),
    ("", 16, {"cluster": 16}, "at most 8, 16 with non_portable=True"),
    ("", 32, {"cluster": 32, "non_portable": True}, "at most 16"),
    ("", 4, {"cluster": 0}, "three positive numbers"),
    (".reqnctapercluster 2", 4, {"cluster": 4}, "requires cluster (2, 1, 1)"),
    (".maxclusterrank 2", 4, {"cluster": 4}, "at most 2 CTAs a cluster (.maxclusterrank)"),
    (".explicitcluster", 4, {}, "wants a cluster (.explicitcluster)"),
])
def test_a_cluster_that_cannot_be_is_refused(device, directives, grid, options, message):
    with pytest.raises(LaunchError) as error:
        run(device, kernel("mov.u32 %r31, 0;", directives), grid, 1, 64, **options)
    assert message in str(error.value)


def test_a_part_without_clusters_refuses_them():
    module = warpwright.Device("cpu", like="a100").load(kernel("mov.u32 %r31, 0;"))
    with pytest.raises(LaunchError, match=r"a100 \(compute capability 8.0\) has no clusters"):
        module["k"].launch(4, 1, [np.zeros(4, np.uint32)], cluster=2)


# ── shared memory of the cluster's CTAs ──────────────────────────────────────────────────────────────────────────

SHARE = f"""
    mad.lo.u32 %r3, %r1, 1000, %r0;                 // each CTA's s[i] = 1000 rank + i
    mov.u32 %r4, s;
    mad.lo.u32 %r5, %r0, 4, %r4;
    st.shared.u32 [%r5], %r3;
    {SYNC}
    add.u32 %r6, %r1, 1; mov.u32 %r7, %cluster_nctarank; rem.u32 %r6, %r6, %r7;   // the next CTA of the cluster
"""


@pytest.mark.parametrize("read", [
    "mapa.shared::cluster.u32 %r8, %r5, %r6; ld.shared::cluster.u32 %r31, [%r8];",
    "mapa.shared::cluster.u32 %r8, s, %r6; mad.lo.u32 %r8, %r0, 4, %r8; ld.shared::cluster.u32 %r31, [%r8];",
    "mapa.u64 %rd1, s+0, %r6; mad.wide.u32 %rd1, %r0, 4, %rd1; ld.u32 %r31, [%rd1];",
    "cvt.u64.u32 %rd1, %r5; mapa.shared::cluster.u64 %rd2, %rd1, %r6; ld.shared::cluster.u32 %r31, [%rd2];",
    "cvt.u64.u32 %rd1, %r5; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r6; ld.u32 %r31, [%rd2];",
    "mapa.shared::cluster.u32 %r8, %r5, %r6; cvt.u64.u32 %rd1, %r8; cvta.shared::cluster.u64 %rd2, %rd1; ld.u32 %r31, [%rd2];",
    """cvt.u64.u32 %rd1, %r5; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r6;
       cvta.to.shared::cluster.u64 %rd3, %rd2; ld.shared::cluster.u32 %r31, [%rd3];""",
    "mapa.shared::cluster.u32 %r8, %r5, %r6; atom.shared::cluster.add.u32 %r31, [%r8], 0;",
])
@pytest.mark.parametrize("threads", [32, 48])
def test_a_thread_reads_the_shared_memory_of_another_cta(device, read, threads):
    out = run(device, kernel(f"{SHARE} {read} {SYNC}"), 8, threads, 8 * threads, cluster=4).reshape(8, threads)
    expected = [[(rank + 1) % 4 * 1000 + i for i in range(threads)] for rank in (0, 1, 2, 3, 0, 1, 2, 3)]
    np.testing.assert_array_equal(out, expected)


def test_stores_and_reductions_reach_other_ctas(device):
    body = f"""
        mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4;
        st.shared.u32 [%r5], 0;
        {SYNC}
        add.u32 %r9, %r1, 1;
        mapa.shared::cluster.u32 %r8, %r5, 0;
        red.shared::cluster.add.u32 [%r8], %r9;         // all add their rank + 1 to CTA 0's
        mapa.shared::cluster.u32 %r8, %r4, 1;
        setp.eq.u32 %p1, %r0, 5;
        @%p1 mad.lo.u32 %r8, %r1, 4, %r8;
        add.u32 %r9, %r9, 100;
        @%p1 st.shared::cluster.u32 [%r8], %r9;         // thread 5 of each CTA writes CTA 1's s[rank]
        {SYNC}
        ld.shared.u32 %r31, [%r5];
    """
    out = run(device, kernel(body), 4, 32, 128, cluster=4).reshape(4, 32)
    assert out[0].tolist() == [10] * 32
    assert out[1].tolist() == [101, 102, 103, 104] + [0] * 28
    assert not out[2:].any()


def test_the_rank_of_an_address(device):
    body = f"""
        {SYNC}
        mov.u32 %r4, s;
        add.u32 %r6, %r0, %r1; and.b32 %r6, %r6, 3;
        mapa.shared::cluster.u32 %r8, %r4, %r6; getctarank.shared::cluster.u32 %r9, %r8;
        cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd1, %rd1; getctarank.u64 %r10, %rd1;
        mapa.u64 %rd2, %rd1, %r6; getctarank.u64 %r11, %rd2;
        getctarank.shared::cluster.u32 %r12, %r4;
        mad.lo.u32 %r31, %r9, 10, %r10; mad.lo.u32 %r31, %r31, 10, %r11; mad.lo.u32 %r31, %r31, 10, %r12;
        {SYNC}
    """
    out = run(device, kernel(body), 4, 32, 128, cluster=4).reshape(4, 32)
    there = (np.arange(32) + np.arange(4)[:, None]) % 4
    np.testing.assert_array_equal(out, there * 1010 + np.arange(4)[:, None] * 101)


def test_spaces_of_generic_addresses(device):
    body = f"""
        {SYNC}
        mov.u32 %r4, s; cvt.u64.u32 %rd1, %r4; cvta.shared.u64 %rd1, %rd1;
        mapa.u64 %rd2, %rd1, %r0; ld.param.u64 %rd3, [out];
        mov.u32 %r31, 0;
        isspacep.shared::cta %p0, %rd2; isspacep.shared::cluster %p1, %rd2; isspacep.global %p2, %rd2; isspacep.shared %p3, %rd1;
        isspacep.shared::cluster %p4, %rd3; isspacep.global %p5, %rd3;
        @%p0 or.b32 %r31, %r31, 1; @%p1 or.b32 %r31, %r31, 2; @%p2 or.b32 %r31, %r31, 4;
        @%p3 or.b32 %r31, %r31, 8; @%p4 or.b32 %r31, %r31, 16; @%p5 or.b32 %r31, %r31, 32;
        {SYNC}
    """
    out = run(device, kernel(body), 2, 2, 4, cluster=2)
    assert out.tolist() == [1 + 2 + 8 + 32, 2 + 8 + 32, 2 + 8 + 32, 1 + 2 + 8 + 32]


REMOTE_LOAD = "mov.u32 %r4, s; mapa.shared::cluster.u32 %r8, %r4, {rank}; ld.shared::cluster.u32 %r31, [%r8+{offset}];"
GENERIC_LOAD = "mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, {rank}; ld.u32 %r31, [%rd2+{offset}];"


@pytest.mark.parametrize("load", [REMOTE_LOAD, GENERIC_LOAD])
def test_a_rank_that_the_cluster_does_not_have_is_a_fault(device, load):
    with pytest.raises(MemoryFault, match="a CTA that its cluster does not have; its ranks are 0 to 1"):
        run(device, kernel(load.format(rank=2, offset=0)), 2, 1, 2, cluster=2)


@pytest.mark.parametrize("load", [REMOTE_LOAD, GENERIC_LOAD])
def test_the_shared_memory_of_a_cta_that_has_ended_is_out_of_reach(device, load):
    body = f"""
        setp.eq.u32 %p1, %r1, 1;
        @%p1 exit;
        {SYNC}
        {load.format(rank=1, offset=8)}
    """
    with pytest.raises(MemoryFault, match=r"4 bytes at 0x8 of the shared memory of CTA 1 of its cluster, which has ended"):
        run(device, kernel(body), 2, 64, 128, cluster=2)


def test_an_access_beyond_the_other_ctas_shared_memory_is_a_fault(device):
    with pytest.raises(MemoryFault, match="4 bytes at 0x100 of the shared memory of CTA 1 of its cluster, outside what the kernel has"):
        run(device, kernel(f"{SYNC} {REMOTE_LOAD.format(rank=1, offset=256)} {SYNC}"), 2, 1, 2, cluster=2)


# ── the cluster's barrier ────────────────────────────────────────────────────────────────────────────────────────


def test_the_phases_of_the_barrier_keep_ctas_in_step(device):
    """Each CTA passes a number on to the next one, 20 times, with arrive and wait apart."""
    body = """
        mov.u32 %r4, s; mov.u32 %r31, %r1; mov.u32 %r10, 0;
        add.u32 %r6, %r1, 1; and.b32 %r6, %r6, 3;
        mapa.shared::cluster.u32 %r8, %r4, %r6;
        barrier.cluster.arrive.release;
        barrier.cluster.wait.acquire;
    LOOP:
        and.b32 %r11, %r10, 1; mad.lo.u32 %r12, %r11, 4, %r8; mad.lo.u32 %r13, %r11, 4, %r4;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 st.shared::cluster.u32 [%r12], %r31;
        barrier.cluster.arrive;
        add.u32 %r10, %r10, 1;
        barrier.cluster.wait;
        ld.shared.u32 %r14, [%r13];
        mad.lo.u32 %r31, %r14, 3, %r1;
        setp.lt.u32 %p2, %r10, 20;
        @%p2 bra LOOP;
        barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
    """
    out = run(device, kernel(body), 8, 64, 512, cluster=4).reshape(8, 64)
    values = [0, 1, 2, 3]
    for _ in range(20):
        values = [(values[rank - 1] * 3 + rank) % 2**32 for rank in range(4)]
    np.testing.assert_array_equal(out, np.repeat(np.array(values * 2, np.uint32)[:, None], 64, 1))


def test_threads_that_have_ended_count_as_arrived(device):
    """In CTA 1 every thread but each warp's last ends first; CTA 2's second warp does."""
    body = """
        and.b32 %r3, %r0, 31;
        setp.ne.u32 %p1, %r3, 31; setp.eq.u32 %p2, %r1, 1; and.pred %p1, %p1, %p2;
        @%p1 bra DONE;
        setp.ge.u32 %p3, %r0, 32; setp.eq.u32 %p4, %r1, 2; and.pred %p3, %p3, %p4;
        @%p3 exit;
        barrier.cluster.arrive; barrier.cluster.wait;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r31, 7;
        bra STORE;
    DONE:
        ret;
    STORE:
    """
    out = run(device, kernel(body), 3, 64, 192, cluster=3).reshape(3, 64)
    assert (out[0] == 7).all()
    assert np.flatnonzero(out[1]).tolist() == [31, 63]
    assert np.flatnonzero(out[2]).tolist() == list(range(32))


def test_arriving_once_too_few_is_a_deadlock(device):
    body = "setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT; bar.sync 0; WAIT: barrier.cluster.arrive; @!%p1 barrier.cluster.arrive; barrier.cluster.wait;"
    text = kernel(body.replace("bar.sync 0;", "").replace("@!%p1 barrier.cluster.arrive;", "barrier.cluster.wait;"))
    with pytest.raises(KernelTimeout, match=r"barrier.cluster.wait; waits for ever"):
        run(device, text, 2, 64, 128, cluster=2)


def test_a_cluster_of_one_waits_for_itself(device):
    assert run(device, kernel(f"{SYNC} mov.u32 %r31, 3; {SYNC}"), 5, 96, 480).tolist() == [3] * 480


def test_a_deadlock_at_the_barrier_says_how_many_have_come(device):
    body = "setp.eq.u32 %p1, %r1, 0; @%p1 barrier.cluster.arrive; barrier.cluster.wait;"
    with pytest.raises(KernelTimeout) as error:
        run(device, kernel(body), 2, 32, 64, cluster=2)
    assert any("the cluster's barrier, where 32 of 64 threads have come" in line for line in error.value.waiting)


# ── mbarriers and asynchronous copies of other CTAs ──────────────────────────────────────────────────────────────

BARRIER = ".shared .align 8 .b64 bar; .shared .align 16 .b32 s[64]; .shared .align 16 .b32 from[64];"
WAIT = """
    WAIT:
        mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
"""


def test_ctas_arrive_at_the_mbarrier_of_another_one(device):
    """CTA 0 waits for 3 × 32 arrivals of the others, each of which has written to its shared memory before."""
    body = f"""
        setp.eq.u32 %p0, %r0, 0;
        @%p0 mbarrier.init.shared::cta.b64 [bar], 96;
        @%p0 fence.mbarrier_init.release.cluster;
        {SYNC}
        mov.u32 %r4, s; mov.u32 %r5, bar; mov.u32 %r31, 0;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra WAIT;
        mapa.shared::cluster.u32 %r6, %r4, 0; mapa.shared::cluster.u32 %r7, %r5, 0;
        mad.lo.u32 %r6, %r0, 4, %r6; mul.lo.u32 %r8, %r1, %r1;
        red.shared::cluster.add.u32 [%r6], %r8;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
        bra END;
        {WAIT}
        mad.lo.u32 %r6, %r0, 4, %r4; ld.shared.u32 %r31, [%r6];
    END:
        {SYNC}
    """
    body = f"mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], 0; {body}"
    out = run(device, kernel(body, shared=BARRIER), 4, 32, 128, cluster=4).reshape(4, 32)
    assert (out[0] == 1 + 4 + 9).all() and not out[1:].any()


def test_a_bulk_copy_to_another_cta_completes_at_its_mbarrier(device):
    """Each CTA sends its array to the next one."""
    body = f"""
        setp.eq.u32 %p0, %r0, 0;
        mov.u32 %r4, from; mad.lo.u32 %r5, %r0, 4, %r4; mad.lo.u32 %r6, %r1, 100, %r0; st.shared.u32 [%r5], %r6;
        @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
        fence.proxy.async.shared::cta;
        {SYNC}
        add.u32 %r7, %r1, 1; and.b32 %r7, %r7, 3; mov.u32 %r8, s; mov.u32 %r9, bar;
        mapa.shared::cluster.u32 %r10, %r8, %r7; mapa.shared::cluster.u32 %r11, %r9, %r7;
        @%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r4], 128, [%r11];
        {WAIT}
        mad.lo.u32 %r8, %r0, 4, %r8; ld.shared.u32 %r31, [%r8];
        {SYNC}
    """
    out = run(device, kernel(body, shared=BARRIER), 4, 32, 128, cluster=4).reshape(4, 32)
    np.testing.assert_array_equal(out, (np.arange(4)[:, None] - 1) % 4 * 100 + np.arange(32))


def test_an_asynchronous_store_to_another_cta_counts_its_bytes_there(device):
    body = f"""
        setp.eq.u32 %p0, %r0, 0;
        @%p0 mbarrier.init.shared::cta.b64 [bar], 1;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
        {SYNC}
        xor.b32 %r7, %r1, 1; mov.u32 %r8, s; mov.u32 %r9, bar; mad.lo.u32 %r8, %r0, 4, %r8;
        mapa.shared::cluster.u32 %r10, %r8, %r7; mapa.shared::cluster.u32 %r11, %r9, %r7;
        mad.lo.u32 %r12, %r1, 1000, %r0;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r10], %r12, [%r11];
        {WAIT}
        ld.shared.u32 %r31, [%r8];
        {SYNC}
    """
    out = run(device, kernel(body, shared=BARRIER), 2, 32, 64, cluster=2).reshape(2, 32)
    np.testing.assert_array_equal(out, (1 - np.arange(2)[:, None]) * 1000 + np.arange(32))
