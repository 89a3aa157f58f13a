"""Clusters: addresses in the shared memory of a cluster's CTAs, and the cluster's barrier.

An address in the window shared::cluster is (rank + 1) << 24 | offset, or the plain offset for the own CTA; a generic address is the host's. The
CTAs of a cluster are resident side by side on one host thread (see `%cta` in runtime.ll), so their shared memory lies side by side too.
"""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.analysis.variables import Place
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import pure

RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
NOBODY = 255  # the rank field of what mapa makes of a rank that the cluster does not have; every access there faults


def uses_cluster(op: Op) -> bool:
    """Whether an instruction reaches other CTAs of the cluster, so that these must be resident together."""
    return op.opcode in ("mapa", "getctarank") or bool(op.get("cluster")) or any(
        isinstance(value, str) and ("shared::cluster" in value or "multicast::cluster" in value) for value in op.slots.values())


def _spread(e: Emitter, scalar: str) -> str:
    return scalar if e.width == 1 else e.splat(scalar, "i64")


def _stride(e: Emitter) -> str:
    up = e.at_entry("stride up", f"add i64 {e.shared_size()}, 255")
    return e.at_entry("stride", f"and i64 {up}, -256")


def _ranks(e: Emitter) -> str:
    return e.at_entry("ranks", f"zext i32 {e.at_entry('%cluster_nctarank', f'load i32, ptr {e.launch_field(156)}')} to i64")


def _own_rank(e: Emitter) -> str:
    cta = e.at_entry("cta", f"load ptr, ptr {e.frame_field(40)}")
    at = e.at_entry("rank.p", f"getelementptr i8, ptr {cta}, i64 352")
    return e.at_entry("rank", f"zext i32 {e.at_entry('rank.32', f'load i32, ptr {at}')} to i64")


def _base(e: Emitter) -> str:
    """The host address of the shared memory of the cluster's CTA 0."""
    before = e.at_entry("ranks before", f"mul i64 {_own_rank(e)}, {_stride(e)}")
    return e.at_entry("cluster base", f"sub i64 {e.shared_address()}, {before}")


def _whole(e: Emitter) -> str:
    """Bytes from the base to the end of the last CTA's shared memory, padding and all."""
    return e.at_entry("cluster size", f"mul i64 {_ranks(e)}, {_stride(e)}")


def _divided(e: Emitter, a: str) -> tuple[str, str, str]:
    """A generic address as (i1: whether it lies in the cluster's shared memory, rank, offset)."""
    far = e.bin("sub", "i64", a, _spread(e, _base(e)))
    inside = e.icmp("ult", "i64", far, _spread(e, _whole(e)))
    step = e.at_entry("stride'", f"call i64 @llvm.umax.i64(i64 {_stride(e)}, i64 1)")
    e.declare("@llvm.umax.i64", "i64 (i64, i64)")
    rank = e.bin("udiv", "i64", far, _spread(e, step))
    offset = e.bin("sub", "i64", far, e.bin("mul", "i64", rank, _spread(e, step)))
    within = e.icmp("ult", "i64", offset, _spread(e, e.shared_size()))
    return e.bin("and", "i1", inside, within), rank, offset


def inside(e: Emitter, a: str) -> str:
    """i1: whether a generic address lies in the shared memory of a CTA of the cluster."""
    return _divided(e, a)[0]


def _window(e: Emitter, rank: str, offset: str) -> str:
    """The shared::cluster address of an offset in a CTA's shared memory."""
    known = e.icmp("ult", "i64", rank, _spread(e, _ranks(e)))
    field = e.select(known, "i64", e.bin("add", "i64", rank, e.k("i64", 1)), e.k("i64", NOBODY))
    return e.bin("or", "i64", e.bin("shl", "i64", field, e.k("i64", RANK_SHIFT)), offset)


