"""The parser: PTX's whole syntax becomes a tree, and what is not PTX is refused where it goes wrong."""

import sys

import pytest

from warpwright.errors import PtxError
from warpwright.ptx import parse, tree
from warpwright.ptx.tree import Address, Float, Integer, Register, Symbol, Vector

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def body(text: str) -> tuple[tree.Statement, ...]:
    """The statements of a function whose body is `text`."""
    function = parse(f"{HEAD}.func f()\n{{\n{text}\n}}").items[0]
    assert isinstance(function, tree.Function) and function.body is not None
    return function.body


def operand(text: str) -> tree.Operand:
    """The last operand of `op text;`."""
    instruction = body(f"op {text};")[-1]
    assert isinstance(instruction, tree.Instruction)
    return instruction.operands[-1]


def item(text: str):
    return parse(HEAD + text).items[0]


def test_a_module_says_its_version_target_and_address_size():
    module = parse(".version 8.7 .target sm_90a, texmode_independent .address_size 64 // nothing else")
    assert (module.version, module.target, module.address_size, module.items) == ((8, 7), ("sm_90a", "texmode_independent"), 64, ())


def test_a_kernel_with_parameters_and_bounds():
    kernel = item(""".visible .entry k(.param .u64 .ptr .global .align 16 x, .param .align 8 .b8 s[24], .param .f32 a)
        .maxntid 256, 1, 1 .minnctapersm 2 .pragma "nounroll"; { ret; }""")
    assert kernel.kernel and kernel.linkage == "visible"
    x, s, a = kernel.parameters
    assert x.pointer == tree.PointerHint("global", 16)
    assert (s.type, s.align, s.dimensions) == ("b8", 8, (24,))
    assert (a.space, a.type, a.name) == ("param", "f32", "a")
    assert [(d.name, d.words) for d in kernel.directives] == [
        ("maxntid", ("256", "1", "1")), ("minnctapersm", ("2",)), ("pragma", ('"nounroll"',))]


def test_a_function_returns_values_and_may_only_be_declared():
    function = item(".extern .func (.param .b32 r) f(.param .b64 a, .reg .b32 b) .noreturn;")
    assert function.body is None and function.linkage == "extern"
    assert [p.space for p in function.parameters] == ["param", "reg"]
    assert function.results[0].name == "r" and function.directives[0].name == "noreturn"


@pytest.mark.parametrize("text, value", [
    ("42", Integer(42)), ("-42", Integer(-42)), ("0x2A", Integer(42)), ("052", Integer(42)), ("0b101010", Integer(42)), ("42U",
                                                                                                                         Integer(42, True)),
    ("0xFFFFFFFFFFFFFFFF", Integer(2**64 - 1)), ("0f3F800000", Float(0x3F800000, 32)), ("0d3FF0000000000000", Float(0x3FF0 << 48, 64)),
    ("1.5", Float(0x3FF8 << 48, 64)), ("-1.5", Float(0xBFF8 << 48, 64)), ("1e3", Float(0x408F400000000000, 64)),
    ("2+3*4", Integer(14)), ("(2+3)*4", Integer(20)), ("1<<5|1", Integer(33)), ("7/2", Integer(3)), ("-7/2", Integer(-3)), ("-7 % 4",
                                                                                                                            Integer(-3)),
    ("~0", Integer(-1)), ("!5", Integer(0)), ("3>2&&1!=1", Integer(0)), ("1?2:3", Integer(2)), ("(.u64)-1", Integer(2**64 - 1, True)),
    ("1U-2", Integer(2**64 - 1, True)), ("-WARP_SZ", Integer(-32)), ("1.0/4", Float(0x3FD0 << 48, 64)), ("0f3F800000+1.0",
                                                                                                         Float(0x4000 << 48, 64)),
])
def test_constants_are_folded(text, value):
    assert operand(text) == value


@pytest.mark.parametrize("text, value", [
    ("%r1", Register("%r1")), ("%tid.x", Register("%tid.x")), ("table", Symbol("table")), ("table+8", Symbol("table", 8)),
    ("!%p1", tree.Negated(Register("%p1"))), ("-%r1", tree.Negative(Register("%r1"))), ("%v.x", tree.Component(Register("%v"), "x")),
    ("%p1|%p2", tree.Pair(Register("%p1"), Register("%p2"))), ("_", tree.Sink()), ("_|%p1", tree.Pair(tree.Sink(), Register("%p1"))),
    ("{%r1, 5, _}", Vector((Register("%r1"), Integer(5), tree.Sink()))),
    ("[%rd1]", Address(Register("%rd1"))), ("[%rd1+16]", Address(Register("%rd1"), 16)), ("[%rd1+-16]", Address(Register("%rd1"), -16)),
    ("[x+4+8]", Address(Symbol("x"), 12)), ("[64]", Address(None, 64)),
    ("[map, {%r1, %r2}]", Address(Symbol("map"), 0, Vector((Register("%r1"), Register("%r2"))))),
    ("[t, s, {%f1}]", Address(Symbol("t"), 0, Vector((Register("%f1"),)), (Symbol("s"),))),
])
def test_operands(text, value):
    assert operand(text) == value


def test_a_declared_name_is_a_register_with_or_without_a_percent_sign():
    statements = body(".reg .u32 a, b<3>; op a, b2, b3, c; { .reg .u32 c; op c; } op c;")
    first, block, last = statements[2], statements[3], statements[4]
    assert first.operands == (Register("a"), Register("b2"), Symbol("b3"), Symbol("c"))
    assert block.statements[1].operands == (Register("c"),)
    assert last.operands == (Symbol("c"),)


