"""Young's interval and Daly's model of a run that fails."""

import pytest

from warpwright.errors import WarpwrightError
from warpwright.planning.reliability import reliability


def test_figures_by_hand():
    found = reliability(1000, 24_000, 100, 0)  # one failure a day
    assert found.failures_per_day == pytest.approx(1) and found.interval_seconds == pytest.approx(4156.92, abs=0.01)
    assert found.efficiency == pytest.approx(1 - (200 / 86400) ** 0.5, abs=0.002)  # first order: 1 − √(2C/M)


def test_more_gpus_and_slower_restarts_cost_throughput():
    base = reliability(2048, 50_000, 30, 600).efficiency
    assert reliability(4096, 50_000, 30, 600).efficiency < base and reliability(2048, 50_000, 30, 1200).efficiency < base
    assert reliability(10**9, 1, 100, 0).efficiency < 1e-9
    with pytest.raises(WarpwrightError, match="gpus is 0; it must be positive"):
        reliability(0, 1, 1, 1)
