"""The lane lattice: what is known of a register's 32 values.

A value that is not *varying* is a scalar, computed once for the warp, plus an offset known at compile time for each lane, plus, for each
of a few uniform registers, that register times a number known for each lane:

    value[lane] = base + offsets[lane] + Σ symbol · scaled[symbol][lane]          (modulo 2^bits of the register)

`base` is lane 0's value. Uniform values have offsets 0; `%tid.x` has offsets 0 … 31. The set is closed under additions and
multiplications by uniform values, and under bit operations where the base has zeros at the offsets' bits; `ones` tracks those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

LANES = 32
ZERO = (0,) * LANES
Offsets = tuple[int, ...]
# (register index, how it is widened: "z", "s" or "", and its width in bits)
Symbol = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Form:
    """offsets: empty for a varying value. ones: the bits that may be 1 in the base (in any lane's value for a varying one).

    constant: the base's value where it is known. origin: which variable or parameter a pointer comes from, ("param", i), ("global", name),
    ("shared",) or ("local",): a hint for range checks, never relied on.
    """

    offsets: Offsets
    ones: int
    scaled: tuple[tuple[Symbol, Offsets], ...] = ()
    constant: int | None = None
    origin: tuple | None = None

    @property
    def varying(self) -> bool:
        return not self.offsets

    @property
    def uniform(self) -> bool:
        return self.offsets == ZERO and not self.scaled

    @property
    def plain(self) -> bool:
        """Whether the lanes differ by compile-time constants only."""
        return bool(self.offsets) and not self.scaled


TOP = Form((), 0, origin=("nothing known yet",))  # what a register is before any of its definitions has been seen


def mask(width: int) -> int:
    return (1 << width) - 1


def varying(width: int, ones: int | None = None, origin=None) -> Form:
    return Form((), mask(width) if ones is None else ones, origin=origin)


def uniform(width: int, ones: int | None = None, origin=None) -> Form:
    return Form(ZERO, mask(width) if ones is None else ones, origin=origin)


def constant(value: int, width: int) -> Form:
    value &= mask(width)
    return Form(ZERO, value, constant=value)


def meet(a: Form, b: Form) -> Form:
    """What is true of both."""
    if a == b:
        return a
    origin = a.origin if a.origin == b.origin else None
    if a.offsets and a.offsets == b.offsets and a.scaled == b.scaled:
        return Form(a.offsets, a.ones | b.ones, a.scaled, a.constant if a.constant == b.constant else None, origin)
    return Form((), value_ones(a) | value_ones(b), origin=origin)


def value_ones(a: Form) -> int:
    """Bits that may be 1 in any lane's value, up to bit 63."""
    if not a.offsets or a.uniform:
        return a.ones
    if a.scaled or min(a.offsets) < 0:
        return mask(64)
    return _sum_ones(a.ones, _union(a.offsets))


def _sum_ones(a: int, b: int) -> int:
    """Bits that may be 1 in the sum of two values with these possible ones."""
    if not a & b:
        return a | b
    low = min(a & -a, b & -b)
    return mask((a + b).bit_length()) & ~(low - 1)


@lru_cache(maxsize=4096)
def _union(offsets: Offsets) -> int:
    found = 0
    for offset in offsets:
        found |= offset
    return found


@lru_cache(maxsize=4096)
def _wrap(offsets: Offsets, width: int) -> Offsets:
    half = 1 << width - 1
    return tuple((offset + half) % (1 << width) - half for offset in offsets)


@lru_cache(maxsize=4096)
def _added(a: Offsets, b: Offsets, width: int) -> Offsets:
    return a if b == ZERO else b if a == ZERO else _wrap(tuple(x + y for x, y in zip(a, b, strict=True)), width)


@lru_cache(maxsize=4096)
def _times(a: Offsets, factor: int, width: int) -> Offsets:
    return ZERO if a == ZERO else _wrap(tuple(x * factor for x in a), width)


def add(a: Form, b: Form, width: int) -> Form:
    origin = a.origin or b.origin
    ones = _sum_ones(a.ones, b.ones) & mask(width)
    if not a.offsets or not b.offsets:
        return Form((), _sum_ones(value_ones(a), value_ones(b)) & mask(width), origin=origin)
    known = None if a.constant is None or b.constant is None else (a.constant + b.constant) & mask(width)
    return Form(_added(a.offsets, b.offsets, width), ones if known is None else known, _add_scaled(a.scaled, b.scaled, width), known, origin)


def _add_scaled(a, b, width):
    if not a or not b:
        return a or b
    total = dict(a)
    for symbol, offsets in b:
        total[symbol] = _added(total.get(symbol, ZERO), offsets, width)
    return tuple(sorted((symbol, offsets) for symbol, offsets in total.items() if offsets != ZERO))


def negate(a: Form, width: int) -> Form:
    if not a.offsets:
        return varying(width, from_low(a.ones, width))
    known = None if a.constant is None else -a.constant & mask(width)
    return Form(_times(a.offsets, -1, width), from_low(a.ones, width) if known is None else known,
                tuple((symbol, _times(offsets, -1, width)) for symbol, offsets in a.scaled), known)


def from_low(ones: int, width: int) -> int:
    """Every bit from the lowest possible one up."""
    return mask(width) & ~((ones & -ones) - 1) if ones else 0


def scale(a: Form, factor: int, width: int) -> Form:
    """a times a known number."""
    factor &= mask(width)
    if factor == 0:
        return constant(0, width)
    if factor & factor - 1 == 0:
        ones = a.ones * factor & mask(width)
    else:
        low = (a.ones & -a.ones) * (factor & -factor)
        ones = mask((a.ones * factor).bit_length()) & ~(low - 1) & mask(width)
    if not a.offsets:
        return varying(width, ones, a.origin)
    known = None if a.constant is None else a.constant * factor & mask(width)
    return Form(_times(a.offsets, factor, width), ones if known is None else known,
                tuple((symbol, _times(offsets, factor, width)) for symbol, offsets in a.scaled), known)


def multiply(a: Form, b: Form, width: int, symbol_a: Symbol | None = None, symbol_b: Symbol | None = None) -> Form:
    """a·b. `symbol_a` names a where it is a uniform register that never changes (so that b's offsets scale by it)."""
    for x, y, symbol in ((a, b, symbol_b), (b, a, symbol_a)):
        if y.constant is not None and y.uniform:
            return scale(x, y.constant, width)
        if y.uniform and symbol is not None and x.plain and not x.uniform:
            low = ((x.ones & -x.ones) or 1) * ((y.ones & -y.ones) or 1)
            return Form(ZERO, mask(width) & ~(low - 1), ((symbol, x.offsets),))
    low = ((a.ones & -a.ones) or 1 << width) * ((b.ones & -b.ones) or 1 << width)
    if not a.offsets and not b.offsets:
        low = ((value_ones(a) & -value_ones(a)) or 1) * ((value_ones(b) & -value_ones(b)) or 1)
    if a.uniform and b.uniform:
        top = mask((a.ones * b.ones).bit_length())
        return uniform(width, mask(width) & top & ~(low - 1))
    low = ((value_ones(a) & -value_ones(a)) or 1) * ((value_ones(b) & -value_ones(b)) or 1)
    top = mask((value_ones(a) * value_ones(b)).bit_length())
    return varying(width, mask(width) & top & ~(low - 1))


def _apart(a: Form) -> bool:
    """Whether base | offset is base + offset in every lane: no offset is negative, and the base has zeros at the offsets' bits."""
    return a.plain and min(a.offsets) >= 0 and not a.ones & mask(_union(a.offsets).bit_length())


def no_wrap(a: Form, width: int, signed: bool) -> bool:
    """Whether base + offset, as integers, is every lane's value: what widening an affine value needs."""
    if not a.plain:
        return False
    if a.offsets == ZERO or (_apart(a) and not (signed and max(a.offsets) >> width - 1)):
        return True
    limit = width - 1 if signed else width
    if a.constant is not None:
        base = a.constant - (1 << width if signed and a.constant >> width - 1 else 0)
        return base + min(a.offsets) >= (-(1 << limit) if signed else 0) and base + max(a.offsets) < 1 << limit
    return min(a.offsets) >= 0 and a.ones + max(a.offsets) < 1 << limit


def widen(a: Form, narrow: int, wide: int, signed: bool) -> Form:
    ones = value_ones(a) & mask(narrow)
    if signed and ones >> narrow - 1:
        ones |= mask(wide) & ~mask(narrow)
    if not no_wrap(a, narrow, signed):
        return varying(wide, ones)
    base = a.ones
    if signed and base >> narrow - 1:
        base |= mask(wide) & ~mask(narrow)
    known = a.constant
    if known is not None and signed and known >> narrow - 1:
        known |= mask(wide) & ~mask(narrow)
    return Form(a.offsets, base if known is None else known, (), known)


def narrow(a: Form, width: int) -> Form:
    if not a.offsets or a.scaled:
        return varying(width, value_ones(a) & mask(width))
    known = None if a.constant is None else a.constant & mask(width)
    return Form(_wrap(a.offsets, width), a.ones & mask(width), (), known)


def shift_left(a: Form, amount: int, width: int) -> Form:
    return scale(a, 1 << amount, width) if amount < width else constant(0, width)


def shift_right(a: Form, amount: int, width: int, signed: bool) -> Form:
    top = mask(width) & ~mask(width - 1)
    if amount >= width:
        if not signed:
            return constant(0, width)
        amount = width - 1
    if not a.offsets or not (a.uniform or _apart(a)) or (signed and max(a.offsets) >> width - 1):
        ones = value_ones(a) & mask(width)
        return varying(width, _shifted(ones, amount, width, signed, top))
    ones = _shifted(a.ones, amount, width, signed, top)
    known = None
    if a.constant is not None:
        known = _shifted(a.constant, amount, width, signed, top)
    elif ones == 0:
        known = 0
    return Form(tuple(offset >> amount for offset in a.offsets), ones, (), known)


def _shifted(value: int, amount: int, width: int, signed: bool, top: int) -> int:
    result = value >> amount
    if signed and value & top:
        result |= mask(width) & ~mask(width - amount)
    return result


def logic(operation: str, a: Form, b: Form, width: int) -> Form:
    """and, or, xor."""
    both = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}[operation]
    possible = (lambda x, y: x & y) if operation == "and" else (lambda x, y: x | y)
    if a.constant is not None and b.constant is not None and a.uniform and b.uniform:
        return constant(both(a.constant, b.constant), width)
    if a.uniform and b.uniform:
        ones = possible(a.ones, b.ones)
        return Form(ZERO, ones, constant=0 if ones == 0 else None, origin=a.origin or b.origin)
    ones = possible(value_ones(a), value_ones(b)) & mask(width)
    if not (a.plain and b.plain):
        return varying(width, ones)
    if _apart(a) and _apart(b):
        low = mask(_union(a.offsets).bit_length()) | mask(_union(b.offsets).bit_length())
        if not (a.ones | b.ones) & low:
            offsets = tuple(both(x, y) for x, y in zip(a.offsets, b.offsets, strict=True))
            base = possible(a.ones, b.ones)
            return Form(offsets, base, (), 0 if base == 0 else None)
    for x, y in ((a, b), (b, a)):
        if y.uniform and y.constant is not None and _apart(x):
            low = mask(_union(x.offsets).bit_length())
            first = both(0, y.constant & low)
            offsets = tuple(both(offset, y.constant & low) - first for offset in x.offsets)
            return Form(offsets, possible(x.ones, y.constant) & mask(width), (), None)
    return varying(width, ones)
