"""Arithmetic and the mathematical functions of CUDA C++, as NVRTC compiles them, against exact or float64 references."""

import math

import numpy as np
import pytest
import torch
from test_cuda_runs import Compiled, everywhere, on_ada

MASK = 2**64 - 1


def signed(value: int, bits: int = 64) -> int:
    return (value + 2**(bits - 1)) % 2**bits - 2**(bits - 1)


def quotient(a: int, b: int) -> int:
    """Toward zero, as C's."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@everywhere
def test_wide_integers(target):
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-2**63, 2**63, 64) >> rng.integers(0, 63, 64) for _ in range(2))
    y[y == 0] = 3
    out = np.zeros((12, 64), np.int64)
    Compiled("integers", target).wide(1, 64, x, y, out)
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        u, v = a & MASK, b & MASK
        a32, b32 = signed(a, 32), signed(b, 32) | 1
        wanted = [quotient(a, b), a - quotient(a, b) * b, u // v, u % v, a * b >> 64, u * v >> 64, u * v >> 37, (u * v + u) // (v | 1),
                  64 - u.bit_length() + 100 * ((u & -u).bit_length()) + 10000 * u.bit_count(), int(f"{u:064b}"[::-1], 2), a >> (b & 63),
                  quotient(a32, b32) + a32 - quotient(a32, 7) * 7]
        assert out[:, i].tolist() == [signed(value) for value in wanted], (a, b)


def packed(a: int, b: int, bits: int, f, sign: bool = False) -> int:
    total, part = 0, 2**bits - 1
    for at in range(0, 32, bits):
        p, q = a >> at & part, b >> at & part
        total |= (f(signed(p, bits), signed(q, bits)) if sign else f(p, q)) % 2**bits << at
    return total


@everywhere
def test_narrow_integers(target):
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-2**31, 2**31, 64) >> rng.integers(0, 31, 64) for _ in range(2))
    out = np.zeros((16, 64), np.int32)
    Compiled("integers", target).narrow(1, 64, x.astype(np.int32), y.astype(np.int32), out)
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        u, v = a % 2**32, b % 2**32
        both = u.to_bytes(4, "little") + v.to_bytes(4, "little")
        wanted = [
            32 - u.bit_length() + 100 * (u & -u).bit_length() + 10000 * u.bit_count(), int(f"{u:032b}"[::-1], 2),
            int.from_bytes(bytes(both[n] for n in (0, 4, 1, 5)), "little"), (v << 32 | u) << 11 >> 32, (v << 32 | u) >> (v & 31),
            17 + sum(signed(u >> at & 255, 8) * signed(v >> at & 255, 8) for at in (0, 8, 16, 24)), a * b >> 32, abs(a - b) + 5,
            packed(u, v, 8, lambda p, q: p + q), packed(u, v, 8, lambda p, q: abs(p - q)), packed(u, v, 16, max, sign=True), (a + b + 1) >> 1,
            abs(a) + min(a, b) * 3 + (signed(a - b, 32) if a > b else 1), signed(u, 16) * signed(v, 16) + signed(u, 8) + v % 256,
            u // (v % 1024 + 1), packed(u, v, 8, lambda p, q: 255 * (p > q))]
        assert out[:, i].tolist() == [signed(value, 32) for value in wanted], (a, b)


def references(a: torch.Tensor, b: torch.Tensor) -> list:
    """float64 results of the corpus's functions, in their order up to a / b."""
    gamma = torch.tensor([math.gamma(v) for v in b.tolist()], dtype=torch.float64)
    cube = a.abs() ** (1 / 3)
    cube = (cube - (cube**3 - a.abs()) / (3 * cube**2).clamp(min=1e-300)).copysign(a)
    return [a.sin(), a.cos(), a.tan(), a.exp(), a.exp2(), a.expm1(), b.log(), b.log1p(), b.log10(), b**a, gamma, b.lgamma(), a.erf(), a.erfc(),
            b.sqrt(), b.rsqrt(), cube, a.sinh(), a.cosh(), a.tanh(), (a / 8).asin(), (a / 8).acos(), a.atan(), torch.atan2(a, b), a.asinh(),
            (b + 1).acosh(), (a / 8).atanh(), torch.hypot(a, b), torch.fmod(a, b),
            torch.tensor([math.remainder(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)], dtype=torch.float64),
            a.floor(), a.ceil(), a.round(), a.trunc(),
            a.trunc() + ((a - a.trunc()).abs() >= 0.5) * a.sign(), a * b + a, b.copysign(a), a * 32, (a - b).clamp(min=0)]


