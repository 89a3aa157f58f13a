"""The gate's kernels against DeepSeek-V3's words, written as plain loops, and against torch's autograd."""

import pytest
import torch
from kernel_checks import F32, assert_close, randn

from warpwright.errors import LaunchError
from warpwright.kernels import router

pytestmark = pytest.mark.usefixtures("poisoned")

# experts, chosen, groups, groups kept
GATES = [(256, 8, 8, 4), (16, 2, 4, 2), (8, 2, 1, 1), (6, 2, 3, 2), (40, 6, 8, 3), (4, 4, 1, 1), (20, 4, 5, 3), (1, 1, 1, 1)]
# The approximate exponential and reciprocals are good to 2^-22.
TOLERANCE = 2e-6


def choose(biased: list[float], top_k: int, groups: int, groups_kept: int) -> list[int]:
    """The experts of one token: technical report, section 2.1.2 (top-k) and 4.2 (groups by the sum of their best)."""
    size = len(biased) // groups

    def score(group):
        best = sorted(biased[group * size:(group + 1) * size], reverse=True)[:max(1, top_k // groups_kept)]
        return torch.tensor(best).sum().item()

    kept = sorted(range(groups), key=lambda group: (-score(group), group))[:groups_kept]
    candidates = [expert for group in kept for expert in range(group * size, (group + 1) * size)]
    return sorted(candidates, key=lambda expert: (-biased[expert], expert))[:top_k]


def check_forward(logits, bias, gate, scale=2.5):
    """Scores near the sigmoid's, the choice exactly that of these scores, weights theirs."""
    experts, weights, scores = router.forward(logits, bias, *gate, scale)
    assert_close(scores, logits.double().sigmoid(), TOLERANCE)
    assert experts.dtype == torch.int32
    assert experts.tolist() == [choose(row, *gate) for row in (scores + bias).tolist()]
    chosen = scores.double().gather(1, experts.long())
    assert_close(weights, chosen / (chosen.sum(1, keepdim=True) + 1e-20) * scale, TOLERANCE)
    return experts, weights, scores


@pytest.mark.parametrize("gate", GATES, ids=str)
def test_forward(random, gate):
    experts, *rest = gate
    check_forward(randn(random, 67, experts) * 2, randn(random, experts) * 0.3, rest)


@pytest.mark.parametrize("gate", GATES[:4], ids=str)
def test_of_equals_the_lower_index_is_first(random, gate):
    experts, *rest = gate
    few = torch.randint(-1, 2, (40, experts), generator=random).float()
    check_forward(few, torch.zeros(experts), rest)
    all_equal, _, _ = check_forward(torch.zeros(3, experts), torch.zeros(experts), rest)
    assert all_equal.tolist() == [list(range(gate[1]))] * 3


def test_the_bias_moves_the_choice_but_not_the_weights(random):
    logits, bias = torch.zeros(1, 16), torch.zeros(16)
    bias[5], bias[6] = 0.25, 0.5
    experts, weights, _ = check_forward(logits, bias, (2, 4, 2), scale=1.0)
    assert experts.tolist() == [[6, 5]]
    assert_close(weights, torch.tensor([[0.5, 0.5]]), TOLERANCE)


def test_experts_outside_the_kept_groups_are_never_chosen_even_where_all_scores_are_negative(random):
    experts, _, _ = check_forward(randn(random, 30, 16), torch.full((16,), -5.0), (2, 4, 1))
    assert (experts // 4 == experts[:, :1] // 4).all()


def test_logits_at_the_ends(random):
    logits = torch.tensor([[-torch.inf] * 8, [torch.inf] * 8, [-200.0] * 8, [0.0, 200.0, -200.0, 1.0, torch.inf, -torch.inf, 2.0, 3.0]])
    _, weights, _ = check_forward(logits, torch.zeros(8), (2, 1, 1))
    assert weights.tolist()[:2] == [[0.0, 0.0], [1.25, 1.25]]


def test_a_nan_is_chosen_so_that_it_comes_to_light(random):
    logits = randn(random, 4, 16)
    logits[2, 9] = torch.nan
    experts, weights, _ = router.forward(logits, torch.zeros(16), 2, 4, 2, 1.0)
    assert experts[2, 0] == 9 and weights[2].isnan().all()
    assert weights[[0, 1, 3]].isfinite().all()


def test_no_tokens():
    experts, weights, scores = router.forward(torch.empty(0, 16), torch.zeros(16), 2, 4, 2, 1.0)
    assert (experts.shape, weights.shape, scores.shape) == ((0, 2), (0, 2), (0, 16))
    assert router.backward(weights, scores, experts, scores, 1.0).shape == (0, 16)


def test_operands_may_stand_apart(random):
    logits, bias = randn(random, 16, 20).t(), randn(random, 64)[::4]
    assert not logits.is_contiguous() and not bias.is_contiguous()
    check_forward(logits, bias, (2, 4, 2))


@pytest.mark.parametrize("with_scores", [False, True], ids=["weights", "weights and scores"])
@pytest.mark.parametrize("gate", GATES, ids=str)
def test_backward(random, gate, with_scores):
    count, top_k, *rest = gate
    logits = randn(random, 33, count)
    experts, _, scores = router.forward(logits, torch.zeros(count), top_k, *rest, 2.5)
    grad_weights = randn(random, 33, top_k)
    grad_scores = randn(random, 33, count) if with_scores else None
    exact = logits.double().requires_grad_()
    affinities = exact.sigmoid()
    chosen = affinities.gather(1, experts.long())
    loss = (chosen / (chosen.sum(1, keepdim=True) + 1e-20) * 2.5 * grad_weights).sum()
    if with_scores:
        loss = loss + (affinities * grad_scores).sum()
    got = router.backward(grad_weights, grad_scores, experts, scores, 2.5)
    assert got.dtype == F32
    # If all experts are chosen, or one, terms cancel.
    assert_close(got, torch.autograd.grad(loss, exact)[0], TOLERANCE, magnitude=2.5)


@pytest.mark.parametrize("gate, message", [
    ((10, 2, 4, 2), "10 experts do not divide into 4"),
    ((16, 2, 4, 5), "keeps 1 to 4 groups, not 5"),
    ((16, 9, 4, 2), "chooses 1 to 8 experts .* from 2 groups of 4, not 9"),
    ((64, 33, 1, 1), "at most 32"),
])
def test_gates_that_cannot_be(gate, message):
    experts, *rest = gate
    with pytest.raises(LaunchError, match=message):
        router.forward(torch.zeros(1, experts), torch.zeros(experts), *rest, 1.0)
