"""Runs of `mma.sync` as one matrix product on the host's AMX tiles.

A kernel's inner loop holds, back to back, the products of M row fragments with N column fragments over S steps of k. One by one they spend
their time on bringing fragments into place; together each fragment is brought into place once. Fragments go to memory, are laid out as
tiles of 16 rows × 64 bytes (A: 32 values of k a row; B: pairs of k by 16 columns; C: 16 columns), multiplied by `tdpbf16ps`, and C's tiles become
fragments again. 8-bit floats become bf16 on the way, exactly. k may be summed in any order, so A and B are laid out in the order in which
fragments hold it. As in all of AMX, subnormal bf16 count as zero, sums are FP32 with subnormal results flushed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from warpwright.cpu.analysis.program import Imm, Op, Reg, Vec
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.tensor_core import Helper, _bf16_of, _Writer

_SHAPES = {"bf16": "m16n8k16", "e4m3": "m16n8k32", "e5m2": "m16n8k32"}
_REGISTER = 128  # bytes of a fragment register's 32 lanes
_TILE = 1024  # bytes of a tile: 16 rows of 64


@dataclass(frozen=True)
class Group:
    """A run of products. rows, columns: for each row (column) fragment, its registers of all steps. sums: by row and column, (first c, d)."""

    a_type: str
    b_type: str
    steps: int
    rows: tuple[tuple, ...]
    columns: tuple[tuple, ...]
    sums: dict[tuple[int, int], tuple[tuple, tuple]]
    length: int


@cache
def permitted() -> bool:
    """Whether the operating system lets this process use AMX; Linux wants to be asked."""
    if sys.platform != "linux":
        return False
    request_permission, arch_prctl, tile_data = 0x1023, 158, 18  # asm/prctl.h, x86-64's system call, XFEATURE_XTILEDATA
    return ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data) == 0


def find(ops: Sequence[Op], first: int) -> Group | None:
    """The group that begins at ops[first]: a full product of at least two row fragments × two column fragments, or None."""
    lead = ops[first]
    if not _fits(lead):
        return None
    end = first
    while end < len(ops) and _fits(ops[end]) and ops[end].slots == lead.slots:
        end += 1
    chains: dict[tuple, list[Op]] = {}
    for op in ops[first:end]:
        chain = chains.setdefault(op.args["d"].elements, [])  # type: ignore[union-attr]
        if chain and op.args["c"].elements != op.args["d"].elements:  # type: ignore[union-attr]
            return None
        chain.append(op)
    steps = len(next(iter(chains.values())))
    rows, columns, sums = {}, {}, {}
    for d, chain in chains.items():
        row = tuple(register for op in chain for register in op.args["a"].elements)  # type: ignore[union-attr]
        column = tuple(register for op in chain for register in op.args["b"].elements)  # type: ignore[union-attr]
        place = rows.setdefault(row, len(rows)), columns.setdefault(column, len(columns))
        if len(chain) != steps or place in sums:
            return None
        sums[place] = chain[0].args["c"].elements, d  # type: ignore[union-attr]
    written = {register for d in chains for register in d}
    if written & {register for fragment in (*rows, *columns) for register in fragment}:
        return None
    bf16 = lead.slots["A"] == "bf16"
    if len(sums) != len(rows) * len(columns) or len(columns) % 2 or len(sums) < 4 or bf16 and steps % 2:
        return None
    return Group(lead.slots["A"], lead.slots["B"], steps, tuple(rows), tuple(columns), sums, end - first)


def _fits(op: Op) -> bool:
    slots = op.slots
    return (op.opcode == "mma" and op.guard is None and _SHAPES.get(slots["A"]) == slots["shape"] and slots["D"] == slots["C"] == "f32"
            and (slots["B"] == slots["A"] or slots["B"] in ("e4m3", "e5m2")) and not any(slots.get(name) for name in ("sp", "kind", "op"))
            and all(isinstance(op.args[name], Vec) for name in "abcd") and all(isinstance(reg, Reg) for reg in op.args["d"].elements))  # type: ignore[union-attr]


def emit(e: Emitter, ops: Sequence[Op], group: Group) -> None:
    """Write the whole group, for all 32 lanes."""
    m, n = len(group.rows), len(group.columns)
    zero = all(_is_zero(e, value) for start, _ in group.sums.values() for value in start)
    helper = _helper(m, n, group.steps, group.a_type, group.b_type, zero)
    e.helpers.setdefault(helper.name, helper.text)
    e.declarations.update(helper.declarations)
    _configure(e)
    buffers = {}
    for letter, fragments in (("a", group.rows), ("b", group.columns)):
        registers = [register for fragment in fragments for register in fragment]
        buffers[letter] = _buffer(e, letter, len(registers))
        with e.shape(32):
            for i, register in enumerate(registers):
                _put(e, buffers[letter], i, e.value(register, "i32"))
    places = [(row, column) for row in range(m) for column in range(n)]
    buffers["c"] = _buffer(e, "c", 4 * len(places))
    if not zero:
        with e.shape(32):
            for i, register in enumerate(register for place in places for register in group.sums[place][0]):
                _put(e, buffers["c"], i, e.value(register, "i32"))
    e.do(f"call void {helper.name}(ptr {buffers['a']}, ptr {buffers['b']}, ptr {buffers['c']})")
    last = {op.args["d"].elements: op for op in ops}  # type: ignore[union-attr]
    for i, place in enumerate(places):
        d = group.sums[place][1]
        for j, register in enumerate(d):
            pointer = e.ins(f"getelementptr i8, ptr {buffers['c']}, i64 {(4 * i + j) * _REGISTER}")
            e.write(last[d], register, e.ins(f"load <32 x float>, ptr {pointer}, align 64"), "float", 32)


def _configure(e: Emitter) -> None:
    """At the warp's start: eight tiles of 16 rows × 64 bytes."""
    if "@amx_tiles" not in e.helpers:
        shape = [1] + [0] * 15 + [64, 0] * 8 + [0] * 16 + [16] * 8 + [0] * 8
        e.helpers["@amx_tiles"] = f"@amx_tiles = private constant [64 x i8] [{', '.join(f'i8 {byte}' for byte in shape)}], align 64"
        e.declarations["@llvm.x86.ldtilecfg"] = "declare void @llvm.x86.ldtilecfg(ptr)"
        e.entry.append("  call void @llvm.x86.ldtilecfg(ptr @amx_tiles)")


