"""A byte-level BPE tokenizer, trained on the text at hand and saved with the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from warpwright.errors import DataError
from warpwright.training.checkpoint import write_text

END_OF_TEXT = "<|endoftext|>"
SAMPLE = 4_000_000  # characters that a tokenizer is trained on, at most about: every n-th document of a larger corpus


class Tokenizer:
    """Text to token numbers and back, without loss: every byte string has tokens."""

    def __init__(self, inner: tokenizers.Tokenizer):
        self._inner = inner
        self.vocab_size: int = inner.get_vocab_size()
        end = inner.token_to_id(END_OF_TEXT)
        if end is None:
            raise DataError(f"the tokenizer has no token {END_OF_TEXT}")
        self.end_of_text: int = end

    def encode(self, text: str) -> list[int]:
        return self._inner.encode(text).ids

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text."""
        return [encoding.ids for encoding in self._inner.encode_batch_fast(texts)]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the tokens; end-of-text tokens give nothing, broken UTF-8 gives U+FFFD."""
        return self._inner.decode(list(ids), skip_special_tokens=True)

    @property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of text that each token stands for: int64 [vocab_size]; 0 for end-of-text. Bits per byte are counted with it."""
        lengths = np.zeros(self.vocab_size, np.int64)
        for token, i in self._inner.get_vocab().items():
            lengths[i] = 0 if token == END_OF_TEXT else len(token)  # byte-level BPE writes each byte as one character
        return lengths

    def save(self, path: Path) -> None:
        """Write it whole or not at all. Raises OSError."""
        write_text(path, self._inner.to_str())


def train(documents: list[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of up to `vocab_size` tokens (at least 257: the bytes and end-of-text), fitted to the documents."""
    if vocab_size < 257:
        raise DataError(f"a vocabulary of {vocab_size} tokens is too small; byte-level BPE needs at least 257")
    every = max(1, sum(map(len, documents)) // SAMPLE)
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[END_OF_TEXT], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    inner.train_from_iterator(documents[::every], trainer)
    return Tokenizer(inner)


def load(path: Path) -> Tokenizer:
    """A tokenizer saved with a run. Raises DataError where the file is missing or damaged."""
    if not path.exists():
        raise DataError(f"{path}: no tokenizer is saved there; is {path.parent} the folder of a run?")
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"{path}: the tokenizer is damaged ({error}); it cannot be rebuilt without the run's data") from None
