"""Training on our PTX kernels takes the same course as training on torch's operations, and FP8 the same as BF16."""

from functools import cache

import pytest
from toy import TEXT, write_toy

from warpwright.kernels import ops
from warpwright.training import settings, tokenizer
from warpwright.training.data import TokenStream
from warpwright.training.trainer import Trainer

STEPS = 50


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """losses(kernels, precision): of 50 steps with equal weights and batches."""
    config, _ = write_toy(tmp_path_factory.mktemp("toy"), steps=STEPS)
    words = tokenizer.train([TEXT], 300)
    stream = TokenStream([TEXT], words, "training")

    @cache
    def course(kernels, precision):
        chosen = settings.load(str(config), precision)
        trainer = Trainer(chosen, ops.get(kernels), seed=0)
        return [trainer.step(n, stream.batch(n, chosen.training.batch, chosen.training.sequence, seed=0)).loss for n in range(STEPS)]

    return course


@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-3), ("bf16", 5e-3)])
def test_ptx_follows_torch_step_by_step(losses, precision, tolerance):
    ours, theirs = losses("ptx", precision), losses("torch", precision)
    assert max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)) < tolerance
    assert theirs[-1] < 0.6 * theirs[0]  # it learned, so the courses had room to part


def test_fp8_ends_where_bf16_ends(losses):
    fp8, bf16 = losses("ptx", "fp8"), losses("ptx", "bf16")
    assert fp8 != bf16
    assert sum(fp8[-10:]) / sum(bf16[-10:]) == pytest.approx(1, abs=0.01)


def test_a_run_is_the_same_each_time(losses, tmp_path):
    config, _ = write_toy(tmp_path, steps=STEPS)
    chosen = settings.load(str(config), "fp8")
    trainer = Trainer(chosen, ops.get("ptx"), seed=0)
    stream = TokenStream([TEXT], tokenizer.train([TEXT], 300), "training")
    again = [trainer.step(n, stream.batch(n, chosen.training.batch, chosen.training.sequence, seed=0)).loss for n in range(5)]
    assert again == losses("ptx", "fp8")[:5]
