"""`warpwright ptx agree`: do our verifier and ptxas judge alike? For those who work on the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Annotated

import typer


def agree(
    count: Annotated[int, typer.Option(help="Cases of each sort: as many legal ones, and as many with one thing changed.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    show: Annotated[int, typer.Option(help="Disagreements to print.")] = 20,
    kind: Annotated[str | None, typer.Option(help="Print disagreements of this kind only.")] = None,
    workers: Annotated[int, typer.Option(help="Processes of ptxas at once.")] = 2,
) -> None:
    """Make random PTX from the tables, put it to our verifier and to ptxas, and count where they agree. For work on Warpwright itself."""
    from rich.console import Console
    from rich.table import Table

    from warpwright.gpu.agreement import compare

    outcomes = compare(count, seed, workers)
    table = Table("kind", "cases", "ptxas accepts", "agree", "we accept, ptxas not", "ptxas accepts, we not")
    tally: dict[str, Counter] = defaultdict(Counter)
    for outcome in outcomes:
        for name in (outcome.case.kind, "all changed" if outcome.case.kind != "legal" else "all legal"):
            tally[name].update(all=1, accepted=outcome.theirs is None, agree=outcome.agree, lax=outcome.ours is None and not outcome.agree,
                               strict=outcome.theirs is None and not outcome.agree)
    for name, found in tally.items():
        table.add_row(name, f"{found['all']:,}", f"{found['accepted']:,}", f"{found['agree'] / found['all']:.2%}", str(found["lax"]),
                      str(found["strict"]))
    console = Console(highlight=False)
    console.print(table)
    for outcome in [one for one in outcomes if not one.agree and kind in (None, one.case.kind)][:show]:
        print(f"── {outcome.case.kind}, {outcome.case.target}, PTX {outcome.case.version}: {outcome.case.short}")
        print(f"   ours:  {outcome.ours or 'accepted'}\n   ptxas: {outcome.theirs or 'accepted'}")
