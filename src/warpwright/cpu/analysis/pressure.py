"""How many registers a kernel's threads need, for the number of CTAs that an SM holds."""

from __future__ import annotations

from warpwright.cpu.analysis.flow import Flow

# What an assembler adds to the values that live at once: addresses, the stack pointer, what it schedules ahead.
OVERHEAD = 8


def registers(flow: Flow) -> int:
    """An estimate, in 32-bit registers a thread, of what a GPU's assembler would allocate: the most that live at once, in steps of 8."""
    words: dict[int, int] = {}  # bit sets of registers, by how many 32-bit ones each takes
    for reg in flow.program.registers:
        size = 0 if reg.type == "pred" else -(-reg.bits // 32)
        words[size] = words.get(size, 0) | 1 << reg.index

    def count(live: int) -> int:
        return sum(size * (live & members).bit_count() for size, members in words.items() if size)

    most = 0
    for position, block in enumerate(flow.blocks):
        live = 0
        for successor in flow.successors[position]:
            live |= flow.live_in[successor]
        most = max(most, count(live))
        for op in reversed(block.ops):
            for reg in op.writes:
                live &= ~(1 << reg.index)
            for reg in op.reads:
                live |= 1 << reg.index
            most = max(most, count(live))
    return -(-(most + OVERHEAD) // 8) * 8
