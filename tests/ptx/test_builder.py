"""Kernels as traced Python: what each word records, what the text says, and how mistakes are reported."""

import inspect

import pytest

from warpwright import ptx
from warpwright.ptx import Pointer, PtxError, b32, bf16, f32, s32, tree, u32, u64


def body(kernel: ptx.Kernel, target: str | None = None) -> list[str]:
    """The kernel's statements as text, without declarations and what loads the parameters."""
    function = kernel.module(target).kernels[kernel.name]
    lines = [str(statement) if not isinstance(statement, tree.Label) else f"{statement.name}:" for statement in function.body
             if isinstance(statement, (tree.Instruction, tree.Label))]
    return [line.strip().rstrip(";") for line in lines if "param" not in line and "cvta" not in line]


def recorded(function, block=32, target=None, **options) -> list[str]:
    return body(ptx.kernel(block=block, **options)(function), target)


@ptx.kernel(block=256)
def saxpy(x: Pointer[f32], y: Pointer[f32], a: f32, n: u32):
    """y ← a·x + y, one element a thread."""
    i = ptx.global_thread_index()
    with ptx.when(i < n):
        ptx.st.global_(y + i, ptx.fma.rn(a, ptx.ld.global_.nc(x + i), ptx.ld.global_(y + i)))


def test_the_design_documents_saxpy():
    assert body(saxpy) == [
        "mov.u32 %r1, %ctaid.x", "mov.u32 %r2, %tid.x", "mad.lo.u32 %r3, %r1, 256, %r2", "setp.lt.u32 %p0, %r3, %r0", "@!%p0 bra $L1",
        "mad.wide.u32 %rd4, %r3, 4, %rd3", "mad.wide.u32 %rd5, %r3, 4, %rd1", "ld.global.nc.f32 %f1, [%rd5]",
        "mad.wide.u32 %rd6, %r3, 4, %rd3", "ld.global.f32 %f2, [%rd6]", "fma.rn.f32 %f3, %f0, %f1, %f2", "st.global.f32 [%rd4], %f3",
        "$L1:", "ret",
    ]
    text = saxpy.ptx(target="sm_90a")
    assert ".target sm_90a" in text and ".reqntid 256" in text and ".visible .entry saxpy" in text
    assert str(ptx.parse(text)) == text
    assert saxpy.__doc__.startswith("y ←")


def test_the_version_is_the_oldest_that_target_and_instructions_allow():
    assert saxpy.module("sm_90a").version >= (8, 0)
    assert saxpy.module("sm_80").version == (7, 0)


