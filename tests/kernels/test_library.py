"""Every kernel of the library: its example against its reference, and its variants through ptxas."""

from dataclasses import replace

import pytest
import torch
from kernel_checks import assert_close

from warpwright.errors import WarpwrightError
from warpwright.gpu.assemble import assemble, find_ptxas
from warpwright.kernels import registry
from warpwright.ptx import tree

LIBRARY = registry.all_kernels()


def has_ptxas() -> bool:
    try:
        return bool(find_ptxas())
    except WarpwrightError:
        return False


def tensors(result) -> list[torch.Tensor]:
    """All in a result, however nested."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [each for part in result or () for each in tensors(part)]


def together(modules: list[tree.Module]) -> tree.Module:
    """One module with everything in several, as ptxas is slow to start."""
    items = {getattr(item, "name", item): item for module in modules for item in module.items}
    return replace(modules[0], version=max(module.version for module in modules), items=tuple(items.values()))


@pytest.mark.parametrize("name", LIBRARY)
def test_an_example_agrees_with_the_reference(name):
    kernel = LIBRARY[name]
    arguments = kernel.example(torch.Generator().manual_seed(7))
    got, wanted = tensors(kernel.run(*arguments)), tensors(kernel.reference(*arguments))
    assert len(got) == len(wanted) > 0
    for one, other in zip(got, wanted, strict=True):
        assert_close(one, other, kernel.tolerance)


@pytest.mark.skipif(not has_ptxas(), reason="needs ptxas: pip install 'warpwright[ptxas]'")
@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", LIBRARY)
def test_variants_assemble_without_spills(name, target):
    arch = int(target[3:5])
    variants = [variant for variant in LIBRARY[name].variants().values() if int(variant.min_target[3:5]) <= arch]
    if not variants:
        pytest.skip(f"no variant is for {target}")
    module = together([variant.module(target) for variant in variants])
    assembled = assemble(str(module), target)
    assert len(assembled.kernels) == len(module.kernels) == len(variants)
    assert {kernel: cost.spills for kernel, cost in assembled.kernels.items() if cost.spills} == {}
    assert not assembled.notes
