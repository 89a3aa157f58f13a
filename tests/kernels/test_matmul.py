"""Matrix products against float64: every variant, every edge, on fresh random inputs."""

import os

import pytest
import torch

from warpwright import Device
from warpwright.gpu.assemble import assemble
from warpwright.kernels import matmul, matmul_fp32, matmul_mma
from warpwright.kernels.registry import all_kernels

BF16, F32 = torch.bfloat16, torch.float32
# Largest error over the largest magnitude: rounding of the output (bf16: 2^-9) plus FP32 sums over k ≤ 1000.
TOLERANCE = {BF16: 2.0**-8, F32: 4e-6}
PRODUCTS = {
    "forward": (matmul.forward, matmul.reference_forward),
    "data_gradient": (matmul.data_gradient, matmul.reference_data_gradient),
    "weight_gradient": (matmul.weight_gradient, matmul.reference_weight_gradient),
}
SHAPES = [(256, 128, 96), (300, 72, 200), (129, 65, 63), (1, 1, 1), (5, 300, 17), (131, 24, 40), (64, 128, 36)]


@pytest.fixture(scope="module")
def device():
    return Device("cpu")


@pytest.fixture(autouse=True)
def seed(request):
    torch.manual_seed(hash(request.node.name) % 2**31)


def operands(product: str, m: int, n: int, k: int, dtype: torch.dtype, experts: int = 0):
    x, dy = torch.randn(m, k).to(dtype), torch.randn(m, n).to(dtype)
    w = torch.randn(*([experts] if experts else []), n, k).to(dtype)
    return {"forward": (x, w), "data_gradient": (dy, w), "weight_gradient": (dy, x)}[product]


def assert_close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float | None = None):
    assert got.shape == wanted.shape
    scale = wanted.abs().max().item() if wanted.numel() else 0
    error = (got.double() - wanted).abs().max().item() if wanted.numel() else 0
    assert error <= (tolerance or TOLERANCE[got.dtype]) * scale, f"error {error:.3g} at magnitude {scale:.3g}"


