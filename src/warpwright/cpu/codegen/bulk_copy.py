"""Bulk copies and reductions (cp.async.bulk, cp.reduce.async.bulk), st.async and red.async, and the groups that are waited for."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Imm, Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import atomic
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.mbarrier import use
from warpwright.cpu.codegen.memory import element_of

_SPACES = {"global": 0, "shared": 1, "cluster": 2}  # what `rt_place` calls a space


def group(e: Emitter, op: Op, kind: int) -> None:
    """commit_group, wait_group and wait_all of a kind of groups (library/async.ll). What is made at once needs no waiting."""
    if not e.late:
        return
    use(e)
    action = op.slots["action"]
    if action == "commit_group":
        e.do(f"call void @rt_commit(ptr %frame, i32 {kind})")
        return
    n = op.args.get("n")
    newest = n.value if isinstance(n, Imm) else -1
    e.do(f"call void @rt_wait_group(ptr %frame, i32 {kind}, i32 {newest})")


def place(e: Emitter, op: Op, name: str, space: str) -> tuple[str, int]:
    """An address operand's 32 addresses, and what `rt_place` calls its space."""
    space = "cluster" if space == "shared::cluster" else "shared" if space.startswith("shared") else "global"
    address = addressing.resolve(e, op, name, space)
    return addressing.vector(e, address), _SPACES[address.space]


def bulk(e: Emitter, op: Op) -> None:
    """A copy or reduction of any size that is a multiple of 16, by each active lane (kernels elect one)."""
    if op.get("prefetch"):
        return
    if op.args.get("byte_mask") is not None:
        e.fail(op, "bulk copies with a byte mask are not there yet")
    use(e)
    target, target_space = place(e, op, "dst", str(op.slots["dst"]))
    source, source_space = place(e, op, "src", str(op.slots["src"]))
    barrier = place(e, op, "barrier", "shared::cluster")[0] if op.args.get("barrier") is not None else "zeroinitializer"
    with e.shape(32):
        sizes = e.arg(op, "size", "i32")
    function = _reduction(e, op, "shared" if target_space > 0 else "global") if op.get("reduce") else "rt_move"
    several = bool(op.get("multicast"))
    if several:
        target_space = _SPACES["cluster"]
    name = f"bulk.{target_space}.{source_space}.{int(barrier != 'zeroinitializer')}.{int(several)}.{function}"
    if name not in e.helpers:
        e.helpers[name] = _bulk_loop(name, function, target_space, source_space, barrier != "zeroinitializer", several, e.late)
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {target}, <32 x i64> {source}, <32 x i64> {barrier}, <32 x i32> {sizes}, "
         f"<32 x i32> {receivers(e, op)}, i32 {e.mask_bits()}, i32 {op.site})")


def receivers(e: Emitter, op: Op) -> str:
    """Each lane's mask of the CTAs in the cluster that a multicast goes to: the same offset in each, and the mbarrier at the same offset."""
    if not op.get("multicast"):
        return "zeroinitializer"
    with e.shape(32):
        kind = LLVM_TYPE[op.types["mask"][0]]
        return e.resize(e.arg(op, "mask", kind), kind, "i32")


def each_receiver(body: str, before: str) -> str:
    """IR that runs a body once for each CTA in %ctas; it sees %there, the CTA's part of a shared::cluster address. before: the block it is in."""
    return f"""  br label %each
each:
  %rest.ctas = phi i32 [ %ctas, %{before} ], [ %rest.ctas1, %sent ]
  %somebody = icmp ne i32 %rest.ctas, 0
  br i1 %somebody, label %send, label %everybody
send:
  %rank = call i32 @llvm.cttz.i32(i32 %rest.ctas, i1 true)
  %rank1 = add i32 %rank, 1
  %field = shl i32 %rank1, 24
  %there = zext i32 %field to i64
{body}  br label %sent
sent:
  %fewer = sub i32 %rest.ctas, 1
  %rest.ctas1 = and i32 %rest.ctas, %fewer
  br label %each
everybody:
"""