def _is_zero(e: Emitter, value: Reg | Imm | None) -> bool:
    if isinstance(value, Imm):
        return value.value == 0
    return isinstance(value, Reg) and e.lanes.known[value.index].constant == 0  # type: ignore[union-attr]


def _buffer(e: Emitter, letter: str, count: int) -> str:
    return e.at_entry(f"mma {letter} {count}", f"alloca [{count * _REGISTER} x i8], align 64")


def _put(e: Emitter, buffer: str, index: int, value: str) -> None:
    pointer = e.ins(f"getelementptr i8, ptr {buffer}, i64 {index * _REGISTER}") if index else buffer
    e.do(f"store <32 x i32> {value}, ptr {pointer}, align 64")


# ── the helper ───────────────────────────────────────────────────────────────────────────────────────────────────

_Z = "<16 x i32>"


class _Tiles(_Writer):
    """Text of a group's function."""

    def gep(self, base: str, offset: int) -> str:
        return self.ins(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, base: str, offset: int) -> str:
        return self.ins(f"load {_Z}, ptr {self.gep(base, offset)}, align 64")

    def store(self, value: str, base: str, offset: int) -> None:
        self.do(f"store {_Z} {value}, ptr {self.gep(base, offset)}, align 64")

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def void(self, name: str, *arguments: tuple[str, str]) -> None:
        """A call of an AMX intrinsic; i8 arguments are tile numbers."""
        self.helper.declarations[name] = f"declare void {name}({', '.join('i8 immarg' if kind == 'i8' else kind for kind, _ in arguments)})"
        self.do(f"call void {name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def loop(self, name: str, count: int, strides: dict[str, int], body) -> None:
        """body(pointers) `count` times; each pointer advances by its stride."""
        before = self.helper.labels[-1]  # type: ignore[attr-defined]
        self.helper.labels.append(name)  # type: ignore[attr-defined]
        pointers = {base: f"%{name}.{i}" for i, base in enumerate(strides)}
        moved = {base: f"%{name}.{i}.next" for i, base in enumerate(strides)}
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i32 [ 0, %{before} ], [ %{name}.i.next, %{name}.end ]")
        for base, pointer in pointers.items():
            self.do(f"{pointer} = phi ptr [ {base}, %{before} ], [ {moved[base]}, %{name}.end ]")
        body(pointers)
        self.do(f"br label %{name}.end")
        self.lines.append(f"{name}.end:")
        self.do(f"%{name}.i.next = add i32 %{name}.i, 1")
        for base, stride in strides.items():
            self.do(f"{moved[base]} = getelementptr i8, ptr {pointers[base]}, i64 {stride}")
        self.do(f"%{name}.more = icmp ult i32 %{name}.i.next, {count}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.out")
        self.lines.append(f"{name}.out:")
        self.helper.labels.append(f"{name}.out")  # type: ignore[attr-defined]

    def quads(self, x: str, y: str, order: Sequence[int]) -> str:
        """Four of the eight 128-bit parts of two vectors."""
        return self.shuffle("i32", x, [4 * (part % 4) + i + (16 if part >= 4 else 0) for part in order for i in range(4)], y, 16)

    def transpose(self, rows: Sequence[str]) -> list[str]:
        """A 4 × 4 matrix of 128-bit parts, transposed."""
        even = self.quads(rows[0], rows[1], (0, 2, 4, 6)), self.quads(rows[2], rows[3], (0, 2, 4, 6))
        odd = self.quads(rows[0], rows[1], (1, 3, 5, 7)), self.quads(rows[2], rows[3], (1, 3, 5, 7))
        return [self.quads(*pair, order) for order in ((0, 2, 4, 6), (1, 3, 5, 7)) for pair in (even, odd)]

    def widen(self, vector: str, type_: str) -> list[str]:
        """64 8-bit floats as bf16, exactly: of each 128 bits the first eight, then the last eight."""
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


def _helper(m: int, n: int, steps: int, a_type: str, b_type: str, zero: bool) -> Helper:
    """`void (a, b, c)`: c[m][n][4] = (zero ? 0 : c) + a[m][steps][4] · b[n][steps][2], registers of 32 lanes in memory."""
    helper = Helper(f"@mma_{m}x{n}x{steps}_{a_type}_{b_type}{'_zero' if zero else ''}", "void", [])
    helper.labels = ["entry"]  # type: ignore[attr-defined]
    w = _Tiles(helper)
    wide = a_type == "bf16"
    deep = steps // 2 if wide else steps  # tiles of k
    together = 2 if wide else 1  # steps in a tile of k
    for name, count in (("a", m * deep), ("b", n // 2 * deep), ("c", m * n // 2)):
        w.do(f"%tiles.{name} = alloca [{count * _TILE} x i8], align 64")

    def registers(base: str, indices: Sequence[int], half: int, type_: str) -> list[str]:
        """The 64-byte halves (four quads) of registers as bf16."""
        parts = [w.load(base, index * _REGISTER + 64 * half) for index in indices]
        return parts if wide else [part for vector in parts for part in w.widen(vector, type_)]

    def rows(p: dict[str, str]) -> None:
        for upper in range(2):  # rows 8 … 15
            for half in range(2):
                indices = [4 * step + 2 * word + upper for step in range(together) for word in range(2)]
                for i, row in enumerate(w.transpose(registers(p["%a"], indices, half, a_type))):
                    w.store(row, p["%tiles.a"], (8 * upper + 4 * half + i) * 64)

    w.loop("rows", m * deep, {"%a": 4 * together * _REGISTER, "%tiles.a": _TILE}, rows)
    pitch = 2 * steps * _REGISTER  # from a column fragment to the next

    for pair in range(n // 2):
        first, second = w.gep("%b", 2 * pair * pitch), w.gep("%b", (2 * pair + 1) * pitch)
        target = w.gep("%tiles.b", pair * deep * _TILE)

        def columns(p: dict[str, str], first: str = first, second: str = second, target: str = target) -> None:
            indices = [2 * step + word for step in range(together) for word in range(2)]
            eights = [registers(p[base], indices, half, b_type) for base in (first, second) for half in range(2)]
            for group in range(4):  # of four pairs of k
                turned = [w.shuffle("i32", four[group], [4 * (i % 4) + i // 4 for i in range(16)], None, 16) for four in eights]
                for i, row in enumerate(w.transpose(turned)):
                    w.store(row, p[target], (4 * group + i) * 64)

        step = 2 * together * _REGISTER
        w.loop(f"columns{pair}", deep, {first: step, second: step, target: _TILE}, columns)

    def sums_in(p: dict[str, str]) -> None:
        for upper in range(2):
            for half in range(2):
                parts = []
                for fragment in range(2):
                    even, odd = (w.load(p["%c"], (4 * fragment + 2 * upper + i) * _REGISTER + 64 * half) for i in range(2))
                    for first in (0, 2):
                        order = [source + 4 * quad + first + i for quad in range(4) for i in range(2) for source in (0, 16)]
                        parts.append(w.shuffle("i32", even, order, odd, 16))
                for i, row in enumerate(w.transpose(parts)):
                    w.store(row, p["%tiles.c"], (8 * upper + 4 * half + i) * 64)

    if not zero:
        w.loop("sums", m * n // 2, {"%c": _TILE, "%tiles.c": _TILE}, sums_in)
    _multiply(w, m, n // 2, deep, zero)

    def sums_out(p: dict[str, str]) -> None:
        for upper in range(2):
            for half in range(2):
                parts = w.transpose([w.load(p["%tiles.c"], (8 * upper + 4 * half + i) * 64) for i in range(4)])
                for fragment in range(2):
                    for odd in range(2):
                        order = [4 * quad + 2 * i + odd + source for quad in range(4) for source in (0, 16) for i in range(2)]
                        value = w.shuffle("i32", parts[2 * fragment], order, parts[2 * fragment + 1], 16)
                        w.store(value, p["%c"], (4 * fragment + 2 * upper + odd) * _REGISTER + 64 * half)

    w.loop("results", m * n // 2, {"%c": _TILE, "%tiles.c": _TILE}, sums_out)
    head = f"define internal void {helper.name}(ptr noalias %a, ptr noalias %b, ptr noalias %c) noinline nounwind {{\nentry:"
    helper.text = "\n".join([head, *w.lines, "  ret void", "}", ""])
    return helper


def _multiply(w: _Tiles, m: int, pairs: int, deep: int, zero: bool) -> None:
    """The tiles' products, 2 × 2 sums at a time: sums in tiles 0-3, A in 4 and 5, B in 6 and 7."""

    def move(name: str, tile: int, base: str, index: int) -> None:
        w.void(f"@llvm.x86.{name}", ("i8", str(tile)), ("ptr", w.gep(base, index * _TILE)), ("i64", "64"))

    for first_row in range(0, m, 2):
        for first_pair in range(0, pairs, 2):
            sums = [(i, j) for i in range(min(2, m - first_row)) for j in range(min(2, pairs - first_pair))]
            for i, j in sums:
                if zero:
                    w.void("@llvm.x86.tilezero", ("i8", str(2 * i + j)))
                else:
                    move("tileloadd64", 2 * i + j, "%tiles.c", (first_row + i) * pairs + first_pair + j)
            for k in range(deep):
                for i in {i for i, _ in sums}:
                    move("tileloadd64", 4 + i, "%tiles.a", (first_row + i) * deep + k)
                for j in {j for _, j in sums}:
                    move("tileloadd64", 6 + j, "%tiles.b", (first_pair + j) * deep + k)
                for i, j in sums:
                    w.void("@llvm.x86.tdpbf16ps", ("i8", str(2 * i + j)), ("i8", str(4 + i)), ("i8", str(6 + j)))
            for i, j in sums:
                move("tilestored64", 2 * i + j, "%tiles.c", (first_row + i) * pairs + first_pair + j)
