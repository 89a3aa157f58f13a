"""A schedule: where stages are, what every rank computes in which order, and the table of actions with all transfers that follows from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from warpwright.errors import ScheduleError
from warpwright.pipeline.actions import COMPUTE, RECV_B, RECV_F, REDUCE, SEND_B, SEND_F, Action, B, F, I, W, parse

Order = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Schedule:
    """What each rank computes, in order.

    placement: for each direction of travel, the rank of every stage. One direction but for DualPipe, which feeds micro-batches from both ends:
    there the first half of the micro-batches takes direction 0, the second half direction 1, and every stage is on two ranks (its replicas).
    orders: by rank, actions of the kinds F, I, W, B and PAIR.
    """

    name: str
    microbatches: int
    placement: tuple[tuple[int, ...], ...]
    orders: Order

    @property
    def stages(self) -> int:
        return len(self.placement[0])

    @property
    def ranks(self) -> int:
        return len(self.orders)

    def direction(self, microbatch: int) -> int:
        """The direction that a micro-batch takes: an index of `placement`."""
        return microbatch * len(self.placement) // self.microbatches

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank that computes this stage of this micro-batch."""
        return self.placement[self.direction(microbatch)][stage]

    def stages_of(self, rank: int) -> list[int]:
        """The stages whose parameters a rank holds, ascending."""
        return sorted({stage for ranks in self.placement for stage, holder in enumerate(ranks) if holder == rank})

    def replicas(self, stage: int) -> list[int]:
        """The ranks that hold a stage, ascending: over these (and over data-parallel replicas) its gradient is summed."""
        return sorted({ranks[stage] for ranks in self.placement})

    def peer(self, action: Action) -> int:
        """The other rank of a send or receive."""
        step = 1 if action.kind in (SEND_F, RECV_B) else -1
        return self.rank_of(action.stage + step, action.microbatch)

    def crosses(self, stage: int, microbatch: int) -> bool:
        """Whether this micro-batch goes to another rank between `stage` and the next stage."""
        return self.rank_of(stage, microbatch) != self.rank_of(stage + 1, microbatch)

    @cached_property
    def table(self) -> Order:
        """By rank, every action in the order it is posted: computations, sends, receives and reductions.

        It is the projection of one global sequence (by end times in a run where F = I = W), in which a send and its receive are one event.
        Therefore it cannot deadlock, not even where sends block until the receiver has come to the receive; and receives stand before the
        computation that was running when the data were sent, so that an asynchronous transfer overlaps with it.
        """
        from warpwright.pipeline.simulate import simulate  # it runs schedules, so it imports them

        spans = simulate(self).spans
        events: list[tuple[float, int, int, int, list[tuple[int, Action]]]] = []
        complete: dict[int, float] = {}
        for rank, order in enumerate(self.orders):
            for index, action in enumerate(order):
                end = spans[rank][index][1]
                events.append((end, 0, rank, index, [(rank, action)]))
                for part in action.simple:
                    for transfer in self._transfers(rank, part):
                        events.append((end, 1, rank, index, transfer))
                    if part.kind in (W, B):
                        complete[part.stage] = max(end, complete.get(part.stage, 0.0))
        events += [(end, 2, stage, 0, [(rank, Action(REDUCE, stage)) for rank in self.replicas(stage)]) for stage, end in complete.items()]
        tables: list[list[Action]] = [[] for _ in self.orders]
        for *_, posted in sorted(events, key=lambda event: event[:4]):
            for rank, action in posted:
                tables[rank].append(action)
        return tuple(map(tuple, tables))

    def _transfers(self, rank: int, part: Action) -> Iterable[list[tuple[int, Action]]]:
        """The send and the receive, each with its rank, that follow a computation: none if the next stage is on the same rank or does not exist."""
        stage, microbatch = part.stage, part.microbatch
        if part.kind == F and stage + 1 < self.stages and self.crosses(stage, microbatch):
            yield [(rank, Action(SEND_F, stage, microbatch)), (self.rank_of(stage + 1, microbatch), Action(RECV_F, stage + 1, microbatch))]
        if part.kind in (I, B) and stage > 0 and self.crosses(stage - 1, microbatch):
            yield [(rank, Action(SEND_B, stage, microbatch)), (self.rank_of(stage - 1, microbatch), Action(RECV_B, stage - 1, microbatch))]

    def to_csv(self, transfers: bool = True) -> str:
        """The table in the CSV form of `torch.distributed.pipelining` (a line a rank): its `compute_comms` format, or `compute_only` without
        transfers.

        Raises ScheduleError for a bidirectional schedule, since torch knows one rank a stage.
        """
        if len(self.placement) > 1:
            raise ScheduleError(f"torch.distributed.pipelining has one rank for each stage and {self.name} has two (one for each direction of "
                                "travel), so its table has no CSV form; dualpipev has, with the same bubble")
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([map(str, row) for row in (self.table if transfers else self.orders)])
        return out.getvalue()


def from_csv(text: str, name: str = "table") -> Schedule:
    """The schedule in a CSV table of `torch.distributed.pipelining` (either format; empty cells, UNSHARD and RESHARD are skipped).

    If it has transfers they stay as they are. Raises ScheduleError; `check` says whether the schedule is legal.
    """
    rows = [[parse(cell) for cell in row if cell.strip() and not cell.strip().endswith("SHARD")] for row in csv.reader(io.StringIO(text)) if row]
    orders = tuple(tuple(action for action in row if action.kind in COMPUTE) for row in rows)
    ranks: dict[int, int] = {}
    microbatches = 0
    for rank, order in enumerate(orders):
        for part in (part for action in order for part in action.simple):
            microbatches = max(microbatches, part.microbatch + 1)
            if ranks.setdefault(part.stage, rank) != rank:
                raise ScheduleError(f"stage {part.stage} is on rank {ranks[part.stage]} and on rank {rank}; a CSV table has one rank for each stage")
    missing = sorted(set(range(max(ranks, default=-1) + 1)) - set(ranks))
    if missing or not ranks:
        raise ScheduleError(f"no rank computes stage {missing[0]}" if missing else "the table has no computation")
    schedule = Schedule(name, microbatches, (tuple(ranks[stage] for stage in range(len(ranks))),), orders)
    if any(action.kind not in COMPUTE for row in rows for action in row):
        schedule.__dict__["table"] = tuple(map(tuple, rows))  # takes the place of the cached property
    return schedule


def merged(order: Sequence[Action]) -> tuple[Action, ...]:
    """The same computations, where a backward for the weights that follows its backward for the input at once becomes a full backward."""
    out: list[Action] = []
    for action in order:
        if action.kind == W and out and out[-1] == Action(I, action.stage, action.microbatch):
            out[-1] = Action(B, action.stage, action.microbatch)
        else:
            out.append(action)
    return tuple(out)
