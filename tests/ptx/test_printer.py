"""The printer: what it writes parses back to the same tree, for every tree and for what compilers emit."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_modules import modules

from warpwright.errors import PtxError
from warpwright.ptx import check, parse, tree

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.ptx"))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(modules)
def test_printing_and_parsing_give_the_tree_back(module):
    text = str(module)
    assert parse(text) == module
    assert str(parse(text)) == text


@settings(max_examples=60, deadline=None, derandomize=True)
@given(modules)
def test_any_tree_can_be_checked(module):
    """The verifier has an opinion of every tree, however odd, and no crash."""
    assert all(isinstance(problem, PtxError) for problem in check(module))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False), st.sampled_from(FIXTURES))
def test_damaged_text_is_refused_or_read_but_never_crashes(random, path):
    text = path.read_text()
    start = random.randrange(len(text))
    piece = list(text[start : start + 2000])
    for _ in range(3):
        piece[random.randrange(len(piece))] = random.choice("{}[]();,.:@!%$\"0x7fa +-*/<>|&~\n")
    with contextlib.suppress(PtxError):
        check(parse(text[: text.index(".address_size 64") + 17] + "".join(piece)))
    with contextlib.suppress(PtxError):
        check(parse(text[:start] + "".join(piece)))


@pytest.mark.parametrize("text", ["{" * 5000, "mov.u32 %r1, " + "(" * 5000, ".global .b32 x = " + "{" * 5000, "op {" + "{" * 5000])
def test_deep_nesting_is_refused(text):
    with pytest.raises(PtxError, match="nested"):
        parse(f".version 8.0 .target sm_80 .address_size 64 .func f() {{ {text}")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_compilers_output_survives(path):
    module = parse(path.read_text())
    assert module.kernels and parse(str(module)) == module


def test_the_layout_is_canonical():
    module = parse(""".version 8.7 .target sm_90a .address_size 64
        .global .align 4 .f32 t[2]={1.0,0f00000000};
        .visible .entry k (.param .u64 p, .param .f32 a) .maxntid 128,1,1 {
        .reg .b32 %r<3>; loop: @!%p ld.global.v2.f32 { %f1,%f2 } , [ %rd1 + 8 ]; { mov.b32 %r1,0xFF; } bra.uni loop; }""")
    assert str(module) == """\
.version 8.7
.target sm_90a
.address_size 64
.global .align 4 .f32 t[2] = {0d3FF0000000000000, 0f00000000};

.visible .entry k(
    .param .u64 p,
    .param .f32 a
)
.maxntid 128, 1, 1
{
    .reg .b32 %r<3>;
loop:
    @!%p ld.global.v2.f32 {%f1, %f2}, [%rd1+8];
    {
        mov.b32 %r1, 255;
    }
    bra.uni loop;
}
"""


def test_a_statement_prints_alone():
    assert str(tree.Instruction("add", ("s32",), (tree.Register("%r1"), tree.Register("%r2"), tree.Integer(-4)))) == "add.s32 %r1, %r2, -4;"
