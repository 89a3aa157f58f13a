"""Barriers that cannot complete, and instructions that all lanes of a warp must execute together, under a branch that parts them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from warpwright.ptx import tree
from warpwright.ptx.lints.graph import Graph, Node
from warpwright.ptx.lints.registry import Place, lint
from warpwright.ptx.lints.values import Values


def block_of(function: tree.Function) -> tuple[tuple[int, ...] | None, int | None]:
    """(the block that `.reqntid` fixes, the most threads that a block may have), None where nothing is said."""
    shape, most = None, None
    for directive in function.directives:
        if directive.name in ("reqntid", "maxntid"):
            numbers = tuple(int(word) for word in directive.words if word.isdigit())
            most = math.prod(numbers)
            if directive.name == "reqntid":
                shape = (*numbers, 1, 1)[:3]
    return shape, most


def _is_cta_barrier(node: Node) -> bool:
    return node.opcode in ("bar", "barrier") and not node.match.get("warp") and not node.match.get("cluster")


@lint("barrier-mismatch", "a barrier waits for more threads than there are, or nothing waits for an arrival")
def mismatch(graph: Graph) -> Iterator[Place]:
    shape, most = block_of(graph.function)
    barriers = [graph.nodes[i] for i in sorted(graph.reachable) if _is_cta_barrier(graph.nodes[i])]
    values = Values(graph) if barriers else None

    def constant(node: Node, name: str) -> int | None:
        value = node.match.value(name)
        known = values.of(value.operand, node) if value is not None and values is not None else None
        return known.residue if known is not None and known.exact and known.base is None else None

    if most is not None:
        for node in barriers:
            count = constant(node, "b")
            if count is not None and count > -(-most // 32) * 32:
                yield f"this barrier waits for {count} threads, and the block has {most}", node.match.value("b").operand, node  # type: ignore[union-attr]
    if graph.calls or not graph.function.kernel or any(constant(node, "a") is None for node in barriers):
        return
    for node in barriers:
        if node.match["action"] != "arrive":
            continue
        name, count = constant(node, "a"), constant(node, "b")
        partners = [other for other in barriers if other.match["action"] != "arrive" and constant(other, "a") == name]
        if not partners:
            yield f"nothing in this kernel waits at barrier {name}", node.match.value("a").operand, node  # type: ignore[union-attr]
            continue
        counts = {constant(other, "b") if other.match.value("b") is not None else (math.prod(shape) if shape else None) for other in partners}
        if count is not None and None not in counts and count not in counts:
            told = ", ".join(map(str, sorted(counts)))  # type: ignore[type-var]
            yield (f"this arrival expects {count} threads at barrier {name}; who waits there expects {told}",
                   node.match.value("b").operand, node)  # type: ignore[union-attr]


# ── divergence ───────────────────────────────────────────────────────────────────────────────────────────────────


def _aligned(node: Node) -> bool:
    """Whether all lanes of the warp have to execute the instruction together."""
    if node.opcode == "bar":
        return not node.match.get("warp")
    return "aligned" in node.instruction.modifiers


class _Lanes:
    """Which predicates are sure to differ between the lanes of some warp."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.shape, self.most = block_of(graph.function)
        self.writers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for register, _ in node.writes:
                self.writers.setdefault(register, []).append(node)

    def writer(self, operand: object, node: Node) -> Node | None:
        """The one instruction that writes a register."""
        if not isinstance(operand, tree.Register):
            return None
        register = self.graph.number(operand.name, node.scope)
        writers = self.writers.get(register, []) if register is not None else []
        return writers[0] if len(writers) == 1 and writers[0].instruction.guard is None else None

    def differs(self, predicate: tree.Register, node: Node) -> str | None:
        """What the predicate tests that differs between the lanes; None where that is not sure."""
        writer = self.writer(predicate, node)
        if writer is None:
            return None
        found = writer.match
        if writer.opcode == "elect":
            return "'elect' gave true to one lane only"
        if writer.opcode != "setp" or len(writer.writes) != 1 or found.value("c") is not None:
            return None
        a, b = found.value("a"), found.value("b")
        if a is None or b is None or not isinstance(b.operand, tree.Integer):
            return None
        source, period = self.lane_number(a.operand, writer)
        if source is None:
            return None
        value, how = b.operand.value, found.get("cmp")
        if period == 0:  # of a block whose shape is not known, only this is sure: thread 0 is one of several
            parts = value == 0 and how in ("eq", "ne", "gt", "le", "hi", "ls")
            return f"'{source}' differs between the lanes" if parts else None
        if how in ("eq", "ne"):
            parts = 0 <= value < period
        elif how in ("lt", "ge", "lo", "hs"):
            parts = 0 < value < period and value % 32 != 0
        elif how in ("gt", "le", "hi", "ls"):
            parts = 0 <= value < period - 1 and (value + 1) % 32 != 0
        else:
            parts = False
        return f"'{source}' differs between the lanes" if parts else None

    def lane_number(self, operand: object, node: Node) -> tuple[str | None, int]:
        """(name, how many values it takes, 0: not known) of an operand that counts the lanes: %laneid, %tid.x, and `%tid.x & 31`."""
        if isinstance(operand, tree.Register):
            if operand.name == "%laneid":
                return operand.name, 32
            if operand.name == "%tid.x":
                if self.shape is not None:
                    return (operand.name, self.shape[0]) if self.shape[0] > 1 else (None, 0)
                return operand.name, 0
        writer = self.writer(operand, node)
        if writer is None:
            return None, 0
        found = writer.match
        if writer.opcode == "mov" and found.get("vec") is None and not isinstance(found.values[1].operand, tree.Vector):
            return self.lane_number(found.values[1].operand, writer)
        if writer.opcode == "and":
            mask = found.value("b")
            if mask is not None and isinstance(mask.operand, tree.Integer) and mask.operand.value == 31:
                source, period = self.lane_number(found.value("a").operand, writer)  # type: ignore[union-attr]
                return source, min(period, 32)
        return None, 0


