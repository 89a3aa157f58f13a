"""Exported models: transformers' DeepSeek-V3 computes the same logits from them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from warpwright.errors import DataError
from warpwright.kernels import ops
from warpwright.kernels.recipe import Recipe
from warpwright.model.config import PRESETS
from warpwright.model.layers import Numerics
from warpwright.model.model import Model
from warpwright.training import export

CONFIG = replace(PRESETS["tiny"], vocab_size=300, hidden=64, layers=3, experts=16, experts_per_token=4, groups=4, groups_kept=2,
                 route_scale=2.5, shared_experts=2, dense_width=128, expert_width=32, init_std=0.1)


@pytest.mark.parametrize("shard", [10**9, 200_000])
def test_transformers_computes_the_same_logits(tmp_path, shard):
    transformers = pytest.importorskip("transformers")
    model = Model(CONFIG, Numerics(ops.get("torch"), Recipe.named("fp32")))
    model.initialise(1)
    for layer in model.expert_layers().values():
        layer.router.bias.normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    (tmp_path / "tokenizer.json").write_text("{}")
    files = export.export(model, SimpleNamespace(tokenizer=tmp_path / "tokenizer.json"), 0, tmp_path / "hf", "fp32", shard)
    assert any(file.name.endswith("index.json") for file in files) == (shard < 10**9)
    theirs = transformers.DeepseekV3ForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    tokens = torch.randint(0, 300, (2, 37), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected, found = theirs(tokens).logits, model(tokens).logits
    print("error", (found - expected).abs().max().item(), "of", expected.abs().max().item())
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("change, message", [
    ({"experts_per_token": 2}, "best 1; train with experts_per_token = 2"), ({"shared_experts": 0}, "no shared expert"),
    ({"norm_eps": 1e-5}, "1e-6"), ({"groups": 16, "groups_kept": 16}, "a group has 1")])
def test_what_the_format_cannot_express_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        export.hf_config(replace(CONFIG, **change), "bf16")
