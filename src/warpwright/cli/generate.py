"""`warpwright generate`: text from a trained run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from warpwright.errors import WarpwrightError


def generate(
    run: Annotated[Path, typer.Option(help="The folder of a run, as `warpwright train` made it.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "",
    tokens: Annotated[int, typer.Option(help="At most so many tokens more.", min=1)] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token every time; 1 draws as the model says.", min=0.0)] = 0.7,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many of the likeliest tokens.", min=1)] = None,
    top_p: Annotated[float, typer.Option(help="Draw among the fewest tokens that together are this likely.", min=0.0, max=1.0)] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = 0,
    average: Annotated[bool, typer.Option("--average", help="Take the moving average of the weights.")] = False,
    kernels: Annotated[str | None, typer.Option(help="ptx or torch (default: what the run was trained with).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: prompt, text.")] = False,
) -> None:
    """Sample text from a run's newest checkpoint, token by token as it is drawn."""
    if kernels not in (None, "ptx", "torch"):
        raise WarpwrightError(f"--kernels {kernels}: there are: ptx, torch")
    from warpwright.training import generate as sampling
    from warpwright.training import run as runs

    model, words = sampling.load_model(runs.load(run), kernels, average)
    shown = ""
    for text in sampling.stream(model, words, prompt, tokens, temperature, top_k, top_p, seed):
        if not as_json:
            sys.stdout.write(text[len(shown):])
            sys.stdout.flush()
        shown = text
    print(json.dumps({"prompt": prompt, "text": shown}) if as_json else "")
