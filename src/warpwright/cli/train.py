"""`warpwright train`: from text to a model, with a progress bar, a sample, and a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpwright.errors import WarpwrightError

if TYPE_CHECKING:
    from rich.console import Console

    from warpwright.training.run import Run

RUNS = Path("runs")
"""Where a run's folder is made if --out names none."""

KERNELS = ("ptx", "torch")


def train(
    data: Annotated[Path | None, typer.Option(help="Text to train on: a UTF-8 file or a folder of them. [default: Python's standard "
                                                   "library]")] = None,
    config: Annotated[str, typer.Option(help="tiny, small, deepseek-v3-671b, or a TOML file with \\[model], \\[training], \\[recipe].")] = "tiny",
    precision: Annotated[str | None, typer.Option(help="fp8 (DeepSeek-V3's recipe), bf16 or fp32. [default: the config's, or fp8]")] = None,
    kernels: Annotated[str | None, typer.Option(help="ptx: our kernels; torch: the same model on torch's operations. [default: ptx]")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps. [default: the config's]")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, data order, validation split and sample. [default: 0]")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: a new one in runs/]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of --out, or of the newest run.")] = False,
    batch: Annotated[int | None, typer.Option(help="Sequences a step.")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens a sequence.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest, after warm-up.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between two measurements of validation bits per byte.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between two checkpoints.")] = None,
    moments: Annotated[str | None, typer.Option(help="Format of AdamW's moments: bf16 or fp32.")] = None,
    ema: Annotated[str | None, typer.Option(help="Decay of the weights' moving average, or none.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE",
                                                      help="Any other value of the config, such as recipe.after_attention=bf16.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a step and a last one, and nothing else.")] = False,
) -> None:
    """Train a mixture-of-experts model; ends with a sample, the kernels' times and report.html."""
    from rich.console import Console

    from warpwright.training import loop, run, settings

    if kernels is not None and kernels not in KERNELS:
        raise WarpwrightError(f"--kernels {kernels}: there are ptx and torch")
    asked: dict[str, Any] = {
        "training.steps": steps, "training.batch": batch, "training.sequence": sequence, "training.learning_rate": learning_rate,
        "training.eval_every": eval_every, "training.checkpoint_every": checkpoint_every, "recipe.adam_moments": moments,
        "recipe.ema_decay": None if ema is None else settings.parse_value(ema)}
    for change in changes or []:
        key, found, value = change.partition("=")
        if not found:
            raise WarpwrightError(f"--set {change}: write SECTION.KEY=VALUE")
        asked[key] = settings.parse_value(value)
    if resume:
        started = run.resume(out or run.newest(RUNS), {**asked, "kernels": kernels, "seed": seed, "data": str(data) if data else None})
    else:
        made = settings.load(config, precision, asked)
        loop.require_memory(made)
        started = run.create(run.Run(folder=out or run.new_folder(RUNS, made.name), settings=made, data=str(data) if data else None,
                                     kernels=kernels or "ptx", seed=seed or 0))
    try:
        if as_json:
            for record in loop.train(started):
                print(json.dumps(_brief(record)), flush=True)
        else:
            _show(started, Console())
    except KeyboardInterrupt:
        raise WarpwrightError(f"interrupted; go on with: warpwright train --resume --out {started.folder}") from None


def _brief(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what is for the report alone: the loads of experts, the configuration."""
    return {key: value for key, value in record.items() if key not in ("load", "config")}


def _show(run: Run, console: Console) -> None:
    """Train with a progress bar, or where the output is no terminal, a line at each measurement; then say what came of it."""
    from warpwright.training import loop

    total = run.settings.training.steps
    console.print(f"[bold]{run.folder}[/]: {run.settings.name}, {run.settings.recipe.matmul}, {run.kernels} kernels, {total} steps "
                  f"of {run.settings.training.batch} × {run.settings.training.sequence} tokens", highlight=False)
    records = loop.train(run, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False))
    final = _bar(records, total, console) if console.is_terminal else _lines(records, total, console)
    _conclude(final, console)


def _bar(records: Iterator[dict[str, Any]], total: int, console: Console) -> dict[str, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console) as progress:
        task, bits = progress.add_task("…", total=total), None
        for record in records:
            if record.get("final"):
                return record
            bits = record.get("bits_per_byte", bits)
            progress.update(task, completed=record["step"] + 1, description=_line(record, bits))
    raise AssertionError("the loop ends with a final record")


def _lines(records: Iterator[dict[str, Any]], total: int, console: Console) -> dict[str, Any]:
    for record in records:
        if record.get("final"):
            return record
        if "bits_per_byte" in record or record["step"] + 1 == total:
            console.print(f"step {record['step'] + 1}/{total}: {_line(record, record.get('bits_per_byte'))}", highlight=False)
    raise AssertionError("the loop ends with a final record")


def _line(record: dict[str, Any], bits: float | None) -> str:
    measured = f", {bits:.3f} bits/byte" if bits is not None else ""
    return f"loss {record['loss']:.3f}{measured}, {record['tokens_per_s']:,.0f} tokens/s"


def _conclude(final: dict[str, Any], console: Console) -> None:
    """The sample, the table of kernels, the bits per byte, and where the report is."""
    from rich.markup import escape
    from rich.panel import Panel

    from warpwright.cli.tables import kernel_table
    from warpwright.training.report import duration

    console.print(Panel(escape(final["sample"]), title="a sample", title_align="left"), highlight=False)
    if final["kernels"]:
        console.print(kernel_table(final["kernels"], final["step_seconds"]))
    first, last = final["bits_per_byte_first"], final["bits_per_byte_last"]
    average = f" (averaged weights: {final['bits_per_byte_average']:.3f})" if final["bits_per_byte_average"] is not None else ""
    console.print(f"validation bits per byte: {first:.3f} → {last:.3f}{average} in {final['steps']} steps, {duration(final['seconds'])}",
                  highlight=False)
    console.print(f"report: {final['report']}", highlight=False, soft_wrap=True)
