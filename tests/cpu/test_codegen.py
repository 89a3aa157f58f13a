"""Compiled kernels against numpy: shapes of control flow, memory and warps that random programs reach seldom. See also test_differential."""

from __future__ import annotations

import numpy as np
import pytest

from warpwright import Device
from warpwright.errors import KernelTimeout, KernelTrap, LaunchError, MemoryFault

HEAD = ".version 8.3\n.target sm_90\n.address_size 64\n"


@pytest.fixture(scope="module")
def device():
    return Device("cpu", threads=2)


def kernel(body: str, parameters: str = ".param .u64 x, .param .u64 y, .param .u32 n", more: str = "") -> str:
    """A kernel `f`; %rx and %ry hold x and y, %n holds n, %i the thread's number in the grid."""
    return f"""{HEAD}{more}
.visible .entry f({parameters})
{{
    .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<40>; .reg .pred %p<10>;
    .reg .b32 %i, %n, %t; .reg .b64 %rx, %ry, %ax, %ay, %off;
    ld.param.u64 %rx, [x]; ld.param.u64 %ry, [y]; ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.u32 %i, %r0, %r1, %t;
    mul.wide.u32 %off, %i, 4; add.s64 %ax, %rx, %off; add.s64 %ay, %ry, %off;
{body}
    ret;
}}
"""


def run(device, text: str, *args, grid=1, block=32, **options) -> None:
    device.load(text)["f"].launch(grid=grid, block=block, args=list(args), **options)


# ── control flow ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_lanes_that_leave_early_do_not_write(device):
    x, y = np.arange(100, dtype=np.float32), np.full(160, -1, np.float32)
    run(device, kernel("""
    setp.ge.u32 %p0, %i, %n;
    @%p0 ret;
    ld.global.f32 %f0, [%ax]; add.f32 %f0, %f0, %f0; st.global.f32 [%ay], %f0;"""), x, y, 100, grid=5)
    assert np.array_equal(y[:100], 2 * x) and np.all(y[100:] == -1)


