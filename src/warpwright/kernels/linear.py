"""Linear layers under a recipe: what is rounded to which format, what is kept for the backward pass, and the three products.

Both implementations of `Ops` share this file and differ in their `Products`: the steps that touch numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from warpwright.kernels.formats import Quantized
from warpwright.kernels.ops import Layout
from warpwright.kernels.recipe import Cache, Recipe, Role

DTYPE = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Kept:
    """An activation [rows, columns] as it is kept for the backward pass: in `format`, "e4m3", "e5m6", or "plain" (tensors = [it])."""

    format: str
    tensors: tuple[Tensor, ...]
    columns: int
    dtype: torch.dtype

    def holding(self, tensors: tuple[Tensor, ...]) -> Kept:
        return Kept(self.format, tensors, self.columns, self.dtype)


class Products(Protocol):
    """What a linear layer needs done. Shapes and formats are those of `formats.py`; a layout says which rows are whose expert's.

    Matrices are [rows, columns] with contiguous columns.
    """

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor: ...

    def quantize_tiles(self, x: Tensor, format: str, power_of_two: bool) -> Quantized: ...

    def quantize_e5m6(self, x: Tensor) -> Quantized: ...

    def quantize_columns(self, x: Kept, format: str, power_of_two: bool, layout: Layout | None) -> Quantized: ...

    def quantize_weight(self, w: Tensor, power_of_two: bool, transposed: bool) -> tuple[Quantized, Quantized | None]:
        """Blocks of w[N, K] or [E, N, K], and if asked those of its transpose."""

    def restore(self, kept: Kept) -> Tensor:
        """[rows, columns] in the dtype it had."""

    def swiglu(self, gate: Tensor, up: Tensor | None) -> Tensor: ...

    def swiglu_backward(self, grad: Tensor, gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor | None]: ...

    def forward(self, x: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        """x[M, K] · wᵀ."""

    def data_gradient(self, grad: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        """grad[M, N] · w."""

    def weight_gradient(self, grad: Tensor, x: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        """gradᵀ · x, for each expert."""

    def fp8(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        """a[M, Kp] in tiles · (b[N, Kp] or [E, N, Kp] in blocks)ᵀ."""

    def fp8_weight_gradient(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        """a[N, P] · b[K, P]ᵀ, both in tiles along tokens, for each expert over its chunks."""


def keep(products: Products, x: Tensor, format: Cache, power_of_two: bool = False) -> Kept:
    """x[rows, columns] in a cache format. What is narrower already stays as it is."""
    columns = x.shape[-1]
    if format == "fp8":
        return Kept("e4m3", tuple(products.quantize_tiles(x, "e4m3", power_of_two)), columns, x.dtype)
    if format == "e5m6":
        return Kept("e5m6", tuple(products.quantize_e5m6(x)), columns, x.dtype)
    if format == "bf16" and x.dtype == torch.float32:
        return Kept("plain", (products.cast(x, torch.bfloat16),), columns, x.dtype)
    return Kept("plain", (x,), columns, x.dtype)


@dataclass(frozen=True)
class Plan:
    """What is the same in all of a layer's calls. fuse: the input goes through SwiGLU first, whose output the backward computes again."""

    products: Products
    recipe: Recipe
    role: Role
    fuse: bool = False


