"""Narrow numbers inside kernels: FP32 registers to and from packed FP8 and E5M6, and the scale of a tile (formats: `formats.py`).

`native` uses the conversions of sm_89 and later; without it the same is done with integer operations, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpwright import ptx
from warpwright.kernels.formats import LARGEST, SMALLEST_SCALE
from warpwright.ptx import b16, b32, f16, f32, u32

QUIET_NAN = 0x7F


@dataclass(frozen=True)
class Fp8:
    """The bits of an FP8 format."""

    name: str
    mantissa: int
    bias: int
    top: int
    """The code of the largest number."""

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def pivot(self) -> float:
        """Added to a number below the smallest normal one, this leaves its code in the sum's last bits."""
        return 2.0 ** (1 - self.bias - self.mantissa + 23)


FORMATS = {"e4m3": Fp8("e4m3", 3, 7, 0x7E), "e5m2": Fp8("e5m2", 2, 15, 0x7B)}


def tile_scale(amax: f32, format: str, power_of_two: bool) -> tuple[f32, f32]:
    """(scale, 1/scale) of a tile whose largest magnitude is amax: see `formats.tile_scale`."""
    scale = ptx.max.NaN.f32(amax / LARGEST[format], SMALLEST_SCALE)
    if power_of_two:
        rounded = (scale.as_(u32) + 0x7FFFFF & 0x7F800000).as_(f32)
        scale = ptx.max.NaN.f32(scale, rounded)
    scale = ptx.select(amax == 0.0, 1.0, scale)
    return scale, ptx.rcp.rn.f32(scale)


def pack_fp8(values: Sequence[f32], format: str, native: bool) -> b32:
    """Four numbers rounded to FP8 in a word, the first in its low byte."""
    if native:
        convert = ptx.word(f"cvt.rn.satfinite.{format}x2.f32")
        return ptx.mov.b32([convert(values[1], values[0]), convert(values[3], values[2])])
    first, *rest = [_code(value, FORMATS[format]) for value in values]
    for place, code in enumerate(rest, 1):
        first = first | code << 8 * place
    return first.as_(b32)


def _code(value: f32, format: Fp8) -> u32:
    """A number's FP8 code, rounded to nearest even; beyond the largest number is that."""
    bits = value.as_(u32)
    magnitude = bits & 0x7FFFFFFF
    shift = 23 - format.mantissa
    normal = (magnitude + ((1 << (shift - 1)) - 1) + (magnitude >> shift & 1) >> shift) - ((127 - format.bias) << format.mantissa)
    small = (magnitude.as_(f32) + format.pivot).as_(u32) & 0xFF
    code = ptx.select(magnitude.as_(f32) < format.smallest_normal, small, ptx.min.u32(normal, format.top))
    code = ptx.select(magnitude > 0x7F800000, QUIET_NAN, code)
    return code | (bits >> 24 & 0x80)


def unpack_e4m3(word: b32, native: bool) -> list[f32]:
    """Four E4M3 of a word, the one in its low byte first."""
    if native:
        halves = [half for pair in _halves(word) for half in _halves(ptx.cvt.rn.f16x2.e4m3x2(pair))]
        return [ptx.cvt.f32.f16(half) for half in halves]
    return [_e4m3_number(word.as_(u32) >> 8 * place if place else word.as_(u32)) for place in range(4)]


def unpack_one_e4m3(byte: b16, native: bool) -> f32:
    """The E4M3 in the low byte of a register whose other bits are zero."""
    if native:
        return ptx.cvt.f32.f16(_halves(ptx.cvt.rn.f16x2.e4m3x2(byte))[0])
    return _e4m3_number(ptx.cvt.u32.u16(byte.as_(ptx.u16)))


def _e4m3_number(code: u32) -> f32:
    """An E4M3 in the low byte. As the upper bits of a half-precision number it is 2^-8 of itself: the exponents' biases are 7 and 15."""
    bits = (code & 0x7F) << 7 | (code & 0x80) << 8
    number = ptx.cvt.f32.f16(ptx.cvt.u16.u32(bits).as_(f16)) * 256.0
    return ptx.select((code & 0x7F) == QUIET_NAN, float("nan"), number)


def _halves(word: b32) -> list[b16]:
    low, high = ptx.var(b16), ptx.var(b16)
    ptx.mov.b32(word, out=[low, high])
    return [low, high]


# ── E5M6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def pack_e5m6(values: Sequence[f32]) -> list[u32]:
    """Four numbers of at most 65024 rounded to E5M6: 48 bits, in three registers of 16, the first number in the lowest bits."""
    a, b, c, d = [_e5m6_code(value) for value in values]
    low, high = a | b << 12, c | d << 12
    return [low, low >> 16 | high << 8, high >> 8]


def _e5m6_code(value: f32) -> u32:
    """See `formats.round_e5m6`."""
    exponent = value.as_(u32) & 0x7F800000
    pivot = (ptx.max.u32(exponent, (127 - 14) << 23) + (17 << 23) | 1 << 22).as_(f32)
    rounded = ptx.select(exponent == 0x7F800000, float("nan"), value + pivot - pivot)
    return ptx.cvt.u32.u16(ptx.cvt.rn.f16.f32(rounded).as_(ptx.u16)) >> 4 & 0xFFF


def unpack_e5m6(parts: Sequence[u32]) -> list[f32]:
    """Four E5M6 of 48 bits in three registers of 16, whose other bits are zero."""
    low, high = parts[0] | parts[1] << 16, parts[1] >> 8 | parts[2] << 8
    return [e5m6_number(bits) for bits in (low, low >> 12, high, high >> 12)]


def e5m6_number(code: u32) -> f32:
    """The E5M6 in the low 12 bits: the upper 12 of a half-precision number."""
    return ptx.cvt.f32.f16(ptx.cvt.u16.u32((code & 0xFFF) << 4).as_(f16))
