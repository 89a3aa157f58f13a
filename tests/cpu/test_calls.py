"""Calls between functions, in both engines: recursion, pointers to functions, structs by value, the stack; and gotos of every kind."""

import numpy as np
import pytest

import warpwright
from warpwright.errors import KernelTrap, LaunchError, PtxError

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
KERNEL = """
.visible .entry k(.param .u64 out, .param .u32 n)
{
  .reg .u64 o, w, v, q; .reg .u32 t, x, y, z, s; .reg .pred p, c;
  ld.param.u64 o, [out]; ld.param.u32 z, [n];
  mov.u32 t, %tid.x;
  mul.wide.u32 w, t, 4; add.u64 o, o, w;
"""
END = "\n  st.global.u32 [o], y;\n  ret;\n}\n"

FIB = """
.func (.reg .u32 r) fib (.reg .u32 n)
{
  .reg .pred p; .reg .u32 a, b, m;
  setp.lt.u32 p, n, 2;
  @p bra BASE;
  sub.u32 m, n, 1;
  call (a), fib, (m);
  sub.u32 m, n, 2;
  call (b), fib, (m);
  add.u32 r, a, b;
  ret;
BASE:
  mov.u32 r, n;
  ret;
}
"""


@pytest.fixture(params=["interpreter", "cpu"])
def device(request):
    return warpwright.Device(request.param, threads=1)


def run(device, functions: str, body: str, n: int = 0, threads: int = 32) -> list[int]:
    """What a kernel leaves in y of each thread; t is the thread's number, z is n."""
    out = np.full(threads, 0xDEAD, np.uint32)
    device.load(HEAD + functions + KERNEL + body + END)["k"].launch(1, threads, [out, n])
    return out.tolist()


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_a_function_calls_itself_to_another_depth_in_each_lane(device):
    assert run(device, FIB, "rem.u32 x, t, z; call (y), fib, (x);", 9, 40) == [fib(t % 9) for t in range(40)]


def test_functions_call_each_other(device):
    functions = """
    .func (.param .b32 r) odd (.param .b32 n);
    .func (.param .b32 r) even (.param .b32 n)
    {
      .reg .u32 a; .reg .pred p; .param .b32 arg, res;
      ld.param.u32 a, [n];
      setp.eq.u32 p, a, 0;
      @p st.param.b32 [r], 1;
      @p ret;
      sub.u32 a, a, 1;
      st.param.b32 [arg], a;
      call (res), odd, (arg);
      ld.param.b32 a, [res];
      st.param.b32 [r], a;
      ret;
    }
    .func (.param .b32 r) odd (.param .b32 n)
    {
      .reg .u32 a; .reg .pred p; .param .b32 arg, res;
      ld.param.u32 a, [n];
      setp.eq.u32 p, a, 0;
      @p st.param.b32 [r], 0;
      @p ret;
      sub.u32 a, a, 1;
      st.param.b32 [arg], a;
      call (res), even, (arg);
      ld.param.b32 a, [res];
      st.param.b32 [r], a;
      ret;
    }
    """
    body = ".param .b32 a, b; st.param.b32 [a], t; call (b), even, (a); ld.param.b32 y, [b];"
    assert run(device, functions, body) == [1 - t % 2 for t in range(32)]


