"""Integer arithmetic: PTX ISA 9.7.1 and the carry chains of 9.7.2. Everything is taken modulo the type's width unless it saturates."""

from __future__ import annotations

from warpwright.cpu.interpreter.words import clamp, elementwise, is_signed, lanes, mask, read, signed, split, width


def add(type_: str, sat: bool = False):
    element, count = lanes(type_)
    bits = width(element)
    if sat:
        return lambda a, b: clamp(read(a, type_) + read(b, type_), type_)
    return elementwise(lambda a, b: a + b & mask(bits), bits, count)


def subtract(type_: str, sat: bool = False):
    element, count = lanes(type_)
    bits = width(element)
    if sat:
        return lambda a, b: clamp(read(a, type_) - read(b, type_), type_)
    return elementwise(lambda a, b: a - b & mask(bits), bits, count)


def multiply(type_: str, mode: str):
    """mode lo, hi or wide: the low half of the product, its high half, or all of it."""
    bits = width(type_)

    def product(a: int, b: int) -> int:
        full = read(a, type_) * read(b, type_)
        if mode == "wide":
            return full & mask(2 * bits)
        return (full >> bits if mode == "hi" else full) & mask(bits)

    return product


def multiply_add(type_: str, mode: str, sat: bool = False):
    product, bits = multiply(type_, mode), width(type_)
    if sat:  # mad.hi.sat.s32
        return lambda a, b, c: clamp(read(product(a, b), type_) + read(c, type_), type_)
    return lambda a, b, c: product(a, b) + c & mask(2 * bits if mode == "wide" else bits)


def multiply24(type_: str, mode: str):
    """The 48-bit product of the low 24 bits of each operand; its bits 31…0 (lo) or 47…16 (hi)."""

    def product(a: int, b: int) -> int:
        a, b = a & mask(24), b & mask(24)
        full = signed(a, 24) * signed(b, 24) if is_signed(type_) else a * b
        return (full >> 16 if mode == "hi" else full) & mask(32)

    return product


def multiply_add24(type_: str, mode: str, sat: bool = False):
    product = multiply24(type_, mode)
    if sat:
        return lambda a, b, c: clamp(read(product(a, b), type_) + read(c, type_), type_)
    return lambda a, b, c: product(a, b) + c & mask(32)


def divide(type_: str):
    """Truncating division. The ISA leaves division by zero to the machine: all ones, as NVIDIA's parts give, for either sign."""
    bits = width(type_)

    def quotient(a: int, b: int) -> int:
        if b == 0:
            return mask(bits)
        a, b = read(a, type_), read(b, type_)
        magnitude = abs(a) // abs(b)
        return (magnitude if (a < 0) == (b < 0) else -magnitude) & mask(bits)

    return quotient


def remainder(type_: str):
    """a - b · (a div b), so of the sign of a; by zero it is a."""
    bits = width(type_)

    def rest(a: int, b: int) -> int:
        if b == 0:
            return a
        a, b = read(a, type_), read(b, type_)
        magnitude = abs(a) % abs(b)
        return (-magnitude if a < 0 else magnitude) & mask(bits)

    return rest


def absolute(type_: str):
    bits = width(type_)
    return lambda a: abs(signed(a, bits)) & mask(bits)


def negative(type_: str):
    bits = width(type_)
    return lambda a: -a & mask(bits)


def extreme(type_: str, choose, relu: bool = False):
    """`choose` is min or max; relu raises negative results to 0."""
    element, count = lanes(type_)
    bits = width(element)

    def pick(a: int, b: int) -> int:
        result = choose(read(a, element), read(b, element))
        return max(result, 0) & mask(bits) if relu else result & mask(bits)

    return elementwise(pick, bits, count)


def sum_of_absolute_difference(type_: str):
    bits = width(type_)
    return lambda a, b, c: c + abs(read(a, type_) - read(b, type_)) & mask(bits)


