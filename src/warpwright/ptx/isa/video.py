"""Video instructions: on one, two or four parts of a word, with a second operation on the result.

Slots: D, A, B (and C) the types; sat; op2 the second operation; mode and scale of shifts and vmad; cmp of vset; merge (op2 absent: the
selected part of d, the rest from c). Operands: d, a, b, c; each may be a `tree.Component` that selects bytes (`.b0`) or halves (`.h1`), and
vmad's a, b and c may be `tree.Negative`.

`parts(match)` takes the operands' selectors and signs apart from their registers, for those who run the instruction."""

from dataclasses import dataclass

from warpwright.ptx import tree
from warpwright.ptx.isa.table import Match, declare

OPCODES = frozenset({"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset",
                     *(f"{opcode}{parts}" for parts in (2, 4) for opcode in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"))})

TYPES = "D:{u32|s32} A:{u32|s32} B:{u32|s32}"
OP2 = "op2:{add|min|max}"
TWO = "=d:D, a:A, b:B"
THREE = "=d:D, a:A, b:B, c:D"
SET_TWO = "=d:u32, a:A, b:B"
SET_THREE = "=d:u32, a:A, b:B, c:u32"
# Of those on two or four parts: no constants, as each operand selects parts of a register.
PARTS = "=d:D, a!:A, b!:B, c!:D"
SET_PARTS = "=d:u32, a!:A, b!:B, c!:u32"

for _opcode, _meaning in (("vadd", "a + b"), ("vsub", "a - b"), ("vabsdiff", "|a - b|"), ("vmin", "min(a, b)"), ("vmax", "max(a, b)")):
    declare(_opcode, f"d = {_meaning} of selected parts, then op2 with c, or merged into c",
            (f"{TYPES} sat?", TWO), (f"{TYPES} sat? {OP2}?", THREE))
for _opcode, _meaning in (("vshl", "a << b"), ("vshr", "a >> b")):
    declare(_opcode, f"d = {_meaning} of selected parts, then op2 with c, or merged into c",
            ("D:{u32|s32} A:{u32|s32} B:{u32} sat? mode:{clamp|wrap}", TWO),
            (f"D:{{u32|s32}} A:{{u32|s32}} B:{{u32}} sat? mode:{{clamp|wrap}} {OP2}?", THREE))
declare("vmad", "d = (a · b + c) >> scale", (f"{TYPES} po? sat? scale:{{shr7|shr15}}?", THREE))
declare("vset", "d = (a cmp b) ? 1 : 0 of selected parts, then op2 with c, or merged into c",
        ("A:{u32|s32} B:{u32|s32} cmp:{eq|ne|lt|le|gt|ge}", SET_TWO),
        (f"A:{{u32|s32}} B:{{u32|s32}} cmp:{{eq|ne|lt|le|gt|ge}} {OP2}?", SET_THREE))
for _parts in ("2", "4"):
    for _opcode, _meaning in (("vadd", "a + b"), ("vsub", "a - b"), ("vavrg", "(a + b + 1) / 2"), ("vabsdiff", "|a - b|"),
                              ("vmin", "min(a, b)"),
                              ("vmax", "max(a, b)")):
        declare(_opcode + _parts, f"d = {_meaning} in each of {_parts} parts, merged into or accumulated on c",
                (f"{TYPES} sat?", PARTS), (f"{TYPES} add", PARTS))
    declare("vset" + _parts, f"d = a cmp b in each of {_parts} parts, merged into or accumulated on c",
            ("A:{u32|s32} B:{u32|s32} cmp:{eq|ne|lt|le|gt|ge} add?", SET_PARTS))


@dataclass(frozen=True)
class Part:
    """What an operand of a video instruction selects. lanes: for each part of the result, lowest first, which byte or half (`width` 8, 16;
    of b after a) it is; None: the whole register. negative: its sign is changed."""

    operand: tree.Operand
    width: int
    lanes: tuple[int, ...] | None
    negative: bool = False


def parts(match: Match) -> dict[str, Part]:
    """Operand name → what it selects, defaults filled in."""
    opcode = match.instruction.opcode
    count = int(opcode[-1]) if opcode[-1] in "24" else 1
    width = 32 // count
    found = {}
    for value in match.values:
        operand, selector, negative = value.operand, "", False
        while isinstance(operand, (tree.Negative, tree.Component)):
            if isinstance(operand, tree.Component):
                selector = operand.name
            else:
                negative = True
            operand = operand.operand
        lanes = tuple(int(digit) for digit in reversed(selector[1:])) if selector else None
        if count > 1 and lanes is None and value.name != "c":
            lanes = tuple(range(count, 2 * count) if value.name == "b" else range(count))
        size = {"b": 8, "h": 16}.get(selector[:1], width)
        found[value.name] = Part(operand, size, lanes, negative)
    return found
