"""CTAs that wait for each other: as many make progress together as the device holds, and no more."""

import numpy as np
import pytest

import warpwright
from warpwright.errors import KernelTimeout, LaunchError

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"

# Every CTA adds 1 to the counter, and all of them wait until all have: `rounds` times. Each writes how many it has seen.
GRID_BARRIER = HEADER + """
.visible .entry meet(.param .u64 counter, .param .u64 seen, .param .u32 rounds)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [seen]; ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r4, 0;
    mov.u32 %r9, %ctaid.x;
ROUND:
    bar.sync 0;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra JOIN;
    membar.gl;
    atom.global.add.u32 %r5, [%rd1], 1;
    add.u32 %r6, %r4, 1; mul.lo.u32 %r6, %r6, %r3;
SPIN:
    ld.acquire.gpu.global.u32 %r7, [%rd1];
    setp.lt.u32 %p2, %r7, %r6;
    @%p2 bra SPIN;
JOIN:
    bar.sync 0;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p3, %r4, %r1;
    @%p3 bra ROUND;
    @%p1 bra DONE;
    mad.wide.u32 %rd3, %r9, 4, %rd2;
    st.global.u32 [%rd3], %r7;
DONE:
    ret;
}
"""


def meet(device, grid: int, block: int, rounds: int = 3, **options) -> np.ndarray:
    counter, seen = np.zeros(1, np.uint32), np.zeros(grid, np.uint32)
    device.load(GRID_BARRIER)["meet"].launch(grid, block, [counter, seen, rounds], time_limit=options.pop("time_limit", 30), **options)
    assert counter[0] == grid * rounds
    return seen


def test_all_ctas_that_the_device_holds_pass_a_grid_barrier():
    device = warpwright.Device("cpu", like="h100", threads=2)
    resident = device.load(GRID_BARRIER)["meet"].resident_ctas(128)
    assert resident == 132 * 16
    assert (meet(device, resident, 128) == 3 * resident).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_grid_barrier_on_few_ctas(kind):
    assert (meet(warpwright.Device(kind, like="h100"), 20, 64) == 60).all()


@pytest.mark.parametrize("kind,block", [("cpu", 1024), ("interpreter", 1)])
def test_a_grid_larger_than_what_is_resident_waits_for_ever(kind, block):
    """The last CTA never starts, as on a GPU: shared memory lets one on an SM."""
    counter, seen = np.zeros(1, np.uint32), np.zeros(79, np.uint32)
    kernel = warpwright.Device(kind, like="h20").load(GRID_BARRIER.replace("bar.sync 0;", ""))["meet"]
    with pytest.raises(KernelTimeout, match="the grid has 79 CTAs, of which the device holds 78 at once"):
        kernel.launch(79, block, [counter, seen, 1], shared_bytes=120 * 1024, time_limit=1.5)
    assert counter[0] == 78


def test_a_cta_that_ends_makes_room_for_one_that_others_wait_for():
    """134 CTAs on 132 places: the first half wait for the last one, the others end at once."""
    text = HEADER + """
    .visible .entry k(.param .u64 flag) {
        .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [flag]; mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 133; @%p1 st.release.gpu.global.u32 [%rd1], 1;
        setp.ge.u32 %p2, %r1, 66; @%p2 ret;
    SPIN:
        ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
        red.global.add.u32 [%rd1], 1;
        ret;
    }"""
    for kind in ("cpu", "interpreter"):
        flag = np.zeros(1, np.uint32)
        warpwright.Device(kind, like="h100").load(text)["k"].launch(134, 1, [flag], shared_bytes=200 * 1024, time_limit=20)
        assert flag[0] == 67


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_lock_between_ctas_keeps_them_apart(kind):
    """Each CTA adds to a sum that is not atomic, under a lock taken by compare and swap."""
    text = HEADER + """
    .visible .entry k(.param .u64 lock) {
        .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [lock];
        mov.u32 %r4, 0;
    TAKE:
        atom.acquire.gpu.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra TAKE;
        ld.global.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1+4], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%rd1], 0;
        add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 10; @%p2 bra TAKE;
        ret;
    }"""
    lock = np.zeros(2, np.uint32)
    grid = 1000 if kind == "cpu" else 40
    warpwright.Device(kind, threads=2 if kind == "cpu" else None).load(text)["k"].launch(grid, 1, [lock], time_limit=20)
    assert lock.tolist() == [0, 10 * grid]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_scan_that_looks_back_at_earlier_ctas(kind):
    """Each CTA waits for the sum of the one before it, on a grid far larger than the device."""
    text = HEADER + """
    .visible .entry k(.param .u64 sums) {
        .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [sums]; mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd1, %r1, 4, %rd1;
        mov.u32 %r2, 1;
        setp.eq.u32 %p1, %r1, 0; @%p1 bra OUT;
    SPIN:
        ld.acquire.gpu.global.u32 %r2, [%rd1+-4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;
        add.u32 %r2, %r2, 1;
    OUT:
        st.release.gpu.global.u32 [%rd1], %r2;
        ret;
    }"""
    count = 5000 if kind == "cpu" else 300
    sums = np.zeros(count, np.uint32)
    warpwright.Device(kind, like="h100").load(text)["k"].launch(count, 1, [sums], shared_bytes=100 * 1024, time_limit=20)
    assert sums.tolist() == list(range(1, count + 1))


