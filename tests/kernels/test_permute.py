"""Sorting tokens by expert, and back, against plain loops and float64."""

import pytest
import torch
from kernel_checks import BF16, F32, assert_close, awkward, randn

from warpwright.kernels import permute

pytestmark = pytest.mark.usefixtures("poisoned")

TOLERANCE = 1e-6  # FP32 sums of at most 8 products, or of 257 in a weight's gradient


def choices(random, tokens, top_k, experts):
    """Different experts for each token, in any order."""
    return torch.rand(tokens, experts, generator=random).topk(top_k, 1).indices.int()


# ── the layout ───────────────────────────────────────────────────────────────────────────────────────────────────


def check_layout(chosen, experts):
    offsets, source, position = permute.expert_layout(chosen, experts)
    copies = [(expert, token, slot) for token, row in enumerate(chosen.tolist()) for slot, expert in enumerate(row)]
    in_order = sorted(copies)
    assert source.tolist() == [token for _, token, _ in in_order]
    assert offsets.tolist() == [sum(copy[0] < expert for copy in copies) for expert in range(experts + 1)]
    assert position.shape == chosen.shape
    assert [position[token, slot].item() for _, token, slot in in_order] == list(range(len(copies)))


@pytest.mark.parametrize("tokens, top_k, experts", [(1, 1, 1), (5, 2, 3), (33, 2, 16), (100, 8, 70), (70, 1, 4), (16, 2, 256)])
def test_copies_are_sorted_by_expert_then_token(random, tokens, top_k, experts):
    check_layout(choices(random, tokens, top_k, experts), experts)


@pytest.mark.parametrize("expert", [0, 2, 4])
def test_all_tokens_to_one_expert(expert):
    check_layout(torch.full((50, 1), expert, dtype=torch.int32), 5)


def test_a_layout_of_no_tokens():
    offsets, source, position = permute.expert_layout(torch.empty(0, 2, dtype=torch.int32), 5)
    assert offsets.tolist() == [0] * 6 and source.shape == (0,) and position.shape == (0, 2)


def test_choices_may_stand_apart(random):
    check_layout(choices(random, 2, 4, 9).t().contiguous().t(), 9)


@pytest.mark.parametrize("rows", [[0], [5], [0, 0, 0], [128, 0, 129, 1, 127, 256], [3] * 31, [200, 0] * 32, [1] * 70])
def test_chunks_of_128_rows(rows):
    offsets = torch.tensor([0, *rows]).cumsum(0).int()
    wanted = torch.tensor([0, *(-(-count // 128) for count in rows)]).cumsum(0)
    assert permute.expert_chunks(offsets).tolist() == wanted.tolist()


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

SHAPES = [(1, 1, 1, 1), (5, 7, 2, 3), (40, 128, 2, 16), (33, 257, 8, 20)]  # tokens, columns, top_k, experts


def exact_unpermute(rows, weights, position):
    return torch.stack([(rows[own.long()].double() * weight.double()[:, None]).sum(0) for own, weight in zip(position, weights, strict=True)])


def operands(random, shape, dtype):
    """x, rows, weights, position."""
    tokens, columns, top_k, experts = shape
    position = permute.layout_reference(choices(random, tokens, top_k, experts), experts)[2]
    return randn(random, tokens, columns, dtype=dtype), randn(random, tokens * top_k, columns, dtype=dtype), randn(random, tokens, top_k), position


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_permute_copies_and_its_gradient_sums(random, shape, dtype):
    x, drows, _, position = operands(random, shape, dtype)
    rows = permute.permute(x, position)
    assert rows.dtype == dtype and len(rows) == position.numel()
    for slot in range(position.shape[1]):
        assert torch.equal(rows[position[:, slot].long()], x)
    assert_close(permute.permute_backward(drows, position), exact_unpermute(drows, torch.ones(position.shape), position), TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unpermute_and_its_gradients(random, shape, dtype):
    dy, rows, weights, position = operands(random, shape, dtype)
    assert_close(permute.unpermute(rows, weights, position), exact_unpermute(rows, weights, position), TOLERANCE)
    leaves = rows.double().requires_grad_(), weights.double().requires_grad_()
    own = leaves[0][position.long()]
    wanted = torch.autograd.grad((own * leaves[1][..., None]).sum(1), leaves, dy.double())
    drows, dweights = permute.unpermute_backward(dy, rows, weights, position)
    assert (drows.dtype, dweights.dtype) == (dtype, F32)
    assert_close(drows, wanted[0], TOLERANCE)
    assert_close(dweights, wanted[1], TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("offset, gap", [(1, 3)])
def test_rows_may_stand_anywhere_and_apart(random, dtype, offset, gap):
    x, rows, weights, position = operands(random, (9, 136, 2, 4), dtype)
    far_x, far_rows = awkward(x, offset, gap), awkward(rows, offset, gap)
    assert torch.equal(permute.permute(far_x, position), permute.permute(x, position))
    assert torch.equal(permute.unpermute(far_rows, weights, position), permute.unpermute(rows, weights, position))
    near, far = permute.unpermute_backward(x, rows, weights, position), permute.unpermute_backward(far_x, far_rows, weights, position)
    assert torch.equal(far[0], near[0])
    assert_close(far[1], near[1], TOLERANCE)


def test_no_tokens():
    nothing, position, weights = torch.empty(0, 16), torch.empty(0, 2, dtype=torch.int32), torch.empty(0, 2)
    assert permute.permute(nothing, position).shape == (0, 16)
    assert permute.unpermute(nothing, weights, position).shape == (0, 16)
    assert [each.shape for each in permute.unpermute_backward(nothing, nothing, weights, position)] == [(0, 16), (0, 2)]


def test_a_nan_stays_with_its_token(random):
    _, rows, weights, position = operands(random, (12, 40, 2, 4), F32)
    rows[position[7, 1].long()] = torch.nan
    y = permute.unpermute(rows, weights, position)
    assert y.isnan().all(1).nonzero().flatten().tolist() == [7]
    assert y.isnan().any(1).sum() == 1
