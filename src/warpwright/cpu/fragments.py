"""How matrices lie in the registers of a warp: the one table that the engines and the tests read.

A `Layout` says for every element of every register of every lane which element of the matrix it is. With group = lane / 4, part = lane % 4,
and e elements in a 32-bit register (an f64 counts as a register of one element; b1 as words of 32 bits):

* A, register r, element j: row group + 8·(r & 1), column part·e + j + 4·e·(r >> 1) (of 8 rows: row group, column … + 4·e·r)
* B, register r, element j: row part·e + j + 4·e·r, column group
* C and D, element i: row group + 8·(i >> 1), column 2·part + (i & 1)

mma.m8n8k4 of f16 is four products at once, each by the lanes 4p … 4p + 3 and 16 + 4p … 16 + 4p + 3; its layouts are those of Volta. A of
mma.sp is laid out as a dense matrix of half as many columns; `metadata` says where the column of each element is told.

wmma leaves its fragments' layout open. Here: tiles of 16 (or 8) rows of A and C and of 8 columns of B and C, each laid out as for mma, one
after another, columns slowest; `.row` and `.col` fragments are alike; a fragment longer than the matrix holds it over again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from warpwright.ptx.isa.matrix import shape_of, wmma_fragment

# Bits an element takes in a fragment register: formats of 6 and 4 bits stand in a byte each, and bits are taken by the word.
ELEMENT_BITS = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "b1": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4}


def element_bits(type_: str, kind: str = "") -> int:
    """Bits an element takes in a register; e2m1 of `kind` mxf4 and mxf4nvf4 is packed."""
    return 4 if type_ == "e2m1" and "mxf4" in kind else ELEMENT_BITS.get(type_, 8)


def memory_bits(type_: str) -> int:
    """Bits of an element in memory, as strides count them."""
    return 1 if type_ == "b1" else element_bits(type_)


@dataclass(frozen=True)
class Layout:
    """places[register, lane, element]: the element's index in the matrices, which are `count` of rows × columns, row by row.

    bits: of an element. Several registers may hold the same element.
    """

    places: np.ndarray
    rows: int
    columns: int
    bits: int
    count: int = 1

    @property
    def registers(self) -> int:
        return self.places.shape[0]

    @property
    def size(self) -> int:
        return self.count * self.rows * self.columns


_GROUP, _PART = np.divmod(np.arange(32), 4)


def _tile(matrix: str, rows: int, columns: int, per_register: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns), each [register, lane, element], of one mma operand."""
    length = rows * columns // 32 // per_register
    r, j = np.arange(length)[:, None, None], np.arange(per_register)[None, None, :]
    group, part = _GROUP[None, :, None], _PART[None, :, None]
    if matrix == "C":
        i = r * per_register + j
        row, column = group + 8 * (i >> 1), 2 * part + (i & 1)
    elif matrix == "B":
        row, column = part * per_register + j + 4 * per_register * r, group
    elif rows == 8:
        row, column = group, part * per_register + j + 4 * per_register * r
    else:
        row, column = group + 8 * (r & 1), part * per_register + j + 4 * per_register * (r >> 1)
    shape = (length, 32, per_register)
    return np.broadcast_to(row, shape), np.broadcast_to(column, shape)


def _volta(matrix: str, column_major: bool, wide: bool) -> np.ndarray:
    """Places in four 8×4, 4×8 or 8×8 matrices. wide: C of f32."""
    lane = np.arange(32)[:, None]
    product, quad, high = lane // 4 % 4, lane % 4, lane // 16
    if matrix == "C":
        i = np.arange(8)[None, :]
        row = (lane & 1) + (i & 2) + 4 * high if wide else quad + 4 * high
        column = (i & 4) + (lane & 2) + (i & 1) if wide else i
        places = product * 64 + row * 8 + column
    else:
        i = np.arange(4)[None, :]
        along, across = (i + 4 * high, quad) if column_major == (matrix == "A") else (quad + 4 * high, i)
        places = product * 32 + (along * 4 + across if matrix == "A" else across * 8 + along)
    per_register = 1 if wide else 2
    return np.broadcast_to(places, (32, 8 if matrix == "C" else 4)).reshape(32, -1, per_register).transpose(1, 0, 2)


def mma_layout(slots: dict, operand: str) -> Layout:
    """Of operand A, B, C or D of an mma with these slots."""
    wanted = ("shape", "A", operand, "alayout", "blayout", "kind")
    sparse = bool(slots.get("sp") or slots.get("sp::ordered_metadata"))
    return _mma_layout(operand, sparse, *(str(slots.get(name) or "") for name in wanted))


