"""RMSNorm: y = x / sqrt(mean(x²) + eps) · weight, and its gradients. A warp a row; sums in FP32; NaN and infinities spread over their row.

With r = 1/sqrt(mean(x²) + eps), h = x·r and g = dy·weight:  dx = r·(g - h·mean(g·h)),  dweight = Σ over rows of dy·h.
"""

from functools import lru_cache

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.kernels.lanes import (
    BLOCK,
    NAMES,
    WARP,
    WARPS,
    Access,
    by_access,
    each_group,
    lane_sum,
    launch,
    pitch,
    row_of,
    warp_of_row,
    widest,
)
from warpwright.kernels.registry import LibraryKernel, register
from warpwright.ptx import Pointer, b8, f32, u32

PARTS = 64
"""Partial sums of a weight gradient, at most: rows are dealt to that many warps a column, whose sums are then added in order."""


@lru_cache
def forward_kernel(dtype: str, width: int) -> ptx.Kernel:
    access, weights = Access(dtype, width), Access("f32", min(width, 4))

    @ptx.kernel(block=BLOCK, name=f"rms_norm_{access.name}")
    def rms_norm(x: Pointer[b8], weight: Pointer[f32], y: Pointer[b8], scale: Pointer[f32], rows: u32, columns: u32, x_pitch: u32,
                 y_pitch: u32, eps: f32):
        with warp_of_row(rows) as row:
            source, target = row_of(x, row, x_pitch, dtype), row_of(y, row, y_pitch, dtype)
            squares = [ptx.var(f32, 0.0) for _ in range(width)]

            def add_squares(column):
                for value, total in zip(access.load(source + column), squares, strict=True):
                    ptx.fma.rn.f32(value, value, total, out=total)

            each_group(columns, width, add_squares)
            total = lane_sum(sum_of(squares))
            factor = ptx.rsqrt.approx.f32(total / ptx.cvt.rn.f32.u32(columns) + eps)
            with ptx.when(ptx.laneid() == 0):
                ptx.st.global_.f32(scale + row, factor)

            def normalise(column):
                values = access.load(source + column)
                factors = load_weights(weights, weight, column, width)
                access.store(target + column, [v * factor * w for v, w in zip(values, factors, strict=True)])

            each_group(columns, width, normalise)

    return rms_norm


@lru_cache
def backward_kernel(dtype: str, width: int) -> ptx.Kernel:
    access, weights = Access(dtype, width), Access("f32", min(width, 4))

    @ptx.kernel(block=BLOCK, name=f"rms_norm_backward_{access.name}")
    def rms_norm_backward(dy: Pointer[b8], x: Pointer[b8], weight: Pointer[f32], scale: Pointer[f32], dx: Pointer[b8], rows: u32,
                          columns: u32, dy_pitch: u32, x_pitch: u32, dx_pitch: u32):
        with warp_of_row(rows) as row:
            gradient, source = row_of(dy, row, dy_pitch, dtype), row_of(x, row, x_pitch, dtype)
            target = row_of(dx, row, dx_pitch, dtype)
            factor = ptx.ld.global_.nc.f32(scale + row)
            products = [ptx.var(f32, 0.0) for _ in range(width)]

            def add_products(column):
                values, gradients = access.load(source + column), access.load(gradient + column)
                for v, g, w, total in zip(values, gradients, load_weights(weights, weight, column, width), products, strict=True):
                    ptx.fma.rn.f32(g * w, v, total, out=total)

            each_group(columns, width, add_products)
            # dx = r·g - x·(r³·mean(g·x))
            slope = lane_sum(sum_of(products)) / ptx.cvt.rn.f32.u32(columns) * factor * factor * factor

            def differentiate(column):
                values, gradients = access.load(source + column), access.load(gradient + column)
                factors = load_weights(weights, weight, column, width)
                access.store(target + column, [g * w * factor - v * slope for v, g, w in zip(values, gradients, factors, strict=True)])

            each_group(columns, width, differentiate)

    return rms_norm_backward


@lru_cache
def weight_kernel(dtype: str, width: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"rms_norm_weight_gradient_{access.name}")
    def rms_norm_weight_gradient(dy: Pointer[b8], x: Pointer[b8], scale: Pointer[f32], parts: Pointer[f32], rows: u32, columns: u32,
                                 dy_pitch: u32, x_pitch: u32, part_count: u32):
        """A warp takes 32·width columns and every part_count-th row."""
        part = ptx.ctaid.x * WARPS + ptx.warpid()
        column = (ptx.ctaid.y * WARP + ptx.laneid()) * width
        with ptx.when((part < part_count) & (column < columns)):
            gradient = row_of(dy, part, dy_pitch, dtype) + column
            source = row_of(x, part, x_pitch, dtype) + column
            gradient_step, source_step = (ptx.mul.wide.u32(part_count, each) for each in (dy_pitch, x_pitch))
            gradient_at, source_at = ptx.var(ptx.u64, gradient.register()), ptx.var(ptx.u64, source.register())
            totals = [ptx.var(f32, 0.0) for _ in range(width)]
            with ptx.loop(part, rows, part_count) as row:
                factor = ptx.ld.global_.nc.f32(scale + row)
                values, gradients = access.load(Pointer(b8, source_at.operand)), access.load(Pointer(b8, gradient_at.operand))
                for v, g, total in zip(values, gradients, totals, strict=True):
                    ptx.fma.rn.f32(g * factor, v, total, out=total)
                ptx.add.u64(gradient_at, gradient_step, out=gradient_at)
                ptx.add.u64(source_at, source_step, out=source_at)
            for i, total in enumerate(totals):
                ptx.st.global_.f32(parts + (part * columns + column) + i, total)

    return rms_norm_weight_gradient