def test_each_activation_has_its_own_variables_and_keeps_predicates(device):
    """Adds 1 to the caller's word through its address on the way back; a predicate and a 64-bit value live across the call."""
    functions = """
    .func (.reg .u32 r) deep (.reg .u32 n, .reg .u64 up)
    {
      .local .align 8 .b8 own[16];
      .reg .u64 mine, generic, wide; .reg .u32 a, m; .reg .pred p, odd;
      mov.u64 mine, own;
      cvta.local.u64 generic, mine;
      st.local.u32 [own+8], n;
      and.b32 a, n, 1;
      setp.eq.u32 odd, a, 1;
      mul.wide.u32 wide, n, 3;
      setp.eq.u32 p, n, 0;
      @p bra BACK;
      sub.u32 m, n, 1;
      add.u64 generic, generic, 8;
      call (a), deep, (m, generic);
    BACK:
      ld.u32 m, [up];
      add.u32 m, m, 1;
      st.u32 [up], m;
      ld.local.u32 r, [own+8];
      @odd add.u32 r, r, 100;
      cvt.u32.u64 a, wide;
      add.u32 r, r, a;
      ret;
    }
    """
    body = """
      .local .b32 word; mov.u64 q, word; cvta.local.u64 q, q; st.local.u32 [word], 0;
      and.b32 x, t, 7; call (y), deep, (x, q); ld.local.u32 x, [word]; shl.b32 x, x, 16; or.b32 y, y, x;"""

    def value(n):
        return n + (n > 0) + 100 * (n % 2) + 3 * n  # its own word was raised by the call it made

    assert run(device, functions, body) == [value(t % 8) | 1 << 16 for t in range(32)]


def test_the_stack_has_an_end(device):
    endless = """
    .func (.reg .u32 r) f (.reg .u32 n)
    { .reg .u32 a; add.u32 a, n, 1; call (r), f, (a); add.u32 r, r, n; ret; }
    """
    with pytest.raises(KernelTrap, match="filled the stack"):
        run(device, endless, "call (y), f, (t);")
    assert run(device, FIB, "call (y), fib, (z);", 6)[0] == 8  # the device goes on


POINTERS = """
.func (.reg .u32 r) twice (.reg .u32 n) { shl.b32 r, n, 1; ret; }
.func (.reg .u32 r) next (.reg .u32 n) { add.u32 r, n, 1; ret; }
.func (.reg .u32 r) two (.reg .u32 n, .reg .u32 m) { add.u32 r, n, m; ret; }
.global .align 8 .u64 table[3] = { twice, next, two };
"""


@pytest.mark.parametrize("listed", ["proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);", "proto: .calltargets twice, next;"])
def test_lanes_call_what_their_pointers_say(device, listed):
    body = f"""
      {listed}
      mov.u64 v, table; and.b32 x, t, 1; mul.wide.u32 q, x, 8; add.u64 v, v, q; ld.global.u64 v, [v];
      call (y), v, (t), proto;"""
    assert run(device, POINTERS, body) == [t + 1 if t % 2 else 2 * t for t in range(32)]


def test_a_pointer_to_no_function_is_told(device):
    body = """
      proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);
      mov.u64 v, twice; setp.eq.u32 p, t, 5; @p add.u64 v, v, 4; call (y), v, (t), proto;"""
    with pytest.raises(KernelTrap, match=r"thread \(5, 0, 0\).*not the address of a function"):
        run(device, POINTERS, body)


def test_structs_and_arrays_go_by_value(device):
    functions = """
    .func (.param .align 8 .b8 r[16]) swap (.param .align 8 .b8 s[16], .param .b32 by)
    {
      .reg .u64 a, b; .reg .u32 k;
      ld.param.u32 k, [by];
      ld.param.v2.u64 {a, b}, [s];
      st.param.u64 [r+8], a;
      cvt.u64.u32 a, k; add.u64 b, b, a;
      st.param.u64 [r], b;
      ret;
    }
    """
    body = """
      .param .align 8 .b8 pair[16]; .param .b32 by; .param .align 8 .b8 r[16];
      cvt.u64.u32 v, t; st.param.u64 [pair], v; st.param.u32 [pair+8], 7; st.param.u32 [pair+12], 0; st.param.b32 [by], 5;
      call (r), swap, (pair, by);
      ld.param.u32 x, [r]; ld.param.u32 y, [r+8]; mad.lo.u32 y, x, 1000, y;"""
    assert run(device, functions, body) == [12000 + t for t in range(32)]


