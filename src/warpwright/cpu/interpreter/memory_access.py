"""Loads, stores, atomics and address conversion: PTX ISA 9.7.9.8-20 and 9.7.13.5-6.

Memory operations are performed at once, in program order of each thread: a legal outcome under the memory model, and the only one here.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.interpreter import floating, integer
from warpwright.cpu.interpreter.floats import FORMATS
from warpwright.cpu.interpreter.memory import locate, plain_space
from warpwright.cpu.interpreter.registry import operand, per_thread
from warpwright.cpu.interpreter.words import is_signed, lanes, mask, read, split, width
from warpwright.ptx.isa import Match


def space_of(m: Match) -> str | None:
    """The state space an instruction names, without its sub-qualifier but for shared::cluster; None for generic addresses."""
    return plain_space(m.get("space"))


@per_thread("ld", "ldu")
def load(m: Match, decoder) -> Callable:
    value = operand(m, "d")
    address, space = decoder.address(operand(m, "a").operand, space_of(m))
    write = decoder.writer(value.operand, value.type, value.length)
    bits, length = width(value.type or "b32"), value.length or 1
    size = bits * length // 8

    def run(thread):
        region, place = locate(thread, space, address(thread), size)
        word = region.load(place, size)
        write(thread, split(word, bits, length) if value.length else word)

    return run


@per_thread("st")
def store(m: Match, decoder) -> Callable:
    if m.get("async") or m.get("bulk"):
        from warpwright.cpu.interpreter import asynchronous

        return (asynchronous.store if m.get("async") else asynchronous.fill)(m, decoder)
    value = operand(m, "b")
    address, space = decoder.address(operand(m, "a").operand, space_of(m))
    source = decoder.value_reader(value)
    bits, length = width(value.type or "b32"), value.length or 1
    size, element = bits * length // 8, mask(bits)

    def run(thread):
        region, place = locate(thread, space, address(thread), size)
        word = source(thread)
        if value.length:
            word = sum((part & element) << (i * bits) for i, part in enumerate(word))
        region.store(place, size, word & mask(8 * size))

    return run


# ── atomics ──────────────────────────────────────────────────────────────────────────────────────────────────────


def operation(op: str, type_: str, flush: bool) -> Callable:
    """(value in memory, b[, c]) → the new value. flush: f32 additions flush subnormals, as they do in global memory."""
    if op == "exch":
        return lambda old, b: b
    if op == "cas":
        return lambda old, b, c: c if old == b else old
    if op == "inc":
        return lambda old, b: 0 if old >= b else old + 1
    if op == "dec":
        return lambda old, b: b if old == 0 or old > b else old - 1
    if op in ("and", "or", "xor"):
        return {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[op]
    if lanes(type_)[0] in FORMATS:
        if op == "add":
            return floating.arithmetic(type_, floating.add, ftz=flush and type_ == "f32")
        return floating.extreme(type_, op == "max")
    if op == "add":
        return integer.add(type_)
    pick = max if op == "max" else min
    if is_signed(type_):
        return lambda old, b: pick(old, b, key=lambda value: read(value, type_))
    return pick


@per_thread("atom", "red")
def atomic(m: Match, decoder) -> Callable:
    if m.get("async"):
        from warpwright.cpu.interpreter import asynchronous

        return asynchronous.store(m, decoder)
    type_, op = m["T"], m["op"]
    address, space = decoder.address(operand(m, "a").operand, space_of(m))
    source = operand(m, "b")
    operands = [decoder.value_reader(m.value(name)) for name in ("b", "c") if m.value(name) is not None]
    destination = m.value("d")
    write = decoder.writer(destination.operand, type_, destination.length) if destination is not None else None
    bits, length = width(type_), source.length or 1
    element = bits // 8
    plain, flushed = operation(op, type_, False), operation(op, type_, True)

    def run(thread):
        region, place = locate(thread, space, address(thread), element * length)
        change = plain if thread.cta.cluster.owns(region) else flushed
        values = [read_operand(thread) for read_operand in operands]
        if not source.length:
            values = [(value,) for value in values]
        old = split(region.load(place, element * length), bits, length)
        new = [change(*parts) for parts in zip(old, *values, strict=True)]
        for i, value in enumerate(new):
            region.store(place + i * element, element, value & mask(bits))
        if write is not None:
            write(thread, old if source.length else old[0])

    return run


def nothing(thread) -> None:
    """An instruction that changes nothing that this machine can show: fences, prefetches, hints."""


@per_thread("multimem")
def every_replica(m: Match, decoder) -> Callable:
    """A multimem address has one replica here, as this machine is one device."""
    return {"ld_reduce": load, "st": store, "red": atomic}[m["action"]](m, decoder)


# ── address spaces ───────────────────────────────────────────────────────────────────────────────────────────────


@per_thread("cvta")
def convert_address(m: Match, decoder) -> Callable:
    source = decoder.value_reader(operand(m, "a"))
    write = decoder.writer(operand(m, "d").operand, operand(m, "d").type)
    space = space_of(m)
    sign = -1 if "to" in m.instruction.modifiers else 1

    def run(thread):
        if space == "shared::cluster":
            cluster, address = thread.cta.cluster, source(thread)
            if sign == 1:
                write(thread, cluster.generic(thread.cta, address))
                return
            window = cluster.window(address)
            known = window is not None and window >> 24 != thread.cta.rank + 1
            write(thread, window if known else address - thread.cta.shared.start & mask(64))
            return
        base = 0
        if space == "shared":
            base = thread.cta.shared.start
        elif space == "local":
            base = thread.local().start
        write(thread, source(thread) + sign * base & mask(64))

    return run


@per_thread("isspacep")
def is_space(m: Match, decoder) -> Callable:
    source = decoder.value_reader(operand(m, "a"))
    write = decoder.writer(next(value.operand for value in m.values if value.written), "pred")
    space = space_of(m)

    def run(thread):
        address = source(thread)
        launch = thread.cta.launch
        windows = {"shared": thread.cta.shared, "local": thread.local(), "param": launch.parameters}
        inside = {name: window.holds(address, 1) for name, window in windows.items()}
        clustered = any(cta.shared.holds(address, 1) for cta in thread.cta.cluster.ctas)
        if space == "shared::cluster":
            write(thread, int(clustered))
        elif space in windows:
            write(thread, int(inside[space]))
        elif space == "const":
            region = launch.memory.find(address, 1)
            write(thread, int(region is not None and any(start <= address < end for start, end in launch.constants)))
        else:
            write(thread, int(not clustered and not inside["local"]))

    return run
