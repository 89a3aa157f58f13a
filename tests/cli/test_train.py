"""`warpwright train` and `generate` as a user runs them: real processes, killed and resumed, and every bad input in one line."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from toy import write_toy

COMMAND = [sys.executable, "-m", "warpwright"]


def warpwright(*arguments, cwd=None, **options):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=300, **options)


def refused(said):
    """The one-line error of a command that refused its input."""
    assert said.returncode == 2, said
    errors = [line for line in said.stderr.splitlines() if line.startswith("warpwright: error: ")]
    assert len(errors) == 1 and said.stderr.splitlines()[-1] == errors[0] and "Traceback" not in said.stderr, said.stderr
    return errors[0]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The arguments of a toy run with torch's kernels, but for --out."""
    config, text = write_toy(tmp_path_factory.mktemp("toy"))
    return ["train", "--config", config, "--data", text, "--kernels", "torch"]


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    """A finished toy run's folder and what it printed with --json."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    said = warpwright(*toy, "--out", folder, "--json")
    assert said.returncode == 0, said
    return folder, [json.loads(line) for line in said.stdout.splitlines()]


def test_json_gives_an_object_a_step_and_a_last_one(finished):
    folder, records = finished
    assert [record["step"] for record in records[:-1]] == list(range(12))
    assert all(record["loss"] > 0 and record["tokens_per_s"] > 0 for record in records[:-1])
    final = records[-1]
    assert final["final"] is True and final["launches"] == {} and final["seconds"] > 0
    assert 0 < final["bits_per_byte_last"] < final["bits_per_byte_first"]
    names = {"run.json", "tokenizer.json", "log.jsonl", "final.json", "report.html", "checkpoints"}
    assert {entry.name for entry in folder.iterdir()} == names


def test_people_see_progress_a_sample_and_the_report(toy, tmp_path):
    said = warpwright(*toy, "--steps", 2, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"})
    assert said.returncode == 0, said
    for words in ("step 1/2: loss", "bits/byte", "tokens/s, ETA", "a sample of the trained model", "report: runs/toy-1/report.html"):
        assert words in said.stdout
    assert (tmp_path / "runs" / "toy-1" / "report.html").exists()


def test_a_run_is_sampled(finished):
    folder, _ = finished
    asked = ["generate", "--run", folder, "--prompt", "def f", "--tokens", 5, "--seed", 3]
    first, again = warpwright(*asked), warpwright(*asked, "--json")
    assert first.returncode == 0 and first.stdout.startswith("def f"), first
    assert json.loads(again.stdout)["text"] == first.stdout.removesuffix("\n")


def test_a_run_killed_at_any_moment_goes_on_to_the_same_losses(toy, finished, tmp_path):
    _, expected = finished
    folder, chance, kills = tmp_path / "run", random.Random(0), 0
    folder.mkdir()
    while True:
        child = subprocess.Popen([*COMMAND, *map(str, toy), "--out", str(folder), "--resume", "--json", "--checkpoint-every", "2"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kills < 3:
            for _ in range(chance.randrange(4)):  # steps that it may take
                child.stdout.readline()
            time.sleep(chance.random() * 0.05)
            child.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = child.communicate()
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL, errors
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [record["loss"] for record in log] == [record["loss"] for record in expected[:-1]]
    final = json.loads((folder / "final.json").read_text())
    assert kills == 3 and final["bits_per_byte_last"] == expected[-1]["bits_per_byte_last"] and final["sample"] == expected[-1]["sample"]


@pytest.mark.parametrize("content, message", [
    (None, "no such file or folder; --data takes a UTF-8 text file"),
    (b"", "is empty; --data takes a file with text in it"),
    (b"\x7fELF\x02\x00\xff\xfe" * 50, "is not UTF-8 text"),
    (b"a b\n" * 20, "a sequence of 32 tokens needs 34 of validation data"),
])
def test_data_that_cannot_be_trained_on_is_refused(toy, tmp_path, content, message):
    if content is not None:
        (tmp_path / "data").write_bytes(content)
    said = warpwright(*toy, "--data", tmp_path / "data", "--out", tmp_path / "run")
    assert message in refused(said)
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("arguments, message", [
    (["--config", "bad.toml"], "bad.toml: [model]: there is no key 'hiden'; did you mean 'hidden'?"),
    (["--config", "nothing"], "there is no such preset or file"),
    (["--precision", "fp4"], "there is no recipe 'fp4'"),
    (["--kernels", "cuda"], "--kernels cuda: there are: ptx, torch"),
    (["--steps", "0"], "steps is 0; it must be positive"),
    (["--steps", "many"], "Invalid value for '--steps'"),
    (["--set", "recipe.cashe=bf16"], "did you mean 'cache'?"),
    (["--resume", "--out", "nowhere"], "nowhere: there is no such folder to resume from"),
    (["--resume"], "there is no run to resume"),
    (["--stepz", "3"], "No such option"),
])
def test_a_wrong_option_is_refused(tmp_path, arguments, message):
    (tmp_path / "bad.toml").write_text("[model]\nhiden = 3\n")
    said = warpwright("train", *arguments, cwd=tmp_path)
    assert message in refused(said)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.toml"]


def test_a_corrupt_checkpoint_is_told_and_the_one_before_it_works(toy, finished, tmp_path):
    folder, expected = finished
    copied = tmp_path / "run"
    subprocess.run(["cp", "-r", folder, copied], check=True)
    tensors = copied / "checkpoints" / "step-00000012" / "tensors.safetensors"
    damaged = bytearray(tensors.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    tensors.write_bytes(damaged)
    said = refused(warpwright(*toy, "--out", copied, "--resume"))
    assert "step-00000012: the checkpoint is damaged: tensors.safetensors does not match its checksum; step 8's is whole" in said
    assert "damaged" in refused(warpwright("generate", "--run", copied))
    subprocess.run(said.partition("(")[2].partition(")")[0].split(), check=True)  # what the message says to do
    records = [json.loads(line) for line in warpwright(*toy, "--out", copied, "--resume", "--json").stdout.splitlines()]
    assert [record["loss"] for record in records[:-1]] == [record["loss"] for record in expected[8:-1]]


def test_a_full_disk_is_told_and_the_run_goes_on_later(toy, finished, tmp_path):
    folder, expected = finished
    small = os.path.getsize(folder / "checkpoints" / "step-00000012" / "tensors.safetensors") // 2
    said = warpwright(*toy, "--out", tmp_path / "run", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (small, small)))
    assert "the checkpoint of step 4 could not be written: File too large" in refused(said)
    records = [json.loads(line) for line in warpwright(*toy, "--out", tmp_path / "run", "--resume", "--json").stdout.splitlines()]
    assert [record["loss"] for record in records[:-1]] == [record["loss"] for record in expected[:-1]]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    assert "holds no run" in refused(warpwright("generate", "--run", tmp_path))


def test_help_is_quick_and_names_every_option_of_the_recipe():
    started = time.perf_counter()
    said = warpwright("train", "--help", env={**os.environ, "COLUMNS": "200"})
    assert said.returncode == 0 and time.perf_counter() - started < 20
    for option in ("--data", "--config", "--precision", "--kernels", "--steps", "--seed", "--out", "--resume", "--json"):
        assert option in said.stdout
    loaded = subprocess.run([sys.executable, "-X", "importtime", "-m", "warpwright", "--help"], capture_output=True, text=True).stderr
    assert not any(f" {name}\n" in loaded for name in ("torch", "numpy", "llvmlite"))
