"""Matrix products in fp32, on FFMA: C = A·B, dense and grouped by expert.

A warp computes `warp_tile` rows × columns of C; lane l holds columns l, l+32, … of all its rows. So a value of A is one for the whole warp
(a broadcast from shared memory) and the values of B are consecutive (free of bank conflicts), which stand by rows of k in a stage
whatever their order in global memory.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warpwright import ptx
from warpwright.kernels.matmul_tiles import SLAB, Operand, Problem, Tiling, pipeline, place
from warpwright.ptx import Pointer, b8, f32, u32, u64


@dataclass(frozen=True)
class Config(Tiling):
    """One variant of the kernel. All is f32. "masked" is not among the accesses: "elements" copies by 4 bytes."""

    tile: tuple[int, int] = (64, 64)
    warps: tuple[int, int] = (8, 1)
    stages: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warp_tile[0] % 4 or self.warp_tile[1] % 32 or self.slabs != 1 or self.access == "masked":
            raise ValueError(f"a warp's tile must be a multiple of 4 × 32 (it is {self.warp_tile}), a stage one slab, access not masked")

    @property
    def element(self) -> int:
        return 4

    @property
    def name(self) -> str:
        return f"matmul_fp32_{self.layout}_{self.variant}"


class Columns(Operand):
    """A k-contiguous B, turned while it is stored: rows of k in the stage, of which a thread loads one column's 4 k at a time."""

    def __init__(self, config: Tiling, extent: int):
        super().__init__(config, extent, strided=False)
        self.pitch = extent * 4
        self.bytes = self.pitch * config.depth

    def place(self, base: Pointer, pitch: Any, origin: Any, limit: Any, first_k: Any, end_k: Any) -> None:
        column, piece = ptx.tid.x % self.extent, ptx.tid.x // self.extent
        self.first, self.end_k = piece * 4, end_k
        self.column_inside = origin + column < limit if self.checks_edges else None
        start = base.bytes(ptx.mul.wide.u32(origin, pitch)).bytes(first_k * 4).bytes(ptx.mul.wide.u32(column, pitch)).bytes(self.first * 4)
        self.sources = [ptx.var(u64, start.register())]
        self.destination = self.first * self.pitch + column * 4

    def load(self, stage: Pointer, k: Any, tail: bool) -> None:
        stage = stage.bytes(self.destination)
        pieces_a_pass = self.config.threads // self.extent
        (source,) = self.sources
        for piece in range(0, 4, pieces_a_pass):
            from_here, to_here = Pointer(f32, source.operand, 16 * piece), stage.as_(f32).bytes(4 * piece * self.pitch)
            values: list
            if tail or self.checks_edges:
                values = [ptx.var(f32, 0.0) for _ in range(4)]
                for i, value in enumerate(values):
                    inside = k + self.first + (4 * piece + i) < self.end_k
                    ptx.ld.global_.nc(from_here + i, out=value, guard=inside if self.column_inside is None else inside & self.column_inside)
            else:
                values = ptx.ld.global_.nc.v4(from_here)
            for i, value in enumerate(values):
                ptx.st.shared(to_here.bytes(i * self.pitch), value)
        ptx.add.s64(source, SLAB, out=source)


@lru_cache(maxsize=256)
def build(config: Config) -> ptx.Kernel:
    """The kernel of a variant; its grid is that of `matmul_mma.build`."""

    def product(a: Pointer[b8], b: Pointer[b8], c: Pointer[b8], offsets: Pointer[u32], experts: u32, m: u32, n: u32, k: u32,
                a_pitch: u32, b_pitch: u32, c_pitch: u32, b_stride: u64, c_stride: u64):
        _product(config, Problem(a, b, c, offsets, experts, m, n, k, a_pitch, b_pitch, c_pitch, b_stride, c_stride))

    return ptx.kernel(block=config.threads, name=config.name, maxnreg=96)(product)


def _product(config: Config, given: Problem) -> None:
    rows, columns = config.warp_tile[0], config.warp_tile[1] // 32
    a = Operand(config, config.tile[0], config.a_strided)
    b = Operand(config, config.tile[1], strided=True) if config.b_strided else Columns(config, config.tile[1])
    part = place(config, given, a, b)
    warp, lane = ptx.warpid(), ptx.laneid()
    warp_row, warp_column = warp // config.warps[1] * rows, warp % config.warps[1] * config.warp_tile[1]
    sums = [[ptx.var(f32, 0.0) for _ in range(columns)] for _ in range(rows)]

    def consume(stage_a: Pointer, stage_b: Pointer) -> None:
        stage_a, stage_b = stage_a.as_(f32), stage_b.as_(f32)
        for four in range(0, config.depth, 4):
            if not config.a_strided:
                of_rows = [ptx.ld.shared.v4(stage_a.bytes(row * SLAB + four * 4)) for row in range(rows)]
            for k in range(4):
                if config.a_strided:
                    line = stage_a.bytes((four + k) * a.pitch)
                    values = [value for row in range(0, rows, 4) for value in ptx.ld.shared.v4(line + row)]
                else:
                    values = [row[k] for row in of_rows]
                factors = [ptx.ld.shared(stage_b.bytes((four + k) * b.pitch + 128 * column)) for column in range(columns)]
                for value, line_of_sums in zip(values, sums, strict=True):
                    for factor, total in zip(factors, line_of_sums, strict=True):
                        ptx.fma.rn(value, factor, total, out=total)

    offsets = warp_row * (4 if config.a_strided else SLAB), (warp_column + lane) * 4
    pipeline(config, a, b, part.first_k, part.end_k, offsets, consume)

    row, column = part.row + warp_row, part.column + warp_column
    inside = [column + lane + 32 * i - part.first_column < part.end_column - part.first_column for i in range(columns)]
    here = ptx.var(u64, part.c.bytes(ptx.mul.wide.u32(row, given.c_pitch)).bytes(column * 4).bytes(lane * 4).register())
    step = ptx.cvt.u64(given.c_pitch)
    for i, line_of_sums in enumerate(sums):
        row_inside = row + i - part.first_row < part.end_row - part.first_row
        for j, total in enumerate(line_of_sums):
            ptx.st.global_(Pointer(f32, here.operand, 128 * j), total, guard=row_inside & inside[j])
        ptx.add.s64(here, step, out=here)
