"""The architecture: exact sizes, and the properties that it is built for."""

from dataclasses import replace

import pytest
import torch

from warpwright.kernels import ops
from warpwright.kernels.recipe import Recipe
from warpwright.model.attention import Cache, Rotation
from warpwright.model.config import PRESETS
from warpwright.model.experts import Router, sequence_balance_loss
from warpwright.model.layers import Numerics
from warpwright.model.model import Model, count

TOY = replace(PRESETS["tiny"], vocab_size=64, hidden=32, layers=2, heads=2, q_lora=16, kv_lora=12, qk_nope=8, qk_rope=4, v_head=6,
              dense_width=48, experts=8, experts_per_token=2, groups=4, groups_kept=2, expert_width=16, init_std=0.2)


def toy(recipe="fp32", **changes):
    model = Model(replace(TOY, **changes), Numerics(ops.get("torch"), Recipe.named(recipe)))
    model.initialise(0)
    return model


def some_tokens(*shape):
    return torch.randint(0, 64, shape, generator=torch.Generator().manual_seed(1))


def test_the_published_model_has_the_published_size():
    with torch.device("meta"):
        counts = count(Model(PRESETS["deepseek-v3-671b"], Numerics(ops.get("torch"), Recipe())))
    assert counts.total == 671_026_419_200
    assert counts.active == 37_552_297_472
    assert counts.attention == 187_107_328
    assert counts.expert == 44_040_192
    assert counts.mtp == 11_610_068_224


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds(name):
    with torch.device("meta"):
        counts = count(Model(PRESETS[name], Numerics(ops.get("torch"), Recipe())))
    assert counts.expert < counts.active < counts.total


def test_equal_seeds_give_equal_weights():
    first, second, other = toy().state_dict(), toy().state_dict(), toy()
    other.initialise(1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head"], other.head)
    assert abs(first["embedding"].std().item() / TOY.init_std - 1) < 0.1 and (first["norm.weight"] == 1).all()


@pytest.mark.parametrize("recipe", ["fp32", "bf16", "fp8"])
def test_shapes_dtypes_and_a_gradient_for_every_parameter(recipe):
    model, tokens = toy(recipe), some_tokens(3, 17)
    output = model(tokens[:, :-1], tokens[:, 1:])
    assert output.logits.shape == output.after_next.shape == (3, 16, 64)
    assert output.logits.dtype == torch.float32
    assert [balance.load.sum().item() for balance in output.balance] == [3 * 16 * 2] * 2  # the expert layer and the MTP block's
    assert list(model.expert_layers()) == ["1", "mtp"]
    (output.logits.sum() + output.after_next.square().sum() + sum(balance.loss for balance in output.balance)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_no_token_sees_a_later_one():
    model, tokens = toy(), some_tokens(1, 12)
    changed = tokens.clone()
    changed[0, 7] = (changed[0, 7] + 1) % 64
    before, after = model(tokens), model(changed)
    assert torch.equal(before.logits[:, :7], after.logits[:, :7])
    assert not torch.allclose(before.logits[:, 7:], after.logits[:, 7:])


def test_the_token_after_next_is_predicted_from_the_next_one_too():
    model, tokens = toy(), some_tokens(1, 12)
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 64
    before, after = model(tokens[:, :-1], tokens[:, 1:]), model(tokens[:, :-1], changed[:, 1:])
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.after_next[:, :4], after.after_next[:, :4])
    assert not torch.allclose(before.after_next[:, 4], after.after_next[:, 4])


def test_embedding_and_head_are_shared_with_multi_token_prediction():
    model = toy()
    assert not any(p.shape[0] == TOY.vocab_size for p in model.mtp.parameters())
    tokens = some_tokens(1, 6)
    model(tokens[:, :-1], tokens[:, 1:]).after_next.sum().backward()
    assert model.head.grad.any() and model.embedding.grad.any()


def test_the_cache_gives_what_the_whole_text_gives():
    model, tokens = toy(), some_tokens(2, 10)
    with torch.no_grad():
        whole = model(tokens).logits
        caches = [Cache() for _ in model.blocks]
        parts = [model(tokens[:, :4], caches=caches).logits] + [model(tokens[:, i:i + 1], caches=caches).logits for i in range(4, 10)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    assert caches[0].latent.shape == (2, 10, 12) and caches[0].key.shape == (2, 10, 1, 4)


@pytest.mark.parametrize("recipe", ["bf16", "fp8"])
def test_recomputing_changes_no_number(recipe):
    gradients = []
    for recompute in (False, True):
        model = Model(TOY, Numerics(ops.get("torch"), replace(Recipe.named(recipe), recompute_norms=recompute)))
        model.initialise(0)
        model(some_tokens(2, 9)).logits.square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])


def test_rotary_scores_depend_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    q, k = q.expand(20, 1, 8), k.expand(20, 1, 8)
    rotation = Rotation(3, 20, 8, 10_000.0)
    scores = (rotation(q)[:, 0] @ rotation(k)[:, 0].T)
    for distance in (-5, 0, 7):
        line = scores.diagonal(distance)
        assert torch.allclose(line, line[:1].expand_as(line), atol=1e-5)
    assert torch.allclose(rotation(q).norm(dim=-1), q.norm(dim=-1), atol=1e-5)
    assert not torch.allclose(scores[0], scores[0, :1].expand(20), atol=1e-2)


def test_balancing_moves_the_bias_against_the_load_and_by_it_the_choice():
    router = Router(TOY, Numerics(ops.get("torch"), Recipe.named("fp32")))
    router.balance(torch.tensor([10, 2, 4, 4, 4, 4, 0, 4]), 0.5)
    assert router.bias.tolist() == [-0.5, 0.5, 0, 0, 0, 0, 0.5, 0]
    assert "bias" in router.state_dict() and "bias" not in dict(router.named_parameters())
    torch.nn.init.normal_(router.weight, generator=torch.Generator().manual_seed(0))
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(2))
    router.bias.zero_()
    plain = router(x)
    router.bias[3] = 10.0
    swayed = router(x)
    assert (swayed.experts == 3).any(1).all() and not (plain.experts == 3).any(1).all()
    assert torch.equal(plain.scores, swayed.scores)
    chosen = swayed.scores.gather(1, swayed.experts.long())
    assert torch.allclose(swayed.weights, chosen / chosen.sum(1, keepdim=True), atol=1e-6)  # the bias is not in the weights


def test_the_sequence_balance_loss_is_least_where_the_load_is_even():
    even = torch.eye(4).repeat(2, 1)[None] * 0.5 + 0.1  # each of 4 experts is best for 2 of 8 tokens
    skewed = torch.tensor([0.6, 0.1, 0.1, 0.1]).expand(1, 8, 4)
    assert sequence_balance_loss(even, 1).item() == pytest.approx(1.0)
    assert sequence_balance_loss(skewed, 1).item() == pytest.approx(4 * 0.6 / 0.9)
    # It is counted in each sequence: two sequences, each skewed to another expert, are no better than one.
    both = torch.cat([skewed, skewed.roll(1, -1)])
    assert sequence_balance_loss(both, 1).item() == pytest.approx(4 * 0.6 / 0.9)
