"""What is known of a register's value wherever it is read: which variable's address it is, and its residue modulo a power of two.

The analysis does not follow the order of instructions: a register's value is the join of all that is written to it. So what it says
holds everywhere, and it says little of registers that are used for several things.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from warpwright.ptx import tree
from warpwright.ptx.isa.table import TYPE_BITS
from warpwright.ptx.layout import layout_align, layout_size
from warpwright.ptx.lints.graph import Graph, Node
from warpwright.ptx.names import Scope


@dataclass(frozen=True)
class Base:
    """What an address counts from. size: bytes, None where it is not known (`.extern`, a kernel's pointer)."""

    key: object
    name: str
    space: str
    align: int
    size: int | None


@dataclass(frozen=True)
class Known:
    """base + residue (mod modulus); modulus 0: exactly. base None: a number. Everything is known modulo 1."""

    base: Base | None
    modulus: int
    residue: int

    @property
    def exact(self) -> bool:
        return self.modulus == 0

    def low(self) -> tuple[int, int]:
        """(modulus, residue) of the value as a plain number: a base is known modulo its alignment only."""
        modulus = math.gcd(self.modulus, self.base.align) if self.base else self.modulus
        return modulus, self.residue % modulus if modulus else self.residue


ANYTHING = Known(None, 1, 0)


def known(base: Base | None, modulus: int, residue: int) -> Known:
    """A Known in its normal form: a modulus is a power of two, not so large that 32-bit registers could wrap below it."""
    if modulus:
        modulus = min(modulus & -modulus, 1 << 16)
        residue %= modulus
    return Known(base, modulus, residue)


def number(value: int) -> Known:
    return Known(None, 0, value)


def join(a: Known | None, b: Known) -> Known:
    if a is None or a == b:
        return b
    if a.base != b.base:
        (ma, ra), (mb, rb) = a.low(), b.low()
        return known(None, math.gcd(ma, mb, ra - rb), ra)
    return known(a.base, math.gcd(a.modulus, b.modulus, a.residue - b.residue), a.residue)


def add(a: Known, b: Known, sign: int = 1) -> Known:
    if b.base is not None:
        if sign < 0:
            return known(None, math.gcd(a.modulus, b.modulus), a.residue - b.residue) if a.base == b.base else ANYTHING
        if a.base is not None:
            return ANYTHING
        a, b = b, a
    return known(a.base, math.gcd(a.modulus, b.modulus), a.residue + sign * b.residue)


def multiply(a: Known, b: Known) -> Known:
    (ma, ra), (mb, rb) = a.low(), b.low()
    return known(None, math.gcd(ma * mb, ma * rb, mb * ra), ra * rb)


def conjunction(a: Known, b: Known) -> Known:
    """a & b."""
    if a.exact and a.base is None:
        a, b = b, a
    if not (b.exact and b.base is None):
        return ANYTHING
    modulus, residue = a.low()
    if modulus == 0:
        return number(residue & b.residue)
    zeros = b.residue & -b.residue  # the bits below the mask's lowest are zero
    return known(None, max(modulus, zeros), residue & b.residue) if b.residue else number(0)


def disjunction(a: Known, b: Known) -> Known:
    """a | b; used as a sum where the bits of one are known to be zero in the other."""
    if a.exact and a.base is None:
        a, b = b, a
    (ma, ra), (mb, rb) = a.low(), b.low()
    if b.exact and b.base is None and b.residue >= 0 and ma and b.residue < ma and ra & b.residue == 0:
        return add(a, b)
    if ma == mb == 0:
        return number(ra | rb)
    modulus = math.gcd(ma, mb)
    return known(None, modulus, (ra | rb) % modulus)


class Values:
    """The analysis of one function. `of(operand, node)` is what is known of an operand; `address(operand, node)` of an address."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.registers: dict[int, Known] = {}
        self._bases: dict[int, Base] = {}
        readers: dict[int, list[Node]] = {}
        for node in graph.nodes:
            for register, _ in node.reads:
                readers.setdefault(register, []).append(node)
        waiting = [node for node in reversed(graph.nodes) if node.writes]
        rounds: dict[int, int] = {}
        while waiting:
            node = waiting.pop()
            for register, value in self._results(node):
                before = self.registers.get(register)
                after = join(before, value)
                if rounds.get(register, 0) > 80:  # a residue can only lose its 64 bits one by one; be sure of an end all the same
                    after = ANYTHING
                if after != before:
                    rounds[register] = rounds.get(register, 0) + 1
                    self.registers[register] = after
                    waiting += readers.get(register, ())

    def of(self, operand: object, node: Node) -> Known | None:
        """None: nothing has come here yet."""
        match operand:
            case tree.Integer(value=value):
                return number(value)
            case tree.Symbol(name=name, offset=offset):
                base = self.base(name, node.scope)
                return Known(base, 0, offset) if base else ANYTHING
            case tree.Register(name=name):
                register = self.graph.number(name, node.scope)
                return ANYTHING if register is None else self.registers.get(register)
        return ANYTHING

    def address(self, operand: tree.Address, node: Node) -> Known:
        if operand.base is None:
            return number(operand.offset)
        value = self.of(operand.base, node) or ANYTHING
        return add(value, number(operand.offset))

    def base(self, name: str, scope: Scope) -> Base | None:
        variable = scope.find(name)
        if not isinstance(variable, tree.Variable) or variable.space in ("reg", "tex") or variable.type not in TYPE_BITS:
            return None
        if id(variable) not in self._bases:
            size = None if variable.linkage in ("extern", "common", "weak") else layout_size(variable)
            self._bases[id(variable)] = Base(id(variable), name, variable.space, layout_align(variable), size)
        return self._bases[id(variable)]

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _results(self, node: Node) -> list[tuple[int, Known]]:
        value = self._value(node)
        if value is None:
            return []
        if value.exact and value.base is None:
            type_ = self.graph.types[node.writes[0][0]]
            bits = TYPE_BITS.get(type_, 64)
            value = number((value.residue + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))
        return [(register, value if len(node.writes) == 1 else ANYTHING) for register, _ in node.writes]

    def _value(self, node: Node) -> Known | None:
        """What a node's result is; None where its operands are not known yet."""
        found, opcode = node.match, node.opcode
        arguments = [self.of(value.operand, node) for value in found.values if not value.written]
        if opcode == "ld":
            return self._loaded(node)
        if opcode not in _RULES:
            return ANYTHING
        if any(argument is None for argument in arguments):
            return None
        type_ = found.get("T") or found.get("D") or "b64"
        if type_[0] == "f" or type_ in ("bf16", "bf16x2", "pred"):
            return ANYTHING
        return _RULES[opcode](found, *arguments)

    def _loaded(self, node: Node) -> Known:
        """A kernel's pointer parameter is a base of its own, as far aligned as `.ptr .align` says."""
        value = node.match.value("a")
        address = value.operand if value else None
        if not isinstance(address, tree.Address) or not isinstance(address.base, tree.Symbol) or not self.graph.function.kernel:
            return ANYTHING
        variable = node.scope.find(address.base.name)
        if not isinstance(variable, tree.Variable) or variable.space != "param" or variable.pointer is None or not variable.pointer.align:
            return ANYTHING
        return Known(Base(("pointer", variable.name), variable.name, "", variable.pointer.align, None), 0, 0)


def _shift(found, a: Known, b: Known) -> Known:
    if not (b.exact and b.base is None and 0 <= b.residue < 64):
        return ANYTHING
    return multiply(a, number(1 << b.residue))


def _convert(found, a: Known, *_) -> Known:
    target, source = found.get("D") or "", found.get("S") or ""
    if target[:1] not in ("u", "s") or source[:1] not in ("u", "s") or found.get("sat"):
        return ANYTHING
    return _extended(a, source)


def _extended(a: Known, source: str) -> Known:
    """A number as a wider register takes it from an operand of type `source`."""
    if a.exact and a.base is None and source[0] == "u":
        return number(a.residue % (1 << TYPE_BITS[source]))
    return a


def _product(found, a: Known, b: Known) -> Known:
    mode, type_ = found.get("mode"), found.get("T")
    if mode == "hi":
        return ANYTHING
    return multiply(_extended(a, type_), _extended(b, type_)) if mode == "wide" else multiply(a, b)


_RULES = {
    "mov": lambda found, a, *_: a,
    "cvta": lambda found, a, *_: a,
    "cvt": _convert,
    "add": lambda found, a, b, *_: add(a, b),
    "sub": lambda found, a, b, *_: add(a, b, -1),
    "mul": lambda found, a, b, *_: _product(found, a, b),
    "mad": lambda found, a, b, c, *_: add(_product(found, a, b), c),
    "shl": _shift,
    "and": lambda found, a, b, *_: conjunction(a, b),
    "or": lambda found, a, b, *_: disjunction(a, b),
    "selp": lambda found, a, b, *_: join(a, b),
}
