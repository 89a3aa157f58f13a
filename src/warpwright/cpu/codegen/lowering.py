"""The register of lowerings, and how one instruction is emitted.

A lowering is a function of the emitter and the instruction. `@pure` ones compute: they return the result (or a tuple of results, in the
order of the destinations d, p) as LLVM values of the destinations' types, at the emitter's width. `@effect` ones touch memory or other
lanes: they write their results themselves, and see in `emitter.mask` which lanes take part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpwright.cpu.analysis.program import Op, Reg, Vec
from warpwright.cpu.codegen.emitter import BITS, LLVM_TYPE, Emitter


@dataclass(frozen=True)
class Lowering:
    function: Callable
    pure: bool


LOWERINGS: dict[str, Lowering] = {}


def pure(*opcodes: str):
    """Register a function that computes an instruction's results."""
    def register(function):
        for opcode in opcodes:
            LOWERINGS[opcode] = Lowering(function, True)
        return function

    return register


def effect(*opcodes: str):
    """Register a function that emits all of an instruction."""
    def register(function):
        for opcode in opcodes:
            LOWERINGS[opcode] = Lowering(function, False)
        return function

    return register


def emit(e: Emitter, op: Op) -> None:
    """Write an instruction for the lanes in `e.mask`."""
    lowering = LOWERINGS.get(op.opcode)
    if lowering is None:
        raise e.unsupported(op, f"it has no '{op.opcode}' instruction yet")
    if lowering.pure:
        _emit_pure(e, op, lowering.function)
        return
    if op.guard is None:
        lowering.function(e, op)
        return
    reg, negated = op.guard
    if e.lanes.known[reg.index].uniform:
        with e.shape(1):
            predicate = e.read(reg, "i1")
        do, done = e.label("guarded"), e.label("after")
        e.do(f"br i1 {predicate}, label %{done if negated else do}, label %{do if negated else done}")
        e.start(do)
        guard, op.guard = op.guard, None
        lowering.function(e, op)
        op.guard = guard
        e.do(f"br label %{done}")
        e.start(done)
        return
    outer = e.mask
    e.mask = guard_mask(e, op)
    do, done = e.label("guarded"), e.label("after")
    e.do(f"br i1 {e.ins(f'icmp ne i32 {e.mask}, 0')}, label %{do}, label %{done}")
    e.start(do)
    lowering.function(e, op)
    e.do(f"br label %{done}")
    e.start(done)
    e.mask = outer


def guard_mask(e: Emitter, op: Op) -> str:
    """The active lanes whose guard is true, as an i32."""
    reg, negated = op.guard  # type: ignore[misc]
    with e.shape(32):
        bits = e.to_bits(e.read(reg, "i1"))
    if negated:
        bits = e.ins(f"xor i32 {bits}, -1")
    return bits if e.mask is None else e.ins(f"and i32 {bits}, {e.mask}")


def _emit_pure(e: Emitter, op: Op, function) -> None:
    outer = e.mask
    if op.guard is not None:
        reg, negated = op.guard
        if e.lanes.known[reg.index].uniform:
            with e.shape(1):
                predicate = e.read(reg, "i1")
                e.scalar_guard = e.ins(f"xor i1 {predicate}, true") if negated else predicate
            if any(e.lanes.known[r.index].varying for r in op.writes):
                full = e.ins(f"select i1 {e.scalar_guard}, i32 -1, i32 0")
                e.mask = full if outer is None else e.ins(f"and i32 {full}, {outer}")
        else:
            e.mask = guard_mask(e, op)
    width = 1 if all(not e.lanes.result(op, reg).varying for reg in op.writes) else 32
    with e.shape(width):
        results = function(e, op)
    if not isinstance(results, tuple):
        results = (results,)
    names = [name for name in ("d", "p", "carry_out") if name in op.args]
    for name, value in zip(names, results, strict=False):
        target, (type_, length) = op.args[name], op.types[name]
        if isinstance(target, Vec):
            kind = LLVM_TYPE[type_] if length else f"i{BITS[LLVM_TYPE[type_]] // len(target.elements)}"
            for element, part in zip(target.elements, value, strict=True):
                if isinstance(element, Reg):
                    e.write(op, element, part, kind, width)
        elif isinstance(target, Reg):
            e.write(op, target, value, LLVM_TYPE[type_], width, signed=type_[0] == "s")
    e.mask, e.scalar_guard = outer, None
