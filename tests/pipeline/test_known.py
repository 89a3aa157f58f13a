"""The published schedules: which layouts they take, that their tables are legal, and that torch's own tables of the same name agree."""

import re

import pytest
from torch.distributed.pipelining import schedules as torch_schedules

from warpwright.errors import ScheduleError
from warpwright.pipeline import KNOWN, Times, build, check, from_csv, published_bubble, simulate
from warpwright.pipeline.actions import PAIR

LAYOUTS = [(stages, microbatches) for stages in range(1, 17) for microbatches in sorted({1, 2, stages, stages + 1, 2 * stages, 3 * stages + 2})]


def legal(name):
    """Every layout of `LAYOUTS` that a schedule takes."""
    for stages, microbatches in LAYOUTS:
        try:
            yield build(name, stages, microbatches)
        except ScheduleError:
            continue


@pytest.mark.parametrize("name", KNOWN)
def test_every_table_is_legal(name):
    found = list(legal(name))
    assert len({schedule.stages for schedule in found}) >= 8
    for schedule in found:
        check(schedule)


@pytest.mark.parametrize("name, stages, microbatches, message", [
    ("dualpipe", 7, 16, "dualpipe: stages is 7; each rank has two of them, so it must be even: 6 or 8"),
    ("dualpipe", 8, 12, "microbatches is 12; with 8 stages it must be even and at least 16 (half of them enter at each end), so 16 is legal"),
    ("dualpipe", 4, 9, "so 10 is legal"),
    ("dualpipev", 1, 4, "dualpipev: stages is 1; each rank has two of them, so it must be even: 2"),
    ("dualpipev", 8, 7, "dualpipev: microbatches is 7; with 8 stages it must be at least 8, to fill the V"),
    ("zb-v", 5, 8, "zb-v: stages is 5; each rank has two of them, so it must be even: 4 or 6"),
    ("interleaved-1f1b", 5, 8, "stages is 5; each rank has 2 of them (chunks), so it must be a multiple of 2: 4 or 6"),
    ("interleaved-1f1b", 8, 11, "microbatches is 11; on 4 ranks they go in 2 equal groups, so 10 or 12 is legal"),
    ("1f1b", 4, 0, "1f1b: microbatches is 0; it must be at least 1"),
    ("gpipe", -4, 8, "gpipe: stages is -4; it must be at least 1"),
    ("dualpip", 4, 8, "there is no schedule 'dualpip'; there are gpipe, 1f1b, interleaved-1f1b, zb1p, zb-v, dualpipe, dualpipev"),
])
def test_an_illegal_layout_is_refused_with_what_would_be_legal(name, stages, microbatches, message):
    with pytest.raises(ScheduleError, match=re.escape(message)):
        build(name, stages, microbatches)


@pytest.mark.parametrize("stages, factor", [(stages, factor) for stages in (2, 4, 8, 16) for factor in (1, 2, 3)])
def test_bubbles_are_the_formulas(stages, factor):
    """Where they apply: stages of equal time, backward for the input = W = F, no time for transfers, M ≥ P (DualPipe 2P). M does not matter then."""
    for name in KNOWN:
        times = Times(F=1, B=2, W=1, FB=2.5)
        schedule = build(name, stages, factor * 2 * stages)
        assert max(simulate(schedule, times).bubble) == pytest.approx(published_bubble(schedule, times), abs=1e-9), name


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_these_formulas_hold_whatever_the_times(name):
    times = Times(F=1.3, B=2.9, W=0.7)
    schedule = build(name, 8, 24)
    assert simulate(schedule, times).bubble == pytest.approx([published_bubble(schedule, times)] * schedule.ranks)


def test_where_dualpipes_formula_does_not_apply():
    """PP16, 120 micro-batches. It is exact for input-backward = W = F, an over-estimate where input-backward > W, an under-estimate where F > W."""
    schedule = build("dualpipe", 16, 120)

    def worst(**times):
        return max(simulate(schedule, Times(**times)).bubble), published_bubble(schedule, Times(**times))

    assert worst() == (14, 14)
    assert worst(B=2, W=0.8, FB=2.6) == pytest.approx((14.4, 15.4))
    assert worst(F=1.3, FB=2.6) == pytest.approx((13.3, 11.2))


def test_dualpipe_as_deepseek_v3_runs_it():
    """16 ranks, 120 micro-batches: the middle ranks' bubble is the formula's with a cheaper pair, the outer ranks' less; 17 activations on each."""
    schedule = build("dualpipe", 16, 120)
    pairs = [sum(action.kind == PAIR for action in order) for order in schedule.orders]
    assert (pairs[0], pairs[7]) == (97, 103)
    assert sum(pairs) / 16 == pytest.approx(100.4, abs=0.05)
    found = simulate(schedule, Times(FB=2.5))
    assert max(found.bubble) == 7 * (2.5 + 2 - 3)
    assert found.peak_activations == [17] * 16
    assert found.parameters == [2] * 16


