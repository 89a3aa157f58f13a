"""A run's folder: what it was started with, its tokenizer, its records and its checkpoints.

    run.json         settings, data, kernels, seed, and a checksum of the text
    tokenizer.json   trained on the run's data
    log.jsonl        a JSON object a step
    checkpoints/     the newest few (see `checkpoint`)
    final.json, report.html, sample.txt   once the run is complete
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from warpwright.errors import DataError
from warpwright.training import settings as settings_module
from warpwright.training.checkpoint import write_text
from warpwright.training.data import Corpus
from warpwright.training.settings import Settings


@dataclass(frozen=True)
class Run:
    """A run's folder and what the run was started with. data: a path, or None for the default text. kernels: "ptx" or "torch"."""

    folder: Path
    settings: Settings
    data: str | None
    kernels: str
    seed: int
    text_sha256: str | None = None

    @property
    def name(self) -> str:
        """Of the configuration."""
        return self.settings.name

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    @property
    def final(self) -> Path:
        return self.folder / "final.json"

    def save(self) -> None:
        """Write run.json."""
        facts = {**asdict(self), "settings": self.settings.as_tables()}
        del facts["folder"]
        write_text(self.folder / "run.json", json.dumps(facts, indent=1))

    def with_corpus(self, corpus: Corpus) -> Run:
        """The run with the checksum of its text; raises DataError where it has been another."""
        digest = hashlib.sha256()
        for name, text in corpus.documents:
            digest.update(f"{name}\0{text}\0".encode())
        found = digest.hexdigest()
        if self.text_sha256 not in (None, found):
            raise DataError(f"{corpus.name}: the text has changed since the run {self.folder} began; restore it, "
                            "or start another run with --out")
        return replace(self, text_sha256=found)


def exists(folder: Path) -> bool:
    return (folder / "run.json").exists()


def load(folder: Path) -> Run:
    """The run in a folder. Raises DataError where there is none."""
    try:
        facts = json.loads((folder / "run.json").read_text())
        tables = facts.pop("settings")
        return Run(folder=folder, settings=settings_module.from_tables(tables), **facts)
    except FileNotFoundError:
        raise DataError(f"{folder}: holds no run (there is no run.json); name the --out folder of a `warpwright train`") from None
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
        raise DataError(f"{folder / 'run.json'}: is damaged ({error}); the run cannot be used") from None


def create(run: Run) -> Run:
    """Make the folder of a new run. Raises DataError where something is in it already."""
    if exists(run.folder):
        raise DataError(f"{run.folder}: holds a run already; go on with it with --resume, or choose another folder with --out")
    require_unused(run.folder)
    run.folder.mkdir(parents=True, exist_ok=True)
    return run


def require_unused(folder: Path) -> None:
    """Raise DataError where the folder has anything in it but what a run leaves that was killed before it began."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is not a folder; choose another with --out")
    if folder.is_dir() and any(not entry.name.startswith(".writing-") for entry in folder.iterdir()):
        raise DataError(f"{folder}: holds other files and no run; choose a new or an empty folder with --out")


def new_folder(parent: Path, name: str) -> Path:
    """parent/name-N with the first number that is free."""
    taken = {entry.name for entry in parent.iterdir()} if parent.is_dir() else set()
    return parent / next(f"{name}-{n}" for n in range(1, len(taken) + 2) if f"{name}-{n}" not in taken)


def newest(parent: Path) -> Path:
    """The run in a folder of runs that was worked on last. Raises DataError where there is none."""
    runs = [entry for entry in parent.iterdir() if exists(entry)] if parent.is_dir() else []
    if not runs:
        raise DataError(f"{parent}/: there is no run to resume; name its folder with --out")
    return max(runs, key=lambda entry: max(file.stat().st_mtime for file in (entry / "run.json", entry / "log.jsonl") if file.exists()))


def resume(folder: Path, asked: dict[str, Any]) -> Run:
    """The run in a folder, to go on with.

    asked: what the command line names: "kernels", "seed", "data", "name", "training.steps", …; a value of None counts for nothing.
    Only the number of steps, and how often it measures and saves, may differ from how it began. Raises DataError for anything else.
    """
    run = load(folder)
    free = {"training.steps", "training.eval_every", "training.checkpoint_every", "training.keep"}
    tables = run.settings.as_tables()
    for key, value in asked.items():
        section, _, field = key.partition(".")
        own = tables[section].get(field) if field else getattr(run, key)
        if value is not None and value != own and key not in free:
            raise DataError(f"{folder}: {key.removeprefix('training.')} is {own} in this run, not {value}; leave it out with --resume, "
                            "or start another run with --out")
    return replace(run, settings=settings_module.override(run.settings, {key: asked[key] for key in free & asked.keys()}))
