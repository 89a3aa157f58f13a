"""Tokens to tree: a recursive descent over the whole of PTX's syntax. What an instruction means is `ptx.isa`'s business."""

from __future__ import annotations

import re
from typing import NoReturn

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.constants import DEEPEST
from warpwright.ptx.operands import OperandReader, Scope

LINKAGES = ("visible", "extern", "weak", "common")
SPACES = ("global", "shared", "const", "local", "param", "tex", "reg")
# Directives between a function's parameters and its body.
FUNCTION_DIRECTIVES = {
    "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "noreturn", "pragma", "reqnctapercluster", "explicitcluster",
    "maxclusterrank", "blocksareclusters", "abi_preserve", "abi_preserve_control", "minperctamemory",
}


def parse(text: str, file: str | None = None) -> tree.Module:
    """Parse a PTX module. Raises PtxError, with line and column, where the text is not PTX. `ptx.verify` judges what it says."""
    return _Parser(text, file).module()


def parse_all(text: str, file: str | None = None) -> tuple[tree.Module | None, list[PtxError], frozenset[str]]:
    """What can be read of a PTX module, every error of syntax, and the words of the statements that could not be read.

    After an error, reading goes on at the next statement. The module is None where its first lines (`.version`, `.target`) are wrong.
    """
    parser = _Parser(text, file, recover=True)
    last: list[PtxError] = []
    module = None
    try:
        module = parser.module()
    except PtxError as problem:
        last.append(problem)
    bad_lines = {problem.line for problem in parser.tokens.problems}
    problems = [*parser.tokens.problems, *(problem for problem in parser.problems if problem.line not in bad_lines)]
    return module, sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)) + last, frozenset(parser.lost)


class _Fatal(PtxError):
    """An error after which there is no next statement to go on with."""


class _Parser(OperandReader):
    def __init__(self, text: str, file: str | None, recover: bool = False):
        super().__init__(text, file, recover)
        self.mnemonics: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.recovers = recover
        self.problems: list[PtxError] = []
        self.lost: set[str] = set()

    def recover(self, problem: PtxError, start: int, inside: bool) -> None:
        """Note an error in the statement that starts at token `start`, and step to the next one: past a ';', or to the start of a line.

        inside: a closing brace ends the search (it is the function's); else the next statement starts with a directive, at a line's start.
        """
        if not self.recovers or isinstance(problem, _Fatal):
            raise problem
        self.problems.append(problem)
        self.depth = 0
        kinds, at = self.kinds, max(self.at, start + (not inside))
        braces = kinds[start:at].count("{") - kinds[start:at].count("}") if inside else 0
        while kinds[at] != "end":
            kind = kinds[at]
            if inside and kind == "}" and braces <= 0:
                break
            if at > start and (kind in ("word", "@", "dot") if inside else kind == "dot") and self.tokens.first_on_line(at):
                break
            braces += (kind == "{") - (kind == "}")
            at += 1
            if kind == ";" and braces <= 0 and inside:
                break
        self.lost.update(text.partition(".")[0] for text, kind in zip(self.texts[start:at], kinds[start:at], strict=True) if kind == "word")
        self.at = at

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
            start = self.at
            try:
                self.item(items)
            except PtxError as problem:
                del self.scopes[1:]
                self.recover(problem, start, inside=False)
        return tree.Module((int(version[1]), int(version[2])), tuple(target), address_size, tuple(items), file)

    def item(self, items: list) -> None:
        start = self.at
        kind = self.kinds[start]
        if kind.startswith("@@DWARF"):
            self.at += 1
            items.append(tree.Directive("@@DWARF", (self.texts[start][7:].strip(),), position=self.position(start)))
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
            if linkage == "common":
                self.fail("'.common' is for variables in .global")
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
        self.scopes.append(Scope())
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
        while True:
            start = self.at
            try:
                while self.statement(statements, opening):
                    start = self.at
                return tuple(statements)
            except PtxError as problem:
                self.recover(problem, start, inside=True)

    def statement(self, statements: list[tree.Statement], opening: int) -> bool:
        """Read one statement; False at the closing brace."""
        kind = self.kinds[self.at]
        if kind == "word":
            self.word_statement(statements)
        elif kind == "}":
            self.at += 1
            return False
        elif kind == "dot":
            self.dot_statement(statements)
        elif kind == "@":
            statements.append(self.guarded())
        elif kind == "{":
            position = self.position()
            if len(self.scopes) > DEEPEST:
                self.stop(f"blocks are nested more than {DEEPEST} deep", self.at)
            self.scopes.append(Scope())
            inner = self.block()
            self.scopes.pop()
            statements.append(tree.Block(inner, position))
        elif kind == "end":
            self.stop("this '{' is never closed", opening)
        else:
            self.fail(f"expected an instruction, a label or a directive, found {self.shown()}")
        return True

    def stop(self, message: str, index: int) -> NoReturn:
        """An error that nothing after it can be read past."""
        place = self.position(index)
        raise _Fatal(message, place.line, place.column, self.tokens.file)

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
        directive = self.dot()
        linkage = ""
        if directive in LINKAGES:
            if directive != "extern":
                self.fail(f"'.{directive}' cannot stand inside a function")
            linkage = directive
            self.at += 1
            directive = self.dot()
        if directive == "reg":
            self.register_declarations(statements)
        elif directive in SPACES:
            statements.extend(self.variables(linkage, start))
        elif directive in ("func", "entry"):
            self.fail(f"'.{directive}' cannot stand inside a function: is a '}}' missing above?")
        else:
            statements.append(self.directive())

    def register_declarations(self, statements: list[tree.Statement]) -> None:
        self.at += 1
        if self.dot() == "v8":
            self.fail("registers are vectors of two or four")
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
        if not isinstance(count, tree.Integer):
            self.fail("the count in '<…>' is an integer", self.at - 1)
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
                if self.dot() in ("global", "shared", "const", "local"):
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
            if self.kinds[self.at] not in ("number", "]"):
                self.fail(f"an array's length is a number, not {self.shown()}")
            length = None if self.kinds[self.at] == "]" else self.primary()
            if isinstance(length, tree.Float):
                self.fail("an array's length is an integer", self.at - 1)
            dimensions.append(None if length is None else length.value)
            self.expect("]", "after the array's length")
        initializer = self.initializer() if self.accept("=") else None
        return tree.Variable(space, type_, name, tuple(dimensions), align, vector, initializer, linkage, attributes, pointer, count,
                             position)

    def initializer(self) -> tree.Initializer:
        if not self.accept("{"):
            return self.initial_value()
        self.enter()
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
        self.depth -= 1
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
