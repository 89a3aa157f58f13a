"""Parameters between functions (`.param` inside functions): registers where their accesses allow it, else local memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from warpwright.cpu.analysis.variables import Place
from warpwright.ptx.isa.table import TYPE_BITS

if TYPE_CHECKING:
    from warpwright.cpu.analysis.program import Block, Op, Reg, _Flattener


def is_slot(arg) -> bool:
    return isinstance(arg, Place) and arg.space == "slot"


def promote(f: _Flattener) -> None:
    """Replace every access to a slot.

    A slot becomes registers where every access to one of its bytes has the same place and width, in it and in the slots that it is copied
    to or from; otherwise all of these get places in local memory.
    """
    from warpwright.cpu.analysis.program import Addr

    uses: dict[str, list[tuple[Block, int, Op]]] = {}
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for block in f.blocks:
        for i, op in enumerate(block.ops):
            inside = [arg.base if isinstance(arg, Addr) else arg for arg in op.args.values()]
            names = [arg.name for arg in inside if isinstance(arg, Place) and arg.space == "slot"]
            for name in names:
                uses.setdefault(name, []).append((block, i, op))
                find(name)
            if op.opcode == "slotcopy":
                leader[find(names[0])] = find(names[1])
    groups: dict[str, list[str]] = {}
    for name in uses:
        groups.setdefault(find(name), []).append(name)
    for members in groups.values():
        ranges = _ranges([op for name in members for _, _, op in uses[name]])
        if ranges is None:
            for name in members:
                f.spill_slot(name)
        else:
            for name in members:
                f.slot_registers[name] = {start: f.register(f"{name}+{start}", f"b{8 * size}", f.slot_owner[name]) for start, size in ranges}
    changed: dict[int, Block] = {}
    for touched in uses.values():
        for block, i, op in touched:
            if block.ops[i] is op:  # not yet replaced, for another of its slots
                block.ops[i] = _replaced(f, op)  # type: ignore[call-overload]
                changed[id(block)] = block
    for block in changed.values():
        block.ops = [single for op in block.ops for single in (op if isinstance(op, list) else [op])]


def _ranges(ops: list[Op]) -> list[tuple[int, int]] | None:
    """The (start, size) of the parts that some instructions access, or None where they overlap or are accessed by other ways."""
    from warpwright.cpu.analysis.program import Addr

    found: set[tuple[int, int]] = set()
    for op in ops:
        if op.opcode == "slotcopy":
            continue
        address = op.args.get("a")
        key = "d" if op.opcode == "ld" else "b"
        if op.opcode not in ("ld", "st") or not isinstance(address, Addr) or is_slot(op.args.get(key)):
            return None
        type_, length = op.types[key]
        size = max(1, TYPE_BITS[type_] // 8)
        start = address.base.offset + address.offset  # type: ignore[union-attr]
        found |= {(start + k * size, size) for k in range(length or 1)}
    ordered = sorted(found)
    return ordered if all(a + n <= b for (a, n), (b, _) in pairwise(ordered)) else None


def _replaced(f: _Flattener, op: Op) -> list[Op]:
    """An access to slots as moves, or as an access to local memory."""
    from warpwright.cpu.analysis.program import Addr

    if op.opcode == "slotcopy":
        target, source = op.args["d"], op.args["a"]
        assert isinstance(target, Place) and isinstance(source, Place)
        if target.name in f.slot_registers:
            pairs = zip(f.slot_registers[target.name].values(), f.slot_registers[source.name].values(), strict=True)
            return [f.made("slotmov", {"T": reg.type}, {"d": (reg, reg.type), "a": (given, reg.type)}, op.site) for reg, given in pairs]
        copies, step = [], min(target.align, source.align, 8)
        for at in range(0, min(target.size, source.size), step):
            type_ = f"b{8 * step}"
            part = f.register("copied", type_, f.slot_owner[target.name])
            copies += [f.made("ld", {"space": "local", "T": type_}, {"d": (part, type_), "a": (Addr(f.spilled(source), at), "")}, op.site),
                       f.made("st", {"space": "local", "T": type_}, {"a": (Addr(f.spilled(target), at), ""), "b": (part, type_)}, op.site)]
        return copies
    address = op.args.get("a")
    if isinstance(address, Addr) and is_slot(address.base) and address.base.name in f.slot_registers:  # type: ignore[union-attr]
        return _moves(f, op, f.slot_registers[address.base.name])  # type: ignore[union-attr]
    for key, arg in op.args.items():
        if isinstance(arg, Addr) and is_slot(arg.base):
            op.args[key] = Addr(f.spilled(arg.base), arg.offset)  # type: ignore[arg-type]
            op.slots = {**op.slots, "space": "local"}
        elif is_slot(arg):
            op.args[key] = f.spilled(arg)  # type: ignore[arg-type]
    return [op]


def _moves(f: _Flattener, op: Op, registers: dict[int, Reg]) -> list[Op]:
    from warpwright.cpu.analysis.program import Vec

    key = "d" if op.opcode == "ld" else "b"
    type_ = op.types[key][0]
    size = max(1, TYPE_BITS[type_] // 8)
    start = op.args["a"].base.offset + op.args["a"].offset  # type: ignore[union-attr]
    arg = op.args[key]
    moves = []
    for k, part in enumerate(arg.elements if isinstance(arg, Vec) else (arg,)):
        slot = registers[start + k * size]
        target, source = (part, slot) if key == "d" else (slot, part)
        if target is not None:
            moves.append(f.made("slotmov", {"T": type_}, {"d": (target, type_), "a": (source, type_)}, op.site, op.guard))
    return moves