def run_lengths(rows: int, experts: int) -> torch.Tensor:
    """Offsets of ragged runs, some of them empty."""
    cuts = torch.randint(0, rows + 1, (experts - 1,)).sort().values
    cuts[: experts // 3] = 0
    return torch.cat([torch.tensor([0]), cuts, torch.tensor([rows])]).to(torch.int32)


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dense(device, product, shape, dtype):
    run, reference = PRODUCTS[product]
    a, b = operands(product, *shape, dtype)
    assert_close(run(a, b, device=device), reference(a, b))


def test_bf16_operands_can_give_f32_and_a_weight_gradient_bf16(device):
    a, b = operands("forward", 200, 96, 64, BF16)
    assert_close(matmul.forward(a, b, out_dtype=F32, device=device), matmul.reference_forward(a, b))
    a, b = operands("weight_gradient", 40, 20, 24, BF16)
    assert_close(matmul.weight_gradient(a, b, out_dtype=BF16, device=device), matmul.reference_weight_gradient(a, b))


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("shape", [(500, 128, 128, 7), (40, 72, 40, 5)], ids=str)
def test_grouped_by_expert_with_ragged_and_empty_runs(device, product, shape, dtype):
    run, reference = PRODUCTS[product]
    m, n, k, experts = shape
    offsets = run_lengths(m, experts)
    a, b = operands(product, m, n, k, dtype, experts)
    assert_close(run(a, b, offsets, device=device), reference(a, b, offsets))


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("product", PRODUCTS)
def test_views_with_any_row_stride_and_alignment(device, product, dtype):
    run, reference = PRODUCTS[product]
    a, b = operands(product, 150, 70, 90, dtype)
    for offset, pitch in ((0, 104), (1, 101), (3, 96)):

        def view(tensor, offset=offset, pitch=pitch):
            storage = torch.full((tensor.shape[0] * pitch + 8,), float("nan")).to(dtype)
            seen = storage[offset:].as_strided(tensor.shape, (pitch, 1))
            return seen.copy_(tensor)

        assert_close(run(view(a), view(b), device=device), reference(a, b))
    assert_close(run(a.T.contiguous().T, b, device=device), reference(a, b))


@pytest.mark.parametrize("product", PRODUCTS)
def test_nothing_to_do(device, product):
    run, _ = PRODUCTS[product]
    for m, n, k in ((0, 8, 8), (8, 0, 8), (8, 8, 0)):
        for dtype in (BF16, F32):
            a, b = operands(product, m, n, k, dtype)
            assert (run(a, b, device=device) == 0).all()
    a, b = operands("forward", 0, 16, 24, BF16, experts=3)
    assert matmul.forward(a, b, torch.zeros(4, dtype=torch.int32), device=device).shape == (0, 16)
    a, b = operands("weight_gradient", 0, 16, 24, BF16)
    assert (matmul.weight_gradient(a, b, torch.zeros(4, dtype=torch.int32), device=device) == torch.zeros(3, 16, 24)).all()


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("product", PRODUCTS)
def test_nan_and_infinity_reach_what_depends_on_them_and_nothing_else(device, product, dtype):
    run, reference = PRODUCTS[product]
    a, b = operands(product, 140, 70, 80, dtype)
    a[3, 5], a[77, 2], b[9, 40] = float("nan"), float("inf"), float("-inf")
    got, wanted = run(a, b, device=device).double(), reference(a, b)
    assert (got.isnan() == wanted.isnan()).all() and (got.isinf() == wanted.isinf()).all()
    finite = wanted.isfinite()
    assert finite.any() and ((got - wanted)[finite].abs() <= 2.0**-7 * wanted[finite].abs().max()).all()


def test_every_element_is_written_and_nothing_beside(device, monkeypatch):
    """Results are written over poison, in a buffer with a border."""
    borders = []

    def poisoned(*shape, dtype):
        sizes = shape[0] if isinstance(shape[0], tuple) else shape
        count = torch.Size(sizes).numel()
        buffer = torch.full((count + 64,), float("nan"), dtype=dtype)
        buffer[:32] = buffer[-32:] = 7.0
        borders.append(buffer)
        return buffer[32:-32].view(sizes)

    monkeypatch.setattr(matmul.torch, "empty", poisoned)
    for product, (run, reference) in PRODUCTS.items():
        for dtype in (BF16, F32):
            for shape in ((200, 70, 90), (33, 17, 9)):
                a, b = operands(product, *shape, dtype)
                assert_close(run(a, b, device=device), reference(a, b))
    a, b = operands("weight_gradient", 90, 40, 56, BF16)
    assert not matmul.weight_gradient(a, b, run_lengths(90, 6), device=device).isnan().any()
    assert len(borders) == 13 and all((buffer[:32] == 7).all() and (buffer[-32:] == 7).all() for buffer in borders)


# ── fp8 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def quantised_rows(rows: int, k: int):
    """Random e4m3 with a scale of its own for each 128 of k; k padded with zeros to a multiple of 128."""
    padded = -(-k // 128) * 128
    values = torch.zeros(rows, padded)
    values[:, :k] = torch.randn(rows, k) * 100
    return values.clamp(-448, 448).to(torch.float8_e4m3fn), torch.rand(rows, padded // 128) + 0.01


def quantised_blocks(n: int, k: int, experts: int = 0):
    lead = [experts] if experts else []
    values, _ = quantised_rows(max(experts, 1) * n, k)
    values = values.view(*lead, n, values.shape[-1])
    return values, torch.rand(*lead, -(-n // 128), values.shape[-1] // 128) + 0.01


@pytest.mark.parametrize("shape", [(256, 128, 256), (150, 200, 300), (1, 1, 1), (70, 136, 500), (33, 30, 130)], ids=str)
def test_fp8_dense(device, shape):
    m, n, k = shape
    given = (*quantised_rows(m, k), *quantised_blocks(n, k))
    assert_close(matmul.fp8(*given, out_dtype=F32, device=device), matmul.reference_fp8(*given))


def test_fp8_can_give_bf16_and_run_without_e4m3_products(device):
    given = (*quantised_rows(256, 384), *quantised_blocks(192, 384))
    assert_close(matmul.fp8(*given, device=device), matmul.reference_fp8(*given))
    assert_close(matmul.fp8(*given, out_dtype=F32, device=device, emulate=True), matmul.reference_fp8(*given))
    a, a_scale = quantised_rows(40, 384)
    given = (a.float().to(torch.float8_e5m2), a_scale, *quantised_rows(24, 384))
    assert_close(matmul.fp8_weight_gradient(*given, device=device, emulate=True), matmul.reference_fp8_weight_gradient(*given))


@pytest.mark.parametrize("shape", [(400, 136, 256, 6), (50, 64, 100, 4)], ids=str)
def test_fp8_grouped_by_expert(device, shape):
    m, n, k, experts = shape
    given = (*quantised_rows(m, k), *quantised_blocks(n, k, experts), run_lengths(m, experts))
    assert_close(matmul.fp8(*given, out_dtype=F32, device=device), matmul.reference_fp8(*given))


@pytest.mark.parametrize("shape", [(128, 192, 300), (40, 70, 128), (130, 66, 1000)], ids=str)
def test_fp8_weight_gradient(device, shape):
    n, k, tokens = shape
    given = (*quantised_rows(n, tokens), *quantised_rows(k, tokens))
    assert_close(matmul.fp8_weight_gradient(*given, device=device), matmul.reference_fp8_weight_gradient(*given))
    chunk_offsets = torch.tensor([0, 0, 1, 1, -(-tokens // 128)], dtype=torch.int32)
    got = matmul.fp8_weight_gradient(*given, chunk_offsets, device=device)
    assert_close(got, matmul.reference_fp8_weight_gradient(*given, chunk_offsets))
    assert (got[0] == 0).all() and (got[2] == 0).all()


@pytest.mark.parametrize("emulate", [False, True], ids=["e4m3", "f16"])
def test_fp8_takes_every_code_and_keeps_nan(device, emulate):
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).repeat(128, 1)
    ones = torch.eye(256)[:, :256].to(torch.float8_e4m3fn)
    got = matmul.fp8(codes[:, :256], torch.ones(128, 2), ones, torch.ones(2, 2), out_dtype=F32, device=device, emulate=emulate)
    finite = codes[0].double()
    assert got.isnan().all(), "a NaN in a row reaches all of it"
    clean = torch.where(codes.float().isnan(), torch.zeros(()), codes.float()).to(torch.float8_e4m3fn)
    got = matmul.fp8(clean, torch.ones(128, 2), ones, torch.ones(2, 2), out_dtype=F32, device=device, emulate=emulate)
    assert torch.equal(got[0], torch.nan_to_num(finite, 0.0).float())


def test_gradients_may_be_e5m2(device):
    a, a_scale = quantised_rows(140, 200)
    a = (a.float() * 64).to(torch.float8_e5m2)
    given = a, a_scale, *quantised_blocks(72, 200)
    assert_close(matmul.fp8(*given, out_dtype=F32, device=device), matmul.reference_fp8(*given))


def test_fp8_sums_each_128_of_k_before_scaling(device):
    """Scales so far apart that only the order of the published recipe gives these digits."""
    a, a_scale = quantised_rows(128, 256)
    b, b_scale = quantised_blocks(64, 256)
    a_scale[:, 1] = 2.0**-100
    got = matmul.fp8(a, a_scale, b, b_scale, out_dtype=F32, device=device)
    first = matmul.fp8(a[:, :128], a_scale[:, :1], b[:, :128], b_scale[:, :1], out_dtype=F32, device=device)
    assert torch.equal(got, first)


def test_fp8_reads_views_in_place(device):
    wide, scales = quantised_rows(128, 640)
    b, b_scale = quantised_blocks(64, 256)
    given = wide[:, 128:384], scales[:, 1:3], b, b_scale
    assert_close(matmul.fp8(*given, out_dtype=F32, device=device), matmul.reference_fp8(*given))


# ── what a caller can get wrong ──────────────────────────────────────────────────────────────────────────────────


def test_shapes_and_types_that_do_not_fit_are_said(device):
    x, w = operands("forward", 8, 8, 16, BF16)
    with pytest.raises(ValueError, match=r"forward: bfloat16\[8, 16\] and weight bfloat16\[8, 8\] do not fit"):
        matmul.forward(x, w[:, :8], device=device)
    with pytest.raises(ValueError, match="do not fit"):
        matmul.forward(x, w.float(), device=device)
    with pytest.raises(ValueError, match=r"take bfloat16 or float32, not torch\.float16"):
        matmul.forward(x.half(), w.half(), device=device)
    with pytest.raises(ValueError, match=r"offsets int64\[2\] must be int32 of 2"):
        matmul.forward(x, w[None], torch.tensor([0, 8]), device=device)
    with pytest.raises(ValueError, match="float8_e4m3fn"):
        matmul.fp8(torch.zeros(4, 128), torch.ones(4, 1), torch.zeros(4, 128), torch.ones(1, 1), device=device)
    with pytest.raises(ValueError, match="a multiple of 128"):
        matmul.fp8(*quantised_rows(4, 64), quantised_rows(4, 64)[0][:, :64], torch.ones(1, 1), device=device)


def test_tiles_that_cannot_be_shared_out_are_refused():
    with pytest.raises(ValueError, match="threads cannot share"):
        matmul_mma.Config(tile=(48, 64))
    with pytest.raises(ValueError, match="multiple of 16 × 16"):
        matmul_mma.Config(tile=(96, 64), warps=(4, 1))
    with pytest.raises(ValueError, match="two slabs"):
        matmul_mma.Config(dtype="fp8")
    with pytest.raises(ValueError, match="not masked"):
        matmul_fp32.Config(access="masked")


# ── for GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def variants() -> list:
    """A variant of each kind; all of them where WARPWRIGHT_ALL_VARIANTS is set (two minutes)."""
    kernels = [kernel for name, entry in all_kernels().items() if name.startswith("matmul") for kernel in entry.variants().values()]
    if os.environ.get("WARPWRIGHT_ALL_VARIANTS"):
        return kernels
    kinds = {(kernel.name.split("_")[1], "by_k" in kernel.name, "shifted" in kernel.name, kernel.name.endswith("f16")): kernel for kernel in kernels}
    return list(kinds.values())


@pytest.mark.parametrize("kernel", variants(), ids=lambda kernel: kernel.name)
def test_variants_assemble_without_spills(kernel):
    for target in ("sm_80", "sm_90a") if kernel.min_target == "sm_80" else ("sm_90a",):
        (resources,) = assemble(kernel.ptx(target), target).kernels.values()
        assert resources.spills == 0
