"""Lanes of one warp that wait for each other make progress, whichever way they go first; both engines."""

import numpy as np
import pytest
import random_programs as programs
from test_differential import agree

import warpwright
from warpwright import ptx
from warpwright.cpu import codegen
from warpwright.cpu.analysis.program import flatten
from warpwright.errors import KernelTimeout

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


@pytest.fixture(params=["interpreter", "cpu"])
def device(request):
    return warpwright.Device(request.param, threads=1)


def run(device, body: str, threads: int = 32, words: int = 64, functions: str = "", grid: int = 1) -> np.ndarray:
    """A kernel's `.u32 out[words]` (zero at first) after a launch; o is its address, t the thread's number, w the address of out[32 + t]."""
    out = np.zeros(words, np.uint32)
    source = HEAD + functions + f"""
    .visible .entry k(.param .u64 out)
    {{
      .reg .u64 o, w, v; .reg .u32 t, x, y, z, n, old; .reg .pred p, q, won;
      .shared .align 8 .b8 s[256];
      ld.param.u64 o, [out]; mov.u32 t, %tid.x;
      mul.wide.u32 w, t, 4; add.u64 w, w, o; add.u64 w, w, 128;
      {body}
      ret;
    }}
    """
    device.load(source)["k"].launch(grid, threads, [out], time_limit=20)
    return out


LOCK = """
    TAKE:
      atom.acquire.gpu.global.cas.b32 old, [o], 0, 1;
      setp.ne.u32 p, old, 0;
      @p bra TAKE;
"""
UNLOCK = "atom.release.gpu.global.exch.b32 old, [o], 0;"


@pytest.mark.parametrize("threads", [32, 20, 96])
def test_a_lock_taken_in_a_loop_and_given_back_behind_it(device, threads):
    """The lane that has the lock leaves the loop; the others, still in it, wait for what it does behind it."""
    out = run(device, LOCK + "ld.volatile.global.u32 x, [o+4]; add.u32 x, x, 1; st.volatile.global.u32 [o+4], x;" + UNLOCK, threads)
    assert out[0] == 0 and out[1] == threads


def test_a_lock_inside_a_loop(device):
    out = run(device, "mov.u32 n, 0;\nAGAIN:" + LOCK + """
      ld.volatile.global.u32 x, [o+4]; add.u32 x, x, t; st.volatile.global.u32 [o+4], x;""" + UNLOCK + """
      add.u32 n, n, 1; setp.lt.u32 q, n, 3;
      @q bra AGAIN;
      st.global.u32 [w], n;""")
    assert out[1] == 3 * sum(range(32)) and (out[32:] == 3).all()


def test_two_locks_one_inside_the_other(device):
    inner = LOCK.replace("TAKE", "INNER").replace("[o]", "[o+8]")
    out = run(device, LOCK + inner + "ld.volatile.global.u32 x, [o+4]; add.u32 x, x, 1; st.volatile.global.u32 [o+4], x;"
              + UNLOCK.replace("[o]", "[o+8]") + UNLOCK)
    assert out[0] == out[2] == 0 and out[1] == 32


def test_a_lock_with_a_growing_pause(device):
    out = run(device, """
      mov.u32 n, 8;
    TAKE:
      atom.global.cas.b32 old, [o], 0, 1;
      setp.eq.u32 p, old, 0;
      @p bra HAVE;
      nanosleep.u32 n;
      min.u32 n, n, 128; shl.b32 n, n, 1;
      bra TAKE;
    HAVE:
      ld.volatile.global.u32 x, [o+4]; add.u32 x, x, 1; st.volatile.global.u32 [o+4], x;""" + UNLOCK)
    assert out[1] == 32


def test_a_lock_in_a_function(device):
    functions = """
    .func lock (.reg .u64 at)
    {
      .reg .u32 old; .reg .pred p;
    L: atom.acquire.gpu.global.cas.b32 old, [at], 0, 1;
      setp.ne.u32 p, old, 0;
      @p bra L;
      ret;
    }
    .func unlock (.reg .u64 at) { .reg .u32 old; atom.release.gpu.global.exch.b32 old, [at], 0; ret; }
    """
    body = """
      call lock, (o);
      ld.volatile.global.u32 x, [o+4]; add.u32 x, x, 1; st.volatile.global.u32 [o+4], x;
      call unlock, (o);"""
    assert run(device, body, functions=functions)[1] == 32


