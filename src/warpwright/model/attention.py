"""Multi-head latent attention with decoupled rotary positions (DeepSeek-V3 technical report, section 2.1.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from warpwright.model.config import ModelConfig
from warpwright.model.layers import DTYPES, Linear, Numerics, RMSNorm


class Rotation:
    """Rotary positions: the pair (2i, 2i + 1) turns by position · theta^(-2i/width).

    cos and sin: FP32 [S, 1, width/2], for positions first … first + S - 1.
    """

    def __init__(self, first: int, count: int, width: int, theta: float):
        speeds = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.arange(first, first + count, dtype=torch.float64)[:, None, None] * speeds
        self.cos, self.sin = angles.cos().float(), angles.sin().float()

    def __call__(self, x: Tensor) -> Tensor:
        """x[..., S, heads, width], turned in FP32 and rounded once."""
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([even * self.cos - odd * self.sin, even * self.sin + odd * self.cos], -1).flatten(-2).to(x.dtype)


class Cache:
    """What generation keeps of earlier tokens, for one layer: normalised latents [B, S, kv_lora] and rotated keys [B, S, 1, qk_rope]."""

    def __init__(self) -> None:
        self.latent: Tensor | None = None
        self.key: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.latent is None else self.latent.shape[1]

    def extend(self, latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Add new tokens; returns all there are."""
        if self.latent is not None and self.key is not None:
            latent, key = torch.cat([self.latent, latent], 1), torch.cat([self.key, key], 1)
        self.latent, self.key = latent, key
        return latent, key


class LatentAttention(nn.Module):
    """x[B, S, hidden] → [B, S, hidden]; each token sees itself and those before it.

    Queries, keys and values are made from narrow latents. A head's key is a part of its own, without positions, and a part with rotary
    positions that all heads share. The latents have an RMSNorm of their own. One product makes all that is compressed from x.
    """

    def __init__(self, config: ModelConfig, numerics: Numerics):
        super().__init__()
        self.config, self.numerics = config, numerics
        self.down = Linear(config.hidden, config.q_lora + config.kv_lora + config.qk_rope, numerics)
        self.q_norm = RMSNorm(config.q_lora, config.norm_eps, numerics)
        self.kv_norm = RMSNorm(config.kv_lora, config.norm_eps, numerics)
        self.q_up = Linear(config.q_lora, config.heads * config.qk_head, numerics)
        self.kv_up = Linear(config.kv_lora, config.heads * (config.qk_nope + config.v_head), numerics)
        self.out = Linear(config.heads * config.v_head, config.hidden, numerics, role="after_attention")

    def forward(self, x: Tensor, rotation: Rotation, cache: Cache | None = None) -> Tensor:
        c = self.config
        q_latent, kv_latent, key = self.down(x).split([c.q_lora, c.kv_lora, c.qk_rope], -1)
        key = rotation(key.unsqueeze(-2))
        if cache is not None:
            latent, key = cache.extend(self.kv_norm(kv_latent), key)
            q, k, v = self.heads(self.q_norm(q_latent), latent, key, rotation)
        elif self.numerics.recipe.recompute_norms and torch.is_grad_enabled():
            q, k, v = checkpoint(self.norms_and_heads, q_latent, kv_latent, key, rotation, use_reentrant=False, preserve_rng_state=False)
        else:
            q, k, v = self.norms_and_heads(q_latent, kv_latent, key, rotation)
        # With a cache, a single new token sees everything; several new ones must be the first.
        y = scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, scale=c.qk_head**-0.5)
        return self.out(y.transpose(1, 2).flatten(-2).to(x.dtype))

    def norms_and_heads(self, q_latent: Tensor, kv_latent: Tensor, key: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        return self.heads(self.q_norm(q_latent), self.kv_norm(kv_latent), key, rotation)

    def heads(self, q_latent: Tensor, kv_latent: Tensor, key: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised latents and the shared rotated key → queries and keys [B, heads, S, qk_head], values [B, heads, S, v_head]."""
        c = self.config
        q = self.q_up(q_latent).unflatten(-1, (c.heads, c.qk_head))
        q = torch.cat([q[..., : c.qk_nope], rotation(q[..., c.qk_nope :])], -1)
        k, v = self.kv_up(kv_latent).unflatten(-1, (c.heads, c.qk_nope + c.v_head)).split([c.qk_nope, c.v_head], -1)
        k = torch.cat([k, key.expand(*k.shape[:-1], c.qk_rope)], -1)
        dtype = torch.promote_types(DTYPES[self.numerics.recipe.kept], self.numerics.dtype)
        return tuple(x.transpose(1, 2).to(dtype) for x in (q, k, v))  # type: ignore[return-value]
