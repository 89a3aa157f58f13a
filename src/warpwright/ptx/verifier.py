"""Is a module legal? The judge is ptxas: what it accepts passes here, what it refuses is refused here, with a message for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.agreement import BITS, OPAQUE_TYPES, REGISTER_TYPES, VARIABLE_TYPES, alignment, class_of, size_of
from warpwright.ptx.instructions import InstructionChecker
from warpwright.ptx.lexer import shorten
from warpwright.ptx.names import Declared, Label, Scope, kind_of
from warpwright.ptx.parser import parse_all
from warpwright.ptx.targets import OPTIONS, VERSIONS, Target

# Function directives that came after PTX 1.0: the first version that has them.
_SINCE = {
    "noreturn": (6, 4), "reqnctapercluster": (7, 8), "explicitcluster": (7, 8), "maxclusterrank": (7, 8), "blocksareclusters": (9, 0),
    "abi_preserve": (9, 0), "abi_preserve_control": (9, 0), "minperctamemory": (9, 4),
}


_FUNCTIONS_ONLY = {"noreturn", "abi_preserve", "abi_preserve_control"}
_CLUSTERS = {"reqnctapercluster", "explicitcluster", "maxclusterrank", "blocksareclusters"}
_SAMPLER = ("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2")
_SIZES = ("width", "height", "depth", "channel_data_type", "channel_order")
# Fields of opaque types' initial values.
_FIELDS = {"texref": (*_SIZES, "normalized_coords", *_SAMPLER), "samplerref": (*_SAMPLER, "force_unnormalized_coords"), "surfref": _SIZES}


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
                yield from self.check_alias(item)
            elif item.name == "pragma":
                for word in item.words:
                    if word != '"nounroll"':
                        yield self.error(f"there is no pragma {shorten(word)} outside functions", item)
            elif item.name == "section":
                yield from self.check_section(item)
        aliases = {item.words[0] for item in self.module.items if isinstance(item, tree.Directive) and item.name == "alias" and item.words}
        for name, found in self.top.names.items():
            if isinstance(found, tree.Function) and found.body is None and found.linkage != "extern" and name not in aliases:
                yield self.error(f"'{name}' is declared and has no body in this module: write '.extern' if another has it", found)

    def check_alias(self, item: tree.Directive) -> Iterator[PtxError]:
        if self.module.version < (6, 3):
            yield self.error("'.alias' needs '.version 6.3' or later", item)
        found = [self.top.find(word) for word in item.words]
        for word, function in zip(item.words, found, strict=True):
            if not isinstance(function, tree.Function):
                yield self.error(f"'.alias' names functions; '{word}' is not one", item)
                return
        if len(found) == 2 and isinstance(found[0], tree.Function) and isinstance(found[1], tree.Function):
            if found[0].body is not None:
                yield self.error(f"'{item.words[0]}' has a body, and so is no alias", item)
            elif _signature(found[0]) != _signature(found[1]):
                yield self.error(f"'{item.words[0]}' and '{item.words[1]}' must have the same parameters and results", item)

    def check_section(self, item: tree.Directive) -> Iterator[PtxError]:
        bits = 64
        for word, following in pairwise((*item.words[1:], "")):
            if word.startswith(".") and not word.startswith(".debug"):
                if word[1:] not in ("b8", "b16", "b32", "b64"):
                    yield self.error(f"data in a section are .b8, .b16, .b32 or .b64, not '{word}'", item)
                    return
                bits = int(word[2:])
            elif word == ":" and self.module.version < (7, 0):
                yield self.error("labels in a section need '.version 7.0' or later", item)
            elif word == "-" and self.module.version < (7, 5):
                yield self.error("negative numbers in a section need '.version 7.5' or later", item)
            elif word.isdecimal() and int(word) >> bits:
                yield self.error(f"'{shorten(word)}' does not fit in .b{bits}", item)
            elif word == ";" or following == ";":
                yield self.error("there are no semicolons in a section", item)
                return

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
        for other in scope.names:
            number = other[len(name):] if other.startswith(name) else ""
            if number.isdecimal() and len(number) < 11 and (number == "0" or number[0] != "0") and int(number) < count:
                yield self.error(f"'{other}' of '{name}<{count}>' is declared twice", declared)
                return
        if name in scope.ranges:
            yield self.error(f"'{name}<…>' is declared twice", declared)
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
        if before.body is not None and function.body is None:
            yield self.error(f"'{function.name}' is declared after its definition: declarations come before", function)
        if before.linkage == "extern" and before.body is None and function.body is not None and not function.linkage:
            yield self.error(f"'{function.name}' is '.extern' before: define it with '.visible'", function)
        if before.body is not None and function.body is not None:
            yield self.error(f"'{function.name}' is defined twice", function)
        if before.kernel != function.kernel or _signature(before) != _signature(function):
            yield self.error(f"'{function.name}' is declared otherwise before: parameters and results must be alike", function)
        if before.body is None:
            self.top.names[function.name] = function

    def declare_variable(self, variable: tree.Variable, scope: Scope, parameter: tree.Function | None = None) -> Iterator[PtxError]:
        """A variable of the module, of a body (the scope says which), or a parameter or result of a function."""
        name, space = f"'{variable.name}'", variable.space
        if variable.type == "b128" and not variable.dimensions and self.module.version < (8, 3):
            yield self.error(f"{name}: variables of type .b128 need '.version 8.3' or later", variable)
        if space == "tex":
            yield self.error(f"{name}: '.tex' went out with PTX 1.5; declare a '.global .texref'", variable)
            return
        if scope is self.top and space in ("local", "reg", "param"):
            yield self.error(f"{name}: .{space} variables are declared inside functions", variable)
            return
        legal = REGISTER_TYPES if space == "reg" else VARIABLE_TYPES
        if variable.type not in legal:
            yield self.error(f"{name}: there are no .{space} variables of type '.{variable.type}'", variable)
            return
        if variable.align is not None and (variable.align <= 0 or variable.align & (variable.align - 1)):
            yield self.error(f"{name}: an alignment is a power of two, not {variable.align}", variable)
        if variable.vector and (BITS.get(variable.type, 0) * variable.vector > 128 or variable.vector == 8):
            yield self.error(f"{name}: a vector has 2 or 4 elements and at most 128 bits", variable)
        if variable.linkage == "common" and space != "global":
            yield self.error(f"{name}: '.common' variables are in .global", variable)
        if variable.type in OPAQUE_TYPES:
            yield from self.check_opaque(variable, parameter)
        if parameter is not None:
            yield from self.check_parameter(variable, parameter)
        elif None in variable.dimensions[1:]:
            yield self.error(f"{name}: only the first dimension may be open", variable)
        elif variable.linkage != "extern" and variable.initializer is None and {0, None} & set(variable.dimensions):
            yield self.error(f"{name} has no size: write the array's length, or '.extern' for dynamic shared memory", variable)
        if variable.type in ("f16", "f16x2") and space not in ("reg", "param"):
            yield from self.check_half(variable)
        if variable.initializer is not None:
            yield from self.check_initializer(variable)
        if variable.count is not None:
            yield from self.declare_range(variable.name, variable.count, variable, scope)
            return
        before = scope.local(variable.name)
        if isinstance(before, tree.Variable) and "extern" in (before.linkage, variable.linkage) and before.space == space:
            if before.type != variable.type:
                yield self.error(f"{name} is .{before.type} where it is declared before", variable)
            elif before.linkage == "extern" and not variable.linkage:
                yield self.error(f"{name} is '.extern' before: define it with '.visible' or '.weak'", variable)
            return  # a declaration and the definition, in either order
        yield from self.declare(variable.name, variable, scope, variable)

    def check_half(self, variable: tree.Variable) -> Iterator[PtxError]:
        if variable.initializer is not None:
            yield self.error(f"'{variable.name}': there are no initial values of type .{variable.type}: declare it .b16 or .b32", variable)

    def check_opaque(self, variable: tree.Variable, parameter: tree.Function | None) -> Iterator[PtxError]:
        """Textures, samplers and surfaces."""
        array = parameter is None and bool(variable.dimensions)  # ptxas looks at single objects only
        if variable.type == "samplerref" and not array and "texmode_independent" not in self.module.target:
            yield self.error(f"'{variable.name}': samplers of their own need '.target …, texmode_independent'", variable)
        if parameter is None and not array and variable.space != "global":
            yield self.error(f"'{variable.name}': a .{variable.type} is in .global, not .{variable.space}", variable)
        elif parameter is not None and not parameter.kernel:
            yield self.error(f"'{variable.name}': a .{variable.type} is a parameter of kernels only", variable)
        if variable.initializer is None:
            return
        if not isinstance(variable.initializer, tuple):
            yield self.error(f"'{variable.name}' takes a list of fields, '{{field = value, …}}'", variable)
            return
        for value in variable.initializer:
            field = value.name.partition(" = ")[0] if isinstance(value, tree.Symbol) else ""
            if field not in _FIELDS[variable.type]:
                yield self.error(f"'{variable.name}': a .{variable.type} has no field '{field}'; it has {', '.join(_FIELDS[variable.type])}",
                                 value, variable)

    def check_parameter(self, variable: tree.Variable, function: tree.Function) -> Iterator[PtxError]:
        """What holds for parameters and results beside what holds for all variables."""
        name = f"'{variable.name}'"
        result = any(variable is one for one in function.results)
        if variable.space == "param" and (variable.vector or variable.type == "f16x2"):
            yield self.error(f"{name}: a parameter in .param is no vector: pass an array of .b8", variable)
        if variable.space == "reg" and function.body is not None and variable.type in ("pred", "b16", "u16", "s16"):
            yield self.error(f"{name}: a .{variable.type} is passed in .param, or as .b32 in a register", variable)
        if variable.space == "reg" and variable.dimensions:
            yield self.error(f"{name}: an array is passed in .param, not in a register", variable)
        if variable.count is not None:
            yield self.error(f"{name}: a parameter is one variable, without '<…>'", variable)
        if None in variable.dimensions and (function.kernel or result):
            yield self.error(f"{name}: write the array's length", variable)
        if variable.pointer is not None:
            if not function.kernel:
                yield self.error(f"{name}: '.ptr' is for kernels' parameters", variable)
            align = variable.pointer.align
            if align is not None and (align <= 0 or align & (align - 1)):
                yield self.error(f"{name}: an alignment is a power of two, not {align}", variable)

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
                yield self.error(f"'{variable.name}' is one value here, not a list", variable)
                return
            if dimensions[0] and len(value) > dimensions[0]:
                yield self.error(f"'{variable.name}' has room for {dimensions[0]} values, not {len(value)}", variable)
                return
            for inner in value:
                yield from self.check_values(inner, dimensions[1:], variable)
            return
        if dimensions:
            yield self.error(f"'{variable.name}' takes a list of values, '{{…}}'", value, variable)
            return
        symbol = value.symbol if isinstance(value, tree.Generic) else value
        if isinstance(symbol, tree.Symbol):
            found = self.top.find(symbol.name)
            masked = isinstance(value, tree.Generic) and value.mask is not None
            if found is None and symbol.name != variable.name:
                yield self.error(f"'{symbol.name}' is not declared before it is used here", symbol, variable)
            elif isinstance(found, tree.Variable) and found.space not in ("global", "const"):
                yield self.error(f"'{symbol.name}' is in .{found.space}; an initial value is the address of a .global or .const variable",
                                 symbol, variable)
            elif isinstance(found, tree.Function) and isinstance(value, tree.Generic):
                yield self.error(f"'{symbol.name}' is a function, and needs no 'generic(…)'", symbol, variable)
            elif not masked and variable.type not in ("u64", "u32"):
                yield self.error(f"'{variable.name}' is .{variable.type}; an address is an initial value of .u64", symbol, variable)
        elif isinstance(value, tree.Float) and class_of(variable.type) == "i":
            yield self.error(f"'{variable.name}' is of type .{variable.type} and takes integers, not floats", value, variable)
        elif isinstance(value, tree.Integer) and class_of(variable.type) == "f":
            yield self.error(f"'{variable.name}' is of type .{variable.type}: write '{value.value}.0'", value, variable)

    # ── functions ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_function(self, function: tree.Function) -> Iterator[PtxError]:
        self.function = function
        self.returned = {operand.name for instruction in function.instructions() if instruction.opcode == "call"
                         for operand in instruction.operands[:1] if isinstance(operand, tree.Arguments)
                         for operand in operand.elements if isinstance(operand, tree.Symbol)}
        scope = Scope(self.top)
        if function.linkage == "extern" and function.body is not None:
            yield self.error(f"'{function.name}' has a body here, and so is not '.extern'", function)
        if len(function.results) > 1 and any(result.space == "param" for result in function.results):
            yield self.error(f"'{function.name}': several results are returned in .reg", function)
        for parameter in (*function.results, *function.parameters):
            if function.kernel and parameter.space != "param":
                yield self.error(f"a kernel's parameters are '.param', not '.{parameter.space}'", parameter)
            yield from self.declare_variable(parameter, scope, function)
        if function.kernel:
            yield from self.check_parameter_space(function)
        for directive in function.directives:
            yield from self.check_directive(directive, function)
        yield from self.check_directives_together(function)
        if function.body is not None:
            yield from self.check_statements(function.body, scope)
        self.function = None

    def check_parameter_space(self, function: tree.Function) -> Iterator[PtxError]:
        total = 0
        for parameter in function.parameters:
            if parameter.type not in VARIABLE_TYPES:
                continue  # that is told already
            align = alignment(parameter)
            total = -(-total // align) * align + (size_of(parameter) or 0) if align > 0 else total
        large = self.module.version >= (8, 1) and self.target is not None and self.target.number >= 70
        if total > (32764 if large else 4352):
            yield self.error(f"'{function.name}' has {total} bytes of parameters; at most {32764 if large else 4352} can be passed", function)

    def check_directive(self, directive: tree.Directive, function: tree.Function) -> Iterator[PtxError]:
        name = directive.name
        first = _SINCE.get(name, (1, 0))
        if self.module.version < first:
            yield self.error(f"'.{name}' needs '.version {first[0]}.{first[1]}' or later", directive, function)
        if name != "attribute" and (name in _FUNCTIONS_ONLY) == function.kernel:
            yield self.error(f"'.{name}' is for {'functions (.func)' if function.kernel else 'kernels (.entry)'} only", directive, function)
        if name in _CLUSTERS and self.target is not None and self.target.number < 90:
            yield self.error(f"'.{name}' needs target sm_90 or later, and this module is for {self.target}", directive, function)
        if name == "noreturn" and function.results:
            yield self.error(f"'{function.name}' returns something, and so returns", directive, function)
        if name == "maxnctapersm":
            yield self.error("'.maxnctapersm' went out with PTX 2.1: write '.minnctapersm'", directive, function)
        if name in ("maxntid", "reqntid", "reqnctapercluster"):
            numbers = [int(word) for word in directive.words]
            if not 1 <= len(numbers) <= 3 or (name != "reqnctapercluster" and min(numbers, default=0) < 1):
                yield self.error(f"'.{name}' takes one to three positive numbers", directive, function)
        if name in ("maxnreg", "minnctapersm") and (len(directive.words) != 1 or int(directive.words[0]) < 1):
            yield self.error(f"'.{name}' takes one positive number", directive, function)

    def check_directives_together(self, function: tree.Function) -> Iterator[PtxError]:
        names = {directive.name for directive in function.directives}
        for one, other in (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank")):
            if {one, other} <= names:
                yield self.error(f"'.{one}' and '.{other}' do not go together", function)
        if "blocksareclusters" in names and not {"reqntid", "reqnctapercluster"} <= names:
            yield self.error("'.blocksareclusters' needs '.reqntid' and '.reqnctapercluster' beside it", function)

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
                    for word in statement.words if statement.name == "calltargets" else ():
                        found = scope.find(word)
                        if not isinstance(found, tree.Function) or found.kernel:
                            yield self.error(f"'.calltargets' names functions declared before; '{word}' is not one", statement)
                case tree.Directive(name="branchtargets" | "calltargets" | "callprototype" as name):
                    yield self.error(f"'.{name}' needs a label before it, 'name: .{name} …'", statement)

    def declare_register(self, statement: tree.RegisterDeclaration, scope: Scope) -> Iterator[PtxError]:
        if statement.type not in REGISTER_TYPES:
            instead = f"; '.{statement.type}' values live in '.b{BITS[statement.type]}' registers" if statement.type in BITS else ""
            yield self.error(f"there are no registers of type '.{statement.type}'{instead}", statement)
            return
        if statement.type in ("f16", "f16x2") and self.target is not None and (self.target.number < 53 or self.module.version < (4, 2)):
            yield self.error(f"registers of type .{statement.type} need target sm_53 and '.version 4.2' or later", statement)
        if statement.type == "b128" and ((self.target is not None and self.target.number < 70) or self.module.version < (8, 3)):
            yield self.error("registers of type .b128 need target sm_70 and '.version 8.3' or later", statement)
        if statement.count is not None:
            yield from self.declare_range(statement.name, statement.count, statement, scope)
        else:
            yield from self.declare(statement.name, statement, scope, statement)


def _signature(function: tree.Function):
    """What must be alike in all declarations of a function: types and shapes, not names."""

    def shape(parameters: tuple[tree.Variable, ...]):
        return [(one.type if one.dimensions else (class_of(one.type), BITS.get(one.type)), one.dimensions, one.vector) for one in parameters]

    return shape(function.results), shape(function.parameters)
