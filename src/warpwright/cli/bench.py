"""`warpwright bench`: measure."""

from __future__ import annotations

import json
from statistics import median
from typing import Annotated, Any

import typer

app = typer.Typer(help="Measure speed on this computer.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure speed on this computer."""


@app.command()
def train(
    config: Annotated[str, typer.Option(help="tiny, small, or a TOML file.")] = "tiny",
    precision: Annotated[list[str] | None, typer.Option(help="fp8, bf16 or fp32. Repeatable (default: fp8).")] = None,
    steps: Annotated[int, typer.Option(help="Steps measured of each kind, after two that are not.", min=1)] = 10,
    batch: Annotated[int | None, typer.Option(help="Sequences in a step.")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a precision.")] = False,
) -> None:
    """Training speed of --kernels ptx over --kernels torch: the same model and batches, steps in turn, medians."""
    from warpwright.training import settings

    results = []
    for name in precision or ["fp8"]:
        chosen = settings.load(config, name, {"training.batch": batch, "training.sequence": sequence})
        result = measure(chosen, steps, seed)
        results.append(result)
        if as_json:
            print(json.dumps(result), flush=True)
    if not as_json:
        show(results)


@app.command(name="compile")
def compile_time(
    shape: Annotated[list[str] | None, typer.Option(help="arithmetic, branches, unrolled, gathers or mma. Repeatable (default: all).")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Instructions of the kernel. Repeatable (default: 100, 1000, 10000).", min=8)] = None,
    repeats: Annotated[int, typer.Option(help="Processes that start warm, of each kernel.", min=1)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a kernel.")] = False,
) -> None:
    """Time from PTX text to the end of the first launch, with an empty object cache and with a warm one."""
    from warpwright.cli import compile_time

    unknown = [name for name in shape or () if name not in compile_time.SHAPES]
    if unknown:
        raise typer.BadParameter(f"there is no shape '{unknown[0]}'; there are: {', '.join(compile_time.SHAPES)}")
    compile_time.run(shape or list(compile_time.SHAPES), sorted(size or [100, 1000, 10000]), repeats, as_json)


def measure(chosen: Any, steps: int, seed: int) -> dict[str, Any]:
    """Tokens a second of both kinds of kernels, from the median times of steps taken in turn; and where the time of the PTX steps goes."""
    import torch

    from warpwright.kernels import ops
    from warpwright.training.loop import Clock
    from warpwright.training.trainer import Trainer

    training = chosen.training
    shape = (training.batch, training.sequence + 2)
    random = torch.Generator().manual_seed(seed)
    batches = [torch.randint(0, chosen.model.vocab_size, shape, generator=random) for _ in range(steps + 2)]
    trainers = {kind: Trainer(chosen, ops.get(kind), seed) for kind in ("ptx", "torch")}
    times: dict[str, list[float]] = {kind: [] for kind in trainers}
    losses: dict[str, list[float]] = {kind: [] for kind in trainers}
    clock = Clock("ptx")
    for number, batch in enumerate(batches):
        if number == 2:
            clock = Clock("ptx")  # what came before compiled kernels and filled caches
        # Each goes first in turn, so that what the other leaves in the caches favours neither.
        for kind in sorted(trainers, reverse=number % 2 == 1):
            timer = clock if kind == "ptx" else Clock("torch")
            with timer:
                losses[kind].append(trainers[kind].step(number, batch).loss)
            if number >= 2:
                times[kind].append(timer.last)
    tokens = training.batch * training.sequence
    speed = {kind: tokens / median(times[kind]) for kind in times}
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses["ptx"], losses["torch"], strict=True))
    return {"config": chosen.name, "precision": chosen.recipe.matmul, "steps": steps, "tokens_per_step": tokens,
            "ptx_tokens_per_s": speed["ptx"], "torch_tokens_per_s": speed["torch"], "ptx_over_torch": speed["ptx"] / speed["torch"],
            "largest_loss_difference": difference,
            "kernel_share": sum(seconds for _, seconds in clock.kernels.values()) / clock.step_seconds,
            "kernels": clock.kernels, "ptx_step_seconds": clock.step_seconds}


def show(results: list[dict[str, Any]]) -> None:
    """Print the speeds, and for each precision the kernels that the time goes to."""
    from rich.console import Console
    from rich.table import Table

    from warpwright.cli.train import kernel_table

    console = Console()
    first = results[0]
    table = Table(title=f"training {first['config']}, {first['tokens_per_step']} tokens a step, medians of {first['steps']} steps",
                  title_justify="left")
    table.add_column("precision")
    for heading in ("ptx tokens/s", "torch tokens/s", "ptx / torch", "in PTX kernels", "largest loss difference"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(result["precision"], f"{result['ptx_tokens_per_s']:,.0f}", f"{result['torch_tokens_per_s']:,.0f}",
                      f"{result['ptx_over_torch']:.2f}", f"{result['kernel_share']:.0%}", f"{result['largest_loss_difference']:.1e}")
    console.print(table)
    for result in results:
        title = f"PTX kernels in {result['steps']} {result['precision']} steps"
        console.print(kernel_table(title, result["kernels"], result["ptx_step_seconds"]))
