"""The approximate functions of f32, inline: 2ˣ, log₂, sine, cosine, tanh, at any width.

Polynomials are near-minimax fits (Lawson-weighted least squares) of degree and interval as said; errors are of the polynomial, in relative
terms, before rounding. PTX asks for about 2 ulp of ex2, 2⁻²² of lg2, 2⁻²⁰·⁵ absolute of sin and cos in [-π, π], 2⁻¹¹ of tanh.
"""

from __future__ import annotations

import math

from warpwright.cpu.codegen.emitter import Emitter, float_constant

# (2ˣ - 1) / x on [-½, ½]: 7.5e-9
_EX2 = (0x3F317218, 0x3E75FDF0, 0x3D6357B6, 0x3C1D94F2, 0x3AAF844B, 0x3922363E)
# log₂(1 + x) / x on [√½ - 1, √2 - 1]: 2.6e-8
_LG2 = (0x3FB8AA3B, 0xBF38AA38, 0x3EF639EB, 0xBEB8AE27, 0x3E9369C2, 0xBE74ADFC, 0x3E5CE49D, 0xBE543E4F, 0x3E00DAFD)
# (tanh x / x - 1) / x² in x² for |x| ≤ 0.625: 4.1e-8
_TANH = (0xBEAAAAA9, 0x3E08871F, 0xBD5C9616, 0x3CAC1D57, 0xBBC8512F)
# (sin x / x - 1) / x² and (cos x - 1) / x² in x² for |x| ≤ π/4: 7e-10, 3.2e-10
_SIN = (0xBE2AAAAB, 0x3C08889B, 0xB9501F0E, 0x363C8F54)
_COS = (0xBF000000, 0x3D2AAAA6, 0xBAB6070B, 0x37CD3922)


def _k(e: Emitter, bits: int) -> str:
    return e.k("float", float_constant(bits, "float"))


def fma(e: Emitter, a: str, b: str, c: str, kind: str = "float") -> str:
    return e.intrinsic("llvm.fma", kind, a, b, c)


def polynomial(e: Emitter, x: str, coefficients: tuple[int, ...]) -> str:
    """Σ cᵢ xⁱ by Horner's rule; coefficients are f32 bits."""
    total = _k(e, coefficients[-1])
    for bits in reversed(coefficients[:-1]):
        total = fma(e, total, x, _k(e, bits))
    return total


def at_least(e: Emitter, x: str, low: float) -> str:
    """max(x, low) that keeps a NaN."""
    bound = e.k("float", low)
    return e.select(e.fcmp("ogt", "float", bound, x), "float", bound, x)


def at_most(e: Emitter, x: str, high: float) -> str:
    bound = e.k("float", high)
    return e.select(e.fcmp("olt", "float", bound, x), "float", bound, x)


def power_of_two(e: Emitter, n: str) -> str:
    """2ⁿ for an i32 n from -126 to 127."""
    return e.bits(e.bin("shl", "i32", e.bin("add", "i32", n, e.k("i32", 127)), e.k("i32", 23)), "i32", "float")


def ex2(e: Emitter, x: str, ftz: bool) -> str:
    """2ˣ; subnormal results are exact to rounding, or zero with ftz."""
    x = at_least(e, at_most(e, x, 129.0), -151.0)
    whole = e.intrinsic("llvm.rint", "float", x)
    rest = e.bin("fsub", "float", x, whole)
    value = fma(e, polynomial(e, rest, _EX2), rest, e.k("float", 1.0))
    if e.host.avx512:
        result = e.wide("llvm.x86.avx512.mask.scalef.ps.512", "float", value, whole, after="<16 x float> zeroinitializer, i16 -1, i32 4",
                        after_types="<16 x float>, i16, i32")
    else:
        n = e.ins(f"call {e.ty('i32')} {_fptosi(e)}({e.ty('float')} {whole})")
        half = e.bin("ashr", "i32", n, e.k("i32", 1))
        result = e.bin("fmul", "float", value, power_of_two(e, half))
        result = e.bin("fmul", "float", result, power_of_two(e, e.bin("sub", "i32", n, half)))
    if ftz:
        small = e.fcmp("olt", "float", result, _k(e, 0x00800000))
        result = e.select(small, "float", e.k("float", 0.0), result)
    return result


