"""Tensor copies and tensor maps: PTX ISA 5.5 and 9.7.9.27. One element after the other, as the words say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from warpwright.cpu import faults, tensor_map
from warpwright.cpu.interpreter import asynchronous
from warpwright.cpu.interpreter.memory import AccessFault, locate
from warpwright.cpu.interpreter.registry import Trap, operand, per_thread
from warpwright.cpu.interpreter.words import mask, signed
from warpwright.cpu.tensor_map import Fields, NoTensorMap
from warpwright.ptx import tree
from warpwright.ptx.isa import Match

OOB = -1
SHARED_ALIGN = 128

# Element types of reductions, by operation.
REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f32", "f32.ftz", "f16", "bf16"), "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"), "inc": ("u32",), "dec": ("u32",), "and": ("u32", "s32", "u64", "s64"),
    "or": ("u32", "s32", "u64", "s64"), "xor": ("u32", "s32", "u64", "s64"),
}


def fault(reason: int) -> Trap:
    return Trap(tensor_map.REASONS[reason], faults.TENSOR_MAP)


def copy_tensor(m: Match, decoder) -> Callable:
    """cp{.reduce}.async.bulk{.prefetch}.tensor: the box that a tensor map and coordinates name."""
    load = m["src"] == "global"
    mode = m.get("mode") or "tile"
    if mode.startswith("im2col::w"):
        raise ValueError("im2col::w copies are not in the interpreter")
    tensor = operand(m, "src" if load else "dst").operand
    assert isinstance(tensor, tree.Address) and isinstance(tensor.coordinates, tree.Vector)
    where, _ = decoder.address(tensor, None)
    coordinates = [decoder.reader(element, "b32") for element in tensor.coordinates.elements]
    offsets = m.value("offsets").operand if m.value("offsets") is not None else None  # type: ignore[union-attr]
    parts = [decoder.reader(element, "b16") for element in offsets.elements] if isinstance(offsets, tree.Vector) else []
    rank = int(m["dim"][0])
    shared = None if m.get("prefetch") else decoder.address(operand(m, "dst" if load else "src").operand, "shared")[0]
    barrier = decoder.address(operand(m, "barrier").operand, "shared")[0] if m.value("barrier") is not None else None
    op, places = m.get("op"), asynchronous.receivers(m, decoder)

    def run(thread):
        for there in places(thread):
            issue(thread, there)

    def issue(thread, there):
        fields = fetch(thread, where(thread))
        address = there(shared(thread)) if shared else 0
        place = address & 0xFFFFFF
        check(fields, rank, mode, place, op)
        at = [signed(read(thread), 32) for read in coordinates]
        shift = [read(thread) & 0xFFFF for read in parts]
        moves = list(elements(fields, mode, at, shift, place))
        size = fields.unit_bytes
        source = reach(thread, [address for address, _ in moves if address != OOB], size)
        if shared is None:
            return
        count = ROWS4 if mode in ("tile::gather4", "tile::scatter4") else fields.rows
        window, start = locate(thread, "shared::cluster" if load else "shared", address, count * fields.pitch, align=SHARED_ALIGN)

        def action():
            for address, target in moves:
                at_shared = start + target - place
                if load:
                    value = filler(fields, size) if address == OOB else landed(fields, source.load(address, size))
                    window.store(at_shared, size, value)
                elif address != OOB:
                    value = window.load(at_shared, size)
                    source.store(address, size, reduce(fields, op)(source.load(address, size), value) if op else value)

        if barrier is None:
            asynchronous.issue(thread, asynchronous.BULK, 0, 0, action)
        else:
            key = asynchronous.word_of(thread, "shared::cluster", there(barrier(thread)))
            asynchronous.issue(thread, asynchronous.MBARRIER, key, count * fields.row_bytes, action)

    return run


ROWS4 = 4  # of gather4 and scatter4


def fetch(thread, address: int) -> Fields:
    region, place = locate(thread, None, address, tensor_map.BYTES, align=64)
    try:
        return tensor_map.decode(region.load(place, tensor_map.BYTES).to_bytes(tensor_map.BYTES, "little"))
    except NoTensorMap as error:
        raise fault(error.reason) from None


def check(f: Fields, rank: int, mode: str, place: int, op: str | None) -> None:
    """Whether a copy can use a map. The order is the compiled engine's."""
    if f.rank != rank:
        raise fault(tensor_map.RANK)
    im2col = mode.startswith("im2col")
    if im2col != (f.pixel_box is not None):
        raise fault(tensor_map.IS_TILED if im2col else tensor_map.IS_IM2COL)
    if f.type.name in ("b4x16_p64", "b6x16_p32") or (f.interleave and (im2col or "4" in mode)) or (f.interleave and rank < 3):
        raise fault(tensor_map.UNSUPPORTED)
    if f.address % (32 if f.interleave == 2 else 16):
        raise fault(tensor_map.ADDRESS)
    span = tensor_map.SPANS[f.swizzle]
    if f.interleave == 2 and f.swizzle != 1:
        raise fault(tensor_map.SWIZZLE)
    if f.row_bytes % 16 or not f.row_bytes or (span and not f.interleave and f.row_bytes > span):
        raise fault(tensor_map.ROW)
    if op and f.type.name not in REDUCTIONS[op]:
        raise fault(tensor_map.REDUCTION)
    if place % SHARED_ALIGN:
        raise AccessFault(place, SHARED_ALIGN, "shared", misaligned=True)


