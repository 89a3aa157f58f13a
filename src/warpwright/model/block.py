"""One transformer layer."""

from __future__ import annotations

from torch import Tensor, nn

from warpwright.model.attention import Cache, LatentAttention, Rotation
from warpwright.model.config import ModelConfig
from warpwright.model.experts import MLP, Balance, MixtureOfExperts
from warpwright.model.layers import Numerics, RMSNorm


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)); x[B, S, hidden]. A dense layer has an MLP, the others experts."""

    def __init__(self, config: ModelConfig, numerics: Numerics, dense: bool):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps, numerics)
        self.attention = LatentAttention(config, numerics)
        self.ffn_norm = RMSNorm(config.hidden, config.norm_eps, numerics)
        self.ffn = MLP(config.hidden, config.dense_width, numerics) if dense else MixtureOfExperts(config, numerics)

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache | None = None) -> tuple[Tensor, Balance | None]:
        x = x + self.attention(self.attention_norm(x), rotation, cache)
        y = self.ffn(self.ffn_norm(x))
        y, balance = y if isinstance(y, tuple) else (y, None)
        return x + y, balance
