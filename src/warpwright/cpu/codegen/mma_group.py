"""Runs of `mma.sync` as one matrix product on the host's AMX tiles.

A kernel's inner loop holds, back to back, the products of M row fragments with N column fragments over S steps of k. One by one they spend
their time on bringing fragments into place; together each fragment is brought into place once, as tiles of 16 rows × 64 bytes: of A, 32
values of k a row; of B, pairs of k by 16 columns; of C, 16 sums a row. k may be summed in any order, so that A and B are laid out in the
order in which fragments (or shared memory) hold it. 8-bit floats become bf16 on the way, exactly. As in all of AMX, subnormal bf16 count
as zero and sums are FP32 with subnormal results flushed.

* Registers of C and D live in tiles for good: what else reads or writes them goes there (`Home`).
* Fragments that the same block has loaded as 16 bytes a lane from dense rows of 64 bytes in shared memory are read from there again,
whole: those
  of bf16 A are tiles as they stand. Other fragments go through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warpwright.cpu.analysis.program import Addr, Imm, Op, Reg, Vec
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.tensor_core import Helper, _bf16_of, _Writer

_SHAPES = {"bf16": "m16n8k16", "e4m3": "m16n8k32", "e5m2": "m16n8k32"}
_REGISTER = 128  # bytes of a fragment register's 32 lanes
_TILE = 1024  # bytes of a tile: 16 rows of 64


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rows:
    """Where an operand's fragments lie in shared memory: `load` is the instruction that loads the first eight rows of the first slab (64
    bytes of k); those of the next fragment follow it, those of the next slab are `slab` bytes on."""

    load: Op
    slab: int


@dataclass(frozen=True)
class Group:
    """A run of `length` products. rows, columns: for each row (column) fragment, its registers of all steps. sums: (first c, d) by (row,
    column).

    a, b: where the operands lie in shared memory, if they do.
    """

    a_type: str
    b_type: str
    steps: int
    rows: tuple[tuple, ...]
    columns: tuple[tuple, ...]
    sums: dict[tuple[int, int], tuple[tuple, tuple]]
    length: int
    a: Rows | None
    b: Rows | None


@dataclass(frozen=True)
class Home:
    """Where a sum's register lives: in a tile, as eight pieces of 16 bytes, 64 bytes apart. kind: the register's own LLVM type."""

    buffer: str
    offset: int
    kind: str

    def load(self, e: Emitter) -> str:
        parts = [e.ins(f"load <4 x float>, ptr {self._piece(e, i)}, align 16") for i in range(8)]
        length = 4
        while len(parts) > 1:
            parts = [e.shuffle(x, "float", range(2 * length), length, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            length *= 2
        with e.shape(32):
            return e.convert(parts[0], "float", self.kind)

    def store(self, e: Emitter, value: str) -> None:
        with e.shape(32):
            value = e.convert(value, self.kind, "float")
        for i in range(8):
            part = value if value.startswith("splat") or value == "zeroinitializer" else e.shuffle(value, "float", range(4 * i, 4 * i + 4))
            e.do(f"store <4 x float> {part}, ptr {self._piece(e, i)}, align 16")

    def _piece(self, e: Emitter, i: int) -> str:
        return e.ins(f"getelementptr i8, ptr {self.buffer}, i64 {self.offset + 64 * i}")


def plan(e: Emitter) -> dict[tuple[int, int], Group]:
    """The kernel's groups by (block's position, index of their first op); gives their sums homes. Empty without AMX."""
    groups: dict[tuple[int, int], Group] = {}
    if not e.host.amx:
        return groups
    for position, block in enumerate(e.flow.blocks):
        at = 0
        while at < len(block.ops):
            group = _find(e, block.ops, at)
            if group is not None and not any(d.index in e.homes for _, ds in group.sums.values() for d in ds):
                groups[position, at] = group
                _settle(e, group, len(groups))
            at += group.length if group else 1
    return groups


def _settle(e: Emitter, group: Group, number: int) -> None:
    size = len(group.sums) * _TILE // 2
    buffer = e.at_entry(f"tiles {number}", f"alloca [{size} x i8], align 64")
    e.entry.append(f"  call void @llvm.memset.p0.i64(ptr {buffer}, i8 0, i64 {size}, i1 false)")
    pairs = len(group.columns) // 2
    for (row, column), (_, d) in group.sums.items():
        tile = (row * pairs + column // 2) * _TILE
        for i, register in enumerate(d):
            e.homes[register.index] = Home(buffer, tile + 512 * (i // 2) + 32 * (column % 2) + 16 * (i % 2), LLVM_TYPE[register.type])


def _find(e: Emitter, ops: Sequence[Op], first: int) -> Group | None:
    """The group that begins at ops[first]: a full product of at least two row by two column fragments, or None."""
    lead = ops[first]
    if not _fits(lead) or (e.exact_mma and lead.slots["A"] != "bf16"):
        return None
    end = first
    while end < len(ops) and _fits(ops[end]) and ops[end].slots == lead.slots:
        end += 1
    chains: dict[tuple, list[Op]] = {}
    for op in ops[first:end]:
        chain = chains.setdefault(_elements(op, "d"), [])
        if chain and _elements(op, "c") != _elements(op, "d"):
            return None
        chain.append(op)
    steps = len(next(iter(chains.values())))
    rows: dict[tuple, int] = {}
    columns: dict[tuple, int] = {}
    sums = {}
    for d, chain in chains.items():
        row = tuple(register for op in chain for register in _elements(op, "a"))
        column = tuple(register for op in chain for register in _elements(op, "b"))
        place = rows.setdefault(row, len(rows)), columns.setdefault(column, len(columns))
        if len(chain) != steps or place in sums:
            return None
        sums[place] = _elements(chain[0], "c"), d
    written = [register for d in chains for register in d]
    used = {register for fragment in (*rows, *columns) for register in fragment}
    if len(set(written)) < len(written) or used & set(written) or not all(e.lanes.known[register.index].varying for register in written):
        return None  # type: ignore[union-attr]
    if len(sums) != len(rows) * len(columns) or len(rows) < 2 or len(columns) % 2 or (lead.slots["A"] == "bf16" and steps % 2):
        return None
    for start, d in sums.values():  # c is d, or not a sum of this group at all
        if start != d and set(start) & set(written):
            return None
    a = _in_rows(e, ops[:first], [[row[half::2] for half in (0, 1)] for row in rows])
    b = _in_rows(e, ops[:first], [[column] for column in columns])
    return Group(lead.slots["A"], lead.slots["B"], steps, tuple(rows), tuple(columns), sums, end - first, a, b)


def _fits(op: Op) -> bool:
    if op.opcode != "mma" or op.guard is not None or _SHAPES.get(op.slots["A"]) != op.slots["shape"]:
        return False
    slots = op.slots
    types = slots["B"] == slots["A"] or {slots["A"], slots["B"]} == {"e4m3", "e5m2"}
    plain = slots["D"] == slots["C"] == "f32" and not any(slots.get(name) for name in ("sp", "kind", "op"))
    vectors = all(isinstance(op.args[name], Vec) for name in "abcd")
    return types and plain and vectors and all(isinstance(d, Reg) for d in _elements(op, "d"))


def _elements(op: Op, name: str) -> tuple:
    return op.args[name].elements  # type: ignore[union-attr]


def _in_rows(e: Emitter, before: Sequence[Op], fragments: list[list[tuple]]) -> Rows | None:
    """How the fragments (each one or two times eight rows: the words of all steps) lie in shared memory, by the loads in this block."""
    loads: dict[tuple, Op] = {}
    for op in reversed(before):
        if op.effects & {"store", "barrier", "call"} or op.opcode in ("cp", "mbarrier"):
            break
        if op.opcode == "ld" and isinstance(op.args["d"], Vec) and op.guard is None and op.get("space") == "shared":
            loads.setdefault(_elements(op, "d"), op)
    if len(fragments[0][0]) % 4:
        return None
    slabs = len(fragments[0][0]) // 4
    eights = [[loads.get(eight[4 * slab:4 * slab + 4]) for slab in range(slabs)] for fragment in fragments for eight in fragment]
    found = [op for eight in eights for op in eight if op is not None]
    if len(found) < len(eights) * slabs:
        return None
    first = found[0]
    base: Addr = first.args["a"]  # type: ignore[assignment]
    form = e.lanes.of(base, 32)
    if not isinstance(base.base, Reg) or form.varying or not form.plain or tuple(form.offsets) != tuple(16 * lane for lane in range(32)):  # type: ignore[arg-type]
        return None
    pitch = eights[0][1].args["a"].offset - base.offset if slabs > 1 else 0  # type: ignore[union-attr]
    for i, eight in enumerate(eights):
        for slab, load in enumerate(eight):
            at: Addr = load.args["a"]  # type: ignore[union-attr, assignment]
            if at.base is not base.base or at.offset != base.offset + 512 * i + pitch * slab:
                return None
    owner = {register: op for op in found for register in _elements(op, "d")}
    for op in before[min(before.index(op) for op in found):]:
        if any(register is base.base or owner.get(register, op) is not op for register in op.writes):
            return None
    return Rows(first, pitch)


# ── emission ─────────────────────────────────────────────────────────────────────────────────────────────────────


def emit(e: Emitter, group: Group) -> None:
    """Write the whole group, for all 32 lanes."""
    zero = all(_is_zero(e, value) for start, _ in group.sums.values() for value in start)
    a_slab, b_slab = (rows.slab if rows else None for rows in (group.a, group.b))
    helper = _helper(len(group.rows), len(group.columns), group.steps, group.a_type, group.b_type, zero, a_slab, b_slab)
    e.helpers.setdefault(helper.name, helper.text)
    e.declarations.update(helper.declarations)
    _configure(e)
    if not zero:
        with e.shape(32):
            for start, d in group.sums.values():
                for value, register in zip(start, d, strict=True):
                    if value is not register:
                        e.homes[register.index].store(e, e.value(value, LLVM_TYPE[register.type]))
    pointers = [_operand(e, "a", group.a, group.rows), _operand(e, "b", group.b, group.columns)]
    home: Home = e.homes[group.sums[0, 0][1][0].index]  # type: ignore[assignment]
    e.do(f"call void {helper.name}(ptr {pointers[0]}, ptr {pointers[1]}, ptr {home.buffer})")


def _is_zero(e: Emitter, value: Reg | Imm | None) -> bool:
    if isinstance(value, Imm):
        return value.value == 0
    return isinstance(value, Reg) and e.lanes.known[value.index].constant == 0  # type: ignore[union-attr]


def _operand(e: Emitter, letter: str, rows: Rows | None, fragments: tuple[tuple, ...]) -> str:
    """A pointer to the operand: its rows in shared memory, or a buffer with its registers."""
    if rows is not None:
        return addressing.host_scalar(e, addressing.resolve(e, rows.load))
    registers = [register for fragment in fragments for register in fragment]
    buffer = e.at_entry(f"fragments {letter} {len(registers)}", f"alloca [{len(registers) * _REGISTER} x i8], align 64")
    with e.shape(32):
        for i, register in enumerate(registers):
            value, pointer = e.value(register, "i32"), e.ins(f"getelementptr i8, ptr {buffer}, i64 {i * _REGISTER}")
            e.do(f"store <32 x i32> {value}, ptr {pointer}, align 64")
    return buffer


def _configure(e: Emitter) -> None:
    """At the warp's start: eight tiles of 16 rows × 64 bytes."""
    if "@amx_tiles" not in e.helpers:
        shape = [1] + [0] * 15 + [64, 0] * 8 + [0] * 16 + [16] * 8 + [0] * 8
        e.helpers["@amx_tiles"] = f"@amx_tiles = private constant [64 x i8] [{', '.join(f'i8 {byte}' for byte in shape)}], align 64"
        e.declarations["@llvm.x86.ldtilecfg"] = "declare void @llvm.x86.ldtilecfg(ptr)"
        e.entry.append("  call void @llvm.x86.ldtilecfg(ptr @amx_tiles)")