def to_window(e: Emitter, a: str) -> str:
    """cvta.to.shared::cluster: the shared::cluster address of a generic one; the own CTA's is the plain offset."""
    known, rank, offset = _divided(e, a)
    other = e.bin("and", "i1", known, e.icmp("ne", "i64", rank, _spread(e, _own_rank(e))))
    return e.select(other, "i64", _window(e, rank, offset), e.bin("sub", "i64", a, _spread(e, e.shared_address())))


def to_generic(e: Emitter, a: str) -> str:
    """cvta.shared::cluster: the generic address of a shared::cluster one. What no CTA has stays as it is, which is no legal address."""
    field = e.bin("lshr", "i64", a, e.k("i64", RANK_SHIFT))
    offset = e.bin("and", "i64", a, e.k("i64", OFFSET))
    rank = e.bin("sub", "i64", field, e.k("i64", 1))
    start = e.bin("add", "i64", _spread(e, _base(e)), e.bin("mul", "i64", rank, _spread(e, _stride(e))))
    known = e.icmp("ult", "i64", rank, _spread(e, _ranks(e)))
    peer = e.select(known, "i64", e.bin("add", "i64", start, offset), a)
    own = e.icmp("eq", "i64", field, e.k("i64", 0))
    return e.select(own, "i64", e.bin("add", "i64", a, _spread(e, e.shared_address())), peer)


def _address(e: Emitter, op: Op) -> str:
    """Operand a, an address or a shared variable, as an i64."""
    kind = LLVM_TYPE[op.slots["T"]]
    a = e.resize(e.arg(op, "a", kind), kind, "i64")
    if isinstance(op.args["a"], Place) and not op.get("space"):
        a = e.bin("add", "i64", a, _spread(e, e.shared_address()))
    return a


@pure("mapa")
def _mapa(e: Emitter, op: Op):
    kind, a = LLVM_TYPE[op.slots["T"]], _address(e, op)
    rank = e.resize(e.arg(op, "b", "i32"), "i32", "i64")
    if op.get("space"):
        return e.resize(_window(e, rank, e.bin("and", "i64", a, e.k("i64", OFFSET))), "i64", kind)
    _, _, offset = _divided(e, a)
    return e.resize(to_generic(e, _window(e, rank, offset)), "i64", kind)


@pure("getctarank")
def _getctarank(e: Emitter, op: Op):
    a = _address(e, op)
    if not op.get("space"):
        return e.resize(_divided(e, a)[1], "i64", "i32")
    field = e.bin("lshr", "i64", a, e.k("i64", RANK_SHIFT))
    own = e.icmp("eq", "i64", field, e.k("i64", 0))
    rank = e.select(own, "i64", _spread(e, _own_rank(e)), e.bin("sub", "i64", field, e.k("i64", 1)))
    return e.resize(rank, "i64", "i32")


def barrier(e: Emitter, op: Op) -> None:
    """barrier.cluster.arrive and .wait: of the active lanes. The phases are the run-time system's."""
    e.do(f"store i32 {op.site}, ptr {e.frame_field(88)}")  # so that a deadlock can say who waits where
    if op.slots["action"] == "wait":
        e.do("call void @rt_cluster_wait(ptr %frame)")
        return
    e.declare("@llvm.ctpop.i32", "i32 (i32)")
    threads = "32" if e.mask is None else e.ins(f"call i32 @llvm.ctpop.i32(i32 {e.mask})")
    e.do(f"call void @rt_cluster_arrive(ptr %frame, i32 {threads})")


def counts_ends(e: Emitter) -> bool:
    """Whether lanes that end before their warp does must be counted, as nobody waits for them at the cluster's barrier."""
    return any(op.opcode == "barrier" and op.get("cluster") for block in e.flow.blocks for op in block.ops)


def end(e: Emitter, mask: str) -> None:
    """Lanes end, and the warp goes on."""
    e.declare("@llvm.ctpop.i32", "i32 (i32)")
    e.do(f"call void @rt_cluster_leave(ptr %frame, i32 {e.ins(f'call i32 @llvm.ctpop.i32(i32 {mask})')})")
