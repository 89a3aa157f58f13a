"""Warp-level matrices: mma, mma.sp, wmma, ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14). `fragments` says how they lie in registers.

The ISA leaves the order of accumulation open. Here it is: for each element, start with c and for k ascending d ← fma(a[k], b[k], d), in f32,
rounded to nearest even; an f16 result is rounded once, at the end. f64 likewise in f64, in the rounding that is asked for. Of a sparse A
only the elements that it holds are multiplied, in their order. A block-scaled A and B are multiplied by their scales first, without error
unless they leave the range of f32. Integers are exact, modulo 2^32 or saturated once at the end. NaN is the canonical one.
"""

from __future__ import annotations

import numpy as np

from warpwright.cpu import fragments
from warpwright.cpu.fragments import Layout
from warpwright.cpu.interpreter import exact, floats
from warpwright.cpu.interpreter.floats import F32, F64, FORMATS, decode, encode
from warpwright.cpu.interpreter.memory import AccessFault, locate
from warpwright.cpu.interpreter.registry import Trap, operand
from warpwright.cpu.interpreter.words import join, mask, split
from warpwright.ptx import tree
from warpwright.ptx.isa import Match

INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4}


# ── fragments ────────────────────────────────────────────────────────────────────────────────────────────────────


def gather(layout: Layout, registers: list) -> np.ndarray:
    """The matrices [count, rows, columns] that the lanes' registers (each a tuple, or the one word) hold, as bit patterns."""
    words = np.array([value if isinstance(value, tuple) else (value,) for value in registers], np.uint64).T
    shifts = (np.arange(layout.places.shape[2]) * layout.bits).astype(np.uint64)
    found = np.zeros(layout.size, np.uint64)
    found[layout.places] = words[:, :, None] >> shifts & np.uint64(mask(layout.bits))
    return found.reshape(layout.count, layout.rows, layout.columns)


def scatter(layout: Layout, matrices: np.ndarray) -> list[tuple[int, ...]]:
    """Each lane's registers, from matrices of bit patterns."""
    shifts = (np.arange(layout.places.shape[2]) * layout.bits).astype(np.uint64)
    parts = np.ascontiguousarray(matrices).ravel().astype(np.uint64)[layout.places]
    words = np.bitwise_or.reduce(parts << shifts, axis=2)
    return [tuple(lane) for lane in words.T.tolist()]


def _all_lanes(threads) -> None:
    if len(threads) != 32:
        raise Trap(f"all 32 lanes must take part; {len(threads)} do")


