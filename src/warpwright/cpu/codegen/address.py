"""Addresses of memory accesses, and the check that every one lies where the kernel may go.

An access has a *window*: the allocation that its pointer most likely points into (its parameter's, a variable's, the CTA's shared memory).
The fast path checks the lowest and the highest byte of the whole warp's access against the window, and the alignment, in one comparison.
If that fails, nothing is wrong yet: lanes that do not take part may have odd addresses, and a pointer may point elsewhere. The slow path,
an outlined function, then looks at the active lanes one by one, and only that one faults.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpwright.cpu.analysis import forms
from warpwright.cpu.analysis.forms import Form
from warpwright.cpu.analysis.program import Addr, Arg, Op, Reg
from warpwright.cpu.analysis.variables import Place
from warpwright.cpu.codegen import faults
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter


@dataclass
class Address:
    """The 32 addresses of an access.

    space: global (generic too), shared, cluster, local or param. base: lane 0's offset in the window's space as an i64 scalar (global: its host
    address), or None where `vector` (<32 x i64>, the same of each lane) must be used. form: how lanes differ from lane 0, without local
    memory's own stride. kind: the type of the address register; window: (start, size) as i64 values.
    """

    space: str
    form: Form
    base: str | None
    source: Arg
    kind: str
    offset: int
    window: tuple[str, str]
    slot: str | None = None
    whole: int = 0  # bytes of the window that are known at compile time


def space_of(op: Op) -> str:
    """The space of an instruction's addresses: cluster is shared::cluster, whose own part is the CTA's shared memory."""
    if op.get("space") == "shared::cluster":
        return "cluster"
    name = str(op.get("space") or "generic").split("::")[0]
    return {"const": "global", "generic": "global"}.get(name, name)


def resolve(e: Emitter, op: Op, name: str = "a", space: str | None = None) -> Address:
    """What an address operand says, before any check. `space` where the instruction has several."""
    arg: Addr = op.args[name]  # type: ignore[assignment]
    space = space or space_of(op)
    base, offset = arg.base, arg.offset
    if isinstance(base, Place):
        space = {"global": "global", "local": "local", "param": "param"}.get(base.space, "shared")
    kind = LLVM_TYPE[base.type] if isinstance(base, Reg) else "i64"
    width = 32 if kind == "i32" else 64
    form = e.lanes.of(arg, width)
    scalar = None
    if not form.varying:
        with e.shape(1):
            if base is None:
                scalar = str(offset)
            else:
                value = e.value(base, kind)
                if offset:
                    value = e.bin("add", kind, value, e.k(kind, offset))
                scalar = e.resize(value, kind, "i64")
    window, slot, whole = _window(e, f"{op.site} {name}", space, form)
    return Address(space, form, scalar, base, kind, offset, window, slot, whole)


def outline(e: Emitter, op: Op, name: str = "a") -> Address:
    """What is known of an address operand at compile time: as `resolve`, without values."""
    arg: Addr = op.args[name]  # type: ignore[assignment]
    space = space_of(op)
    if isinstance(arg.base, Place):
        space = {"global": "global", "local": "local", "param": "param"}.get(arg.base.space, "shared")
    kind = LLVM_TYPE[arg.base.type] if isinstance(arg.base, Reg) else "i64"
    layout = e.program.space
    whole = {"shared": layout.shared_bytes, "local": layout.local_bytes, "param": layout.parameter_bytes}.get(space, 0)
    return Address(space, e.lanes.of(arg, 32 if kind == "i32" else 64), None, arg.base, kind, arg.offset, ("", ""), None, whole)


def vector(e: Emitter, address: Address) -> str:
    """Each lane's address in its own space, as <32 x i64>."""
    with e.shape(32):
        if address.source is None:
            return e.k("i64", address.offset)
        value = e.value(address.source, address.kind)
        if address.offset:
            value = e.bin("add", address.kind, value, e.k(address.kind, address.offset))
        return e.resize(value, address.kind, "i64")


