"""Runs of mma on the host's AMX tiles give what single products give, wherever fragments and sums come from."""

import numpy as np
import pytest

from warpwright import Device, ptx
from warpwright.cpu.analysis.flow import Flow
from warpwright.cpu.analysis.lanes import Lanes
from warpwright.cpu.analysis.program import flatten
from warpwright.cpu.codegen import detect_host, mma_group
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.ptx import Pointer, b32, f32, u32

pytestmark = pytest.mark.skipif(not detect_host().amx, reason="this processor has no AMX, or the system does not lend it")

MMA = {
    "bf16": ptx.word("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "e4m3": ptx.word("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    "e5m2": ptx.word("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32"),
}


def product(type_: str, rows: int, columns: int, steps: int, zero: bool, guard: bool = False, in_rows: bool = False,
            disturbed: bool = False):
    """c[rows][columns][4 registers][lane] += a · b on one warp; a, b hold registers of fragments by lane, or 16 bytes a lane (in_rows).

    disturbed: shared memory is written after A has been read.
    """

    @ptx.kernel(block=32, name="product", min_target="sm_89")
    def kernel(a: Pointer[b32], b: Pointer[b32], c: Pointer[f32], some: u32):
        lane = ptx.laneid()
        stage = ptx.shared(b32, 32 * (rows * 4 + columns * 2) * steps)

        def fill(memory, where, count):
            for i in range(count // 4):
                ptx.st.shared.v4((where + lane * 4) + 128 * i, ptx.ld.global_.v4((memory + lane * 4) + 128 * i))
            ptx.bar.warp.sync(0xFFFFFFFF)

        def fragments(memory, where, count, registers):
            """[fragment][step] → registers."""
            if not in_rows:
                return [[[ptx.ld.global_(memory + lane + 32 * ((i * steps + step) * registers + r)) for r in range(registers)]
                         for step in range(steps)] for i in range(count)]
            found, address = [], where + lane * 4
            for i in range(count):
                words = [ptx.ld.shared.v4(address + 128 * (i * registers // 2 + half)) for half in range(registers // 2)]
                found.append([[word[2 * step + k] for k in (0, 1) for word in words] for step in range(steps)])
            return found

        b_stage = stage + 32 * rows * 4 * steps
        if in_rows:
            fill(a, stage, rows * 4 * steps)
            fill(b, b_stage, columns * 2 * steps)
        left = fragments(a, stage, rows, 4)
        if disturbed:
            ptx.st.shared(stage + lane, 0)
        right = fragments(b, b_stage, columns, 2)
        sums = [[[ptx.ld.global_(c + lane + 32 * ((i * columns + j) * 4 + r)) for r in range(4)] for j in range(columns)] for i in range(rows)]
        nothing = ptx.var(f32, 0.0)
        for i in range(rows):
            for j in range(columns):
                for step in range(steps):
                    start = [nothing] * 4 if zero and step == 0 else sums[i][j]
                    MMA[type_](left[i][step], right[j][step], start, out=sums[i][j], guard=some > 0 if guard else None)
        for i in range(rows):
            for j in range(columns):
                for r in range(4):
                    ptx.st.global_(c + lane + 32 * ((i * columns + j) * 4 + r), sums[i][j][r])

    return kernel


def groups_of(kernel: ptx.Kernel) -> list[mma_group.Group]:
    program = flatten(kernel.module(), kernel.name)
    flow = Flow(program)
    return list(mma_group.plan(Emitter(program, flow, Lanes(program, flow, kernel.block), detect_host())).values())


def run(kernel: ptx.Kernel, kind: str, rows: int, columns: int, steps: int, type_: str) -> np.ndarray:
    random = np.random.default_rng(7)
    wide = type_ == "bf16"
    sizes = rows * steps * 4 * 32, columns * steps * 2 * 32
    if wide:
        halves = [(random.standard_normal(2 * size).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for size in sizes]
        a, b = (half.view(np.uint32) for half in halves)
    else:  # codes of moderate size: NaN and infinity would hide errors
        a, b = ((random.integers(0, 0x60, 4 * size) | random.integers(0, 2, 4 * size) << 7).astype(np.uint8).view(np.uint32) for size in sizes)
    c = random.standard_normal(rows * columns * 128).astype(np.float32)
    kernel.launch(Device(kind), grid=1, args=[a, b, c, 1])
    return c


CASES = {
    "registers, bf16": ("bf16", 2, 2, 2, False, False),
    "registers, bf16, three rows of four": ("bf16", 3, 4, 4, False, False),
    "registers, e4m3 from zero": ("e4m3", 2, 4, 2, True, False),
    "registers, e5m2 · e4m3": ("e5m2", 2, 2, 1, False, False),
    "rows, bf16": ("bf16", 4, 2, 2, False, True),
    "rows, e4m3 from zero": ("e4m3", 2, 4, 2, True, True),
    "rows, e5m2 · e4m3": ("e5m2", 3, 2, 2, False, True),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_agree_with_the_interpreter(name):
    type_, rows, columns, steps, zero, in_rows = CASES[name]
    kernel = product(type_, rows, columns, steps, zero, in_rows=in_rows)
    (group,) = groups_of(kernel)
    assert group.length == rows * columns * steps and (group.a is not None) == (group.b is not None) == in_rows
    got, wanted = (run(kernel, kind, rows, columns, steps, type_) for kind in ("cpu", "interpreter"))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_fragments_are_not_read_again_from_memory_that_has_changed():
    kernel = product("bf16", 2, 2, 2, False, in_rows=True, disturbed=True)
    (group,) = groups_of(kernel)
    assert group.a is None and group.b is not None
    got, wanted = (run(kernel, kind, 2, 2, 2, "bf16") for kind in ("cpu", "interpreter"))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_what_is_no_full_product_is_left_alone():
    assert not groups_of(product("bf16", 1, 2, 2, False))  # one row of fragments
    assert not groups_of(product("bf16", 2, 1, 2, False))  # an odd number of columns
    assert not groups_of(product("bf16", 2, 2, 1, False))  # half a tile of k
    assert not groups_of(product("bf16", 2, 2, 2, False, guard=True))
