"""A function as a graph: its instructions with the registers that each reads and writes, and where control goes from each.

The lints work on this graph. Registers are numbers here (two registers of one name in different scopes are two), sets of them are
Python integers with a bit for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS, Match, Value, match
from warpwright.ptx.names import Declared, Scope

Names = dict[str, int]


@dataclass(slots=True)
class Node:
    """An instruction. reads, writes: (register, the operand that names it); the guard's register is among the reads."""

    index: int
    match: Match
    scope: Scope
    reads: list[tuple[int, tree.Register]] = field(default_factory=list)
    writes: list[tuple[int, tree.Register]] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)

    @property
    def instruction(self) -> tree.Instruction:
        return self.match.instruction

    @property
    def opcode(self) -> str:
        return self.match.instruction.opcode


class Graph:
    """The flow graph of a function with a body. Raises PtxError where the function is not legal PTX (verify first)."""

    def __init__(self, module: tree.Module, function: tree.Function):
        self.module, self.function = module, function
        self.nodes: list[Node] = []
        self.names: list[str] = []  # of registers, by number
        self.types: list[str] = []
        self.top = Scope()
        for item in module.items:
            if isinstance(item, (tree.Variable, tree.Function)):
                known = self.top.names.get(item.name)
                if known is None or (isinstance(item, tree.Function) and item.body is not None) or item.linkage != "extern":
                    self.top.names[item.name] = item
        self._numbers: dict[tuple[int, str], int] = {}
        self._labels: dict[tuple[int, str], int] = {}  # (scope, name) → the node that follows it
        self._lists: dict[tuple[int, str], tree.Directive] = {}
        scope = Scope(self.top)
        for variable in (*function.results, *function.parameters):
            self._declare(variable, scope)
        self._walk(function.body or (), scope)
        self._connect()

    # ── building ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _declare(self, declared: tree.Variable | tree.RegisterDeclaration, scope: Scope) -> None:
        (scope.names if declared.count is None else scope.ranges)[declared.name] = declared

    def _walk(self, statements: Iterable[tree.Statement], scope: Scope) -> None:
        for statement in statements:
            match statement:
                case tree.Instruction():
                    self._add(statement, scope)
                case tree.Label(name=name):
                    self._labels[id(scope), name] = len(self.nodes)
                case tree.RegisterDeclaration() | tree.Variable():
                    self._declare(statement, scope)
                case tree.Block(statements=inner):
                    self._walk(inner, Scope(scope))
                case tree.Directive(label=str(label)):
                    self._lists[id(scope), label] = statement

    def _add(self, instruction: tree.Instruction, scope: Scope) -> None:
        node = Node(len(self.nodes), match(instruction), scope)
        self.nodes.append(node)
        if instruction.guard is not None:
            self._read(node, instruction.guard.register, False)
        for value in node.match.values:
            self._read(node, value.operand, value.written)
            if value.written and value.read:
                self._read(node, value.operand, False)

    def _read(self, node: Node, operand: tree.Operand | None, written: bool) -> None:
        match operand:
            case tree.Register():
                number = self.number(operand.name, node.scope)
                if number is not None:
                    (node.writes if written else node.reads).append((number, operand))
            case tree.Negated(operand=inner) | tree.Negative(operand=inner) | tree.Component(operand=inner):
                self._read(node, inner, written)
            case tree.Pair(first=first, second=second):
                self._read(node, first, written)
                self._read(node, second, written)
            case tree.Vector(elements=elements) | tree.Arguments(elements=elements):
                for element in elements:
                    self._read(node, element, written)
            case tree.Address(base=base, coordinates=coordinates, more=more):
                for part in (base, coordinates, *more):
                    self._read(node, part, False)

    def number(self, name: str, scope: Scope) -> int | None:
        """A declared register's number; None for special registers and symbols."""
        declared = scope.find(name)
        if not isinstance(declared, tree.RegisterDeclaration) and not (isinstance(declared, tree.Variable) and declared.space == "reg"):
            return None
        key = id(declared), name
        if key not in self._numbers:
            self._numbers[key] = len(self.names)
            self.names.append(name)
            self.types.append(declared.type)
        return self._numbers[key]

    def _target(self, name: str, scope: Scope | None, table: dict):
        while scope is not None:
            if (id(scope), name) in table:
                return table[id(scope), name]
            scope = scope.outer
        raise PtxError(f"'{name}' is not a label of this function")

    def _connect(self) -> None:
        for node in self.nodes:
            following = [node.index + 1] if node.index + 1 < len(self.nodes) else []
            instruction, found = node.instruction, node.match
            if node.opcode == "bra":
                target = self._target(found.value("target").operand.name, node.scope, self._labels)  # type: ignore[union-attr]
                node.successors = [target] + (following if instruction.guard else [])
            elif node.opcode == "brx":
                words = self._target(found.value("targets").operand.name, node.scope, self._lists).words  # type: ignore[union-attr]
                node.successors = [self._target(word, node.scope, self._labels) for word in words if word != ","]
                node.successors += following if instruction.guard else []
            elif node.opcode in ("ret", "exit", "trap") or self._never_returns(node):
                node.successors = following if instruction.guard else []
            else:
                node.successors = following
            node.successors = [target for target in dict.fromkeys(node.successors) if target < len(self.nodes)]

    def _never_returns(self, node: Node) -> bool:
        if node.opcode != "call":
            return False
        callee = node.match.value("func")
        declared = self.top.find(callee.operand.name) if callee and isinstance(callee.operand, tree.Symbol) else None
        return isinstance(declared, tree.Function) and any(directive.name == "noreturn" for directive in declared.directives)

    # ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def variable(self, name: str, scope: Scope) -> Declared | None:
        return scope.find(name)

    @cached_property
    def predecessors(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for target in node.successors:
                found[target].append(node.index)
        return found

    @cached_property
    def reachable(self) -> set[int]:
        """The nodes that control can come to."""
        return set(self.walk([0])) if self.nodes else set()

    def walk(self, start: Iterable[int], stop: Callable[[Node], bool] = lambda node: False,
             beyond: Iterable[int] = ()) -> Iterator[int]:
        """Nodes that control can come to from `start` (those included), without going on after where `stop` holds, nor to `beyond`."""
        seen: set[int] = set(beyond)
        open_ = list(start)
        while open_:
            index = open_.pop()
            if index in seen:
                continue
            seen.add(index)
            yield index
            if not stop(self.nodes[index]):
                open_ += self.nodes[index].successors

    def after(self, node: Node, stop: Callable[[Node], bool] = lambda node: False) -> Iterator[int]:
        """Nodes that control can come to after this one."""
        return self.walk(node.successors, stop)

    @cached_property
    def calls(self) -> bool:
        """Whether it calls functions, in which anything may happen."""
        return any(node.opcode == "call" and not self._never_returns(node) for node in self.nodes)

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """Straight runs of reachable nodes, [first, last + 1)."""
        leaders = {0} | {target for node in self.nodes for target in node.successors if len(node.successors) > 1 or target != node.index + 1}
        leaders |= {node.index + 1 for node in self.nodes if node.successors != [node.index + 1]}
        starts = sorted(leader for leader in leaders if leader < len(self.nodes))
        return [(a, b) for a, b in zip(starts, [*starts[1:], len(self.nodes)], strict=True) if a in self.reachable]

    def solve(self, forward: bool, effect: Callable[[int, Node], int]) -> dict[int, int]:
        """A may-analysis over sets (as integers): block start → the set before its first node (backward: after its last).

        `effect(set, node)` is the set on the node's other side.
        """
        blocks = self.blocks
        at = {a: i for i, (a, _) in enumerate(blocks)}
        edges: list[list[int]] = [[at[target] for target in self.nodes[b - 1].successors] for _, b in blocks]
        if not forward:
            back: list[list[int]] = [[] for _ in blocks]
            for i, targets in enumerate(edges):
                for target in targets:
                    back[target].append(i)
            edges = back
        state = [0] * len(blocks)
        waiting = list(range(len(blocks)) if not forward else range(len(blocks) - 1, -1, -1))
        queued = set(waiting)
        while waiting:
            i = waiting.pop()
            queued.discard(i)
            a, b = blocks[i]
            current = state[i]
            for index in range(a, b) if forward else range(b - 1, a - 1, -1):
                current = effect(current, self.nodes[index])
            for target in edges[i]:
                if current | state[target] != state[target]:
                    state[target] |= current
                    if target not in queued:
                        queued.add(target)
                        waiting.append(target)
        return {a: state[i] for i, (a, _) in enumerate(blocks)}


def place(operand: object, instruction: tree.Instruction) -> tree.Position | None:
    """Where an operand stands, or else its instruction."""
    position = getattr(operand, "position", None)
    if position is None and isinstance(operand, tree.Address) and operand.base is not None:
        position = operand.base.position
    return position or instruction.position


def bytes_of(value: Value) -> int:
    """Bytes that an operand's type and vector take in memory."""
    return max(1, TYPE_BITS[value.type or "b8"] // 8) * (value.length or 1)
