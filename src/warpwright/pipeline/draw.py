"""Pictures of a simulated schedule: SVG, an HTML page, a trace for Perfetto, and lines of text."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import NamedTuple

from warpwright.pipeline.actions import PAIR, B, F, I, W
from warpwright.pipeline.schedule import Schedule
from warpwright.pipeline.simulate import Simulation

MEANING = {F: "forward", B: "full backward", I: "backward for the input", W: "backward for the weights"}
# Fill by kind, for the first and the second of a rank's stages (of its directions, in DualPipe); a rank's later stages take the second's.
FILL = {F: ("#f7c873", "#e09a3e"), B: ("#8fc98f", "#4f9d69"), I: ("#bfe3c0", "#86c79a"), W: ("#a9c7ee", "#6f9fd8")}
ROW, TOP, LEFT = 24, 34, 64


class Cell(NamedTuple):
    """One computation on the chart: a pair has two, side by side as one part to two, with the pair's start and end in `pair`."""

    rank: int
    kind: str
    stage: int
    microbatch: int
    start: float
    end: float
    shade: int
    pair: tuple[float, float] | None


def cells(schedule: Schedule, simulation: Simulation) -> Iterator[Cell]:
    """Every computation, rank by rank in order."""
    for rank, order in enumerate(schedule.orders):
        stages = schedule.stages_of(rank)
        for action, (start, end) in zip(order, simulation.spans[rank], strict=True):
            parts = action.simple
            edge = start
            for index, part in enumerate(parts):
                # The two overlap for the whole of the pair; as in the paper's figure they are drawn one beside the other.
                width = end - start if len(parts) == 1 else (end - start) * (1 / 3, 2 / 3)[index]
                shade = schedule.direction(part.microbatch) if len(schedule.placement) > 1 else min(stages.index(part.stage), 1)
                yield Cell(rank, part.kind, part.stage, part.microbatch, edge, edge + width, shade, (start, end) if action.kind == PAIR else None)
                edge += width


