"""wgmma: products by four warps, each of which forms its own 16 rows in an outlined function (`wgmma_product`).

The accumulators of a product live in one block of memory for good, register after register, 32 lanes each: what else reads or writes them
goes there (`Slot`), and the function works on them in place.

On a late device a product is queued, with its descriptors and A's registers, and formed when its group is waited for: what reads the
accumulators before sees what was in them, and what has overwritten shared memory by then is what is multiplied. (Products whose accumulators
have no one place, since two instructions hold them in different order, are formed at once on any device.)
"""

from __future__ import annotations

from dataclasses import dataclass

from warpwright.cpu.analysis.program import Imm, Op, Reg
from warpwright.cpu.codegen import faults, wgmma_product
from warpwright.cpu.codegen.bulk_copy import group
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.mbarrier import use
from warpwright.cpu.codegen.synchronise import warp_scalar
from warpwright.cpu.codegen.wgmma_product import A_REGISTERS, METADATA, Product

GROUPS = 3  # the kind of wgmma's groups in library/async.ll


@dataclass(frozen=True)
class Slot:
    """Where a register's 32 lanes live."""

    buffer: str
    offset: int
    kind: str

    def pointer(self, e: Emitter) -> str:
        return e.ins(f"getelementptr i8, ptr {self.buffer}, i64 {self.offset}")

    def load(self, e: Emitter) -> str:
        return e.ins(f"load <32 x {self.kind}>, ptr {self.pointer(e)}, align 64")

    def store(self, e: Emitter, value: str) -> None:
        e.do(f"store <32 x {self.kind}> {value}, ptr {self.pointer(e)}, align 64")


def plan(e: Emitter) -> None:
    """Give the accumulators of all products their places. Those that two products hold in different order get none."""
    for block in e.flow.blocks:
        for op in block.ops:
            if op.opcode == "wgmma" and op.slots["action"] == "mma_async":
                registers = _registers(op)
                fresh = not any(register.index in e.homes for register in registers) and len(set(registers)) == len(registers)
                if fresh and all(e.lanes.known[register.index].varying for register in registers):
                    buffer = _buffer(e, registers, "accumulators")
                    for i, register in enumerate(registers):
                        e.homes[register.index] = Slot(buffer, 128 * i, LLVM_TYPE[register.type])


def _registers(op: Op) -> tuple[Reg, ...]:
    return op.args["d"].elements  # type: ignore[union-attr, return-value]


def _buffer(e: Emitter, registers: tuple[Reg, ...], use: str) -> str:
    key = f"{use} {' '.join(str(register.index) for register in registers)}"
    size = 128 * len(registers)
    fresh = f"{key}'" not in e._entry_values and key not in e._entry_values
    buffer = e.at_entry(key, f"alloca [{size} x i8], align 64")
    if fresh:
        e.entry.append(f"  call void @llvm.memset.p0.i64(ptr {buffer}, i8 0, i64 {size}, i1 false)")
    return buffer


@effect("wgmma")
def _wgmma(e: Emitter, op: Op) -> None:
    _everybody(e, op)
    match op.slots["action"]:
        case "mma_async":
            _multiply(e, op)
        case "commit_group" | "wait_group":
            group(e, op, GROUPS)


def _everybody(e: Emitter, op: Op) -> None:
    """A fault where not all lanes of all four warps of the group take part."""
    bx, by, bz = e.lanes.block
    warps = -(-bx * by * bz // 32)
    whole = []
    if e.mask is not None:
        whole.append(e.ins(f"icmp eq i32 {e.mask}, -1"))
    if warps % 4:
        warp = e.at_entry("warp", f"load i32, ptr {e.frame_field(68)}")
        whole.append(e.ins(f"icmp ult i32 {warp}, {warps // 4 * 4}"))
    for condition in whole:
        _require(e, op, condition)


def _require(e: Emitter, op: Op, condition: str) -> None:
    good, bad = e.label("together"), e.label("apart")
    e.do(f"br i1 {condition}, label %{good}, label %{bad}, !prof !0")
    e.start(bad)
    faults.fault(e, faults.TRAP, op.site)
    e.start(good)


def _multiply(e: Emitter, op: Op) -> None:
    product = Product.of(op, exact_mma=e.exact_mma)
    if product.exact:
        e.library("exact_mma")
        e.library("wgmma")
    helper = wgmma_product.helper(product, e.host)
    e.helpers.setdefault(helper.name, helper.text)
    e.helpers["fault"] = faults.FAULT
    e.declarations.update(helper.declarations)
    registers = _registers(op)
    first = e.homes.get(registers[0].index)
    placed = isinstance(first, Slot) and first.offset == 0 and all(
        e.homes.get(register.index) == Slot(first.buffer, 128 * i, LLVM_TYPE[register.type]) for i, register in enumerate(registers))
    sums = first.buffer if placed else _buffer(e, registers, "loose")  # type: ignore[union-attr]
    pointers = [] if placed else [e.ins(f"getelementptr i8, ptr {sums}, i64 {128 * i}") for i in range(len(registers))]
    for register, pointer in zip(registers, pointers, strict=False):
        with e.shape(32):
            e.do(f"store <32 x i32> {e.value(register, 'i32')}, ptr {pointer}, align 64")
    args = e.at_entry("wgmma", f"alloca [{wgmma_product.ARGUMENT_BYTES} x i8], align 64")
    values = [("ptr", sums), ("i64", "0" if product.a_in_registers else _shared(e, op, "a")), ("i64", _shared(e, op, "b"))]
    accumulate = warp_scalar(e, op, "scale_d", "i1")
    values += [("i32", e.ins(f"zext i1 {accumulate} to i32")), ("i32", str(op.site))]
    offset = 0
    for kind, value in values:
        e.do(f"store {kind} {value}, ptr {e.ins(f'getelementptr i8, ptr {args}, i64 {offset}')}")
        offset += 4 if kind == "i32" else 8
    vectors = list(zip(op.args["a"].elements, range(A_REGISTERS, METADATA, 128), strict=True)) if product.a_in_registers else []  # type: ignore[union-attr]
    if product.sparse:
        vectors.append((op.args["metadata"], METADATA))
    for arg, offset in vectors:
        with e.shape(32):
            e.do(f"store <32 x i32> {e.value(arg, 'i32')}, ptr {e.ins(f'getelementptr i8, ptr {args}, i64 {offset}')}, align 64")
    if e.late and placed:
        use(e)
        e.do(f"call void @rt_async(ptr %frame, i32 {GROUPS}, i64 0, i64 0, ptr {helper.name}, ptr {args}, i32 {wgmma_product.ARGUMENT_BYTES}, i32 1)")
    else:
        e.do(f"call void {helper.name}(ptr %frame, ptr {args})")
    for register, pointer in zip(registers, pointers, strict=False):
        e.write(op, register, e.ins(f"load <32 x i32>, ptr {pointer}, align 64"), "i32", 32)


def _shared(e: Emitter, op: Op, name: str) -> str:
    """A descriptor, which all lanes must agree on."""
    value = warp_scalar(e, op, name, "i64")
    arg = op.args[name]
    if not isinstance(arg, Imm) and not e.lanes.of(arg).uniform:
        with e.shape(32):
            same = e.to_bits(e.icmp("eq", "i64", e.value(arg, "i64"), e.splat(value, "i64")))
        _require(e, op, e.ins(f"icmp eq i32 {same}, -1"))
    return value
