"""Object code on disk: whole, ours and checked, or as good as none; what runs is the same whatever the disk does."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest

from rnnops.kernels.cpu import processor
from rnnops.kernels.cpu.processor import key_of, load_object, save_object

KEY, CODE = key_of("text", "processor"), b"code " * 1000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where objects lie, which nobody has been warned of."""
    monkeypatch.setenv("RNNOPS_CACHE_DIR", str(tmp_path / "cache"))
    processor.warn_once.cache_clear()
    yield tmp_path / "cache" / "objects"
    processor.warn_once.cache_clear()


def file_of(folder: Path) -> Path:
    return folder / f"{KEY}.o"


def test_what_was_saved_is_loaded(folder: Path) -> None:
    assert load_object(KEY) is None
    save_object(KEY, CODE)
    assert load_object(KEY) == CODE
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.o"]


def test_keys_hold_all_their_parts() -> None:
    keys = [key_of("a", "b"), key_of("ab"), key_of("a", "b", ""), key_of("b", "a")]
    assert len({*keys}) == 4


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda content: b"",
    lambda content: content[:20],
    lambda content: content[:-1],
    lambda content: content + b"x",
    lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
    lambda content: bytes([content[0] ^ 1]) + content[1:],
    lambda content: b"\0" * len(content),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_as_good_as_none_and_heals(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    save_object(KEY, CODE)
    file_of(folder).write_bytes(damage(file_of(folder).read_bytes()))
    assert load_object(KEY) is None
    save_object(KEY, CODE)
    assert load_object(KEY) == CODE


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners that Python knows")
@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_what_others_may_write_is_not_used(folder: Path, mode: int) -> None:
    save_object(KEY, CODE)
    file_of(folder).chmod(mode)
    with pytest.warns(RuntimeWarning, match="others may write to"):
        assert load_object(KEY) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owners that Python knows")
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    save_object(KEY, CODE)
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to"):
        save_object(KEY, b"other")
    assert load_object(KEY) is None, "and nothing is said again"
    folder.chmod(0o755)
    assert load_object(KEY) == CODE


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only the system's user gives files away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_belongs_to_others_is_not_used(folder: Path, what: str) -> None:
    save_object(KEY, CODE)
    os.chown(folder if what == "folder" else file_of(folder), 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert load_object(KEY) is None


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o027, 0o077, 0])
def test_a_group_may_read_where_the_user_lets_it_and_never_write(folder: Path, mask: int) -> None:
    folder.parent.mkdir()
    before = os.umask(mask)
    try:
        save_object(KEY, CODE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755 & ~mask
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o644 & ~mask
    assert load_object(KEY) == CODE


def test_a_file_in_place_of_the_folder(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("")
    with pytest.warns(RuntimeWarning, match="compiled kernels cannot be kept in .*set RNNOPS_CACHE_DIR"):
        save_object(KEY, CODE)
    with pytest.warns(RuntimeWarning, match="Not a directory"):
        load_object(KEY)
    assert folder.read_text() == ""


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        save_object(KEY, CODE)
    save_object(KEY, CODE)  # and nothing is said again
    assert list(folder.iterdir()) == [], "nothing is left half-written"


def test_the_oldest_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "MOST_FILES", 8)
    for number in range(9):
        save_object(key_of(str(number)), CODE)
        if number < 8:
            os.utime(folder / f"{key_of(str(number))}.o", (number, number))
    assert [load_object(key_of(str(number))) is not None for number in range(9)] == [False] * 3 + [True] * 6


def test_many_write_and_read_at_once() -> None:
    def go(number: int) -> bool:
        save_object(KEY, CODE)
        found = load_object(KEY)
        return found == CODE

    with ThreadPoolExecutor(8) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(pool.map(go, range(100)))


PROGRAM = """
import hashlib
import numpy as np
import rnnops as ro

T, N, H = 20, 7, 48  # sums of a row are vector loops, whose order is LLVM's choice
net, rng = ro.Net("net"), np.random.default_rng(0)
y, *_ = ro.LayerNormLSTM(net, net.input("x"), None, None, H, H, scope="s")
net.outputs(y=y)
feeds = {"x": rng.normal(size=(T, N, H)).astype("f"), **ro.init_params(net, seed=1)}
outputs, pullback = ro.compile(net, threads=1).vjp(feeds)
found = {**outputs, **pullback({"y": rng.normal(size=outputs["y"].shape).astype("f")})}
print(hashlib.sha256(b"".join(found[name].tobytes() for name in sorted(found))).hexdigest())
"""


def start(cache: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(cache), **variables}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_compute_the_same_bits_whatever_the_disk_holds(folder: Path) -> None:
    cache = folder.parent
    wanted, _ = start(cache, PYTHONHASHSEED="1").communicate(timeout=300)
    assert len(wanted) > 60
    files = {path: path.read_bytes() for path in folder.iterdir()}
    assert len(files) > 1
    assert start(cache, PYTHONHASHSEED="2").communicate(timeout=300)[0] == wanted
    assert {*folder.iterdir()} == {*files}, "a process that finds its kernels compiles nothing"
    for damage, (path, content) in zip(cycle((DAMAGES[1], DAMAGES[4])), files.items(), strict=False):
        path.write_bytes(damage(content))
    assert start(cache).communicate(timeout=300)[0] == wanted
    assert {path: path.read_bytes() for path in folder.iterdir()} == files, "they heal, and are the same"
    for path in files:
        path.unlink()
    together = [start(cache) for _ in range(2)]
    assert {one.communicate(timeout=300)[0] for one in together} == {wanted}


def test_a_file_of_another_name_is_not_used(folder: Path) -> None:
    save_object(KEY, CODE)
    other = key_of("other")
    file_of(folder).rename(folder / f"{other}.o")
    assert load_object(other) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    save_object(KEY, CODE)
    file_of(folder).unlink()
    os.mkfifo(file_of(folder), 0o600)
    with pytest.warns(RuntimeWarning, match="is not a file"):
        assert load_object(KEY) is None
