"""Constant expressions: a cursor over tokens that reads them, and the folding.

As ptxas folds them: 64-bit integers, unsigned once an operand is (a `U`, or a literal that needs the 64th bit), or doubles.
"""

from __future__ import annotations

import math
import struct
from typing import NoReturn

from warpwright.ptx import tree
from warpwright.ptx.lexer import shorten, tokenize

_MASK64 = (1 << 64) - 1
DEEPEST = 200  # nested blocks, braces and parentheses: each is a step of recursion, here and wherever a tree is walked
_LONGEST = 70  # characters of the longest integer of 64 bits (binary, with a few zeros in front)

# Binary operators by how tightly they bind.
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

Constant = tree.Integer | tree.Float


class ConstantReader:
    """Steps through the tokens of a text, and reads constants."""

    def __init__(self, text: str, file: str | None, recover: bool = False):
        self.tokens = tokenize(text, file, recover)
        self.kinds, self.texts = self.tokens.kinds, self.tokens.texts
        self.at = 0
        self.depth = 0

    def fail(self, message: str, index: int | None = None) -> NoReturn:
        raise self.tokens.error(message, self.at if index is None else index)

    def shown(self) -> str:
        """The current token, for a message."""
        return "the end of the file" if self.kinds[self.at] == "end" else f"'{shorten(self.texts[self.at])}'"

    def enter(self) -> None:
        """One level deeper into braces, parentheses or signs; the caller steps out with `self.depth -= 1`."""
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"braces, parentheses or signs are nested more than {DEEPEST} deep")

    def accept(self, kind: str) -> bool:
        """Step over a mark if it is the next token."""
        if self.kinds[self.at] == kind:
            self.at += 1
            return True
        return False

    def expect(self, kind: str, where: str) -> None:
        if self.kinds[self.at] != kind:
            self.fail(f"expected '{kind}' {where}, found {self.shown()}")
        self.at += 1

    def dot(self) -> str | None:
        """The next token without its dot if it is a modifier or directive."""
        return self.texts[self.at][1:] if self.kinds[self.at] == "dot" else None

    def accept_dot(self, name: str) -> bool:
        if self.kinds[self.at] == "dot" and self.texts[self.at] == "." + name:
            self.at += 1
            return True
        return False

    def name(self, what: str) -> str:
        if self.kinds[self.at] != "word" or "." in self.texts[self.at]:
            self.fail(f"expected {what}, found {self.shown()}")
        self.at += 1
        return self.texts[self.at - 1]

    def position(self, index: int | None = None) -> tree.Position:
        return self.tokens.position(self.at if index is None else index)

    def integer(self, what: str) -> int:
        start = self.at
        value = self.expression()
        if not isinstance(value, tree.Integer):
            self.fail(f"expected {what}, an integer", start)
        return value.value

    # ── constant expressions ─────────────────────────────────────────────────────────────────────────────────────

    def expression(self) -> Constant:
        """A constant, folded."""
        start = self.at
        value = self.binary(1)
        if self.kinds[self.at] == "?":
            self.at += 1
            self.enter()
            yes = self.expression()
            self.expect(":", "in a conditional constant")
            no = self.expression()
            self.depth -= 1
            chosen = yes if _truth(value) else no
            return _at(chosen, self.position(start))
        return value

    def binary(self, least: int) -> Constant:
        left = self.unary()
        while (level := _PRECEDENCE.get(self.kinds[self.at], 0)) >= least:
            operator, here = self.kinds[self.at], self.at
            self.at += 1
            right = self.binary(level + 1)
            try:
                left = _fold(operator, left, right)
            except ZeroDivisionError:
                self.fail("a constant divided by zero", here)
            except TypeError:
                self.fail(f"'{operator}' takes integers", here)
        return left

    def unary(self) -> Constant:
        operator = self.kinds[self.at]
        if operator not in ("-", "+", "!", "~"):
            return self.primary()
        start = self.at
        position = self.position()
        self.at += 1
        self.enter()
        value = self.unary()
        self.depth -= 1
        if operator == "+":
            return _at(value, position)
        if operator == "!":
            return tree.Integer(int(not _truth(value)), False, position)
        if isinstance(value, tree.Float):
            if operator == "~":
                self.fail("'~' takes an integer", start)
            return tree.Float(value.bits ^ (1 << value.width - 1), value.width, position)
        return _integer(-value.value if operator == "-" else ~value.value, value.unsigned, position)

    def primary(self) -> Constant:
        start = self.at
        kind, text = self.kinds[start], self.texts[start]
        if kind == "number":
            self.at += 1
            return self.number(text, start)
        if kind == "(":
            self.at += 1
            self.enter()
            cast = self.dot()
            if cast is not None:
                if cast not in ("s64", "u64"):
                    self.fail(f"a constant is cast to '.s64' or '.u64', not '.{cast}'")
                self.at += 1
                self.expect(")", "after the cast")
                value = self.unary()
                self.depth -= 1
                number = value.value if isinstance(value, tree.Integer) else self.whole(value, start)
                if cast == "u64":
                    return tree.Integer(number & _MASK64, True, self.position(start))
                return _integer(number, False, self.position(start))
            value = self.expression()
            self.expect(")", "in a constant")
            self.depth -= 1
            return _at(value, self.position(start))
        if kind == "word" and text == "WARP_SZ":
            self.at += 1
            return tree.Integer(32, False, self.position(start))
        self.fail(f"expected an operand, found {self.shown()}")

    def whole(self, value: tree.Float, index: int) -> int:
        number = _double(value)
        if not math.isfinite(number):
            self.fail("a constant that is not finite has no integer value", index)
        return int(number)

    def number(self, text: str, index: int) -> Constant:
        position = self.tokens.position(index)
        prefix = text[:2].lower()
        if prefix in ("0f", "0d"):
            width = 32 if prefix == "0f" else 64
            if len(text) != 2 + width // 4:
                self.fail(f"'{text}': a {width}-bit float has {width // 4} hexadecimal digits after '{text[:2]}'", index)
            return tree.Float(int(text[2:], 16), width, position)
        if "." in text or (prefix != "0x" and ("e" in text or "E" in text)):
            return _float(float(text), position)
        digits = text.removesuffix("U")
        unsigned = digits is not text
        if len(digits) > _LONGEST and len(digits.lower().lstrip("0").lstrip("xb").lstrip("0")) > _LONGEST:
            what = "does not fit in 64 bits" if digits.isalnum() else "is not a number"
            self.fail(f"'{shorten(text)}' {what}", index)
        try:
            if prefix == "0x":
                value = int(digits[2:], 16)
            elif prefix == "0b":
                value = int(digits[2:], 2)
            elif len(digits) > 1 and digits[0] == "0":
                value = int(digits, 8)
            else:
                value = int(digits)
        except ValueError:
            self.fail(f"'{shorten(text)}' is not a number", index)
        if value > _MASK64:
            self.fail(f"'{shorten(text)}' does not fit in 64 bits", index)
        return tree.Integer(value, unsigned, position)


