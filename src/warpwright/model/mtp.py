"""Multi-token prediction: one more block that predicts the token after the next (DeepSeek-V3 technical report, section 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from warpwright.model.attention import Rotation
from warpwright.model.block import Block
from warpwright.model.config import ModelConfig
from warpwright.model.experts import Balance
from warpwright.model.layers import Linear, Numerics, RMSNorm


class TokenAfterNext(nn.Module):
    """Depth 1: h[B, S, hidden] of the last main block and the next tokens' embeddings → what the shared output head reads, [B, S, hidden].

    Embedding and output head are the main model's: this module has neither.
    """

    def __init__(self, config: ModelConfig, numerics: Numerics):
        super().__init__()
        self.hidden_norm = RMSNorm(config.hidden, config.norm_eps, numerics)
        self.embedding_norm = RMSNorm(config.hidden, config.norm_eps, numerics)
        self.join = Linear(2 * config.hidden, config.hidden, numerics)
        self.block = Block(config, numerics, dense=False)
        self.norm = RMSNorm(config.hidden, config.norm_eps, numerics)

    def forward(self, h: Tensor, next_embedding: Tensor, rotation: Rotation) -> tuple[Tensor, Balance]:
        x = self.join(torch.cat([self.hidden_norm(h), self.embedding_norm(next_embedding)], -1))
        x, balance = self.block(x, rotation)
        assert balance is not None
        return self.norm(x), balance
