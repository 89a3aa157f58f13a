"""The search: never worse than the best known schedule, better where those leave room, and always legal."""

import pytest

from warpwright.errors import ScheduleError
from warpwright.pipeline import KNOWN, Times, build, check, search, simulate

TIMES = {"even": Times(), "dear input": Times(F=1, B=2.4, W=0.8), "cheap pairs": Times(FB=2.4), "links": Times(comm=0.4),
         "uneven": Times(F=[1, 2, 1, 1], B=[2, 4, 2, 2.5], W=[1, 2, 1, 1])}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES.keys())
@pytest.mark.parametrize("microbatches, memory", [(1, None), (5, 3), (8, 5), (8, None)])
def test_the_best_is_never_worse_than_a_known_one_that_fits(times, microbatches, memory):
    found = search(4, microbatches, times, memory, tries=50)
    assert {one.name for one in found} >= set(KNOWN)
    best = found[0]
    assert not best.why_not
    assert best.makespan == min(one.makespan for one in found if not one.why_not)
    check(best.schedule, memory, 1 / (best.schedule.stages // 4))
    assert simulate(best.schedule, best.times).makespan == best.makespan


def test_it_finds_the_optimum_where_known_schedules_do_not():
    """Two micro-batches over four parts: one from each end takes 4 F + 4 I, its longest chain, and 1 W after it, which nothing can undercut."""
    best = search(4, 2)[0]
    assert (best.name, best.makespan) == ("found", 9)
    assert min(simulate(build("zb1p", 4, 2)).makespan, simulate(build("zb-v", 8, 2), Times(0.5, 1, 0.5)).makespan) == 11


def test_it_beats_the_known_ones_where_stages_are_uneven():
    found = search(4, 16, TIMES["uneven"], 5, tries=300)
    assert found[0].name == "found"
    assert found[0].makespan < min(one.makespan for one in found if one.name in KNOWN and not one.why_not)


def test_it_finds_schedules_in_less_memory_than_any_known_one():
    found = search(4, 6, memory=2, tries=50)
    assert [one.name for one in found if not one.why_not] == ["found"]
    assert max(found[0].simulation.peak_activations) <= 2


def test_parameters_count():
    """With parameters as dear as eight activations, DualPipe's second copy does not fit."""
    without = {one.name: one for one in search(4, 8, memory=13, tries=0)}
    dear = {one.name: one for one in search(4, 8, memory=13, parameters=8, tries=0)}
    assert not without["dualpipe"].why_not
    assert dear["dualpipe"].why_not == "needs memory 21" and not dear["zb-v"].why_not


def test_the_same_question_has_the_same_answer():
    assert search(3, 5, memory=2, tries=80)[0] == search(3, 5, memory=2, tries=80)[0]


def test_what_no_schedule_can_do_is_said():
    with pytest.raises(ScheduleError, match=r"no schedule fits in memory 0\.5; the known schedule that needs least needs 4"):
        search(4, 8, memory=0.5)
    with pytest.raises(ScheduleError, match="search: ranks is 0; it must be at least 1"):
        search(0, 8)
    with pytest.raises(ScheduleError, match="F has 3 values; give one, or 4, one for each stage"):
        search(4, 8, Times(F=[1, 2, 3]))