@lint("divergent-aligned", "an .aligned instruction that only some lanes of a warp execute")
def divergent(graph: Graph) -> Iterator[Place]:
    aligned = [graph.nodes[i] for i in sorted(graph.reachable) if _aligned(graph.nodes[i])]
    if not aligned:
        return
    lanes = _Lanes(graph)
    for node in aligned:
        guard = node.instruction.guard
        why = lanes.differs(guard.register, node) if guard is not None else None
        if why:
            yield f"all lanes of a warp must execute '{node.instruction.mnemonic}' together, and here {why}", guard.register, node  # type: ignore[union-attr]
    joins = _joins(graph)
    inside: dict[int, tuple[str, Node]] = {}
    for branch in (graph.nodes[i] for i in sorted(graph.reachable)):
        guard = branch.instruction.guard
        if branch.opcode != "bra" or guard is None or len(branch.successors) != 2 or branch.instruction.modifiers:
            continue
        join = joins.get(branch.index, -1)
        why = lanes.differs(guard.register, branch) if join >= 0 else None
        if why:
            for index in graph.walk((target for target in branch.successors if target != join), beyond={join}):
                inside.setdefault(index, (why, branch))
    for node in aligned:
        if node.index in inside:
            why, branch = inside[node.index]
            line = branch.instruction.position.line if branch.instruction.position else "?"
            yield (f"all lanes of a warp must execute '{node.instruction.mnemonic}' together, and the branch in line {line} parts them: {why}",
                   None, node)


def _joins(graph: Graph) -> dict[int, int]:
    """Branch → where all ways from it meet again (its immediate postdominator), where there is such a place before the end."""
    order: list[int] = []
    seen: set[int] = set()
    ends = [i for i in graph.reachable if not graph.nodes[i].successors]
    exit_ = len(graph.nodes)
    stack: list[tuple[int, Iterator[int]]] = [(exit_, iter(ends))]
    while stack:  # postorder on the reversed graph
        index, targets = stack[-1]
        target = next((t for t in targets if t not in seen and t in graph.reachable), None)
        if target is None:
            order.append(index)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(graph.predecessors[target])))
    number = {index: i for i, index in enumerate(order)}
    immediate: dict[int, int] = {exit_: exit_}

    def meet(a: int, b: int) -> int:
        while a != b:
            while number[a] < number[b]:
                a = immediate[a]
            while number[b] < number[a]:
                b = immediate[b]
        return a

    changed = True
    while changed:
        changed = False
        for index in reversed(order[:-1]):
            following = graph.nodes[index].successors or [exit_]
            found = None
            for target in following:
                if target in immediate:
                    found = target if found is None else meet(found, target)
            if found is not None and immediate.get(index) != found:
                immediate[index] = found
                changed = True
    return {index: join for index, join in immediate.items() if join != exit_ and len(graph.nodes[index].successors) > 1}
