"""Floating-point arithmetic: PTX ISA 9.7.3 (f32, f64), 9.7.4 (f16, bf16 and their pairs) and 9.7.5 (mixed precision).

Results that the ISA defines exactly are exact. The `.approx` functions are the correctly rounded value of a f64 computation, so well
inside every error bound the ISA gives; NVIDIA's own results differ from them within those bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from warpwright.cpu.interpreter import floats
from warpwright.cpu.interpreter.floats import BF16, F16, F32, F64, FORMATS, Format, Number, decode, encode
from warpwright.cpu.interpreter.words import elementwise, lanes, mask


def arithmetic(type_: str, operation: Callable[..., Number], *, rnd: str | None = None, ftz: bool = False, sat: bool = False,
               relu: bool = False):
    """Bit patterns → bit pattern for an exact `operation` on numbers, rounded once. `operation` takes mode= if it is a sum."""
    element, count = lanes(type_)
    format_, mode = FORMATS[element], rnd or "rn"

    def compute(*bits: int) -> int:
        if ftz:
            bits = tuple(format_.flush(value) for value in bits)
        return finish(format_, operation(*(decode(format_, value) for value in bits), mode=mode), mode, ftz, sat, relu)

    return elementwise(compute, format_.bits, count)


def finish(format_: Format, number: Number, mode: str, ftz: bool = False, sat: bool = False, relu: bool = False) -> int:
    """Round, flush, clamp: what every instruction does to its result, in that order."""
    if sat:
        number = floats.saturate(number)
    if relu and number.negative and number.kind != "nan":
        number = floats.zero()
    result = encode(format_, number, mode)
    return format_.flush(result) if ftz else result


def add(x: Number, y: Number, mode: str) -> Number:
    return floats.add(x, y, mode)


def subtract(x: Number, y: Number, mode: str) -> Number:
    return floats.add(x, floats.negate(y), mode)


def multiply(x: Number, y: Number, mode: str) -> Number:
    return floats.multiply(x, y)


def fused_multiply_add(x: Number, y: Number, z: Number, mode: str) -> Number:
    return floats.fused_multiply_add(x, y, z, mode)


def divide(x: Number, y: Number, mode: str) -> Number:
    return floats.divide(x, y)


def reciprocal(x: Number, mode: str) -> Number:
    return floats.divide(floats.from_integer(1), x)


def square_root(x: Number, mode: str) -> Number:
    return floats.square_root(x)


def mixed(operation, narrow: str, *, narrow_operands: int, rnd: str | None = None, sat: bool = False):
    """f32 arithmetic whose first operands are f16 or bf16 (9.7.5)."""
    mode = rnd or "rn"

    def compute(*bits: int) -> int:
        numbers = [decode(FORMATS[narrow] if i < narrow_operands else F32, value) for i, value in enumerate(bits)]
        return finish(F32, operation(*numbers, mode=mode), mode, sat=sat)

    return compute


# ── signs, minimum, maximum ──────────────────────────────────────────────────────────────────────────────────────


def absolute(type_: str, ftz: bool = False):
    return _on_bits(type_, ftz, lambda format_, a: a & (format_.sign_bit - 1))


def negative(type_: str, ftz: bool = False):
    return _on_bits(type_, ftz, lambda format_, a: a ^ format_.sign_bit)


def _on_bits(type_: str, ftz: bool, change):
    element, count = lanes(type_)
    format_ = FORMATS[element]
    return elementwise(lambda a: change(format_, format_.flush(a) if ftz else a), format_.bits, count)


def copy_sign(type_: str):
    """The sign of a on the value of b."""
    sign = FORMATS[type_].sign_bit
    return lambda a, b: a & sign | b & (sign - 1)


def extreme(type_: str, largest: bool, *, ftz: bool = False, nan: bool = False, xorsign: bool = False, absolute_: bool = False):
    """min (largest=False) or max of two or three operands: +0 is greater than -0, one NaN loses to a number unless `.NaN` is given."""
    element, count = lanes(type_)
    format_ = FORMATS[element]

    def order(bits: int) -> int:
        """Bit patterns of numbers, ordered as the numbers are, -0 before +0."""
        magnitude = bits & (format_.sign_bit - 1)
        return -magnitude - 1 if bits & format_.sign_bit else magnitude

    def two(x: int, y: int) -> int:
        x_nan, y_nan = format_.is_nan(x), format_.is_nan(y)
        if (x_nan and y_nan) or (nan and (x_nan or y_nan)):
            return format_.canonical_nan
        if x_nan or y_nan:
            return y if x_nan else x
        return (max if largest else min)(x, y, key=order)

    def compute(*bits: int) -> int:
        if ftz:
            bits = tuple(format_.flush(value) for value in bits)
        sign = 0
        for value in bits:
            sign ^= value & format_.sign_bit
        if absolute_ or xorsign:
            bits = tuple(value & (format_.sign_bit - 1) for value in bits)
        result = two(bits[0], bits[1])
        for value in bits[2:]:
            result = two(result, value)
        if xorsign and not format_.is_nan(result):
            result = result & (format_.sign_bit - 1) | sign
        return result

    return elementwise(compute, format_.bits, count)


def test_property(type_: str, op: str):
    format_ = FORMATS[type_]

    def test(a: int) -> int:
        magnitude = a & (format_.sign_bit - 1)
        return int({
            "finite": magnitude < format_.exponent_ones, "infinite": magnitude == format_.exponent_ones,
            "number": not format_.is_nan(a), "notanumber": format_.is_nan(a),
            "normal": magnitude == 0 or format_.smallest_normal <= magnitude < format_.exponent_ones,
            "subnormal": format_.is_subnormal(a),
        }[op])

    return test


# ── approximations ───────────────────────────────────────────────────────────────────────────────────────────────


def _real(function: Callable[[float], float], zero: float | None, below: float | None, plus: float | None, minus: float | None):
    """A real function as numbers → number: its values at ±0, below zero (None: ask the function), at +∞ and at -∞ (None: NaN)."""

    def compute(x: Number, mode: str) -> Number:
        if x.kind == "nan":
            return floats.NAN
        if x.kind == "infinite":
            limit = minus if x.negative else plus
            return floats.NAN if limit is None else floats.from_float(limit)
        if x.is_zero and zero is not None:
            result = floats.from_float(zero)
            return result._replace(negative=x.negative) if zero == 0.0 else result
        if x.negative and below is not None:
            return floats.from_float(below)
        return floats.from_float(function(floats.to_float(x)))

    return compute


def _rsqrt(x: Number, mode: str) -> Number:
    if x.is_zero:
        return floats.infinite(x.negative)
    return floats.divide(floats.from_integer(1), floats.square_root(x))


APPROXIMATE: dict[str, Callable[..., Number]] = {
    "rcp": reciprocal, "sqrt": square_root, "rsqrt": _rsqrt,
    "sin": _real(math.sin, 0.0, None, None, None), "cos": _real(math.cos, 1.0, None, None, None),
    "lg2": _real(math.log2, -math.inf, math.nan, math.inf, None),
    "ex2": _real(lambda x: math.exp2(min(max(x, -2000.0), 1000.0)), 1.0, None, math.inf, 0.0),
    "tanh": _real(math.tanh, 0.0, None, 1.0, -1.0),
}


def approximate(opcode: str, type_: str, ftz: bool = False):
    """rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh `.approx`."""
    # ex2.approx.ftz.bf16 is spelled with .ftz always and supports subnormal results no more than f32's does.
    return arithmetic(type_, APPROXIMATE[opcode], ftz=ftz)


def divide_approximate(ftz: bool = False):
    """div.approx.f32: a · (1/b), whose reciprocal underflows to zero for 2^126 < |b| < 2^128: then 0, or NaN for an infinite a."""

    def operation(x: Number, y: Number, mode: str) -> Number:
        if y.kind == "finite" and not y.is_zero and y.mantissa.bit_length() + y.exponent > 126:
            exactly = y.mantissa.bit_length() + y.exponent == 127 and y.mantissa & (y.mantissa - 1) == 0
            if not exactly:
                return floats.multiply(x, floats.zero(y.negative))
        return floats.divide(x, y)

    return arithmetic("f32", operation, ftz=ftz)


def upper_word(opcode: str):
    """rcp and rsqrt `.approx.ftz.f64`: of the upper 32 bits of the operand, to the upper 32 bits; 20 bits of fraction."""
    operation = APPROXIMATE[opcode]

    def compute(a: int) -> int:
        a &= ~mask(32)
        if F64.is_nan(a):
            return 0x7FFFFFFF00000000
        a = F64.flush(a)
        result = encode(F64, operation(decode(F64, a), mode="rn"))
        if F64.is_nan(result):
            return 0x7FFFFFFF00000000
        return F64.flush(result) & ~mask(32)

    return compute


# ── comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def comparison(type_: str, op: str, ftz: bool = False):
    """9.3.1.2: eq ne lt le gt ge are false of a NaN, equ … geu true of it; num and nan ask for it. Gives 0 or 1, of one element."""
    format_ = FORMATS[type_]

    def compare(a: int, b: int) -> int:
        if ftz:
            a, b = format_.flush(a), format_.flush(b)
        order = floats.compare(decode(format_, a), decode(format_, b))
        if op in ("num", "nan"):
            return int((order is None) == (op == "nan"))
        if order is None:
            return int(op.endswith("u"))
        return int({"eq": order == 0, "ne": order != 0, "lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0}[op[:2]])

    return compare


ONE = {"f16": encode(F16, floats.from_integer(1)), "bf16": encode(BF16, floats.from_integer(1)),
       "f32": encode(F32, floats.from_integer(1)), "f64": encode(F64, floats.from_integer(1))}
