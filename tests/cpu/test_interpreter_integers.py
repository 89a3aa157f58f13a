"""The interpreter's integer, logic and warp semantics: known values and the ISA's own examples."""

from types import SimpleNamespace

import numpy as np
import pytest

from warpwright.cpu.interpreter import integer, logic, matrix, warp

M32 = 2**32 - 1


def test_arithmetic_wraps_and_saturates():
    assert integer.add("u32")(M32, 1) == 0
    assert integer.add("s32", sat=True)(0x7FFFFFFF, 1) == 0x7FFFFFFF
    assert integer.subtract("s32", sat=True)(0x80000000, 1) == 0x80000000
    assert integer.add("u16x2")(0xFFFF_0001, 0x0001_FFFF) == 0
    assert integer.absolute("s32")(0x80000000) == 0x80000000
    assert integer.extreme("s16x2", min, relu=True)(0xFFFF_0003, 0x0005_0004) == 0x0000_0003


def test_products():
    assert integer.multiply("s32", "hi")(M32, M32) == 0
    assert integer.multiply("u32", "hi")(M32, M32) == M32 - 1
    assert integer.multiply("s32", "wide")(M32, 2) == 2**64 - 2
    assert integer.multiply("u64", "hi")(2**64 - 1, 2**64 - 1) == 2**64 - 2
    assert integer.multiply_add("s16", "wide")(0xFFFF, 3, 1) == M32 - 1
    assert integer.multiply24("s32", "lo")(0x00FFFFFF, 5) == M32 - 4
    assert integer.multiply24("u32", "hi")(0xFFFFFF, 0xFFFFFF) == (0xFFFFFF * 0xFFFFFF) >> 16 & M32
    assert integer.multiply_add("s32", "hi", sat=True)(0x40000000, 0x40000000, 0x7FFFFFFF) == 0x7FFFFFFF


def test_division_truncates_and_survives_zero():
    divide, rest = integer.divide("s32"), integer.remainder("s32")
    assert divide(-7 & M32, 2) == -3 & M32 and rest(-7 & M32, 2) == -1 & M32
    assert divide(7, -2 & M32) == -3 & M32 and rest(7, -2 & M32) == 1
    assert divide(0x80000000, M32) == 0x80000000 and rest(0x80000000, M32) == 0
    assert integer.divide("u32")(5, 0) == M32 and integer.remainder("u32")(5, 0) == 5


def test_carry_chain_adds_128_bits():
    a, b = 2**127 + 12345, 2**127 + 2**64 - 1
    words, carry = [], 0
    for shift in (0, 64):
        word, carry = integer.add_with_carry("u64")(a >> shift & 2**64 - 1, b >> shift & 2**64 - 1, carry)
        words.append(word)
    assert words[0] | words[1] << 64 | carry << 128 == a + b
    assert integer.subtract_with_carry("u32")(0, 0, 0) == (M32, 0)  # a borrow is the carry that is not there
    assert integer.subtract_with_carry("u32")(5, 2, 1) == (3, 1)


def test_bit_fields():
    extract = integer.bit_field_extract
    assert extract("u32")(0xABCD1234, 8, 8) == 0x12
    assert extract("s32")(0x0000F000, 12, 4) == M32
    assert extract("s32")(0x80000000, 31, 8) == M32  # beyond the top: filled with the sign
    assert extract("s32")(0x80000000, 40, 8) == M32
    assert extract("u32")(M32, 4, 0) == 0 == extract("s32")(M32, 4, 0)
    assert extract("u64")(2**64 - 1, 60, 255) == 15
    insert = integer.bit_field_insert("b32")
    assert insert(0xFF, 0, 28, 8) == 0xF0000000
    assert insert(0xFF, 0x12345678, 32, 8) == 0x12345678 == insert(0xFF, 0x12345678, 3, 0)
    assert integer.bit_mask(False)(1, 2) == 6  # bmsk.wrap.b32 rd, 1, 2
    assert integer.bit_mask(True)(32, 4) == 0 and integer.bit_mask(True)(4, 32) == 0xFFFFFFF0
    assert integer.extend("s32", False)(0xF8, 8) == 0xFFFFFFF8 and integer.extend("u32", False)(M32, 0) == 0
    assert integer.extend("s32", True)(0x1234, 32) == 0x1234


def test_bit_searches():
    assert integer.find_bit("u32", False)(0) == M32 == integer.find_bit("s32", False)(M32)
    assert integer.find_bit("s32", False)(0xFFFFFF00) == 7
    assert integer.find_bit("u32", True)(1) == 31
    assert [integer.find_nth_set(0xAAAAAAAA, base, offset & M32) for base, offset in ((3, 1), (3, -1), (2, 1), (2, -1))] == [3, 3, 3, 1]
    assert integer.reverse("b32")(1) == 0x80000000
    assert integer.count_leading_zeros("b64")(1) == 63 and integer.count_leading_zeros("b32")(0) == 32
    assert integer.count_ones("b64")(2**64 - 1) == 64


def test_dot_products():
    assert integer.dot_product("s32", "u32", 4)(0xFF01FF01, 0x02020202, 10) == 10
    assert integer.dot_product("u32", "u32", 4)(0xFF01FF01, 0x02020202, 10) == 10 + 1024
    assert integer.dot_product("s32", "s32", 2, high=True)(0xFFFF_0003, 0xFE05_0000, 1) == (1 + 3 * 5 + 2) & M32


