"""Binary floating point, exactly: decode bits to a number, compute without any error, round once.

A finite number is `mantissa · 2^exponent` with Python's unbounded integers, so sums, products and fused multiply-adds are exact,
and quotients and roots carry a sticky bit far below the last place; `encode` is then the only place where anything is rounded.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Format:
    """A floating-point format. `nan` is the canonical NaN; e4m3 has no infinity and one NaN pattern a sign (all ones);
    the formats of 6 and 4 bits have neither infinity nor NaN (`nan` is None)."""

    name: str
    exponent_bits: int
    fraction_bits: int
    nan: int | None
    infinity: bool = True

    def __post_init__(self):
        bits = 1 + self.exponent_bits + self.fraction_bits
        bias = (1 << (self.exponent_bits - 1)) - 1
        ones = ((1 << self.exponent_bits) - 1) << self.fraction_bits
        if self.infinity:
            largest = ones - 1
        else:
            largest = (1 << (bits - 1)) - (1 if self.nan is None else 2)
        for name, value in (("bits", bits), ("bias", bias), ("sign_bit", 1 << (bits - 1)), ("largest", largest), ("exponent_ones", ones),
                            ("smallest_normal", 1 << self.fraction_bits)):
            object.__setattr__(self, name, value)

    bits: int = 0  # the width; these six are derived from the fields above
    bias: int = 0
    sign_bit: int = 0
    largest: int = 0  # bits of the largest finite number
    exponent_ones: int = 0  # bits of infinity, where there is one
    smallest_normal: int = 0  # bits of the smallest normal number

    @property
    def canonical_nan(self) -> int:
        """Bits of the canonical NaN; of the largest number in a format without NaN."""
        return self.largest if self.nan is None else self.nan

    def is_nan(self, bits: int) -> bool:
        magnitude = bits & (self.sign_bit - 1)
        return self.nan is not None and magnitude > (self.exponent_ones if self.infinity else self.largest)

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & (self.sign_bit - 1) < self.smallest_normal

    def flush(self, bits: int) -> int:
        """A subnormal becomes zero of its sign (`.ftz`)."""
        return bits & self.sign_bit if self.is_subnormal(bits) else bits


F16 = Format("f16", 5, 10, 0x7FFF)
BF16 = Format("bf16", 8, 7, 0x7FFF)
F32 = Format("f32", 8, 23, 0x7FFFFFFF)
F64 = Format("f64", 11, 52, 0xFFF8000000000000)
TF32 = Format("tf32", 8, 10, 0x3FFFF)  # its 19 bits are the upper ones of a 32-bit register
E4M3 = Format("e4m3", 4, 3, 0x7F, infinity=False)
E5M2 = Format("e5m2", 5, 2, 0x7F)
E2M3 = Format("e2m3", 2, 3, None, infinity=False)
E3M2 = Format("e3m2", 3, 2, None, infinity=False)
E2M1 = Format("e2m1", 2, 1, None, infinity=False)
FORMATS = {format_.name: format_ for format_ in (F16, BF16, F32, F64, TF32, E4M3, E5M2, E2M3, E3M2, E2M1)}


class Number(NamedTuple):
    """A decoded value: kind is "finite", "infinite" or "nan"; a finite one is ±mantissa · 2^exponent."""

    kind: str
    negative: bool
    mantissa: int = 0
    exponent: int = 0

    @property
    def is_zero(self) -> bool:
        return self.kind == "finite" and self.mantissa == 0


NAN = Number("nan", False)


def infinite(negative: bool) -> Number:
    return Number("infinite", negative)


def zero(negative: bool = False) -> Number:
    return Number("finite", negative)


def decode(format_: Format, bits: int) -> Number:
    """The number that a bit pattern stands for."""
    negative = bool(bits & format_.sign_bit)
    magnitude = bits & (format_.sign_bit - 1)
    if format_.infinity and magnitude >= format_.exponent_ones:
        return infinite(negative) if magnitude == format_.exponent_ones else NAN
    if magnitude > format_.largest:
        return NAN
    field = magnitude >> format_.fraction_bits
    fraction = magnitude & (format_.smallest_normal - 1)
    if field == 0:
        return Number("finite", negative, fraction, 1 - format_.bias - format_.fraction_bits)
    return Number("finite", negative, fraction | format_.smallest_normal, field - format_.bias - format_.fraction_bits)


def _rounds_away(mode: str, negative: bool, odd: bool, remainder: int, half: int) -> bool:
    """Whether a discarded `remainder` (of twice `half`) takes the magnitude one unit up."""
    if remainder == 0 or mode == "rz":
        return False
    if mode == "rn":
        return remainder > half or (remainder == half and odd)
    if mode == "rna":
        return remainder >= half
    return negative == (mode == "rm")  # rm goes away from zero below it, rp above it


def encode(format_: Format, number: Number, mode: str = "rn", satfinite: bool = False) -> int:
    """Round a number once to a format: mode rn (ties to even), rna (ties away), rz, rm, rp.

    An overflow gives infinity, or the largest finite number where the mode points away from infinity, `satfinite` is set,
    or the format has neither infinity nor NaN; e4m3 without `satfinite` overflows to NaN.
    """
    sign = format_.sign_bit if number.negative else 0
    if number.kind == "nan":
        return format_.canonical_nan
    if number.kind == "infinite":
        return _overflow(format_, sign, satfinite)
    if number.mantissa == 0:
        return sign
    top = number.mantissa.bit_length() - 1 + number.exponent
    last_place = max(top, 1 - format_.bias) - format_.fraction_bits
    drop = last_place - number.exponent
    if drop <= 0:
        kept = number.mantissa << -drop
    else:
        kept = number.mantissa >> drop
        remainder = number.mantissa & ((1 << drop) - 1)
        kept += _rounds_away(mode, number.negative, bool(kept & 1), remainder, 1 << (drop - 1))
    # The leading one adds to the exponent field by itself, and so does a carry out of the fraction.
    magnitude = ((last_place + format_.fraction_bits + format_.bias - 1) << format_.fraction_bits) + kept
    if magnitude > format_.largest:
        toward_zero = mode == "rz" or (mode in ("rm", "rp") and number.negative != (mode == "rm"))
        return _overflow(format_, sign, satfinite or toward_zero)
    return sign | magnitude


def _overflow(format_: Format, sign: int, finite: bool) -> int:
    if finite or format_.nan is None:
        return sign | format_.largest
    return sign | (format_.exponent_ones if format_.infinity else format_.nan)


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────


def negate(x: Number) -> Number:
    return x._replace(negative=not x.negative) if x.kind != "nan" else x


def absolute(x: Number) -> Number:
    return x._replace(negative=False)


def add(x: Number, y: Number, mode: str = "rn") -> Number:
    """x + y, exactly. The mode matters only to the sign of a sum of opposites: +0, but -0 when rounding down."""
    if x.kind == "nan" or y.kind == "nan":
        return NAN
    if x.kind == "infinite" or y.kind == "infinite":
        if x.kind == y.kind and x.negative != y.negative:
            return NAN
        return x if x.kind == "infinite" else y
    exponent = min(x.exponent, y.exponent)
    left, right = x.mantissa << (x.exponent - exponent), y.mantissa << (y.exponent - exponent)
    total = (-left if x.negative else left) + (-right if y.negative else right)
    if total == 0:
        return zero(x.negative if x.negative == y.negative else mode == "rm")
    return Number("finite", total < 0, abs(total), exponent)


def multiply(x: Number, y: Number) -> Number:
    """x · y, exactly."""
    negative = x.negative != y.negative
    if x.kind == "nan" or y.kind == "nan":
        return NAN
    if x.kind == "infinite" or y.kind == "infinite":
        return NAN if x.is_zero or y.is_zero else infinite(negative)
    return Number("finite", negative, x.mantissa * y.mantissa, x.exponent + y.exponent)


def fused_multiply_add(x: Number, y: Number, z: Number, mode: str = "rn") -> Number:
    """x · y + z, exactly."""
    return add(multiply(x, y), z, mode)


_GUARD = 70  # more bits than any format's precision and rounding position need


def divide(x: Number, y: Number) -> Number:
    """x / y to more than 64 bits, the last of them sticky, so that any rounding of it is the rounding of the true quotient."""
    negative = x.negative != y.negative
    if x.kind == "nan" or y.kind == "nan" or (x.kind == y.kind == "infinite") or (x.is_zero and y.is_zero):
        return NAN
    if x.kind == "infinite" or y.is_zero:
        return infinite(negative)
    if y.kind == "infinite" or x.is_zero:
        return zero(negative)
    shift = max(0, _GUARD + y.mantissa.bit_length() - x.mantissa.bit_length())
    quotient, remainder = divmod(x.mantissa << shift, y.mantissa)
    return Number("finite", negative, quotient << 1 | (remainder != 0), x.exponent - y.exponent - shift - 1)


def square_root(x: Number) -> Number:
    """√x to more than 64 bits, the last of them sticky; √-0 = -0, of other negatives NaN."""
    if x.kind == "nan" or x.is_zero:
        return x
    if x.negative:
        return NAN
    if x.kind == "infinite":
        return x
    shift = 2 * _GUARD + (x.exponent & 1)
    mantissa = x.mantissa << shift
    root = math.isqrt(mantissa)
    return Number("finite", False, root << 1 | (root * root != mantissa), (x.exponent - shift) // 2 - 1)


def compare(x: Number, y: Number) -> int | None:
    """-1, 0 or 1 as x is less than, equal to or greater than y; None if either is NaN. Both zeros are equal."""
    if x.kind == "nan" or y.kind == "nan":
        return None
    left, right = _order(x), _order(y)
    if left == right == 0:
        exponent = min(x.exponent, y.exponent)
        a, b = x.mantissa << (x.exponent - exponent), y.mantissa << (y.exponent - exponent)
        left, right = (-a if x.negative else a), (-b if y.negative else b)
    return (left > right) - (left < right)


def _order(x: Number) -> int:
    return 0 if x.kind == "finite" else (-1 if x.negative else 1)


def to_integer(x: Number, mode: str) -> int:
    """A finite number rounded to an integer: rni (ties to even), rzi, rmi, rpi; no bound."""
    if x.exponent >= 0:
        magnitude = x.mantissa << x.exponent
    else:
        drop = -x.exponent
        magnitude = x.mantissa >> drop
        remainder = x.mantissa & ((1 << drop) - 1)
        magnitude += _rounds_away(mode.rstrip("i"), x.negative, bool(magnitude & 1), remainder, 1 << (drop - 1))
    return -magnitude if x.negative else magnitude


def from_integer(value: int) -> Number:
    return Number("finite", value < 0, abs(value), 0)


def from_float(value: float) -> Number:
    """A Python float, exactly."""
    return decode(F64, struct.unpack("<Q", struct.pack("<d", value))[0])


def to_float(x: Number) -> float:
    """The nearest Python float; exact for all numbers of the formats up to f64."""
    return struct.unpack("<d", struct.pack("<Q", encode(F64, x)))[0]


def saturate(x: Number) -> Number:
    """Clamped to [0, 1]; NaN becomes +0 (`.sat`)."""
    if x.kind == "nan" or x.negative:
        return zero()
    if x.kind == "infinite" or compare(x, from_integer(1)) == 1:
        return from_integer(1)
    return x
