"""Is a module legal? The judge is ptxas: what it accepts passes here, what it refuses is refused here, with a message for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.agreement import BITS, OPAQUE_TYPES, REGISTER_TYPES, VARIABLE_TYPES, class_of
from warpwright.ptx.instructions import InstructionChecker
from warpwright.ptx.names import Declared, Label, Scope, kind_of
from warpwright.ptx.parser import parse_all
from warpwright.ptx.targets import OPTIONS, VERSIONS, Target

# Function directives that came after PTX 1.0: the first version that has them.
_SINCE = {
    "noreturn": (6, 4), "reqnctapercluster": (7, 8), "explicitcluster": (7, 8), "maxclusterrank": (7, 8), "blocksareclusters": (9, 0),
    "abi_preserve": (9, 0), "abi_preserve_control": (9, 0),
}


def verify(module: tree.Module) -> None:
    """Raise PtxError for the first thing in a module that is not legal PTX for its version and target."""
    for problem in _Checker(module).problems():
        raise problem


def check(module: tree.Module) -> list[PtxError]:
    """Everything in a module that is not legal PTX for its version and target, in source order."""
    return sorted(_Checker(module).problems(), key=lambda problem: (problem.line or 0, problem.column or 0))


def diagnose(text: str, file: str | None = None, target: str | None = None) -> tuple[tree.Module | None, list[PtxError]]:
    """Everything that is wrong with a PTX text, of syntax and of meaning, in source order; and what could be read of it.

    `target` is judged for instead of the module's own. The module is None where its first lines cannot be read.
    """
    module, problems, lost = parse_all(text, file)
    if module is None:
        return None, problems
    if target:
        module = replace(module, target=(target, *module.target[1:]))
    lines = {problem.line for problem in problems}
    for problem in check(module):
        missing = _MISSING.search(problem.message)
        unread = missing is not None and bool({missing[1], missing[1].rstrip("0123456789")} & lost)  # its declaration was not understood
        if not unread and (problem.line is None or problem.line not in lines):
            problems.append(problem)
    return module, sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


# What the checker says of a name that it does not know.
_MISSING = re.compile(r"^[^']*'([^']*)'.*(?:is not declared|in this block or around it)")


# ── the checker ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Checker(InstructionChecker):
    def __init__(self, module: tree.Module):
        super().__init__(module)
        self.top = Scope()

    def problems(self) -> Iterator[PtxError]:
        yield from self.header()
        for item in self.module.items:
            if isinstance(item, tree.Function):
                yield from self.declare_function(item)
                yield from self.check_function(item)
            elif isinstance(item, tree.Variable):
                yield from self.declare_variable(item, self.top)
            elif item.name == "alias":
                for word in item.words:
                    if not isinstance(self.top.find(word), tree.Function):
                        yield self.error(f"'.alias' names functions; '{word}' is not one", item)

    def header(self) -> Iterator[PtxError]:
        major, minor = self.module.version
        if minor > VERSIONS.get(major, -1):
            yield self.error(f"there is no PTX version {major}.{minor}; the newest known is {max(VERSIONS)}.{VERSIONS[max(VERSIONS)]}")
        try:
            self.target = Target.parse(self.module.target[0])
        except PtxError as problem:
            yield self.error(problem.message)
            return
        first = self.target.first_version
        if self.module.version < first:
            yield self.error(f"'.target {self.target}' needs '.version {first[0]}.{first[1]}' or later, and this is {major}.{minor}")
        for option in self.module.target[1:]:
            if option not in OPTIONS:
                yield self.error(f"unknown target option '{option}': legal are {', '.join(sorted(OPTIONS))}")

    # ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────

    def declare(self, name: str, declared: Declared, scope: Scope, place: object) -> Iterator[PtxError]:
        before = scope.local(name)
        if before is not None:
            position = getattr(before, "position", None)
            where = f" in line {position.line}" if position else ""
            yield self.error(f"'{name}' is declared twice: it is {kind_of(before)} already{where}", place)
            return
        scope.names[name] = declared

    def declare_range(self, name: str, count: int, declared: tree.RegisterDeclaration | tree.Variable, scope: Scope) -> Iterator[PtxError]:
        for number in (0, count - 1):
            if scope.local(f"{name}{number}") is not None:
                yield self.error(f"'{name}{number}' of '{name}<{count}>' is declared twice", declared)
                return
        scope.ranges[name] = declared

    def declare_function(self, function: tree.Function) -> Iterator[PtxError]:
        before = self.top.names.get(function.name)
        if before is None:
            self.top.names[function.name] = function
            return
        if not isinstance(before, tree.Function):
            yield self.error(f"'{function.name}' is declared twice: it is {kind_of(before)} already", function)
            return
        if before.body is not None and function.body is not None:
            yield self.error(f"'{function.name}' is defined twice", function)
        if before.kernel != function.kernel or _signature(before) != _signature(function):
            yield self.error(f"'{function.name}' is declared otherwise before: parameters and results must be alike", function)
        if before.body is None:
            self.top.names[function.name] = function

    def declare_variable(self, variable: tree.Variable, scope: Scope) -> Iterator[PtxError]:
        if variable.space == "tex":
            yield from self.declare(variable.name, variable, scope, variable)
            return
        legal = REGISTER_TYPES if variable.space == "reg" else VARIABLE_TYPES
        if variable.type not in legal:
            yield self.error(f"'{variable.name}': there are no .{variable.space} variables of type '.{variable.type}'", variable)
            return
        if variable.align is not None and (variable.align <= 0 or variable.align & (variable.align - 1)):
            yield self.error(f"'{variable.name}': an alignment is a power of two, not {variable.align}", variable)
        if variable.vector and BITS.get(variable.type, 0) * variable.vector > 128:
            yield self.error(f"'{variable.name}': a vector has at most 128 bits", variable)
        open_ends = [i for i, length in enumerate(variable.dimensions) if length is None]
        if open_ends and variable.initializer is None and variable.linkage != "extern" and variable.space != "param":
            yield self.error(f"'{variable.name}' has no size: write the array's length, or '.extern' for dynamic shared memory", variable)
        if any(i > 0 for i in open_ends):
            yield self.error(f"'{variable.name}': only the first dimension may be open", variable)
        if variable.initializer is not None:
            yield from self.check_initializer(variable)
        if variable.count is not None:
            yield from self.declare_range(variable.name, variable.count, variable, scope)
            return
        before = scope.local(variable.name)
        if isinstance(before, tree.Variable) and "extern" in (before.linkage, variable.linkage) and before.space == variable.space:
            return  # a declaration and the definition, in either order
        yield from self.declare(variable.name, variable, scope, variable)

    def check_initializer(self, variable: tree.Variable) -> Iterator[PtxError]:
        if variable.space not in ("global", "const"):
            yield self.error(f"'{variable.name}': only .global and .const variables take initial values, not .{variable.space}", variable)
            return
        if variable.linkage == "extern":
            yield self.error(f"'{variable.name}': an .extern variable has its initial value where it is defined", variable)
        if variable.type in OPAQUE_TYPES:
            return
        dimensions = [*variable.dimensions, *([variable.vector] if variable.vector else [])]
        yield from self.check_values(variable.initializer, dimensions, variable)

    def check_values(self, value: tree.Initializer | None, dimensions: list[int | None], variable: tree.Variable) -> Iterator[PtxError]:
        if isinstance(value, tuple):
            if not dimensions:
                if len(value) > 1 or (value and isinstance(value[0], tuple)):
                    yield self.error(f"'{variable.name}' is one value, not a list", variable)
                return
            flat = dimensions[0] if not any(isinstance(inner, tuple) for inner in value) else None
            length = dimensions[0]
            if flat is not None and len(dimensions) > 1:
                for further in dimensions[1:]:
                    flat *= further or 1
                length = flat
            if length is not None and len(value) > length:
                yield self.error(f"'{variable.name}' has room for {length} values, not {len(value)}", variable)
            for inner in value:
                yield from self.check_values(inner, dimensions[1:] if isinstance(inner, tuple) else [], variable)
            return
        symbol = value.symbol if isinstance(value, tree.Generic) else value
        if isinstance(symbol, tree.Symbol):
            found = self.top.find(symbol.name)
            if found is None and symbol.name != variable.name:
                yield self.error(f"'{symbol.name}' is not declared before it is used here", symbol, variable)
        elif isinstance(value, tree.Float) and class_of(variable.type) != "f":
            yield self.error(f"'{variable.name}' is of type .{variable.type} and takes integers, not floats", value, variable)

    # ── functions ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_function(self, function: tree.Function) -> Iterator[PtxError]:
        self.function = function
        scope = Scope(self.top)
        for parameter in (*function.results, *function.parameters):
            if function.kernel and parameter.space != "param":
                yield self.error(f"a kernel's parameters are '.param', not '.{parameter.space}'", parameter)
            yield from self.declare_variable(parameter, scope)
        for directive in function.directives:
            yield from self.check_directive(directive, function)
        if function.body is not None:
            yield from self.check_statements(function.body, scope)
        self.function = None

    def check_directive(self, directive: tree.Directive, function: tree.Function) -> Iterator[PtxError]:
        name = directive.name
        if name in ("maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank",
                    "explicitcluster", "blocksareclusters") and not function.kernel:
            yield self.error(f"'.{name}' is for kernels (.entry) only", directive, function)
        first = _SINCE.get(name, (1, 0))
        if self.module.version < first:
            yield self.error(f"'.{name}' needs '.version {first[0]}.{first[1]}' or later", directive, function)
        if name == "noreturn" and function.kernel:
            yield self.error("'.noreturn' is for functions (.func) only", directive, function)
        if name in ("maxntid", "reqntid", "reqnctapercluster"):
            numbers = [int(word) for word in directive.words]
            if not 1 <= len(numbers) <= 3 or min(numbers, default=0) < 1:
                yield self.error(f"'.{name}' takes one to three positive numbers", directive, function)
            elif name != "reqnctapercluster":
                product = 1
                for number in numbers:
                    product *= number
                if product > 1024:
                    yield self.error(f"'.{name}' asks for {product} threads; a CTA has at most 1024", directive, function)

    def check_statements(self, statements: Iterable[tree.Statement], scope: Scope) -> Iterator[PtxError]:
        for statement in statements:  # labels hold for the whole block, before and after
            if isinstance(statement, tree.Label):
                yield from self.declare(statement.name, Label(statement.name), scope, statement)
        for statement in statements:
            match statement:
                case tree.Instruction():
                    yield from self.check_instruction(statement, scope)
                case tree.RegisterDeclaration():
                    yield from self.declare_register(statement, scope)
                case tree.Variable():
                    yield from self.declare_variable(statement, scope)
                case tree.Block(statements=inner):
                    yield from self.check_statements(inner, Scope(scope))
                case tree.Directive(label=str(label)):
                    yield from self.declare(label, statement, scope, statement)
                    for word in statement.words if statement.name == "branchtargets" else ():
                        if not isinstance(scope.find(word), Label):
                            yield self.error(f"'.branchtargets' names labels of this function; '{word}' is not one", statement)
                case tree.Directive(name="branchtargets" | "calltargets" | "callprototype" as name):
                    yield self.error(f"'.{name}' needs a label before it, 'name: .{name} …'", statement)

    def declare_register(self, statement: tree.RegisterDeclaration, scope: Scope) -> Iterator[PtxError]:
        if statement.type not in REGISTER_TYPES:
            instead = f"; '.{statement.type}' values live in '.b{BITS[statement.type]}' registers" if statement.type in BITS else ""
            yield self.error(f"there are no registers of type '.{statement.type}'{instead}", statement)
            return
        if statement.count is not None:
            yield from self.declare_range(statement.name, statement.count, statement, scope)
        else:
            yield from self.declare(statement.name, statement, scope, statement)


def _signature(function: tree.Function):
    """What must be alike in all declarations of a function: types and shapes, not names."""

    def shape(parameters: tuple[tree.Variable, ...]):
        return [(one.type if one.dimensions else BITS.get(one.type), one.dimensions, one.vector) for one in parameters]

    return shape(function.results), shape(function.parameters)
