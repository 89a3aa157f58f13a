"""What the kernels over rows share: how a warp walks a row, loads and stores it as FP32 numbers, and reduces over its lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.ptx import Pointer, b32, bf16, f32, u32

WARP = 32
WARPS = 4
"""Warps of a CTA where each has a row of its own."""
BLOCK = WARP * WARPS
ALL = 0xFFFFFFFF
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
ELEMENTS = {"f32": f32, "bf16": bf16}
SIZES = {"f32": 4, "bf16": 2}


@dataclass(frozen=True)
class Access:
    """How rows of numbers in memory are read and written: `width` neighbours at once (1, 2, 4; 8 of bf16), as FP32 registers."""

    dtype: str
    width: int

    @property
    def name(self) -> str:
        return f"{self.dtype}_x{self.width}"

    @property
    def bytes(self) -> int:
        return SIZES[self.dtype] * self.width

    def load(self, address: Pointer) -> list[f32]:
        """`width` numbers, from memory that the kernel does not write."""
        if self.dtype == "f32":
            if self.width == 1:
                return [ptx.ld.global_.nc.f32(address)]
            return ptx.word(f"ld.global.nc.v{self.width}.f32")(address)
        if self.width == 1:
            return [ptx.cvt.f32.bf16(ptx.ld.global_.nc.b16(address))]
        vector = "" if self.width == 2 else f".v{self.width // 2}"
        words = ptx.word(f"ld.global.nc{vector}.b32")(address)
        return [half for word in (words if vector else [words]) for half in bf16_pair(word)]

    def store(self, address: Pointer, values: Sequence[f32]) -> None:
        """`width` numbers, rounded to nearest even."""
        if self.dtype == "f32":
            words: Any = list(values)
        elif self.width == 1:
            words = [ptx.cvt.rn.bf16.f32(values[0])]
        else:
            words = [ptx.cvt.rn.bf16x2.f32(high, low) for low, high in zip(values[::2], values[1::2], strict=True)]
        kind = "f32" if self.dtype == "f32" else "b16" if self.width == 1 else "b32"
        if len(words) == 1:
            ptx.word(f"st.global.{kind}")(address, words[0])
        else:
            ptx.word(f"st.global.v{len(words)}.{kind}")(address, words)


def bf16_pair(word: b32) -> list[f32]:
    """The two BF16 numbers of a word as FP32, the low half first."""
    return [(word << 16).as_(f32), (word & 0xFFFF0000).as_(f32)]


# ── walking ──────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def warp_of_row(rows: u32) -> Iterator[u32]:
    """`with warp_of_row(rows) as row:` this warp's row; warps beyond the last do nothing."""
    row = ptx.ctaid.x * WARPS + ptx.warpid()
    with ptx.when(row < rows):
        yield row


def row_of(base: Pointer, row: u32, pitch: u32, dtype: str | None = None) -> Pointer:
    """Where a row begins: rows are `pitch` bytes apart. dtype: of the elements, if not the pointer's."""
    return base.bytes(ptx.mul.wide.u32(row, pitch)).as_(ELEMENTS[dtype] if dtype else base.element)


def each_group(columns: u32, width: int, body: Callable[[u32], None]) -> None:
    """`body(column)` for the first of each `width` columns of a row, the lanes of the warp side by side. width divides columns."""
    lane = ptx.laneid() * width if width > 1 else ptx.laneid()
    step = WARP * width
    whole = columns & -step
    with ptx.loop(0, whole, step) as first:
        body(first + lane)
    last = whole + lane
    with ptx.when(last < columns):
        body(last)


# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────


def neighbour(value: Any, distance: int) -> Any:
    """The register of the lane whose index differs in the bit `distance`."""
    return ptx.shfl.sync.bfly.b32(value, distance, 31, ALL).as_(type(value))


def lane_sum(value: Any, lanes: int = WARP) -> Any:
    """The sum over each `lanes` neighbouring lanes (a power of two), in all of them."""
    while lanes > 1:
        lanes //= 2
        value = value + neighbour(value, lanes)
    return value


def lane_max(value: f32, lanes: int = WARP) -> f32:
    """The largest over each `lanes` neighbouring lanes, in all of them; NaN if any is."""
    while lanes > 1:
        lanes //= 2
        value = ptx.max.NaN.f32(value, neighbour(value, lanes))
    return value


def sigmoid(x: f32) -> f32:
    """1/(1 + e^-x)."""
    return ptx.rcp.approx.f32(ptx.ex2.approx.f32(x * -1.4426950408889634) + 1.0)


# ── variants ─────────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = (Access("f32", 1), Access("f32", 4), Access("bf16", 1), Access("bf16", 2), Access("bf16", 8))
"""The accesses that listings show of a kernel over whole rows."""
FOURS = (Access("f32", 1), Access("f32", 4), Access("bf16", 1), Access("bf16", 4))
"""Those of a kernel where a lane has four neighbours."""


def by_access(build: Callable[[str, int], ptx.Kernel], accesses: Iterable[Access] = ROWS) -> Callable[[], dict[str, ptx.Kernel]]:
    """For the index: a kernel's variants by how it accesses its rows."""
    return lambda: {access.name: build(access.dtype, access.width) for access in accesses}


# ── the host's side ──────────────────────────────────────────────────────────────────────────────────────────────


def widest(columns: int, *tensors: Tensor, limit: int = 16) -> int:
    """How many neighbours can be accessed at once in each row of all the tensors (of one dtype), in at most `limit` bytes."""
    size = tensors[0].element_size()
    common = gcd(columns * size, limit)
    for tensor in tensors:
        common = gcd(common, tensor.data_ptr())
        if tensor.dim() == 2:
            common = gcd(common, tensor.stride(0) * size)
    return max(common // size, 1)


def pitch(tensor: Tensor) -> int:
    """Bytes between rows."""
    return tensor.stride(0) * tensor.element_size()


def launch(kernel: ptx.Kernel, warps: int, *args: Any) -> None:
    """Run a kernel with `warps` warps on the process's device; nothing, if there are none."""
    if warps:
        from warpwright.kernels import ops

        kernel.launch(ops.device(), grid=-(-warps // WARPS), args=args)
