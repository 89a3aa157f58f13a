"""AdamW with FP32 master weights and moments in BF16 or FP32, gradient clipping, the learning-rate schedule, and the weights' average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from warpwright.training.settings import Training


def learning_rate(step: int, training: Training) -> float:
    """Of a step, counted from 0: linear from 0 over the warm-up, then a cosine down to the final fraction at the last step."""
    peak, floor = training.learning_rate, training.learning_rate * training.final_learning_rate
    if step < training.warmup:
        return peak * (step + 1) / training.warmup
    progress = min(1.0, (step - training.warmup) / max(1, training.steps - 1 - training.warmup))
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float) -> float:
    """Scale all gradients so that their common norm is at most `largest`; returns the norm before."""
    return nn.utils.clip_grad_norm_(parameters, largest, foreach=True).item()


class AdamW:
    """AdamW with decoupled weight decay on everything but vectors (norms).

    The arithmetic is FP32 whatever `moments` is: "bf16" only rounds what is stored between steps, as DeepSeek-V3 does. Parameters without a
    gradient are left alone. `first` and `second` are the moments by parameter name.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], training: Training, moments: str = "fp32"):
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[moments]
        self.parameters, self.training = dict(parameters), training
        self.first = {name: torch.zeros_like(p, dtype=dtype) for name, p in self.parameters.items()}
        self.second = {name: torch.zeros_like(p, dtype=dtype) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, number: int) -> None:
        """Update the parameters from their gradients; `number` counts steps from 0."""
        t = self.training
        rate = learning_rate(number, t)
        correction1, correction2 = 1 - t.beta1 ** (number + 1), 1 - t.beta2 ** (number + 1)
        for name, parameter in self.parameters.items():
            gradient = parameter.grad
            if gradient is None:
                continue
            first, second = self.first[name], self.second[name]
            m = torch.lerp(first.float(), gradient, 1 - t.beta1)
            v = torch.addcmul(second.float() * t.beta2, gradient, gradient, value=1 - t.beta2)
            first.copy_(m)
            second.copy_(v)
            if parameter.dim() > 1:
                parameter.mul_(1 - rate * t.weight_decay)
            parameter.addcdiv_(m, v.div_(correction2).sqrt_().add_(t.epsilon), value=-rate / correction1)


class Average:
    """An exponential moving average of the weights, in FP32 on the CPU.

    It forgets faster at the start, where there is little to remember: its decay at step n is at most (1 + n)/(10 + n).
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float):
        self.decay = decay
        self.weights: dict[str, Tensor] = {name: p.detach().to("cpu", torch.float32, copy=True) for name, p in parameters.items()}

    @torch.no_grad()
    def update(self, parameters: Mapping[str, nn.Parameter], number: int) -> None:
        """Take in the weights after step `number`, counted from 0."""
        weight = 1 - min(self.decay, (1 + number) / (10 + number))
        for name, parameter in parameters.items():
            self.weights[name].lerp_(parameter.to("cpu", torch.float32), weight)
