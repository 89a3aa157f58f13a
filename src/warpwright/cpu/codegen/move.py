"""Moves, comparisons and selection."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Special, Vec
from warpwright.cpu.analysis.variables import Place
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter
from warpwright.cpu.codegen.floating import flush, flush_half, from_half, half_bits
from warpwright.cpu.codegen.integer import is_integer
from warpwright.cpu.codegen.lowering import pure

_FLOAT_COMPARE = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une", "ltu": "ult",
                  "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno"}
_INTEGER_COMPARE = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}


@pure("mov", "slotmov")
def _mov(e: Emitter, op: Op):
    target, source = op.args["d"], op.args["a"]
    type_ = op.slots["T"]
    kind = LLVM_TYPE[type_]
    if op.get("vec"):
        if isinstance(source, Special):
            return tuple(e.value(Special(f"{source.name}.{axis}"), kind) for axis in "xyzw")[:int(op.slots["vec"][1:])],
        return tuple(e.value(element, kind) for element in source.elements),  # type: ignore[union-attr]
    if isinstance(target, Vec):
        return tuple(unpack(e, e.arg(op, "a"), kind, len(target.elements))),
    if isinstance(source, Vec):
        return e.bits(pack(e, [e.value(element, f"i{BITS[kind] // len(source.elements)}") for element in source.elements], f"i{BITS[kind]}"),
                      f"i{BITS[kind]}", kind)
    if isinstance(source, Place) and source.space == "local":
        return e.value(source, kind)
    return e.arg(op, "a")


def unpack(e: Emitter, value: str, kind: str, count: int) -> list[str]:
    """The parts of a value, low bits first, as integers."""
    whole, bits = f"i{BITS[kind]}", BITS[kind] // count
    value = e.bits(value, kind, whole)
    return [e.resize(e.bin("lshr", whole, value, e.k(whole, bits * i)) if i else value, whole, f"i{bits}") for i in range(count)]


def pack(e: Emitter, parts: list[str], kind: str) -> str:
    """Integers side by side, the first lowest."""
    bits = BITS[kind] // len(parts)
    if len(parts) == 2 and e.width > 1 and bits >= 16:  # as a shuffle, which is what it is
        n = e.width
        both = e.ins(f"shufflevector <{n} x i{bits}> {parts[0]}, <{n} x i{bits}> {parts[1]}, <{2 * n} x i32> "
                     f"{e.vector_constant('i32', [i // 2 + n * (i % 2) for i in range(2 * n)])}")
        return e.ins(f"bitcast <{2 * n} x i{bits}> {both} to {e.ty(kind)}")
    result = None
    for i, part in enumerate(parts):
        wide = e.resize(part, f"i{bits}", kind)
        if i:
            wide = e.bin("shl", kind, wide, e.k(kind, bits * i))
        result = wide if result is None else e.bin("or", kind, result, wide)
    return result  # type: ignore[return-value]


def compare(e: Emitter, op: Op, type_: str, a: str, b: str) -> str:
    """The comparison of setp and set, of operands as their LLVM types."""
    how = op.slots["cmp"]
    if is_integer(type_):
        condition = _INTEGER_COMPARE.get(how) or ("s" if type_[0] == "s" else "u") + how
        return e.icmp(condition, LLVM_TYPE[type_], a, b)
    if op.get("ftz") and type_ == "f16":
        a, b = flush_half(e, a), flush_half(e, b)
    if type_ in ("f16", "bf16"):
        a, b, kind = from_half(e, type_, a), from_half(e, type_, b), "float"
    else:
        kind = LLVM_TYPE[type_]
    if op.get("ftz") and kind == "float" and type_ == "f32":
        a, b = flush(e, a), flush(e, b)
    return e.fcmp(_FLOAT_COMPARE[how], kind, a, b)


def _combined(e: Emitter, op: Op, value: str) -> str:
    return e.bin(op.slots["bool"], "i1", value, e.arg(op, "c", "i1")) if op.get("bool") else value


@pure("setp")
def _setp(e: Emitter, op: Op):
    type_ = op.slots["T"]
    a, b = e.arg(op, "a"), e.arg(op, "b")
    if type_.endswith("x2"):
        halves = list(zip(half_bits(e, a), half_bits(e, b), strict=True))
        results = [_combined(e, op, compare(e, op, type_[:-2], x, y)) for x, y in halves]
        return tuple(results)
    found = compare(e, op, type_, a, b)
    first = _combined(e, op, found)
    if "p" not in op.args:
        return first
    return first, _combined(e, op, e.bin("xor", "i1", found, e.k("i1", 1)))


@pure("set")
def _set(e: Emitter, op: Op):
    type_, result = op.slots["T"], op.slots["D"]
    a, b = e.arg(op, "a"), e.arg(op, "b")
    if type_.endswith("x2"):
        found = [_combined(e, op, compare(e, op, type_[:-2], x, y)) for x, y in zip(half_bits(e, a), half_bits(e, b), strict=True)]
        one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result, -1)
        return pack(e, [e.select(x, "i16", e.k("i16", one), e.k("i16", 0)) for x in found], "i32")
    found_one = _combined(e, op, compare(e, op, type_, a, b))
    kind = LLVM_TYPE[result]
    one_value: int | float = {"f32": 1.0, "f16": 0x3C00, "bf16": 0x3F80}.get(result, -1)
    return e.select(found_one, kind, e.k(kind, one_value), e.k(kind, 0))


@pure("selp")
def _selp(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    condition = e.arg(op, "c", "i1")
    return e.select(condition, kind, e.arg(op, "a"), e.arg(op, "b"))


@pure("slct")
def _slct(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    if op.slots["S"] == "f32":
        c = e.arg(op, "c", "float")
        if op.get("ftz"):
            c = flush(e, c)
        condition = e.fcmp("oge", "float", c, e.k("float", 0.0))
    else:
        condition = e.icmp("sge", "i32", e.arg(op, "c", "i32"), e.k("i32", 0))
    return e.select(condition, kind, e.arg(op, "a"), e.arg(op, "b"))
