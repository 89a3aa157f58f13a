"""Hostile text: it is refused (or read, where it is legal) in time that grows with its length, and never with anything but a PtxError."""

import gc
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpwright.errors import PtxError
from warpwright.ptx import check, diagnose, parse

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def kernel(body: str) -> str:
    return f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p;\n{body}\nret;\n}}\n"


# text of a size → (what is hostile, the message or None where it is legal)
HOSTILE = {
    "a comment that never ends": (lambda n: kernel("/* " * n), "never closed"),
    "many comments": (lambda n: kernel("/**/ //\n" * n), None),
    "slashes": (lambda n: kernel("/ " * n), "found '/'"),
    "stars and slashes": (lambda n: kernel("/*" + "*" * n + "/"), None),
    "blanks": (lambda n: kernel(" \t\r\n" * n), None),
    "an integer of many digits": (lambda n: kernel(f"mov.u32 %r1, {'9' * n};"), "does not fit in 64 bits"),
    "a hexadecimal integer of many digits": (lambda n: kernel(f"mov.u32 %r1, 0x{'F' * n};"), "does not fit in 64 bits"),
    "leading zeros": (lambda n: kernel(f"mov.u32 %r1, 0x{'0' * n}7;"), None),
    "a float of many digits": (lambda n: kernel(f"mov.f32 %f1, 1.{'5' * n};"), None),
    "a float out of range": (lambda n: kernel(f"mov.u32 %r1, (.s64) 1e{'9' * n};"), "not finite"),
    "a long name": (lambda n: kernel(f"mov.u32 %r1, {'x' * n};"), "is not declared"),
    "a long name of digits": (lambda n: kernel(f"mov.u32 %r1, %r{'1' * n};"), "is not declared"),
    "many modifiers": (lambda n: kernel(f"add{'.s32' * n} %r1, %r1, %r1;"), "more modifiers"),
    "an unknown long modifier": (lambda n: kernel(f"add.{'s' * n} %r1, %r1, %r1;"), "has no modifier"),
    "a long opcode": (lambda n: kernel(f"{'add' * n}.s32 %r1, %r1, %r1;"), "unknown instruction"),
    "many operands": (lambda n: kernel(f"add.s32 %r1{', %r1' * n};"), "takes operands"),
    "a wide vector": (lambda n: kernel(f"ld.global.v2.u32 {{%r1{', %r1' * n}}}, [%r1];"), "is a vector of 2"),
    "open braces": (lambda n: kernel("{" * n), "nested"),
    "open parentheses": (lambda n: kernel("mov.u32 %r1, " + "(" * n), "nested"),
    "signs": (lambda n: kernel("mov.u32 %r1, " + "- " * n + "1;"), "nested"),
    "conditionals": (lambda n: kernel("mov.u32 %r1, " + "1 ? 2 : " * n + "3;"), "nested"),
    "a long sum": (lambda n: kernel("mov.u32 %r1, 0" + " + 1" * n + ";"), None),
    "braces of values": (lambda n: HEAD + ".global .b32 x[2] = " + "{" * n, "nested"),
    "brackets": (lambda n: kernel("ld.u32 %r1, " + "[%r1, " * n), "nested"),
    "dimensions": (lambda n: HEAD + ".global .b32 x" + "[1]" * n + ";", None),
    "many labels": (lambda n: kernel("".join(f"L{i}:\n" for i in range(n))), None),
    "closing braces": (lambda n: HEAD + "}" * n, "expected a directive"),
    "quotes": (lambda n: HEAD + '"' * (2 * n + 1), "never closed"),
    "a zero byte": (lambda n: kernel("\0" * n), "stray '\\x00'"),
    "letters that are no ASCII": (lambda n: kernel("é" * n), "U+00E9"),
    "errors without end": (lambda n: kernel("add.s32 %r1 %r1;\n" * n), "expected ',' or ';'"),
    "dots": (lambda n: kernel("." * n), "stray '.'"),
    "a huge count": (lambda n: kernel(f".reg .b32 %q<{'9' * 9}>;"), None),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_text_gets_a_clear_answer(what):
    make, message = HOSTILE[what]
    text = make(3000)
    module, problems = diagnose(text)
    if message is None:
        assert module == parse(text) and problems == []
    else:
        assert message in problems[0].message and len(problems[0].message) < 1100
        with pytest.raises(PtxError):
            check_first(text)


def check_first(text: str) -> None:
    for problem in check(parse(text)):
        raise problem


@pytest.mark.parametrize("what", [name for name in HOSTILE if name != "errors without end"])
def test_time_grows_with_the_length_only(what):
    """Eight times the text takes no more than about eight times as long: quadratic reading would take 64 times."""
    make, _ = HOSTILE[what]

    def seconds(n: int) -> float:
        text = make(n)
        gc.collect()
        gc.disable()  # its time depends on what else the process holds
        try:
            started = time.process_time()
            diagnose(text)
            return time.process_time() - started
        finally:
            gc.enable()

    seconds(100)
    assert seconds(24_000) < 30 * min(seconds(3000) for _ in range(2)) + 0.3


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_answered(data, with_head):
    text = data.decode("utf-8", "surrogateescape")
    diagnose(kernel(text) if with_head else text)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([
    "{", "}", "(", ")", "[", "]", ";", ",", ".reg .b32 %q", "add.s32", "%r1", "1.5", "0x", "@%p", "L:", ".global",
                                 ".section .x",
    "/*", "*/", '"', "\r\n", "_", "|", "call", ".func f", ".loc 1 2 3", "<3>", "= {1}", "\0"]), max_size=25))
