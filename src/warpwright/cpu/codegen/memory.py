"""Loads and stores.

What LLVM gets for an access depends on how the lanes' addresses relate: one load for a uniform address; a few wide loads and a shuffle where
the lanes' elements lie in runs (contiguous, vectors of two or four, rows of a tile, broadcast groups); a gather or a load a lane otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpwright.cpu.analysis.program import Addr, Op, Reg, Vec
from warpwright.cpu.analysis.variables import Place
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import cluster
from warpwright.cpu.codegen.address import Address
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import effect, pure

MOST_RUNS = 16


@dataclass(frozen=True)
class Element:
    """What one lane accesses: `count` values of an LLVM type."""

    kind: str
    count: int

    @property
    def size(self) -> int:
        return max(1, BITS[self.kind] // 8)

    @property
    def total(self) -> int:
        return self.size * self.count


@dataclass(frozen=True)
class Run:
    """Elements that lie side by side in memory: `length` of them from byte `start` of group `group` on."""

    group: int
    start: int
    length: int


def element_of(op: Op, name: str) -> Element:
    type_, length = op.types[name]
    return Element(LLVM_TYPE[type_], length or 1)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(address: Address, element: Element, gap: int) -> tuple[list[Run], list[list[tuple[int, int]]], list] | None:
    """How to cover an access by runs: the runs, for each value of each lane (run, index in it), and the groups of lanes.

    gap: bytes between elements that may be read along. None where that takes too many runs.
    """
    form = address.form
    if form.varying or address.space == "local":
        return None
    if any(offset % element.total for offset in form.offsets):
        return None
    found = addressing.groups(form)
    runs: list[Run] = []
    where: list[list[tuple[int, int]]] = [[] for _ in range(32)]
    for g, (_, lanes) in enumerate(found):
        wanted = sorted({form.offsets[lane] + i * element.size for lane in lanes for i in range(element.count)})
        place: dict[int, tuple[int, int]] = {}
        start = last = wanted[0]
        for byte in wanted:
            if byte - last > element.size + gap or byte - start >= 4096:
                runs.append(Run(g, start, (last - start) // element.size + 1))
                start = byte
            place[byte] = (len(runs), (byte - start) // element.size)
            last = byte
        runs.append(Run(g, start, (last - start) // element.size + 1))
        if len(runs) > MOST_RUNS:
            return None
        for lane in lanes:
            where[lane] = [place[form.offsets[lane] + i * element.size] for i in range(element.count)]
    if sum(run.length for run in runs) > 8 * 32 * element.count:
        return None
    return runs, where, found


def _run_pointer(e: Emitter, run: Run, pointer: str, found: list) -> str:
    key = found[run.group][0]
    where = pointer
    if key:
        where = e.ins(f"getelementptr i8, ptr {where}, i64 {addressing.displacement(e, key)}")
    return e.ins(f"getelementptr i8, ptr {where}, i64 {run.start}") if run.start else where


def _runs_loaded(e: Emitter, address: Address, element: Element, planned, volatile: str) -> tuple[str, int, list[list[int]]]:
    """All runs in one vector, its length, and where in it each lane's values are."""
    runs, where, found = planned
    pointer = addressing.host_scalar(e, address)
    kind, align = element.kind, element.total
    longest = max(run.length for run in runs)
    parts = []
    for run in runs:
        at = _run_pointer(e, run, pointer, found)
        part = e.ins(f"load {volatile}<{run.length} x {kind}>, ptr {at}, align {align}")
        if run.length < longest:
            part = e.shuffle(part, kind, [i if i < run.length else 0 for i in range(longest)], run.length)
        parts.append(part)
    whole, length = _join(e, parts, kind, longest)
    return whole, length, [[r * longest + index for r, index in lane] for lane in where]


def _load_runs(e: Emitter, address: Address, element: Element, planned, volatile: str) -> list[str]:
    whole, length, where = _runs_loaded(e, address, element, planned, volatile)
    return [e.shuffle(whole, element.kind, [lane[i] for lane in where], length) for i in range(element.count)]


def load_flat(e: Emitter, address: Address, element: Element, planned) -> str:
    """All lanes' values, one lane after another, as one vector."""
    whole, length, where = _runs_loaded(e, address, element, planned, "")
    order = [index for lane in where for index in lane]
    return whole if order == list(range(length)) else e.shuffle(whole, element.kind, order, length)


