"""wgmma in both engines: every type, every layout of shared memory, sparse A, against exact sums; the engines agree bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from warpwright import Device
from warpwright.errors import KernelTrap, MemoryFault
from warpwright.ptx.descriptor import MatrixDescriptor

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
B_START = 9 * 1024  # where B begins in shared memory


@pytest.fixture(scope="module")
def devices():
    return Device("cpu", threads=2), Device("interpreter")


@dataclass(frozen=True)
class Case:
    """One instruction: n, its types, where and how A lies, how B does."""

    n: int
    a: str
    b: str
    d: str
    registers: bool = False
    sparse: bool = False
    a_swizzle: int = 128
    b_swizzle: int = 128
    a_rows: bool = True  # K-major
    b_rows: bool = True
    signs: tuple[int, int] = (1, 1)
    accumulate: bool = True
    satfinite: bool = False
    selector: int = 0
    threads: int = 128

    @property
    def k(self) -> int:
        return 256 // BITS[self.a] * (2 if self.sparse else 1)

    @property
    def stored(self) -> int:
        return 256 // BITS[self.a]

    @property
    def vector(self) -> int:
        """Registers of D that a thread moves at once."""
        return 4 if self.registers_of_d % 4 == 0 else 2

    @property
    def bytes(self) -> int:
        """Shared memory that holds A and B."""
        step = 16 * self.threads
        return -(-(B_START + 128 * self.n + 6 * 1024) // step) * step

    @property
    def registers_of_d(self) -> int:
        return self.n // (4 if self.d == "f16" else 2)

    def text(self) -> str:
        count, threads = self.registers_of_d, self.threads
        d = ", ".join(f"%d{i}" for i in range(count))
        a = "{%a0, %a1, %a2, %a3}" if self.registers else "%descriptor0"
        extra = f", %meta, {self.selector}" if self.sparse else ""
        tail = "" if self.d == "s32" else f", {self.signs[0]}, {self.signs[1]}"
        if BITS[self.a] == 16:
            tail += ("" if self.registers else f", {int(not self.a_rows)}") + f", {int(not self.b_rows)}"
        types = f"{self.d}.{self.a}.{self.b}" + (".and.popc" if self.a == "b1" else "")
        name = f"wgmma.mma_async{'.sp' * self.sparse}.sync.aligned.m64n{self.n}k{self.k}{'.satfinite' * self.satfinite}.{types}"
        kind = "f32" if self.d == "f32" else "b32"
        vector = self.vector
        groups = [(4 * threads * i, ", ".join(f"%d{i + j}" for j in range(vector))) for i in range(0, count, vector)]
        loads = "\n".join(f"ld.global.v{vector}.{kind} {{{group}}}, [%c + {offset}];" for offset, group in groups)
        stores = "\n".join(f"st.global.v{vector}.{kind} [%c + {offset}], {{{group}}};" for offset, group in groups)
        return f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 image, .param .u64 words, .param .u64 sums, .param .u64 d0, .param .u64 d1, .param .u32 scale)
{{
  .shared .align 1024 .b8 memory[{self.bytes}];
  .reg .{kind} %d<{count}>;
  .reg .b32 %a<4>, %t, %meta, %s, %w<4>, %at;
  .reg .b64 %image, %words, %c, %descriptor<2>, %o;
  .reg .pred %more, %scale;
  ld.param.u64 %image, [image];
  ld.param.u64 %words, [words];
  ld.param.u64 %c, [sums];
  ld.param.u64 %descriptor0, [d0];
  ld.param.u64 %descriptor1, [d1];
  ld.param.u32 %s, [scale];
  setp.ne.u32 %scale, %s, 0;
  mov.u32 %t, %tid.x;
  shl.b32 %at, %t, 4;
COPY:
  cvt.u64.u32 %o, %at;
  add.s64 %o, %image, %o;
  ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%o];
  st.shared.v4.b32 [%at], {{%w0, %w1, %w2, %w3}};
  add.s32 %at, %at, {16 * threads};
  setp.lt.u32 %more, %at, {self.bytes};
  @%more bra COPY;
  fence.proxy.async;
  bar.sync 0;
  mul.wide.u32 %o, %t, {4 * vector};
  add.s64 %c, %c, %o;
  mul.wide.u32 %o, %t, 32;
  add.s64 %words, %words, %o;
  ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%words];
  ld.global.b32 %meta, [%words + 16];
  {loads}
  wgmma.fence.sync.aligned;
  {name} {{{d}}}, {a}, %descriptor1{extra}, %scale{tail};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  {stores}
  ret;
}}
"""


