"""cp.async: copies of a few bytes a lane from global to shared memory. They are made at once, so that there is nothing to wait for; on a late
device they are queued, and their wait makes them (library/async.ll)."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Imm, Op, Reg
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import bulk_copy, memory, tensor
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.mbarrier import use
from warpwright.cpu.codegen.memory import Element


def copy(e: Emitter, op: Op) -> None:
    """cp.async and its groups. A warp's copies are made by wide loads and stores, without a shuffle, where all lanes copy all of their
    bytes and where these lie in runs; else lane by lane."""
    if op.get("action") == "mbarrier":
        _arrive(e, op)
        return
    if op.get("action"):
        bulk_copy.group(e, op, 2 if op.get("bulk") else 1)
        return
    if op.get("tensor"):
        tensor.copy(e, op)
        return
    if op.get("bulk"):
        bulk_copy.bulk(e, op)
        return
    size: int = op.args["size"].value  # type: ignore[union-attr]
    element = Element("i32", size // 4)
    target, source = addressing.resolve(e, op, "dst", "shared"), addressing.resolve(e, op, "src", "global")
    sizes, whole = _sizes(e, op, size)
    if e.late:
        _later(e, op, size, addressing.vector(e, target), addressing.vector(e, source), sizes)
        return
    conditions = [condition for condition in (whole, None if e.mask is None else e.ins(f"icmp eq i32 {e.mask}, -1")) if condition]
    slow, done = e.label("copy"), e.label("copied")
    planned = memory.plan(source, element, gap=0), memory.plan(target, element, gap=0)
    uniform = source.form.uniform or target.form.uniform
    if planned[0] is not None and planned[1] is not None and not uniform and not memory.overlap(planned[1]):
        for address in (source, target):
            if not addressing.proven(address, size):
                conditions.append(addressing.check_scalar(e, address, size))
        good = "true"
        for condition in conditions:
            good = condition if good == "true" else e.ins(f"and i1 {good}, {condition}")
        fast = e.label("fast")
        e.do(f"br i1 {good}, label %{fast}, label %{slow}, !prof !0")
        e.start(fast)
        memory.store_flat(e, target, element, memory.load_flat(e, source, element, planned[0]), planned[1])
        e.do(f"br label %{done}")
    else:
        e.do(f"br label %{slow}")
    e.start(slow)
    addresses = addressing.vector(e, target), addressing.vector(e, source)
    e.do(f"call void @{_lanes(e, size)}(ptr %frame, <32 x i64> {addresses[0]}, <32 x i64> {addresses[1]}, <32 x i32> {sizes}, "
         f"i32 {e.mask_bits()}, i32 {op.site})")
    addressing.learn_window(e, source, addresses[1])
    e.do(f"br label %{done}")
    e.start(done)


def _later(e: Emitter, op: Op, size: int, targets: str, sources: str, sizes: str) -> None:
    """Queue a copy: addresses, sizes and the lanes are its arguments."""
    use(e)
    name = _lanes(e, size) + ".late"
    if name not in e.helpers:
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, ptr %args) {{
  %targets = load <32 x i64>, ptr %args, align 8
  %s.p = getelementptr i8, ptr %args, i64 256
  %sources = load <32 x i64>, ptr %s.p, align 8
  %z.p = getelementptr i8, ptr %args, i64 512
  %sizes = load <32 x i32>, ptr %z.p, align 8
  %m.p = getelementptr i8, ptr %args, i64 640
  %mask = load i32, ptr %m.p
  %i.p = getelementptr i8, ptr %args, i64 644
  %site = load i32, ptr %i.p
  call void @copy.{size}(ptr %frame, <32 x i64> %targets, <32 x i64> %sources, <32 x i32> %sizes, i32 %mask, i32 %site)
  ret void
}}
"""
    args = e.alloca("copy.args", "[648 x i8], align 64")
    for offset, value in ((0, f"<32 x i64> {targets}"), (256, f"<32 x i64> {sources}"), (512, f"<32 x i32> {sizes}"),
                          (640, f"i32 {e.mask_bits()}"), (644, f"i32 {op.site}")):
        e.do(f"store {value}, ptr {e.ins(f'getelementptr i8, ptr {args}, i64 {offset}')}, align 4")
    e.do(f"call void @rt_async(ptr %frame, i32 1, i64 0, i64 0, ptr @{name}, ptr {args}, i32 648, i32 1)")


