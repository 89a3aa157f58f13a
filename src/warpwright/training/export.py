"""Models as Hugging Face folders with DeepSeek-V3's names: config.json, safetensors and the tokenizer."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from warpwright.errors import DataError
from warpwright.model.config import ModelConfig
from warpwright.model.layers import DTYPES
from warpwright.model.model import Model
from warpwright.training.run import Run
from warpwright.training.tokenizer import END_OF_TEXT

SHARD = 5 * 10**9  # bytes of tensors in a file, at most, where no single tensor is larger


def export(model: Model, run: Run, end_of_text: int, to: Path, dtype: str = "bf16", shard: int = SHARD) -> list[Path]:
    """Write the model whole or not at all; returns the files. dtype: "bf16" or "fp32"; routers' biases are FP32 always.

    Raises DataError where DeepSeek-V3's format cannot express the model, or the folder is in use; OSError where the disk refuses.
    """
    config = hf_config(model.config, dtype) | {"eos_token_id": end_of_text, "bos_token_id": None}
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise DataError(f"{to}: is not an empty folder; choose a new or an empty one with --to")
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=to.parent))
    try:
        temporary.chmod(0o755)
        _write_tensors(model, temporary, DTYPES[dtype], shard)
        (temporary / "config.json").write_text(json.dumps(config, indent=2))
        shutil.copyfile(run.tokenizer, temporary / "tokenizer.json")
        (temporary / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END_OF_TEXT}, indent=2))
        os.rename(temporary, to)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return sorted(to.iterdir())


def hf_config(c: ModelConfig, dtype: str) -> dict:
    """config.json of a model. Raises DataError where DeepSeek-V3's modelling code would compute something else."""

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise DataError(f"export: DeepSeek-V3's format cannot express this model: {message}")

    best = max(1, c.experts_per_token // c.groups_kept)
    require(c.experts // c.groups >= 2, f"its code sums the best 2 experts of a group, and a group has {c.experts // c.groups} here")
    require(c.groups_kept == c.groups or best == 2,
            f"its code chooses groups by their best 2 experts, this model by their best {best}; "
            "train with experts_per_token = 2 · groups_kept, or with groups_kept = groups")
    require(c.shared_experts > 0, "it has no shared expert; train with shared_experts of 1 or more")
    require(c.norm_eps == 1e-6, f"the norms of its latents have an epsilon of 1e-6, not {c.norm_eps}")
    return {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": c.vocab_size, "hidden_size": c.hidden,
        "num_hidden_layers": c.layers, "first_k_dense_replace": c.dense_layers, "moe_layer_freq": 1, "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads, "q_lora_rank": c.q_lora, "kv_lora_rank": c.kv_lora, "qk_nope_head_dim": c.qk_nope,
        "qk_rope_head_dim": c.qk_rope, "v_head_dim": c.v_head, "intermediate_size": c.dense_width, "n_routed_experts": c.experts,
        "n_shared_experts": c.shared_experts, "moe_intermediate_size": c.expert_width, "num_experts_per_tok": c.experts_per_token,
        "n_group": c.groups, "topk_group": c.groups_kept, "routed_scaling_factor": c.route_scale, "norm_topk_prob": True,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": c.mtp_depth, "rope_theta": c.rope_theta,
        "rope_scaling": None, "rope_interleave": True, "rms_norm_eps": c.norm_eps, "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "initializer_range": c.init_std, "tie_word_embeddings": False,
        "max_position_embeddings": 4096,  # rotary positions have no limit of their own; this is V3's before its context was extended
        "torch_dtype": {"bf16": "bfloat16", "fp32": "float32"}[dtype],
    }


def tensors(model: Model) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors under DeepSeek-V3's names; the multi-token-prediction block is the layer after the last, as in V3's release."""
    c = model.config
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    yield "model.embed_tokens.weight", own["embedding"]
    yield "model.norm.weight", own["norm.weight"]
    yield "lm_head.weight", own["head"]
    for i in range(c.layers):
        yield from _layer(own, f"blocks.{i}.", f"model.layers.{i}.", c, i < c.dense_layers)
    if c.mtp_depth:
        to = f"model.layers.{c.layers}."
        yield from _layer(own, "mtp.block.", to, c, False)
        yield to + "enorm.weight", own["mtp.embedding_norm.weight"]
        yield to + "hnorm.weight", own["mtp.hidden_norm.weight"]
        hidden, embedded = own["mtp.join.weight"].chunk(2, 1)  # V3 joins them the other way round
        yield to + "eh_proj.weight", torch.cat([embedded, hidden], 1)
        yield to + "shared_head.norm.weight", own["mtp.norm.weight"]
        yield to + "embed_tokens.weight", own["embedding"]
        yield to + "shared_head.head.weight", own["head"]


def _layer(own: dict[str, Tensor], at: str, to: str, c: ModelConfig, dense: bool) -> Iterator[tuple[str, Tensor]]:
    yield to + "input_layernorm.weight", own[at + "attention_norm.weight"]
    yield to + "post_attention_layernorm.weight", own[at + "ffn_norm.weight"]
    q_down, kv_down = own[at + "attention.down.weight"].split([c.q_lora, c.kv_lora + c.qk_rope])
    attention = {"q_a_proj": q_down, "kv_a_proj_with_mqa": kv_down}
    attention |= {theirs: own[f"{at}attention.{ours}.weight"] for theirs, ours in (
        ("q_a_layernorm", "q_norm"), ("q_b_proj", "q_up"), ("kv_a_layernorm", "kv_norm"), ("kv_b_proj", "kv_up"), ("o_proj", "out"))}
    for name, tensor in attention.items():
        yield f"{to}self_attn.{name}.weight", tensor
    if dense:
        yield from _mlp(own[at + "ffn.gate_up.weight"], own[at + "ffn.down.weight"], to + "mlp.")
        return
    yield to + "mlp.gate.weight", own[at + "ffn.router.weight"]
    yield to + "mlp.gate.e_score_correction_bias", own[at + "ffn.router.bias"]
    yield from _mlp(own[at + "ffn.shared.gate_up.weight"], own[at + "ffn.shared.down.weight"], to + "mlp.shared_experts.")
    for e in range(c.experts):
        yield from _mlp(own[at + "ffn.gate_up"][e], own[at + "ffn.down"][e], f"{to}mlp.experts.{e}.")


def _mlp(gate_up: Tensor, down: Tensor, to: str) -> Iterator[tuple[str, Tensor]]:
    gate, up = gate_up.chunk(2)
    yield from ((f"{to}{name}_proj.weight", tensor) for name, tensor in (("gate", gate), ("up", up), ("down", down)))


def _write_tensors(model: Model, folder: Path, dtype: torch.dtype, shard: int) -> None:
    """One file, or several with an index, none above `shard` bytes unless one tensor is."""
    shards: list[dict[str, Tensor]] = [{}]
    filled = total = 0
    for name, tensor in tensors(model):
        stored = torch.clone(tensor.to(torch.float32 if name.endswith("bias") else dtype), memory_format=torch.contiguous_format)
        if shards[-1] and filled + stored.nbytes > shard:
            shards.append({})
            filled = 0
        shards[-1][name] = stored
        filled, total = filled + stored.nbytes, total + stored.nbytes
    index: dict[str, str] = {}
    for i, part in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(part, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    if len(shards) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1))
