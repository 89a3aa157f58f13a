"""`warpwright export`: a trained run as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpwright.errors import WarpwrightError


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, as `warpwright train` made it.")],
    to: Annotated[Path, typer.Option(help="A new or empty folder.")],
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    average: Annotated[bool, typer.Option("--average", help="Take the moving average of the weights.")] = False,
) -> None:
    """Write a run's newest checkpoint as safetensors with DeepSeek-V3's names, for transformers' DeepseekV3ForCausalLM."""
    if dtype not in ("bf16", "fp32"):
        raise WarpwrightError(f"--dtype {dtype}: there are: bf16, fp32")
    from warpwright.training import export as exporting
    from warpwright.training import generate as sampling
    from warpwright.training import run as runs

    source = runs.load(run)
    exporting.hf_config(source.settings.model, dtype)  # refuses before anything is read
    model, words = sampling.load_model(source, "torch", average)
    for file in exporting.export(model, source, words.end_of_text, to, dtype):
        print(file)
