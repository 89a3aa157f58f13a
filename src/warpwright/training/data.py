"""Text to train on: documents, the validation split, and token streams whose batches depend on seed and step alone."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from warpwright.errors import DataError
from warpwright.training.tokenizer import Tokenizer

HELD_OUT = 0.05  # of all bytes, by document
_PASSED_OVER = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
_PIECES = 100  # that a corpus of a single document is cut into, so that something can be held out


@dataclass(frozen=True)
class Corpus:
    """Documents of text with their names, in a fixed order. `name` says where they come from."""

    name: str
    documents: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        """Size of all documents in UTF-8."""
        return sum(len(text.encode()) for _, text in self.documents)


def load_corpus(path: Path | None = None) -> Corpus:
    """The documents of a UTF-8 text file or of all text files in a folder; by default Python's standard library.

    Of that, tests are left out, and the generated tables of `encodings` and `pydoc_data`.
    A folder's hidden and binary files are passed over. Raises DataError where nothing is there to train on.
    """
    if path is None:
        root = Path(sysconfig.get_path("stdlib"))
        files = [file for file in sorted(root.rglob("*.py")) if not _PASSED_OVER & set(file.relative_to(root).parts)]
        documents = _read_folder(root, files)
        if not documents:
            raise DataError(f"Python's standard library has no sources in {root}; name text to train on with --data")
        return Corpus("the Python standard library", documents)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*"))
                 if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)]
        documents = _read_folder(path, files)
        if not documents:
            raise DataError(f"{path}: no file in this folder holds UTF-8 text; --data takes a text file or a folder of them")
        return Corpus(str(path), documents)
    return Corpus(str(path), _read_file(path))


def _read_folder(root: Path, files: list[Path]) -> tuple[tuple[str, str], ...]:
    documents = []
    for file in files:
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            continue
        if text.strip() and "\0" not in text:
            documents.append((str(file.relative_to(root)), text))
    return tuple(documents)


def _read_file(path: Path) -> tuple[tuple[str, str], ...]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder; --data takes a UTF-8 text file or a folder of them") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text (byte {error.start} is {data[error.start]:#04x}); "
                        "convert it or name a text file") from None
    if "\0" in text:
        raise DataError(f"{path}: is a binary file (it holds zero bytes); --data takes UTF-8 text")
    if not text.strip():
        raise DataError(f"{path}: is empty; --data takes a file with text in it")
    return ((path.name, text),)


def split(corpus: Corpus, seed: int = 0) -> tuple[list[str], list[str]]:
    """(training documents, validation documents): about 5 % of the bytes are held out, whole documents, chosen by seed and name.

    A corpus of one document is cut at line ends into up to 100 pieces first. Raises DataError where there are not two pieces.
    """
    documents = list(corpus.documents)
    if len(documents) == 1:
        name, text = documents[0]
        documents = [(f"{name}:{i}", piece) for i, piece in enumerate(_pieces(text))]
    if len(documents) < 2:
        raise DataError(f"{corpus.name}: a single line of {corpus.bytes} bytes leaves nothing to validate on; give more text")
    ranked = sorted(documents, key=lambda document: hashlib.sha256(f"{seed}:{document[0]}".encode()).digest())
    goal, held, chosen = HELD_OUT * sum(len(text) for _, text in documents), 0, set()
    for name, text in ranked[:-1]:
        if held >= goal:
            break
        chosen.add(name)
        held += len(text)
    return [text for name, text in documents if name not in chosen], [text for name, text in documents if name in chosen]


def _pieces(text: str) -> list[str]:
    """The text cut at line ends into pieces of about equal length."""
    lines, pieces, current, length = text.splitlines(keepends=True), [], [], 0
    for line in lines:
        current.append(line)
        length += len(line)
        if length >= len(text) / _PIECES:
            pieces.append("".join(current))
            current, length = [], 0
    return pieces + (["".join(current)] if current else [])


class TokenStream:
    """Documents as one run of tokens, an end-of-text token after each. `name` is for messages ("training", "validation")."""

    def __init__(self, documents: list[str], tokenizer: Tokenizer, name: str):
        self.name = name
        ids: list[np.ndarray] = []
        end = np.array([tokenizer.end_of_text], np.uint32)
        for tokens in tokenizer.encode_all(documents):
            ids += [np.asarray(tokens, np.uint32), end]
        self.tokens = np.concatenate(ids) if ids else np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self.tokens)

    def require(self, sequence: int) -> None:
        """Raise DataError where the stream is too short for sequences of this many tokens (and the two targets behind the last)."""
        if len(self) < sequence + 2:
            raise DataError(f"a sequence of {sequence} tokens needs {sequence + 2} of {self.name} data, which has {len(self)}; "
                            f"choose a --sequence of at most {max(0, len(self) - 2)} or give more text")

    def batch(self, step: int, batch: int, sequence: int, seed: int) -> torch.Tensor:
        """The training batch of a step: int64 [batch, sequence + 2], random crops that depend on (seed, step) alone."""
        self.require(sequence)
        starts = np.random.default_rng((seed, step)).integers(0, len(self) - sequence - 1, batch)
        return torch.from_numpy(self.tokens[starts[:, None] + np.arange(sequence + 2)].astype(np.int64))

    def sequential(self, batch: int, sequence: int, limit: int | None = None) -> Iterator[torch.Tensor]:
        """The stream cut into sequences without overlap, all or `limit` of them spread evenly: int64 [up to batch, sequence + 2] each.

        A last part shorter than a sequence is left out.
        """
        self.require(sequence)
        starts = np.arange(0, len(self) - sequence - 1, sequence)
        if limit is not None and limit < len(starts):
            starts = starts[np.arange(limit) * len(starts) // limit]
        for first in range(0, len(starts), batch):
            rows = starts[first:first + batch, None] + np.arange(sequence + 2)
            yield torch.from_numpy(self.tokens[rows].astype(np.int64))
