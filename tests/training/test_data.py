"""Documents, the split, the tokenizer and the batches."""

import numpy as np
import pytest
import torch

from warpwright.errors import DataError
from warpwright.training import data, tokenizer

TEXT = "def greet(name):\n    return f'Grüße, {name}!'\n" * 300


@pytest.fixture(scope="module")
def words():
    return tokenizer.train([TEXT], 300)


def test_the_default_corpus_is_the_standard_library_without_its_tests():
    corpus = data.load_corpus()
    names = [name for name, _ in corpus.documents]
    assert "argparse.py" in names and not any(name.startswith(("test/", "site-packages/")) for name in names)
    assert names == sorted(names, key=lambda name: name.split("/"))
    assert corpus.bytes > 5_000_000


@pytest.mark.parametrize("content, message", [
    (b"", "is empty; --data takes a file with text in it"),
    (b"  \n\n", "is empty"),
    (b"ab\xff\xfe", r"is not UTF-8 text \(byte 2 is 0xff\)"),
    (b"ab\0cd", "is a binary file"),
])
def test_a_file_without_text_is_refused(tmp_path, content, message):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message):
        data.load_corpus(tmp_path / "x")


def test_a_missing_path_and_a_folder_without_text_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        data.load_corpus(tmp_path / "nothing")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\xff")
    with pytest.raises(DataError, match="no file in this folder holds UTF-8 text"):
        data.load_corpus(tmp_path)


def test_a_folder_gives_its_text_files_in_order_and_passes_over_the_rest(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_text("one")
    (tmp_path / "a.py").write_text("two")
    (tmp_path / ".hidden").write_text("three")
    (tmp_path / "binary").write_bytes(b"\xff\xff")
    assert data.load_corpus(tmp_path).documents == (("a.py", "two"), ("b/one.txt", "one"))


def test_the_split_holds_out_whole_documents_about_a_twentieth_and_is_the_same_each_time():
    corpus = data.Corpus("c", tuple((f"doc{i}", f"text {i} " * 50) for i in range(200)))
    train, held = data.split(corpus, seed=3)
    assert sorted(train + held) == sorted(text for _, text in corpus.documents)
    assert 0.04 < len(held) / 200 < 0.08
    assert data.split(corpus, seed=3) == (train, held) != data.split(corpus, seed=4)


def test_one_long_document_is_cut_at_line_ends():
    train, held = data.split(data.Corpus("c", (("only", TEXT),)))
    assert sum(map(len, train + held)) == len(TEXT) and held and all(piece.endswith("\n") for piece in train + held)
    with pytest.raises(DataError, match="nothing to validate on"):
        data.split(data.Corpus("c", (("only", "one line"),)))


def test_the_tokenizer_loses_nothing_and_counts_bytes(words, tmp_path):
    for text in (TEXT[:200], "\0\n\t 日本 🙂 \r\n", ""):
        ids = words.encode(text)
        assert words.decode(ids) == text
        assert words.byte_lengths[ids].sum() == len(text.encode())
    words.save(tmp_path / "tokenizer.json")
    again = tokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode(TEXT) == words.encode(TEXT) and again.vocab_size == words.vocab_size <= 300


def test_a_missing_or_damaged_tokenizer_is_told(tmp_path):
    with pytest.raises(DataError, match="no tokenizer is saved there"):
        tokenizer.load(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        tokenizer.load(tmp_path / "tokenizer.json")


def test_batches_depend_on_seed_and_step_alone(words):
    stream = data.TokenStream([TEXT, TEXT], words, "training")
    first = stream.batch(5, 4, 32, seed=1)
    assert first.shape == (4, 34) and first.dtype == torch.int64
    assert torch.equal(first, stream.batch(5, 4, 32, seed=1))
    assert not torch.equal(first, stream.batch(6, 4, 32, seed=1)) and not torch.equal(first, stream.batch(5, 4, 32, seed=2))
    flat = stream.tokens.astype(np.int64)
    for row in first.numpy():
        assert any((flat[i:i + 34] == row).all() for i in range(len(flat) - 33))


def test_validation_goes_through_the_stream_once_without_overlap(words):
    stream = data.TokenStream([TEXT], words, "validation")
    rows = torch.cat(list(stream.sequential(3, 50)))
    assert torch.equal(rows[:, :50].reshape(-1), torch.from_numpy(stream.tokens[:rows.shape[0] * 50].astype(np.int64)))
    assert len(stream) - rows.shape[0] * 50 < 50 + 2


def test_a_sequence_longer_than_the_data_is_refused(words):
    stream = data.TokenStream(["short\n"], words, "validation")
    said = f"a sequence of 128 tokens needs 130 of validation data, which has {len(stream)}; choose a --sequence"
    with pytest.raises(DataError, match=said):
        stream.batch(0, 1, 128, seed=0)
