"""AdamW, clipping, the schedule, the average of the weights."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from warpwright.training.optimizer import AdamW, Average, clip_gradients, learning_rate
from warpwright.training.settings import Training

CONSTANT = Training(learning_rate=0.01, warmup=0, final_learning_rate=1.0, steps=50)


def parameters():
    random = torch.Generator().manual_seed(0)
    return {"matrix": nn.Parameter(torch.randn(20, 30, generator=random)), "vector": nn.Parameter(torch.randn(7, generator=random))}


def run(moments, steps=50, theirs=False):
    mine = parameters()
    if theirs:
        t = CONSTANT
        groups = [{"params": [mine["matrix"]], "weight_decay": t.weight_decay}, {"params": [mine["vector"]], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=t.learning_rate, betas=(t.beta1, t.beta2), eps=t.epsilon)
    else:
        optimizer = AdamW(mine, CONSTANT, moments)
    random = torch.Generator().manual_seed(1)
    for step in range(steps):
        for p in mine.values():
            p.grad = torch.randn(p.shape, generator=random) + p.detach()
        optimizer.step() if theirs else optimizer.step(step)
    return mine, optimizer


def test_fp32_moments_give_what_torch_gives():
    mine, _ = run("fp32")
    theirs, _ = run("fp32", theirs=True)
    for name in mine:
        assert torch.allclose(mine[name], theirs[name], rtol=1e-5, atol=1e-6)


def test_bf16_moments_are_stored_narrow_and_lead_near_the_same_place():
    narrow, optimizer = run("bf16")
    wide, _ = run("fp32")
    assert {m.dtype for m in [*optimizer.first.values(), *optimizer.second.values()]} == {torch.bfloat16}
    start = parameters()
    for name in narrow:
        moved = (wide[name] - start[name]).norm()
        assert 0 < (narrow[name] - wide[name]).norm() < 0.02 * moved


def test_a_parameter_without_gradient_stays():
    mine = parameters()
    before = mine["matrix"].detach().clone()
    mine["vector"].grad = torch.ones(7)
    AdamW(mine, CONSTANT).step(0)
    assert torch.equal(mine["matrix"], before) and not torch.equal(mine["vector"], parameters()["vector"])


def test_clipping_scales_only_what_is_too_long():
    p = nn.Parameter(torch.zeros(4))
    p.grad = torch.full((4,), 3.0)
    assert clip_gradients([p], 1.0) == pytest.approx(6.0) and p.grad.norm().item() == pytest.approx(1.0, rel=1e-4)
    assert clip_gradients([p], 5.0) == pytest.approx(1.0, rel=1e-4) and p.grad.norm().item() == pytest.approx(1.0, rel=1e-4)


def test_the_schedule_warms_up_then_falls_as_a_cosine_to_its_floor():
    t = Training(learning_rate=1.0, final_learning_rate=0.1, warmup=10, steps=111)
    rates = [learning_rate(step, t) for step in range(111)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 == max(rates)
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True) and len(set(rates[10:])) == 101
    assert rates[60] == pytest.approx(0.55) and rates[110] == pytest.approx(0.1)
    assert learning_rate(500, t) == pytest.approx(0.1)
    assert learning_rate(0, replace(t, warmup=0)) == pytest.approx(1.0)


def test_the_average_follows_the_weights_slowly_and_fast_at_first():
    p = {"w": nn.Parameter(torch.zeros(3))}
    average = Average(p, 0.5)
    with torch.no_grad():
        p["w"].fill_(1.0)
    average.update(p, 0)
    assert average.weights["w"].tolist() == pytest.approx([0.9] * 3)  # decay (1 + 0)/(10 + 0)
    average.update(p, 1000)
    assert average.weights["w"].tolist() == pytest.approx([0.95] * 3)
    assert p["w"].tolist() == [1.0] * 3 and math.isfinite(average.decay)
