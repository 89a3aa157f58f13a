"""The corpus of CUDA C++ kernels, compiled by NVRTC, runs on parts of each generation and gives numpy's and torch's results."""

import numpy as np
import pytest
import torch
from compilers import nvrtc

import warpwright
from warpwright.errors import KernelTrap, LaunchError

PARTS = {"sm_80": "a100", "sm_89": "rtx4090", "sm_90a": "h100"}
everywhere = pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
on_ada = pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
on_hopper = pytest.mark.parametrize("target", ["sm_90a"])


class Compiled:
    """corpus/NAME.cu on a part: `compiled.KERNEL(grid, block, *args, shared=bytes)` launches."""

    def __init__(self, name: str, target: str):
        self.module = warpwright.Device("cpu", like=PARTS[target]).load(nvrtc(name, target))

    def __getattr__(self, kernel: str):
        return self.kernel(kernel)

    def kernel(self, name: str):
        return lambda grid, block, *args, shared=0: self.module[name].launch(grid, block, args, shared)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# ── blocks and warps ─────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
def test_reductions(target, rng):
    cu, x = Compiled("reductions", target), rng.random(1000, np.float32)
    out = np.zeros(8, np.float32)
    cu.tree(8, 128, x, out, 1000, shared=512)
    assert np.allclose(out, np.pad(x, (0, 24)).reshape(8, 128).sum(1))
    total = np.zeros(1, np.float32)
    cu.shuffled(3, 96, x, total, 1000)
    assert np.allclose(total, x.sum())
    counts = np.zeros(3, np.int32)
    cu.counted(1, 100, np.arange(-20, 60, dtype=np.int32), counts, 80)
    assert counts.tolist() == [59, 0, 1]


@everywhere
def test_warps(target, rng):
    x, out, lane = rng.integers(0, 8, 32).astype(np.int32), np.zeros((14, 32), np.uint32), np.arange(32)
    Compiled("warps", target).lanes(1, 32, x, out)
    assert (out[0] == x[5]).all() and (out[1] == x[np.where(lane >= 3, lane - 3, lane)]).all()
    assert (out[2] == x[np.where(lane % 16 < 9, lane + 7, lane)]).all() and (out[3] == x[lane ^ 9]).all()
    assert (out[4] == sum(1 << i for i in range(32) if x[i] > 3)).all() and (out[5] == 2).all()
    assert out[6].tolist() == [sum(1 << j for j in range(32) if x[j] == x[i]) for i in range(32)]
    assert (out[7] == (2**32 - 1 + 1) % 2**32).all()
    assert (out[8] == x.sum()).all() and (out[9] == x.max()).all() and (out[10] == np.bitwise_xor.reduce(x)).all()
    third = sum(1 << i for i in range(32) if i % 3 == 1)
    assert (out[11][lane % 3 == 1] == third).all() and not out[11][lane % 3 != 1].any()
    assert (out[12] == x[::-1]).all()
    assert (out[13][:20] == x[:20].min()).all() and (out[13][20:] == x[25]).all()


