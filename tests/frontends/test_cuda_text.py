"""Everything that NVRTC and nvcc make of the corpus, for four GPUs, is read, printed back as the same tree,
found legal, and no lint finds anything in it."""

import pytest
from compilers import CORPUS, nvcc, nvrtc

from warpwright import ptx

NAMES = sorted(path.stem for path in CORPUS.glob("*.cu"))
TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_100a"]


def check(text: str, target: str) -> None:
    module = ptx.parse(text)
    assert ptx.parse(str(module)) == module
    ptx.verify(module)
    assert ptx.lint(module) == []
    assert f".target {target}" in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_what_nvrtc_compiles(name, target):
    if name == "groups" and target in ("sm_89", "sm_100a"):
        pytest.skip("its headers take seconds; two targets are enough")
    check(nvrtc(name, target), target)


@pytest.mark.parametrize("name, target", [(name, TARGETS[i % 4]) for i, name in enumerate(NAMES) if i % 3 == 0])
def test_what_nvcc_compiles(name, target):
    check(nvcc(name, target), target)
