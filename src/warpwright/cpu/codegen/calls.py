"""What calls need beside jumps: the check of the stack, calls of what is no function, and the functions that the engine itself has."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Reg
from warpwright.cpu.codegen import faults
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect


@effect("stackcheck")
def _stackcheck(e: Emitter, op: Op) -> None:
    """Stop if the stack's end, a, lies beyond the limit b."""
    with e.shape(32):
        over = e.to_bits(e.icmp("ugt", "i64", e.arg(op, "a"), e.arg(op, "b")))
    stop_if(e, op, over, faults.STACK)


@effect("badcall")
def _badcall(e: Emitter, op: Op) -> None:
    faults.fault(e, faults.FUNCTION, op.site)
    e.start(e.label("never"))


@effect("assertfail")
def _assertfail(e: Emitter, op: Op) -> None:
    """a: the message, b: the file, c: the line, e: the function. They go to the fault record (launch.py reads them there)."""
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    lane = e.ins(f"call i32 @llvm.cttz.i32(i32 {e.mask_bits()}, i1 false)")
    for offset, name, kind in ((160, "a", "i64"), (168, "b", "i64"), (176, "e", "i64"), (184, "c", "i32")):
        with e.shape(32):
            value = e.extract(e.arg(op, name, kind), kind, lane)
        e.do(f"store {kind} {value}, ptr {e.frame_field(offset)}")
    faults.fault(e, faults.ASSERT, op.site)
    e.start(e.label("never"))


def stop_if(e: Emitter, op: Op, bits: str, kind: int) -> None:
    """A fault of the first of the active lanes in an i32, if there is one."""
    outer = e.mask
    e.mask = bits if outer is None else e.ins(f"and i32 {bits}, {outer}")
    bad, good = e.label("bad"), e.label("good")
    e.do(f"br i1 {e.ins(f'icmp ne i32 {e.mask}, 0')}, label %{bad}, label %{good}")
    e.start(bad)
    faults.fault(e, kind, op.site)
    e.start(good)
    e.mask = outer


def each_lane(e: Emitter, body) -> None:
    """Emit `body(lane)` once, in a loop over the active lanes; lane is an i32."""
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    todo = e.alloca("lanes to do", "i32")
    e.do(f"store i32 {e.mask_bits()}, ptr {todo}")
    head, inside, done = e.label("each"), e.label("lane"), e.label("done")
    e.do(f"br label %{head}")
    e.start(head)
    left = e.ins(f"load i32, ptr {todo}")
    e.do(f"br i1 {e.ins(f'icmp eq i32 {left}, 0')}, label %{done}, label %{inside}")
    e.start(inside)
    lane = e.ins(f"call i32 @llvm.cttz.i32(i32 {left}, i1 true)")
    less = e.ins(f"sub i32 {left}, 1")
    e.do(f"store i32 {e.ins(f'and i32 {left}, {less}')}, ptr {todo}")
    body(lane)
    e.do(f"br label %{head}")
    e.start(done)


def _lanes(e: Emitter, op: Op, name: str) -> str:
    with e.shape(32):
        return e.arg(op, name, "i64")


@effect("printf")
def _printf(e: Emitter, op: Op) -> None:
    """a: the format's address, b: that of the values."""
    e.library("print")
    layout, values = _lanes(e, op, "a"), _lanes(e, op, "b")

    def one(lane: str) -> None:
        e.do(f"call void @rt_print(ptr %frame, i64 {e.extract(layout, 'i64', lane)}, i64 {e.extract(values, 'i64', lane)})")

    each_lane(e, one)
    if isinstance(op.args.get("d"), Reg):
        e.write(op, op.args["d"], "0", "i32", 1)


@effect("malloc")
def _malloc(e: Emitter, op: Op) -> None:
    """d: the address of a fresh bytes of the device's heap, or 0."""
    _heap(e)
    size = _lanes(e, op, "a")
    found = e.alloca("malloc", "<32 x i64>", "zeroinitializer")

    def one(lane: str) -> None:
        address = e.ins(f"call i64 @rt_malloc(i64 {e.extract(size, 'i64', lane)})")
        e.do(f"store i64 {address}, ptr {e.ins(f'getelementptr i64, ptr {found}, i32 {lane}')}")

    each_lane(e, one)
    e.write(op, op.args["d"], e.ins(f"load <32 x i64>, ptr {found}"), "i64", 32)


@effect("free")
def _free(e: Emitter, op: Op) -> None:
    _heap(e)
    address = _lanes(e, op, "a")
    bad = e.alloca("bad frees", "i32")
    e.do(f"store i32 0, ptr {bad}")

    def one(lane: str) -> None:
        good = e.ins(f"call i1 @rt_free(i64 {e.extract(address, 'i64', lane)})")
        wrong = e.ins(f"xor i1 {good}, true")
        bit = e.ins(f"shl i32 {e.ins(f'zext i1 {wrong} to i32')}, {lane}")
        before = e.ins(f"load i32, ptr {bad}")
        e.do(f"store i32 {e.ins(f'or i32 {before}, {bit}')}, ptr {bad}")

    each_lane(e, one)
    stop_if(e, op, e.ins(f"load i32, ptr {bad}"), faults.HEAP)


def _heap(e: Emitter) -> None:
    e.library("heap")
    e.declare("@llvm.umax.i64", "i64 (i64, i64)")
    e.declare("@llvm.ctlz.i64", "i64 (i64, i1)")
