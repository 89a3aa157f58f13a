"""The checker finds each way in which a table can be illegal, and says which action it is."""

import dataclasses

import pytest

from warpwright.errors import ScheduleError
from warpwright.pipeline import build, check, from_csv, parse, simulate


def table(text):
    """A schedule from lines `rank's actions separated by blanks`."""
    return from_csv("\n".join(",".join(line.split()) for line in text.strip().splitlines()))


def test_the_smallest_pipeline_is_legal():
    check(table("0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD"))


@pytest.mark.parametrize("text, message", [
    ("0F0 0F1 0B0\n1F0 1F1 1B0 1B1", "rank 0 must do 0I1 once and its table has it not at all"),
    ("0F0 0B0 0B0\n1F0 1B0", "rank 0 must do 0B0 once and its table has it 2 times"),
    ("0F0 0SEND_F0 0B0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD", "rank 0 must do 0RECV_B0 once and its table has it not at all"),
    ("0F0 0SEND_F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD", "must do 0SEND_F0 once and its table has it 2 times"),
    ("0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD", "rank 0 must do 0REDUCE_GRAD once"),
    ("0SEND_F0 0F0 0RECV_B0 0B0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD",
     "rank 0 is at 0SEND_F0, which needs 0F0; rank 1 is at 1RECV_F0, which waits for rank 0 to send it"),
    ("0F0 0SEND_F0 0B0 0RECV_B0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD",
     "rank 0 is at 0B0, which needs 0RECV_B0; rank 1 is at 1SEND_B0"),
    ("0F0 0SEND_F0 0RECV_B0 0REDUCE_GRAD 0B0\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD",
     "rank 0 is at 0REDUCE_GRAD, whose stage has 1 backwards to come"),
    ("0F0 0SEND_F0 0RECV_B0 0W0 0I0 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD", "rank 0 is at 0W0, which needs 0I0"),
    # Each rank's send waits for a receive behind the other's: legal only while sends are buffered, which NCCL does not promise.
    ("0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD\n1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD",
     "rank 0 is at 0SEND_F1, which waits for rank 1 to receive it; rank 1 is at 1SEND_B0, which waits for rank 0 to receive it"),
])
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(ScheduleError, match=message):
        check(table(text))


def test_a_pair_cannot_hold_a_backward_of_its_own_forward():
    with pytest.raises(ScheduleError, match=r"rank 0 is at \(0F0;0B0\)OVERLAP_F_B, which needs 0F0"):
        run = table("(0F0;0B0)OVERLAP_F_B 0REDUCE_GRAD")
        check(run)
    with pytest.raises(ScheduleError, match="deadlocks: each of these waits for a result that never comes: rank 0 at"):
        simulate(run)


def test_reductions_over_replicas_stand_in_one_order():
    """Both stages of DualPipe's ranks 0 and 3 are reduced over the two: in different orders they would wait for each other."""
    schedule = build("dualpipe", 4, 8)
    check(schedule)
    rows = [list(row) for row in schedule.table]
    first, last = (index for index, action in enumerate(rows[0]) if action.kind == "REDUCE_GRAD")
    rows[0].append(rows[0].pop(first))
    assert first < last
    broken = dataclasses.replace(schedule)
    broken.__dict__["table"] = tuple(map(tuple, rows))
    with pytest.raises(ScheduleError, match="REDUCE_GRAD, which waits for rank"):
        check(broken)


def test_the_memory_bound():
    schedule = build("dualpipe", 8, 16)
    check(schedule, memory=9)
    with pytest.raises(ScheduleError, match="dualpipe: rank 0 holds 9 activations at once and the limit is 8"):
        check(schedule, memory=8)
    check(schedule, memory=4.5, activations=0.5)


@pytest.mark.parametrize("text, message", [
    ("0F", "'0F' is not an action"), ("0F0 0X0", "'0X0' is not an action"), ("(0B0;0F1)OVERLAP_F_B", "must be a forward and a full backward"),
    ("1F0 1B0", "no rank computes stage 0"), ("0F0 0B0\n0F1 0B1", "stage 0 is on rank 0 and on rank 1"), ("", "the table has no computation"),
])
def test_what_is_no_table_is_refused(text, message):
    with pytest.raises(ScheduleError, match=message):
        table(text)


@pytest.mark.parametrize("text", ["2F0", "2I10", "2W0", "12B3", "3SEND_F1", "3RECV_F1", "0RECV_B2", "7REDUCE_GRAD", "(0F3;7B1)OVERLAP_F_B"])
def test_actions_print_as_they_are_read(text):
    assert str(parse(text)) == text