@pytest.mark.parametrize("name, target, dtype, error", [("float_functions", "sm_90a", torch.float32, 6.0),
                                                        ("double_functions", "sm_80", torch.float64, 8.0)])
def test_functions(name, target, dtype, error):
    """Within what NVIDIA's table of errors states, in units of the last place (the largest there are 6 to 8)."""
    a, b = torch.linspace(-6.9, 7.3, 128, dtype=dtype), torch.linspace(0.11, 9.7, 128, dtype=dtype)[torch.randperm(128)]
    out = torch.zeros(43, 128, dtype=dtype)
    Compiled(name, target).functions(2, 64, a, b, out)
    x, y = a.double(), b.double()
    unit = torch.finfo(dtype).eps
    for row, wanted in enumerate(references(x, y)):
        scale = wanted.abs().clamp(min=torch.finfo(dtype).tiny)
        if row in (10, 11):  # gamma: relative to 1 where its logarithm is near 0
            scale = scale.clamp(min=1)
        allowed = error if dtype == torch.float32 else error + 2  # the reference is a double itself
        assert ((out[row].double() - wanted).abs() / scale / unit).max() <= allowed, row
    rows = {"float_functions": [(39, torch.sin((a * 1e6).double()), 2), (40, x.exp(), 4), (41, x / y, 2), (42, (a / b).double(), 0)],
            "double_functions": [(39, torch.sin(a * 1e6), 4), (40, a / b, 0)]}[name]
    for row, wanted, allowed in rows:
        assert ((out[row].double() - wanted).abs() / wanted.abs() / unit).max() <= allowed, row


@everywhere
def test_half_and_bfloat(target):
    x, y = torch.randn(64), torch.randn(64) * 3
    y[0] = x[0]
    cu, out = Compiled("halves", target), torch.zeros(12, 64)
    cu.half_math(1, 64, x, y, out)
    a, b = x.half(), y.half()
    fused = lambda p, q, r: (p.double() * q.double() + r.double()).half()  # noqa: E731
    for row, wanted in enumerate([a + b, a * b, fused(a, b, a), a / b, a.abs().sqrt(), a.exp2(), (a > b).half(), a.trunc(), torch.maximum(a, b)]):
        allowed = 1e-3 if row in (3, 5) else 0
        assert ((out[row] - wanted.float()).abs() <= allowed * wanted.float().abs()).all(), row
    half = torch.full_like(a, 0.5)
    assert torch.equal(out[9], fused(a, b, half).float() + 64 * fused(b, b, half).float())
    assert (out[10] - x.half().float().tanh()).abs().max() < 2e-3 and (out[11] - x.half().float().sin()).abs().max() < 2e-3

    out = torch.zeros(7, 64)
    cu.bfloat_math(1, 64, x, y, out)
    a, b = x.bfloat16(), y.bfloat16()
    cut = (x.view(torch.int32) & -65536).view(torch.float32)
    pair = (2 * a.float()).bfloat16().float() + (0.5 * b.float()).bfloat16().float()
    fused = (a.double() * b.double() + a.double()).float().bfloat16()
    for row, wanted in enumerate([a + b, a * b, fused, torch.minimum(a, b), pair, cut, (1001 * torch.arange(64)).bfloat16()]):
        assert torch.equal(out[row], wanted.float()), row


@on_ada
def test_fp8(target):
    x = torch.cat([torch.randn(200) * 50, torch.tensor([0.0, -0.0, 448.0, 449.0, 1e6, -1e6, 2**-9, 2**-10, 3 * 2**-17, 57344.0, 1e9])])[:211]
    n = len(x)
    bytes4, bytes5, back4, back5 = (torch.zeros(n, dtype=t) for t in (torch.uint8, torch.uint8, torch.float32, torch.float32))
    cu = Compiled("small_floats", target)
    cu.round_trip(1, n, x, bytes4, bytes5, back4, back5)
    e4m3, e5m2 = x.clamp(-448, 448).to(torch.float8_e4m3fn), x.clamp(-57344, 57344).to(torch.float8_e5m2)  # CUDA saturates
    assert torch.equal(bytes4, e4m3.view(torch.uint8)) and torch.equal(bytes5, e5m2.view(torch.uint8))
    assert torch.equal(back4, e4m3.float()) and torch.equal(back5, e5m2.float())
    pairs, both, back = torch.randn(32, 2) * 9, torch.zeros(32, dtype=torch.int16), torch.zeros(32, 2)
    cu.pairs(1, 32, pairs, both, back)
    assert torch.equal(both.view(torch.uint8).view(32, 2), pairs.to(torch.float8_e4m3fn).view(torch.uint8))
    assert torch.equal(back, pairs.to(torch.float8_e4m3fn).float())
