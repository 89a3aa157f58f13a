"""Where lanes of one warp wait for each other: loops that look at memory until another lane has changed it, and instructions with `.sync`.

In visiting order (`flow`) lanes that left a loop wait for those still in it. Where a loop waits for memory, these may be the very lanes it waits
for; so such a loop's way back is a *turn*: lanes that wait further on go first. They may so come to an instruction that needs the lanes left
behind; those with `.sync` then begin a block, a *meeting*, which runs only once its members are there. Kernels without turns have no
meetings either: their lanes are together where they must be by the visiting order alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warpwright.cpu.analysis.flow import Flow, Frontier
from warpwright.cpu.analysis.program import Block, Imm, Op, Program, Reg

# What all lanes of the warp execute together; those that the ISA lets them come to on different ways (`barrier` without `.aligned`) do so if
# there is no other way to go on.
ALIGNED = ("mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma", "tcgen05", "setmaxnreg", "bar", "barrier")
WITH_MASK = ("shfl", "vote", "match", "redux", "elect")
EVERYBODY = 0xFFFFFFFF


@dataclass
class Turns:
    """turns: positions of blocks whose ways back are turns. meetings: positions of blocks that begin with an instruction that waits for its
    members. whole: those of them that wait for every lane that has not ended."""

    turns: set[int] = field(default_factory=set)
    meetings: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.turns or self.meetings)


def is_warp_barrier(op: Op) -> bool:
    return op.opcode in ("bar", "barrier") and bool(op.get("warp"))


def members_of(op: Op) -> object:
    """The member mask of an instruction that waits for other lanes of its warp: an operand, or EVERYBODY; None if it does not wait."""
    if is_warp_barrier(op):
        return op.args.get("mask", op.args.get("a"))
    if op.opcode in WITH_MASK:
        return op.args.get("mask")
    return EVERYBODY if op.opcode in ALIGNED else None


def everybody(program: Program) -> set[int]:
    """Registers that can only hold a mask of all lanes."""
    written: dict[int, bool] = {}
    for block in program.blocks:
        for op in block.ops:
            for reg in op.writes:
                source = op.args.get("a")
                full = op.opcode == "mov" and op.guard is None and isinstance(source, Imm) and source.value & EVERYBODY == EVERYBODY
                written[reg.index] = full and reg.index not in written
    return {index for index, full in written.items() if full}


def find(flow: Flow, waiting: set[int], split: set[int]) -> Turns:
    """The turns of loops that wait (`waiting`: positions of their blocks), and the meetings at the blocks `split`, by index."""
    found = Turns()
    for position, successors in enumerate(flow.successors):
        if position in waiting and any(s <= position for s in successors):
            found.turns.add(position)
    full = everybody(flow.program)
    for index in split:
        place = flow.place.get(index)
        if place is None:
            continue
        found.meetings.add(place)
        op = flow.blocks[place].ops[0]
        mask = members_of(op)
        always = mask == EVERYBODY or (isinstance(mask, Imm) and mask.value & EVERYBODY == EVERYBODY)
        always = always or (isinstance(mask, Reg) and mask.index in full)
        together = not is_warp_barrier(op) and (op.opcode != "barrier" or op.get("aligned"))
        if always and together and op.guard is None:
            found.whole.add(place)
    return found


def meet(program: Program, flow: Flow, frontier: Frontier, turns: Turns, split: set[int]) -> set[int]:
    """Begin a block at the instructions that lanes come to first, of those that wait, while others are left behind: adds these blocks'
    indices to `split`, and returns the new ones."""
    active = {position for position in turns.turns if frontier.pending[position] or position in frontier.divergent}
    apart = [position for position, block in enumerate(flow.blocks) if frontier.pending[position] and any(map(is_warp_barrier, block.ops))]
    seen, stack = set(active), list(active)
    stack += [position for position in (*apart, *turns.meetings) if position not in seen]
    new: set[int] = set()
    visited: set[int] = set()
    while stack:
        position = stack.pop()
        if position in visited:
            continue
        visited.add(position)
        block = flow.blocks[position]
        if position in turns.whole:  # nobody is left behind from here on
            continue
        begun = 1 if block.index in split else 0
        at = next((i for i, op in enumerate(block.ops) if i >= begun and members_of(op) is not None), None)
        if at is not None and frontier.pending[position]:
            new.add(_split(program, block, at))
            continue
        stack += flow.successors[position]
    split |= new
    return new


def _split(program: Program, block: Block, at: int) -> int:
    """Let a block begin at one of another's instructions; its index."""
    if at == 0:
        return block.index
    rest = Block(len(program.blocks), block.ops[at:], block.successors, block.branch, block.switch, block.site)
    program.blocks.append(rest)
    block.ops, block.successors, block.branch, block.switch = block.ops[:at], [rest.index], None, None
    return rest.index