@pytest.mark.parametrize("microbatches", [32, 64, 120])
def test_dualpipes_bubble_does_not_depend_on_the_number_of_microbatches(microbatches):
    found = simulate(build("dualpipe", 16, microbatches), Times(F=0.9, B=2.1, W=0.8, FB=2.6))
    assert found.bubble == pytest.approx(simulate(build("dualpipe", 16, 240), Times(F=0.9, B=2.1, W=0.8, FB=2.6)).bubble)


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_activations_and_parameters_are_the_published_ones(stages):
    """P for 1F1B, ZB1P and ZB-V (in half-sized chunks), P + 1 for DualPipe and DualPipeV, whatever the number of micro-batches and the times."""
    for times in (Times(), Times(F=1.2, B=2.2, W=0.7, FB=2.9)):
        for factor in (1, 3):
            most = {name: max(simulate(build(name, stages, 2 * stages * factor), times).peak_activations) for name in KNOWN}
            assert most["1f1b"] == most["zb1p"] == most["zb-v"] == stages
            assert most["dualpipe"] == most["dualpipev"] == stages + 1
            assert most["gpipe"] == 2 * stages * factor
    assert [simulate(build(name, stages, 2 * stages)).parameters[0] for name in ("1f1b", "zb1p", "dualpipe", "dualpipev")] == [1, 1, 2, 2]


def test_zb_vs_zero_is_of_each_ranks_own_span():
    """Its ranks start and end one after the other: (R−1)F of the step, nothing between a rank's first action and its last."""
    found = simulate(build("zb-v", 8, 12))
    assert found.idle_within == [0] * 4
    assert found.bubble == [3] * 4


TORCH = {"interleaved-1f1b": torch_schedules.ScheduleInterleaved1F1B, "zb-v": torch_schedules.ScheduleZBVZeroBubble,
         "dualpipev": torch_schedules.ScheduleDualPipeV, "zb1p": torch_schedules.ScheduleInterleavedZeroBubble}


def torch_orders(name, ranks, chunks, microbatches):
    """The orders that torch's own class makes: it asks for nothing but these attributes."""
    schedule = object.__new__(TORCH[name])
    rounds = max(1, microbatches // ranks)
    vars(schedule).update(pp_group_size=ranks, _n_microbatches=microbatches, n_local_stages=chunks, num_stages=ranks * chunks,
                          number_of_rounds=rounds, microbatches_per_round=microbatches // rounds)
    return [[str(action) for action in schedule._calculate_single_rank_operations(rank) if action is not None] for rank in range(ranks)]


@pytest.mark.parametrize("name, chunks", [("interleaved-1f1b", 2), ("interleaved-1f1b", 3), ("zb-v", 2), ("dualpipev", 2), ("zb1p", 1)])
@pytest.mark.parametrize("ranks, microbatches", [(2, 4), (2, 6), (4, 8), (4, 20), (8, 16)])
def test_torchs_tables_agree(name, chunks, ranks, microbatches):
    ours = build(name, ranks * chunks, microbatches, chunks)
    assert [list(map(str, order)) for order in ours.orders] == torch_orders(name, ranks, chunks, microbatches)


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - {"dualpipe"}))
def test_torch_takes_the_table(name, tmp_path):
    """Its validation accepts the computations; its own words for actions read ours, transfers and reductions too."""
    schedule = build(name, 8, 16)
    actions = {rank: [torch_schedules._Action.from_str(cell) for cell in line.split(",")]
               for rank, line in enumerate(schedule.to_csv(transfers=False).splitlines())}
    where = torch_schedules._validate_schedule(actions, schedule.ranks, schedule.stages, schedule.microbatches)
    assert where == dict(enumerate(schedule.placement[0]))
    table = [line.split(",") for line in schedule.to_csv().splitlines()]
    assert [[str(torch_schedules._Action.from_str(cell)) for cell in row] for row in table] == table
    with_reductions = {rank: torch_schedules._add_reduce_grad(order, schedule.microbatches) for rank, order in actions.items()}
    theirs = torch_schedules._add_send_recv(with_reductions, lambda stage: where[stage], schedule.stages)
    assert [sorted(row) for row in table] == [sorted(map(str, theirs[rank])) for rank in range(schedule.ranks)]


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - {"dualpipe"}))
@pytest.mark.parametrize("transfers", [True, False])
def test_a_table_comes_back_from_csv(name, transfers):
    schedule = build(name, 8, 12)
    back = from_csv(schedule.to_csv(transfers), name)
    assert back == schedule
    assert back.table == schedule.table


def test_a_bidirectional_table_has_no_csv():
    with pytest.raises(ScheduleError, match="one rank for each stage and dualpipe has two"):
        build("dualpipe", 4, 8).to_csv()
