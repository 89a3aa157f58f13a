"""Sampling text from a model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from warpwright.errors import DataError
from warpwright.kernels import ops
from warpwright.model.attention import Cache
from warpwright.model.layers import Numerics
from warpwright.model.model import Model
from warpwright.training import checkpoint, tokenizer
from warpwright.training.run import Run
from warpwright.training.tokenizer import Tokenizer


def load_model(run: Run, kernels: str | None = None, average: bool = False) -> tuple[Model, Tokenizer]:
    """The model of a run's newest checkpoint and the run's tokenizer. average: take the averaged weights.

    kernels: "ptx" or "torch", by default the run's. Raises DataError where there is no checkpoint, or no average in it.
    """
    words = tokenizer.load(run.tokenizer)
    if checkpoint.latest(run.checkpoints) is None:
        raise DataError(f"{run.folder}: has no checkpoint yet; let it train up to its first (training.checkpoint_every), or use --resume")
    _, tensors, _ = checkpoint.load(run.checkpoints)
    weights = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    if average:
        averaged = {name.removeprefix("average."): tensor for name, tensor in tensors.items() if name.startswith("average.")}
        if not averaged:
            raise DataError(f"{run.folder}: keeps no average of its weights (recipe.ema_decay is none); leave --average out")
        weights |= averaged
    model = Model(run.settings.model, Numerics(ops.get(kernels or run.kernels), run.settings.recipe))
    model.load_state_dict(weights)
    return model, words


def sample(model: Model, words: Tokenizer, prompt: str, tokens: int, temperature: float = 0.7, top_k: int | None = None,
           top_p: float | None = 0.95, seed: int = 0) -> str:
    """The prompt and what the model says after it: up to `tokens` tokens, fewer where it ends the text."""
    *_, text = stream(model, words, prompt, tokens, temperature, top_k, top_p, seed)
    return text


def stream(model: Model, words: Tokenizer, prompt: str, tokens: int, temperature: float = 0.7, top_k: int | None = None,
           top_p: float | None = 0.95, seed: int = 0) -> Iterator[str]:
    """The prompt, then the text after each token; a token that ends in the middle of a character waits for the next."""
    ids = words.encode(prompt) or [words.end_of_text]
    yield words.decode(ids)
    first = list(ids)
    for token in continuation(model, words, first, tokens, temperature, top_k, top_p, seed):
        ids.append(token)
        text = words.decode(ids)
        if not text.endswith("\ufffd"):
            yield text


@torch.no_grad()
def continuation(model: Model, words: Tokenizer, ids: list[int], tokens: int, temperature: float = 0.7, top_k: int | None = None,
                 top_p: float | None = 0.95, seed: int = 0) -> Iterator[int]:
    """Tokens that follow `ids` (at least one), drawn one by one, up to the end of the text. The latents of earlier tokens are cached."""
    random = torch.Generator().manual_seed(seed)
    caches = [Cache() for _ in model.blocks]
    new = torch.tensor([ids])
    for _ in range(tokens):
        logits = model(new, caches=caches).logits[0, -1, : words.vocab_size]
        token = draw(logits, random, temperature, top_k, top_p)
        if token == words.end_of_text:
            return
        yield token
        new = torch.tensor([[token]])


def draw(logits: Tensor, random: torch.Generator, temperature: float, top_k: int | None, top_p: float | None) -> int:
    """One token from FP32[vocab] logits: the likeliest at temperature 0.

    Otherwise from softmax(logits/temperature), cut to the `top_k` likeliest and to the fewest that together have a chance of `top_p`.
    """
    if temperature == 0:
        return int(logits.argmax())
    chances, order = torch.softmax(logits / temperature, 0).sort(descending=True, stable=True)
    if top_k is not None:
        chances = chances[:top_k]
    if top_p is not None:
        before = chances.cumsum(0) - chances
        chances = chances[: max(1, int((before < top_p * chances.sum()).sum()))]
    return int(order[torch.multinomial(chances, 1, generator=random)])
