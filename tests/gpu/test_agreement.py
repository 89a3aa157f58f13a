"""Our verifier and ptxas judge random PTX alike, legal or with one thing changed. `warpwright ptx agree` puts thousands of cases to both."""

import pytest

from warpwright.errors import WarpwrightError
from warpwright.gpu import find_ptxas
from warpwright.gpu.agreement import compare


def test_a_sample_of_random_ptx_is_judged_alike():
    try:
        find_ptxas()
    except WarpwrightError:
        pytest.skip("no ptxas here")
    outcomes = compare(150, seed=11)
    legal = [outcome for outcome in outcomes if outcome.case.kind == "legal"]
    changed = [outcome for outcome in outcomes if outcome.case.kind != "legal"]
    assert (len(legal), len(changed)) == (150, 150)
    assert sum(outcome.theirs is None for outcome in legal) > 130 > sum(outcome.theirs is None for outcome in changed) > 20
    assert sum(outcome.agree for outcome in legal) >= 147
    assert sum(outcome.agree for outcome in changed) >= 145
