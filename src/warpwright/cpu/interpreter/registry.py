"""Where each opcode's meaning is found: the family modules fill this, `program` reads it.

Three kinds of meaning, from plain to involved; each is a function that gets an instruction's `Match` and returns a function to run:

* `pure`: bit patterns of the read operands, in order, → bit pattern (or a tuple of them) of the written ones.
* `per_thread`: works on a thread's state; gets the `Decoder` too, which turns operands into readers and writers.
* `collective`: waits for the lanes its member mask names, then maps all their operands to all their results at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
