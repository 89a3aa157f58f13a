"""Asynchronous copies, stores and reductions, the groups and barriers that complete them, and the queue of what is late.

By default each is performed when it is issued. On a late device it waits in its launch's queue for the wait that needs it: a test of its
mbarrier that would fail, or a wait for its group. What nobody has waited for when a CTA ends happens then, after the CTA's shared memory was
overwritten, as it is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from warpwright.cpu.interpreter import mbarrier
from warpwright.cpu.interpreter.memory import Region, locate, plain_space
from warpwright.cpu.interpreter.memory_access import nothing, operation, space_of
from warpwright.cpu.interpreter.registry import operand, per_thread
from warpwright.cpu.interpreter.words import mask, split, width
from warpwright.ptx import tree
from warpwright.ptx.isa import Match

MBARRIER, COPIES, BULK, WGMMA = range(4)  # what completes an operation; the last three are groups


@dataclass
class Pending:
    """A late operation. key: the host address of its mbarrier's word. group: how many groups of its kind its thread had committed."""

    thread: Any
    kind: int
    key: int
    bytes: int
    group: int
    action: Callable[[], object]


def issue(thread, kind: int, key: int, bytes_: int, action: Callable[[], object]) -> None:
    """Perform an operation and credit its bytes (0: none) to the mbarrier `key`; or, on a late device, queue it."""
    launch = thread.cta.launch
    if launch.late:
        launch.queue.append(Pending(thread, kind, key, bytes_, thread.groups.get(kind, 0), action))
    else:
        _perform(Pending(thread, kind, key, bytes_, 0, action))


def _perform(pending: Pending) -> None:
    pending.action()
    if pending.bytes:
        mbarrier.credit(pending.thread, pending.key, pending.bytes)


def run_late(launch, wanted: Callable[[Pending], bool]) -> None:
    """Perform what is wanted of the queue, in the order of issue."""
    while (pending := next(filter(wanted, launch.queue), None)) is not None:
        launch.queue.remove(pending)  # first, as what it does may run others
        _perform(pending)


def end_cta(cta) -> None:
    """What nobody waited for, when a CTA has ended."""
    launch = cta.launch
    if any(pending.thread.cta is cta for pending in launch.queue):
        cta.shared.bytes[:] = b"\xff" * cta.shared.size
        run_late(launch, lambda pending: pending.thread.cta is cta)


def commit(thread, kind: int) -> None:
    thread.groups[kind] = thread.groups.get(kind, 0) + 1


def wait_group(thread, kind: int, newest: int) -> None:
    """Let all of the thread's groups but the newest few be done; newest -1: also what is not committed."""
    limit = thread.groups.get(kind, 0) - newest
    run_late(thread.cta.launch, lambda pending: pending.thread is thread and pending.kind == kind and pending.group < limit)


def word_of(thread, space: str | None, address: int) -> int:
    """The host address of an mbarrier."""
    return locate(thread, space, address, 8)[1]


# ── cp ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@per_thread("cp")
def copy(m: Match, decoder) -> Callable:
    if m.get("tensor"):
        from warpwright.cpu.interpreter import tensor

        return tensor.copy_tensor(m, decoder)
    action = m.get("action")
    if action == "mbarrier":
        return arrive_when_copied(m, decoder)
    if action:
        kind = BULK if m.get("bulk") else COPIES
        if action == "commit_group":
            return lambda thread: commit(thread, kind)
        newest = getattr(operand(m, "n").operand, "value", 0) if action == "wait_group" else -1
        return lambda thread: wait_group(thread, kind, newest)
    if m.get("prefetch"):
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
        of = locate(thread, "global", source(thread), held, align=size) if held else None
        to, place = locate(thread, "shared", target(thread), size)
        issue(thread, COPIES, 0, 0, lambda: to.store(place, size, of[0].load(of[1], held) if of else 0))

    return run


def arrive_when_copied(m: Match, decoder) -> Callable:
    """cp.async.mbarrier.arrive: an arrival once the thread's copies so far are done. Without noinc the pending count is raised by one first."""
    address, space = decoder.address(operand(m, "a").operand, space_of(m))

    def run(thread):
        at, launch, limit = address(thread), thread.cta.launch, thread.groups.get(COPIES, 0) + 1
        if not m.get("noinc"):
            mbarrier.update(thread, space, at, lambda state: state._replace(pending=state.pending + 1))

        def arrive():
            run_late(launch, lambda pending: pending.thread is thread and pending.kind == COPIES and pending.group < limit)
            mbarrier.update(thread, space, at, lambda state: state._replace(pending=state.pending - 1))

        issue(thread, MBARRIER, word_of(thread, space, at), 0, arrive)

    return run


