"""Matrix products by a warp: mma.sync, ldmatrix, stmatrix, movmatrix.

Each form of mma is an outlined function of 32-lane vectors (`tensor_core` and `products`), so that a kernel with hundreds of them compiles
quickly.
"""

from __future__ import annotations

from warpwright.cpu import fragments
from warpwright.cpu.analysis.program import Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import memory, products, quad_product, tensor_core, wmma_memory
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.memory import Element
from warpwright.cpu.interpreter import exact
from warpwright.ptx.isa.matrix import shape_of

LANES = range(32)


# ── mma ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@effect("mma")
def _mma(e: Emitter, op: Op) -> None:
    slots = op.slots
    if slots.get("block_scale"):
        e.fail(op, "it has no block-scaled products")
    name = _dense(e, slots)
    if name is None:
        exact_mma = e.exact_mma and slots["A"] in exact.LEAST and slots["B"] in exact.LEAST
        selector = op.args["f"].value if "f" in op.args else 0  # type: ignore[union-attr]
        name = products.name_of(slots, exact_mma) + (f"_{selector}" if selector else "")
        if name not in e.helpers:
            layouts = [fragments.mma_layout(slots, letter) for letter in "ABCD"]
            _take(e, products.helper(e, slots, layouts, name, selector, exact_mma))
    _call(e, op, name, "abce" if "e" in op.args else "abc", slots)


def _dense(e: Emitter, slots: dict) -> str | None:
    """The name of the fast function of an mma's slots, if there is one."""
    if quad_product.supported(slots):
        name = products.name_of(slots, False)
        return name if name in e.helpers else _take(e, quad_product.helper(slots, name, e.host))
    narrow = slots["A"] in exact.LEAST and slots["B"] in exact.LEAST
    if tensor_core.supported(slots) and not (narrow and e.exact_mma):
        return _take(e, tensor_core.mma_helper(slots, e.host))
    return None


def _take(e: Emitter, helper: tensor_core.Helper) -> str:
    e.helpers.setdefault(helper.name, helper.text)
    e.declarations.update(helper.declarations)
    return helper.name


def _call(e: Emitter, op: Op, name: str, operands: str, slots: dict) -> None:
    """d… = name(the registers of the operands…)."""
    types = [str(slots.get(letter.upper()) or "f16") if letter != "e" else "b32" for letter in operands for _ in _registers(op, letter)]
    registers = [register for letter in operands for register in _registers(op, letter)]
    kind = products.register_kind(str(slots.get("D") or "f16"))
    with e.shape(32):
        given = [(products.register_kind(type_), e.value(register, products.register_kind(type_)))
                 for register, type_ in zip(registers, types, strict=True)]
    _write(e, op, _registers(op, "d"), kind, _results(e, name, given, kind, len(_registers(op, "d"))))


def _write(e: Emitter, op: Op, registers: tuple, kind: str, results: list[str]) -> None:
    for register, result in zip(registers, results, strict=True):
        e.write(op, register, result, kind, 32)


def _results(e: Emitter, name: str, given: list[tuple[str, str]], kind: str, count: int) -> list[str]:
    """What a product gives. It comes back through one place: returned, LLVM would keep a place on the stack for each call."""
    place = e.alloca(f"products {count} {kind}", f"[{count} x <32 x {kind}>], align 64")
    if name + ".to" not in e.helpers:
        e.helpers[name + ".to"] = _through_memory(name, [kind for kind, _ in given], kind, count)
    e.do(f"call void {name}.to(ptr {place}, {', '.join(f'<32 x {kind}> {value}' for kind, value in given)})")
    return [e.ins(f"load <32 x {kind}>, ptr {e.ins(f'getelementptr <32 x {kind}>, ptr {place}, i64 {i}')}, align 64") for i in range(count)]


def _through_memory(name: str, kinds: list[str], kind: str, count: int) -> str:
    """`NAME.to`: a product that stores its `count` results, <32 x kind> each."""
    arguments = ", ".join(f"<32 x {given}> %a{i}" for i, given in enumerate(kinds))
    result_type = "{ " + ", ".join([f"<32 x {kind}>"] * count) + " }"
    lines = [f"define internal void {name}.to(ptr noalias %out, {arguments}) noinline nounwind {{",
             f"  %r = call fastcc {result_type} {name}({arguments})"]
    for i in range(count):
        lines += [f"  %v{i} = extractvalue {result_type} %r, {i}", f"  %p{i} = getelementptr <32 x {kind}>, ptr %out, i64 {i}",
                  f"  store <32 x {kind}> %v{i}, ptr %p{i}, align 64"]
    return "\n".join([*lines, "  ret void", "}", ""])


@effect("wmma")
def _wmma(e: Emitter, op: Op) -> None:
    slots = op.slots
    if slots["action"] != "mma":
        wmma_memory.move(e, op)
        return
    types = [str(slots.get(letter) or "f16") for letter in "ABCD"]
    m, n, k = shape_of(slots["shape"])
    rows = min(m, 16)
    tile = {**slots, "shape": f"m{rows}n8k{k}", **dict(zip("ABCD", types, strict=True))}
    name = _dense(e, tile) if types[3] in ("s32", "f64") or not slots.get("satfinite") else None
    if name is not None:
        _tiles(e, op, name, tile, m // rows, n // 8)
        return
    if slots.get("rnd") not in (None, "rn") and not e.host.avx512:
        e.fail(op, "on this processor, which lacks AVX-512, it has only rounding to nearest")
    name = products.name_of(slots, False).replace("@product", "@wmma")
    if name not in e.helpers:
        layouts = [fragments.wmma_layout(slots["shape"], *pair) for pair in zip("ABCD", types, strict=True)]
        _take(e, products.helper(e, slots, layouts, name))
    _call(e, op, name, "abc", slots)


def _tiles(e: Emitter, op: Op, name: str, tile: dict, rows: int, columns: int) -> None:
    """wmma.mma as mma of tiles, whose fragments follow one another in its own."""
    kinds = [products.register_kind(tile[letter]) for letter in "ABC"]
    lengths = [fragments.mma_layout(tile, letter).registers for letter in "ABC"]
    with e.shape(32):
        values = [[e.value(register, kind) for register in _registers(op, letter)] for letter, kind in zip("abc", kinds, strict=True)]
    for column in range(columns):
        for row in range(rows):
            sums = column * rows + row
            given = [(kind, value) for kind, all_, length, i in zip(kinds, values, lengths, (row, column, sums), strict=True)
                     for value in all_[i * length:(i + 1) * length]]
            own = _registers(op, "d")[sums * lengths[2]:(sums + 1) * lengths[2]]
            _write(e, op, own, kinds[2], _results(e, name, given, kinds[2], lengths[2]))


def _registers(op: Op, name: str) -> tuple:
    arg = op.args[name]
    return arg.elements if isinstance(arg, Vec) else (arg,)


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
