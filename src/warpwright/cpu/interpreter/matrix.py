"""Warp-level matrices: mma, ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5).

A fragment spreads a matrix over the 32 lanes. With group = lane / 4, part = lane % 4, and e elements in a 32-bit register:

* A, register r, element j: row group + 8·(r & 1), column part·e + j + 4·e·(r >> 1) (shapes of 8 rows: row group, column … + 4·e·r)
* B, register r, element j: row part·e + j + 4·e·r, column group
* C and D, element i: row group + 8·(i >> 1), column 2·part + (i & 1)

An f64 counts as a register of one element. The ISA leaves the order of accumulation open. Here it is: for each element, start with c and
for k ascending d ← fma(a[k], b[k], d), in f32, rounded to nearest even; an f16 result is rounded once, at the end. f64 likewise in f64;
integers are exact, modulo 2^32 or saturated once at the end.
"""

from __future__ import annotations

import re

import numpy as np

from warpwright.cpu.interpreter import floats
from warpwright.cpu.interpreter.floats import F32, F64, FORMATS, decode, encode
from warpwright.cpu.interpreter.memory import AccessFault, locate
from warpwright.cpu.interpreter.registry import Trap
from warpwright.cpu.interpreter.words import join, mask, signed, split

_INTEGER_BITS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def element_width(type_: str) -> int:
    """Bits that an element takes in a fragment register; the 6- and 4-bit float formats stand in a byte each."""
    if type_ in _INTEGER_BITS:
        return _INTEGER_BITS[type_]
    return {"tf32": 32, "f32": 32, "s32": 32, "f64": 64, "f16": 16, "bf16": 16}.get(type_, 8)


def place(matrix: str, index: int, lane: int, per_register: int, rows: int) -> tuple[int, int]:
    """(row, column) of element `index` of a lane's fragment of "A", "B" or "C"."""
    group, part = divmod(lane, 4)
    register, element = divmod(index, per_register)
    if matrix == "C":
        return group + 8 * (index >> 1), 2 * part + (index & 1)
    if matrix == "B":
        return part * per_register + element + 4 * per_register * register, group
    if rows == 8:
        return group, part * per_register + element + 4 * per_register * register
    return group + 8 * (register & 1), part * per_register + element + 4 * per_register * (register >> 1)


