"""The library's index: every kernel with its variants, reference and launch helper, so that all can be listed, tested and timed alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Generator

from warpwright import ptx

MODULES = ("rms_norm", "swiglu", "router", "permute", "quantize", "matmul")


@dataclass(frozen=True)
class LibraryKernel:
    """A kernel of the library.

    name: as in listings. summary: what it computes, in a line. variants: builds what there is to compile, by what sets it apart; each
    has the oldest target it is for (`min_target`). run: the launch helper. reference: the same in plain torch, with the same arguments and
    results. example: such arguments, drawn from a generator, at a size typical for the default model. tolerance: the largest difference
    to the reference, relative to its largest magnitude. traffic: bytes that it must move, given the same arguments.
    """

    name: str
    summary: str
    variants: Callable[[], dict[str, ptx.Kernel]]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    example: Callable[[Generator], tuple]
    tolerance: float
    traffic: Callable[..., int] | None = None


KERNELS: dict[str, LibraryKernel] = {}
"""Name → kernel, as the modules of kernels are imported; `all_kernels()` has all of them."""


def register(kernel: LibraryKernel) -> LibraryKernel:
    """Add a kernel to the index, where its file is imported."""
    KERNELS[kernel.name] = kernel
    return kernel


def all_kernels() -> dict[str, LibraryKernel]:
    """Every kernel of the library."""
    for module in MODULES:
        import_module(f"warpwright.kernels.{module}")
    return KERNELS
