"""Numba's CUDA kernels, compiled to PTX without a GPU, are read, verified and run."""

import math

import numpy as np
import pytest

pytest.importorskip("numba.cuda")

import numba
from numba import cuda

import warpwright
from warpwright import ptx
from warpwright.errors import LaunchError

TARGETS = {(8, 0): "a100", (8, 9): "rtx4090", (9, 0): "h100", (10, 0): None}


def flat(*args) -> list:
    """Arguments as Numba's kernels take them: an array is its owner (2 words), count, item size, data, shape and strides."""
    values: list = []
    for arg in args:
        values += [None, None, arg.size, arg.itemsize, arg, *arg.shape, *arg.strides] if isinstance(arg, np.ndarray) else [arg]
    return values


def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


def matmul(a, b, c):
    left, right = cuda.shared.array((8, 8), numba.float32), cuda.shared.array((8, 8), numba.float32)
    row, col = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = numba.float32(0)
    for k in range((a.shape[1] + 7) // 8):
        left[x, y] = a[row, k * 8 + y] if row < a.shape[0] and k * 8 + y < a.shape[1] else 0
        right[x, y] = b[k * 8 + x, col] if col < b.shape[1] and k * 8 + x < b.shape[0] else 0
        cuda.syncthreads()
        for i in range(8):
            total += left[x, i] * right[i, y]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def totals(x, out):
    buffer = cuda.local.array(4, numba.int64)
    for i in range(4):
        buffer[i] = 0
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        buffer[x[i] % 4] += x[i]
    for i in range(4):
        cuda.atomic.add(out, i, buffer[i])


def warp_sum(x, out):
    value = x[cuda.threadIdx.x]
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, step)
    out[cuda.threadIdx.x] = value * math.exp(-value) + math.sin(value)


def halves(x, out):
    i = cuda.grid(1)
    out[i] = x[i] * x[i] + x[i]


F, D, L, H = numba.float32, numba.float64, numba.int64, numba.types.float16
KERNELS = {"saxpy": (saxpy, (F, F[:], F[:], F[:])), "matmul": (matmul, (F[:, :], F[:, :], F[:, :])), "totals": (totals, (L[:], L[:])),
           "warp_sum": (warp_sum, (D[:], D[:])), "halves": (halves, (H[:], H[:]))}


def compiled(name: str, cc: tuple[int, int]) -> tuple:
    function, types = KERNELS[name]
    return cuda.compile_ptx(function, numba.void(*types), cc=cc)


@pytest.mark.parametrize("cc", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_what_numba_compiles_is_read_printed_and_legal(name, cc):
    text, _ = compiled(name, cc)
    module = ptx.parse(text)
    assert ptx.parse(str(module)) == module
    ptx.verify(module)


@pytest.fixture(params=[(8, 0), (9, 0)])
def run(request):
    def run(name: str, grid, block, *args) -> None:
        module = warpwright.Device("cpu", like=TARGETS[request.param]).load(compiled(name, request.param))
        module[module.kernels[0]].launch(grid, block, flat(*args))

    return run


def test_saxpy(run):
    x, y, out = np.arange(500, dtype=np.float32), np.ones(500, np.float32), np.zeros(500, np.float32)
    run("saxpy", 4, 128, 2.0, x, y, out)
    assert (out == 2 * x + 1).all()
    run("saxpy", 4, 128, 3.0, x[::2], y[::2], out[:250])  # strides are arguments
    assert (out[:250] == 3 * x[::2] + 1).all()


def test_shared_memory(run):
    rng = np.random.default_rng(0)
    a, b, c = rng.random((20, 13), np.float32), rng.random((13, 27), np.float32), np.zeros((20, 27), np.float32)
    run("matmul", (3, 4), (8, 8), a, b, c)
    assert np.allclose(c, a @ b)


def test_local_memory_and_atomics(run):
    x, out = np.arange(1000), np.zeros(4, np.int64)
    run("totals", 2, 64, x, out)
    assert out.tolist() == [x[x % 4 == i].sum() for i in range(4)]


def test_shuffles_and_functions(run):
    x, out = np.linspace(0, 0.1, 32), np.zeros(32)
    run("warp_sum", 1, 32, x, out)
    assert np.allclose(out, x.sum() * np.exp(-x.sum()) + np.sin(x.sum()), rtol=1e-14)


@pytest.mark.parametrize("cc", [(8, 0), (9, 0)])
def test_functions_that_numba_links_later_are_named(cc):
    module = warpwright.Device("cpu", like=TARGETS[cc]).load(compiled("halves", cc))
    x = np.zeros(64, np.float16)
    with pytest.raises(LaunchError, match=r"cannot call '\w+half\w+': the module has no body for it"):
        module[module.kernels[0]].launch(2, 32, flat(x, x))
