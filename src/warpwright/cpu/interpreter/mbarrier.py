"""mbarrier objects: PTX ISA 9.7.13.15. The 64-bit word, opaque to programs, holds here, from its low bits:

expected arrivals of a phase (20), arrivals still pending (20), transactions still expected (21, signed), the phase's number (3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from warpwright.cpu.interpreter.memory import locate, plain_space
from warpwright.cpu.interpreter.registry import operand, per_thread
from warpwright.cpu.interpreter.words import mask, signed
from warpwright.ptx.isa import Match


class State(NamedTuple):
    expected: int
    pending: int
    transactions: int
    phase: int

    @classmethod
    def unpack(cls, word: int) -> State:
        return cls(word & mask(20), word >> 20 & mask(20), signed(word >> 40 & mask(21), 21), word >> 61)

    def pack(self) -> int:
        return self.expected | (self.pending & mask(20)) << 20 | (self.transactions & mask(21)) << 40 | (self.phase & 7) << 61

    def settle(self) -> State:
        """The next phase, if nothing is pending in this one."""
        if self.pending == 0 and self.transactions == 0:
            return State(self.expected, self.expected, 0, self.phase + 1 & 7)
        return self


def update(thread, space: str | None, address: int, change: Callable[[State], State]) -> int:
    """Change the object at an address; the word it was before."""
    region, place = locate(thread, space, address, 8)
    word = region.load(place, 8)
    region.store(place, 8, change(State.unpack(word)).settle().pack())
    return word


def credit(thread, word: int, count: int) -> None:
    """An asynchronous operation has transferred `count` bytes that the object at host address `word` expects."""
    update(thread, None, word, lambda state: state._replace(transactions=state.transactions - count))


@per_thread("mbarrier")
def mbarrier(m: Match, decoder) -> Callable:
    from warpwright.cpu.interpreter import asynchronous

    action = m["action"]
    written = next((value for value in m.values if value.written), None)
    write = decoder.writer(written.operand, written.type) if written is not None else (lambda thread, value: None)
    number = decoder.value_reader(m.value("b")) if m.value("b") is not None else (lambda thread: 1)
    if action == "pending_count":
        token = decoder.value_reader(operand(m, "a"))
        return lambda thread: write(thread, State.unpack(token(thread)).pending)
    address, space = decoder.address(operand(m, "a").operand, plain_space(m.get("space")))

    def init(thread):
        region, place = locate(thread, space, address(thread), 8)
        count = number(thread)
        region.store(place, 8, State(count, count, 0, 0).pack())

    def expect(thread):
        update(thread, space, address(thread), lambda s: s._replace(transactions=s.transactions + number(thread)))

    def complete(thread):
        update(thread, space, address(thread), lambda s: s._replace(transactions=s.transactions - number(thread)))

    def arrive(thread):
        count, transactions = (1, number(thread)) if m.get("expect_tx") else (number(thread), 0)
        dropped = count if action == "arrive_drop" else 0
        write(thread, update(thread, space, address(thread), lambda s: State(
            s.expected - dropped, s.pending - count, s.transactions + transactions, s.phase)))

    def test(thread):
        region, place = locate(thread, space, address(thread), 8)
        wanted = number(thread)

        def passed() -> bool:
            phase = State.unpack(region.load(place, 8)).phase
            return phase & 1 != wanted & 1 if m.get("parity") else phase != State.unpack(wanted).phase

        if thread.cta.launch.queue and not passed():
            asynchronous.run_late(thread.cta.launch, lambda pending: pending.kind == asynchronous.MBARRIER and pending.key == place)
        write(thread, int(passed()))

    actions = {"init": init, "inval": lambda thread: None, "expect_tx": expect, "complete_tx": complete, "arrive": arrive,
               "arrive_drop": arrive, "test_wait": test, "try_wait": test}
    return actions[action]
