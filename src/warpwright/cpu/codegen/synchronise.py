"""Barriers, fences, and what ends or delays a thread."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.codegen import cluster, faults
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect


def warp_scalar(e: Emitter, op: Op, name: str, kind: str = "i32") -> str:
    """An operand that has to be the same for all lanes, taken from the first active one if that is not plain."""
    arg = op.args[name]
    if e.lanes.of(arg).uniform:
        with e.shape(1):
            return e.value(arg, kind)
    with e.shape(32):
        value = e.value(arg, kind)
    lane = "0"
    if e.mask is not None:
        e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
        lane = e.ins(f"call i32 @llvm.cttz.i32(i32 {e.mask}, i1 true)")
    return e.extract(value, kind, lane)


def one_warp(e: Emitter) -> bool:
    bx, by, bz = e.lanes.block
    return bx * by * bz <= 32


@effect("bar", "barrier")
def _bar(e: Emitter, op: Op) -> None:
    if op.get("warp"):
        return  # a warp's lanes run together
    if op.get("cluster"):
        cluster.barrier(e, op)
        return
    action = op.slots["action"]
    barrier = warp_scalar(e, op, "a")
    threads = warp_scalar(e, op, "b") if op.args.get("b") is not None else "0"
    if not one_warp(e):  # so that a deadlock can say who waits where
        e.do(f"store i32 {op.site}, ptr {e.frame_field(88)}")
    if action == "red":
        _reduce(e, op, barrier, threads)
    elif one_warp(e):
        e.do('call void asm sideeffect "", "~{memory}"()')
    elif action == "arrive":
        e.do(f"call void @rt_barrier_arrive(ptr %frame, i32 {barrier}, i32 {threads})")
    else:
        e.do(f"call void @rt_barrier(ptr %frame, i32 {barrier}, i32 {threads})")


def _reduce(e: Emitter, op: Op, barrier: str, threads: str) -> None:
    with e.shape(32):
        bits = e.to_bits(e.arg(op, "c", "i1"))
    if e.mask is not None:
        bits = e.ins(f"and i32 {bits}, {e.mask}")
    e.declare("@llvm.ctpop.i32", "i32 (i32)")
    count = e.ins(f"call i32 @llvm.ctpop.i32(i32 {bits})")
    code = {"popc": 0, "and": 1, "or": 2}[op.slots["op"]]
    if one_warp(e):
        lanes = e.at_entry("lanes", f"load i32, ptr {e.frame_field(72)}")
        result = count if code == 0 else e.ins(f"icmp eq i32 {count}, {lanes}" if code == 1 else f"icmp ne i32 {count}, 0")
    else:
        result = e.ins(f"call i32 @rt_barrier_reduce(ptr %frame, i32 {barrier}, i32 {threads}, i32 {count}, i32 {code})")
        if code:
            result = e.ins(f"icmp ne i32 {result}, 0")
    e.write(op, op.args["d"], result, "i1" if code else "i32", 1)  # type: ignore[arg-type]


@effect("fence", "membar")
def _fence(e: Emitter, op: Op) -> None:
    e.do("fence " + {"acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}.get(str(op.get("sem")), "seq_cst"))


@effect("trap")
def _trap(e: Emitter, op: Op) -> None:
    faults.fault(e, faults.TRAP, op.site)
    e.start(e.label("never"))


@effect("nanosleep")
def _nanosleep(e: Emitter, op: Op) -> None:
    """Time passes as others run; spin loops yield on their own."""


@effect("cp")
def _cp(e: Emitter, op: Op) -> None:
    from warpwright.cpu.codegen.copy import copy

    copy(e, op)
