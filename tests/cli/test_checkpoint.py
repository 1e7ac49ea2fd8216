"""Checkpoint files: what comes back, what is refused, and that a failed save leaves the old file as it was."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rnnops.cli import checkpoint
from rnnops.cli.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

ARRAYS = {
    "enc/w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "step": np.array(7, np.int64),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 5)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": np.arange(5, dtype=np.int16)[::-1],
    "half": np.ones(3, np.float16),
    "größe": np.arange(3, dtype=np.uint8),
}
STATE = {
    "position": 12,
    "best": 2.25,
    "seen": 10**15,
    "name": "é\n",
    "history": [[1, 2.5], [2, None]],
    "more": {"a": True},
}


TRACES: list[str] = []


class Exploit:
    """Leaves a trace when unpickled."""

    def __reduce__(self):
        return leave_trace, ("ran",)


def leave_trace(text: str) -> None:
    TRACES.append(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.npz"
    save_checkpoint(target, ARRAYS, STATE)
    return target


def assert_is_original(loaded: checkpoint.Checkpoint) -> None:
    assert list(loaded.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded.arrays[name], array, strict=True)
    assert loaded.state == STATE


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def rewrite(path: Path, change: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Write the archive again, as a valid zip, with some members replaced."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | change
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def document_of(path: Path) -> dict:
    with np.load(path) as archive:
        return json.loads(archive["checkpoint"].tobytes())


def with_document(path: Path, document: object) -> None:
    rewrite(path, {"checkpoint.npy": npy(np.frombuffer(json.dumps(document).encode(), np.uint8))})


def test_what_is_saved_comes_back(path):
    loaded = load_checkpoint(path)
    assert_is_original(loaded)
    assert list(loaded.state) == list(STATE)
    for array in loaded.arrays.values():
        assert array.flags.writeable
        assert array.flags.aligned
    assert os.listdir(path.parent) == [path.name]


def test_numpy_opens_it_without_pickle(path):
    with np.load(path, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["arrays/enc/w"], ARRAYS["enc/w"])
        assert json.loads(archive["checkpoint"].tobytes())["format"] == "rnnops checkpoint"


def test_equal_content_gives_equal_bytes(path):
    save_checkpoint(path.with_name("again.npz"), ARRAYS, STATE)
    assert path.read_bytes() == path.with_name("again.npz").read_bytes()


def test_empty_checkpoint(tmp_path):
    save_checkpoint(tmp_path / "empty.npz", {}, {})
    loaded = load_checkpoint(tmp_path / "empty.npz")
    assert (loaded.arrays, loaded.state) == ({}, {})


def test_big_endian_arrays_come_back_little_endian(tmp_path):
    save_checkpoint(str(tmp_path / "a.npz"), {"a": np.arange(3, dtype=">i4")}, {})
    np.testing.assert_array_equal(load_checkpoint(str(tmp_path / "a.npz")).arrays["a"], np.arange(3, dtype="<i4"))


def test_a_link_keeps_pointing_at_the_file(path):
    link = path.with_name("latest.npz")
    link.symlink_to(path)
    save_checkpoint(link, {}, {"position": 1})
    assert link.is_symlink()
    assert load_checkpoint(path).state == {"position": 1}


def test_random_mutations_are_errors_or_harmless(path):
    """No mutation gives another exception or another content."""
    original, source = path.read_bytes(), random.Random(0)
    errors = []
    for _ in range(600):
        path.write_bytes(mutated(original, source))
        try:
            assert_is_original(load_checkpoint(path))
        except CheckpointError as error:
            errors.append(str(error))
    assert len(errors) > 450
    assert all("model.npz" in error for error in errors)


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


def test_every_byte_of_the_directory_may_be_wrong(path):
    """The structures at the end steer the reader, so each of their bytes gets a few values."""
    save_checkpoint(path, {"w": np.arange(3)}, {})
    original = path.read_bytes()
    for place in range(original.index(b"PK\1\2"), len(original)):
        for value in (0, 0xFF, original[place] ^ 1, original[place] ^ 0x80):
            path.write_bytes(original[:place] + bytes([value]) + original[place + 1 :])
            try:
                loaded = load_checkpoint(path)
            except CheckpointError:
                continue
            np.testing.assert_array_equal(loaded.arrays["w"], np.arange(3))


@pytest.mark.parametrize("content", [b"", b"PK", b"\x89PNG\r\n\x1a\n" + bytes(200), b"hello\n" * 100, bytes(100_000)])
def test_other_files_are_refused(tmp_path, content):
    target = tmp_path / "model.npz"
    target.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.npz is no checkpoint, or a damaged one"):
        load_checkpoint(target)


def test_other_archives_are_refused(tmp_path):
    target = tmp_path / "model.npz"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(CheckpointError, match=r"model\.npz is no usable checkpoint: it is a zip archive without"):
        load_checkpoint(target)
    np.savez(target, w=np.ones(3))
    with pytest.raises(CheckpointError, match="without"):
        load_checkpoint(target)


def test_no_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.npz does not exist"):
        load_checkpoint(tmp_path / "nothing.npz")
    with pytest.raises(CheckpointError, match="is no file"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_checkpoint("a\0b")


def test_pickles_are_never_run(path):
    pickle.loads(pickle.dumps(Exploit()))
    assert TRACES == ["ran"]  # the exploit works
    objects = npy(np.array([Exploit()], object))
    for member in ("checkpoint.npy", "arrays/enc/w.npy", "arrays/more.npy"):
        save_checkpoint(path, ARRAYS, STATE)
        rewrite(path, {member: objects})
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    path.write_bytes(pickle.dumps(Exploit()))
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
    assert TRACES == ["ran"]


def test_a_newer_version_says_so(path):
    with_document(path, {"format": "rnnops checkpoint", "version": 2, "tensors": []})
    with pytest.raises(CheckpointError, match="has format version 2, and this rnnops reads version 1"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "does not say 'rnnops checkpoint'"),
        ({"version": None}, "version None"),
        ({"arrays": []}, "no arrays or no state"),
        ({"state": None}, "no arrays or no state"),
        ({"state": {"position": 13}}, "SHA-256"),
        ({"sha256": "0" * 64}, "SHA-256"),
        ({"sha256": None}, "SHA-256"),
        ({"arrays": {}}, "not those that its document lists"),
    ],
)
def test_a_wrong_document_is_refused(path, change, message):
    with_document(path, document_of(path) | change)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "<i4", "shape": [3, 4]}, "contradicts"),
        ({"dtype": "<f4", "shape": [4, 3]}, "contradicts"),
        ({"dtype": "<f4", "shape": [3, 5]}, "contradicts"),
        ({"dtype": "<f4", "shape": [10**13]}, "contradicts"),
        ({"dtype": "|O", "shape": [6]}, "unknown type or shape"),
        ({"dtype": ["<f4"], "shape": [12]}, "unknown type or shape"),
        ({"dtype": "<f4", "shape": [-3, -4]}, "unknown type or shape"),
        ({"dtype": "<f4", "shape": [True, 12]}, "unknown type or shape"),
        ({"dtype": "<f4"}, "damaged checkpoint"),
        (None, "damaged checkpoint"),
    ],
)
def test_a_wrong_array_entry_is_refused(path, entry, message):
    document = document_of(path)
    document["arrays"]["enc/w"] = entry
    with_document(path, document)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


@pytest.mark.parametrize("shape", [(3, 5), (10**13,), (1,) * 100 + (12,), (0, 10**30)])
def test_a_shape_that_the_bytes_do_not_fill_is_refused(path, shape):
    """Document and header agree on a lie."""
    document = document_of(path)
    document["arrays"]["enc/w"]["shape"] = list(shape)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + ARRAYS["enc/w"].tobytes()
    rewrite(path, {"arrays/enc/w.npy": data})
    with_document(path, document)
    with pytest.raises(CheckpointError, match=r"which do not fill|damaged checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff\xfe", b"{", b"[]", b"null", b'{"format": NaN}', b"9" * 10_000])
def test_a_document_that_is_no_json_object_is_refused(path, text):
    rewrite(path, {"checkpoint.npy": npy(np.frombuffer(text, np.uint8))})
    with pytest.raises(CheckpointError):
        load_checkpoint(path)


def test_a_compressed_bomb_is_refused_without_unpacking(path):
    rewrite(path, {"arrays/bomb.npy": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="is compressed, which checkpoints never are"):
        load_checkpoint(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_member_that_claims_ten_terabytes_is_refused(tmp_path):
    target = tmp_path / "model.npz"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("checkpoint.npy", npy(np.zeros(100, np.uint8)))
        archive.filelist[0].file_size = archive.filelist[0].compress_size = 10**13
    with pytest.raises(CheckpointError, match="claim more bytes than the file has"):
        load_checkpoint(target)


def test_a_header_that_claims_ten_terabytes_is_refused(path):
    honest = npy(ARRAYS["enc/w"])
    claiming = honest.replace(b"(3, 4), }" + b" " * 10, b"(3, 4" + b"0" * 10 + b"), }")
    assert len(claiming) == len(honest)
    rewrite(path, {"arrays/enc/w.npy": claiming})
    with pytest.raises(CheckpointError, match="array 'enc/w' has a header that its document contradicts"):
        load_checkpoint(path)


def test_members_that_share_bytes_are_refused(tmp_path):
    """Many directory entries for one large member would cost many times the file's size."""
    target = tmp_path / "model.npz"
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("checkpoint.npy", npy(np.zeros(1_000_000, np.uint8)))
        for number in range(20):
            shared = zipfile.ZipInfo(f"arrays/{number}.npy")
            first = archive.filelist[0]
            shared.file_size, shared.compress_size, shared.CRC = first.file_size, first.compress_size, first.CRC
            shared.header_offset = 0
            archive.filelist.append(shared)
    with pytest.raises(CheckpointError, match="claim more bytes than the file has"):
        load_checkpoint(target)


