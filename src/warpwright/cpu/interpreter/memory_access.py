"""Loads, stores, atomics, asynchronous copies and address conversion: PTX ISA 9.7.9.8-20, .25 and 9.7.13.5-6.

Memory operations are performed at once, in program order of each thread: a legal outcome under the memory model, and the only one here.
An asynchronous copy is performed when it is issued.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.interpreter import floating, integer, mbarrier
from warpwright.cpu.interpreter.floats import FORMATS
from warpwright.cpu.interpreter.memory import locate
from warpwright.cpu.interpreter.registry import operand, per_thread
from warpwright.cpu.interpreter.words import is_signed, lanes, mask, read, split, width
from warpwright.ptx import tree
from warpwright.ptx.isa import Match


def space_of(m: Match) -> str | None:
    """The state space an instruction names, without its sub-qualifier; None for generic addresses."""
    space = m.get("space")
    return space.split("::")[0] if space else None


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
    refuse_asynchronous(m)
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


def refuse_asynchronous(m: Match) -> None:
    if m.get("async") or m.get("bulk"):
        raise ValueError("asynchronous and bulk stores and reductions are not in the interpreter")


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
    refuse_asynchronous(m)
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
        change = plain if region is thread.cta.shared else flushed
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


# ── asynchronous copies ──────────────────────────────────────────────────────────────────────────────────────────


@per_thread("cp")
def copy(m: Match, decoder) -> Callable:
    if m.get("tensor") or m.get("reduce"):
        raise ValueError("tensor copies and reductions by copies are not in the interpreter")
    if m.get("action") == "mbarrier":
        return arrive_when_copied(m, decoder)
    if m.get("action") or m.get("prefetch"):
        return nothing
    return copy_bulk(m, decoder) if m.get("bulk") else copy_some(m, decoder)


def copy_some(m: Match, decoder) -> Callable:
    """cp.async: 4, 8 or 16 bytes to shared memory; those beyond src_size, or all if a predicate in its place is true, become zero."""
    target, _ = decoder.address(operand(m, "dst").operand, "shared")
    source, _ = decoder.address(operand(m, "src").operand, "global")
    constant = operand(m, "size").operand
    if not isinstance(constant, tree.Integer):
        raise ValueError("the size of a cp.async is a constant")
    size, limit = constant.value, m.value("src_size")
    ignored = limit is not None and decoder.is_predicate(limit.operand)
    read_limit = decoder.reader(limit.operand, "pred" if ignored else "u32") if limit is not None else None

    def run(thread):
        held = size
        if read_limit is not None:
            held = size * (1 - read_limit(thread)) if ignored else min(size, read_limit(thread))
        word = 0
        if held:
            region, place = locate(thread, "global", source(thread), held, align=size)
            word = region.load(place, held)
        region, place = locate(thread, "shared", target(thread), size)
        region.store(place, size, word)

    return run


def copy_bulk(m: Match, decoder) -> Callable:
    """cp.async.bulk between global and shared memory, 16-byte aligned; its bytes count as a barrier's transactions where one is named."""
    to, of = m["dst"].split("::")[0], m["src"].split("::")[0]
    target, _ = decoder.address(operand(m, "dst").operand, to)
    source, _ = decoder.address(operand(m, "src").operand, of)
    size = decoder.value_reader(operand(m, "size"))
    barrier = decoder.address(operand(m, "barrier").operand, "shared")[0] if m.value("barrier") is not None else None

    def run(thread):
        count = size(thread)
        if count == 0:
            return
        region, place = locate(thread, of, source(thread), count, align=16)
        word = region.load(place, count)
        region, place = locate(thread, to, target(thread), count, align=16)
        region.store(place, count, word)
        if barrier is not None:
            mbarrier.update(thread, "shared", barrier(thread), lambda state: state._replace(transactions=state.transactions - count))

    return run


def arrive_when_copied(m: Match, decoder) -> Callable:
    """cp.async.mbarrier.arrive: the copies are done, so it arrives now. Without noinc the pending count is raised by one first."""
    address, space = decoder.address(operand(m, "a").operand, space_of(m))

    def run(thread):
        if m.get("noinc"):
            mbarrier.update(thread, space, address(thread), lambda state: state._replace(pending=state.pending - 1))
        else:
            locate(thread, space, address(thread), 8)

    return run


def nothing(thread) -> None:
    """An instruction that changes nothing that this machine can show: fences, prefetches, hints."""


# ── address spaces ───────────────────────────────────────────────────────────────────────────────────────────────


@per_thread("cvta")
def convert_address(m: Match, decoder) -> Callable:
    source = decoder.value_reader(operand(m, "a"))
    write = decoder.writer(operand(m, "d").operand, operand(m, "d").type)
    space = space_of(m)
    sign = -1 if "to" in m.instruction.modifiers else 1

    def run(thread):
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
        if space in windows:
            write(thread, int(inside[space]))
        elif space == "const":
            region = launch.memory.find(address, 1)
            write(thread, int(region is not None and any(start <= address < end for start, end in launch.constants)))
        else:
            write(thread, int(not inside["shared"] and not inside["local"]))

    return run
