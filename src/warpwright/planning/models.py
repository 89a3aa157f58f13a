"""Exact parameter and FLOP counts of a model, from a preset or a Hugging Face config.json."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from warpwright.errors import WarpwrightError

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(files("warpwright.planning").joinpath("models.toml").read_text())
KINDS = ("deepseek_v2", "deepseek_v3", "kimi_k2", "llama", "mixtral", "qwen3_moe")


@dataclass(frozen=True)
class Counts:
    """Parameters (elements) by part, the multi-token-prediction module apart; FLOPs a token (a multiply-add is two)."""

    parts: dict[str, int]
    active: int  # parameters that one token uses, both embeddings included
    mtp: int  # the multi-token-prediction modules, without the embedding and head they share
    linear_flops: int  # forward, all matrix products with weights
    attention_flops: int  # forward, scores and values over the whole sequence (causal: half)

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def train_flops(self, causal: bool = True) -> float:
        """Forward and backward of one token: three times the forward."""
        return 3 * (self.linear_flops + self.attention_flops / (2 if causal else 1))


def load(name: str) -> dict[str, Any]:
    """The shape of preset `name`, or of the config.json at path `name`. Raises WarpwrightError."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.is_file():
        raise WarpwrightError(f"{name}: no such model or file; the presets are {', '.join(PRESETS)}; or give a Hugging Face config.json")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise WarpwrightError(f"{name}: not JSON: {error}") from None
    if not isinstance(config, dict) or config.get("model_type") not in KINDS:
        kind = config.get("model_type") if isinstance(config, dict) else None
        raise WarpwrightError(f"{name}: model_type is {kind!r}; those counted are {', '.join(KINDS)}")
    return config


def count(config: dict[str, Any], sequence: int = 4096) -> Counts:
    """Counts of a model with `config` (Hugging Face's fields), trained on sequences of `sequence` tokens."""

    def field(key: str, default: int | None = None) -> int:
        value = config.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise WarpwrightError(f"model config: {key} is {value!r}; it must be a whole number, 0 or more")
        return value

    if sequence < 1:
        raise WarpwrightError(f"sequence is {sequence}; it must be 1 or more")
    kind, hidden, layers, heads = config["model_type"], field("hidden_size"), field("num_hidden_layers"), field("num_attention_heads")
    if kind in ("deepseek_v2", "deepseek_v3", "kimi_k2"):  # latent attention
        nope, rope, value_dim, query_rank, rank = (field(key, 0 if key == "q_lora_rank" else None) for key in (
            "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank"))
        query = hidden * query_rank + query_rank * heads * (nope + rope) if query_rank else hidden * heads * (nope + rope)
        attention = query + hidden * (rank + rope) + rank * heads * (nope + value_dim) + heads * value_dim * hidden
        attention_extra = query_rank + rank  # RMSNorms of the latents
        score_dims = heads * (nope + rope + value_dim)
    else:
        head = field("head_dim", hidden // heads if heads else 0)
        attention = hidden * head * (2 * heads + 2 * field("num_key_value_heads", heads))
        attention_extra = 2 * head if kind == "qwen3_moe" else 0  # RMSNorms of queries and keys
        score_dims = 2 * heads * head
    experts = field("n_routed_experts", field("num_experts", field("num_local_experts", 0)))
    chosen = field("num_experts_per_tok", 0) if experts else 0
    if chosen > experts:
        raise WarpwrightError(f"model config: num_experts_per_tok is {chosen}, more than the {experts} experts")
    if (experts and (field("moe_layer_freq", 1) != 1 or field("decoder_sparse_step", 1) != 1)) or config.get("mlp_only_layers") or (
            config.get("attention_bias") or config.get("mlp_bias")):
        raise WarpwrightError("model config: biases, and expert layers other than all after the first dense ones, are not counted")
    dense_layers = min(field("first_k_dense_replace", 0), layers) if experts else layers
    expert = 3 * hidden * field("moe_intermediate_size", field("intermediate_size")) if experts else 0
    shared, gate = field("n_shared_experts", 0) * expert, experts * hidden
    bias = experts if kind in ("deepseek_v3", "kimi_k2") else 0  # the balancing bias of each expert
    dense, expert_layers = 3 * hidden * field("intermediate_size"), layers - dense_layers
    embedding = field("vocab_size") * hidden
    tied = bool(config.get("tie_word_embeddings"))
    parts = {
        "embedding": embedding, "attention": layers * attention, "dense MLP": dense_layers * dense,
        "routed experts": expert_layers * experts * expert, "shared experts": expert_layers * shared, "router": expert_layers * (gate + bias),
        "norms": layers * (attention_extra + 2 * hidden) + hidden, "head": 0 if tied else embedding,
    }
    used = layers * attention + dense_layers * dense + expert_layers * (chosen * expert + shared + gate)
    # A module joins two normalised streams (2h×h), then runs one expert layer and a last norm.
    block = attention + attention_extra + 2 * hidden + (experts * expert + shared + gate + bias if experts else dense)
    mtp = field("num_nextn_predict_layers", 0) * (2 * hidden * hidden + 3 * hidden + block)
    active = sum(parts.values()) - expert_layers * (experts - chosen) * expert
    return Counts(parts, active, mtp, 2 * (used + embedding), 2 * layers * sequence * score_dims)
