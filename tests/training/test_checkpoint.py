"""Checkpoints: whole or not there, exact, and honest about damage."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from warpwright.errors import DataError
from warpwright.training import checkpoint

TENSORS = {"a": torch.randn(8, 5), "b": torch.randn(3).bfloat16(), "rng": torch.get_rng_state(), "empty": torch.zeros(0)}
STATE = {"loss": 0.1 + 0.2, "tiny": 5e-324, "steps": [1, 2], "name": "é"}


def test_what_is_saved_comes_back_exactly(tmp_path):
    checkpoint.save(tmp_path, 7, TENSORS, STATE)
    step, tensors, state = checkpoint.load(tmp_path)
    assert step == 7 and state == STATE and tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor)


def test_only_the_newest_are_kept_and_the_newest_is_loaded(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, {"a": torch.full((1,), float(step))}, {})
    assert checkpoint.steps(tmp_path) == [20, 30] and checkpoint.load(tmp_path)[0] == 30
    assert checkpoint.load(tmp_path, 20)[1]["a"].item() == 20


def test_nothing_to_resume_from_is_told(tmp_path):
    with pytest.raises(DataError, match="no checkpoint to resume from; start a run without --resume"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("harm, message", [
    (lambda place: (place / "tensors.safetensors").write_bytes(b"x" * 100), "does not match its checksum"),
    (lambda place: (place / "tensors.safetensors").unlink(), "tensors.safetensors: No such file"),
    (lambda place: (place / "state.json").write_text("{"), "state.json is not readable"),
    (lambda place: (place / "state.json").write_text("[]"), "state.json is not readable"),
])
def test_a_damaged_checkpoint_is_told_with_the_one_to_use_instead(tmp_path, harm, message):
    checkpoint.save(tmp_path, 1, TENSORS, STATE)
    harm(checkpoint.save(tmp_path, 2, TENSORS, STATE))
    said = rf"step-00000002: the checkpoint is damaged: .*{message}.*; step 1's is whole: remove the damaged one"
    with pytest.raises(DataError, match=said):
        checkpoint.load(tmp_path)
    harm(tmp_path / "step-00000001")
    with pytest.raises(DataError, match="no other is left"):
        checkpoint.load(tmp_path)


def test_a_full_disk_leaves_the_older_checkpoint_intact(tmp_path):
    checkpoint.save(tmp_path, 1, TENSORS, STATE)
    program = textwrap.dedent(f"""
        import resource, signal, torch
        from pathlib import Path
        from warpwright.errors import DataError
        from warpwright.training import checkpoint
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # as a disk with 100 kB left
        try:
            checkpoint.save(Path({str(tmp_path)!r}), 2, {{"a": torch.zeros(1_000_000)}}, {{}})
        except DataError as error:
            print(error)
    """)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "the checkpoint of step 2 could not be written" in said.stdout and "step 1 is intact; make room" in said.stdout, said
    assert checkpoint.load(tmp_path)[0] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000001"]


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    program = textwrap.dedent(f"""
        import torch
        from pathlib import Path
        from warpwright.training import checkpoint
        for step in range(1, 10**6):
            checkpoint.save(Path({str(tmp_path)!r}), step, {{"a": torch.full((200_000,), float(step))}}, {{"step": step}})
            print(step, flush=True)
    """)
    for delay in (0.0, 0.003, 0.011):
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        last = int(child.stdout.readline())
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        last = max([last, *(int(line) for line in child.stdout.read().split() if line)])
        child.wait()
        step, tensors, state = checkpoint.load(tmp_path)
        assert step >= last and state == {"step": step} and (tensors["a"] == step).all()
        assert json.loads((tmp_path / f"step-{step:08d}" / "state.json").read_text())["step"] == step
