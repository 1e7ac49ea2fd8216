"""Texts: what is read, in which order, the alphabet's rule and the held-out chunks."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rnnops.cli.corpus import REPLACEMENT, CorpusError, corpus_of, decode, encode, held_out_mask, load_text

SENTENCE = "the quick brown fox jumps over the lazy dog\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def whole_text(paths: list[Path]) -> str:
    """Undo the split."""
    corpus = load_text(paths)
    mask = held_out_mask(len(corpus.train) + len(corpus.held_out))
    indices = np.empty(len(mask), np.uint8)
    indices[mask], indices[~mask] = corpus.held_out, corpus.train
    return corpus.decode(indices)


def test_default_is_python_itself_and_always_the_same():
    first, second = load_text(max_bytes=1_000_000), load_text(max_bytes=1_000_000)
    assert first.sha256 == second.sha256
    assert first.source == second.source
    assert "standard library" in first.source
    assert "cut at 1000000 bytes" in first.source
    assert 990_000 < len(first.train) + len(first.held_out) <= 1_000_000
    assert len(first.held_out) / (len(first.train) + len(first.held_out)) == pytest.approx(0.05, abs=1e-4)
    assert set("abcdefghijklmnopqrstuvwxyz()\n:") <= set(first.alphabet)
    assert "import " in first.decode(first.train)
    np.testing.assert_array_equal(first.train, second.train)


def test_default_size_and_limit():
    corpus = load_text()
    assert 3_000_000 < len(corpus.train) <= 7_600_001
    assert len(corpus.alphabet) <= 128


def test_held_out_chunks_are_contiguous_and_spread():
    mask = held_out_mask(400_000)
    starts, stops = np.flatnonzero(np.diff(mask.astype(int)) == 1), np.flatnonzero(np.diff(mask.astype(int)) == -1)
    np.testing.assert_array_equal(starts, np.arange(20) * 20_000 + 9_499)
    np.testing.assert_array_equal(stops - starts, 1_000)


@pytest.mark.parametrize(("length", "chunks"), [(2_000, 1), (39_999, 1), (40_000, 2), (5_000_000, 40)])
def test_held_out_chunks_by_length(length, chunks):
    mask = held_out_mask(length)
    assert np.count_nonzero(np.diff(mask.astype(int)) == 1) == chunks
    assert mask.sum() == pytest.approx(length / 20, abs=chunks)


def test_parts_are_the_text_and_read_only():
    text = "".join(f"line {number} of many\n" for number in range(3_000))
    corpus, mask = corpus_of(text), held_out_mask(len(text))
    characters = np.array(list(text))
    assert corpus.decode(corpus.train) == "".join(characters[~mask])
    assert corpus.decode(corpus.held_out) == "".join(characters[mask])
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert corpus.train.dtype == np.uint8
    with pytest.raises(ValueError, match="read-only"):
        corpus.train[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.source = "elsewhere"


def test_rare_characters_share_one_symbol():
    text = "ab" * 200_000 + "é" * 2 + "ab" * 200_000
    text = "ß" * 7 + "ö" * 8 + text  # the limit is 1 in 100,000 of 760,000 training characters: 8
    corpus = corpus_of(text)
    assert corpus.alphabet == "abö" + REPLACEMENT
    assert corpus.decode(corpus.train[:8]) == REPLACEMENT * 7 + "ö"


def test_alphabet_keeps_the_most_frequent_and_ignores_held_out_text():
    draws = np.random.default_rng(0).geometric(0.01, 80_000) % 400
    draws[held_out_mask(len(draws))] = 399
    counts = Counter(draws[~held_out_mask(len(draws))].tolist())
    most_frequent = sorted(counts, key=lambda point: (-counts[point], point))[:127]
    corpus = corpus_of("".join(chr(0x4E00 + point) for point in draws))
    assert corpus.alphabet == "".join(chr(0x4E00 + point) for point in sorted(most_frequent)) + REPLACEMENT
    assert set(corpus.decode(corpus.held_out)) == {REPLACEMENT}


def test_encode_and_decode():
    alphabet = "\n abc" + REPLACEMENT
    assert encode("cab é\n", alphabet).tolist() == [4, 2, 3, 1, 5, 0]
    assert decode([4, 2, 3, 1, 5, 0], alphabet) == f"cab {REPLACEMENT}\n"
    assert decode(encode("", alphabet), alphabet) == ""
    assert encode("\U0001d518\ud800", alphabet).tolist() == [5, 5]


@pytest.mark.parametrize("indices", [[-1], [6], [[0]], [0.5]])
def test_decode_refuses_what_is_no_index(indices):
    with pytest.raises(CorpusError, match=r"do not fit the alphabet; wanted .* from 0 to 5"):
        decode(indices, "\n abc" + REPLACEMENT)


def test_directory_means_its_text_files_in_order(tmp_path):
    write(tmp_path / "b.txt", "second\n")
    write(tmp_path / "a.PY", "first\n")
    write(tmp_path / "deep" / "c.md", SENTENCE * 100)
    write(tmp_path / "picture.png", "\0\0")
    write(tmp_path / ".git" / "notes.txt", "hidden")
    assert whole_text([tmp_path]) == "first\nsecond\n" + SENTENCE * 100
    assert load_text([tmp_path]).source == f"{tmp_path} (3 files)"


def test_newlines_marks_and_missing_ends_are_normalised(tmp_path):
    first = write(tmp_path / "first", "\ufeffone\r\ntwo\rthree")
    second = write(tmp_path / "second", SENTENCE * 100)
    assert whole_text([first, second]) == "one\ntwo\nthree\n" + SENTENCE * 100


def test_a_file_given_twice_is_read_once(tmp_path):
    path = write(tmp_path / "a.txt", SENTENCE * 100)
    assert load_text([path, tmp_path, path]).sha256 == load_text([path]).sha256


def test_limit_cuts_whole_characters(tmp_path):
    path = write(tmp_path / "a.txt", "é" * 3_000)
    corpus = load_text([path], max_bytes=5_001)
    assert len(corpus.train) + len(corpus.held_out) == 2_500
    assert corpus.alphabet == "é" + REPLACEMENT
    assert set(corpus.decode(corpus.train)) == {"é"}
    assert "cut at 5001 bytes" in corpus.source
    assert load_text([path], max_bytes=6_000).source.endswith("(1 file)")
    assert load_text([path], max_bytes=None).source.endswith("(1 file)")


def test_limit_leaves_out_later_files(tmp_path):
    paths = [write(tmp_path / name, "x" * 2_999 + "\n") for name in ("a", "b")]
    assert load_text(paths, max_bytes=3_000).source.endswith("(1 file, cut at 3000 bytes)")
    assert load_text(paths, max_bytes=6_000).source.endswith("(2 files)")


def test_some_undecodable_bytes_are_replaced(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(("caf\u00e9 au lait " * 300).encode("latin-1"))
    assert f"caf{REPLACEMENT} au lait" in whole_text([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "too short; wanted at least 2000 characters; got 0. Give more"),
        (b"short", "too short"),
        (b"\x89PNG\r\n\x1a\n\0\0\0" * 500, "is not a text in UTF-8. Convert"),
        ("utf-16 text".encode("utf-16") * 300, "is not a text in UTF-8"),
        (bytes(range(128, 256)) * 50, "is not a text in UTF-8"),
    ],
)
def test_unusable_files_are_named_errors(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        load_text([path])
    assert "text.txt" in str(caught.value)


def test_unusable_places_are_named_errors(tmp_path):
    with pytest.raises(CorpusError, match="no text files are in the directory"):
        load_text([tmp_path])
    with pytest.raises(CorpusError, match="size limit"):
        load_text([], max_bytes=0)


def test_missing_standard_library_is_a_named_error(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "nowhere"))
    with pytest.raises(CorpusError, match=r"no Python sources .* Give a TEXT"):
        load_text()
