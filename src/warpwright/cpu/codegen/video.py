"""Video instructions: parts of words, worked on in 64 bits (vmad: 128), so that no operation loses a bit before it is cut or clamped."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import pure
from warpwright.ptx.isa.video import OPCODES, Part


@pure(*OPCODES)
def _video(e: Emitter, op: Op) -> str:
    if op.opcode == "vmad":
        return _multiply_add(e, op)
    return _parallel(e, op) if op.opcode[-1] in "24" else _scalar(e, op)


def _extended(e: Emitter, value: str, shift: int, bits: int, type_: str, kind: str, whole: str = "i32") -> str:
    """`bits` bits of a value of LLVM type `whole` from bit `shift` on, as a number of a wider type `kind`."""
    if shift:
        value = e.bin("lshr", whole, value, e.k(whole, shift))
    narrow = f"i{bits}"
    if narrow != whole:
        value = e.cast("trunc", value, whole, narrow)
    return e.cast("sext" if type_[0] == "s" else "zext", value, narrow, kind)


def _select(e: Emitter, op: Op, name: str, type_: str, kind: str) -> str:
    part: Part = op.slots["parts"][name]
    shift, bits = (0, 32) if part.lanes is None else (part.width * part.lanes[0], part.width)
    return _extended(e, e.arg(op, name, "i32"), shift, bits, type_, kind)


def _clamp(e: Emitter, value: str, kind: str, bits: int, type_: str) -> str:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)
    value = e.intrinsic("llvm.smax", kind, value, e.k(kind, low))
    return e.intrinsic("llvm.smin", kind, value, e.k(kind, high))


def _operate(e: Emitter, op: Op, a: str, b: str) -> str:
    """The operation on two 64-bit numbers, exactly."""
    name = op.opcode.rstrip("24")
    if name in ("vadd", "vsub"):
        return e.bin(name[1:], "i64", a, b)
    if name == "vabsdiff":
        return e.intrinsic("llvm.abs", "i64", e.bin("sub", "i64", a, b), extra=", i1 false", extra_types=", i1")
    if name in ("vmin", "vmax"):
        return e.intrinsic(f"llvm.s{name[1:]}", "i64", a, b)
    if name == "vavrg":
        total = e.bin("add", "i64", a, b)
        up = e.cast("zext", e.icmp("sge", "i64", total, e.k("i64", 0)), "i1", "i64")
        return e.bin("ashr", "i64", e.bin("add", "i64", total, up), e.k("i64", 1))
    if name == "vset":
        condition = op.slots["cmp"] if op.slots["cmp"] in ("eq", "ne") else "s" + op.slots["cmp"]
        return e.cast("zext", e.icmp(condition, "i64", a, b), "i1", "i64")
    if op.slots["mode"] == "wrap":
        b = e.bin("and", "i64", b, e.k("i64", 31))
    else:
        b = e.intrinsic("llvm.umin", "i64", b, e.k("i64", 32))
    if name == "vshr":
        return e.bin("ashr", "i64", a, b)
    return e.bin("shl", "i64", a, b)


def _scalar(e: Emitter, op: Op) -> str:
    to = op.slots.get("D") or "u32"
    target: Part = op.slots["parts"]["d"]
    width = target.width if target.lanes is not None else 32
    a, b = _select(e, op, "a", op.slots["A"], "i64"), _select(e, op, "b", op.slots["B"], "i64")
    result = _operate(e, op, a, b)
    if op.get("sat"):
        if op.opcode == "vshl" and op.slots["A"][0] == "u":  # a << 32 of an unsigned a fills all 64 bits: compare it as unsigned
            high = (1 << width - (to[0] == "s")) - 1
            result = e.intrinsic("llvm.umin", "i64", result, e.k("i64", high))
        else:
            result = _clamp(e, result, "i64", width, to)
    result = e.cast("trunc", result, "i64", "i32")
    second = op.get("op2")
    if second == "add":
        return e.bin("add", "i32", result, e.arg(op, "c", "i32"))
    if second:
        return e.intrinsic(f"llvm.{to[0]}{second}", "i32", result, e.arg(op, "c", "i32"))
    if target.lanes is None:
        return result
    shift = width * target.lanes[0]
    field = (1 << width) - 1 << shift
    moved = e.bin("and", "i32", e.bin("shl", "i32", result, e.k("i32", shift)), e.k("i32", field))
    return e.bin("or", "i32", moved, e.bin("and", "i32", e.arg(op, "c", "i32"), e.k("i32", ~field)))


def _multiply_add(e: Emitter, op: Op) -> str:
    chosen: dict[str, Part] = op.slots["parts"]
    a, b = (_select(e, op, name, op.slots[name.upper()], "i128") for name in "ab")
    negated = chosen["a"].negative != chosen["b"].negative
    less = chosen["c"].negative
    final = "s32" if "s" in op.slots["A"] + op.slots["B"] or negated or less else "u32"
    product, c = e.bin("mul", "i128", a, b), e.arg(op, "c", "i32")
    one = bool(op.get("po"))
    if negated and not one:
        product, one = e.bin("xor", "i128", product, e.k("i128", -1)), True
    elif less and not one:
        c, one = e.bin("xor", "i32", c, e.k("i32", -1)), True
    result = e.bin("add", "i128", product, _extended(e, c, 0, 32, final, "i128"))
    if one:
        result = e.bin("add", "i128", result, e.k("i128", 1))
    shift = {"shr7": 7, "shr15": 15}.get(op.slots.get("scale") or "", 0)
    if shift:
        result = e.bin("ashr", "i128", result, e.k("i128", shift))
    if op.get("sat"):
        result = _extended(e, result, 0, 64, final, "i128", "i128")
        result = _clamp(e, result, "i128", 32, final)
    return e.cast("trunc", result, "i128", "i32")


def _parallel(e: Emitter, op: Op) -> str:
    chosen: dict[str, Part] = op.slots["parts"]
    to, width = op.slots.get("D") or "u32", chosen["a"].width
    a, b, c = (e.arg(op, name, "i32") for name in "abc")
    per_word = 32 // width
    total, merged = c, e.k("i32", 0)
    for i in range(per_word):
        if i in (chosen["d"].lanes or ()):
            x, y = chosen["a"].lanes[i], chosen["b"].lanes[i]  # type: ignore[index]
            first = _extended(e, b if x >= per_word else a, x % per_word * width, width, op.slots["A"], "i64")
            other = _extended(e, b if y >= per_word else a, y % per_word * width, width, op.slots["B"], "i64")
            result = _operate(e, op, first, other)
            if op.get("sat"):
                result = _clamp(e, result, "i64", width, to)
            part = e.cast("trunc", result, "i64", "i32")
            total = e.bin("add", "i32", total, part)
        else:
            part = e.bin("lshr", "i32", c, e.k("i32", i * width))
        part = e.bin("and", "i32", part, e.k("i32", (1 << width) - 1))
        merged = e.bin("or", "i32", merged, e.bin("shl", "i32", part, e.k("i32", i * width)))
    return total if op.get("add") else merged
