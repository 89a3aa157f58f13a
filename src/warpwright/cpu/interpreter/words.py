"""Bit patterns as Python integers: types' widths, signs, and packing of several values in one word."""

from __future__ import annotations

from warpwright.ptx.isa.table import TYPE_BITS


def width(type_: str) -> int:
    """Bits of a type; a packed type counts whole."""
    return TYPE_BITS[type_]


def mask(bits: int) -> int:
    return (1 << bits) - 1


def is_signed(type_: str) -> bool:
    return type_ in ("s8", "s16", "s32", "s64", "s16x2")


def signed(value: int, bits: int) -> int:
    """The two's complement reading of a bit pattern."""
    return value - (1 << bits) if value >> (bits - 1) else value


def read(value: int, type_: str) -> int:
    """A bit pattern as the integer that a type says it is."""
    return signed(value, width(type_)) if is_signed(type_) else value


def clamp(value: int, type_: str) -> int:
    """An integer held to a type's range, as a bit pattern."""
    bits = width(type_)
    low, high = (-(1 << (bits - 1)), mask(bits - 1)) if is_signed(type_) else (0, mask(bits))
    return max(low, min(high, value)) & mask(bits)


def split(value: int, bits: int, count: int) -> tuple[int, ...]:
    """A word's parts, lowest first."""
    return tuple(value >> (i * bits) & mask(bits) for i in range(count))


def join(parts: tuple[int, ...] | list[int], bits: int) -> int:
    """The word whose parts, lowest first, are these."""
    return sum((part & mask(bits)) << (i * bits) for i, part in enumerate(parts))


def lanes(type_: str) -> tuple[str, int]:
    """A type as (element type, count): ("f16", 2) for f16x2, (type, 1) for a plain one."""
    element, x, count = type_.rpartition("x")
    return (element, int(count)) if x and count.isdigit() else (type_, 1)


def elementwise(operation, bits: int, count: int):
    """A function on packed words out of a function on their elements."""
    if count == 1:
        return operation

    def packed(*words: int) -> int:
        return join([operation(*parts) for parts in zip(*(split(word, bits, count) for word in words), strict=True)], bits)

    return packed
