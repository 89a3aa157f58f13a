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
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "def ",
    tokens: Annotated[int, typer.Option(help="At most so many tokens more.")] = 200,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token every time; 1 draws as the model says.")] = 0.7,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many of the likeliest tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Draw among the fewest tokens that together are this likely.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = 0,
    average: Annotated[bool, typer.Option("--average", help="Take the moving average of the weights.")] = False,
    kernels: Annotated[str | None, typer.Option(help="ptx or torch. [default: what the run was trained with]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: prompt, text, tokens.")] = False,
) -> None:
    """Sample text from a run, token by token as it is drawn."""
    if tokens < 1 or temperature < 0 or (top_k is not None and top_k < 1) or not 0 < top_p <= 1:
        raise WarpwrightError("--tokens and --top-k must be at least 1, --temperature 0 or more, --top-p above 0 and at most 1")
    if kernels not in (None, "ptx", "torch"):
        raise WarpwrightError(f"--kernels {kernels}: there are ptx and torch")
    from warpwright.training import generate as sampling
    from warpwright.training import run as runs

    model, words = sampling.load_model(runs.load(run), kernels, average)
    ids = words.encode(prompt) or [words.end_of_text]
    drawn, shown = list(ids), prompt
    if not as_json:
        _write(prompt)
    for token in sampling.continuation(model, words, ids, tokens, temperature, top_k, top_p, seed):
        drawn.append(token)
        text = words.decode(drawn).rstrip("\N{REPLACEMENT CHARACTER}")  # a character whose last bytes are still to come
        if not as_json:
            _write(text[len(shown):])
        shown = text
    if as_json:
        print(json.dumps({"prompt": prompt, "text": shown, "tokens": len(drawn) - len(ids)}))
    else:
        _write("\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