class Linear(Function):
    """x[M, K] · weightᵀ, or with a layout each row times its expert's; with plan.fuse, x is SwiGLU of (x, up) first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor | None, weight: Tensor, layout: Layout | None, plan: Plan) -> Tensor:
        products, recipe, role = plan.products, plan.recipe, plan.role
        needs_x, needs_up, needs_weight = ctx.needs_input_grad[:3]
        kept: list[Kept] = []
        if plan.fuse:
            if needs_x or needs_up or needs_weight:
                kept = [keep(products, part, recipe.swiglu, recipe.power_of_two_scales) for part in (x, up) if part is not None]
            dtype = x.dtype
            x = products.swiglu(x, up)
        else:
            dtype = x.dtype
        operands: list[Tensor] = []
        if recipe.matmul == "fp8":
            rounded = recipe.rounds_input_scales(role)
            a = products.quantize_tiles(x, "e4m3", rounded)
            b, flipped = products.quantize_weight(weight, recipe.power_of_two_scales, transposed=needs_x)
            y = products.fp8(a, b, layout, dtype)
            if flipped is not None:
                operands = [*flipped]
            if needs_weight and not plan.fuse:
                cached = recipe.cache_for(role)
                kept = [Kept("e4m3", tuple(a), x.shape[-1], dtype) if cached == "fp8" else keep(products, x, cached)]
        else:
            wide = DTYPE[recipe.matmul]
            b_wide = products.cast(weight, wide)
            a_wide = products.cast(x, wide)
            y = products.forward(a_wide, b_wide, layout, dtype)
            if needs_x:
                operands = [b_wide]
            if needs_weight and not plan.fuse:
                cached = recipe.cache_for(role)
                narrower = a_wide.dtype.itemsize < x.dtype.itemsize  # rounded for the product already: nothing is lost by keeping that
                kept = [keep(products, a_wide if narrower else x, cached, recipe.power_of_two_scales)]
        ctx.plan, ctx.layout, ctx.dtype, ctx.kept = plan, layout, dtype, [part.holding(()) for part in kept]
        ctx.weight_dtype = weight.dtype
        ctx.save_for_backward(*operands, *(tensor for part in kept for tensor in part.tensors))
        ctx.operands, ctx.sizes = len(operands), [len(part.tensors) for part in kept]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        plan, recipe, role = ctx.plan, ctx.plan.recipe, ctx.plan.role
        products: Products = plan.products
        needs_x, needs_up, needs_weight = ctx.needs_input_grad[:3]
        layout, saved = ctx.layout, ctx.saved_tensors
        operands, saved = saved[:ctx.operands], saved[ctx.operands:]
        kept = []
        for part, size in zip(ctx.kept, ctx.sizes, strict=True):
            kept.append(part.holding(saved[:size]))
            saved = saved[size:]
        grad = matrix(grad)
        gate = up = None
        if plan.fuse:
            gate, *rest = [products.restore(part) for part in kept]
            up = rest[0] if rest else None
        grad_x = grad_up = grad_weight = None
        rounded = recipe.rounds_gradient_scales(role)
        if needs_weight:
            if plan.fuse:
                x = products.swiglu(gate, up)  # type: ignore[arg-type]
                kept = [Kept("plain", (x,), x.shape[-1], x.dtype)]
            if recipe.matmul == "fp8":
                plain = Kept("plain", (grad,), grad.shape[-1], grad.dtype)
                a = products.quantize_columns(plain, recipe.gradient_format, rounded, layout)
                b = products.quantize_columns(kept[0], "e4m3", recipe.rounds_input_scales(role), layout)
                grad_weight = products.fp8_weight_gradient(a, b, layout, ctx.weight_dtype)
            else:
                wide = DTYPE[recipe.matmul]
                x = products.cast(products.restore(kept[0]), wide)
                grad_weight = products.weight_gradient(products.cast(grad, wide), x, layout, ctx.weight_dtype)
        if needs_x or needs_up:
            if recipe.matmul == "fp8":
                a = products.quantize_tiles(grad, recipe.gradient_format, rounded)
                grad_x = products.fp8(a, Quantized(*operands), layout, ctx.dtype)
            else:
                grad_x = products.data_gradient(products.cast(grad, DTYPE[recipe.matmul]), operands[0], layout, ctx.dtype)
            if plan.fuse:
                grad_x, grad_up = products.swiglu_backward(grad_x, gate, up)  # type: ignore[arg-type]
        return grad_x, grad_up, grad_weight, None, None


def apply(plan: Plan, x: Tensor, up: Tensor | None, weight: Tensor, layout: Layout | None = None) -> Tensor:
    """`Linear` over the last axis of x, whatever the axes before it."""
    lead = x.shape[:-1]
    y = Linear.apply(matrix(x), None if up is None else matrix(up), weight, layout, plan)
    return y.view(*lead, weight.shape[-2])


def matrix(x: Tensor) -> Tensor:
    """x as [rows, columns] with contiguous columns."""
    x = x if x.dim() == 2 else x.reshape(-1, x.shape[-1]) if x.shape[-1] else x.reshape(x.shape[:-1].numel(), 0)
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()
