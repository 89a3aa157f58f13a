"""Failures, checkpoint interval and effective throughput of a run (Young 1974; Daly 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, isfinite, sqrt

from warpwright.errors import WarpwrightError


@dataclass(frozen=True)
class Reliability:
    failures_per_day: float
    interval_seconds: float  # of training between two checkpoints, Young's √(2·C·M)
    efficiency: float  # training time over wall time, checkpoints, lost work and restarts counted


def reliability(gpus: int, mtbf_hours: float, checkpoint_seconds: float, restart_seconds: float) -> Reliability:
    """For exponential failures, one each `mtbf_hours` of a GPU's time, each of which stops the whole run. Daly's complete model."""
    for name, value, least in (
            ("gpus", gpus, 1), ("mtbf-hours", mtbf_hours, 1e-9), ("checkpoint", checkpoint_seconds, 1e-9), ("restart", restart_seconds, 0)):
        if not isfinite(value) or value < least:
            raise WarpwrightError(f"{name} is {value}; it must be {'0 or more' if least == 0 else 'positive'}")
    mean = mtbf_hours * 3600 / gpus
    interval = sqrt(2 * checkpoint_seconds * mean)
    exponent = (interval + checkpoint_seconds) / mean
    efficiency = interval / mean * exp(-restart_seconds / mean) / expm1(exponent) if exponent < 700 else 0.0
    return Reliability(86400 / mean, interval, efficiency)
