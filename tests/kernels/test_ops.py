"""The two implementations of the operations agree under every recipe, forward and backward, and keep for the backward what it says."""

from dataclasses import replace

import pytest
import torch
from kernel_checks import BF16, F32, assert_close, assert_same, randn

from warpwright.errors import DataError, LaunchError
from warpwright.kernels import ops
from warpwright.kernels.recipe import Recipe

pytestmark = pytest.mark.usefixtures("poisoned")

FP8, BF16_RECIPE, FP32 = (Recipe.named(name) for name in ("fp8", "bf16", "fp32"))
TOKENS, HIDDEN, INNER, EXPERTS, TOP_K = 70, 200, 136, 8, 2
WEIGHTS = [(EXPERTS, 2 * INNER, HIDDEN), (EXPERTS, HIDDEN, INNER), (EXPERTS, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)]
# The same numbers in another order of sums: FP32 differs in its last bits. In BF16, torch rounds where we do not (inside SwiGLU, and FP32
# results of BF16 products). In FP8 those last bits decide a rounding now and then, which changes that number by 2^-4 of itself.
RECIPES = {
    "fp32": (FP32, F32, 1e-5),
    "bf16": (BF16_RECIPE, BF16, 2e-2),
    "fp8": (FP8, F32, 2e-3),
    "fp8, BF16 activations": (FP8, BF16, 4e-2),
    "fp8, hybrid, power-of-two scales": (replace(FP8, gradient_format="e5m2", power_of_two_scales=True, recompute_swiglu=False), F32, 4e-3),
    "fp8 products, wide caches": (replace(FP8, cache="bf16", after_attention="fp32", swiglu="bf16"), F32, 2e-3),
    "bf16, narrow caches": (replace(BF16_RECIPE, cache="fp8", after_attention="e5m6", swiglu="e5m6", recompute_swiglu=True), BF16, 4e-2),
    "fp32, narrow caches": (replace(FP32, cache="fp8", after_attention="e5m6", swiglu="fp8", recompute_swiglu=True), F32, 2e-3),
}