def test_chains_of_calls_do_not_explode():
    """Thirty functions that each call the next one twice: 2³⁰ copies if they were all inlined."""
    depth = 30
    functions = ".func (.reg .u32 r) f0 (.reg .u32 n) { add.u32 r, n, 1; ret; }\n"
    for i in range(1, depth):
        twice = f"call (a), f{i - 1}, (n); " + (f"@p call (a), f{i - 1}, (a); " if i % 3 == 0 else "")
        functions += f".func (.reg .u32 r) f{i} (.reg .u32 n) {{ .reg .u32 a; .reg .pred p; setp.eq.u32 p, n, 3; {twice} mov.u32 r, a; ret; }}\n"
    results = [run(warpwright.Device(kind, threads=1), functions, f"call (y), f{depth - 1}, (t);") for kind in ("interpreter", "cpu")]
    assert results[0] == results[1]
    doubled = functions
    for i in range(1, depth):
        doubled = doubled.replace(f"call (a), f{i - 1}, (n); mov", f"call (a), f{i - 1}, (n); @p call (a), f{i - 1}, (a); mov")
    assert run(warpwright.Device("cpu", threads=1), doubled, f"call (y), f{depth - 1}, (t);")[0] == 1


def test_alloca_gives_each_lane_its_own(device):
    body = """
      .reg .u64 kept;
      stacksave.u64 kept;
      cvt.u64.u32 v, t; add.u64 v, v, 4; alloca.u64 q, v, 16;
      st.local.u32 [q], t; alloca.u64 v, 64; st.local.u32 [v], 9;
      ld.local.u32 y, [q];
      stackrestore.u64 kept;
      alloca.u64 w, 64; sub.u64 w, w, q; cvt.u32.u64 x, w; shl.b32 x, x, 8; or.b32 y, y, x;"""
    assert run(device, "", body) == list(range(32))
    with pytest.raises(KernelTrap, match="filled the stack"):
        run(device, "", "L: alloca.u64 q, 4096; st.local.u32 [q], t; bra L;")


def test_calls_under_divergence_and_from_a_loop(device):
    body = """
      mov.u32 y, 0; mov.u32 s, 0; and.b32 z, t, 3;
    L: setp.eq.u32 p, s, z;
      @p bra OUT;
      and.b32 x, t, 1; setp.eq.u32 c, x, 1;
      @c call (x), fib, (s);
      @!c call (x), fib, (t);
      add.u32 y, y, x; add.u32 s, s, 1;
      bra L;
    OUT:"""
    body = body.replace("(t);", "(z);")
    expected = [sum(fib(s) if t & 1 else fib(t & 3) for s in range(t & 3)) for t in range(32)]
    assert run(device, FIB, body) == expected


def test_tables_of_branches(device):
    body = """
      and.b32 x, t, 3; mov.u32 y, 0;
      targets: .branchtargets A, B, C, B;
      brx.idx x, targets;
    A: add.u32 y, y, 1;
    B: add.u32 y, y, 10;
    C: add.u32 y, y, 100;"""
    assert run(device, "", body) == [[111, 110, 100, 110][t % 4] for t in range(32)]


def test_loops_with_two_entries(device):
    body = """
      mov.u32 y, t; and.b32 x, t, 1; setp.eq.u32 p, x, 1;
      @p bra SECOND;
    FIRST: add.u32 y, y, 3;
    SECOND: add.u32 y, y, 5; setp.lt.u32 c, y, 40;
      @c bra FIRST;"""

    def expected(t):
        y = t if t & 1 else t + 3
        while True:
            y += 5
            if y >= 40:
                return y
            y += 3

    assert run(device, "", body) == [expected(t) for t in range(32)]


def test_a_function_without_a_body_is_named(device):
    with pytest.raises((LaunchError, PtxError), match="missing_one"):
        run(device, ".extern .func (.reg .u32 r) missing_one (.reg .u32 n);\n", "call (y), missing_one, (t);")


def test_exit_in_a_function_ends_the_thread(device):
    functions = ".func stop (.reg .u32 n) .noreturn { exit; }\n"
    assert run(device, functions, "setp.gt.u32 p, t, 3; @p call stop, (t); mov.u32 y, t;") == [0, 1, 2, 3] + [0xDEAD] * 28
