"""Video instructions: PTX ISA 9.7.16. Bytes, halves or words are selected from the operands and extended by their types, the operation is
made without loss, and its result is cut or clamped, then accumulated on c or merged into it."""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.interpreter.registry import per_thread
from warpwright.cpu.interpreter.words import mask, signed
from warpwright.ptx.isa import Match
from warpwright.ptx.isa.video import OPCODES, Part, parts

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}


def extend(value: int, bits: int, type_: str) -> int:
    """The low bits of a value, as a number of a type."""
    value &= mask(bits)
    return signed(value, bits) if type_[0] == "s" else value


def clamp(value: int, bits: int, type_: str) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "s" else (0, mask(bits))
    return min(max(value, low), high)


def operation(m: Match) -> Callable[[int, int], int]:
    """The instruction's own operation on two numbers."""
    match m.instruction.opcode.rstrip("24"):
        case "vadd":
            return lambda a, b: a + b
        case "vsub":
            return lambda a, b: a - b
        case "vabsdiff":
            return lambda a, b: abs(a - b)
        case "vmin":
            return min
        case "vmax":
            return max
        case "vavrg":
            return lambda a, b: a + b + (a + b >= 0) >> 1
        case "vset":
            compare = _COMPARE[m["cmp"]]
            return lambda a, b: int(compare(a, b))
        case "vshl":
            return lambda a, b: a << _distance(m, b)
        case "vshr":
            return lambda a, b: a >> _distance(m, b)
    raise ValueError(f"no operation '{m.instruction.opcode}'")


def _distance(m: Match, b: int) -> int:
    return b & 31 if m["mode"] == "wrap" else min(b, 32)


@per_thread(*OPCODES)
def video(m: Match, decoder) -> Callable:
    chosen = parts(m)
    read = {name: decoder.reader(part.operand, "b32") for name, part in chosen.items() if name != "d"}
    write = decoder.writer(chosen["d"].operand, "b32")
    opcode = m.instruction.opcode
    build = multiply_add if opcode == "vmad" else parallel if opcode[-1] in "24" else scalar
    run = build(m, chosen)
    return lambda thread: write(thread, run(**{name: reader(thread) for name, reader in read.items()}) & mask(32))


def select(value: int, part: Part, type_: str) -> int:
    """A scalar operand's part, extended."""
    if part.lanes is None:
        return extend(value, 32, type_)
    return extend(value >> part.width * part.lanes[0], part.width, type_)


def scalar(m: Match, chosen: dict[str, Part]) -> Callable[..., int]:
    operate, to, target = operation(m), m.get("D") or "u32", chosen["d"]
    width = target.width if target.lanes is not None else 32

    def run(a: int, b: int, c: int = 0) -> int:
        result = operate(select(a, chosen["a"], m["A"]), select(b, chosen["b"], m["B"]))
        result = clamp(result, width, to) if m.get("sat") else extend(result, 32, to)
        match m.get("op2"):
            case "add":
                return result + c
            case "min":
                return min(result, extend(c, 32, to))
            case "max":
                return max(result, extend(c, 32, to))
        if target.lanes is None:
            return result
        field = mask(width) << width * target.lanes[0]
        return result << width * target.lanes[0] & field | c & ~field

    return run


def multiply_add(m: Match, chosen: dict[str, Part]) -> Callable[..., int]:
    negated = chosen["a"].negative != chosen["b"].negative
    less = chosen["c"].negative
    final = "s32" if "s" in m["A"] + m["B"] or negated or less else "u32"
    shift = {"shr7": 7, "shr15": 15}.get(m.get("scale") or "", 0)

    def run(a: int, b: int, c: int) -> int:
        product = select(a, chosen["a"], m["A"]) * select(b, chosen["b"], m["B"])
        one = bool(m.get("po"))
        if negated and not one:
            product, one = ~product, True
        elif less and not one:
            c, one = ~c, True
        result = product + extend(c, 32, final) + one >> shift
        return clamp(extend(result, 64, final), 32, final) if m.get("sat") else result

    return run


def parallel(m: Match, chosen: dict[str, Part]) -> Callable[..., int]:
    operate, to = operation(m), m.get("D") or "u32"
    width = chosen["a"].width
    written = chosen["d"].lanes or ()

    def run(a: int, b: int, c: int) -> int:
        both = a | b << 32
        total, merged = c, 0
        for i, (x, y) in enumerate(zip(chosen["a"].lanes or (), chosen["b"].lanes or (), strict=True)):
            result = operate(extend(both >> width * x, width, m["A"]), extend(both >> width * y, width, m["B"]))
            if m.get("sat"):
                result = clamp(result, width, to)
            total += result if i in written else 0
            merged |= ((result if i in written else c >> width * i) & mask(width)) << width * i
        return total if m.get("add") else merged

    return run
