"""Tables that more than one command prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table


def kernel_table(kernels: Mapping[str, Sequence[float]], total: float) -> Table:
    """The PTX kernels that ran, the longest first. kernels: name → (launches, seconds); total: seconds that the shares are of."""
    table = Table("kernel", title="PTX kernels", title_justify="left")
    for column in ("launches", "time", "of the steps"):
        table.add_column(column, justify="right")
    for name, (launches, seconds) in sorted(kernels.items(), key=lambda item: -item[1][1]):
        table.add_row(name, f"{launches:,}", f"{seconds:.2f} s", f"{seconds / total:.1%}")
    seconds = sum(seconds for _, seconds in kernels.values())
    table.add_section()
    table.add_row("all", f"{sum(launches for launches, _ in kernels.values()):,}", f"{seconds:.2f} s", f"{seconds / total:.1%}")
    return table
