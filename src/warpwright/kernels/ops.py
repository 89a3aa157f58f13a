"""The operations that a model is made of: one interface, implemented by our PTX kernels ("ptx") and by plain torch ("torch").

All are differentiable. Activations are BF16 or FP32; T is tokens, E experts, k the experts of a token. The two implementations agree on
every number format, so that a model's losses under one follow those under the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from warpwright.errors import LaunchError
from warpwright.kernels.recipe import Recipe, Role

if TYPE_CHECKING:
    from warpwright.cpu.device import Device


class Routing(NamedTuple):
    """Which experts each token goes to.

    experts: int32[T, k], by descending biased score. weights: FP32[T, k]. scores: FP32[T, E], the sigmoid affinities. The last two are
    differentiable.
    """

    experts: Tensor
    weights: Tensor
    scores: Tensor


class Layout(NamedTuple):
    """Where the copies of tokens stand, sorted by expert (and, in an expert, by token and slot).

    offsets: int32[E + 1], where each expert's rows begin. source: int32[T·k], the token of each row. position: int32[T, k], the row of
    each slot. chunks: int32[E + 1], where each expert's rows begin if they are cut into chunks of 128 that no experts share.
    """

    offsets: Tensor
    source: Tensor
    position: Tensor
    chunks: Tensor


class Ops(ABC):
    """The operations."""

    name: str

    @abstractmethod
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x[..., D] / sqrt(mean(x²) + eps) · weight[D], in FP32, rounded once to x's dtype."""

    @abstractmethod
    def swiglu(self, gate: Tensor, up: Tensor | None = None) -> Tensor:
        """silu(gate[..., F]) · up[..., F]. Without `up`, gate is [..., 2F]: the two side by side, as one product makes them."""

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor, recipe: Recipe, role: Role = "plain") -> Tensor:
        """x[..., K] · weight[N, K]ᵀ → [..., N] in x's dtype. Weight gradients are in the weight's dtype, summed in FP32."""

    @abstractmethod
    def swiglu_linear(self, gate: Tensor, up: Tensor | None, weight: Tensor, recipe: Recipe, role: Role = "plain",
                      layout: Layout | None = None) -> Tensor:
        """linear(swiglu(gate, up), weight), or grouped_linear with a layout; its backward keeps only what the recipe's `swiglu` says."""

    @abstractmethod
    def route(self, logits: Tensor, bias: Tensor, top_k: int, groups: int, groups_kept: int, scale: float) -> Routing:
        """DeepSeek-V3's gate (technical report, equations 13-16 and section 4.2): logits FP32[T, E], bias FP32[E].

        s = sigmoid(logits). Experts are chosen by s + bias: of `groups` equal groups those `groups_kept` with the largest sum of their best
        max(1, top_k/groups_kept), in them the best top_k; ties go to the lower index. Weights are s/(sum of the chosen s + 1e-20) · scale.
        """

    @abstractmethod
    def permute(self, x: Tensor, routing: Routing, num_experts: int) -> tuple[Tensor, Layout]:
        """x[T, D] → rows[T·k, D] sorted by expert, and their layout."""

    @abstractmethod
    def unpermute(self, rows: Tensor, weights: Tensor, layout: Layout) -> Tensor:
        """rows[T·k, D], weights FP32[T, k] → [T, D]: each token's rows weighted and summed, in FP32, rounded once."""

    @abstractmethod
    def grouped_linear(self, rows: Tensor, weights: Tensor, layout: Layout, recipe: Recipe, role: Role = "plain") -> Tensor:
        """rows[M, K] sorted by expert, weights[E, N, K] → [M, N]: each row times its expert's weight, as `linear`."""


@cache
def get(name: str) -> Ops:
    """The implementation named "ptx" or "torch"."""
    if name == "torch":
        from warpwright.kernels.torch_ops import TorchOps

        return TorchOps()
    if name == "ptx":
        from warpwright.kernels.ptx_ops import PtxOps

        return PtxOps()
    raise LaunchError(f"there are no kernels '{name}'; there are: ptx, torch")


@cache
def device() -> Device:
    """The process's virtual GPU, where the "ptx" operations run."""
    from warpwright.cpu.device import Device

    return Device("cpu")
