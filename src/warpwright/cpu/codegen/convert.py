"""Conversions between formats: integers, f16, bf16, f32, f64, tf32, and the 8-bit floats e4m3 and e5m2."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter, float_constant
from warpwright.cpu.codegen.floating import NAN, arithmetic, flush, from_half, half_bits, narrow, relu, round_to_odd, saturate, to_half
from warpwright.cpu.codegen.integer import is_integer
from warpwright.cpu.codegen.lowering import pure


@pure("cvt")
def _cvt(e: Emitter, op: Op):
    if op.get("pack"):
        return _pack(e, op)
    target, source = op.slots["D"], op.slots["S"]
    if target.endswith("x2") or source.endswith("x2"):
        return _pair(e, op, target, source)
    if op.get("rnd") == "rs" or target not in LLVM_TYPE:
        e.fail(op, "this conversion is not there yet")
    if is_integer(target) and is_integer(source):
        return _integers(e, op, target, source)
    if is_integer(target):
        return _to_integer(e, op, target, source)
    if is_integer(source):
        return _from_integer(e, op, target, source)
    return _floats(e, op, target, source)


# ── integers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _range(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


def clamp_integer(e: Emitter, value: str, kind: str, signed: bool, low: int, high: int) -> str:
    """An integer of a type that can hold them, clamped to bounds."""
    least, greatest = _range(f"{'s' if signed else 'u'}{BITS[kind]}")
    sign = "s" if signed else "u"
    if high < greatest:
        value = e.intrinsic(f"llvm.{sign}min", kind, value, e.k(kind, high))
    if low > least:
        value = e.intrinsic(f"llvm.{sign}max", kind, value, e.k(kind, low))
    return value


def _integers(e: Emitter, op: Op, target: str, source: str) -> str:
    from_kind, to_kind = LLVM_TYPE[source], LLVM_TYPE[target]
    value = e.arg(op, "a")
    signed = source[0] == "s"
    if op.get("sat"):
        low, high = _range(target)
        least, greatest = _range(source)
        value = clamp_integer(e, value, from_kind, signed, max(low, least), min(high, greatest))
    return e.resize(value, from_kind, to_kind, signed)


def _pack(e: Emitter, op: Op) -> str:
    """Two integers saturated and put side by side, above what c's are shifted up by."""
    target = op.slots["D"]
    bits = int(target[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    a, b = (clamp_integer(e, e.arg(op, name, "i32"), "i32", True, low, high) for name in "ab")
    mask = e.k("i32", (1 << bits) - 1)
    result = e.bin("or", "i32", e.bin("shl", "i32", e.bin("and", "i32", a, mask), e.k("i32", bits)), e.bin("and", "i32", b, mask))
    if "c" in op.args:
        result = e.bin("or", "i32", result, e.bin("shl", "i32", e.arg(op, "c", "i32"), e.k("i32", 2 * bits)))
    return result


# ── floats and integers ──────────────────────────────────────────────────────────────────────────────────────────

_ROUND = {"rni": "llvm.roundeven", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}


def _source_value(e: Emitter, op: Op, source: str) -> tuple[str, str]:
    """The source as float or double."""
    value = e.arg(op, "a")
    if source in ("f16", "bf16"):
        return from_half(e, source, value), "float"
    if source == "f32" and op.get("ftz"):
        return flush(e, value), "float"
    return value, LLVM_TYPE[source]


def _to_integer(e: Emitter, op: Op, target: str, source: str) -> str:
    """Out of range, an integer's nearest bound; a NaN is 0 (for 64-bit targets and from f64 the most negative, as the hardware gives)."""
    value, kind = _source_value(e, op, source)
    value = e.intrinsic(_ROUND[op.slots["rnd"]], kind, value)
    signed, bits = target[0] == "s", int(target[1:])
    whole = f"i{max(bits, 32)}"
    name = f"@llvm.fpto{'s' if signed else 'u'}i.sat.{e.suffix(whole)}.{e.suffix(kind)}"
    e.declarations[name] = f"declare {e.ty(whole)} {name}({e.ty(kind)})"
    result = e.ins(f"call {e.ty(whole)} {name}({e.ty(kind)} {value})")
    if bits < 32:
        low, high = _range(target)
        result = clamp_integer(e, result, "i32", signed, low, high)
        result = e.resize(result, "i32", LLVM_TYPE[target])
        whole = LLVM_TYPE[target]
    if bits == 64 or source == "f64":
        result = e.select(e.fcmp("uno", kind, value, value), whole, e.k(whole, 1 << bits - 1), result)
    return result


def _from_integer(e: Emitter, op: Op, target: str, source: str) -> str:
    value, kind = e.arg(op, "a"), LLVM_TYPE[source]
    signed, rounding = source[0] == "s", op.slots["rnd"]
    convert = "sitofp" if signed else "uitofp"
    if target == "f64":
        result = e.cast(convert, value, kind, "double")
        if BITS[kind] == 64 and rounding != "rn":
            result = _directed_from_integer(e, value, result, signed, rounding)
        return saturate(e, result, "double") if op.get("sat") else result
    if target == "f32" and rounding == "rn":
        result = e.cast(convert, value, kind, "float")
    else:
        wide = e.cast(convert, value, kind, "double")
        if BITS[kind] == 64:
            wide = _odd_from_integer(e, value, wide, signed)
        if target == "f32":
            result = narrow(e, wide, rounding)
        else:
            return _finish_half(e, op, target, _narrow_half(e, wide, target, rounding))
    if target != "f32":
        return _finish_half(e, op, target, to_half(e, target, result))
    return saturate(e, result) if op.get("sat") else result


def _difference(e: Emitter, value: str, near: str, signed: bool) -> str:
    """The sign of a 64-bit integer minus the double nearest to it, as a double."""
    name = f"@llvm.fpto{'s' if signed else 'u'}i.sat.{e.suffix('i64')}.{e.suffix('double')}"
    e.declarations[name] = f"declare {e.ty('i64')} {name}({e.ty('double')})"
    back = e.ins(f"call {e.ty('i64')} {name}({e.ty('double')} {near})")
    sign = "s" if signed else "u"
    top = e.fcmp("oeq", "double", near, e.k("double", 2.0 ** (63 if signed else 64)))  # nearest is just beyond the type
    up = e.select(e.icmp(sign + "gt", "i64", value, back), "double", e.k("double", 1.0), e.k("double", 0.0))
    down = e.bin("or", "i1", e.icmp(sign + "lt", "i64", value, back), top)
    return e.select(down, "double", e.k("double", -1.0), up)


def _odd_from_integer(e: Emitter, value: str, near: str, signed: bool) -> str:
    return round_to_odd(e, near, _difference(e, value, near, signed))


def _directed_from_integer(e: Emitter, value: str, near: str, signed: bool, rounding: str) -> str:
    from warpwright.cpu.codegen.floating import directed

    error, zero = _difference(e, value, near, signed), e.k("double", 0.0)
    return directed(e, near, e.fcmp("olt", "double", error, zero), e.fcmp("ogt", "double", error, zero), rounding, "double")


# ── floats ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _narrow_half(e: Emitter, x: str, target: str, rounding: str) -> str:
    """A double as f16 or bf16 bits under a rounding mode."""
    single = narrow(e, x, "odd")
    return to_half(e, target, single) if rounding == "rn" else half_directed(e, single, target, rounding)


def half_directed(e: Emitter, x: str, target: str, rounding: str) -> str:
    """f32 as f16 or bf16 bits, rounded towards zero, down or up."""
    near = to_half(e, target, x)
    back = from_half(e, target, near)
    above, below = e.fcmp("ogt", "float", back, x), e.fcmp("olt", "float", back, x)
    negative = e.icmp("slt", "i16", near, e.k("i16", 0))
    one, minus, none = e.k("i16", 1), e.k("i16", -1), e.k("i16", 0)
    if rounding == "rm":
        by = e.select(above, "i16", e.select(negative, "i16", one, minus), none)
    elif rounding == "rp":
        by = e.select(below, "i16", e.select(negative, "i16", minus, one), none)
    else:
        by = e.select(e.select(negative, "i1", below, above), "i16", minus, none)
    return e.bin("add", "i16", near, by)


def _finish_half(e: Emitter, op: Op, target: str, bits: str) -> str:
    """relu, satfinite and sat of a result in f16 or bf16."""
    if op.get("satfinite"):
        size = e.bin("and", "i16", bits, e.k("i16", 0x7FFF))
        infinity = 0x7C00 if target == "f16" else 0x7F80
        finite = e.bin("or", "i16", e.bin("and", "i16", bits, e.k("i16", 0x8000)), e.k("i16", infinity - 1))
        bits = e.select(e.icmp("eq", "i16", size, e.k("i16", infinity)), "i16", finite, bits)
    if op.get("relu") or op.get("sat"):
        x = from_half(e, target, bits)
        bits = to_half(e, target, relu(e, x) if op.get("relu") else saturate(e, x))
    return bits


def _floats(e: Emitter, op: Op, target: str, source: str) -> str:
    rounding = op.get("rnd")
    value, kind = _source_value(e, op, source)
    if rounding in _ROUND:
        value = e.intrinsic(_ROUND[rounding], kind, value)
        rounding = "rn"
    rounding = rounding or "rn"
    if target == "tf32":
        return _tf32(e, op, value, rounding)
    if target in ("f16", "bf16"):
        if kind == "double":
            bits = _narrow_half(e, value, target, rounding)
        else:
            bits = to_half(e, target, value) if rounding == "rn" else half_directed(e, value, target, rounding)
        return _finish_half(e, op, target, bits)
    if target == "f32":
        if kind == "double":
            value = narrow(e, value, rounding)
        if op.get("ftz") and source != "f32":
            value = flush(e, value)
    elif target == "f64" and kind == "float":
        value = e.cast("fpext", value, "float", "double")
    kind = LLVM_TYPE[target]
    return saturate(e, value, kind) if op.get("sat") else value


def _tf32(e: Emitter, op: Op, x: str, rounding: str) -> str:
    """f32 with 10 bits of fraction kept. rna rounds halves away from zero."""
    bits = e.bits(x, "float", "i32")
    nan = e.fcmp("uno", "float", x, x)
    if rounding == "rna":
        bits_rounded = e.bin("add", "i32", bits, e.k("i32", 0x1000))
    elif rounding == "rn":
        odd = e.bin("and", "i32", e.bin("lshr", "i32", bits, e.k("i32", 13)), e.k("i32", 1))
        bits_rounded = e.bin("add", "i32", e.bin("add", "i32", bits, e.k("i32", 0xFFF)), odd)
    else:
        bits_rounded = bits
    infinite = e.icmp("eq", "i32", e.bin("and", "i32", bits, e.k("i32", 0x7FFFFFFF)), e.k("i32", 0x7F800000))
    result = e.select(infinite, "i32", bits, e.bin("and", "i32", bits_rounded, e.k("i32", 0xFFFFE000)))
    if op.get("satfinite"):
        over = e.icmp("uge", "i32", e.bin("and", "i32", result, e.k("i32", 0x7FFFFFFF)), e.k("i32", 0x7F800000))
        result = e.select(over, "i32", e.bin("or", "i32", e.bin("and", "i32", bits, e.k("i32", 0x80000000)), e.k("i32", 0x7F7FE000)), result)
    result = e.select(nan, "i32", e.k("i32", 0x7FFFFFFF), result)
    return e.bits(relu(e, e.bits(result, "i32", "float")), "float", "i32") if op.get("relu") else result


# ── pairs and 8-bit floats ───────────────────────────────────────────────────────────────────────────────────────


def _pair(e: Emitter, op: Op, target: str, source: str) -> str:
    """Two values at once; a of two operands is the high one."""
    if op.get("rnd") == "rs" or target not in LLVM_TYPE or source not in LLVM_TYPE:
        e.fail(op, "this conversion is not there yet")
    if source in ("e4m3x2", "e5m2x2"):
        packed = e.arg(op, "a")
        parts = [to_half(e, "f16", from_fp8(e, source[:4], part)) for part in _bytes(e, packed)]
        return _join(e, op, [(_finish_half(e, op, "f16", part)) for part in parts], "i16")
    if source in ("f16x2", "bf16x2"):
        values = [from_half(e, source[:-2], part) for part in half_bits(e, e.arg(op, "a"))]
    else:
        values = [e.arg(op, "b"), e.arg(op, "a")]
    if target in ("e4m3x2", "e5m2x2"):
        return _join(e, op, [to_fp8(e, target[:4], x, bool(op.get("relu"))) for x in values], "i8")
    narrow_type = target[:-2]
    rounding = op.slots["rnd"]
    parts = [to_half(e, narrow_type, x) if rounding == "rn" else half_directed(e, x, narrow_type, rounding) for x in values]
    return _join(e, op, [_finish_half(e, op, narrow_type, part) for part in parts], "i16")


def _bytes(e: Emitter, packed: str) -> list[str]:
    return [e.resize(packed, "i16", "i8"), e.resize(e.bin("lshr", "i16", packed, e.k("i16", 8)), "i16", "i8")]


def _join(e: Emitter, op: Op, parts: list[str], kind: str) -> str:
    from warpwright.cpu.codegen.move import pack

    return pack(e, parts, f"i{2 * BITS[kind]}")


def from_fp8(e: Emitter, type_: str, byte: str) -> str:
    """e4m3 or e5m2 as f32, exactly."""
    if type_ == "e5m2":
        half = e.bin("shl", "i16", e.resize(byte, "i8", "i16"), e.k("i16", 8))
        return from_half(e, "f16", half)
    wide = e.resize(byte, "i8", "i32")
    sign = e.bin("shl", "i32", e.bin("and", "i32", wide, e.k("i32", 0x80)), e.k("i32", 24))
    rest = e.bin("and", "i32", wide, e.k("i32", 0x7F))
    # The bits as an f32 with its bias, times 2^120, is the value: subnormals come out right too.
    scaled = e.bits(e.bin("shl", "i32", rest, e.k("i32", 20)), "i32", "float")
    value = e.bin("fmul", "float", scaled, e.k("float", 2.0 ** 120))
    nan = e.icmp("eq", "i32", rest, e.k("i32", 0x7F))
    value = e.select(nan, "float", e.k("float", NAN["float"]), value)
    return e.bits(e.bin("or", "i32", e.bits(value, "float", "i32"), sign), "i32", "float")


def to_fp8(e: Emitter, type_: str, x: str, positive: bool = False) -> str:
    """f32 rounded to nearest even as e4m3 or e5m2, too large values to the largest, a NaN to 0x7F."""
    fraction, bias, largest = (3, 7, 448.0) if type_ == "e4m3" else (2, 15, 57344.0)
    nan = e.fcmp("uno", "float", x, x)
    if positive:
        x = e.select(e.fcmp("ogt", "float", x, e.k("float", 0.0)), "float", x, e.k("float", 0.0))
    bits = e.bits(x, "float", "i32")
    sign = e.bin("and", "i32", e.bin("lshr", "i32", bits, e.k("i32", 24)), e.k("i32", 0x80))
    size = e.intrinsic("llvm.fabs", "float", x)
    size = e.select(e.fcmp("olt", "float", size, e.k("float", largest)), "float", size, e.k("float", largest))
    whole = e.bits(size, "float", "i32")
    # Normal: round the fraction, then move the exponent's bias.
    shift = 23 - fraction
    odd = e.bin("and", "i32", e.bin("lshr", "i32", whole, e.k("i32", shift)), e.k("i32", 1))
    rounded = e.bin("add", "i32", e.bin("add", "i32", whole, e.k("i32", (1 << shift - 1) - 1)), odd)
    normal = e.bin("sub", "i32", e.bin("lshr", "i32", rounded, e.k("i32", shift)), e.k("i32", (127 - bias) << fraction))
    # Subnormal: adding a number whose last bit is the format's smallest step rounds to a multiple of it.
    magic = 2.0 ** (1 - bias - fraction + 23)
    moved = e.bits(e.bin("fadd", "float", size, e.k("float", magic)), "float", "i32")
    small = e.bin("sub", "i32", moved, e.k("i32", _bits(magic)))
    tiny = e.fcmp("olt", "float", size, e.k("float", 2.0 ** (1 - bias)))
    result = e.bin("or", "i32", e.select(tiny, "i32", small, normal), sign)
    return e.resize(e.select(nan, "i32", e.k("i32", 0x7F), result), "i32", "i8")


def _bits(value: float) -> int:
    return int(float_constant_bits(value), 16)


def float_constant_bits(value: float) -> str:
    import struct

    return struct.pack(">f", value).hex()


_ = (arithmetic, float_constant)
