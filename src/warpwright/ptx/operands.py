"""Operands: registers, constants, symbols, vectors, addresses.

A name is a Register if a `.reg` in scope declares it, or if it starts with `%` and nothing else declares it; any other name is a Symbol.
"""

from __future__ import annotations

from warpwright.ptx import tree
from warpwright.ptx.constants import ConstantReader

# Special registers with components: `%tid.x` is one register's name, not a part of `%tid`.
_DOTTED = {"%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"}


class Scope:
    """The names that one pair of braces declares. `ranges` holds `%r<10>` as prefix → count."""

    __slots__ = ("ranges", "registers", "symbols")

    def __init__(self) -> None:
        self.registers: set[str] = set()
        self.ranges: dict[str, int] = {}
        self.symbols: set[str] = set()


class OperandReader(ConstantReader):
    """Reads operands. `scopes` are the open braces' names, the innermost last."""

    def __init__(self, text: str, file: str | None, recover: bool = False):
        super().__init__(text, file, recover)
        self.scopes = [Scope()]

    def call_operand(self) -> tree.Operand:
        if self.kinds[self.at] != "(":
            return self.operand()
        position = self.position()
        self.at += 1
        elements: list[tree.Operand] = []
        while self.kinds[self.at] != ")":
            if elements:
                self.expect(",", "between arguments")
            elements.append(self.operand())
        self.at += 1
        return tree.Arguments(tuple(elements), position)

    def operand(self) -> tree.Operand:
        kind = self.kinds[self.at]
        if kind == "word":
            first: tree.Operand = self.word_operand()
            if self.kinds[self.at] == "|":
                position = self.position(self.at - 1)
                self.at += 1
                return tree.Pair(first, self.word_operand(), position)
            return first
        if kind == "[":
            return self.address()
        if kind == "{":
            vector = self.vector()
            if self.kinds[self.at] != "|":
                return vector
            self.at += 1
            return tree.Pair(vector, self.word_operand(), vector.position)
        if kind in ("!", "-") and self.kinds[self.at + 1] == "word":
            position = self.position()
            self.at += 1
            if self.texts[self.at] != "WARP_SZ":
                inner = self.word_operand()
                if not isinstance(inner, tree.Register | tree.Component):
                    self.fail(f"'{kind}' stands before a register or a number only", self.at - 1)
                return (tree.Negated if kind == "!" else tree.Negative)(inner, position)  # type: ignore[arg-type]
            self.at -= 1
        return self.expression()

    def word_operand(self) -> tree.Operand:
        """A register, a part of one, a symbol with an offset, `_`, or WARP_SZ."""
        if self.kinds[self.at] != "word":
            self.fail(f"expected a name, found {self.shown()}")
        text, position = self.texts[self.at], self.position()
        if text == "WARP_SZ":
            return self.expression()
        self.at += 1
        if text == "_":
            return tree.Sink(position)
        if "." in text:
            base, _, part = text.partition(".")
            if base in _DOTTED:
                return tree.Register(text, position)
            return tree.Component(tree.Register(base, position), part, position)
        if self.is_register(text):
            return tree.Register(text, position)
        if self.kinds[self.at] == "[":  # `table[3]`, an address
            self.fail(f"write the address of an element of '{text}' as '{text}+bytes'")
        return tree.Symbol(text, self.offset(), position)

    def is_register(self, name: str) -> bool:
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return True
            if name in scope.symbols:
                return False
            if scope.ranges:
                end = max(len(name.rstrip("0123456789")), len(name) - 10)  # a count has at most ten digits
                while end < len(name):  # `%r1<4>` makes %r10 … %r13: the prefix may end in digits
                    if int(name[end:]) < scope.ranges.get(name[:end], 0):
                        return True
                    end += 1
        return name[0] == "%"

    def vector(self) -> tree.Vector:
        position = self.position()
        self.at += 1
        self.enter()
        elements: list[tree.Operand] = []
        while self.kinds[self.at] != "}":
            if elements:
                self.expect(",", "between a vector's elements")
            elements.append(self.operand())
        self.at += 1
        self.depth -= 1
        return tree.Vector(tuple(elements), position)

    def address(self) -> tree.Address:
        position = self.position()
        self.at += 1
        self.enter()
        base: tree.Register | tree.Symbol | None = None
        offset = 0
        if self.kinds[self.at] == "word":
            text, place = self.texts[self.at], self.position()
            self.at += 1
            if self.is_register(text):
                base = tree.Register(text, place)
                offset = self.offset()
            else:
                base = tree.Symbol(text, 0, place)
                if self.accept("["):
                    self.fail(f"write the address of an element of '{text}' as '{text}+bytes'")
                offset = self.offset()
        else:
            offset = self.integer("an address")
        more: list[tree.Operand] = []
        while self.accept(","):
            more.append(self.operand())
        self.expect("]", "after an address")
        self.depth -= 1
        coordinates = more.pop() if more else None
        return tree.Address(base, offset, coordinates, tuple(more), position)

    def offset(self) -> int:
        """`+4`, `+-4`, `+4+8`: the sum."""
        total = 0
        while self.accept("+"):
            value = self.unary()
            if not isinstance(value, tree.Integer):
                self.fail("an address offset is an integer", self.at - 1)
            total += value.value
        if self.kinds[self.at] == "-":
            self.fail("PTX has no '-' between an address and its offset: write '+-' and the number")
        return total
