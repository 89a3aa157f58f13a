"""Tensor copies (cp.async.bulk.tensor and its kin) and tensor maps. The work is done in library/tensor.ll, from what a map says at run time."""

from __future__ import annotations

from warpwright.cpu import tensor_map
from warpwright.cpu.analysis.program import Addr, Imm, Op, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import atomic, bulk_copy
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.lowering import effect
from warpwright.cpu.codegen.mbarrier import use

_TILED, _IM2COL, _FOUR = range(3)
_MODES = {None: _TILED, "tile": _TILED, "im2col": _IM2COL, "im2col_no_offs": _IM2COL, "tile::gather4": _FOUR, "tile::scatter4": _FOUR}
_LOAD, _PREFETCH, _COUNTED = 1, 2, 4


def copy(e: Emitter, op: Op) -> None:
    """A tensor copy, reduction or prefetch by each active lane (kernels elect one)."""
    mode = _MODES.get(op.get("mode"))
    if mode is None:
        e.fail(op, "im2col::w copies are not there yet")
    use(e)
    e.library("tensor")
    load, prefetch = op.slots["src"] == "global", bool(op.get("prefetch"))
    tensor: Addr = op.args["src" if load else "dst"]  # type: ignore[assignment]
    offsets = op.args.get("offsets")
    shifts = offsets.elements if isinstance(offsets, Vec) else (offsets,) if offsets is not None else ()
    counted = op.args.get("barrier") is not None
    several = bool(op.get("multicast"))
    given = [_map_address(e, op, "src" if load else "dst"), "zeroinitializer", "zeroinitializer"]
    if not prefetch:
        given[1] = bulk_copy.place(e, op, "dst" if load else "src", str(op.slots["dst" if load else "src"]))[0]
    if counted:
        given[2] = bulk_copy.place(e, op, "barrier", "shared::cluster")[0]
    pick = f"@{_reductions(e, op)}" if op.get("op") else "null"
    # One table of what each lane gives: two addresses of 64 bits, then coordinates and offsets of 32.
    words = len(tensor.coordinates) + len(shifts) + several  # and last, the CTAs of a multicast
    table = e.alloca(f"tensor.{words}", f"[{512 + 128 * words} x i8], align 64")
    with e.shape(32):
        for i, value in enumerate(given[1:]):
            e.do(f"store <32 x i64> {value}, ptr {e.ins(f'getelementptr i8, ptr {table}, i64 {256 * i}')}, align 64")
        for i, arg in enumerate((*tensor.coordinates, *shifts)):
            value = e.value(arg, "i32")
            if i >= len(tensor.coordinates):
                value = e.bin("and", "i32", value, e.k("i32", 0xFFFF))
            e.do(f"store <32 x i32> {value}, ptr {e.ins(f'getelementptr i8, ptr {table}, i64 {512 + 128 * i}')}, align 64")
        if several:
            e.do(f"store <32 x i32> {bulk_copy.receivers(e, op)}, ptr {e.ins(f'getelementptr i8, ptr {table}, i64 {384 + 128 * words}')}, align 64")
    flags = _LOAD * load | _PREFETCH * prefetch | _COUNTED * counted
    name = _issue(e, int(op.slots["dim"][0]), mode, flags, len(tensor.coordinates), len(shifts), several, pick)
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {given[0]}, i32 {e.mask_bits()}, i32 {op.site}, ptr {table})")


def _map_address(e: Emitter, op: Op, name: str) -> str:
    """Generic addresses of a tensor map."""
    address = addressing.resolve(e, op, name, "global")
    found = addressing.vector(e, address)
    if address.space != "param":
        return found
    with e.shape(32):
        return e.bin("add", "i64", found, e.splat(e.param_address(), "i64"))