@lru_cache(maxsize=512)
def _mma_layout(operand: str, sparse: bool, shape: str, a_type: str, type_: str, alayout: str, blayout: str, kind: str) -> Layout:
    m, n, k = shape_of(shape)
    matrix = "C" if operand == "D" else operand
    bits = element_bits(type_, kind)
    if shape == "m8n8k4" and a_type == "f16":
        rows, columns = {"A": (8, 4), "B": (4, 8), "C": (8, 8)}[matrix]
        column_major = {"A": alayout, "B": blayout}.get(matrix) == "col"
        return Layout(_volta(matrix, column_major, type_ == "f32"), rows, columns, bits, 4)
    if type_ == "b1":
        k //= 32
    if sparse and matrix == "A":
        k //= 2
    rows, columns = {"A": (m, k), "B": (k, n), "C": (m, n)}[matrix]
    row, column = _tile(matrix, rows, columns, max(1, 32 // bits))
    return Layout(row * columns + column, rows, columns, bits)


@lru_cache(maxsize=512)
def wmma_layout(shape: str, operand: str, type_: str, words: bool = False) -> Layout:
    """Of operand A, B, C or D of wmma. words: 4-bit elements are taken by the 32-bit word, as they are in memory."""
    m, n, k = shape_of(shape)
    matrix = "C" if operand == "D" else operand
    bits = element_bits(type_)
    if type_ == "b1":
        k //= 32
    if words and bits == 4:
        bits, k = 32, k // 8
    per_register = max(1, 32 // bits)
    rows, columns = {"A": (m, k), "B": (k, n), "C": (m, n)}[matrix]
    high, wide = (columns if matrix != "C" else 8, min(16, rows))
    tile_rows, tile_columns = (rows, 8) if matrix == "B" else (wide, high)
    parts = []
    for first_column in range(0, columns, tile_columns):
        for first_row in range(0, rows, tile_rows):
            row, column = _tile(matrix, tile_rows, tile_columns, per_register)
            parts.append((first_row + row) * columns + first_column + column)
    places = np.concatenate(parts)
    length = wmma_fragment({"shape": shape, operand: type_}, operand)[0] or 0
    return Layout(np.concatenate([places] * (length // len(places))), rows, columns, bits)


# ── sparse A ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Metadata:
    """Where the two-bit numbers are that say where A's elements belong: for row r and number j, at bit `shift[r, j]` of lane `lane[r, j]`'s
    word. Numbers come in pairs, one pair for each four granules of a row of A; each says in which of the four the next granule of A belongs.

    elements: of A in a granule. Of tf32 a number stands for half an element: a pair says both halves of one.
    """

    lane: np.ndarray
    shift: np.ndarray
    elements: float


def metadata(slots: dict, selector: int) -> Metadata:
    """Of an mma.sp with these slots. Formats of 16 and 32 bits tell in each word 16 bits for row `group` and 16 for row `group` + 8; the
    narrower ones 32 for either, in neighbouring lanes."""
    k, type_ = shape_of(slots["shape"])[2], slots["A"]
    bits = element_bits(type_)
    elements = {32: 0.5, 16: 1, 8: 1, 4: 2}[bits]
    numbers = int(k / 2 / elements)
    row, j = np.arange(16)[:, None], np.arange(numbers)[None, :]
    high, group = row // 8, row % 8
    if bits >= 16:
        lanes = numbers * 2 // 16  # that tell one row
        lane, shift = 4 * group + selector * lanes + 2 * j // 16, 16 * high + 2 * j % 16
    else:
        lanes = numbers * 2 // 32 * 2
        lane, shift = 4 * group + selector * lanes + 2 * (2 * j // 32) + high, 2 * j % 32 + 0 * row
    return Metadata(lane, shift, elements)


def where(slots: dict, numbers: np.ndarray, told: Metadata) -> np.ndarray:
    """The column of the full A for each element of its rows [16, k / 2], from the metadata's numbers [16, …] of each row."""
    column = 4 * (np.arange(numbers.shape[1]) // 2)[None, :] + numbers
    if told.elements == 0.5:
        return column[:, ::2] // 2
    if told.elements == 2:
        return (2 * column[:, :, None] + np.arange(2)).reshape(16, -1)
    return column


def selectors(slots: dict) -> int:
    """How many values mma.sp's selector may have."""
    told = metadata(slots, 0)
    return 4 // len(np.unique(told.lane % 4))

