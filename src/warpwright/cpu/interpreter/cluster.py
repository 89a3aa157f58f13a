"""Clusters: PTX ISA 9.7.9.22-24 (mapa, getctarank), 9.7.13.4 (barrier.cluster), and the window shared::cluster.

An address in the window is (rank + 1) << 24 | offset, or the plain offset for the own CTA; a generic address is the host's.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.interpreter.registry import operand, per_thread
from warpwright.ptx import tree
from warpwright.ptx.isa import Match

RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
NOBODY = 255  # the rank field of what mapa makes of a rank that the cluster does not have; every access there faults


class Cluster:
    """CTAs that are resident together, and their barrier. first: the index in the grid of the CTA with rank 0."""

    def __init__(self, launch, first: tuple[int, int, int]):
        from warpwright.cpu.interpreter.machine import Cta

        kx, ky, kz = launch.shape.cluster
        places = [(x, y, z) for z in range(kz) for y in range(ky) for x in range(kx)]
        self.ctas = [Cta(launch, self, (first[0] + x, first[1] + y, first[2] + z), rank) for rank, (x, y, z) in enumerate(places)]
        self.live = launch.shape.threads * len(self.ctas)  # threads that have not ended
        self.arrived = self.phase = 0
        self.members: list = []  # those that wait for the end of the phase: (thread, step, where it goes on)

    @property
    def finished(self) -> bool:
        return all(cta.finished for cta in self.ctas)

    def step(self, thread, step, follow) -> None:
        """A thread executes barrier.cluster.arrive or .wait. One that waits without having arrived waits for a phase that it holds up."""
        if step.run(thread) == "arrive":
            thread.cluster_phase = self.phase
            self.arrived += 1
            self.check()
        elif thread.cluster_phase in (None, self.phase):
            self.members.append((thread, step, follow))
            return
        else:
            thread.cluster_phase = None
        thread.warp.place([thread], follow)

    def leave(self, count: int) -> None:
        """So many threads have ended: nobody waits for them."""
        self.live -= count
        self.check()

    def check(self) -> None:
        if not self.arrived or self.arrived < self.live:
            return
        self.arrived, self.phase = 0, self.phase + 1
        members, self.members = self.members, []
        for thread, _, follow in members:
            thread.cluster_phase = None
            thread.warp.place([thread], follow)

    def owns(self, region) -> bool:
        """Whether a region is the shared memory of one of the CTAs."""
        return any(region is cta.shared for cta in self.ctas)

    def waiting(self, warp):
        """One (thread, step, where it goes on) of a warp that waits here; None where none does."""
        return next((member for member in self.members if member[0].warp is warp), None)

    def window(self, address: int) -> int | None:
        """The shared::cluster address of a generic one; None where it lies in no CTA's shared memory."""
        if address >> RANK_SHIFT == NOBODY:
            return address
        for cta in self.ctas:
            if cta.shared.holds(address, 1):
                return cta.rank + 1 << RANK_SHIFT | address - cta.shared.start
        return None

    def generic(self, cta, address: int) -> int:
        """The generic address of a shared::cluster one; what no CTA has stays as it is, which is no legal address."""
        field, offset = address >> RANK_SHIFT, address & OFFSET
        if field == 0:
            return cta.shared.start + offset
        return self.ctas[field - 1].shared.start + offset if field <= len(self.ctas) else address

    def mapped(self, rank: int, offset: int) -> int:
        return (rank + 1 if rank < len(self.ctas) else NOBODY) << RANK_SHIFT | offset


def address_reader(m: Match, decoder) -> Callable:
    """Operand a, an address or a shared variable."""
    a = operand(m, "a")
    source = decoder.value_reader(a)
    if isinstance(a.operand, tree.Symbol) and not m.get("space"):
        return lambda thread: thread.cta.shared.start + source(thread)
    return source


@per_thread("mapa")
def map_address(m: Match, decoder) -> Callable:
    source, rank = address_reader(m, decoder), decoder.value_reader(operand(m, "b"))
    write = decoder.writer(operand(m, "d").operand, m["T"])
    in_window = bool(m.get("space"))

    def run(thread):
        cluster, address = thread.cta.cluster, source(thread)
        if in_window:
            write(thread, cluster.mapped(rank(thread), address & OFFSET))
            return
        window = cluster.window(address)
        offset = window & OFFSET if window is not None else 0
        write(thread, cluster.generic(thread.cta, cluster.mapped(rank(thread), offset)))

    return run


@per_thread("getctarank")
def rank_of(m: Match, decoder) -> Callable:
    source = address_reader(m, decoder)
    write = decoder.writer(operand(m, "d").operand, "u32")
    in_window = bool(m.get("space"))

    def run(thread):
        address = source(thread)
        window = address if in_window else thread.cta.cluster.window(address) or 0
        write(thread, (window >> RANK_SHIFT) - 1 if window >> RANK_SHIFT else thread.cta.rank)

    return run


def barrier(m: Match):
    """The step of barrier.cluster.arrive or .wait."""
    from warpwright.cpu.interpreter.program import Step

    action = m["action"]
    return Step(m.instruction, "cluster", lambda thread: action)
