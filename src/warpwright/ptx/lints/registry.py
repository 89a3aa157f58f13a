"""The table of lints, and what they yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warpwright.ptx import tree
from warpwright.ptx.lints.graph import Graph, Node, place


@dataclass(frozen=True)
class Finding:
    """What a lint found: its name, a sentence, and where (1-based; None where the module was not parsed from text)."""

    lint: str
    message: str
    line: int | None
    column: int | None

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " if self.line is not None else ""
        return f"{where}{self.message} [{self.lint}]"


Place = tuple[str, tree.Operand | tree.Register | None, Node]  # message, the operand it is about (None: the instruction), the instruction


@dataclass(frozen=True)
class Lint:
    """name: as `--ignore` takes it. meaning: one line. search: yields (message, operand, node) for a function's graph.

    default: it runs where no lint is named. What compilers leave behind on purpose is not looked for by default.
    """

    name: str
    meaning: str
    search: Callable[[Graph], Iterator[Place]]
    default: bool = True

    def find(self, graph: Graph) -> Iterator[Finding]:
        for message, operand, node in self.search(graph):
            where = place(operand, node.instruction)
            yield Finding(self.name, message, *((where.line, where.column) if where else (None, None)))


LINTS: dict[str, Lint] = {}


def lint(name: str, meaning: str, default: bool = True):
    """Register a search as the lint of this name."""

    def register(search: Callable[[Graph], Iterator[Place]]):
        LINTS[name] = Lint(name, meaning, search, default)
        return search

    return register