def _fptosi(e: Emitter) -> str:
    """Saturating conversion: what a NaN becomes does not matter, but it must not be poison."""
    name = f"@llvm.fptosi.sat.{e.suffix('i32')}.{e.suffix('float')}"
    e.declarations[name] = f"declare {e.ty('i32')} {name}({e.ty('float')})"
    return name


def lg2(e: Emitter, x: str, ftz: bool) -> str:
    """log₂ x: -∞ at 0 (and at subnormals with ftz), NaN below."""
    tiny = e.fcmp("olt", "float", x, _k(e, 0x00800000))
    bits = e.bits(e.select(tiny, "float", e.bin("fmul", "float", x, e.k("float", 16777216.0)), x), "float", "i32")
    # Split off the exponent so that the rest lies in [√½, √2).
    shifted = e.bin("sub", "i32", bits, e.k("i32", 0x3F3504F3))
    exponent = e.bin("ashr", "i32", shifted, e.k("i32", 23))
    mantissa = e.bin("sub", "i32", bits, e.bin("shl", "i32", exponent, e.k("i32", 23)))
    rest = e.bin("fsub", "float", e.bits(mantissa, "i32", "float"), e.k("float", 1.0))
    power = e.cast("sitofp", e.bin("sub", "i32", exponent, e.select(tiny, "i32", e.k("i32", 24), e.k("i32", 0))), "i32", "float")
    result = fma(e, polynomial(e, rest, _LG2), rest, power)
    infinite = e.fcmp("oeq", "float", x, _k(e, 0x7F800000))
    result = e.select(infinite, "float", x, result)
    zero = e.icmp("eq", "i32", e.bin("and", "i32", e.bits(x, "float", "i32"), e.k("i32", 0x7F800000 if ftz else 0x7FFFFFFF)), e.k("i32", 0))
    negative = e.fcmp("ult", "float", x, e.k("float", 0.0))
    result = e.select(negative, "float", _k(e, 0x7FFFFFFF), result)
    return e.select(zero, "float", _k(e, 0xFF800000), result)


def sincos(e: Emitter, x: str, cosine: bool) -> str:
    """sin x or cos x; the argument is reduced in f64, so that it is good far beyond PTX's [-π, π]."""
    wide = e.cast("fpext", x, "float", "double")
    turns = e.intrinsic("llvm.rint", "double", e.bin("fmul", "double", wide, e.k("double", 2 / math.pi)))
    rest = fma(e, turns, e.k("double", -math.pi / 2), wide, "double")
    rest = fma(e, turns, e.k("double", -6.123233995736766e-17), rest, "double")
    r = e.cast("fptrunc", rest, "double", "float")
    name = f"@llvm.fptosi.sat.{e.suffix('i64')}.{e.suffix('double')}"
    e.declarations[name] = f"declare {e.ty('i64')} {name}({e.ty('double')})"
    quadrant = e.resize(e.ins(f"call {e.ty('i64')} {name}({e.ty('double')} {turns})"), "i64", "i32")
    if cosine:
        quadrant = e.bin("add", "i32", quadrant, e.k("i32", 1))
    square = e.bin("fmul", "float", r, r)
    sine = fma(e, e.bin("fmul", "float", polynomial(e, square, _SIN), square), r, r)
    cos = fma(e, polynomial(e, square, _COS), square, e.k("float", 1.0))
    odd = e.icmp("ne", "i32", e.bin("and", "i32", quadrant, e.k("i32", 1)), e.k("i32", 0))
    result = e.bits(e.select(odd, "float", cos, sine), "float", "i32")
    sign = e.bin("shl", "i32", e.bin("and", "i32", quadrant, e.k("i32", 2)), e.k("i32", 30))
    return e.bits(e.bin("xor", "i32", result, sign), "i32", "float")


def tanh(e: Emitter, x: str) -> str:
    size = e.intrinsic("llvm.fabs", "float", x)
    square = e.bin("fmul", "float", x, x)
    near = fma(e, e.bin("fmul", "float", polynomial(e, square, _TANH), square), x, x)
    power = ex2(e, e.bin("fmul", "float", size, e.k("float", 2 / math.log(2))), False)
    far = e.bin("fsub", "float", e.k("float", 1.0),
                e.bin("fdiv", "float", e.k("float", 2.0), e.bin("fadd", "float", power, e.k("float", 1.0))))
    result = e.select(e.fcmp("olt", "float", size, e.k("float", 0.625)), "float", near, far)
    return e.intrinsic("llvm.copysign", "float", result, x)
