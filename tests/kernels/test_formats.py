"""The rules of the narrow formats, of which these torch functions are the references."""

import pytest
import torch
from kernel_checks import BF16, assert_same, randn

from warpwright.kernels import formats

SHAPES = [(1, 1), (3, 127), (2, 128), (5, 129), (4, 384)]


def is_power_of_two(x):
    return torch.equal(x.log2(), x.log2().round())


# ── tiles ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format, step", [("e4m3", 2.0**-4), ("e5m2", 2.0**-3)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_tiles_error_is_half_a_step(random, shape, format, step):
    x = randn(random, *shape) * torch.rand(shape, generator=random) ** 8
    quantized = formats.quantize_tiles(x, format)
    padded = formats.padded(shape[1])
    assert quantized.values.shape == (shape[0], padded) and quantized.scales.shape == (shape[0], padded // 128)
    assert not quantized.values.float()[:, shape[1]:].any(), "padding is zero"
    scale = quantized.scales.repeat_interleave(128, 1)[:, :shape[1]]
    smallest = scale * formats.LARGEST[format] * 2.0**-40  # far below the smallest step of either format
    error = (formats.dequantize_tiles(quantized, shape[1]) - x).abs()
    subnormal = {"e4m3": 2.0**-10, "e5m2": 2.0**-17}[format] * scale
    assert (error <= torch.maximum(x.abs() * step, subnormal) * (1 + 1e-6) + smallest).all()


def test_the_largest_of_a_tile_becomes_the_largest_of_the_format(random):
    x = randn(random, 7, 256)
    values, scales = formats.quantize_tiles(x, "e4m3")
    assert values.float().view(7, 2, 128).abs().amax(2).unique().tolist() == [448.0]
    assert torch.equal(scales, x.view(7, 2, 128).abs().amax(2) / 448)


@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_power_of_two_scales_are_the_next_above(random, format):
    x = randn(random, 20, 128)
    plain, rounded = formats.quantize_tiles(x, format).scales, formats.quantize_tiles(x, format, power_of_two=True).scales
    assert is_power_of_two(rounded)
    assert (rounded >= plain).all() and (rounded < 2 * plain).all()


def test_a_power_of_two_stays(random):
    x = torch.zeros(1, 128)
    x[0, 3] = 448.0 * 2.0**-5
    assert formats.quantize_tiles(x, power_of_two=True).scales.item() == 2.0**-5


def test_with_power_of_two_scales_quantising_again_changes_nothing(random):
    x = formats.dequantize_tiles(formats.quantize_tiles(randn(random, 6, 200), power_of_two=True), 200)
    assert torch.equal(formats.dequantize_tiles(formats.quantize_tiles(x, power_of_two=True), 200), x)


def test_zeros_have_scale_one():
    values, scales = formats.quantize_tiles(torch.zeros(2, 130))
    assert not values.float().any() and torch.equal(scales, torch.ones(2, 2))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_what_is_not_finite_spoils_its_tile_and_no_other(random, bad, power_of_two):
    x = randn(random, 2, 256)
    x[1, 130] = bad
    back = formats.dequantize_tiles(formats.quantize_tiles(x, "e4m3", power_of_two), 256)
    assert back[1, 128:].isnan().all() and back[0].isfinite().all() and back[1, :128].isfinite().all()


@pytest.mark.parametrize("tiny", [2.0**-149, 1e-40, 2.0**-126, 1e-30])
def test_tiny_tiles_stay_finite(tiny):
    x = torch.zeros(1, 128)
    x[0, 0] = tiny
    values, scales = formats.quantize_tiles(x)
    assert scales.isfinite().all() and (scales >= 2.0**-126).all()
    assert abs(formats.dequantize_tiles((values, scales), 128)[0, 0].item() - tiny) <= 2.0**-10 * scales.item() + tiny * 2.0**-4


# ── columns and blocks ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columns_are_the_tiles_of_the_transpose(random, shape):
    x = randn(random, *shape)
    for got, wanted in zip(formats.quantize_columns(x), formats.quantize_tiles(x.t()), strict=True):
        assert_same(got, wanted)


def test_each_experts_columns_are_as_if_it_were_alone(random):
    x, rows = randn(random, 400, 5), [0, 130, 0, 128, 142]
    offsets = torch.tensor([0, *rows]).cumsum(0).int()
    values, scales = formats.quantize_columns(x, "e4m3", False, offsets)
    chunks = formats.chunk_tokens(400, offsets)
    assert chunks.offsets.tolist() == [0, 0, 2, 2, 3, 5] and chunks.stored >= 5
    for expert in range(5):
        first, last = chunks.offsets[expert:expert + 2].tolist()
        alone = formats.quantize_columns(x[offsets[expert]:offsets[expert + 1]])
        assert_same(values[:, first * 128:last * 128], alone.values)
        assert_same(scales[:, first:last], alone.scales)


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (130, 70), (3, 200, 129)], ids=str)
def test_blocks_share_a_scale_and_their_transpose_has_the_same(random, shape):
    w = randn(random, *shape) * 0.02
    quantized = formats.quantize_blocks(w)
    flipped = formats.transpose_blocks(quantized, shape[-1])
    back = formats.dequantize_blocks(quantized, shape[-1])
    assert torch.equal(formats.dequantize_blocks(flipped, shape[-2]), back.transpose(-1, -2))
    for row in range(0, shape[-2], 128):
        for column in range(0, shape[-1], 128):
            block = w[..., row:row + 128, column:column + 128]
            scale = block.abs().amax((-2, -1)) / 448
            assert torch.equal(quantized.scales[..., row // 128, column // 128], scale)
    scale = quantized.scales.amax()
    assert ((back - w).abs() <= torch.maximum(w.abs() * 2.0**-4, 2.0**-10 * scale) * (1 + 1e-6)).all()


# ── E5M6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def e5m6_numbers() -> torch.Tensor:
    """All that are finite and not negative, ascending, from the format's definition."""
    return torch.tensor([(fraction / 64 + (exponent > 0)) * 2.0 ** (max(exponent, 1) - 15) for exponent in range(31) for fraction in range(64)])


def test_e5m6_rounds_to_the_nearest_and_to_even(random):
    numbers = e5m6_numbers()
    assert numbers[-1] == formats.LARGEST["e5m6"]
    between = (numbers[1:] + numbers[:-1]) / 2
    anything = torch.exp2(torch.rand(2000, generator=random) * 45 - 30).clamp(max=65024.0)
    for x in (numbers, between, torch.nextafter(between, between * 0), torch.nextafter(between, between * 2), anything):
        distance = (x[:, None].double() - numbers.double()).abs()
        nearest = distance.amin(1, keepdim=True)
        even = (torch.arange(len(numbers)) % 2 == 0).float()
        code = torch.where(distance == nearest, 1 + even, torch.zeros(())).argmax(1)
        assert torch.equal(formats.round_e5m6(x), numbers[code])
        assert torch.equal(formats.round_e5m6(-x), -numbers[code])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_e5m6_keeps_what_it_can_hold(random, shape, dtype):
    """Numbers within 2^30 of their tile's largest that have 7 significant bits come back exactly, in 12 bits each."""
    significand = torch.randint(64, 128, shape, generator=random) * (torch.randint(0, 2, shape, generator=random) * 2 - 1)
    x = (significand * torch.exp2(torch.randint(-10, 11, shape, generator=random).float())).to(dtype)
    quantized = formats.quantize_e5m6(x)
    assert quantized.values.shape == (shape[0], formats.padded(shape[1]) * 12 // 8)
    assert is_power_of_two(quantized.scales)
    assert_same(formats.dequantize_e5m6(quantized, shape[1], dtype), x)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_spoils_its_e5m6_tile_and_no_other(random, bad):
    x = randn(random, 2, 256)
    x[1, 130] = bad
    back = formats.dequantize_e5m6(formats.quantize_e5m6(x), 256)
    assert back[1, 128:].isnan().all() and back[0].isfinite().all() and back[1, :128].isfinite().all()
