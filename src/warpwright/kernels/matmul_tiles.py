"""What all matrix-product kernels share: which part of the product a CTA computes, and how tiles of A and B reach shared memory.

C = A·B. The contraction index is called k throughout. An operand is *k-contiguous* (each row holds consecutive k: x and w of a forward
product) or *k-strided* (k selects the row: both operands of a weight gradient). A stage holds some k of both operands, filled by
`cp.async` while earlier stages are consumed. A k-contiguous operand lies in *slabs* of 64 bytes of k, row after row; a k-strided one by
rows of k.

How edges are met. "shifted": the last tile of a dimension moves back inside the tensor (what is computed twice is stored once), so that
loads need no predicates. "masked": copies of 16 bytes of which those outside are zero-filled. "elements": one element at a
time, for rows that are not 16-byte aligned. `matmul.py` picks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from warpwright import ptx
from warpwright.ptx import Pointer, b8, b16, s32, u32, u64

SLAB = 64  # bytes of k in a slab: four 16-byte pieces a row
CHUNK = 128  # values of k that share an fp8 scale

Access = Literal["shifted", "masked", "elements"]
Grouping = Literal["", "rows", "k"]
Consume = Callable[[Pointer, Pointer], None]


@dataclass(frozen=True)
class Tiling:
    """One variant of a kernel.

    a_strided, b_strided: the operand is k-strided. access: how edges are met (see the module). grouped: "" (dense), "rows" (rows of A and
    C belong to experts by `offsets`), "k" (a product for each expert over its part of k). tile: rows × columns of C a CTA computes.
    warps: its rows × columns of warps. slabs: of 64 bytes of k in a stage. stages: in flight.
    """

    a_strided: bool = False
    b_strided: bool = False
    access: Access = "shifted"
    grouped: Grouping = ""
    tile: tuple[int, int] = (128, 64)
    warps: tuple[int, int] = (2, 2)
    slabs: int = 1
    stages: int = 3

    def __post_init__(self) -> None:
        for size, strided in zip(self.tile, (self.a_strided, self.b_strided), strict=True):
            pieces = size * self.element // 16 if strided else 4
            rows = self.depth if strided else size
            if self.threads % pieces or rows % (self.threads // pieces):
                raise ValueError(f"{self.threads} threads cannot share {rows} rows of {pieces} pieces evenly")

    @property
    def element(self) -> int:
        """Bytes of an element of A and B."""
        raise NotImplementedError

    @property
    def chunk(self) -> int:
        """Values of k that one step of `offsets` stands for where grouped by k."""
        return 1

    @property
    def ragged_k(self) -> bool:
        """Whether the contraction may end inside a stage though the access is "shifted" (else the caller sees to it that it does not)."""
        return self.access == "shifted" and self.grouped == "k" and self.chunk == 1

    @property
    def threads(self) -> int:
        return 32 * self.warps[0] * self.warps[1]

    @property
    def warp_tile(self) -> tuple[int, int]:
        return self.tile[0] // self.warps[0], self.tile[1] // self.warps[1]

    @property
    def depth(self) -> int:
        """Values of k in a stage."""
        return self.slabs * SLAB // self.element

    @property
    def layout(self) -> str:
        """As in BLAS, for row-major tensors: "nt" is A·Bᵀ with both k-contiguous."""
        return ("t" if self.a_strided else "n") + ("n" if self.b_strided else "t")

    @property
    def variant(self) -> str:
        """The end of the kernel's name."""
        return f"{f'by_{self.grouped}' if self.grouped else 'dense'}_{self.access}_{self.tile[0]}x{self.tile[1]}"


@dataclass
class Problem:
    """The kernel's parameters as registers. Pitches and strides are in bytes; scales' strides in elements."""

    a: Pointer
    b: Pointer
    c: Pointer
    offsets: Pointer
    experts: Any
    m: Any
    n: Any
    k: Any
    a_pitch: Any
    b_pitch: Any
    c_pitch: Any
    b_stride: Any
    c_stride: Any
    a_scale: Any = None
    b_scale: Any = None
    a_scale_k: Any = None
    b_scale_k: Any = None
    b_scale_n: Any = None
    b_scale_stride: Any = None


# ── operands ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Part:
    """What a CTA computes: rows row … and columns column … of C (from c, its expert's), of which it stores [first_row, end_row) ×
    [first_column, end_column)."""

    c: Pointer
    expert: Any
    row: Any
    column: Any
    first_row: Any
    end_row: Any
    first_column: Any
    end_column: Any
    first_k: Any
    end_k: Any


