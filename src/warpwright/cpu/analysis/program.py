"""A kernel as the compiler works on it: a flat list of basic blocks, with every name resolved.

Scopes, labels and variables are looked up once, here; calls of functions of the same module are inlined; parameters passed between
functions become registers where their accesses allow it. What comes out holds no names that need a scope.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from warpwright.cpu import functions
from warpwright.cpu.analysis import calls, slots, variables
from warpwright.cpu.analysis.variables import Place, Space
from warpwright.errors import PtxError
from warpwright.ptx import isa, tree
from warpwright.ptx.isa import video
from warpwright.ptx.isa.table import TYPE_BITS

# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class Reg:
    """A virtual register; `index` numbers the kernel's registers from 0 (bit positions in liveness sets)."""

    index: int
    name: str
    type: str

    @property
    def bits(self) -> int:
        return TYPE_BITS[self.type]


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal: `value` is an int, or the bits of a floating literal that is `float` bits wide (0: an integer)."""

    value: int
    float: int = 0


@dataclass(frozen=True, slots=True)
class Not:
    """A complemented predicate."""

    reg: Reg


@dataclass(frozen=True, slots=True)
class Addr:
    """`[base + offset]`; base is a Reg, a Place, or None for an absolute address. coordinates: of `[map, {x, y}]`, else ()."""

    base: Reg | Place | None
    offset: int = 0
    coordinates: tuple = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b}`; an element None is a sink."""

    elements: tuple


Arg = Reg | Special | Imm | Not | Addr | Vec | Place | None


@dataclass(slots=True, eq=False)
class Op:
    """An instruction with its operands resolved.

    `args` holds operands by their name in the instruction table, `types` their (type, vector length); an address has the type "".
    `guard` is (predicate, negated).
    `site` indexes `Program.sites`. A sink is None.
    """

    opcode: str
    slots: dict
    args: dict[str, Arg]
    types: dict[str, tuple[str, int | None]]
    guard: tuple[Reg, bool] | None
    site: int
    effects: frozenset[str]
    reads: tuple[Reg, ...] = ()
    writes: tuple[Reg, ...] = ()

    def get(self, slot: str, default=None):
        found = self.slots.get(slot)
        return default if found is None or found is False else found


@dataclass(slots=True, eq=False)
class Block:
    """A basic block. Its end is one of

    * `branch` None, `successors` [next]: goes on; `successors` []: ends the thread,
    * `branch` (predicate, negated), `successors` [taken, next]; EXIT as a successor ends the thread,
    * `switch` a register: the lane goes to successors[register].
    """

    index: int
    ops: list[Op] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    branch: tuple[Reg, bool] | None = None
    switch: Reg | None = None
    site: int = -1


EXIT = -1


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction's place in the source, for faults."""

    line: int | None
    column: int | None
    text: str


@dataclass
class Program:
    """A kernel, flattened. `blocks[0]` is the entry."""

    kernel: str
    blocks: list[Block]
    registers: list[Reg]
    sites: list[Site]
    space: Space


# What an access to all replicas behind a multimem address is where there is one.
MULTIMEM = {"ld_reduce": "ld", "st": "st", "red": "red"}
_TEXTURES = frozenset({"tex", "tld4", "txq", "suq", "suld", "sust", "sured", "istypep"})


# ── flattening ───────────────────────────────────────────────────────────────────────────────────────────────────


def flatten(module: tree.Module, kernel: str) -> Program:
    """The kernel's program. Raises PtxError where the engine cannot run it (calls it cannot inline, unknown names)."""
    function = module.kernels.get(kernel)
    if function is None:
        raise PtxError(f"the module has no kernel '{kernel}'; it has: {', '.join(module.kernels) or 'none'}")
    return _Flattener(module, function).run()


class _Scope:
    """Names of one pair of braces. `ranges` holds `%r<10>` as (prefix, type, count)."""

    def __init__(self, parent: _Scope | None):
        self.parent = parent
        self.names: dict[str, object] = {}
        self.ranges: dict[str, tuple[str, int]] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}