# ── wmma ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def wmma(m: Match, space: str | None):
    """wmma.load (address, maybe stride), wmma.store (address, registers, maybe stride), wmma.mma (a, b, c)."""
    if m["action"] == "mma":
        types = [str(m.get(letter) or "f16") for letter in "ABCD"]
        layouts = [fragments.wmma_layout(m["shape"], *pair) for pair in zip("ABCD", types, strict=True)]

        def multiply(threads, inputs):
            _all_lanes(threads)
            a, b, c = (gather(layout, [values[i] for values in inputs]) for i, layout in enumerate(layouts[:3]))
            return [(registers,) for registers in scatter(layouts[3], product(m.slots, a, b, c))]

        return multiply
    letter = m["operand"].upper()
    layout = fragments.wmma_layout(m["shape"], letter, m[letter], words=True)
    by_rows = m["layout"] == "row"
    lines, length = (layout.rows, layout.columns) if by_rows else (layout.columns, layout.rows)
    element = fragments.memory_bits(m[letter])
    line_bytes = length * layout.bits // 8

    piece = min(16, line_bytes)

    def pieces(thread, address: int, step: int):
        """(region, host address) of all the matrix's pieces of 16 bytes, line by line."""
        for i in range(lines):
            for offset in range(0, line_bytes, piece):
                try:
                    yield locate(thread, space, address + i * step + offset, piece)
                except AccessFault as fault:
                    fault.thread = thread  # type: ignore[attr-defined]
                    raise

    def load(threads, inputs):
        _all_lanes(threads)
        address, *stride = inputs[0]
        step = stride[0] * element // 8 if stride else line_bytes
        parts = [split(region.load(at, piece), layout.bits, 8 * piece // layout.bits) for region, at in pieces(threads[0], address, step)]
        matrix = np.array(parts, np.uint64).reshape(lines, length)
        found = scatter(layout, matrix if by_rows else matrix.T)
        vector = isinstance(operand(m, "d").operand, tree.Vector)
        return [(registers if vector else registers[0],) for registers in found]

    def store(threads, inputs):
        _all_lanes(threads)
        address, _, *stride = inputs[0]
        step = stride[0] * element // 8 if stride else line_bytes
        (matrix,) = gather(layout, [values[1] for values in inputs])
        parts = (matrix if by_rows else matrix.T).reshape(-1, 8 * piece // layout.bits).tolist()
        for values, (region, at) in zip(parts, pieces(threads[0], address, step), strict=True):
            region.store(at, piece, join(values, layout.bits))
        return [()] * len(threads)

    return load if m["action"] == "load" else store


# ── products ─────────────────────────────────────────────────────────────────────────────────────────────────────


def mma(m: Match):
    """mma and mma.sp; inputs (a, b, c), each the lane's registers, and of mma.sp metadata and selector."""
    slots = m.slots
    layouts = [fragments.mma_layout(slots, operand) for operand in "ABCD"]
    sparse = slots.get("sp") or slots.get("sp::ordered_metadata")
    if slots.get("block_scale"):
        raise ValueError("block-scaled products are not in the interpreter")

    def combine(threads, inputs):
        _all_lanes(threads)
        a, b, c = (gather(layout, [values[i] for values in inputs]) for i, layout in enumerate(layouts[:3]))
        at = None
        if sparse:
            told = fragments.metadata(slots, inputs[0][4])
            words = np.array([values[3] for values in inputs])
            at = fragments.where(slots, words[told.lane] >> told.shift & 3, told)
        d = product(slots, a, b, c, at, exact_mma=threads[0].cta.launch.exact_mma)
        return [(registers,) for registers in scatter(layouts[3], d)]

    return combine


def product(slots: dict, a: np.ndarray, b: np.ndarray, c: np.ndarray, at: np.ndarray | None = None, exact_mma: bool = False) -> np.ndarray:
    """a · b + c of bit patterns [count, rows, columns]. at: the row of b for each element of a, where it is not its column."""
    a_type, b_type, c_type, d_type = (str(slots.get(name) or "f16") for name in "ABCD")
    if at is None:
        at = np.broadcast_to(np.arange(a.shape[2]), a.shape[1:])
    if a_type == "b1":
        bits = a[:, :, :, None] ^ b[:, None] if slots["op"] == "xor" else a[:, :, :, None] & b[:, None]
        return c + np.bitwise_count(bits).sum(2) & np.uint64(mask(32))
    if a_type in INTEGERS:
        left, right = _integers(a, a_type), _integers(b, b_type)
        total = (left[:, :, :, None] * right[:, at]).sum(2) + c.astype(np.uint32).view(np.int32)
        if slots.get("satfinite"):
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        return total & mask(32)
    if a_type == "f64":
        return np.stack([_f64_product(*matrices, str(slots.get("rnd") or "rn")) for matrices in zip(a, b, c, strict=True)])
    results = []
    for x, y, z in zip(a, b, c, strict=True):
        left, right, d = as_doubles(x, a_type), as_doubles(y, b_type), as_doubles(z, c_type)
        if exact_mma and a_type in exact.LEAST and b_type in exact.LEAST:
            d = exact.product(left, right[at], d, a_type, b_type)
        else:
            with np.errstate(all="ignore"):
                for k in range(left.shape[1]):
                    d = fma_to_f32(left[:, k:k + 1], right[at[:, k]], d)
        results.append(_as_bits(d, d_type, bool(slots.get("satfinite"))))
    return np.stack(results)


def _integers(bits: np.ndarray, type_: str) -> np.ndarray:
    values = bits.astype(np.int64)
    half = 1 << INTEGERS[type_] - 1
    return (values ^ half) - half if type_[0] == "s" else values


def _f64_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    """One exact fma after another."""
    d = c.copy()
    for row, column in np.ndindex(*c.shape):
        total = int(c[row, column])
        for k in range(a.shape[1]):
            factors = decode(F64, int(a[row, k])), decode(F64, int(b[k, column]))
            total = encode(F64, floats.fused_multiply_add(*factors, decode(F64, total), mode), mode)
        d[row, column] = total
    return d


def _as_bits(d: np.ndarray, type_: str, satfinite: bool) -> np.ndarray:
    """f32 values held as f64, as bits of f32 or f16 (satfinite: held to its finite numbers, NaN made zero)."""
    if satfinite:
        largest = floats.to_float(decode(FORMATS[type_], FORMATS[type_].largest))
        d = np.where(np.isnan(d), 0, np.clip(d, -largest, largest))
    bits = d.astype(np.float32).view(np.uint32)
    bits[np.isnan(d)] = F32.canonical_nan
    if type_ == "f32":
        return bits
    halves = [encode(FORMATS[type_], decode(F32, value)) for value in bits.ravel().tolist()]
    return np.array(halves, np.uint64).reshape(d.shape)


def as_doubles(matrix: np.ndarray, type_: str) -> np.ndarray:
    """Bit patterns as the numbers they stand for. tf32 ignores the low 13 bits of its register."""
    bits = np.asarray(matrix).astype(np.uint32)
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
