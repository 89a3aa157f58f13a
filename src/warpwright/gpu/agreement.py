"""Our verifier's verdicts beside ptxas' on random PTX."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warpwright.gpu.judge import CRASH, judge, judge_all
from warpwright.ptx.fuzz import Case, Fuzzer, header
from warpwright.ptx.verifier import diagnose

_BATCH = 120  # cases a module


@dataclass(frozen=True)
class Outcome:
    """A case with both verdicts: None where it was accepted, else the complaint."""

    case: Case
    ours: str | None
    theirs: str | None

    @property
    def agree(self) -> bool:
        """A crash of ptxas is no verdict, and agrees with any."""
        return (self.ours is None) == (self.theirs is None) or (self.theirs or "").startswith(CRASH)


def compare(count: int, seed: int, workers: int = 2) -> list[Outcome]:
    """`count` legal cases and `count` changed ones, judged by both."""
    fuzzer = Fuzzer(seed)
    cases = [*fuzzer.cases(count, mutated=False), *fuzzer.cases(count, mutated=True)]
    groups: dict[tuple[str, str, bool], list[Case]] = defaultdict(list)
    for case in cases:  # declarations apart: their complaints are more often about the whole module
        groups[case.target, case.version, case.kind == "declaration"].append(case)
    batches = [group[i : i + _BATCH] for group in groups.values() for i in range(0, len(group), _BATCH)]
    theirs: dict[int, str | None] = {}
    rest = iter(batches)

    def take(verdicts: list[str | None]) -> None:
        theirs.update((id(case), verdict) for case, verdict in zip(next(rest), verdicts, strict=True))

    judge_all(((header(batch[0]), [case.text for case in batch], batch[0].target) for batch in batches), workers, take)
    outcomes = [Outcome(case, ours(case), theirs[id(case)]) for case in cases]
    with ThreadPoolExecutor(workers) as pool:  # a complaint may have been about a neighbour in the module: disagreements are judged alone
        return list(pool.map(lambda outcome: outcome if outcome.agree else alone(outcome), outcomes))


def alone(outcome: Outcome) -> Outcome:
    """An outcome with ptxas' verdict on the case in a module of its own."""
    case = outcome.case
    return Outcome(case, outcome.ours, judge(header(case), [case.text], case.target)[0])


def ours(case: Case) -> str | None:
    """Our verifier's first complaint of a case."""
    _, problems = diagnose(header(case) + case.text)
    return str(problems[0]) if problems else None
