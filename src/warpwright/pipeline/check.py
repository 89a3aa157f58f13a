"""Proves a schedule's table of actions legal, or says which action is wrong and why."""

from __future__ import annotations

from collections import Counter

from warpwright.errors import ScheduleError
from warpwright.pipeline.actions import COMPUTE, RECV_B, RECV_F, REDUCE, SEND_B, SEND_F, TRANSFERS, Action, B, F, I, W
from warpwright.pipeline.schedule import Schedule
from warpwright.pipeline.simulate import Value, peak, spread


def check(schedule: Schedule, memory: float | None = None, activations: Value = 1.0) -> None:
    """Raise ScheduleError unless the schedule's table is legal:

    * every stage of every micro-batch is computed once, on its own rank: a forward and a full backward, or the backward's two parts;
    * every result that another rank needs is sent and received once, and no other;
    * every stage's gradient is reduced once, on all its ranks, after its last backward;
    * run action by action, each has what it needs before it starts, and nobody waits for ever, even where a send blocks until the other rank has
      come to its receive and a reduction until all its ranks have;
    * no rank holds more than `memory` activations at once (in the unit of `activations`: what a stage holds of one micro-batch, a number or a list).
    """
    complete(schedule)
    run(schedule)
    if memory is not None:
        held = spread("activations", activations, schedule.stages)
        for rank, order in enumerate(schedule.orders):
            most = peak(order, held, 1.0)
            if most > memory:
                raise ScheduleError(f"{schedule.name}: rank {rank} holds {most:g} activations at once and the limit is {memory:g}")


def complete(schedule: Schedule) -> None:
    """Every action that the layout asks for is there exactly once, on the rank it belongs to."""
    for rank, (order, row) in enumerate(zip(schedule.orders, schedule.table, strict=True)):
        if tuple(action for action in row if action.kind in COMPUTE) != order:
            raise ScheduleError(f"{schedule.name}: rank {rank} computes in its table what is not its order")
    wanted: Counter[tuple[int, Action]] = Counter()
    found = Counter((rank, part) for rank, row in enumerate(schedule.table) for action in row for part in action.simple)
    for microbatch in range(schedule.microbatches):
        for stage in range(schedule.stages):
            rank = schedule.rank_of(stage, microbatch)
            whole = found[rank, Action(B, stage, microbatch)]
            for kind in (F, B) if whole else (F, I, W):
                wanted[rank, Action(kind, stage, microbatch)] = 1
            if stage + 1 < schedule.stages and schedule.crosses(stage, microbatch):
                after = schedule.rank_of(stage + 1, microbatch)
                for holder, kind, at in ((rank, SEND_F, stage), (after, RECV_F, stage + 1), (after, SEND_B, stage + 1), (rank, RECV_B, stage)):
                    wanted[holder, Action(kind, at, microbatch)] = 1
    for stage in range(schedule.stages):
        for rank in schedule.replicas(stage):
            wanted[rank, Action(REDUCE, stage)] = 1
    for rank, action in wanted | found:
        times, due = found[rank, action], wanted[rank, action]
        if times != due:
            rather = "not at all" if times == 0 else f"{times} times"
            raise ScheduleError(f"{schedule.name}: rank {rank} must do {action} {'once' if due else 'not at all'} and its table has it {rather}")


def run(schedule: Schedule) -> None:
    """Every rank's actions in turn, sends and reductions blocking. Raises ScheduleError that says where each rank is stuck, and for what."""
    rows = schedule.table
    at = [0] * schedule.ranks
    done: set[tuple[int, Action]] = set()
    owed = Counter((rank, part.stage) for rank, row in enumerate(rows) for action in row for part in action.simple if part.kind in (B, W))

    def head(rank: int) -> Action | None:
        return rows[rank][at[rank]] if at[rank] < len(rows[rank]) else None

    def finish(rank: int, action: Action) -> None:
        at[rank] += 1
        for part in action.simple:
            # A full backward is both of its parts to whoever asks what is done.
            done.update((rank, Action(kind, part.stage, part.microbatch)) for kind in ((I, W) if part.kind == B else (part.kind,)))
            if part.kind in (B, W):
                owed[rank, part.stage] -= 1

    def lacking(rank: int, part: Action) -> Action | None:
        """What a computation or a send needs and this rank has not got, or None."""
        kind, stage, microbatch, _ = part
        needs = []
        if kind in (SEND_F, SEND_B, W):
            needs.append(Action(F if kind == SEND_F else I, stage, microbatch))
        elif kind == F and stage:
            needs.append(Action(RECV_F, stage, microbatch) if schedule.crosses(stage - 1, microbatch) else Action(F, stage - 1, microbatch))
        elif kind in (I, B):
            needs.append(Action(F, stage, microbatch))
            if stage + 1 < schedule.stages:
                needs.append(Action(RECV_B, stage, microbatch) if schedule.crosses(stage, microbatch) else Action(I, stage + 1, microbatch))
        return next((need for need in needs if (rank, need) not in done), None)

    def why(rank: int, action: Action) -> str:
        """What keeps a rank from an action; empty if nothing does."""
        if action.kind in COMPUTE:
            lack = next(filter(None, (lacking(rank, part) for part in action.simple)), None)
            return f"which needs {lack}" if lack else ""
        if action.kind == REDUCE:
            if owed[rank, action.stage]:
                return f"whose stage has {owed[rank, action.stage]} backwards to come"
            late = [other for other in schedule.replicas(action.stage) if head(other) != action]
            return f"which waits for rank {late[0]}" if late else ""
        if action.kind not in TRANSFERS:
            return f"which waits for rank {schedule.peer(action)} to send it"
        lack = lacking(rank, action)
        if lack:
            return f"which needs {lack}"
        return "" if head(schedule.peer(action)) == receipt(action) else f"which waits for rank {schedule.peer(action)} to receive it"

    progress = True
    while progress:
        progress = False
        for rank in range(schedule.ranks):
            while (action := head(rank)) and not why(rank, action):
                progress = True
                partners = schedule.replicas(action.stage) if action.kind == REDUCE else [rank]
                for partner in partners:
                    finish(partner, action)
                if action.kind in TRANSFERS:
                    finish(schedule.peer(action), receipt(action))
    stuck = [f"rank {rank} is at {action}, {why(rank, action)}" for rank in range(schedule.ranks) if (action := head(rank))]
    if stuck:
        raise ScheduleError(f"{schedule.name} deadlocks: {'; '.join(stuck)}")


def receipt(send: Action) -> Action:
    """The receive of a send."""
    return Action(TRANSFERS[send.kind], send.stage + (1 if send.kind == SEND_F else -1), send.microbatch)