def _issue(e: Emitter, rank: int, mode: int, flags: int, coordinates: int, shifts: int, several: bool, pick: str) -> str:
    """The function that issues the copies of the active lanes."""
    body = """  %place.p = getelementptr i64, ptr %table.p, i32 %lane
  %place = load i64, ptr %place.p
  %bar.p = getelementptr i64, ptr %place.p, i64 32
  %bar = load i64, ptr %bar.p
"""
    for i in range(coordinates + shifts):
        to, at = ("x", i) if i < coordinates else ("shift", i - coordinates)
        body += f"""  %a{i} = getelementptr i8, ptr %table.p, i64 {512 + 128 * i}
  %b{i} = getelementptr i32, ptr %a{i}, i32 %lane
  %c{i} = load i32, ptr %b{i}
  %d{i} = getelementptr i32, ptr %{to}, i64 {at}
  store i32 %c{i}, ptr %d{i}
"""
    def one(place: str, barrier: str) -> str:
        return (f"  call void @tensor_copy(ptr %frame, i64 %address, i64 {place}, i64 {barrier}, ptr %x, ptr %shift, i64 {rank}, i32 {mode}, "
                f"i32 {flags}, ptr {pick}, i32 %site, i32 %lane, i32 {int(e.late)})\n")

    if several:
        body += f"""  %ctas.p = getelementptr i8, ptr %table.p, i64 {512 + 128 * (coordinates + shifts)}
  %ctas.q = getelementptr i32, ptr %ctas.p, i32 %lane
  %ctas = load i32, ptr %ctas.q
"""
        moved = "".join(f"  %{name}.low = and i64 %{name}, 16777215\n  %{name}.there = or i64 %{name}.low, %there\n" for name in ("place", "bar"))
        body += bulk_copy.each_receiver(moved + one("%place.there", "%bar.there"), "loop")
    else:
        body += one("%place", "%bar")
    before = """  %x = alloca [5 x i32]
  %shift = alloca [3 x i32]
  store [3 x i32] zeroinitializer, ptr %shift
"""
    name = f"tensor.{rank}.{mode}.{flags}.{coordinates}.{shifts}.{int(several)}.{pick[1:]}"
    return addressing.lane_loop(e, name, ", ptr %table.p", None, 8, body, before=before, attributes="")


# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────

# Element types of each operation; "b" types stand for any integer of their size.
_INTEGERS = ("u32", "s32", "u64", "s64")
_TYPES = {"add": ("u32", "s32", "u64", "f16", "f32", "f32.ftz", "bf16"), "min": (*_INTEGERS, "f16", "bf16"), "max": (*_INTEGERS, "f16", "bf16"),
          "inc": ("u32",), "dec": ("u32",), "and": _INTEGERS, "or": _INTEGERS, "xor": _INTEGERS}


def _reductions(e: Emitter, op: Op) -> str:
    """The function `ptr (i64 code)` that gives the reduction of an element type, or null."""
    operation = str(op.slots["op"])
    name = f"tensor.pick.{operation}"
    if name in e.helpers:
        return name
    cases, blocks = "", ""
    for type_ in _TYPES[operation]:
        code = tensor_map.BY_NAME[type_].code
        cases += f"    i64 {code}, label %case{code}\n"
        blocks += f"case{code}:\n  ret ptr @{_reduction(e, op, operation, type_)}\n"
    e.helpers[name] = f"""
define internal ptr @{name}(i64 %code) {{
  switch i64 %code, label %none [
{cases}  ]
{blocks}none:
  ret ptr null
}}
"""
    return name