# ── the helper ───────────────────────────────────────────────────────────────────────────────────────────────────

_Z = "<16 x i32>"


class _Tiles(_Writer):
    """Text of a group's function."""

    def __init__(self, helper: Helper):
        super().__init__(helper)
        self.block = "entry"

    def gep(self, base: str, offset: int) -> str:
        return self.ins(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, base: str, offset: int) -> str:
        return self.ins(f"load {_Z}, ptr {self.gep(base, offset)}, align 16")

    def store(self, value: str, base: str, offset: int) -> None:
        self.do(f"store {_Z} {value}, ptr {self.gep(base, offset)}, align 64")

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def tile(self, name: str, *numbers: int, memory: str | None = None) -> None:
        """An AMX instruction on tiles, or on a tile and rows of 64 bytes in memory."""
        kinds = ["i8 immarg"] * len(numbers) + ["ptr", "i64"] * (memory is not None)
        self.helper.declarations[f"@llvm.x86.{name}"] = f"declare void @llvm.x86.{name}({', '.join(kinds)})"
        given = [f"i8 {number}" for number in numbers] + [f"ptr {memory}", "i64 64"] * (memory is not None)
        self.do(f"call void @llvm.x86.{name}({', '.join(given)})")

    def loop(self, name: str, count: int, strides: dict[str, int], body: Callable[..., None]) -> None:
        """`body` of the pointers, `count` times; each pointer advances by its stride."""
        if count == 1:
            body(*strides)
            return
        pointers = [f"%{name}.{i}" for i in range(len(strides))]
        self.do(f"br label %{name}")
        before, self.block = self.block, f"{name}.out"
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i32 [ 0, %{before} ], [ %{name}.i.next, %{name}.end ]")
        for base, pointer in zip(strides, pointers, strict=True):
            self.do(f"{pointer} = phi ptr [ {base}, %{before} ], [ {pointer}.next, %{name}.end ]")
        body(*pointers)
        self.do(f"br label %{name}.end")
        self.lines.append(f"{name}.end:")
        self.do(f"%{name}.i.next = add i32 %{name}.i, 1")
        for stride, pointer in zip(strides.values(), pointers, strict=True):
            self.do(f"{pointer}.next = getelementptr i8, ptr {pointer}, i64 {stride}")
        self.do(f"%{name}.more = icmp ult i32 %{name}.i.next, {count}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.out")
        self.lines.append(f"{name}.out:")

    def quads(self, x: str, y: str, order: Sequence[int]) -> str:
        """Four of the eight 128-bit parts of two vectors."""
        return self.shuffle("i32", x, [4 * (part % 4) + i + (16 if part >= 4 else 0) for part in order for i in range(4)], y, 16)

    def transpose(self, rows: Sequence[str]) -> list[str]:
        """A 4 × 4 matrix of 128-bit parts, transposed."""
        even = self.quads(rows[0], rows[1], (0, 2, 4, 6)), self.quads(rows[2], rows[3], (0, 2, 4, 6))
        odd = self.quads(rows[0], rows[1], (1, 3, 5, 7)), self.quads(rows[2], rows[3], (1, 3, 5, 7))
        return [self.quads(*pair, order) for order in ((0, 2, 4, 6), (1, 3, 5, 7)) for pair in (even, odd)]

    def transpose_words(self, rows: Sequence[str]) -> list[str]:
        """A 16 × 16 matrix of 32-bit words, transposed."""
        blocks: list[list[str]] = []  # for each four rows, vectors of the words c, 4 + c, 8 + c, 12 + c of those rows
        for four in (rows[i:i + 4] for i in range(0, 16, 4)):
            low = [self._unpack(four[i], four[i + 1], 1, 0) for i in (0, 2)]
            high = [self._unpack(four[i], four[i + 1], 1, 1) for i in (0, 2)]
            blocks.append([self._unpack(x, y, 2, part) for x, y in (low, high) for part in (0, 1)])
        turned = [self.transpose([block[c] for block in blocks]) for c in range(4)]
        return [turned[i % 4][i // 4] for i in range(16)]

    def _unpack(self, x: str, y: str, words: int, high: int) -> str:
        """In each 128 bits, the low or high halves of two vectors interleaved by so many words."""
        order = [4 * quad + 2 * high + i + source for quad in range(4) for part in range(0, 2, words)
                 for source in (0, 16) for i in range(part, part + words)]
        return self.shuffle("i32", x, order, y, 16)

    def widen(self, vector: str, type_: str) -> list[str]:
        """64 8-bit floats as bf16, exactly: of each 128 bits the first eight, then the last eight. A vector of bf16 as it is."""
        if type_ == "bf16":
            return [vector]
        bytes_ = self.ins(f"bitcast {_Z} {vector} to <64 x i8>")
        table = [_bf16_of(code, type_) for code in range(128)]
        parts = []
        for half in ([bits & 255 for bits in table], [bits >> 8 for bits in table]):
            low, high = (f"<{', '.join(f'i8 {value - 256 if value > 127 else value}' for value in half[i:i + 64])}>" for i in (0, 64))
            kind = "<64 x i8>"
            parts.append(self.call(kind, "@llvm.x86.avx512.vpermi2var.qi.512", (kind, low), (kind, bytes_), (kind, high)))
        sign = self.ins(f"and <64 x i8> {bytes_}, splat (i8 -128)")
        parts[1] = self.ins(f"or <64 x i8> {parts[1]}, {sign}")
        orders = ([16 * (i // 16) + first + i % 16 // 2 + 64 * (i % 2) for i in range(64)] for first in (0, 8))
        return [self.ins(f"bitcast <64 x i8> {self.shuffle('i8', parts[0], order, parts[1], 64)} to {_Z}") for order in orders]


@dataclass(frozen=True)
class _Order:
    """The order of the 16 pairs of k in a tile. A *natural* pair index is that of shared memory's rows: of bf16 4t + word, of 8-bit floats
    4t + 2·word + half of the word (t the lane in its quad). `rows`: A's tiles are such rows; else they are fragments' words one after
    another."""

    wide: bool
    rows: bool

    def place(self, natural: int) -> int:
        if self.rows:
            return natural
        t = natural // 4
        if self.wide:
            return 4 * (natural % 4) + t
        return 4 * (2 * (natural // 2 % 2) + t // 2) + 2 * (t % 2) + natural % 2

    def natural(self, part: int, i: int) -> int:
        """Of pair i of the four in part `part` (word; or half of a word) of a fragment."""
        return 4 * i + part if self.wide else 4 * (2 * (part % 2) + i // 2) + 2 * (part // 2) + i % 2


# The order of a pair of column fragments' 16 columns in a tile: those of register c0, of c1; so that a register's quads stand together.
_COLUMNS = [8 * fragment + 2 * i + odd for fragment in range(2) for odd in range(2) for i in range(4)]


def _helper(m: int, n: int, steps: int, a_type: str, b_type: str, zero: bool, a_slab: int | None, b_slab: int | None) -> Helper:
    """`void (a, b, c)`: tiles c[m][n/2] = (zero ? 0 : c) + a · b.

    a, b: rows in shared memory, slabs `a_slab` bytes apart, or (None) registers [m][steps][4], [n][steps][2] of 32 lanes.
    """
    source = "".join("f" if slab is None else f"r{slab}" for slab in (a_slab, b_slab))
    helper = Helper(f"@mma_{m}x{n}x{steps}_{a_type}_{b_type}_{source}{'_zero' if zero else ''}", "void", [])
    w = _Tiles(helper)
    wide = a_type == "bf16"
    deep = steps // 2 if wide else steps  # tiles of k
    order = _Order(wide, rows=a_slab is not None)
    place_a = _lay_rows(w, m, deep, a_type, a_slab)
    w.do(f"%tiles.b = alloca [{n // 2 * deep * _TILE} x i8], align 64")
    for pair in range(n // 2):
        target = w.gep("%tiles.b", pair * deep * _TILE)
        if b_slab is None:
            _turn_fragments(w, pair, target, steps, deep, b_type, order)
        else:
            _turn_rows(w, pair, target, deep, b_type, b_slab, order)
    _multiply(w, m, n // 2, deep, zero, place_a)
    head = f"define internal void {helper.name}(ptr noalias %a, ptr noalias %b, ptr noalias %c) noinline nounwind {{\nentry:"
    helper.text = "\n".join([head, *w.lines, "  ret void", "}", ""])
    return helper


def _lay_rows(w: _Tiles, m: int, deep: int, type_: str, slab: int | None) -> Callable[[int, int], tuple[str, int]]:
    """Make A's tiles; returns where tile (row fragment, k) lies, as (pointer, offset)."""
    wide = type_ == "bf16"
    if slab is not None and wide:
        return lambda row, k: ("%a", row * _TILE + k * slab)
    w.do(f"%tiles.a = alloca [{m * deep * _TILE} x i8], align 64")
    if slab is not None:  # tiles are stored [slab][row][2]

        def widen(from_: str, to: str) -> None:
            for i in range(16):
                for half, part in enumerate(w.widen(w.load(from_, 64 * i), type_)):
                    w.store(part, to, half * _TILE + 64 * i)

        for k in range(deep // 2):
            w.loop(f"rows{k}", m, {w.gep("%a", k * slab): _TILE, w.gep("%tiles.a", k * m * 2 * _TILE): 2 * _TILE}, widen)
        return lambda row, k: ("%tiles.a", ((k // 2 * m + row) * 2 + k % 2) * _TILE)
    together = 2 if wide else 1  # steps in a tile

    def lay(from_: str, to: str) -> None:
        for upper in range(2):  # rows 8 … 15
            for half in range(2):  # quads 4 … 7
                places = [4 * step + 2 * word + upper for step in range(together) for word in range(2)]
                words = [w.load(from_, place * _REGISTER + 64 * half) for place in places]
                for i, row in enumerate(w.transpose([part for word in words for part in w.widen(word, type_)])):
                    w.store(row, to, (8 * upper + 4 * half + i) * 64)

    w.loop("rows", m * deep, {"%a": 4 * together * _REGISTER, "%tiles.a": _TILE}, lay)
    return lambda row, k: ("%tiles.a", (row * deep + k) * _TILE)


def _turn_fragments(w: _Tiles, pair: int, target: str, steps: int, deep: int, type_: str, order: _Order) -> None:
    """B's tiles of two column fragments, from their registers."""
    together = 2 if type_ == "bf16" else 1
    size = 2 * steps * _REGISTER

    def turn(first: str, second: str, to: str) -> None:
        parts = {}
        for fragment, base in enumerate((first, second)):
            for half in range(2):  # columns 4 … 7
                words = [w.load(base, word * _REGISTER + 64 * half) for word in range(2 * together)]
                parts[fragment, half] = [part for word in words for part in w.widen(word, type_)]
        for part in range(4):
            turned = []
            for fragment in range(2):
                for odd in range(2):
                    indices = [16 * (column // 4) + 4 * (column % 4) + i for i in range(4) for column in range(odd, 8, 2)]
                    turned.append(w.shuffle("i32", parts[fragment, 0][part], indices, parts[fragment, 1][part], 16))
            for i, row in enumerate(w.transpose(turned)):
                w.store(row, to, 64 * order.place(order.natural(part, i)))

    step = 2 * together * _REGISTER
    w.loop(f"columns{pair}", deep, {w.gep("%b", 2 * pair * size): step, w.gep("%b", (2 * pair + 1) * size): step, target: _TILE}, turn)


def _turn_rows(w: _Tiles, pair: int, target: str, deep: int, type_: str, slab: int, order: _Order) -> None:
    """B's tiles of two column fragments, from 16 rows of shared memory."""
    halves = 1 if type_ == "bf16" else 2  # tiles that a slab makes

    def turn(from_: str, to: str) -> None:
        rows = [w.widen(w.load(from_, 64 * column), type_) for column in _COLUMNS]
        for half in range(halves):
            for natural, row in enumerate(w.transpose_words([parts[half] for parts in rows])):
                w.store(row, to, half * _TILE + 64 * order.place(natural))

    w.loop(f"columns{pair}", deep // halves, {w.gep("%b", pair * _TILE): slab, target: halves * _TILE}, turn)


def _multiply(w: _Tiles, m: int, pairs: int, deep: int, zero: bool, place_a: Callable[[int, int], tuple[str, int]]) -> None:
    """The tiles' products, 2 × 2 sums at a time: sums in tiles 0-3, A in 4 and 5, B in 6 and 7."""
    for first_row in range(0, m, 2):
        for first_pair in range(0, pairs, 2):
            rows, columns = range(min(2, m - first_row)), range(min(2, pairs - first_pair))
            sums = [(2 * i + j, ((first_row + i) * pairs + first_pair + j) * _TILE, i, j) for i in rows for j in columns]
            for tile, offset, _, _ in sums:
                if zero:
                    w.tile("tilezero", tile)
                else:
                    w.tile("tileloadd64", tile, memory=w.gep("%c", offset))
            for k in range(deep):
                for i in rows:
                    w.tile("tileloadd64", 4 + i, memory=w.gep(*place_a(first_row + i, k)))
                for j in columns:
                    w.tile("tileloadd64", 6 + j, memory=w.gep("%tiles.b", ((first_pair + j) * deep + k) * _TILE))
                for tile, _, i, j in sums:
                    w.tile("tdpbf16ps", tile, 4 + i, 6 + j)
            for tile, offset, _, _ in sums:
                w.tile("tilestored64", tile, memory=w.gep("%c", offset))
