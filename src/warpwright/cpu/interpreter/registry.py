"""Where each opcode's meaning is found: the family modules fill this, `program` reads it.

Three kinds of meaning, from plain to involved; each is a function that gets an instruction's `Match` and returns a function to run:

* `pure`: bit patterns of the read operands, in order, → bit pattern (or a tuple of them) of the written ones.
* `per_thread`: works on a thread's state; gets the `Decoder` too, which turns operands into readers and writers.
* `collective`: waits for the lanes its member mask names, then maps all their operands to all their results at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpwright.cpu import faults
from warpwright.ptx.isa import Match, Value


class Trap(Exception):
    """A thread executed trap (`kind` faults.TRAP) or failed an assertion, or met what the interpreter cannot run."""

    def __init__(self, reason: str = "", kind: int = faults.TRAP):
        super().__init__(reason)
        self.reason, self.kind = reason, kind


PURE: dict[str, Callable] = {}
PER_THREAD: dict[str, Callable] = {}
COLLECTIVE: dict[str, Collective] = {}


@dataclass(frozen=True)
class Collective:
    """build(match) → combine(threads, inputs) → outputs; inputs and outputs hold a tuple of operand values for each thread.

    mask(match) names the operand with the member mask, or is None where the whole warp takes part.
    """

    build: Callable
    mask: str | None


def operand(m: Match, name: str) -> Value:
    """An operand that the form must have."""
    found = m.value(name)
    if found is None:
        raise ValueError(f"the operand '{name}' is missing")
    return found


def pure(*opcodes: str):
    def register(build):
        for opcode in opcodes:
            PURE[opcode] = build
        return build

    return register


def per_thread(*opcodes: str):
    def register(build):
        for opcode in opcodes:
            PER_THREAD[opcode] = build
        return build

    return register


def collective(*opcodes: str, mask: str | None):
    def register(build):
        for opcode in opcodes:
            COLLECTIVE[opcode] = Collective(build, mask)
        return build

    return register
