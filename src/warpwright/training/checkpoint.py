"""Checkpoints: a folder each, `step-00000100/`, with `tensors.safetensors` and `state.json`.

A checkpoint is written beside its place and moved there when it is whole and on the disk, so that a kill or a full disk at any moment
leaves the older ones as they were. `state.json` holds the tensors' checksum, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from warpwright.errors import DataError

TENSORS, STATE = "tensors.safetensors", "state.json"


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint in the folder, in order."""
    if not folder.is_dir():
        return []
    found = (re.fullmatch(r"step-(\d+)", entry.name) for entry in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def latest(folder: Path) -> int | None:
    """The newest checkpoint's step, or None."""
    return max(steps(folder), default=None)


def _place(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def save(folder: Path, step: int, tensors: dict[str, torch.Tensor], state: dict, keep: int = 2) -> Path:
    """Write a checkpoint and remove all but the newest `keep`. Raises DataError where the disk refuses; the older ones stay.

    tensors: by name, on any device. state: what JSON can hold; floats come back exactly.
    """
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for remains in folder.glob(".writing-*"):  # of a run that was killed while it wrote
            shutil.rmtree(remains, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, temporary / TENSORS)
        facts = {"step": step, "sha256": _digest(temporary / TENSORS), "state": state}
        (temporary / STATE).write_text(json.dumps(facts))
        for name in (TENSORS, STATE):
            _flush(temporary / name)
        _flush(temporary)
        place = _place(folder, step)
        if place.exists():
            shutil.rmtree(place)
        os.rename(temporary, place)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).removeprefix("Error while serializing: I/O error: ")
        older = latest(folder)
        kept = f"the checkpoint of step {older} is intact; " if older is not None else ""
        raise DataError(f"{folder}: the checkpoint of step {step} could not be written: {reason}; "
                        f"{kept}make room and use --resume") from None
    for old in steps(folder)[:-keep]:
        shutil.rmtree(_place(folder, old), ignore_errors=True)
    return place


def load(folder: Path, step: int | None = None) -> tuple[int, dict[str, torch.Tensor], dict]:
    """(step, tensors, state) of a checkpoint, by default the newest. Raises DataError where there is none or it is damaged."""
    if step is None:
        step = latest(folder)
        if step is None:
            raise DataError(f"{folder}: no checkpoint to resume from; start a run without --resume, or name its folder with --out")
    damage = _damage(_place(folder, step))
    if damage:
        usable = [older for older in steps(folder) if older != step and not _damage(_place(folder, older))]
        advice = (f"step {usable[-1]}'s is whole: remove the damaged one (rm -r {_place(folder, step)}) and use --resume" if usable
                  else "no other is left; start again in another folder")
        raise DataError(f"{_place(folder, step)}: the checkpoint is damaged: {damage}; {advice}")
    place = _place(folder, step)
    return step, load_file(place / TENSORS), json.loads((place / STATE).read_text())["state"]


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: a kill or a full disk leaves what was there before. Raises OSError."""
    temporary = path.with_name(f".writing-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def _damage(place: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        facts = json.loads((place / STATE).read_text())
        if facts["sha256"] != _digest(place / TENSORS):
            return f"{TENSORS} does not match its checksum"
    except OSError as error:
        return f"{Path(error.filename or '').name or place.name}: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        return f"{STATE} is not readable"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have a file's or folder's contents on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
