"""wgmma: a product by four warps, of matrices that descriptors find in shared memory (PTX ISA 9.7.15).

Warp w of the group holds rows 16w … 16w + 15 of A (if that is in registers) and of D, laid out as the fragments of mma, D's eight columns
after eight columns; so each warp can form its rows by itself. Shared memory is read when the instruction is issued. The ISA leaves the
order of accumulation open; here it is that of mma: from d (or zero, where scale_d is false), for k ascending d ← fma(±a[k], b[k], d) in
f32, rounded to nearest even, an f16 result rounded once at the end; integers are exact, modulo 2^32 or saturated once. A float64 sum
differs from it by at most (K + 1)·2^-24·(|d| + Σ|a·b|). A sparse A is laid out, and its metadata, as for mma.sp.

On a late device a product is formed when its group is waited for: d and shared memory are read then, descriptors and A's registers at issue.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from warpwright.cpu import fragments
from warpwright.cpu.interpreter import asynchronous, matrix
from warpwright.cpu.interpreter.memory import AccessFault, locate
from warpwright.cpu.interpreter.registry import Trap, operand, per_thread
from warpwright.ptx.descriptor import MatrixDescriptor
from warpwright.ptx.isa import Match
from warpwright.ptx.isa.matrix import shape_of

if TYPE_CHECKING:
    from warpwright.cpu.interpreter.program import Step

ROWS = 16  # of a warp


@per_thread("wgmma")
def warp_group(m: Match, decoder) -> Step:
    from warpwright.cpu.interpreter.program import Step

    readers, writers = decoder.operands(m)
    names = [value.name for value in m.values if value.read]
    action = {"mma_async": multiply, "commit_group": commit, "wait_group": wait}.get(m["action"], lambda *_: everybody)
    return Step(m.instruction, "collective", action(m, names, readers, writers), readers=readers, writers=writers)


def commit(m: Match, *_):
    def combine(threads, inputs):
        asynchronous.commit(threads[0], asynchronous.WGMMA)  # the warp's groups are its first lane's
        return everybody(threads, inputs)

    return combine


def wait(m: Match, *_):
    newest = getattr(operand(m, "n").operand, "value", 0)

    def combine(threads, inputs):
        asynchronous.wait_group(threads[0], asynchronous.WGMMA, newest)
        return everybody(threads, inputs)

    return combine


def multiply(m: Match, names, readers, writers):
    form = former(m)
    at_d = names.index("d")

    def combine(threads, inputs):
        everybody(threads, inputs)
        given = {name: [values[i] for values in inputs] for i, name in enumerate(names)}
        if not threads[0].cta.launch.late:
            return form(threads, given)
        frames = [SimpleNamespace(registers=thread.registers) for thread in threads]

        def finish() -> None:
            late = {**given, "d": [readers[at_d](frame) for frame in frames]}
            for frame, (value,) in zip(frames, form(threads, late), strict=True):
                writers[0](frame, value)

        asynchronous.issue(threads[0], asynchronous.WGMMA, 0, 0, finish)
        return [(value,) for value in given["d"]]

    return combine


def former(m: Match):
    """The function (threads, operands by name and lane) → D's registers of each."""
    _, n, k = shape_of(m["shape"])
    constants = {name: getattr(operand(m, name).operand, "value", 0) for name in ("scale_a", "scale_b", "trans_a", "trans_b", "selector")
                 if m.value(name) is not None}
    slots = {**m.slots, "C": m["D"], "shape": f"m16n8k{k}"}
    sparse, negative = bool(m.get("sp")), constants.get("scale_a", 1) * constants.get("scale_b", 1) < 0
    layout_a, layout_d = fragments.mma_layout(slots, "A"), fragments.wmma_layout(f"m16n{n}k16", "D", m["D"])
    told = fragments.metadata(slots, constants["selector"]) if sparse else None
    in_registers = operand(m, "a").length is not None

    def form(threads, given):
        for name in ("b", "scale_d") + (() if in_registers else ("a",)):
            if len(set(given[name])) > 1:
                raise Trap(f"'{name}' must be the same in all lanes")
        first = ROWS * (threads[0].warp.number % 4)
        if in_registers:
            a = matrix.gather(layout_a, given["a"])
        else:
            a = read_rows(threads[0], given["a"][0], first, ROWS, layout_a.columns, layout_a.bits, not constants.get("trans_a"))[None]
        depth = k // 32 if m["A"] == "b1" else k
        b = read_rows(threads[0], given["b"][0], 0, n, depth, layout_a.bits, not constants.get("trans_b")).T[None]
        c = matrix.gather(layout_d, given["d"]) if given["scale_d"][0] else np.zeros((1, ROWS, n), np.uint64)
        at = None
        if told is not None:
            words = np.array(given["metadata"])
            at = fragments.where(slots, words[told.lane] >> told.shift & 3, told)
            order = np.argsort(at, axis=1, kind="stable")
            a, at = np.take_along_axis(a, order[None], 2), np.take_along_axis(at, order, 1)
        if negative:
            a = a ^ np.uint64(1 << layout_a.bits - 1)
        d = matrix.product(slots, a, b, c, at, exact_mma=threads[0].cta.launch.exact_mma)
        return [(registers,) for registers in matrix.scatter(layout_d, d)]

    return form


def everybody(threads, inputs):
    """Traps where not all lanes of all four warps of the group take part; the answer where there is nothing else to do."""
    warp = threads[0].warp
    there = min(4, len(warp.cta.warps) - (warp.number & ~3))
    if len(threads) != 32 or there < 4:
        raise Trap(f"all 128 threads of a warp group must take part; of this warp {len(threads)} do, and the group has {there} warps")
    return [()] * len(threads)


def read_rows(thread, descriptor: int, first: int, rows: int, k: int, bits: int, k_major: bool) -> np.ndarray:
    """[rows, k] bit patterns that a descriptor tells of, from row `first` on (of A; of B the rows are its columns)."""
    where = MatrixDescriptor.decode(descriptor)
    type_ = {8: np.uint8, 16: np.uint16, 32: np.uint32}[bits]

    def chunk(across: int, along: int) -> np.ndarray:
        try:
            region, place = locate(thread, "shared", where.chunk(across, along, k_major=k_major), 16)
        except AccessFault as fault:
            fault.thread = thread  # type: ignore[attr-defined]
            raise
        return np.frombuffer(region.load(place, 16).to_bytes(16, "little"), type_)

    if k_major:
        found = [[chunk(row, along) for along in range(k * bits // 128)] for row in range(first, first + rows)]
        return np.array(found, np.uint64).reshape(rows, k)
    found = [[chunk(step, along) for along in range(first // 8, (first + rows) // 8)] for step in range(k)]
    return np.array(found, np.uint64).reshape(k, rows).T
