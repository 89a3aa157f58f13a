"""Tokens to tree: a recursive descent over the whole of PTX's syntax. What an instruction means is `ptx.isa`'s business.

A name is a Register if a `.reg` in scope declares it or if it starts with `%` and nothing else declares it; any other name is a Symbol.
Constant expressions are folded as ptxas folds them: 64-bit integers (unsigned once a `U` operand is in it), or doubles.
"""

from __future__ import annotations

import math
import re
import struct
from typing import NoReturn

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.lexer import tokenize

LINKAGES = ("visible", "extern", "weak", "common")
SPACES = ("global", "shared", "const", "local", "param", "tex", "reg")
# Directives between a function's parameters and its body.
FUNCTION_DIRECTIVES = {
    "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "noreturn", "pragma", "reqnctapercluster", "explicitcluster",
    "maxclusterrank", "blocksareclusters", "abi_preserve", "abi_preserve_control", "callprototype",
}
# Special registers with components: `%tid.x` is one register's name, not a part of `%tid`.
_DOTTED = {"%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"}
_MASK64 = (1 << 64) - 1

# Binary operators of constant expressions, by how tightly they bind.
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}


def parse(text: str, file: str | None = None) -> tree.Module:
    """Parse a PTX module. Raises PtxError, with line and column, where the text is not PTX. `ptx.verify` judges what it says."""
    return _Parser(text, file).module()


class _Scope:
    """The names that one pair of braces declares. `ranges` holds `%r<10>` as prefix → count."""

    __slots__ = ("ranges", "registers", "symbols")

    def __init__(self) -> None:
        self.registers: set[str] = set()
        self.ranges: dict[str, int] = {}
        self.symbols: set[str] = set()