def copy_bulk(m: Match, decoder) -> Callable:
    """cp.async.bulk and cp.reduce.async.bulk, 16-byte aligned; the bytes count as a barrier's transactions where one is named."""
    if m.value("byte_mask") is not None:
        raise ValueError("bulk copies with a byte mask are not in the interpreter")
    to, of = plain_space(m["dst"]), plain_space(m["src"])
    target, _ = decoder.address(operand(m, "dst").operand, to)
    source, _ = decoder.address(operand(m, "src").operand, of)
    size = decoder.value_reader(operand(m, "size"))
    barrier = decoder.address(operand(m, "barrier").operand, "shared")[0] if m.value("barrier") is not None else None
    places = receivers(m, decoder)

    def run(thread):
        count = size(thread)
        locate(thread, of, count, 0, align=16) if count % 16 else None
        if count == 0:
            return
        source_region, source_place = locate(thread, of, source(thread), count, align=16)
        for there in places(thread):
            region, place = locate(thread, to, there(target(thread)), count, align=16)
            key = word_of(thread, "shared::cluster", there(barrier(thread))) if barrier is not None else 0
            if m.get("reduce"):
                action = reduction(m, region, place, source_region, source_place, count, thread.cta.cluster.owns(region))
            else:
                action = partial(copy_bytes, region, place, source_region, source_place, count)
            issue(thread, BULK if barrier is None else MBARRIER, key, count if barrier is not None else 0, action)

    return run


def copy_bytes(to: Region, place: int, of: Region, start: int, count: int) -> None:
    to.store(place, count, of.load(start, count))


def receivers(m: Match, decoder) -> Callable[..., list[Callable[[int], int]]]:
    """For a thread, where a copy goes: functions from an address of shared memory to the one that is meant. A multicast goes to the same
    offset in each CTA of its mask, and counts at the mbarrier at the same offset there."""
    if not m.get("multicast"):
        return lambda thread: [lambda address: address]
    read = decoder.value_reader(operand(m, "mask"))

    def there(rank: int) -> Callable[[int], int]:
        return lambda address: rank + 1 << 24 | address & 0xFFFFFF

    return lambda thread: [there(rank) for rank in range(32) if read(thread) >> rank & 1]


def reduction(m: Match, region: Region, place: int, source: Region, start: int, count: int, shared: bool) -> Callable[[], None]:
    bits = width(m["T"])
    change = operation(m["op"], m["T"], not shared)

    def action():
        old, new = split(region.load(place, count), bits, count * 8 // bits), split(source.load(start, count), bits, count * 8 // bits)
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            region.store(place + i * bits // 8, bits // 8, change(a, b) & mask(bits))

    return action


# ── st.async, red.async, st.bulk ─────────────────────────────────────────────────────────────────────────────────


def store(m: Match, decoder) -> Callable:
    """st.async and red.async: a value to shared memory of the cluster, whose bytes count at the mbarrier there."""
    if m.value("barrier") is None:
        raise ValueError("asynchronous stores to global memory are not in the interpreter")
    value = operand(m, "b")
    address, space = decoder.address(operand(m, "a").operand, space_of(m))
    barrier, _ = decoder.address(operand(m, "barrier").operand, space_of(m))
    source = decoder.value_reader(value)
    bits, length = width(value.type or "b32"), value.length or 1
    size, change = bits * length // 8, operation(m["op"], m["T"], False) if m.get("op") else None

    def run(thread):
        region, place = locate(thread, space, address(thread), size)
        word = source(thread)
        if value.length:
            word = sum((part & mask(bits)) << i * bits for i, part in enumerate(word))

        def action():
            region.store(place, size, (change(region.load(place, size), word) if change else word) & mask(8 * size))

        issue(thread, MBARRIER, word_of(thread, space, barrier(thread)), size, action)

    return run


def fill(m: Match, decoder) -> Callable:
    """st.bulk: zeros."""
    address, space = decoder.address(operand(m, "a").operand, space_of(m))
    size = decoder.value_reader(operand(m, "size"))

    def run(thread):
        region, place = locate(thread, space, address(thread), size(thread), align=8)
        region.store(place, size(thread), 0)

    return run