# ── folding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _at(value: Constant, position: tree.Position) -> Constant:
    if isinstance(value, tree.Integer):
        return tree.Integer(value.value, value.unsigned, position)
    return tree.Float(value.bits, value.width, position)


def _float(value: float, position: tree.Position | None = None) -> tree.Float:
    return tree.Float(struct.unpack("<Q", struct.pack("<d", value))[0], 64, position)


def _double(value: Constant) -> float:
    if isinstance(value, tree.Integer):
        return float(value.value)
    if value.width == 32:
        return struct.unpack("<f", struct.pack("<I", value.bits))[0]
    return struct.unpack("<d", struct.pack("<Q", value.bits))[0]


def _truth(value: Constant) -> bool:
    return value.value != 0 if isinstance(value, tree.Integer) else _double(value) != 0.0


def _integer(value: int, unsigned: bool, position: tree.Position | None = None) -> tree.Integer:
    """A folded integer wrapped to 64 bits."""
    value &= _MASK64
    if not unsigned and value >> 63:
        value -= 1 << 64
    return tree.Integer(value, unsigned, position)


def _fold(operator: str, left: Constant, right: Constant) -> Constant:
    position = left.position
    if operator in ("&&", "||"):
        true = (_truth(left) and _truth(right)) if operator == "&&" else (_truth(left) or _truth(right))
        return tree.Integer(int(true), False, position)
    if isinstance(left, tree.Float) or isinstance(right, tree.Float):
        return _fold_floats(operator, _double(left), _double(right), position)
    unsigned = left.unsigned or right.unsigned or max(left.value, right.value) >> 63 > 0
    if operator in ("<<", ">>"):  # a shift has its left operand's type
        unsigned = left.unsigned or left.value >> 63 > 0
        shift = min(right.value & _MASK64, 64)
        return _integer(left.value << shift if operator == "<<" else left.value >> shift, unsigned, position)
    a, b = (left.value & _MASK64, right.value & _MASK64) if unsigned else (left.value, right.value)
    match operator:
        case "+":
            return _integer(a + b, unsigned, position)
        case "-":
            return _integer(a - b, unsigned, position)
        case "*":
            return _integer(a * b, unsigned, position)
        case "/" | "%":
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return _integer(quotient if operator == "/" else a - quotient * b, unsigned, position)
        case "&":
            return _integer(a & b, unsigned, position)
        case "|":
            return _integer(a | b, unsigned, position)
        case "^":
            return _integer(a ^ b, unsigned, position)
    return tree.Integer(int(_compare(operator, a, b)), False, position)


def _fold_floats(operator: str, a: float, b: float, position: tree.Position | None) -> Constant:
    match operator:
        case "+":
            return _float(a + b, position)
        case "-":
            return _float(a - b, position)
        case "*":
            return _float(a * b, position)
        case "/":
            if b == 0:
                return _float(math.copysign(math.inf, a) * math.copysign(1.0, b) if a else math.nan, position)
            return _float(a / b, position)
    if operator in ("==", "!=", "<", "<=", ">", ">="):
        return tree.Integer(int(_compare(operator, a, b)), False, position)
    raise TypeError(operator)


def _compare(operator: str, a: float, b: float) -> bool:
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
