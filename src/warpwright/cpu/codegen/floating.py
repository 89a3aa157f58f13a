"""Floating-point arithmetic in f32, f64, f16, bf16 and their packed pairs.

f16 and bf16 values are held as bits. bf16 arithmetic runs in f32 and is rounded once: with 24 ≥ 2·8 + 2 bits that is exact for everything
but fma. Directed rounding, and fma in the narrow formats, go through a wider result *rounded to odd* (Boldo and Melquiond, "Emulation of
FMA and correctly rounded sums", 2008): cut, with the last bit set where anything was cut off, which later rounding cannot mistake.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.codegen import integer, mathlib
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter, float_constant
from warpwright.cpu.codegen.lowering import pure

_EMBEDDED = {"rm": 9, "rp": 10, "rz": 11}  # AVX-512's codes, with exceptions suppressed
NAN = {"float": float_constant(0x7FFFFFFF, "float"), "double": float_constant(0x7FF8000000000000, "double")}


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────


def flush(e: Emitter, x: str) -> str:
    """f32 with subnormals made zeros of the same sign."""
    bits = e.bits(x, "float", "i32")
    tiny = e.icmp("eq", "i32", e.bin("and", "i32", bits, e.k("i32", 0x7F800000)), e.k("i32", 0))
    zero = e.bits(e.bin("and", "i32", bits, e.k("i32", 0x80000000)), "i32", "float")
    return e.select(tiny, "float", zero, x)


def from_half(e: Emitter, type_: str, bits: str) -> str:
    """f16 or bf16 bits as f32, exactly."""
    if type_ == "f16":
        return e.cast("fpext", e.bits(bits, "i16", "half"), "half", "float")
    return e.bits(e.bin("shl", "i32", e.resize(bits, "i16", "i32"), e.k("i32", 16)), "i32", "float")


def to_half(e: Emitter, type_: str, x: str) -> str:
    """f32 rounded to nearest even, as f16 or bf16 bits; a NaN becomes 0x7FFF."""
    nan = e.fcmp("uno", "float", x, x)
    if type_ == "f16":
        result = e.bits(e.cast("fptrunc", x, "float", "half"), "half", "i16")
    else:
        bits = e.bits(x, "float", "i32")
        odd = e.bin("and", "i32", e.bin("lshr", "i32", bits, e.k("i32", 16)), e.k("i32", 1))
        rounded = e.bin("add", "i32", e.bin("add", "i32", bits, e.k("i32", 0x7FFF)), odd)
        result = e.resize(e.bin("lshr", "i32", rounded, e.k("i32", 16)), "i32", "i16")
    return e.select(nan, "i16", e.k("i16", 0x7FFF), result)


def half_bits(e: Emitter, packed: str) -> tuple[str, str]:
    """The low and the high half of a packed pair."""
    return e.resize(packed, "i32", "i16"), e.resize(e.bin("lshr", "i32", packed, e.k("i32", 16)), "i32", "i16")


def saturate(e: Emitter, x: str, kind: str = "float") -> str:
    """To [0, 1], a NaN to 0."""
    x = e.select(e.fcmp("ogt", kind, x, e.k(kind, 0.0)), kind, x, e.k(kind, 0.0))
    return e.select(e.fcmp("olt", kind, x, e.k(kind, 1.0)), kind, x, e.k(kind, 1.0))


def relu(e: Emitter, x: str) -> str:
    """max(x, 0) in f32, a NaN kept."""
    return e.select(e.fcmp("ule", "float", x, e.k("float", 0.0)), "float",
                    e.select(e.fcmp("uno", "float", x, x), "float", e.k("float", NAN["float"]), e.k("float", 0.0)), x)


# ── exact results and their rounding ─────────────────────────────────────────────────────────────────────────────


def _step(e: Emitter, x: str, kind: str, by: str) -> str:
    """x moved in the order of its magnitude by an integer."""
    whole = f"i{BITS[kind]}"
    return e.bits(e.bin("add", whole, e.bits(x, kind, whole), by), whole, kind)


def round_to_odd(e: Emitter, near: str, error: str, kind: str = "double") -> str:
    """From the nearest value and the sign of what it lacks: the exact value cut, with the last bit set unless it is exact."""
    whole, zero = f"i{BITS[kind]}", e.k(kind, 0.0)
    inexact = e.fcmp("one", kind, error, zero)
    negative = e.icmp("slt", whole, e.bits(near, kind, whole), e.k(whole, 0))
    over = e.bin("xor", "i1", e.fcmp("olt", kind, error, zero), negative)
    cut = _step(e, near, kind, e.select(over, whole, e.k(whole, -1), e.k(whole, 0)))
    odd = e.bits(e.bin("or", whole, e.bits(cut, kind, whole), e.k(whole, 1)), whole, kind)
    return e.select(inexact, kind, odd, near)


def two_sum_error(e: Emitter, a: str, b: str, total: str, kind: str = "double") -> str:
    """a + b - total, exactly (Knuth)."""
    part = e.bin("fsub", kind, total, a)
    return e.bin("fadd", kind, e.bin("fsub", kind, a, e.bin("fsub", kind, total, part)), e.bin("fsub", kind, b, part))


def exact_sum(e: Emitter, a: str, b: str) -> str:
    """a + b of doubles, rounded to odd."""
    total = e.bin("fadd", "double", a, b)
    return round_to_odd(e, total, two_sum_error(e, a, b, total))


def narrow(e: Emitter, x: str, rounding: str) -> str:
    """A double as f32 under a rounding mode (or "odd")."""
    near = e.cast("fptrunc", x, "double", "float")
    if rounding == "rn":
        return near
    back = e.cast("fpext", near, "float", "double")
    if rounding == "odd":
        return round_to_odd(e, near, e.cast("fptrunc", _sign_of(e, x, back), "double", "float"), "float")
    return directed(e, near, e.fcmp("ogt", "double", back, x), e.fcmp("olt", "double", back, x), rounding, "float")


def _sign_of(e: Emitter, x: str, y: str) -> str:
    """1, -1 or 0 as x > y, x < y or neither."""
    up = e.select(e.fcmp("ogt", "double", x, y), "double", e.k("double", 1.0), e.k("double", 0.0))
    return e.select(e.fcmp("olt", "double", x, y), "double", e.k("double", -1.0), up)


def directed(e: Emitter, near: str, above: str, below: str, rounding: str, kind: str) -> str:
    """The nearest value, known to be above or below the exact one, moved to where the rounding mode wants it."""
    whole = f"i{BITS[kind]}"
    negative = e.icmp("slt", whole, e.bits(near, kind, whole), e.k(whole, 0))
    one, minus, none = e.k(whole, 1), e.k(whole, -1), e.k(whole, 0)
    if rounding == "rm":
        by = e.select(above, whole, e.select(negative, whole, one, minus), none)
    elif rounding == "rp":
        by = e.select(below, whole, e.select(negative, whole, minus, one), none)
    else:
        by = e.select(e.select(negative, "i1", below, above), whole, minus, none)
    return _step(e, near, kind, by)


def _zero_sign(e: Emitter, result: str, a: str, b: str, rounding: str, kind: str) -> str:
    """Rounding down, a sum that cancels to zero is -0 (unless both were +0)."""
    if rounding != "rm":
        return result
    whole = f"i{BITS[kind]}"
    either = e.bin("or", whole, e.bits(a, kind, whole), e.bits(b, kind, whole))
    cancels = e.bin("and", "i1", e.fcmp("oeq", kind, result, e.k(kind, 0.0)), e.icmp("ne", whole, either, e.k(whole, 0)))
    return e.select(cancels, kind, e.k(kind, "-0.0" if kind == "double" else float_constant(0x80000000, "float")), result)


def _directed_f64(e: Emitter, near: str, error: str, operands: list[str], rounding: str, exact_infinity: bool) -> str:
    """The nearest double, moved as its error asks. exact_infinity: of a division by zero, whose infinity is no overflow."""
    zero = e.k("double", 0.0)
    result = directed(e, near, e.fcmp("olt", "double", error, zero), e.fcmp("ogt", "double", error, zero), rounding, "double")
    infinity = e.k("double", float_constant(0x7FF0000000000000, "double"))
    magnitude = [e.intrinsic("llvm.fabs", "double", x) for x in (near, *operands)]
    fix = e.fcmp("oeq", "double", magnitude[0], infinity)  # an overflow to infinity from finite operands
    for x in magnitude[1:]:
        fix = e.bin("and", "i1", fix, e.fcmp("one", "double", x, infinity))
    if exact_infinity:
        fix = e.bin("and", "i1", fix, e.fcmp("one", "double", operands[1], zero))
    if rounding != "rz":
        fix = e.bin("and", "i1", fix, e.fcmp("ogt" if rounding == "rm" else "olt", "double", near, zero))
    return e.select(fix, "double", _step(e, near, "double", e.k("i64", -1)), result)


# ── one operation ────────────────────────────────────────────────────────────────────────────────────────────────


def arithmetic(e: Emitter, name: str, type_: str, operands: list[str], rounding: str = "rn") -> str:
    """add, sub, mul, fma, div, rcp or sqrt of f32 or f64 values, correctly rounded."""
    kind = LLVM_TYPE[type_]
    if name == "sub":
        operands = [operands[0], e.neg(operands[1], kind)]
        name = "add"
    if name == "rcp":
        name, operands = "div", [e.k(kind, 1.0), operands[0]]
    if rounding == "rn":
        return _near(e, name, kind, operands)
    if e.host.avx512:  # the rounding mode is part of the instruction
        intrinsic = {"fma": "vfmadd"}.get(name, name) + (".ps.512" if kind == "float" else ".pd.512")
        return e.wide(f"llvm.x86.avx512.{intrinsic}", kind, *operands, after=f"i32 {_EMBEDDED[rounding]}", after_types="i32")
    if kind == "float":
        wide = [e.cast("fpext", x, "float", "double") for x in operands]
        if name == "add":
            result = exact_sum(e, *wide)
        elif name == "mul":
            result = e.bin("fmul", "double", *wide)
        elif name == "fma":
            wide[:2] = [e.bin("fmul", "double", *wide[:2])]
            result = exact_sum(e, *wide)
        else:
            near = _near(e, name, "double", wide)
            result = round_to_odd(e, near, _residual(e, name, near, wide))
        result = narrow(e, result, rounding)
        if name == "add":
            return _zero_sign(e, result, operands[0], operands[1], rounding, "float")
        if name == "fma":  # the sign of an exact zero needs the product's sign, which f64 keeps
            exact = e.bin("fadd", "double", *wide)
            cancels = e.fcmp("oeq", "double", exact, e.k("double", 0.0))
            zero = _zero_sign(e, exact, wide[0], wide[1], rounding, "double")
            return e.select(cancels, "float", e.cast("fptrunc", zero, "double", "float"), result)
        return result
    near = _near(e, name, "double", operands)
    if name == "add":
        error = two_sum_error(e, operands[0], operands[1], near)
    elif name == "mul":
        small = _below(e, near)
        (a, b), exact = (_scaled(e, small, x) for x in operands), _scaled(e, small, _scaled(e, small, near))
        error = mathlib.fma(e, a, b, e.neg(exact, "double"), "double")
    elif name == "fma":
        error = _fma_error(e, operands[0], operands[1], operands[2], near)
    else:
        error = _residual(e, name, near, operands)
    result = _directed_f64(e, near, error, operands, rounding, exact_infinity=name == "div")
    return _zero_sign(e, result, operands[0], operands[1], rounding, "double") if name == "add" else result


def _near(e: Emitter, name: str, kind: str, operands: list[str]) -> str:
    if name == "fma":
        return mathlib.fma(e, operands[0], operands[1], operands[2], kind)
    if name == "sqrt":
        return e.intrinsic("llvm.sqrt", kind, *operands)
    return e.bin("f" + name, kind, *operands)


def _below(e: Emitter, x: str) -> str:
    """Whether |x| < 2^-700: so small that the error of an operation with this result may underflow."""
    return e.fcmp("olt", "double", e.intrinsic("llvm.fabs", "double", x), e.k("double", 2.0**-700))


def _scaled(e: Emitter, small: str, x: str) -> str:
    """x · 2^600 where `small`."""
    return e.bin("fmul", "double", x, e.select(small, "double", e.k("double", 2.0**600), e.k("double", 1.0)))


def _residual(e: Emitter, name: str, near: str, operands: list[str]) -> str:
    """A value with the sign of exact quotient or root minus the nearest double."""
    small = _below(e, operands[0])
    near, operands = _scaled(e, small, near), [_scaled(e, small, operands[0]), *operands[1:]]
    if name == "sqrt":
        return mathlib.fma(e, e.neg(near, "double"), near, _scaled(e, small, operands[0]), "double")
    left = mathlib.fma(e, e.neg(near, "double"), operands[1], operands[0], "double")
    return e.select(e.fcmp("olt", "double", operands[1], e.k("double", 0.0)), "double", e.neg(left, "double"), left)


def _fma_error(e: Emitter, a: str, b: str, c: str, near: str) -> str:
    """A value with the sign of a·b + c minus the nearest double (Boldo and Muller, "Exact and approximated error of the FMA", 2011)."""
    small = e.bin("and", "i1", _below(e, e.bin("fmul", "double", a, b)), _below(e, c))
    a, b = _scaled(e, small, a), _scaled(e, small, b)
    c, near = (_scaled(e, small, _scaled(e, small, x)) for x in (c, near))
    high = e.bin("fmul", "double", a, b)
    low = mathlib.fma(e, a, b, e.neg(high, "double"), "double")
    middle = e.bin("fadd", "double", c, low)
    last = two_sum_error(e, c, low, middle)
    top = e.bin("fadd", "double", high, middle)
    rest = two_sum_error(e, high, middle, top)
    error = e.bin("fadd", "double", e.bin("fadd", "double", e.bin("fsub", "double", top, near), rest), last)
    # a product that underflows beside a large c still has its sign
    zero = e.k("double", 0.0)
    sign = e.bin("fmul", "double", *(e.intrinsic("llvm.copysign", "double", e.k("double", 1.0), x) for x in (a, b)))
    lost = e.bin("and", "i1", e.fcmp("oeq", "double", error, zero), e.fcmp("oeq", "double", high, zero))
    for x in (a, b):
        lost = e.bin("and", "i1", lost, e.fcmp("one", "double", x, zero))
    return e.select(lost, "double", sign, error)


def narrow_fma(e: Emitter, type_: str, a: str, b: str, c: str) -> str:
    """fma of f16 or bf16 bits, rounded once."""
    if type_ == "f16" and e.host.fp16:
        result = e.intrinsic("llvm.fma", "half", *(e.bits(x, "i16", "half") for x in (a, b, c)))
        nan = e.fcmp("uno", "half", result, result)
        return e.select(nan, "i16", e.k("i16", 0x7FFF), e.bits(result, "half", "i16"))
    x, y, z = (e.cast("fpext", from_half(e, type_, v), "float", "double") for v in (a, b, c))
    return to_half(e, type_, narrow(e, exact_sum(e, e.bin("fmul", "double", x, y), z), "odd"))


def _half_operation(e: Emitter, op: Op, name: str, type_: str, operands: list[str]) -> str:
    if name == "fma":
        result = narrow_fma(e, type_, *operands)
    elif type_ == "f16" and e.host.fp16:
        half = e.bin("f" + name, "half", *(e.bits(x, "i16", "half") for x in operands))
        nan = e.fcmp("uno", "half", half, half)
        result = e.select(nan, "i16", e.k("i16", 0x7FFF), e.bits(half, "half", "i16"))
    else:
        wide = [from_half(e, type_, x) for x in operands]
        result = to_half(e, type_, _near(e, "add" if name == "sub" else name, "float",
                                         [wide[0], e.neg(wide[1])] if name == "sub" else wide))
    if op.get("ftz") and type_ == "f16":
        result = flush_half(e, result)
    if op.get("sat") or op.get("relu"):
        wide_result = from_half(e, type_, result)
        result = to_half(e, type_, saturate(e, wide_result) if op.get("sat") else relu(e, wide_result))
    if op.get("oob"):  # +0 where a or b is the NaN that tensor copies fill with, all ones
        a, b = (e.icmp("eq", "i16", x, e.k("i16", -1)) for x in operands[:2])
        result = e.select(e.bin("or", "i1", a, b), "i16", e.k("i16", 0), result)
    return result


def flush_half(e: Emitter, bits: str) -> str:
    tiny = e.icmp("eq", "i16", e.bin("and", "i16", bits, e.k("i16", 0x7C00)), e.k("i16", 0))
    return e.select(tiny, "i16", e.bin("and", "i16", bits, e.k("i16", 0x8000)), bits)


# ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────────

_INTEGER: dict[str, Callable] = {"add": integer.add, "sub": integer.add, "mul": integer.mul, "mad": integer.mad, "div": integer.divide,
                                 "rem": integer.divide, "min": integer.minmax, "max": integer.minmax, "abs": integer.absolute,
                                 "neg": integer.negative}


@pure("add", "sub", "mul", "mad", "fma", "div", "rem")
def _arithmetic(e: Emitter, op: Op):
    type_ = op.slots["T"]
    if integer.is_integer(type_):
        return _INTEGER[op.opcode](e, op)
    name = "fma" if op.opcode == "mad" else op.opcode
    operands = []
    for letter in "abc"[:3 if name == "fma" else 2]:
        given = op.types[letter][0]
        value = e.arg(op, letter)
        operands.append(from_half(e, given, value) if given in ("f16", "bf16") and type_ == "f32" else value)
    if type_ in ("f16x2", "bf16x2"):
        if op.get("ftz"):
            operands = [integer.packed(e, "i16", lambda x: flush_half(e, x), x) for x in operands]
        return integer.packed(e, "i16", lambda *xs: _half_operation(e, op, name, type_[:-2], list(xs)), *operands)
    if type_ in ("f16", "bf16"):
        if op.get("ftz") and type_ == "f16":
            operands = [flush_half(e, x) for x in operands]
        return _half_operation(e, op, name, type_, operands)
    if type_ == "f32x2":
        return integer.packed(e, "float", lambda *xs: _single(e, op, name, list(xs)), *operands, of="i64")
    if type_ == "f64":
        return arithmetic(e, name, "f64", operands, op.get("rnd", "rn"))
    return _single(e, op, name, operands)


def _single(e: Emitter, op: Op, name: str, operands: list[str]) -> str:
    if op.get("ftz"):
        operands = [flush(e, x) for x in operands]
    result = arithmetic(e, name, "f32", operands, op.get("rnd", "rn"))
    if op.get("ftz"):
        result = flush(e, result)
    return saturate(e, result) if op.get("sat") else result


@pure("abs", "neg")
def _sign(e: Emitter, op: Op):
    type_ = op.slots["T"]
    if integer.is_integer(type_):
        return _INTEGER[op.opcode](e, op)
    a, kind = e.arg(op, "a"), LLVM_TYPE[type_]
    if kind in ("float", "double"):
        if op.get("ftz"):
            a = flush(e, a)
        return e.neg(a, kind) if op.opcode == "neg" else e.intrinsic("llvm.fabs", kind, a)
    if op.get("ftz"):
        a = integer.packed(e, "i16", lambda x: flush_half(e, x), a) if kind == "i32" else flush_half(e, a)
    sign = 0x80008000 if kind == "i32" else 0x8000
    return e.bin("xor", kind, a, e.k(kind, sign)) if op.opcode == "neg" else e.bin("and", kind, a, e.k(kind, ~sign))


def least(e: Emitter, name: str, kind: str, a: str, b: str, nan: bool) -> str:
    """min or max with -0 below +0. A NaN loses to a number, or with `nan` wins."""
    if nan:
        result = e.intrinsic(f"llvm.{name}imum", kind, a, b)
    elif e.host.avx512 and e.width > 1:
        letter, n = ("s", 16) if kind == "float" else ("d", 8)
        a, b = (e.intrinsic("llvm.canonicalize", kind, x) for x in (a, b))  # the instruction lets a signalling NaN win
        result = e.wide(f"llvm.x86.avx512.mask.range.p{letter}.512", kind, a, b,
                        after=f"i32 {4 if name == 'min' else 5}, <{n} x {kind}> zeroinitializer, i{n} -1, i32 4",
                        after_types=f"i32, <{n} x {kind}>, i{n}, i32")
    else:
        result = e.intrinsic(f"llvm.{name}imumnum", kind, a, b)
    return e.select(e.fcmp("uno", kind, result, result), kind, e.k(kind, NAN[kind]), result) if nan else result


@pure("min", "max")
def _minmax(e: Emitter, op: Op):
    type_ = op.slots["T"]
    if integer.is_integer(type_):
        return integer.minmax(e, op)
    names = [name for name in "abc" if name in op.args]
    operands = [e.arg(op, name) for name in names]

    def pick(kind: str, values: list[str]) -> str:
        whole = f"i{BITS[kind]}"
        sign = None
        if op.get("abs"):
            if op.get("xorsign"):
                sign = e.bin("and", whole, e.bin("xor", whole, *(e.bits(v, kind, whole) for v in values)), e.k(whole, 1 << BITS[kind] - 1))
            values = [e.intrinsic("llvm.fabs", kind, v) for v in values]
        result = values[0]
        for v in values[1:]:
            result = least(e, op.opcode, kind, result, v, bool(op.get("NaN")))
        return result if sign is None else e.bits(e.bin("or", whole, e.bits(result, kind, whole), sign), whole, kind)

    def pick_half(*values: str) -> str:
        narrow_type = type_.removesuffix("x2")
        if op.get("ftz"):
            values = tuple(flush_half(e, v) for v in values)
        return to_half(e, narrow_type, pick("float", [from_half(e, narrow_type, v) for v in values]))

    if type_.endswith("x2"):
        return integer.packed(e, "i16", pick_half, *operands)
    if type_ in ("f16", "bf16"):
        return pick_half(*operands)
    if op.get("ftz"):
        operands = [flush(e, x) for x in operands]
    return pick(LLVM_TYPE[type_], operands)


@pure("rcp", "sqrt", "rsqrt")
def _root(e: Emitter, op: Op):
    type_, kind = op.slots["T"], LLVM_TYPE[op.slots["T"]]
    a = e.arg(op, "a")
    if op.get("ftz") and kind == "float":
        a = flush(e, a)
    if op.opcode == "rsqrt":
        result = e.bin("fdiv", kind, e.k(kind, 1.0), e.intrinsic("llvm.sqrt", kind, a))
    else:
        result = arithmetic(e, op.opcode, type_, [a], op.get("rnd", "rn"))
    return flush(e, result) if op.get("ftz") and kind == "float" else result


@pure("ex2", "tanh", "lg2", "sin", "cos")
def _function(e: Emitter, op: Op):
    type_ = op.slots["T"]
    a = e.arg(op, "a")

    def apply(x: str) -> str:
        match op.opcode:
            case "ex2":
                return mathlib.ex2(e, x, bool(op.get("ftz")))
            case "lg2":
                return mathlib.lg2(e, x, bool(op.get("ftz")))
            case "tanh":
                return mathlib.tanh(e, x)
            case _:
                return mathlib.sincos(e, x, op.opcode == "cos")

    if type_.endswith("x2"):
        narrow_type = type_[:-2]
        halves = [to_half(e, narrow_type, apply(from_half(e, narrow_type, x))) for x in half_bits(e, a)]
        high = e.bin("shl", "i32", e.resize(halves[1], "i16", "i32"), e.k("i32", 16))
        return e.bin("or", "i32", e.resize(halves[0], "i16", "i32"), high)
    if type_ in ("f16", "bf16"):
        return to_half(e, type_, apply(from_half(e, type_, a)))
    if op.get("ftz"):
        a = flush(e, a)
    result = apply(a)
    return flush(e, result) if op.get("ftz") and op.opcode in ("sin", "cos", "lg2") else result


@pure("copysign")
def _copysign(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    return e.intrinsic("llvm.copysign", kind, e.arg(op, "b"), e.arg(op, "a"))


@pure("testp")
def _testp(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    classes = {"finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x003, "normal": 0x168, "subnormal": 0x090}
    return e.intrinsic("llvm.is.fpclass", kind, e.arg(op, "a"), result="i1", extra=f", i32 {classes[op.slots['op']]}", extra_types=", i32")