class BrokenDiskError(OSError):
    """What a full disk looks like."""


@pytest.mark.parametrize("failure", [BrokenDiskError("no space left"), KeyboardInterrupt(), RuntimeError("killed")])
@pytest.mark.parametrize("step", ["write_array", "fsync", "replace"])
def test_a_save_that_dies_leaves_the_old_file(path, monkeypatch, failure, step):
    before = path.read_bytes()
    done = []

    def dying(*arguments: object, **options: object) -> None:
        done.append(arguments)
        if step != "write_array" or len(done) == 3:  # in the middle of the archive
            raise failure

    owner = np.lib.format if step == "write_array" else os
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, dying)
        with pytest.raises(CheckpointError if isinstance(failure, OSError) else type(failure)) as caught:
            save_checkpoint(path, {"w": np.zeros(1_000), "v": np.zeros(10)}, {"position": 99})
    if isinstance(failure, OSError):
        assert "cannot be written (no space left)" in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_directory_cannot_be_synced(path, monkeypatch):
    """A file system that cannot sync a directory does not make a save fail."""
    real, done = os.fsync, []

    def only_files(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) == 2:
            raise OSError("not for directories")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    save_checkpoint(path, {}, {"position": 1})
    assert len(done) == 2
    assert load_checkpoint(path).state == {"position": 1}


