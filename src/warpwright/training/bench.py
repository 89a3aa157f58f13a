"""Training on PTX kernels timed against training on torch's operations."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from warpwright.kernels import ops
from warpwright.training.settings import Settings
from warpwright.training.trainer import Trainer


def compare(settings: Settings, steps: int, warmup: int, seed: int) -> dict[str, Any]:
    """Take the same steps with both kinds of kernels, in turns, so that both meet the same computer, on uniformly random tokens.

    Returns config, precision, batch, sequence, steps; for "ptx" and "torch" each median, fastest, slowest (seconds a step), seconds (of all
    steps) and tokens_per_s (at the median); ratio of tokens_per_s, ptx over torch; loss_difference, the largest relative one of a step;
    kernels: (launches, seconds) of each PTX kernel. Of `warmup` steps at the start nothing counts but the losses.
    """
    training = settings.training
    trainers = {name: Trainer(settings, ops.get(name), seed) for name in ("ptx", "torch")}
    times: dict[str, list[float]] = {name: [] for name in trainers}
    generator = torch.Generator().manual_seed(seed)
    differences = []
    for number in range(warmup + steps):
        if number == warmup:
            ops.device().reset_statistics()
        tokens = torch.randint(settings.model.vocab_size, (training.batch, training.sequence + 2), generator=generator)
        losses = {}
        # Each goes first in every other step: what the one before leaves in the caches shall favour neither.
        for name in sorted(trainers, reverse=bool(number % 2)):
            start = time.perf_counter()
            losses[name] = trainers[name].step(number, tokens).loss
            times[name].append(time.perf_counter() - start)
        differences.append(abs(losses["ptx"] / losses["torch"] - 1))
    result: dict[str, Any] = {"config": settings.name, "precision": settings.recipe.matmul, "batch": training.batch,
                              "sequence": training.sequence, "steps": steps}
    for name, taken in times.items():
        counted = taken[warmup:]
        result[name] = {"median": median(counted), "fastest": min(counted), "slowest": max(counted), "seconds": sum(counted),
                        "tokens_per_s": training.batch * training.sequence / median(counted)}
    return result | {"ratio": result["ptx"]["tokens_per_s"] / result["torch"]["tokens_per_s"], "loss_difference": max(differences),
                     "kernels": dict(ops.device().statistics)}
