"""Whole programs through the interpreter: control flow, memory, calls, lanes, barriers, faults."""

import numpy as np
import pytest
from interpret import each_lane, launch

from warpwright.errors import KernelTimeout, KernelTrap, LaunchError, MemoryFault

LANES = np.arange(32, dtype=np.uint32)


def test_divergent_branches_meet_again():
    result = each_lane("""
      setp.lt.u32 %p1, %r0, 10;
      @%p1 bra SMALL;
      mul.lo.u32 %r1, %r0, 3;
      bra MEET;
    SMALL:
      add.u32 %r1, %r0, 100;
    MEET:
      activemask.b32 %r2;
      popc.b32 %r2, %r2;
      add.u32 %r1, %r1, %r2;""")
    assert np.array_equal(result, np.where(LANES < 10, LANES + 100, LANES * 3) + 32)


def test_lanes_leave_a_loop_at_different_times():
    result = each_lane("""
      mov.u32 %r1, 0;
      mov.u32 %r2, %r0;
    LOOP:
      setp.eq.u32 %p1, %r2, 0;
      @%p1 bra DONE;
      add.u32 %r1, %r1, %r2;
      sub.u32 %r2, %r2, 1;
      bra LOOP;
    DONE:""")
    assert np.array_equal(result, LANES * (LANES + 1) // 2)


def test_a_jump_into_a_loop_from_outside_runs():
    """Two entries to one loop: no reducible flow graph."""
    result = each_lane("""
      mov.u32 %r1, 0;
      mov.u32 %r2, 4;
      and.b32 %r3, %r0, 1;
      setp.ne.u32 %p1, %r3, 0;
      @%p1 bra MIDDLE;
    TOP:
      add.u32 %r1, %r1, 10;
    MIDDLE:
      add.u32 %r1, %r1, 1;
      sub.u32 %r2, %r2, 1;
      setp.ne.u32 %p2, %r2, 0;
      @%p2 bra TOP;""")
    assert np.array_equal(result, np.where(LANES % 2, 34, 44))


def test_a_lane_may_wait_in_a_loop_for_another_lane():
    """The waiting lanes stand earlier in the program than the lane they wait for."""
    result = each_lane("""
      mov.u32 %r2, flag;
      setp.eq.u32 %p1, %r0, 31;
      @%p1 bra RELEASE;
    SPIN:
      ld.volatile.shared.u32 %r3, [%r2];
      setp.eq.u32 %p2, %r3, 0;
      @%p2 bra SPIN;
      mov.u32 %r1, %r3;
      bra END;
    RELEASE:
      mov.u32 %r1, 7;
      st.volatile.shared.u32 [%r2], %r1;
    END:""", declarations=".shared .u32 flag;")
    assert np.array_equal(result, np.full(32, 7))


def test_indexed_branches():
    result = each_lane("""
      and.b32 %r2, %r0, 3;
    LIST: .branchtargets A, B, C, D;
      brx.idx %r2, LIST;
    A: mov.u32 %r1, 10; bra END;
    B: mov.u32 %r1, 11; bra END;
    C: mov.u32 %r1, 12; bra END;
    D: mov.u32 %r1, 13;
    END:""")
    assert np.array_equal(result, 10 + LANES % 4)


def test_guards_and_names_declared_in_blocks():
    result = each_lane("""
      mov.u32 %r1, 5;
      {
        .reg .b32 %r1;
        .reg .pred %q;
        mov.u32 %r1, 99;
        setp.gt.u32 %q, %r0, 15;
        @!%q add.u32 %r0, %r0, 0;
        @%q mov.u32 %r5, %r1;
      }
      add.u32 %r1, %r1, %r5;""")
    assert np.array_equal(result, np.where(LANES > 15, 104, 5))


def test_carry_chain_through_the_flag():
    result = each_lane("""
      mov.u32 %r2, 0xffffffff;
      add.cc.u32 %r3, %r2, %r0;
      addc.u32 %r1, 0, 0;""")
    assert np.array_equal(result, (LANES > 0).astype(np.uint32))


def test_wide_registers_hold_extended_narrow_values():
    """Loads and conversions extend to the register's width by the sign of the type, and chop what they read."""
    result = each_lane("""
      mov.u32 %r2, bytes;
      mov.u32 %r3, 0x1f0;
      st.shared.u8 [%r2], %r3;
      ld.shared.s8 %r1, [%r2];
      cvt.s32.s8 %r4, %r3;
      sub.u32 %r1, %r1, %r4;
      ld.shared.u8 %r5, [%r2];
      add.u32 %r1, %r1, %r5;""", declarations=".shared .align 4 .b8 bytes[4];")
    assert np.array_equal(result, np.full(32, 0xF0))


def test_vectors_pack_unpack_load_and_store():
    data = np.arange(128, dtype=np.uint32)
    launch("""
.visible .entry reverse(.param .u64 data) {
  .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [data];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 16;
  add.s64 %rd1, %rd1, %rd2;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
  mov.b64 %rd3, {%r4, %r3};
  mov.b64 {_, %r5}, %rd3;
  st.global.v4.u32 [%rd1], {%r4, %r5, %r2, %r1};
  ret;
}""", "reverse", 1, 32, [data])
    assert np.array_equal(data.reshape(32, 4)[:, ::-1].ravel(), np.arange(128))


def test_functions_with_param_and_register_arguments_and_recursion():
    result = each_lane("""
      {
        .param .b32 argument;
        .param .b32 answer;
        st.param.b32 [argument], %r0;
        call.uni (answer), triangle, (argument);
        ld.param.b32 %r1, [answer];
      }
      call (%r2), double_it, (%r1);
      mov.u64 %rd1, double_it;
    prototype: .callprototype (.reg .u32 _) _ (.reg .u32 _);
      call (%r1), %rd1, (%r2), prototype;""", count=8)
    assert np.array_equal(result, 4 * (np.arange(8) * (np.arange(8) + 1) // 2))


# `each_lane` makes the kernel; functions it calls are put before it here.
_FUNCTIONS = """
.func (.param .b32 sum) triangle(.param .b32 n) {
  .reg .b32 %r<4>; .reg .pred %p;
  ld.param.b32 %r1, [n];
  setp.eq.u32 %p, %r1, 0;
  @%p bra BASE;
  sub.u32 %r2, %r1, 1;
  {
    .param .b32 inner;
    .param .b32 rest;
    st.param.b32 [inner], %r2;
    call.uni (rest), triangle, (inner);
    ld.param.b32 %r3, [rest];
  }
  add.u32 %r1, %r1, %r3;
BASE:
  st.param.b32 [sum], %r1;
  ret;
}
.func (.reg .u32 result) double_it(.reg .u32 value) {
  add.u32 result, value, value;
  ret;
}
"""


@pytest.fixture(autouse=True)
def functions(monkeypatch):
    import interpret

    monkeypatch.setattr(interpret, "HEADER", interpret.HEADER + _FUNCTIONS)


def test_local_memory_belongs_to_the_thread_and_has_generic_addresses():
    result = each_lane("""
      mov.u64 %rd1, room;
      st.local.u32 [%rd1+4], %r0;
      cvta.local.u64 %rd2, %rd1;
      ld.u32 %r1, [%rd2+4];
      isspacep.local %p1, %rd2;
      @!%p1 mov.u32 %r1, 0;
      cvta.to.local.u64 %rd3, %rd2;
      sub.u64 %rd3, %rd3, %rd1;
      cvt.u32.u64 %r2, %rd3;
      add.u32 %r1, %r1, %r2;""", declarations=".local .align 8 .b8 room[16];")
    assert np.array_equal(result, LANES)


def test_module_variables_with_initializers_and_pointers():
    out = np.zeros(4, np.uint32)
    variables = launch("""
.global .align 4 .u32 table[4] = {10, 20, 30};
.const .f32 half = 0f3F000000;
.global .u64 where = generic(table)+8;
.visible .entry read(.param .u64 out) {
  .reg .b32 %r<4>; .reg .f32 %f1; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.global.u64 %rd2, [where];
  ld.u32 %r1, [%rd2];
  st.global.u32 [%rd1], %r1;
  ld.const.f32 %f1, [half];
  st.global.f32 [%rd1+4], %f1;
  ld.global.u32 %r2, [table+4];
  st.global.u32 [%rd1+8], %r2;
  st.global.u32 [table+12], %r2;
  ret;
}""", "read", 1, 1, [out])
    assert out.tolist() == [30, 0x3F000000, 20, 0]
    assert variables["table"].view(np.uint32).tolist() == [10, 20, 30, 20]


def test_shared_memory_and_barriers_pass_values_between_warps():
    result = each_lane("""
      mov.u32 %r2, tile;
      shl.b32 %r3, %r0, 2;
      add.u32 %r3, %r2, %r3;
      st.shared.u32 [%r3], %r0;
      bar.sync 0;
      sub.u32 %r4, 95, %r0;
      shl.b32 %r4, %r4, 2;
      add.u32 %r4, %r2, %r4;
      ld.shared.u32 %r1, [%r4];""", count=96, declarations=".shared .align 4 .b8 tile[384];")
    assert np.array_equal(result, 95 - np.arange(96))


def test_barrier_reductions_and_producers():
    result = each_lane("""
      setp.lt.u32 %p1, %r0, 40;
      bar.red.popc.u32 %r1, 1, %p1;
      bar.red.and.pred %p2, 2, %p1;
      bar.red.or.pred %p3, 2, !%p1;
      @%p2 add.u32 %r1, %r1, 1000;
      @%p3 add.u32 %r1, %r1, 100;
      setp.ge.u32 %p4, %r0, 32;
      @%p4 bra CONSUME;
      st.shared.u32 [cell], 5;
      bar.arrive 3, 64;
      bra END;
    CONSUME:
      bar.sync 3, 64;
      ld.shared.u32 %r2, [cell];
      add.u32 %r1, %r1, %r2;
    END:""", count=64, declarations=".shared .u32 cell;")
    assert np.array_equal(result, np.where(np.arange(64) < 32, 140, 145))


def test_a_barrier_waits_only_for_threads_that_have_not_ended():
    out = np.zeros(64, np.uint32)
    launch("""
.visible .entry half(.param .u64 out) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %p, %r1, 32;
  @%p exit;
  bar.sync 0;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], 1;
  ret;
}""", "half", 1, 64, [out])
    assert out.sum() == 32


def test_shuffles_in_divergent_code_gather_their_members():
    result = each_lane("""
      setp.lt.u32 %p1, %r0, 16;
      @%p1 bra LOW;
      shfl.sync.down.b32 %r1|%p2, %r0, 1, 0x1f, 0xffff0000;
      bra END;
    LOW:
      shfl.sync.bfly.b32 %r1|%p2, %r0, 1, 0x1f, 0x0000ffff;
    END:""")
    assert np.array_equal(result, np.where(LANES < 16, LANES ^ 1, np.minimum(LANES + 1, 31)))


def test_members_of_one_shuffle_may_stand_at_different_instructions():
    result = each_lane("""
      setp.lt.u32 %p1, %r0, 16;
      @%p1 bra LOW;
      shfl.sync.bfly.b32 %r1, %r0, 16, 0x1f, 0xffffffff;
      bra END;
    LOW:
      shfl.sync.bfly.b32 %r1, %r0, 16, 0x1f, 0xffffffff;
    END:""")
    assert np.array_equal(result, LANES ^ 16)


def test_votes_see_only_lanes_that_have_not_ended():
    result = each_lane("""
      setp.gt.u32 %p1, %r0, 29;
      @%p1 exit;
      and.b32 %r2, %r0, 1;
      setp.ne.u32 %p2, %r2, 0;
      vote.sync.ballot.b32 %r1, %p2, 0xffffffff;""")
    assert np.array_equal(result, np.where(LANES < 30, 0x2AAAAAAA, 0))


@pytest.mark.parametrize(("op", "type_", "start", "operand", "wanted"), [
    ("add", "u32", 1, 2, 65), ("max", "s32", -5, -1, -1), ("min", "u32", 9, 2, 2), ("inc", "u32", 0, 9, 2), ("dec", "u32", 3, 9, 1),
    ("and", "b32", 0xFF, 0x0F, 0x0F), ("xor", "b32", 1, 1, 1), ("exch", "b32", 1, 7, 7),
])
def test_atomics_by_all_lanes(op, type_, start, operand, wanted):
    cell = np.array([start], np.int64).astype(np.uint32)
    launch(f"""
.visible .entry all(.param .u64 cell) {{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [cell];
  atom.global.{op}.{type_} %r1, [%rd1], {operand};
  ret;
}}""", "all", 1, 32, [cell])
    assert int(cell.view(np.int32)[0]) == wanted


def test_compare_and_swap_returns_what_was_there():
    result = each_lane("""
      mov.u32 %r2, cell;
      add.u32 %r3, %r0, 1;
      atom.shared.cas.b32 %r1, [%r2], 0, %r3;""", declarations=".shared .u32 cell;")
    assert result.tolist() == [0] + [1] * 31


def test_float_atomics_flush_subnormals_in_global_memory_only():
    cells = np.array([1, 9], np.uint32)  # the smallest subnormal
    launch("""
.shared .f32 tile;
.visible .entry add(.param .u64 cells) {
  .reg .f32 %f<4>; .reg .b64 %rd<4>; .reg .b32 %r1;
  ld.param.u64 %rd1, [cells];
  ld.global.f32 %f1, [%rd1];
  st.shared.f32 [tile], %f1;
  red.shared.add.f32 [tile], 0f00000001;
  ld.shared.b32 %r1, [tile];
  red.global.add.f32 [%rd1], 0f00000001;
  st.global.b32 [%rd1+4], %r1;
  ret;
}""", "add", 1, 1, [cells])
    assert cells.tolist() == [0, 2]


def test_ctas_that_wait_for_each_other_all_run():
    """A barrier of the whole grid: every CTA adds one and spins until all have."""
    counter = np.zeros(1, np.uint32)
    launch("""
.visible .entry meet(.param .u64 counter) {
  .reg .b32 %r<4>; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd1, [counter];
  mov.u32 %r2, %nctaid.x;
  red.global.add.u32 [%rd1], 1;
SPIN:
  ld.acquire.gpu.global.u32 %r1, [%rd1];
  setp.lt.u32 %p, %r1, %r2;
  @%p bra SPIN;
  ret;
}""", "meet", 9, 1, [counter])
    assert counter[0] == 9


def test_special_registers():
    out = np.zeros((2, 3, 4, 8), np.uint32)
    launch("""
.visible .entry who(.param .u64 out) {
  .reg .b32 %r<12>; .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.y;
  mov.u32 %r4, %ntid.x;
  mad.lo.u32 %r5, %r2, %r4, %r1;
  mad.lo.u32 %r6, %r3, 12, %r5;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r6, 32;
  add.u64 %rd1, %rd1, %rd2;
  mov.u32 %r7, %laneid; mov.u32 %r8, %lanemask_lt; mov.u32 %r9, %nctaid.y; mov.u32 %r10, %nwarpid;
  st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r7};
  st.global.v4.u32 [%rd1+16], {%r8, %r9, %r10, %r5};
  ret;
}""", "who", (1, 2), (4, 3), [out])
    cta, y, x = np.meshgrid(np.arange(2), np.arange(3), np.arange(4), indexing="ij")
    lane = y * 4 + x
    for i, wanted in enumerate((x, y, cta, lane, (1 << lane) - 1, 2, 64, lane)):
        assert np.array_equal(out[..., i], np.broadcast_to(wanted, x.shape)), i


def test_mbarrier_phases():
    result = each_lane("""
      setp.eq.u32 %p1, %r0, 0;
      @%p1 mbarrier.init.shared.b64 [bar], 32;
      bar.sync 0;
      mbarrier.arrive.shared.b64 %rd1, [bar];
    WAIT:
      mbarrier.test_wait.shared.b64 %p2, [bar], %rd1;
      @!%p2 bra WAIT;
      mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0;
      selp.u32 %r1, 1, 0, %p3;
      mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1;
      @%p3 add.u32 %r1, %r1, 10;""", declarations=".shared .align 8 .b64 bar;")
    assert np.array_equal(result, np.ones(32))


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────────

READ = """
.visible .entry read(.param .u64 data, .param .u32 offset) {
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [offset];
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r2, 4, %r1;
  cvt.u64.u32 %rd2, %r1;
  add.u64 %rd1, %rd1, %rd2;
  ld.global.u32 %r3, [%rd1];
  ret;
}"""


def test_a_read_past_the_end_names_everything():
    data = np.zeros(20, np.uint32)
    with pytest.raises(MemoryFault) as caught:
        launch(READ, "read", 1, 32, [data, 0])
    fault = caught.value
    assert (fault.kernel, fault.thread, fault.cta, fault.address) == ("read", (20, 0, 0), (0, 0, 0), data.ctypes.data + 80)
    assert fault.instruction == "ld.global.u32 %r3, [%rd1];"
    assert "argument 0 (80 bytes at" in str(fault) and "whose end is 0 bytes before it" in str(fault)
    assert f"line {fault.line}" in str(fault)


def test_a_misaligned_read_says_so():
    with pytest.raises(MemoryFault, match="not a multiple of 4"):
        launch(READ, "read", 1, 1, [np.zeros(20, np.uint32), 2])


def test_shared_memory_has_an_end():
    with pytest.raises(MemoryFault, match="of shared memory, outside what the kernel has"):
        each_lane("ld.shared.u32 %r1, [room+64];", declarations=".shared .align 4 .b8 room[64];")


def test_a_trap_names_its_thread():
    with pytest.raises(KernelTrap) as caught:
        each_lane("setp.eq.u32 %p1, %r0, 3;\n@%p1 trap;")
    assert caught.value.thread == (3, 0, 0)


def test_an_endless_loop_is_stopped():
    with pytest.raises(KernelTimeout, match=r"still running after 0\.2 s"):
        each_lane("FOREVER: bra FOREVER;", time_limit=0.2)


def test_a_barrier_nobody_else_comes_to_is_a_deadlock():
    with pytest.raises(KernelTimeout, match="waits for ever"):
        each_lane("setp.eq.u32 %p1, %r0, 3;\n@%p1 bar.sync 1;\n@!%p1 bar.sync 0, 64;")


def test_endless_recursion_is_a_trap():
    text = """
.func endless() { call endless; ret; }
.visible .entry start() { call endless; ret; }"""
    with pytest.raises(KernelTrap, match="filled the stack"):
        launch(text, "start", 1, 1, [])


def test_what_is_not_known_is_named_with_its_line():
    with pytest.raises(LaunchError, match=r"32:3: the interpreter does not know this instruction: suld\.b\.1d"):
        each_lane("suld.b.1d.b32.trap {%r1}, [%rd1, {%r0}];")


# ── matrices and asynchronous copies ─────────────────────────────────────────────────────────────────────────────


def test_a_gemm_of_64_cubed_by_mma_ldmatrix_and_asynchronous_copies():
    """One warp; tiles of A (16×16, row-major) and B (16×8) go through shared memory, B transposed by ldmatrix."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (64, 64)).astype(np.float32) for _ in range(2))
    bits = [np.ascontiguousarray(x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)]
    c = np.zeros((64, 64), np.float32)
    launch("""
.visible .entry gemm(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<40>; .reg .f32 %f<8>; .reg .b64 %rd<20>; .reg .pred %p<4>;
  .shared .align 16 .b8 tile[768];
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %laneid;
  mov.u32 %r20, tile;
  mov.u32 %r2, %ctaid.y; shl.b32 %r2, %r2, 4;
  mov.u32 %r3, %ctaid.x; shl.b32 %r3, %r3, 3;
  mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  mov.u32 %r4, 0;
K:
  // A: lane copies 16 bytes: row lane/2, half lane%2
  shr.u32 %r5, %r1, 1; and.b32 %r6, %r1, 1;
  add.u32 %r7, %r5, %r2; shl.b32 %r7, %r7, 6; add.u32 %r7, %r7, %r4; mad.lo.u32 %r7, %r6, 8, %r7;
  mul.wide.u32 %rd4, %r7, 2; add.s64 %rd4, %rd1, %rd4;
  shl.b32 %r8, %r1, 4; add.u32 %r8, %r20, %r8;
  cp.async.cg.shared.global [%r8], [%rd4], 16;
  // B: lanes 0…15 copy a row of 8 each
  setp.lt.u32 %p1, %r1, 16;
  add.u32 %r9, %r4, %r1; shl.b32 %r9, %r9, 6; add.u32 %r9, %r9, %r3;
  mul.wide.u32 %rd5, %r9, 2; add.s64 %rd5, %rd2, %rd5;
  @%p1 cp.async.ca.shared.global [%r8+512], [%rd5], 16;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.warp.sync 0xffffffff;
  and.b32 %r10, %r1, 15; shl.b32 %r10, %r10, 5; shr.u32 %r11, %r1, 4; mad.lo.u32 %r10, %r11, 16, %r10; add.u32 %r10, %r10, %r20;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r12, %r13, %r14, %r15}, [%r10];
  and.b32 %r16, %r1, 15; shl.b32 %r16, %r16, 4; add.u32 %r16, %r16, %r20;
  ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r17, %r18}, [%r16+512];
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r12, %r13, %r14, %r15}, {%r17, %r18}, {%f1, %f2, %f3, %f4};
  bar.warp.sync 0xffffffff;
  add.u32 %r4, %r4, 16;
  setp.lt.u32 %p2, %r4, 64;
  @%p2 bra K;
  shr.u32 %r21, %r1, 2; add.u32 %r21, %r21, %r2; and.b32 %r22, %r1, 3; shl.b32 %r22, %r22, 1; add.u32 %r22, %r22, %r3;
  mad.lo.u32 %r23, %r21, 64, %r22; mul.wide.u32 %rd6, %r23, 4; add.s64 %rd6, %rd3, %rd6;
  st.global.v2.f32 [%rd6], {%f1, %f2};
  st.global.v2.f32 [%rd6+2048], {%f3, %f4};
  ret;
}""", "gemm", (8, 4), 32, [*bits, c])
    assert np.array_equal(c, a @ b)


def test_matrices_stored_and_transposed():
    result = each_lane("""
      mov.u32 %r2, tile;
      and.b32 %r3, %r0, 7;
      shl.b32 %r3, %r3, 4;
      add.u32 %r3, %r2, %r3;
      shl.b32 %r4, %r0, 16;
      or.b32 %r4, %r4, %r0;
      stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r3], {%r4};
      bar.warp.sync 0xffffffff;
      ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3];
      movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r5;
      sub.u32 %r1, %r6, %r4;""", declarations=".shared .align 16 .b8 tile[128];")
    assert np.array_equal(result, np.zeros(32))


def test_an_asynchronous_copy_fills_with_zeros():
    source = np.arange(1, 9, dtype=np.uint32)
    out = np.full(8, 9, np.uint32)
    launch("""
.visible .entry copy(.param .u64 from, .param .u64 to) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
  .shared .align 16 .b8 tile[32];
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
  mov.u32 %r1, 8;
  cp.async.cg.shared.global [tile], [%rd1], 16, %r1;
  setp.eq.u32 %p, %r1, 8;
  cp.async.ca.shared.global [tile+16], [%rd1], 16, %p;
  cp.async.wait_all;
  ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [tile];
  st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r5};
  ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [tile+16];
  st.global.v4.u32 [%rd2+16], {%r2, %r3, %r4, %r5};
  ret;
}""", "copy", 1, 1, [source, out])
    assert out.tolist() == [1, 2, 0, 0, 0, 0, 0, 0]


def test_a_bulk_copy_completes_its_barrier():
    source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    launch("""
.visible .entry copy(.param .u64 from, .param .u64 to) {
  .reg .b64 %rd<4>; .reg .pred %p;
  .shared .align 16 .b8 tile[256];
  .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
  mbarrier.init.shared.b64 [bar], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 256, [bar];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
  @!%p bra WAIT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [tile], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;
}""", "copy", 1, 1, [source, out])
    assert np.array_equal(out, source)