class Operand:
    """One operand's way from global to shared memory. `extent` is its number of rows (A) or columns (B) in a CTA's tile."""

    def __init__(self, config: Tiling, extent: int, strided: bool):
        self.config, self.extent, self.strided = config, extent, strided
        # Bytes from row to row of shared memory; the 16 spread rows over the banks.
        self.pitch = extent * config.element + 16 if strided else SLAB
        self.rows = config.depth if strided else extent
        self.pieces = extent * config.element // 16 if strided else 4
        self.rows_a_pass = config.threads // self.pieces
        self.bytes = self.pitch * self.rows * (1 if strided else config.slabs)
        self.checks_edges = config.access != "shifted"

    def slot(self, k: Any) -> Any:
        """The row of a stage that the row k of a k-strided operand goes to; for Python ints and registers alike."""
        return k

    def place(self, base: Pointer, pitch: Any, origin: Any, limit: Any, first_k: Any, end_k: Any) -> None:
        """This thread's addresses. origin: the tile's first row (column) in the tensor, limit: one past the last that may be read.

        base points to the tensor, pitch is its row stride in bytes, first_k and end_k bound the contraction.
        """
        element, row, piece = self.config.element, ptx.tid.x // self.pieces, ptx.tid.x % self.pieces
        self.row, self.end_k, self.values = row, end_k, piece * (16 // element)
        # What is one for the whole warp and what differs by lane are added apart: sums of both in 32 bits might wrap, and would hide the
        # pattern.
        first_row, first_byte = (first_k, origin * element) if self.strided else (origin, first_k * element)
        start = base.bytes(ptx.mul.wide.u32(first_row, pitch)).bytes(first_byte).bytes(ptx.mul.wide.u32(row, pitch)).bytes(piece * 16)
        if self.strided:
            self.advance = ptx.mul.wide.u32(pitch, self.config.depth)
            if self.checks_edges:
                self.columns_left = limit.as_(s32) - (origin + self.values).as_(s32)
        else:
            self.advance = SLAB * self.config.slabs
            if self.checks_edges:
                self.inside = [origin + row + first < limit for first in range(0, self.rows, self.rows_a_pass)]
        self.sources = [ptx.var(u64, start.register())]
        step = ptx.mul.wide.u32(pitch, self.rows_a_pass)
        for _ in range(self.rows_a_pass, self.rows, self.rows_a_pass):
            self.sources.append(ptx.var(u64, self.sources[-1] + step))
        self.destination = ptx.mad.lo.u32(self.slot(row) if self.strided else row, self.pitch, piece * 16)

    def load(self, stage: Pointer, k: Any, tail: bool) -> None:
        """Start copying this thread's pieces of the stage that begins at k, and move on. tail: the contraction may end inside the stage."""
        stage = stage.bytes(self.destination)
        for index, source in enumerate(self.sources):
            row = index * self.rows_a_pass
            for slab in range(1 if self.strided else self.config.slabs):
                offset = self.slot(row) * self.pitch if self.strided else (slab * self.extent + row) * SLAB
                piece = Pointer(b8, source.operand, slab * SLAB)
                if tail or self.checks_edges:
                    self._copy_checked(stage.bytes(offset), piece, index, slab, k)
                else:
                    ptx.cp.async_.cg.shared.global_(stage.bytes(offset), piece, 16)
        for source in self.sources:
            ptx.add.s64(source, self.advance, out=source)

    def _copy_checked(self, destination: Pointer, source: Pointer, index: int, slab: int, k: Any) -> None:
        """One piece of 16 bytes, zero where it lies outside the tensor or past the contraction's end."""
        whole = 16 // self.config.element
        if self.strided:
            inside = k + self.row + index * self.rows_a_pass < self.end_k
            left = self.columns_left if self.checks_edges else None
        else:
            inside = self.inside[index] if self.checks_edges else None
            left = (self.end_k - k).as_(s32) - (self.values + slab * (SLAB // self.config.element)).as_(s32)
        count: Any = whole if left is None else ptx.max(ptx.min(left, whole), 0)
        if inside is not None:
            count = ptx.selp.b32(count, 0, inside).as_(s32)
        if self.config.access != "elements":
            ptx.cp.async_.cg.shared.global_(destination, source, 16, (count * self.config.element).as_(u32))
        elif self.config.element == 4:
            for i in range(4):
                ptx.cp.async_.ca.shared.global_(destination.bytes(4 * i), source.bytes(4 * i), 4, ptx.selp.b32(4, 0, count > i).as_(u32))
        else:
            words = []
            for word in range(4):
                halves = [ptx.var(b16, 0), ptx.var(b16, 0)]
                for half, value in enumerate(halves):
                    ptx.ld.global_.nc.b16(source.bytes(4 * word + 2 * half), out=value, guard=count > 2 * word + half)
                words.append(ptx.mov.b32(halves))
            ptx.st.shared.v4.b32(destination, words)


# ── the CTA's part, and its rounds ───────────────────────────────────────────────────────────────────────────────


def part(config: Tiling, given: Problem) -> tuple[Any, Any, Any, Any, Any]:
    """(expert, first row, end of rows, first k, end of k) of this CTA. CTAs without work return."""
    zero = ptx.var(u32, 0)
    if config.grouped == "rows":
        return *find_rows(given.offsets, given.experts, config.tile[0]), zero, given.k
    first_row = ptx.ctaid.y * config.tile[0]
    if config.grouped == "k":
        expert = ptx.ctaid.z
        first, end = (ptx.ld.global_.nc(given.offsets + expert + i) for i in range(2))
        return expert, first_row, given.m, first * config.chunk, end * config.chunk
    return zero, first_row, given.m, zero, given.k


def place(config: Tiling, given: Problem, a: Operand, b: Operand) -> Part:
    """This CTA's part, with both operands' addresses prepared."""
    expert, first_row, end_row, first_k, end_k = part(config, given)
    first_column = ptx.ctaid.x * config.tile[1]
    row, column = first_row, first_column
    if config.access == "shifted":
        row, column = ptx.min(row, given.m - config.tile[0]), ptx.min(column, given.n - config.tile[1])
    weights = given.b if config.grouped != "rows" else given.b.bytes(ptx.cvt.u64(expert) * given.b_stride)
    a.place(given.a, given.a_pitch, row, end_row, first_k, end_k)
    b.place(weights, given.b_pitch, column, given.n, first_k, end_k)
    c = given.c if config.grouped != "k" else given.c.bytes(ptx.cvt.u64(expert) * given.c_stride)
    return Part(c, expert, row, column, first_row, end_row, first_column, given.n, first_k, end_k)


def find_rows(offsets: Pointer, experts: Any, tile: int) -> tuple[Any, Any, Any]:
    """(expert, first row, end of the expert's rows) of row tile ctaid.y, each expert's rows starting a tile of their own.

    CTAs past the last tile return.
    """
    left, expert = ptx.var(u32, ptx.ctaid.y), ptx.var(u32, 0)
    begin, end = ptx.var(u32, ptx.ld.global_.nc(offsets)), ptx.var(u32, 0)
    found = ptx.label()
    with ptx.loop(0, experts) as index:
        ptx.ld.global_.nc(offsets + index + 1, out=end)
        tiles = (end - begin + (tile - 1)) // tile
        ptx.assign(expert, index)
        ptx.bra(found, guard=left < tiles)
        ptx.sub.u32(left, tiles, out=left)
        ptx.assign(begin, end)
    ptx.ret()
    found.place()
    return expert, begin + left * tile, end


def pipeline(config: Tiling, a: Operand, b: Operand, first_k: Any, end_k: Any, offsets: tuple[Any, Any], consume: Consume) -> None:
    """Load stages ahead, and consume each in turn: `consume(A, B)` gets pointers to both stages, moved by `offsets` (bytes, this
    lane's)."""
    size = a.bytes + b.bytes
    stages = ptx.shared(b8, config.stages * size, align=128, name="stages")
    rounds = (end_k - first_k + (config.depth - 1)) // config.depth
    k = ptx.var(u32, first_k)

    def load(slot: Any) -> None:
        stage_a, stage_b = stages.bytes(slot), stages.bytes(slot).bytes(a.bytes)

        def copy(tail: bool) -> None:
            a.load(stage_a, k, tail)
            b.load(stage_b, k, tail)

        if config.ragged_k:
            with ptx.when(k + config.depth <= end_k):
                copy(tail=False)
            with ptx.otherwise():
                copy(tail=True)
        else:
            copy(tail=config.access != "shifted")
        ptx.add.u32(k, config.depth, out=k)

    def next_slot(slot: Any) -> None:
        ptx.add.u32(slot, size, out=slot)
        ptx.assign(slot, ptx.select(slot == config.stages * size, 0, slot))

    ahead = config.stages - 1
    filled, consumed = ptx.var(u32, 0), ptx.var(u32, 0)  # offsets of the stage to fill and of the one to consume
    read_a, read_b = stages.bytes(offsets[0]).register(), stages.bytes(offsets[1]).bytes(a.bytes).register()
    with ptx.loop(0, rounds + ahead) as index:
        ptx.cp.async_.wait_group(config.stages - 2)
        ptx.bar.sync(0)
        with ptx.when(index < rounds):
            load(filled)
        ptx.cp.async_.commit_group()
        next_slot(filled)
        with ptx.when(index >= ahead):
            consume(*(Pointer(b8, (start + consumed).operand, space="shared") for start in (read_a, read_b)))
            next_slot(consumed)
