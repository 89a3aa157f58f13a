"""Comparison and selection (PTX ISA 9.7.6, 9.7.7), logic and shifts (9.7.8), prmt."""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.interpreter import floating
from warpwright.cpu.interpreter.floats import F32, FORMATS
from warpwright.cpu.interpreter.words import is_signed, join, lanes, mask, read, signed, split, width

_INTEGER_COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}
BOOLEAN: dict[str, Callable[[int, int], int]] = {"and": lambda t, c: t & c, "or": lambda t, c: t | c, "xor": lambda t, c: t ^ c}


def comparison(type_: str, op: str, ftz: bool = False):
    """a op b as 0 or 1, of one element of any type. lo, ls, hi and hs compare as unsigned."""
    if type_ in FORMATS:
        return floating.comparison(type_, op, ftz)
    compare = _INTEGER_COMPARISONS[op]
    if op in ("lo", "ls", "hi", "hs"):
        return lambda a, b: int(compare(a, b))
    return lambda a, b: int(compare(read(a, type_), read(b, type_)))


def set_predicates(type_: str, op: str, bool_: str | None, ftz: bool, second: bool):
    """setp: p, or (p, q). q is the complement's for scalars, the upper half's for f16x2 and bf16x2."""
    element, count = lanes(type_)
    compare = comparison(element, op, ftz)
    combine = BOOLEAN[bool_] if bool_ else (lambda t, c: t)

    def predicates(a: int, b: int, c: int = 0):
        if count == 2:
            bits = width(element)
            results = [compare(x, y) for x, y in zip(split(a, bits, 2), split(b, bits, 2), strict=True)]
        else:
            t = compare(a, b)
            results = [t, 1 - t]
        p, q = (combine(t, c) for t in results)
        return (p, q) if second else p

    return predicates


def set_value(destination: str, source: str, op: str, bool_: str | None, ftz: bool):
    """set: all ones, or 1.0 of a floating destination, where the comparison holds; 0 elsewhere."""
    element, count = lanes(source)
    compare = comparison(element, op, ftz)
    combine = BOOLEAN[bool_] if bool_ else (lambda t, c: t)
    to_element, _ = lanes(destination)
    bits = width(destination) // count
    true = floating.ONE[to_element] if to_element in FORMATS else mask(bits)

    def value(a: int, b: int, c: int = 0) -> int:
        parts = zip(split(a, width(element), count), split(b, width(element), count), strict=True)
        return join([true if combine(compare(x, y), c) else 0 for x, y in parts], bits)

    return value


def select_by_sign(compare_type: str, ftz: bool):
    """slct: a where c >= 0 (-0 counts as 0, NaN does not), else b."""
    if compare_type == "s32":
        return lambda a, b, c: a if signed(c, 32) >= 0 else b
    at_least = floating.comparison("f32", "ge", ftz)
    return lambda a, b, c: a if at_least(F32.flush(c) if ftz else c, 0) else b


# ── logic and shifts ─────────────────────────────────────────────────────────────────────────────────────────────


def complement(type_: str):
    bits = width(type_)
    return lambda a: ~a & mask(bits)


def logical3(lut: int):
    """lop3: bit (a·4 + b·2 + c) of the table, for each bit of the operands."""

    def look_up(a: int, b: int, c: int) -> int:
        result = 0
        for index in range(8):
            if lut >> index & 1:
                result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result & mask(32)

    return look_up


def shift_left(type_: str):
    bits = width(type_)
    return lambda a, b: a << min(b, bits) & mask(bits)


def shift_right(type_: str):
    """Signed types fill with the sign; amounts beyond the width count as the width."""
    bits = width(type_)
    if is_signed(type_):
        return lambda a, b: signed(a, bits) >> min(b, bits) & mask(bits)
    return lambda a, b: a >> min(b, bits)


def funnel_shift(left: bool, clamped: bool):
    def shift(a: int, b: int, c: int) -> int:
        amount = min(c, 32) if clamped else c & 31
        both = b << 32 | a
        return (both << amount >> 32 if left else both >> amount) & mask(32)

    return shift


# Source bytes (of d.b0, d.b1, d.b2, d.b3) by mode and selector c[1:0].
_PERMUTE_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def permute(mode: str | None):
    def pick(a: int, b: int, c: int) -> int:
        source = split(b << 32 | a, 8, 8)
        if mode:
            return join([source[index] for index in _PERMUTE_MODES[mode][c & 3]], 8)
        chosen = []
        for selector in split(c, 4, 4):
            byte = source[selector & 7]
            chosen.append((0xFF if byte & 0x80 else 0) if selector & 8 else byte)
        return join(chosen, 8)

    return pick
