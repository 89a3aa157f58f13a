"""Copies of tokens sorted by expert, and their weighted sum back: the layout, the rows, and the gradients.

The layout is a stable counting sort without atomics, so it is the same every time: the warp of an expert counts the copies of lower
experts, which is where its rows begin, then gives its own copies their rows in order, 32 at a time. Rows move by token: a warp reads its
token's row once and writes it k times, or reads k rows and writes their sum, in slot order, in FP32, rounded once.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.kernels.formats import chunk_tokens
from warpwright.kernels.lanes import (
    ALL,
    BLOCK,
    NAMES,
    WARP,
    Access,
    by_access,
    each_group,
    lane_sum,
    launch,
    pitch,
    row_of,
    warp_of_row,
    widest,
)
from warpwright.kernels.recipe import TILE
from warpwright.kernels.registry import LibraryKernel, register
from warpwright.ptx import Pointer, b8, b32, f32, u32

# ── the layout ───────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache
def layout_kernel(top_k: int) -> ptx.Kernel:
    @ptx.kernel(block=BLOCK, name=f"expert_layout_{top_k}")
    def expert_layout(experts: Pointer[b32], offsets: Pointer[b32], source: Pointer[b32], position: Pointer[b32], copies: u32, count: u32):
        """A warp an expert."""
        with warp_of_row(count) as expert:
            below = ptx.var(u32, 0)

            def count_lower(copy):
                lower = ptx.ld.global_.nc.b32(experts + copy).as_(u32) < expert
                ptx.add.u32(below, 1, out=below, guard=lower)

            each_group(copies, 1, count_lower)
            row = ptx.var(u32, lane_sum(below))
            with ptx.when(ptx.laneid() == 0):
                ptx.st.global_.b32(offsets + expert, row)
            lower_lanes = ptx.special("%lanemask_lt")
            with ptx.loop(0, copies, WARP) as first:
                copy = first + ptx.laneid()
                found = ptx.var(b32, ALL)
                ptx.ld.global_.nc.b32(experts + copy, out=found, guard=copy < copies)
                own = found.as_(u32) == expert
                lanes = ptx.vote.sync.ballot.b32(own, ALL)
                with ptx.when(own):
                    place = row + ptx.popc.b32(lanes & lower_lanes)
                    ptx.st.global_.b32(position + copy, place)
                    ptx.st.global_.b32(source + place, copy // top_k)
                ptx.add.u32(row, ptx.popc.b32(lanes), out=row)
            with ptx.when((expert == count - 1) & (ptx.laneid() == 0)):
                ptx.st.global_.b32(offsets + count, row)

    return expert_layout


@lru_cache
def chunks_kernel() -> ptx.Kernel:
    @ptx.kernel(block=WARP)
    def expert_chunks(offsets: Pointer[b32], chunks: Pointer[b32], experts: u32):
        """One warp: a running sum of each expert's rows in chunks of 128, 32 experts at a time."""
        lane = ptx.laneid()
        carried = ptx.var(u32, 0)
        with ptx.when(lane == 0):
            ptx.st.global_.b32(chunks, carried)
        with ptx.loop(0, experts, WARP) as first:
            expert = first + lane
            total = ptx.var(u32, 0)
            inside = expert < experts
            with ptx.when(inside):
                rows = ptx.ld.global_.nc.b32(offsets + expert + 1).as_(u32) - ptx.ld.global_.nc.b32(offsets + expert).as_(u32)
                ptx.assign(total, (rows + (TILE - 1)) // TILE)
            distance = 1
            while distance < WARP:
                before = ptx.shfl.sync.up.b32(total, distance, 0, ALL)
                ptx.add.u32(total, before, out=total, guard=lane >= distance)
                distance *= 2
            total = total + carried
            ptx.st.global_.b32(chunks + expert + 1, total, guard=inside)
            ptx.assign(carried, ptx.shfl.sync.idx.b32(total, WARP - 1, 31, ALL))

    return expert_chunks


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _rows_of(token: u32, top_k: int, position: Pointer, rows: Pointer, rows_pitch: u32, dtype: str) -> list[Pointer]:
    """Where each row of a token begins."""
    slots = position + token * top_k
    found = [row_of(rows, ptx.ld.global_.nc.b32(slots + slot).as_(u32), rows_pitch, dtype) for slot in range(top_k)]
    return found


@lru_cache
def permute_kernel(dtype: str, width: int, top_k: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"permute_{access.name}_{top_k}")
    def permute(x: Pointer[b8], position: Pointer[b32], rows: Pointer[b8], tokens: u32, columns: u32, x_pitch: u32, rows_pitch: u32):
        with warp_of_row(tokens) as token:
            source, targets = row_of(x, token, x_pitch, dtype), _rows_of(token, top_k, position, rows, rows_pitch, dtype)

            def copy(column):
                values = access.load(source + column)
                for target in targets:
                    access.store(target + column, values)

            each_group(columns, width, copy)

    return permute


@lru_cache
def unpermute_kernel(dtype: str, width: int, top_k: int, weighted: bool) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=("unpermute" if weighted else "permute_backward") + f"_{access.name}_{top_k}")
    def unpermute(rows: Pointer[b8], weights: Pointer[f32], position: Pointer[b32], y: Pointer[b8], tokens: u32, columns: u32,
                  rows_pitch: u32, y_pitch: u32):
        with warp_of_row(tokens) as token:
            target, sources = row_of(y, token, y_pitch, dtype), _rows_of(token, top_k, position, rows, rows_pitch, dtype)
            factors = [ptx.ld.global_.nc.f32(weights + token * top_k + slot) for slot in range(top_k)] if weighted else []

            def add(column):
                totals: list[Any] = []
                for slot, source in enumerate(sources):
                    values = access.load(source + column)
                    if not totals:
                        totals = [value * factors[0] for value in values] if weighted else values
                    elif weighted:
                        totals = [ptx.fma.rn.f32(value, factors[slot], total) for value, total in zip(values, totals, strict=True)]
                    else:
                        totals = [total + value for value, total in zip(values, totals, strict=True)]
                access.store(target + column, totals)

            each_group(columns, width, add)

    return unpermute