def elements(f: Fields, mode: str, at: list[int], shift: list[int], place: int) -> Iterator[tuple[int, int]]:
    """(global address or OOB, shared address) of every unit of a copy."""
    per_unit = 2 if f.type.bits == 4 else 1
    if f.type.bits == 4 and at[0] % 2:
        raise fault(tensor_map.ODD)
    units, pitch, steps = f.row_bytes // f.unit_bytes, f.pitch, (f.unit_bytes, *f.strides)
    if f.interleave:
        counts, strides = f.counts, f.element_strides
        for row, index in enumerate(itertools.product(*map(range, reversed(counts)))):
            x = [c + i * s for c, i, s in zip(at, reversed(index), strides, strict=True)]
            yield locate_element(f, x, steps), place + swizzled(f, place, row * pitch)
        return
    for row, outer in enumerate(rows(f, mode, at, shift)):
        for i in range(units):
            x = [at[0] // per_unit + i, *outer]
            yield locate_element(f, x, steps, per_unit), place + swizzled(f, place, row * pitch + i * steps[0])


def rows(f: Fields, mode: str, at: list[int], shift: list[int]) -> Iterator[list[int]]:
    """The coordinates of each row beyond the first one."""
    if mode in ("tile::gather4", "tile::scatter4"):
        yield from ([y] for y in at[1:])
    elif mode == "tile":
        for index in itertools.product(*map(range, reversed(f.counts[1:]))):
            yield [c + i * s for c, i, s in zip(at[1:], reversed(index), f.element_strides[1:], strict=True)]
    else:
        yield from pixels(f, at, shift)


def pixels(f: Fields, at: list[int], shift: list[int]) -> Iterator[list[int]]:
    """im2col: the filter's base walks through the pixel box, W first, then H, D and at last the next image; the offsets are added."""
    box = f.pixel_box
    assert box is not None
    spatial = f.rank - 2
    first, steps = box.lower, f.element_strides[1:-1]
    last = [dim - 1 + high for dim, high in zip(f.dims[1:-1], box.upper, strict=True)]
    base = list(at[1:-1])
    if not shift:
        shift = [0] * spatial
    limit = {1: 1 << 16, 2: 1 << 8, 3: 1 << 5}[spatial]
    if any(s >= limit for s in shift) or any(not low <= x <= high for low, x, high in zip(first, base, last, strict=True)):
        raise fault(tensor_map.OFFSETS)
    n = at[-1]
    for _ in range(box.pixels):
        yield [*(x + s for x, s in zip(base, shift, strict=True)), n]
        for d in range(spatial):
            base[d] += steps[d]
            if base[d] <= last[d]:
                break
            base[d] = first[d]
        else:
            n += 1


def locate_element(f: Fields, x: list[int], steps: tuple[int, ...], per_unit: int = 1) -> int:
    dims = (-(-f.dims[0] // per_unit), *f.dims[1:])
    if all(0 <= c < dim for c, dim in zip(x, dims, strict=True)):
        return f.address + sum(c * step for c, step in zip(x, steps, strict=True))
    return OOB


def swizzled(f: Fields, place: int, offset: int) -> int:
    """Where byte `offset` of a box lies that begins at the shared address `place`: bits 7 on of its address choose how atoms are swapped."""
    span, atom = tensor_map.SPANS[f.swizzle], tensor_map.ATOMS[f.swizzle]
    if not span:
        return offset
    address = place + offset
    line = address >> 7
    if f.swizzle == tensor_map.FLIP:
        address ^= (line & 1) * 8
    return (address ^ (line & span // atom - 1) * atom) - place


def filler(f: Fields, size: int) -> int:
    """What stands in shared memory for an element out of bounds."""
    return int.from_bytes(tensor_map.NAN.to_bytes(2, "little") * (size // 2), "little") if f.fill else 0


def reach(thread, addresses: list[int], size: int):
    """The memory from the lowest to the highest of the elements, which must be legal."""
    if not addresses:
        return None
    low, high = min(addresses), max(addresses) + size
    region = thread.cta.launch.memory.find(low, high - low)
    if region is None:
        raise AccessFault(low, high - low)
    return region


def landed(f: Fields, value: int) -> int:
    """An element as it arrives in shared memory: f32 flushed or rounded to TF32, if the type says so."""
    if "ftz" in f.type.name and not value & 0x7F800000:
        value &= 0x80000000
    if f.type.tf32:
        if value & 0x7FFFFFFF > 0x7F800000:
            return 0x7FFFE000
        value = value + 0x1000 & 0xFFFFE000
    return value


def reduce(f: Fields, op: str) -> Callable:
    from warpwright.cpu.interpreter.memory_access import operation

    combine = operation(op, f.type.name.removesuffix(".ftz"), False)
    return lambda old, value: combine(old, value) & mask(f.type.bits)


# ── tensormap ────────────────────────────────────────────────────────────────────────────────────────────────────


@per_thread("tensormap")
def change(m: Match, decoder) -> Callable:
    """tensormap.replace writes a field; cp_fenceproxy copies a map from shared to global memory."""
    if m["action"] == "cp_fenceproxy":
        target, _ = decoder.address(operand(m, "dst").operand, "global")
        source, _ = decoder.address(operand(m, "src").operand, "shared")

        def copy(thread):
            region, place = locate(thread, "shared", source(thread), tensor_map.BYTES)
            data = region.load(place, tensor_map.BYTES)
            region, place = locate(thread, "global", target(thread), tensor_map.BYTES)
            region.store(place, tensor_map.BYTES, data)

        return copy
    field = m["field"]
    index = m.value("index").operand.value if m.value("index") is not None else 0  # type: ignore[union-attr]
    if field == "swizzle_mode" and getattr(operand(m, "b").operand, "value", 0) > 3:
        raise ValueError("swizzle mode 96B is not in the interpreter")
    at, low, bits = tensor_map.field_bits(field, index)
    shift, less = tensor_map.REPLACED.get(field, (0, 0))
    address, space = decoder.address(operand(m, "a").operand, (m.get("space") or "").split("::")[0] or None)
    value = decoder.reader(operand(m, "b").operand, m["T"])
    size = 8 if bits == 64 else 4

    def replace(thread):
        region, place = locate(thread, space, address(thread), tensor_map.BYTES, align=64)
        word, new = region.load(place + at, size), (value(thread) - less) >> shift
        if field == "elemtype":
            new = tensor_map.elemtype_bits(new) | word >> low & tensor_map.ELEMTYPE_KEPT
        field_mask = mask(bits) << low
        region.store(place + at, size, word & ~field_mask | new << low & field_mask)

    return replace
