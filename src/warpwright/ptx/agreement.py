"""Which registers go with which instruction types, as ptxas has it.

Sizes are equal (in ld, st and cvt a register may be wider); untyped bits go with anything of their size; signed and unsigned integers go
with each other; floats go with themselves and with untyped bits; types without registers of their own (bf16, tf32, fp8 …) live in untyped
ones.
"""

from __future__ import annotations

from functools import cache

from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS as BITS
from warpwright.ptx.isa.table import Match, Value

REGISTER_TYPES = {
    "pred", "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f16x2", "f32", "f64",
}
OPAQUE_TYPES = {"texref", "samplerref", "surfref"}
VARIABLE_TYPES = (REGISTER_TYPES - {"pred"}) | OPAQUE_TYPES
# Types held in untyped registers only.
_ONLY_BITS = {"bf16", "bf16x2", "u16x2", "s16x2", "tf32", "f32x2", "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "ue8m0x2", "e2m1x2", "e2m3x2",
              "e3m2x2", "e2m1x4", "e2m3x4", "e3m2x4", "u8x4", "s8x4", "s2f6x2", "ue5m3x2"}


@cache
def class_of(type_: str) -> str:
    """b(its), i(nteger), f(loat) or p(redicate)."""
    if type_ == "pred":
        return "p"
    return {"b": "b", "u": "i", "s": "i"}.get(type_[0], "f") if not type_.startswith("bf") else "f"


@cache
def agrees(register: str, type_: str, relaxed: bool = False, loose_float: bool = False, packed_integer: bool = False) -> bool:
    """Whether a register of one type may hold an operand of an instruction's type.

    relaxed: the register may be wider. loose_float: vectors of ld, whose floats go with integers.
    packed_integer: f16x2 goes with 32-bit integers.
    """
    if type_ == "pred" or register == "pred":
        return type_ == register
    size, wanted = BITS[register], BITS[type_]
    if size != wanted and not (relaxed and size > wanted):
        return False
    have, want = class_of(register), class_of(type_)
    if type_ in _ONLY_BITS:
        return have == "b" and size == wanted
    if want == "b":
        return True
    if want == "i":
        return have in "bi" or (packed_integer and register == "f16x2")
    if have == "b":
        return True
    return (register == type_ and size == wanted) or (loose_float and have == "i")


def takes(type_: str, relaxed: bool = False) -> str:
    """The register types that an operand type goes with, for a message."""
    wider = " (or wider)" if relaxed else ""
    if type_ == "pred":
        return ".pred"
    bits = BITS[type_]
    if type_ in _ONLY_BITS:
        return f".b{bits}"
    if class_of(type_) == "b":
        return f"any type of {bits} bits{wider}"
    if class_of(type_) == "i":
        return f".b{bits}, .u{bits} or .s{bits}{wider}"
    return f".b{bits} or .{type_}"


def size_of(variable: tree.Variable) -> int | None:
    """A variable's bytes; None where a dimension is open."""
    if variable.type in OPAQUE_TYPES:
        return 8
    total = BITS[variable.type] // 8 * (variable.vector or 1)
    for length in variable.dimensions:
        if length is None:
            return None
        total *= length
    return total


def alignment(variable: tree.Variable) -> int:
    """A variable's alignment in bytes: as declared, or that of its type."""
    return variable.align or BITS.get(variable.type, 64) // 8 * (variable.vector or 1)


def stored_type(value: Value, match_: Match) -> str:
    """The type that a register must agree with; of a packed mma fragment, the element type's packing."""
    kind = value.spec.kind
    if kind.startswith(("fragment(", "wmma_fragment(", "wgmma_fragment(")) and value.type == "b32":
        element = match_.slots.get(kind[kind.index("(") + 1 : -1]) or "f16"
        return {"f16": "f16x2", "bf16": "bf16x2", "tf32": "tf32"}.get(element, "b32")
    assert value.type is not None
    return value.type
