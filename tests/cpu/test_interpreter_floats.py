"""The interpreter's floating point against independent implementations: the processor's (numpy), torch's, and rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from warpwright.cpu.interpreter import convert, floating, floats
from warpwright.cpu.interpreter.floats import BF16, E4M3, E5M2, F16, F32, F64, FORMATS, TF32, decode, encode

# Zeros, the ends of the subnormals, ones, the largest, infinities, NaNs.
EDGES32 = [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001,
           0x3F7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0x40490FDB, 0x33800000, 0x4B7FFFFF,
           0xCB800001]


def nasty32(count: int, seed: int) -> list[int]:
    """Random patterns, near each other in exponent half of the time, among all the edges."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**32, count, dtype=np.uint64)
    near = random.integers(0x3E000000, 0x41000000, count, dtype=np.uint64)
    near |= random.integers(0, 2, count, dtype=np.uint64) << np.uint64(31)
    return EDGES32 + np.where(random.random(count) < 0.5, values, near).tolist()


def as_f32(values) -> np.ndarray:
    return np.array(values, np.uint32).view(np.float32)


def same(format_, left: int, right: int) -> bool:
    return left == right or (format_.is_nan(left) and format_.is_nan(right))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_f32_operations_round_as_the_processor_does(name):
    a, b = nasty32(2000, 1), nasty32(2000, 2)[::-1]
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(as_f32(a), as_f32(b)).view(np.uint32).tolist()
    operation = floating.arithmetic("f32", getattr(floating, name))
    for x, y, wanted in zip(a, b, expected, strict=True):
        assert same(F32, operation(x, y), wanted), (hex(x), hex(y))


def test_f32_square_root_rounds_as_the_processor_does():
    values = nasty32(2000, 3)
    with np.errstate(all="ignore"):
        expected = np.sqrt(as_f32(values)).view(np.uint32).tolist()
    operation = floating.arithmetic("f32", floating.square_root)
    assert all(same(F32, operation(x), wanted) for x, wanted in zip(values, expected, strict=True))


def test_f64_operations_round_as_the_processor_does():
    random = np.random.default_rng(4)
    a, b = (random.integers(0, 2**64, 1000, dtype=np.uint64) for _ in range(2))
    b[::2] = (b[::2] & np.uint64(0x800FFFFFFFFFFFFF)) | (a[::2] & np.uint64(0x7FF0000000000000))
    with np.errstate(all="ignore"):
        for name in ("add", "multiply", "divide"):
            expected = getattr(np, name)(a.view(np.float64), b.view(np.float64)).view(np.uint64).tolist()
            operation = floating.arithmetic("f64", getattr(floating, name))
            assert all(same(F64, operation(x, y), z) for x, y, z in zip(a.tolist(), b.tolist(), expected, strict=True)), name


def exactly(bits: int) -> Fraction:
    number = decode(F32, bits)
    return Fraction(number.mantissa) * Fraction(2) ** number.exponent * (-1 if number.negative else 1)


def place_in_order(bits: int) -> int:
    """Neighbouring numbers have neighbouring places; both zeros have the same."""
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


def test_fma_and_all_rounding_modes_against_rational_arithmetic():
    values = [x for x in nasty32(600, 5) if not F32.is_nan(x) and x & 0x7FFFFFFF != 0x7F800000]
    neighbours = list(zip(values, values[1:], values[2:], strict=False))
    operation = {mode: floating.arithmetic("f32", floating.fused_multiply_add, rnd=mode) for mode in ("rn", "rz", "rm", "rp")}
    for a, b, c in neighbours:
        true = exactly(a) * exactly(b) + exactly(c)
        down, up = operation["rm"](a, b, c), operation["rp"](a, b, c)
        if down & 0x7FFFFFFF == 0x7F800000 or up & 0x7FFFFFFF == 0x7F800000:
            continue
        low, high = exactly(down), exactly(up)
        assert low <= true <= high
        assert low == high == true or place_in_order(up) - place_in_order(down) == 1
        assert exactly(operation["rz"](a, b, c)) == (low if true >= 0 else high)
        nearest = exactly(operation["rn"](a, b, c))
        assert abs(nearest - true) == min(true - low, high - true)
        if true - low == high - true and low != high:
            assert operation["rn"](a, b, c) & 1 == 0


