"""The published schedules: one row of `KNOWN` each, with its layout's rules, its order and its bubble's formula.

Stages are slices of the model. With `--stages P` the model is cut into P stages; GPipe, 1F1B, ZB1P and DualPipe put them on P ranks (DualPipe two
on each rank: stage r and stage P−1−r), DualPipeV and ZB-V fold them in a V over P/2 ranks, interleaved 1F1B deals them in turn to P/chunks ranks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from warpwright.errors import ScheduleError
from warpwright.pipeline.actions import Action, B, F, I, W, pair
from warpwright.pipeline.schedule import Schedule
from warpwright.pipeline.simulate import Times


class Writer:
    """Writes one rank's order. Chunks are the rank's stages; each chunk takes its micro-batches in turn, and W comes in the order that I did."""

    def __init__(self, *stages: int, first: tuple[int, ...] = ()):
        self.stages = stages
        self.first = first or (0,) * len(stages)
        self.seen: Counter[tuple[int, str]] = Counter()
        self.owed: deque[Action] = deque()
        self.order: list[Action] = []

    def next(self, kind: str, chunk: int, counted_as: str = "") -> Action:
        key = (chunk, counted_as or kind)
        self.seen[key] += 1
        return Action(kind, self.stages[chunk], self.first[chunk] + self.seen[key] - 1)

    def forward(self, chunk: int = 0) -> None:
        self.order.append(self.next(F, chunk))

    def backward(self, chunk: int = 0, split: bool = False) -> None:
        """The full backward, or (split) the one for the input, which owes the one for the weights."""
        action = self.next(I if split else B, chunk, counted_as=B)
        self.order.append(action)
        if split:
            self.owed.append(action)

    def weights(self, chunk: int | None = None) -> None:
        """The oldest backward for the weights that is owed, if any: of any chunk, or of this one."""
        owed = next((one for one in self.owed if chunk is None or one.stage == self.stages[chunk]), None)
        if owed:
            self.owed.remove(owed)
            self.order.append(Action(W, owed.stage, owed.microbatch))

    def overlapped(self, forward: int, backward: int) -> None:
        """The forward of one chunk with the full backward of the other."""
        self.order.append(pair(self.next(F, forward), self.next(B, backward)))


def straight(stages: int) -> tuple[tuple[int, ...], ...]:
    """A stage a rank."""
    return (tuple(range(stages)),)


def folded(stages: int) -> tuple[tuple[int, ...], ...]:
    """A V: rank r has stage r and stage P−1−r."""
    return (tuple(min(stage, stages - 1 - stage) for stage in range(stages)),)


def looped(stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Dealt in turn: rank r has the stages r, r + R, r + 2R, …"""
    return (tuple(stage % (stages // chunks) for stage in range(stages)),)


def both_ways(stages: int) -> tuple[tuple[int, ...], ...]:
    """Two directions: rank r has stage r of the one and stage P−1−r of the other."""
    return (tuple(range(stages)), tuple(reversed(range(stages))))


def gpipe(stages: int, microbatches: int, chunks: int) -> Schedule:
    """All forwards, then all backwards (Huang et al., arXiv 1811.06965)."""
    orders = []
    for rank in range(stages):
        orders.append(tuple(Action(kind, rank, microbatch) for kind in (F, B) for microbatch in range(microbatches)))
    return Schedule("gpipe", microbatches, straight(stages), tuple(orders))


def one_f_one_b(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Rank r runs P−1−r forwards ahead, then one forward, one backward (Narayanan et al., arXiv 2104.04473, §2.2)."""
    orders = []
    for rank in range(stages):
        writer = Writer(rank)
        ahead = min(stages - 1 - rank, microbatches)
        for _ in range(ahead):
            writer.forward()
        for _ in range(microbatches - ahead):
            writer.forward()
            writer.backward()
        for _ in range(ahead):
            writer.backward()
        orders.append(tuple(writer.order))
    return Schedule("1f1b", microbatches, straight(stages), tuple(orders))


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B over several stages a rank: a group of about R micro-batches passes one chunk, then the next (arXiv 2104.04473, §2.2).

    As in torch, a group is microbatches / rounds, where rounds = microbatches // ranks.
    """
    ranks = stages // chunks
    group = microbatches // max(1, microbatches // ranks)
    total = chunks * microbatches
    orders = []
    for rank in range(ranks):
        writer = Writer(*range(rank, stages, ranks))
        ahead = min((chunks - 1) * group + 2 * (ranks - 1 - rank), total)
        for step in range(total + ahead):
            if step < total:
                writer.forward(step // group % chunks)
            if step >= ahead:
                writer.backward(chunks - 1 - (step - ahead) // group % chunks)
        orders.append(tuple(writer.order))
    return Schedule("interleaved-1f1b", microbatches, looped(stages, chunks), tuple(orders))


def zb1p(stages: int, microbatches: int, chunks: int) -> Schedule:
    """1F1B with the backward split; rank r lags r backwards for the weights behind and fills its bubble with them (ZB-H1, arXiv 2401.10241)."""
    orders = []
    for rank in range(stages):
        writer = Writer(rank)
        ahead = min(stages - 1 - rank, microbatches)
        for step in range(microbatches + ahead):
            if step < microbatches:
                writer.forward()
            if step >= ahead:
                writer.backward(split=True)
                if step - ahead >= rank:
                    writer.weights()
        while writer.owed:
            writer.weights()
        orders.append(tuple(writer.order))
    return Schedule("zb1p", microbatches, straight(stages), tuple(orders))


def zb_v(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Zero bubble over a V of two chunks a rank, in the activations of 1F1B (Qi et al., arXiv 2405.15362)."""
    ranks = stages // 2
    enough = max(microbatches, stages - 1)  # below this, the order of more micro-batches with the missing ones left out
    orders = []
    for rank in range(ranks):
        writer = Writer(rank, stages - 1 - rank)

        def both(chunk: int, writer: Writer = writer) -> None:
            writer.backward(chunk, split=True)
            writer.weights()

        for _ in range(2 * (ranks - rank) - 1):
            writer.forward(0)
        for _ in range(rank):
            writer.forward(1)
            writer.forward(0)
        for _ in range(ranks - rank):
            writer.forward(1)
            both(1)
        while writer.seen[1, F] < enough:
            if writer.seen[0, F] < enough:
                writer.forward(0)
            both(0)
            writer.forward(1)
            both(1)
        for _ in range(rank):
            writer.backward(0, split=True)
            writer.backward(1, split=True)
        for _ in range(ranks - rank):
            writer.backward(0, split=True)
            writer.weights(0)
        for chunk in (1, 0):
            for _ in range(ranks):
                writer.weights(chunk)
        orders.append(tuple(action for action in writer.order if action.microbatch < microbatches))
    return Schedule("zb-v", microbatches, folded(stages), tuple(orders))


def dual(writer: Writer, ranks: int, rank: int, microbatches: int) -> tuple[Action, ...]:
    """The order of rank `rank` of a V of `ranks` (DeepSeek's DualPipeV), where each of its two chunks gets `microbatches`.

    DualPipe is the same: its rank r and its rank 2·ranks−1−r do what the V's rank r does, each with its own direction as chunk 0.
    """
    outside = ranks - 1 - rank
    for _ in range(2 * outside):
        writer.forward(0)
    for _ in range(rank + 1):
        writer.forward(0)
        writer.forward(1)
    for _ in range(outside):
        writer.backward(1, split=True)
        writer.weights()
        writer.forward(1)
    for step in range(microbatches - 2 * ranks + rank + 1):
        if step == 0 and outside == 0:  # where the directions meet, the first two are not overlapped: the other ranks wait for the forward
            writer.forward(0)
            writer.backward(1)
        else:
            writer.overlapped(forward=0, backward=1)
        writer.overlapped(forward=1, backward=0)
    for _ in range(outside):
        writer.backward(1)
        writer.overlapped(forward=1, backward=0)
    for step in range(2 * (rank + 1)):  # the second half of them is split: the weights' part waits until nobody waits for this rank
        writer.backward(1 - step % 2, split=step > rank)
    for _ in range(outside):
        writer.weights()
        writer.backward(0, split=True)
    while writer.owed:
        writer.weights()
    return tuple(writer.order)


def dualpipe(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Micro-batches from both ends, forward and backward overlapped (DeepSeek-V3, arXiv 2412.19437, §3.2.1; github.com/deepseek-ai/DualPipe)."""
    half = microbatches // 2
    orders = []
    for rank in range(stages):
        first = (0, half) if rank < stages // 2 else (half, 0)
        near, far = (rank, stages - 1 - rank) if rank < stages // 2 else (stages - 1 - rank, rank)
        orders.append(dual(Writer(near, far, first=first), stages // 2, min(rank, stages - 1 - rank), half))
    return Schedule("dualpipe", microbatches, both_ways(stages), tuple(orders))


def dualpipev(stages: int, microbatches: int, chunks: int) -> Schedule:
    """DualPipe cut in half: a V of two chunks a rank, forward and backward overlapped (Qi et al., "Cut-in-half"; github.com/deepseek-ai/DualPipe)."""
    ranks = stages // 2
    orders = tuple(dual(Writer(rank, stages - 1 - rank), ranks, rank, microbatches) for rank in range(ranks))
    return Schedule("dualpipev", microbatches, folded(stages), orders)


def any_layout(stages: int, microbatches: int, chunks: int) -> None:
    """Every number of stages and micro-batches goes."""


def even(stages: int) -> None:
    if stages % 2:
        legal = f"{stages - 1} or {stages + 1}" if stages > 1 else "2"
        raise ScheduleError(f"stages is {stages}; each rank has two of them, so it must be even: {legal}")


def interleaved_layout(stages: int, microbatches: int, chunks: int) -> None:
    """Stages in equal numbers on each rank, and micro-batches in equal groups."""
    if stages % chunks:
        legal = [stages // chunks * chunks, -(-stages // chunks) * chunks]
        raise ScheduleError(f"stages is {stages}; each rank has {chunks} of them (chunks), so it must be a multiple of {chunks}: "
                            f"{' or '.join(str(one) for one in legal if one)}")
    ranks = stages // chunks
    if not equal_groups(microbatches, ranks):
        below = next(legal for legal in range(microbatches - 1, 0, -1) if equal_groups(legal, ranks))
        above = next(legal for legal in range(microbatches + 1, microbatches + ranks + 1) if equal_groups(legal, ranks))
        raise ScheduleError(f"microbatches is {microbatches}; on {ranks} ranks they go in {microbatches // ranks} equal groups, so {below} or "
                            f"{above} is legal")


def equal_groups(microbatches: int, ranks: int) -> bool:
    """Whether the micro-batches divide into as many equal groups as `ranks` fit into them."""
    return microbatches % max(1, microbatches // ranks) == 0


def folded_layout(stages: int, microbatches: int, chunks: int) -> None:
    """Two stages on each rank."""
    even(stages)


def dualpipev_layout(stages: int, microbatches: int, chunks: int) -> None:
    """Two stages on each rank, and no fewer micro-batches than stages."""
    even(stages)
    if microbatches < stages:
        raise ScheduleError(f"microbatches is {microbatches}; with {stages} stages it must be at least {stages}, to fill the V")


def dualpipe_layout(stages: int, microbatches: int, chunks: int) -> None:
    """Two stages on each rank, and two equal halves of micro-batches, each no fewer than the stages."""
    even(stages)
    if microbatches < 2 * stages or microbatches % 2:
        least = max(2 * stages, microbatches + microbatches % 2)
        raise ScheduleError(f"microbatches is {microbatches}; with {stages} stages it must be even and at least {2 * stages} (half of them enter at "
                            f"each end), so {least} is legal")


@dataclass(frozen=True)
class Known:
    """summary: one line. build, layout: take (stages, microbatches, chunks); layout raises ScheduleError with what would be legal.

    formula: the published bubble of the worst rank in words, and `bubble`, which computes it from (times, ranks); None where none is published.
    """

    summary: str
    build: Callable[[int, int, int], Schedule]
    layout: Callable[[int, int, int], None]
    formula: str
    bubble: Callable[[dict[str, float], int], float]


def one_way(t: dict[str, float], ranks: int) -> float:
    return (ranks - 1) * (t["F"] + t["B"])


KNOWN: dict[str, Known] = {
    "gpipe": Known("all forwards, then all backwards", gpipe, any_layout, "(R−1)(F+B)", one_way),
    "1f1b": Known("one forward, one backward; at most P activations", one_f_one_b, any_layout, "(R−1)(F+B)", one_way),
    "interleaved-1f1b": Known("1F1B over several stages a rank", interleaved, interleaved_layout, "(R−1)(F+B)", one_way),
    "zb1p": Known("1F1B whose bubble is filled with backwards for the weights (ZB-H1)", zb1p, any_layout, "(R−1)(F+B−2W)",
                  lambda t, ranks: (ranks - 1) * (t["F"] + t["B"] - 2 * t["W"])),
    "zb-v": Known("zero bubble over a V of two stages a rank", zb_v, folded_layout, "(R−1)F", lambda t, ranks: (ranks - 1) * t["F"]),
    "dualpipe": Known("from both ends, forward and backward overlapped; two stages a rank", dualpipe, dualpipe_layout, "(R/2−1)(F&B+B−3W)",
                      lambda t, ranks: (ranks // 2 - 1) * (t["FB"] + t["B"] - 3 * t["W"])),
    "dualpipev": Known("DualPipe cut in half: a V of two stages a rank", dualpipev, dualpipev_layout, "(R−1)(F&B+B−3W)",
                       lambda t, ranks: (ranks - 1) * (t["FB"] + t["B"] - 3 * t["W"])),
}


def build(name: str, stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """A known schedule's table. chunks: stages on each rank, for interleaved 1F1B. Raises ScheduleError with what would be legal."""
    if name not in KNOWN:
        raise ScheduleError(f"there is no schedule '{name}'; there are {', '.join(KNOWN)}")
    for argument, value in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise ScheduleError(f"{name}: {argument} is {value}; it must be at least 1")
    try:
        KNOWN[name].layout(stages, microbatches, chunks)
    except ScheduleError as error:
        raise ScheduleError(f"{name}: {error}") from None
    return KNOWN[name].build(stages, microbatches, chunks)


def published_bubble(schedule: Schedule, times: Times) -> float | None:
    """The bubble of the worst rank by the schedule's formula; None if it has none or stages differ in time. The docs say where each applies."""
    if schedule.name not in KNOWN or not times.uniform:
        return None
    found = {name: values[0] for name, values in times.by_stage(schedule.stages).items() if values}
    return KNOWN[schedule.name].bubble(found, schedule.ranks)
