"""What each register's lanes have in common, and where a warp may part: one optimistic fixpoint over both.

Registers start at "nothing known yet" and fall as definitions are seen, so a pointer that a loop steps stays a scalar. A register keeps
one form for all its definitions; where they differ it is varying. A definition that must be blended with the values of lanes waiting
elsewhere is varying too, which is how divergence and the lattice depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable

from warpwright.cpu.analysis import forms
from warpwright.cpu.analysis.flow import Flow, Frontier
from warpwright.cpu.analysis.forms import TOP, Form, Symbol
from warpwright.cpu.analysis.program import Addr, Arg, Imm, Not, Op, Program, Reg, Special, Vec
from warpwright.cpu.analysis.turns import Turns
from warpwright.cpu.analysis.variables import Place
from warpwright.ptx.isa.table import TYPE_BITS


class Lanes:
    """The result: `of(arg)` is an operand's form, `result(op, reg)` that of one definition, `frontier` where lanes wait.

    block: threads a CTA in x, y, z, a compile-time constant.
    """

    def __init__(self, program: Program, flow: Flow, block: tuple[int, int, int], turns: Turns = Turns()):
        self.program, self.flow, self.block, self.turns = program, flow, block, turns
        self.known: list[Form] = [TOP] * len(program.registers)
        self.symbols = self._unchanging()
        self._changes = [0] * len(program.registers)
        self._where: dict[int, int] = {}
        self._users: list[list[Op]] = [[] for _ in program.registers]
        threads = block[0] * block[1] * block[2]
        self.all_partial = threads % 32 != 0
        self._solve()

    def _unchanging(self) -> set[int]:
        """Registers with one definition that is executed at most once, so that their value is the same wherever it is known."""
        count = [0] * len(self.program.registers)
        for position, block in enumerate(self.flow.blocks):
            for op in block.ops:
                for reg in op.writes:
                    count[reg.index] += 1 if not self.flow.cyclic[position] and op.guard is None else 2
        return {index for index, n in enumerate(count) if n == 1}

    def _solve(self) -> None:
        blocks = self.flow.blocks
        for position, block in enumerate(blocks):
            for op in block.ops:
                self._where[id(op)] = position
                for reg in set(op.reads):
                    self._users[reg.index].append(op)
        written = {reg.index for block in blocks for op in block.ops for reg in op.writes}
        entry = self.flow.live_in[0]
        for reg in self.program.registers:  # read before it is written: zero
            if reg.index not in written or entry >> reg.index & 1:
                self.known[reg.index] = forms.constant(0, reg.bits)
        self.divergent: set[int] = set()
        self.frontier = self._frontier()
        waiting = [op for block in blocks for op in block.ops]
        while True:
            queued = {id(op) for op in waiting}
            at = 0
            while at < len(waiting):
                op = waiting[at]
                at += 1
                queued.discard(id(op))
                for reg in self._visit(op):
                    for user in self._users[reg.index]:
                        if id(user) not in queued:
                            queued.add(id(user))
                            waiting.append(user)
            parted = {position for position, block in enumerate(blocks) if position not in self.divergent and self._parts(block)}
            if not parted:
                break
            self.divergent |= parted
            before = self.frontier.live_pending
            self.frontier = self._frontier()
            waiting = [op for position, block in enumerate(blocks) for op in block.ops
                       if self.frontier.live_pending[position] != before[position]]
        for reg in self.program.registers:
            if self.known[reg.index] is TOP:  # only defined where control never comes
                self.known[reg.index] = forms.constant(0, reg.bits)

    def _frontier(self) -> Frontier:
        return Frontier(self.flow, self.divergent, self.all_partial, self.turns.turns, self.turns.meetings, self.turns.whole)

    def _parts(self, block) -> bool:
        reg = block.branch[0] if block.branch else block.switch
        return reg is not None and self.known[reg.index] is not TOP and not self.known[reg.index].uniform

    def blended(self, op: Op, reg: Reg) -> bool:
        """Whether lanes that wait elsewhere need the register's old value."""
        return bool(self.frontier.live_pending[self._where[id(op)]] >> reg.index & 1)

    def _visit(self, op: Op) -> list[Reg]:
        """Lower the registers an instruction writes; returns those that changed."""
        if not op.writes or any(self.known[reg.index] is TOP for reg in op.reads):
            return []
        changed = []
        for reg in op.writes:
            new = self.result(op, reg)
            if (op.guard is not None and not self.known[op.guard[0].index].uniform) or self.blended(op, reg):
                new = forms.varying(reg.bits, forms.value_ones(new) & forms.mask(reg.bits))
            old = self.known[reg.index]
            met = new if old is TOP else forms.meet(old, new)
            if met != old:
                self._changes[reg.index] += 1
                n = self._changes[reg.index]
                if n > 4 and not met.varying:  # a counter in a loop: stop refining what bits it can have
                    met = Form(met.offsets, forms.from_low(met.ones, reg.bits) if n < 8 else forms.mask(reg.bits), met.scaled, None, met.origin)
                elif n > 4:
                    met = forms.varying(reg.bits, None if n > 7 else forms.from_low(met.ones, reg.bits), met.origin)
                if met != old:
                    self.known[reg.index] = met
                    changed.append(reg)
        return changed

    # ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def of(self, arg: Arg, width: int = 64) -> Form:
        """An operand's form, as a value of `width` bits."""
        match arg:
            case Reg(index=index):
                return self.known[index]
            case Imm(value=value, float=0):
                return forms.constant(value, width)
            case Imm():
                return forms.uniform(width)
            case Special(name=name):
                return self.special(name)
            case Not(reg=reg):
                return forms.uniform(1) if self.known[reg.index].uniform else forms.varying(1)
            case Place():
                return self.address_of(arg, width)
            case Addr(base=base, offset=offset):
                inside = forms.constant(0, width) if base is None else self.of(base, width)
                return forms.add(inside, forms.constant(offset, width), width) if offset else inside
            case Vec(elements=elements):
                found = None
                for element in elements:
                    if element is not None:
                        one = self.of(element, width)
                        found = one if found is None else forms.meet(found, one)
                return found or forms.constant(0, width)
            case _:
                return forms.constant(0, width)

    def address_of(self, place: Place, width: int) -> Form:
        match place.space:
            case "shared" | "local" | "param":
                return forms.constant(place.offset, width)
            case "dynamic":
                return forms.constant(self.program.space.dynamic_offset + place.offset, width)
            case _:
                low = place.align & -place.align
                return Form(forms.ZERO, forms.mask(width) & ~(low - 1) if not place.offset else forms.mask(width), origin=("global", place.name))

    def special(self, name: str) -> Form:
        bx, by, bz = self.block
        threads = bx * by * bz
        warps = -(-threads // 32)
        match name:
            case "%laneid":
                return Form(tuple(range(32)), 0, constant=0)
            case "%tid.x" | "%tid.y" | "%tid.z":
                return self._thread(name[-1])
            case "%ntid.x" | "%ntid.y" | "%ntid.z":
                return forms.constant(self.block["xyz".index(name[-1])], 32)
            case "%warpid":
                return forms.constant(0, 32) if warps == 1 else forms.uniform(32, forms.mask((warps - 1).bit_length()))
            case "%smid" | "%nsmid" | "%nwarpid":
                return forms.uniform(32, 0xFFF)
            case "%cluster_ctarank" | "%cluster_nctarank" | "%cluster_ctaid.x" | "%cluster_ctaid.y" | "%cluster_ctaid.z":
                return forms.uniform(32, 0x1F)
            case "%lanemask_eq" | "%lanemask_le" | "%lanemask_lt" | "%lanemask_ge" | "%lanemask_gt":
                return forms.varying(32)
            case "%clock64" | "%globaltimer" | "%gridid" | "%current_graph_exec":
                return forms.uniform(64)
            case "%ctaid.x" | "%nctaid.x":
                return forms.uniform(32, 0x7FFFFFFF)
            case "%ctaid.y" | "%ctaid.z" | "%nctaid.y" | "%nctaid.z":
                return forms.uniform(32, 0xFFFF)
            case "%tid":  # the vector of four; its parts lie apart
                return forms.varying(32)
            case _ if name.endswith(".w"):
                return forms.constant(0, 32)
            case _:
                return forms.uniform(64 if name.endswith("64") else 32)

    def _thread(self, axis: str) -> Form:
        bx, by, bz = self.block
        threads = bx * by * bz
        if threads <= 32:  # one warp: every index is a constant
            values = [self._index(lane, axis) for lane in range(32)]
            return Form(tuple(v - values[0] for v in values), values[0], constant=values[0])
        low = [self._index(lane, axis) for lane in range(32)]
        high = {"x": bx, "y": by, "z": bz}[axis]
        same = all(self._index(32 * w + lane, axis) - self._index(32 * w, axis) == low[lane]
                   for w in range(threads // 32) for lane in range(32))
        tail = threads % 32  # lanes beyond the block do not count
        same = same and all(self._index(threads - tail + lane, axis) - self._index(threads - tail, axis) == low[lane] for lane in range(tail))
        if not same:
            return forms.varying(32, forms.mask((high - 1).bit_length()))
        ones = 0
        for w in range(-(-threads // 32)):
            ones |= self._index(32 * w, axis)
        return Form(tuple(low), ones, constant=0 if ones == 0 else None)

    def _index(self, linear: int, axis: str) -> int:
        bx, by, _ = self.block
        return {"x": linear % bx, "y": linear // bx % by, "z": linear // (bx * by)}[axis]

    def symbol(self, arg: Arg, how: str, width: int) -> Symbol | None:
        return (arg.index, how, width) if isinstance(arg, Reg) and arg.index in self.symbols else None

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def result(self, op: Op, reg: Reg) -> Form:
        """The form of what an instruction writes to a register, by the forms of what it reads (blending apart)."""
        width = reg.bits
        rule = RULES.get(op.opcode)
        if rule is not None:
            found = rule(self, op, width)
            if found is not None:
                return found
        if all(self.of(arg).uniform for name, arg in op.args.items() if arg is not None and not _is_target(op, name)):
            return forms.uniform(width)
        return forms.varying(width)


def _is_target(op: Op, name: str) -> bool:
    arg = op.args[name]
    if isinstance(arg, Vec):
        return any(element in op.writes for element in arg.elements if isinstance(element, Reg)) and name in ("d", "p", "carry_out")
    return isinstance(arg, Reg) and arg in op.writes and name in ("d", "p", "carry_out")


Rule = Callable[[Lanes, Op, int], Form | None]
RULES: dict[str, Rule] = {}


def rule(*opcodes: str):
    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            RULES[opcode] = function
        return function

    return register


def _integer(op: Op) -> bool:
    return str(op.slots.get("T"))[0] in "usb" and str(op.slots.get("T"))[-2:] not in ("x2",) and not op.get("sat")


def _bits(op: Op, name: str) -> int:
    return TYPE_BITS[op.types[name][0] or "b64"]


@rule("mov", "slotmov")
def _mov(lanes: Lanes, op: Op, width: int):
    source = op.args["a"]
    if isinstance(source, Vec) or isinstance(op.args["d"], Vec):
        return None
    return lanes.of(source, width)


@rule("cvta")
def _cvta(lanes: Lanes, op: Op, width: int):
    form = lanes.of(op.args["a"], width)
    space = op.get("space", "")
    if space == "shared::cluster":
        return None
    if op.get("to") or space in ("global", "const") or str(space).startswith("param"):
        if space in ("shared", "local") or str(space).startswith("shared"):
            kept = form.offsets and space != "local"
            return Form(form.offsets, forms.mask(width), form.scaled) if kept else forms.varying(width)
        if str(space).startswith("param"):
            return forms.uniform(width) if form.uniform else forms.varying(width)
        return form
    if space == "local":
        return None if not form.uniform else Form(
            tuple(lane * lanes.program.space.local_bytes for lane in range(32)), forms.mask(width), origin=("local",))
    if not form.offsets:
        return forms.varying(width, origin=("shared",))
    return Form(form.offsets, forms.mask(width), form.scaled, None, ("shared",))


@rule("malloc")
def _malloc(lanes: Lanes, op: Op, width: int):
    return forms.varying(width)


@rule("add", "sub")
def _add(lanes: Lanes, op: Op, width: int):
    if not _integer(op) or op.get("cc"):
        return None
    a, b = lanes.of(op.args["a"], width), lanes.of(op.args["b"], width)
    return forms.add(a, b if op.opcode == "add" else forms.negate(b, width), width)


@rule("neg")
def _neg(lanes: Lanes, op: Op, width: int):
    return forms.negate(lanes.of(op.args["a"], width), width) if _integer(op) else None


@rule("mul", "mad")
def _mul(lanes: Lanes, op: Op, width: int):
    if not _integer(op) or op.get("mode") not in ("lo", "wide") or op.get("cc"):
        return None
    a, b = op.args["a"], op.args["b"]
    if op.get("mode") == "wide":
        narrow, signed = width // 2, str(op.slots["T"])[0] == "s"
        how = "s" if signed else "z"
        wide_a, wide_b = (forms.widen(lanes.of(arg, narrow), narrow, width, signed) for arg in (a, b))
        product = forms.multiply(wide_a, wide_b, width, lanes.symbol(a, how, narrow), lanes.symbol(b, how, narrow))
    else:
        product = forms.multiply(lanes.of(a, width), lanes.of(b, width), width, lanes.symbol(a, "", width), lanes.symbol(b, "", width))
    if op.opcode == "mad":
        product = forms.add(product, lanes.of(op.args["c"], width), width)
    return product


@rule("shl")
def _shl(lanes: Lanes, op: Op, width: int):
    amount = lanes.of(op.args["b"], 32)
    if amount.constant is None or not amount.uniform:
        return None
    return forms.shift_left(lanes.of(op.args["a"], width), amount.constant, width)


@rule("shr")
def _shr(lanes: Lanes, op: Op, width: int):
    amount, signed = lanes.of(op.args["b"], 32), str(op.slots["T"])[0] == "s"
    if amount.constant is None or not amount.uniform:
        return None
    return forms.shift_right(lanes.of(op.args["a"], width), amount.constant, width, signed)


@rule("and", "or", "xor")
def _logic(lanes: Lanes, op: Op, width: int):
    return forms.logic(op.opcode, lanes.of(op.args["a"], width), lanes.of(op.args["b"], width), width) if width > 1 else None


@rule("div", "rem")
def _div(lanes: Lanes, op: Op, width: int):
    """Division of what is not negative by a power of two is a shift, its remainder a mask."""
    if not _integer(op):
        return None
    a, b = lanes.of(op.args["a"], width), lanes.of(op.args["b"], width)
    by = b.constant if b.uniform else None
    if not by or by & by - 1 or (str(op.slots["T"])[0] == "s" and forms.value_ones(a) >> width - 1):
        return None
    if op.opcode == "div":
        return forms.shift_right(a, by.bit_length() - 1, width, False)
    return forms.logic("and", a, forms.constant(by - 1, width), width)


@rule("bfe")
def _bfe(lanes: Lanes, op: Op, width: int):
    a, start, length = lanes.of(op.args["a"], width), lanes.of(op.args["pos"], 32), lanes.of(op.args["len"], 32)
    if start.constant is None or length.constant is None or str(op.slots["T"])[0] != "u":
        return None
    shifted = forms.shift_right(a, start.constant & 255, width, False)
    return forms.logic("and", shifted, forms.constant(forms.mask(length.constant & 255), width), width)


@rule("cvt")
def _cvt(lanes: Lanes, op: Op, width: int):
    target, source = str(op.slots.get("D")), str(op.slots.get("S"))
    if target[0] not in "us" or source[0] not in "us" or "x" in target + source or op.get("sat"):
        return None
    to, of = TYPE_BITS[target], TYPE_BITS[source]
    a = lanes.of(op.args["a"], of)
    if isinstance(op.args["a"], Reg) and op.args["a"].bits > of:
        a = forms.narrow(a, of)
    if to < of:
        a = forms.narrow(a, to)
    elif to > of:
        a = forms.widen(a, of, to, source[0] == "s")
    if width > to:
        a = forms.widen(a, to, width, target[0] == "s")
    return a


@rule("selp")
def _selp(lanes: Lanes, op: Op, width: int):
    if not lanes.of(op.args["c"], 1).uniform:
        a, b = lanes.of(op.args["a"], width), lanes.of(op.args["b"], width)
        return forms.varying(width, (forms.value_ones(a) | forms.value_ones(b)) & forms.mask(width))
    return forms.meet(lanes.of(op.args["a"], width), lanes.of(op.args["b"], width))


@rule("ld", "ldu")
def _ld(lanes: Lanes, op: Op, width: int):
    address = op.args["a"]
    if op.get("space") == "param" or (isinstance(address, Addr) and isinstance(address.base, Place) and address.base.space == "param"):
        base = address.base if isinstance(address, Addr) else None
        if isinstance(base, Place):
            names = list(lanes.program.space.parameters)
            return forms.uniform(width, origin=("param", names.index(base.name)))
        return forms.uniform(width) if lanes.of(address).uniform else forms.varying(width)
    form = lanes.of(address)
    ones = forms.mask(min(width, TYPE_BITS[op.types["d"][0] or "b64"])) if str(op.slots.get("T"))[0] != "s" else None
    if form.uniform and op.get("space") != "local" and form.origin != ("local",):
        return forms.uniform(width, ones)
    return forms.varying(width, ones)


@rule("vote", "activemask", "redux", "bar", "barrier")
def _warp_wide(lanes: Lanes, op: Op, width: int):
    return forms.uniform(width)


@rule("atom", "mma", "wmma", "wgmma", "ldmatrix", "movmatrix", "elect", "atomcas")
def _each_lane(lanes: Lanes, op: Op, width: int):
    return forms.varying(width)


@rule("mbarrier")
def _mbarrier(lanes: Lanes, op: Op, width: int):
    same = op.slots["action"] in ("test_wait", "try_wait") and all(lanes.of(op.args[name]).uniform for name in "ab")
    return forms.uniform(width) if same else forms.varying(width)


@rule("match")
def _match(lanes: Lanes, op: Op, width: int):
    return forms.uniform(width) if op.get("op") == "all" or op.get("mode") == "all" else forms.varying(width)


@rule("shfl")
def _shfl(lanes: Lanes, op: Op, width: int):
    return forms.uniform(width) if lanes.of(op.args["a"]).uniform and width > 1 and "b" in op.args else forms.varying(width)