@everywhere
def test_cooperative_groups(target, rng):
    x, out = rng.integers(0, 50, 64).astype(np.int32), np.zeros((7, 64), np.int32)
    Compiled("groups", target).grouped(1, 64, x, out)
    i, tiles = np.arange(64), x.reshape(8, 8)
    assert (out[0] == tiles.sum(1).repeat(8)).all()
    assert (out[1] == x[i ^ 3] + 100 * (i % 8) + 10000 * (i // 8)).all()
    for warp in (slice(0, 32), slice(32, 64)):
        odd = x[warp] % 2 == 1
        assert (out[2][warp] == np.where(odd, 100 * odd.sum() + odd.cumsum() - 1, -1)).all()
        assert out[6][warp].tolist() == [(x[warp] % 3 == value % 3).sum() for value in x[warp]]
    assert (out[3].reshape(8, 8) == tiles.cumsum(1)).all()
    assert (out[4].reshape(8, 8)[:, 1:] == np.maximum.accumulate(tiles, 1)[:, :-1]).all()
    assert (out[5] == out[0][::-1]).all()


@everywhere
def test_atomics(target, rng):
    cu, t = Compiled("atomics", target), np.arange(256, dtype=np.int64)
    i, u, wide = np.zeros(8, np.int32), np.zeros(8, np.uint32), np.zeros(4, np.uint64)
    i[2], i[4], u[3] = 10**6, -1, 10**6
    cu.integers(4, 64, i, u, wide)
    assert i.tolist() == [t.sum(), -768, 50 - 255, 255 - 50, ~0b11111, 0b1111111, np.bitwise_xor.reduce(t), 77]
    assert u[:6].tolist() == [256 % 10, (0 - 256) % 7, 765, 745, 256, 512] and 1 <= u[6] <= 256 and u[7] == 1
    assert wide.tolist() == [256 << 33, 1 << 59, int(np.bitwise_xor.reduce(t)) << 20, int((t * t).sum())]
    f, d, h, b = np.zeros(2, np.float32), np.zeros(1), np.zeros(4, np.float16), torch.zeros(2, dtype=torch.bfloat16)
    cu.floats(2, 64, f, d, h, b)
    assert f.tolist() == [64, 3.5] and d[0] == 32 and h.tolist() == [128, 64, 32, 0] and b.tolist() == [128, 256]
    x, bins = rng.integers(0, 256, 5000).astype(np.uint8), np.zeros(256, np.uint32)
    cu.histogram(3, 128, x, 5000, bins)
    assert (bins == np.bincount(x, minlength=256)).all()


@everywhere
def test_scans_and_sorts(target, rng):
    cu, x, out = Compiled("scans", target), rng.integers(-9, 99, 512).astype(np.int32), np.zeros(512, np.int32)
    cu.prefix(4, 128, x, out, shared=1024)
    assert (out.reshape(4, 128) == x.reshape(4, 128).cumsum(1)).all()
    values = rng.standard_normal(256).astype(np.float32)
    wanted = np.sort(values)
    cu.bitonic(1, 256, values)
    assert (values == wanted).all()


# ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
def test_tiles(target, rng):
    cu, n = Compiled("tiles", target), 50
    a, b, c = rng.random((n, n), np.float32), rng.random((n, n), np.float32), np.zeros((n, n), np.float32)
    cu.matmul16((4, 4), (16, 16), a, b, c, n)
    assert np.allclose(c, a @ b, rtol=1e-5)
    x, out = rng.random((64, 96), np.float32), np.zeros((96, 64), np.float32)
    cu.transpose((3, 2), (8, 8), x, out, 64, 96)
    assert (out == x.T).all()


@everywhere
@pytest.mark.parametrize("kernel, dtype, result, shape, error", [
    ("half_float", torch.float16, torch.float32, (16, 16, 16), 1e-6), ("half_half", torch.float16, torch.float16, (32, 8, 16), 2e-3),
    ("bfloat", torch.bfloat16, torch.float32, (8, 32, 16), 1e-6), ("bytes", torch.int8, torch.int32, (16, 16, 16), 0),
    ("doubles", torch.float64, torch.float64, (8, 8, 4), 1e-15), ("tensor_float", torch.float32, torch.float32, (16, 16, 8), 2e-3)])
def test_wmma(target, kernel, dtype, result, shape, error):
    m, n, k = shape
    if dtype == torch.int8:
        a, b = torch.randint(-60, 60, (m, k), dtype=dtype), torch.randint(-128, 127, (n, k), dtype=dtype)
    else:
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    c = torch.zeros(m, n, dtype=result)
    Compiled("wmma", target).kernel(kernel)(1, 32, a, b, c)
    wanted = 2 * a.double() @ b.double().T + 1
    assert (c.double() - wanted).abs().max() <= error * wanted.abs().max()


@everywhere
def test_inline_mma(target):
    a, b, c = torch.randn(16, 80, dtype=torch.float16), torch.randn(8, 80, dtype=torch.float16), torch.zeros(16, 8)
    Compiled("mma_inline", target).gemm(1, 32, a, b, c, 80)
    assert (c.double() - a.double() @ b.double().T).abs().max() < 1e-5


@everywhere
def test_pipelines(target, rng):
    x, out = rng.integers(0, 1000, (9, 128)).astype(np.int32), np.zeros(128, np.int32)
    Compiled("pipelines", target).moving_sum(1, 128, x, out, 9)
    assert (out == (x * np.arange(1, 10)[:, None] + x[:, ::-1]).sum(0)).all()


@everywhere
def test_a_producer_and_its_consumers(target, rng):
    x, out = rng.integers(0, 1000, (7, 32)).astype(np.int32), np.zeros(32, np.int32)
    Compiled("barriers", target).producer(1, 64, x, out, 7)
    assert (out == x.sum(0)[::-1]).all()


@on_hopper
def test_bulk_copies(target, rng):
    x, out = rng.integers(0, 1000, (5, 200)).astype(np.int32), np.zeros((5, 200), np.int32)
    Compiled("barriers", target).bulk(5, 64, x, out, 200)
    assert (out == 3 * x + 1).all()


@on_hopper
def test_clusters(target, rng):
    x, out = rng.integers(0, 1000, (8, 64)).astype(np.int32), np.zeros((8, 64), np.int32)
    Compiled("clusters", target).ring(8, 64, x, out)
    following = [cluster * 4 + (rank + 1) % 4 for cluster in range(2) for rank in range(4)]
    assert (out == 1000 * x + x[following]).all()


# ── the language ─────────────────────────────────────────────────────────────────────────────────────────────────


@everywhere
def test_prints(target, capfd):
    Compiled("prints", target).speak(1, 32, 3)
    lines = capfd.readouterr().out.splitlines()
    wanted = [f"thread {t} of 32: {1.5 * t:5.2f} 1.000000e-03 {chr(97 + t)} text 10000000000 %" for t in range(3)]
    assert sorted(lines) == sorted([*wanted, "once"])


@everywhere
def test_asserts_and_traps(target):
    cu, x = Compiled("asserts", target), np.ones(64, np.int32)
    cu.positive(1, 64, x)
    x[40] = -1
    with pytest.raises(KernelTrap, match=r"thread \(40, 0, 0\)"):
        cu.positive(1, 64, x)
    cu.trap_at(1, 64, 64)
    with pytest.raises(KernelTrap):
        cu.trap_at(1, 64, 7)


@everywhere
def test_virtual_functions_and_function_pointers(target, rng):
    cu, x, out = Compiled("virtuals", target), rng.random(40, np.float32), np.zeros(40, np.float32)
    cu.areas(1, 40, x, out)
    assert np.allclose(out, np.where(np.arange(40) % 2, 3 * x * x, 2 * x * x + 8 * x + 3))
    which = rng.integers(0, 3, 40).astype(np.int32)
    cu.mapped(1, 40, x, which, out)
    assert (out == np.choose(which, [2 * x, x * x, x - 1])).all()


@everywhere
def test_recursion(target, rng):
    cu, out, t = Compiled("recursion", target), np.zeros(40, np.int32), np.arange(40)
    cu.recurse(1, 40, out)
    assert (out == 2 * (t % 5) + 3 + 1000 * (t % 2 == 0)).all()
    x = rng.integers(0, 100, (33, 30)).astype(np.int32)
    wanted = np.sort(x, 1)
    cu.quicksort(1, 33, x, 30)
    assert (x == wanted).all()


@everywhere
def test_textures_are_refused_by_name(target):
    with pytest.raises(LaunchError, match=r"kernel sampled cannot run .*tex"):
        Compiled("textures", target).sampled(1, 32, 0, np.zeros(32, np.float32))


@everywhere
def test_constants_and_variables(target):
    cu, out, i = Compiled("constants", target), np.zeros(24, np.float32), np.arange(24)
    cu.read(1, 24, out)
    weights = np.array([1, -2, 3.5, 0.25, 5, 6, 7, 8])[i % 8]
    letters = np.array([list(b"warp"), list(b"wrig")])[i % 2, i % 4]
    assert (out == 7 * weights + 2.5 + np.array([1, -2, 3])[i % 3] + np.array([30, 40])[i % 2] + letters).all()
    count = np.zeros(1, np.int32)
    cu.count(1, 64, count)
    cu.count(1, 64, count)
    assert count[0] == 5 + 128  # a module's variables live as long as it


@everywhere
def test_local_arrays_and_structures(target, rng):
    cu = Compiled("locals", target)
    matrix = np.zeros(1, np.dtype([("m", np.float32, (4, 4)), ("tag", np.int32)]))
    matrix["m"], matrix["tag"] = rng.random((4, 4)), 3
    small = np.zeros(1, np.dtype([("a", np.int8), ("b", np.int16), ("c", np.float64)], align=True))
    small["a"], small["b"], small["c"] = 5, -300, 0.25
    x, out = rng.random((50, 4), np.float32), np.zeros((50, 4), np.float32)
    cu.apply(1, 50, matrix, small, x, out)
    sums, first = x @ matrix["m"][0].T, (np.arange(50) + 3) % 4
    assert np.allclose(out[:, 0], sums[np.arange(50), first]) and np.allclose(out[:, 1], sums[np.arange(50), (first + 1) % 4])
    assert (out[:, 2] == -295).all() and (out[:, 3] == 0.25).all()
    numbers, reversed_ = rng.integers(0, 10**6, 64).astype(np.int32), np.zeros(64, np.int32)
    cu.digits(1, 64, numbers, reversed_, 10)
    assert reversed_.tolist() == [int(str(v)[::-1]) * 100 + len(str(v)) for v in numbers.tolist()]


def stack_machine(code) -> int:
    stack, at, steps = [], 0, 0
    while at < len(code):
        op = code[at]
        if op in (0, 1):
            stack.append(at if op == 0 else 7)
        elif op in (2, 3) and len(stack) > 1:
            b, a = stack.pop(), stack.pop()
            stack.append(a + b if op == 2 else a * b)
        elif op == 4 and stack:
            stack[-1] = -stack[-1]
        elif op == 5 and stack:
            stack.append(stack[-1])
        elif op == 6 and len(stack) > 1:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif op == 7 and stack and stack[-1] & 1:
            at += 1
        elif op == 8:
            break
        elif op > 8:
            stack = []
        if len(stack) > 12:
            stack = stack[:1]
        at, steps = at + 1, steps + 1
    total = steps
    for value in stack:
        total = total * 31 + value
    return (total + 2**31) % 2**32 - 2**31


@everywhere
def test_switches_loops_and_gotos(target, rng):
    cu, code, out = Compiled("branches", target), rng.integers(0, 10, (64, 20)).astype(np.uint8), np.zeros(64, np.int32)
    code[code == 8] = rng.integers(0, 9, (code == 8).sum())  # ends are rarer
    cu.machine(1, 64, code, out, 20)
    assert out.tolist() == [stack_machine(row.tolist()) for row in code]
    cu.collatz(1, 64, out, 300)
    steps = [0, 0]
    for start in range(2, 300):
        value, count = start, 0
        while value != 1:
            value, count = (3 * value + 1 if value & 1 else value // 2), count + 1
        steps.append(count)
    assert out.tolist() == [max(steps[t + 1:300:64]) for t in range(64)]


@everywhere
def test_templates(target, rng):
    cu = Compiled("templates", target)
    kernels = {}
    for name in cu.module.kernels:
        kernels[name.split("each", 1)[1][1]] = name  # the mangled letter of T: f, x or s
    x, out = rng.random(301, np.float32), np.zeros(301, np.float32)
    cu.kernel(kernels["f"])(3, 32, x, out, 301)
    assert (out == 2 * x).all()
    for letter, dtype, power, width in (("x", np.int64, 5, 2), ("s", np.int16, 3, 1)):
        x, out = rng.integers(-30, 30, 100).astype(dtype), np.zeros(100, dtype)
        cu.kernel(kernels[letter])(2 * 2 // width, 32, x, out, 100)
        assert (out == x**power).all()


@everywhere
def test_fields(target, rng):
    cu, out = Compiled("fields", target), np.zeros((40, 48), np.int32)
    cu.mandelbrot((2, 5), (32, 8), out, 48, 40, 60)
    c = (-2 + 3 * np.arange(48) / 48) + 1j * (-1.5 + 3 * np.arange(40)[:, None] / 40)
    z, wanted = np.zeros_like(c), np.zeros((40, 48), np.int32)
    for _ in range(60):
        inside = np.abs(z) <= 2
        wanted += inside
        z = np.where(inside, z * z + c, z)
    assert (out != wanted).mean() < 0.01  # at the edge, a rounding decides
    x, out = rng.random((20, 70), np.float32), np.zeros((20, 70), np.float32)
    cu.laplace((3, 3), (32, 8), x, out, 70, 20)
    padded = np.pad(x, 1)
    wanted = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * x
    assert np.allclose(out, wanted, atol=1e-5)
    states = np.zeros(33, np.uint64)
    cu.walk(1, 33, states, 10)
    wanted = np.arange(33, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
    for _ in range(10):
        for left, amount in ((True, 13), (False, 7), (True, 17)):
            wanted ^= wanted << np.uint64(amount) if left else wanted >> np.uint64(amount)
    assert (states == wanted).all()