def _window(e: Emitter, key: str, space: str, form: Form) -> tuple[tuple[str, str], str | None, int]:
    """(start, size) of where an access should lie, the slot that holds them where they are found at run time, and the size if it is known."""
    program = e.program
    if space == "cluster":
        return (e.shared_address(), e.shared_size()), None, 0
    if space == "shared":
        size = program.space.shared_bytes if not program.space.dynamic else 0
        return (e.shared_address(), str(size) if size else e.shared_size()), None, size or program.space.shared_bytes
    if space == "local":
        return (e.local_address(), str(program.space.local_bytes)), None, program.space.local_bytes
    if space == "param":
        return (e.param_address(), str(program.space.parameter_bytes)), None, program.space.parameter_bytes
    match form.origin:
        case ("param", index):
            table = e.at_entry("param ranges", f"load ptr, ptr {e.launch_field(56)}")
            at = e.at_entry(f"param range {index}", f"getelementptr {{ i64, i64 }}, ptr {table}, i64 {index}")
            start = e.at_entry(f"param start {index}", f"load i64, ptr {at}")
            second = e.at_entry(f"param range {index}'", f"getelementptr i64, ptr {at}, i64 1")
            return (start, e.at_entry(f"param size {index}", f"load i64, ptr {second}")), None, 0
        case ("global", name):
            place = program.space.places[name]
            return (e.global_address(Place("global", name, 0, place.size, place.align)), str(place.size)), None, 0
        case ("shared",):
            return (e.shared_address(), e.shared_size()), None, 0
        case ("local",):
            return (e.local_address(), str(32 * program.space.local_bytes)), None, 0
    slot = e.alloca(f"window {key}", "{ i64, i64 }", "zeroinitializer")
    start = e.ins(f"load i64, ptr {slot}")
    held = e.ins(f"load i64, ptr {e.at_entry(f'window {key} size', f'getelementptr i64, ptr {slot}, i64 1')}")
    return (start, held), slot, 0


def _limit(e: Emitter, window: tuple[str, str], span: int | str, total: int, rotate: int, direct: bool) -> str:
    """What an offset, rotated right, must be below: 1 + (size - span) >> rotate, or 0 where the access cannot fit at all."""
    start, size = window
    key = f"limit {start} {size} {span} {rotate}"
    fixed = size.startswith("%e") or not size.startswith("%")
    emit = e.at_entry if fixed and not str(span).startswith("%t") else (lambda key, text: e.ins(text))
    fits = emit(f"{key} a", f"icmp ule i64 {span}, {size}")
    if rotate and not direct:  # the window must be aligned for the offset's alignment to say anything
        low = emit(f"{key} b", f"and i64 {start}, {total - 1}")
        even = emit(f"{key} c", f"icmp eq i64 {low}, 0")
        fits = emit(f"{key} d", f"and i1 {fits}, {even}")
    room = emit(f"{key} e", f"sub i64 {size}, {span}")
    steps = emit(f"{key} f", f"lshr i64 {room}, {rotate}")
    more = emit(f"{key} g", f"add i64 {steps}, 1")
    return emit(f"{key} h", f"select i1 {fits}, i64 {more}, i64 0")


def _rotated(e: Emitter, offset: str, rotate: int) -> str:
    return e.intrinsic("llvm.fshr", "i64", offset, offset, e.k("i64", rotate)) if rotate else offset


def proven(address: Address, total: int) -> bool:
    """Whether an access of so many bytes a lane is known at compile time to be inside its window and aligned."""
    form = address.form
    if address.space not in ("shared", "local", "param") or not address.whole:
        return False
    if form.constant is not None and form.plain:
        low, high = form.constant + min(form.offsets), form.constant + max(form.offsets)
        return low >= 0 and high + total <= address.whole and not any((form.constant + o) % total for o in form.offsets)
    if form.scaled or (form.offsets and min(form.offsets) < 0):
        return False
    ones = forms.value_ones(form)
    return ones + total <= address.whole and not ones & total - 1


