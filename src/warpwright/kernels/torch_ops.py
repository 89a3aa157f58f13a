"""The operations in plain torch: the honest baseline, and the reference that the kernels' numbers are compared with."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from warpwright.kernels import formats, linear
from warpwright.kernels.formats import Quantized
from warpwright.kernels.linear import DTYPE, Kept, Plan
from warpwright.kernels.ops import Layout, Ops, Routing
from warpwright.kernels.permute import layout_reference
from warpwright.kernels.recipe import Recipe, Role
from warpwright.kernels.router import TINY, Gate, select_experts


class TorchProducts:
    """`linear.Products` in torch. FP8 products are FP32 products of the dequantised operands: the same sums, but for FP32 rounding."""

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)

    def quantize_tiles(self, x: Tensor, format: str, power_of_two: bool) -> Quantized:
        return formats.quantize_tiles(x, format, power_of_two)

    def quantize_e5m6(self, x: Tensor) -> Quantized:
        return formats.quantize_e5m6(x)

    def quantize_columns(self, x: Kept, format: str, power_of_two: bool, layout: Layout | None) -> Quantized:
        offsets = None if layout is None else layout.offsets
        return formats.quantize_columns(self.restore(x, torch.float32), format, power_of_two, offsets)

    def quantize_weight(self, w: Tensor, power_of_two: bool, transposed: bool) -> tuple[Quantized, Quantized | None]:
        blocks = formats.quantize_blocks(w, "e4m3", power_of_two)
        return blocks, formats.transpose_blocks(blocks, w.shape[-1]) if transposed else None

    def restore(self, kept: Kept, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or kept.dtype
        if kept.format == "plain":
            return kept.tensors[0].to(dtype)
        back = formats.dequantize_tiles if kept.format == "e4m3" else formats.dequantize_e5m6
        return back(Quantized(*kept.tensors), kept.columns, dtype)

    def swiglu(self, gate: Tensor, up: Tensor | None) -> Tensor:
        return _swiglu(*_halves(gate, up))

    def swiglu_backward(self, grad: Tensor, gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor | None]:
        first, second, wide = (x.float() for x in (*_halves(gate, up), grad))
        grad_up = (wide * functional.silu(first)).to(grad.dtype)
        grad_gate = torch.ops.aten.silu_backward(wide * second, first).to(grad.dtype)
        return (torch.cat([grad_gate, grad_up], -1), None) if up is None else (grad_gate, grad_up)

    def forward(self, x: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        if layout is None:
            return (x @ w.t()).to(out_dtype)
        y = x.new_empty(len(x), w.shape[1])
        for expert, (start, stop) in _runs(layout.offsets):
            torch.mm(x[start:stop], w[expert].t(), out=y[start:stop])
        return y.to(out_dtype)

    def data_gradient(self, grad: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return self.forward(grad, w.transpose(-1, -2), layout, out_dtype)

    def weight_gradient(self, grad: Tensor, x: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        if out_dtype == torch.float32:  # the sums are FP32 and stay so; torch's CPU products of BF16 would round them
            grad, x = grad.float(), x.float()
        if layout is None:
            return (grad.t() @ x).to(out_dtype)
        out = x.new_zeros(layout.offsets.numel() - 1, grad.shape[1], x.shape[1])
        for expert, (start, stop) in _runs(layout.offsets):
            torch.mm(grad[start:stop].t(), x[start:stop], out=out[expert])
        return out.to(out_dtype)

    def fp8(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        columns = a.values.shape[1]
        return self.forward(formats.dequantize_tiles(a, columns), formats.dequantize_blocks(b, columns), layout, out_dtype)

    def fp8_weight_gradient(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        tokens = a.values.shape[1]
        if layout is not None:
            layout = layout._replace(offsets=layout.chunks * formats.TILE)
        return self.weight_gradient(formats.dequantize_tiles(a, tokens).t(), formats.dequantize_tiles(b, tokens).t(), layout, out_dtype)


class TorchOps(Ops):
    """Ops by torch's own operations and autograd; linears under a recipe by `linear.Linear`."""

    name = "torch"
    products = TorchProducts()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (normal * weight).to(x.dtype)

    def swiglu(self, gate: Tensor, up: Tensor | None = None) -> Tensor:
        return _swiglu(*_halves(gate, up))

    def linear(self, x: Tensor, weight: Tensor, recipe: Recipe, role: Role = "plain") -> Tensor:
        if _nothing_special(x, recipe, role):
            return functional.linear(x.to(DTYPE[recipe.matmul]), weight.to(DTYPE[recipe.matmul])).to(x.dtype)
        return linear.apply(Plan(self.products, recipe, role), x, None, weight)

    def swiglu_linear(self, gate: Tensor, up: Tensor | None, weight: Tensor, recipe: Recipe, role: Role = "plain",
                      layout: Layout | None = None) -> Tensor:
        if recipe.recompute_swiglu:
            return linear.apply(Plan(self.products, recipe, role, fuse=True), gate, up, weight, layout)
        x = self.swiglu(gate, up)
        return self.linear(x, weight, recipe, role) if layout is None else self.grouped_linear(x, weight, layout, recipe, role)

    def route(self, logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int, scale: float) -> Routing:
        Gate(logits.shape[1], top_k, groups, groups_kept)
        scores = torch.sigmoid(logits)
        experts = select_experts(scores.detach() + bias, top_k, groups, groups_kept)
        chosen = scores.gather(1, experts)
        return Routing(experts.int(), chosen / (chosen.sum(1, keepdim=True) + TINY) * scale, scores)

    def permute(self, x: Tensor, routing: Routing, num_experts: int) -> tuple[Tensor, Layout]:
        layout = sort_by_expert(routing.experts, num_experts)
        return x.index_select(0, layout.source), layout

    def unpermute(self, rows: Tensor, weights: Tensor, layout: Layout) -> Tensor:
        own = rows.index_select(0, layout.position.flatten()).unflatten(0, weights.shape)
        return torch.bmm(weights[:, None], own.float())[:, 0].to(rows.dtype)

    def grouped_linear(self, rows: Tensor, weights: Tensor, layout: Layout, recipe: Recipe, role: Role = "plain") -> Tensor:
        return linear.apply(Plan(self.products, recipe, role), rows, None, weights, layout)


def sort_by_expert(experts: Tensor, num_experts: int) -> Layout:
    """The layout of copies sorted by expert, given int32[T, k]."""
    layout = layout_reference(experts, num_experts)
    return Layout(*layout, formats.chunk_tokens(experts.numel(), layout[0]).offsets)


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate)·up in FP32, rounded once."""
    return (functional.silu(gate.float()) * up.float()).to(gate.dtype)


def _halves(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor]:
    return (gate, up) if up is not None else gate.chunk(2, -1)  # type: ignore[return-value]


def _runs(offsets: Tensor) -> list[tuple[int, tuple[int, int]]]:
    """(expert, (first row, row after its last)) of the experts that have rows."""
    bounds = offsets.tolist()
    return [(expert, run) for expert, run in enumerate(pairwise(bounds)) if run[0] < run[1]]


def _nothing_special(x: Tensor, recipe: Recipe, role: Role) -> bool:
    """Whether torch's own autograd does what the recipe says. (It would round a BF16 product's weight gradient to BF16.)"""
    cached = recipe.cache_for(role)
    return recipe.matmul == "fp32" and cached in DTYPE and DTYPE[cached].itemsize >= min(x.dtype.itemsize, DTYPE[recipe.matmul].itemsize)