def test_an_exact_sum_of_opposites_is_minus_zero_only_when_rounding_down():
    one, minus_one = 0x3F800000, 0xBF800000
    for mode, wanted in (("rn", 0), ("rz", 0), ("rp", 0), ("rm", 0x80000000)):
        assert floating.arithmetic("f32", floating.add, rnd=mode)(one, minus_one) == wanted
    assert floating.arithmetic("f32", floating.add)(0x80000000, 0x80000000) == 0x80000000
    assert floating.arithmetic("f32", floating.add)(0, 0x80000000) == 0


def test_overflow_follows_the_rounding_mode():
    largest, infinity = 0x7F7FFFFF, 0x7F800000
    for mode, wanted in (("rn", infinity), ("rz", largest), ("rm", largest), ("rp", infinity)):
        assert floating.arithmetic("f32", floating.add, rnd=mode)(largest, largest) == wanted
        negative = {"rm": "rp", "rp": "rm"}.get(mode, mode)
        assert floating.arithmetic("f32", floating.add, rnd=negative)(largest | 1 << 31, largest | 1 << 31) == wanted | 1 << 31


def test_flush_and_saturate():
    subnormal, tiny = 0x80000001, 0x00800000
    assert floating.arithmetic("f32", floating.add, ftz=True)(subnormal, 0x80000000) == 0x80000000
    assert floating.arithmetic("f32", floating.multiply, ftz=True)(tiny, 0x3F000000) == 0
    assert floating.arithmetic("f32", floating.multiply)(tiny, 0x3F000000) == 0x00400000
    clamp = floating.arithmetic("f32", floating.add, sat=True)
    assert [clamp(x, 0) for x in (0x40000000, 0xBF800000, 0x7FC00000, 0x3F000000, 0x80000000)] == [0x3F800000, 0, 0, 0x3F000000, 0]


def test_canonical_nans():
    assert floating.arithmetic("f32", floating.add)(0x7FC01234, 0) == 0x7FFFFFFF
    assert floating.arithmetic("f32", floating.multiply)(0x7F800000, 0) == 0x7FFFFFFF
    assert floating.arithmetic("f16x2", floating.add)(0x7E007E00, 0) == 0x7FFF7FFF
    assert floating.arithmetic("bf16", floating.add)(0x7FC0, 0) == 0x7FFF


# ── conversions ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_f16_and_bf16_from_f32_as_torch():
    values = [*nasty32(4000, 6), 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x38FFFFFF, 0x3F808000, 0x3F818000, 0x3F808001]
    source = torch.tensor(as_f32(values))
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        expected = source.to(dtype).view(torch.int16).tolist()
        function = convert.convert(name, "f32", "rn")
        assert all(same(FORMATS[name], function(x), wanted & 0xFFFF) for x, wanted in zip(values, expected, strict=True)), name


def test_every_f16_and_bf16_to_f32_as_torch():
    patterns = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        expected = patterns.view(dtype).float().view(torch.int32).tolist()
        function = convert.convert("f32", name)
        for x, wanted in zip(patterns.tolist(), expected, strict=True):
            assert same(F32, function(x & 0xFFFF), wanted & 0xFFFFFFFF), hex(x)


@pytest.mark.parametrize(("name", "dtype", "largest"), [("e4m3", torch.float8_e4m3fn, 448.0), ("e5m2", torch.float8_e5m2, 57344.0)])
def test_every_bf16_to_fp8_as_torch(name, dtype, largest):
    """torch's cast has no saturation; `.satfinite` clamps first, infinity too, and leaves NaN."""
    patterns = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    values = patterns.view(torch.bfloat16).float()
    expected = values.clamp(-largest, largest).to(dtype).view(torch.uint8).tolist()
    format_ = FORMATS[name]
    for x, value, wanted in zip(patterns.tolist(), values.tolist(), expected, strict=True):
        result = encode(format_, decode(BF16, x & 0xFFFF), "rn", satfinite=True)
        if value != value:
            assert result == 0x7F
        else:
            assert result == wanted, (hex(x), value)


@pytest.mark.parametrize(("name", "dtype"), [("e4m3x2", torch.float8_e4m3fn), ("e5m2x2", torch.float8_e5m2)])
def test_every_fp8_to_f16_as_torch(name, dtype):
    expected = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype).to(torch.float16).view(torch.int16).tolist()
    function = convert.convert("f16x2", name, "rn")
    for x, wanted in enumerate(expected):
        both = function(x << 8 | 0x38)
        assert same(F16, both >> 16, wanted & 0xFFFF)


