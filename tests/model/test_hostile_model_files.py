"""Damaged and hostile files of models: an error that names the file, or the identical content, at bounded memory."""

from __future__ import annotations

import json
import pickle
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import ARRAYS, STATE, TRACES, Exploit, assert_is_original, metadata_of, with_metadata
from safetensors.numpy import load_file, save_file

import rnnops as ro
from rnnops.model import store
from rnnops.model.store import load, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.safetensors"
    save(target, ARRAYS, STATE)
    return target


def mutated(data: bytes, source: random.Random) -> bytes:
    place, other = source.randrange(len(data)), source.randrange(len(data))
    size = source.choice([1, 2, 4, 8, 50])
    return source.choice(
        [
            data[:place],
            data[place:],
            data[:place] + bytes([data[place] ^ (1 << source.randrange(8))]) + data[place + 1 :],
            data[:place] + source.randbytes(size) + data[place + size :],
            data[:place] + b"\xff" * size + data[place + size :],
            data[:place] + source.randbytes(size) + data[place:],
            data[:place] + data[place + size :],
            data[:place] + data[other : other + size] + data[place + size :],
        ]
    )


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutations_are_errors_or_harmless(path: Path, count: int) -> None:
    """No mutation gives another exception, another content, or memory beyond twice the file."""
    original, source = path.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(original[:8], "little")
    errors = 0
    assert_is_original(load(path))  # what is imported at first does not count
    tracemalloc.start()
    for number in range(count):
        data = mutated(original, source)
        if number % 2:  # the header steers the reader
            data = mutated(original[:header], source) + original[header:]
        path.write_bytes(data)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            assert_is_original(load(path))
        except ro.SaveError as error:
            errors += "model.safetensors" in str(error)
        assert tracemalloc.get_traced_memory()[1] - before < 2 * len(original) + 100_000
    tracemalloc.stop()
    assert errors > 0.9 * count


@pytest.mark.parametrize("content", [b"", b"PK", b"\x89PNG\r\n\x1a\n" + bytes(200), b"hello\n" * 100, bytes(100_000)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    target = tmp_path / "model.safetensors"
    target.write_bytes(content)
    with pytest.raises(ro.SaveError, match=r"model\.safetensors is not a file of a model, or a damaged one"):
        load(target)


def test_other_safetensors_are_refused(path: Path) -> None:
    save_file({"w": np.ones(3)}, path)
    with pytest.raises(ro.SaveError, match=r"not one of a model. Read files of other programs"):
        load(path)


def test_no_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ro.SaveError, match="nothing does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(ro.SaveError, match="is not a file"):
        load(tmp_path)
    with pytest.raises(ro.SaveError, match="does not exist"):
        load("a\0b")


def test_pickles_are_never_run(path: Path) -> None:
    pickle.loads(pickle.dumps(Exploit()))
    assert TRACES == ["ran"]  # the exploit works
    path.write_bytes(pickle.dumps(Exploit()))
    with pytest.raises(ro.SaveError):
        load(path)
    np.savez(path.with_name("a.npz"), a=np.array([Exploit()], object))
    with pytest.raises(ro.SaveError):
        load(path.with_name("a.npz"))
    assert TRACES == ["ran"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not one of a model"),
        ({"format": None}, "not one of a model"),
        ({"version": None}, "not one of a model"),
        ({"document": None}, "not one of a model"),
        ({"sha256": "0" * 64}, "SHA-256"),
        ({"document": "{}"}, "SHA-256"),
        ({"document": "[" * 100_000}, "SHA-256"),
    ],
)
def test_wrong_metadata_are_refused(path: Path, change: dict[str, str | None], words: str) -> None:
    with_metadata(path, **change)
    with pytest.raises(ro.SaveError, match=words):
        load(path)


@pytest.mark.parametrize("document", ["[" * 100_000, "[]", "null", "{", "9" * 10_000, '{"a": NaN}', '{"a": Infinity}'])
def test_documents_that_are_no_json_objects(path: Path, document: str) -> None:
    """Their SHA-256 is right."""
    arrays = load_file(path)
    with_metadata(path, document=document, sha256=store._digest(arrays, document))
    with pytest.raises(ro.SaveError, match="is damaged: its document"):
        load(path)


def with_header(path: Path, header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [10**13], "data_offsets": [0, 48]},
        {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 4 * 10**13]},
        {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 48]},
        {"dtype": "F32", "shape": [-3, -4], "data_offsets": [0, 48]},
        {"dtype": "O", "shape": [6], "data_offsets": [0, 48]},
        {"dtype": "BF16", "shape": [24], "data_offsets": [0, 48]},
        {"dtype": "F8_E4M3", "shape": [48], "data_offsets": [0, 48]},
        None,
    ],
)
def test_claims_that_the_bytes_do_not_fill(path: Path, entry: Any) -> None:
    with_header(path, {"__metadata__": metadata_of(path), "w": entry}, bytes(48))
    tracemalloc.start()
    with pytest.raises(ro.SaveError):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_header_that_claims_ten_terabytes(path: Path) -> None:
    path.write_bytes((10**13).to_bytes(8, "little") + b"{}" + bytes(100))
    with pytest.raises(ro.SaveError, match="damaged"):
        load(path)
