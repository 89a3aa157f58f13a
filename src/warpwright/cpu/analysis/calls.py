"""Calls: inlined where that is small, else jumps to a body that the kernel holds once.

A function that is recursive, called through a pointer, or too large to copy is a *procedure*: its blocks stand in the kernel's graph, a call
goes to its first block with the number of the call in a register, and its end is a switch on that register back to the calls. Nothing else
in the engine knows of calls. A recursive procedure has a frame on the thread's stack, in local memory above all variables; a call that may
come back to its own caller stores the caller's live registers there first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from warpwright.cpu import functions
from warpwright.cpu.analysis.slots import is_slot
from warpwright.cpu.analysis.variables import Place, layout_align, layout_size
from warpwright.ptx import tree

if TYPE_CHECKING:
    from warpwright.cpu.analysis.program import Arg, Block, Op, Reg, _Flattener, _Scope

SMALL = 64  # instructions, those of its callees too, up to which a function is always inlined (unless it is recursive)
MOST = 6000  # instructions up to which a kernel is inlined as a whole

BUILTINS = {"__assertfail": "assertfail", "vprintf": "printf", "malloc": "malloc", "free": "free"}  # name → opcode


class Graph:
    """Which functions call which. `taken`: those whose address the module takes."""

    def __init__(self, module: tree.Module, kernel: str):
        self.functions, self.aliases = module.functions, functions.aliases(module)
        self.direct: dict[str, list[str]] = {}
        self.size: dict[str, int] = {}
        self.indirect: set[str] = set()
        self.allocates: set[str] = set()
        self.taken: set[str] = set()
        for item in module.items:
            if isinstance(item, tree.Variable) and item.initializer is not None:
                self._take(item.initializer)
        for name, function in self.functions.items():
            if function.body is not None:
                self._read(name, function)
        self.reach = {name: self._reached(name) for name in self._reached(kernel) | {kernel}}
        self._expanded: dict[str, int] = {}
        self.whole = self.expanded(kernel)

    def _take(self, value) -> None:
        match value:
            case tuple():
                for part in value:
                    self._take(part)
            case tree.Symbol(name=name):
                name = self.aliases.get(name, name)
                if name in self.functions:
                    self.taken.add(name)
            case tree.Generic(symbol=symbol):
                self._take(symbol)

    def _read(self, name: str, function: tree.Function) -> None:
        calls, count = [], 0
        for instruction in function.instructions():
            count += 1
            if instruction.opcode == "call":
                target = next(operand for operand in instruction.operands if not isinstance(operand, tree.Arguments))
                if isinstance(target, tree.Symbol):
                    calls.append(self.aliases.get(target.name, target.name))
                else:
                    self.indirect.add(name)
            elif instruction.opcode == "mov":
                for operand in instruction.operands:
                    self._take(operand)
            elif instruction.opcode in ("alloca", "stackrestore"):
                self.allocates.add(name)
        self.direct[name], self.size[name] = calls, count

    def callees(self, name: str) -> set[str]:
        found = {callee for callee in self.direct.get(name, ()) if callee in self.direct}
        return found | {callee for callee in self.taken if callee in self.direct} if name in self.indirect else found

    def _reached(self, name: str) -> set[str]:
        found: set[str] = set()
        stack = [name]
        while stack:
            for callee in self.callees(stack.pop()):
                if callee not in found:
                    found.add(callee)
                    stack.append(callee)
        return found

    def recursive(self, name: str) -> bool:
        return name in self.reach[name]

    def together(self, a: str, b: str) -> bool:
        """Whether a call of b by a may come back to a."""
        return b == a or (b in self.reach[a] and a in self.reach[b])

    def expanded(self, name: str) -> int:
        """Instructions of a function with all that can be inlined into it."""
        if name not in self._expanded:
            order, stack = [], [name]
            while stack:  # callees first
                here = stack.pop()
                order.append(here)
                stack += [c for c in self.callees(here) if c not in self._expanded and not self.recursive(c)]
            for here in reversed(order):
                calls = (c for c in self.direct.get(here, ()) if c in self.direct)
                self._expanded[here] = self.size.get(here, 1) + sum(8 if self.recursive(c) else self._expanded[c] for c in calls)
        return self._expanded[name]

    def procedure(self, name: str) -> bool:
        """Whether a direct call of a function is a jump to its one body, not a copy of it."""
        return self.recursive(name) or (self.whole > MOST and self.expanded(name) > SMALL)


@dataclass(eq=False)
class Procedure:
    """A function that stands in the kernel's graph once.

    parameters, results: where a call passes them; the function copies them to and from places of its own. number: the register with the
    number of the call to return to, an index in `returns`. frame: bytes on the stack; base: the register that says where they begin.
    """

    function: tree.Function
    entry: Block
    leave: Block
    parameters: list[Reg | Place]
    results: list[Reg | Place]
    number: Reg
    base: Reg
    recursive: bool
    site: int
    returns: list[int] = field(default_factory=list)
    frame: int = 0


@dataclass(frozen=True)
class Save:
    """A call that may come back to its caller, whose registers are stored at the end of one block, before the call's number is passed, and
    loaded at the start of another."""

    owner: Procedure
    before: Block
    after: Block
    site: int


# ── call instructions ────────────────────────────────────────────────────────────────────────────────────────────


def call(f: _Flattener, instruction: tree.Instruction, guard, scope: _Scope) -> None:
    operands = list(instruction.operands)
    given_results: tuple = ()
    if isinstance(operands[0], tree.Arguments):
        given_results, operands = operands[0].elements, operands[1:]
    target = operands.pop(0)
    given_arguments: tuple = ()
    if operands and isinstance(operands[0], tree.Arguments):
        given_arguments, operands = operands[0].elements, operands[1:]
    after = None
    if guard is not None:
        inside, after = f.block(), f.block()
        f.current.branch, f.current.successors = guard, [inside.index, after.index]
        f.current.site = f.site(instruction)
        f.begin(inside)
    arguments = [f.resolve(given, scope) for given in given_arguments]
    results = [f.resolve(given, scope) for given in given_results]
    name = f.graph.aliases.get(target.name, target.name) if isinstance(target, tree.Symbol) else None
    if isinstance(target, tree.Symbol) and name not in f.module.functions and f.find(target.name, scope) is not None:
        name = None
    if name is None:
        listed = f.table(operands[0].name, scope) if operands and isinstance(operands[0], tree.Symbol) else None
        indirect(f, instruction, f.resolve(target, scope), listed, arguments, results)
    else:
        direct(f, instruction, name, arguments, results)
    if after is not None:
        f.current.successors = f.current.successors or [after.index]
        f.begin(after)


def direct(f: _Flattener, instruction, name: str, arguments: list[Arg], results: list[Arg]) -> None:
    function = f.module.functions.get(name)
    if function is None or function.body is None:
        if name not in BUILTINS:
            f.fail(f"the engine cannot call '{name}': the module has no body for it", instruction.position)
        builtin(f, instruction, name, arguments, results)
        return
    if len(arguments) != len(function.parameters) or len(results) != len(function.results):
        f.fail(f"the call of '{name}' has {len(arguments)} arguments and {len(results)} results; the function has "
               f"{len(function.parameters)} and {len(function.results)}", instruction.position)
    if f.graph.procedure(name):
        enter(f, procedure(f, name), arguments, results, f.site(instruction))
    else:
        f.inline(instruction, function, arguments, results)


def builtin(f: _Flattener, instruction, name: str, arguments: list[Arg], results: list[Arg]) -> None:
    """A function of the CUDA runtime that the engine itself has, as an instruction on registers."""
    from warpwright.cpu.analysis.program import Reg

    site, values = f.site(instruction), {}
    for i, given in enumerate(arguments):
        if is_slot(given):
            type_ = f"b{8 * min(8, given.size)}"  # type: ignore[union-attr]
            value = f.register(f"{name}.{i}", type_)
            transfer(f, value, given, site)
            given = value
        values["abcef"[i]] = (given, given.type if isinstance(given, Reg) else "b64")
    result = None
    if results:
        result = f.register(name, "b64" if name == "malloc" else "b32")
        values["d"] = (result, result.type)
    f.current.ops.append(f.made(BUILTINS[name], {}, values, site))
    if result is not None:
        transfer(f, results[0], result, site)


def indirect(f: _Flattener, instruction, pointer: Arg, listed: tuple[str, ...] | None, arguments: list[Arg], results: list[Arg]) -> None:
    """Compare the pointer with the address of each function that it may be."""
    site = f.site(instruction)
    known = functions.addresses(f.module)
    names = [f.graph.aliases.get(name, name) for name in listed] if listed else sorted(f.graph.taken)
    join = f.block()
    for name in names:
        function = f.module.functions.get(name)
        if function is None or function.body is None or len(function.parameters) != len(arguments) or len(function.results) != len(results):
            continue
        same = f.register("callee", "pred")
        operands = {"d": (same, "pred"), "a": (pointer, "u64"), "b": (f.immediate(known[name]), "u64")}
        f.current.ops.append(f.made("setp", {"cmp": "eq", "T": "u64"}, operands, site))  # type: ignore[arg-type]
        inside, on = f.block(), f.block()
        f.current.branch, f.current.successors, f.current.site = (same, False), [inside.index, on.index], site
        f.begin(inside)
        enter(f, procedure(f, name), arguments, results, site)
        f.current.successors = [join.index]
        f.begin(on)
    f.current.ops.append(f.made("badcall", {}, {"a": (pointer, "u64")}, site))
    f.current.successors = [join.index]
    f.begin(join)


def transfer(f: _Flattener, target: Arg, source: Arg, site: int) -> None:
    """Copy a value between registers and slots."""
    from warpwright.cpu.analysis.program import Addr, Reg

    if is_slot(target) and is_slot(source):
        op = f.made("slotcopy", {}, {"d": (target, ""), "a": (source, "")}, site)
    elif is_slot(source):
        assert isinstance(target, Reg)
        op = f.made("ld", {"space": "param", "T": target.type}, {"d": (target, target.type), "a": (Addr(source), "")}, site)  # type: ignore[arg-type]
    elif is_slot(target):
        type_ = f.slot_types[target.name]  # type: ignore[union-attr]
        op = f.made("st", {"space": "param", "T": type_}, {"a": (Addr(target), ""), "b": (source, type_)}, site)  # type: ignore[arg-type]
    elif target is None:
        return
    else:
        type_ = target.type  # type: ignore[union-attr]
        op = f.made("mov", {"T": type_}, {"d": (target, type_), "a": (source, type_)}, site)
    f.current.ops.append(op)


# ── procedures ───────────────────────────────────────────────────────────────────────────────────────────────────


def procedure(f: _Flattener, name: str) -> Procedure:
    """The one body of a function; its blocks are filled later, by `bodies`."""
    if name not in f.procedures:
        from warpwright.cpu.analysis.program import Site

        function = f.module.functions[name]
        position = function.position
        f.sites.append(Site(position.line if position else None, position.column if position else None, f".func {name}"))
        made = f.procedures[name] = Procedure(function, f.block(), f.block(), [], [], f.register(f"{name}.call", "u32"),
                                              f.register(f"{name}.frame", "u64"), f.graph.recursive(name), len(f.sites) - 1)
        f.owner_of[made.number.index] = f.owner_of[made.base.index] = made
        f.waiting.append(made)
        outer, f.owner = f.owner, None
        for formals, places in ((function.parameters, made.parameters), (function.results, made.results)):
            places += [place_of(f, formal) for formal in formals]
        f.owner = outer
    return f.procedures[name]


def enter(f: _Flattener, called: Procedure, arguments: list[Arg], results: list[Arg], site: int) -> None:
    """A call of a procedure."""
    caller = f.owner
    for formal, given in zip(called.parameters, arguments, strict=True):
        transfer(f, formal, given, site)
    f.move(called.number, f.immediate(len(called.returns)), "u32", site)
    before = f.current
    before.successors, before.site = [called.entry.index], site
    f.begin(f.block())
    called.returns.append(f.current.index)
    if caller is not None and f.graph.together(caller.function.name, called.function.name):
        f.saves.append(Save(caller, before, f.current, site))
    for given, source in zip(results, called.results, strict=True):
        transfer(f, given, source, site)


def place_of(f: _Flattener, formal: tree.Variable) -> Reg | Place:
    return f.slot(formal) if formal.space == "param" else f.register(formal.name, formal.type)


def bodies(f: _Flattener) -> None:
    """Flatten the procedures that calls have asked for."""
    from warpwright.cpu.analysis.program import _Scope

    while f.waiting:
        f.owner = made = f.waiting.pop()
        scope = _Scope(None)
        for formal in (*made.function.parameters, *made.function.results):
            scope.names[formal.name] = place_of(f, formal)
        f.begin(made.entry)
        for formal, passed in zip(made.function.parameters, made.parameters, strict=True):
            transfer(f, scope.names[formal.name], passed, made.site)  # type: ignore[arg-type]
        f.body(made.function.body or (), scope, made.leave)
        f.begin(made.leave)
        for formal, passed in zip(made.function.results, made.results, strict=True):
            transfer(f, passed, scope.names[formal.name], made.site)  # type: ignore[arg-type]
    f.owner = None


def local_place(f: _Flattener, variable: tree.Variable, name: str) -> Place | None:
    """A place in the current procedure's frame for a `.local` variable, if it needs one for each activation."""
    if f.owner is None or not f.owner.recursive or variable.space != "local":
        return None
    return in_frame(f.owner, name, layout_size(variable), layout_align(variable))


