"""Each lint finds what its page shows, says nothing of what is right, and nothing of real kernels."""

import re
from pathlib import Path

import pytest

from warpwright import ptx
from warpwright.kernels import registry
from warpwright.ptx.lints import LINTS, lint

PAGE = (Path(__file__).parents[2] / "docs" / "lints.md").read_text()
EXAMPLES = {
    name: (found, right)
    for name, found, right in re.findall(r"^## ([\w-]+)\n.*?\nFound:\n```ptx\n(.*?)```\nRight:\n```ptx\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
}


def kernel(body: str, reqntid: str = ".reqntid 128") -> ptx.tree.Module:
    text = (f".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global .align 16 out) {reqntid} {{\n"
            f"{body}\n}}\n")
    module = ptx.parse(text)
    ptx.verify(module)
    return module


def found_in(body: str, **options) -> list[str]:
    return [finding.lint for finding in lint(kernel(body), **({"only": ["all"]} | options))]


def test_the_page_shows_every_lint():
    assert set(EXAMPLES) == set(LINTS)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_page_shows_what_is_found_and_what_is_right(name):
    wrong, right = EXAMPLES[name]
    assert name in found_in(wrong)
    assert found_in(right) == []


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_lint_can_be_switched_off_and_asked_for_alone(name):
    wrong, _ = EXAMPLES[name]
    assert name not in found_in(wrong, ignore=[name])
    assert set(found_in(wrong, only=[name])) == {name}


def test_values_that_nobody_reads_are_looked_for_on_request():
    wrong, _ = EXAMPLES["unread-value"]
    assert lint(kernel(wrong)) == []


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ptx.PtxError, match=r"no lint 'x'.*misaligned-access"):
        lint(kernel("ret;"), ignore=["x"])


def test_a_finding_points_at_the_operand():
    finding, = lint(kernel(".reg .b64 %p; .reg .b32 %r<2>;\nld.param.u64 %p, [out];\nst.global.u32 [%p], %r0;"))
    assert (finding.line, finding.column) == (7, 21)
    assert str(finding) == "7:21: '%r0' is read and was never written [unwritten-register]"


@pytest.mark.parametrize(("body", "expected"), [
    # a register written on one way only is the program's business
    (".reg .pred %p; .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [out]; setp.eq.u64 %p, %d, 0; @%p mov.u32 %r, 1; st.global.u32 [%d], %r;", []),
    # … but not one that is written only afterwards
    (".reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [out]; st.global.u32 [%d], %r; mov.u32 %r, 1; st.global.u32 [%d], %r;",
     ["unwritten-register"]),
    # a loop writes it before the second time round
    (".reg .pred %p; .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [out]; L: st.global.u32 [%d], %r; mov.u32 %r, 1; setp.eq.u64 %p, %d, 0;"
     " @%p bra L;", []),
    # scopes: the inner %r is another register
    (".reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [out]; mov.u32 %r, 1; { .reg .b32 %r; st.global.u32 [%d], %r; } st.global.u32 [%d], %r;",
     ["unwritten-register"]),
    # unreachable code is not read
    (".reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [out]; bra E; st.global.u32 [%d], %r; E: ret;", ["unread-value"]),
    # a pointer parameter's alignment is the one that its .ptr states
    (".reg .b64 %d; .reg .b32 %r<4>; ld.param.u64 %d, [out]; cvta.to.global.u64 %d, %d; mov.b32 %r0, 0;"
     " st.global.v4.b32 [%d+4], {%r0, %r0, %r0, %r0};", ["misaligned-access"]),
    # an address through arithmetic, a conversion and generic space
    (".reg .b64 %d<4>; .reg .b32 %r; .shared .align 16 .b8 s[64]; mov.u64 %d0, s; cvta.shared.u64 %d1, %d0; add.s64 %d2, %d1, 60;"
     " mov.b32 %r, 0; st.b32 [%d2+4], %r;", ["out-of-bounds"]),
    # negative, and the last element
    (".reg .b32 %r; .shared .align 4 .b8 s[64]; mov.b32 %r, 0; st.shared.b32 [s+-4], %r;", ["out-of-bounds"]),
    (".reg .b32 %r; .shared .align 4 .b8 s[64]; mov.b32 %r, 0; st.shared.b32 [s+60], %r;", []),
    # a barrier in a loop under a uniform branch
    (".reg .pred %p; .reg .b32 %r; mov.u32 %r, %ctaid.x; setp.eq.u32 %p, %r, 0; @%p bra E; bar.sync 0; E: ret;", []),
    # whole warps part: legal
    (".reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 32; @%p bra E; bar.sync 1, 96; E: ret;", []),
    (".reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 33; @%p bra E; bar.sync 1, 96; E: bar.sync 0;",
     ["divergent-aligned"]),
    # one elected lane issues the product
    (".reg .pred %p, %q; .reg .b32 %r; .reg .b64 %a; .reg .f32 %f<4>; mov.u64 %a, 0; elect.sync _|%p, -1; setp.eq.u64 %q, %a, 1;"
     " wgmma.fence.sync.aligned; @%p wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %a, %a, %q, 1, 1, 0, 0;"
     " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", ["divergent-aligned"]),
])  # fmt: skip
def test_what_is_found(body, expected):
    assert found_in(body) == expected


def _product(accumulators: str) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{accumulators}}}, %a, %a, %q, 1, 1, 0, 0;"


def test_wait_group_counts_groups():
    start = ".reg .pred %q; .reg .b64 %a, %d; .reg .f32 %f<4>, %g<4>; ld.param.u64 %d, [out]; mov.u64 %a, 0; setp.eq.u64 %q, %a, 1;" \
            " wgmma.fence.sync.aligned;"
    first, second = _product("%f0,%f1,%f2,%f3"), _product("%g0,%g1,%g2,%g3")
    commit = "wgmma.commit_group.sync.aligned;"
    two = start + first + commit + second + commit + "wgmma.wait_group.sync.aligned 1;"
    assert found_in(two + "st.global.f32 [%d], %f0;") == []
    assert found_in(two + "st.global.f32 [%d], %g0;") == ["wgmma-in-flight"]
    assert found_in(start + first + "wgmma.wait_group.sync.aligned 0; st.global.f32 [%d], %f0;" + commit) == ["wgmma-in-flight"]
    assert found_in(start + first + first + commit + "wgmma.wait_group.sync.aligned 0; st.global.f32 [%d], %f0;") == []


def test_our_kernels_are_clean():
    for kernel_ in registry.all_kernels().values():
        variant = next(iter(kernel_.variants().values()))
        findings = lint(variant.module("sm_90a"))
        assert not findings, f"{variant}: {findings[0]}"