# ── bits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def bit_field_extract(type_: str):
    bits = width(type_)
    msb = bits - 1

    def extract(a: int, b: int, c: int) -> int:
        position, length = b & 0xFF, c & 0xFF
        sign = 0
        if is_signed(type_) and length:
            sign = a >> min(position + length - 1, msb) & 1
        held = max(0, min(length, bits - position))
        field = a >> position & mask(held)
        return (field | (mask(bits) << held if sign else 0)) & mask(bits)

    return extract


def bit_field_insert(type_: str):
    bits = width(type_)

    def insert(a: int, b: int, c: int, d: int) -> int:
        position, length = c & 0xFF, d & 0xFF
        field = mask(length) << position & mask(bits)
        return b & ~field | a << position & field

    return insert


def find_bit(type_: str, shift_amount: bool):
    bits = width(type_)

    def find(a: int) -> int:
        if is_signed(type_) and a >> (bits - 1):
            a = ~a & mask(bits)
        if a == 0:
            return 0xFFFFFFFF
        found = a.bit_length() - 1
        return bits - 1 - found if shift_amount else found

    return find


def find_nth_set(value: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if base < 32 and value >> base & 1 else 0xFFFFFFFF
    position, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= position < 32:
        if value >> position & 1:
            if count == 0:
                return position
            count -= 1
        position += step
    return 0xFFFFFFFF


def bit_mask(clamped: bool):
    def make(a: int, b: int) -> int:
        start, length = a & 31, b & 31
        low = mask(32) << start & mask(32)
        high = mask(32) << (start + length) & mask(32)
        if clamped and a >= 32:
            low = 0
        if start + length >= 32 or (clamped and (a >= 32 or b >= 32)):
            high = 0
        elif length == 0:
            high = mask(32)
        return low & ~high

    return make


def extend(type_: str, clamped: bool):
    def extended(a: int, b: int) -> int:
        length = b & 31
        if clamped and b >= 32:
            return a
        field = a & mask(length)
        if is_signed(type_) and length and a >> (length - 1) & 1:
            return field | mask(32) << length & mask(32)
        return field

    return extended


def dot_product(a_type: str, b_type: str, elements: int, high: bool = False):
    """dp4a (4 elements) and dp2a (2: 16-bit parts of a with the low or high two bytes of b)."""

    def dot(a: int, b: int, c: int) -> int:
        a_bits = 32 // elements
        left, right = split(a, a_bits, elements), split(b, 8, 4)
        if elements == 2:
            right = right[2:] if high else right[:2]
        total = c
        for x, y in zip(left, right, strict=True):
            total += (signed(x, a_bits) if is_signed(a_type) else x) * (signed(y, 8) if is_signed(b_type) else y)
        return total & mask(32)

    return dot


def reverse(type_: str):
    bits = width(type_)
    return lambda a: int(f"{a:0{bits}b}"[::-1], 2)


def count_leading_zeros(type_: str):
    bits = width(type_)
    return lambda a: bits - a.bit_length()


def count_ones(type_: str):
    return lambda a: a.bit_count()


# ── carry chains ─────────────────────────────────────────────────────────────────────────────────────────────────
# Each takes the carry flag after its operands and returns (result, carry out). A subtraction is a + ~b + carry, as ptxas compiles it: its
# carry is set where nothing was borrowed. Chains of one kind cannot tell; NVIDIA's 128-bit division reads a subtraction's carry with addc.


def add_with_carry(type_: str):
    bits = width(type_)

    def total(a: int, b: int, carry: int) -> tuple[int, int]:
        full = a + b + carry
        return full & mask(bits), full >> bits

    return total


def subtract_with_carry(type_: str):
    bits = width(type_)

    def difference(a: int, b: int, carry: int) -> tuple[int, int]:
        full = a - b - 1 + carry
        return full & mask(bits), int(full >= 0)

    return difference


def multiply_add_with_carry(type_: str, mode: str):
    product, bits = multiply(type_, mode), width(type_)

    def total(a: int, b: int, c: int, carry: int) -> tuple[int, int]:
        full = product(a, b) + c + carry
        return full & mask(bits), full >> bits

    return total
