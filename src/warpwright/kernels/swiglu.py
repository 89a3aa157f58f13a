"""SwiGLU: y = silu(gate)·up, and its gradients. A warp a row; FP32 inside, rounded once. NaN and infinities go where arithmetic takes them.

With σ = sigmoid(gate):  dgate = dy·up·σ·(1 + gate·(1 - σ)),  dup = dy·gate·σ.
"""

from functools import lru_cache

import torch
from torch import Tensor

from warpwright import ptx
from warpwright.kernels.lanes import BLOCK, NAMES, Access, by_access, each_group, launch, pitch, row_of, sigmoid, warp_of_row, widest
from warpwright.kernels.registry import LibraryKernel, register
from warpwright.ptx import Pointer, b8, u32


@lru_cache
def forward_kernel(dtype: str, width: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"swiglu_{access.name}")
    def swiglu(gate: Pointer[b8], up: Pointer[b8], y: Pointer[b8], rows: u32, columns: u32, gate_pitch: u32, up_pitch: u32, y_pitch: u32):
        with warp_of_row(rows) as row:
            gates, ups, target = row_of(gate, row, gate_pitch, dtype), row_of(up, row, up_pitch, dtype), row_of(y, row, y_pitch, dtype)

            def apply(column):
                pairs = zip(access.load(gates + column), access.load(ups + column), strict=True)
                access.store(target + column, [g * sigmoid(g) * u for g, u in pairs])

            each_group(columns, width, apply)

    return swiglu


@lru_cache
def backward_kernel(dtype: str, width: int) -> ptx.Kernel:
    access = Access(dtype, width)

    @ptx.kernel(block=BLOCK, name=f"swiglu_backward_{access.name}")
    def swiglu_backward(dy: Pointer[b8], gate: Pointer[b8], up: Pointer[b8], dgate: Pointer[b8], dup: Pointer[b8], rows: u32, columns: u32,
                        dy_pitch: u32, gate_pitch: u32, up_pitch: u32, out_pitch: u32):
        with warp_of_row(rows) as row:
            grads, gates, ups = row_of(dy, row, dy_pitch, dtype), row_of(gate, row, gate_pitch, dtype), row_of(up, row, up_pitch, dtype)
            to_gate, to_up = row_of(dgate, row, out_pitch, dtype), row_of(dup, row, out_pitch, dtype)

            def apply(column):
                for_gate, for_up = [], []
                for d, g, u in zip(access.load(grads + column), access.load(gates + column), access.load(ups + column), strict=True):
                    share = sigmoid(g)
                    silu = g * share
                    for_gate.append(d * u * ptx.fma.rn.f32(silu, 1.0 - share, share))
                    for_up.append(d * silu)
                access.store(to_gate + column, for_gate)
                access.store(to_up + column, for_up)

            each_group(columns, width, apply)

    return swiglu_backward


# ── launching ────────────────────────────────────────────────────────────────────────────────────────────────────


def halves(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor]:
    """gate[M, F] and up[M, F], which without `up` are the two halves of gate[M, 2F]."""
    if up is not None:
        return gate, up
    columns = gate.shape[1] // 2
    return gate[:, :columns], gate[:, columns:]


def forward(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """gate[M, F], up[M, F], or gate[M, 2F] alone: the two side by side (BF16 or FP32, contiguous columns) → y[M, F]."""
    gate, up = halves(gate, up)
    rows, columns = gate.shape
    y = torch.empty(rows, columns, dtype=gate.dtype)
    kernel = forward_kernel(NAMES[y.dtype], widest(columns, gate, up, y))
    launch(kernel, rows, gate, up, y, rows, columns, pitch(gate), pitch(up), pitch(y))
    return y


def backward(dy: Tensor, gate: Tensor, up: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """dy[M, F] and the forward's arguments → dgate, dup, or dgate[M, 2F] and None: the two side by side."""
    first, second = halves(gate, up)
    rows, columns = first.shape
    both = torch.empty(rows, 2 * columns, dtype=dy.dtype)
    dgate, dup = both[:, :columns], both[:, columns:]
    kernel = backward_kernel(NAMES[dy.dtype], widest(columns, dy, first, second, dgate, dup))
    launch(kernel, rows, dy, first, second, dgate, dup, rows, columns, pitch(dy), pitch(first), pitch(second), pitch(both))
    return (both, None) if up is None else (dgate, dup)


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────


def forward_reference(gate: Tensor, up: Tensor | None = None) -> Tensor:
    wide, other = (part.float() for part in halves(gate, up))
    return (torch.nn.functional.silu(wide) * other).to(gate.dtype)


def backward_reference(dy: Tensor, gate: Tensor, up: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    wide, other = (part.float() for part in halves(gate, up))
    share = torch.sigmoid(wide)
    dgate = (dy.float() * other * share * (1 + wide * (1 - share))).to(dy.dtype)
    dup = (dy.float() * wide * share).to(dy.dtype)
    return (torch.cat([dgate, dup], 1), None) if up is None else (dgate, dup)


def _example(generator: torch.Generator) -> tuple[Tensor, ...]:
    return tuple(torch.randn(4096, 256, generator=generator) for _ in range(3))


register(LibraryKernel(
    "swiglu", "silu(gate)·up", by_access(forward_kernel), forward, forward_reference,
    example=lambda generator: _example(generator)[:2], tolerance=1e-5, traffic=lambda gate, up: 3 * gate.nbytes))
register(LibraryKernel(
    "swiglu_backward", "SwiGLU's gradients", by_access(backward_kernel), backward, backward_reference,
    example=_example, tolerance=1e-5, traffic=lambda dy, gate, up: 5 * dy.nbytes))