def groups(form: Form) -> list[tuple[tuple[tuple[forms.Symbol, int], ...], list[int]]]:
    """Lanes that differ by compile-time constants only, each with what its symbols are multiplied by."""
    found: dict[tuple, list[int]] = {}
    for lane in range(32):
        key = tuple((symbol, factors[lane]) for symbol, factors in form.scaled if factors[lane])
        found.setdefault(key, []).append(lane)
    return list(found.items())


def displacement(e: Emitter, key) -> str:
    """Σ symbol · factor as an i64."""
    total = "0"
    for symbol, factor in key:
        term = e.ins(f"mul i64 {e.symbol(symbol, 'i64')}, {factor}")
        total = term if total == "0" else e.ins(f"add i64 {total}, {term}")
    return total


def check_span(e: Emitter, address: Address, low: int, span: int, align: int) -> str:
    """i1: whether `span` bytes from `low` on, relative to lane 0's address, lie inside the window, and whether that is aligned."""
    direct, rotate = address.space != "global", align.bit_length() - 1
    if direct and not address.form.ones & align - 1 and low >= 0:
        rotate = 0
    offset = address.base if direct else e.ins(f"sub i64 {address.base}, {address.window[0]}")
    assert offset is not None
    with e.shape(1):
        if low:
            offset = e.ins(f"add i64 {offset}, {low}")
        limit = _limit(e, address.window, span, align, rotate, direct)
        return e.ins(f"icmp ult i64 {_rotated(e, offset, rotate)}, {limit}")


def check_scalar(e: Emitter, address: Address, total: int) -> str:
    """i1: whether the whole warp's access, of `total` bytes a lane, lies inside the window and is aligned. For forms that do not vary."""
    direct = address.space != "global"
    form, rotate = address.form, total.bit_length() - 1
    if direct and form.plain and not (form.ones & total - 1) and min(form.offsets) >= 0:
        rotate = 0
    start = address.window[0]
    offset = address.base if direct else e.ins(f"sub i64 {address.base}, {start}")
    assert offset is not None
    if form.plain:
        low, high = min(form.offsets), max(form.offsets)
        return check_span(e, address, low, high - low + total, total)
    with e.shape(1):
        # Strides that are known at run time: the extreme displacements, which do not change in a loop.
        lows, highs, every = [], [], None
        for key, lanes in groups(form):
            moved = displacement(e, key)
            offsets = [form.offsets[lane] for lane in lanes]
            lows.append(e.ins(f"add i64 {moved}, {min(offsets)}"))
            highs.append(e.ins(f"add i64 {moved}, {max(offsets) + total}"))
            every = moved if every is None else e.ins(f"or i64 {every}, {moved}")
        low_value, high_value = lows[0], highs[0]
        for value in lows[1:]:
            low_value = e.intrinsic("llvm.smin", "i64", low_value, value)
        for value in highs[1:]:
            high_value = e.intrinsic("llvm.smax", "i64", high_value, value)
        span = e.ins(f"sub i64 {high_value}, {low_value}")
        limit = _limit(e, address.window, span, total, rotate, direct)
        offset = e.ins(f"add i64 {offset}, {low_value}")
        inside = e.ins(f"icmp ult i64 {_rotated(e, offset, rotate)}, {limit}")
        even = e.ins(f"icmp eq i64 {e.ins(f'and i64 {every}, {total - 1}')}, 0")
        return e.ins(f"and i1 {inside}, {even}")


