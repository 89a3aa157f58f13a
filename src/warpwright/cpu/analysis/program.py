"""A kernel as the compiler works on it: a flat list of basic blocks, with every name resolved.

Scopes, labels and variables are looked up once, here; calls of functions of the same module are inlined; parameters passed between
functions become registers where their accesses allow it. What comes out holds no names that need a scope.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

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
    """`[base + offset]`; base is a Reg, a Place, or None for an absolute address."""

    base: Reg | Place | None
    offset: int = 0


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
        self.calls: list[str] = []
        self._carry: Reg | None = None
        self.current: Block = self.block()

    def run(self) -> Program:
        scope = _Scope(None)
        self.space.add_parameters(self.function)
        for parameter in self.function.parameters:
            scope.names[parameter.name] = self.space.parameters[parameter.name]
        self.body(self.function.body or (), scope, None)
        self.promote_slots()
        return Program(self.function.name, self.blocks, self.registers, self.sites, self.space)

    # blocks and registers

    def block(self) -> Block:
        block = Block(len(self.blocks))
        self.blocks.append(block)
        return block

    def begin(self, block: Block) -> None:
        self.current = block

    def register(self, name: str, type_: str) -> Reg:
        reg = Reg(len(self.registers), name, type_)
        self.registers.append(reg)
        return reg

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
            elif isinstance(statement, tree.Directive) and statement.label:
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
                    for name, place in self.space.local_variable(statement):
                        scope.names[name] = place
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
                    if name in isa.special.SPECIAL:
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
            self.call(instruction, guard, scope)
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
        found: _Scope | None = scope
        while found is not None and table not in found.tables:
            found = found.parent
        if found is None:
            self.fail(f"there is no '.branchtargets' list '{table}'", instruction.position)
        register = self.resolve(index, scope)
        here.site, here.switch = self.site(instruction), register  # type: ignore[assignment]
        here.successors = [self.label(name, scope, instruction.position) for name in found.tables[table]]
        self.begin(after)

    def op(self, instruction: tree.Instruction, guard, scope: _Scope) -> Op:
        try:
            found = isa.match(instruction)
        except PtxError as error:
            raise PtxError(error.message, error.line, error.column, self.module.file) from None
        if instruction.opcode in _TEXTURES:
            self.fail(f"the virtual GPU has no textures and surfaces: it cannot run '{instruction.mnemonic}'", instruction.position)
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

    def call(self, instruction: tree.Instruction, guard, scope: _Scope) -> None:
        operands = list(instruction.operands)
        results: tuple = ()
        if isinstance(operands[0], tree.Arguments):
            results, operands = operands[0].elements, operands[1:]
        target = operands.pop(0)
        arguments = operands[0].elements if operands and isinstance(operands[0], tree.Arguments) else ()
        if not isinstance(target, tree.Symbol):
            self.fail("the engine cannot run an indirect call; call the function by name", instruction.position)
        after = None
        if guard is not None:
            inside, after = self.block(), self.block()
            self.current.branch, self.current.successors = guard, [inside.index, after.index]
            self.current.site = self.site(instruction)
            self.begin(inside)
        if target.name == "__assertfail":
            op = Op("assertfail", {}, {}, {}, None, self.site(instruction), frozenset())
            self.current.ops.append(op)
        else:
            self.inline(instruction, target.name, results, arguments, scope)
        if after is not None:
            self.current.successors = self.current.successors or [after.index]
            self.begin(after)

    def inline(self, instruction, name: str, results, arguments, scope: _Scope) -> None:
        function = self.module.functions.get(name)
        if function is None or function.body is None:
            self.fail(f"the engine cannot call '{name}': the module has no body for it", instruction.position)
        if name in self.calls or name == self.function.name:
            self.fail(f"the engine cannot run the recursive call of '{name}'; write it as a loop", instruction.position)
        if len(arguments) != len(function.parameters) or len(results) != len(function.results):
            self.fail(f"the call of '{name}' has {len(arguments)} arguments and {len(results)} results; the function has "
                      f"{len(function.parameters)} and {len(function.results)}", instruction.position)
        site = self.site(instruction)
        inner = _Scope(None)
        copies: list[tuple[bool, Op | tuple[Reg, Arg, str]]] = []
        for formal, actual in zip((*function.parameters, *function.results), (*arguments, *results), strict=True):
            given = self.resolve(actual, scope)
            result = formal in function.results
            if formal.space == "param" and isinstance(given, Place):
                inner.names[formal.name] = given
            elif formal.space == "param":
                slot = self.space.slot(formal)
                inner.names[formal.name] = slot
                op = Op("ld" if result else "st", {"space": "param", "T": formal.type}, {"d" if result else "b": given, "a": Addr(slot)},
                        {"d" if result else "b": (formal.type, None)}, None, site, frozenset())
                self.set_uses(op, {"d": (False, True)} if result else {"b": (True, False)})
                copies.append((result, op))
            else:
                register = self.register(formal.name, formal.type)
                inner.names[formal.name] = register
                if result:
                    copies.append((True, (given, register, formal.type)))  # type: ignore[arg-type]
                else:
                    self.move(register, given, formal.type, site)
        for result, copied in copies:
            if not result and isinstance(copied, Op):
                self.current.ops.append(copied)
        leave = self.block()
        self.calls.append(name)
        self.body(function.body, inner, leave)
        self.calls.pop()
        self.begin(leave)
        for result, copied in copies:
            if isinstance(copied, tuple):
                self.move(*copied, site)
            elif result:
                self.current.ops.append(copied)

    def promote_slots(self) -> None:
        """Turn `.param` slots between functions into registers where every access to a byte has the same place and width, else into local memory."""
        accesses: dict[str, list[tuple[Block, int, Op]]] = {}
        for block in self.blocks:
            for i, op in enumerate(block.ops):
                for arg in op.args.values():
                    inside = arg.base if isinstance(arg, Addr) else arg
                    if isinstance(inside, Place) and inside.space == "slot":
                        accesses.setdefault(inside.name, []).append((block, i, op))
        for name, uses in accesses.items():
            ranges: set[tuple[int, int]] = set()
            plain = True
            for _, _, op in uses:
                if op.opcode not in ("ld", "st") or not isinstance(op.args.get("a"), Addr):
                    plain = False
                    break
                type_, length = op.types["d" if op.opcode == "ld" else "b"]
                size = max(1, TYPE_BITS[type_] // 8)
                start = op.args["a"].base.offset + op.args["a"].offset  # type: ignore[union-attr]
                ranges |= {(start + k * size, size) for k in range(length or 1)}
            ordered = sorted(ranges)
            plain = plain and all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
            if plain:
                registers = {start: self.register(f"{name}+{start}", f"b{8 * size}") for start, size in ordered}
                for block, i, op in uses:
                    block.ops[i] = self.slot_move(op, registers)
            else:
                self.space.spill_slot(name)
                for _, _, op in uses:
                    for key, arg in op.args.items():
                        if isinstance(arg, Addr) and isinstance(arg.base, Place) and arg.base.space == "slot":
                            op.args[key] = Addr(self.space.spilled(arg.base), arg.offset)
                            op.slots = {**op.slots, "space": "local"}
                        elif isinstance(arg, Place) and arg.space == "slot":
                            op.args[key] = self.space.spilled(arg)
        for block in self.blocks:
            if any(isinstance(op, list) for op in block.ops):
                block.ops = [single for op in block.ops for single in (op if isinstance(op, list) else [op])]

    def slot_move(self, op: Op, registers: dict[int, Reg]):
        """An access to a promoted slot as moves (a list, to be spliced)."""
        key = "d" if op.opcode == "ld" else "b"
        type_ = op.types[key][0]
        size = max(1, TYPE_BITS[type_] // 8)
        start = op.args["a"].base.offset + op.args["a"].offset  # type: ignore[union-attr]
        arg = op.args[key]
        parts = arg.elements if isinstance(arg, Vec) else (arg,)
        moves = []
        for k, part in enumerate(parts):
            slot = registers[start + k * size]
            target, source = (part, slot) if key == "d" else (slot, part)
            if target is None:
                continue
            kind = type_
            new = Op("slotmov", {"T": kind}, {"d": target, "a": source}, {"d": (kind, None), "a": (kind, None)}, op.guard, op.site, frozenset())
            self.set_uses(new, {"d": (False, True), "a": (True, False)})
            moves.append(new)
        return moves


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
    if isinstance(arg, Addr) and isinstance(arg.base, Reg):
        return [arg.base]
    return []
