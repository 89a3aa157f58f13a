"""CTA barriers: PTX ISA 9.7.13.1. A warp arrives as a whole, once all its lanes that have not ended stand at a barrier instruction."""

from __future__ import annotations

from warpwright.cpu.interpreter import cluster
from warpwright.cpu.interpreter.registry import per_thread
from warpwright.ptx.isa import Match

WARP = 32


class Barrier:
    """One of a CTA's sixteen: the threads that have arrived, and the lanes that wait for the others."""

    def __init__(self) -> None:
        self.arrived = 0  # threads, 32 for each warp
        self.warps: set[int] = set()
        self.expected: int | None = None  # None: every warp of the CTA that has not ended
        self.members: list = []  # (warp, thread, step, where it goes on)
        self.predicates: list[int] = []


class Barriers:
    def __init__(self, cta):
        self.cta = cta
        self.all: dict[int, Barrier] = {}

    def arrive(self, warp, members) -> None:
        """A whole warp has come; `members` are (thread, step, where it goes on). Lanes may name different barriers."""
        touched: dict[int, Barrier] = {}
        for thread, step, follow in members:
            facts = step.run(thread)
            barrier = self.all.setdefault(facts.number, Barrier())
            if facts.number not in touched:
                touched[facts.number] = barrier
                barrier.arrived += WARP
                barrier.warps.add(warp.number)
                if facts.count is not None:
                    barrier.expected = facts.count
            if facts.predicate is not None:
                barrier.predicates.append(facts.predicate)
            if facts.waits:
                barrier.members.append((warp, thread, step, follow))
            else:
                warp.place([thread], follow)
        for number in touched:
            self.try_complete(number)

    def try_complete(self, number: int) -> None:
        barrier = self.all[number]
        if barrier.expected is None:
            complete = all(warp.finished or warp.number in barrier.warps for warp in self.cta.warps)
        else:
            complete = barrier.arrived >= barrier.expected
        if not complete:
            return
        del self.all[number]
        for warp, thread, step, follow in barrier.members:
            for write in step.writers:
                write(thread, step.run(thread).reduce(barrier.predicates))
            warp.place([thread], follow)

    def recheck(self) -> None:
        """A warp has ended: those that waited for all may go on."""
        for number in list(self.all):
            self.try_complete(number)

    def waiting(self, warp):
        """One (thread, step, where it goes on) of a warp that waits here."""
        return next(member[1:] for barrier in self.all.values() for member in barrier.members if member[0] is warp)


class Arrival:
    """What one thread's barrier instruction says."""

    __slots__ = ("count", "number", "op", "predicate", "waits")

    def __init__(self, number: int, count: int | None, predicate: int | None, op: str | None, waits: bool):
        self.number, self.count, self.predicate, self.op, self.waits = number, count, predicate, op, waits

    def reduce(self, predicates: list[int]) -> int:
        if self.op == "popc":
            return sum(predicates)
        return int(all(predicates)) if self.op == "and" else int(any(predicates))


@per_thread("bar", "barrier")
def barrier(m: Match, decoder):
    from warpwright.cpu.interpreter.program import Step

    modifiers = m.instruction.modifiers
    if "warp" in modifiers:
        return decoder.collective(m)
    if "cluster" in modifiers:
        return cluster.barrier(m)
    operands = {value.name: decoder.value_reader(value) for value in m.values if value.read}
    written = [value for value in m.values if value.written]
    predicate = next((value for value in m.values if value.read and value.type == "pred"), None)
    read_predicate = operands.pop(predicate.name) if predicate else None
    number, *rest = operands.values()
    count = rest[0] if rest else None
    op = next((word for word in modifiers if word in ("popc", "and", "or")), None)
    waits = "arrive" not in modifiers

    def facts(thread) -> Arrival:
        return Arrival(number(thread), count(thread) if count else None, read_predicate(thread) if read_predicate else None, op, waits)

    writers = tuple(decoder.writer(value.operand, value.type) for value in written)
    return Step(m.instruction, "barrier", facts, writers=writers)
