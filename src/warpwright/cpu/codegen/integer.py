"""Integers: arithmetic, carry chains, bit fields, logic, shifts, bytes."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Imm, Op, Reg
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import pure


def is_integer(type_: str) -> bool:
    return type_[0] in "usb" and not type_.startswith("bf")


def packed(e: Emitter, kind: str, function, *operands: str, of: str = "i32") -> str:
    """Apply a function to the two halves of packed values as if they were twice as many lanes of `kind`."""
    width = e.width
    wide = f"<{2 * width} x {kind}>"
    split = [e.ins(f"bitcast {e.ty(of)} {operand} to {wide}") for operand in operands]
    with e.shape(2 * width):
        result = function(*split)
    return e.ins(f"bitcast {wide} {result} to {e.ty(of)}")


def _operands(e: Emitter, op: Op, names: str = "ab") -> list[str]:
    return [e.arg(op, name) for name in names]


def add(e: Emitter, op: Op):
    """add, sub of integers, with or without carry and saturation. The carry of a subtraction is set where nothing was borrowed."""
    type_ = op.slots["T"]
    kind, name = LLVM_TYPE[type_], op.opcode[:3]
    a, b = _operands(e, op)
    if type_ in ("u16x2", "s16x2"):
        return packed(e, "i16", lambda x, y: e.bin(name, "i16", x, y), a, b)
    if op.get("sat"):
        return e.intrinsic(f"llvm.s{name}.sat", kind, a, b)
    result, carry = e.bin(name, kind, a, b), None
    if op.get("cc"):
        carry = e.icmp("ult", kind, result, a) if name == "add" else e.icmp("uge", kind, a, b)
    if "carry_in" in op.args:
        incoming = e.arg(op, "carry_in")
        if name == "sub":
            incoming = e.bin("xor", "i1", incoming, e.k("i1", 1))
        incoming = e.cast("zext", incoming, "i1", kind)
        before, result = result, e.bin(name, kind, result, incoming)
        if carry is not None and name == "add":
            carry = e.bin("or", "i1", carry, e.icmp("ult", kind, result, before))
        elif carry is not None:
            carry = e.bin("and", "i1", carry, e.icmp("uge", kind, before, incoming))
    return result if carry is None else (result, carry)


def product(e: Emitter, type_: str, mode: str, a: str, b: str) -> str:
    """The low or high half of a product, or all of it."""
    kind = LLVM_TYPE[type_]
    if mode == "lo":
        return e.bin("mul", kind, a, b)
    wide = f"i{2 * BITS[kind]}"
    signed = type_[0] == "s"
    full = e.bin("mul", wide, e.resize(a, kind, wide, signed), e.resize(b, kind, wide, signed))
    return full if mode == "wide" else e.resize(e.bin("lshr", wide, full, e.k(wide, BITS[kind])), wide, kind)


def mul(e: Emitter, op: Op):
    a, b = _operands(e, op)
    return product(e, op.slots["T"], op.slots["mode"], a, b)


def mad(e: Emitter, op: Op):
    type_, mode = op.slots["T"], op.slots["mode"]
    a, b, c = _operands(e, op, "abc")
    partial = product(e, type_, mode, a, b)
    kind = f"i{2 * BITS[LLVM_TYPE[type_]]}" if mode == "wide" else LLVM_TYPE[type_]
    if op.get("sat"):
        return e.intrinsic("llvm.sadd.sat", kind, partial, c)
    result, carry = e.bin("add", kind, partial, c), None
    if op.get("cc"):
        carry = e.icmp("ult", kind, result, partial)
    if "carry_in" in op.args:
        before, result = result, e.bin("add", kind, result, e.cast("zext", e.arg(op, "carry_in"), "i1", kind))
        if carry is not None:
            carry = e.bin("or", "i1", carry, e.icmp("ult", kind, result, before))
    return result if carry is None else (result, carry)


@pure("addc", "subc")
def _addc(e: Emitter, op: Op):
    return add(e, op)


@pure("madc")
def _madc(e: Emitter, op: Op):
    return mad(e, op)


@pure("mul24", "mad24")
def _mul24(e: Emitter, op: Op):
    signed = op.slots["T"][0] == "s"
    factors = []
    for name in "ab":
        shifted = e.bin("shl", "i64", e.resize(e.arg(op, name), "i32", "i64"), e.k("i64", 40))
        factors.append(e.bin("ashr" if signed else "lshr", "i64", shifted, e.k("i64", 40)))
    full = e.bin("mul", "i64", *factors)
    if op.slots["mode"] == "hi":
        full = e.bin("ashr" if signed else "lshr", "i64", full, e.k("i64", 16))
    result = e.resize(full, "i64", "i32")
    if op.opcode == "mul24":
        return result
    if op.get("sat"):
        return e.intrinsic("llvm.sadd.sat", "i32", result, e.arg(op, "c"))
    return e.bin("add", "i32", result, e.arg(op, "c"))


def divide(e: Emitter, op: Op):
    """Division and remainder. By zero, the quotient is all ones and the remainder the dividend, as NVIDIA's hardware gives."""
    type_, remainder = op.slots["T"], op.opcode == "rem"
    kind, signed = LLVM_TYPE[type_], type_[0] == "s"
    a, b = _operands(e, op)
    divisor = op.args["b"]
    form = e.lanes.of(divisor, BITS[kind])
    known = form.constant if form.uniform else None
    if known and not (signed and known == (1 << BITS[kind]) - 1):
        return e.bin(("s" if signed else "u") + ("rem" if remainder else "div"), kind, a, e.k(kind, known))
    zero = e.icmp("eq", kind, b, e.k(kind, 0))
    safe = e.select(zero, kind, e.k(kind, 1), b)
    if signed:  # the one quotient that does not fit
        minus = e.icmp("eq", kind, b, e.k(kind, -1))
        safe = e.select(minus, kind, e.k(kind, 1), safe)
    if e.width > 1 and BITS[kind] <= 32:  # doubles hold such quotients exactly after truncation
        to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        q = e.bin("fdiv", "double", e.cast(to, a, kind, "double"), e.cast(to, safe, kind, "double"))
        wide = e.cast("fptosi", q, "double", "i64") if not signed and kind == "i32" and not e.host.avx512 else e.cast(back, q, "double", "i32")
        quotient = e.resize(wide, "i64" if not signed and kind == "i32" and not e.host.avx512 else "i32", kind)
    else:
        quotient = e.bin("sdiv" if signed else "udiv", kind, a, safe)
    if signed:
        quotient = e.select(minus, kind, e.bin("sub", kind, e.k(kind, 0), a), quotient)
    quotient = e.select(zero, kind, e.k(kind, -1), quotient)
    if not remainder:
        return quotient
    left = e.bin("sub", kind, a, e.bin("mul", kind, quotient, b))
    return left  # with b = 0 this is a


