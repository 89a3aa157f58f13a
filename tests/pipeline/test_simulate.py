"""The simulator against schedules that one can time by hand."""

import pytest

from warpwright.errors import ScheduleError
from warpwright.pipeline import Times, build, from_csv, simulate


def test_one_microbatch_over_two_stages():
    found = simulate(build("1f1b", 2, 1), Times(F=[1, 2], B=[3, 4], W=1, comm=0.5))
    assert found.spans == [[(0, 1), (8, 11)], [(1.5, 3.5), (3.5, 7.5)]]
    assert (found.makespan, found.busy, found.bubble, found.idle_within) == (11, [4, 6], [7, 5], [7, 0])


def test_links_have_their_own_latency_and_transfers_within_a_rank_take_none():
    folded = build("zb-v", 4, 1)  # stages 1 and 2 are both on rank 1
    assert simulate(folded, Times(comm=[1, 10, 2])).makespan == simulate(folded).makespan + 2 * (1 + 2)


def test_a_transfer_does_not_hold_up_its_rank():
    found = simulate(build("gpipe", 2, 3), Times(comm=5))
    assert found.spans[0][:3] == [(0, 1), (1, 2), (2, 3)]
    assert found.spans[1][:3] == [(6, 7), (7, 8), (8, 9)]


def test_a_pair_takes_the_mean_of_its_stages_and_both_parts_end_with_it():
    schedule = from_csv("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1")
    found = simulate(schedule, Times(FB=[2, 3]))
    assert found.spans[0][2] == (2, 4.5)
    assert found.spans[0][3] == (4.5, 5.5)


def test_activations_are_held_until_the_weights_are_done():
    schedule = from_csv("0F0,0I0,0F1,0I1,0W0,0W1")
    assert simulate(schedule).peak_activations == [2]
    assert simulate(schedule, kept=0.25).peak_activations == [1.25]
    assert simulate(build("gpipe", 2, 4), activations=[10, 1]).peak_activations == [40, 4]


def test_the_split_backward_may_cost_more_than_the_whole():
    assert simulate(build("zb1p", 2, 4), Times(B=2, W=1, I=1.5)).busy == [4 * (1 + 1.5 + 1)] * 2
    assert simulate(build("1f1b", 2, 4), Times(B=2, W=1, I=1.5)).busy == [4 * (1 + 2)] * 2


@pytest.mark.parametrize("times, message", [
    (Times(F=[1, 1, 1]), "F has 3 values; give one, or 4, one for each stage"),
    (Times(comm=[1, 1]), "comm has 2 values; give one, or 3, one for each link"),
    (Times(F=-1), "F is -1; a time is a number of at least 0"),
    (Times(W=3), "W is longer than B; B is the full backward"),
    (Times(F=float("nan")), "F is nan; a time is"),
])
def test_times_that_cannot_be_are_refused(times, message):
    with pytest.raises(ScheduleError, match=message):
        simulate(build("1f1b", 4, 4), times)
