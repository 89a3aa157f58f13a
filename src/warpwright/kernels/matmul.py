"""Matrix products of a linear layer on torch tensors: forward, data gradient, weight gradient; dense, or grouped by expert.

With x [M, K], w [N, K] and dy [M, N]: forward is x·wᵀ, the data gradient dy·w, the weight gradient dyᵀ·x. Grouped, w is [E, N, K] and rows
offsets[e] … offsets[e+1] of x and dy belong to expert e; the weight gradient is a product for each expert over its rows (zeros where
it has none). bf16 runs on tensor cores with FP32 sums, fp32 on FFMA.

fp8 products are all A·Bᵀ of e4m3 operands whose rows hold consecutive k, zero-padded to a multiple of 128, with FP32 scales: a gradient's
operands come transposed from the quantiser, as DeepSeek-V3's do (technical report, §3.3; tensor cores take fp8 in that order only).
Each 128 of k is summed by the tensor core and added to FP32 registers, scaled.

Every function returns a new tensor. Shapes and dtypes that do not fit raise ValueError.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Literal

import torch

from warpwright import ptx
from warpwright.kernels import matmul_fp32, matmul_mma
from warpwright.kernels.matmul_tiles import CHUNK, Grouping, Tiling
from warpwright.kernels.registry import LibraryKernel, register

# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────


def reference_forward(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """x·wᵀ in float64: [M, K] and [N, K] or [E, N, K] → [M, N]."""
    if offsets is None:
        return x.double() @ w.double().T
    parts = [x[begin:end].double() @ w[expert].double().T for expert, (begin, end) in enumerate(_runs(offsets))]
    return torch.cat(parts)


def reference_data_gradient(dy: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """dy·w in float64: [M, N] and [N, K] or [E, N, K] → [M, K]."""
    return reference_forward(dy, w.transpose(-1, -2), offsets)


def reference_weight_gradient(dy: torch.Tensor, x: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """dyᵀ·x in float64: [M, N] and [M, K] → [N, K] or [E, N, K]."""
    if offsets is None:
        return dy.double().T @ x.double()
    return torch.stack([dy[begin:end].double().T @ x[begin:end].double() for begin, end in _runs(offsets)])


def reference_fp8(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor,
                  offsets: torch.Tensor | None = None) -> torch.Tensor:
    """`fp8` in float64, on the dequantised operands."""
    return reference_forward(dequantise_rows(a, a_scale), dequantise_blocks(b, b_scale), offsets)


def reference_fp8_weight_gradient(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor,
                                  chunk_offsets: torch.Tensor | None = None) -> torch.Tensor:
    """`fp8_weight_gradient` in float64, on the dequantised operands."""
    offsets = None if chunk_offsets is None else chunk_offsets * CHUNK
    return reference_weight_gradient(dequantise_rows(a, a_scale).T, dequantise_rows(b, b_scale).T, offsets)


def dequantise_rows(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """e4m3 [R, Kp] with a scale for each 128 of k, [R, Kp/128] → float64."""
    return values.double() * scales.double().repeat_interleave(CHUNK, -1)


def dequantise_blocks(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """e4m3 [(E,) N, Kp] with a scale for each block of 128 × 128, [(E,) ceil(N/128), Kp/128] → float64."""
    rows = scales.double().repeat_interleave(CHUNK, -2)[..., : values.shape[-2], :]
    return values.double() * rows.repeat_interleave(CHUNK, -1)


def _runs(offsets: torch.Tensor) -> list[tuple[int, int]]:
    ends = offsets.tolist()
    return list(itertools.pairwise(ends))


# ── products in bf16 and fp32 ────────────────────────────────────────────────────────────────────────────────────


def forward(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor | None = None, out_dtype: torch.dtype | None = None,
            device: Any = None) -> torch.Tensor:
    """x·wᵀ: x [M, K], w [N, K] (or [E, N, K] with offsets int32 [E+1]), both bf16 or both f32 → [M, N].

    out_dtype: bf16 or f32 (default: x's; f32 for f32).
    """
    _check("forward", x, w, offsets, x.shape[-1], w.shape[-1])
    return _rows(x, w, w.shape[-2], False, offsets, out_dtype, device)


def data_gradient(dy: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor | None = None, out_dtype: torch.dtype | None = None,
                  device: Any = None) -> torch.Tensor:
    """dy·w: dy [M, N], w [N, K] (or [E, N, K] with offsets), both bf16 or both f32 → [M, K]. out_dtype as for `forward`."""
    _check("data_gradient", dy, w, offsets, dy.shape[-1], w.shape[-2])
    return _rows(dy, w, w.shape[-1], True, offsets, out_dtype, device)


def weight_gradient(dy: torch.Tensor, x: torch.Tensor, offsets: torch.Tensor | None = None, out_dtype: torch.dtype = torch.float32,
                    device: Any = None) -> torch.Tensor:
    """dyᵀ·x: dy [M, N], x [M, K], both bf16 or both f32 → [N, K], or [E, N, K] with offsets int32 [E+1]. out_dtype: f32 or bf16 (f32 for
    f32)."""
    if dy.dim() != 2 or x.dim() != 2 or dy.shape[0] != x.shape[0] or dy.dtype != x.dtype:
        raise ValueError(f"weight_gradient: dy {_shape(dy)} and x {_shape(x)} must be matrices of as many rows and one dtype")
    n, k = dy.shape[1], x.shape[1]
    experts = 0 if offsets is None else offsets.numel() - 1
    c = torch.empty((experts, n, k) if offsets is not None else (n, k), dtype=_out(dy, out_dtype))
    return _launch(dy, True, x, True, c, n, k, dy.shape[0], offsets, experts, "k" if offsets is not None else "", device)


def _rows(a: torch.Tensor, w: torch.Tensor, columns: int, strided: bool, offsets: torch.Tensor | None, out_dtype: torch.dtype | None,
          device: Any) -> torch.Tensor:
    c = torch.empty((a.shape[0], columns), dtype=_out(a, out_dtype))
    grouped: Grouping = "rows" if offsets is not None else ""
    return _launch(a, False, w, strided, c, a.shape[0], columns, a.shape[1], offsets, w.shape[0] if grouped else 0, grouped, device)


def _launch(a: torch.Tensor, a_strided: bool, b: torch.Tensor, b_strided: bool, c: torch.Tensor, m: int, n: int, k: int,
            offsets: torch.Tensor | None, experts: int, grouped: Grouping, device: Any) -> torch.Tensor:
    if c.numel() == 0:
        return c
    if k == 0 or a.numel() == 0 or b.numel() == 0:
        return c.zero_()
    a, b = _last_dense(a), _last_dense(b)
    if a.dtype == torch.float32:
        config: Tiling = matmul_fp32.Config(a_strided=a_strided, b_strided=b_strided, grouped=grouped)
    else:
        out: Literal["bf16", "f32"] = "bf16" if c.dtype == torch.bfloat16 else "f32"
        config = matmul_mma.Config(a_strided=a_strided, b_strided=b_strided, grouped=grouped, out=out)
    config = _fit(config, a, b, m, n, k)
    build: Any = matmul_fp32.build if isinstance(config, matmul_fp32.Config) else matmul_mma.build
    build(config).launch(device or default_device(), grid=_grid(config, m, n, experts), args=_arguments(a, b, c, m, n, k, offsets, experts))
    return c


# ── products in fp8 ──────────────────────────────────────────────────────────────────────────────────────────────


def fp8(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, offsets: torch.Tensor | None = None,
        out_dtype: torch.dtype = torch.bfloat16, device: Any = None, emulate: bool = False) -> torch.Tensor:
    """A·Bᵀ: a [M, Kp] e4m3, a_scale [M, Kp/128]; b [N, Kp] e4m3, b_scale [ceil(N/128), Kp/128], or both with E in front and offsets int32
    [E+1] → [M, N] bf16 or f32. Kp is a multiple of 128. Forward: a = x, b = w. Data gradient: a = dy, b = wᵀ.

    a may be e5m2 (gradients). a_scale is read fastest where its first stride is 1. emulate: multiply in f16, for targets before sm_89.
    """
    experts = b.shape[0] if offsets is not None else 0
    m, n, k = a.shape[0], b.shape[-2], a.shape[1]
    blocks = (experts, -(-n // CHUNK), k // CHUNK) if offsets is not None else (-(-n // CHUNK), k // CHUNK)
    if k % CHUNK or b.shape[-1] != k or b.dim() != len(blocks) or tuple(a_scale.shape) != (m, k // CHUNK) or tuple(b_scale.shape) != blocks:
        raise ValueError(f"fp8: a {_shape(a)} with scales {_shape(a_scale)} and b {_shape(b)} with scales {_shape(b_scale)}: "
                         f"expected scales [{m}, {k // CHUNK}] and {list(blocks)}, and k a multiple of {CHUNK} in both")
    c = torch.empty((m, n), dtype=out_dtype)
    config = matmul_mma.Config(dtype="fp8", slabs=2, stages=2, grouped="rows" if offsets is not None else "", emulate=emulate)
    return _launch_fp8(config, a, a_scale, b, b_scale, c, m, n, offsets, experts, device)


def fp8_weight_gradient(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor,
                        chunk_offsets: torch.Tensor | None = None, out_dtype: torch.dtype = torch.float32, device: Any = None,
                        emulate: bool = False) -> torch.Tensor:
    """A·Bᵀ over tokens: a = dyᵀ [N, P] e4m3, a_scale [N, P/128], b = xᵀ [K, P] e4m3, b_scale [K, P/128] → [N, K], or [E, N, K].

    P counts tokens, each expert's run padded with zeros to a multiple of 128: expert e has the 128-token chunks chunk_offsets[e] …
    chunk_offsets[e+1] (int32 [E+1]). Scales are read fastest where their first stride is 1.
    """
    (n, p), k = a.shape, b.shape[0]
    if p % CHUNK or b.shape[1] != p or tuple(a_scale.shape) != (n, p // CHUNK) or tuple(b_scale.shape) != (k, p // CHUNK):
        raise ValueError(f"fp8_weight_gradient: a {_shape(a)} with scales {_shape(a_scale)} and b {_shape(b)} with scales "
                         f"{_shape(b_scale)}: expected as many tokens, a multiple of {CHUNK}, in both, and a scale for {CHUNK}")
    experts = 0 if chunk_offsets is None else chunk_offsets.numel() - 1
    c = torch.empty((experts, n, k) if chunk_offsets is not None else (n, k), dtype=out_dtype)
    grouped: Grouping = "k" if chunk_offsets is not None else ""
    config = matmul_mma.Config(dtype="fp8", slabs=2, stages=2, grouped=grouped, b_scale="row", emulate=emulate)
    return _launch_fp8(config, a, a_scale, b, b_scale, c, n, k, chunk_offsets, experts, device)


_FORMATS: dict[torch.dtype, Literal["e4m3", "e5m2"]] = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}


def _launch_fp8(config: matmul_mma.Config, a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor,
                c: torch.Tensor, m: int, n: int, offsets: torch.Tensor | None, experts: int, device: Any) -> torch.Tensor:
    if a.dtype not in _FORMATS or b.dtype != torch.float8_e4m3fn:
        raise ValueError(f"fp8: a is {a.dtype} and b {b.dtype}; expected float8_e4m3fn in both, or float8_e5m2 for a")
    if c.numel() == 0:
        return c
    k = a.shape[1]
    if k == 0:
        return c.zero_()
    a, b = _aligned(a), _aligned(b)
    a_scale = _first_dense(a_scale)
    config = _fit(replace(config, a_format=_FORMATS[a.dtype], out="bf16" if c.dtype == torch.bfloat16 else "f32"), a, b, m, n, k)
    if config.b_scale == "row":
        b_scale = _first_dense(b_scale)
        b_scale_n, b_scale_k, b_scale_stride = 1, b_scale.stride(1), 0
    else:
        b_scale_n, b_scale_k, b_scale_stride = b_scale.stride(-2), b_scale.stride(-1), b_scale.stride(0) if b_scale.dim() == 3 else 0
    arguments = [*_arguments(a, b, c, m, n, k, offsets, experts), a_scale, b_scale, a_scale.stride(1), b_scale_k, b_scale_n, b_scale_stride]
    matmul_mma.build(config).launch(device or default_device(), grid=_grid(config, m, n, experts), args=arguments)
    return c


# ── choices and arguments ────────────────────────────────────────────────────────────────────────────────────────


def _fit(config: Any, a: torch.Tensor, b: torch.Tensor, m: int, n: int, k: int) -> Any:
    """The config with the tile and the way to meet edges (see `matmul_tiles`) for these tensors.

    Whole 128 × 64 tiles of aligned tensors take "shifted"; what is smaller or odd takes 64 × 64, so that few variants need compiling.
    """
    fp32 = isinstance(config, matmul_fp32.Config)
    if all(_is_aligned(tensor) for tensor in (a, b)):
        tile = config.tile if fp32 else (128, 64)
        pieces = 16 // config.element
        ragged = (config.a_strided and m % pieces) or (config.b_strided and n % pieces)
        whole_k = k % config.depth == 0 or config.grouped == "k"
        whole_n = n % (8 if not fp32 and config.dtype == "fp8" else 2) == 0  # 8: a shifted group of columns has one block's scale
        if m >= tile[0] and n >= tile[1] and whole_n and whole_k and not ragged:
            warps = config.warps if fp32 else (4, 2) if config.dtype == "fp8" else (2, 2)
            return replace(config, tile=tile, warps=warps, access="shifted")
        if not fp32:
            return replace(config, tile=(64, 64), warps=(2, 2), stages=2, access="masked")
    return replace(config, access="elements") if fp32 else replace(config, tile=(64, 64), warps=(2, 2), stages=2, access="elements")


def _grid(config: Tiling, m: int, n: int, experts: int) -> tuple[int, int, int]:
    rows = -(-m // config.tile[0]) + (experts if config.grouped == "rows" else 0)
    return -(-n // config.tile[1]), rows, experts if config.grouped == "k" else 1


def _arguments(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, m: int, n: int, k: int, offsets: torch.Tensor | None,
               experts: int) -> list[Any]:
    return [a, b, c, offsets, experts, m, n, k, _pitch(a), _pitch(b), _pitch(c), _stride(b), _stride(c)]


def _pitch(tensor: torch.Tensor) -> int:
    """Bytes from row to row."""
    return tensor.stride(-2) * tensor.element_size()


def _stride(tensor: torch.Tensor) -> int:
    """Bytes from expert to expert; 0 for one matrix."""
    return tensor.stride(0) * tensor.element_size() if tensor.dim() == 3 else 0


def _is_aligned(tensor: torch.Tensor) -> bool:
    """Whether every row starts at a multiple of 16 bytes."""
    return (tensor.data_ptr() | _pitch(tensor) | _stride(tensor)) % 16 == 0


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if a row does not start at a multiple of 16 bytes (the quantiser's do)."""
    tensor = _last_dense(tensor)
    return tensor if _is_aligned(tensor) else tensor.clone(memory_format=torch.contiguous_format)


def _last_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, copied if its last dimension is not dense or a stride is not positive."""
    dense = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    return tensor if dense and all(stride > 0 for stride in tensor.stride()) else tensor.contiguous()


def _first_dense(scale: torch.Tensor) -> torch.Tensor:
    """Scales [R, C] with R dense, copied if need be."""
    return scale if scale.stride(0) == 1 and scale.stride(1) > 0 else scale.T.contiguous().T


def _out(like: torch.Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    out_dtype = out_dtype or like.dtype
    if like.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"matrix products take bfloat16 or float32, not {like.dtype}")
    if out_dtype not in ((torch.float32,) if like.dtype == torch.float32 else (torch.bfloat16, torch.float32)):
        raise ValueError(f"a product of {like.dtype} cannot be written as {out_dtype}")
    return out_dtype


def _check(what: str, a: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor | None, inner_a: int, inner_w: int) -> None:
    if a.dim() != 2 or w.dim() != (2 if offsets is None else 3) or inner_a != inner_w or a.dtype != w.dtype:
        raise ValueError(f"{what}: {_shape(a)} and weight {_shape(w)} do not fit{'' if offsets is None else ' (grouped: [E, N, K])'}")
    if offsets is not None and (offsets.dtype != torch.int32 or offsets.numel() != w.shape[0] + 1):
        raise ValueError(f"{what}: offsets {_shape(offsets)} must be int32 of {w.shape[0] + 1} (experts + 1)")


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def default_device() -> Any:
    """The process-wide device that the model's kernels run on."""
    from warpwright.kernels import ops

    return ops.device()


# ── the index ────────────────────────────────────────────────────────────────────────────────────────────────────


def _variants(a_strided: bool, b_strided: bool, grouped: Grouping) -> dict[str, ptx.Kernel]:
    """bf16 and fp32 kernels of a product, dense and grouped."""
    found = {}
    for by in ("", grouped):
        for access in ("shifted", "masked", "elements"):
            layout: dict[str, Any] = {"a_strided": a_strided, "b_strided": b_strided, "grouped": by, "access": access}
            shape: dict[str, Any] = {"tile": (128, 64)} if access == "shifted" else {"tile": (64, 64), "stages": 2}
            kernels = [matmul_mma.build(matmul_mma.Config(**layout, **shape, out=out)) for out in ("bf16", "f32")]
            if access != "masked":
                kernels.append(matmul_fp32.build(matmul_fp32.Config(**layout)))
            found.update({kernel.name.removeprefix("matmul_"): kernel for kernel in kernels})
    return found


def _fp8_variants(b_scale: Literal["block", "row"], grouped: Grouping) -> dict[str, ptx.Kernel]:
    """fp8 kernels, dense and grouped, for targets with e4m3 products and without."""
    found = {}
    for by in ("", grouped):
        for access, tile, warps in (("shifted", (128, 64), (4, 2)), ("masked", (64, 64), (2, 2))):
            for a_format, emulate in (("e4m3", False), ("e4m3", True), ("e5m2", False), ("e5m2", True)):
                given: dict[str, Any] = {"access": access, "tile": tile, "warps": warps, "a_format": a_format, "emulate": emulate}
                kernel = matmul_mma.build(matmul_mma.Config(dtype="fp8", slabs=2, stages=2, grouped=by, b_scale=b_scale, **given))
                found[kernel.name.removeprefix("matmul_")] = kernel
    return found


def _random(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).bfloat16()


def _random_fp8(generator: torch.Generator, rows: int, k: int, scales: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.randn(rows, k, generator=generator) * 64).to(torch.float8_e4m3fn), torch.rand(*scales, generator=generator) + 0.5


_ROUNDED, _SUMMED = 2.0**-8, 4e-6  # results in bf16 (2⁻⁹ of each), and in FP32 after sums over some 1,000 of k

register(LibraryKernel(
    "matmul_forward", "x·wᵀ of a linear layer, dense or grouped by expert, bf16 or fp32", lambda: _variants(False, False, "rows"),
    forward, reference_forward, example=lambda generator: (_random(generator, 1024, 256), _random(generator, 512, 256)), tolerance=_ROUNDED,
    traffic=lambda x, w: x.nbytes + w.nbytes + 2 * x.shape[0] * w.shape[-2]))
register(LibraryKernel(
    "matmul_data_gradient", "dy·w of a linear layer, dense or grouped by expert, bf16 or fp32", lambda: _variants(False, True, "rows"),
    data_gradient, reference_data_gradient, example=lambda generator: (_random(generator, 1024, 512), _random(generator, 512, 256)),
    tolerance=_ROUNDED, traffic=lambda dy, w: dy.nbytes + w.nbytes + 2 * dy.shape[0] * w.shape[-1]))
register(LibraryKernel(
    "matmul_weight_gradient", "dyᵀ·x of a linear layer, dense or for each expert, bf16 or fp32", lambda: _variants(True, True, "k"),
    weight_gradient, reference_weight_gradient, example=lambda generator: (_random(generator, 1024, 512), _random(generator, 1024, 256)),
    tolerance=_SUMMED, traffic=lambda dy, x: dy.nbytes + x.nbytes + 4 * dy.shape[1] * x.shape[1]))
register(LibraryKernel(
    "matmul_fp8", "A·Bᵀ in fp8 with scales of 1×128 and 128×128, dense or grouped by expert", lambda: _fp8_variants("block", "rows"),
    fp8, reference_fp8,
    example=lambda generator: (*_random_fp8(generator, 1024, 256, (1024, 2)), *_random_fp8(generator, 512, 256, (4, 2))),
    tolerance=_ROUNDED,
    traffic=lambda a, a_scale, b, b_scale: sum(t.nbytes for t in (a, a_scale, b, b_scale)) + 2 * a.shape[0] * b.shape[0]))
register(LibraryKernel(
    "matmul_fp8_weight_gradient", "A·Bᵀ over tokens in fp8 with scales of 1×128 in both, dense or for each expert",
    lambda: _fp8_variants("row", "k"), fp8_weight_gradient, reference_fp8_weight_gradient,
    example=lambda generator: (*_random_fp8(generator, 512, 1024, (512, 8)), *_random_fp8(generator, 256, 1024, (256, 8))),
    tolerance=_SUMMED,
    traffic=lambda a, a_scale, b, b_scale: sum(t.nbytes for t in (a, a_scale, b, b_scale)) + 4 * a.shape[0] * b.shape[0]))