def minmax(e: Emitter, op: Op):
    type_ = op.slots["T"]
    name = f"llvm.{type_[0]}{op.opcode}"
    a, b = _operands(e, op)

    def pick(x, y, kind):
        result = e.intrinsic(name, kind, x, y)
        return e.intrinsic("llvm.smax", kind, result, e.k(kind, 0)) if op.get("relu") else result

    if type_ in ("u16x2", "s16x2"):
        return packed(e, "i16", lambda x, y: pick(x, y, "i16"), a, b)
    return pick(a, b, LLVM_TYPE[type_])


def absolute(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    return e.intrinsic("llvm.abs", kind, e.arg(op, "a"), extra=", i1 false", extra_types=", i1")


def negative(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    return e.bin("sub", kind, e.k(kind, 0), e.arg(op, "a"))


@pure("sad")
def _sad(e: Emitter, op: Op):
    type_ = op.slots["T"]
    kind = LLVM_TYPE[type_]
    a, b, c = _operands(e, op, "abc")
    sign = "s" if type_[0] == "s" else "u"
    distance = e.bin("sub", kind, e.intrinsic(f"llvm.{sign}max", kind, a, b), e.intrinsic(f"llvm.{sign}min", kind, a, b))
    return e.bin("add", kind, c, distance)


def _byte(e: Emitter, value: str, i: int, bits: int, signed: bool) -> str:
    """Field i, of so many bits, of an i32."""
    up = e.bin("shl", "i32", value, e.k("i32", 32 - bits * (i + 1)))
    return e.bin("ashr" if signed else "lshr", "i32", up, e.k("i32", 32 - bits))


@pure("dp4a", "dp2a")
def _dot(e: Emitter, op: Op):
    signed_a, signed_b = op.slots["A"] == "s32", op.slots["B"] == "s32"
    a, b, total = _operands(e, op, "abc")
    for i in range(4 if op.opcode == "dp4a" else 2):
        if op.opcode == "dp4a":
            x, y = _byte(e, a, i, 8, signed_a), _byte(e, b, i, 8, signed_b)
        else:
            x, y = _byte(e, a, i, 16, signed_a), _byte(e, b, i + 2 * (op.slots["mode"] == "hi"), 8, signed_b)
        total = e.bin("add", "i32", total, e.bin("mul", "i32", x, y))
    return total


# ── bits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pure("popc", "clz", "brev")
def _count(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    a = e.arg(op, "a")
    if op.opcode == "brev":
        return e.intrinsic("llvm.bitreverse", kind, a)
    if op.opcode == "popc":
        found = e.intrinsic("llvm.ctpop", kind, a)
    else:
        found = e.intrinsic("llvm.ctlz", kind, a, extra=", i1 false", extra_types=", i1")
    return e.resize(found, kind, "i32")


@pure("bfind")
def _bfind(e: Emitter, op: Op):
    type_ = op.slots["T"]
    kind, a = LLVM_TYPE[type_], e.arg(op, "a")
    if type_[0] == "s":
        a = e.bin("xor", kind, a, e.bin("ashr", kind, a, e.k(kind, BITS[kind] - 1)))
    zeros = e.intrinsic("llvm.ctlz", kind, a, extra=", i1 false", extra_types=", i1")
    found = zeros if op.get("shiftamt") else e.bin("sub", kind, e.k(kind, BITS[kind] - 1), zeros)
    return e.resize(e.select(e.icmp("eq", kind, a, e.k(kind, 0)), kind, e.k(kind, -1), found), kind, "i32")


def shift(e: Emitter, operation: str, kind: str, a: str, amount: str) -> str:
    """shl, lshr or ashr by an i32 that may be as large as the width or larger: 0, or the sign."""
    bits = BITS[kind]
    if operation == "ashr":
        least = e.intrinsic("llvm.umin", "i32", amount, e.k("i32", bits - 1))
        return e.bin("ashr", kind, a, e.resize(least, "i32", kind))
    inside = e.icmp("ult", "i32", amount, e.k("i32", bits))
    cut = e.bin("and", "i32", amount, e.k("i32", bits - 1))
    return e.select(inside, kind, e.bin(operation, kind, a, e.resize(cut, "i32", kind)), e.k(kind, 0))


def _constant_shift(e: Emitter, op: Op) -> int | None:
    form = e.lanes.of(op.args["b"], 32)
    return form.constant if form.uniform else None


@pure("shl", "shr")
def _shift(e: Emitter, op: Op):
    type_ = op.slots["T"]
    kind, a = LLVM_TYPE[type_], e.arg(op, "a")
    operation = "shl" if op.opcode == "shl" else "ashr" if type_[0] == "s" else "lshr"
    amount = _constant_shift(e, op)
    if amount is None:
        return shift(e, operation, kind, a, e.arg(op, "b", "i32"))
    if amount >= BITS[kind]:
        if operation != "ashr":
            return e.k(kind, 0)
        amount = BITS[kind] - 1
    return e.bin(operation, kind, a, e.k(kind, amount))


@pure("shf")
def _shf(e: Emitter, op: Op):
    a, b, c = e.arg(op, "a"), e.arg(op, "b"), e.arg(op, "c")
    left = op.slots["dir"] == "l"
    result = e.intrinsic("llvm.fshl" if left else "llvm.fshr", "i32", b, a, c)
    if op.slots["mode"] == "clamp":
        result = e.select(e.icmp("uge", "i32", c, e.k("i32", 32)), "i32", a if left else b, result)
    return result


def _ones(e: Emitter, kind: str, count: str) -> str:
    """So many low ones (count an i32; all of them where it is the width or more)."""
    return e.bin("xor", kind, shift(e, "shl", kind, e.k(kind, -1), count), e.k(kind, -1))


def _field(e: Emitter, op: Op, name: str) -> str:
    return e.bin("and", "i32", e.arg(op, name), e.k("i32", 255))


@pure("bfe")
def _bfe(e: Emitter, op: Op):
    type_ = op.slots["T"]
    kind, a, start, length = LLVM_TYPE[type_], e.arg(op, "a"), _field(e, op, "pos"), _field(e, op, "len")
    bits = e.k("i32", BITS[kind])
    if type_[0] == "u":
        return e.bin("and", kind, shift(e, "lshr", kind, a, start), _ones(e, kind, length))
    end = e.intrinsic("llvm.umin", "i32", e.bin("add", "i32", start, length), bits)
    up = shift(e, "shl", kind, a, e.bin("sub", "i32", bits, end))
    held = e.intrinsic("llvm.smax", "i32", e.bin("sub", "i32", end, start), e.k("i32", 0))
    result = shift(e, "ashr", kind, up, e.bin("sub", "i32", bits, held))
    return e.select(e.icmp("eq", "i32", length, e.k("i32", 0)), kind, e.k(kind, 0), result)


@pure("bfi")
def _bfi(e: Emitter, op: Op):
    kind, start, length = LLVM_TYPE[op.slots["T"]], _field(e, op, "pos"), _field(e, op, "len")
    mask = shift(e, "shl", kind, _ones(e, kind, length), start)
    inserted = e.bin("and", kind, shift(e, "shl", kind, e.arg(op, "a"), start), mask)
    kept = e.bin("and", kind, e.arg(op, "b"), e.bin("xor", kind, mask, e.k(kind, -1)))
    return e.bin("or", kind, inserted, kept)


@pure("bmsk")
def _bmsk(e: Emitter, op: Op):
    start, count = e.arg(op, "a"), e.arg(op, "b")
    if op.slots["mode"] == "wrap":
        start, count = e.bin("and", "i32", start, e.k("i32", 31)), e.bin("and", "i32", count, e.k("i32", 31))
    return shift(e, "shl", "i32", _ones(e, "i32", count), start)


@pure("szext")
def _szext(e: Emitter, op: Op):
    a, count = e.arg(op, "a"), e.arg(op, "b")
    if op.slots["mode"] == "wrap":
        count = e.bin("and", "i32", count, e.k("i32", 31))
    if op.slots["T"] == "u32":
        return e.bin("and", "i32", a, _ones(e, "i32", count))
    rest = e.bin("sub", "i32", e.k("i32", 32), e.intrinsic("llvm.umin", "i32", count, e.k("i32", 32)))
    result = e.intrinsic("llvm.umin", "i32", rest, e.k("i32", 31))
    result = e.bin("ashr", "i32", shift(e, "shl", "i32", a, rest), result)
    return e.select(e.icmp("eq", "i32", count, e.k("i32", 0)), "i32", e.k("i32", 0), result)


@pure("fns")
def _fns(e: Emitter, op: Op):
    """The c-th one of a, counted from bit b upwards (c > 0), downwards (c < 0), or bit b itself (c = 0)."""
    a, base, n = e.arg(op, "a"), e.arg(op, "b"), e.arg(op, "c")
    found, rank_up, rank_down = e.k("i32", -1), e.k("i32", 0), e.k("i32", 0)
    for step in range(32):
        for bit, up in ((step, True), (31 - step, False)):
            is_set = e.cast("trunc", e.bin("lshr", "i32", a, e.k("i32", bit)), "i32", "i1")
            place = e.k("i32", bit)
            inside = e.icmp("uge" if up else "ule", "i32", place, base)
            counts = e.cast("zext", e.bin("and", "i1", is_set, inside), "i1", "i32")
            if up:
                rank_up = e.bin("add", "i32", rank_up, counts)
                match = e.bin("or", "i1", e.icmp("eq", "i32", n, rank_up),
                              e.bin("and", "i1", e.icmp("eq", "i32", n, e.k("i32", 0)), e.icmp("eq", "i32", place, base)))
            else:
                rank_down = e.bin("sub", "i32", rank_down, counts)
                match = e.icmp("eq", "i32", n, rank_down)
            hit = e.bin("and", "i1", match, e.cast("trunc", counts, "i32", "i1"))
            found = e.select(hit, "i32", place, found)
    return found


# ── logic ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pure("and", "or", "xor")
def _logic(e: Emitter, op: Op):
    return e.bin(op.opcode, LLVM_TYPE[op.slots["T"]], e.arg(op, "a"), e.arg(op, "b"))


@pure("not")
def _not(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    return e.bin("xor", kind, e.arg(op, "a"), e.k(kind, -1 if kind != "i1" else 1))


@pure("cnot")
def _cnot(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    return e.cast("zext", e.icmp("eq", kind, e.arg(op, "a"), e.k(kind, 0)), "i1", kind)


@pure("lop3")
def _lop3(e: Emitter, op: Op):
    a, b, c = (e.arg(op, name) for name in "abc")
    table = op.args["lut"].value & 255  # type: ignore[union-attr]

    def invert(x: str) -> str:
        return e.bin("xor", "i32", x, e.k("i32", -1))

    def of_c(bits: int) -> str:
        return {0: e.k("i32", 0), 1: invert(c), 2: c, 3: e.k("i32", -1)}[bits] if bits != 1 else invert(c)

    def choose(x: str, one, zero) -> str:
        """x ? one : zero, bit by bit; one and zero are made by calling."""
        return e.bin("or", "i32", e.bin("and", "i32", x, one()), e.bin("and", "i32", invert(x), zero()))

    def of_bc(bits: int) -> str:
        low, high = bits & 3, bits >> 2
        return of_c(low) if low == high else choose(b, lambda: of_c(high), lambda: of_c(low))

    low, high = table & 15, table >> 4
    result = of_bc(low) if low == high else choose(a, lambda: of_bc(high), lambda: of_bc(low))
    if "p" not in op.args:
        return result
    some = e.icmp("ne", "i32", result, e.k("i32", 0))
    return result, e.bin(op.slots["bool"], "i1", some, e.arg(op, "q"))


_PRMT_MODES = {  # selector for c & 3 = 0 … 3
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123), "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@pure("prmt")
def _prmt(e: Emitter, op: Op):
    a, b = e.arg(op, "a"), e.arg(op, "b")
    form = e.lanes.of(op.args["c"], 32)
    known = form.constant if form.uniform and isinstance(op.args["c"], (Imm, Reg)) else None
    mode = op.get("mode")
    if known is not None:
        selector = _PRMT_MODES[mode][known & 3] if mode else known
        bytes_type = f"<{4 * e.width} x i8>"
        first, second = (e.ins(f"bitcast {e.ty('i32')} {x} to {bytes_type}") for x in (a, b))
        n = 4 * e.width
        picks = [selector >> 4 * i & 15 for i in range(4)]
        with e.shape(n):
            indices = [4 * lane + (pick & 3) + (n if pick & 4 else 0) for lane in range(n // 4) for pick in picks]
            result = e.shuffle(first, "i8", indices, n, second)
            if any(pick & 8 for pick in picks):
                signs = e.bin("ashr", "i8", result, e.k("i8", 7))
                result = e.shuffle(result, "i8", [4 * lane + i + (n if picks[i] & 8 else 0) for lane in range(n // 4) for i in range(4)], n, signs)
        return e.ins(f"bitcast {bytes_type} {result} to {e.ty('i32')}")
    c = e.arg(op, "c")
    if mode:
        low = e.bin("and", "i32", c, e.k("i32", 3))
        chosen = e.k("i32", _PRMT_MODES[mode][0])
        for i in (1, 2, 3):
            chosen = e.select(e.icmp("eq", "i32", low, e.k("i32", i)), "i32", e.k("i32", _PRMT_MODES[mode][i]), chosen)
        c = chosen
    both = e.bin("or", "i64", e.resize(a, "i32", "i64"), e.bin("shl", "i64", e.resize(b, "i32", "i64"), e.k("i64", 32)))
    result = e.k("i32", 0)
    for i in range(4):
        pick = e.bin("lshr", "i32", c, e.k("i32", 4 * i))
        amount = e.bin("shl", "i32", e.bin("and", "i32", pick, e.k("i32", 7)), e.k("i32", 3))
        byte = e.resize(e.bin("lshr", "i64", both, e.resize(amount, "i32", "i64")), "i64", "i32")
        byte = e.bin("shl", "i32", byte, e.k("i32", 24))
        sign = e.bin("ashr", "i32", byte, e.k("i32", 31))
        repeat = e.icmp("ne", "i32", e.bin("and", "i32", pick, e.k("i32", 8)), e.k("i32", 0))
        byte = e.select(repeat, "i32", sign, byte)
        placed = e.bin("and", "i32", e.bin("lshr", "i32", byte, e.k("i32", 24 - 8 * i)), e.k("i32", 0xFF << 8 * i))
        result = e.bin("or", "i32", result, placed)
    return result
