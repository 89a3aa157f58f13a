"""Checks of memory accesses taken out of a block's straight line.

In a block's full copy an access whose check fails leaves for the block's *safe* copy (`S3`, entered just before that access), where each access looks
at its lanes one by one if it must. So the full copy has no slow paths in it, whose calls would make LLVM spill its registers, and one check
can speak for all accesses through the same base register.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpwright.cpu.analysis.forms import Form
from warpwright.cpu.analysis.program import Addr, Op, Reg
from warpwright.cpu.analysis.variables import Place
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import memory
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.memory import Element


@dataclass
class Check:
    """Bytes from `low` on, relative to the first access's lane 0, up to `high`, aligned to `align`; `op` and `operand` name that access."""

    op: Op
    operand: str
    low: int
    high: int
    align: int
    plain: bool


@dataclass
class Plan:
    """before: the checks to make ahead of an instruction, by its index in the block. trusted: indices of instructions that these cover."""

    before: dict[int, list[Check]]
    trusted: set[int]


def plan(e: Emitter, ops: list[Op]) -> Plan:
    """What to check where in a block."""
    found = Plan({}, set())
    version: dict[int, int] = {}
    open_checks: dict[tuple, Check] = {}
    for at, op in enumerate(ops):
        accesses = _accesses(e, op)
        for operand, space, element in accesses or ():
            arg: Addr = op.args[operand]  # type: ignore[assignment]
            form = e.lanes.of(arg, _width(arg))
            low, high = (min(form.offsets), max(form.offsets) + element.total) if form.plain else (0, 0)
            key = (arg.base.index, version.get(arg.base.index, 0), space) if isinstance(arg.base, Reg) and form.plain else None
            check = open_checks.get(key) if key else None
            if check is not None and (arg.offset - check.op.args[check.operand].offset) % max(check.align, element.total) == 0:  # type: ignore[union-attr]
                moved = arg.offset - check.op.args[check.operand].offset  # type: ignore[union-attr]
                check.low, check.high = min(check.low, low + moved), max(check.high, high + moved)
                check.align = max(check.align, element.total)
            else:
                check = Check(op, operand, low, high, element.total, form.plain)
                found.before.setdefault(at, []).append(check)
                if key:
                    open_checks[key] = check
        if accesses is not None:
            found.trusted.add(at)
        for reg in op.writes:
            version[reg.index] = version.get(reg.index, 0) + 1
    return found


def _width(arg: Addr) -> int:
    return 32 if isinstance(arg.base, Reg) and LLVM_TYPE[arg.base.type] == "i32" else 64


def _accesses(e: Emitter, op: Op) -> list[tuple[str, str, Element]] | None:
    """The (address operand, space, element) of an instruction whose accesses one scalar comparison can check and which are not known to be good;
    None where it makes no access that the full copy could do without a slow path."""
    if op.opcode in ("ld", "ldu", "st") and not (op.get("async") or op.get("bulk")):
        given = [("a", "", memory.element_of(op, "d" if op.opcode != "st" else "b"))]
    else:
        return None
    found = []
    for operand, space, element in given:
        arg = op.args[operand]
        if not isinstance(arg, Addr) or (isinstance(arg.base, Place) and arg.base.space == "param"):
            return None
        form: Form = e.lanes.of(arg, _width(arg))
        place = arg.base.space if isinstance(arg.base, Place) else space or addressing.space_of(op)
        if form.varying or place == "local":
            return None
        address = addressing.outline(e, op, operand)
        if not form.uniform:
            planned = memory.plan(address, element, gap=0)
            if planned is None or (op.opcode == "st" and memory.overlap(planned)):
                return None
        if not addressing.proven(address, element.total):
            found.append((operand, place, element))
    return found


def emit(e: Emitter, checks: list[Check], otherwise: str) -> None:
    """Go on if all checks hold, else leave for `otherwise`."""
    good = None
    for check in checks:
        address = addressing.resolve(e, check.op, check.operand)
        if check.plain:
            one = addressing.check_span(e, address, check.low, check.high - check.low, check.align)
        else:
            one = addressing.check_scalar(e, address, check.align)
        good = one if good is None else e.ins(f"and i1 {good}, {one}")
    on = e.label("good")
    e.do(f"br i1 {good}, label %{on}, label %{otherwise}, !prof !0")
    e.start(on)