def check_vector(e: Emitter, address: Address, addresses: str, total: int) -> str:
    """i1: whether every active lane's access lies inside the window and is aligned."""
    direct, rotate = address.space != "global", total.bit_length() - 1
    start = address.window[0]
    limit = _limit(e, address.window, total, total, rotate, direct)
    with e.shape(32):
        offset = addresses if direct else e.bin("sub", "i64", addresses, e.splat(start, "i64"))
        bad = e.icmp("uge", "i64", _rotated(e, offset, rotate), e.splat(limit, "i64"))
        if e.mask is not None:
            bad = e.bin("and", "i1", bad, e.mask_vector())
        return e.ins(f"icmp eq i32 {e.to_bits(bad)}, 0")


def host_vector(e: Emitter, address: Address, addresses: str) -> str:
    """Host addresses of checked lanes, as <32 x i64>."""
    if address.space == "global":
        return addresses
    with e.shape(32):
        result = e.bin("add", "i64", addresses, e.splat(address.window[0], "i64"))
        if address.space == "local":
            size = e.program.space.local_bytes
            result = e.bin("add", "i64", result, e.vector_constant("i64", (lane * size for lane in range(32))))
        return result


def host_scalar(e: Emitter, address: Address) -> str:
    """Lane 0's host address as a pointer."""
    start = address.window[0]
    where = address.base if address.space == "global" else e.ins(f"add i64 {address.base}, {start}")
    return e.ins(f"inttoptr i64 {where} to ptr")


# ── the slow path ────────────────────────────────────────────────────────────────────────────────────────────────

_KINDS = {"global": faults.MEMORY, "shared": faults.SHARED, "cluster": faults.CLUSTER, "local": faults.LOCAL, "param": faults.MEMORY}


_OUTSIDE = f"""  %window = call i64 @rt_cluster_window(ptr %frame, i64 %address)
  %nowhere = icmp eq i64 %window, 0
  %kind = select i1 %nowhere, i32 {faults.MEMORY}, i32 {faults.CLUSTER}
  %told = select i1 %nowhere, i64 %address, i64 %window
  call void @fault(ptr %frame, i64 %told, i32 %site, i32 %lane, i32 %kind, i32 %size32)
"""


def lane_check(e: Emitter, space: str) -> str:
    """Name of the function `ptr (frame, address, total, site, lane)` that faults or gives the host address of one lane's access."""
    name = f"lane.{space}"
    if name not in e.helpers:
        e.helpers["fault"] = faults.FAULT
        program = e.program
        outside = f"  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 {_KINDS[space]}, i32 %size32)\n"
        if space == "global":
            inside = "  %inside = call i1 @rt_in_ranges(ptr %frame, i64 %address, i64 %total)\n"
            host = "  %host = inttoptr i64 %address to ptr\n"
            outside = _OUTSIDE  # a CTA of the cluster may have ended
        elif space == "cluster":
            inside = ("  %found = call ptr @rt_cluster_range(ptr %frame, i64 %address, i64 %total)\n"
                      "  %inside = icmp ne ptr %found, null\n")
            host = "  %host = getelementptr i8, ptr %found, i64 0\n"
        else:
            if space == "shared":
                size = "  %sp = getelementptr i8, ptr %frame, i64 16\n  %size = load i64, ptr %sp\n"
                base = "  %bp = getelementptr i8, ptr %frame, i64 8\n  %base = load ptr, ptr %bp\n"
                stride = 0
            elif space == "local":
                size = f"  %size = add i64 0, {program.space.local_bytes}\n"
                base = "  %bp = getelementptr i8, ptr %frame, i64 24\n  %base = load ptr, ptr %bp\n"
                stride = program.space.local_bytes
            else:
                size = f"  %size = add i64 0, {program.space.parameter_bytes}\n"
                base = "  %base = load ptr, ptr %frame\n"
                stride = 0
            inside = size + ("  %end = add i64 %address, %total\n  %a = icmp ule i64 %end, %size\n  %b = icmp ule i64 %address, %size\n"
                             "  %inside = and i1 %a, %b\n")
            host = base + (f"  %l64 = zext i32 %lane to i64\n  %row = mul i64 %l64, {stride}\n  %at = add i64 %row, %address\n"
                           "  %host = getelementptr i8, ptr %base, i64 %at\n")
        e.helpers[name] = f"""
define internal ptr @{name}(ptr %frame, i64 %address, i64 %total, i32 %site, i32 %lane) {{
  %size32 = trunc i64 %total to i32
{inside}  br i1 %inside, label %here, label %outside
outside:
{outside}  unreachable
here:
  %less = sub i64 %total, 1
  %low = and i64 %address, %less
  %even = icmp eq i64 %low, 0
  br i1 %even, label %ok, label %odd
odd:
  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 {faults.MISALIGNED}, i32 %size32)
  unreachable
ok:
{host}  ret ptr %host
}}
"""
    return name


