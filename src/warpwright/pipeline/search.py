"""Finds the best schedule for given times and memory: the known ones, list schedules under many policies, and improvements of the best of them.

All compete on the same ranks for the same model, cut into R parts: F, B, … are one part's times. A layout gives each rank one part (straight), two
half parts (folded, looped) or two parts, one for each direction (both ways, which doubles the parameters).
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import NamedTuple

from warpwright.errors import ScheduleError
from warpwright.pipeline.actions import PAIR, Action, B, F, I, W, pair
from warpwright.pipeline.check import check
from warpwright.pipeline.known import both_ways, build, folded, looped, straight
from warpwright.pipeline.schedule import Order, Schedule, merged
from warpwright.pipeline.simulate import Simulation, Times, simulate

Placement = tuple[tuple[int, ...], ...]


class Layout(NamedTuple):
    """Where stages go: placement by direction, stages a part, and the known schedules that live on it."""

    place: Placement
    halves: int
    known: tuple[str, ...]


def layouts(ranks: int) -> dict[str, Layout]:
    """The layouts of a model on `ranks` ranks."""
    found = {"straight": Layout(straight(ranks), 1, ("gpipe", "1f1b", "zb1p"))}
    if ranks > 1:
        found |= {"folded": Layout(folded(2 * ranks), 2, ("zb-v", "dualpipev")), "looped": Layout(looped(2 * ranks, 2), 2, ("interleaved-1f1b",))}
    if ranks % 2 == 0:
        found["both ways"] = Layout(both_ways(ranks), 1, ("dualpipe",))
    return found


@dataclass(frozen=True)
class Candidate:
    """One schedule that was tried. memory: the most that a rank holds, activations and parameters; why_not: empty if it fits and is legal."""

    name: str
    schedule: Schedule | None = None
    times: Times | None = None
    simulation: Simulation | None = None
    memory: float = 0.0
    why_not: str = ""

    @property
    def makespan(self) -> float:
        return self.simulation.makespan if self.simulation else float("inf")


def search(ranks: int, microbatches: int, times: Times | None = None, memory: float | None = None, parameters: float = 0.0,
           tries: int | None = None, seed: int = 0) -> list[Candidate]:
    """Candidates, the best first: those that fit by time, then those that do not. The first is never slower than any known schedule that fits.

    ranks: and parts of the model; times: of one part (lists are by part, comm's by link between neighbouring ranks). memory: the most that a rank may
    hold, where one micro-batch's activations of one part are 1 and one part's parameters are `parameters`. tries: attempts to improve each of
    the three best by a random change (default: 3,000, fewer where there is much to simulate). The result depends on these arguments only. Raises
    ScheduleError if nothing fits, with the least memory found.
    """
    for argument, value in (("ranks", ranks), ("microbatches", microbatches)):
        if value < 1:
            raise ScheduleError(f"search: {argument} is {value}; it must be at least 1")
    times = times or Times()
    known: list[Candidate] = []
    listed: list[Candidate] = []
    for layout in layouts(ranks).values():
        own = refined(times, ranks, layout)
        judge = Judge(own, layout, memory, parameters)
        for name in layout.known:
            try:
                known.append(judge(name, build(name, ranks * layout.halves, microbatches)))
            except ScheduleError as error:
                known.append(Candidate(name, why_not=str(error)))
        if len(layout.place) > 1 and microbatches < 2:
            continue
        found = [judge("list", schedule) for schedule in list_schedules(layout, microbatches, own, judge.room)]
        listed += sorted((one for one in found if not one.why_not), key=lambda one: one.makespan)[:2]
    fitting = sorted((one for one in known + listed if not one.why_not), key=lambda one: one.makespan)
    if not fitting:
        least = min((one.memory for one in known if one.simulation), default=0.0)
        raise ScheduleError(f"search: no schedule fits in memory {memory:g}; the known schedule that needs least needs {least:g}")
    if tries is None:
        tries = min(3000, 1_000_000 // (3 * ranks * microbatches))
    for start in fitting[:3]:
        better = improve(start, ranks, memory, parameters, tries, seed)
        if better:
            listed.append(better)
    best = min((one for one in listed if not one.why_not), key=lambda one: one.makespan, default=None)
    if best and best.schedule:
        check(best.schedule)
        known.append(replace(best, name="found", schedule=replace(best.schedule, name="found")))
    # Of equals, a known one is better: somebody has run it.
    return sorted(known, key=lambda one: (bool(one.why_not), round(one.makespan, 9), one.name == "found", one.memory))


def refined(times: Times, ranks: int, layout: Layout) -> Times:
    """The times of a layout's stages from those of the parts.

    Transfers take the time of the link between their ranks; a loop's way back is as slow as the slowest link.
    """
    by_part = times.by_stage(ranks)
    links = by_part.pop("comm")
    place, halves = layout.place[0], layout.halves

    def lag(one: int, other: int) -> float:
        return 0.0 if one == other else links[min(one, other)] if abs(one - other) == 1 else max(links)

    lists = {name: [value / halves for value in values for _ in range(halves)] for name, values in by_part.items()}
    return Times(**lists, comm=[lag(one, other) for one, other in pairwise(place)])


class Judge:
    """Simulates schedules of one layout and holds them against the memory limit."""

    def __init__(self, times: Times, layout: Layout, memory: float | None, parameters: float):
        self.times, self.layout, self.memory = times, layout, memory
        held = 1 if layout.halves == 2 else len(layout.place)  # parts whose parameters a rank holds
        self.parameters = parameters * held
        self.room = float("inf") if memory is None else memory - self.parameters

    def __call__(self, name: str, schedule: Schedule) -> Candidate:
        simulation = simulate(schedule, self.times, 1 / self.layout.halves)
        needs = max(simulation.peak_activations) + self.parameters
        why_not = f"needs memory {needs:g}" if self.memory is not None and needs > self.memory + 1e-9 else ""
        return Candidate(name, schedule, self.times, simulation, needs, why_not)


class Policy(NamedTuple):
    """How a list scheduler chooses among what a rank could start now.

    prefer: backward, forward, or whichever was not done last; later: of forwards, the later stage's first; debt: backwards for the weights that may
    wait (0: full backwards; −1: as many as the rank's number); pairs: overlap a forward with a backward when both can start; patient: rather idle
    than start a backward for the weights when something else is known to arrive before it would end.
    """

    prefer: str
    later: bool
    debt: int
    pairs: bool
    patient: bool


def list_schedules(layout: Layout, microbatches: int, times: Times, room: float) -> Iterator[Schedule]:
    """The distinct schedules of all policies, each within `room` activations (a part's is 1); none if a rank has room for none."""
    time = times.by_stage(len(layout.place[0]))
    gains = any(both < f + b for both, f, b in zip(time["FB"], time["F"], time["B"], strict=True))
    several = len(layout.place) > 1 or layout.halves > 1
    if room < (2 if len(layout.place) > 1 else 1):  # a place for each of a rank's stages, or they can wait for each other for ever
        return
    seen: set[Order] = set()
    choices = product(("backward", "alternate", "forward"), (True, False) if several else (True,), (0, 1, -1, 10**9),
                      (False, True) if gains else (False,), (False, True))
    for policy in map(Policy._make, choices):
        if policy.patient and not policy.debt:
            continue
        orders = list_schedule(layout, microbatches, time, room, policy)
        if orders not in seen:
            seen.add(orders)
            yield Schedule("list", microbatches, layout.place, orders)


def list_schedule(layout: Layout, microbatches: int, time: dict[str, list[float]], room: float, policy: Policy) -> Order:
    """Each rank, whenever it is free, starts what its policy likes best of what can start.

    A forward may start if its activations fit, and after it one more of each of the rank's other stages that hold none: so every stage can always
    take one, the furthest micro-batch can always go on, and no memory deadlock can arise.
    """
    placement, stages = layout.place, len(layout.place[0])
    ranks = max(placement[0]) + 1
    unit = 1 / layout.halves
    own = [[(way, stage) for way, places in enumerate(placement) for stage, holder in enumerate(places) if holder == rank] for rank in range(ranks)]
    forwards: list[dict[tuple[int, int], deque[int]]] = [{slot: deque() for slot in slots} for slots in own]
    backwards: list[deque[tuple[int, int, int]]] = [deque() for _ in range(ranks)]  # way, stage, micro-batch
    owed: list[deque[tuple[int, int, int]]] = [deque() for _ in range(ranks)]
    held = [dict.fromkeys(slots, 0) for slots in own]
    total = [0] * ranks
    orders: list[list[Action]] = [[] for _ in range(ranks)]
    free = [0.0] * ranks
    last = [B] * ranks
    coming: list[list[float]] = [[] for _ in range(ranks)]  # when forwards and backwards arrive that are on their way
    events: list[tuple[float, int, int, tuple[str, int, int, int] | None]] = []
    count = 0

    def later(at: float, rank: int, what: tuple[str, int, int, int] | None) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (at, count, rank, what))
        if what:
            heapq.heappush(coming[rank], at)

    def lag(way: int, one: int) -> float:
        return time["comm"][one] if placement[way][one] != placement[way][one + 1] else 0.0

    def fits(rank: int, slot: tuple[int, int]) -> bool:
        empty = sum(1 for other, holds in held[rank].items() if not holds and other != slot)
        return (total[rank] + 1 + empty) * unit <= room + 1e-9

    def run(rank: int, now: float, actions: list[tuple[str, int, int, int]]) -> None:
        """Start one action, or the two of a pair, and announce what they set free."""
        made = [Action(kind, stage, microbatch) for kind, _, stage, microbatch in actions]
        if len(made) == 2:
            lasts = (time["FB"][made[0].stage] + time["FB"][made[1].stage]) / 2
        else:
            lasts = time[made[0].kind][made[0].stage]
        orders[rank].append(pair(*made) if len(made) == 2 else made[0])
        end = free[rank] = now + lasts
        later(end, rank, None)
        for kind, way, stage, microbatch in actions:
            if kind == F:
                held[rank][way, stage] += 1
                total[rank] += 1
                if stage + 1 < stages:
                    later(end + lag(way, stage), placement[way][stage + 1], (F, way, stage + 1, microbatch))
                else:
                    later(end, rank, (B, way, stage, microbatch))
            if kind in (B, W):
                held[rank][way, stage] -= 1
                total[rank] -= 1
            if kind == I:
                owed[rank].append((way, stage, microbatch))
            if kind in (B, I) and stage:
                later(end + lag(way, stage - 1), placement[way][stage - 1], (B, way, stage - 1, microbatch))

    def choose(rank: int, now: float) -> None:
        slots = [slot for slot in own[rank] if forwards[rank][slot] and fits(rank, slot)]
        forward = (max if policy.later else min)(slots, key=lambda slot: slot[1]) if slots else None
        backward = backwards[rank][0] if backwards[rank] else None
        debt = rank if policy.debt < 0 else policy.debt
        if policy.pairs and forward and backward:
            backwards[rank].popleft()
            last[rank] = B
            return run(rank, now, [(F, *forward, forwards[rank][forward].popleft()), (B, *backward)])
        if len(owed[rank]) > debt:
            return run(rank, now, [(W, *owed[rank].popleft())])
        first = forward and (policy.prefer == "forward" or not backward or (policy.prefer == "alternate" and last[rank] != F))
        if forward and first:
            last[rank] = F
            return run(rank, now, [(F, *forward, forwards[rank][forward].popleft())])
        if backward:
            backwards[rank].popleft()
            last[rank] = B
            return run(rank, now, [(I if debt else B, *backward)])
        if owed[rank]:
            soonest = coming[rank][0] if coming[rank] else float("inf")
            room_for_it = total[rank] * unit + unit <= room
            if not policy.patient or not room_for_it or soonest >= now + time["W"][owed[rank][0][1]]:
                run(rank, now, [(W, *owed[rank].popleft())])
        return None

    for microbatch in range(microbatches):
        way = microbatch * len(placement) // microbatches
        forwards[placement[way][0]][way, 0].append(microbatch)
    for rank in range(ranks):
        later(0.0, rank, None)
    while events:
        now = events[0][0]
        awake = set()
        while events and events[0][0] == now:
            _, _, rank, what = heapq.heappop(events)
            awake.add(rank)
            if what:
                heapq.heappop(coming[rank])
                kind, way, stage, microbatch = what
                if kind == F:
                    forwards[rank][way, stage].append(microbatch)
                else:
                    backwards[rank].append((way, stage, microbatch))
        for rank in sorted(awake):
            if free[rank] <= now:
                choose(rank, now)
    return tuple(merged(order) for order in orders)


def improve(start: Candidate, ranks: int, memory: float | None, parameters: float, tries: int, seed: int) -> Candidate | None:
    """A faster schedule than `start` by random small changes of its orders that do no harm, or None.

    A change moves an action by a few places, splits a full backward or joins its halves, or makes a pair of neighbours or parts one.
    """
    assert start.schedule and start.times and start.simulation
    chance = random.Random(seed)
    layout = next(one for one in layouts(ranks).values() if one.place == start.schedule.placement)
    judge = Judge(start.times, layout, memory, parameters)
    best = start
    ends = score(start.simulation)
    for _ in range(tries):
        assert best.schedule
        changed = [list(order) for order in best.schedule.orders]
        for _ in range(chance.choice((1, 1, 2, 3))):
            change(changed, chance)
        try:
            found = judge("list", replace(best.schedule, orders=tuple(map(tuple, changed))))
        except ScheduleError:  # the change makes ranks wait for each other
            continue
        assert found.simulation
        if not found.why_not and score(found.simulation) <= ends:
            best, ends = found, score(found.simulation)
    return best if best.makespan < start.makespan - 1e-9 else None


def score(simulation: Simulation) -> tuple[float, float]:
    """What `improve` makes smaller: the time, then the sum of the ranks' ends, which leads to it."""
    return simulation.makespan, sum(spans[-1][1] for spans in simulation.spans)


def change(orders: list[list[Action]], chance: random.Random) -> None:
    """One random small change, in place. It may be illegal: the simulation tells."""
    order = chance.choice(orders)
    at = chance.randrange(len(order))
    action = order[at]
    kind = chance.random()
    if kind < 0.2 and action.kind == B:
        order[at] = Action(I, action.stage, action.microbatch)
        order.insert(min(len(order), at + 1 + chance.randrange(8)), Action(W, action.stage, action.microbatch))
    elif kind < 0.2 and action.kind == PAIR:
        order[at : at + 1] = action.parts if chance.random() < 0.5 else action.parts[::-1]
    elif kind < 0.4 and at + 1 < len(order) and {action.kind, order[at + 1].kind} == {F, B}:
        two = (action, order[at + 1]) if action.kind == F else (order[at + 1], action)
        order[at : at + 2] = [pair(*two)]
    elif kind < 0.5 and action.kind == I:
        order.remove(Action(W, action.stage, action.microbatch))
        order[order.index(action)] = Action(B, action.stage, action.microbatch)
    else:
        order.pop(at)
        order.insert(max(0, min(len(order), at + chance.choice((-4, -3, -2, -1, 1, 2, 3, 4)))), action)
