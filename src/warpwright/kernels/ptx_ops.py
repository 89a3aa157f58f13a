"""The operations by our PTX kernels, on the process's device, with their gradients. Meta tensors take torch's way, for their shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from warpwright.errors import LaunchError
from warpwright.kernels import linear, matmul, permute, quantize, rms_norm, router, swiglu
from warpwright.kernels.formats import Quantized
from warpwright.kernels.linear import Kept, Plan, matrix
from warpwright.kernels.ops import Layout, Ops, Routing
from warpwright.kernels.recipe import Recipe, Role
from warpwright.kernels.torch_ops import TorchOps


class PtxProducts:
    """`linear.Products` by our kernels."""

    def cast(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return quantize.cast(x, dtype)

    def quantize_tiles(self, x: Tensor, format: str, power_of_two: bool) -> Quantized:
        return quantize.quantize_tiles(x, format, power_of_two)

    def quantize_e5m6(self, x: Tensor) -> Quantized:
        return quantize.quantize_e5m6(x)

    def quantize_columns(self, x: Kept, format: str, power_of_two: bool, layout: Layout | None) -> Quantized:
        source = x.tensors[0] if x.format == "plain" else Quantized(*x.tensors)
        if layout is None:
            return quantize.quantize_columns(source, x.columns, format, power_of_two)
        return quantize.quantize_columns(source, x.columns, format, power_of_two, layout.offsets, layout.chunks)

    def quantize_weight(self, w: Tensor, power_of_two: bool, transposed: bool) -> tuple[Quantized, Quantized | None]:
        return quantize.quantize_blocks(w, power_of_two, transposed)

    def restore(self, kept: Kept) -> Tensor:
        if kept.format == "plain":
            return quantize.cast(kept.tensors[0], kept.dtype)
        return quantize.dequantize(Quantized(*kept.tensors), kept.columns, kept.dtype)

    def swiglu(self, gate: Tensor, up: Tensor | None) -> Tensor:
        return swiglu.forward(gate, up)

    def swiglu_backward(self, grad: Tensor, gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return swiglu.backward(grad, gate, up)

    def forward(self, x: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return quantize.cast(matmul.forward(x, w, layout and layout.offsets, _written(x, out_dtype)), out_dtype)

    def data_gradient(self, grad: Tensor, w: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return quantize.cast(matmul.data_gradient(grad, w, layout and layout.offsets, _written(grad, out_dtype)), out_dtype)

    def weight_gradient(self, grad: Tensor, x: Tensor, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return quantize.cast(matmul.weight_gradient(grad, x, layout and layout.offsets, _written(x, out_dtype)), out_dtype)

    def fp8(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return matmul.fp8(*a, *b, layout and layout.offsets, out_dtype)

    def fp8_weight_gradient(self, a: Quantized, b: Quantized, layout: Layout | None, out_dtype: torch.dtype) -> Tensor:
        return matmul.fp8_weight_gradient(*a, *b, layout and layout.chunks, out_dtype)


def _written(operand: Tensor, out_dtype: torch.dtype) -> torch.dtype:
    """What a product writes: an FP32 product is not rounded by its kernel."""
    return torch.float32 if operand.dtype == torch.float32 else out_dtype


class RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = quantize.cast(weight, torch.float32)
        y, scale = rms_norm.forward(x, wide, eps)
        ctx.save_for_backward(x, wide, scale)
        ctx.weight_dtype = weight.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        grad = matrix(grad)
        grad_x = rms_norm.data_gradient(grad, x, weight, scale) if ctx.needs_input_grad[0] else None
        grad_weight = quantize.cast(rms_norm.weight_gradient(grad, x, scale), ctx.weight_dtype) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, None


class Swiglu(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up)
        return swiglu.forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        return swiglu.backward(matrix(grad), *ctx.saved_tensors)


class Route(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int,
                scale: float) -> tuple[Tensor, Tensor, Tensor]:
        experts, weights, scores = router.forward(logits, bias, top_k, groups, groups_kept, scale)
        ctx.mark_non_differentiable(experts)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(experts, scores)
        ctx.scale = scale
        return experts, weights, scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad_weights: Tensor | None, grad_scores: Tensor | None) -> tuple[Tensor | None, ...]:
        experts, scores = ctx.saved_tensors
        grad = None
        if grad_weights is not None or grad_scores is not None:
            if grad_weights is None:
                grad_weights = torch.zeros(experts.shape)
            grad = router.backward(grad_weights, grad_scores, experts, scores, ctx.scale)
        return grad, None, None, None, None, None


class Permute(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, position: Tensor) -> Tensor:
        ctx.save_for_backward(position)
        return permute.permute(x, position)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return permute.permute_backward(matrix(grad), *ctx.saved_tensors), None


class Unpermute(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, position: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights, position)
        return permute.unpermute(rows, weights, position)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        return *permute.unpermute_backward(matrix(grad), *ctx.saved_tensors), None


class PtxOps(Ops):
    """Ops by our kernels."""

    name = "ptx"
    products = PtxProducts()
    shapes = TorchOps()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if x.is_meta:
            return self.shapes.rms_norm(x, weight, eps)
        return RmsNorm.apply(_activation(x), weight, eps).view(x.shape)

    def swiglu(self, gate: Tensor, up: Tensor | None = None) -> Tensor:
        if gate.is_meta:
            return self.shapes.swiglu(gate, up)
        y = Swiglu.apply(_activation(gate), None if up is None else _activation(up))
        return y.view(*gate.shape[:-1], y.shape[-1])

    def linear(self, x: Tensor, weight: Tensor, recipe: Recipe, role: Role = "plain") -> Tensor:
        if x.is_meta:
            return self.shapes.linear(x, weight, recipe, role)
        return linear.apply(Plan(self.products, recipe, role), _activation(x, flat=False), None, weight)

    def swiglu_linear(self, gate: Tensor, up: Tensor | None, weight: Tensor, recipe: Recipe, role: Role = "plain",
                      layout: Layout | None = None) -> Tensor:
        if gate.is_meta:
            return self.shapes.swiglu_linear(gate, up, weight, recipe, role, layout)
        if recipe.recompute_swiglu:
            return linear.apply(Plan(self.products, recipe, role, fuse=True), _activation(gate, flat=False), up, weight, layout)
        x = self.swiglu(gate, up)
        return self.linear(x, weight, recipe, role) if layout is None else self.grouped_linear(x, weight, layout, recipe, role)

    def route(self, logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int, scale: float) -> Routing:
        if logits.is_meta:
            return self.shapes.route(logits, bias, top_k, groups, groups_kept, scale)
        if logits.dtype != torch.float32:
            raise LaunchError(f"the router's logits are FP32, not {logits.dtype}: convert them")
        return Routing(*Route.apply(logits, bias, top_k, groups, groups_kept, scale))

    def permute(self, x: Tensor, routing: Routing, num_experts: int) -> tuple[Tensor, Layout]:
        if x.is_meta:
            return self.shapes.permute(x, routing, num_experts)
        offsets, source, position = permute.expert_layout(routing.experts, num_experts)
        return Permute.apply(_activation(x), position), Layout(offsets, source, position, permute.expert_chunks(offsets))

    def unpermute(self, rows: Tensor, weights: Tensor, layout: Layout) -> Tensor:
        if rows.is_meta:
            return self.shapes.unpermute(rows, weights, layout)
        return Unpermute.apply(_activation(rows), weights, layout.position)

    def grouped_linear(self, rows: Tensor, weights: Tensor, layout: Layout, recipe: Recipe, role: Role = "plain") -> Tensor:
        if rows.is_meta:
            return self.shapes.grouped_linear(rows, weights, layout, recipe, role)
        return linear.apply(Plan(self.products, recipe, role), _activation(rows, flat=False), None, weights, layout)


def _activation(x: Tensor, flat: bool = True) -> Tensor:
    """x, known to be of a type that the kernels take; flat: as [rows, columns]."""
    if x.dtype not in (torch.bfloat16, torch.float32):
        raise LaunchError(f"activations are BF16 or FP32, not {x.dtype}: convert them")
    return matrix(x) if flat else x
