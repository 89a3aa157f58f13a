"""Registers that are read but never written, and results that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

from warpwright.ptx import tree
from warpwright.ptx.isa.table import TABLE
from warpwright.ptx.lints.graph import Graph, Node
from warpwright.ptx.lints.registry import Place, lint


def _bits(pairs) -> int:
    found = 0
    for register, _ in pairs:
        found |= 1 << register
    return found


@lint("unwritten-register", "a register is read that nothing on any way to it has written")
def unwritten(graph: Graph) -> Iterator[Place]:
    writes = [_bits(node.writes) for node in graph.nodes]
    before = graph.solve(True, lambda current, node: current | writes[node.index])
    told: set[int] = set()
    for first, end in graph.blocks:
        written = before[first]
        for node in graph.nodes[first:end]:
            # A matrix product that ignores its accumulator (scale-d false) may be given one that was never written.
            accumulators = writes[node.index] if node.opcode in ("wgmma", "tcgen05") else 0
            for register, operand in node.reads:
                if not (written | accumulators) >> register & 1 and register not in told and not _idle(node):
                    told.add(register)
                    never = not any(mask >> register & 1 for mask in writes)
                    yield (f"'{operand.name}' is read and was never written" if never else
                           f"'{operand.name}' is read, and nothing on the way here has written it"), operand, node
            written |= writes[node.index]


def _idle(node: Node) -> bool:
    """`xor r, r, r` and `sub r, r, r` make a zero of anything; and LLVM fills the half of a pair that it does not need with what was never
    written: `mov.b64 d, {undefined, r}`."""
    if node.opcode == "mov" and isinstance(node.match.values[-1].operand, tree.Vector):
        return True
    operands = [getattr(value.operand, "name", None) for value in node.match.values]
    return node.opcode in ("xor", "sub") and len(operands) == 3 and operands[1] == operands[2]


@lint("unread-value", "a result is computed and never read (compilers leave such values to ptxas, so this one runs only when it is named)",
      default=False)
def unread(graph: Graph) -> Iterator[Place]:
    reads, writes = ([_bits(pairs) for pairs in (node.reads for node in graph.nodes)], [_bits(node.writes) for node in graph.nodes])

    def back(current: int, node: Node) -> int:
        return (current & ~writes[node.index] if node.instruction.guard is None else current) | reads[node.index]

    after = graph.solve(False, back)
    for first, end in graph.blocks:
        alive = after[first]
        for node in reversed(graph.nodes[first:end]):
            if writes[node.index] and not writes[node.index] & alive and _pure(node):
                names = ", ".join(f"'{operand.name}'" for _, operand in node.writes)
                yield f"{names} is never read after this", node.writes[0][1], node
            alive = back(alive, node)


def _pure(node: Node) -> bool:
    """Whether the instruction does nothing but write its registers."""
    found = node.match
    effects = TABLE[node.opcode].effects
    if node.opcode in ("ld", "ldu"):
        return found.get("sem") in (None, "weak")
    return not effects and node.opcode not in ("alloca", "stacksave", "activemask") and not _reads_clock(node) and not found.get("cc")


def _reads_clock(node: Node) -> bool:
    return any("clock" in getattr(value.operand, "name", "") or "timer" in getattr(value.operand, "name", "") for value in node.match.values)
