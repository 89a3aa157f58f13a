"""`warpwright bench`: how fast, and compared with what."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from warpwright.errors import WarpwrightError

app = typer.Typer(help="Measure speed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure speed."""


@app.command()
def train(
    config: Annotated[str, typer.Option(help="tiny, small, or a TOML file.")] = "tiny",
    precision: Annotated[str | None, typer.Option(help="fp8, bf16 or fp32. [default: the config's, or fp8]")] = None,
    steps: Annotated[int, typer.Option(help="Steps that count, of each.")] = 10,
    warmup: Annotated[int, typer.Option(help="Steps before that, which do not count (kernels are compiled in them).")] = 2,
    batch: Annotated[int | None, typer.Option(help="Sequences a step.")] = None,
    sequence: Annotated[int | None, typer.Option(help="Tokens a sequence.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights and tokens.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Training steps on PTX kernels and on torch's operations, in turns on the same random tokens: medians, and their ratio."""
    if steps < 1 or warmup < 0:
        raise WarpwrightError("--steps must be at least 1, --warmup at least 0")
    from warpwright.training import settings
    from warpwright.training.bench import compare

    made = settings.load(config, precision, {"training.batch": batch, "training.sequence": sequence, "training.steps": warmup + steps})
    result = compare(made, steps, warmup, seed)
    if as_json:
        print(json.dumps(result))
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from warpwright.cli.tables import kernel_table

    console = Console()
    table = Table("kernels", title=f"{result['config']}, {result['precision']}, {result['batch']} × {result['sequence']} tokens a step, "
                                   f"{result['steps']} steps of each in turns", title_justify="left")
    for column in ("median step", "tokens/s", "fastest", "slowest"):
        table.add_column(column, justify="right")
    for name in ("ptx", "torch"):
        row = result[name]
        table.add_row(name, f"{row['median']:.3f} s", f"{row['tokens_per_s']:,.0f}", f"{row['fastest']:.3f} s", f"{row['slowest']:.3f} s")
    console.print(table)
    console.print(kernel_table(result["kernels"], result["ptx"]["seconds"]))
    console.print(f"ptx over torch: {result['ratio']:.3f} (tokens/s); losses differ by at most {result['loss_difference']:.2e}, relatively",
                  highlight=False)
