"""RMSNorm's kernels against float64 and torch's autograd."""

import pytest
import torch
from kernel_checks import BF16, F32, assert_close, awkward, randn

from warpwright.kernels import rms_norm

pytestmark = pytest.mark.usefixtures("poisoned")

SHAPES = [(1, 1), (3, 5), (7, 128), (33, 257), (130, 96), (2, 1000)]
# FP32 sums over at most 1000 numbers and a reciprocal square root good to 2^-22.
TOLERANCE = 2e-6


def exact(x, weight, eps):
    """RMSNorm in float64, and 1/sqrt(mean(x²) + eps)."""
    x = x.double()
    scale = (x.square().mean(-1) + eps).rsqrt()
    return x * scale[:, None] * weight.double(), scale


def exact_gradients(dy, x, weight, eps):
    """By autograd in float64."""
    x, weight = x.double().requires_grad_(), weight.double().requires_grad_()
    return torch.autograd.grad(exact(x, weight, eps)[0], (x, weight), dy.double())


def operands(random, shape, dtype):
    return randn(random, *shape, dtype=dtype), randn(random, *shape, dtype=dtype), randn(random, shape[1])


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(random, shape, dtype):
    _, x, weight = operands(random, shape, dtype)
    y, scale = rms_norm.forward(x, weight, 1e-6)
    wanted, wanted_scale = exact(x, weight, 1e-6)
    assert y.dtype == dtype
    assert_close(y, wanted, TOLERANCE)
    assert_close(scale, wanted_scale, TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(random, shape, dtype):
    dy, x, weight = operands(random, shape, dtype)
    scale = exact(x, weight, 1e-6)[1].float()
    dx, dweight = exact_gradients(dy, x, weight, 1e-6)
    # In a row of one number the gradient is a difference of nearly equal numbers: its error is measured by those.
    magnitude = (dy.double() * weight * scale[:, None]).abs().max().item()
    assert_close(rms_norm.data_gradient(dy, x, weight, scale), dx, TOLERANCE, magnitude)
    got = rms_norm.weight_gradient(dy, x, scale)
    assert got.dtype == F32
    assert_close(got, dweight, TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("offset, gap", [(1, 3), (8, 24)])
def test_rows_may_stand_anywhere_and_apart(random, dtype, offset, gap):
    dy, x, weight = operands(random, (9, 136), dtype)
    y, scale = rms_norm.forward(x, weight, 1e-5)
    far_x, far_dy = awkward(x, offset, gap), awkward(dy, offset, gap)
    far_weight = awkward(weight[None], offset)[0]
    again, same_scale = rms_norm.forward(far_x, far_weight, 1e-5)
    assert_close(again, y, TOLERANCE)
    assert_close(same_scale, scale, TOLERANCE)
    assert_close(rms_norm.data_gradient(far_dy, far_x, far_weight, scale), rms_norm.data_gradient(dy, x, weight, scale), TOLERANCE)
    assert_close(rms_norm.weight_gradient(far_dy, far_x, scale), rms_norm.weight_gradient(dy, x, scale), TOLERANCE)


def test_no_rows():
    x, weight = torch.empty(0, 64), torch.ones(64)
    y, scale = rms_norm.forward(x, weight, 1e-6)
    assert y.shape == (0, 64) and scale.shape == (0,)
    assert rms_norm.data_gradient(x, x, weight, scale).shape == (0, 64)
    assert torch.equal(rms_norm.weight_gradient(x, x, scale), torch.zeros(64))


def test_a_row_of_zeros_stays_zero_and_its_gradient_is_finite(random):
    dy, x, weight = operands(random, (4, 70), F32)
    x[1] = 0
    y, scale = rms_norm.forward(x, weight, 1e-6)
    assert torch.equal(y[1], torch.zeros(70))
    assert_close(rms_norm.data_gradient(dy, x, weight, scale)[1], dy[1].double() * weight * 1e3, TOLERANCE)


def test_a_nan_stays_in_its_row(random):
    _, x, weight = operands(random, (6, 200), F32)
    y, _ = rms_norm.forward(x, weight, 1e-6)
    x[2, 150] = torch.nan
    spoilt, _ = rms_norm.forward(x, weight, 1e-6)
    assert spoilt[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(spoilt[others], y[others])


def test_an_infinity_makes_itself_nan_and_the_rest_of_its_row_zero(random):
    _, x, weight = operands(random, (3, 40), F32)
    x[1, 7] = -torch.inf
    y, _ = rms_norm.forward(x, weight, 1e-6)
    assert y[1].isnan().nonzero().tolist() == [[7]]
    assert not y[1].nan_to_num(0).any() and y[[0, 2]].isfinite().all()


def test_weight_gradients_are_the_same_in_each_run(random):
    dy, x, weight = operands(random, (777, 96), BF16)
    scale = exact(x, weight, 1e-6)[1].float()
    assert torch.equal(rms_norm.weight_gradient(dy, x, scale), rms_norm.weight_gradient(dy, x, scale))
