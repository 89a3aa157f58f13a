"""Presets, TOML files and overrides."""

import json

import pytest

from warpwright.errors import DataError
from warpwright.kernels.recipe import Recipe
from warpwright.training import settings


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_preset_with_a_precision_and_overrides():
    found = settings.load("tiny", "bf16", {"training.steps": 7, "training.batch": None, "recipe.ema_decay": 0.5})
    assert found.name == "tiny" and found.training.steps == 7 and found.training.batch == settings.TRAINING["tiny"].batch
    assert found.recipe.matmul == "bf16" and found.recipe.ema_decay == 0.5


def test_the_default_recipe_is_the_published_one():
    assert settings.load("tiny").recipe == Recipe.named("fp8") == Recipe()


def test_a_file_stands_on_a_base_and_its_tables_hold(tmp_path):
    found = settings.load(write(tmp_path, 'base = "small"\nprecision = "fp32"\n[model]\nhidden = 512\n[training]\nlearning_rate = 1\n'
                                          '[recipe]\nadam_moments = "bf16"\nema_decay = "none"\n'))
    small = settings.load("small", "fp32")
    assert found.name == "mine" and found.model.hidden == 512 and found.model.layers == small.model.layers
    assert found.training.learning_rate == 1.0 and found.training.batch == small.training.batch
    assert found.recipe.matmul == "fp32" and found.recipe.adam_moments == "bf16" and found.recipe.ema_decay is None
    assert settings.load(write(tmp_path, 'precision = "fp32"'), "bf16").recipe.matmul == "bf16"  # the command line wins


@pytest.mark.parametrize("text, message", [
    ("[modle]\n", r"mine.toml: there is no key 'modle'; did you mean 'model'\?"),
    ("[model]\nhiden = 2\n", r"mine.toml: \[model\]: there is no key 'hiden'; did you mean 'hidden'\?"),
    ("[training]\nstepps = 2\n", r"\[training\]: there is no key 'stepps'; did you mean 'steps'\?"),
    ("[recipe]\ncache = 'int4'\n", r"\[recipe\]: cache is 'int4'; it must be 'fp8', 'e5m6', 'bf16', 'fp32'"),
    ("[training]\nsteps = 0\n", r"\[training\]: training: steps is 0; it must be positive"),
    ("[training]\nbeta1 = 1.5\n", "beta1 is 1.5; it must be less than 1"),
    ("base = 'big'\n", "base is 'big'; it can be 'tiny', 'small'"),
    ("precision = 'fp4'\n", "there is no recipe 'fp4'; there are: fp8, bf16, fp32"),
    ("model = 3\n", r"model must be a table: \[model\]"),
    ("[model\n", "mine.toml: is not valid TOML: .*line 1"),
])
def test_a_wrong_file_is_refused_with_the_place(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        settings.load(write(tmp_path, text))


def test_what_is_no_preset_and_no_file_is_told():
    with pytest.raises(DataError, match="--config tinny: there is no such preset or file; the presets are tiny, small, deepseek-v3-671b"):
        settings.load("tinny")


@pytest.mark.parametrize("key, value, message", [
    ("steps", 3, r"--set steps: write SECTION.KEY=VALUE with a section of model, training, recipe"),
    ("training.stps", 3, r"\[training\]: there is no key 'stps'; did you mean 'steps'\?"),
    ("training.steps", "many", "steps is 'many'; it must be a whole number"),
])
def test_a_wrong_override_is_refused(key, value, message):
    with pytest.raises(DataError, match=message):
        settings.load("tiny", None, {key: value})


def test_values_as_written_on_the_command_line():
    assert [settings.parse_value(text) for text in ("3", "0.5", "1e-3", "true", "bf16", "'x y'")] == [3, 0.5, 1e-3, True, "bf16", "x y"]


def test_settings_survive_json():
    found = settings.load("tiny", None, {"recipe.ema_decay": "none"})
    assert settings.from_tables(json.loads(json.dumps(found.as_tables()))) == found