@lru_cache
def unpermute_backward_kernel(dtype: str, width: int, top_k: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"unpermute_backward_{access.name}_{top_k}")
    def unpermute_backward(dy: Pointer[b8], rows: Pointer[b8], weights: Pointer[f32], position: Pointer[b32], drows: Pointer[b8],
                           dweights: Pointer[f32], tokens: u32, columns: u32, dy_pitch: u32, rows_pitch: u32, drows_pitch: u32):
        with warp_of_row(tokens) as token:
            gradient = row_of(dy, token, dy_pitch, dtype)
            sources = _rows_of(token, top_k, position, rows, rows_pitch, dtype)
            targets = _rows_of(token, top_k, position, drows, drows_pitch, dtype)
            factors = [ptx.ld.global_.nc.f32(weights + token * top_k + slot) for slot in range(top_k)]
            dots = [ptx.var(f32, 0.0) for _ in range(top_k)]

            def differentiate(column):
                grads = access.load(gradient + column)
                for source, target, factor, dot in zip(sources, targets, factors, dots, strict=True):
                    for grad, value in zip(grads, access.load(source + column), strict=True):
                        ptx.fma.rn.f32(grad, value, dot, out=dot)
                    access.store(target + column, [grad * factor for grad in grads])

            each_group(columns, width, differentiate)
            own = ptx.var(f32, 0.0)
            for slot, dot in enumerate(dots):
                ptx.assign(own, lane_sum(dot), guard=ptx.laneid() == slot)
            with ptx.when(ptx.laneid() < top_k):
                ptx.st.global_.f32(dweights + token * top_k + ptx.laneid(), own)

    return unpermute_backward


# ── launching ────────────────────────────────────────────────────────────────────────────────────────────────────


