"""SwiGLU's kernels against float64 and torch's autograd."""

import pytest
import torch
from kernel_checks import BF16, F32, assert_close, awkward, randn

from warpwright.kernels import swiglu

pytestmark = pytest.mark.usefixtures("poisoned")

SHAPES = [(1, 1), (3, 5), (7, 128), (33, 257), (130, 96)]
# The approximate exponential and reciprocal are good to 2^-22.
TOLERANCE = 1e-6


def exact(gate, up):
    return torch.nn.functional.silu(gate.double()) * up.double()


def exact_gradients(dy, gate, up):
    gate, up = gate.double().requires_grad_(), up.double().requires_grad_()
    return torch.autograd.grad(exact(gate, up), (gate, up), dy.double())


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_gradients(random, shape, dtype):
    dy, gate, up = (randn(random, *shape, dtype=dtype) * 3 for _ in range(3))
    y = swiglu.forward(gate, up)
    assert y.dtype == dtype
    assert_close(y, exact(gate, up), TOLERANCE)
    for got, wanted in zip(swiglu.backward(dy, gate, up), exact_gradients(dy, gate, up), strict=True):
        assert got.dtype == dtype
        assert_close(got, wanted, TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("columns", [1, 48, 77])
def test_gate_and_up_side_by_side(random, columns, dtype):
    both, dy = randn(random, 5, 2 * columns, dtype=dtype), randn(random, 5, columns, dtype=dtype)
    gate, up = both.chunk(2, 1)
    assert_close(swiglu.forward(both), exact(gate, up), TOLERANCE)
    gradient, nothing = swiglu.backward(dy, both)
    assert nothing is None
    assert_close(gradient, torch.cat(exact_gradients(dy, gate, up), 1), TOLERANCE)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("offset, gap", [(1, 3), (8, 24)])
def test_rows_may_stand_anywhere_and_apart(random, dtype, offset, gap):
    dy, gate, up = (randn(random, 9, 136, dtype=dtype) for _ in range(3))
    far = [awkward(each, offset, gap) for each in (dy, gate, up)]
    assert torch.equal(swiglu.forward(*far[1:]), swiglu.forward(gate, up))
    for got, wanted in zip(swiglu.backward(*far), swiglu.backward(dy, gate, up), strict=True):
        assert torch.equal(got, wanted)


def test_no_rows():
    nothing = torch.empty(0, 8)
    assert swiglu.forward(nothing, nothing).shape == (0, 8)
    assert [each.shape for each in swiglu.backward(nothing, nothing, nothing)] == [(0, 8), (0, 8)]


def test_far_from_zero_it_is_a_relu():
    gate = torch.tensor([[-1e30, -200.0, -90.0, 90.0, 200.0, 1e30]])
    up = torch.full_like(gate, 2.0)
    assert swiglu.forward(gate, up).abs().tolist() == (gate.clamp(min=0) * 2).tolist()
    dgate, dup = swiglu.backward(torch.ones_like(gate), gate, up)
    assert dgate.abs().tolist() == [[0, 0, 0, 2, 2, 2]]
    assert dup.abs().tolist() == gate.clamp(min=0).tolist()


def test_what_is_not_finite_goes_where_arithmetic_takes_it():
    values = [torch.nan, torch.inf, -torch.inf, 0.0, 1.0]
    gate, up = (grid.contiguous() for grid in torch.meshgrid(torch.tensor(values), torch.tensor(values), indexing="ij"))
    assert_close(swiglu.forward(gate, up), exact(gate, up), TOLERANCE)