def layer(operations: ops.Ops, recipe: Recipe, dtype: torch.dtype, random: torch.Generator) -> list[torch.Tensor]:
    """A small layer with every operation in it: its output, and its gradients for the input and each weight."""
    x = randn(random, 2, TOKENS // 2, HIDDEN, dtype=dtype).requires_grad_()
    weights = [(randn(random, *shape) / shape[-1] ** 0.5).requires_grad_() for shape in WEIGHTS]
    experts_up, experts_down, gate, after, shared_up, shared_down = weights
    scale = (torch.rand(HIDDEN, generator=random) + 0.5).requires_grad_()
    # The gate sees x itself, so that both implementations choose the same experts.
    routing = operations.route(x.flatten(0, 1).float() @ gate.t(), torch.zeros(EXPERTS), TOP_K, 4, 2, 2.5)
    h = operations.linear(operations.rms_norm(x, scale, 1e-6), after, recipe, "after_attention").flatten(0, 1)
    rows, layout = operations.permute(h, routing, EXPERTS)
    up = operations.grouped_linear(rows, experts_up, layout, recipe, "expert_up")
    mixed = operations.unpermute(operations.swiglu_linear(up, None, experts_down, recipe, "expert_down", layout), routing.weights, layout)
    other = operations.linear(h, shared_up, recipe)
    shared = operations.swiglu_linear(other, other.tanh(), shared_down, recipe)
    y = mixed + shared + operations.swiglu(h, x.flatten(0, 1))
    (y.float() * randn(random, *y.shape)).sum().add(routing.scores.square().sum()).backward()
    return [y.detach(), *(each.grad for each in (x, scale, *weights))]  # type: ignore[misc]


@pytest.mark.parametrize("name", RECIPES)
def test_ptx_follows_torch(random, name):
    recipe, dtype, tolerance = RECIPES[name]
    seed = random.initial_seed()
    got, wanted = (layer(ops.get(kernels), recipe, dtype, torch.Generator().manual_seed(seed)) for kernels in ("ptx", "torch"))
    for mine, torchs in zip(got, wanted, strict=True):
        assert mine.dtype == torchs.dtype
        difference = (mine.double() - torchs.double()).norm() / torchs.double().norm()
        assert difference < tolerance


@pytest.mark.parametrize("name", ["ptx", "torch"])
def test_gradients_are_those_of_the_function_in_float64(random, name):
    seed = random.initial_seed()
    y, grad_x, *_ = layer(ops.get(name), FP32, F32, torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(seed)
    x = randn(generator, 2, TOKENS // 2, HIDDEN).double().requires_grad_()
    weights = [(randn(generator, *shape) / shape[-1] ** 0.5).double() for shape in WEIGHTS]
    experts_up, experts_down, gate, after, shared_up, shared_down = weights
    scale = (torch.rand(HIDDEN, generator=generator) + 0.5).double()
    flat = x.flatten(0, 1)
    scores = (flat @ gate.t()).sigmoid()
    best = scores.view(TOKENS, 4, 2).amax(2).topk(2, 1).indices
    allowed = torch.zeros(TOKENS, 4, dtype=torch.bool).scatter_(1, best, True).repeat_interleave(2, 1)
    experts = scores.masked_fill(~allowed, 0).topk(TOP_K, 1).indices
    chosen = scores.gather(1, experts)
    h = flat * (flat.square().mean(1, keepdim=True) + 1e-6).rsqrt() * scale @ after.t()
    up = torch.einsum("td,tkfd->tkf", h, experts_up[experts])
    inner = torch.nn.functional.silu(up[..., :INNER]) * up[..., INNER:]
    down = torch.einsum("tkf,tkdf->tkd", inner, experts_down[experts])
    other = h @ shared_up.t()
    wanted = (down * (chosen / chosen.sum(1, keepdim=True) * 2.5)[..., None]).sum(1)
    wanted = wanted + (torch.nn.functional.silu(other) * other.tanh()) @ shared_down.t() + torch.nn.functional.silu(h) * flat
    (wanted * randn(generator, *wanted.shape).double()).sum().add(scores.square().sum()).backward()
    assert_close(y, wanted.detach(), 1e-5)
    assert_close(grad_x, x.grad, 1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ptx", "torch"])
@pytest.mark.parametrize(("recipe", "role", "bits"), [
    (FP8, "plain", 8), (FP8, "after_attention", 12), (replace(FP8, cache="bf16"), "plain", 16),
    (BF16_RECIPE, "plain", 16), (replace(BF16_RECIPE, cache="fp8"), "plain", 8),
], ids=lambda each: str(each) if not isinstance(each, Recipe) else each.matmul + each.cache)
def test_the_input_is_kept_in_the_recipes_format(random, name, recipe, role, bits):
    """Bytes saved for the weight gradient of x[96, 256] FP32 (the weight does not ask for the input's gradient to be computed)."""
    saved: dict[int, int] = {}
    x, weight = randn(random, 96, 256), randn(random, 128, 256).requires_grad_()

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = ops.get(name).linear(x, weight, recipe, role)
    y.sum().backward()
    scales = 96 * 2 * 4 if bits in (8, 12) else 0
    assert sum(saved.values()) == 96 * 256 * bits // 8 + scales


@pytest.mark.parametrize("name", ["ptx", "torch"])
def test_swiglu_keeps_its_inputs_in_fp8_and_not_its_output(random, name):
    saved = 0
    gate, up, weight = randn(random, 64, 256).requires_grad_(), randn(random, 64, 256).requires_grad_(), randn(random, 128, 256)

    def pack(tensor):
        nonlocal saved
        saved += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = ops.get(name).swiglu_linear(gate, up, weight, FP8)
    y.sum().backward()
    transposed_weight = 256 * 128 + 2 * 1 * 4
    assert saved == 2 * (64 * 256 + 64 * 2 * 4) + transposed_weight


@pytest.mark.parametrize("recipe", [FP8, FP32], ids=["fp8", "fp32"])
def test_no_tokens_at_all(recipe):
    operations = ops.get("ptx")
    x, weight = torch.zeros(0, 64).requires_grad_(), torch.ones(32, 64).requires_grad_()
    y = operations.linear(operations.rms_norm(x, torch.ones(64), 1e-6), weight, recipe)
    routing = operations.route(torch.zeros(0, 4), torch.zeros(4), 2, 1, 1, 1.0)
    rows, layout = operations.permute(x, routing, 4)
    z = operations.unpermute(operations.grouped_linear(rows, torch.ones(4, 64, 64), layout, recipe), routing.weights, layout)
    assert (y.shape, z.shape) == ((0, 32), (0, 64))
    (y.sum() + z.sum()).backward()
    assert_same(weight.grad, torch.zeros(32, 64))  # type: ignore[arg-type]
    assert x.grad is not None and x.grad.shape == (0, 64)


def test_experts_without_tokens_get_zero_gradients(random):
    operations = ops.get("ptx")
    experts = torch.tensor([[0, 3], [3, 0], [0, 3]], dtype=torch.int32)
    routing = ops.Routing(experts, torch.full((3, 2), 0.5), torch.zeros(3, 5))
    for recipe in (FP8, BF16_RECIPE, FP32):
        weight = randn(random, 5, 48, 64).requires_grad_()
        rows, layout = operations.permute(randn(random, 3, 64), routing, 5)
        operations.grouped_linear(rows, weight, layout, recipe).sum().backward()
        used = weight.grad.abs().sum((1, 2)) > 0  # type: ignore[union-attr]
        assert used.tolist() == [True, False, False, True, False]


def test_a_view_with_strided_columns_is_taken_as_it_looks(random):
    x, weight = randn(random, 64, 40).t(), randn(random, 24, 64)
    assert_close(ops.get("ptx").linear(x, weight, FP32), x.double() @ weight.double().t(), 1e-6)
    assert_close(ops.get("ptx").swiglu(x), ops.get("torch").swiglu(x.contiguous()), 1e-6)


def test_nan_reaches_the_result_and_only_its_row(random):
    x, weight = randn(random, 5, 256), randn(random, 16, 256)
    x[2, 7] = torch.nan
    for recipe in (FP8, BF16_RECIPE, FP32):
        y = ops.get("ptx").linear(x, weight, recipe)
        assert y.isnan().any(1).tolist() == [False, False, True, False, False]


def test_meta_tensors_have_the_shapes():
    operations = ops.get("ptx")
    x, weight = torch.empty(2, 5, 64, device="meta"), torch.empty(32, 64, device="meta")
    assert operations.linear(operations.rms_norm(x, torch.empty(64, device="meta"), 1e-6), weight, BF16_RECIPE).shape == (2, 5, 32)
    assert operations.swiglu(x).shape == (2, 5, 32)


def test_bad_input_says_what_to_do():
    with pytest.raises(LaunchError, match="there are no kernels 'cuda'; there are: ptx, torch"):
        ops.get("cuda")
    with pytest.raises(LaunchError, match=r"activations are BF16 or FP32, not torch.float16: convert them"):
        ops.get("ptx").rms_norm(torch.zeros(2, 4, dtype=torch.float16), torch.ones(4), 1e-6)
    with pytest.raises(LaunchError, match="16 experts do not divide into 3"):
        ops.get("ptx").route(torch.zeros(2, 16), torch.zeros(16), 2, 3, 1, 1.0)
    with pytest.raises(DataError, match="there is no recipe 'fp4'; there are: fp8, bf16, fp32"):
        Recipe.named("fp4")
    with pytest.raises(DataError, match=r"recipe: cache is 'int8'; it can be 'fp8', 'e5m6', 'bf16', 'fp32'"):
        Recipe(cache="int8")  # type: ignore[arg-type]
