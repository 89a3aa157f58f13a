"""Special registers: PTX ISA 10. Each name → function thread → value."""

from __future__ import annotations

import time
from collections.abc import Callable

from warpwright.cpu.interpreter.words import mask

SMS = 132  # CTAs are spread over this many SMs, one after the other


def _dimensions(name: str, get: Callable) -> dict[str, Callable]:
    """A vector of four, whose last part is 0, and its parts."""
    parts = {f"%{name}.{axis}": (lambda thread, i=i: (*get(thread), 0)[i]) for i, axis in enumerate("xyzw")}
    return {f"%{name}": lambda thread: (*get(thread), 0), **parts}


def _linear_cta(thread) -> int:
    (x, y, z), (nx, ny, _) = thread.cta.index, thread.cta.launch.grid
    return x + nx * (y + ny * z)


def _clock(thread) -> int:
    return thread.warp.clock


SPECIAL: dict[str, Callable] = {
    **_dimensions("tid", lambda thread: thread.index),
    **_dimensions("ntid", lambda thread: thread.cta.launch.block),
    **_dimensions("ctaid", lambda thread: thread.cta.index),
    **_dimensions("nctaid", lambda thread: thread.cta.launch.grid),
    # Without cluster dimensions every CTA is a cluster of its own.
    **_dimensions("clusterid", lambda thread: thread.cta.index),
    **_dimensions("nclusterid", lambda thread: thread.cta.launch.grid),
    **_dimensions("cluster_ctaid", lambda thread: (0, 0, 0)),
    **_dimensions("cluster_nctaid", lambda thread: (1, 1, 1)),
    "%cluster_ctarank": lambda thread: 0,
    "%cluster_nctarank": lambda thread: 1,
    "%is_explicit_cluster": lambda thread: 0,
    "%laneid": lambda thread: thread.lane,
    "%warpid": lambda thread: thread.warp.number,
    "%nwarpid": lambda thread: len(thread.cta.warps),
    "%smid": lambda thread: _linear_cta(thread) % SMS,
    "%nsmid": lambda thread: SMS,
    "%gridid": lambda thread: 0,
    "%lanemask_eq": lambda thread: 1 << thread.lane,
    "%lanemask_le": lambda thread: mask(thread.lane + 1),
    "%lanemask_lt": lambda thread: mask(thread.lane),
    "%lanemask_ge": lambda thread: mask(32) & ~mask(thread.lane),
    "%lanemask_gt": lambda thread: mask(32) & ~mask(thread.lane + 1),
    "%clock": lambda thread: _clock(thread) & mask(32),
    "%clock_hi": lambda thread: _clock(thread) >> 32,
    "%clock64": _clock,
    "%globaltimer": lambda thread: time.time_ns(),
    "%globaltimer_lo": lambda thread: time.time_ns() & mask(32),
    "%globaltimer_hi": lambda thread: time.time_ns() >> 32,
    "%dynamic_smem_size": lambda thread: thread.cta.launch.dynamic_shared,
    "%total_smem_size": lambda thread: thread.cta.shared.size,
    "%aggr_smem_size": lambda thread: thread.cta.shared.size,
    "%current_graph_exec": lambda thread: 0,
    **{f"%envreg{i}": (lambda thread: 0) for i in range(32)},
    **{f"%pm{i}{suffix}": (lambda thread: 0) for i in range(8) for suffix in ("", "_64")},
    **{f"%reserved_smem_offset_{name}": (lambda thread: 0) for name in ("begin", "end", "cap", "0", "1")},
}


def reader(name: str) -> Callable:
    if name not in SPECIAL:
        raise ValueError(f"the register '{name}' is not declared")
    return SPECIAL[name]
