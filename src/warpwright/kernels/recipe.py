"""Which number format each part of a training step uses: DeepSeek-V3's recipe, every part of it a switch.

Sources: the V3 technical report (arXiv 2412.19437v2), section 3.3 for all but the EMA (section 3.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_type_hints

from warpwright.errors import DataError

Matmul = Literal["fp8", "bf16", "fp32"]
Cache = Literal["fp8", "e5m6", "bf16", "fp32"]
Wide = Literal["bf16", "fp32"]
Fp8 = Literal["e4m3", "e5m2"]
Role = Literal["plain", "after_attention", "expert_up", "expert_down"]

TILE = 128
"""Activations and gradients share one scale in tiles of 1×128, weights in blocks of 128×128, and FP8 products are promoted to FP32
every 128 of the contraction. The kernels are built for this number."""


@dataclass(frozen=True)
class Recipe:
    """The formats of a training step. The defaults are V3's, as published.

    A cache format says how an activation is kept for the backward pass: "fp8" (E4M3 in 1×128 tiles), "e5m6" (12 bits, 1×128 tiles,
    power-of-two scales), "bf16", or "fp32" (as it is). An activation that is narrower already is kept as it is.
    """

    matmul: Matmul = "fp8"
    """The three products of each linear (forward, data gradient, weight gradient). Operands are rounded to this format; sums are FP32."""
    gradient_format: Fp8 = "e4m3"
    """FP8 format of output gradients: V3 has E4M3 everywhere; "e5m2" is the usual hybrid."""
    power_of_two_scales: bool = False
    """Round every scale up to a power of two. V3 does so only in the two places below (and for "e5m6", which always does)."""
    dispatch_power_of_two: bool = True
    """Power-of-two scales for what is sent between servers in FP8: inputs of the experts' up-projections (role "expert_up") and the
    gradients at the outputs of their down-projections (role "expert_down")."""
    cache: Cache = "fp8"
    """Inputs of linears, for their weight gradients."""
    after_attention: Cache = "e5m6"
    """The input of the linear after attention (role "after_attention"), to which attention's backward is sensitive."""
    swiglu: Cache = "fp8"
    """The inputs of SwiGLU, where recompute_swiglu."""
    recompute_swiglu: bool = True
    """SwiGLU's output is not kept as the next linear's input: the backward pass computes it again from its inputs (`Ops.swiglu_linear`)."""
    recompute_norms: bool = True
    """RMSNorm and latent attention's up-projections are computed again in the backward pass. (For memory; the numbers are the same.)"""
    activations: Wide = "bf16"
    """What flows between operations. The residual stream, norms, attention and the gate are computed in this or wider."""
    kept: Wide = "bf16"
    """Products that never go to FP8: the output head and attention. (The gate is always FP32.)"""
    adam_moments: Wide = "bf16"
    """AdamW's first and second moments. Master weights and accumulated gradients are always FP32."""
    ema_decay: float | None = 0.999
    """An exponential moving average of the weights, kept on the CPU; None for none. (V3 names no decay.)"""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            choices = get_args(hints[field.name])
            value = getattr(self, field.name)
            if choices and float not in choices and value not in choices:
                raise DataError(f"recipe: {field.name} is {value!r}; it can be {', '.join(map(repr, choices))}")

    @staticmethod
    def named(name: str) -> Recipe:
        """The recipe that `--precision` names: "fp8" (V3's), "bf16" or "fp32" (the usual ones, with FP32 moments)."""
        if name == "fp8":
            return Recipe()
        if name in ("bf16", "fp32"):
            return Recipe(matmul=name, cache=name, after_attention=name, swiglu=name, activations=name, kept=name,  # type: ignore[arg-type]
                          adam_moments="fp32", recompute_swiglu=False, recompute_norms=False, dispatch_power_of_two=False, ema_decay=None)
        raise DataError(f"there is no recipe '{name}'; there are: fp8, bf16, fp32")

    @property
    def wide(self) -> Recipe:
        """The recipe of products that stay out of FP8: `kept` for the product, nothing kept in less."""
        return replace(self, matmul=self.kept, cache="fp32", after_attention="fp32", swiglu="fp32", recompute_swiglu=False)

    def cache_for(self, role: Role) -> Cache:
        """How the input of a linear with this role is kept."""
        return self.after_attention if role == "after_attention" else self.cache

    def rounds_input_scales(self, role: Role) -> bool:
        """Whether the input of a linear with this role is quantised with power-of-two scales."""
        return (self.power_of_two_scales or (role == "after_attention" and self.after_attention == "e5m6")
                or (role == "expert_up" and self.dispatch_power_of_two))

    def rounds_gradient_scales(self, role: Role) -> bool:
        """Whether the output's gradient of a linear with this role is quantised with power-of-two scales."""
        return self.power_of_two_scales or (role == "expert_down" and self.dispatch_power_of_two)