def svg(schedule: Schedule, simulation: Simulation) -> str:
    """The schedule as an SVG picture: a row a rank, time to the right, micro-batches' numbers in the cells, overlapped pairs in a black frame."""
    shortest = min((end - start for spans in simulation.spans for start, end in spans if end > start), default=1.0)
    unit = max(900 / max(simulation.makespan, 1e-9), 13 / shortest)  # pixels for one of time
    unit = min(unit, 12000 / max(simulation.makespan, 1e-9))
    width, bottom = LEFT + simulation.makespan * unit + 16, TOP + schedule.ranks * ROW
    height = bottom + 46
    title = (f"{schedule.name}, {schedule.stages} stages on {schedule.ranks} ranks, {schedule.microbatches} micro-batches: "
             f"time {simulation.makespan:g}, bubble {max(simulation.bubble):g}")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="10">',
           f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="20" font-size="13">{html.escape(title)}</text>']
    for rank in range(schedule.ranks):
        y = TOP + rank * ROW
        out.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">rank {rank}</text>'
                   f'<rect x="{LEFT}" y="{y}" width="{simulation.makespan * unit:.1f}" height="{ROW}" fill="#f4f4f4" stroke="#ddd"/>')
    framed: dict[tuple[int, float], float] = {}
    for cell in cells(schedule, simulation):
        x, y, wide = LEFT + cell.start * unit, TOP + cell.rank * ROW, (cell.end - cell.start) * unit
        if cell.pair:
            framed[cell.rank, cell.pair[0]] = cell.pair[1]
        says = f"{MEANING[cell.kind]} of stage {cell.stage}, micro-batch {cell.microbatch}" + (", overlapped" if cell.pair else "")
        fits = wide >= 5 * len(str(cell.microbatch)) + 2
        number = f'<text x="{x + wide / 2:.1f}" y="{y + 16}" text-anchor="middle">{cell.microbatch}</text>' if fits else ""
        out.append(f'<g><title>{says}</title><rect x="{x:.1f}" y="{y + 1}" width="{wide:.1f}" height="{ROW - 2}" '
                   f'fill="{FILL[cell.kind][cell.shade]}" stroke="white" stroke-width=".6"/>{number}</g>')
    for (rank, start), end in framed.items():
        out.append(f'<rect x="{LEFT + start * unit:.1f}" y="{TOP + rank * ROW + 1}" width="{(end - start) * unit:.1f}" height="{ROW - 2}" '
                   'fill="none" stroke="black" stroke-width="1.2"/>')
    x = LEFT
    used = {(cell.kind, cell.shade) for cell in cells(schedule, simulation)}
    for kind, meaning in MEANING.items():
        shades = [shade for shade in (0, 1) if (kind, shade) in used]
        for shade in shades:
            out.append(f'<rect x="{x}" y="{bottom + 16}" width="14" height="14" fill="{FILL[kind][shade]}"/>')
            x += 16
        if shades:
            out.append(f'<text x="{x + 4}" y="{bottom + 27}">{meaning}</text>')
            x += 24 + 6 * len(meaning)
    if framed:
        out.append(f'<rect x="{x}" y="{bottom + 16}" width="26" height="14" fill="none" stroke="black" stroke-width="1.2"/>'
                   f'<text x="{x + 32}" y="{bottom + 27}">overlapped</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def page(schedule: Schedule, simulation: Simulation) -> str:
    """An HTML page, one file: the picture (what a cell is shows under the pointer) and the figures rank by rank."""
    rows = ""
    for rank in range(schedule.ranks):
        idle = simulation.bubble[rank]
        values = (rank, ", ".join(map(str, schedule.stages_of(rank))), f"{simulation.busy[rank]:g}", f"{idle:g}",
                  f"{idle / (simulation.makespan or 1):.1%}", f"{simulation.peak_activations[rank]:g}")
        rows += f"<tr>{''.join(f'<td>{value}</td>' for value in values)}</tr>\n"
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(schedule.name)}</title>
<style>body{{font:14px Helvetica,Arial,sans-serif;margin:24px}} div{{overflow-x:auto}} td,th{{text-align:right;padding:2px 12px}}</style>
<h1>{html.escape(schedule.name)}</h1>
<div>{svg(schedule, simulation)}</div>
<table><tr><th>rank</th><th>stages</th><th>busy</th><th>bubble</th><th>of the time</th><th>most activations</th></tr>{rows}</table>
</html>
"""


def trace(schedule: Schedule, simulation: Simulation) -> str:
    """A trace in Chrome's JSON format, for ui.perfetto.dev: a track a rank, an arrow for each transfer. One unit of time is a millisecond there."""
    events: list[dict] = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"{schedule.name}, {schedule.microbatches} micro-batches"}}]
    events += [{"ph": "M", "name": "thread_name", "pid": 0, "tid": rank, "args": {"name": f"rank {rank}"}} for rank in range(schedule.ranks)]
    when: dict[tuple[str, int, int], tuple[int, float, float]] = {}
    for rank, order in enumerate(schedule.orders):
        for action, (start, end) in zip(order, simulation.spans[rank], strict=True):
            name = " & ".join(f"{part.kind}{part.microbatch}" for part in action.simple)
            events.append({"ph": "X", "name": name, "cat": "pair" if action.parts else MEANING[action.kind], "pid": 0, "tid": rank, "ts": start * 1e3,
                           "dur": (end - start) * 1e3, "args": {"action": str(action), "stages": [part.stage for part in action.simple]}})
            for part in action.simple:
                if part.kind != W:
                    when[F if part.kind == F else B, part.stage, part.microbatch] = (rank, start, end)
    for (kind, stage, microbatch), (rank, start, _) in when.items():
        before = when.get((kind, stage + (-1 if kind == F else 1), microbatch))
        if before and before[0] != rank:
            arrow = {"name": "activations" if kind == F else "gradients", "cat": "transfer", "pid": 0, "id": f"{kind}{stage}.{microbatch}"}
            events.append(arrow | {"ph": "s", "tid": before[0], "ts": before[2] * 1e3 - 1e-3})
            events.append(arrow | {"ph": "f", "bp": "e", "tid": rank, "ts": start * 1e3})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def text(schedule: Schedule, simulation: Simulation, width: int) -> list[str]:
    """The chart in lines of text, a rank each, `[` and `]` around overlapped pairs; none if it needs more than `width` columns."""
    found = list(cells(schedule, simulation))
    shortest = min((cell.end - cell.start for cell in found if cell.end > cell.start), default=1.0)
    columns = (2 + len(str(schedule.microbatches - 1))) / shortest  # for one of time
    if 8 + simulation.makespan * columns > width:
        return []
    lines = [[" "] * (round(simulation.makespan * columns) + 1) for _ in range(schedule.ranks)]
    for cell in found:
        first, after = round(cell.start * columns), round(cell.end * columns)
        label = f"{cell.kind}{cell.microbatch}".ljust(after - first - 1, "·")
        lines[cell.rank][first : first + len(label)] = label
        if cell.pair and cell.end == cell.pair[1]:
            lines[cell.rank][after - 1] = "]"
        elif cell.pair:
            lines[cell.rank][after - 1] = "&"
    return [f"rank {rank:<2} {''.join(line).rstrip()}" for rank, line in enumerate(lines)]
