"""wgmma from Python: a whole product, and what a late device shows of kernels that do not wait, or that overwrite what is being read."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from warpwright import Device, ptx
from warpwright.errors import PtxError
from warpwright.gpu import assemble, find_ptxas
from warpwright.ptx import Pointer, b16, f32, u32
from warpwright.ptx.descriptor import MatrixDescriptor

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import wgmma_matmul

BACKENDS = ("cpu", "interpreter")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("late", [False, True])
def test_the_example_gives_torchs_product(backend, late):
    m, n, k = (128, 256, 192) if backend == "cpu" else (64, 128, 128)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).bfloat16() for rows in (m, n))
    c = wgmma_matmul.matmul(Device(backend, late=late), a, b)
    wanted = a.double() @ b.double().T
    bound = (a.double().abs() @ b.double().abs().T) * (k + 1) * 2.0**-24
    assert ((c.double() - wanted).abs() <= bound).all()


def test_ptxas_takes_the_example():
    try:
        find_ptxas()
    except Exception:
        pytest.skip("no ptxas")
    assembled = assemble(wgmma_matmul.wgmma_matmul.ptx(), target="sm_90a")
    assert assembled.kernels["wgmma_matmul"].spills == 0


MMA = ptx.word("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16")
GROUPS = 2


@ptx.kernel(block=128, min_target="sm_90a")
def hurried(a: Pointer[b16], b: Pointer[b16], seen: Pointer[f32], spoil: u32):
    """Two products, a group each: seen[0] is the sums before any wait, seen[1] after waiting for all but one group, seen[2] after all.

    a, b: 64 × 16 and 8 × 16, one chunk a thread. spoil: b is overwritten with zeros while the products run.
    """
    tile_a, tile_b = ptx.shared(b16, 1024, align=128), ptx.shared(b16, 128, align=128)
    t = ptx.tid.x
    for source, tile, threads in ((a, tile_a, 128), (b, tile_b, 16)):
        with ptx.when(t < threads):  # row t / 2, chunk t mod 2; cores of eight rows, the two chunks of k side by side
            to = tile + ((t & 1) * (threads // 2 * 8) + (t >> 1) * 8)
            ptx.st.shared.v4.b32(to, ptx.ld.global_.v4.b32(source + t * 8))
    ptx.fence.proxy.async_()
    ptx.bar.sync(0)
    first = ptx.matrix_descriptor(tile_a, leading=1024, stride=128)
    second = ptx.matrix_descriptor(tile_b, leading=128, stride=128)
    sums = [ptx.var(f32, float(i)) for i in range(4)]
    yes = t >= 0
    ptx.wgmma.fence.sync.aligned()
    for _ in range(GROUPS):
        MMA(sums, first, second, yes, 1, 1, 0, 0)
        ptx.wgmma.commit_group.sync.aligned()

    def look(which):
        for i, value in enumerate(sums):
            ptx.st.global_(seen + t + 128 * (4 * which + i), value)

    look(0)
    with ptx.when(spoil != 0):
        ptx.bar.sync(0)
        with ptx.when(t < 32):
            ptx.st.shared.v2.b32(tile_b + t * 4, [0, 0])
        ptx.bar.sync(0)
    ptx.wgmma.wait_group.sync.aligned(1)
    look(1)
    ptx.wgmma.wait_group.sync.aligned(0)
    look(2)


def see(device: Device, spoil: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(sums [look][register][thread], the product in the same order)."""
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.integers(-4, 5, (rows, 16)).astype(np.float32)).bfloat16() for rows in (64, 8))
    seen = torch.zeros(3, 4, 128)
    hurried.launch(device, grid=1, args=[a, b, seen, spoil])
    i, t = np.meshgrid(np.arange(4), np.arange(128), indexing="ij")
    product = (a.float() @ b.float().T).numpy()[t // 32 * 16 + t % 32 // 4 + 8 * (i >> 1), 2 * (t % 4) + (i & 1)]
    return seen.numpy(), product


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_are_there_at_once(backend):
    seen, product = see(Device(backend), spoil=1)
    start = np.arange(4)[:, None]
    for look in range(3):
        assert np.array_equal(seen[look], start + 2 * product)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_late_device_forms_a_product_when_its_group_is_waited_for(backend):
    """Before the wait the sums are the old ones; each wait brings the groups that it names; products of one accumulator add up."""
    seen, product = see(Device(backend, late=True))
    start = np.broadcast_to(np.arange(4)[:, None], product.shape)
    for look in range(3):
        assert np.array_equal(seen[look], start + look * product)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_late_device_multiplies_what_is_in_shared_memory_then(backend):
    seen, _ = see(Device(backend, late=True), spoil=1)
    assert np.array_equal(seen[2], np.broadcast_to(np.arange(4)[:, None], seen[2].shape))


def test_a_descriptor_is_what_its_fields_say():
    @ptx.kernel(block=1, min_target="sm_90a")
    def describe(out: Pointer[ptx.u64]):
        tile = ptx.shared(b16, 2048, align=1024)
        ptx.st.global_(out, ptx.matrix_descriptor(tile + 512, leading=4096, stride=1024, swizzle=64, base_offset=3))

    for backend in BACKENDS:
        out = np.zeros(1, np.uint64)
        describe.launch(Device(backend), grid=1, args=[out])
        assert MatrixDescriptor.decode(int(out[0])) == MatrixDescriptor(1024, 4096, 1024, 64, 3)

    @ptx.kernel(block=1, min_target="sm_90a")
    def wrong(out: Pointer[ptx.u64]):
        ptx.st.global_(out, ptx.matrix_descriptor(ptx.shared(b16, 8), stride=8))

    with pytest.raises(PtxError, match="stride is a multiple of 16"):
        wrong.ptx()
