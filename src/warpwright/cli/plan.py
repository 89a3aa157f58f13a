"""`warpwright plan`: what a model costs, by arithmetic."""

from __future__ import annotations

import json
from typing import Annotated

import typer

app = typer.Typer(help="Plan a training run: for now, exact parameter and FLOP counts of a model.", no_args_is_help=True)


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
