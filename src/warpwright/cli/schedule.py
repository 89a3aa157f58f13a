"""`warpwright schedule`: pipeline schedules, printed, drawn, checked and searched for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpwright.pipeline import KNOWN

if TYPE_CHECKING:
    from warpwright.pipeline import Schedule, Simulation, Times

app = typer.Typer(help="Pipeline schedules: time, bubble, activations, pictures, and the table of every rank's actions.", no_args_is_help=True)

STAGES = typer.Option("--stages", help="Slices that the model is cut into.")
MICROBATCHES = typer.Option("--microbatches", help="Micro-batches in a step.")
TIMES = typer.Option(
    "--times", help="Times of one stage for one micro-batch, as in F=1,B=2,W=1,FB=3,comm=0: forward, full backward, its part for the weights, an "
    "overlapped pair, and a transfer to the next stage. I=… is the part for the input if it is not B − W. A list by stage has colons: F=1:1:1:2. "
    "What is left out: F=1, B=2, W=1, FB=F+B, comm=0.")
JSON = typer.Option("--json", help="Print one JSON object: makespan, bubble and peak_activations by rank, actions by rank, …")
SVG = typer.Option("--svg", help="Draw the schedule to this file.")
HTML = typer.Option("--html", help="Write a page with the drawing and the figures to this file.")
TRACE = typer.Option("--trace", help="Write a trace for ui.perfetto.dev (Chrome's JSON) to this file.")
CSV = typer.Option("--csv", help="Write the table as torch.distributed.pipelining reads it (compute_comms) to this file.")


def known_command(name: str) -> Any:
    """The command of one schedule."""

    def command(
        stages: Annotated[int, STAGES],
        microbatches: Annotated[int, MICROBATCHES],
        chunks: Annotated[int, typer.Option(help="Stages on each rank (interleaved-1f1b only).")] = 2,
        times: Annotated[str, TIMES] = "",
        as_json: Annotated[bool, JSON] = False,
        svg: Annotated[Path | None, SVG] = None,
        html: Annotated[Path | None, HTML] = None,
        trace: Annotated[Path | None, TRACE] = None,
        csv: Annotated[Path | None, CSV] = None,
    ) -> None:
        from warpwright.pipeline import build

        show(build(name, stages, microbatches, chunks), read_times(times), as_json, svg, html, trace, csv)

    command.__doc__ = f"{KNOWN[name].summary[0].upper()}{KNOWN[name].summary[1:]}."
    return command


for name in KNOWN:
    app.command(name)(known_command(name))


@app.command("check")
def check_table(
    table: Annotated[Path, typer.Argument(help="A table as torch.distributed.pipelining writes it: a line a rank, with or without transfers.")],
    times: Annotated[str, TIMES] = "",
    memory: Annotated[float | None, typer.Option(help="The most activations that a rank may hold (one stage's of one micro-batch is 1).")] = None,
    as_json: Annotated[bool, JSON] = False,
    svg: Annotated[Path | None, SVG] = None,
    html: Annotated[Path | None, HTML] = None,
    trace: Annotated[Path | None, TRACE] = None,
) -> None:
    """Prove a table of actions legal (every dependency, no deadlock, memory), or say which action is wrong; then as for a known schedule."""
    from warpwright.pipeline import check, from_csv

    schedule = from_csv(table.read_text(), table.name)
    check(schedule, memory)
    show(schedule, read_times(times), as_json, svg, html, trace, None)


@app.command("search")
def search_best(
    stages: Annotated[int, typer.Option("--stages", help="Ranks, and parts of the model: each schedule cuts the model for these ranks as it needs.")],
    microbatches: Annotated[int, MICROBATCHES],
    memory: Annotated[float | None, typer.Option(help="The most that a rank may hold; one part's activations of one micro-batch are 1.")] = None,
    parameters: Annotated[float, typer.Option(help="What one part's parameters (and what belongs to them) take, in the unit of --memory.")] = 0.0,
    times: Annotated[str, TIMES] = "",
    tries: Annotated[int | None, typer.Option(help="Random changes tried on each of the three best (default: 3,000; fewer if large).")] = None,
    seed: Annotated[int, typer.Option(help="Of the random changes.")] = 0,
    as_json: Annotated[bool, JSON] = False,
    svg: Annotated[Path | None, SVG] = None,
    html: Annotated[Path | None, HTML] = None,
    trace: Annotated[Path | None, TRACE] = None,
    csv: Annotated[Path | None, CSV] = None,
) -> None:
    """Find the best schedule for given times and memory: the known ones, list schedules beyond them, and the best of both improved."""
    from warpwright.pipeline import search

    found = search(stages, microbatches, read_times(times), memory, parameters, tries, seed)
    best = found[0]
    assert best.schedule and best.times
    if not as_json:
        print("schedule              time   bubble   memory")
        for one in found:
            figures = (f"{value:9.6g}" for value in (one.makespan, max(one.simulation.bubble), one.memory)) if one.simulation else ()
            print(f"{one.name:17}{''.join(figures)}  {one.why_not}".rstrip())
        print()
    candidates = [{"name": one.name, "makespan": one.makespan if one.simulation else None, "memory": one.memory, "why_not": one.why_not}
                  for one in found]
    show(best.schedule, best.times, as_json, svg, html, trace, csv, {"candidates": candidates})


def read_times(text: str) -> Times:
    """Times from `F=1,B=2,…`. Raises ScheduleError."""
    from warpwright.errors import ScheduleError
    from warpwright.pipeline import Times

    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in Times.__dataclass_fields__ or not equals:
            raise ScheduleError(f"--times: '{part}' is not one of {', '.join(f'{field}=…' for field in Times.__dataclass_fields__)}")
        try:
            numbers = [float(number) for number in value.split(":")]
        except ValueError:
            raise ScheduleError(f"--times: {name} is '{value}'; it must be a number, or numbers by stage with colons between") from None
        found[name] = numbers[0] if len(numbers) == 1 else numbers
    return Times(**found)


def show(schedule: Schedule, times: Times, as_json: bool, svg: Path | None, html: Path | None, trace: Path | None, csv: Path | None,
         more: dict[str, Any] | None = None) -> None:
    """Simulate, write the files that are asked for, print. `more` goes into the JSON object."""
    from warpwright.pipeline import draw, simulate

    simulation = simulate(schedule, times)
    for path, content in ((svg, draw.svg), (html, draw.page), (trace, draw.trace)):
        if path:
            path.write_text(content(schedule, simulation))
    if csv:
        csv.write_text(schedule.to_csv())
    if as_json:
        print(json.dumps(as_object(schedule, simulation, times) | (more or {})))
    else:
        print_figures(schedule, simulation, times)


def as_object(schedule: Schedule, simulation: Simulation, times: Times) -> dict[str, Any]:
    """What --json prints. actions: by rank, in order, each with its text, its kind, where and for what, and for a computation when."""
    from warpwright.pipeline import published_bubble
    from warpwright.pipeline.actions import COMPUTE, RECV_B, RECV_F, SEND_B, SEND_F

    rows = []
    for rank, row in enumerate(schedule.table):
        spans = iter(simulation.spans[rank])
        actions = []
        for action in row:
            entry: dict[str, Any] = {"action": str(action), "kind": action.kind}
            if action.parts:
                entry["parts"] = [{"kind": part.kind, "stage": part.stage, "microbatch": part.microbatch} for part in action.parts]
            else:
                entry["stage"] = action.stage
            if action.microbatch >= 0:
                entry["microbatch"] = action.microbatch
            if action.kind in (SEND_F, RECV_F, SEND_B, RECV_B):
                entry["peer"] = schedule.peer(action)
            if action.kind in COMPUTE:
                entry["start"], entry["end"] = next(spans)
            actions.append(entry)
        rows.append(actions)
    return {"name": schedule.name, "stages": schedule.stages, "ranks": schedule.ranks, "microbatches": schedule.microbatches,
            "placement": schedule.placement, "makespan": simulation.makespan, "bubble": simulation.bubble, "busy": simulation.busy,
            "idle_within": simulation.idle_within, "formula_bubble": published_bubble(schedule, times),
            "peak_activations": simulation.peak_activations, "parameters": simulation.parameters, "actions": rows}


def print_figures(schedule: Schedule, simulation: Simulation, times: Times) -> None:
    """The chart where it fits the terminal, then the figures."""
    import shutil

    from warpwright.pipeline import draw, published_bubble

    for line in draw.text(schedule, simulation, max(140, shutil.get_terminal_size().columns)):
        print(line)
    worst = max(simulation.bubble)
    formula = published_bubble(schedule, times)
    stages = f"{schedule.stages} stages on {schedule.ranks} ranks"
    print(f"{schedule.name}: {stages}, {schedule.microbatches} micro-batches: time {simulation.makespan:g}")
    share = worst / simulation.makespan if simulation.makespan else 0.0
    print(f"bubble of the worst rank      {worst:g}, {share:.1%} of the time"
          + (f"; formula {KNOWN[schedule.name].formula} = {formula:g}" if formula is not None else ""))
    print(f"bubble by rank                {numbers(simulation.bubble)}")
    print(f"most activations by rank      {numbers(simulation.peak_activations)}")
    print(f"stages' parameters by rank    {numbers(simulation.parameters)}")


def numbers(values: Any) -> str:
    """All of them, or the one where they are equal."""
    return f"{values[0]:g} on each" if len(set(values)) == 1 else " ".join(f"{value:g}" for value in values)