def test_a_loop_with_another_count_in_each_lane(device):
    x, y = np.random.default_rng(0).integers(0, 50, 256).astype(np.uint32), np.zeros(256, np.uint32)
    run(device, kernel("""
    ld.global.u32 %r2, [%ax]; mov.u32 %r3, 0;
LOOP:
    setp.eq.u32 %p0, %r2, 0;
    @%p0 bra DONE;
    add.u32 %r3, %r3, %r2; sub.u32 %r2, %r2, 1;
    bra LOOP;
DONE:
    st.global.u32 [%ay], %r3;"""), x, y, 256, grid=2, block=128)
    assert np.array_equal(y, x * (x + 1) // 2)


def test_a_loop_that_is_entered_in_its_middle(device):
    """Two entries into one cycle: no loop header dominates it."""
    y = np.zeros(64, np.uint32)
    run(device, kernel("""
    mov.u32 %r2, 0; mov.u32 %r3, 0; and.b32 %r4, %i, 1; setp.eq.u32 %p0, %r4, 0;
    @%p0 bra B;
A:
    add.u32 %r3, %r3, 100;
B:
    add.u32 %r3, %r3, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3;
    @%p1 bra A;
    st.global.u32 [%ay], %r3;"""), y, y, 64, grid=2)
    assert np.array_equal(y, np.where(np.arange(64) % 2 == 0, 203, 303))


def test_an_indexed_branch_sends_each_lane_its_way(device):
    y = np.zeros(64, np.uint32)
    run(device, kernel("""
    and.b32 %r2, %i, 3; mov.u32 %r3, 7;
TABLE: .branchtargets ZERO, ONE, TWO, THREE;
    brx.idx %r2, TABLE;
ZERO: add.u32 %r3, %r3, 1000; bra DONE;
ONE: add.u32 %r3, %r3, 100; bra DONE;
TWO: add.u32 %r3, %r3, 10;
THREE: add.u32 %r3, %r3, 1;
DONE: st.global.u32 [%ay], %r3;"""), y, y, 64, grid=2)
    assert np.array_equal(y, np.tile([1007, 107, 18, 8], 16))


def test_a_value_that_some_lanes_computed_before_others_is_kept(device):
    """%r3 is uniform in each arm, but the arms run one after the other."""
    y = np.zeros(32, np.uint32)
    run(device, kernel("""
    mov.u32 %r3, 5; and.b32 %r2, %i, 4; setp.ne.u32 %p0, %r2, 0;
    @%p0 bra SET;
    mov.u32 %r3, 6;
    bra DONE;
SET: mov.u32 %r3, 7;
DONE: st.global.u32 [%ay], %r3;"""), y, y, 32)
    assert np.array_equal(y, np.where(np.arange(32) & 4, 7, 6))


def test_functions_are_inlined_with_their_parameters(device):
    more = """
.func (.param .b32 result) twice(.param .b32 value, .param .align 4 .b8 pair[8])
{
    .reg .f32 %f<4>;
    ld.param.f32 %f0, [value]; ld.param.f32 %f1, [pair]; ld.param.f32 %f2, [pair+4];
    fma.rn.f32 %f0, %f0, %f1, %f2; st.param.f32 [result], %f0;
    ret;
}
"""
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(device, kernel("""
    ld.global.f32 %f0, [%ax];
    {
    .param .b32 a; .param .align 4 .b8 b[8]; .param .b32 r;
    st.param.f32 [a], %f0; st.param.f32 [b], 0f40400000; st.param.f32 [b+4], 0f3F800000;
    call.uni (r), twice, (a, b);
    ld.param.f32 %f1, [r];
    }
    st.global.f32 [%ay], %f1;""", more=more), x, y, 32)
    assert np.array_equal(y, 3 * x + 1)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pattern", ["i", "i*4", "31-i", "i&7", "i>>2", "0", "(i*5)&31", "(i>>2)*64 + (i&3)*4", "i^3"])
def test_every_form_of_address_reads_and_writes_the_same_elements(device, pattern):
    """Contiguous, strided, reversed, repeated, broadcast, scattered, rows of a tile, swizzled."""
    code = {
        "i": "mov.u32 %r2, %t;", "i*4": "shl.b32 %r2, %t, 2;", "31-i": "sub.u32 %r2, 31, %t;", "i&7": "and.b32 %r2, %t, 7;",
        "i>>2": "shr.u32 %r2, %t, 2;", "0": "mov.u32 %r2, 0;", "(i*5)&31": "mul.lo.u32 %r2, %t, 5; and.b32 %r2, %r2, 31;",
        "(i>>2)*64 + (i&3)*4": "shr.u32 %r2, %t, 2; shl.b32 %r2, %r2, 6; and.b32 %r3, %t, 3; shl.b32 %r3, %r3, 2; add.u32 %r2, %r2, %r3;",
        "i^3": "xor.b32 %r2, %t, 3;",
    }[pattern]
    index = np.array([eval(pattern, {"i": i}) for i in range(32)])
    x, y, back = np.arange(512, dtype=np.uint32) * 3, np.zeros(32, np.uint32), np.zeros(512, np.uint32)
    text = kernel(f"""
    .shared .align 16 .b8 s[2048];
    {code}
    mul.wide.u32 %rd1, %r2, 4; add.s64 %rd2, %rx, %rd1;
    ld.global.u32 %r4, [%rd2]; st.global.u32 [%ay], %r4;
    shl.b32 %r5, %r2, 2; mov.u32 %r6, s; add.u32 %r5, %r5, %r6;
    st.shared.u32 [%r5], %r4; bar.sync 0; ld.shared.u32 %r7, [%r5];
    ld.param.u64 %rd3, [z]; add.s64 %rd3, %rd3, %rd1; st.global.u32 [%rd3], %r7;""",
                  ".param .u64 x, .param .u64 y, .param .u32 n, .param .u64 z")
    run(device, text, x, y, 32, back)
    assert np.array_equal(y, x[index]) and np.array_equal(back[index], x[index]) and np.count_nonzero(back) <= 32


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_rows_of_a_pitch_known_at_run_time(device, rows):
    """base + (lane/4)·pitch + (lane mod 4)·16 bytes, four words a lane: what a tile's load is."""
    pitch = 16 * rows
    x, y = np.arange(8 * pitch, dtype=np.uint32), np.zeros(128, np.uint32)
    run(device, kernel("""
    shr.u32 %r2, %t, 2; and.b32 %r3, %t, 3; shl.b32 %r3, %r3, 4; cvt.u64.u32 %rd2, %r3;
    mul.wide.u32 %rd1, %r2, %n; add.s64 %rd1, %rd1, %rd2; add.s64 %rd1, %rd1, %rx;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];
    mul.wide.u32 %rd3, %t, 16; add.s64 %rd3, %ry, %rd3; st.global.v4.u32 [%rd3], {%r4, %r5, %r6, %r7};"""), x, y, 4 * pitch)
    assert np.array_equal(y.reshape(8, 16), x.reshape(8, pitch)[:, :16])


def test_a_partial_warp_at_the_end_of_an_array_is_no_fault(device):
    x, y = np.arange(70, dtype=np.float32), np.zeros(70, np.float32)
    run(device, kernel("""
    setp.lt.u32 %p0, %i, %n;
    @%p0 ld.global.f32 %f0, [%ax];
    @%p0 st.global.f32 [%ay], %f0;"""), x, y, 70, grid=3)
    assert np.array_equal(x, y)


def test_the_lane_that_reads_out_of_bounds_is_named(device):
    x, y = np.zeros(40, np.float32), np.zeros(64, np.float32)
    with pytest.raises(MemoryFault, match=r"thread \(8, 0, 0\) of CTA \(1, 0, 0\).*ld\.global\.f32") as caught:
        run(device, kernel("    ld.global.f32 %f0, [%ax]; st.global.f32 [%ay], %f0;"), x, y, 64, grid=2)
    assert caught.value.address == x.ctypes.data + 160


def test_a_misaligned_access_is_a_fault(device):
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(MemoryFault, match="not a multiple of 4"):
        run(device, kernel("    ld.global.f32 %f0, [%ax+2]; st.global.f32 [%ay], %f0;"), x, y, 32)


def test_shared_memory_ends_where_it_ends(device):
    x = np.zeros(64, np.float32)
    with pytest.raises(MemoryFault, match="shared memory"):
        run(device, kernel("""
    .shared .align 4 .b8 s[64];
    mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r2, %r2, %r3; st.shared.u32 [%r2], %t;"""), x, x, 32)


def test_local_memory_is_each_threads_own(device):
    y = np.zeros(64, np.uint32)
    run(device, kernel("""
    .local .align 4 .b8 l[16];
    mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1;
    st.local.u32 [%rd1+4], %i; add.u32 %r2, %i, 1000; st.u32 [%rd2+8], %r2;
    ld.u32 %r3, [%rd2+4]; ld.local.u32 %r4, [%rd1+8]; add.u32 %r3, %r3, %r4; st.global.u32 [%ay], %r3;"""), y, y, 64, grid=2)
    assert np.array_equal(y, 2 * np.arange(64) + 1000)


def test_module_variables_keep_their_values_and_their_relocations(device):
    more = ".global .align 4 .u32 table[4] = {10, 20, 30, 40};\n.global .align 8 .u64 where = table;\n.const .align 4 .f32 scale = 0f40000000;\n"
    y = np.zeros(32, np.uint32)
    run(device, kernel("""
    ld.global.u64 %rd1, [where]; and.b32 %r2, %t, 3; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd1, %rd1, %rd2; ld.u32 %r3, [%rd1];
    cvt.rn.f32.u32 %f0, %r3; ld.const.f32 %f1, [scale]; mul.f32 %f0, %f0, %f1; cvt.rzi.u32.f32 %r3, %f0; st.global.u32 [%ay], %r3;""", more=more),
        y, y, 32)
    assert np.array_equal(y, np.tile([20, 40, 60, 80], 8))


@pytest.mark.parametrize("size", [16, 8, 0])
def test_an_asynchronous_copy_fills_with_zeros_what_it_does_not_read(device, size):
    x, y = np.arange(1, 129, dtype=np.uint32), np.full(128, 7, np.uint32)
    run(device, kernel(f"""
    .shared .align 16 .b8 s[512];
    mov.u32 %r2, s; shl.b32 %r3, %t, 4; add.u32 %r2, %r2, %r3; cvt.u64.u32 %rd1, %r3; add.s64 %rd2, %rx, %rd1; add.s64 %rd3, %ry, %rd1;
    cp.async.cg.shared.global [%r2], [%rd2], 16, {size}; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2]; st.global.v4.u32 [%rd3], {{%r4, %r5, %r6, %r7}};"""), x, y, 32)
    expected = x.reshape(32, 4).copy()
    expected[:, size // 4:] = 0
    assert np.array_equal(y.reshape(32, 4), expected)


# ── warps and CTAs ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sum_over_a_cta_by_shuffles_and_shared_memory(device):
    x, y = np.arange(1024, dtype=np.uint32), np.zeros(4, np.uint32)
    steps = "".join(f"shfl.sync.bfly.b32 %r3, %r2, {d}, 31, -1; add.u32 %r2, %r2, %r3;\n" for d in (16, 8, 4, 2, 1))
    run(device, kernel(f"""
    .shared .align 4 .b8 s[32];
    ld.global.u32 %r2, [%ax];
    {steps}
    shr.u32 %r4, %t, 5; shl.b32 %r4, %r4, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4; and.b32 %r7, %t, 31; setp.eq.u32 %p0, %r7, 0;
    @%p0 st.shared.u32 [%r6], %r2;
    bar.sync 0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra END;
    mov.u32 %r2, 0; mov.u32 %r8, 0;
NEXT:
    add.u32 %r9, %r5, %r8; ld.shared.u32 %r3, [%r9]; add.u32 %r2, %r2, %r3; add.u32 %r8, %r8, 4; setp.lt.u32 %p2, %r8, 32;
    @%p2 bra NEXT;
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %ry, %rd1; st.global.u32 [%rd1], %r2;
END:"""), x, y, 1024, grid=4, block=256)
    assert np.array_equal(y, x.reshape(4, 256).sum(1))


def test_atomics_of_many_ctas_add_up(device):
    x, y = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32), np.zeros(300, np.uint32)
    run(device, kernel("""
    ld.global.u32 %r2, [%ax]; and.b32 %r2, %r2, 255; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %ry, %rd1;
    red.global.add.u32 [%rd1], 1; red.global.max.u32 [%ry+1024], %i; red.global.add.u32 [%ry+1028], %r2;"""), x, y, 4096, grid=16, block=256)
    assert np.array_equal(y[:256], np.bincount(x & 255, minlength=256)) and y[256] == 4095 and y[257] == (x & 255).sum()


def test_old_values_of_atomics_are_distinct(device):
    y, x = np.zeros(4096, np.uint32), np.zeros(1, np.uint32)
    run(device, kernel("    atom.global.add.u32 %r2, [%rx], 1; st.global.u32 [%ay], %r2;"), x, y, 0, grid=16, block=256)
    assert x[0] == 4096 and np.array_equal(np.sort(y), np.arange(4096))


def test_ctas_can_wait_for_each_other(device):
    """A flag passed from CTA to CTA: all must be resident, and the waiting must let others run."""
    x, y = np.zeros(1, np.uint32), np.zeros(24, np.uint32)
    run(device, kernel("""
    setp.ne.u32 %p0, %t, 0;
    @%p0 ret;
WAIT:
    ld.acquire.gpu.global.u32 %r2, [%rx]; setp.ne.u32 %p1, %r2, %r0;
    @%p1 bra WAIT;
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %ry, %rd1; st.global.u32 [%rd1], %r2;
    add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rx], %r2;"""), x, y, 0, grid=24, block=64)
    assert np.array_equal(y, np.arange(24))


def test_an_endless_loop_ends_and_a_trap_is_an_error(device):
    y = np.zeros(32, np.uint32)
    with pytest.raises(KernelTimeout):
        run(device, kernel("FOREVER:\n    add.u32 %r2, %r2, 1;\n    bra FOREVER;"), y, y, 0, time_limit=0.3)
    with pytest.raises(KernelTrap, match=r"thread \(9, 0, 0\)"):
        run(device, kernel("    setp.eq.u32 %p0, %t, 9;\n    @%p0 trap;"), y, y, 0)
    run(device, kernel("    st.global.u32 [%ay], %i;"), y, y, 0)  # the device goes on working
    assert np.array_equal(y, np.arange(32))


def test_what_the_engine_lacks_is_said_with_the_line(device):
    y = np.zeros(32, np.uint32)
    bodiless = ".extern .func f2(.reg .b32 %a);\n"
    with pytest.raises(LaunchError, match="no body for it"):
        run(device, kernel("    call f2, (%i);", more=bodiless), y, y, 0)


@pytest.mark.parametrize("block", [(24, 2, 1), (8, 4, 2), (5, 5, 1), (64, 3, 1)])
def test_thread_numbers_in_blocks_of_any_shape(device, block):
    threads = block[0] * block[1] * block[2]
    y = np.zeros(threads, np.uint32)
    run(device, kernel("""
    mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y;
    mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %t;
    mul.wide.u32 %rd1, %r6, 4; add.s64 %rd1, %ry, %rd1;
    shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 16; or.b32 %r2, %r2, %r3; or.b32 %r2, %r2, %t; st.global.u32 [%rd1], %r2;"""),
        y, y, 0, block=block)
    z, yy, x = np.meshgrid(*(np.arange(n) for n in reversed(block)), indexing="ij")
    assert np.array_equal(y, (x | yy << 8 | z << 16).ravel())
