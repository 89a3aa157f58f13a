"""`warpwright kernels`: the kernel library, variant by variant, and what ptxas says of each."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from warpwright.errors import WarpwrightError


def kernels(
    target: Annotated[list[str] | None, typer.Option(help="Assemble for these targets (default: sm_80 and sm_90a).")] = None,
    name: Annotated[str | None, typer.Option(help="Only kernels whose name holds this.")] = None,
    assemble: Annotated[bool, typer.Option(help="Ask ptxas for registers, shared memory and spills.")] = True,
    source: Annotated[str | None, typer.Option(help="Print the PTX of `KERNEL` or `KERNEL/VARIANT` instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a variant and target.")] = False,
) -> None:
    """List the kernel library: each kernel's variants, their oldest target, registers, shared memory and spills."""
    from rich.console import Console
    from rich.table import Table

    from warpwright import gpu
    from warpwright.kernels.registry import all_kernels

    library = {key: kernel for key, kernel in all_kernels().items() if name is None or name in key}
    targets = target or ["sm_80", "sm_90a"]
    if source is not None:
        print(_source(library, source, target[0] if target else None))
        return
    if not library:
        raise WarpwrightError(f"no kernel's name holds '{name}'; there are: {', '.join(all_kernels())}")
    tool = None
    if assemble:
        try:
            tool = gpu.find_ptxas()
        except WarpwrightError as error:
            typer.echo(f"note: {error}", err=True)
    table = Table("kernel", "variant", "from", "target", "registers", "shared", "spills", "ptxas says", title=_title(tool))
    for key, kernel in library.items():
        for variant, built in kernel.variants().items():
            for where in targets:
                row: dict[str, object] = {"kernel": key, "variant": variant, "min_target": built.min_target, "target": where}
                if _number(where) < _number(built.min_target):
                    row["says"] = f"needs {built.min_target}"
                elif tool:
                    done = gpu.assemble(built.ptx(target=where), where)
                    cost = done.kernels[built.name]
                    row |= {"registers": cost.registers, "shared": cost.shared, "spills": cost.spills,
                            "says": "; ".join(done.notes) or "ok"}
                if as_json:
                    print(json.dumps(row))
                shown = (str(row.get(column, "")) for column in ("registers", "shared", "spills", "says"))
                table.add_row(key, variant, built.min_target, where, *shown)
    if not as_json:
        Console().print(table)


def _title(tool) -> str:
    return f"ptxas {tool.version[0]}.{tool.version[1]}: registers a thread, shared memory and spills in bytes" if tool else "no ptxas"


def _number(target: str) -> int:
    found = re.match(r"sm_(\d+)", target)
    if not found:
        raise WarpwrightError(f"'{target}' is no target; write one such as sm_90a")
    return int(found[1])


def _source(library, wanted: str, target: str | None) -> str:
    key, _, variant = wanted.partition("/")
    if key not in library:
        raise WarpwrightError(f"there is no kernel '{key}'; there are: {', '.join(library)}")
    variants = library[key].variants()
    variant = variant or next(iter(variants))
    if variant not in variants:
        raise WarpwrightError(f"kernel '{key}' has no variant '{variant}'; it has: {', '.join(variants)}")
    return variants[variant].ptx(target=target or variants[variant].min_target)
