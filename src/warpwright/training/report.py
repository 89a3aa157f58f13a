"""`report.html` of a run: loss curves, expert load, time by kernel. One file, drawn as inline SVG, that opens anywhere, offline.

It is made from the run's own records: `log.jsonl`, a JSON object a step (`step`, `loss`, `tokens_per_s`, and where it was measured
before the step, `bits_per_byte` and `load`, the share of each expert's tokens by layer: {layer: [share, …]}), and `final.json`
(`config`: name → value, `bits_per_byte_first`, `bits_per_byte_last`, `seconds`, `sample`, `kernels`: name → [launches, seconds],
`step_seconds`: time of all steps).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 280, 56, 34, 14

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #667085; --line: #d7dce5; --paper: #fff;
  --one: #2563eb; --two: #d9480f; --bar: #2563eb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #344054; --paper: #12161d; --one: #7aa2ff; --two: #ff9a5c; --bar: #4f7df0; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 860px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
.facts { display: flex; flex-wrap: wrap; gap: 1.6rem; margin: 1.2rem 0 } .facts b { display: block; font-size: 1.35rem }
.facts span, figcaption, .soft { color: var(--soft) }
figure { margin: 0 } svg { width: 100%; height: auto } svg text { fill: var(--soft); font-size: 12px } .axis { stroke: var(--line) }
table { border-collapse: collapse; width: 100% } td, th { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line) }
td:first-child, th:first-child { text-align: left } td { white-space: nowrap } td.wide { width: 30% }
.bar { background: var(--bar); height: .8rem; border-radius: 2px }
pre { background: color-mix(in srgb, var(--line) 30%, transparent); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: 13px }
"""


def read_log(run: Path) -> list[dict]:
    """The records of a run's steps, in order. A line that a kill cut short is left out; of a step done twice, the later record counts."""
    records: dict[int, dict] = {}
    for line in (run / "log.jsonl").read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        records[record["step"]] = record
    return [records[step] for step in sorted(records)]


