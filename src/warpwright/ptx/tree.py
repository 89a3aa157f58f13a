"""The syntax tree of PTX: immutable, comparable by meaning (source positions do not count), printable.

`parse(str(tree)) == tree` holds for every tree. Modifiers and names are kept as written, without the leading dot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Position(NamedTuple):
    """A place in the source: 1-based line and column."""

    line: int
    column: int


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Register:
    """A register, declared (`%r1`, `x`) or special (`%tid.x`, `%laneid`: see `ptx.isa.special`)."""

    name: str
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal. `unsigned` is the literal's `U` suffix; hexadecimal and decimal are not told apart."""

    value: int
    unsigned: bool = False
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Float:
    """A floating literal by its bits: `0f3F800000` (width 32), `0d…` (width 64); a decimal such as `1.5` is width 64."""

    bits: int
    width: int
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A label, variable, function or parameter by name, optionally with a byte offset (`table+4`)."""

    name: str
    offset: int = 0
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p`: a predicate operand complemented."""

    operand: Register
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Negative:
    """`-r`: a register operand with its sign changed (legal in a few instructions only)."""

    operand: Register
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a register: `.x` of a vector register, `.b0`/`.h1` selectors of video instructions."""

    operand: Register
    name: str
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """`p|q`: a destination with its complement or a second result."""

    first: Operand
    second: Operand
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result nobody wants."""

    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, …}`: several registers or literals taken as one operand."""

    elements: tuple[Operand, ...]
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; `base` is a register, a symbol's name, an absolute integer, or None for `[offset]`.

    `coordinates` holds a tensor or texture access's vector: `[map, {x, y}]`.
    `more` holds what else stands in the brackets after further commas.
    """

    base: Register | Symbol | None
    offset: int = 0
    coordinates: Operand | None = None
    more: tuple[Operand, ...] = ()
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parenthesised list of a `call`: `(a, b)`."""

    elements: tuple[Operand, ...]
    position: Position | None = field(default=None, compare=False, repr=False)


Operand = Register | Integer | Float | Symbol | Negated | Negative | Component | Pair | Sink | Vector | Address | Arguments


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `@guard opcode.modifiers operands;`. `ptx.isa.match` gives its meaning."""

    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    position: Position | None = field(default=None, compare=False, repr=False)

    @property
    def mnemonic(self) -> str:
        """Opcode and modifiers as written: `ld.global.nc.f32`."""
        return ".".join((self.opcode, *self.modifiers))

    def __str__(self) -> str:
        from warpwright.ptx.printer import print_statement

        return print_statement(self)


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RegisterDeclaration:
    """`.reg .type name;` or `.reg .type name<count>;` (count registers name0 … name(count-1)); `vector` is 2 or 4 for `.v2`/`.v4`."""

    type: str
    name: str
    count: int | None = None
    vector: int | None = None
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A declaration in a state space (`global`, `shared`, `const`, `local`, `param`, `tex`).

    `dimensions` is () for a scalar; an entry None is an empty bracket (`[]`). `initializer` is None, one value, or nested tuples;
    a value is an Integer, Float, Symbol or Generic. `attributes` are the words inside `.attribute(…)`.
    `linkage` is "", "visible", "extern", "weak" or "common". `pointer` is a kernel parameter's `.ptr` space with alignment.
    """

    space: str
    type: str
    name: str
    dimensions: tuple[int | None, ...] = ()
    align: int | None = None
    vector: int | None = None
    initializer: Initializer | None = None
    linkage: str = ""
    attributes: tuple[str, ...] = ()
    pointer: PointerHint | None = None
    count: int | None = None
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PointerHint:
    """`.ptr .global .align 16` on a kernel parameter."""

    space: str | None = None
    align: int | None = None


@dataclass(frozen=True, slots=True)
class Generic:
    """`generic(symbol)` in an initialiser. With a mask, one field of an address: `0xFF00(generic(symbol))`, or, where `generic` is False,
    `0xFF00(symbol)`."""

    symbol: Symbol
    mask: int | None = None
    generic: bool = True


Initializer = Integer | Float | Symbol | Generic | tuple


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive that carries words but no structure of its own: `.pragma`, `.loc`, `.file`, `.maxntid`, `.reqntid`, `.minnctapersm`,
    `.maxnreg`, `.section`, `.branchtargets`, `.calltargets`, `.callprototype`, `.alias`, `.noreturn` …

    `words` are its tokens as written; `label` is the name before a colon for labelled ones.
    """

    name: str
    words: tuple[str, ...] = ()
    label: str | None = None
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ … }`: a scope of its own for names."""

    statements: tuple[Statement, ...]
    position: Position | None = field(default=None, compare=False, repr=False)


Statement = Instruction | Label | RegisterDeclaration | Variable | Directive | Block


@dataclass(frozen=True, slots=True)
class Function:
    """An `.entry` (kernel) or `.func`. `body` is None for a declaration. `directives` stand between parameters and body (`.maxntid` …)."""

    name: str
    kernel: bool
    parameters: tuple[Variable, ...] = ()
    results: tuple[Variable, ...] = ()
    body: tuple[Statement, ...] | None = None
    directives: tuple[Directive, ...] = ()
    linkage: str = ""
    position: Position | None = field(default=None, compare=False, repr=False)

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of the body in source order, those in nested blocks too."""

        def walk(statements):
            for statement in statements:
                if isinstance(statement, Instruction):
                    yield statement
                elif isinstance(statement, Block):
                    yield from walk(statement.statements)

        yield from walk(self.body or ())


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX module: `.version`, `.target` (with its options, such as `texmode_independent`), `.address_size`, then items in order."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int = 64
    items: tuple[Function | Variable | Directive, ...] = ()
    file: str | None = field(default=None, compare=False)

    @property
    def kernels(self) -> dict[str, Function]:
        """The kernels with a body, by name."""
        return {item.name: item for item in self.items if isinstance(item, Function) and item.kernel and item.body is not None}

    @property
    def functions(self) -> dict[str, Function]:
        """All functions and kernels by name; a definition wins over a declaration."""
        found: dict[str, Function] = {}
        for item in self.items:
            if isinstance(item, Function) and (item.name not in found or item.body is not None):
                found[item.name] = item
        return found

    def __str__(self) -> str:
        from warpwright.ptx.printer import print_module

        return print_module(self)