def test_operators_emit_the_plain_instruction_of_the_operands_type():
    def k(a: u32, b: u32, c: s32, x: f32, y: f32):
        integers = (a + b, a - 1, a * b, a // 3, a % b, a & b, a | 1, a ^ b, a << 2, a >> 2, c >> 1, 7 - a, -c)
        for value in (*integers, x + y, x * 2.0, x / y, -x):
            ptx.assign(ptx.var(type(value)), value)

    lines = [line for line in recorded(k) if not line.startswith(("mov", "ret"))]
    assert [line.split(" ", 1)[0] for line in lines] == [
        "add.u32", "sub.u32", "mul.lo.u32", "div.u32", "rem.u32", "and.b32", "or.b32", "xor.b32", "shl.b32", "shr.u32", "shr.s32",
        "sub.u32", "neg.s32", "add.rn.f32", "mul.rn.f32", "div.rn.f32", "neg.f32"]
    assert lines[1].endswith("%r0, 1") and lines[11].endswith("7, %r0") and lines[14].endswith("%f0, 0f40000000")


def test_comparisons_give_predicates_and_not_equal_of_floats_is_true_for_nan():
    def k(x: f32, a: u32, b: u32):
        p = (x != 0.0) & ~(a < b) | (a == 3)
        ptx.trap(guard=p)

    lines = recorded(k)
    assert [line.split()[0] for line in lines[:6]] == ["setp.neu.f32", "setp.lt.u32", "not.pred", "and.pred", "setp.eq.u32", "or.pred"]
    assert lines[6].startswith("@%p") and lines[6].endswith("trap")


def test_left_out_types_come_from_operands_and_pointers():
    def k(p: Pointer[bf16], q: Pointer[f32], n: u32):
        h = ptx.ld.global_(p)
        x = ptx.cvt.f32(h)
        assert type(h) is bf16 and type(x) is f32
        ptx.st.global_(p, ptx.cvt.rn.bf16(x))
        ptx.st.global_.v4(q, [x, 1.0, x, 0])
        wide = ptx.mul.wide(n, 8)
        assert type(wide) is u64
        assert type(ptx.popc(n)) is u32
        four = ptx.ld.global_.nc.v4(q + 4)
        assert [type(part) for part in four] == [f32] * 4

    lines = recorded(k, target="sm_90a")
    assert lines[:4] == ["ld.global.b16 %h0, [%rd1]", "cvt.f32.bf16 %f0, %h0", "cvt.rn.bf16.f32 %h1, %f0", "st.global.b16 [%rd1], %h1"]
    assert "st.global.v4.f32 [%rd3], {%f0, 0f3F800000, %f0, 0f00000000}" in lines
    assert "ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3+16]" in lines


def test_control_flow_records_guarded_do_while_loops():
    def k(n: u32, p: Pointer[u32]):
        with ptx.loop(0, n, 2) as i:
            ptx.break_(guard=i == 6)
            with ptx.when(i < 4):
                ptx.st.global_(p + i, i)
            with ptx.otherwise():
                ptx.st.global_(p + i, 0)

    lines = recorded(k)
    assert [line.replace("$L", "L").split(" %")[0] for line in lines if not line.startswith(("mad", "st"))] == [
        "mov.b32", "setp.ge.u32", "@%p0 bra L3", "L1:", "setp.eq.u32", "@%p1 bra L3", "setp.lt.u32", "@!%p2 bra L4", "bra L5", "L4:", "L5:",
        "add.u32", "setp.lt.u32", "@%p3 bra L1", "L3:", "ret"]


def test_a_loop_of_known_length_has_no_guard_in_front():
    def k(p: Pointer[s32]):
        with ptx.loop(3, 0, -1) as i:
            ptx.st.global_(p + i, i)

    lines = recorded(k)
    assert sum("bra" in line for line in lines) == 1
    assert any(line.startswith("add.s32") and line.endswith(", -1") for line in lines)


def test_while_and_variables():
    def k(n: u32, p: Pointer[u32]):
        i = ptx.var(u32, n)
        with ptx.while_(lambda: i > 1):
            ptx.assign(i, i >> 1)
            ptx.continue_(guard=i == 5)
            ptx.st.global_(p + i, i)

    assert sum(line.startswith("setp.gt.u32") for line in recorded(k)) == 1


def test_shared_local_and_dynamic_memory():
    def k(n: u32):
        tile = ptx.shared(f32, 64, name="tile")
        more = ptx.dynamic_shared(b32)
        mine = ptx.local(u32, 4)
        ptx.st.shared(tile + ptx.tid.x, 1.0)
        ptx.st.shared(tile + 3, 2.0)
        ptx.bar.sync(0)
        ptx.st.shared(more + n, ptx.ld.shared(tile + 1).as_(b32))
        ptx.st.local(mine + 1, n)

    kernel = ptx.kernel(block=32)(k)
    text = kernel.ptx()
    for declaration in (".shared .align 16 .b8 tile[256]", ".extern .shared .align 16 .b8 dynamic_shared[]",
                        ".local .align 16 .b8 local[16]"):
        assert declaration in text
    assert "st.shared.f32 [tile+12], 0f40000000" in body(kernel)
    assert any(line.startswith("mad.lo.s32") for line in body(kernel))


def test_a_guard_needs_a_place_to_write():
    def k(n: u32):
        ptx.add(n, 1, guard=n < 4)

    message = "under a guard leaves a new register undefined where the guard is false: say which register it writes with out="
    with pytest.raises(PtxError, match=message):
        recorded(k)


def test_pairs():
    def k(x: f32, p: Pointer[f32]):
        value, inside = ptx.shfl.sync.down.b32(x, 1, 31, 0xFFFFFFFF, pair=True)
        ptx.st.global_(p.as_(b32), value, guard=inside)

    assert any("|%p" in line for line in recorded(k))


def test_raw_text_is_checked_too():
    def good(x: f32, p: Pointer[f32]):
        y = ptx.var(f32)
        ptx.raw("{ .reg .f32 t; add.f32 t, $x, 0f3F800000; mul.f32 $y, t, $x; }", x=x, y=y)
        ptx.st.global_(p, y)

    def bad(x: f32):
        ptx.raw("ad.f32 $x, $x, $x;", x=x)

    assert "mul.f32" in ptx.kernel(block=32)(good).ptx()
    with pytest.raises(PtxError, match=r"unknown instruction 'ad'"):
        recorded(bad)


def test_unchecked_emits_what_is_written():
    def k(n: u32):
        ptx.add.u32.bogus(n, n, out=n, unchecked=True)

    assert "add.u32.bogus %r0, %r0, %r0" in ptx.kernel(block=32)(k).ptx()


MISTAKES = {
    "a misspelt modifier": (lambda x: ptx.fma.nr(x, x, x), r"'fma' has no modifier '\.nr'"),
    "too few operands": (lambda x: ptx.fma.rn(x, x), r"'fma\.rn' takes 3 operands after its destination"),
    "an integer for a float": (lambda x: ptx.fma.rn.f32(x, x, ptx.cvt.rzi.u64(x)), r"operand 'c' of 'fma\.rn\.f32' is f32, not u64"),
    "mixed types": (lambda x: x + ptx.tid.x, r"'add' of f32 and u32: convert one"),
    "a register as a condition": (lambda x: 1 if x < 0.0 else 0, r"branch with ptx\.when"),
    "an unknown opcode": (lambda x: ptx.word("frobnicate")(x), r"unknown instruction 'frobnicate'"),
    "a number for an address": (lambda x: ptx.ld.global_.f32(3.0), r"operand 'a' of 'ld\.global\.f32' is an address"),
    "a float index": (lambda x: ptx.shared(f32, 4) + x, r"indexed by a Python int or a 32- or 64-bit integer register"),
    "a literal too wide": (lambda x: ptx.tid.x + (1 << 40), r"1099511627776 does not fit u32"),
    "no type to infer": (lambda x: ptx.mov(1), r"needs its type written"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_at_their_python_line(name):
    mistake, message = MISTAKES[name]

    def k(x: f32):
        mistake(x)

    with pytest.raises(PtxError, match=message) as caught:
        recorded(k)
    assert caught.value.file == __file__
    assert caught.value.line == inspect.getsourcelines(mistake)[1]


def test_what_the_verifier_finds_is_reported_at_the_python_line_too():
    def k(n: u32):
        ptx.raw("add.u32 $n, $n, %nowhere;", n=n)

    with pytest.raises(PtxError, match=r"kernel 'k' for sm_80: .*%nowhere") as caught:
        recorded(k)
    assert caught.value.file == __file__ and caught.value.line == k.__code__.co_firstlineno + 1


def test_a_target_too_old_is_reported():
    def k(p: Pointer[f32]):
        ptx.cp.async_.cg.shared.global_(ptx.shared(f32, 4), p, 16)

    assert recorded(k, target="sm_80")
    with pytest.raises(PtxError, match="sm_80"):
        recorded(k, target="sm_70")


def test_words_outside_a_kernel():
    with pytest.raises(PtxError, match=r"inside a function decorated with @ptx\.kernel"):
        ptx.add.u32(1, 2)
    with pytest.raises(AttributeError, match="frob"):
        ptx.frob()


def test_annotations_are_needed():
    with pytest.raises(PtxError, match="parameter 'x' is annotated"):
        ptx.kernel(block=32)(lambda x: None).module()


def test_source_lines_name_the_python_of_each_statement():
    lines = saxpy.source_lines
    text = saxpy.ptx().splitlines()
    (fma,) = [number for number, line in enumerate(text, 1) if "fma.rn" in line]
    start = saxpy.function.__code__.co_firstlineno
    assert lines[fma] == f"{__file__}:{start + 5}"
