"""What a kernel's Python function records while it runs: statements, registers, variables, and the Python line of each."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from warpwright.errors import PtxError
from warpwright.ptx import tree

if TYPE_CHECKING:
    from warpwright.ptx.builder.types import Register

_HERE = os.path.dirname(os.path.abspath(__file__))
_active: list[Trace] = []


def here() -> tuple[str, int]:
    """(file, line) of the innermost Python frame outside the builder: the kernel's own line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def error(message: str) -> PtxError:
    """A PtxError at the Python line that called the builder."""
    file, line = here()
    return PtxError(message, line, file=file)


def current() -> Trace:
    """The kernel being traced."""
    if not _active:
        raise error("this word emits an instruction: use it inside a function decorated with @ptx.kernel")
    return _active[-1]


class Trace:
    """One kernel's recording. `body` and `places` run in parallel; `prologue` is what every path needs first (parameters, special
    registers)."""

    def __init__(self, block: tuple[int, int, int]) -> None:
        self.block = block
        self.prologue: list[tree.Statement] = []
        self.body: list[tree.Statement] = []
        self.places: list[tuple[str, int]] = []
        self.prologue_places: list[tuple[str, int]] = []
        self.unchecked: set[int] = set()
        self.variables: list[tree.Variable] = []
        self.module_variables: list[tree.Variable] = []
        self.loops: list[Any] = []
        self.registers: Counter[tuple[str, str]] = Counter()
        self._labels = 0
        self._constants: dict[str, Register] = {}
        self._names: Counter[str] = Counter()

    def __enter__(self) -> Trace:
        _active.append(self)
        return self

    def __exit__(self, *failure: object) -> None:
        _active.pop()

    def append(self, statement: tree.Statement) -> None:
        self.body.append(statement)
        self.places.append(here())

    def new(self, type_: type[Register]) -> Any:
        """A register nobody uses yet."""
        from warpwright.ptx.builder.types import storage

        kept = storage(type_)
        self.registers[kept] += 1
        return type_(f"{kept[1]}{self.registers[kept] - 1}")

    def label(self) -> str:
        self._labels += 1
        return f"$L{self._labels}"

    def name(self, wanted: str) -> str:
        """A name for a variable that no other variable of the kernel has."""
        self._names[wanted] += 1
        return wanted if self._names[wanted] == 1 else f"{wanted}_{self._names[wanted]}"

    def constant(self, key: str, type_: type[Register], source: tree.Operand, opcode: str = "mov") -> Any:
        """A value that never changes, read once in the prologue into a register: a special register, a parameter, an address."""
        if key not in self._constants:
            register = self.new(type_)
            self.begin(tree.Instruction(opcode.split(".")[0], (*opcode.split(".")[1:], type_.type_name), (register.operand, source)))
            self._constants[key] = register
        return self._constants[key]

    def begin(self, statement: tree.Statement) -> None:
        """Append to the prologue."""
        self.prologue.append(statement)
        self.prologue_places.append(here())

    def symbol_address(self, name: str, type_: type[Register]) -> Any:
        return self.constant(f"&{name}", type_, tree.Symbol(name))

    def declarations(self) -> list[tree.Statement]:
        """The kernel's `.reg` and variable declarations."""
        registers = [tree.RegisterDeclaration(type_, prefix, count) for (type_, prefix), count in sorted(self.registers.items())]
        return [*registers, *self.variables]
