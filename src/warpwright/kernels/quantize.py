"""To narrow formats with a scale per tile or block, and back: the kernels of `formats.py`, which has the formats' rules and the references.

Rows: a warp takes a row, four neighbours a lane, a tile of 128 at a time. Columns (for weight gradients): a warp takes 32 columns of 128
tokens, so the largest of a tile needs no exchange; a lane writes its column's tokens, which end up side by side. Blocks: a CTA takes
128×128, a warp 16 rows of it, and can write the transpose too, which data gradients need. Each has a variant for sm_89 on and one of
integer operations for sm_80.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.kernels import formats, narrow
from warpwright.kernels.formats import DTYPES, Quantized, padded
from warpwright.kernels.lanes import (
    ALL,
    BLOCK,
    ELEMENTS,
    FOURS,
    NAMES,
    WARP,
    Access,
    by_access,
    each_group,
    lane_max,
    launch,
    pitch,
    row_of,
    warp_of_row,
    widest,
)
from warpwright.kernels.permute import expert_chunks
from warpwright.kernels.recipe import TILE
from warpwright.kernels.registry import LibraryKernel, register
from warpwright.ptx import Pointer, b8, b16, b32, f32, u32, u64

FOUR = 4  # neighbours of a lane: 32 lanes, a tile


def _target(native: bool) -> str:
    return "sm_89" if native else "sm_80"


def _suffix(power_of_two: bool, native: bool) -> str:
    return "_pow2" * power_of_two + "_integer" * (not native)


def largest(values: list[f32]) -> f32:
    """The largest magnitude; NaN if any is."""
    values = [ptx.abs.f32(value) for value in values]
    while len(values) > 1:
        values = [ptx.max.NaN.f32(a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def each_tile(columns: u32, body: Callable[[u32, u32, bool], None]) -> None:
    """`body(tile, this lane's first column, whole)` for each tile of a row; `whole` is False for a last one that may be shorter."""
    lane = ptx.laneid() * FOUR
    whole = columns // TILE
    with ptx.loop(0, whole) as tile:
        body(tile, tile * TILE + lane, True)
    with ptx.when(whole * TILE < columns):
        body(whole, whole * TILE + lane, False)


def load_four(access: Access, row: Pointer, column: u32, columns: u32, whole: bool) -> list[f32]:
    """Four neighbours of a row, zero beyond its end."""
    if whole:
        return [value for first in range(0, FOUR, access.width) for value in access.load(row + column + first)]
    values = [ptx.var(f32, 0.0) for _ in range(FOUR)]
    for first in range(0, FOUR, access.width):
        with ptx.when(column + first < columns):
            for value, loaded in zip(values[first:first + access.width], access.load(row + column + first), strict=True):
                ptx.assign(value, loaded)
    return values


# ── tiles of 1×128 ───────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache
def tiles_kernel(dtype: str, width: int, format: str, power_of_two: bool, native: bool) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"quantize_tiles_{access.name}_{format}" + _suffix(power_of_two, native), min_target=_target(native))
    def quantize_tiles(x: Pointer[b8], values: Pointer[b8], scales: Pointer[f32], rows: u32, columns: u32, x_pitch: u32, values_pitch: u32):
        with warp_of_row(rows) as row:
            source, target = row_of(x, row, x_pitch, dtype), row_of(values, row, values_pitch)
            own_scales = row_of(scales, row, values_pitch // (TILE // 4))

            def quantize(tile, column, whole):
                numbers = load_four(access, source, column, columns, whole)
                scale, inverse = narrow.tile_scale(lane_max(largest(numbers)), format, power_of_two)
                ptx.st.global_.b32(target + column, narrow.pack_fp8([number * inverse for number in numbers], format, native))
                ptx.st.global_.f32(own_scales + tile, scale, guard=ptx.laneid() == 0)

            each_tile(columns, quantize)

    return quantize_tiles


@lru_cache
def dequantize_kernel(dtype: str, width: int, format: str, native: bool) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"dequantize_{format}_{access.name}" + "_integer" * (not native), min_target=_target(native))
    def dequantize(values: Pointer[b8], scales: Pointer[f32], x: Pointer[b8], rows: u32, columns: u32, values_pitch: u32, scales_pitch: u32,
                   x_pitch: u32):
        with warp_of_row(rows) as row:
            source, own_scales = row_of(values, row, values_pitch), row_of(scales, row, scales_pitch)
            target = row_of(x, row, x_pitch, dtype)

            def restore(tile, column, whole):
                scale = ptx.ld.global_.nc.f32(own_scales + tile)
                if format == "e4m3":
                    numbers = narrow.unpack_e4m3(ptx.ld.global_.nc.b32(source + column), native)
                else:
                    numbers = narrow.unpack_e5m6(load_e5m6(source, column))
                numbers = [number * scale for number in numbers]
                for first in range(0, FOUR, width):
                    if whole:
                        access.store(target + column + first, numbers[first:first + width])
                    else:
                        with ptx.when(column + first < columns):
                            access.store(target + column + first, numbers[first:first + width])

            each_tile(columns, restore)

    return dequantize


@lru_cache
def e5m6_kernel(dtype: str, width: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"quantize_e5m6_{access.name}")
    def quantize_e5m6(x: Pointer[b8], values: Pointer[b8], scales: Pointer[f32], rows: u32, columns: u32, x_pitch: u32, values_pitch: u32,
                      scales_pitch: u32):
        with warp_of_row(rows) as row:
            source, target = row_of(x, row, x_pitch, dtype), row_of(values, row, values_pitch)
            own_scales = row_of(scales, row, scales_pitch)

            def quantize(tile, column, whole):
                numbers = load_four(access, source, column, columns, whole)
                scale, inverse = narrow.tile_scale(lane_max(largest(numbers)), "e5m6", power_of_two=True)
                parts = narrow.pack_e5m6([number * inverse for number in numbers])
                place = (target + (column // FOUR) * 6).as_(b16)
                for i, part in enumerate(parts):
                    ptx.st.global_.b16(place + i, ptx.cvt.u16.u32(part))
                ptx.st.global_.f32(own_scales + tile, scale, guard=ptx.laneid() == 0)

            each_tile(columns, quantize)

    return quantize_e5m6


def load_e5m6(row: Pointer, column: u32) -> list[u32]:
    """The 48 bits of four neighbours, 16 a register."""
    place = (row + (column // FOUR) * 6).as_(b16)
    return [ptx.cvt.u32.u16(ptx.ld.global_.nc.b16(place + i)) for i in range(3)]


# ── tiles of 128×1, stored transposed ────────────────────────────────────────────────────────────────────────────


class Columns:
    """Where a lane's column of a matrix is read, token after token; kind: "f32", "bf16", or "e4m3" or "e5m6" with scales."""

    def __init__(self, kind: str, base: Pointer, scales: Pointer, column: u32, row_pitch: u32, scales_pitch: u32, native: bool):
        self.kind, self.native, self.column = kind, native, column
        self.base, self.scales, self.row_pitch, self.scales_pitch = base, scales, row_pitch, scales_pitch

    def load(self, token: u32) -> f32:
        """The number of a token."""
        row = row_of(self.base, token, self.row_pitch)
        if self.kind in ELEMENTS:
            return Access(self.kind, 1).load(row.as_(ELEMENTS[self.kind]) + self.column)[0]
        scale = ptx.ld.global_.nc.f32(row_of(self.scales, token, self.scales_pitch) + self.column // TILE)
        if self.kind == "e4m3":
            return narrow.unpack_one_e4m3(ptx.ld.global_.nc.u8(row + self.column, out=ptx.var(b16)), self.native) * scale
        place = row + (self.column // 2) * 3 + (self.column & 1)
        word = ptx.cvt.u32.u8(ptx.ld.global_.nc.b8(place)) | ptx.cvt.u32.u8(ptx.ld.global_.nc.b8(place + 1)) << 8
        return narrow.e5m6_number(word >> (self.column & 1) * 4) * scale


@lru_cache
def columns_kernel(kind: str, format: str, power_of_two: bool, grouped: bool, native: bool) -> ptx.Kernel:
    name = f"quantize_columns_{kind}_{format}" + "_grouped" * grouped + _suffix(power_of_two, native)

    @ptx.kernel(block=BLOCK, name=name, min_target=_target(native))
    def quantize_columns(x: Pointer[b8], x_scales: Pointer[f32], offsets: Pointer[b32], chunks: Pointer[b32], values: Pointer[b8],
                         scales: Pointer[f32], rows: u32, columns: u32, experts: u32, x_pitch: u32, x_scales_pitch: u32, values_pitch: u32,
                         scales_pitch: u32):
        """Grid: groups of 128 columns by chunks of 128 tokens. A warp takes 32 columns."""
        chunk, column = ptx.ctaid.y, ptx.global_thread_index()
        start, count = chunk_tokens(chunk, offsets, chunks, experts) if grouped else (chunk * TILE, ptx.min.u32(rows - chunk * TILE, TILE))
        with ptx.when((count > 0) & (column < columns)):
            source = Columns(kind, x, x_scales, column, x_pitch, x_scales_pitch, native)
            last = count - 1  # read again for what is missing of the last four
            amax = [ptx.var(f32, 0.0) for _ in range(FOUR)]
            with ptx.loop(0, count, FOUR) as token:
                for i, most in enumerate(amax):
                    ptx.max.NaN.f32(most, ptx.abs.f32(source.load(start + ptx.min.u32(token + i, last))), out=most)
            scale, inverse = narrow.tile_scale(largest(amax), format, power_of_two)
            ptx.st.global_.f32(row_of(scales, column, scales_pitch) + chunk, scale)
            target = row_of(values, column, values_pitch) + chunk * TILE
            with ptx.loop(0, count, FOUR) as token:
                numbers = [source.load(start + ptx.min.u32(token + i, last)) * inverse for i in range(FOUR)]
                numbers[1:] = [ptx.select(token + i < count, number, 0.0) for i, number in enumerate(numbers[1:], 1)]
                ptx.st.global_.b32(target + token, narrow.pack_fp8(numbers, format, native))
            with ptx.loop(count + (FOUR - 1) & -FOUR, TILE, FOUR) as token:
                ptx.st.global_.b32(target + token, 0)

    return quantize_columns


def chunk_tokens(chunk: u32, offsets: Pointer, chunks: Pointer, experts: u32) -> tuple[Any, Any]:
    """(first token, how many) of a chunk of tokens sorted by expert; none for a chunk beyond the last."""
    expert = ptx.var(u32, 0)
    lane = ptx.laneid()
    with ptx.loop(0, experts, WARP) as first:  # the chunk's expert is the first whose chunks end beyond it
        end = ptx.var(b32, ALL)
        ptx.ld.global_.nc.b32(chunks + (first + lane) + 1, out=end, guard=first + lane < experts)
        ptx.add.u32(expert, ptx.popc.b32(ptx.vote.sync.ballot.b32(end.as_(u32) <= chunk, ALL)), out=expert)
    start, count = ptx.var(u32, 0), ptx.var(u32, 0)
    with ptx.when(expert < experts):
        first_chunk, end = (ptx.ld.global_.nc.b32(each).as_(u32) for each in (chunks + expert, offsets + expert + 1))
        ptx.assign(start, ptx.ld.global_.nc.b32(offsets + expert).as_(u32) + (chunk - first_chunk) * TILE)
        ptx.assign(count, ptx.min.u32(end - start, TILE))
    return start, count


# ── blocks of 128×128 ────────────────────────────────────────────────────────────────────────────────────────────

BLOCK_WARPS = 8
BLOCK_ROWS = TILE // BLOCK_WARPS


@lru_cache
def blocks_kernel(dtype: str, width: int, power_of_two: bool, transposed: bool, native: bool) -> ptx.Kernel:
    access = Access(dtype, width)
    name = f"quantize_blocks_{access.name}" + "_transposed" * transposed + _suffix(power_of_two, native)

    @ptx.kernel(block=BLOCK_WARPS * WARP, name=name, min_target=_target(native))
    def quantize_blocks(w: Pointer[b8], values: Pointer[b8], scales: Pointer[f32], flipped: Pointer[b8], flipped_scales: Pointer[f32],
                        rows: u32, columns: u32, pitch: u32, stride: u64):
        """Grid: blocks along columns, along rows, experts. Experts lie one after another, in w `stride` bytes apart."""
        expert, block_row, block_column = ptx.ctaid.z, ptx.ctaid.y, ptx.ctaid.x
        across, down = ptx.nctaid.x, ptx.nctaid.y  # blocks
        row, column = block_row * TILE + ptx.warpid() * BLOCK_ROWS, block_column * TILE + ptx.laneid() * FOUR
        first = w.bytes(ptx.cvt.u64.u32(expert) * stride)
        numbers = []
        for i in range(BLOCK_ROWS):
            four = [ptx.var(f32, 0.0) for _ in range(FOUR)]
            with ptx.when(row + i < rows):
                source = row_of(first, row + i, pitch, dtype)
                for at in range(0, FOUR, width):
                    with ptx.when(column + at < columns):
                        for number, loaded in zip(four[at:at + width], access.load(source + column + at), strict=True):
                            ptx.assign(number, loaded)
            numbers.append(four)
        most = ptx.shared(f32, BLOCK_WARPS)
        ptx.st.shared.f32(most + ptx.warpid(), lane_max(largest([number for four in numbers for number in four])), guard=ptx.laneid() == 0)
        ptx.bar.sync(0)
        scale, inverse = narrow.tile_scale(largest([ptx.ld.shared.f32(most + warp) for warp in range(BLOCK_WARPS)]), "e4m3", power_of_two)
        numbers = [[number * inverse for number in four] for four in numbers]
        one = (ptx.warpid() == 0) & (ptx.laneid() == 0)
        ptx.st.global_.f32(scales + ((expert * down + block_row) * across + block_column), scale, guard=one)
        for i, four in enumerate(numbers):
            with ptx.when(row + i < rows):
                target = row_of(values, expert * rows + row + i, across * TILE)
                ptx.st.global_.b32(target + column, narrow.pack_fp8(four, "e4m3", native))
        if transposed:
            ptx.st.global_.f32(flipped_scales + ((expert * across + block_column) * down + block_row), scale, guard=one)
            for i in range(FOUR):
                words = [narrow.pack_fp8([four[i] for four in numbers[at:at + FOUR]], "e4m3", native) for at in range(0, BLOCK_ROWS, FOUR)]
                with ptx.when(column + i < columns):
                    target = row_of(flipped, expert * columns + column + i, down * TILE)
                    ptx.st.global_.v4.b32(target + row, words)

    return quantize_blocks


# ── between BF16 and FP32 ────────────────────────────────────────────────────────────────────────────────────────


@lru_cache
def cast_kernel(source: str, target: str, width: int) -> ptx.Kernel:
    load, store = Access(source, width), Access(target, width)

    @ptx.kernel(block=BLOCK, name=f"cast_{source}_{target}_x{width}")
    def cast(x: Pointer[b8], y: Pointer[b8], rows: u32, columns: u32, x_pitch: u32, y_pitch: u32):
        with warp_of_row(rows) as row:
            read, write = row_of(x, row, x_pitch, source), row_of(y, row, y_pitch, target)
            each_group(columns, width, lambda column: store.store(write + column, load.load(read + column)))

    return cast


# ── launching ────────────────────────────────────────────────────────────────────────────────────────────────────

NATIVE = True
"""Whether the launch helpers take the variants with FP8 conversions: those of the virtual GPU's default part, an H800."""


def quantize_tiles(x: Tensor, format: str = "e4m3", power_of_two: bool = False) -> Quantized:
    """x[M, K] (BF16 or FP32, contiguous columns) → values[M, Kp], scales[M, Kp/128]."""
    rows, columns = x.shape
    width = padded(columns)
    values, scales = torch.empty(rows, width, dtype=DTYPES[format]), torch.empty(rows, width // TILE)
    kernel = tiles_kernel(NAMES[x.dtype], widest(columns, x, limit=FOUR * x.element_size()), format, power_of_two, NATIVE)
    launch(kernel, rows, x, values, scales, rows, columns, pitch(x), width)
    return Quantized(values, scales)


def quantize_e5m6(x: Tensor) -> Quantized:
    """x[M, K] (BF16 or FP32, contiguous columns) → values uint8[M, Kp·3/2], scales[M, Kp/128]."""
    rows, columns = x.shape
    width = padded(columns)
    values, scales = torch.empty(rows, width * 3 // 2, dtype=torch.uint8), torch.empty(rows, width // TILE)
    kernel = e5m6_kernel(NAMES[x.dtype], widest(columns, x, limit=FOUR * x.element_size()))
    launch(kernel, rows, x, values, scales, rows, columns, pitch(x), width * 3 // 2, width // TILE * 4)
    return Quantized(values, scales)


def dequantize(quantized: Quantized, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What `quantize_tiles` (E4M3) or `quantize_e5m6` returned → x[M, columns]."""
    values, scales = quantized
    x = torch.empty(len(values), columns, dtype=dtype)
    format = "e5m6" if values.dtype == torch.uint8 else "e4m3"
    kernel = dequantize_kernel(NAMES[dtype], widest(columns, x, limit=FOUR * x.element_size()), format, NATIVE or format == "e5m6")
    launch(kernel, len(values), values, scales, x, len(values), columns, pitch(values), pitch(scales), pitch(x))
    return x


def quantize_columns(x: Tensor | Quantized, columns: int, format: str = "e4m3", power_of_two: bool = False, offsets: Tensor | None = None,
                     chunks: Tensor | None = None) -> Quantized:
    """x[M, columns] (BF16, FP32, or quantised in rows) → values[columns, P], scales[columns, P/128].

    offsets, chunks: int32[E + 1], where each expert's tokens and chunks begin (chunks: computed, if not given). Chunks beyond the last are
    not written.
    """
    from warpwright.kernels import ops

    source, x_scales = x if isinstance(x, Quantized) else (x, None)
    kind = NAMES.get(source.dtype) or ("e5m6" if source.dtype == torch.uint8 else "e4m3")
    rows = len(source)
    count, experts = -(-rows // TILE), 0
    if offsets is not None:
        experts = offsets.numel() - 1
        count = rows // TILE + min(experts, rows)
        chunks = expert_chunks(offsets) if chunks is None else chunks
    values, scales = torch.empty(columns, count * TILE, dtype=DTYPES[format]), torch.empty(columns, count)
    if columns and count:
        kernel = columns_kernel(kind, format, power_of_two, offsets is not None, NATIVE)
        kernel.launch(ops.device(), grid=(-(-columns // BLOCK), count),
                      args=[source, x_scales, offsets, chunks, values, scales, rows, columns, experts, pitch(source),
                            0 if x_scales is None else pitch(x_scales), count * TILE, count * 4])
    return Quantized(values, scales)


def quantize_blocks(w: Tensor, power_of_two: bool = False, transposed: bool = False) -> tuple[Quantized, Quantized | None]:
    """w[..., N, K] (BF16 or FP32) → values[..., N, Kp], scales[..., ⌈N/128⌉, Kp/128], and if asked the same of its transpose."""
    from warpwright.kernels import ops

    w = w.contiguous()
    rows, columns = w.shape[-2:]
    lead = w.shape[:-2]
    experts, down, across = lead.numel(), padded(rows) // TILE, padded(columns) // TILE
    values, scales = torch.empty(*lead, rows, across * TILE, dtype=torch.float8_e4m3fn), torch.empty(*lead, down, across)
    flipped = None
    if transposed:
        flipped = Quantized(torch.empty(*lead, columns, down * TILE, dtype=torch.float8_e4m3fn), torch.empty(*lead, across, down))
    if w.numel():
        width = widest(columns, w.view(-1), limit=FOUR * w.element_size())
        kernel = blocks_kernel(NAMES[w.dtype], width, power_of_two, transposed, NATIVE)
        kernel.launch(ops.device(), grid=(across, down, experts),
                      args=[w, values, scales, *(flipped or (None, None)), rows, columns, columns * w.element_size(),
                            rows * columns * w.element_size()])
    return Quantized(values, scales), flipped


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x of any shape, BF16 or FP32, in the other."""
    if x.dtype == dtype:
        return x
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype)
    flat, size = x.view(-1), x.numel()
    columns = min(size, 4096)
    rows = size // columns if size else 0
    for start, count, length in ((0, rows, columns), (rows * columns, 1, size - rows * columns)):
        if length and count:
            read, write = (each[start:start + count * length].view(count, length) for each in (flat, y.view(-1)))
            width = min(widest(length, read), widest(length, write))
            launch(cast_kernel(NAMES[x.dtype], NAMES[dtype], width), count, read, write, count, length, pitch(read), pitch(write))
    return y


# ── the index ────────────────────────────────────────────────────────────────────────────────────────────────────


def _variants(build: Callable[..., ptx.Kernel]) -> Callable[[], dict[str, ptx.Kernel]]:
    """By source, and by whether the target has FP8 conversions."""
    return lambda: {access.name + ("" if native else ", integer operations"): build(access.dtype, access.width, native)
                    for access in FOURS for native in (True, False)}


def _column_variants() -> dict[str, ptx.Kernel]:
    return {f"{kind} to {format}" + ", grouped" * grouped + ("" if native else ", integer operations"):
            columns_kernel(kind, format, False, grouped, native)
            for kind in ("f32", "bf16", "e4m3", "e5m6") for format in ("e4m3", "e5m2") for grouped in (False, True)
            for native in (True, False)}


def _cast_variants() -> dict[str, ptx.Kernel]:
    return {f"{source} to {target}, {width} at once": cast_kernel(source, target, width)
            for source, target in (("f32", "bf16"), ("bf16", "f32")) for width in (1, 4)}


def _blocks_reference(w: Tensor) -> tuple[Quantized, Quantized]:
    blocks = formats.quantize_blocks(w)
    return blocks, formats.transpose_blocks(blocks, w.shape[-1])


def _matrix(generator: torch.Generator) -> Tensor:
    return torch.randn(2048, 256, generator=generator)


register(LibraryKernel(
    "quantize_tiles", "FP8 in tiles of 1×128", _variants(lambda dtype, width, native: tiles_kernel(dtype, width, "e4m3", False, native)),
    quantize_tiles, formats.quantize_tiles, example=lambda generator: (_matrix(generator),), tolerance=0.0,
    traffic=lambda x: x.nbytes + x.numel()))
register(LibraryKernel(
    "quantize_e5m6", "12-bit E5M6 in tiles of 1×128", by_access(e5m6_kernel, FOURS),
    quantize_e5m6, formats.quantize_e5m6, example=lambda generator: (_matrix(generator),), tolerance=0.0,
    traffic=lambda x: x.nbytes + x.numel() * 3 // 2))
register(LibraryKernel(
    "dequantize", "FP8 tiles back to BF16 or FP32", _variants(lambda dtype, width, native: dequantize_kernel(dtype, width, "e4m3", native)),
    dequantize, formats.dequantize_tiles, example=lambda generator: (formats.quantize_tiles(_matrix(generator)), 256), tolerance=0.0,
    traffic=lambda quantized, columns: 5 * quantized.values.numel()))
register(LibraryKernel(
    "dequantize_e5m6", "E5M6 tiles back to BF16 or FP32",
    by_access(lambda dtype, width: dequantize_kernel(dtype, width, "e5m6", True), FOURS), dequantize, formats.dequantize_e5m6,
    example=lambda generator: (formats.quantize_e5m6(_matrix(generator)), 256), tolerance=0.0,
    traffic=lambda quantized, columns: quantized.values.numel() * 11 // 3))
register(LibraryKernel(
    "quantize_columns", "FP8 in tiles of 128×1, stored transposed", _column_variants,
    lambda x: quantize_columns(x, x.shape[1]), formats.quantize_columns, example=lambda generator: (_matrix(generator),), tolerance=0.0,
    traffic=lambda x: x.nbytes + x.numel()))
register(LibraryKernel(
    "quantize_blocks", "FP8 in blocks of 128×128, and their transpose",
    _variants(lambda dtype, width, native: blocks_kernel(dtype, width, False, True, native)),
    lambda w: quantize_blocks(w, transposed=True), _blocks_reference,
    example=lambda generator: (torch.randn(16, 256, 256, generator=generator),), tolerance=0.0, traffic=lambda w: w.nbytes + 2 * w.numel()))
register(LibraryKernel(
    "cast", "BF16 to FP32 and back", _cast_variants, lambda x: cast(x, torch.bfloat16), lambda x: x.to(torch.bfloat16),
    example=lambda generator: (_matrix(generator),), tolerance=0.0, traffic=lambda x: x.nbytes * 3 // 2))
