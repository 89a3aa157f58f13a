"""Training from text to report: prepare the data, take the steps, measure, save, and at the end sample and report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from warpwright.errors import DataError
from warpwright.kernels import ops
from warpwright.training import checkpoint, data, generate, report, tokenizer
from warpwright.training.checkpoint import write_text
from warpwright.training.data import TokenStream
from warpwright.training.optimizer import learning_rate
from warpwright.training.run import Run
from warpwright.training.settings import Settings
from warpwright.training.tokenizer import Tokenizer
from warpwright.training.trainer import Trainer

PROMPT = "def "
"""What the sample at the end begins with, after training on the default text."""


def train(run: Run, say: Callable[[str], None] = lambda _: None) -> Iterator[dict[str, Any]]:
    """Train a run from its newest checkpoint, or from the start, to its end; yields a record after each step, and a last one.

    A step's record: step (from 0), loss, mtp_loss, gradient_norm, learning_rate, seconds, tokens_per_s, and where it was measured, before
    the step, bits_per_byte (validation) and load (the share of each expert, by layer). The last: final (True), bits_per_byte_first,
    bits_per_byte_last, bits_per_byte_average (of the averaged weights, or None), launches (by PTX kernel, in steps), kernels (launches
    and seconds), seconds, step_seconds, steps, sample, config, report. say: called with what is being done, for people.
    """
    started = time.perf_counter()
    settings, training = run.settings, run.settings.training
    require_memory(settings)
    run, words, stream, held_out = prepare(run, say)
    byte_lengths = torch.from_numpy(words.byte_lengths)
    trainer = Trainer(settings, ops.get(run.kernels), run.seed)
    first, clock = 0, Clock(run.kernels)
    bits_first = None
    if checkpoint.latest(run.checkpoints) is not None:
        first, tensors, state = checkpoint.load(run.checkpoints)
        trainer.restore(tensors)
        clock.restore(state["clock"])
        bits_first = state["bits_per_byte_first"]
        say(f"going on after step {first} of {training.steps}")
    if first > training.steps:
        raise DataError(f"{run.folder}: the run is at step {first} already, past --steps {training.steps}")
    keep_log(run.log, first)
    earlier = clock.seconds
    with run.log.open("a") as log:
        for number in range(first, training.steps):
            record: dict[str, Any] = {"step": number}
            measured = number % training.eval_every == 0
            if measured:
                record["bits_per_byte"] = trainer.bits_per_byte(held_out, byte_lengths)
                bits_first = record["bits_per_byte"] if number == 0 else bits_first
            batch = stream.batch(number, training.batch, training.sequence, run.seed)
            with clock:
                step = trainer.step(number, batch)
            record |= {"loss": step.loss, "mtp_loss": step.mtp_loss, "gradient_norm": step.gradient_norm,
                       "learning_rate": learning_rate(number, training), "seconds": clock.last,
                       "tokens_per_s": training.batch * training.sequence / clock.last}
            if measured:
                record["load"] = step.load
            log.write(json.dumps(record) + "\n")
            log.flush()
            clock.seconds = earlier + time.perf_counter() - started
            yield record
            if (number + 1) % training.checkpoint_every == 0 or number + 1 == training.steps:
                state = {"clock": clock.state(), "bits_per_byte_first": bits_first}
                checkpoint.save(run.checkpoints, number + 1, trainer.tensors(), state, training.keep)
    yield finish(run, trainer, words, held_out, clock, bits_first, earlier - started)


def finish(run: Run, trainer: Trainer, words: Tokenizer, held_out: TokenStream, clock: Clock, bits_first: float | None,
           offset: float) -> dict[str, Any]:
    """Measure and sample the trained model, write final.json and report.html; returns the last record."""
    byte_lengths = torch.from_numpy(words.byte_lengths)
    final: dict[str, Any] = {"final": True, "bits_per_byte_first": bits_first,
                             "bits_per_byte_last": trainer.bits_per_byte(held_out, byte_lengths), "bits_per_byte_average": None}
    if trainer.average is not None:
        with trainer.averaged():
            final["bits_per_byte_average"] = trainer.bits_per_byte(held_out, byte_lengths)
    sample = generate.sample(trainer.model, words, "" if run.data else PROMPT, run.settings.training.sample_tokens, seed=run.seed)
    tables = run.settings.as_tables()
    config = {"config": run.settings.name, "kernels": run.kernels, "seed": run.seed, "data": run.data or "the Python standard library",
              **{f"{section}.{key}": value for section in ("model", "training", "recipe") for key, value in tables[section].items()}}
    final |= {"launches": {name: count for name, (count, _) in clock.kernels.items()}, "kernels": clock.kernels,
              "seconds": offset + time.perf_counter(), "step_seconds": clock.step_seconds, "steps": run.settings.training.steps,
              "sample": sample, "config": config}
    write_text(run.final, json.dumps(final, indent=1))
    final["report"] = str(report.write(run.folder))
    return final


def prepare(run: Run, say: Callable[[str], None]) -> tuple[Run, Tokenizer, TokenStream, TokenStream]:
    """The run with its text's checksum, its tokenizer, and the training and validation streams. Writes run.json and tokenizer.json."""
    corpus = data.load_corpus(Path(run.data) if run.data else None)
    run = run.with_corpus(corpus)
    documents, held_out = data.split(corpus, run.seed)
    model, training = run.settings.model, run.settings.training
    if run.tokenizer.exists():
        words = tokenizer.load(run.tokenizer)
    else:
        say(f"training a tokenizer on {corpus.name} ({corpus.bytes / 1e6:.1f} MB, {len(corpus.documents)} documents)")
        words = tokenizer.train(documents, model.vocab_size)
    stream, validation = TokenStream(documents, words, "training"), TokenStream(held_out, words, "validation")
    stream.require(training.sequence)
    validation.require(training.sequence)
    words.save(run.tokenizer)
    run.save()  # last: from here on the folder is a run that can be resumed
    return run, words, stream, validation


