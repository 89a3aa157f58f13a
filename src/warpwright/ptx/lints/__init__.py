"""What ptxas accepts and no kernel author wants: `lint(module)` finds it without running the module.

Each lint is a function over a `Graph` that yields Findings, registered under its name. A finding is meant to be a defect: where a lint
cannot know, it says nothing. docs/lints.md shows each with an example.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpwright.errors import PtxError
from warpwright.ptx import tree
from warpwright.ptx.lints import asynchrony, barriers, memory, registers  # noqa: F401  each registers its lints
from warpwright.ptx.lints.graph import Graph
from warpwright.ptx.lints.registry import LINTS, Finding, Lint

__all__ = ["LINTS", "Finding", "Lint", "lint"]


def lint(module: tree.Module, only: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[Finding]:
    """What the lints find in a legal module, in source order. only: names of the lints to run, or "all"; where it is empty, those that
    run by default do. ignore: names of lints that do not run.

    Raises PtxError where there is no lint of a name, and where the module is not legal PTX (see `ptx.verify`).
    """
    for name in (*only, *ignore):
        if name not in LINTS and name != "all":
            raise PtxError(f"there is no lint '{name}'; there are: {', '.join(LINTS)}, and all")
    named = set(LINTS if "all" in only else only) or {name for name, one in LINTS.items() if one.default}
    chosen = [LINTS[name] for name in LINTS if name in named and name not in ignore]
    found: set[Finding] = set()
    for item in module.items:
        if isinstance(item, tree.Function) and item.body is not None:
            graph = Graph(module, item)
            for one in chosen:
                found.update(one.find(graph))
    return sorted(found, key=lambda finding: (finding.line or 0, finding.column or 0, finding.lint))
