"""Is an instruction legal where it stands: modifiers, operands, types, names, target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from warpwright.errors import PtxError
from warpwright.ptx import isa, tree
from warpwright.ptx.agreement import BITS, OPAQUE_TYPES, agrees, alignment, class_of, size_of, stored_type, takes
from warpwright.ptx.isa.special import NEEDS, SPECIAL, VECTORS
from warpwright.ptx.isa.table import Match, Value
from warpwright.ptx.isa.texture import COORDINATES
from warpwright.ptx.isa.video import OPCODES as VIDEO
from warpwright.ptx.lexer import shorten
from warpwright.ptx.names import Declared, Label, Scope, kind_of, prototype
from warpwright.ptx.printer import print_operand
from warpwright.ptx.targets import Target, describe

# Opcodes whose registers may be wider than the instruction's type.
RELAXED = {"ld", "st", "ldu", "cvt", "suld", "sust"}
# Opcodes that access memory at an address themselves.
_ACCESSES = {"ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "discard", "applypriority", "multimem"}
# Opcodes that take a special register in the place of any other.
READ_SPECIAL = {"mov", "cvt"}
# Opcodes whose (first) result may be thrown away with `_`.
DISCARD = {"atom", "setp", "elect", "mbarrier", "lop3", "match", "call", "tex", "tld4"}
# The names of a vector register's elements.
_PARTS = ("x", "y", "z", "w")
# Opcodes that take a value in braces for the value alone: `{%r1}`.
ONE_ELEMENT = {"ld", "st", "ldu", "suld", "sust"}
# Opcodes whose addresses are of textures or surfaces: the type of object.
_HANDLES = {"tex": "texref", "tld4": "texref", "txq": "texref", "suq": "surfref", "suld": "surfref", "sust": "surfref", "sured": "surfref"}
# Opcodes with a form that looks at the values of constants.
_VALUES_MATTER = frozenset(opcode for opcode, entry in isa.TABLE.items() if any(form.check for form in entry.forms))
_SPACE_OF = {"shared::cta": "shared", "shared::cluster": "shared", "param::entry": "param", "param::func": "param"}


_PACKED_INTEGERS = {"u16x2", "s16x2", "u8x4", "s8x4"}
_SPECIAL_HOLDERS = {"pred", "f16", "f32", "f64", *(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64, 128))}
_LONG_WORD = re.compile(r"[^\s']{100,}")


def show(operand: tree.Operand) -> str:
    """An operand for a message."""
    return shorten(print_operand(operand), 120)


def _is_object(found: Declared, wanted: str, or_sampler: bool) -> bool:
    """Whether a name is that of a texture, surface or sampler."""
    if not isinstance(found, tree.Variable):
        return False
    return found.type == wanted or (or_sampler and found.type == "samplerref") or (found.space == "tex" and wanted == "texref")


class InstructionChecker:
    """Checks instructions of a module, whose target is None where it is not known."""

    def __init__(self, module: tree.Module):
        self.module = module
        self.target: Target | None = None
        self.function: tree.Function | None = None
        self.accepted: set[tuple] = set()
        self.returned: set[str] = set()  # parameters that calls of the function return results in

    def error(self, message: str, *places: object) -> PtxError:
        """A problem at the first of the places that has a position."""
        message = shorten(_LONG_WORD.sub(lambda word: shorten(word[0]), message), 1000)
        for place in places:
            position = getattr(place, "position", None)
            if position is not None:
                return PtxError(message, position.line, position.column, self.module.file)
        return PtxError(message, file=self.module.file)

    def check_instruction(self, instruction: tree.Instruction, scope: Scope) -> Iterable[PtxError]:
        """What is wrong with an instruction. One that is like an earlier one, in mnemonic and operands' kinds and types, is as legal as that."""
        alike = self.likeness(instruction, scope)
        if alike is not None and alike in self.accepted:
            return ()
        problems = list(self.examine(instruction, scope))
        if alike is not None and not problems:
            self.accepted.add(alike)
        return problems

    def likeness(self, instruction: tree.Instruction, scope: Scope) -> tuple | None:
        """What an instruction's legality depends on; None where it is more than mnemonic, types and small constants."""
        exact = instruction.opcode in _VALUES_MATTER
        parts: list = [instruction.opcode, instruction.modifiers]
        if instruction.guard is not None:
            if self.register_type(instruction.guard.register.name, scope) != "pred":
                return None
            parts.append("@")
        for operand in instruction.operands:
            part = self.kind(operand, scope, exact)
            if part is None:
                return None
            parts.append(part)
        return tuple(parts)

    def kind(self, operand: tree.Operand, scope: Scope, exact: bool) -> object:
        """A part of a likeness: a register's type, a marked tuple for the rest."""
        cls = type(operand)
        if cls is tree.Register:
            found = scope.find(operand.name)  # type: ignore[union-attr]
            if type(found) is tree.RegisterDeclaration and found.vector is None:
                return found.type
            return ("%", operand.name) if operand.name in SPECIAL and found is None else None  # type: ignore[union-attr]
        if cls is tree.Integer:
            value = operand.value  # type: ignore[union-attr]
            return None if not -(2**31) <= value < 2**31 else (value,) if exact else ("i",)
        if cls is tree.Vector:
            parts = tuple(self.kind(element, scope, exact) for element in operand.elements)  # type: ignore[union-attr]
            return None if None in parts else ("{", *parts)
        if cls is tree.Address:
            if operand.coordinates is not None or type(operand.base) is not tree.Register:  # type: ignore[union-attr]
                return None
            base = self.kind(operand.base, scope, exact)  # type: ignore[union-attr]
            return ("[", base) if type(base) is str else None
        if cls is tree.Float:
            return ("f", operand.width)  # type: ignore[union-attr]
        if cls is tree.Pair:
            parts = (self.kind(operand.first, scope, exact), self.kind(operand.second, scope, exact))  # type: ignore[union-attr]
            return None if None in parts else ("|", *parts)
        if cls is tree.Sink:
            return "_"
        return None

    def examine(self, instruction: tree.Instruction, scope: Scope) -> Iterator[PtxError]:
        try:
            match_ = isa.match(instruction)
        except PtxError as problem:
            yield PtxError(problem.message, problem.line, problem.column, self.module.file)
            return
        yield from self.check_need(match_)
        if instruction.opcode == "cvta" and match_["T"] == "u32" and self.module.address_size == 64:
            yield self.error("addresses have 64 bits here: write '.u64'", instruction)
        for name in (*match_.reads, *match_.writes):
            if name in NEEDS:
                yield from self.check_special_need(name, scope, instruction)
        if instruction.guard:
            register = instruction.guard.register
            type_ = self.register_type(register.name, scope)
            if type_ is None and SPECIAL.get(register.name) == "pred":
                type_ = "pred"
            if type_ is None:
                yield self.undeclared(register, scope, instruction, "the guard")
            elif type_ != "pred":
                yield self.error(f"the guard '@{register.name}' is a .{type_} register and must be .pred", register, instruction)
        if instruction.opcode == "call":
            yield from self.check_call(match_, scope)
            return
        for value in match_.values:
            yield from self.check_value(value, match_, scope)
        wrong = match_.form.check(match_) if match_.form.check else None
        if wrong:
            yield self.error(f"in '{instruction}': {wrong}", instruction)

    def check_need(self, match_: Match) -> Iterator[PtxError]:
        need, target = match_.need, self.target
        what = f"'{match_.instruction.mnemonic}'"
        if target is not None and not target.has(need):
            yield self.error(f"{what} needs target {describe(need)}, and this module is for {target}", match_.instruction)
        if self.module.version < need.ptx:
            yield self.error(f"{what} needs '.version {need.ptx[0]}.{need.ptx[1]}' or later, and this module is "
                             f"{self.module.version[0]}.{self.module.version[1]}", match_.instruction)
        gone = match_.form.gone
        if gone and target is not None and target.number >= gone.sm and self.module.version >= gone.ptx:
            instead = ": write '.sync' and the mask of lanes as the last operand" if match_.instruction.opcode in ("shfl", "vote") else ""
            yield self.error(f"{what} is gone from sm_{gone.sm} and PTX {gone.ptx[0]}.{gone.ptx[1]} on{instead}", match_.instruction)

    def check_special_need(self, name: str, scope: Scope, instruction: tree.Instruction) -> Iterator[PtxError]:
        need = NEEDS[name]
        if scope.find(name) is not None:
            return
        if self.target is not None and not self.target.has(need):
            yield self.error(f"'{name}' needs target {describe(need)}, and this module is for {self.target}", instruction)
        elif self.module.version < need.ptx:
            yield self.error(f"'{name}' needs '.version {need.ptx[0]}.{need.ptx[1]}' or later", instruction)

    def undeclared(self, operand: tree.Register | tree.Symbol, scope: Scope, instruction: tree.Instruction, what: str) -> PtxError:
        found = scope.find(operand.name)
        if found is not None:
            return self.error(f"{what} '{operand.name}' of '{instruction.mnemonic}' is {kind_of(found)}, "
                              "and must be a register", operand, instruction)
        return self.error(f"{what} '{operand.name}' of '{instruction.mnemonic}' is not declared", operand, instruction)

    def register_type(self, name: str, scope: Scope) -> str | None:
        """A declared register's type; None if the name is none."""
        found = scope.find(name)
        if isinstance(found, tree.RegisterDeclaration) or (isinstance(found, tree.Variable) and found.space == "reg"):
            return found.type
        return None

    def check_value(self, value: Value, match_: Match, scope: Scope) -> Iterator[PtxError]:
        instruction, operand = match_.instruction, value.operand
        where = f"operand {value.name} of '{instruction.mnemonic}'"
        match value.kind:
            case "addr":
                yield from self.check_address(value, match_, scope)
            case "label":
                if not isinstance(operand, tree.Symbol):
                    yield self.error(f"{where} is a label, not '{show(operand)}'", operand, instruction)
                elif operand.offset or not isinstance(scope.find(operand.name), Label):
                    yield self.error(f"there is no label '{operand.name}' in this block or around it", operand, instruction)
            case "imm":
                if not isinstance(operand, tree.Integer):
                    yield self.error(f"{where} is an integer constant, not '{show(operand)}'", operand, instruction)
            case "symbol":
                listed = scope.find(operand.name) if isinstance(operand, tree.Symbol) else None
                if not isinstance(listed, tree.Directive):
                    yield self.error(f"{where} is the label of a list declared before, not '{show(operand)}'", operand, instruction)
                elif instruction.opcode == "brx" and listed.name != "branchtargets":
                    yield self.error(f"{where} is the label of a '.branchtargets', not of a '.{listed.name}'", operand, instruction)
            case "any" | "arguments":
                yield from self.check_names(operand, scope, instruction)
            case _:
                yield from self.check_typed(value, match_, scope)

    def check_names(self, operand: tree.Operand | None, scope: Scope, instruction: tree.Instruction) -> Iterator[PtxError]:
        """All registers inside an operand are declared."""
        if isinstance(operand, tree.Sink) or (isinstance(operand, tree.Vector) and any(isinstance(one, tree.Sink) for one in operand.elements)):
            yield self.error(f"'{show(operand)}' in '{instruction.mnemonic}' is read: '_' cannot stand there", operand, instruction)
        for name in isa.table.registers(operand):
            if self.register_type(name, scope) is None and name not in SPECIAL and name not in VECTORS:
                yield self.undeclared(tree.Register(name, getattr(operand, "position", None)), scope, instruction, "the register")

    def check_handle(self, operand: tree.Address, match_: Match, scope: Scope) -> Iterator[PtxError]:
        """A place behind the fabric: `[endpoint, offset]`, registers of 32 and of 64 bits."""
        for part, bits in ((operand.base, 32), (operand.coordinates, 64)):
            type_ = self.register_type(part.name, scope) if isinstance(part, tree.Register) else None
            if type_ not in (f"b{bits}", f"u{bits}", f"s{bits}") or operand.offset:
                yield self.error(f"a fabric handle is written '[endpoint, offset]', an integer register of 32 bits and one of 64, not "
                                 f"'{show(operand)}'", operand, match_.instruction)
                return

    def check_address(self, value: Value, match_: Match, scope: Scope) -> Iterator[PtxError]:
        instruction, operand = match_.instruction, value.operand
        if not isinstance(operand, tree.Address):
            yield self.error(f"operand {value.name} of '{instruction.mnemonic}' is an address: "
                             f"write '[{show(operand)}]'", operand, instruction)
            return
        if value.name == "handle":
            yield from self.check_handle(operand, match_, scope)
            return
        if operand.coordinates is not None and operand.offset:
            yield self.error(f"'{show(operand)}': no offset stands before coordinates", operand, instruction)
        slots = match_.slots
        space = slots.get(value.name if value.name in ("dst", "src") else "space") or None
        if value.name == "barrier":
            space = "shared"
        space = _SPACE_OF.get(space, space) if isinstance(space, str) else None
        base = operand.base
        if instruction.opcode in _HANDLES:
            yield from self.check_texture(operand, match_, scope)
            if isinstance(base, tree.Symbol):
                return
        elif instruction.opcode == "tcgen05" and match_["action"] not in ("alloc", "commit") and not isinstance(base, tree.Register):
            yield self.error(f"'{show(operand)}': a tensor memory address is in a register", operand, instruction)
            return
        if base is None:
            if space != "local":
                yield self.error(f"'[{operand.offset}]': an address without a base is for '.local' only", operand, instruction)
        elif isinstance(base, tree.Register):
            type_ = (SPECIAL.get(base.name) if "." not in base.name else None) or self.register_type(base.name, scope)
            tensor = instruction.opcode == "tcgen05" and match_["action"] not in ("alloc", "commit")
            if base.name in SPECIAL and type_ is None:
                yield self.error(f"'{base.name}' is a special register, and no address: read it with 'mov' first", base, instruction)
            elif type_ is None:
                yield self.undeclared(base, scope, instruction, "the address register")
            elif (tensor or instruction.opcode in _HANDLES) and (class_of(type_) not in "bi" or BITS[type_] != (32 if tensor else 64)):
                what = "tensor memory address" if tensor else "handle of a texture or surface"
                yield self.error(f"'{base.name}' is .{type_}, and a {what} has {32 if tensor else 64} bits", base, instruction)
            elif slots.get("space") == "param::func":
                yield self.error(f"'.param::func' takes the name of a parameter, not the register '{base.name}'", base, instruction)
            elif class_of(type_) not in "bi" or type_ == "b128":
                yield self.error(f"the address register '{base.name}' is .{type_}, "
                                 "and must be an integer or bits of up to 64", base, instruction)
            elif BITS[type_] == 32 and space in (None, "global") and instruction.opcode in _ACCESSES and not (
                    match_.get("async") or match_.get("tensormap")):
                yield self.error(f"the address register '{base.name}' is .{type_}, and {'.global' if space else 'generic'} addresses have 64 bits",
                                 base, instruction)
            elif BITS[type_] < 32 and ((instruction.opcode == "red" and match_.get("async")) or (
                    space != "shared" and instruction.opcode in ("ldmatrix", "stmatrix", "createpolicy"))):
                yield self.error(f"the address register '{base.name}' is .{type_}, and must have 32 or 64 bits", base, instruction)
        else:
            yield from self.check_address_symbol(base, space, match_, scope)
        for part in (*operand.more, operand.coordinates):
            yield from self.check_names(part, scope, instruction)
            if instruction.opcode == "cp" and isinstance(part, tree.Vector) and not all(
                    agrees(self.register_type(name, scope) or "b32", "b32") for name in isa.table.registers(part)):
                yield self.error(f"the coordinates '{show(part)}' of '{instruction.mnemonic}' are 32-bit registers", part, instruction)

    def check_texture(self, operand: tree.Address, match_: Match, scope: Scope) -> Iterator[PtxError]:
        """The address of a texture or surface: the object, and coordinates that suit the geometry."""
        instruction, base = match_.instruction, operand.base
        wanted = _HANDLES[instruction.opcode]
        if match_.get("sampler") == "force_unnormalized_coords":
            wanted = "samplerref"
        found = scope.find(base.name) if isinstance(base, tree.Symbol) else None
        if isinstance(base, tree.Symbol) and found is None:
            yield self.error(f"'{base.name}' in '{instruction}' is not declared", base, instruction)
        elif base is None or operand.offset or (found is not None and not _is_object(found, wanted, bool(match_.get("sampler")))):
            yield self.error(f"'{show(operand)}': '{instruction.mnemonic}' takes a .{wanted} or a 64-bit register with its handle", operand,
                             instruction)
        geometry = match_.get("geom")
        if geometry is None:
            return
        given = operand.coordinates
        elements = given.elements if isinstance(given, tree.Vector) else (given,) if given is not None else ()
        count = COORDINATES[geometry]
        if len(elements) not in (1, 2, 4) or len(elements) < count:
            yield self.error(f"'.{geometry}' takes {count} coordinate{'s' * (count > 1)}, and here are {len(elements)}", given or operand,
                             instruction)
            return
        type_ = match_.get("S") or "s32"
        for i, element in enumerate(elements):
            want = "u32" if i == 0 and geometry[0] == "a" else type_
            if isinstance(element, tree.Register):
                have = self.register_type(element.name, scope) or SPECIAL.get(element.name)
                if have is None:
                    yield self.undeclared(element, scope, instruction, "the coordinate")
                elif BITS[have] != 32 or (want != "f32" and class_of(have) not in "bi"):
                    yield self.error(f"the coordinate '{element.name}' is .{have}, and must be {takes(want)}", element, instruction)
            elif not isinstance(element, tree.Integer | tree.Float):
                yield self.error(f"a coordinate is a register or a number, not '{show(element)}'", element, instruction)

    def check_address_symbol(self, base: tree.Symbol, space: str | None, match_: Match, scope: Scope) -> Iterator[PtxError]:
        instruction = match_.instruction
        found = scope.find(base.name)
        if found is None:
            yield self.error(f"'{base.name}' in '{instruction}' is not declared", base, instruction)
        elif not isinstance(found, tree.Variable):
            yield self.error(f"'{base.name}' in '{instruction}' is {kind_of(found)}, not a variable", base, instruction)
        elif found.type in OPAQUE_TYPES or found.space == "tex":
            return
        elif found.space != space and (space is not None or found.space in ("param", "const")):
            if space is None and found.space == "param" and instruction.opcode not in ("ld", "st", "atom"):
                return
            accessed = "." + space if space else "generic addresses"
            yield self.error(f"'{base.name}' is in .{found.space}, and '{instruction.mnemonic}' accesses {accessed}: "
                             f"write '.{found.space}'", base, instruction)
        elif (found.space == "param" and instruction.opcode == "ld" and found.name not in self.returned and self.function is not None
              and not any(found is parameter for parameter in (*self.function.parameters, *self.function.results))):
            yield self.error(f"'{base.name}' is read, and no call returns anything in it", base, instruction)
        elif (found.space == "param" and instruction.opcode == "st" and self.function is not None
              and any(found is parameter for parameter in self.function.parameters)):
            yield self.error(f"'{base.name}' is a parameter that the caller passes in, and cannot be written", base, instruction)

    def check_typed(self, value: Value, match_: Match, scope: Scope) -> Iterator[PtxError]:
        operand, instruction = value.operand, match_.instruction
        where = f"operand {value.name} of '{instruction.mnemonic}'"
        type_ = stored_type(value, match_)
        if instruction.opcode == "mov" and isinstance(operand, tree.Vector) and value.length is None:
            yield from self.check_packed(value, type_, match_, scope)
            return
        if value.length is None:
            if isinstance(operand, tree.Vector) and len(operand.elements) == 1 and instruction.opcode in ONE_ELEMENT:
                operand = operand.elements[0]
            yield from self.check_scalar(operand, type_, value, match_, scope, where)
            return
        if isinstance(operand, tree.Register):  # a register declared `.v4`, or `%tid`
            found = scope.find(operand.name)
            length = 4 if operand.name in VECTORS else getattr(found, "vector", None)
            if length != value.length:
                yield self.error(f"{where} is a vector of {value.length}: write '{{…}}', not '{show(operand)}'", operand, instruction)
            elif operand.name not in VECTORS:
                register = self.register_type(operand.name, scope)
                if register is None or not agrees(register, type_, instruction.opcode in RELAXED):
                    yield self.error(f"{where}: '{operand.name}' holds .{register}, and must hold {takes(type_)}", operand, instruction)
            return
        if not isinstance(operand, tree.Vector):
            yield self.error(f"{where} is a vector of {value.length}: write '{{…}}', not '{show(operand)}'", operand, instruction)
            return
        if len(operand.elements) != value.length:
            yield self.error(f"{where} is a vector of {value.length}, and '{show(operand)}' has "
                             f"{len(operand.elements)}", operand, instruction)
            return
        if problem := self.mixed(operand, scope):
            yield self.error(f"{where}: {problem}", operand, instruction)
        for element in operand.elements:
            yield from self.check_scalar(element, type_, value, match_, scope, where, in_vector=True)

    def mixed(self, vector: tree.Vector, scope: Scope) -> str | None:
        """What is wrong if a vector's registers are not of one size, or are integers and floats."""
        types = {type_ for element in vector.elements if isinstance(element, tree.Register)
                 and (type_ := SPECIAL.get(element.name) or self.register_type(element.name, scope))}
        classes = {class_of(type_) for type_ in types} - {"b"}
        if len({BITS[type_] for type_ in types}) > 1 or len(classes) > 1:
            return f"the elements of '{show(vector)}' must all be of one type"
        return None

    def check_scalar(self, operand: tree.Operand, type_: str, value: Value, match_: Match, scope: Scope, where: str,
                     in_vector: bool = False) -> Iterator[PtxError]:
        """One register, constant or symbol against a type."""
        instruction, opcode = match_.instruction, match_.instruction.opcode
        relaxed = opcode in RELAXED and value.name in ("d", "a", "b") and not (
            opcode == "cvt" and (in_vector or len(match_.values) != 2 or "bf16" in (match_.get("D"), match_.get("S"))))
        relaxed = relaxed and not match_.get("async")
        match operand:
            case tree.Register(name=name):
                if name in SPECIAL or name in VECTORS:
                    yield from self.check_special(name, type_, value, match_, operand, where, in_vector)
                    return
                register = self.register_type(name, scope)
                if register is None:
                    yield self.undeclared(operand, scope, instruction, f"operand {value.name}")
                elif vector := getattr(scope.find(name), "vector", None):
                    if opcode != "mov" or BITS[register] * vector != BITS[type_]:
                        yield self.error(f"{where}: '{name}' is a vector of {vector}: write '{name}.x' and so on", operand, instruction)
                elif value.spec.untyped and register[0] != "b":
                    yield self.error(f"{where}: '{name}' is a .{register} register, and must be .b{BITS[type_]}", operand, instruction)
                elif not agrees(register, type_, relaxed, in_vector and relaxed, value.spec.kind.split("*")[0] in match_.slots):
                    yield self.error(f"{where}: '{name}' is a .{register} register, and must be "
                                     f"{takes(type_, relaxed)}", operand, instruction)
            case tree.Integer() | tree.Float():
                yield from self.check_constant(operand, type_, value, match_, where, in_vector)
            case tree.Symbol(name=name):
                if opcode not in ("mov", "cvta", "mapa", "getctarank") or value.written:
                    found = scope.find(name)
                    what = f"'{name}' is {kind_of(found)}, and must be a register" if found else f"'{name}' is not declared"
                    if found is not None:
                        what += ": take its address with 'mov' first" if not isinstance(found, Label) else ""
                    yield self.error(f"{where}: {what}", operand, instruction)
                else:
                    yield from self.check_symbol(operand, type_, match_, scope, where)
            case tree.Sink():
                second = value.spec is not next((spec for spec in match_.form.specs if spec.name == value.name), None)
                if not value.written:
                    yield self.error(f"{where} is read: '_' cannot stand there", operand, instruction)
                elif not (in_vector or second or opcode in DISCARD):
                    yield self.error(f"{where} cannot be thrown away with '_'", operand, instruction)
            case tree.Negated(operand=inner):
                if type_ != "pred" or value.written:
                    yield self.error(f"{where}: '!' is for predicates that are read", operand, instruction)
                else:
                    yield from self.check_scalar(inner, type_, value, match_, scope, where)
            case tree.Component(operand=inner) if opcode in VIDEO:
                yield from self.check_scalar(inner, type_, value, match_, scope, where)
            case tree.Component(operand=inner):
                found = scope.find(inner.name)
                whole = found if isinstance(found, tree.RegisterDeclaration | tree.Variable) and found.vector else None
                if whole is None or operand.name not in _PARTS[: whole.vector]:
                    yield self.error(f"{where}: '{inner.name}' is not a vector register with a part "
                                     f"'.{operand.name}'", operand, instruction)
                elif not agrees(whole.type, type_, relaxed):
                    yield self.error(f"{where}: '{show(operand)}' is .{whole.type}, and must be "
                                     f"{takes(type_, relaxed)}", operand, instruction)
            case tree.Negative(operand=inner) if opcode == "vmad" and not value.written:
                yield from self.check_scalar(inner, type_, value, match_, scope, where)
            case tree.Negative():
                yield self.error(f"{where}: '{show(operand)}' has a sign, which no register takes here: use 'neg'", operand, instruction)
            case _:
                yield self.error(f"{where} is a .{type_} value, not '{show(operand)}'", operand, instruction)

    def check_special(self, name: str, type_: str, value: Value, match_: Match, operand: tree.Register, where: str,
                      in_vector: bool) -> Iterator[PtxError]:
        instruction = match_.instruction
        if value.written and not in_vector:
            yield self.error(f"{where}: '{name}' is a special register, and cannot be written", operand, instruction)
        elif name in VECTORS:
            yield self.error(f"{where}: '{name}' is a vector of four: write '{name}.x', '{name}.y' or '{name}.z'", operand, instruction)
        elif not in_vector and not (instruction.opcode in READ_SPECIAL and value.name in "ad" and len(match_.values) == 2
                                    and type_ in _SPECIAL_HOLDERS):
            yield self.error(f"{where}: '{name}' is a special register: read it with 'mov' first", operand, instruction)
        else:
            short = type_ in ("u16", "s16", "b16") and name[:-2] in VECTORS  # they were 16 bits wide once
            if not short and not agrees(SPECIAL[name], type_, instruction.opcode == "cvt", False):
                yield self.error(f"{where}: '{name}' is .{SPECIAL[name]}, and must be {takes(type_)}", operand, instruction)

    def check_constant(self, operand: tree.Integer | tree.Float, type_: str, value: Value, match_: Match, where: str,
                       in_vector: bool) -> Iterator[PtxError]:
        instruction = match_.instruction
        if value.written or value.spec.register:
            why = "written" if value.written else "no constant"
            yield self.error(f"{where} is {why}: it is a register, not '{show(operand)}'", operand, instruction)
            return
        class_ = class_of(type_)
        if type_ in _PACKED_INTEGERS:
            yield self.error(f"{where} is .{type_}, and takes registers only", operand, instruction)
        elif isinstance(operand, tree.Float):
            fits = type_ in ("f32", "f64") or (class_ == "b" and (in_vector or type_ == f"b{operand.width}"))
            if not fits:
                more = ": write its bits as an integer" if class_ == "b" else ": it takes registers only" if class_ == "f" else ""
                yield self.error(f"{where} is .{type_}, and takes no floating constant '{show(operand)}'{more}", operand, instruction)
            elif operand.width == 64 and type_ == "b32" and not in_vector:
                yield self.error(f"{where} is .{type_}: write the constant as 0f…", operand, instruction)
        elif class_ == "f":
            more = f": write '{operand.value}.0'" if type_ in ("f32", "f64") else ": it takes registers only"
            yield self.error(f"{where} is .{type_}, and '{show(operand)}' is an integer{more}", operand, instruction)

    def check_symbol(self, operand: tree.Symbol, type_: str, match_: Match, scope: Scope, where: str) -> Iterator[PtxError]:
        """mov and cvta of a name's address."""
        instruction = match_.instruction
        found = scope.find(operand.name)
        if found is None:
            yield self.error(f"{where}: '{operand.name}' is not declared", operand, instruction)
        elif isinstance(found, Label | tree.Directive | tree.RegisterDeclaration):
            yield self.error(f"{where}: '{operand.name}' is {kind_of(found)}, which has no address", operand, instruction)
        elif (isinstance(found, tree.Variable) and found.space == "param" and self.function is not None
              and not any(found is one for one in (*self.function.parameters, *self.function.results))):
            yield self.error(f"{where}: '{operand.name}' is a parameter of a call, which has no address", operand, instruction)
        elif class_of(type_) not in "bi":
            yield self.error(f"{where}: '{operand.name}' is {kind_of(found)}; its address is an integer, not "
                             f".{type_}", operand, instruction)
        elif instruction.opcode == "cvta" and isinstance(found, tree.Variable):
            space = _SPACE_OF.get(match_["space"], match_["space"])
            if found.space != space:
                yield self.error(f"{where}: '{operand.name}' is in .{found.space}: write 'cvta.{found.space}'", operand, instruction)

    def check_packed(self, value: Value, type_: str, match_: Match, scope: Scope) -> Iterator[PtxError]:
        """mov between a register and a vector of parts that fill it."""
        instruction, operand = match_.instruction, value.operand
        assert isinstance(operand, tree.Vector)
        if class_of(type_) != "b":
            bits = BITS[type_]
            yield self.error(f"'{instruction.mnemonic}' packs no vectors: write 'mov.b{bits}'", operand, instruction)
            return
        types = set()
        for element in operand.elements:
            if isinstance(element, tree.Register):
                register = SPECIAL.get(element.name) or self.register_type(element.name, scope)
                if register is None:
                    yield self.undeclared(element, scope, instruction, f"an element of {value.name}")
                    return
                types.add(register)
            elif isinstance(element, tree.Sink) and value.written:
                continue
            elif not isinstance(element, tree.Integer | tree.Float) or value.written:
                yield self.error(f"an element of {value.name} of '{instruction.mnemonic}' is a register, not "
                                 f"'{show(element)}'", element, instruction)
                return
        count = len(operand.elements)
        if not types and all(isinstance(element, tree.Sink) for element in operand.elements):
            yield self.error(f"'{show(operand)}' names no register", operand, instruction)
        if problem := self.mixed(operand, scope):
            yield self.error(f"in '{instruction}': {problem}", operand, instruction)
        elif any(BITS[register] * count != BITS[type_] for register in types):
            size = BITS[next(iter(types))]
            yield self.error(f"'{show(operand)}' has {count}·{size} bits, and '{instruction.mnemonic}' moves "
                             f"{BITS[type_]}", operand, instruction)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_call(self, match_: Match, scope: Scope) -> Iterator[PtxError]:
        instruction = match_.instruction
        target = match_.value("func")
        assert target is not None
        results, arguments = (_elements(match_.value(name)) for name in ("ret", "args"))
        callee = target.operand
        if isinstance(callee, tree.Register):
            if self.register_type(callee.name, scope) is None:
                yield self.undeclared(callee, scope, instruction, "the function register")
            targets = match_.value("targets")
            listed = scope.find(targets.operand.name) if targets and isinstance(targets.operand, tree.Symbol) else None
            if not isinstance(listed, tree.Directive):
                yield self.error(f"the indirect call '{instruction}' needs the label of a '.callprototype' "
                                 "or '.calltargets' before it", instruction)
                return
            if listed.name == "callprototype":
                formal_results, formal_arguments = prototype(listed)
                yield from self.check_arguments(results, formal_results, "results", instruction, scope)
                yield from self.check_arguments(arguments, formal_arguments, "arguments", instruction, scope)
            elif listed.name == "calltargets":
                for function in (scope.find(word) for word in listed.words):
                    if isinstance(function, tree.Function):
                        yield from self.check_arguments(results, function.results, f"results of '{function.name}'", instruction, scope)
                        yield from self.check_arguments(arguments, function.parameters, f"arguments of '{function.name}'", instruction, scope)
            else:
                yield self.error(f"'{instruction}' needs the label of a '.callprototype' or '.calltargets', not of a '.{listed.name}'", instruction)
            return
        found = scope.find(callee.name) if isinstance(callee, tree.Symbol) else None
        if not isinstance(found, tree.Function):
            what = f"is {kind_of(found)}" if found else "is not declared"
            yield self.error(f"'{show(callee)}' in 'call' {what}, and must be a function", callee, instruction)
            return
        if match_.value("targets") is not None:
            yield self.error(f"a list of targets is for calls through a register, not for '{found.name}'", instruction)
            return
        if found.kernel:
            yield self.error(f"'{found.name}' is a kernel: kernels are launched, not called", callee, instruction)
            return
        yield from self.check_arguments(results, found.results, f"results of '{found.name}'", instruction, scope)
        yield from self.check_arguments(arguments, found.parameters, f"arguments of '{found.name}'", instruction, scope)

    def check_arguments(self, actual: tuple[tree.Operand, ...], formal: tuple[tree.Variable, ...], what: str,
                        instruction: tree.Instruction, scope: Scope) -> Iterator[PtxError]:
        if len(actual) != len(formal):
            yield self.error(f"{what}: {len(formal)} wanted, {len(actual)} given in '{instruction}'", instruction)
            return
        for operand, parameter in zip(actual, formal, strict=True):
            if isinstance(operand, tree.Register):
                type_ = self.register_type(operand.name, scope)
                if type_ is None:
                    yield self.undeclared(operand, scope, instruction, "the argument")
                elif parameter.dimensions or not (agrees(type_, parameter.type) or agrees(parameter.type, type_)):
                    yield self.error(f"{what}: '{operand.name}' is a .{type_} register, and '{parameter.name}' is .{parameter.type}"
                                     f"{''.join(f'[{n}]' for n in parameter.dimensions)}", operand, instruction)
            elif isinstance(operand, tree.Symbol):
                found = scope.find(operand.name)
                if not isinstance(found, tree.Variable):
                    yield self.error(f"{what}: '{operand.name}' is {kind_of(found) if found else 'not declared'}", operand, instruction)
                elif found.space != "param":
                    yield self.error(f"{what}: '{operand.name}' is in .{found.space}; "
                                     "arguments are registers, constants or .param variables", operand, instruction)
                elif parameter.dimensions and alignment(found) != alignment(parameter):
                    yield self.error(f"{what}: '{operand.name}' is aligned to {alignment(found)} bytes, and '{parameter.name}' to "
                                     f"{alignment(parameter)}", operand, instruction)
                elif (size := size_of(parameter)) is not None and size_of(found) != size:
                    yield self.error(f"{what}: '{operand.name}' has {size_of(found)} bytes, and '{parameter.name}' "
                                     f"{size}", operand, instruction)
                elif not parameter.dimensions and not found.dimensions and not (
                        agrees(found.type, parameter.type) or agrees(parameter.type, found.type)):
                    yield self.error(f"{what}: '{operand.name}' is .{found.type}, and '{parameter.name}' is "
                                     f".{parameter.type}", operand, instruction)


def _elements(value: Value | None) -> tuple[tree.Operand, ...]:
    return value.operand.elements if value is not None and isinstance(value.operand, tree.Arguments) else ()
