"""Tensor copies (TMA) on both engines against a reference in numpy, bit for bit: random maps, boxes, bounds, swizzles."""

import random

import numpy as np
import pytest
import tensor_reference as reference

from warpwright import Device
from warpwright.cpu.tensor_map import NAN, SWIZZLES, TensorMap

SHARED = 16384
LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes [%s], [%m, {{{at}}}], [bar]{offsets};"
STORE = """cp.async.bulk.tensor.{rank}d.global.shared::cta{mode}.bulk_group [%m, {{{at}}}], [%s];
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
REDUCE = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}{mode}.bulk_group [%m, {{{at}}}], [%s];"
ENGINES = [("cpu", False), ("cpu", True), ("interpreter", False)]

_modules: dict = {}


def kernel(kind: str, late: bool, instruction: str, rank: int, mode: str = "", offsets: int = 0, op: str = "", coordinates: int = 0):
    """A kernel that fills 16 KiB of shared memory from `data`, has one thread do an instruction with shared address `s`, and writes it back.

    It waits for `tx` bytes at an mbarrier where the instruction has one.
    """
    key = kind, late, instruction, rank, mode, offsets, op, coordinates
    if key not in _modules:
        names = [f"%x{i}" for i in range(coordinates or rank)]
        shifts = [f"%h{i}" for i in range(offsets)]
        text = instruction.format(rank=rank, mode=mode, op=op, at=", ".join(names), offsets=f", {{{', '.join(shifts)}}}" if shifts else "")
        _modules[key] = Device(kind, late=late, threads=1).load(f""".version 8.6
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry k(.param .u64 map, .param .u64 data, .param .u32 at, .param .u32 tx, .param .align 4 .b8 xs[20], .param .align 2 .b8 hs[6]) {{
 .reg .b64 %m, %d, %p, %state; .reg .b32 %s, %t, %w, %v, %tx, %x<5>; .reg .b16 %h<3>; .reg .pred %one, %q;
 .shared .align 8 .b64 bar;
 ld.param.u64 %m, [map]; ld.param.u64 %d, [data]; ld.param.u32 %s, [at]; ld.param.u32 %tx, [tx];
 {' '.join(f'ld.param.b32 %x{i}, [xs+{4 * i}];' for i in range(5))} {' '.join(f'ld.param.b16 %h{i}, [hs+{2 * i}];' for i in range(3))}
 mov.u32 %t, tile; add.u32 %s, %s, %t;
 mov.u32 %t, %tid.x; setp.eq.u32 %one, %t, 0;
 @%one mbarrier.init.shared.b64 [bar], 1;
Fill: mad.wide.u32 %p, %t, 4, %d; ld.global.b32 %v, [%p]; shl.b32 %w, %t, 2; mov.u32 %x4, tile; add.u32 %w, %w, %x4; st.shared.b32 [%w], %v;
 add.u32 %t, %t, 32; setp.lt.u32 %q, %t, {SHARED // 4}; @%q bra Fill;
 ld.param.b32 %x4, [xs+16];
 fence.proxy.async; bar.sync 0;
 @!%one bra Wait;
 mbarrier.arrive.expect_tx.shared.b64 %state, [bar], %tx;
 {text}
Wait: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
 @!%q bra Wait;
 bar.sync 0;
 mov.u32 %t, %tid.x;
Dump: mad.wide.u32 %p, %t, 4, %d; shl.b32 %w, %t, 2; mov.u32 %x4, tile; add.u32 %w, %w, %x4; ld.shared.b32 %v, [%w]; st.global.b32 [%p], %v;
 add.u32 %t, %t, 32; setp.lt.u32 %q, %t, {SHARED // 4}; @%q bra Dump;
 ret;
}}""")["k"]
    return _modules[key]


def run(engine, instruction, rank, map_, data, at, tx, coordinates, **form) -> np.ndarray:
    """Launch it: coordinates innermost first, `shifts` of im2col likewise. Gives shared memory as it was left."""
    shifts = form.pop("shifts", ())
    out = data.copy()
    xs = np.array([*coordinates, 0, 0, 0, 0][:5], np.int32)
    hs = np.array([*shifts, 0, 0, 0][:3], np.uint16)
    k = kernel(*engine, instruction, rank, offsets=len(shifts), coordinates=len(coordinates), **form)
    k.launch(1, 32, [map_, out, at, tx, xs, hs], shared_bytes=SHARED, time_limit=20)
    return out


DTYPES = (np.uint8, np.int16, np.float16, np.float32, np.int32, np.float64, np.int64)


class Case:
    """A random tensor with gaps, a map of it, and a box somewhere around it. Shapes in numpy's order."""

    def __init__(self, seed: int, dtypes=DTYPES):
        rng = random.Random(seed)
        self.rng, self.noise = rng, np.random.default_rng(seed)
        self.rank = rng.randint(1, 5)
        dtype = np.dtype(rng.choice(dtypes))
        size = dtype.itemsize
        self.swizzle = rng.choice(SWIZZLES)
        pitch = reference.SPAN.get(self.swizzle, 128)
        inner = 16 * rng.randint(1, (pitch or 256) // 16)
        inner = min(inner, 256 * size)
        pitch = max(pitch, inner)
        self.at = 128 * rng.randint(0, 8)
        room = (SHARED - self.at) // pitch
        self.steps = [rng.choice((1, 1, 1, 2, 3)) for _ in range(self.rank)]
        self.box = []
        for axis in range(self.rank - 1):
            n = rng.randint(1, max(1, min(room, 12)))
            room //= n
            self.box.append(min(256, n * self.steps[axis]))
        self.box.append(inner // size)
        shape = [rng.randint(1, 2 * b + 3) for b in self.box]
        padded = list(shape)
        padded[-1] = -(-(shape[-1] + rng.randint(0, 9)) * size // 16) * 16 // size
        for axis in range(1, self.rank - 1):
            padded[axis] += rng.randint(0, 2)
        count = int(np.prod(padded))
        store = np.zeros(count * size + 64, np.uint8)
        start = -store.ctypes.data % 16
        self.whole = store[start:start + count * size]
        self.whole[:] = self.noise.integers(0, 256, self.whole.size, np.uint8)
        self.tensor = self.whole.view(dtype).reshape(padded)[tuple(slice(0, n) for n in shape)]
        self.coordinates = [rng.randint(-b, n + 1) if rng.random() < 0.7 else 0 for b, n in zip(self.box, shape, strict=True)]
        self.fill = rng.choice(("zero", "nan")) if dtype.kind == "f" else "zero"
        self.map = TensorMap.tiled(self.tensor, self.box, element_strides=self.steps, swizzle=self.swizzle, fill=self.fill,
                                   l2_promotion=rng.choice(("none", "128B")))
        self.shared = self.noise.integers(0, 256, SHARED, np.uint8)

    def rows(self):
        return reference.box_rows(self.tensor, self.box, self.coordinates, self.steps, NAN if self.fill == "nan" else 0)


@pytest.mark.parametrize("engine", ENGINES, ids=["compiled", "late", "interpreter"])
def test_random_boxes_arrive_as_numpy_says(engine):
    for seed in range(60 if engine[0] == "cpu" else 12):
        case = Case(seed)
        rows, _ = case.rows()
        wanted = case.shared.copy()
        reference.to_shared(rows, case.swizzle, case.at, wanted)
        got = run(engine, LOAD, case.rank, case.map, case.shared, case.at, rows.size, case.coordinates[::-1])
        assert (got == wanted).all(), f"seed {seed}: {case.map} at {case.coordinates}"


@pytest.mark.parametrize("engine", ENGINES, ids=["compiled", "late", "interpreter"])
def test_random_boxes_are_stored_inside_the_bounds_only(engine):
    for seed in range(100, 140 if engine[0] == "cpu" else 110):
        case = Case(seed)
        rows, inside = case.rows()
        values = reference.from_shared(rows, case.swizzle, case.at, case.shared)
        wanted = case.whole.copy()
        for address, value in zip(addresses_of(case)[inside], values[inside], strict=True):
            wanted[address] = value
        run(engine, STORE, case.rank, case.map, case.shared, case.at, 0, case.coordinates[::-1])
        assert (case.whole == wanted).all(), f"seed {seed}: {case.map} at {case.coordinates}"


def addresses_of(case: Case) -> np.ndarray:
    """The offset of each byte of a box in the case's memory; anything where it is out of bounds."""
    offsets = np.arange(case.whole.size, dtype=np.int64)
    size = case.tensor.dtype.itemsize
    # An int64 for each byte of an element, in a tensor of the same shape.
    planes = [np.lib.stride_tricks.as_strided(offsets[byte:], case.tensor.shape, [8 * s for s in case.tensor.strides]) for byte in range(size)]
    rows = [reference.box_rows(plane, case.box, case.coordinates, case.steps, 0)[0].view(np.int64) for plane in planes]
    return np.stack(rows, axis=-1).reshape(rows[0].shape[0], -1)
