"""`warpwright kernels`: the kernel library, and what ptxas says of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def kernels(
    name: Annotated[str | None, typer.Argument(help="Only kernels whose name has this in it.")] = None,
    target: Annotated[str | None, typer.Option(help="Only this target, such as sm_90a.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a variant.")] = False,
) -> None:
    """List the kernel library: each kernel's variants by target, registers, shared memory, spills, as ptxas assembles them."""
    raise NotImplementedError
