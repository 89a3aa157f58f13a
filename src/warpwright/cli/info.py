"""`warpwright ptx info`: what a file's kernels use and need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from warpwright.ptx.info import FunctionInfo

_WIDTH = 100


def info(
    files: Annotated[list[Path], typer.Argument(help="PTX files.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a file.")] = False,
) -> None:
    """Say what the kernels in PTX files use and need: registers, memory, parameters, instructions, features, the oldest target and version."""
    from dataclasses import asdict

    from warpwright import ptx
    from warpwright.cli.ptx import read_source
    from warpwright.errors import PtxError
    from warpwright.ptx.info import describe

    for file in files:
        try:
            found = describe(ptx.parse(read_source(file), str(file)))
        except PtxError as error:
            raise PtxError(error.message, error.line, error.column, str(file)) from None
        if as_json:
            print(json.dumps({"file": str(file)} | asdict(found)))
            continue
        print(f"{file}: PTX {_version(found.version)} for {found.target}; PTX {_version(found.least_version)} and {found.least_target} would do")
        if found.global_bytes:
            print(f"  global variables  {found.global_bytes} bytes")
        for function in found.functions:
            _show(function)


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _show(function: FunctionInfo) -> None:
    print(f"\n{'kernel' if function.kernel else 'function'} {function.name}")
    rows = [
        ("parameters", ", ".join(f"{name} .{type_}" + (f" ({size} bytes)" if size > 8 else "") for name, type_, size, _ in function.parameters)),
        ("threads a CTA", f"{'exactly' if function.block[0] == 'reqntid' else 'at most'} {' x '.join(map(str, function.block[1]))}"
         if function.block else ""),
        ("registers", ", ".join(f"{count} .{type_}" for type_, count in sorted(function.registers.items()))
         + (f"; at most {function.pressure} of 32 bits hold values at once" if function.registers else "")),
        ("memory", ", ".join(part for part in (
            f"{function.shared} bytes shared" if function.shared else "", "dynamic shared" if function.dynamic_shared else "",
            f"{function.local} bytes local" if function.local else "", f"{function.constant} bytes constant" if function.constant else "") if part)),
        ("calls", ", ".join(function.calls)),
        ("uses", ", ".join(function.features)),
        ("instructions", f"{function.count}: " + ", ".join(f"{opcode} {count}" for opcode, count in function.instructions.items())),
    ]
    for title, text in rows:
        for i, line in enumerate(_wrap(text)):
            print(f"  {title if not i else '':14}  {line}")


def _wrap(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, _WIDTH, break_long_words=False)
