"""Matrix products by a warp: mma.sync, ldmatrix, stmatrix, movmatrix.

Each shape of mma is an outlined function of 32-lane vectors (`tensor_core`), so that a kernel with hundreds of them compiles quickly.
"""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import memory, tensor_core
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.memory import Element
from warpwright.ptx.isa.matrix import shape_of

LANES = range(32)


# ── mma ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@effect("mma")
def _mma(e: Emitter, op: Op) -> None:
    if tensor_core.supported(op.slots):
        helper = tensor_core.mma_helper(op.slots, e.host)
        e.helpers.setdefault(helper.name, helper.text)
        e.declarations.update(helper.declarations)
        kinds = [parameter.rpartition(" ")[0][len("<32 x "):-1] for parameter in helper.parameters]
        name, result_type, convention = helper.name, helper.result, "fastcc "
    elif op.slots["A"] == "f64" and op.slots["shape"].startswith(("m8n8", "m16n8")):
        kinds = ["double"] * sum(len(_registers(op, letter)) for letter in "abc")
        name, convention = f"@mma_{op.slots['shape']}_f64", ""
        result_type = "{ " + ", ".join(["<32 x double>"] * len(_registers(op, "d"))) + " }"
        if name not in e.helpers:
            e.helpers[name] = _f64_function(e, op, name, result_type)
    else:
        e.fail(op, "of mma the engine has the dense m16n8 shapes of f16, bf16, tf32, e4m3, e5m2, s8 and u8, and those of f64")
    registers = [register for letter in "abc" for register in _registers(op, letter)]
    with e.shape(32):
        given = ", ".join(f"<32 x {kind}> {e.value(register, kind)}" for register, kind in zip(registers, kinds, strict=True))
    result = e.ins(f"call {convention}{result_type} {name}({given})")
    for i, register in enumerate(_registers(op, "d")):
        e.write(op, register, e.ins(f"extractvalue {result_type} {result}, {i}"), kinds[-1], 32)


def _registers(op: Op, name: str) -> tuple:
    arg = op.args[name]
    return arg.elements if isinstance(arg, Vec) else (arg,)


def _f64_function(e: Emitter, op: Op, name: str, result_type: str) -> str:
    """The f64 product: fused multiply-adds, k ascending, of what each lane's row and column say."""
    rows, k = shape_of(op.slots["shape"])[0] // 8, shape_of(op.slots["shape"])[2]
    names = {letter: [f"%{letter}{i}" for i in range(len(_registers(op, letter)))] for letter in "abc"}
    lines, e.lines = e.lines, []
    totals = names["c"]
    with e.shape(32):
        for group in range(k // 4):
            for quad in range(4):
                for row in range(rows):
                    left = e.shuffle(names["a"][group * rows + row], "double", [lane // 4 * 4 + quad for lane in LANES])
                    for odd in (0, 1):
                        right = e.shuffle(names["b"][group], "double", [(2 * (lane % 4) + odd) * 4 + quad for lane in LANES])
                        totals[2 * row + odd] = e.intrinsic("llvm.fma", "double", left, right, totals[2 * row + odd])
    current = "poison"
    for i, total in enumerate(totals):
        current = e.ins(f"insertvalue {result_type} {current}, <32 x double> {total}, {i}")
    body, e.lines = "\n".join(e.lines), lines
    signature = ", ".join(f"<32 x double> %{letter}{i}" for letter in "abc" for i in range(len(_registers(op, letter))))
    return f"\ndefine internal {result_type} {name}({signature}) noinline {{\n{body}\n  ret {result_type} {current}\n}}\n"


# ── fragments from and to shared memory ──────────────────────────────────────────────────────────────────────────

_ROW = Element("i32", 4)  # 16 bytes: eight elements of 16 bits
# Where lane l finds, in the 64 halves of an 8×8 matrix by rows, its two elements of the transposed matrix.
_TRANSPOSED = [(2 * (lane % 4) + i) * 8 + lane // 4 for lane in LANES for i in (0, 1)]


def _transpose(e: Emitter, matrix: str) -> str:
    halves = e.ins(f"bitcast <32 x i32> {matrix} to <64 x i16>")
    return e.ins(f"bitcast <64 x i16> {e.shuffle(halves, 'i16', _TRANSPOSED, 64)} to <32 x i32>")


def _check_rows(e: Emitter, address: addressing.Address, count: int) -> str:
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
                for offset in address.form.offsets[:8 * count]]
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
    good = _check_rows(e, address, count)
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
    values = [e.ins(f"phi <32 x i32> [ {a}, %{from_one} ], [ {b}, %{from_other} ]") for a, b in zip(quick, slow, strict=True)]
    for target, value in zip(targets, values, strict=True):
        e.write(op, target, _transpose(e, value) if op.get("trans") else value, "i32", 32)


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
    good = _check_rows(e, address, count)
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
    e.write(op, op.args["d"], _transpose(e, value), "i32", 32)
