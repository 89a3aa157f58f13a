"""`warpwright ptx docs`: the table of instructions, as a reference."""

from __future__ import annotations

from typing import Annotated

import typer


def docs(instruction: Annotated[str | None, typer.Argument(help="An opcode, such as fma; all are listed without it.")] = None) -> None:
    """Show an instruction's syntax, and the PTX version and target it needs; or list all instructions."""
    import difflib

    from warpwright.errors import WarpwrightError
    from warpwright.ptx import isa
    from warpwright.ptx.isa.table import operands_text, syntax
    from warpwright.ptx.targets import describe

    if instruction is None:
        for opcode, entry in sorted(isa.TABLE.items()):
            print(f"{opcode:22} {entry.meaning}")
        return
    found = isa.TABLE.get(instruction.partition(".")[0])
    if found is None:
        close = difflib.get_close_matches(instruction, isa.TABLE, 3)
        raise WarpwrightError(f"there is no instruction '{instruction}'" + (f"; did you mean {' or '.join(close)}?" if close else ""))
    print(f"{found.opcode}: {found.meaning}")
    for form in found.forms:
        need = form.need
        needs = f"PTX {need.ptx[0]}.{need.ptx[1]}, {describe(need)}" if need.ptx > (1, 0) or need.sm > 10 or need.among else ""
        more = "; ".join(part for part in (needs, "" if form.runs else "the virtual GPU does not run it") if part)
        operands = operands_text(form)
        print(f"  {syntax(found.opcode, form)} {'' if operands == '(none)' else operands};" + (f"    // {more}" if more else ""))
