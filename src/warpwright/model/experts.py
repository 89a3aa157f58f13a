"""Feed-forward layers: the dense SwiGLU MLP, and the mixture of shared and routed experts (DeepSeek-V3 technical report, section 2.1.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from warpwright.kernels.recipe import Recipe
from warpwright.model.config import ModelConfig
from warpwright.model.layers import Linear, Numerics

GATE = Recipe.named("fp32")
"""The gate's product is FP32 under every recipe: small differences decide which experts a token goes to."""


class Balance(NamedTuple):
    """How evenly a layer's experts were used. load: int64[E], the tokens of each. loss: the sequence-wise balance loss, unweighted."""

    load: Tensor
    loss: Tensor


class MLP(nn.Module):
    """x[..., hidden] → down(silu(gate(x)) · up(x)). One weight holds gate and up: [2 · width, hidden]."""

    def __init__(self, hidden: int, width: int, numerics: Numerics):
        super().__init__()
        self.numerics = numerics
        self.gate_up = Linear(hidden, 2 * width, numerics)
        self.down = Linear(width, hidden, numerics)

    def forward(self, x: Tensor) -> Tensor:
        return self.numerics.ops.swiglu_linear(self.gate_up(x), None, self.down.weight, self.numerics.recipe)


class Router(nn.Module):
    """Chooses each token's experts. The bias only sways the choice; it is no parameter, but moved after each step to even out the load."""

    def __init__(self, config: ModelConfig, numerics: Numerics):
        super().__init__()
        self.config, self.numerics = config, numerics
        self.weight = nn.Parameter(torch.empty(config.experts, config.hidden))
        self.register_buffer("bias", torch.zeros(config.experts))
        self.bias: Tensor

    def forward(self, x: Tensor):
        """x[T, hidden] → Routing of T tokens."""
        c, ops = self.config, self.numerics.ops
        logits = ops.linear(x.float(), self.weight, GATE)
        return ops.route(logits, self.bias, c.experts_per_token, c.groups, c.groups_kept, c.route_scale)

    @torch.no_grad()
    def balance(self, load: Tensor, speed: float) -> None:
        """Lower the bias of overloaded experts by `speed`, raise that of the others (auxiliary-loss-free balancing).

        load: the tokens of each expert in the whole batch of a step.
        """
        load = load.to(torch.float32)
        self.bias += speed * torch.sign(load.mean() - load)


def sequence_balance_loss(scores: Tensor, experts_per_token: int) -> Tensor:
    """Σ_i f_i·P_i of each sequence, averaged over sequences (equations 17-20). scores: affinities FP32[B, S, E].

    f_i: expert i's share of the S·k best affinities, as a multiple of the even share. P_i: its mean share of the affinities.
    """
    batch, length, experts = scores.shape
    best = scores.detach().topk(experts_per_token, dim=-1).indices.flatten(1)
    counts = torch.zeros(batch, experts).scatter_add_(1, best, torch.ones(best.shape))
    frequency = counts * (experts / (experts_per_token * length))
    share = (scores / scores.sum(-1, keepdim=True)).mean(1)
    return (frequency * share).sum(-1).mean()


class MixtureOfExperts(nn.Module):
    """x[B, S, hidden] → (y[B, S, hidden], Balance): the shared experts' output plus the weighted sum of each token's routed ones.

    No token is dropped, whatever the load. All routed experts' weights are two tensors: [E, 2 · width, hidden] and [E, hidden, width].
    """

    def __init__(self, config: ModelConfig, numerics: Numerics):
        super().__init__()
        self.config, self.numerics = config, numerics
        self.router = Router(config, numerics)
        self.gate_up = nn.Parameter(torch.empty(config.experts, 2 * config.expert_width, config.hidden))
        self.down = nn.Parameter(torch.empty(config.experts, config.hidden, config.expert_width))
        self.shared = MLP(config.hidden, config.shared_experts * config.expert_width, numerics) if config.shared_experts else None

    def forward(self, x: Tensor) -> tuple[Tensor, Balance]:
        c, ops, recipe = self.config, self.numerics.ops, self.numerics.recipe
        tokens = x.flatten(0, -2)
        routing = self.router(tokens)
        rows, layout = ops.permute(tokens, routing, c.experts)
        inner = ops.grouped_linear(rows, self.gate_up, layout, recipe, role="expert_up")
        rows = ops.swiglu_linear(inner, None, self.down, recipe, role="expert_down", layout=layout)
        y = ops.unpermute(rows, routing.weights, layout).view_as(x)
        if self.shared is not None:
            y = y + self.shared(x)
        scores = routing.scores.view(-1, x.shape[-2], c.experts)
        return y, Balance(layout.offsets.diff().long(), sequence_balance_loss(scores, c.experts_per_token))