# ── matrices, and where they lie ─────────────────────────────────────────────────────────────────────────────────


def values(bits: np.ndarray, type_: str) -> np.ndarray:
    """What bit patterns stand for, in float64 (b1: the words' bits apart, along a last axis)."""
    if type_ == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    if type_ == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if type_ == "tf32":
        return (bits.astype(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64)
    if type_ == "s8":
        return bits.astype(np.uint8).view(np.int8).astype(np.float64)
    if type_ in ("e4m3", "e5m2"):
        return eight_bit_float(bits, type_)
    return bits.astype(np.float64)


def eight_bit_float(bits: np.ndarray, type_: str) -> np.ndarray:
    mantissa, bias = (3, 7) if type_ == "e4m3" else (2, 15)
    exponent, fraction = bits >> mantissa & (1 << 7 - mantissa) - 1, bits & (1 << mantissa) - 1
    size = np.where(exponent > 0, (fraction / 2.0**mantissa + 1) * 2.0 ** (exponent - bias), fraction * 2.0 ** (1 - bias - mantissa))
    if type_ == "e4m3":
        size = np.where(bits & 0x7F == 0x7F, np.nan, size)
    else:
        size = np.where(exponent == 31, np.where(fraction == 0, np.inf, np.nan), size)
    return np.where(bits & 0x80, -size, size)


def random_bits(rng, shape, type_: str, special: bool = False) -> np.ndarray:
    if type_ == "b1":
        return rng.integers(0, 2, shape)
    if BITS[type_] == 8 and (type_ in ("s8", "u8") or special):
        return rng.integers(0, 256, shape)
    if type_ in ("e4m3", "e5m2"):
        return rng.integers(0, 0x48, shape) | rng.integers(0, 2, shape) << 7
    numbers = rng.standard_normal(shape).astype(np.float32) * 4
    if special:
        numbers[rng.random(shape) < 0.01] = np.inf
        numbers[rng.random(shape) < 0.01] = np.nan
        numbers[rng.random(shape) < 0.1] = 0
        numbers[rng.random(shape) < 0.1] *= np.float32(2.0**-130)
    if type_ == "f16":
        with np.errstate(all="ignore"):
            return numbers.astype(np.float16).view(np.uint16).astype(np.int64)
    return (numbers.view(np.uint32) >> (16 if type_ == "bf16" else 0)).astype(np.int64)


def canonical_offsets(rows: int, bytes_of_k: int, size: int, swizzle: int, k_major: bool, first: int, second: int) -> np.ndarray:
    """Byte offsets [row][k] of elements of `size` bytes, in the canonical layouts of CUTLASS: T elements in 16 bytes, W = swizzle / 16,

    K-major: ((8, m), (T, 2)) : ((W·T, second), (1, T; no swizzle: first)),
    MN-major: ((T, W, m), (8, k)) : ((1, T, first), (W·T, second)); no swizzle: ((T, m), (8, k)) : ((1, second), (T, first)),

    then Swizzle<log2 W, 4, 3> on byte addresses.
    """
    t, w = 16 // size, max(1, swizzle // 16)
    row, k = np.meshgrid(np.arange(rows), np.arange(bytes_of_k // size), indexing="ij")
    if k_major:
        linear = size * (row % 8 * w * t + k % t) + row // 8 * second + k // t * (16 if swizzle else first)
    elif swizzle:
        linear = size * (row % t + row // t % w * t + k % 8 * w * t) + row // (t * w) * first + k // 8 * second
    else:
        linear = size * (row % t + k % 8 * t) + row // t * second + k // 8 * first
    return linear ^ (linear >> 3 & 16 * (w - 1))


def lay(image: np.ndarray, bits: np.ndarray, type_: str, start: int, swizzle: int, k_major: bool) -> MatrixDescriptor:
    """Put a matrix [row][k] into shared memory and say where it is."""
    if type_ == "b1":
        words = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view(np.uint32)
        bits, size = words.astype(np.int64), 4
    else:
        size = BITS[type_] // 8
    rows, k = bits.shape
    w = max(1, swizzle // 16)
    if k_major:
        strides = (16 if swizzle else rows * 20 + 128), 128 * w + (0 if swizzle else 32)
    else:
        strides = (16 * w * k + 1024 if swizzle else 128 * -(-rows // 8)), (128 * w if swizzle else 128)
    offsets = start + canonical_offsets(rows, k * size, size, swizzle, k_major, *strides)
    for byte in range(size):
        image[offsets + byte] = bits >> 8 * byte & 255
    return MatrixDescriptor(start, *strides, swizzle)


def fragments(bits: np.ndarray, type_: str) -> np.ndarray:
    """A [64][k] as the registers [4][128] of the warp group."""
    each = 32 // BITS[type_]
    registers = np.zeros((4, 128), np.int64)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for r in range(4):
            row = 16 * warp + lane // 4 + 8 * (r & 1)
            for j in range(each):
                registers[r, thread] |= int(bits[row, lane % 4 * each + j + 4 * each * (r >> 1)]) << BITS[type_] * j
    return registers


def positions(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of D's element i [n / 2] of each thread [128]."""
    i, thread = np.meshgrid(np.arange(n // 2), np.arange(128), indexing="ij")
    return 16 * (thread // 32) + thread % 32 // 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (thread % 4) + (i & 1)


def sparse_places(rng, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """(k of each stored element [64][stored], metadata [128])."""
    group, kept = (2, 1) if case.a == "tf32" else (4, 2)
    groups = case.k // group
    inside = np.array([[sorted(rng.choice(group, kept, replace=False)) for _ in range(groups)] for _ in range(64)])
    codes = np.where(inside[:, :, 0] == 1, 14, 4) if group == 2 else inside[:, :, 0] | inside[:, :, 1] << 2
    meta = rng.integers(0, 2**32, 128)  # what the selector does not take is noise
    half = groups // 2
    nibbles = (codes.reshape(64, 2, half) << 4 * np.arange(half)).sum(2)  # [row][half of k]
    for row in range(64):
        thread = row // 16 * 32 + row % 8 * 4
        lower = row % 16 // 8
        for part in range(2):
            if BITS[case.a] == 8:
                meta[thread + 2 * part + lower] = nibbles[row, part]
            else:
                at = thread + 2 * case.selector + part
                keep = 0xFFFF if lower else 0xFFFF0000
                meta[at] = int(meta[at]) & keep | int(nibbles[row, part]) << 16 * lower
    return (inside + group * np.arange(groups)[None, :, None]).reshape(64, -1), meta


# ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Data:
    """A [64][stored] and B [n][k] as bit patterns, the sums before as bits of D's registers [registers][128], and places of a sparse A."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    places: np.ndarray | None
    meta: np.ndarray
    image: np.ndarray
    descriptors: tuple[int, int]
    words: np.ndarray


def prepare(case: Case, seed: int, special: bool = False) -> Data:
    rng = np.random.default_rng(seed)
    a, b = random_bits(rng, (64, case.stored), case.a, special), random_bits(rng, (case.n, case.k), case.b, special)
    image = rng.integers(0, 256, case.bytes).astype(np.uint8)
    first = lay(image, a, case.a, 0, case.a_swizzle, case.a_rows) if not case.registers else MatrixDescriptor(0)
    second = lay(image, b, case.b, B_START, case.b_swizzle, case.b_rows)
    places, meta = sparse_places(rng, case) if case.sparse else (None, np.zeros(128, np.int64))
    words = np.concatenate([fragments(a, case.a) if case.registers else np.zeros((4, 128), np.int64), meta[None]])
    sums = rng.standard_normal((case.n // 2, 128)).astype(np.float32)
    if case.d == "f16":
        pairs = sums.astype(np.float16).view(np.uint16).astype(np.uint32).reshape(case.registers_of_d, 2, 128)
        c = pairs[:, 0] | pairs[:, 1] << 16
    elif case.d == "s32":
        c = rng.integers(0, 2**32, (case.registers_of_d, 128)).astype(np.uint32)
    else:
        c = sums.view(np.uint32)
    return Data(a, b, c, places, meta, image, (first.encode(), second.encode()), words.astype(np.uint32))


def run(device, case: Case, data: Data) -> np.ndarray:
    """D's registers [registers][128]."""
    count, threads = data.c.shape
    out = np.ascontiguousarray(data.c.reshape(-1, case.vector, threads).swapaxes(1, 2))
    words = np.zeros((threads, 8), np.uint32)
    words[:, :5] = data.words.T
    args = [data.image, words, out, *data.descriptors, int(case.accumulate)]
    device.load(case.text())["product"].launch(grid=1, block=case.threads, args=args)
    return np.ascontiguousarray(out.swapaxes(1, 2).reshape(count, threads))


def expected(case: Case, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """(D [n / 2][128] in float64, the bound on what may differ)."""
    a = values(data.a, case.a)
    if data.places is not None:
        whole = np.zeros((64, case.k))
        np.put_along_axis(whole, data.places, a, axis=1)
        a = whole
    b = values(data.b, case.b)
    row, column = positions(case.n)
    start = np.zeros(row.shape)
    if case.accumulate:
        start = registers_as_numbers(case, data.c)
    product = case.signs[0] * case.signs[1] * (a @ b.T)
    size = np.abs(a) @ np.abs(b).T
    exact = product[row, column] + start
    bound = (size[row, column] + np.abs(start)) * (case.k + 1) * 2.0**-24
    return exact, bound + (np.abs(exact) * 2.0**-11 + 2.0**-25 if case.d == "f16" else 0)


def registers_as_numbers(case: Case, registers: np.ndarray) -> np.ndarray:
    if case.d == "f16":
        halves = np.stack([registers & 0xFFFF, registers >> 16], axis=1).reshape(-1, 128)
        return halves.astype(np.uint16).view(np.float16).astype(np.float64)
    return registers.view(np.int32 if case.d == "s32" else np.float32).astype(np.float64)


def same(case: Case, left: np.ndarray, right: np.ndarray) -> bool:
    """Bit for bit, but for what NaNs carry."""
    if case.d == "s32":
        return np.array_equal(left, right)
    nan = np.isnan(registers_as_numbers(case, left)), np.isnan(registers_as_numbers(case, right))
    parts = (left, right) if case.d == "f32" else tuple(np.stack([x & 0xFFFF, x >> 16], 1).reshape(-1, 128) for x in (left, right))
    return np.array_equal(*nan) and np.array_equal(*(np.where(nan[0], 0, part) for part in parts))


def check(devices, case: Case, seed: int = 0) -> None:
    data = prepare(case, seed)
    compiled, interpreted = (run(device, case, data) for device in devices)
    exact, bound = expected(case, data)
    if case.d == "s32":
        whole = exact.astype(np.int64)
        wanted = np.clip(whole, -(2**31), 2**31 - 1) if case.satfinite else (whole + 2**31) % 2**32 - 2**31
        assert np.array_equal(interpreted.view(np.int32), wanted)
    else:
        assert np.all(np.abs(registers_as_numbers(case, interpreted) - exact) <= bound)
    assert same(case, compiled, interpreted)


TYPES = [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"), ("e4m3", "e4m3", "f32"),
         ("e4m3", "e5m2", "f16"), ("e5m2", "e4m3", "f32"), ("e5m2", "e5m2", "f16"), ("s8", "s8", "s32"), ("u8", "s8", "s32"),
         ("s8", "u8", "s32"), ("u8", "u8", "s32")]


@pytest.mark.parametrize(("a", "b", "d"), [*TYPES, ("b1", "b1", "s32")])
@pytest.mark.parametrize("registers", [False, True], ids=["shared", "registers"])
def test_every_type(devices, a, b, d, registers):
    check(devices, Case(24, a, b, d, registers))
    check(devices, Case(24, a, b, d, registers, accumulate=False, a_swizzle=0, b_swizzle=32))


@pytest.mark.parametrize(("a", "b", "d"), TYPES)
def test_sparse(devices, a, b, d):
    registers = (a, d) in (("f16", "f32"), ("tf32", "f32"), ("e4m3", "f16"), ("u8", "s32"))
    check(devices, Case(24, a, b, d, registers, sparse=True, b_swizzle=64))
    if BITS[a] > 8:
        check(devices, Case(8, a, b, d, not registers, sparse=True, selector=1, b_swizzle=0))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("a_rows", [True, False], ids=["AK", "AM"])
@pytest.mark.parametrize("b_rows", [True, False], ids=["BK", "BN"])
def test_every_layout(devices, swizzle, a_rows, b_rows):
    check(devices, Case(72, "bf16", "bf16", "f32", a_swizzle=swizzle, b_swizzle=swizzle, a_rows=a_rows, b_rows=b_rows))


@pytest.mark.parametrize("n", [8, 40, 256])
def test_every_width(devices, n):
    check(devices, Case(n, "f16", "f16", "f32"))
    check(devices, Case(n, "f16", "f16", "f16", registers=True, b_rows=False), seed=n)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
def test_signs(devices, signs):
    check(devices, Case(16, "bf16", "bf16", "f32", signs=signs))


def test_transposed_sparse(devices):
    check(devices, Case(32, "f16", "f16", "f32", sparse=True, a_rows=False, b_rows=False))


@pytest.mark.parametrize("satfinite", [False, True])
def test_integers_wrap_or_saturate(devices, satfinite):
    check(devices, Case(16, "u8", "u8", "s32", satfinite=satfinite))


@pytest.mark.parametrize(("a", "b", "d"), [types for types in TYPES if types[2] != "s32"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_what_is_not_a_number_comes_through(devices, a, b, d, sparse):
    """NaN, infinities, zeros and subnormals: both engines say the same; a sparse A passes over what it leaves out."""
    case = Case(24, a, b, d, sparse=sparse, registers=sparse and (a, d) in (("f16", "f32"), ("tf32", "f32"), ("e4m3", "f16")))
    data = prepare(case, 1, special=True)
    compiled, interpreted = (run(device, case, data) for device in devices)
    assert same(case, compiled, interpreted)
    with np.errstate(all="ignore"):
        left, right = values(data.a, a), values(data.b, b)
        if sparse:
            return
        wild = np.stack([left[:, k:k + 1] * right[:, k] for k in range(case.k)]).sum(0)
    row, column = positions(case.n)
    assert np.array_equal(np.isnan(registers_as_numbers(case, interpreted)), np.isnan(wild[row, column]))


@pytest.mark.parametrize(("a", "b", "d"), [types for types in TYPES if types[0] in ("e4m3", "e5m2")])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_exact_mma_keeps_what_hopper_keeps(a, b, d, sparse):
    """FP8 as the hardware rounds: both engines bit for bit; a dense one also as the package mmaemu has it, which models what H100s gave."""
    case = Case(24, a, b, d, sparse=sparse, registers=sparse)
    engines = Device("cpu", threads=1, exact_mma=True), Device("interpreter", exact_mma=True)
    for seed, special in ((0, False), (1, True)):
        data = prepare(case, seed, special)
        compiled, interpreted = (run(device, case, data) for device in engines)
        assert same(case, compiled, interpreted)
        if not sparse and d == "f32" and not special:
            torch, mmaemu = pytest.importorskip("torch"), pytest.importorskip("mmaemu.model.chain")
            formats = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
            row, column = positions(case.n)
            left, right = (torch.from_numpy(x.astype(np.uint8)).view(formats[type_])[i.ravel()]
                           for x, type_, i in ((data.a, a, row), (data.b, b, column)))
            start = torch.from_numpy(data.c.view(np.float32).ravel().copy())
            wanted = mmaemu.dot(left, right, start, preset="hopper").numpy().reshape(row.shape)
            assert np.array_equal(wanted.view(np.uint32), compiled)


def test_the_pattern_may_begin_in_any_line(devices):
    """A swizzle's pattern that begins three lines after a multiple of 1024 bytes, with the base offset that says so."""
    case = Case(32, "bf16", "bf16", "f32")
    data = prepare(case, 2)
    moved = np.zeros_like(data.image)
    moved[384:] = data.image[:-384]
    descriptors = [MatrixDescriptor.decode(bits) for bits in data.descriptors]
    shifted = replace(data, image=moved, descriptors=tuple(replace(d, start=d.start + 384, base_offset=3).encode() for d in descriptors))
    for device in devices:
        assert same(case, run(device, case, data), run(device, case, shifted))


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", [0, 1])
def test_outside_shared_memory(devices, which):
    case = Case(64, "bf16", "bf16", "f32")
    data = prepare(case, 0)
    descriptors = list(data.descriptors)
    descriptors[which] = replace(MatrixDescriptor.decode(descriptors[which]), start=case.bytes - 7 * 1024).encode()  # eight rows too far
    for device in devices:
        with pytest.raises(MemoryFault, match="shared memory"):
            run(device, case, replace(data, descriptors=tuple(descriptors)))


@pytest.mark.parametrize("threads", [32, 96, 160])
def test_a_warp_group_is_four_warps(devices, threads):
    case = Case(8, "bf16", "bf16", "f32", threads=threads)
    data = prepare(case, 0)
    wide = replace(data, c=np.zeros((case.registers_of_d, threads), np.uint32), words=np.zeros((5, threads), np.uint32))
    for device in devices:
        with pytest.raises(KernelTrap):
            run(device, case, wide)


def test_descriptors_are_decoded_as_they_are_encoded():
    descriptor = MatrixDescriptor(0x12340, leading=0x100, stride=0x400, swizzle=64, base_offset=5)
    assert descriptor.encode() == 0x1234 | 0x10 << 16 | 0x40 << 32 | 5 << 49 | 2 << 62
    assert MatrixDescriptor.decode(descriptor.encode()) == descriptor
    with pytest.raises(ValueError, match="multiple of 16"):
        MatrixDescriptor(8).encode()
    with pytest.raises(ValueError, match="swizzle"):
        MatrixDescriptor(0, swizzle=16).encode()
