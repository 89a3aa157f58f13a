"""A model in training: one step, one measurement, and all the state that a checkpoint holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from warpwright.errors import DataError
from warpwright.kernels.ops import Ops
from warpwright.model.layers import Numerics
from warpwright.model.model import Model
from warpwright.training.data import TokenStream
from warpwright.training.optimizer import AdamW, Average, clip_gradients
from warpwright.training.settings import Settings


@dataclass(frozen=True)
class Step:
    """What a step measured. Losses are in nats a token: of the next token, and of the one after it (0 without multi-token prediction).

    load: the share of the tokens' copies that each expert got, by layer.
    """

    loss: float
    mtp_loss: float
    gradient_norm: float
    load: dict[str, list[float]]


class Trainer:
    """A model with its optimizer and the average of its weights. A step depends on their state, the step's number and the batch alone."""

    def __init__(self, settings: Settings, ops: Ops, seed: int):
        self.settings = settings
        self.model = Model(settings.model, Numerics(ops, settings.recipe))
        self.model.initialise(seed)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = AdamW(self.parameters, settings.training, settings.recipe.adam_moments)
        decay = settings.recipe.ema_decay
        self.average = Average(self.parameters, decay) if decay is not None else None

    def step(self, number: int, batch: Tensor) -> Step:
        """One optimizer step on int64[batch, sequence + 2] tokens."""
        training, model = self.settings.training, self.model
        targets, after_next = batch[:, 1:-1], batch[:, 2:]
        output = model(batch[:, :-2], targets if model.mtp is not None else None)
        loss = cross_entropy(output.logits.flatten(0, 1), targets.flatten())
        total, mtp_loss = loss, torch.zeros(())
        if output.after_next is not None:
            mtp_loss = cross_entropy(output.after_next.flatten(0, 1), after_next.flatten())
            total = total + training.mtp_loss * mtp_loss
        for balance in output.balance:
            total = total + training.balance_loss * balance.loss
        total.backward()
        norm = clip_gradients(self.parameters.values(), training.clip)
        if not math.isfinite(norm):
            raise DataError(f"step {number}: the loss ({loss.item():.4g}) or its gradient is not finite; lower training.learning_rate, "
                            "or use a wider --precision")
        self.optimizer.step(number)
        load = {}
        for (name, layer), balance in zip(model.expert_layers().items(), output.balance, strict=True):
            layer.router.balance(balance.load, training.bias_update_speed)
            load[name] = (balance.load / balance.load.sum()).tolist()
        model.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.parameters, number)
        return Step(loss.item(), mtp_loss.item(), norm, load)

    @torch.no_grad()
    def bits_per_byte(self, stream: TokenStream, byte_lengths: Tensor) -> float:
        """Of the validation text: the next tokens' cross-entropy, over the bytes they stand for."""
        training = self.settings.training
        nats, size = 0.0, 0
        for batch in stream.sequential(training.batch, training.sequence, training.eval_sequences):
            targets = batch[:, 1:-1]
            logits = self.model(batch[:, :-2]).logits
            nats += cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
            size += int(byte_lengths[targets].sum())
        return nats / math.log(2) / max(size, 1)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        if self.average is None:
            raise DataError("this run keeps no average of its weights (recipe.ema_decay is none)")
        own = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._set(self.average.weights)
        try:
            yield
        finally:
            self._set(own)

    @torch.no_grad()
    def _set(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(weights[name])

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state, by name: weights and routers' biases, moments, average, and torch's random generator."""
        state = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name in self.parameters:
            state[f"first.{name}"], state[f"second.{name}"] = self.optimizer.first[name], self.optimizer.second[name]
            if self.average is not None:
                state[f"average.{name}"] = self.average.weights[name]
        return state | {"random": torch.get_rng_state()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave. Raises DataError where that is another model's."""
        own = self.tensors()
        wrong = sorted(own.keys() ^ tensors.keys()) or [
            name for name, tensor in own.items() if (tensor.shape, tensor.dtype) != (tensors[name].shape, tensors[name].dtype)]
        if wrong:
            raise DataError(f"the checkpoint is of another model or recipe: it differs in {wrong[0]} and {len(wrong) - 1} more tensors")
        for name, tensor in own.items():
            if name != "random":
                tensor.copy_(tensors[name])
        torch.set_rng_state(tensors["random"])
