"""Between the lanes of a warp: shfl, vote, match, redux, activemask, elect."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op, Reg
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.synchronise import warp_scalar

LANE_IDS = list(range(32))


def _source_lanes(mode: str, b: int, c: int) -> tuple[list[int], list[bool]]:
    """For constant b and c: the lane each lane reads, and whether it is in range."""
    clamp, segment = c & 31, c >> 8 & 31
    sources, found = [], []
    for lane in LANE_IDS:
        high = lane & segment | clamp & ~segment
        low = lane & segment
        match mode:
            case "up":
                j = lane - (b & 31)
                good = j >= high
            case "down":
                j = lane + (b & 31)
                good = j <= high
            case "bfly":
                j = lane ^ b & 31
                good = j <= high
            case _:
                j = low | b & 31 & ~segment
                good = j <= high
        sources.append(j if good else lane)
        found.append(good)
    return sources, found


@effect("shfl")
def _shfl(e: Emitter, op: Op) -> None:
    mode, target, second = op.slots["mode"], op.args["d"], op.args.get("p")
    b, c = e.lanes.of(op.args["b"], 32), e.lanes.of(op.args["c"], 32)
    uniform = isinstance(target, Reg) and not e.lanes.known[target.index].varying and e.lanes.of(op.args["a"]).uniform
    if b.uniform and c.uniform and b.constant is not None and c.constant is not None:
        sources, found = _source_lanes(mode, b.constant, c.constant)
        if uniform:
            with e.shape(1):
                result = e.arg(op, "a")
        else:
            with e.shape(32):
                result = e.shuffle(e.arg(op, "a"), "i32", sources)
        inside = e.vector_constant("i1", (int(good) for good in found))
    else:
        with e.shape(32):
            index, inside = _dynamic(e, op, mode)
            result = permute(e, e.arg(op, "a"), index)
        if uniform:
            with e.shape(1):
                result = e.arg(op, "a")
    e.write(op, target, result, "i32", 1 if uniform else 32)
    if second is not None:
        e.write(op, second, inside, "i1", 32)


def _dynamic(e: Emitter, op: Op, mode: str) -> tuple[str, str]:
    """The lanes that the lanes read, and whether they are in range, for b and c known at run time only."""
    lane = e.vector_constant("i32", LANE_IDS)
    five = e.k("i32", 31)
    b = e.bin("and", "i32", e.arg(op, "b"), five)
    c = e.arg(op, "c")
    clamp = e.bin("and", "i32", c, five)
    segment = e.bin("and", "i32", e.bin("lshr", "i32", c, e.k("i32", 8)), five)
    outside = e.bin("xor", "i32", segment, e.k("i32", -1))
    low = e.bin("and", "i32", lane, segment)
    high = e.bin("or", "i32", low, e.bin("and", "i32", clamp, outside))
    match mode:
        case "up":
            j = e.bin("sub", "i32", lane, b)
        case "down":
            j = e.bin("add", "i32", lane, b)
        case "bfly":
            j = e.bin("xor", "i32", lane, b)
        case _:
            j = e.bin("or", "i32", low, e.bin("and", "i32", b, outside))
    inside = e.icmp("sge" if mode == "up" else "sle", "i32", j, high)
    return e.select(inside, "i32", j, lane), inside


def permute(e: Emitter, value: str, index: str) -> str:
    """value[index[lane]] of <32 x i32>, index from 0 to 31."""
    if e.host.avx512:
        name = "@llvm.x86.avx512.vpermi2var.d.512"
        e.declarations[name] = f"declare <16 x i32> {name}(<16 x i32>, <16 x i32>, <16 x i32>)"
        low, high = (e.shuffle(value, "i32", range(start, start + 16)) for start in (0, 16))
        parts = []
        for start in (0, 16):
            part = e.shuffle(index, "i32", range(start, start + 16))
            parts.append(e.ins(f"call <16 x i32> {name}(<16 x i32> {low}, <16 x i32> {part}, <16 x i32> {high})"))
        return e.shuffle(parts[0], "i32", range(32), 16, parts[1])
    buffer = e.alloca("permute", "<32 x i32>")
    e.do(f"store <32 x i32> {value}, ptr {buffer}")
    pointers = e.ins(f"getelementptr i32, ptr {buffer}, <32 x i32> {index}")
    name = "@llvm.masked.gather.v32i32.v32p0"
    e.declarations[name] = f"declare <32 x i32> {name}(<32 x ptr>, <32 x i1>, <32 x i32>)"
    return e.ins(f"call <32 x i32> {name}(<32 x ptr> align 4 {pointers}, <32 x i1> splat (i1 true), <32 x i32> zeroinitializer)")


def _members(e: Emitter, op: Op) -> str:
    """The active lanes among those the instruction names, as an i32."""
    mask = op.args.get("mask")
    if mask is None:
        return e.mask_bits()
    form = e.lanes.of(mask, 32)
    if form.uniform and form.constant == 0xFFFFFFFF:
        return e.mask_bits()
    return e.ins(f"and i32 {warp_scalar(e, op, 'mask')}, {e.mask_bits()}")


@effect("vote")
def _vote(e: Emitter, op: Op) -> None:
    members = _members(e, op)
    with e.shape(32):
        bits = e.ins(f"and i32 {e.to_bits(e.arg(op, 'a', 'i1'))}, {members}")
    match op.slots["mode"]:
        case "ballot":
            result, kind = bits, "i32"
        case "any":
            result, kind = e.ins(f"icmp ne i32 {bits}, 0"), "i1"
        case "all":
            result, kind = e.ins(f"icmp eq i32 {bits}, {members}"), "i1"
        case _:
            all_of_them, none = e.ins(f"icmp eq i32 {bits}, {members}"), e.ins(f"icmp eq i32 {bits}, 0")
            result, kind = e.ins(f"or i1 {all_of_them}, {none}"), "i1"
    e.write(op, op.args["d"], result, kind, 1)


@effect("activemask")
def _activemask(e: Emitter, op: Op) -> None:
    e.write(op, op.args["d"], e.mask_bits(), "i32", 1)


@effect("elect")
def _elect(e: Emitter, op: Op) -> None:
    members = _members(e, op)
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    leader = e.ins(f"call i32 @llvm.cttz.i32(i32 {members}, i1 false)")
    with e.shape(32):
        leaders = e.splat(leader, "i32")
        chosen = e.icmp("eq", "i32", leaders, e.vector_constant("i32", LANE_IDS))
    e.write(op, op.args["d"], leaders, "i32", 32)
    e.write(op, op.args["p"], chosen, "i1", 32)


@effect("match")
def _match(e: Emitter, op: Op) -> None:
    kind = LLVM_TYPE[op.slots["T"]]
    members = _members(e, op)
    with e.shape(32):
        a = e.arg(op, "a")
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    if op.slots["mode"] == "all":
        first = e.ins(f"call i32 @llvm.cttz.i32(i32 {members}, i1 false)")
        first = e.ins(f"and i32 {first}, 31")
        with e.shape(32):
            same = e.to_bits(e.icmp("eq", kind, a, e.splat(e.extract(a, kind, first), kind)))
        agreed = e.ins(f"icmp eq i32 {e.ins(f'and i32 {same}, {members}')}, {members}")
        e.write(op, op.args["d"], e.ins(f"select i1 {agreed}, i32 {members}, i32 0"), "i32", 1)
        if op.args.get("p") is not None:
            e.write(op, op.args["p"], agreed, "i1", 1)
        return
    name = f"match.{kind}"
    if name not in e.helpers:
        e.helpers[name] = f"""
