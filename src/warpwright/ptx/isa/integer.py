"""Integers only: sums of absolute differences, dot products, counting and moving bits, logic, shifts.

Slots: T the type; mode (clamp/wrap of shf, bmsk, szext; lo/hi of dp2a; f4e … of prmt); dir (l/r of shf); bool (and/or of lop3);
A and B the types of dp4a's and dp2a's operands; shiftamt (a flag of bfind).
Operands: d, a, b, c; pos and len of bfe and bfi; lut of lop3 (its p and q are the predicates of the .and/.or form).
"""

from warpwright.ptx.isa.arithmetic import BINARY, INTEGERS, TERNARY, UNARY
from warpwright.ptx.isa.table import TYPE_FUNCTIONS, Match, declare
from warpwright.ptx.tree import Integer


def _check_field(match: Match) -> str | None:
    for value in match.values:
        if value.name in ("pos", "len") and isinstance(value.operand, Integer) and not 0 <= value.operand.value <= 255:
            return f"{value.name} is 0 to 255, not {value.operand.value}"
    return None


TYPE_FUNCTIONS["dot"] = lambda slots, argument: (None, "u32" if slots["A"] == slots["B"] == "u32" else "s32")

declare("sad", "d = c + |a - b|", (f"T:{{{INTEGERS}}}", TERNARY))
declare("dp4a", "d = c + the dot product of four bytes each of a and b",
        ("A:{u32|s32} B:{u32|s32}", "=d:dot(A), a:A, b:B, c:dot(A)", "@sm_61@ptx5.0"))
declare("dp2a", "d = c + the dot product of a's two halves with two bytes of b, the low or the high ones",
        ("mode:{lo|hi} A:{u32|s32} B:{u32|s32}", "=d:dot(A), a:A, b:B, c:dot(A)", "@sm_61@ptx5.0"))

declare("popc", "d = the number of ones in a", ("T:{b32|b64}", "=d:u32, a:T"))
declare("clz", "d = the number of leading zeros of a", ("T:{b32|b64}", "=d:u32, a:T"))
declare("bfind", "d = the position of a's leading one (of the leading bit unlike the sign, for s32 and s64); all ones where there is none",
        ("shiftamt? T:{u32|u64|s32|s64}", "=d:u32, a:T"))
declare("fns", "d = the position of the n-th set bit of a from bit b on; all ones where there is none",
        ("T:{b32}", "=d:T, a:T, b:T, c:s32", "@sm_30@ptx6.0"))
declare("brev", "d = a's bits in reverse order", ("T:{b32|b64}", UNARY))
declare("bfe", "d = the field of a of len bits from bit pos on, extended with zeros or by its sign",
        ("T:{u32|u64|s32|s64}", "=d:T, a:T, pos:u32, len:u32", "", "", _check_field))
declare("bfi", "d = b with the field of len bits from bit pos on replaced by a's low bits",
        ("T:{b32|b64}", "=d:T, a:T, b:T, pos:u32, len:u32", "", "", _check_field))
declare("bmsk", "d = a mask of b ones from bit a on", ("mode:{clamp|wrap} T:{b32}", "=d:u32, a:u32, b:u32", "@sm_70@ptx7.6"))
declare("szext", "d = the low b bits of a, extended", ("mode:{clamp|wrap} T:{u32|s32}", "=d:T, a:T, b:u32", "@sm_70@ptx7.6"))

for _opcode, _meaning in (("and", "d = a & b"), ("or", "d = a | b"), ("xor", "d = a ^ b")):
    declare(_opcode, _meaning, ("T:{pred|b16|b32|b64}", BINARY))
declare("not", "d = ~a", ("T:{pred|b16|b32|b64}", UNARY))
declare("cnot", "d = (a == 0) ? 1 : 0", ("T:{b16|b32|b64}", UNARY))
declare(
    "lop3", "d = the function of the bits of a, b and c whose truth table is lut; p = (d != 0) and/or q",
    ("T:{b32}", "=d:T, a:T, b:T, c:T, lut:imm", "@sm_50@ptx4.3"),
    ("bool:{and|or} T:{b32}", "=d|p:T|pred, a:T, b:T, c:T, lut:imm, q:pred", "@sm_70@ptx8.2"),
)
declare("shl", "d = a << b; 0 where b is the width or more", ("T:{b16|b32|b64}", "=d:T, a:T, b:u32"))
declare("shr", "d = a >> b, filled with the sign for s types; b is clamped to the width",
        (f"T:{{b16|b32|b64|{INTEGERS}}}", "=d:T, a:T, b:u32"))
declare("shf", "d = the high word of b:a << c (l), or the low word of b:a >> c (r); c is taken mod 32 (wrap) or at most 32 (clamp)",
        ("dir:{l|r} mode:{clamp|wrap} T:{b32}", "=d:T, a:T, b:T, c:u32", "@sm_32@ptx3.1"))
declare("prmt", "d = four bytes chosen from b:a by c's nibbles (bit 3 of one repeats the byte's sign), or by the mode",
        ("T:{b32} mode:{f4e|b4e|rc8|ecl|ecr|rc16}?", "=d:T, a:T, b:T, c:T"))