class _Flattener:
    def __init__(self, module: tree.Module, function: tree.Function):
        self.module, self.function = module, function
        self.blocks: list[Block] = []
        self.registers: list[Reg] = []
        self.sites: list[Site] = []
        self.site_of: dict[int, int] = {}
        self.space = Space(module)
        self.graph = calls.Graph(module, function.name)
        self.procedures: dict[str, calls.Procedure] = {}
        self.waiting: list[calls.Procedure] = []  # their bodies are still to be flattened
        self.saves: list[calls.Save] = []
        self.checks: list[Op] = []
        self.owner: calls.Procedure | None = None  # whose code is being flattened; None: the kernel's
        self.owner_of: list[calls.Procedure | None] = []  # by register
        self.slot_owner: dict[str, calls.Procedure | None] = {}
        self.slot_types: dict[str, str] = {}
        self.slot_registers: dict[str, dict[int, Reg]] = {}
        self.stack: Reg | None = None
        self.addresses = functions.addresses(module)
        self._carry: Reg | None = None
        self.current: Block = self.block()

    def run(self) -> Program:
        scope = _Scope(None)
        self.space.add_parameters(self.function)
        for parameter in self.function.parameters:
            scope.names[parameter.name] = self.space.parameters[parameter.name]
        self.body(self.function.body or (), scope, None)
        calls.bodies(self)
        slots.promote(self)
        calls.finish(self)
        return Program(self.function.name, self.blocks, self.registers, self.sites, self.space)

    # blocks and registers

    def block(self) -> Block:
        block = Block(len(self.blocks))
        self.blocks.append(block)
        return block

    def begin(self, block: Block) -> None:
        self.current = block

    def register(self, name: str, type_: str, owner: calls.Procedure | Literal["current"] | None = "current") -> Reg:
        """A new register, of the code being flattened or of the `owner` that is given."""
        reg = Reg(len(self.registers), name, type_)
        self.registers.append(reg)
        self.owner_of.append(self.owner if owner == "current" else owner)
        return reg

    def immediate(self, value: int) -> Imm:
        return Imm(value)

    def slot(self, variable: tree.Variable) -> Place:
        """A place for a parameter between functions."""
        place = self.space.slot(variable)
        self.slot_owner[place.name], self.slot_types[place.name] = self.owner, variable.type
        return place

    def spill_slot(self, name: str) -> None:
        """Give a slot a place in local memory: in its function's frame if it needs one for each activation."""
        owner = self.slot_owner[name]
        if owner is not None and owner.recursive:
            self.space.places[name] = calls.in_frame(owner, name, *self.space.slots[name])
        else:
            self.space.spill_slot(name)

    def spilled(self, place: Place) -> Place:
        return self.space.spilled(place)

    def made(self, opcode: str, slots_: dict, operands: dict[str, tuple[Arg, str]], site: int, guard=None) -> Op:
        """An instruction of ours: operands by name with their types; those named d are written."""
        op = Op(opcode, slots_, {name: arg for name, (arg, _) in operands.items()}, {name: (type_, None) for name, (_, type_) in operands.items()},
                guard, site, frozenset())
        self.set_uses(op, {name: (name != "d", name == "d") for name in operands})
        return op

    def guard(self, op: Op, guard: tuple[Reg, bool]) -> None:
        op.guard = guard
        op.reads = (*op.reads, guard[0])

    def carry(self) -> Reg:
        """The condition code's carry bit, a register of its own."""
        if self._carry is None:
            self._carry = self.register("CC.CF", "pred")
        return self._carry

    def fail(self, message: str, position: tree.Position | None = None) -> NoReturn:
        line, column = (position.line, position.column) if position else (None, None)
        raise PtxError(message, line, column, self.module.file)

    # statements

    def body(self, statements, scope: _Scope, leave: Block | None) -> None:
        """Flatten statements into the current block; `leave` is where `ret` goes (None: it ends the thread)."""
        for statement in statements:
            if isinstance(statement, tree.Label):
                scope.labels[statement.name] = self.block().index
            elif isinstance(statement, tree.Directive) and statement.label and statement.name in ("branchtargets", "calltargets"):
                scope.tables[statement.label] = tuple(word for word in statement.words if word not in (",", ";"))
        for statement in statements:
            match statement:
                case tree.Instruction():
                    self.instruction(statement, scope, leave)
                case tree.Label(name=name):
                    block = self.blocks[scope.labels[name]]
                    self.current.successors = self.current.successors or [block.index]
                    self.begin(block)
                case tree.RegisterDeclaration():
                    self.declare(statement, scope)
                case tree.Variable():
                    for name in variables.names_of(statement):
                        if statement.space == "param":
                            scope.names[name] = self.slot(statement)
                        elif statement.space == "reg":
                            scope.names[name] = self.register(name, statement.type)
                        else:
                            scope.names[name] = calls.local_place(self, statement, name) or self.space.local_variable(statement, name)
                case tree.Block(statements=inner):
                    self.body(inner, _Scope(scope), leave)
                case tree.Directive():
                    pass
        if scope.parent is None and leave is not None:
            self.current.successors = self.current.successors or [leave.index]

    def declare(self, statement: tree.RegisterDeclaration, scope: _Scope) -> None:
        if statement.count is not None:
            scope.ranges[statement.name] = (statement.type, statement.count)
        elif statement.vector:
            parts = tuple(self.register(f"{statement.name}.{c}", statement.type) for c in "xyzw"[:statement.vector])
            scope.names[statement.name] = Vec(parts)
        else:
            scope.names[statement.name] = self.register(statement.name, statement.type)

    def find(self, name: str, scope: _Scope | None):
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            if scope.ranges:
                stem = re.match(r"(.*?)(0|[1-9][0-9]*)$", name)
                digits = len(stem.group(2)) if stem else 0
                for cut in range(1, digits + 1):
                    prefix, number = name[:-cut], name[-cut:]
                    if prefix in scope.ranges and (number == "0" or number[0] != "0") and int(number) < scope.ranges[prefix][1]:
                        scope.names[name] = self.register(name, scope.ranges[prefix][0])
                        return scope.names[name]
            scope = scope.parent
        return self.space.module_variable(name)

    def label(self, name: str, scope: _Scope | None, position) -> int:
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return self.fail(f"there is no label '{name}'", position)

    def table(self, name: str, scope: _Scope | None) -> tuple[str, ...] | None:
        """The words of the `.branchtargets` or `.calltargets` list of a name; None for a prototype, or where there is none."""
        while scope is not None and name not in scope.tables:
            scope = scope.parent
        return scope.tables[name] if scope else None

    def site(self, instruction: tree.Instruction) -> int:
        key = id(instruction)
        if key not in self.site_of:
            position = instruction.position
            self.site_of[key] = len(self.sites)
            self.sites.append(Site(position.line if position else None, position.column if position else None, _Lazy(instruction)))  # type: ignore[arg-type]
        return self.site_of[key]

    # operands

    def resolve(self, operand, scope: _Scope) -> Arg:
        match operand:
            case tree.Register(name=name):
                found = self.find(name, scope)
                if found is None:
                    if name in isa.special.SPECIAL or name in isa.special.VECTORS:
                        return Special(name)
                    self.fail(f"register '{name}' is not declared", operand.position)
                return found
            case tree.Integer(value=value):
                return Imm(value)
            case tree.Float(bits=bits, width=width):
                return Imm(bits, width)
            case tree.Negated(operand=inner):
                return Not(self.resolve(inner, scope))  # type: ignore[arg-type]
            case tree.Symbol(name=name, offset=offset):
                found = self.find(name, scope)
                if isinstance(found, Place):
                    return found.moved(offset)
                if isinstance(found, (Reg, Vec)):
                    return found
                if found is None and name in self.addresses:
                    return Imm(self.addresses[name])
                return self.fail(f"'{name}' is not declared", operand.position)
            case tree.Component(operand=inner, name=part):
                whole = self.resolve(inner, scope)
                if isinstance(inner, tree.Register) and inner.name + "." + part in isa.special.SPECIAL:
                    return Special(inner.name + "." + part)
                if isinstance(whole, Vec):
                    return whole.elements["xyzw".index({"r": "x", "g": "y", "b": "z", "a": "w"}.get(part, part))]
                return self.fail(f"the engine does not know the selector '.{part}'", operand.position)
            case tree.Vector(elements=elements):
                return Vec(tuple(self.resolve(element, scope) for element in elements))
            case tree.Sink() | None:
                return None
            case tree.Address(base=base, offset=offset, coordinates=tree.Vector(elements=elements), more=()):
                plain = self.resolve(tree.Address(base, offset, None, (), operand.position), scope)
                return replace(plain, coordinates=tuple(self.resolve(element, scope) for element in elements))  # type: ignore[type-var]
            case tree.Address(base=base, offset=offset, coordinates=None, more=()):
                if base is None:
                    return Addr(None, offset)
                if isinstance(base, tree.Integer):
                    return Addr(None, base.value + offset)
                inside = self.resolve(base, scope)
                if isinstance(inside, Place):
                    return Addr(inside.moved(offset), 0)
                return Addr(inside, offset)  # type: ignore[arg-type]
            case _:
                return self.fail("the engine cannot run an instruction with this operand", getattr(operand, "position", None))

    # instructions

    def instruction(self, instruction: tree.Instruction, scope: _Scope, leave: Block | None) -> None:
        guard = None
        if instruction.guard is not None:
            guard = (self.find(instruction.guard.register.name, scope), instruction.guard.negated)
            if guard[0] is None:
                self.fail(f"predicate '{instruction.guard.register.name}' is not declared", instruction.position)
        if self.current.successors or self.current.branch:  # unreachable code after a jump
            self.begin(self.block())
        opcode = instruction.opcode
        if opcode in ("bra", "ret", "exit"):
            target = EXIT
            if opcode == "bra":
                target = self.label(_name(instruction.operands[0]), scope, instruction.position)
            elif opcode == "ret" and leave is not None:
                target = leave.index
            self.jump(guard, target, instruction)
        elif opcode == "brx":
            self.brx(instruction, guard, scope)
        elif opcode == "call":
            calls.call(self, instruction, guard, scope)
        elif opcode in ("alloca", "stacksave", "stackrestore"):
            calls.on_stack(self, instruction, guard, scope)
        else:
            self.current.ops.append(self.op(instruction, guard, scope))

    def jump(self, guard, target: int, instruction: tree.Instruction) -> None:
        here = self.current
        here.site = self.site(instruction)
        if guard is None:
            here.successors = [target]
            self.begin(self.block())
        else:
            after = self.block()
            here.branch, here.successors = guard, [target, after.index]
            self.begin(after)

    def brx(self, instruction, guard, scope) -> None:
        here = self.current
        if guard is not None:
            switch, after = self.block(), self.block()
            here.branch, here.successors = guard, [switch.index, after.index]
            self.begin(switch)
            here = switch
        else:
            after = self.block()
        index, table = instruction.operands[0], _name(instruction.operands[1])
        listed = self.table(table, scope)
        if listed is None:
            self.fail(f"there is no '.branchtargets' list '{table}'", instruction.position)
        register = self.resolve(index, scope)
        here.site, here.switch = self.site(instruction), register  # type: ignore[assignment]
        here.successors = [self.label(name, scope, instruction.position) for name in listed]
        self.begin(after)

    def op(self, instruction: tree.Instruction, guard, scope: _Scope) -> Op:
        try:
            found = isa.match(instruction)
        except PtxError as error:
            raise PtxError(error.message, error.line, error.column, self.module.file) from None
        if instruction.opcode in _TEXTURES:
            self.fail(f"the virtual GPU has no textures and surfaces: it cannot run '{instruction.mnemonic}'", instruction.position)
        if not found.form.runs:
            self.fail(f"the virtual GPU does not run '{instruction.mnemonic}'", instruction.position)
        args: dict[str, Arg] = {}
        types: dict[str, tuple[str, int | None]] = {}
        slots, selected = found.slots, video.parts(found) if instruction.opcode in video.OPCODES else {}
        if selected:  # the selectors of parts and the signs stand beside the operands
            slots = slots | {"parts": selected}
        for value in found.values:
            args[value.name] = self.resolve(selected[value.name].operand if selected else value.operand, scope)
            types[value.name] = (value.type or "", value.length)
        access = {value.name: (value.read, value.written) for value in found.values}
        if found.get("cc"):
            args["carry_out"], types["carry_out"], access["carry_out"] = self.carry(), ("pred", None), (False, True)
        if instruction.opcode in ("addc", "subc", "madc"):
            args["carry_in"], types["carry_in"], access["carry_in"] = self.carry(), ("pred", None), (True, False)
        opcode, effects = instruction.opcode, found.entry.effects
        if opcode == "multimem":  # this machine is one device, so a multimem address has one replica
            opcode = MULTIMEM[slots["action"]]
            slots, effects = slots | {"space": "global"}, isa.TABLE[opcode].effects
        op = Op(opcode, slots, args, types, guard, self.site(instruction), effects)
        self.set_uses(op, access)
        return op

    def set_uses(self, op: Op, access: dict[str, tuple[bool, bool]]) -> None:
        reads, writes = [], []
        for name, (read, written) in access.items():
            arg = op.args[name]
            if isinstance(arg, Addr):
                reads += registers_of(arg)
                continue
            if written:
                writes += registers_of(arg)
            if read:
                reads += registers_of(arg)
        if op.guard:
            reads.append(op.guard[0])
        op.reads, op.writes = tuple(reads), tuple(writes)

    def move(self, target: Reg, source: Arg, type_: str, site: int) -> None:
        """Append `mov target, source`."""
        op = Op("mov", {"T": type_}, {"d": target, "a": source}, {"d": (type_, None), "a": (type_, None)}, None, site, frozenset())
        self.set_uses(op, {"d": (False, True), "a": (True, False)})
        self.current.ops.append(op)

    # calls

    def inline(self, instruction, function: tree.Function, arguments: list[Arg], results: list[Arg]) -> None:
        """A copy of a function's body in place of a call."""
        site, inner = self.site(instruction), _Scope(None)
        copies: list[tuple[Arg, Arg]] = []
        for formal, given in zip((*function.parameters, *function.results), (*arguments, *results), strict=True):
            result = formal in function.results
            if formal.space == "param" and isinstance(given, Place) and given.space == "slot":
                inner.names[formal.name] = given
                continue
            place = self.slot(formal) if formal.space == "param" else self.register(formal.name, formal.type)
            inner.names[formal.name] = place
            if result:
                copies.append((given, place))
            else:
                calls.transfer(self, place, given, site)
        leave = self.block()
        frees = function.name in self.graph.allocates
        kept = self.register("stack kept", "u64")
        if frees:
            self.move(kept, calls.stack_pointer(self), "u64", site)
        self.body(function.body or (), inner, leave)
        self.begin(leave)
        if frees:
            self.move(calls.stack_pointer(self), kept, "u64", site)
        for target, source in copies:
            calls.transfer(self, target, source, site)


class _Lazy:
    """An instruction's text, printed when it is asked for (a fault is rare)."""

    def __init__(self, instruction: tree.Instruction):
        self.instruction = instruction

    def __str__(self) -> str:
        return str(self.instruction)


def _name(operand) -> str:
    if isinstance(operand, (tree.Symbol, tree.Register)):
        return operand.name
    raise PtxError("a branch needs a label")


def registers_of(arg: Arg) -> list[Reg]:
    """Every register in an operand, those of its address too."""
    if isinstance(arg, Reg):
        return [arg]
    if isinstance(arg, Not):
        return [arg.reg]
    if isinstance(arg, Vec):
        return [reg for element in arg.elements for reg in registers_of(element)]
    if isinstance(arg, Addr):
        return [reg for part in (arg.base, *arg.coordinates) for reg in registers_of(part)]
    return []