def write(run: Path) -> Path:
    """Make `report.html` in a run's folder from its records; returns its path."""
    log, final = read_log(run), json.loads((run / "final.json").read_text())
    config = final.get("config", {})
    steps = [record["step"] for record in log]
    losses = [record["loss"] for record in log]
    measured = [record for record in log if record.get("bits_per_byte") is not None]
    loads = [record for record in log if record.get("load")]
    speed = sorted(record["tokens_per_s"] for record in log)[len(log) // 2] if log else 0.0
    facts = [("validation bits per byte", f"{final['bits_per_byte_first']:.3f} → {final['bits_per_byte_last']:.3f}"),
             ("steps", f"{len(log)}"), ("tokens/s (median)", f"{speed:,.0f}"), ("time", duration(final["seconds"]))]
    parts = [f"<h1>Warpwright: {escape(run.name)}</h1>",
             f'<p class="soft">{escape(str(config.get("description", "")))}</p>',
             '<div class="facts">' + "".join(f"<span><b>{escape(value)}</b>{escape(name)}</span>" for name, value in facts) + "</div>",
             "<h2>Training loss</h2>",
             curves([("each step", steps, losses, "var(--line)"), ("smoothed", steps, smooth(losses), "var(--one)")],
                    "step", "nats a token")]
    if measured:
        measured.append({"step": steps[-1] + 1, "bits_per_byte": final["bits_per_byte_last"]})
        parts += ["<h2>Validation</h2>", curves(
            [("validation", [r["step"] for r in measured], [r["bits_per_byte"] for r in measured], "var(--two)")], "step", "bits per byte")]
    if loads:
        parts += ["<h2>Expert load</h2>", heat_map(loads[-1]["load"], f"step {loads[-1]['step']}")]
        parts += [curves([(f"layer {layer}", [r["step"] for r in loads], [imbalance(r["load"][layer]) for r in loads],
                           f"hsl({i * 67 % 360} 60% 55%)") for i, layer in enumerate(loads[-1]["load"])],
                         "step", "busiest expert over the mean, less one")]
    parts += ["<h2>Time by PTX kernel</h2>", '<p class="soft">share: of the time of all steps</p>',
              kernel_table(final.get("kernels", {}), final.get("step_seconds") or final["seconds"])]
    if final.get("sample"):
        parts += ["<h2>A sample</h2>", f"<pre>{escape(final['sample'])}</pre>"]
    rows = "".join(f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>" for name, value in config.items())
    parts += ["<h2>Configuration</h2>", f"<table>{rows}</table>"]
    page = (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Warpwright: {escape(run.name)}</title><style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n")
    path = run / "report.html"
    path.write_text(page)
    return path


def duration(seconds: float) -> str:
    """`4 min 05 s`, `12.3 s`."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def smooth(values: Sequence[float], weight: float = 0.95) -> list[float]:
    """Exponential moving average, corrected for its start (as Adam does)."""
    average, result = 0.0, []
    for i, value in enumerate(values, 1):
        average = weight * average + (1 - weight) * value
        result.append(average / (1 - weight**i))
    return result


def imbalance(load: Sequence[float]) -> float:
    """How far the busiest expert is above the mean: max / mean − 1 (the paper's MaxVio)."""
    mean = sum(load) / len(load)
    return max(load) / mean - 1 if mean else 0.0


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from low to high, about `count` of them."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def curves(lines: Sequence[tuple[str, Sequence[float], Sequence[float], str]], across: str, up: str) -> str:
    """A line plot as SVG. lines: (name, xs, ys, colour); values that are not finite are left out."""
    points = [[(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)] for _, xs, ys, _ in lines]
    flat = [point for line in points for point in line]
    if not flat:
        return '<p class="soft">nothing was measured</p>'
    x0, x1 = min(x for x, _ in flat), max(x for x, _ in flat)
    y0, y1 = min(y for _, y in flat), max(y for _, y in flat)
    margin = (y1 - y0) * 0.05 or abs(y1) * 0.05 or 1.0
    y0, y1, x1 = y0 - margin, y1 + margin, x1 if x1 > x0 else x0 + 1

    def place(x: float, y: float) -> tuple[float, float]:
        return (LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - 10), TOP + (y1 - y) / (y1 - y0) * (HEIGHT - BOTTOM - TOP))

    parts = []
    for y in ticks(y0, y1):
        _, at = place(x0, y)
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{at:.1f}" y2="{at:.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in ticks(x0, x1, 8):
        at, _ = place(x, y0)
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    for (name, _, _, colour), line in zip(lines, points, strict=True):
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in line)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"><title>{escape(name)}</title></polyline>')
    legend = "".join(f'<tspan fill="{colour}">● </tspan><tspan>{escape(name)}  </tspan>' for name, _, _, colour in lines)
    parts.append(f'<text x="{WIDTH - 12}" y="{TOP + 12}" text-anchor="end">{legend}</text>')
    return (f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(up)} by {escape(across)}">{"".join(parts)}</svg>'
            f"<figcaption>{escape(up)}, by {escape(across)}</figcaption></figure>")


def heat_map(load: dict[str, Sequence[float]], when: str) -> str:
    """Each expert's load by layer as SVG; 1 is its fair share."""
    widest = max(len(shares) for shares in load.values())
    cell = min(40.0, (WIDTH - 80) / widest)
    parts = []
    for row, (layer, shares) in enumerate(load.items()):
        mean = sum(shares) / len(shares) or 1.0
        parts.append(f'<text x="{LEFT + 10}" y="{row * 26 + 18}" text-anchor="end">layer {escape(str(layer))}</text>')
        for i, share in enumerate(shares):
            relative = share / mean
            parts.append(f'<rect x="{LEFT + 16 + i * cell:.1f}" y="{row * 26 + 2}" width="{cell - 1:.1f}" height="22" '
                         f'fill="hsl({220 if relative < 1 else 20} 80% 50%)" fill-opacity="{min(1.0, 0.08 + abs(relative - 1)):.2f}">'
                         f"<title>layer {escape(str(layer))}, expert {i}: {relative:.2f} of its fair share</title></rect>")
            if cell >= 30:
                middle = LEFT + 16 + i * cell + cell / 2
                parts.append(f'<text x="{middle:.1f}" y="{row * 26 + 18}" text-anchor="middle">{relative:.2f}</text>')
    return (f'<figure><svg viewBox="0 0 {WIDTH} {len(load) * 26 + 4}" role="img" aria-label="expert load">{"".join(parts)}</svg>'
            f"<figcaption>load of each expert over its fair share, {escape(when)}: blue is below, orange above</figcaption></figure>")


def kernel_table(kernels: dict[str, Sequence[float]], total: float) -> str:
    """Launches, time and share of the steps' time of each kernel, the longest first."""
    if not kernels:
        return '<p class="soft">no PTX kernel ran (--kernels torch)</p>'
    longest = max(seconds for _, seconds in kernels.values()) or 1.0
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{launches:,}</td><td>{seconds:.2f} s</td><td>{seconds / total:.1%}</td>"
        f'<td class="wide"><div class="bar" style="width:{seconds / longest:.1%}"></div></td></tr>'
        for name, (launches, seconds) in sorted(kernels.items(), key=lambda item: -item[1][1]))
    return f"<table><tr><th>kernel</th><th>launches</th><th>time</th><th>share</th><th></th></tr>{rows}</table>"