def test_any_tokens_are_answered(words):
    text = kernel(" ".join(words))
    _, problems = diagnose(text)
    try:
        parse(text)
    except PtxError as first:  # without recovery the same first error is told
        assert (first.message, first.line) in {(problem.message, problem.line) for problem in problems}


def test_line_ends_and_the_last_line():
    """Windows line ends are blanks, and the last line needs no end."""
    text = kernel("add.s32 %r1, %r1, 1;").rstrip("\n")
    assert parse(text.replace("\n", "\r\n")) == parse(text)
    assert parse(text.replace("\n", "\r\n")).items[0].position == parse(text).items[0].position


def test_lines_that_a_preprocessor_leaves_are_blanks():
    assert parse('# 1 "k.ptx" 1\n' + HEAD + '#line 7 "k.ptx"\n') == parse(HEAD)
    with pytest.raises(PtxError, match="stray '#'"):
        parse(HEAD + "#define X 1\n")


BROKEN = """\
.version 8.6
.target sm_90a
.address_size 64
.globl .u32 x;
.visible .entry k(.param .u64 p) {
 .reg .b32 %r<4>
 .reg .f32 %f<5>;
 add.s32 %r1, %r2 %r3;
 mul.f32 %f1, %f2, %f3
 mul.f32 %f1, %f2, %f3;
 ld.global.v2.u32 {%r1, %r2, [p];
 { mov.u32 %r1, #; }
 .reg .b32 %lost garbage;
 mov.u32 %r1, %lost;
 add.s32 %r1, %f1, %r2;
}
.visible .entry k2() {
 foo.bar;
 bra X;
}
"""


def test_all_errors_of_a_file_are_told():
    """Reading goes on at the next statement after an error; a name whose declaration was not understood is not complained of."""
    _, problems = diagnose(BROKEN)
    assert [(problem.line, problem.column) for problem in problems] == [
        (4, 1), (7, 2), (8, 19), (10, 2), (11, 33), (12, 17), (13, 18), (15, 15), (18, 2), (19, 6)]


def test_what_cannot_be_read_past_is_the_last_error():
    module, problems = diagnose(kernel("add.s32 %r1 %r1;\n{"))
    assert module is None and [problem.message for problem in problems] == [
        "expected ',' or ';' after an operand of 'add.s32', found '%r1'", "this '{' is never closed"]
    assert diagnose("nothing")[0] is None