def _arrive(e: Emitter, op: Op) -> None:
    """cp.async.mbarrier.arrive: an arrival once this warp's copies so far are made. Without .noinc it is one more than was expected."""
    use(e)
    more = 0 if op.get("noinc") else 1
    body = f"  %raised = call i64 @rt_mbarrier_arrive(ptr %host, i64 {-more}, i64 0, i64 0)\n" if more else ""
    if e.late:
        body += """  %args = alloca [24 x i8]
  store ptr %host, ptr %args
  %g.p = getelementptr i8, ptr %args, i64 8
  %now.p = getelementptr i8, ptr %frame, i64 148
  %now = load i32, ptr %now.p
  store i32 %now, ptr %g.p
  %c.p = getelementptr i8, ptr %args, i64 16
  store i64 1, ptr %c.p
  %key = ptrtoint ptr %host to i64
  call void @rt_async(ptr %frame, i32 0, i64 %key, i64 0, ptr @rt_arrive_after_copies, ptr %args, i32 24, i32 1)
"""
    else:
        body += "  %old = call i64 @rt_mbarrier_arrive(ptr %host, i64 1, i64 0, i64 0)\n"
    address = addressing.resolve(e, op)
    name = addressing.lane_loop(e, f"copies.arrive.{more}.{address.space}", "", address.space, 8, body, attributes="")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {addressing.vector(e, address)}, i32 {e.mask_bits()}, i32 {op.site})")


def _sizes(e: Emitter, op: Op, size: int) -> tuple[str, str | None]:
    """Bytes that each lane reads (the rest is zeros), and the condition that all read all of them (None: they do)."""
    limit = op.args.get("src_size")
    with e.shape(32):
        if limit is None:
            return e.k("i32", size), None
        if isinstance(limit, Imm):
            return e.k("i32", min(limit.value, size)), None if limit.value >= size else "false"
        if isinstance(limit, Reg) and limit.type == "pred":  # true: the source is ignored
            sizes = e.select(e.value(limit, "i1"), "i32", e.k("i32", 0), e.k("i32", size))
        else:
            sizes = e.intrinsic("llvm.umin", "i32", e.value(limit, "i32"), e.k("i32", size))
        full = e.to_bits(e.icmp("eq", "i32", sizes, e.k("i32", size)))
    return sizes, e.ins(f"icmp eq i32 {full}, -1")


def _lanes(e: Emitter, size: int) -> str:
    """The function that copies lane by lane: what a lane does not read is neither checked nor touched."""
    name = f"copy.{size}"
    if name not in e.helpers:
        shared, other = addressing.lane_check(e, "shared"), addressing.lane_check(e, "global")
        e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, <32 x i64> %targets, <32 x i64> %sources, <32 x i32> %sizes, i32 %mask, i32 %site) noinline {{
entry:
  %target.table = alloca <32 x i64>
  store <32 x i64> %targets, ptr %target.table
  %source.table = alloca <32 x i64>
  store <32 x i64> %sources, ptr %source.table
  %size.table = alloca <32 x i32>
  store <32 x i32> %sizes, ptr %size.table
  br label %loop
loop:
  %left = phi i32 [ %mask, %entry ], [ %left1, %next ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %end, label %lane
lane:
  %lane.number = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %tp = getelementptr i64, ptr %target.table, i32 %lane.number
  %target = load i64, ptr %tp
  %to = call ptr @{shared}(ptr %frame, i64 %target, i64 {size}, i32 %site, i32 %lane.number)
  %sp = getelementptr i64, ptr %source.table, i32 %lane.number
  %source = load i64, ptr %sp
  %zp = getelementptr i32, ptr %size.table, i32 %lane.number
  %size32 = load i32, ptr %zp
  %size = zext i32 %size32 to i64
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 {size}, i1 false)
  %nothing = icmp eq i64 %size, 0
  br i1 %nothing, label %next, label %some
some:
  %low = and i64 %source, {size - 1}
  %even = icmp eq i64 %low, 0
  %whole = icmp eq i64 %size, {size}
  %usual = and i1 %even, %whole
  %odd = xor i1 %even, true
  %together = or i1 %usual, %odd
  br i1 %together, label %all, label %part
all:
  %from = call ptr @{other}(ptr %frame, i64 %source, i64 {size}, i32 %site, i32 %lane.number)
  br label %move
part:
  %first = call ptr @{other}(ptr %frame, i64 %source, i64 1, i32 %site, i32 %lane.number)
  %less = sub i64 %size, 1
  %end.address = add i64 %source, %less
  %last = call ptr @{other}(ptr %frame, i64 %end.address, i64 1, i32 %site, i32 %lane.number)
  br label %move
move:
  %where = inttoptr i64 %source to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %where, i64 %size, i1 false)
  br label %next
next:
  %one.less = sub i32 %left, 1
  %left1 = and i32 %left, %one.less
  br label %loop
end:
  ret void
}}
"""
    return name