class Clock:
    """Time in steps, and in the PTX kernels that ran in them."""

    def __init__(self, kernels: str):
        self.device = ops.device() if kernels == "ptx" else None
        self.kernels: dict[str, tuple[int, float]] = {}
        self.step_seconds = self.last = self.seconds = 0.0

    def __enter__(self) -> None:
        if self.device is not None:
            self.device.reset_statistics()
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = time.perf_counter() - self._start
        self.step_seconds += self.last
        for name, (launches, seconds) in (self.device.statistics if self.device is not None else {}).items():
            before = self.kernels.get(name, (0, 0.0))
            self.kernels[name] = before[0] + launches, before[1] + seconds

    def state(self) -> dict[str, Any]:
        return {"kernels": self.kernels, "step_seconds": self.step_seconds, "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        self.kernels = {name: (launches, seconds) for name, (launches, seconds) in state["kernels"].items()}
        self.step_seconds, self.seconds = state["step_seconds"], state["seconds"]


def keep_log(path: Path, steps: int) -> None:
    """Drop the records of steps that will be done again."""
    if path.exists():
        kept = [record for record in report.read_log(path.parent) if record["step"] < steps]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def require_memory(settings: Settings) -> None:
    """Raise DataError where the model's training state alone is larger than this computer's memory."""
    from warpwright.model.layers import Numerics
    from warpwright.model.model import Model, count

    with torch.device("meta"):
        counts = count(Model(settings.model, Numerics(None, settings.recipe)))  # type: ignore[arg-type]
    moments = 2 if settings.recipe.adam_moments == "bf16" else 4
    each = 4 + 4 + 2 * moments + (4 if settings.recipe.ema_decay is not None else 0)
    parameters = counts.total + counts.mtp
    needed = parameters * each
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise DataError(f"--config {settings.name}: training {parameters / 1e9:.2f} billion parameters takes {needed / 1e9:,.0f} GB "
                        f"({each} bytes each) and this computer has {memory / 1e9:,.0f} GB; choose a smaller --config")
