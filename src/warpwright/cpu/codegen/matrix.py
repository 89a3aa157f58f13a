"""Matrix products by a warp: mma.sync, ldmatrix, stmatrix, movmatrix.

Each shape of mma is an outlined function of 32-lane vectors, so that a kernel with hundreds of them compiles quickly. A lane's place in a
fragment is (g, t) = (lane / 4, lane mod 4): of A it holds rows g and g + 8, of B column g, of C and D rows g and g + 8, columns 2t and 2t + 1.
"""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import memory
from warpwright.cpu.codegen.convert import from_fp8
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.floating import from_half, half_bits, to_half
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.memory import Element
from warpwright.ptx.isa.matrix import shape_of

LANES = range(32)
_BITS = {"f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "tf32": 32, "f64": 64}


# ── mma ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@effect("mma")
def _mma(e: Emitter, op: Op) -> None:
    a_type, b_type, c_type, d_type = (op.slots.get(name) for name in "ABCD")
    m, n, k = shape_of(op.slots["shape"])
    if (a_type not in _BITS or n != 8 or m not in (8, 16) or op.get("kind") or op.get("sp") or op.get("sp::ordered_metadata")
            or (m, k, a_type) == (8, 4, "f16")):
        e.fail(op, "the engine has the dense mma shapes m16n8 of f16, bf16, tf32, e4m3, e5m2, s8, u8 and f64 so far")
    if e.mask is not None:
        pass  # all lanes have to take part; those that do not are not written
    name = f"mma.{op.slots['shape']}.{a_type}.{b_type}.{c_type}.{d_type}{'.satfinite' if op.get('satfinite') else ''}"
    if name not in e.helpers:
        e.helpers[name] = ""  # reserved: the writer below may ask for helpers too
        e.helpers[name] = _function(e, op, name, m, k)
    kinds = _kinds(op, m, k)
    with e.shape(32):
        arguments = [(kind, e.value(element, kind)) for operand in "abc" for kind, element in
                     zip(kinds[operand], op.args[operand].elements, strict=True)]  # type: ignore[union-attr]
    result_type = "{ " + ", ".join(f"<32 x {kind}>" for kind in kinds["d"]) + " }"
    result = e.ins(f"call {result_type} @{name}({', '.join(f'<32 x {kind}> {value}' for kind, value in arguments)})")
    for i, (kind, reg) in enumerate(zip(kinds["d"], op.args["d"].elements, strict=True)):  # type: ignore[union-attr]
        e.write(op, reg, e.ins(f"extractvalue {result_type} {result}, {i}"), kind, 32)


def _kinds(op: Op, m: int, k: int) -> dict[str, list[str]]:
    """LLVM types of the registers of each operand."""
    def registers(type_: str, elements: int) -> list[str]:
        if type_ in ("f32", "s32", "f64"):
            return [{"f32": "float", "s32": "i32", "f64": "double"}[type_]] * (elements // 32)
        return ["i32"] * (elements * _BITS[type_] // 1024)

    return {"a": registers(op.slots["A"], m * k), "b": registers(op.slots["B"], 8 * k),
            "c": registers(op.slots["C"], m * 8), "d": registers(op.slots["D"], m * 8)}


def _function(e: Emitter, op: Op, name: str, m: int, k: int) -> str:
    kinds = _kinds(op, m, k)
    names = {operand: [f"%{operand}{i}" for i in range(len(kinds[operand]))] for operand in "abc"}
    signature = ", ".join(f"<32 x {kind}> {register}" for operand in "abc" for kind, register in zip(kinds[operand], names[operand], strict=True))
    result_type = "{ " + ", ".join(f"<32 x {kind}>" for kind in kinds["d"]) + " }"
    lines, e.lines, mask, e.mask = e.lines, [], e.mask, None
    with e.shape(32):
        totals = _accumulators(e, op.slots["C"], names["c"])
        if op.slots["A"] == "bf16" and e.host.bf16:
            totals = _dot_pairs(e, names["a"], names["b"], totals, k)
        else:
            totals = _products(e, op, names["a"], names["b"], totals, m, k)
        results = _results(e, op, totals)
    current = "poison"
    for i, (kind, value) in enumerate(zip(kinds["d"], results, strict=True)):
        current = e.ins(f"insertvalue {result_type} {current}, <32 x {kind}> {value}, {i}")
    body, e.lines, e.mask = "\n".join(e.lines), lines, mask
    return f"\ndefine internal {result_type} @{name}({signature}) noinline {{\n{body}\n  ret {result_type} {current}\n}}\n"


def _accumulators(e: Emitter, type_: str, registers: list[str]) -> list[str]:
    """C as one vector an element: rows g then g + 8, columns 2t and 2t + 1."""
    if type_ != "f16":
        return registers
    return [from_half(e, "f16", part) for register in registers for part in half_bits(e, register)]


def _results(e: Emitter, op: Op, totals: list[str]) -> list[str]:
    if op.slots["D"] == "f16":
        halves = [to_half(e, "f16", total) for total in totals]
        return [e.bin("or", "i32", e.resize(low, "i16", "i32"), e.bin("shl", "i32", e.resize(high, "i16", "i32"), e.k("i32", 16)))
                for low, high in zip(halves[::2], halves[1::2], strict=True)]
    return totals


def _products(e: Emitter, op: Op, a: list[str], b: list[str], totals: list[str], m: int, k: int) -> list[str]:
    """Multiply and add, k ascending, each sum rounded once: the order of the reference interpreter."""
    a_type, b_type = op.slots["A"], op.slots["B"]
    per_register = max(1, 32 // _BITS[a_type])
    kind = "i32" if a_type in ("s8", "u8") else "double" if a_type == "f64" else "float"
    rows = m // 8
    unpacked_a = [_elements(e, a_type, register) for register in a]
    unpacked_b = [_elements(e, b_type, register) for register in b]
    for step in range(k):
        group, within = divmod(step, 4 * per_register)
        quad, part = divmod(within, per_register)
        left = [e.shuffle(unpacked_a[group * rows + row][part], kind, [lane // 4 * 4 + quad for lane in LANES]) for row in range(rows)]
        right = [e.shuffle(unpacked_b[group][part], kind, [(2 * (lane % 4) + odd) * 4 + quad for lane in LANES]) for odd in (0, 1)]
        for row in range(rows):
            for odd in (0, 1):
                at = 2 * row + odd
                if kind == "i32":
                    product = e.bin("mul", "i32", left[row], right[odd])
                    totals[at] = (e.intrinsic("llvm.sadd.sat", "i32", totals[at], product) if op.get("satfinite") else
                                  e.bin("add", "i32", totals[at], product))
                else:
                    totals[at] = e.intrinsic("llvm.fma", kind, left[row], right[odd], totals[at])
    return totals


def _elements(e: Emitter, type_: str, register: str) -> list[str]:
    """The values packed in a register, low first, in the type the product is made in."""
    match type_:
        case "f16" | "bf16":
            return [from_half(e, type_, part) for part in half_bits(e, register)]
        case "tf32":
            return [e.bits(e.bin("and", "i32", register, e.k("i32", 0xFFFFE000)), "i32", "float")]
        case "f64":
            return [register]
        case "e4m3" | "e5m2":
            return [from_fp8(e, type_, e.resize(e.bin("lshr", "i32", register, e.k("i32", 8 * i)), "i32", "i8")) for i in range(4)]
        case _:
            return [e.bin("ashr" if type_ == "s8" else "lshr", "i32", e.bin("shl", "i32", register, e.k("i32", 24 - 8 * i)), e.k("i32", 24))
                    for i in range(4)]


def _dot_pairs(e: Emitter, a: list[str], b: list[str], totals: list[str], k: int) -> list[str]:
    """bf16 with AVX-512's dot product of pairs."""
    name = "@llvm.x86.avx512bf16.dpbf16ps.512"
    e.declarations[name] = f"declare <16 x float> {name}(<16 x float>, <32 x bfloat>, <32 x bfloat>)"

    def half(value: str, kind: str, side: int) -> str:
        return e.shuffle(value, kind, range(16 * side, 16 * side + 16))

    sums = [[half(total, "float", side) for side in (0, 1)] for total in totals]
    for step in range(k // 2):
        group, quad = divmod(step, 4)
        left = [[half(e.shuffle(a[2 * group + row], "i32", [lane // 4 * 4 + quad for lane in LANES]), "i32", side) for side in (0, 1)] for row in (0, 1)]
        right = [e.shuffle(b[group], "i32", [(2 * (lane % 4) + odd) * 4 + quad for lane in range(16)]) for odd in (0, 1)]  # the same for both halves
        pairs = [e.ins(f"bitcast <16 x i32> {x} to <32 x bfloat>") for x in right]
        for row in (0, 1):
            for side in (0, 1):
                x = e.ins(f"bitcast <16 x i32> {left[row][side]} to <32 x bfloat>")
                for odd in (0, 1):
                    total = sums[2 * row + odd][side]
                    sums[2 * row + odd][side] = e.ins(f"call <16 x float> {name}(<16 x float> {total}, <32 x bfloat> {x}, <32 x bfloat> {pairs[odd]})")
    return [e.shuffle(low, "float", LANES, 16, high) for low, high in sums]


# ── fragments from and to shared memory ──────────────────────────────────────────────────────────────────────────

_ROW = Element("i32", 4)  # 16 bytes: eight elements of 16 bits
# Where lane l finds, in the 64 halves of an 8×8 matrix by rows, its two elements of the transposed matrix.
_TRANSPOSED = [(2 * (lane % 4) + i) * 8 + lane // 4 for lane in LANES for i in (0, 1)]


def _transpose(e: Emitter, matrix: str) -> str:
    halves = e.ins(f"bitcast <32 x i32> {matrix} to <64 x i16>")
    return e.ins(f"bitcast <64 x i16> {e.shuffle(halves, 'i16', _TRANSPOSED, 64)} to <32 x i32>")


def _check_rows(e: Emitter, op: Op, address: addressing.Address, count: int) -> str:
    """The mask is narrowed to the lanes that give rows; returns the condition that all of them may be accessed directly."""
    rows = (1 << 8 * count) - 1
    if count < 4:
        e.mask = e.ins(f"and i32 {e.mask_bits()}, {rows}")
    if addressing.proven(address, _ROW.total):
        return "true"
    if address.form.varying:
        return addressing.check_vector(e, address, addressing.vector(e, address), _ROW.total)
    return addressing.check_scalar(e, address, _ROW.total)


def _row_pointers(e: Emitter, address: addressing.Address, count: int) -> list[str]:
    """Pointers to the rows that lanes give."""
    if address.form.plain:
        pointer = addressing.host_scalar(e, address)
        return [e.ins(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer
                for offset in address.form.offsets[:8 * count]]  # type: ignore[index]
    host = addressing.host_vector(e, address, addressing.vector(e, address))
    return [e.ins(f"inttoptr i64 {e.extract(host, 'i64', lane)} to ptr") for lane in range(8 * count)]


def _matrix_address(e: Emitter, op: Op) -> addressing.Address:
    space = str(op.get("space") or "").split("::")[0]
    return addressing.resolve(e, op, "a", space or "global")


@effect("ldmatrix")
def _ldmatrix(e: Emitter, op: Op) -> None:
    if op.slots["shape"] != "m8n8":
        e.fail(op, "of ldmatrix the engine has m8n8 so far")
    targets = op.args["d"].elements if isinstance(op.args["d"], Vec) else (op.args["d"],)
    count, outer = len(targets), e.mask
    address = _matrix_address(e, op)
    good = _check_rows(e, op, address, count)
    narrowed = e.mask
    one, other, done = e.label("rows"), e.label("slow"), e.label("matrix")
    e.do(f"br i1 {good}, label %{one}, label %{other}, !prof !0")
    e.start(one)
    rows = [e.ins(f"load <4 x i32>, ptr {pointer}, align 16") for pointer in _row_pointers(e, address, count)]
    quick = []
    for i in range(count):
        parts, length = rows[8 * i:8 * i + 8], 4
        while len(parts) > 1:
            parts = [e.shuffle(x, "i32", range(2 * length), length, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            length *= 2
        quick.append(parts[0])
    from_one = e.here
    e.do(f"br label %{done}")
    e.start(other)
    addresses = addressing.vector(e, address)
    words = memory._slow_load(e, op, address, addresses, _ROW)
    joined, length = memory._join(e, words, "i32")
    slow = [e.shuffle(joined, "i32", [32 * (lane % 4) + 8 * i + lane // 4 for lane in LANES], length) for i in range(count)]
    addressing.learn_window(e, address, addresses)
    from_other = e.here
    e.do(f"br label %{done}")
    e.start(done)
    e.mask = outer
    for target, a, b in zip(targets, quick, slow, strict=True):
        value = e.ins(f"phi <32 x i32> [ {a}, %{from_one} ], [ {b}, %{from_other} ]")
        e.write(op, target, _transpose(e, value) if op.get("trans") else value, "i32", 32)  # type: ignore[arg-type]
    del narrowed


@effect("stmatrix")
def _stmatrix(e: Emitter, op: Op) -> None:
    if op.slots["shape"] != "m8n8":
        e.fail(op, "of stmatrix the engine has m8n8 so far")
    sources = op.args["b"].elements if isinstance(op.args["b"], Vec) else (op.args["b"],)
    count, outer = len(sources), e.mask
    with e.shape(32):
        values = [e.value(source, "i32") for source in sources]
    if op.get("trans"):
        values = [_transpose(e, value) for value in values]
    address = _matrix_address(e, op)
    good = _check_rows(e, op, address, count)
    one, other, done = e.label("rows"), e.label("slow"), e.label("stored")
    if outer is not None:  # lanes that do not take part give no rows
        full = e.ins(f"icmp eq i32 {outer}, -1")
        good = e.ins(f"and i1 {good}, {full}")
    e.do(f"br i1 {good}, label %{one}, label %{other}, !prof !0")
    e.start(one)
    for row, pointer in enumerate(_row_pointers(e, address, count)):
        part = e.shuffle(values[row // 8], "i32", range(4 * (row % 8), 4 * (row % 8) + 4))
        e.do(f"store <4 x i32> {part}, ptr {pointer}, align 16")
    e.do(f"br label %{done}")
    e.start(other)
    addresses = addressing.vector(e, address)
    joined, length = memory._join(e, values, "i32")
    words = [e.shuffle(joined, "i32", [32 * (lane // 8 % count) + 4 * (lane % 8) + i for lane in LANES], length) for i in range(4)]
    memory._slow_store(e, op, address, addresses, _ROW, words)
    addressing.learn_window(e, address, addresses)
    e.do(f"br label %{done}")
    e.start(done)
    e.mask = outer


@effect("movmatrix")
def _movmatrix(e: Emitter, op: Op) -> None:
    with e.shape(32):
        value = e.arg(op, "a", "i32")
    e.write(op, op.args["d"], _transpose(e, value), "i32", 32)  # type: ignore[arg-type]
