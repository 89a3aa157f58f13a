"""wmma.load and wmma.store: whole matrices between memory and fragments.

All lanes give one address and one stride; lane 0's are taken. An outlined function copies the matrix's lines (its rows or columns) between
memory and a buffer in which they follow one another; `fragments` says which register an element of that buffer belongs to. The whole extent
is checked at once; where that fails, piece by piece of 16 bytes, so that only what the matrix covers can fault.
"""

from __future__ import annotations

from warpwright.cpu import fragments
from warpwright.cpu.analysis.program import Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import products
from warpwright.cpu.codegen.emitter import Emitter


def move(e: Emitter, op: Op) -> None:
    """Emit a load or a store."""
    load = op.slots["action"] == "load"
    letter = op.slots["operand"].upper()
    type_, by_rows = op.slots[letter], op.slots["layout"] == "row"
    layout = fragments.wmma_layout(op.slots["shape"], letter, type_, words=True)
    lines, length = (layout.rows, layout.columns) if by_rows else (layout.columns, layout.rows)
    line_bytes = length * layout.bits // 8
    kind = products.register_kind(type_)
    register_bytes = 256 if kind == "double" else 128
    place = layout.places if by_rows else layout.places % layout.columns * layout.rows + layout.places // layout.columns
    places, count = products.table(e, place.ravel(), "i16"), place.size

    space = str(op.get("space") or "").split("::")[0]
    address = addressing.resolve(e, op, "a", space or "global")
    first = address.base if address.base is not None else e.extract(addressing.vector(e, address), "i64", 0)
    stride = str(line_bytes)
    if op.args.get("stride") is not None:
        with e.shape(32):
            elements = e.extract(e.value(op.args["stride"], "i32"), "i32", 0)
        bits = e.ins(f"mul i64 {e.ins(f'zext i32 {elements} to i64')}, {fragments.memory_bits(type_)}")
        stride = e.ins(f"lshr i64 {bits}, 3")
    lines_buffer = e.at_entry("wmma lines", "alloca [2048 x i8], align 64")
    registers_buffer = e.at_entry("wmma registers", "alloca [2048 x i8], align 64")
    copy = _copier(e, address.space, load, lines, line_bytes)
    call = f"call void {copy}(ptr %frame, i64 {first}, i64 {stride}, i32 {op.site}, ptr {lines_buffer})"
    vector = op.args["d" if load else "b"]
    registers = vector.elements if isinstance(vector, Vec) else (vector,)
    slots = [e.ins(f"getelementptr i8, ptr {registers_buffer}, i64 {register_bytes * i}") for i in range(len(registers))]
    if load:
        e.do(call)
        mover = products.mover(e, "fetch", layout.bits)
        e.do(f"call void {mover}(ptr {lines_buffer}, ptr {places}, i64 {count}, ptr {registers_buffer})")
        for register, slot in zip(registers, slots, strict=True):
            e.write(op, register, e.ins(f"load <32 x {kind}>, ptr {slot}, align 64"), kind, 32)
        return
    with e.shape(32):
        for register, slot in zip(registers, slots, strict=True):
            e.do(f"store <32 x {kind}> {e.value(register, kind)}, ptr {slot}, align 64")
    mover = products.mover(e, "place", layout.bits)
    e.do(f"call void {mover}(ptr {registers_buffer}, ptr {places}, i64 {count}, ptr {lines_buffer})")
    e.do(call)


def _copier(e: Emitter, space: str, load: bool, lines: int, line_bytes: int) -> str:
    """`void (frame, address, stride, site, buffer)`: so many lines, `stride` bytes apart in memory."""
    name = f"@wmma_{'load' if load else 'store'}_{space}_{lines}x{line_bytes}"
    if name in e.helpers:
        return name
    check = addressing.lane_check(e, space)
    piece = min(16, line_bytes)
    if space == "global":
        inside = "  %inside = call i1 @rt_in_ranges(ptr %frame, i64 %address, i64 %extent)\n  %base = inttoptr i64 %address to ptr\n"
    else:
        inside = ("  %size.p = getelementptr i8, ptr %frame, i64 16\n  %size = load i64, ptr %size.p\n"
                  "  %last = add i64 %address, %extent\n  %below = icmp ule i64 %last, %size\n  %from = icmp ule i64 %address, %size\n"
                  "  %inside = and i1 %below, %from\n  %start.p = getelementptr i8, ptr %frame, i64 8\n  %start = load ptr, ptr %start.p\n"
                  "  %base = getelementptr i8, ptr %start, i64 %address\n")

    def copy(host: str, buffer: str, size: int) -> str:
        there, here = (host, buffer) if load else (buffer, host)
        return f"  call void @llvm.memcpy.p0.p0.i64(ptr {here}, ptr {there}, i64 {size}, i1 false)\n"

    e.helpers[name] = f"""
define internal void {name}(ptr %frame, i64 %address, i64 %stride, i32 %site, ptr %buffer) noinline {{
entry:
  %run = mul i64 %stride, {lines - 1}
  %extent = add i64 %run, {line_bytes}
  %both = or i64 %address, %stride
  %low = and i64 %both, {piece - 1}
  %even = icmp eq i64 %low, 0
{inside}  %good = and i1 %inside, %even
  br i1 %good, label %line, label %slow
line:
  %i = phi i64 [ 0, %entry ], [ %i1, %line ]
  %at = mul i64 %i, %stride
  %host = getelementptr i8, ptr %base, i64 %at
  %to = mul i64 %i, {line_bytes}
  %slot = getelementptr i8, ptr %buffer, i64 %to
{copy('%host', '%slot', line_bytes)}  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {lines}
  br i1 %more, label %line, label %end
slow:
  %j = phi i64 [ 0, %entry ], [ %j1, %slow ]
  %number = udiv i64 %j, {line_bytes // piece}
  %part = urem i64 %j, {line_bytes // piece}
  %line.at = mul i64 %number, %stride
  %part.at = mul i64 %part, {piece}
  %there = add i64 %line.at, %part.at
  %there.a = add i64 %address, %there
  %host2 = call ptr @{check}(ptr %frame, i64 %there.a, i64 {piece}, i32 %site, i32 0)
  %to2 = mul i64 %j, {piece}
  %slot2 = getelementptr i8, ptr %buffer, i64 %to2
{copy('%host2', '%slot2', piece)}  %j1 = add i64 %j, 1
  %more2 = icmp ult i64 %j1, {lines * line_bytes // piece}
  br i1 %more2, label %slow, label %end
end:
  ret void
}}
"""
    return name
