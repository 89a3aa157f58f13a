"""cvt and cvt.pack: PTX ISA 9.7.9.21 and 9.7.9.22."""

from __future__ import annotations

from warpwright.cpu.interpreter import floats
from warpwright.cpu.interpreter.floats import F32, FORMATS, Number, decode, encode
from warpwright.cpu.interpreter.words import clamp, is_signed, join, lanes, mask, read, signed, split, width

NARROW = {"e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 4, "ue8m0": 8}  # bits a packed element takes, padding included


def element_bits(type_: str) -> int:
    return NARROW.get(type_) or (32 if type_ == "tf32" else width(type_))


def convert(destination: str, source: str, rnd: str | None = None, *, ftz: bool = False, sat: bool = False, relu: bool = False,
            satfinite: bool = False):
    """The function of a cvt from its types and modifiers. Packed destinations take the operand a in their upper part."""
    to, to_count = lanes(destination)
    of, of_count = lanes(source)
    one = convert_one(to, of, rnd, ftz=ftz, sat=sat, relu=relu, satfinite=satfinite)
    bits = element_bits(to)
    if to_count == 1:
        return one
    if of_count == to_count:
        return lambda a: join([one(part) for part in split(a, element_bits(of), to_count)], bits)
    return lambda *operands: join([one(value) for value in reversed(operands)], bits)


def convert_one(to: str, of: str, rnd: str | None, *, ftz: bool = False, sat: bool = False, relu: bool = False, satfinite: bool = False):
    if of == "ue8m0":
        return scale_to_float(to)
    if to == "ue8m0":
        return float_to_scale(of, rnd or "rz")
    if to in FORMATS and of in FORMATS:
        return float_to_float(to, of, rnd, ftz=ftz, sat=sat, relu=relu, satfinite=satfinite)
    if to in FORMATS:
        return integer_to_float(to, of, rnd or "rn", sat)
    if of in FORMATS:
        return float_to_integer(to, of, rnd or "rzi", ftz)
    return integer_to_integer(to, of, sat)


def integer_to_integer(to: str, of: str, sat: bool):
    if sat:
        return lambda a: clamp(read(a, of), to)
    return lambda a: read(a, of) & mask(width(to))


def integer_to_float(to: str, of: str, mode: str, sat: bool):
    def compute(a: int) -> int:
        number = floats.from_integer(read(a, of))
        return encode(FORMATS[to], floats.saturate(number) if sat else number, mode)

    return compute


def float_to_integer(to: str, of: str, mode: str, ftz: bool):
    """Out-of-range values clamp. NaN gives 0, but the top bit alone where either side is 64 bits wide."""
    source, bits = FORMATS[of], width(to)

    def compute(a: int) -> int:
        number = decode(source, source.flush(a) if ftz else a)
        if number.kind == "nan":
            return 1 << (bits - 1) if of == "f64" or bits == 64 else 0
        if number.kind == "infinite":
            if is_signed(to):
                return 1 << (bits - 1) if number.negative else mask(bits - 1)
            return 0 if number.negative else mask(bits)
        return clamp(floats.to_integer(number, mode), to)

    return compute


def float_to_float(to: str, of: str, rnd: str | None, *, ftz: bool, sat: bool, relu: bool, satfinite: bool):
    """Between formats, with `.rn` …, or to an integral value of the same format, with `.rni` … ."""
    target, source = FORMATS[to], FORMATS[of]
    mode = rnd or "rn"
    integral = mode.endswith("i")

    def compute(a: int) -> int:
        if of == "tf32":
            a >>= 13
        if ftz and of == "f32":
            a = source.flush(a)
        if to == of and not integral and not sat and not relu:
            result = target.flush(a) if ftz and to == "f32" else a  # no rounding asks for none: the value moves as it is
            return target.canonical_nan if target.is_nan(a) and to == "f32" else result
        number = decode(source, a)
        if integral and number.kind == "finite":
            number = _with_sign(floats.from_integer(floats.to_integer(number, mode)), number.negative)
        if sat:
            number = floats.saturate(number)
        if relu and number.negative and number.kind != "nan":
            number = floats.zero()
        result = encode(target, number, "rn" if integral else mode, satfinite)
        if ftz and to == "f32":
            result = target.flush(result)
        if to == "tf32":
            return F32.canonical_nan if target.is_nan(result) else result << 13
        return result

    return compute


def _with_sign(number: Number, negative: bool) -> Number:
    """Rounding to an integral value keeps the sign of a zero."""
    return number._replace(negative=negative)


def float_to_scale(of: str, mode: str):
    """To ue8m0, a power of two 2^(byte - 127); 0xff is NaN. Signs are dropped; .rz rounds down, .rp up; the range is [2^-127, 2^127]."""
    source = FORMATS[of]

    def compute(a: int) -> int:
        number = decode(source, a & (source.sign_bit - 1))
        if number.kind == "nan":
            return 0xFF
        if number.kind == "infinite":
            return 0xFE
        if number.is_zero:
            return 0
        exponent = number.mantissa.bit_length() - 1 + number.exponent
        if mode == "rp" and number.mantissa & (number.mantissa - 1):
            exponent += 1
        return max(0, min(0xFE, exponent + 127))

    return compute


def scale_to_float(to: str):
    target = FORMATS[to]
    return lambda a: target.canonical_nan if a == 0xFF else encode(target, Number("finite", False, 1, a - 127))


def stochastic(destination: str, relu: bool, satfinite: bool):
    """cvt.rs: each input's discarded fraction bits, plus random bits, carry into the last place that is kept.

    f16x2 uses the low 13 bits of each half of rbits, bf16x2 all 16; the formats of four elements use the upper half for a and b,
    the lower for e and f (8-bit formats), or bytes of the halves (e2m1x4).
    """
    to, count = lanes(destination)
    target = FORMATS[to]

    def one(a: int, random: int, random_bits: int) -> int:
        number = decode(F32, a)
        if relu and number.negative and number.kind != "nan":
            number = floats.zero()
        if number.kind != "finite" or number.is_zero:
            return encode(target, number, "rz", satfinite)
        top = number.mantissa.bit_length() - 1 + number.exponent
        last = max(top, 1 - target.bias) - target.fraction_bits
        drop = last - number.exponent
        if drop > 0:
            # The random bits stand right below the last place kept; discarded bits below them cannot carry.
            addend = random << (drop - random_bits) if drop >= random_bits else random >> (random_bits - drop)
            number = number._replace(mantissa=number.mantissa + addend)
        return encode(target, number, "rz", satfinite)

    if count == 2:
        size = 13 if to == "f16" else 16
        return lambda a, b, rbits: one(a, rbits >> 16 & mask(size), size) << 16 | one(b, rbits & mask(size), size)
    bits = element_bits(to)

    def four(vector: tuple[int, ...], rbits: int) -> int:
        a, b, e, f = vector
        high, low = rbits >> 16, rbits & 0xFFFF
        if to == "e2m1":
            chosen, size = (high >> 8, low >> 8, high & 0xFF, low & 0xFF), 8
        else:
            chosen, size = (high, high, low, low), 16
        return join([one(x, r, size) for x, r in zip((f, e, b, a), reversed(chosen), strict=True)], bits)

    return four


def pack(to: str):
    """cvt.pack.sat: two integers clamped to `to`, a above b, above which stand the low bits of c."""
    bits = int(to[1:])
    low, high = (-(1 << (bits - 1)), mask(bits - 1)) if to[0] == "s" else (0, mask(bits))

    def compute(a: int, b: int, c: int = 0) -> int:
        upper, lower = (max(low, min(high, signed(value, 32))) & mask(bits) for value in (a, b))
        return (c << 2 * bits | upper << bits | lower) & mask(32)

    return compute
