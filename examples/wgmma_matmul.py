"""C = A · Bᵀ by Hopper's wgmma, written in Python, run on the virtual GPU, and compared with torch.

A CTA of one warp group makes a tile of 64 × 128 of C. Its tiles of A and B, 64 of k wide, come by cp.async into shared memory, swizzled:
of each line of 128 bytes, chunk c of 16 bytes lies at c ^ (line mod 8), which is what a descriptor's swizzle of 128 bytes says. While wgmma
multiplies one stage, the next one is on its way.

    python examples/wgmma_matmul.py
"""

from __future__ import annotations

import time

import torch

from warpwright import Device, ptx
from warpwright.ptx import Pointer, b16, f32, u32

M, N, K = 64, 128, 64  # of a tile
STAGE = (M + N) * K  # elements of a stage: the tile of A, then that of B
MMA = ptx.word(f"wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16")


@ptx.kernel(block=128, min_target="sm_90a")
def wgmma_matmul(a: Pointer[b16], b: Pointer[b16], c: Pointer[f32], n: u32, k: u32):
    """a [m, k] and b [n, k] bf16, c [m, n] f32; m, n and k multiples of the tile's. Grid: (n / 128, m / 64)."""
    stages = ptx.shared(b16, 2 * STAGE, align=1024)
    first_row, first_column = ptx.ctaid.y * M, ptx.ctaid.x * N
    line, chunk = ptx.tid.x >> 3, ptx.tid.x & 7  # what this thread copies of each 16 lines of 8 chunks
    to = stages + (line * K + (chunk ^ (line & 7)) * 8)

    def fetch(stage, at):
        """Start to copy k = at … at + 63 into a stage, 0 or 1."""
        target = to + stage * STAGE
        for lines in range(0, M + N, 16):
            matrix, row = (a, first_row + lines) if lines < M else (b, first_column + (lines - M))
            ptx.cp.async_.cg.shared.global_(target + lines * K, matrix + ((row + line) * k + at + chunk * 8), 16)
        ptx.cp.async_.commit_group()

    descriptors = [ptx.matrix_descriptor(tile, stride=8 * 128, swizzle=128) for tile in (stages, stages + M * K)]
    sums = [ptx.var(f32, 0.0) for _ in range(M * N // 128)]
    add = k > 0
    fetch(0, 0)
    with ptx.loop(0, k, K) as at:
        stage = (at >> 6) & 1
        ptx.cp.async_.wait_group(0)
        ptx.fence.proxy.async_()
        ptx.bar.sync(0)
        with ptx.when(at + K < k):
            fetch(stage ^ 1, at + K)
        a_tile, b_tile = (descriptor + ptx.cvt.u64.u32(stage * (STAGE * 2 // 16)) for descriptor in descriptors)
        ptx.wgmma.fence.sync.aligned()
        for step in range(K // 16):
            MMA(sums, a_tile + 2 * step, b_tile + 2 * step, add, 1, 1, 0, 0)  # 16 of k are 32 bytes
        ptx.wgmma.commit_group.sync.aligned()
        ptx.wgmma.wait_group.sync.aligned(0)

    row = first_row + (ptx.warpid() * 16 + (ptx.laneid() >> 2))
    to_c = c + (row * n + first_column + (ptx.laneid() & 3) * 2)
    for i in range(0, len(sums), 4):
        for half in range(2):
            ptx.st.global_.v2(to_c + n * (8 * half) + 2 * i, sums[i + 2 * half:i + 2 * half + 2])


def matmul(device: Device, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a [m, k] · b [n, k]ᵀ, bf16, in f32; m a multiple of 64, n of 128, k of 64."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n)
    wgmma_matmul.launch(device, grid=(n // N, m // M), args=[a, b, c, n, k])
    return c


def main(size: int = 1024) -> None:
    device = Device("cpu")
    a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
    matmul(device, a[:M], b[:N])  # compiles it
    start = time.perf_counter()
    c = matmul(device, a, b)
    seconds = time.perf_counter() - start
    error = (c - a.float() @ b.float().T).abs().max().item()
    print(f"{size}³ in {1000 * seconds:.1f} ms, {2 * size**3 / seconds / 1e9:.0f} GFLOP/s; the largest difference from torch is {error:.1e}")


if __name__ == "__main__":
    main()
