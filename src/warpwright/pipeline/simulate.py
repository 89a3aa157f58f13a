"""How long a schedule takes, where its ranks idle, and how many activations they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpwright.errors import ScheduleError
from warpwright.pipeline.actions import B, F, I, W
from warpwright.pipeline.schedule import Schedule

Value = float | Sequence[float]


@dataclass(frozen=True)
class Times:
    """How long one stage takes for one micro-batch, in any unit: a number for all stages, or a list by stage.

    F forward; B full backward; W backward for the weights; I backward for the input (default: B − W); FB an overlapped pair (default: F + B; a pair
    of two stages takes the mean of their FB); comm: from the end of a stage to its arrival on the next stage's rank (a list is by link: stage s to
    s + 1, the same both ways). Transfers do not hold up the ranks, and a transfer within a rank takes no time.
    """

    F: Value = 1.0
    B: Value = 2.0
    W: Value = 1.0
    I: Value | None = None
    FB: Value | None = None
    comm: Value = 0.0

    def by_stage(self, stages: int) -> dict[str, list[float]]:
        """Lists of `stages` numbers (`comm`: stages − 1). Raises ScheduleError, naming the time, for a wrong length or a negative time."""
        found = {name: spread(name, getattr(self, name), stages - (name == "comm")) for name in ("F", "B", "W", "comm")}
        B, W = found["B"], found["W"]
        if self.I is None and any(w > b for b, w in zip(B, W, strict=True)):
            raise ScheduleError("times: W is longer than B; B is the full backward, of which W is a part (or give I, the backward for the input)")
        found["I"] = [b - w for b, w in zip(B, W, strict=True)] if self.I is None else spread("I", self.I, stages)
        found["FB"] = [f + b for f, b in zip(found["F"], B, strict=True)] if self.FB is None else spread("FB", self.FB, stages)
        return found

    @property
    def uniform(self) -> bool:
        """Whether every stage takes the same time."""
        return all(value is None or isinstance(value, int | float) or len(set(value)) == 1 for value in (self.F, self.B, self.W, self.I, self.FB))


def spread(name: str, value: Value, count: int) -> list[float]:
    """A list of `count` numbers from a number or such a list."""
    values = [float(value)] * count if isinstance(value, int | float) else [float(one) for one in value]
    if len(values) != count:
        raise ScheduleError(f"times: {name} has {len(values)} values; give one, or {count}, one for each {'link' if name == 'comm' else 'stage'}")
    if any(not 0 <= one < float("inf") for one in values):
        raise ScheduleError(f"times: {name} is {value}; a time is a number of at least 0")
    return values


@dataclass(frozen=True)
class Simulation:
    """What `simulate` found.

    makespan: from the first action's start to the last one's end. spans: by rank, the start and end of each action of the schedule's `orders`.
    busy, bubble: by rank, the time it computes and the time it does not, of the makespan. idle_within: as bubble, but from the rank's own first
    start to its own last end. peak_activations: by rank, the most activations held at once (one stage's of one micro-batch is 1, unless told
    otherwise; held from the start of the forward to the end of the backward for the weights). parameters: by rank, the stages whose parameters it
    holds.
    """

    makespan: float
    spans: list[list[tuple[float, float]]]
    busy: list[float]
    bubble: list[float]
    idle_within: list[float]
    peak_activations: list[float]
    parameters: list[int]


def simulate(schedule: Schedule, times: Times | None = None, activations: Value = 1.0, kept: float = 1.0) -> Simulation:
    """Run a schedule: each rank takes its actions in order, each as soon as what it needs has arrived.

    activations: what one micro-batch's forward of a stage holds (a number, or a list by stage, in any unit). kept: the share of it still held
    between the backward for the input and the backward for the weights. Raises ScheduleError if ranks wait for each other for ever.
    """
    count, stages = schedule.microbatches, schedule.stages
    time = (times or Times()).by_stage(stages)
    held = spread("activations", activations, stages)
    lag = [[comm if ranks[stage] != ranks[stage + 1] else 0.0 for stage, comm in enumerate(time["comm"])] for ranks in schedule.placement]
    # When a result is there for whoever needs it next, by stage · microbatches + micro-batch; negative while it is not.
    forward = [-1.0] * (stages * count)
    backward = [-1.0] * (stages * count)
    last = (stages - 1) * count
    durations = {kind: time[kind] for kind in (F, I, W, B)}
    ranks = schedule.ranks
    spans: list[list[tuple[float, float]]] = [[] for _ in range(ranks)]
    done = [0] * ranks
    clock = [0.0] * ranks
    progress = True
    while progress:
        progress = False
        for rank in range(ranks):
            order, spans_here, now = schedule.orders[rank], spans[rank], clock[rank]
            for position in range(done[rank], len(order)):
                action = order[position]
                parts = action.parts or (action,)
                start = now
                for kind, stage, microbatch, _ in parts:
                    at = stage * count + microbatch
                    if kind == W:
                        needed = backward[at]
                    elif kind == F and not stage:
                        needed = 0.0
                    elif kind == F:
                        needed = forward[at - count]
                        if needed >= 0:
                            needed += lag[schedule.direction(microbatch)][stage - 1]
                    elif at >= last or forward[at] < 0:
                        needed = forward[at]
                    else:
                        needed = backward[at + count]
                        if needed >= 0:
                            needed += lag[schedule.direction(microbatch)][stage]
                    if needed < 0:
                        start = -1.0
                        break
                    if needed > start:
                        start = needed
                if start < 0:
                    break
                if action.parts:
                    one, two = parts
                    now = start + (time["FB"][one.stage] + time["FB"][two.stage]) / 2
                else:
                    now = start + durations[kind][stage]
                for kind, stage, microbatch, _ in parts:
                    if kind == F:
                        forward[stage * count + microbatch] = now
                    elif kind != W:
                        backward[stage * count + microbatch] = now
                spans_here.append((start, now))
                progress = True
            done[rank], clock[rank] = len(spans_here), now
    stuck = [rank for rank in range(ranks) if done[rank] < len(schedule.orders[rank])]
    if stuck:
        waiting = ", ".join(f"rank {rank} at {schedule.orders[rank][done[rank]]}" for rank in stuck[:8])
        raise ScheduleError(f"{schedule.name} deadlocks: each of these waits for a result that never comes: {waiting}")

    makespan = max(clock)
    busy = [sum(end - start for start, end in own) for own in spans]
    return Simulation(
        makespan, spans, busy, [makespan - one for one in busy],
        [own[-1][1] - own[0][0] - work if own else 0.0 for own, work in zip(spans, busy, strict=True)],
        [peak(order, held, kept) for order in schedule.orders],
        [len(schedule.stages_of(rank)) for rank in range(ranks)])


def peak(order, held: list[float], kept: float) -> float:
    """The most activations that a rank holds at once if it takes actions in this order."""
    now = most = 0.0
    for action in order:
        for part in action.simple:
            if part.kind == F:
                now += held[part.stage]
        most = max(most, now)
        for part in action.simple:
            now -= held[part.stage] * {F: 0.0, B: 1.0, I: 1.0 - kept, W: kept}[part.kind]
    return most
