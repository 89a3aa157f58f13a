"""`warpwright kernels`: the kernel library, and what ptxas says of it."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

TARGETS = ("sm_80", "sm_90a")


def kernels(
    name: Annotated[str | None, typer.Argument(help="Only kernels whose name has this in it.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Assemble for this target. Repeatable (default: sm_80 and sm_90a).")] = None,
    show_ptx: Annotated[bool, typer.Option("--ptx", help="Print the kernels' PTX instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a variant.")] = False,
) -> None:
    """List the kernel library: each kernel's variants by target, with the registers, shared memory and spills that ptxas gives them."""
    from warpwright import gpu
    from warpwright.errors import WarpwrightError
    from warpwright.kernels import registry

    library = {key: kernel for key, kernel in registry.all_kernels().items() if name is None or name in key}
    if not library:
        raise WarpwrightError(f"there is no kernel with '{name}' in its name; there are: {', '.join(registry.KERNELS)}")
    targets = tuple(target or TARGETS)
    if show_ptx:
        for kernel in library.values():
            for built in kernel.variants().values():
                print(built.ptx(max(targets, key=architecture)))
        return
    try:
        gpu.find_ptxas()
        why_not = ""
    except WarpwrightError as error:
        why_not = str(error)
        print(f"warpwright: {why_not}; kernels are listed without registers and spills", file=sys.stderr)
    rows = [row for key, kernel in library.items() for variant, built in kernel.variants().items()
            for row in assembled(key, kernel.summary, variant, built, targets, bool(why_not))]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        show(rows)


def assembled(name: str, summary: str, variant: str, kernel: Any, targets: tuple[str, ...], listed_only: bool) -> list[dict[str, Any]]:
    """One row a target that the variant is for: its name, registers a thread, shared bytes a CTA, bytes of spills, and what ptxas says."""
    from warpwright import gpu
    from warpwright.errors import PtxError

    rows = []
    for target in targets:
        row: dict[str, Any] = {"kernel": name, "summary": summary, "variant": variant, "target": target, "block": list(kernel.block)}
        if architecture(target) < architecture(kernel.min_target):
            continue
        if not listed_only:
            try:
                result = gpu.assemble(kernel.ptx(target), target)
                used = result.kernels[kernel.name]
                row |= {"registers": used.registers, "shared": used.shared, "spills": used.spills, "ptxas": "; ".join(result.notes) or "ok"}
            except PtxError as error:
                row["ptxas"] = str(error)
        rows.append(row)
    return rows


def architecture(target: str) -> int:
    """The number in a target's name: 90 of sm_90a."""
    return int("".join(filter(str.isdigit, target)) or 0)


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, a line a variant: "22 / 32" are the numbers of its targets."""
    import shutil

    from rich.console import Console
    from rich.table import Table

    targets = list(dict.fromkeys(row["target"] for row in rows))
    variants: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        variants.setdefault((row["kernel"], row["variant"]), {})[row["target"]] = row
    title = f"{len({name for name, _ in variants})} kernels, {len(variants)} variants, as ptxas assembles them for {' / '.join(targets)}"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for heading in ("kernel", "variant"):
        table.add_column(heading, no_wrap=True)
    for heading in ("threads", "registers", "shared bytes", "spilled bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ptxas")
    last = None
    for (name, variant), by_target in variants.items():
        found = list(by_target.values())
        numbers = [" / ".join(str(row.get(key, "")) for row in found) for key in ("registers", "shared", "spills")]
        says = "; ".join(dict.fromkeys(row["ptxas"] for row in found if "ptxas" in row))
        if set(by_target) != set(targets):
            says = f"{', '.join(by_target)} only: {says}"
        block = found[0]["block"]
        table.add_row(name if name != last else "", variant, str(block[0] * block[1] * block[2]), *numbers, says)
        last = name
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(140, shutil.get_terminal_size().columns))
    console.print(table)
