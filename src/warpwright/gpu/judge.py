"""ptxas as a judge of many pieces of PTX at once.

Pieces for one target and version go into one module, each on lines of its own. What ptxas complains of by line is taken out and the rest is put to
it again, until a module assembles as a whole: so each piece that passes has passed all of ptxas, and one that fails has its own complaint.
"""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from warpwright.gpu.assemble import find_ptxas

_COMPLAINT = re.compile(r"^ptxas .*?, line (\d+); (error|fatal)\s*: (.*)$", re.M)
CRASH = "a crash: "  # begins the verdict of a piece that ptxas itself fails on
_SECONDS = 60  # for one module
_MEMORY = 8_000_000_000  # bytes


def judge(header: str, pieces: list[str], target: str) -> list[str | None]:
    """What ptxas says of each piece after the header: None where it accepts it, else its first complaint."""
    verdicts: list[str | None] = [None] * len(pieces)
    todo = list(range(len(pieces)))
    while todo:
        starts, line = [], header.count("\n") + 1
        for i in todo:
            starts.append(line)
            line += pieces[i].count("\n")
        said = _assemble(header + "".join(pieces[i] for i in todo), target)
        if said is None:
            break
        found: dict[int, str] = {}
        for complaint in _COMPLAINT.finditer(said):
            place = sum(start <= int(complaint[1]) for start in starts) - 1
            if place >= 0:
                found.setdefault(todo[place], (CRASH if "(C73" in complaint[3] else "") + complaint[3])
                if complaint[2] == "fatal" and len(todo) > 1:  # it may stem from a macro that another piece made ptxas expand: ask again
                    alone = judge(header, [pieces[todo[place]]], target)[0]
                    if alone is None:
                        found.clear()
                        break
        if found:
            for i, message in found.items():
                verdicts[i] = message
            todo = [i for i in todo if i not in found]
        elif len(todo) == 1:
            crashed = "Internal compiler error" in said or "(C73" in said or said.startswith("ptxas ended with code -")
            verdicts[todo[0]] = (CRASH if crashed else "") + " ".join(said.split())[:300] or "failed without a word"
            break
        else:  # a complaint without a line: halves
            half = len(todo) // 2
            for part in (todo[:half], todo[half:]):
                for i, verdict in zip(part, judge(header, [pieces[i] for i in part], target), strict=True):
                    verdicts[i] = verdict
            break
    return verdicts


def judge_all(batches: Iterable[tuple[str, list[str], str]], workers: int, each: Callable[[list[str | None]], None]) -> None:
    """`judge` of each batch (header, pieces, target), several at once; `each` gets the verdicts in the batches' order."""
    with ThreadPoolExecutor(workers) as pool:
        for verdicts in pool.map(lambda batch: judge(*batch), list(batches)):
            each(verdicts)


def _assemble(text: str, target: str) -> str | None:
    """What ptxas complains of, or None. A target that this ptxas makes no code for any more is judged on the oldest that it does."""
    number = int(re.sub(r"\D", "", target))
    architecture = target if number >= 75 else "sm_75"
    try:
        ran = subprocess.run([find_ptxas().path, f"-arch={architecture}", "-c", "-O0", "-w", "-o", "/dev/null", "-"], input=text.encode("utf-8",
            "surrogateescape"),
                             capture_output=True, timeout=_SECONDS, preexec_fn=_limit)
    except subprocess.TimeoutExpired:
        return "ptxas ran out of time"
    said = (ran.stdout + ran.stderr).decode("utf-8", "replace")
    return None if ran.returncode == 0 else said or f"ptxas ended with code {ran.returncode}"


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
