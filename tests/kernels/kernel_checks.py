"""What the kernels' tests share: comparing with float64, and matrices in awkward places."""

import torch
from torch import Tensor

F32, BF16 = torch.float32, torch.bfloat16


def assert_close(got: Tensor, wanted: Tensor, tolerance: float, magnitude: float = 0.0) -> None:
    """Errors are at most `tolerance` of the largest magnitude, plus half a unit in the last place if `got` is BF16. NaN where NaN is wanted.

    magnitude: that of the terms, where they may cancel and leave less.
    """
    assert got.shape == wanted.shape
    rounding = 2.0**-8 if got.dtype == BF16 else 0.0
    got, wanted = got.double(), wanted.double()
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got[wanted.isinf()], wanted[wanted.isinf()])
    got, wanted = got[wanted.isfinite()], wanted[wanted.isfinite()]
    if len(wanted):
        magnitude = max(magnitude, wanted.abs().max().item())
        excess = ((got - wanted).abs() - rounding * wanted.abs()).max().item()
        assert excess <= tolerance * magnitude, f"error {excess:.3g} at magnitude {magnitude:.3g}"


def assert_same(got: Tensor, wanted: Tensor) -> None:
    """Equal bit for bit, but for which NaN it is."""
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if got.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):  # −0 is not 0
        nan = got.float().isnan()
        assert torch.equal(nan, wanted.float().isnan())
        got, wanted = (each.view(torch.uint8).masked_fill(nan, 0) for each in (got, wanted))
    assert torch.equal(got.nan_to_num(12345.0), wanted.nan_to_num(12345.0)) if got.is_floating_point() else torch.equal(got, wanted)


def awkward(x: Tensor, offset: int = 1, gap: int = 3) -> Tensor:
    """The matrix as a view in a larger memory full of NaN: `offset` elements from its start, rows `gap` elements apart."""
    rows, columns = x.shape
    memory = torch.full((offset + rows * (columns + gap) + 7,), torch.nan, dtype=x.dtype)
    view = memory.as_strided((rows, columns), (columns + gap, 1), offset)
    view.copy_(x)
    return view


def randn(random: torch.Generator, *shape: int, dtype: torch.dtype = F32) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=random).to(dtype)
