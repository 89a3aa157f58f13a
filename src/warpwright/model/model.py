"""The whole model, and how many parameters it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from warpwright.model.attention import Cache, Rotation
from warpwright.model.block import Block
from warpwright.model.config import ModelConfig
from warpwright.model.experts import Balance, MixtureOfExperts
from warpwright.model.layers import Numerics, RMSNorm
from warpwright.model.mtp import TokenAfterNext


class Output(NamedTuple):
    """logits: FP32[B, S, vocab] of the next token. after_next: of the token after it, or None. balance: of each expert layer, in order."""

    logits: Tensor
    after_next: Tensor | None
    balance: list[Balance]


class Model(nn.Module):
    """A DeepSeek-V3-style language model. Parameters are FP32 (the master weights); the recipe says what is computed in which format.

    Embedding, output head and norms stay out of FP8, as in V3.
    """

    def __init__(self, config: ModelConfig, numerics: Numerics):
        super().__init__()
        self.config, self.numerics = config, numerics
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden))
        self.blocks = nn.ModuleList(Block(config, numerics, dense=i < config.dense_layers) for i in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps, numerics)
        self.head = nn.Parameter(torch.empty(config.vocab_size, config.hidden))
        self.mtp = TokenAfterNext(config, numerics) if config.mtp_depth else None

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Fresh weights: normal with the config's standard deviation; norms one."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, self.config.init_std, generator=generator)

    def forward(self, tokens: Tensor, next_tokens: Tensor | None = None, caches: list[Cache] | None = None) -> Output:
        """tokens: int64[B, S]. next_tokens: the same, one further, where the token after the next shall be predicted too (in training).

        caches: one for each block, in generation: the tokens are those that follow what the caches hold.
        """
        c = self.config
        rotation = Rotation(len(caches[0]) if caches else 0, tokens.shape[1], c.qk_rope, c.rope_theta)
        x, balances = self._embed(tokens), []
        for i, block in enumerate(self.blocks):
            x, balance = block(x, rotation, caches[i] if caches else None)
            balances += [balance] if balance is not None else []
        after_next = None
        if self.mtp is not None and next_tokens is not None:
            y, balance = self.mtp(x, self._embed(next_tokens), rotation)
            balances.append(balance)
            after_next = self._head(y)
        return Output(self._head(self.norm(x)), after_next, balances)

    def _embed(self, tokens: Tensor) -> Tensor:
        return embedding(tokens, self.embedding).to(self.numerics.dtype)

    def _head(self, x: Tensor) -> Tensor:
        return self.numerics.ops.linear(x.float(), self.head, self.numerics.recipe.wide)

    def expert_layers(self) -> dict[str, MixtureOfExperts]:
        """The expert layers in the order of `Output.balance`, named by their number; "mtp" is the multi-token-prediction block's."""
        layers = {str(i): block.ffn for i, block in enumerate(self.blocks) if isinstance(block.ffn, MixtureOfExperts)}
        if self.mtp is not None:
            layers["mtp"] = self.mtp.block.ffn  # type: ignore[assignment]
        return layers


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters, with the routers' biases. total and active: of the main model, both embeddings included."""

    total: int
    active: int
    """What one token uses: all but the routed experts that it does not go to."""
    attention: int
    """Of one layer."""
    expert: int
    """Of one routed expert."""
    mtp: int
    """Of the multi-token-prediction block, without the shared embedding and head."""


def count(model: Model) -> Counts:
    """The parameters of a model, which may be on torch's meta device."""

    def size(module: nn.Module | None) -> int:
        return sum(t.numel() for t in (*module.parameters(), *module.buffers())) if module is not None else 0

    c, mtp = model.config, size(model.mtp)
    total = size(model) - mtp
    expert = 3 * c.hidden * c.expert_width
    idle = (c.layers - c.dense_layers) * (c.experts - c.experts_per_token) * expert
    return Counts(total, total - idle, size(model.blocks[0].attention), expert, mtp)  # type: ignore[arg-type]