def _bulk_loop(name: str, function: str, target_space: int, source_space: int, counted: bool, several: bool, late: bool) -> str:
    parameters = ("ptr %frame, <32 x i64> %targets, <32 x i64> %sources, <32 x i64> %barriers, <32 x i32> %sizes, <32 x i32> %receivers, "
                  "i32 %mask, i32 %site")
    def moved(name: str) -> str:
        """%name of %name0: the place itself, or the same one in the CTA %there."""
        if not several:
            return f"  %{name} = add i64 %{name}0, 0\n"
        return f"  %{name}.low = and i64 %{name}0, 16777215\n  %{name} = or i64 %{name}.low, %there\n"

    word, kind, key, bytes_ = "", 2, "0", "0"
    if counted:
        word = f"""  %b.p = getelementptr i64, ptr %barrier.table, i32 %lane
  %b0 = load i64, ptr %b.p
{moved("b")}  %word = call ptr @rt_place(ptr %frame, i64 %b, i64 8, i64 8, i32 2, i32 %site, i32 %lane)
  %key = ptrtoint ptr %word to i64
"""
        kind, key, bytes_ = 0, "%key", "%size"
    one = f"""  %t.p = getelementptr i64, ptr %target.table, i32 %lane
  %t0 = load i64, ptr %t.p
{moved("t")}  %to = call ptr @rt_place(ptr %frame, i64 %t, i64 %size, i64 16, i32 {target_space}, i32 %site, i32 %lane)
{word}  store ptr %to, ptr %args
  call void @rt_async(ptr %frame, i32 {kind}, i64 {key}, i64 {bytes_}, ptr @{function}, ptr %args, i32 24, i32 {int(late)})
"""
    if several:
        one = each_receiver(one, "even")
    return f"""
define internal void @{name}({parameters}) noinline {{
entry:
  %target.table = alloca <32 x i64>
  store <32 x i64> %targets, ptr %target.table
  %source.table = alloca <32 x i64>
  store <32 x i64> %sources, ptr %source.table
  %barrier.table = alloca <32 x i64>
  store <32 x i64> %barriers, ptr %barrier.table
  %size.table = alloca <32 x i32>
  store <32 x i32> %sizes, ptr %size.table
  %receiver.table = alloca <32 x i32>
  store <32 x i32> %receivers, ptr %receiver.table
  %args = alloca [24 x i8], align 8
  br label %loop
loop:
  %left = phi i32 [ %mask, %entry ], [ %left1, %next ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %end, label %one
one:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %z.p = getelementptr i32, ptr %size.table, i32 %lane
  %size32 = load i32, ptr %z.p
  %size = zext i32 %size32 to i64
  %rest = and i64 %size, 15
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %uneven, label %even
uneven:
  call void @fault(ptr %frame, i64 %size, i32 %site, i32 %lane, i32 2, i32 16)
  unreachable
even:
  %r.p = getelementptr i32, ptr %receiver.table, i32 %lane
  %ctas = load i32, ptr %r.p
  %s.p = getelementptr i64, ptr %source.table, i32 %lane
  %s = load i64, ptr %s.p
  %from = call ptr @rt_place(ptr %frame, i64 %s, i64 %size, i64 16, i32 {source_space}, i32 %site, i32 %lane)
  %a1 = getelementptr i8, ptr %args, i64 8
  store ptr %from, ptr %a1
  %a2 = getelementptr i8, ptr %args, i64 16
  store i64 %size, ptr %a2
{one}  br label %next
next:
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  br label %loop
end:
  ret void
}}
"""


def _reduction(e: Emitter, op: Op, space: str) -> str:
    """The function of one array reduced into another: args { destination, source, bytes }."""
    type_, kind = str(op.slots["T"]), LLVM_TYPE[op.slots["T"]]
    name = f"bulk.{op.slots['op']}.{type_}.{space}"
    if name not in e.helpers:
        size = atomic.size_of(kind)
        step = atomic.step(e, op, kind, 0, "monotonic", space)
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, ptr %args) {{
entry:
  %to = load ptr, ptr %args
  %f.p = getelementptr i8, ptr %args, i64 8
  %from = load ptr, ptr %f.p
  %n.p = getelementptr i8, ptr %args, i64 16
  %n = load i64, ptr %n.p
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %at1, %next ]
  %more = icmp ult i64 %at, %n
  br i1 %more, label %loop, label %end
loop:
  %p0 = getelementptr i8, ptr %to, i64 %at
  %i0 = getelementptr i8, ptr %from, i64 %at
  %v0 = load {kind}, ptr %i0
{step}  br label %next
next:
  %at1 = add i64 %at, {size}
  br label %head
end:
  ret void
}}
"""
    return name


# ── st.async and red.async ───────────────────────────────────────────────────────────────────────────────────────


def store(e: Emitter, op: Op) -> None:
    """st.async: each lane's value to shared memory of the cluster; its bytes count at the mbarrier there."""
    if op.get("mmio") or op.args.get("barrier") is None:
        e.fail(op, "asynchronous stores to global memory are not there yet")
    element = element_of(op, "b")
    source = op.args["b"]
    _send(e, op, "rt_put", list(source.elements) if isinstance(source, Vec) else [source], element.kind, element.size)