def _reduction(e: Emitter, op: Op, operation: str, type_: str) -> str:
    """The function that reduces some bytes of shared memory into the tensor, element by element, each atomically."""
    name = f"tensor.{operation}.{type_}"
    if name not in e.helpers:
        plain = type_.removesuffix(".ftz")
        kind = LLVM_TYPE[f"b{plain[1:]}" if operation in ("and", "or", "xor") else plain]
        slots = {"op": operation, "T": f"b{plain[1:]}" if operation in ("and", "or", "xor") else plain}
        step = atomic.step(e, Op("red", slots, {}, {}, None, op.site, frozenset()), kind, 0, "monotonic", "tensor")
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, ptr %global, ptr %shared, i64 %bytes) {{
entry:
  br label %head
head:
  %at = phi i64 [ 0, %entry ], [ %at1, %next ]
  %more = icmp ult i64 %at, %bytes
  br i1 %more, label %loop, label %end
loop:
  %p0 = getelementptr i8, ptr %global, i64 %at
  %i0 = getelementptr i8, ptr %shared, i64 %at
  %v0 = load {kind}, ptr %i0, align 1
{step}  br label %next
next:
  %at1 = add i64 %at, {atomic.size_of(kind)}
  br label %head
end:
  ret void
}}
"""
    return name


# ── tensormap ────────────────────────────────────────────────────────────────────────────────────────────────────


@effect("tensormap")
def _tensormap(e: Emitter, op: Op) -> None:
    use(e)
    if op.slots["action"] == "cp_fenceproxy":
        _publish(e, op)
        return
    field, index = str(op.slots["field"]), op.args.get("index")
    value = op.args["b"]
    if field == "swizzle_mode" and isinstance(value, Imm) and value.value > 3:
        e.fail(op, "swizzle mode 96B is not there yet")
    at, low, bits = tensor_map.field_bits(field, index.value if isinstance(index, Imm) else 0)
    shift, less = tensor_map.REPLACED.get(field, (0, 0))
    kind, given = ("i64" if bits == 64 else "i32"), LLVM_TYPE[op.slots["T"]]
    space = str(op.get("space") or "generic").split("::")[0]
    address = addressing.resolve(e, op, "a", "shared" if space == "shared" else "global")
    mask = (1 << bits) - 1
    with e.shape(32):
        if field == "elemtype":
            new = e.k(kind, tensor_map.elemtype_bits(value.value if isinstance(value, Imm) else 0))
            mask &= ~tensor_map.ELEMTYPE_KEPT
        else:
            new = e.value(value, given)
            new = e.bin("lshr", given, e.bin("sub", given, new, e.k(given, less)), e.k(given, shift))
            new = e.resize(new, given, kind)
        new = e.bin("shl", kind, e.bin("and", kind, new, e.k(kind, mask)), e.k(kind, low))
    table = e.alloca(f"tensormap.{kind}", f"[32 x {kind}], align 64")
    e.do(f"store <32 x {kind}> {new}, ptr {table}, align 64")
    cleared = ~(mask << low) & ((1 << (64 if kind == "i64" else 32)) - 1)
    body = f"""  %map = call ptr @rt_place(ptr %frame, i64 %address, i64 128, i64 64, i32 {int(address.space == 'shared')}, i32 %site, i32 %lane)
  %word.p = getelementptr i8, ptr %map, i64 {at}
  %word = load {kind}, ptr %word.p, align 4
  %kept = and {kind} %word, {cleared}
  %new.p = getelementptr {kind}, ptr %values, i32 %lane
  %new = load {kind}, ptr %new.p
  %made = or {kind} %kept, %new
  store {kind} %made, ptr %word.p, align 4
"""
    name = addressing.lane_loop(e, f"tensormap.{field}.{at}.{low}.{address.space}", ", ptr %values", None, 8, body, attributes="")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {addressing.vector(e, address)}, i32 {e.mask_bits()}, i32 {op.site}, ptr {table})")


def _publish(e: Emitter, op: Op) -> None:
    """tensormap.cp_fenceproxy: the warp copies a map from shared to global memory, each lane the same."""
    target = addressing.vector(e, addressing.resolve(e, op, "dst", "global"))
    source = addressing.vector(e, addressing.resolve(e, op, "src", "shared"))
    table = e.alloca("tensormap.sources", "[32 x i64], align 64")
    e.do(f"store <32 x i64> {source}, ptr {table}, align 64")
    body = """  %from.p = getelementptr i64, ptr %sources, i32 %lane
  %from = load i64, ptr %from.p
  %s = call ptr @rt_place(ptr %frame, i64 %from, i64 128, i64 128, i32 1, i32 %site, i32 %lane)
  %d = call ptr @rt_place(ptr %frame, i64 %address, i64 128, i64 128, i32 0, i32 %site, i32 %lane)
  call void @llvm.memmove.p0.p0.i64(ptr %d, ptr %s, i64 128, i1 false)
"""
    name = addressing.lane_loop(e, "tensormap.publish", ", ptr %sources", None, 8, body, attributes="")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {target}, i32 {e.mask_bits()}, i32 {op.site}, ptr {table})")