define internal <32 x i32> @{name}(<32 x {kind}> %a, i32 %members) noinline {{
entry:
  %table = alloca <32 x i32>
  store <32 x i32> zeroinitializer, ptr %table
  br label %loop
loop:
  %left = phi i32 [ %members, %entry ], [ %left1, %next ]
  %none = icmp eq i32 %left, 0
  br i1 %none, label %out, label %next
next:
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %x = extractelement <32 x {kind}> %a, i32 %lane
  %one = insertelement <32 x {kind}> poison, {kind} %x, i64 0
  %all = shufflevector <32 x {kind}> %one, <32 x {kind}> poison, <32 x i32> zeroinitializer
  %eq = icmp eq <32 x {kind}> %a, %all
  %bits = bitcast <32 x i1> %eq to i32
  %here = and i32 %bits, %members
  %slot = getelementptr i32, ptr %table, i32 %lane
  store i32 %here, ptr %slot
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  br label %loop
out:
  %r = load <32 x i32>, ptr %table
  ret <32 x i32> %r
}}
"""
    result = e.ins(f"call <32 x i32> @{name}(<32 x {kind}> {a}, i32 {members})")
    e.write(op, op.args["d"], result, "i32", 32)


@effect("redux")
def _redux(e: Emitter, op: Op) -> None:
    name, type_ = op.slots["op"], op.slots["T"]
    kind = LLVM_TYPE[type_]
    members = _members(e, op)
    if type_ == "f32":
        _redux_f32(e, op, name, members)
        return
    signed = type_[0] == "s"
    identity = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": 0x7FFFFFFF if signed else -1, "max": -0x80000000 if signed else 0}[name]
    with e.shape(32):
        a = e.arg(op, "a")
        if members != "-1":
            a = e.select(e.ins(f"bitcast i32 {members} to <32 x i1>"), kind, a, e.k(kind, identity))
    full = f"@llvm.vector.reduce.{('s' if signed else 'u') + name if name in ('min', 'max') else name}.v32i32"
    e.declarations[full] = f"declare i32 {full}(<32 x i32>)"
    e.write(op, op.args["d"], e.ins(f"call i32 {full}(<32 x i32> {a})"), "i32", 1)


def _redux_f32(e: Emitter, op: Op, name: str, members: str) -> None:
    from warpwright.cpu.codegen.floating import NAN, least

    with e.shape(32):
        a = e.arg(op, "a")
        if op.get("abs"):
            a = e.intrinsic("llvm.fabs", "float", a)
        keeps_nan = bool(op.get("NaN"))
        if members != "-1":  # lanes that do not take part repeat one that does
            e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
            first = e.ins(f"call i32 @llvm.cttz.i32(i32 {members}, i1 false)")
            some = e.splat(e.extract(a, "float", e.ins(f"and i32 {first}, 31")), "float")
            a = e.select(e.ins(f"bitcast i32 {members} to <32 x i1>"), "float", a, some)
        for distance in (16, 8, 4, 2, 1):
            a = least(e, name, "float", a, e.shuffle(a, "float", [lane ^ distance for lane in LANE_IDS]), keeps_nan)
        a = e.select(e.fcmp("uno", "float", a, a), "float", e.k("float", NAN["float"]), a)
    e.write(op, op.args["d"], e.extract(a, "float", 0), "float", 1)
