"""Atomic operations. Lanes go one after another, lowest first, each atomic for the host's other threads.

Shared memory belongs to one cluster, which one host thread runs, so there a plain read and write is atomic enough.
"""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Reg, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import bulk_copy, floating
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.memory import Element, element_of

_ORDERING = {"acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_IDENTITY = {"add": 0, "or": 0, "xor": 0, "and": -1}


def _instruction(op: Op) -> str:
    """LLVM's name of an integer operation."""
    signed = str(op.slots["T"])[0] == "s"
    return {"exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap", "min": "min" if signed else "umin",
            "max": "max" if signed else "umax"}.get(op.slots["op"], op.slots["op"])


def _is_float(type_: str) -> bool:
    return type_ in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")


@effect("atom", "red")
def _atom(e: Emitter, op: Op) -> None:
    if op.get("async"):
        bulk_copy.reduce(e, op)
        return
    element = element_of(op, "b")
    address = addressing.resolve(e, op)
    target = op.args.get("d")
    targets = [reg for reg in (target.elements if isinstance(target, Vec) else (target,)) if isinstance(reg, Reg) and reg.index in e.read_somewhere]
    if not targets and address.form.uniform and op.slots["op"] in (*_IDENTITY, "min", "max") and not _is_float(op.slots["T"]):
        _reduced(e, op, address, element)
        return
    old = _each_lane(e, op, address, element, bool(targets))
    if targets:
        for reg, value in zip(target.elements if isinstance(target, Vec) else (target,), old, strict=True):
            e.write(op, reg, value, element.kind, 32)


def _reduced(e: Emitter, op: Op, address: addressing.Address, element: Element) -> None:
    """All lanes at one address and nobody wants the old values: the warp's sum (or the like) goes in one operation."""
    name, type_, kind = op.slots["op"], op.slots["T"], element.kind
    signed, bits = str(type_)[0] == "s", 8 * element.size
    identity = _IDENTITY.get(name)
    if identity is None:
        top = (1 << bits - 1) - 1
        identity = (top if name == "min" else -top - 1) if signed else (-1 if name == "min" else 0)
    with e.shape(32):
        values = e.arg(op, "b")
        if e.mask is not None:
            values = e.select(e.mask_vector(), kind, values, e.k(kind, identity))
    reduce = f"@llvm.vector.reduce.{('s' if signed else 'u') + name if name in ('min', 'max') else name}.v32{kind}"
    e.declarations[reduce] = f"declare {kind} {reduce}(<32 x {kind}>)"
    total = e.ins(f"call {kind} {reduce}(<32 x {kind}> {values})")
    outer, lowest = e.mask, "1"
    if outer is not None:
        lowest = e.ins(f"and i32 {outer}, {e.ins(f'sub i32 0, {outer}')}")
    e.mask = lowest
    _call(e, op, address, element, [e.splat(total, kind)], None, False)
    e.mask = outer


def _each_lane(e: Emitter, op: Op, address: addressing.Address, element: Element, wanted: bool) -> list[str]:
    with e.shape(32):
        source = op.args["b"]
        parts = source.elements if isinstance(source, Vec) else (source,)
        values = [e.value(part, element.kind) for part in parts]
        compare = e.arg(op, "c", element.kind) if op.slots["op"] == "cas" else None
    return _call(e, op, address, element, values, compare, wanted)


def _buffer(e: Emitter, name: str, element: Element) -> str:
    return e.alloca(f"{name} {element.total}", f"[{32 * element.total} x i8], align 64")


def _call(e: Emitter, op: Op, address: addressing.Address, element: Element, values: list[str], compare: str | None, wanted: bool) -> list[str]:
    """Check, and let the lane-by-lane function work: on checked host addresses, or looking at each if the quick check fails."""
    kind, row = element.kind, 32 * element.size
    given = _buffer(e, "atom.in", element)
    old = _buffer(e, "atom.old", element) if wanted else "null"
    other = "null"
    for i, value in enumerate(values):
        at = e.ins(f"getelementptr i8, ptr {given}, i64 {i * row}")
        e.do(f"store <32 x {kind}> {value}, ptr {at}, align {element.size}")
    if compare is not None:
        other = _buffer(e, "atom.new", element)
        e.do(f"store <32 x {kind}> {compare}, ptr {other}, align {element.size}")
    if wanted:
        for i in range(element.count):
            at = e.ins(f"getelementptr i8, ptr {old}, i64 {i * row}")
            e.do(f"store <32 x {kind}> zeroinitializer, ptr {at}, align {element.size}")
    vector = addressing.vector(e, address)
    uniform = not address.form.varying and address.space != "local"
    good = "true" if addressing.proven(address, element.total) else (
        addressing.check_scalar(e, address, element.total) if uniform else addressing.check_vector(e, address, vector, element.total))
    quick, slow, done = e.label("quick"), e.label("slow"), e.label("atom")
    arguments = f"i32 {e.mask_bits()}, i32 {op.site}, ptr {given}, ptr {other}, ptr {old}"
    e.do(f"br i1 {good}, label %{quick}, label %{slow}, !prof !0")
    e.start(quick)
    host = addressing.host_vector(e, address, vector)
    e.do(f"call void @{_function(e, op, element, address.space, False, wanted)}(ptr %frame, <32 x i64> {host}, {arguments})")
    e.do(f"br label %{done}")
    e.start(slow)
    e.do(f"call void @{_function(e, op, element, address.space, True, wanted)}(ptr %frame, <32 x i64> {vector}, {arguments})")
    addressing.learn_window(e, address, vector)
    e.do(f"br label %{done}")
    e.start(done)
    found = []
    for i in range(element.count if wanted else 0):
        at = e.ins(f"getelementptr i8, ptr {old}, i64 {i * row}")
        found.append(e.ins(f"load <32 x {kind}>, ptr {at}, align {element.size}"))
    return found


def _function(e: Emitter, op: Op, element: Element, space: str, checked: bool, wanted: bool) -> str:
    """The function that performs an operation for each active lane."""
    order = _ORDERING.get(str(op.get("sem")), "monotonic")
    memory = "generic" if space == "global" and not op.get("space") else space
    name = f"atom.{op.slots['op']}.{op.slots['T']}.{element.count}.{memory}.{order}{'.checked' if checked else ''}{'.old' if wanted else ''}"
    if name in e.helpers:
        return name
    kind, row = element.kind, 32 * element.size
    body = ""
    for i in range(element.count):
        body += (f"  %i{i} = getelementptr i8, ptr %in, i64 {i * row}\n  %j{i} = getelementptr {kind}, ptr %i{i}, i32 %lane\n"
                 f"  %v{i} = load {kind}, ptr %j{i}\n  %p{i} = getelementptr i8, ptr %host, i64 {i * element.size}\n")
        if op.slots["op"] == "cas":
            body += f"  %n{i} = getelementptr {kind}, ptr %new, i32 %lane\n  %w{i} = load {kind}, ptr %n{i}\n"
        body += step(e, op, kind, i, order, memory)
        if wanted:
            body += (f"  %o{i} = getelementptr i8, ptr %old, i64 {i * row}\n  %q{i} = getelementptr {kind}, ptr %o{i}, i32 %lane\n"
                     f"  store {kind} %r{i}, ptr %q{i}\n")
    return addressing.lane_loop(e, name, ", ptr %in, ptr %new, ptr %old", space if checked else None, element.total, body,
                                attributes="cold" if checked else "")


def step(e: Emitter, op: Op, kind: str, i: int, order: str, space: str) -> str:
    """One lane's operation on %p with %v (and %w): the old value in %r. space: as an `Address` has it, or generic, or tensor (a tensor copy's)."""
    name, type_, plain = op.slots["op"], op.slots["T"], space in ("shared", "cluster")
    if name == "cas":
        fail = {"acq_rel": "acquire", "release": "monotonic"}.get(order, order)
        whole = f"i{8 * max(1, size_of(kind))}"
        cast = whole != kind
        text = f"  %vb{i} = bitcast {kind} %v{i} to {whole}\n  %wb{i} = bitcast {kind} %w{i} to {whole}\n"
        text += f"  %x{i} = cmpxchg ptr %p{i}, {whole} %vb{i}, {whole} %wb{i} {order} {fail}\n"
        if cast:
            return text + f"  %y{i} = extractvalue {{ {whole}, i1 }} %x{i}, 0\n  %r{i} = bitcast {whole} %y{i} to {kind}\n"
        return text + f"  %r{i} = extractvalue {{ {whole}, i1 }} %x{i}, 0\n"
    if not _is_float(type_):
        instruction = _instruction(op)
        if plain and instruction in ("add", "and", "or", "xor"):
            return f"  %r{i} = load {kind}, ptr %p{i}\n  %s{i} = {instruction} {kind} %r{i}, %v{i}\n  store {kind} %s{i}, ptr %p{i}\n"
        return f"  %r{i} = atomicrmw {instruction} ptr %p{i}, {kind} %v{i} {order}\n"
    # Floats: compute the new value and exchange it if nobody came between.
    new = _float_result(e, op, kind, i, space)
    if plain:
        return f"  %r{i} = load {kind}, ptr %p{i}\n{new}  store {kind} %s{i}, ptr %p{i}\n"
    whole = f"i{8 * size_of(kind)}"
    fail = {"acq_rel": "acquire", "release": "monotonic"}.get(order, order)
    return (f"  %f{i} = load atomic {whole}, ptr %p{i} monotonic, align {size_of(kind)}\n  br label %try{i}\n"
            f"try{i}:\n  %g{i} = phi {whole} [ %f{i}, %{'loop' if i == 0 else f'got{i - 1}'} ], [ %h{i}, %try{i} ]\n"
            f"  %r{i} = bitcast {whole} %g{i} to {kind}\n{new}  %sb{i} = bitcast {kind} %s{i} to {whole}\n"
            f"  %x{i} = cmpxchg ptr %p{i}, {whole} %g{i}, {whole} %sb{i} {order} {fail}\n"
            f"  %h{i} = extractvalue {{ {whole}, i1 }} %x{i}, 0\n  %k{i} = extractvalue {{ {whole}, i1 }} %x{i}, 1\n"
            f"  br i1 %k{i}, label %got{i}, label %try{i}\ngot{i}:\n")


def size_of(kind: str) -> int:
    return {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "i128": 16}[kind]


def _float_result(e: Emitter, op: Op, kind: str, i: int, space: str) -> str:
    """IR text that computes %s from the old value %r and the operand %v.

    f32 additions flush subnormals to zero in global memory and keep them in shared memory.
    """
    name, type_, old, value = op.slots["op"], op.slots["T"], f"%r{i}", f"%v{i}"
    lines, e.lines = e.lines, []
    with e.shape(1):
        if kind == "float" and name == "add" and space in ("global", "generic"):
            result = _flushed_sum(e, old, value, None if space == "global" else i)
        elif kind in ("float", "double"):
            result = e.bin("fadd", kind, old, value) if name == "add" else floating.least(e, name, kind, old, value, False)
        else:
            narrow = type_.removesuffix("x2")

            def one(x: str, y: str) -> str:
                a, b = floating.from_half(e, narrow, x), floating.from_half(e, narrow, y)
                total = e.bin("fadd", "float", a, b) if name == "add" else floating.least(e, name, "float", a, b, False)
                return floating.to_half(e, narrow, total)

            if type_.endswith("x2"):
                parts = [one(x, y) for x, y in zip(floating.half_bits(e, old), floating.half_bits(e, value), strict=True)]
                high = e.bin("shl", "i32", e.resize(parts[1], "i16", "i32"), e.k("i32", 16))
                result = e.bin("or", "i32", e.resize(parts[0], "i16", "i32"), high)
            else:
                result = one(old, value)
    text, e.lines = "\n".join(e.lines), lines
    whole = LLVM_TYPE[type_]
    return f"{text}\n  %s{i} = bitcast {whole} {result} to {kind}\n"


def _flushed_sum(e: Emitter, old: str, value: str, generic: int | None) -> str:
    """The sum of two f32 with subnormals flushed; at a generic address (%p) only if it is not shared memory."""
    flushed = floating.flush(e, e.bin("fadd", "float", floating.flush(e, old), floating.flush(e, value)))
    if generic is None:
        return flushed
    window = e.ins(f"call i64 @rt_cluster_window(ptr %frame, i64 {e.ins(f'ptrtoint ptr %p{generic} to i64')})")
    return e.ins(f"select i1 {e.ins(f'icmp eq i64 {window}, 0')}, float {flushed}, float {e.bin('fadd', 'float', old, value)}")