def test_packed_destinations_take_a_above_b():
    one, two = 0x3F800000, 0x40000000
    assert convert.convert("f16x2", "f32", "rn")(one, two) == 0x3C004000
    assert convert.convert("bf16x2", "f32", "rn")(one, two) == 0x3F804000
    assert convert.convert("e4m3x2", "f32", "rn", satfinite=True)(one, two) == 0x3840
    assert convert.convert("e4m3x2", "bf16x2", "rn", satfinite=True)(0x3F804000) == 0x3840


def test_e4m3_saturates_at_448_and_has_one_nan():
    to = convert.convert_one("e4m3", "f32", "rn", satfinite=True)
    assert to(0x43E00000) == 0x7E  # 448
    assert to(0x43E80000) == 0x7E  # 464, half way to a 480 that is not there
    assert to(0xFF800000) == 0xFE
    assert to(0x7FC00000) == 0x7F
    assert to(0x3A800000) == 0x00 and to(0x3A800001) == 0x01  # 2^-10 ties to zero, a little more does not
    assert convert.convert_one("e4m3", "f32", "rn", satfinite=True, relu=True)(0xC0000000) == 0


def test_tf32_keeps_19_bits_in_the_upper_part_and_rounds_ties_away():
    to = convert.convert("tf32", "f32", "rna")
    assert to(0x3F801000) == 0x3F802000
    assert convert.convert("tf32", "f32", "rn")(0x3F801000) == 0x3F800000
    assert to(0xBF801000) == 0xBF802000
    assert decode(TF32, 0x3F802000 >> 13).mantissa == 0x401


@pytest.mark.parametrize(("mode", "wanted"), [("rni", [2, 2, -2, 0, -1, 3]), ("rzi", [2, 1, -1, 0, 0, 2]), ("rmi", [2, 1, -2, 0, -1, 2]),
                                              ("rpi", [3, 2, -1, 1, 0, 3])])
def test_integer_rounding_modes(mode, wanted):
    values = np.array([2.5, 1.5, -1.5, 0.25, -0.75, 2.75], np.float32)
    results = [convert.convert("s32", "f32", mode)(bits) for bits in values.view(np.uint32).tolist()]
    assert np.array(results, np.uint32).view(np.int32).tolist() == wanted


def test_float_to_integer_clamps_and_maps_nan():
    to = {name: convert.convert(name, "f32", "rzi") for name in ("s32", "u32", "s8", "u8", "s64", "u64", "u16")}
    big, small, nan = 0x7F000000, 0xFF000000, 0x7FC00000
    assert [to[n](big) for n in to] == [0x7FFFFFFF, 0xFFFFFFFF, 0x7F, 0xFF, 2**63 - 1, 2**64 - 1, 0xFFFF]
    assert [to[n](small) for n in to] == [0x80000000, 0, 0x80, 0, 2**63, 0, 0]
    assert [to[n](nan) for n in to] == [0, 0, 0, 0, 2**63, 2**63, 0]
    assert convert.convert("s32", "f64", "rzi")(0x7FF8000000000000) == 0x80000000


def test_rounding_to_an_integral_float_keeps_the_sign_of_zero():
    function = convert.convert("f32", "f32", "rni")
    assert function(0xBE800000) == 0x80000000  # -0.25
    assert function(0x40200000) == 0x40000000  # 2.5
    assert convert.convert("f32", "f32", "rpi")(0xBF400000) == 0x80000000  # -0.75


