"""`warpwright ptx fmt`: PTX in the one canonical layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def fmt(
    files: Annotated[list[Path], typer.Argument(help="PTX files.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a file is laid out otherwise.")] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help="Write to the files themselves.")] = False,
) -> None:
    """Print PTX files in the canonical layout. Comments are dropped, and constants are folded; what a file means stays."""
    from warpwright import ptx
    from warpwright.cli.ptx import read_source

    different = False
    for file in files:
        text = read_source(file)
        tidy = str(ptx.parse(text, str(file)))
        if check:
            if tidy != text:
                different = True
                print(f"{file}: would change")
        elif in_place:
            if tidy != text:
                file.write_text(tidy)
        else:
            sys.stdout.write(tidy)
    if different:
        raise typer.Exit(1)
