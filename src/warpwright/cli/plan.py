"""`warpwright plan`: what a model costs, by arithmetic."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(help="Plan a training run: for now, counts of a model, and what failures cost.", no_args_is_help=True)


@app.callback()
def plan() -> None:
    pass


@app.command("model")
def model(
    name: Annotated[str, typer.Argument(help="A preset, as deepseek-v3-671b, or a Hugging Face config.json.")],
    sequence: Annotated[int, typer.Option(help="Tokens in a training sequence.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Parameters by part, and FLOPs a token."""
    from warpwright.planning import count, load

    counts = count(load(name), sequence)
    if as_json:
        print(json.dumps({
            "parameters": counts.parts, "total": counts.total, "active": counts.active, "mtp": counts.mtp,
            "train_flops_per_token_causal": counts.train_flops(), "train_flops_per_token_full": counts.train_flops(causal=False)}))
        return
    for part, size in [*counts.parts.items(), ("total", counts.total), ("used by a token", counts.active), ("multi-token prediction", counts.mtp)]:
        if size:
            print(f"{part:24}{size:>20,}")
    causal, full = counts.train_flops() / 1e9, counts.train_flops(causal=False) / 1e9
    print(f"training: {causal:.2f} GFLOP a token (causal), {full:.2f} (non-causal), at {sequence:,} tokens")


@app.command("reliability")
def reliability(
    gpus: Annotated[int, typer.Option(help="GPUs of the run.")],
    mtbf_hours: Annotated[float, typer.Option(help="Hours that one GPU, with its share of the server and network, runs between failures.")],
    checkpoint: Annotated[float, typer.Option(help="Seconds that a checkpoint stops the training.")],
    restart: Annotated[float, typer.Option(help="Seconds from a failure until training runs again.")] = 600.0,
) -> None:
    """Failures a day, checkpoint interval (Young) and effective throughput (Daly)."""
    from warpwright.planning.reliability import reliability

    found = reliability(gpus, mtbf_hours, checkpoint, restart)
    print(f"failures a day        {found.failures_per_day:.2f}")
    print(f"checkpoint every      {found.interval_seconds:,.0f} s of training")
    print(f"effective throughput  {found.efficiency:.1%}")
