"""What Triton's tutorials teach, on an A100 and an H100 that are this computer: each kernel against torch, with the error that its types allow."""

import pytest

pytest.importorskip("triton")

import torch
import triton
import triton_kernels as kernels
from triton.tools.tensor_descriptor import TensorDescriptor

import warpwright.triton

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture(params=["a100", "h100"])
def gpu(request):
    with warpwright.triton.virtual_gpu(request.param) as device:
        yield device


def test_vector_add(gpu):
    x, y, out = torch.rand(98_432), torch.rand(98_432), torch.empty(98_432)
    kernels.vector_add[lambda meta: (triton.cdiv(98_432, meta["BLOCK"]),)](x, y, out, 98_432, BLOCK=1024)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("stages", [1, 3])
def test_fused_softmax(gpu, stages):
    x, out = torch.randn(123, 781), torch.empty(123, 781)
    kernels.row_softmax[(40,)](out, x, x.stride(0), out.stride(0), 123, 781, BLOCK=1024, STAGES=stages, num_warps=8)
    assert (out - x.softmax(1)).abs().max() < 1e-7


def product(a, b, out_type, activation=""):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=out_type)
    kernels.matmul[lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)](
        a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BM=64, BN=64, BK=32, GROUP=2, ACTIVATION=activation)
    return out


@pytest.mark.parametrize("dtype, error", [(torch.float16, 1e-3), (torch.bfloat16, 8e-3), (torch.float32, 2e-3)], ids=str)
def test_matmul(gpu, dtype, error):
    a, b = torch.randn(150, 96, dtype=dtype), torch.randn(96, 136, dtype=dtype)
    wanted = a.double() @ b.double()
    assert ((product(a, b, dtype).double() - wanted).abs().max() / wanted.abs().max()) < error  # of the result's type; FP32 rounds to TF32
    leaky = torch.nn.functional.leaky_relu(wanted, 0.01)
    assert ((product(a, b, dtype, "leaky_relu").double() - leaky).abs().max() / leaky.abs().max()) < error


@pytest.mark.parametrize("dtype", [E5M2, E4M3], ids=str)
def test_matmul_fp8(gpu, dtype):
    if dtype == E4M3 and gpu.part.name == "a100":
        pytest.skip("Triton refuses E4M3 on sm_80")
    a, b = torch.randn(128, 128).to(dtype), torch.randn(64, 128).to(dtype).T
    wanted = a.double() @ b.double()
    assert (product(a, b, torch.float16).double() - wanted).abs().max() / wanted.abs().max() < 1e-3


def test_seeded_dropout(gpu):
    x, out, again, other = torch.randn(10_000), *(torch.empty(10_000) for _ in range(3))
    for target, seed in ((out, 123), (again, 123), (other, 512)):
        kernels.seeded_dropout[(10,)](x, target, 10_000, 0.3, seed, BLOCK=1024)
    kept = out != 0
    assert torch.allclose(out[kept], x[kept] / 0.7) and abs(kept.float().mean() - 0.7) < 0.02
    assert torch.equal(out, again) and not torch.equal(kept, other != 0)


@pytest.mark.parametrize("dtype, error", [(torch.float32, 2e-5), (torch.float16, 1e-2)], ids=str)
def test_layer_norm_forward_and_backward(gpu, dtype, error):
    rows, cols, groups = 45, 300, 8
    x = torch.randn(rows, cols, dtype=dtype)
    weight, bias, dy = torch.rand(cols, dtype=dtype), torch.rand(cols, dtype=dtype), 0.1 * torch.randn(rows, cols, dtype=dtype)
    out, means, rstds = torch.empty_like(x), torch.empty(rows), torch.empty(rows)
    kernels.layer_norm_forward[(rows,)](x, out, weight, bias, means, rstds, x.stride(0), cols, 1e-5, BLOCK=128, num_warps=4)
    dx, parts_w, parts_b = torch.empty_like(x), torch.empty(groups, cols), torch.empty(groups, cols)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    kernels.layer_norm_backward[(rows,)](dx, dy, parts_w, parts_b, x, weight, means, rstds, locks, x.stride(0), cols, GROUPS=groups, BLOCK=512,
                                         num_warps=8)
    dw, db = torch.empty(cols), torch.empty(cols)
    kernels.sum_rows[(triton.cdiv(cols, 128),)](parts_w, parts_b, dw, db, groups, cols, BM=8, BN=128)

    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    wanted = torch.nn.functional.layer_norm(inputs[0], (cols,), inputs[1], inputs[2], 1e-5)
    gradients = torch.autograd.grad(wanted, inputs, dy.double())
    for found, reference in zip((out, dx, dw, db), (wanted, *gradients), strict=True):
        assert (found.double() - reference).abs().max() < error
    assert not locks[:groups].any()