@lru_cache
def column_sums_kernel() -> ptx.Kernel:
    @ptx.kernel(block=BLOCK)
    def column_sums(parts: Pointer[f32], sums: Pointer[f32], rows: u32, columns: u32):
        """A thread a column."""
        column = ptx.global_thread_index()
        with ptx.when(column < columns):
            total = ptx.var(f32, 0.0)
            with ptx.loop(0, rows) as row:
                ptx.add.rn.f32(total, ptx.ld.global_.nc.f32(parts + (row * columns + column)), out=total)
            ptx.st.global_.f32(sums + column, total)

    return column_sums


def load_weights(access: Access, weight: Pointer, column: u32, width: int) -> list[f32]:
    """`width` FP32 weights from a column on."""
    return [value for first in range(0, width, access.width) for value in access.load(weight + column + first)]


def sum_of(values: list[f32]) -> f32:
    """Pairwise."""
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


# ── launching ────────────────────────────────────────────────────────────────────────────────────────────────────


def _width(columns: int, weight: Tensor, *tensors: Tensor) -> int:
    size = tensors[0].element_size()
    return min(widest(columns, *tensors), 16 // size if weight.data_ptr() % 16 == 0 else 1)


def forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x[M, D] (BF16 or FP32, contiguous columns), weight FP32[D] → y[M, D], and r FP32[M] for the gradients."""
    rows, columns = x.shape
    y, scale = torch.empty(rows, columns, dtype=x.dtype), torch.empty(rows)
    kernel = forward_kernel(NAMES[x.dtype], _width(columns, weight, x, y))
    launch(kernel, rows, x, weight, y, scale, rows, columns, pitch(x), pitch(y), eps)
    return y, scale


def data_gradient(dy: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """dy[M, D], x[M, D], weight FP32[D], r FP32[M] → dx[M, D]."""
    rows, columns = x.shape
    dx = torch.empty(rows, columns, dtype=x.dtype)
    kernel = backward_kernel(NAMES[x.dtype], _width(columns, weight, dy, x, dx))
    launch(kernel, rows, dy, x, weight, scale, dx, rows, columns, pitch(dy), pitch(x), pitch(dx))
    return dx


def weight_gradient(dy: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """dy[M, D], x[M, D], r FP32[M] → dweight FP32[D]. The order of the sum depends on M only."""
    from warpwright.kernels import ops

    rows, columns = x.shape
    if not rows or not columns:
        return torch.zeros(columns)
    count = min(PARTS, -(-rows // 8))
    parts, sums = torch.empty(count, columns), torch.empty(columns)
    width = widest(columns, dy, x)
    grid = -(-count // WARPS), -(-columns // (WARP * width))
    weight_kernel(NAMES[x.dtype], width).launch(ops.device(), grid=grid,
                                                args=[dy, x, scale, parts, rows, columns, pitch(dy), pitch(x), count])
    launch(column_sums_kernel(), -(-columns // WARP), parts, sums, count, columns)
    return sums


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────


def forward_reference(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = (wide.square().mean(-1) + eps).rsqrt()
    return (wide * scale[:, None] * weight).to(x.dtype), scale


def data_gradient_reference(dy: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    normal, gradient = x.float() * scale[:, None], dy.float() * weight
    return ((gradient - normal * (gradient * normal).mean(-1, keepdim=True)) * scale[:, None]).to(x.dtype)


def weight_gradient_reference(dy: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    return (dy.float() * x.float() * scale[:, None]).sum(0)


def _column_sums(parts: Tensor) -> Tensor:
    sums = torch.empty(parts.shape[1])
    launch(column_sums_kernel(), -(-parts.shape[1] // WARP), parts, sums, *parts.shape)
    return sums


def _example(generator: torch.Generator) -> tuple[Tensor, ...]:
    """dy, x, weight, r."""
    x, dy = (torch.randn(2048, 256, generator=generator) for _ in range(2))
    weight = torch.rand(256, generator=generator) + 0.5
    return dy, x, weight, forward_reference(x, weight, 1e-6)[1]


register(LibraryKernel(
    "rms_norm", "RMSNorm over rows", by_access(forward_kernel), forward, forward_reference,
    example=lambda generator: (*_example(generator)[1:3], 1e-6), tolerance=1e-5, traffic=lambda x, weight, eps: 2 * x.nbytes))
register(LibraryKernel(
    "rms_norm_backward", "RMSNorm's gradient for its input", by_access(backward_kernel), data_gradient, data_gradient_reference,
    example=_example, tolerance=1e-5, traffic=lambda dy, x, weight, scale: 3 * x.nbytes))
register(LibraryKernel(
    "rms_norm_weight_gradient", "RMSNorm's gradient for its weight, in partial sums", by_access(weight_kernel), weight_gradient,
    weight_gradient_reference, example=lambda generator: (*_example(generator)[:2], _example(generator)[3]), tolerance=1e-5,
    traffic=lambda dy, x, scale: 2 * x.nbytes))
register(LibraryKernel(
    "column_sums", "sums over rows, in order", lambda: {"f32": column_sums_kernel()}, _column_sums, lambda parts: parts.sum(0),
    example=lambda generator: (torch.randn(PARTS, 256, generator=generator),), tolerance=1e-5, traffic=lambda parts: parts.nbytes))