def store_flat(e: Emitter, address: Address, element: Element, flat: str, planned) -> None:
    """Store what `load_flat` gives; all lanes take part."""
    runs, where, found = planned
    pointer = addressing.host_scalar(e, address)
    source = {place: element.count * lane + i for lane in range(32) for i, place in enumerate(where[lane])}
    total = 32 * element.count
    for r, run in enumerate(runs):
        order = [source[r, index] for index in range(run.length)]
        part = flat if order == list(range(total)) else e.shuffle(flat, element.kind, order, total)
        e.do(f"store <{run.length} x {element.kind}> {part}, ptr {_run_pointer(e, run, pointer, found)}, align {element.total}")


def overlap(planned) -> bool:
    """Whether two lanes access the same bytes."""
    touched = [place for lane in planned[1] for place in lane]
    return len(set(touched)) < len(touched)


def _join(e: Emitter, values: list[str], kind: str, length: int = 32) -> tuple[str, int]:
    """Vectors one after another; what is missing to a power of two is left open."""
    parts = list(values)
    while len(parts) > 1:
        if len(parts) % 2:
            parts.append("poison")
        parts = [e.shuffle(a, kind, range(2 * length), length, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        length *= 2
    return parts[0], length


def _store_runs(e: Emitter, address: Address, element: Element, values: list[str], planned, volatile: str) -> None:
    runs, where, found = planned
    pointer = addressing.host_scalar(e, address)
    kind = element.kind
    whole, length = _join(e, values, kind)
    source: dict[tuple[int, int], tuple[int, int]] = {where[lane][i]: (lane, i) for lane in range(32) for i in range(element.count)}
    for r, run in enumerate(runs):
        at = _run_pointer(e, run, pointer, found)
        lanes = [source[r, index] for index in range(run.length)]
        part = e.shuffle(whole, kind, [32 * i + lane for lane, i in lanes], length)
        if e.mask is None:
            e.do(f"store {volatile}<{run.length} x {kind}> {part}, ptr {at}, align {element.total}")
        else:
            mask = e.shuffle(e.mask_vector(), "i1", [lane for lane, _ in lanes])
            masked_store(e, kind, run.length, part, at, element.total, mask)


def masked_store(e: Emitter, kind: str, n: int, value: str, pointer: str, align: int, mask: str) -> None:
    with e.shape(n):
        name = f"@llvm.masked.store.v{n}{e.suffix(kind).removeprefix(f'v{n}')}.p0"
    e.declarations[name] = f"declare void {name}(<{n} x {kind}>, ptr, <{n} x i1>)"
    e.do(f"call void {name}(<{n} x {kind}> {value}, ptr align {align} {pointer}, <{n} x i1> {mask})")


# ── lanes that have nothing to do with each other ────────────────────────────────────────────────────────────────


def _pointers(e: Emitter, address: Address, addresses: str) -> str:
    """Checked lanes' pointers, <32 x ptr>. Shared memory's are written as base and 32-bit index, which gathers like best."""
    if address.space == "shared":
        index = e.ins(f"trunc <32 x i64> {addresses} to <32 x i32>")
        return e.ins(f"getelementptr i8, ptr {e.shared_base()}, <32 x i32> {index}")
    return e.ins(f"inttoptr <32 x i64> {addressing.host_vector(e, address, addresses)} to <32 x ptr>")


def _gather(e: Emitter, address: Address, addresses: str, element: Element, volatile: str) -> list[str]:
    pointers = _pointers(e, address, addresses)
    bits = 8 * element.total
    if bits in (32, 64) and not volatile:
        kind = element.kind if element.count == 1 else f"i{bits}"
        with e.shape(32):
            name = f"@llvm.masked.gather.{e.suffix(kind)}.v32p0"
        e.declarations[name] = f"declare <32 x {kind}> {name}(<32 x ptr>, <32 x i1>, <32 x {kind}>)"
        got = e.ins(f"call <32 x {kind}> {name}(<32 x ptr> align {element.total} {pointers}, <32 x i1> {e.mask_vector()}, "
                    f"<32 x {kind}> zeroinitializer)")
        return [got] if element.count == 1 else _split(e, got, element)
    if e.mask is not None:  # lanes that do not take part read the frame, where nothing can go wrong
        pointers = e.ins(f"select <32 x i1> {e.mask_vector()}, <32 x ptr> {pointers}, <32 x ptr> {e.splat('%frame', 'ptr')}")
    n, kind = element.count, element.kind
    parts = []
    for lane in range(32):
        at = e.extract(pointers, "ptr", lane)
        parts.append(e.ins(f"load {volatile}<{n} x {kind}>, ptr {at}, align {element.total if e.mask is None else min(8, element.total)}"))
    length = n
    while len(parts) > 1:
        parts = [e.shuffle(a, kind, range(2 * length), length, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        length *= 2
    return [e.shuffle(parts[0], kind, [n * lane + i for lane in range(32)], length) for i in range(n)]


def _split(e: Emitter, value: str, element: Element) -> list[str]:
    """The values inside an integer a lane."""
    n, kind, bits = element.count, element.kind, 8 * element.total
    flat = e.ins(f"bitcast <32 x i{bits}> {value} to <{32 * n} x {kind}>")
    return [e.shuffle(flat, kind, [n * lane + i for lane in range(32)], 32 * n) for i in range(n)]


def _scatter(e: Emitter, address: Address, addresses: str, element: Element, values: list[str], volatile: str) -> bool:
    """Store a value a lane; False where only the lane-by-lane function can."""
    bits = 8 * element.total
    if e.mask is not None and bits not in (32, 64):
        return False
    pointers = _pointers(e, address, addresses)
    n, kind = element.count, element.kind
    whole, length = _join(e, values, kind)
    flat = whole if n == 1 else e.shuffle(whole, kind, [32 * i + lane for lane in range(32) for i in range(n)], length)
    if bits in (32, 64) and not volatile:
        if n > 1:
            flat, kind = e.ins(f"bitcast <{32 * n} x {kind}> {flat} to <32 x i{bits}>"), f"i{bits}"
        with e.shape(32):
            name = f"@llvm.masked.scatter.{e.suffix(kind)}.v32p0"
        e.declarations[name] = f"declare void {name}(<32 x {kind}>, <32 x ptr>, <32 x i1>)"
        e.do(f"call void {name}(<32 x {kind}> {flat}, <32 x ptr> align {element.total} {pointers}, <32 x i1> {e.mask_vector()})")
        return True
    if e.mask is not None:
        return False
    for lane in range(32):
        part = e.shuffle(flat, kind, range(n * lane, n * lane + n), 32 * n)
        e.do(f"store {volatile}<{n} x {kind}> {part}, ptr {e.extract(pointers, 'ptr', lane)}, align {element.total}")
    return True


# ── the slow path ────────────────────────────────────────────────────────────────────────────────────────────────


def _buffer(e: Emitter, element: Element) -> str:
    return e.alloca(f"buffer {element.total}", f"[{32 * element.total} x i8], align 64")


def _slow_load(e: Emitter, op: Op, address: Address, addresses: str, element: Element) -> list[str]:
    n, kind, row = element.count, element.kind, 32 * element.size
    body = "".join(
        f"  %p{i} = getelementptr i8, ptr %host, i64 {i * element.size}\n  %v{i} = load volatile {kind}, ptr %p{i}, align 1\n"
        f"  %r{i} = getelementptr i8, ptr %out, i64 {i * row}\n  %o{i} = getelementptr {kind}, ptr %r{i}, i32 %lane\n"
        f"  store {kind} %v{i}, ptr %o{i}\n" for i in range(n))
    before = f"  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 {32 * element.total}, i1 false)\n"
    name = addressing.lane_loop(e, f"load.{address.space}.{n}.{kind}", ", ptr %out", address.space, element.total, body, before=before)
    buffer = _buffer(e, element)
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {addresses}, i32 {e.mask_bits()}, i32 {op.site}, ptr {buffer})")
    found = []
    for i in range(n):
        at = e.ins(f"getelementptr i8, ptr {buffer}, i64 {i * row}")
        found.append(e.ins(f"load <32 x {kind}>, ptr {at}, align {min(64, element.size)}"))
    return found


def _slow_store(e: Emitter, op: Op, address: Address, addresses: str, element: Element, values: list[str]) -> None:
    n, kind, row = element.count, element.kind, 32 * element.size
    body = "".join(
        f"  %r{i} = getelementptr i8, ptr %in, i64 {i * row}\n  %o{i} = getelementptr {kind}, ptr %r{i}, i32 %lane\n"
        f"  %v{i} = load {kind}, ptr %o{i}\n  %p{i} = getelementptr i8, ptr %host, i64 {i * element.size}\n"
        f"  store volatile {kind} %v{i}, ptr %p{i}, align 1\n" for i in range(n))
    name = addressing.lane_loop(e, f"store.{address.space}.{n}.{kind}", ", ptr %in", address.space, element.total, body)
    buffer = _buffer(e, element)
    for i, value in enumerate(values):
        at = e.ins(f"getelementptr i8, ptr {buffer}, i64 {i * row}")
        e.do(f"store <32 x {kind}> {value}, ptr {at}, align {min(64, element.size)}")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {addresses}, i32 {e.mask_bits()}, i32 {op.site}, ptr {buffer})")


# ── ld ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _volatile(op: Op) -> str:
    return "volatile " if op.get("sem") in ("volatile", "relaxed", "acquire", "release") or op.get("mmio") or op.get("cop") == "cv" else ""


def load(e: Emitter, op: Op, address: Address, element: Element) -> tuple[list[str], int]:
    """The values of each lane, and whether there is one of each (1) or 32."""
    volatile = _volatile(op)
    uniform = address.form.uniform and address.space != "local"
    planned = None if uniform else plan(address, element, gap=0 if volatile else 16)
    addresses: str | None = None

    def fast() -> list[str]:
        if uniform:
            pointer = addressing.host_scalar(e, address)
            found = []
            for i in range(element.count):
                at = e.ins(f"getelementptr i8, ptr {pointer}, i64 {i * element.size}") if i else pointer
                found.append(e.ins(f"load {volatile}{element.kind}, ptr {at}, align {element.size}"))
            return found
        if planned is not None:
            return _load_runs(e, address, element, planned, volatile)
        return _gather(e, address, addresses or addressing.vector(e, address), element, volatile)

    if e.trusted or addressing.proven(address, element.total):
        return fast(), 1 if uniform else 32
    if uniform or planned is not None:
        good = addressing.check_scalar(e, address, element.total)
    else:
        addresses = addressing.vector(e, address)
        good = addressing.check_vector(e, address, addresses, element.total)
    one, other, done = e.label("fast"), e.label("slow"), e.label("loaded")
    e.do(f"br i1 {good}, label %{one}, label %{other}, !prof !0")
    e.start(one)
    quick = fast()
    from_one = e.here
    e.do(f"br label %{done}")
    e.start(other)
    given = addresses or addressing.vector(e, address)
    slow = _slow_load(e, op, address, given, element)
    if uniform:
        e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
        lane = "0" if e.mask is None else e.ins(f"call i32 @llvm.cttz.i32(i32 {e.mask}, i1 true)")
        slow = [e.extract(value, element.kind, lane) for value in slow]
    addressing.learn_window(e, address, given)
    from_other = e.here
    e.do(f"br label %{done}")
    e.start(done)
    kind = element.kind if uniform else f"<32 x {element.kind}>"
    return [e.ins(f"phi {kind} [ {a}, %{from_one} ], [ {b}, %{from_other} ]") for a, b in zip(quick, slow, strict=True)], 1 if uniform else 32


@effect("ld", "ldu")
def _ld(e: Emitter, op: Op) -> None:
    arg: Addr = op.args["a"]  # type: ignore[assignment]
    target, type_ = op.args["d"], op.types["d"][0]
    targets = target.elements if isinstance(target, Vec) else (target,)
    element = element_of(op, "d")
    signed = type_[0] == "s"
    if isinstance(arg.base, Place) and arg.base.space == "param":
        for i, reg in enumerate(targets):
            offset = arg.base.offset + arg.offset + i * element.size
            if not 0 <= offset <= e.program.space.parameter_bytes - element.size:
                e.fail(op, "it reads beyond the kernel's parameters")
            at = e.at_entry(f"param {offset}", f"getelementptr i8, ptr {e.params()}, i64 {offset}")
            value = e.at_entry(f"param {offset} {element.kind}", f"load {element.kind}, ptr {at}, align 1")
            e.write(op, reg, value, element.kind, 1, signed)
        return
    values, width = load(e, op, addressing.resolve(e, op), element)
    if op.get("sem") == "acquire":
        e.do("fence acquire")
    for reg, value in zip(targets, values, strict=True):
        if isinstance(reg, Reg):
            e.write(op, reg, value, element.kind, width, signed)


# ── st ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@effect("st")
def _st(e: Emitter, op: Op) -> None:
    if op.get("async") or op.get("bulk"):
        from warpwright.cpu.codegen import bulk_copy

        (bulk_copy.store if op.get("async") else bulk_copy.fill)(e, op)
        return
    element = element_of(op, "b")
    source = op.args["b"]
    parts = source.elements if isinstance(source, Vec) else (source,)
    if op.get("sem") == "release":
        e.do("fence release")
    address = addressing.resolve(e, op)
    one_value = address.form.uniform and address.space != "local" and all(e.lanes.of(part).uniform for part in parts)
    with e.shape(1 if one_value else 32):
        values = [e.value(part, element.kind) for part in parts]
    store(e, op, address, element, values, one_value)


def store(e: Emitter, op: Op, address: Address, element: Element, values: list[str], one_value: bool = False) -> None:
    """Store a lane's values: vectors, or scalars where all lanes store the same at the same address (`one_value`)."""
    volatile = _volatile(op)
    uniform = address.form.uniform and address.space != "local"
    planned = None if uniform or address.form.varying else plan(address, element, gap=0)
    if planned is not None and overlap(planned):
        planned = None
    addresses: str | None = None

    def slow(given: str) -> None:
        full = values
        if one_value:
            full = [e.splat(value, element.kind) for value in values]
        _slow_store(e, op, address, given, element, full)

    def fast() -> None:
        if uniform:
            pointer = addressing.host_scalar(e, address)
            for i, value in enumerate(values):
                if not one_value:  # the last lane wins
                    e.declare("@llvm.ctlz.i32", "i32 (i32, i1)")
                    lane = "31"
                    if e.mask is not None:
                        lane = e.ins(f"sub i32 31, {e.ins(f'call i32 @llvm.ctlz.i32(i32 {e.mask}, i1 true)')}")
                    value = e.extract(value, element.kind, lane)
                at = e.ins(f"getelementptr i8, ptr {pointer}, i64 {i * element.size}") if i else pointer
                e.do(f"store {volatile}{element.kind} {value}, ptr {at}, align {element.size}")
        elif planned is not None:
            _store_runs(e, address, element, values, planned, volatile)
        else:
            given = addresses or addressing.vector(e, address)
            if not _scatter(e, address, given, element, values, volatile):
                slow(given)

    if e.trusted or addressing.proven(address, element.total):
        fast()
        return
    if uniform or planned is not None:
        good = addressing.check_scalar(e, address, element.total)
    else:
        addresses = addressing.vector(e, address)
        good = addressing.check_vector(e, address, addresses, element.total)
    one, other, done = e.label("fast"), e.label("slow"), e.label("stored")
    e.do(f"br i1 {good}, label %{one}, label %{other}, !prof !0")
    e.start(one)
    fast()
    e.do(f"br label %{done}")
    e.start(other)
    given = addresses or addressing.vector(e, address)
    slow(given)
    addressing.learn_window(e, address, given)
    e.do(f"br label %{done}")
    e.start(done)


# ── addresses as values ──────────────────────────────────────────────────────────────────────────────────────────


@pure("cvta")
def _cvta(e: Emitter, op: Op):
    kind = LLVM_TYPE[op.slots["T"]]
    a = e.arg(op, "a")
    if op.slots["space"] == "shared::cluster":
        wide = e.resize(a, kind, "i64")
        return e.resize(cluster.to_window(e, wide) if op.get("to") else cluster.to_generic(e, wide), "i64", kind)
    space = str(op.slots["space"]).split("::")[0]
    if space not in ("shared", "local", "param"):
        return a
    start = e.param_address() if space == "param" else e.shared_address() if space == "shared" else e.local_address()
    with e.shape(1):
        start = e.resize(start, "i64", kind)
    base = start if e.width == 1 else e.splat(start, kind)
    if space == "local" and e.width > 1:
        base = e.bin("add", kind, base, e.vector_constant(kind, (lane * e.program.space.local_bytes for lane in range(32))))
    return e.bin("sub" if op.get("to") else "add", kind, a, base)


@pure("isspacep")
def _isspacep(e: Emitter, op: Op):
    a = e.arg(op, "a", "i64")

    def inside(start: str, size: str) -> str:
        offset = e.bin("sub", "i64", a, start if e.width == 1 else e.splat(start, "i64"))
        return e.icmp("ult", "i64", offset, size if e.width == 1 else e.splat(size, "i64"))

    if op.slots["space"] == "shared::cluster":
        return cluster.inside(e, a)
    space = str(op.slots["space"]).split("::")[0]
    if space == "shared":
        return inside(e.shared_address(), e.shared_size())
    if space == "local":
        return inside(e.local_address(), str(32 * e.program.space.local_bytes))
    if space == "param":
        return inside(e.param_address(), str(e.program.space.parameter_bytes))
    if space == "const":
        return e.k("i1", 0)
    either = e.bin("or", "i1", cluster.inside(e, a), inside(e.local_address(), str(32 * e.program.space.local_bytes)))
    return e.bin("xor", "i1", either, e.k("i1", 1))


@effect("prefetch", "prefetchu", "applypriority", "discard", "pmevent", "brkpt", "setmaxnreg", "griddepcontrol")
def _nothing(e: Emitter, op: Op) -> None:
    """Hints that change no result here."""


@pure("createpolicy")
def _createpolicy(e: Emitter, op: Op):
    return e.k("i64", 0)
