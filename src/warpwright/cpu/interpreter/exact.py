"""FP8 matrix products as Hopper's tensor cores accumulate them: `Device(exact_mma=True)`.

For each element of the result, blocks of 32 products are added at once, and the accumulator with them:

1. The block's exponent is the largest of the products' (the sum of the factors' exponents, a subnormal's being that of the smallest normal
   number; zero products have none) and of the accumulator's.
2. Each product and the accumulator is cut, toward zero, to 13 bits below that exponent; they are added without error.
3. The sum is cut, toward zero, to 13 bits of fraction. That is the accumulator, an f32; a zero is +0.

Where a factor or the accumulator is infinite or NaN, the result is what IEEE's sum of the products says, NaN being 0x7FFFFFFF. An f16
accumulator is widened before and rounded to nearest even after all of an instruction's blocks.

This is the unit behind wgmma, known from published measurements: Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores" (2026), and
the package mmaemu, which the tests take as a witness. Here mma.sync has it too, so that it shows what the same product by wgmma would keep;
on the chip itself ptxas turns mma.sync of FP8 for sm_90 into products of f16, which keep more.
"""

from __future__ import annotations

import numpy as np

BLOCK = 32  # products added at once
FRACTION = 13  # bits kept below the block's exponent, and of the result
LEAST = {"e4m3": -6, "e5m2": -14}  # exponents of the smallest normal numbers
_NONE = -1000  # the "exponent" of zero


def _exponent(x: np.ndarray, least: int = -200) -> np.ndarray:
    """floor(log2 |x|), no less than `least`; _NONE for zero."""
    return np.where(x == 0, _NONE, np.maximum(np.frexp(x)[1] - 1, least))


def product(left: np.ndarray, right: np.ndarray, start: np.ndarray, a_type: str, b_type: str) -> np.ndarray:
    """start + left · right. left: FP8 values as f64 [m, k]; right: [k, n], or [m, k, n] where each row of `left` meets other rows of b;
    start: f32 values as f64 [m, n], and so is the result."""
    right = np.broadcast_to(right, (len(left), *right.shape[-2:]))
    with np.errstate(all="ignore"):
        for first in range(0, left.shape[1], BLOCK):
            some = slice(first, first + BLOCK)
            start = _block(left[:, some, None], right[:, some], start, LEAST[a_type], LEAST[b_type])
    return start


def _block(left: np.ndarray, right: np.ndarray, start: np.ndarray, least_a: int, least_b: int) -> np.ndarray:
    products = left * right
    usual = np.isfinite(left).all(1) & np.isfinite(right).all(1) & np.isfinite(start)
    ieee = start + products.sum(1)
    products, start = np.where(usual[:, None], products, 0), np.where(usual, start, 0)
    exponents = np.where(products == 0, _NONE, _exponent(left, least_a) + _exponent(right, least_b))
    top = np.maximum(exponents.max(1), _exponent(start))
    unit = np.exp2(np.maximum(top, -132) - FRACTION)
    total = (np.trunc(products / unit[:, None]).sum(1) + np.trunc(start / unit)) * unit
    unit = np.exp2(np.maximum(_exponent(total), -126) - FRACTION)
    result = np.trunc(total / unit) * unit + 0.0
    return np.where(usual, result.astype(np.float32).astype(np.float64), ieee)