def test_shifts_clamp():
    assert logic.shift_left("b32")(1, 32) == 0 == logic.shift_left("b16")(1, 16)
    assert logic.shift_right("s32")(0x80000000, 100) == M32
    assert logic.shift_right("u32")(0x80000000, 32) == 0
    assert logic.funnel_shift(True, True)(0x12345678, 0xABCDEF01, 33) == 0x12345678
    assert logic.funnel_shift(False, False)(0x12345678, 0xABCDEF01, 36) == 0x11234567


def test_lop3_follows_its_table():
    a, b, c = 0b1100_1010, 0b1010_0110, 0b0110_0011
    for table, function in ((0x80, a & b & c), (0xFE, a | b | c), (0x40, a & b & ~c), (0x1A, (a & b | c) ^ a), (0x96, a ^ b ^ c)):
        assert logic.logical3(table)(a, b, c) == function & M32


def test_prmt():
    a, b = 0x83828180, 0x07060504
    assert logic.permute(None)(a, b, 0x3210) == a
    assert logic.permute(None)(a, b, 0xF7B4) == 0x0007FF04  # 7 with its sign bit: not set; 3 with: set
    assert logic.permute("f4e")(a, b, 1) == 0x04838281
    assert logic.permute("b4e")(a, b, 1) == 0x06078081
    assert logic.permute("rc16")(a, b, 3) == 0x83828382


def test_set_and_select():
    assert logic.set_predicates("s32", "lt", "and", False, True)(M32, 0, 1) == (1, 0)
    assert logic.set_predicates("u32", "lt", None, False, False)(M32, 0) == 0
    assert logic.set_predicates("s32", "hi", None, False, False)(M32, 0) == 1
    assert logic.set_predicates("f16x2", "lt", None, False, True)(0x3C00_4000, 0x4000_3C00) == (0, 1)
    assert logic.set_value("f32", "s32", "eq", None, False)(1, 1) == 0x3F800000
    assert logic.set_value("u32", "f16x2", "eq", None, False)(0x3C00_3C00, 0x3C00_4000) == 0xFFFF0000
    assert logic.select_by_sign("f32", False)(1, 2, 0x80000000) == 1
    assert logic.select_by_sign("f32", False)(1, 2, 0x7FC00000) == 2


# ── across lanes ─────────────────────────────────────────────────────────────────────────────────────────────────


def lanes(*numbers: int):
    return [SimpleNamespace(lane=lane) for lane in numbers]


@pytest.mark.parametrize(("mode", "b", "c", "wanted"), [
    ("up", 1, 0, [0, 0, 1, 2]), ("down", 1, 31, [1, 2, 3, 4]), ("bfly", 1, 31, [1, 0, 3, 2]), ("idx", 5, 31, [5, 5, 5, 5]),
    ("idx", 5, 0x1C03, [1, 1, 1, 1]),  # segments of four lanes: lane 5 & 3 of the own segment
    ("down", 2, 0x1C03, [2, 3, 2, 3]),  # clamped at the segment's end
])
def test_shuffle_modes_and_clamps(mode, b, c, wanted):
    threads = lanes(*range(32))
    outputs = warp.shuffle(mode, False)(threads, [(thread.lane, b, c) for thread in threads])
    assert [output[0] for output in outputs[:4]] == wanted


def test_shuffle_up_says_whether_the_source_was_inside():
    threads = lanes(*range(32))
    outputs = warp.shuffle("up", True)(threads, [(thread.lane + 100, 2, 0) for thread in threads])
    assert outputs[:3] == [(100, 0), (101, 0), (100, 1)]


def test_votes_and_matches():
    threads = lanes(1, 3, 4)
    votes = [(1,), (0,), (1,)]
    assert [warp.vote(mode)(threads, votes)[0][0] for mode in ("all", "any", "uni", "ballot")] == [0, 1, 0, 0b10010]
    assert warp.match("any", False)(threads, [(7,), (8,), (7,)]) == [(0b10010,), (0b1000,), (0b10010,)]
    assert warp.match("all", True)(threads, [(7,)] * 3) == [(0b11010, 1)] * 3
    assert warp.redux("min", "s32")(threads, [(5,), (M32,), (9,)])[0] == (M32,)
    assert warp.redux("min", "u32")(threads, [(5,), (M32,), (9,)])[0] == (5,)
    assert warp.redux("add", "u32")(threads, [(M32,), (1,), (1,)])[0] == (1,)
    assert warp.elect(threads, [(), (), ()])[1] == (1, 0)


# ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fused_f32_step_of_mma_is_exact():
    """Against the exact fma, on values whose f64 sum is half way between two f32."""
    from warpwright.cpu.interpreter import floating

    random = np.random.default_rng(1)
    x, y, z = (random.integers(0x30000000, 0x50000000, 3000, dtype=np.uint32) for _ in range(3))
    x[:1000], y[:1000] = 0x3F800001, 0x3F7FFFFF
    z[1000:2000] = (z[1000:2000] & 0x007FFFFF) | 0x5A000000
    doubles = [values.view(np.float32).astype(np.float64) for values in (x, y, z)]
    result = matrix.fma_to_f32(*doubles).astype(np.float32).view(np.uint32).tolist()
    exact = floating.arithmetic("f32", floating.fused_multiply_add)
    assert result == [exact(*values) for values in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
