"""Matrix instructions: mma.sync calls an outlined product (`tensor_core`); ldmatrix and stmatrix move 8×8 matrices."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Vec
from warpwright.cpu.codegen import tensor_core
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect


@effect("mma")
def _mma(e: Emitter, op: Op) -> None:
    if not tensor_core.supported(op.slots):
        e.fail(op, "of mma it has the dense m16n8 shapes of f16, bf16, tf32, e4m3, e5m2, s8 and u8")
    helper = tensor_core.mma_helper(op.slots, e.host)
    e.helpers.setdefault(helper.name, helper.text)
    e.declarations.update(helper.declarations)
    registers = [register for name in "abc" for register in _registers(op, name)]
    kinds = [parameter.rpartition(" ")[0] for parameter in helper.parameters]
    with e.shape(32):
        values = [e.value(register, kind[len("<32 x "):-1]) for register, kind in zip(registers, kinds, strict=True)]
    given = ", ".join(f"{kind} {value}" for kind, value in zip(kinds, values, strict=True))
    result = e.ins(f"call fastcc {helper.result} {helper.name}({given})")
    for i, register in enumerate(_registers(op, "d")):
        e.write(op, register, e.ins(f"extractvalue {helper.result} {result}, {i}"), kinds[-1][len("<32 x "):-1], 32)


def _registers(op: Op, name: str) -> tuple:
    arg = op.args[name]
    return arg.elements if isinstance(arg, Vec) else (arg,)