@pytest.mark.parametrize("first", [0, 1])
def test_one_lane_gives_and_another_takes(device, first):
    """Eight values through one word of memory; the odd lane takes what the even one gives, whichever code comes first."""
    give = """
      mov.u32 n, 1;
    G: ld.acquire.gpu.global.u32 x, [o]; setp.ne.u32 p, x, 0;
      @p bra G;
      st.release.gpu.global.u32 [o], n;
      add.u32 n, n, 1; setp.le.u32 p, n, 8;
      @p bra G;"""
    take = """
      mov.u32 n, 0; mov.u32 y, 0;
    T: ld.acquire.gpu.global.u32 x, [o]; setp.eq.u32 p, x, 0;
      @p bra T;
      st.release.gpu.global.u32 [o], 0;
      mad.lo.u32 y, y, 3, x;
      add.u32 n, n, 1; setp.lt.u32 p, n, 8;
      @p bra T;
      st.global.u32 [o+4], y;"""
    one, two = (give, take) if first == 0 else (take, give)
    out = run(device, f"setp.gt.u32 q, t, 1; @q ret; setp.eq.u32 q, t, {first}; @!q bra OTHER;\n{one}\nret;\nOTHER:\n{two}")
    expected = 0
    for value in range(1, 9):
        expected = 3 * expected + value
    assert out[1] == expected


def test_all_lanes_meet_after_waiting_for_each_other(device):
    """Each lane waits until the lane before it has passed; then they shuffle."""
    out = run(device, """
    L: ld.relaxed.gpu.global.u32 x, [o]; setp.ne.u32 p, x, t;
      @p bra L;
      add.u32 x, x, 1; st.relaxed.gpu.global.u32 [o], x;
      xor.b32 y, t, 5; mul.lo.u32 y, y, 7;
      shfl.sync.bfly.b32 y, y, 1, 31, -1;
      bar.warp.sync -1;
      redux.sync.add.u32 z, t, -1;
      add.u32 y, y, z;
      st.global.u32 [w], y;""")
    assert out[0] == 32
    assert out[32:].tolist() == [((t ^ 1) ^ 5) * 7 + 496 for t in range(32)]


def test_a_block_barrier_is_reached_once_by_each_warp(device):
    out = run(device, """
      and.b32 x, t, 31; setp.ne.u32 p, x, 0;
      @p bra JOIN;
    L: atom.global.add.u32 y, [o], 1;
      ld.volatile.global.u32 y, [o]; setp.lt.u32 q, y, 8;
      @q bra L;
    JOIN:
      mov.u32 z, s; shl.b32 y, t, 2; add.u32 z, z, y; st.shared.u32 [z], t;
      bar.sync 0;
      xor.b32 y, t, 33; shl.b32 y, y, 2; mov.u32 z, s; add.u32 z, z, y; ld.shared.u32 y, [z];
      bar.sync 0;
      st.global.u32 [w], y;""", threads=64, words=128)
    assert out[32:96].tolist() == [t ^ 33 for t in range(64)]


@pytest.mark.parametrize("way", ["p", "!p"])
def test_barriers_of_a_warp_in_both_arms_of_a_branch(device, way):
    """Two groups of lanes hand values over in both directions, three times, across barriers that stand at different places."""
    def rounds(add: int) -> str:
        return "".join(f"""
          mad.lo.u32 y, y, 3, {add + i};
          st.shared.u32 [z], y;
          bar.warp.sync -1;
          ld.shared.u32 y, [n];
          bar.warp.sync -1;""" for i in range(3))

    out = run(device, f"""
      setp.lt.u32 p, t, 16;
      mov.u32 z, s; shl.b32 y, t, 2; add.u32 z, z, y;
      xor.b32 x, y, 64; mov.u32 n, s; add.u32 n, n, x;
      mov.u32 y, t;
      @{way} bra HERE;
      {rounds(100)}
      bra DONE;
    HERE:
      {rounds(200)}
    DONE:
      st.global.u32 [w], y;""")
    values = list(range(32))
    for i in range(3):
        made = [3 * y + i + (200 if (t < 16) == (way == "p") else 100) for t, y in enumerate(values)]
        values = [made[t ^ 16] for t in range(32)]
    assert out[32:].tolist() == values


