"""Counts of models against published ones, and `warpwright plan model` as a person runs it."""

import json
import subprocess
import sys

import pytest

from warpwright.planning import PRESETS, count


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "warpwright", "plan", "model", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name, total", [("llama-3-8b", 8_030_261_248), ("llama-3-405b", 405_853_388_800), ("mixtral-8x7b", 46_702_792_704)])
def test_totals_equal_the_published_checkpoints(name, total):
    assert count(PRESETS[name]).total == total


def test_deepseek_v3():
    counts = count(PRESETS["deepseek-v3-671b"])
    assert counts.parts["attention"] + 61 * 2048 == 61 * 187_107_328
    assert round(counts.total / 1e9, 3) == 671.026 and round(counts.active / 1e9, 2) == 37.55 and round(counts.mtp / 1e9, 2) == 11.61
    assert counts.train_flops() / 1e9 == pytest.approx(250.45, abs=0.02)
    assert counts.train_flops(causal=False) / 1e9 == pytest.approx(281.15, abs=0.02)


def test_a_config_file_counts_as_its_preset_does(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(PRESETS["mixtral-8x7b"]))
    assert json.loads(run(str(file), "--json").stdout)["total"] == count(PRESETS["mixtral-8x7b"]).total


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    done = run("gpt-9")
    assert done.returncode == 2 and "gpt-9: no such model or file; the presets are" in done.stderr
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": -1}))
    done = run(str(file))
    assert done.returncode == 2 and "hidden_size is -1; it must be a whole number" in done.stderr


@pytest.mark.parametrize("name, total, active", [("deepseek-v2-236b", 236, 21), ("qwen3-235b-a22b", 235, 22), ("mixtral-8x7b", 47, 13)])
def test_rounded_sizes_are_those_in_the_names(name, total, active):
    counts = count(PRESETS[name])
    assert (round(counts.total / 1e9), round(counts.active / 1e9)) == (total, active)
