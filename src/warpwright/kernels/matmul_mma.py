"""Matrix products on tensor cores: C = A·B with `mma.sync`, for bf16 and fp8 (e4m3), dense and grouped by expert.

k may be taken in any order as long as both operands take the same, and that makes fragments simple: of a slab (`matmul_tiles`), lane (g,
t), g = lane/4, t = lane%4, reads the 16 bytes at lane·16: dense, free of bank conflicts, with no `ldmatrix`. Those bytes (k = 8t … 8t+7 of
bf16) feed two
`mma`: step s takes words 2s and 2s+1. A k-strided operand is stored by rows of k in the order of those steps and read by `ldmatrix.trans`.

FP8 follows DeepSeek-V3 (technical report, §3.3): every 128 of k, the tensor core's sum is scaled and added to FP32 registers.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from warpwright import ptx
from warpwright.kernels.matmul_tiles import CHUNK, SLAB, Operand, Part, Problem, Tiling, pipeline, place
from warpwright.ptx import Pointer, b8, b32, f32, u32, u64

MMA_M, MMA_N = 16, 8


@dataclass(frozen=True)
class Config(Tiling):
    """One variant of the kernel: dtype of A and B, out of C.

    a_format: fp8 of A, e4m3 or (for gradients) e5m2; B is e4m3. b_scale: fp8 scales of B by "block" (128 columns × 128 of k) or "row"
    (each column of C, 128 of k). emulate: fp8 by f16 `mma`, for targets without e4m3. fp8 operands are k-contiguous, their k padded with
    zeros to a multiple of 128; offsets by k count in 128.
    """

    dtype: Literal["bf16", "fp8"] = "bf16"
    out: Literal["bf16", "f32"] = "f32"
    a_format: Literal["e4m3", "e5m2"] = "e4m3"
    b_scale: Literal["block", "row"] = "block"
    emulate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype == "fp8" and (self.a_strided or self.b_strided or self.access == "elements" or self.slabs != 2):
            raise ValueError("fp8 operands are k-contiguous and 16-byte aligned, and a stage is 128 of k (two slabs)")
        if self.warp_tile[0] % MMA_M or self.warp_tile[1] % (2 * MMA_N):
            raise ValueError(f"a warp's tile must be a multiple of {MMA_M} × {2 * MMA_N}, not {self.warp_tile}")

    @property
    def element(self) -> int:
        return 2 if self.dtype == "bf16" else 1

    @property
    def chunk(self) -> int:
        return CHUNK if self.dtype == "fp8" else 1

    @property
    def name(self) -> str:
        scales = "" if self.dtype == "bf16" else f"_{self.b_scale}scale" + ("_f16" if self.emulate else "")
        inputs = f"{self.dtype}e5m2" if self.a_format == "e5m2" else self.dtype
        return f"matmul_{inputs}_{self.layout}_{self.out}_{self.variant}{scales}"


class Fragments(Operand):
    """An operand whose stage is read as fragments of `mma`. format: of its fp8."""

    def __init__(self, config: Config, extent: int, strided: bool, format: str = "e4m3"):
        super().__init__(config, extent, strided)
        self.emulated = format if config.emulate else None

    def slot(self, k: Any) -> Any:
        """Bits [t1 t0 s h i] of k become [s h t1 t0 i], the order in which a k-contiguous operand's words reach `mma` (step s, word half h,
        lane t, element i)."""
        return k >> 5 << 5 | (k >> 2 & 1) << 4 | (k >> 1 & 1) << 3 | (k >> 3 & 3) << 1 | k & 1

    def lane_offset(self, first: Any, pair: bool) -> Any:
        """Bytes into a stage where this lane reads, from row (column) `first` of the tile on. pair: groups of 8 columns, two at a time
        (B)."""
        lane = ptx.laneid()
        if not self.strided:
            return first * SLAB + lane * 16
        if pair:
            return (lane & 15) * self.pitch + (lane >> 4) * 16 + first * 2
        return ((lane & 7) + (lane >> 4) * 8) * self.pitch + (lane >> 3 & 1) * 16 + first * 2

    def read_rows(self, stage: Pointer, slab: int, tile: int) -> list[list]:
        """Fragments of A for 16 rows and a slab: four registers for each step of `mma`."""
        if self.strided:
            return [self._transposed(stage, slab, step, tile) for step in range(2)]
        lower, upper = (self._words(stage, slab, 2 * tile + half) for half in range(2))
        return [[lower[i], upper[i], lower[i + 1], upper[i + 1]] for i in range(0, len(lower), 2)]

    def read_columns(self, stage: Pointer, slab: int, tile: int) -> list[list[list]]:
        """Fragments of B for two groups of 8 columns and a slab: for each group, two registers for each step."""
        if self.strided:
            quads = [self._transposed(stage, slab, step, tile) for step in range(2)]
            return [[quad[0:2] for quad in quads], [quad[2:4] for quad in quads]]
        groups = [self._words(stage, slab, 2 * tile + half) for half in range(2)]
        return [[words[i:i + 2] for i in range(0, len(words), 2)] for words in groups]

    def _words(self, stage: Pointer, slab: int, eight: int) -> list:
        words = ptx.ld.shared.v4.b32(stage.bytes((slab * self.extent + 8 * eight) * SLAB))
        return [half for word in words for half in _as_f16(word, self.emulated)] if self.emulated else words

    def _transposed(self, stage: Pointer, slab: int, step: int, tile: int) -> list:
        return ptx.ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16(stage.bytes((32 * slab + 16 * step) * self.pitch + 32 * tile))


def _as_f16(word: Any, format: str) -> list:
    """Four fp8 in a word as two words of two f16 each, bytes 0 and 2, then 1 and 3. e5m2 is a cut f16; e4m3 comes out times 2⁻⁸ (the
    exponents' biases differ by 8), exactly, and its NaN (0x7F) as NaN."""
    halves = []
    for shift in (0, 8):
        bytes_ = (word.as_(u32) >> shift if shift else word.as_(u32)) & 0x00FF00FF
        if format == "e5m2":
            halves.append((bytes_ << 8).as_(b32))
            continue
        magnitude = bytes_ & 0x007F007F
        nan = ((magnitude + 0x00010001) >> 7 & 0x00010001) * 0x7E00
        halves.append((magnitude << 7 | (bytes_ & 0x00800080) << 8 | nan).as_(b32))
    return halves


# What undoes the 2⁻⁸ of e4m3 in `_as_f16`, for both operands together.
_EMULATION_SCALE = {"e4m3": 2.0**16, "e5m2": 2.0**8}


@lru_cache(maxsize=256)
def build(config: Config) -> ptx.Kernel:
    """The kernel of a variant. Grid: (column tiles, row tiles, 1), or (…, …, experts) where grouped by k.

    Grouped by rows, the row tiles are at most ceil(m / tile) + experts (each expert's rows start a tile of their own); what is too many
    returns.
    """
    target = "sm_89" if config.dtype == "fp8" and not config.emulate else "sm_80"
    decorate = ptx.kernel(block=config.threads, name=config.name, min_target=target)
    if config.dtype == "bf16":

        def product(a: Pointer[b8], b: Pointer[b8], c: Pointer[b8], offsets: Pointer[u32], experts: u32, m: u32, n: u32, k: u32,
                    a_pitch: u32, b_pitch: u32, c_pitch: u32, b_stride: u64, c_stride: u64):
            _product(config, Problem(a, b, c, offsets, experts, m, n, k, a_pitch, b_pitch, c_pitch, b_stride, c_stride))
    else:

        def product(a: Pointer[b8], b: Pointer[b8], c: Pointer[b8], offsets: Pointer[u32], experts: u32, m: u32, n: u32, k: u32,  # type: ignore[misc]
                    a_pitch: u32, b_pitch: u32, c_pitch: u32, b_stride: u64, c_stride: u64,
                    a_scale: Pointer[f32], b_scale: Pointer[f32], a_scale_k: u32, b_scale_k: u32, b_scale_n: u32, b_scale_stride: u32):
            _product(config, Problem(a, b, c, offsets, experts, m, n, k, a_pitch, b_pitch, c_pitch, b_stride, c_stride,
                                     a_scale, b_scale, a_scale_k, b_scale_k, b_scale_n, b_scale_stride))

    return decorate(product)


def _product(config: Config, given: Problem) -> None:
    a, b = Fragments(config, config.tile[0], config.a_strided, config.a_format), Fragments(config, config.tile[1], config.b_strided)
    part = place(config, given, a, b)
    warp = ptx.warpid()
    warp_row, warp_column = warp // config.warps[1] * config.warp_tile[0], warp % config.warps[1] * config.warp_tile[1]
    row, column = part.row + warp_row, part.column + warp_column
    groups = config.warp_tile[1] // MMA_N
    sums = [[[ptx.var(f32, 0.0) for _ in range(4)] for _ in range(groups)] for _ in range(config.warp_tile[0] // MMA_M)]
    scales = Scales(config, given, part, row, column) if config.dtype == "fp8" else None

    def consume(stage_a: Pointer, stage_b: Pointer) -> None:
        if scales is None:
            _multiply(config, a, b, stage_a, stage_b, sums)
        else:
            _multiply_scaled(config, a, b, stage_a, stage_b, sums, scales)

    offsets = a.lane_offset(warp_row, pair=False), b.lane_offset(warp_column, pair=True)
    pipeline(config, a, b, part.first_k, part.end_k, offsets, consume)
    _store(config, part, given.c_pitch, sums, row, column)


_MMA = {
    "bf16": ptx.word("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "e4m3": ptx.word("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    "e5m2": ptx.word("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32"),
    "f16": ptx.word("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
}


def _multiply(config: Config, a: Fragments, b: Fragments, stage_a: Pointer, stage_b: Pointer, sums: list) -> None:
    """Add a stage's products to the sums."""
    mma = _MMA["bf16"]
    for slab in range(config.slabs):
        columns = [group for tile in range(len(sums[0]) // 2) for group in b.read_columns(stage_b, slab, tile)]
        rows = [a.read_rows(stage_a, slab, tile) for tile in range(len(sums))]
        for row, row_of_sums in zip(rows, sums, strict=True):
            for group, total in zip(columns, row_of_sums, strict=True):
                for step_a, step_b in zip(row, group, strict=True):
                    mma(step_a, step_b, total, out=total)


class Scales:
    """The scales that this thread's sums need, a chunk of 128 of k after another."""

    def __init__(self, config: Config, given: Problem, part: Part, row: Any, column: Any):
        self.config = config
        chunk = part.first_k // CHUNK
        group, member = ptx.laneid() >> 2, ptx.laneid() & 3
        rows = [row + group + 8 * half for half in range(config.warp_tile[0] // 8)]
        self.rows_inside = [each < given.m for each in rows] if config.access == "masked" else None
        self.of_rows = ptx.var(u64, (given.a_scale + row + chunk * given.a_scale_k + group).register())
        self.row_step = ptx.mul.wide.u32(given.a_scale_k, 4)
        self.column_step = ptx.mul.wide.u32(given.b_scale_k, 4)
        groups = config.warp_tile[1] // MMA_N
        self.columns_inside = None
        if config.b_scale == "row":
            self.of_columns = [ptx.var(u64, (given.b_scale + column + chunk * given.b_scale_k + member * 2).register())]
            if config.access == "masked":
                self.columns_inside = [[column + member * 2 + (8 * group + i) < given.n for i in range(2)] for group in range(groups)]
        else:
            scales = given.b_scale + part.expert * given.b_scale_stride + chunk * given.b_scale_k
            blocks = [ptx.min(column + 8 * group, given.n - 1) // CHUNK for group in range(groups)]
            self.of_columns = [ptx.var(u64, (scales + block * given.b_scale_n).register()) for block in blocks]

    def read(self) -> tuple[list, list]:
        """(a scale for each 8 rows, two for each group of 8 columns) of the next chunk."""
        rows = [self._load(Pointer(f32, self.of_rows.operand, 32 * half), self.rows_inside and self.rows_inside[half])
                for half in range(self.config.warp_tile[0] // 8)]
        columns = []
        for group in range(self.config.warp_tile[1] // MMA_N):
            if self.config.b_scale == "row":
                inside = self.columns_inside[group] if self.columns_inside else (None, None)
                columns.append([self._load(Pointer(f32, self.of_columns[0].operand, 32 * group + 4 * i), inside[i]) for i in range(2)])
            else:
                columns.append([ptx.ld.global_.nc(Pointer(f32, self.of_columns[group].operand))] * 2)
        ptx.add.s64(self.of_rows, self.row_step, out=self.of_rows)
        for pointer in self.of_columns:
            ptx.add.s64(pointer, self.column_step, out=pointer)
        if self.config.emulate:
            rows = [scale * _EMULATION_SCALE[self.config.a_format] for scale in rows]
        return rows, columns

    def _load(self, pointer: Pointer, inside: Any) -> Any:
        return ptx.ld.global_.nc(pointer) if inside is None else ptx.ld.global_.nc(pointer, out=ptx.var(f32, 0.0), guard=inside)


def _multiply_scaled(config: Config, a: Fragments, b: Fragments, stage_a: Pointer, stage_b: Pointer, sums: list, scales: Scales) -> None:
    """Add a stage's products, which share their scales, to the sums: products first on their own, then scaled in FP32."""
    mma, zero = _MMA["f16" if config.emulate else config.a_format], ptx.var(f32, 0.0)
    row_scales, column_scales = scales.read()
    columns: list = [[] for _ in sums[0]]
    for slab in range(config.slabs):
        for tile in range(len(sums[0]) // 2):
            for half, group in enumerate(b.read_columns(stage_b, slab, tile)):
                columns[2 * tile + half] += group
    rows = [[step for slab in range(config.slabs) for step in a.read_rows(stage_a, slab, tile)] for tile in range(len(sums))]
    parts = []
    for row in rows:
        for column in columns:
            part = mma(row[0], column[0], [zero] * 4)
            for step_a, step_b in zip(row[1:], column[1:], strict=True):
                mma(step_a, step_b, part, out=part)
            parts.append(part)
    for index, part in enumerate(parts):
        tile, number = divmod(index, len(columns))
        for i, total in enumerate(sums[tile][number]):
            ptx.fma.rn(part[i], row_scales[2 * tile + i // 2] * column_scales[number][i % 2], total, out=total)


def _store(config: Config, part: Part, pitch: Any, sums: list, row: Any, column: Any) -> None:
    """Write the sums that belong to this CTA. row, column: of the warp's first sum, in C."""
    size = 2 if config.out == "bf16" else 4
    rows, columns = part.end_row - part.first_row, part.end_column - part.first_column
    group, member = ptx.laneid() >> 2, ptx.laneid() & 3
    first = part.c.bytes(ptx.mul.wide.u32(row, pitch)).bytes(column * size)
    here = ptx.var(u64, first.bytes(ptx.mul.wide.u32(group, pitch)).bytes(member * 2 * size).register())
    row, column = row + group, column + member * 2
    step = ptx.mul.wide.u32(pitch, 8)
    single = config.access != "shifted"
    column_inside = [[column + (8 * number + i) - part.first_column < columns for i in range(2 if single else 1)]
                     for number in range(len(sums[0]))]
    for half in range(2 * len(sums)):
        row_inside = row + 8 * half - part.first_row < rows
        for number, total in enumerate(sums[half // 2]):
            pair = total[2 * (half % 2):2 * (half % 2) + 2]
            target = Pointer(f32, here.operand, 8 * number * size)
            inside = [row_inside & each for each in column_inside[number]]
            if config.out == "bf16" and single:
                for i, value in enumerate(pair):
                    ptx.st.global_.b16(target.bytes(2 * i), ptx.cvt.rn.bf16.f32(value), guard=inside[i])
            elif config.out == "bf16":
                ptx.st.global_.b32(target, ptx.cvt.rn.bf16x2.f32(pair[1], pair[0]), guard=inside[0])
            elif single:
                for i, value in enumerate(pair):
                    ptx.st.global_(target + i, value, guard=inside[i])
            else:
                ptx.st.global_.v2(target, pair, guard=inside[0])
        ptx.add.s64(here, step, out=here)