# ── how many CTAs are resident ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("like,block,shared,directives,per_sm", [
    ("h100", 1024, 0, "", 2), ("h100", 32, 0, "", 32), ("h100", 33, 0, "", 32), ("h100", 256, 0, "", 8), ("h100", 128, 227 * 1024, "", 1),
    ("h100", 128, 113 * 1024, "", 2), ("h100", 128, 56 * 1024, "", 4), ("h100", 256, 0, ".maxnreg 128", 2), ("h100", 256, 0, ".maxnreg 255", 1),
    ("h100", 384, 0, ".maxnreg 168", 1), ("h100", 128, 0, ".maxntid 128 .minnctapersm 4", 16), ("rtx4090", 32, 0, "", 24),
    ("rtx4090", 1024, 0, "", 1), ("a100", 512, 80 * 1024, "", 2),
])
def test_threads_shared_memory_and_registers_limit_the_resident_ctas(like, block, shared, directives, per_sm):
    device = warpwright.Device("cpu", like=like)
    kernel = device.load(HEADER + f".visible .entry k() {directives} {{ ret; }}")["k"]
    assert kernel.resident_ctas(block, shared) == per_sm * device.part.sms


def test_values_that_live_at_once_count_as_registers():
    """200 values loaded before the first is used: two CTAs of 128 threads an SM's 65536 registers hold."""
    loads = "\n".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(200))
    adds = "\n".join(f"add.f32 %f0, %f0, %f{i};" for i in range(1, 200))
    text = HEADER + f""".visible .entry k(.param .u64 p) {{ .reg .f32 %f<200>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];
        {loads} {adds} st.global.f32 [%rd1], %f0; ret; }}"""
    kernel = warpwright.Device("cpu", like="h100").load(text)["k"]
    assert kernel.resident_ctas(128) == 2 * 132
    assert kernel.resident_ctas(256) == 1 * 132


def test_clusters_are_resident_as_a_whole():
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }"
    kernel = warpwright.Device("cpu", like="h100").load(text)["k"]
    assert kernel.resident_ctas(1024, 120 * 1024, cluster=8) == 128


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_cooperative_launch_fits_or_is_refused(kind):
    device = warpwright.Device(kind, like="h100")
    assert (meet(device, 30, 32, cooperative=True) == 90).all()
    with pytest.raises(LaunchError, match=r"a cooperative launch of 265 CTAs of 1024 threads; h100 holds 264 of them at once"):
        meet(device, 265, 1024, cooperative=True)


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_cooperative_launch_has_a_workspace_for_its_grid_barrier(kind):
    """What cooperative groups' grid.sync() reads: a zeroed structure at the address in %envreg1 and %envreg2."""
    text = HEADER + """
    .visible .entry k(.param .u64 out) {
        .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<3>;
        mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %rd1, {%r2, %r1};
        mov.u32 %r3, 0;
        setp.eq.u64 %p1, %rd1, 0;
        @!%p1 atom.add.gpu.u32 %r3, [%rd1+4], 5;
        selp.u32 %r4, 100, 200, %p1;
        add.u32 %r3, %r3, %r4;
        ld.param.u64 %rd2, [out]; mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd2, %r1, 4, %rd2; st.global.u32 [%rd2], %r3;
        ret;
    }"""
    kernel = warpwright.Device(kind).load(text)["k"]
    out = np.zeros(2, np.uint32)
    kernel.launch(2, 1, [out])
    assert out.tolist() == [100, 100]
    for _ in range(2):
        kernel.launch(2, 1, [out], cooperative=True)
        assert sorted(out.tolist()) == [200, 205]
