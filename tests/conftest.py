"""One thread in each test process, torch's and those of the commands that tests start: the tests themselves run side by side.

`--long` runs what takes too long for every day, marked `@pytest.mark.long`, too.

`--record-forms FILE` writes which forms of the instruction table the tests run, for docs/coverage.md (see `warpwright.cpu.coverage`).
"""

import json
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")
    parser.addoption("--record-forms", metavar="FILE", help="write the instruction forms that the tests run to FILE.*, one file a process")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long: runs with --long"))


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes too long for every day; runs with --long")
    path = config.getoption("--record-forms")
    if not path:
        return
    os.environ["WARPWRIGHT_CACHE"] = ""  # kernels from the cache are not looked at
    from warpwright.ptx import isa

    found, match = set(), isa.match

    def recording(instruction):
        result = match(instruction)
        found.add((instruction.opcode, result.entry.forms.index(result.form)))
        return result

    isa.match = recording  # both engines ask it what an instruction means
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")

    def write():
        with open(f"{path}.{worker}", "w") as file:
            json.dump(sorted(found), file)

    config.add_cleanup(write)