def reduce(e: Emitter, op: Op) -> None:
    """red.async: each lane's value reduced into shared memory of the cluster."""
    kind = LLVM_TYPE[op.slots["T"]]
    name = f"red.async.{op.slots['op']}.{op.slots['T']}"
    if name not in e.helpers:
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, ptr %args) {{
loop:
  %p0 = load ptr, ptr %args
  %v.p = getelementptr i8, ptr %args, i64 16
  %v0 = load {kind}, ptr %v.p
{atomic.step(e, op, kind, 0, "monotonic", "shared")}  ret void
}}
"""
    _send(e, op, name, [op.args["b"]], kind, atomic.size_of(kind))


def _send(e: Emitter, op: Op, function: str, values: list, kind: str, size: int) -> None:
    use(e)
    total, late = size * len(values), int(e.late)
    table = e.alloca(f"send {total}", f"[{32 * total} x i8], align 64")
    with e.shape(32):
        for i, value in enumerate(values):
            at = e.ins(f"getelementptr i8, ptr {table}, i64 {32 * size * i}")
            e.do(f"store <32 x {kind}> {e.value(value, kind)}, ptr {at}, align {size}")
    target, space = place(e, op, "a", str(op.slots.get("space") or "generic"))
    barrier, barrier_space = place(e, op, "barrier", str(op.slots.get("space") or "generic"))
    body = f"""  %b.p = getelementptr i64, ptr %barriers, i32 %lane
  %b = load i64, ptr %b.p
  %to = call ptr @rt_place(ptr %frame, i64 %address, i64 {total}, i64 {total}, i32 {space}, i32 %site, i32 %lane)
  %word = call ptr @rt_place(ptr %frame, i64 %b, i64 8, i64 8, i32 {barrier_space}, i32 %site, i32 %lane)
  store ptr %to, ptr %args
  %a1 = getelementptr i8, ptr %args, i64 8
  store i64 {total}, ptr %a1
"""
    for i in range(len(values)):
        body += f"""  %f{i} = getelementptr i8, ptr %values, i64 {32 * size * i}
  %g{i} = getelementptr {kind}, ptr %f{i}, i32 %lane
  %h{i} = load {kind}, ptr %g{i}
  %j{i} = getelementptr i8, ptr %args, i64 {16 + size * i}
  store {kind} %h{i}, ptr %j{i}
"""
    body += f"""  %key = ptrtoint ptr %word to i64
  call void @rt_async(ptr %frame, i32 0, i64 %key, i64 {total}, ptr @{function}, ptr %args, i32 {16 + total}, i32 {late})
"""
    name = addressing.lane_loop(e, f"send.{function}.{kind}.{len(values)}.{space}.{barrier_space}", ", ptr %barriers, ptr %values", None, total, body,
                                before=f"  %args = alloca [{16 + total} x i8], align 16\n", attributes="")
    barriers = e.alloca("send.barriers", "[32 x i64], align 64")
    e.do(f"store <32 x i64> {barrier}, ptr {barriers}, align 64")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {target}, i32 {e.mask_bits()}, i32 {op.site}, ptr {barriers}, ptr {table})")


def fill(e: Emitter, op: Op) -> None:
    """st.bulk: zeros."""
    use(e)
    target, space = place(e, op, "a", str(op.slots.get("space") or "generic"))
    with e.shape(32):
        sizes = e.resize(e.arg(op, "size"), LLVM_TYPE[op.types["size"][0]], "i64")
    table = e.alloca("fill.sizes", "[32 x i64], align 64")
    e.do(f"store <32 x i64> {sizes}, ptr {table}, align 64")
    body = f"""  %z.p = getelementptr i64, ptr %sizes, i32 %lane
  %z = load i64, ptr %z.p
  %to = call ptr @rt_place(ptr %frame, i64 %address, i64 %z, i64 8, i32 {space}, i32 %site, i32 %lane)
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %z, i1 false)
"""
    name = addressing.lane_loop(e, f"fill.{space}", ", ptr %sizes", None, 8, body, attributes="")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {target}, i32 {e.mask_bits()}, i32 {op.site}, ptr {table})")
