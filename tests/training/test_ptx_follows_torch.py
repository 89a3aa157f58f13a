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
    """losses(kernels, precision, steps): of that many steps from equal weights on equal batches; .once remembers."""
    config, _ = write_toy(tmp_path_factory.mktemp("toy"), steps=STEPS, batch=4, sequence=64, learning_rate=0.003, warmup=10)
    stream = TokenStream([TEXT], tokenizer.train([TEXT], 300), "training")

    def course(kernels, precision, steps=STEPS):
        chosen = settings.load(str(config), precision)
        trainer = Trainer(chosen, ops.get(kernels), seed=0)
        return [trainer.step(n, stream.batch(n, chosen.training.batch, chosen.training.sequence, seed=0)).loss for n in range(steps)]

    course.once = cache(course)
    return course


@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-3), ("bf16", 5e-3)])
def test_ptx_follows_torch_step_by_step(losses, precision, tolerance):
    ours, theirs = losses.once("ptx", precision), losses.once("torch", precision)
    assert max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)) < tolerance
    assert theirs[-1] < 0.6 * theirs[0]  # it learned, so the courses had room to part


def test_fp8_ends_where_bf16_ends(losses):
    fp8, bf16 = losses.once("ptx", "fp8"), losses.once("ptx", "bf16")
    assert fp8 != bf16
    assert sum(fp8[-10:]) / sum(bf16[-10:]) == pytest.approx(1, abs=0.01)


def test_a_course_on_ptx_kernels_is_the_same_each_time(losses):
    assert losses("ptx", "fp8", 5) == losses.once("ptx", "fp8")[:5]