def test_registers_are_declared_singly_in_ranges_and_as_vectors():
    assert body(".reg .b32 %r<100>, x; .reg .v4 .f32 %v;") == (
        tree.RegisterDeclaration("b32", "%r", 100), tree.RegisterDeclaration("b32", "x"), tree.RegisterDeclaration("f32", "%v", None, 4))


def test_modifiers_may_stand_apart_and_a_guard_goes_before():
    assert body("@!%p1 ld .global .L2::128B.v2.f32 {%f1, %f2}, [%rd1];")[0] == tree.Instruction(
        "ld", ("global", "L2::128B", "v2", "f32"), (Vector((Register("%f1"), Register("%f2"))), Address(Register("%rd1"))),
        tree.Guard(Register("%p1"), True))


@pytest.mark.parametrize("text, count", [
    ("call f;", 1), ("call.uni f, (a, 1);", 2), ("call (r), f, (a);", 3), ("call (r), %rd1, (a), proto;", 4)])
def test_calls_keep_their_parentheses(text, count):
    call = body(text)[0]
    assert len(call.operands) == count
    assert any(isinstance(o, tree.Arguments) for o in call.operands) == (count > 1)


def test_labels_lists_and_prototypes():
    statements = body("L: T: .branchtargets L, M; P: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b32 _); M: ret;")
    assert statements[0] == tree.Label("L")
    assert statements[1] == tree.Directive("branchtargets", ("L", "M"), "T")
    assert statements[2].label == "P" and statements[2].words[:4] == ("(", ".param", ".b32", "_")


def test_variables_with_initial_values():
    assert item(".global .align 8 .u64 t[2] = {generic(x)+4, f};").initializer == (tree.Generic(Symbol("x", 4)), Symbol("f"))
    assert item(".const .f32 m[2][2] = {{1.0, 0f40000000}, {3.0}};").initializer[0][1] == Float(0x40000000, 32)
    assert item(".global .u8 bytes[] = {0xFF(x), 0xFF00(generic(x))};").initializer == (
        tree.Generic(Symbol("x"), 0xFF, False), tree.Generic(Symbol("x"), 0xFF00))
    assert item(".extern .shared .align 16 .b8 s[];").dimensions == (None,)
    assert item(".global .attribute(.managed) .s32 m;").attributes == ("managed",)


def test_debug_directives():
    items = parse(HEAD + '.file 1 "a.cu", 123, 45\n.section .debug_str { .b8 1,2\nL: .b32 L+4 }').items
    assert items[0] == tree.Directive("file", ("1", '"a.cu"', "123", "45"))
    assert items[1].words == (".debug_str", "{", ".b8", "1", ",", "2", "L", ":", ".b32", "L", "+", "4", "}")
    assert body(".loc 1 22 3, function_name $L, inlined_at 1 8 0\nret;")[0].words == (
        "1", "22", "3", "function_name", "$L", "inlined_at", "1", "8", "0")


def test_comments_may_stand_anywhere():
    assert body("/* a\n b */ add.s32 %r1, /* c */ %r2, 1; // d")[0].operands[2] == Integer(1)


@pytest.mark.parametrize("text, message", [
    ("add.s32 %r1, %r2 %r3;", "5:18: expected ',' or ';' after an operand of 'add.s32', found '%r3'"),
    ("add.s32 %r1, ;", "5:14: expected an operand, found ';'"),
    ("ld.u32 %r1, [%rd1;", "5:18: expected ']' after an address, found ';'"),
    ("ld.u32 %r1, [%rd1-4];", "5:18: PTX has no '-' between an address and its offset: write '+-' and the number"),
    (".reg .b32 %r<1.5>;", "5:14: the count in '<…>' is an integer"),
    ("mov.f32 %f1, 0f3F80;", "5:14: '0f3F80': a 32-bit float has 8 hexadecimal digits after '0f'"),
    ("mov.u32 %r1, 09;", "5:14: '09' is not a number"),
    ("mov.u32 %r1, 1/0;", "5:15: a constant divided by zero"),
    ("#", "5:1: a stray '#'"),
    (".nonsense 1;", "5:1: unknown directive '.nonsense'"),
    ("@%p1 ;", "5:6: expected an instruction after the guard, found ';'"),
    (".func g() { }", "5:1: '.func' cannot stand inside a function: is a '}' missing above?"),
    ("{ ret;", "4:1: this '{' is never closed"),
    ("/* open", "5:1: this comment is never closed with '*/'"),
])
def test_errors_say_where_and_what(text, message):
    with pytest.raises(PtxError) as caught:
        parse(f"{HEAD}\n.func f() {{\n".replace("\n\n", "\n", 1) + text + "\n}")
    assert str(caught.value) == message.replace("4:1: this '{'", "4:11: this '{'")


def test_an_error_names_the_file():
    with pytest.raises(PtxError, match=r"^k\.ptx:1:1: a module starts with '\.version', not with '\.target'$"):
        parse(".target sm_90", file="k.ptx")


def test_the_work_of_parsing_grows_with_the_length_only():
    def calls(count: int) -> int:
        text = HEAD + ".func f() {\n" + "fma.rn.f32 %f1, %f2, 0f3F800000, %f4;\n" * count + "}"
        found = 0

        def seen(_frame, event, _argument):
            nonlocal found
            found += event in ("call", "c_call")

        sys.setprofile(seen)
        try:
            parse(text)
        finally:
            sys.setprofile(None)
        return found

    assert calls(4_000) < 4.1 * calls(1_000)
