"""`warpwright train`: from text to a model, with a progress bar, a sample, and a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpwright.errors import WarpwrightError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from warpwright.training.run import Run

RUNS = Path("runs")
"""Where a run's folder is made if --out names none."""

KERNELS = ("ptx", "torch")


def train(
    data: Annotated[Path | None, typer.Option(
        help="UTF-8 text to train on: a file, or a folder of files (default: Python's standard library).")] = None,
    config: Annotated[str | None, typer.Option(
        help="tiny, small, deepseek-v3-671b, or a TOML file with the tables model, training and recipe (default: tiny).")] = None,
    precision: Annotated[str | None, typer.Option(help="fp8 (DeepSeek-V3's recipe), bf16 or fp32 (default: the config's, or fp8).")] = None,
    kernels: Annotated[str | None, typer.Option(help="ptx (our kernels) or torch (the same on torch's operations) (default: ptx).")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps (default: the config's).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, data order, validation split and sample (default: 0).")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/CONFIG-N).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint of --out, or of the newest run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a step, and a last one, and nothing else.")] = False,
    batch: Annotated[int | None, typer.Option(help="Sequences in a step.")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest, after warm-up.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between two measurements of validation bits per byte.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps between two checkpoints.")] = None,
    moments: Annotated[str | None, typer.Option(help="Format of AdamW's moments: bf16 or fp32 (default: the recipe's).")] = None,
    ema: Annotated[str | None, typer.Option(help="Decay of the weights' moving average, or none (default: the recipe's).")] = None,
    changes: Annotated[list[str] | None, typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Any value of the config's tables: recipe.after_attention=bf16. Repeatable.")] = None,
) -> None:
    """Train a mixture-of-experts model, its hot operations PTX kernels; ends with a sample, the kernels' times and report.html."""
    from warpwright.training import loop, settings

    if kernels is not None and kernels not in KERNELS:
        raise WarpwrightError(f"--kernels {kernels}: there are: {', '.join(KERNELS)}")
    asked: dict[str, Any] = {
        "training.steps": steps, "training.batch": batch, "training.sequence": sequence, "training.learning_rate": learning_rate,
        "training.eval_every": eval_every, "training.checkpoint_every": checkpoint_every, "recipe.adam_moments": moments,
        "recipe.ema_decay": None if ema is None else settings.parse_value(ema)}
    for change in changes or []:
        key, equals, value = change.partition("=")
        if not equals:
            raise WarpwrightError(f"--set {change}: write SECTION.KEY=VALUE, such as recipe.cache=bf16")
        asked[key.strip()] = settings.parse_value(value.strip())
    where = str(data.resolve()) if data is not None else None
    run = _resumed(out, asked, config, precision, where, kernels, seed) if resume else None
    run = run or _new(out, asked, config, precision, where, kernels, seed)
    try:
        if as_json:
            for record in loop.train(run, lambda text: print(text, file=sys.stderr, flush=True)):
                print(json.dumps({key: value for key, value in record.items() if key != "config"}), flush=True)
        else:
            _show(run)
    except KeyboardInterrupt:
        raise WarpwrightError(f"interrupted; go on from the newest checkpoint with: warpwright train --resume --out {run.folder}") from None


def _new(out: Path | None, asked: dict[str, Any], config: str | None, precision: str | None, data: str | None, kernels: str | None,
         seed: int | None) -> Run:
    from warpwright.training import loop, settings
    from warpwright.training import run as runs

    made = settings.load(config or "tiny", precision, asked)
    loop.require_memory(made)
    return runs.create(runs.Run(out or runs.new_folder(RUNS, made.name), made, data, kernels or "ptx", seed or 0))


def _resumed(out: Path | None, asked: dict[str, Any], config: str | None, precision: str | None, data: str | None, kernels: str | None,
             seed: int | None) -> Run | None:
    """The run to go on with; None where it was killed before it had begun, and is to be started."""
    from warpwright.training import run as runs

    folder = out or runs.newest(RUNS)
    if not folder.exists():
        raise WarpwrightError(f"{folder}: there is no such folder to resume from; leave --resume out to start a run there")
    if not runs.exists(folder):
        return None
    name = None if config is None else Path(config).stem
    return runs.resume(folder, {**asked, "data": data, "kernels": kernels, "seed": seed, "recipe.matmul": precision, "name": name})


def _show(run: Run) -> None:
    """Train with a progress bar, or where the output is no terminal a line at each measurement; then say what came of it."""
    from rich.console import Console

    from warpwright.training import loop

    console, training = Console(), run.settings.training
    console.print(f"[bold]{run.folder}[/]: {run.name}, {run.settings.recipe.matmul}, {run.kernels} kernels, {training.steps} steps "
                  f"of {training.batch} × {training.sequence} tokens", highlight=False, soft_wrap=True)
    records = loop.train(run, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False, soft_wrap=True))
    draw = _bar if console.is_terminal else _lines
    _conclude(draw(records, training.steps, console), console)


def _bar(records: Iterator[dict[str, Any]], total: int, console: Console) -> dict[str, Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.description}, ETA"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console) as progress:
        task, bits = progress.add_task("…", total=total), None
        for record in records:
            if record.get("final"):
                return record
            bits = record.get("bits_per_byte", bits)
            progress.update(task, completed=record["step"] + 1, description=_line(record, bits))
    raise AssertionError("the loop ends with a final record")


def _lines(records: Iterator[dict[str, Any]], total: int, console: Console) -> dict[str, Any]:
    bits = None
    for record in records:
        if record.get("final"):
            return record
        step, bits = record["step"] + 1, record.get("bits_per_byte", bits)
        if "bits_per_byte" in record or step == total:
            left = (total - step) * record["seconds"]
            console.print(f"step {step}/{total}: {_line(record, bits)}, ETA {left:.0f} s", highlight=False, soft_wrap=True)
    raise AssertionError("the loop ends with a final record")


def _line(record: dict[str, Any], bits: float | None) -> str:
    measured = f", val {bits:.3f} bits/byte" if bits is not None else ""
    return f"loss {record['loss']:.3f}{measured}, {record['tokens_per_s']:,.0f} tokens/s"


def _conclude(final: dict[str, Any], console: Console) -> None:
    """The sample, the table of kernels, the bits per byte, and where the report is."""
    from rich.markup import escape
    from rich.panel import Panel

    from warpwright.training.report import duration

    console.print(Panel(escape(final["sample"].rstrip()), title="a sample of the trained model", title_align="left"), highlight=False)
    if final["kernels"]:
        console.print(kernel_table("PTX kernels in the steps", final["kernels"], final["step_seconds"]))
    average = f" (averaged weights: {final['bits_per_byte_average']:.3f})" if final["bits_per_byte_average"] is not None else ""
    console.print(f"validation bits per byte: {final['bits_per_byte_first']:.3f} → {final['bits_per_byte_last']:.3f}{average} "
                  f"in {final['steps']} steps, {duration(final['seconds'])}", highlight=False, soft_wrap=True)
    console.print(f"report: {final['report']}", highlight=False, soft_wrap=True)


def kernel_table(title: str, kernels: dict[str, Any], step_seconds: float) -> Table:
    """Launches, time and share of the steps' time of each kernel, the longest first. kernels: name → (launches, seconds)."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("kernel", overflow="fold")
    for heading in ("launches", "time", "of the steps"):
        table.add_column(heading, justify="right")
    rows = sorted(kernels.items(), key=lambda row: -row[1][1])
    rows.append(("all", [sum(launches for _, (launches, _) in rows), sum(seconds for _, (_, seconds) in rows)]))
    for i, (name, (launches, seconds)) in enumerate(rows):
        table.add_row(name, f"{launches:,}", f"{seconds:.2f} s", f"{seconds / max(step_seconds, 1e-9):.1%}", end_section=i == len(rows) - 2)
    return table
