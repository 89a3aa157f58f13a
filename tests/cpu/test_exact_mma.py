"""Device(exact_mma=True) gives, bit for bit, what the package mmaemu says that Hopper's FP8 tensor core accumulates."""

import numpy as np
import pytest
from matrix_forms import Form, layouts, numbers, pack, run, unpack

from warpwright import Device
from warpwright.cpu.interpreter import exact

torch = pytest.importorskip("torch")
chain = pytest.importorskip("mmaemu.model.chain")

PAIRS = [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")]
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.fixture(scope="module")
def devices():
    return Device("cpu", threads=1, exact_mma=True), Device("interpreter", exact_mma=True)


def codes(type_: str, count: int, random: np.random.Generator, spread: str) -> np.ndarray:
    """FP8 codes: of all finite magnitudes, or near one another, or mostly zero and subnormal."""
    last = 0x7E if type_ == "e4m3" else 0x7B
    if spread == "near":
        middle = 0x38 if type_ == "e4m3" else 0x3C
        values = random.integers(middle - 8, middle + 8, count)
    elif spread == "tiny":
        values = np.where(random.random(count) < 0.5, 0, random.integers(0, 12, count))
    else:
        values = random.integers(0, last + 1, count)
    return (values | random.integers(0, 2, count) << 7).astype(np.uint8)


def witness(a: np.ndarray, b: np.ndarray, c: np.ndarray, types: tuple[str, str]) -> np.ndarray:
    """mmaemu's Hopper: f32 bits [m, n] of a [m, k] · b [k, n] + c."""
    m, n = c.shape
    left, right = (torch.from_numpy(np.ascontiguousarray(x)).view(DTYPES[t]) for x, t in zip((a, b.T), types, strict=True))
    left = left[:, None].expand(m, n, -1)
    right = right[None].expand(m, n, -1)
    return chain.dot(left, right, torch.from_numpy(c), preset="hopper").numpy().view(np.uint32)


def accumulators(random: np.random.Generator, scale: float) -> np.ndarray:
    c = np.clip(random.standard_normal((16, 8)) * scale, -3.4e38, 3.4e38).astype(np.float32)
    c[::5] = 0
    c[3, :4] = [1e-38, -1e-44, 3e-40, -0.0]
    return c


@pytest.mark.parametrize("types", PAIRS, ids="·".join)
@pytest.mark.parametrize(("spread", "scale"), [("all", 1.0), ("near", 100.0), ("tiny", 1e-4), ("near", 1e30), ("all", 3e38)])
def test_one_product_is_the_witness_s(devices, types, spread, scale):
    form = Form("m16n8k32", "f32", *types, "f32")
    found = layouts(form)
    for seed in range(3):
        random = np.random.default_rng(seed)
        a, b = codes(types[0], 512, random, spread).reshape(16, 32), codes(types[1], 256, random, spread).reshape(32, 8)
        a[2], b[:, 5] = 0, 0  # whole sums of zeros
        c = accumulators(random, scale)
        wanted = witness(a, b, c, types)
        given = [pack(found[letter], x.astype(np.uint64)) for letter, x in (("A", a), ("B", b), ("C", c.view(np.uint32)))]
        for device in devices:
            got = unpack(found["D"], run(device, form, np.concatenate(given, axis=1)))[0]
            assert np.array_equal(got, wanted), (device, np.argwhere(got != wanted)[:3].tolist())


@pytest.mark.parametrize("types", PAIRS, ids="·".join)
def test_infinities_and_nans_are_the_witness_s(devices, types):
    form = Form("m16n8k32", "f32", *types, "f32")
    found, random = layouts(form), np.random.default_rng(4)
    a, b = codes(types[0], 512, random, "all").reshape(16, 32), codes(types[1], 256, random, "all").reshape(32, 8)
    a[1, 3], a[4, 7], a[6, 0], a[6, 1] = 0x7F, 0xFF, 0x7C, 0xFC  # of e5m2 the last two are infinities
    b[9, 2], b[7, 4], b[0, 6] = 0x7F, 0, 0x7C
    c = accumulators(random, 1.0)
    c[8:12, 3] = [np.inf, -np.inf, np.nan, 3.4e38]
    wanted = witness(a, b, c, types)
    given = [pack(found[letter], x.astype(np.uint64)) for letter, x in (("A", a), ("B", b), ("C", c.view(np.uint32)))]
    for device in devices:
        assert np.array_equal(unpack(found["D"], run(device, form, np.concatenate(given, axis=1)))[0], wanted)


def test_a_long_chain_is_the_witness_s_and_loses_what_hopper_loses():
    """K = 4096 of e4m3 in one accumulator: errors of the kind that made DeepSeek-V3 promote its sums every 128 of K."""
    random = np.random.default_rng(0)
    a = torch.from_numpy(random.random((4, 4096), np.float32) * 4).to(torch.float8_e4m3fn)
    b = torch.from_numpy(random.random((4, 4096), np.float32) * 4).to(torch.float8_e4m3fn)
    left, right = (numbers(x.view(torch.uint8).numpy().astype(np.uint64), "e4m3") for x in (a, b))
    got = exact.product(left, right.T, np.zeros((4, 4)), "e4m3", "e4m3")
    wanted = witness(a.view(torch.uint8).numpy(), b.view(torch.uint8).numpy().T, np.zeros((4, 4), np.float32), ("e4m3", "e4m3"))
    assert np.array_equal(got.astype(np.float32).view(np.uint32), wanted)
    true = left @ right.T
    assert 0.03 < np.abs(got / true - 1).max() < 0.1
    runs = [exact.product(left[:, k:k + 128], right.T[k:k + 128], np.zeros((4, 4)), "e4m3", "e4m3") for k in range(0, 4096, 128)]
    assert np.abs(sum(runs) / true - 1).max() < 0.003


def test_other_forms_have_the_same_accumulator(devices):
    """k = 16, an f16 accumulator (rounded once, at the end) and a sparse A: both engines, and the reference's function."""
    for form in (Form("m16n8k16", "f32", "e4m3", "e5m2", "f32"), Form("m16n8k32", "f16", "e4m3", "e4m3", "f16"),
                 Form("m16n8k16", "f16", "e5m2", "e4m3", "f16"), Form("m16n8k64", "f32", "e5m2", "e4m3", "f32", {"sp": True})):
        found, random = layouts(form), np.random.default_rng(6)
        a, b = (codes(t, found[x].size, random, "near").astype(np.uint64) for t, x in ((form.a, "A"), (form.b, "B")))
        c = random.standard_normal((16, 8)).astype(np.float32 if form.c == "f32" else np.float16)
        bits = c.view(np.uint32 if form.c == "f32" else np.uint16).astype(np.uint64)
        given = [pack(found[letter], x) for letter, x in (("A", a), ("B", b), ("C", bits))]
        if form.sparse:  # the first two of each four
            given.append(np.full((32, 1), 0x44444444, np.uint64))
        compiled, interpreted = (run(device, form, np.concatenate(given, axis=1)) for device in devices)
        assert np.array_equal(compiled, interpreted)
        right = numbers(b, form.b).reshape(-1, 8)
        right = right[[4 * (j // 2) + j % 2 for j in range(32)]] if form.sparse else right
        wanted = exact.product(numbers(a, form.a).reshape(16, -1), right, c.astype(np.float64), form.a, form.b)
        wanted = wanted.astype(np.float32).astype(c.dtype).astype(np.float64)
        assert np.array_equal(numbers(unpack(found["D"], compiled)[0], form.d), wanted)


def test_other_types_are_not_touched(devices):
    form = Form("m16n8k16", "f32", "bf16", "bf16", "f32")
    registers = np.random.default_rng(0).integers(0x3F003F00, 0x40004000, (32, 10), dtype=np.uint64)
    assert np.array_equal(run(devices[0], form, registers), run(Device("cpu"), form, registers))