def expert_layout(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """experts int32[T, k], each in 0 … E-1 → offsets int32[E + 1], source int32[T·k], position int32[T, k] (see `ops.Layout`)."""
    tokens, top_k = experts.shape
    offsets, source = torch.empty(num_experts + 1, dtype=torch.int32), torch.empty(tokens * top_k, dtype=torch.int32)
    position = torch.empty(tokens, top_k, dtype=torch.int32)
    launch(layout_kernel(top_k), num_experts, experts.contiguous(), offsets, source, position, tokens * top_k, num_experts)
    return offsets, source, position


def expert_chunks(offsets: Tensor) -> Tensor:
    """offsets int32[E + 1] → where each expert's chunks of 128 tokens begin, int32[E + 1]."""
    from warpwright.kernels import ops

    chunks = torch.empty_like(offsets)
    chunks_kernel().launch(ops.device(), grid=1, args=[offsets, chunks, offsets.numel() - 1])
    return chunks


def permute(x: Tensor, position: Tensor) -> Tensor:
    """x[T, D] (BF16 or FP32, contiguous columns), position int32[T, k] → rows[T·k, D]."""
    tokens, columns = x.shape
    rows = torch.empty(position.numel(), columns, dtype=x.dtype)
    kernel = permute_kernel(NAMES[x.dtype], widest(columns, x, rows), position.shape[1])
    launch(kernel, tokens, x, position, rows, tokens, columns, pitch(x), pitch(rows))
    return rows


def unpermute(rows: Tensor, weights: Tensor | None, position: Tensor) -> Tensor:
    """rows[T·k, D], weights FP32[T, k] or None for ones, position int32[T, k] → [T, D]."""
    tokens, top_k = position.shape
    columns = rows.shape[1]
    y = torch.empty(tokens, columns, dtype=rows.dtype)
    kernel = unpermute_kernel(NAMES[rows.dtype], widest(columns, rows, y), top_k, weights is not None)
    launch(kernel, tokens, rows, None if weights is None else weights.contiguous(), position, y, tokens, columns, pitch(rows), pitch(y))
    return y


def permute_backward(drows: Tensor, position: Tensor) -> Tensor:
    """drows[T·k, D], position int32[T, k] → dx[T, D]: the sum of each token's rows."""
    return unpermute(drows, None, position)


def unpermute_backward(dy: Tensor, rows: Tensor, weights: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """dy[T, D] and the forward's arguments → drows[T·k, D], dweights FP32[T, k]."""
    tokens, top_k = position.shape
    columns = rows.shape[1]
    drows, dweights = torch.empty(rows.shape, dtype=rows.dtype), torch.empty(tokens, top_k)
    kernel = unpermute_backward_kernel(NAMES[rows.dtype], widest(columns, dy, rows, drows), top_k)
    launch(kernel, tokens, dy, rows, weights.contiguous(), position, drows, dweights, tokens, columns, pitch(dy), pitch(rows), pitch(drows))
    return drows, dweights


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────


def layout_reference(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor]:
    tokens, top_k = experts.shape
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    position = torch.empty_like(order).scatter_(0, order, torch.arange(len(flat)))
    counts = torch.bincount(flat, minlength=num_experts)
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int(), (order // max(top_k, 1)).int(), position.int().view(tokens, top_k)


def permute_reference(x: Tensor, position: Tensor) -> Tensor:
    rows = torch.empty(position.numel(), x.shape[1], dtype=x.dtype)
    rows[position.flatten().long()] = x.repeat_interleave(position.shape[1], 0)
    return rows


def unpermute_reference(rows: Tensor, weights: Tensor | None, position: Tensor) -> Tensor:
    own = rows.index_select(0, position.flatten()).unflatten(0, position.shape).float()
    return (own if weights is None else own * weights[..., None]).sum(1).to(rows.dtype)


def permute_backward_reference(drows: Tensor, position: Tensor) -> Tensor:
    return unpermute_reference(drows, None, position)


def unpermute_backward_reference(dy: Tensor, rows: Tensor, weights: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    own = rows.index_select(0, position.flatten()).unflatten(0, position.shape).float()
    drows = torch.empty_like(rows)
    drows[position.flatten().long()] = (dy.float()[:, None] * weights[..., None]).flatten(0, 1).to(rows.dtype)
    return drows, (own * dy.float()[:, None]).sum(2)


def _layout_example(generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.rand(2048, 16, generator=generator).topk(2, 1).indices.int(), 16


def _example(generator: torch.Generator) -> tuple[Tensor, ...]:
    """x, rows, weights, position."""
    position = layout_reference(*_layout_example(generator))[2]
    x, rows = (torch.randn(count, 256, generator=generator) for count in (len(position), position.numel()))
    return x, rows, torch.rand(position.shape, generator=generator), position


register(LibraryKernel(
    "expert_layout", "stable sort of tokens' copies by expert", lambda: {f"top {top_k}": layout_kernel(top_k) for top_k in (2, 8)},
    expert_layout, layout_reference, example=_layout_example, tolerance=0.0, traffic=lambda experts, count: 3 * experts.nbytes))
register(LibraryKernel(
    "expert_chunks", "chunks of 128 tokens of each expert", lambda: {"any": chunks_kernel()}, expert_chunks,
    lambda offsets: chunk_tokens(int(offsets[-1]), offsets).offsets,
    example=lambda generator: layout_reference(*_layout_example(generator))[:1], tolerance=0.0, traffic=lambda offsets: 2 * offsets.nbytes))
register(LibraryKernel(
    "permute", "rows of tokens to their experts", by_access(lambda dtype, width: permute_kernel(dtype, width, 8)), permute,
    permute_reference, example=lambda generator: _example(generator)[::3], tolerance=0.0,
    traffic=lambda x, position: x.nbytes * (1 + position.shape[1])))
register(LibraryKernel(
    "permute_backward", "sum of each token's rows", by_access(lambda dtype, width: unpermute_kernel(dtype, width, 8, False)),
    permute_backward, permute_backward_reference, example=lambda generator: _example(generator)[1::2], tolerance=1e-6,
    traffic=lambda rows, position: rows.nbytes + rows.nbytes // position.shape[1]))
register(LibraryKernel(
    "unpermute", "weighted sum of each token's rows", by_access(lambda dtype, width: unpermute_kernel(dtype, width, 8, True)), unpermute,
    unpermute_reference, example=lambda generator: _example(generator)[1:], tolerance=1e-6,
    traffic=lambda rows, weights, position: rows.nbytes + rows.nbytes // position.shape[1]))
register(LibraryKernel(
    "unpermute_backward", "gradients of the weighted sum for rows and weights",
    by_access(lambda dtype, width: unpermute_backward_kernel(dtype, width, 8)), unpermute_backward, unpermute_backward_reference,
    example=_example, tolerance=1e-5, traffic=lambda dy, rows, weights, position: dy.nbytes + 2 * rows.nbytes))