def in_frame(owner: Procedure, name: str, size: int, align: int) -> Place:
    offset = -(-owner.frame // align) * align
    owner.frame = offset + size
    return Place("frame", owner.function.name, offset, size, align)


# ── the stack ────────────────────────────────────────────────────────────────────────────────────────────────────


def stack_pointer(f: _Flattener) -> Reg:
    """The register that says where the thread's stack ends, in bytes of its local memory; always a multiple of 16."""
    if f.stack is None:
        f.stack = f.register("stack", "u64", None)
    return f.stack


def arithmetic(f: _Flattener, opcode: str, d: Reg, a: Arg, b: Arg, site: int) -> Op:
    return f.made(opcode, {"T": "b64" if opcode == "and" else "u64"}, {"d": (d, "u64"), "a": (a, "u64"), "b": (b, "u64")}, site)


def check(f: _Flattener, site: int) -> Op:
    """Stop with a fault if the stack is full. The limit is filled in by `finish`."""
    op = f.made("stackcheck", {}, {"a": (stack_pointer(f), "u64"), "b": (None, "u64")}, site)
    f.checks.append(op)
    return op


def on_stack(f: _Flattener, instruction: tree.Instruction, guard, scope: _Scope) -> None:
    """alloca, stacksave, stackrestore."""
    op = f.op(instruction, guard, scope)
    top, site = stack_pointer(f), op.site
    value = op.args.get("a")
    match instruction.opcode:
        case "stacksave":
            made = [f.made("mov", {"T": "u64"}, {"d": (op.args["d"], "u64"), "a": (top, "u64")}, site)]
        case "stackrestore":
            made = [arithmetic(f, "and", top, value, f.immediate(-16), site), check(f, site)]
        case _:
            align = max(16, op.args["b"].value if op.args.get("b") is not None else 8)  # type: ignore[union-attr]
            size = f.register("bytes", "u64")
            made = [arithmetic(f, "min", size, value, f.immediate(1 << 40), site)]
            if align > 16:
                made += [arithmetic(f, "add", top, top, f.immediate(align - 1), site), arithmetic(f, "and", top, top, f.immediate(-align), site)]
            made += [f.made("mov", {"T": "u64"}, {"d": (op.args["d"], "u64"), "a": (top, "u64")}, site),
                     arithmetic(f, "add", size, size, f.immediate(15), site), arithmetic(f, "and", size, size, f.immediate(-16), site),
                     arithmetic(f, "add", top, top, size, site), check(f, site)]
    for one in made:
        if guard is not None:
            f.guard(one, guard)
        f.current.ops.append(one)


def finish(f: _Flattener) -> None:
    """Returns, frames and saved registers, once all code is there and slots are gone."""
    _address_frames(f)
    for made in f.procedures.values():
        size = -(-made.frame // 16) * 16
        if (made.recursive and size) or made.function.name in f.graph.allocates:
            top = stack_pointer(f)
            made.entry.ops[:0] = [f.made("mov", {"T": "u64"}, {"d": (made.base, "u64"), "a": (top, "u64")}, made.site),
                                  arithmetic(f, "add", top, top, f.immediate(size), made.site), check(f, made.site)]
            made.leave.ops.append(f.made("mov", {"T": "u64"}, {"d": (top, "u64"), "a": (made.base, "u64")}, made.site))
        made.leave.successors = list(made.returns)
        if len(made.returns) > 1:
            made.leave.switch, made.leave.site = made.number, made.site
    if f.saves:
        _save(f)
    if f.stack is not None:
        start = -(-f.space.local_bytes // 16) * 16
        f.space.local_bytes = start + functions.STACK
        f.blocks[0].ops.insert(0, f.made("mov", {"T": "u64"}, {"d": (f.stack, "u64"), "a": (f.immediate(start), "u64")}, 0))
        for op in f.checks:
            op.args["b"] = f.immediate(f.space.local_bytes)


def _address_frames(f: _Flattener) -> None:
    """Write addresses in frames as base register and offset."""
    from warpwright.cpu.analysis.program import Addr

    for block in f.blocks:
        ops: list[Op] = []
        for op in block.ops:
            for key, arg in op.args.items():
                inside = arg.base if isinstance(arg, Addr) else arg
                if not isinstance(inside, Place) or inside.space != "frame":
                    continue
                base = f.procedures[inside.name].base
                if isinstance(arg, Addr):
                    op.args[key] = Addr(base, inside.offset + arg.offset)
                    op.slots = {**op.slots, "space": "local"}
                    op.reads = (*op.reads, base)
                else:
                    address = f.register("address", "u64", f.owner_of[base.index])
                    ops.append(arithmetic(f, "add", address, base, f.immediate(inside.offset), op.site))
                    op.args[key] = address
                    op.reads = (*op.reads, address)
            ops.append(op)
        block.ops = ops


def _save(f: _Flattener) -> None:
    from warpwright.cpu.analysis.flow import bits_of, liveness
    from warpwright.cpu.analysis.program import EXIT

    # A saved register lives on behind the call, whatever happens in between: as if the call were not there, nor the number that it passes.
    after = {save.before.index: save.after.index for save in f.saves}
    successors = [[after[block.index]] if block.index in after else [s for s in block.successors if s != EXIT] for block in f.blocks]
    live = liveness([replace(block, ops=block.ops[:-1]) if block.index in after else block for block in f.blocks], successors)
    top = stack_pointer(f)
    for save in f.saves:
        kept = [f.registers[i] for i in bits_of(live[save.after.index]) if f.owner_of[i] is save.owner]
        kept.sort(key=lambda reg: -reg.bits)  # the largest first, so that each is aligned
        size = -(-sum(max(8, reg.bits // 8) for reg in kept) // 16) * 16
        stores = [arithmetic(f, "add", top, top, f.immediate(size), save.site), check(f, save.site)]
        loads = [arithmetic(f, "sub", top, top, f.immediate(size), save.site)]
        offset = 0
        for reg in kept:
            stores += _kept(f, reg, offset - size, save.site, True)
            loads += _kept(f, reg, offset, save.site, False)
            offset += max(8, reg.bits // 8)
        save.before.ops[-1:-1] = stores
        save.after.ops[:0] = loads


def _kept(f: _Flattener, reg: Reg, offset: int, site: int, store: bool) -> list[Op]:
    """Store a register on the stack, or load it."""
    from warpwright.cpu.analysis.program import Addr

    address = (Addr(stack_pointer(f), offset), "")
    if reg.type != "pred":
        type_ = f"b{reg.bits}"
        if store:
            return [f.made("st", {"space": "local", "T": type_}, {"a": address, "b": (reg, type_)}, site)]
        return [f.made("ld", {"space": "local", "T": type_}, {"d": (reg, type_), "a": address}, site)]
    word = f.register("flag", "u32")
    zero, one = (f.immediate(0), "u32"), (f.immediate(1), "u32")
    if store:
        return [f.made("selp", {"T": "u32"}, {"d": (word, "u32"), "a": one, "b": zero, "c": (reg, "pred")}, site),
                f.made("st", {"space": "local", "T": "u32"}, {"a": address, "b": (word, "u32")}, site)]
    return [f.made("ld", {"space": "local", "T": "u32"}, {"d": (word, "u32"), "a": address}, site),
            f.made("setp", {"cmp": "ne", "T": "u32"}, {"d": (reg, "pred"), "a": (word, "u32"), "b": zero}, site)]
