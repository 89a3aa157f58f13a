"""Special registers: PTX ISA 10. Each name → function thread → value."""

from __future__ import annotations

import time
from collections.abc import Callable

from warpwright.cpu.interpreter.words import mask


def _dimensions(name: str, get: Callable) -> dict[str, Callable]:
    """A vector of four, whose last part is 0, and its parts."""
    parts = {f"%{name}.{axis}": (lambda thread, i=i: (*get(thread), 0)[i]) for i, axis in enumerate("xyzw")}
    return {f"%{name}": lambda thread: (*get(thread), 0), **parts}


def _number(thread) -> int:
    """The CTA's number in the order in which they start: those of a cluster one after another."""
    (kx, ky, _), (nx, ny, _) = thread.cta.launch.shape.cluster, thread.cta.launch.grid
    x, y, z = _cluster(thread)
    return (x + nx // kx * (y + ny // ky * z)) * thread.cta.launch.shape.ranks + thread.cta.rank


def _cluster(thread) -> tuple[int, ...]:
    return tuple(at // by for at, by in zip(thread.cta.index, thread.cta.launch.shape.cluster, strict=True))


def _in_cluster(thread) -> tuple[int, ...]:
    return tuple(at % by for at, by in zip(thread.cta.index, thread.cta.launch.shape.cluster, strict=True))


def _clusters(thread) -> tuple[int, ...]:
    return tuple(count // by for count, by in zip(thread.cta.launch.grid, thread.cta.launch.shape.cluster, strict=True))


def _clock(thread) -> int:
    return thread.warp.clock


def _shared_whole(thread) -> int:
    """All shared memory of the CTA, in units of 128 bytes as it is given out; this machine keeps none for itself."""
    program, dynamic = thread.cta.launch.program, thread.cta.launch.dynamic_shared
    return -(-(program.dynamic_offset + dynamic if dynamic or program.has_dynamic else program.static_shared) // 128) * 128


SPECIAL: dict[str, Callable] = {
    **_dimensions("tid", lambda thread: thread.index),
    **_dimensions("ntid", lambda thread: thread.cta.launch.block),
    **_dimensions("ctaid", lambda thread: thread.cta.index),
    **_dimensions("nctaid", lambda thread: thread.cta.launch.grid),
    **_dimensions("clusterid", _cluster),
    **_dimensions("nclusterid", _clusters),
    **_dimensions("cluster_ctaid", _in_cluster),
    **_dimensions("cluster_nctaid", lambda thread: thread.cta.launch.shape.cluster),
    "%cluster_ctarank": lambda thread: thread.cta.rank,
    "%cluster_nctarank": lambda thread: thread.cta.launch.shape.ranks,
    "%is_explicit_cluster": lambda thread: int(thread.cta.launch.shape.named),
    "%laneid": lambda thread: thread.lane,
    "%warpid": lambda thread: thread.warp.number,
    "%nwarpid": lambda thread: thread.cta.launch.settings.part.threads_per_sm // 32,
    "%smid": lambda thread: thread.cta.launch.settings.first_sm + _number(thread) % thread.cta.launch.settings.part.sms,
    "%nsmid": lambda thread: thread.cta.launch.settings.sms,
    "%gridid": lambda thread: thread.cta.launch.settings.number,
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
    "%total_smem_size": _shared_whole,
    "%aggr_smem_size": _shared_whole,
    "%current_graph_exec": lambda thread: 0,
    **{f"%envreg{i}": (lambda thread: 0) for i in range(32)},
    "%envreg1": lambda thread: thread.cta.launch.settings.workspace >> 32,
    "%envreg2": lambda thread: thread.cta.launch.settings.workspace & mask(32),
    **{f"%pm{i}{suffix}": (lambda thread: 0) for i in range(8) for suffix in ("", "_64")},
    **{f"%reserved_smem_offset_{name}": (lambda thread: 0) for name in ("begin", "end", "cap", "0", "1")},
}


def reader(name: str) -> Callable:
    if name not in SPECIAL:
        raise ValueError(f"the register '{name}' is not declared")
    return SPECIAL[name]