@pytest.mark.parametrize("type_", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_to_f32_as_numpy(type_):
    dtype = np.dtype({"u": "uint", "s": "int"}[type_[0]] + type_[1:])
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, info.max // 2 + 1, 0, 1, info.max - 1, info.max // 3], dtype)
    function = convert.convert("f32", type_, "rn")
    wanted = values.astype(np.float32).view(np.uint32).tolist()
    assert [function(int(x) & 2 ** int(type_[1:]) - 1) for x in values] == wanted


def test_e8m0_scales_are_powers_of_two():
    down, up = convert.convert_one("ue8m0", "f32", "rz"), convert.convert_one("ue8m0", "f32", "rp")
    assert (down(0x3F800000), up(0x3F800000)) == (127, 127)
    assert (down(0x3FC00000), up(0x3FC00000)) == (127, 128)
    assert (down(0x7FC00000), up(0)) == (255, 0)
    assert convert.convert_one("bf16", "ue8m0", "rn")(128) == 0x4000


def test_stochastic_rounding_carries_the_random_bits():
    function = convert.stochastic("bf16x2", relu=False, satfinite=False)
    value = 0x3F804000  # a quarter of the way from 1 to the next bf16
    assert function(value, value, 0xBFFF_C000) == 0x3F80_3F81


def test_pack_clamps_each_part():
    assert convert.pack("s16")(0x00012345, 0xFFFF0000) == 0x7FFF8000
    assert convert.pack("u8")(300, 0xFFFFFFFF, 0xABCD1234) == 0x1234FF00


# ── minimum, maximum, comparison ─────────────────────────────────────────────────────────────────────────────────


def test_minimum_and_maximum_of_nans_and_zeros():
    nan, one, minus_zero = 0x7FC00001, 0x3F800000, 0x80000000
    least, greatest = floating.extreme("f32", False), floating.extreme("f32", True)
    assert least(nan, one) == least(one, nan) == one
    assert least(nan, nan) == 0x7FFFFFFF
    assert floating.extreme("f32", False, nan=True)(nan, one) == 0x7FFFFFFF
    assert (least(0, minus_zero), least(minus_zero, 0)) == (minus_zero, minus_zero)
    assert (greatest(0, minus_zero), greatest(minus_zero, 0)) == (0, 0)
    assert floating.extreme("f32", True, xorsign=True, absolute_=True)(0xC0000000, one) == 0xC0000000
    assert floating.extreme("f32", True)(one, 0x40000000, 0x40400000) == 0x40400000


def test_comparisons_of_nans():
    nan, one = 0x7FC00000, 0x3F800000
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        assert floating.comparison("f32", op)(nan, one) == 0
        assert floating.comparison("f32", op + "u")(nan, one) == 1
    assert floating.comparison("f32", "num")(one, one) == 1 == floating.comparison("f32", "nan")(nan, one)
    assert floating.comparison("f32", "eq")(0, 0x80000000) == 1
    assert floating.comparison("f32", "lt", ftz=True)(0, 1) == 0


def test_approximations_at_their_corner_cases():
    """The tables of PTX ISA 9.7.3."""
    inf, minus_inf, minus_zero, nan, one = 0x7F800000, 0xFF800000, 0x80000000, 0x7FFFFFFF, 0x3F800000
    corner = [minus_inf, minus_zero, 0, inf, 0x7FC00000]
    wanted = {
        "rcp": [minus_zero, minus_inf, inf, 0, nan], "sqrt": [nan, minus_zero, 0, inf, nan], "rsqrt": [nan, minus_inf, inf, 0, nan],
        "sin": [nan, minus_zero, 0, nan, nan], "cos": [nan, one, one, nan, nan], "lg2": [nan, minus_inf, minus_inf, inf, nan],
        "ex2": [0, one, one, inf, nan], "tanh": [0xBF800000, minus_zero, 0, one, nan],
    }
    for opcode, results in wanted.items():
        assert [floating.approximate(opcode, "f32")(x) for x in corner] == results, opcode
    for opcode in ("sqrt", "rsqrt", "lg2"):
        assert floating.approximate(opcode, "f32")(0xBF800000) == nan


def test_approximate_division_loses_large_divisors():
    divide = floating.divide_approximate()
    assert divide(0x3F800000, 0x7E800001) == 0  # just above 2^126
    assert divide(0x7F800000, 0x7E800001) == 0x7FFFFFFF
    assert divide(0x3F800000, 0x7E800000) == 0x00800000


def test_formats_know_their_limits():
    assert floats.to_float(decode(E4M3, E4M3.largest)) == 448 and floats.to_float(decode(E5M2, E5M2.largest)) == 57344
    assert floats.to_float(decode(FORMATS["e2m1"], 7)) == 6 and floats.to_float(decode(FORMATS["e2m3"], 31)) == 7.5
    assert floats.to_float(decode(FORMATS["e3m2"], 31)) == 28
