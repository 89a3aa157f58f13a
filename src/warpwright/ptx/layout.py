"""How many bytes a variable takes, and how it is aligned."""

from __future__ import annotations

from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS


def element_size(variable: tree.Variable) -> int:
    """Bytes of one element; a texture, sampler or surface is a handle of 8."""
    return max(1, TYPE_BITS.get(variable.type, 64) // 8) * (variable.vector or 1)


def layout_size(variable: tree.Variable) -> int:
    """Bytes that a variable takes; an empty bracket counts as its initialiser's length, or 0."""
    size = element_size(variable)
    for i, dimension in enumerate(variable.dimensions):
        if dimension is None:
            dimension = len(variable.initializer) if i == 0 and isinstance(variable.initializer, tuple) else 0
        size *= dimension
    return size


def layout_align(variable: tree.Variable) -> int:
    return max(variable.align or 1, element_size(variable))
