"""Model shapes: what is refused, and how it is told."""

from dataclasses import replace

import pytest

from warpwright.errors import DataError
from warpwright.model.config import PRESETS, ModelConfig, read_table


@pytest.mark.parametrize("change, message", [
    ({"hidden": 0}, "hidden is 0; it must be positive"),
    ({"qk_rope": 15}, "qk_rope is 15; it must be even"),
    ({"experts": 10}, r"experts \(10\) do not divide into 4 groups"),
    ({"groups_kept": 5}, r"groups_kept \(5\) is more than groups \(4\)"),
    ({"experts_per_token": 5}, "experts_per_token is 5, but the 2 groups kept have 4 experts"),
    ({"mtp_depth": 2}, "it can be 0 or 1"),
    ({"dense_layers": 9}, "dense_layers is 9 of 4 layers"),
])
def test_a_shape_that_cannot_be_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        replace(PRESETS["tiny"], **{"groups": 4, "groups_kept": 2, "experts": 8, **change})


def test_a_table_overrides_its_base():
    assert read_table(ModelConfig, {"hidden": 384}, "x", PRESETS["tiny"]) == replace(PRESETS["tiny"], hidden=384)


@pytest.mark.parametrize("table, message", [
    ({"hiden": 384}, r"my.toml: \[model\]: there is no key 'hiden'; did you mean 'hidden'\?"),
    ({"zzz": 384}, r"there is no key 'zzz'; there are: vocab_size, hidden"),
    ({"hidden": "wide"}, r"my.toml: \[model\]: hidden is 'wide'; it must be a whole number"),
    ({"hidden": 2.5}, "hidden is 2.5; it must be a whole number"),
    ({"hidden": True}, "hidden is True; it must be a whole number"),
    ({"groups": 3}, r"my.toml: \[model\]: model: experts"),
])
def test_a_wrong_table_is_refused_with_the_place_and_the_nearest_key(table, message):
    with pytest.raises(DataError, match=message):
        read_table(ModelConfig, table, "my.toml: [model]", PRESETS["tiny"])


def test_what_a_table_without_base_leaves_out_is_named():
    with pytest.raises(DataError, match=r"x: needs .*\bheads\b"):
        read_table(ModelConfig, {"hidden": 384}, "x")