class _Parser:
    def __init__(self, text: str, file: str | None):
        self.tokens = tokenize(text, file)
        self.kinds, self.texts = self.tokens.kinds, self.tokens.texts
        self.at = 0
        self.scopes = [_Scope()]
        self.mnemonics: dict[str, tuple[str, tuple[str, ...]]] = {}

    # ── small steps ──────────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, message: str, index: int | None = None) -> NoReturn:
        raise self.tokens.error(message, self.at if index is None else index)

    def shown(self) -> str:
        """The current token, for a message."""
        return "the end of the file" if self.kinds[self.at] == "end" else f"'{self.texts[self.at]}'"

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

    # ── module ───────────────────────────────────────────────────────────────────────────────────────────────────

    def module(self) -> tree.Module:
        file = self.tokens.file
        if not self.accept_dot("version"):
            self.fail(f"a module starts with '.version', not with {self.shown()}")
        version = re.fullmatch(r"(\d+)\.(\d+)", self.texts[self.at])
        if not version:
            self.fail(f"'.version' takes a number such as 8.7, not {self.shown()}")
        self.at += 1
        if not self.accept_dot("target"):
            self.fail(f"'.target' follows '.version', not {self.shown()}")
        target = [self.name("a target such as sm_90a")]
        while self.accept(","):
            target.append(self.name("a target option"))
        address_size = 32
        if self.accept_dot("address_size"):
            address_size = self.integer("the address size")
            if address_size not in (32, 64):
                self.fail(f"'.address_size' is 32 or 64, not {address_size}", self.at - 1)
        items: list = []
        while self.kinds[self.at] != "end":
            self.item(items)
        return tree.Module((int(version[1]), int(version[2])), tuple(target), address_size, tuple(items), file)

    def item(self, items: list) -> None:
        start = self.at
        kind = self.kinds[start]
        if kind.startswith("@@DWARF"):
            self.at += 1
            items.append(tree.Directive("@@DWARF", (self.texts[start][7:].strip(),), position=self.position(start)))
            return
        if kind == ";":
            self.at += 1
            return
        directive = self.dot()
        if directive is None:
            self.fail(f"expected a directive such as '.global', '.func' or '.entry', found {self.shown()}")
        linkage = ""
        while (word := self.dot()) in LINKAGES:
            if linkage:
                self.fail(f"'.{linkage}' and '.{word}' do not go together")
            linkage = word or ""
            self.at += 1
        directive = self.dot()
        if directive in ("entry", "func"):
            items.append(self.function(linkage, start))
        elif directive in SPACES:
            items.extend(self.variables(linkage, start))
        elif linkage:
            self.fail(f"expected '.entry', '.func' or a variable after '.{linkage}', found {self.shown()}")
        else:
            items.append(self.directive())

    # ── functions ────────────────────────────────────────────────────────────────────────────────────────────────

    def function(self, linkage: str, start: int) -> tree.Function:
        kernel = self.dot() == "entry"
        self.at += 1
        directives = []
        if self.dot() == "attribute":
            here = self.at
            directives.append(tree.Directive("attribute", self.attribute(), position=self.position(here)))
        self.scopes.append(_Scope())
        results: tuple[tree.Variable, ...] = ()
        if self.kinds[self.at] == "(":
            if kernel:
                self.fail("a kernel (.entry) returns nothing")
            results = self.parameters()
        here = self.at
        name = self.name("the function's name")
        self.scopes[0].symbols.add(name)
        parameters = self.parameters() if self.kinds[self.at] == "(" else ()
        while (directive := self.dot()) is not None:
            if directive not in FUNCTION_DIRECTIVES:
                self.fail(f"'.{directive}' cannot stand between a function's parameters and its body")
            directives.append(self.directive())
        body = None
        if self.kinds[self.at] == "{":
            body = self.block()
        elif not self.accept(";"):
            self.fail(f"expected the body of '{name}' in braces, or ';' after a declaration, found {self.shown()}")
        self.scopes.pop()
        return tree.Function(name, kernel, parameters, results, body, tuple(directives), linkage, self.position(here))

    def parameters(self) -> tuple[tree.Variable, ...]:
        """`( .param … , … )`."""
        self.expect("(", "before parameters")
        found: list[tree.Variable] = []
        while self.kinds[self.at] != ")":
            if found:
                self.expect(",", "between parameters")
            if self.dot() not in ("param", "reg"):
                self.fail(f"expected '.param' or '.reg', found {self.shown()}")
            found.append(self.variable("", self.at, parameter=True))
        self.at += 1
        return tuple(found)

    def block(self) -> tuple[tree.Statement, ...]:
        """Statements up to the closing brace. The scope for names is the caller's for a function's body, else an own one."""
        opening = self.at
        self.at += 1
        statements: list[tree.Statement] = []
        kinds = self.kinds
        while True:
            kind = kinds[self.at]
            if kind == "word":
                self.word_statement(statements)
            elif kind == "}":
                self.at += 1
                return tuple(statements)
            elif kind == "dot":
                self.dot_statement(statements)
            elif kind == "@":
                statements.append(self.guarded())
            elif kind == "{":
                position = self.position()
                self.scopes.append(_Scope())
                inner = self.block()
                self.scopes.pop()
                statements.append(tree.Block(inner, position))
            elif kind == ";":
                self.at += 1
            elif kind == "end":
                self.fail("this '{' is never closed", opening)
            else:
                self.fail(f"expected an instruction, a label or a directive, found {self.shown()}")

    def word_statement(self, statements: list[tree.Statement]) -> None:
        if self.kinds[self.at + 1] != ":" or "." in self.texts[self.at]:
            statements.append(self.instruction(None, self.at))
            return
        label, position = self.texts[self.at], self.position()
        self.at += 2
        if self.dot() in ("branchtargets", "calltargets", "callprototype"):
            statements.append(self.directive(label))
        else:
            statements.append(tree.Label(label, position))

    def dot_statement(self, statements: list[tree.Statement]) -> None:
        start = self.at
        linkage = ""
        if (word := self.dot()) in LINKAGES:
            linkage = word or ""
            self.at += 1
        directive = self.dot()
        if directive == "reg":
            self.register_declarations(statements)
        elif directive in SPACES:
            statements.extend(self.variables(linkage, start))
        elif linkage:
            self.fail(f"expected a variable after '.{linkage}', found {self.shown()}")
        elif directive in ("func", "entry"):
            self.fail(f"'.{directive}' cannot stand inside a function: is a '}}' missing above?")
        else:
            statements.append(self.directive())

    def register_declarations(self, statements: list[tree.Statement]) -> None:
        self.at += 1
        vector = self.vector_prefix()
        type_ = self.dot()
        if type_ is None:
            self.fail(f"expected a type such as '.b32' after '.reg', found {self.shown()}")
        self.at += 1
        vector = vector or self.vector_prefix()
        scope = self.scopes[-1]
        while True:
            position = self.position()
            name = self.name("a register's name")
            count = self.range()
            if count is None:
                scope.registers.add(name)
            else:
                scope.ranges[name] = count
            statements.append(tree.RegisterDeclaration(type_, name, count, vector, position))
            if not self.accept(","):
                break
        self.expect(";", "after the registers' names")

    def vector_prefix(self) -> int | None:
        if self.dot() in ("v2", "v4", "v8"):
            self.at += 1
            return int(self.texts[self.at - 1][2:])
        return None

    def range(self) -> int | None:
        """`<count>` after a name."""
        if not self.accept("<"):
            return None
        count = self.primary()
        if not isinstance(count, tree.Integer) or count.value < 1:
            self.fail("the count in '<…>' is a positive integer", self.at - 1)
        self.expect(">", "after the count")
        return count.value

    # ── variables ────────────────────────────────────────────────────────────────────────────────────────────────

    def variables(self, linkage: str, start: int) -> list[tree.Variable]:
        """One declaration statement: `.global .f32 a, b[4] = {…};`."""
        first = self.variable(linkage, start)
        found = [first]
        while self.accept(","):
            found.append(self.declarator(first.space, first.type, linkage, first.align, first.vector, first.attributes, None, start))
        self.expect(";", f"after the declaration of '{found[-1].name}'")
        return found

    def variable(self, linkage: str, start: int, parameter: bool = False) -> tree.Variable:
        space = self.dot() or ""
        self.at += 1
        if self.kinds[self.at] == "[":  # the old banked `.const[2]`
            self.fail(f"'.{space}[bank]' went out with PTX 2.2: declare the variable in '.{space}' alone")
        align = vector = None
        type_ = pointer = None
        attributes: tuple[str, ...] = ()
        while (word := self.dot()) is not None:
            if word == "align":
                self.at += 1
                align = self.integer("the alignment")
            elif word in ("v2", "v4", "v8"):
                vector = self.vector_prefix()
            elif word == "attribute":
                attributes = self.attribute()
            elif word == "ptr" and parameter:
                self.at += 1
                pointed = None
                if self.dot() in ("global", "shared", "const", "local", "param"):
                    pointed = self.dot()
                    self.at += 1
                pointer = tree.PointerHint(pointed, self.integer("the alignment") if self.accept_dot("align") else None)
            elif type_ is None:
                type_ = word
                self.at += 1
            else:
                self.fail(f"unexpected '.{word}' in a declaration of type '.{type_}'")
        if type_ is None:
            self.fail(f"expected a type such as '.b32' after '.{space}', found {self.shown()}")
        return self.declarator(space, type_, linkage, align, vector, attributes, pointer, start)

    def declarator(self, space: str, type_: str, linkage: str, align: int | None, vector: int | None, attributes: tuple[str, ...],
                   pointer: tree.PointerHint | None, start: int) -> tree.Variable:
        position = self.position()
        name = self.name("a variable's name")
        scope = self.scopes[-1]
        count = self.range()
        if space == "reg":
            scope.registers.add(name)
        elif count is None:
            scope.symbols.add(name)
        else:
            scope.symbols.update(f"{name}{i}" for i in range(count))
        dimensions: list[int | None] = []
        while self.accept("["):
            dimensions.append(None if self.kinds[self.at] == "]" else self.integer("the array's length"))
            self.expect("]", "after the array's length")
        initializer = self.initializer() if self.accept("=") else None
        return tree.Variable(space, type_, name, tuple(dimensions), align, vector, initializer, linkage, attributes, pointer, count, position)

    def initializer(self) -> tree.Initializer:
        if not self.accept("{"):
            return self.initial_value()
        values: list[tree.Initializer] = []
        while self.kinds[self.at] != "}":
            if values:
                self.expect(",", "between initial values")
                if self.kinds[self.at] == "}":
                    break
            if self.kinds[self.at] == "word" and self.kinds[self.at + 1] == "=":  # a sampler's `addr_mode_0 = wrap`
                field, position = self.name("a field"), self.position()
                self.at += 1
                value = self.name("the field's value") if self.kinds[self.at] == "word" else str(self.integer("the field's value"))
                values.append(tree.Symbol(f"{field} = {value}", position=position))
                continue
            values.append(self.initializer())
        self.at += 1
        return tuple(values)

    def initial_value(self) -> tree.Initializer:
        """A constant, an address (`table+4`), `generic(table)+4`, or one byte of an address: `0xFF00(table)`."""
        if self.kinds[self.at] == "word":
            return self.address_value()
        value = self.expression()
        if isinstance(value, tree.Integer) and self.accept("("):
            inner = self.address_value()
            self.expect(")", "after the masked address")
            if isinstance(inner, tree.Generic):
                return tree.Generic(inner.symbol, value.value)
            return tree.Generic(inner, value.value, generic=False)
        return value

    def address_value(self) -> tree.Symbol | tree.Generic:
        position = self.position()
        name = self.name("a variable's or function's name")
        if name == "generic" and self.accept("("):
            inner = self.position()
            symbol = self.name("a variable's name")
            offset = self.offset()
            self.expect(")", "after 'generic('")
            return tree.Generic(tree.Symbol(symbol, offset + self.offset(), inner))
        return tree.Symbol(name, self.offset(), position)

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

    def attribute(self) -> tuple[str, ...]:
        """The words inside `.attribute( … )`: `managed`, or `unified(a, b)` as one word."""
        self.at += 1
        self.expect("(", "after '.attribute'")
        found = []
        while True:
            word = self.dot()
            if word is None:
                self.fail(f"expected an attribute such as '.managed', found {self.shown()}")
            self.at += 1
            if self.accept("("):
                values = [str(self.integer("an attribute's value"))]
                while self.accept(","):
                    values.append(str(self.integer("an attribute's value")))
                self.expect(")", "after the attribute's values")
                word += "(" + ", ".join(values) + ")"
            found.append(word)
            if not self.accept(","):
                break
        self.expect(")", "after the attributes")
        return tuple(found)

    # ── directives of words ──────────────────────────────────────────────────────────────────────────────────────

    def directive(self, label: str | None = None) -> tree.Directive:
        """Any directive that is words only. Commas are not kept: the printer knows where they stand (`.section` keeps all its tokens)."""
        start = self.at
        name = self.texts[start][1:]
        position = self.position()
        self.at += 1
        read = getattr(self, f"directive_{name}", None)
        if read is not None:
            words = read()
        elif name in FUNCTION_DIRECTIVES:
            words = self.numbers()
        elif name in ("branchtargets", "calltargets", "alias"):
            words = self.words_until_semicolon()
        else:
            self.fail(f"unknown directive '.{name}'", start)
        return tree.Directive(name, tuple(words), label, position)

    def numbers(self) -> list[str]:
        found: list[str] = []
        if self.kinds[self.at] == "number":
            found.append(str(self.integer("a number")))
            while self.accept(","):
                found.append(str(self.integer("a number")))
        return found

    def words_until_semicolon(self) -> list[str]:
        found = []
        while not self.accept(";"):
            if self.kinds[self.at] in ("end", "}", "{"):
                self.fail(f"expected ';', found {self.shown()}")
            if self.kinds[self.at] != ",":
                found.append(self.texts[self.at])
            self.at += 1
        return found

    directive_callprototype = words_until_semicolon

    def directive_pragma(self) -> list[str]:
        for i in range(self.at, len(self.kinds)):
            if self.kinds[i] == ";":
                break
            if self.kinds[i] not in ("string", ","):
                self.fail(f"'.pragma' takes strings, not '{self.texts[i]}'", i)
        return self.words_until_semicolon()

    def directive_file(self) -> list[str]:
        words = [str(self.integer("the file's index"))]
        if self.kinds[self.at] != "string":
            self.fail(f"expected the file's name in quotes, found {self.shown()}")
        words.append(self.texts[self.at])
        self.at += 1
        while self.accept(","):
            words.append(str(self.integer("the file's time or size")))
        return words

    def directive_loc(self) -> list[str]:
        words = [str(self.integer(what)) for what in ("the file's index", "the line", "the column")]
        while self.accept(","):
            word = self.name("'function_name' or 'inlined_at'")
            words.append(word)
            if word == "function_name":
                words.append(self.name("a label"))
                if offset := self.offset():
                    words.append(f"+{offset}")
            else:
                words += [str(self.integer(what)) for what in ("the file's index", "the line", "the column")]
        return words

    def directive_section(self) -> list[str]:
        words = [self.texts[self.at]]
        opening = self.at + 1
        self.at += 1
        if self.kinds[opening] != "{":
            self.fail(f"expected '{{' after the section's name, found {self.shown()}")
        while not self.accept("}"):
            if self.kinds[self.at] == "end":
                self.fail("this '{' is never closed", opening)
            words.append(self.texts[self.at])
            self.at += 1
        return [*words, "}"]

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def guarded(self) -> tree.Instruction:
        start = self.at
        self.at += 1
        negated = self.accept("!")
        if self.kinds[self.at] != "word":
            self.fail(f"expected a predicate register after '@', found {self.shown()}")
        register = tree.Register(self.texts[self.at], self.position())
        self.at += 1
        if self.kinds[self.at] != "word":
            self.fail(f"expected an instruction after the guard, found {self.shown()}")
        return self.instruction(tree.Guard(register, negated), start)

    def instruction(self, guard: tree.Guard | None, start: int) -> tree.Instruction:
        text = self.texts[self.at]
        self.at += 1
        split = self.mnemonics.get(text)
        if split is None:
            opcode, *modifiers = text.split(".")
            split = self.mnemonics[text] = (opcode, tuple(modifiers))
        opcode, parts = split
        kinds = self.kinds
        while kinds[self.at] == "dot":
            parts = (*parts, self.texts[self.at][1:])
            self.at += 1
        if kinds[self.at] == ";":
            self.at += 1
            return tree.Instruction(opcode, parts, (), guard, self.position(start))
        operand = self.call_operand if opcode == "call" else self.operand
        operands = [operand()]
        while kinds[self.at] == ",":
            self.at += 1
            operands.append(operand())
        if kinds[self.at] != ";":
            self.fail(f"expected ',' or ';' after an operand of '{text}', found {self.shown()}")
        self.at += 1
        return tree.Instruction(opcode, parts, tuple(operands), guard, self.position(start))

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
            return self.vector()
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
                prefix = name.rstrip("0123456789")
                while len(prefix) < len(name):  # `%r1<4>` makes %r10 … %r13: the prefix may end in digits
                    if prefix in scope.ranges:
                        return True
                    prefix = name[: len(prefix) + 1]
        return name[0] == "%"

    def vector(self) -> tree.Vector:
        position = self.position()
        self.at += 1
        elements: list[tree.Operand] = []
        while self.kinds[self.at] != "}":
            if elements:
                self.expect(",", "between a vector's elements")
            elements.append(self.operand())
        self.at += 1
        return tree.Vector(tuple(elements), position)

    def address(self) -> tree.Address:
        position = self.position()
        self.at += 1
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
        coordinates = more.pop() if more else None
        return tree.Address(base, offset, coordinates, tuple(more), position)

    # ── constant expressions ─────────────────────────────────────────────────────────────────────────────────────

    def expression(self) -> tree.Integer | tree.Float:
        """A constant, folded."""
        start = self.at
        value = self.binary(1)
        if self.kinds[self.at] == "?":
            self.at += 1
            yes = self.expression()
            self.expect(":", "in a conditional constant")
            no = self.expression()
            chosen = yes if _truth(value) else no
            return _at(chosen, self.position(start))
        return value

    def binary(self, least: int) -> tree.Integer | tree.Float:
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

    def unary(self) -> tree.Integer | tree.Float:
        operator = self.kinds[self.at]
        if operator not in ("-", "+", "!", "~"):
            return self.primary()
        start = self.at
        position = self.position()
        self.at += 1
        value = self.unary()
        if operator == "+":
            return _at(value, position)
        if operator == "!":
            return tree.Integer(int(not _truth(value)), False, position)
        if isinstance(value, tree.Float):
            if operator == "~":
                self.fail("'~' takes an integer", start)
            return tree.Float(value.bits ^ (1 << value.width - 1), value.width, position)
        return _integer(-value.value if operator == "-" else ~value.value, value.unsigned, position)

    def primary(self) -> tree.Integer | tree.Float:
        start = self.at
        kind, text = self.kinds[start], self.texts[start]
        if kind == "number":
            self.at += 1
            return self.number(text, start)
        if kind == "(":
            self.at += 1
            cast = self.dot()
            if cast is not None:
                if cast not in ("s64", "u64"):
                    self.fail(f"a constant is cast to '.s64' or '.u64', not '.{cast}'")
                self.at += 1
                self.expect(")", "after the cast")
                value = self.unary()
                number = value.value if isinstance(value, tree.Integer) else int(_double(value))
                if cast == "u64":
                    return tree.Integer(number & _MASK64, True, self.position(start))
                return _integer(number, False, self.position(start))
            value = self.expression()
            self.expect(")", "in a constant")
            return _at(value, self.position(start))
        if kind == "word" and text == "WARP_SZ":
            self.at += 1
            return tree.Integer(32, False, self.position(start))
        self.fail(f"expected an operand, found {self.shown()}")

    def number(self, text: str, index: int) -> tree.Integer | tree.Float:
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
            self.fail(f"'{text}' is not a number", index)
        if value > _MASK64:
            self.fail(f"'{text}' does not fit in 64 bits", index)
        return tree.Integer(value, unsigned, position)