def lane_loop(e: Emitter, name: str, signature: str, space: str | None, total: int, body: str, *, before: str = "", attributes: str = "cold") -> str:
    """A function that does something for each active lane, lowest first, after checking its address.

    signature: what follows `ptr %frame, <32 x i64> %addresses, i32 %mask, i32 %site`. body: IR that sees %lane (i32) and %host (ptr).
    space: None where the addresses are the host's, and checked.
    """
    if name not in e.helpers:
        host = ("%host = inttoptr i64 %address to ptr" if space is None else
                f"%host = call ptr @{lane_check(e, space)}(ptr %frame, i64 %address, i64 {total}, i32 %site, i32 %lane)")
        e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
        e.helpers[name] = f"""
define internal void @{name}(ptr %frame, <32 x i64> %addresses, i32 %mask, i32 %site{signature}) noinline {attributes} {{
entry:
  %table = alloca <32 x i64>
  store <32 x i64> %addresses, ptr %table
{before}  %none = icmp eq i32 %mask, 0
  br i1 %none, label %end, label %loop
loop:
  %left = phi i32 [ %mask, %entry ], [ %left1, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %slot = getelementptr i64, ptr %table, i32 %lane
  %address = load i64, ptr %slot
  {host}
{body}  br label %next
next:
  %less = sub i32 %left, 1
  %left1 = and i32 %left, %less
  %more = icmp ne i32 %left1, 0
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
    return name


FIND_WINDOW = """
define internal void @find_window(ptr %frame, i64 %address, ptr %slot) noinline cold {
entry:
  %lp = getelementptr i8, ptr %frame, i64 32
  %launch = load ptr, ptr %lp
  %rp = getelementptr i8, ptr %launch, i64 32
  %ranges = load ptr, ptr %rp
  %np = getelementptr i8, ptr %launch, i64 40
  %n = load i64, ptr %np
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %look, label %out
look:
  %p = getelementptr { i64, i64 }, ptr %ranges, i64 %i
  %start = load i64, ptr %p
  %q = getelementptr i64, ptr %p, i64 1
  %end = load i64, ptr %q
  %size = sub i64 %end, %start
  %offset = sub i64 %address, %start
  %inside = icmp ult i64 %offset, %size
  br i1 %inside, label %found, label %next
found:
  store i64 %start, ptr %slot
  %s1 = getelementptr i64, ptr %slot, i64 1
  store i64 %size, ptr %s1
  ret void
next:
  %i1 = add i64 %i, 1
  br label %loop
out:
  ret void
}
"""


def learn_window(e: Emitter, address: Address, addresses: str) -> None:
    """On the slow path: remember the allocation that the first active lane's pointer points into, if nothing was known of it."""
    if address.slot is None:
        return
    e.helpers["find_window"] = FIND_WINDOW
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    lane = e.ins(f"call i32 @llvm.cttz.i32(i32 {e.mask_bits()}, i1 false)")
    lane = e.ins(f"and i32 {lane}, 31")
    e.do(f"call void @find_window(ptr %frame, i64 {e.extract(addresses, 'i64', lane)}, ptr {address.slot})")
