"""What of PTX is there: every form of the instruction table × parsed, verified, run by the interpreter, run by the engine, tested.

Everything is found out, nothing is listed by hand: each form's samples are parsed, judged (by ptxas too, where it is installed), and given to
both engines. What tests run is recorded while they do: `pytest --record-forms FILE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warpwright import gpu, ptx
from warpwright.cpu import codegen
from warpwright.cpu.interpreter.program import Program
from warpwright.errors import WarpwrightError
from warpwright.ptx.isa.table import TABLE, syntax
from warpwright.ptx.samples import Sample, module, samples

_LEGEND = """# Coverage

Every form of every instruction in the table, as `warpwright ptx coverage` finds it:

* **parse**: its samples are read, and print back equal;
* **verify**: the verifier takes them, and ptxas does too;
* **interpreter**, **engine**: the reference interpreter and the compiled engine take them, late completion of asynchronous work included;
  *part* where they refuse some choice of modifiers (by name, before anything runs);
* **tested**: a test of this repository runs it.

A sample is the form with one modifier changed at a time, for the target named. Braces mark what may be left out.
"""


_GROUPS = ("up to sm_90a", "newer than sm_90a", "new in PTX 9.1 to 9.5 (both engines refuse them by name)",
           "textures and surfaces (refused by name)")
_TEXTURES = ("tex", "tld4", "txq", "suq", "suld", "sust", "sured", "istypep")


@dataclass(frozen=True)
class Row:
    """One form. Each mark is the number of samples that pass, of `count`; tested is None where it was not recorded."""

    opcode: str
    form: int
    syntax: str
    count: int
    parse: int
    verify: int
    interpreter: int
    engine: int
    tested: bool | None
    target: str = ""  # of the first sample: the oldest of a few usual targets that has the form

    @property
    def group(self) -> str:
        """Whose form it is, as the page's first table counts them."""
        if not TABLE[self.opcode].forms[self.form].runs:
            return _GROUPS[2]
        if self.opcode in _TEXTURES:
            return _GROUPS[3]
        return _GROUPS[0] if self.count and int(self.target[3:].rstrip("af")) <= 90 else _GROUPS[1]


def rows(opcodes: Iterable[str] = (), tested: set[tuple[str, int]] | None = None, ptxas: bool = True) -> Iterator[Row]:
    """The forms of some opcodes (of none given: of all), in the table's order. ptxas: ask it about one sample of each form."""
    ptxas = ptxas and _has_ptxas()
    for opcode in opcodes or TABLE:
        if opcode not in TABLE:
            raise WarpwrightError(f"there is no instruction '{opcode}'")
        by_form: dict[int, list[Sample]] = {}
        for sample in samples(opcode):
            by_form.setdefault(sample.form, []).append(sample)
        for number, form in enumerate(TABLE[opcode].forms):
            found = by_form.get(number, [])
            modules = [module(sample) for sample in found]
            legal = not ptxas or not found or _assembles(found[0])
            interpreter, engine = sum(map(_interpreted, found)), sum(map(_compiled, found))
            yield Row(opcode, number, syntax(opcode, form), len(found), sum(ptx.parse(str(one)) == one for one in modules),
                      len(found) if legal else 0, interpreter, engine,
                      None if tested is None else (opcode, number) in tested and interpreter + engine > 0, found[0].target if found else "")


def _has_ptxas() -> bool:
    try:
        gpu.find_ptxas()
    except WarpwrightError:
        return False
    return True


def _assembles(sample: Sample) -> bool:
    try:
        gpu.assemble(sample.text, sample.target)
    except WarpwrightError:
        return False
    return True


def _taken(prepare: Callable[[], object], sample: Sample) -> bool:
    """Whether an engine takes a sample. It may refuse; anything else that goes wrong is a defect of ours, and told."""
    try:
        prepare()
    except WarpwrightError:
        return False
    except Exception as error:
        print(f"defect: {sample.instruction}: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    return True


def _interpreted(sample: Sample) -> bool:
    return _taken(lambda: Program(module(sample), "k", dict.fromkeys(("memory", "texture", "surface", "sampler"), 4096)), sample)


def _compiled(sample: Sample) -> bool:
    return _taken(lambda: codegen.compile_kernel(module(sample), "k", (128, 1, 1)), sample)


def read_tested(path: Path) -> set[tuple[str, int]]:
    """What `pytest --record-forms` wrote: a file for each of its processes, PATH.*."""
    found: set[tuple[str, int]] = set()
    for part in sorted(path.parent.glob(path.name + "*")):
        found.update((opcode, form) for opcode, form in json.loads(part.read_text()))
    if not found:
        raise WarpwrightError(f"{path}: no record of tests; make one with 'pytest --record-forms {path}'")
    return found


def document(table: Iterable[Row]) -> str:
    """The rows as the page docs/coverage.md."""
    table = list(table)

    def mark(passed: int, row: Row) -> str:
        return "—" if not row.count else "✓" if passed == row.count else "part" if passed else "✗"

    def tally(title: str, counted: list[Row]) -> str:
        whole = [sum(row.count > 0 and getattr(row, name) == row.count for row in counted) for name in ("parse", "verify", "interpreter", "engine")]
        return f"| {title} | {len(counted)} | {' | '.join(map(str, whole))} | {sum(bool(row.tested) for row in counted)} |"

    lines = [_LEGEND, "| | forms | parse | verify | interpreter | engine | tested |", "|---|--:|--:|--:|--:|--:|--:|",
             *(tally(group, [row for row in table if row.group == group]) for group in sorted({row.group for row in table}, key=_GROUPS.index)), ""]
    opcode = ""
    for row in table:
        if row.opcode != opcode:
            opcode = row.opcode
            lines += ["", f"## {opcode}", "", TABLE[opcode].meaning[0].upper() + TABLE[opcode].meaning[1:] + ".", "",
                      "| form | target | parse | verify | interpreter | engine | tested |", "|---|---|:-:|:-:|:-:|:-:|:-:|"]
        written = row.syntax if len(row.syntax) <= 160 else row.syntax[:159] + "…"
        written = written.replace("|", "\\|")
        marks = [mark(getattr(row, name), row) for name in ("parse", "verify", "interpreter", "engine")]
        marks.append("" if row.tested is None else "✓" if row.tested else "✗")
        lines.append(f"| `{written}` | {row.target} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"