def gather(matrix: str, fragments: list[tuple[int, ...]], type_: str, shape: tuple[int, int], rows: int) -> list[list[int]]:
    """The matrix that the lanes' fragments hold, as bit patterns."""
    bits = element_width(type_)
    per_register = max(1, 32 // bits)
    found = [[0] * shape[1] for _ in range(shape[0])]
    for lane, registers in enumerate(fragments):
        elements = [part for register in registers for part in split(register, bits, per_register)]
        for index, value in enumerate(elements):
            row, column = place(matrix, index, lane, per_register, rows)
            found[row][column] = value
    return found


def scatter(matrix: list[list[int]], type_: str, registers: int) -> list[tuple[tuple[int, ...]]]:
    """The fragments of D for all lanes, each as the one operand it is."""
    bits = element_width(type_)
    per_register = max(1, 32 // bits)
    outputs = []
    for lane in range(32):
        values = []
        for index in range(registers * per_register):
            row, column = place("C", index, lane, per_register, len(matrix))
            values.append(matrix[row][column])
        outputs.append((tuple(join(values[i:i + per_register], bits) for i in range(0, len(values), per_register)),))
    return outputs


def multiply_accumulate(shape: str, d_type: str, a_type: str, b_type: str, c_type: str, *, satfinite: bool = False, bit_op: str = ""):
    """mma: D = A·B + C, of shape m…n…k…; inputs (a, b, c), each the lane's registers."""
    m, n, k = (int(part) for part in re.findall(r"\d+", shape))

    def combine(threads, inputs):
        if len(threads) != 32:
            raise Trap(f"all 32 lanes must take part; {len(threads)} do")
        a = gather("A", [values[0] for values in inputs], a_type, (m, k), m)
        b = gather("B", [values[1] for values in inputs], b_type, (k, n), m)
        c = gather("C", [values[2] for values in inputs], c_type, (m, n), m)
        if a_type in _INTEGER_BITS:
            d = integer_product(a, b, c, a_type, b_type, satfinite, bit_op)
        elif a_type == "f64":
            d = exact_product(a, b, c)
        else:
            d = float_product(a, b, c, a_type, b_type, c_type, d_type)
        return scatter(d, d_type, m * n // 32 // max(1, 32 // element_width(d_type)))

    return combine


def integer_product(a, b, c, a_type: str, b_type: str, satfinite: bool, bit_op: str) -> list[list[int]]:
    def value(bits: int, type_: str) -> int:
        return signed(bits, _INTEGER_BITS[type_]) if type_[0] == "s" else bits

    def term(x: int, y: int) -> int:
        return {"xor": x ^ y, "and": x & y}[bit_op] if bit_op else value(x, a_type) * value(y, b_type)

    d: list[list[int]] = []
    for row, sums in zip(a, c, strict=True):
        d.append([])
        for column, start in enumerate(sums):
            total = signed(start, 32) + sum(term(x, b[k][column]) for k, x in enumerate(row))
            d[-1].append((max(-(1 << 31), min((1 << 31) - 1, total)) if satfinite else total) & mask(32))
    return d


def exact_product(a, b, c) -> list[list[int]]:
    """f64, one exact fma after another."""
    d: list[list[int]] = []
    for row, sums in zip(a, c, strict=True):
        d.append([])
        for column, start in enumerate(sums):
            total = start
            for k, x in enumerate(row):
                total = encode(F64, floats.fused_multiply_add(decode(F64, x), decode(F64, b[k][column]), decode(F64, total)))
            d[-1].append(total)
    return d


def float_product(a, b, c, a_type: str, b_type: str, c_type: str, d_type: str) -> list[list[int]]:
    with np.errstate(all="ignore"):
        left, right = as_doubles(a, a_type), as_doubles(b, b_type)
        d = as_doubles(c, c_type)
        for k in range(left.shape[1]):
            d = fma_to_f32(left[:, k:k + 1], right[k:k + 1, :], d)
    bits = d.astype(np.float32).view(np.uint32)
    bits[np.isnan(d)] = F32.canonical_nan
    if d_type == "f32":
        return bits.tolist()
    return [[encode(FORMATS[d_type], decode(F32, value)) for value in row] for row in bits.tolist()]


def as_doubles(matrix: list[list[int]], type_: str) -> np.ndarray:
    """Bit patterns as the numbers they stand for. tf32 ignores the low 13 bits of its register."""
    bits = np.array(matrix, np.uint32)
    if type_ == "tf32":
        return (bits & 0xFFFFE000).view(np.float32).astype(np.float64)
    if type_ == "f32":
        return bits.view(np.float32).astype(np.float64)
    format_ = FORMATS[type_]
    table = {value: floats.to_float(decode(format_, value & mask(format_.bits))) for value in set(bits.ravel().tolist())}
    return np.vectorize(table.get, otypes=[np.float64])(bits)


def fma_to_f32(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x·y + z of f32 values in f64 arrays, rounded once to f32 (and held in f64 again).

    The product is exact: 24 + 24 bits fit f64's 53. The sum is made odd where it is not exact (TwoSum gives its error, and an inexact sum
    whose last bit is even moves one unit towards the error), so rounding it to f32, with more than two bits fewer, rounds the true sum.
    """
    product = x * y
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    inexact = np.isfinite(total) & (error != 0)
    even = total.view(np.int64) & 1 == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    total = np.where(inexact & even, np.nextafter(total, toward), total)
    return total.astype(np.float32).astype(np.float64)


# ── 8×8 matrices of 16-bit elements in shared memory ─────────────────────────────────────────────────────────────


def _row(thread, space: str | None, address: int):
    try:
        return locate(thread, space, address, 16)
    except AccessFault as fault:
        fault.thread = thread  # type: ignore[attr-defined]
        raise


def load_matrices(count: int, transposed: bool, space: str | None):
    """ldmatrix.m8n8: lanes 8i … 8i+7 hold the rows' addresses of matrix i; inputs (address,)."""

    def combine(threads, inputs):
        address = {thread.lane: (thread, values[0]) for thread, values in zip(threads, inputs, strict=True)}
        matrices = []
        for i in range(count):
            rows = []
            for lane in range(8 * i, 8 * i + 8):
                region, place_ = _row(address[lane][0], space, address[lane][1])
                rows.append(split(region.load(place_, 16), 16, 8))
            matrices.append([list(column) for column in zip(*rows, strict=True)] if transposed else rows)
        outputs = []
        for thread in threads:
            group, part = divmod(thread.lane, 4)
            outputs.append((tuple(join(matrix[group][2 * part:2 * part + 2], 16) for matrix in matrices),))
        return outputs

    return combine


def store_matrices(count: int, transposed: bool, space: str | None):
    """stmatrix.m8n8: inputs (address, registers)."""

    def combine(threads, inputs):
        address = {thread.lane: (thread, values[0]) for thread, values in zip(threads, inputs, strict=True)}
        for i in range(count):
            matrix = [[0] * 8 for _ in range(8)]
            for thread, (_, registers) in zip(threads, inputs, strict=True):
                group, part = divmod(thread.lane, 4)
                for j, value in enumerate(split(registers[i], 16, 2)):
                    row, column = (2 * part + j, group) if transposed else (group, 2 * part + j)
                    matrix[row][column] = value
            for lane in range(8 * i, 8 * i + 8):
                region, place_ = _row(address[lane][0], space, address[lane][1])
                region.store(place_, 16, join(matrix[lane % 8], 16))
        return [()] * len(threads)

    return combine


def transpose(threads, inputs):
    """movmatrix.m8n8.trans.b16: inputs (register,)."""
    matrix = [[0] * 8 for _ in range(8)]
    for thread, (register,) in zip(threads, inputs, strict=True):
        group, part = divmod(thread.lane, 4)
        for j, value in enumerate(split(register, 16, 2)):
            matrix[group][2 * part + j] = value
    return [(join([matrix[2 * (t.lane % 4) + j][t.lane // 4] for j in range(2)], 16),) for t in threads]