# ── folding ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _at(value: tree.Integer | tree.Float, position: tree.Position) -> tree.Integer | tree.Float:
    if isinstance(value, tree.Integer):
        return tree.Integer(value.value, value.unsigned, position)
    return tree.Float(value.bits, value.width, position)


def _float(value: float, position: tree.Position | None = None) -> tree.Float:
    return tree.Float(struct.unpack("<Q", struct.pack("<d", value))[0], 64, position)


def _double(value: tree.Integer | tree.Float) -> float:
    if isinstance(value, tree.Integer):
        return float(value.value)
    if value.width == 32:
        return struct.unpack("<f", struct.pack("<I", value.bits))[0]
    return struct.unpack("<d", struct.pack("<Q", value.bits))[0]


def _truth(value: tree.Integer | tree.Float) -> bool:
    return value.value != 0 if isinstance(value, tree.Integer) else _double(value) != 0.0


def _integer(value: int, unsigned: bool, position: tree.Position | None = None) -> tree.Integer:
    """A folded integer wrapped to 64 bits."""
    value &= _MASK64
    if not unsigned and value >> 63:
        value -= 1 << 64
    return tree.Integer(value, unsigned, position)


def _fold(operator: str, left: tree.Integer | tree.Float, right: tree.Integer | tree.Float) -> tree.Integer | tree.Float:
    position = left.position
    if operator in ("&&", "||"):
        a, b = _truth(left), _truth(right)
        return tree.Integer(int(a and b if operator == "&&" else a or b), False, position)
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


def _fold_floats(operator: str, a: float, b: float, position: tree.Position | None) -> tree.Integer | tree.Float:
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


__all__ = ["PtxError", "parse"]
