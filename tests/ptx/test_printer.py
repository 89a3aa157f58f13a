"""The printer: what it writes parses back to the same tree, for every tree and for what compilers emit."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from random_modules import modules

from warpwright.ptx import parse, tree

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.ptx"))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(modules)
def test_printing_and_parsing_give_the_tree_back(module):
    text = str(module)
    assert parse(text) == module
    assert str(parse(text)) == text


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
