"""Narrow number formats in plain torch: FP8 with a scale per tile or block, and the 12-bit E5M6. The references of `quantize.py`.

A *tile* is 1×128: 128 consecutive elements along the contraction. A *block* is 128×128. Tails may be shorter; what is stored is padded
with zeros to whole tiles along the contraction. The scale s of a tile is amax/max (max: the format's largest number), or that rounded up to
a power of two, at least 2^-126, and 1 for a tile of zeros. Stored is q = round(x · (1/s)), and x ≈ q · s. Rounding is to nearest even.
A tile that holds a NaN or an infinity is NaN as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from warpwright.kernels.recipe import TILE

DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e5m6": 65024.0}
"""The largest number of each format. E5M6 is half precision cut to 6 bits of mantissa: (2 - 2^-6) · 2^15."""
SMALLEST_SCALE = 2.0**-126
"""So that 1/scale is finite. Tiles whose amax is below 2^-126 · max lose precision, then vanish."""


class Quantized(NamedTuple):
    """Narrow values and the FP32 scales of their tiles or blocks: along the last axis, a scale every 128 values."""

    values: Tensor
    scales: Tensor


def padded(n: int) -> int:
    """n rounded up to whole tiles."""
    return -(-n // TILE) * TILE


def _tiles(x: Tensor) -> Tensor:
    """x[M, K] → FP32[M, Kp/128, 128], padded with zeros."""
    rows, columns = x.shape
    return pad(x.float(), (0, padded(columns) - columns)).view(rows, padded(columns) // TILE, TILE)


def tile_scale(amax: Tensor, largest: float, power_of_two: bool = False) -> Tensor:
    """The scale for tiles whose largest magnitude is `amax` (FP32)."""
    scale = (amax / largest).clamp(min=SMALLEST_SCALE)
    if power_of_two:
        rounded = ((scale.view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)
        scale = torch.where(scale.isnan(), scale, rounded)
    return torch.where(amax == 0, 1.0, scale)


def _narrow(scaled: Tensor, format: str) -> Tensor:
    """Round to FP8; what lies beyond the largest number (by rounding of the scale) becomes it."""
    return scaled.clamp(-LARGEST[format], LARGEST[format]).to(DTYPES[format])


# ── tiles of 1×128 ───────────────────────────────────────────────────────────────────────────────────────────────


def quantize_tiles(x: Tensor, format: str = "e4m3", power_of_two: bool = False) -> Quantized:
    """Tiles along the last axis: x[M, K] → values[M, Kp] (FP8), scales[M, Kp/128], Kp = K rounded up to 128."""
    tiles = _tiles(x)
    scales = tile_scale(tiles.abs().amax(-1), LARGEST[format], power_of_two)
    return Quantized(_narrow(tiles * (1.0 / scales)[..., None], format).flatten(1), scales)


def dequantize_tiles(quantized: Quantized, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """values[M, Kp], scales[M, Kp/128] → x[M, columns]."""
    values, scales = quantized
    x = (values.float().view(*scales.shape, TILE) * scales[..., None]).flatten(1)
    return x[:, :columns].to(dtype)


# ── tiles of 128×1, for weight gradients ─────────────────────────────────────────────────────────────────────────


class Chunks(NamedTuple):
    """Tokens cut into chunks of 128, each expert's run padded to whole chunks.

    offsets: int32[E + 1], where each expert's chunks begin. stored: chunks that are stored, at least offsets[E] (those beyond are zeros).
    """

    offsets: Tensor
    stored: int


def chunk_tokens(rows: int, offsets: Tensor | None) -> Chunks:
    """The chunks of `rows` tokens: one run (offsets None), or those of int32[E + 1] `offsets`. Needs no value of `offsets` on the host."""
    if offsets is None:
        count = -(-rows // TILE)
        return Chunks(torch.tensor([0, count], dtype=torch.int32), count)
    experts = offsets.numel() - 1
    chunks = (offsets.diff() + (TILE - 1)) // TILE
    return Chunks(pad(chunks.cumsum(0, dtype=torch.int32), (1, 0)), rows // TILE + min(experts, rows))


def _chunk_slots(rows: int, offsets: Tensor | None, chunks: Chunks) -> Tensor:
    """int64[rows]: where each token stands in the padded order."""
    token = torch.arange(rows)
    if offsets is None:
        return token
    expert = torch.searchsorted(offsets[1:], token, right=True)
    return chunks.offsets[expert].long() * TILE + token - offsets[expert]


def quantize_columns(x: Tensor, format: str = "e4m3", power_of_two: bool = False, offsets: Tensor | None = None) -> Quantized:
    """Tiles along the first axis, stored transposed: x[M, K] → values[K, P], scales[K, P/128], P tokens in `chunk_tokens(M, offsets)`."""
    rows, columns = x.shape
    chunks = chunk_tokens(rows, offsets)
    spread = torch.zeros(chunks.stored * TILE, columns)
    spread[_chunk_slots(rows, offsets, chunks)] = x.float()
    tiles = spread.view(chunks.stored, TILE, columns)
    scales = tile_scale(tiles.abs().amax(1), LARGEST[format], power_of_two)
    values = _narrow(tiles * (1.0 / scales)[:, None], format)
    return Quantized(values.flatten(0, 1).t().contiguous(), scales.t().contiguous())


# ── blocks of 128×128 ────────────────────────────────────────────────────────────────────────────────────────────


def quantize_blocks(w: Tensor, format: str = "e4m3", power_of_two: bool = False) -> Quantized:
    """w[..., N, K] → values[..., N, Kp], scales[..., ⌈N/128⌉, Kp/128]."""
    rows, columns = w.shape[-2:]
    blocks = pad(w.float(), (0, padded(columns) - columns, 0, padded(rows) - rows))
    blocks = blocks.reshape(*w.shape[:-2], padded(rows) // TILE, TILE, padded(columns) // TILE, TILE)
    scales = tile_scale(blocks.abs().amax((-1, -3)), LARGEST[format], power_of_two)
    values = _narrow(blocks * (1.0 / scales)[..., :, None, :, None], format)
    return Quantized(values.view(*w.shape[:-2], padded(rows), padded(columns))[..., :rows, :].contiguous(), scales)


def transpose_blocks(quantized: Quantized, columns: int) -> Quantized:
    """The quantised transpose: values[..., N, Kp], scales → values[..., K, Np], scales[..., ⌈K/128⌉, Np/128]. Nothing is rounded again."""
    values, scales = quantized
    rows = values.shape[-2]
    flipped = values.view(torch.uint8)[..., :columns].transpose(-1, -2)
    return Quantized(pad(flipped, (0, padded(rows) - rows)).contiguous().view(values.dtype), scales.transpose(-1, -2).contiguous())


def dequantize_blocks(quantized: Quantized, columns: int) -> Tensor:
    """values[..., N, Kp], scales → w[..., N, columns], FP32."""
    values, scales = quantized
    rows = values.shape[-2]
    spread = scales.repeat_interleave(TILE, -2)[..., :rows, :].repeat_interleave(TILE, -1)
    return (values.float() * spread)[..., :columns]


# ── E5M6 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def quantize_e5m6(x: Tensor) -> Quantized:
    """x[M, K] → 12-bit numbers, two in three bytes: values uint8[M, Kp·3/2], scales[M, Kp/128], all powers of two.

    A number is the upper 12 bits of a half-precision one (sign, 5 bits of exponent, 6 of mantissa). A pair (a, b) is stored as
    a | b << 12, low byte first.
    """
    tiles = _tiles(x)
    scales = tile_scale(tiles.abs().amax(-1), LARGEST["e5m6"], power_of_two=True)
    bits = round_e5m6(tiles * (1.0 / scales)[..., None]).to(torch.float16).view(torch.int16).int() >> 4 & 0xFFF
    pairs = bits.unflatten(-1, (TILE // 2, 2))
    word = pairs[..., 0] | pairs[..., 1] << 12
    return Quantized(torch.stack([word, word >> 8, word >> 16], -1).to(torch.uint8).flatten(1), scales)


def round_e5m6(x: Tensor) -> Tensor:
    """FP32 numbers of at most 65024 to the nearest of E5M6, ties to even."""
    magnitude = x.view(torch.int32) & 0x7F800000
    # 1.5 · 2^(17 + exponent) has its last bit where the result's last bit is: 6 places below x's leading one, never below 2^-20.
    pivot = (magnitude.clamp(min=(127 - 14) << 23) + (17 << 23) | 1 << 22).view(torch.float32)
    return torch.where(magnitude == 0x7F800000, torch.nan, (x + pivot) - pivot)


def dequantize_e5m6(quantized: Quantized, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """values uint8[M, Kp·3/2], scales[M, Kp/128] → x[M, columns]."""
    values, scales = quantized
    parts = values.view(*scales.shape, TILE // 2, 3).int()
    word = parts[..., 0] | parts[..., 1] << 8 | parts[..., 2] << 16
    halves = (torch.stack([word, word >> 12], -1) << 4).to(torch.int16).view(torch.float16)
    x = (halves.float().flatten(2) * scales[..., None]).flatten(1)
    return x[:, :columns].to(dtype)
