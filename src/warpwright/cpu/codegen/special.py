"""Special registers: `%tid.x`, `%laneid`, `%clock64` …"""

from __future__ import annotations

import re

from warpwright.cpu.codegen.emitter import BITS, Emitter
from warpwright.errors import PtxError

_FRAME = {"%ctaid.x": 56, "%ctaid.y": 60, "%ctaid.z": 64, "%warpid": 68, "%smid": 76}
_LAUNCH = {  # name → (offset in %launch, type); see runtime.ll
    "%nctaid.x": (0, "i32"), "%nctaid.y": (4, "i32"), "%nctaid.z": (8, "i32"), "%dynamic_smem_size": (28, "i32"), "%nsmid": (108, "i32"),
    "%cluster_nctaid.x": (144, "i32"), "%cluster_nctaid.y": (148, "i32"), "%cluster_nctaid.z": (152, "i32"), "%cluster_nctarank": (156, "i32"),
    "%is_explicit_cluster": (160, "i32"), "%nwarpid": (164, "i32"), "%gridid": (168, "i64"),
}
_ENVREG = {"%envreg1": 180, "%envreg2": 176}  # the high and low half of a cooperative launch's workspace
SHARED_UNIT = 128  # bytes, in which shared memory is given out
# This machine keeps no shared memory for itself, has no performance monitors and no graphs, and gives kernels nothing in %envreg0 and 3 to 31.
_ZERO = re.compile(r"%(pm[0-7](_64)?|envreg\d+|reserved_smem_offset_(begin|end|cap|[01])|current_graph_exec|\w+\.w)")


def special(e: Emitter, name: str, kind: str) -> str:
    """A special register's value at the emitter's width, as an integer type (or as bits of another type)."""
    whole = f"i{BITS[kind]}"
    form = e.lanes.special(name)
    if form.varying and e.width == 32:
        value, own = _vector(e, name), "i32"
        return e.convert(e.resize(value, own, whole), whole, kind)
    with e.shape(1):
        scalar, own = _scalar(e, name)
        scalar = e.resize(scalar, own, whole)
    if e.width == 32:
        scalar = e.spread(scalar, whole, form)
    return e.convert(scalar, whole, kind)


def _scalar(e: Emitter, name: str) -> tuple[str, str]:
    form = e.lanes.special(name)
    if form.constant is not None:
        return str(form.constant), "i32"
    if name in _FRAME:
        return e.at_entry(name, f"load i32, ptr {e.frame_field(_FRAME[name])}"), "i32"
    if name in _LAUNCH:
        offset, kind = _LAUNCH[name]
        return e.at_entry(name, f"load {kind}, ptr {e.launch_field(offset)}"), kind
    if name in _ENVREG:
        return e.at_entry(name, f"load i32, ptr {e.launch_field(_ENVREG[name])}"), "i32"
    if name.startswith("%tid."):
        return _thread(e, name[-1]), "i32"
    stem, _, axis = name.partition(".")
    if stem in ("%clusterid", "%nclusterid", "%cluster_ctaid"):
        whole = _scalar(e, f"%nctaid.{axis}" if stem == "%nclusterid" else f"%ctaid.{axis}")[0]
        by = _scalar(e, f"%cluster_nctaid.{axis}")[0]
        return e.at_entry(name, f"{'urem' if stem == '%cluster_ctaid' else 'udiv'} i32 {whole}, {by}"), "i32"
    match name:
        case "%cluster_ctarank":
            x, y, z = (_scalar(e, f"%cluster_ctaid.{axis}")[0] for axis in "xyz")
            nx, ny = (_scalar(e, f"%cluster_nctaid.{axis}")[0] for axis in "xy")
            plane = e.at_entry("rank z", f"mul i32 {z}, {ny}")
            row = e.at_entry("rank y", f"mul i32 {e.at_entry('rank zy', f'add i32 {plane}, {y}')}, {nx}")
            return e.at_entry(name, f"add i32 {row}, {x}"), "i32"
        case "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi":
            time = e.ins("call i64 @rt_time()" if name.startswith("%globaltimer") else "call i64 @rt_clock()")
            if name.endswith("_hi"):
                time = e.ins(f"lshr i64 {time}, 32")
            return (time, "i64") if name in ("%clock64", "%globaltimer") else (e.ins(f"trunc i64 {time} to i32"), "i32")
        case "%total_smem_size" | "%aggr_smem_size":
            up = e.at_entry("smem up", f"add i64 {e.shared_size()}, {SHARED_UNIT - 1}")
            return e.at_entry("smem whole", f"and i64 {up}, {-SHARED_UNIT}"), "i64"
        case _ if _ZERO.fullmatch(name):
            return "0", "i64" if name.endswith("64") or name == "%current_graph_exec" else "i32"
    raise PtxError(f"the engine has no special register '{name}'")


def _thread(e: Emitter, axis: str) -> str:
    """`%tid` of lane 0."""
    bx, by, _ = e.lanes.block
    warp = e.at_entry("%warpid", f"load i32, ptr {e.frame_field(68)}")
    linear = e.at_entry("linear", f"mul i32 {warp}, 32")
    if axis == "x":
        return e.at_entry("%tid.x", f"urem i32 {linear}, {bx}")
    if axis == "y":
        row = e.at_entry("row", f"udiv i32 {linear}, {bx}")
        return e.at_entry("%tid.y", f"urem i32 {row}, {by}")
    return e.at_entry("%tid.z", f"udiv i32 {linear}, {bx * by}")


def _vector(e: Emitter, name: str) -> str:
    lanes = range(32)
    masks = {
        "%lanemask_eq": [1 << lane for lane in lanes], "%lanemask_lt": [(1 << lane) - 1 for lane in lanes],
        "%lanemask_le": [(2 << lane) - 1 for lane in lanes], "%lanemask_gt": [-(2 << lane) & 0xFFFFFFFF for lane in lanes],
        "%lanemask_ge": [-(1 << lane) & 0xFFFFFFFF for lane in lanes],
    }
    if name in masks:
        return e.vector_constant("i32", (m - (1 << 32) if m >> 31 else m for m in masks[name]))
    bx, by, _ = e.lanes.block
    warp = e.at_entry("%warpid", f"load i32, ptr {e.frame_field(68)}")
    linear = e.at_entry("linear", f"mul i32 {warp}, 32")
    base = e.at_entry("linear.0", f"insertelement <32 x i32> poison, i32 {linear}, i64 0")
    base = e.at_entry("linear.1", f"shufflevector <32 x i32> {base}, <32 x i32> poison, <32 x i32> zeroinitializer")
    base = e.at_entry("linear.v", f"add <32 x i32> {base}, {e.vector_constant('i32', lanes)}")
    if name == "%tid.x":
        return e.at_entry("%tid.x.v", f"urem <32 x i32> {base}, splat (i32 {bx})")
    row = e.at_entry("row.v", f"udiv <32 x i32> {base}, splat (i32 {bx})")
    if name == "%tid.y":
        return e.at_entry("%tid.y.v", f"urem <32 x i32> {row}, splat (i32 {by})")
    return e.at_entry("%tid.z.v", f"udiv <32 x i32> {base}, splat (i32 {bx * by})")