@pytest.mark.parametrize("causal, dtype, error", [(False, torch.float16, 4e-3), (True, torch.bfloat16, 3e-2)], ids=str)
def test_fused_attention_forward_and_backward(gpu, causal, dtype, error):
    heads, tokens, width = 3, 128, 32
    q, k, v, dout = (torch.randn(heads, tokens, width, dtype=dtype) for _ in range(4))
    scale = width**-0.5
    out, logs = torch.empty_like(q), torch.empty(heads, tokens)
    kernels.attention_forward[(tokens // 64, heads)](q, k, v, out, logs, scale, tokens * width, tokens, CAUSAL=causal, BM=64, BN=32, D=width)
    delta, dq, dk, dv = torch.empty(heads, tokens), *(torch.empty_like(q) for _ in range(3))
    kernels.attention_delta[(heads * tokens // 64,)](out, dout, delta, BM=64, D=width)
    kernels.attention_backward[(tokens // 64, heads)](q, k, v, dout, dq, dk, dv, logs, delta, scale, tokens * width, tokens,
                                                      CAUSAL=causal, BM=32, BN=64, D=width)

    inputs = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
    gradients = torch.autograd.grad(wanted, inputs, dout.double())
    for found, reference in zip((out, dq, dk, dv), (wanted, *gradients), strict=True):
        assert (found.double() - reference).abs().max() / reference.abs().max() < error


def test_grouped_matmul(gpu):
    shapes = [(64, 128, 32), (128, 64, 96), (64, 64, 64)]
    a = [torch.randn(m, k, dtype=torch.float16) for m, n, k in shapes]
    b = [torch.randn(k, n, dtype=torch.float16) for m, n, k in shapes]
    c = [torch.empty(m, n, dtype=torch.float16) for m, n, k in shapes]
    for tensor in (*a, *b, *c):
        gpu.register(tensor)
    pointers = [torch.tensor([tensor.data_ptr() for tensor in tensors]) for tensors in (a, b, c)]
    sizes = torch.tensor(shapes, dtype=torch.int32)
    strides = torch.tensor([(x.stride(0), y.stride(0), z.stride(0)) for x, y, z in zip(a, b, c, strict=True)], dtype=torch.int32)
    kernels.grouped_matmul[(3,)](*pointers, sizes, strides, len(shapes), SMS=3, BM=64, BN=64, BK=32)
    for x, y, z in zip(a, b, c, strict=True):
        wanted = x.double() @ y.double()
        assert (z.double() - wanted).abs().max() / wanted.abs().max() < 1e-3


@pytest.mark.parametrize("specialize", [False, True], ids=["one role", "warp-specialized"])
@pytest.mark.parametrize("dtype", [torch.float16, E4M3], ids=str)
def test_persistent_matmul_with_descriptors_made_on_the_device(gpu, specialize, dtype):
    if dtype == E4M3 and gpu.part.name == "a100":
        pytest.skip("Triton refuses E4M3 on sm_80")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    a, b, c = torch.randn(256, 128).to(dtype), torch.randn(192, 128).to(dtype), torch.empty(256, 192, dtype=torch.float16)
    kernels.persistent_matmul[(5,)](a, b, c, 256, 192, 128, SMS=5, BM=64, BN=64, BK=64, GROUP=4, SPECIALIZE=specialize)
    wanted = a.double() @ b.double().T
    assert (c.double() - wanted).abs().max() / wanted.abs().max() < 1e-3


def test_matmul_with_descriptors_made_on_the_host(gpu):
    a, b = torch.randn(150, 96, dtype=torch.float16), torch.randn(136, 96, dtype=torch.float16)
    c = torch.zeros(150, 136, dtype=torch.float16)
    maps = [TensorDescriptor.from_tensor(tensor, block) for tensor, block in ((a, [64, 32]), (b, [64, 32]), (c, [64, 64]))]
    kernels.described_matmul[(3, 3)](*maps, 96, BM=64, BN=64, BK=32)
    wanted = a.double() @ b.double().T
    assert (c.double() - wanted).abs().max() / wanted.abs().max() < 1e-3


def test_library_functions(gpu):
    x, out = torch.rand(1000) * 2 - 1, torch.empty(1000)
    kernels.arc_sine[(1,)](x, out, 1000, BLOCK=1024)
    assert (out.double() - x.double().asin()).abs().max() < 3e-7