def test_places_that_cannot_be_written_are_named_errors(tmp_path):
    for target in (tmp_path, tmp_path / "missing" / "model.npz", tmp_path / "a\0b"):
        with pytest.raises(CheckpointError, match="cannot be written"):
            save_checkpoint(target, {}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("objects", np.array([Exploit()], object)),
        ("text", np.array(["a"])),
        ("records", np.zeros(2, [("a", "<f4")])),
        ("complex", np.zeros(2, np.complex64)),
        ("list", [1.0, 2.0]),
        ("", np.ones(1)),
        ("a\nb", np.ones(1)),
        ("a\\b", np.ones(1)),
        ("x" * 1_001, np.ones(1)),
        (3, np.ones(1)),
    ],
)
def test_arrays_that_cannot_be_saved_are_named_errors(path, name, array):
    with pytest.raises(CheckpointError, match="cannot be saved; wanted"):
        save_checkpoint(path, {name: array}, {})
    assert_is_original(load_checkpoint(path))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"best": float("nan")}, "is no JSON"),
        ({"best": np.float32(1)}, "is no JSON"),
        ({"arrays": np.ones(2)}, "is no JSON"),
        ({"pair": (1, 2)}, "something else. Use lists"),
        ({1: 2}, "something else"),
    ],
)
def test_states_that_json_cannot_hold_are_named_errors(path, state, message):
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(path, {}, state)
    assert_is_original(load_checkpoint(path))
