"""The two layers that everything is built of, and what they compute with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from warpwright.kernels.ops import Ops
from warpwright.kernels.recipe import Recipe, Role

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Numerics:
    """What a model computes with: the operations and their number formats."""

    ops: Ops
    recipe: Recipe

    @property
    def dtype(self) -> torch.dtype:
        """Of activations."""
        return DTYPES[self.recipe.activations]


class Linear(nn.Module):
    """x[..., K] → [..., N], without a bias. The weight is FP32 [N, K]; the recipe says what it is rounded to for the product."""

    def __init__(self, inputs: int, outputs: int, numerics: Numerics, role: Role = "plain"):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.numerics, self.role = numerics, role

    def forward(self, x: Tensor) -> Tensor:
        return self.numerics.ops.linear(x, self.weight, self.numerics.recipe, self.role)


class RMSNorm(nn.Module):
    """x[..., D] over its root mean square, times a learned weight."""

    def __init__(self, width: int, eps: float, numerics: Numerics):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.numerics = eps, numerics

    def forward(self, x: Tensor) -> Tensor:
        return self.numerics.ops.rms_norm(x, self.weight, self.eps)
