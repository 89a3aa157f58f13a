"""The quantising kernels give what `formats.py` says, bit for bit, with the conversions of sm_89 and with integer operations."""

import pytest
import torch
from kernel_checks import BF16, F32, assert_same, awkward, randn

from warpwright.kernels import formats, quantize

pytestmark = pytest.mark.usefixtures("poisoned")

SHAPES = [(1, 1), (5, 127), (3, 128), (6, 388)]
BOTH = pytest.mark.parametrize("native", [True, False], ids=["conversions", "integers"], indirect=True)


@pytest.fixture
def native(request, monkeypatch):
    monkeypatch.setattr(quantize, "NATIVE", request.param)


def numbers(random, *shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Of widely differing magnitudes, some of them zero, and some halfway between two that the formats have."""
    x = randn(random, *shape) * torch.exp2(torch.randint(-18, 12, shape, generator=random).float())
    halfway = torch.randint(8, 16, shape, generator=random) + 0.5
    kind = torch.randint(0, 6, shape, generator=random)
    return torch.where(kind == 0, 0.0, torch.where(kind == 1, halfway, x)).to(dtype)


def assert_same_quantized(got, wanted):
    assert_same(got.scales, wanted.scales)
    assert_same(got.values, wanted.values)


# ── tiles of 1×128 ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype, format, power_of_two, native", [
    (F32, "e4m3", False, True), (F32, "e4m3", False, False), (BF16, "e4m3", False, True), (BF16, "e5m2", True, True),
], indirect=["native"])
def test_tiles(random, native, dtype, format, power_of_two):
    for shape in SHAPES:
        x = numbers(random, *shape, dtype=dtype)
        assert_same_quantized(quantize.quantize_tiles(x, format, power_of_two), formats.quantize_tiles(x, format, power_of_two))


@BOTH
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_every_bf16_number_beside_the_largest_of_the_format(native, format):
    """The scale is 1: each is rounded as it is."""
    x = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(BF16).float()
    x = x[x.abs() <= formats.LARGEST[format]]
    x = torch.nn.functional.pad(x, (0, -len(x) % 127)).view(-1, 127)
    x = torch.cat([x, torch.full((len(x), 1), formats.LARGEST[format])], 1)
    got = quantize.quantize_tiles(x, format)
    assert (got.scales == 1).all()
    assert_same(got.values, x.to(formats.DTYPES[format]))


@BOTH
@pytest.mark.parametrize("bad", [torch.nan, -torch.nan, torch.inf, -torch.inf, 2.0**-149, 1e-40, 2.0**-126, 3e38])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_tiles_with_numbers_out_of_the_ordinary(random, native, bad, power_of_two):
    x = torch.zeros(2, 300)
    x[1] = randn(random, 300)
    x[:, 140] = bad
    got = quantize.quantize_tiles(x, "e4m3", power_of_two)
    assert_same(formats.dequantize_tiles(got, 300), formats.dequantize_tiles(formats.quantize_tiles(x, "e4m3", power_of_two), 300))


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_rows_may_stand_anywhere_and_apart(random, dtype):
    x = numbers(random, 4, 260, dtype=dtype)
    for offset, gap in ((1, 3), (4, 4)):
        far = awkward(x, offset, gap)
        assert_same_quantized(quantize.quantize_tiles(far), formats.quantize_tiles(x))
        assert_same_quantized(quantize.quantize_e5m6(far), formats.quantize_e5m6(x))
        assert_same_quantized(quantize.quantize_columns(far, 260), formats.quantize_columns(x))


@pytest.mark.parametrize("dtype, native", [(F32, True), (F32, False), (BF16, True)], indirect=["native"])
def test_dequantise(random, native, dtype):
    for shape in SHAPES:
        quantized = formats.quantize_tiles(numbers(random, *shape))
        assert_same(quantize.dequantize(quantized, shape[1], dtype), formats.dequantize_tiles(quantized, shape[1], dtype))


@BOTH
def test_every_e4m3_number_comes_back(native):
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).view(2, 128)
    assert_same(quantize.dequantize(formats.Quantized(values, torch.ones(2, 1)), 128), values.float())


# ── E5M6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_e5m6_and_back(random, dtype):
    for shape in SHAPES:
        x = numbers(random, *shape, dtype=dtype)
        got = quantize.quantize_e5m6(x)
        assert_same_quantized(got, formats.quantize_e5m6(x))
        assert_same(quantize.dequantize(got, shape[1], dtype), formats.dequantize_e5m6(got, shape[1], dtype))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 2.0**-149, 3e38])
def test_e5m6_with_numbers_out_of_the_ordinary(random, bad):
    x = randn(random, 2, 300)
    x[1, 140] = bad
    got = quantize.dequantize(quantize.quantize_e5m6(x), 300)
    assert_same(got, formats.dequantize_e5m6(formats.quantize_e5m6(x), 300))


# ── tiles of 128×1, for weight gradients ─────────────────────────────────────────────────────────────────────────


def sources(random, rows, columns):
    """A matrix in each form it can be kept in, and in FP32."""
    x = numbers(random, rows, columns)
    tiles, e5m6 = formats.quantize_tiles(x), formats.quantize_e5m6(x)
    return {
        "f32": (x, x), "bf16": (x.to(BF16), x.to(BF16).float()),
        "e4m3": (tiles, formats.dequantize_tiles(tiles, columns)), "e5m6": (e5m6, formats.dequantize_e5m6(e5m6, columns)),
    }


@pytest.mark.parametrize("kind, native", [("f32", True), ("f32", False), ("bf16", True), ("e4m3", True), ("e4m3", False), ("e5m6", True)],
                         indirect=["native"])
def test_columns(random, native, kind):
    for shape in [(1, 1), (127, 5), (128, 3), (390, 160)]:
        source, x = sources(random, *shape)[kind]
        assert_same_quantized(quantize.quantize_columns(source, shape[1]), formats.quantize_columns(x))


@pytest.mark.parametrize("kind, format, power_of_two", [("bf16", "e5m2", False), ("f32", "e4m3", True), ("e5m6", "e4m3", True)])
def test_columns_in_other_formats(random, kind, format, power_of_two):
    source, x = sources(random, 200, 33)[kind]
    assert_same_quantized(quantize.quantize_columns(source, 33, format, power_of_two), formats.quantize_columns(x, format, power_of_two))


@pytest.mark.parametrize("kind", ["bf16", "e4m3"])
@pytest.mark.parametrize("rows", [[0, 130, 0, 128, 142], [1], [0, 0, 0], [5, 0] * 40], ids=str)
def test_columns_of_tokens_sorted_by_expert(random, kind, rows):
    offsets = torch.tensor([0, *rows]).cumsum(0).int()
    source, x = sources(random, sum(rows), 40)[kind]
    got, wanted = quantize.quantize_columns(source, 40, offsets=offsets), formats.quantize_columns(x, offsets=offsets)
    assert got.values.shape == wanted.values.shape
    used = formats.chunk_tokens(sum(rows), offsets).offsets[-1].item()
    assert_same(got.values[:, :used * 128], wanted.values[:, :used * 128])
    assert_same(got.scales[:, :used], wanted.scales[:, :used])


# ── blocks of 128×128 ────────────────────────────────────────────────────────────────────────────────────────────


def check_blocks(w, power_of_two=False):
    got, flipped = quantize.quantize_blocks(w, power_of_two, transposed=True)
    wanted = formats.quantize_blocks(w, "e4m3", power_of_two)
    assert_same_quantized(got, wanted)
    assert_same_quantized(flipped, formats.transpose_blocks(wanted, w.shape[-1]))


def test_blocks_and_their_transpose(random):
    for shape in [(1, 1), (128, 128), (130, 71), (2, 60, 260)]:
        check_blocks(numbers(random, *shape))


@pytest.mark.parametrize("native", [False], ids=["integers"], indirect=True)
def test_blocks_without_conversions(random, native):
    check_blocks(numbers(random, 130, 71))


def test_blocks_of_bf16(random):
    check_blocks(numbers(random, 2, 150, 260, dtype=BF16))


def test_blocks_with_power_of_two_scales(random):
    check_blocks(numbers(random, 130, 260), power_of_two=True)


def test_blocks_without_their_transpose(random):
    w = numbers(random, 140, 200)
    got, flipped = quantize.quantize_blocks(w)
    assert flipped is None
    assert_same_quantized(got, formats.quantize_blocks(w))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_spoils_its_block_and_no_other(random, bad):
    w = randn(random, 256, 256)
    w[200, 5] = bad
    back = formats.dequantize_blocks(quantize.quantize_blocks(w, transposed=True)[0], 256)
    spoilt = torch.zeros(256, 256, dtype=torch.bool)
    spoilt[128:, :128] = True
    assert torch.equal(back.isnan(), spoilt)


# ── casts, and nothing at all ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (3, 4096), (2, 3, 4097)], ids=str)
def test_casts(random, shape):
    x = randn(random, *shape)
    assert_same(quantize.cast(x, BF16), x.to(BF16))
    assert_same(quantize.cast(x.to(BF16), F32), x.to(BF16).float())
    assert quantize.cast(x, F32) is x


def test_casting_every_bf16_number_up_and_halfway_numbers_down(random):
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(BF16)
    assert_same(quantize.cast(every, F32), every.float())
    halfway = (torch.randint(-(2**31), 2**31 - 1, (5000,), generator=random, dtype=torch.int64).int() & -0x10000 | 0x8000).view(F32)
    assert_same(quantize.cast(halfway, BF16), halfway.to(BF16))


def test_no_rows():
    x = torch.empty(0, 200)
    assert quantize.quantize_tiles(x).values.shape == (0, 256)
    assert quantize.quantize_e5m6(x).values.shape == (0, 384)
    assert quantize.dequantize(formats.quantize_tiles(x), 200).shape == (0, 200)
    assert quantize.quantize_columns(x, 200).values.shape == (200, 0)
    assert quantize.quantize_blocks(torch.empty(0, 3, 200))[0].values.shape == (0, 3, 256)
    assert quantize.cast(x, BF16).shape == (0, 200)