def test_lanes_that_cannot_meet_are_told(device):
    """Each arm of a branch waits for all lanes, at instructions of different kinds."""
    with pytest.raises(KernelTimeout, match="waits for ever"):
        run(device, """
        L: ld.volatile.global.u32 x, [o]; setp.ne.u32 q, x, t;
          @q bra L;
          add.u32 x, x, 1; st.volatile.global.u32 [o], x;
          setp.lt.u32 p, t, 16;
          @p bra HERE;
          redux.sync.add.u32 y, t, -1;
          bra DONE;
        HERE:
          match.any.sync.b32 y, t, -1;
        DONE:
          st.global.u32 [w], y;""")


def test_groups_of_lanes_meet_on_their_own(device):
    """Each half has its own lock and its own meetings."""
    out = run(device, """
      and.b32 x, t, 16; shr.u32 n, x, 2; cvt.u64.u32 v, n; add.u64 v, v, o;
      shl.b32 z, 65535, x;
    L: atom.global.cas.b32 old, [v], 0, 1; setp.ne.u32 p, old, 0;
      @p bra L;
      ld.volatile.global.u32 y, [v+8]; add.u32 y, y, 1; st.volatile.global.u32 [v+8], y;
      atom.global.exch.b32 old, [v], 0;
      bar.warp.sync z;
      ld.volatile.global.u32 y, [v+8];
      shfl.sync.idx.b32 n, t, 3, 0x101f, z;
      vote.sync.ballot.b32 old, 1, z;
      mad.lo.u32 y, n, 1000, y;
      st.global.u32 [w], y;""")
    assert out[32:].tolist() == [16 + 1000 * (3 + (t & 16)) for t in range(32)]


def test_a_wait_that_nobody_ends_runs_out_of_time(device):
    out = np.zeros(64, np.uint32)
    source = HEAD + """
    .visible .entry k(.param .u64 out)
    {
      .reg .u64 o; .reg .u32 x, t; .reg .pred p, q;
      ld.param.u64 o, [out]; mov.u32 t, %tid.x; setp.eq.u32 q, t, 3;
      @q bra OUT;
    L: ld.volatile.global.u32 x, [o]; setp.eq.u32 p, x, 0;
      @p bra L;
    OUT:
      bar.warp.sync -1;
      ret;
    }
    """
    with pytest.raises(KernelTimeout, match="still running"):
        device.load(source)["k"].launch(1, 32, [out], time_limit=0.3)


def test_kernels_without_waiting_loops_have_no_turns():
    """No cost where nothing waits: a shuffle in a branch stays what it is."""
    source = HEAD + """
    .visible .entry k(.param .u64 out)
    {
      .reg .u64 o; .reg .u32 x, t; .reg .pred p;
      ld.param.u64 o, [out]; mov.u32 t, %tid.x; ld.global.u32 x, [o]; add.u32 x, x, t; setp.gt.u32 p, x, 9;
      @p bra OUT;
      shfl.sync.bfly.b32 x, t, 1, 31, -1; st.global.u32 [o], x;
    OUT: bar.warp.sync -1; ret;
    }
    """
    _, lanes = codegen.analysed(flatten(ptx.parse(source), "k"), (32, 1, 1))
    assert lanes.divergent and not lanes.turns


@pytest.mark.parametrize("program,threads", [
    (programs.across_lanes(3, 5), 32), (programs.across_lanes(8, 5), 32), (programs.structured(4, 2), 40), (programs.tangled(6, 4), 33),
    (programs.barriers(2, 1, 64), 64),
], ids=["shuffles and votes", "masks of both arms", "loops", "tangled", "barriers of the CTA"])
def test_locks_anywhere_change_no_result(program, threads):
    """Lanes that a lock has put out of step meet again wherever the program needs them."""
    devices = warpwright.Device("cpu", threads=1), warpwright.Device("interpreter")
    agree(devices, programs.with_locks(program, 1, 2), threads, 1)
