"""docs/coverage.md says what is so: its rows are found again for a few instructions, one that all rooms know and one that engines refuse."""

from pathlib import Path

import pytest

from warpwright.cpu.coverage import document, read_tested, rows
from warpwright.errors import WarpwrightError

OPCODES = ("add", "vadd4", "tex", "shfl")
PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def sections(page: str) -> dict[str, list[list[str]]]:
    """opcode → the cells of its rows but for the last, which tests are recorded for."""
    found = {}
    for section in page.split("\n## ")[1:]:
        opcode, *lines = section.splitlines()
        found[opcode] = [[cell.strip() for cell in line.replace("\\|", "¦").split("|")[1:-2]] for line in lines if line.startswith("| `")]
    return found


def test_the_page_is_as_the_table_and_the_engines_are():
    page, now = sections(PAGE.read_text()), sections(document(rows(OPCODES, ptxas=False)))
    assert list(now) == list(OPCODES)
    for opcode in OPCODES:
        assert page[opcode] == now[opcode], f"docs/coverage.md is out of date about {opcode}: 'make docs' writes it anew"


def test_a_row_tells_what_is_refused():
    found = list(rows(["tex"], tested={("tex", 0)}, ptxas=False))
    assert all((row.parse, row.verify, row.interpreter, row.engine, row.tested) == (row.count, row.count, 0, 0, False) for row in found)


def test_a_row_tells_what_runs_and_is_tested():
    synced, old = rows(["shfl"], tested={("shfl", 0)}, ptxas=False)
    assert (synced.interpreter, synced.engine, synced.target, synced.tested) == (synced.count, synced.count, "sm_90", True)
    assert (old.interpreter, old.engine, old.target, old.tested) == (old.count, old.count, "sm_75", False)


def test_an_unknown_instruction_and_a_missing_record_are_refused(tmp_path):
    with pytest.raises(WarpwrightError, match="there is no instruction 'fro'"):
        list(rows(["fro"]))
    with pytest.raises(WarpwrightError, match="no record of tests; make one with 'pytest --record-forms"):
        read_tested(tmp_path / "forms")
