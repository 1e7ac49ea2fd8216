"""Generated modules: files named by their text, written as a whole, shared by processes, in a folder one can choose."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from math import tanh
from pathlib import Path

import pytest

from rnnops.compiler.targets import target
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cpu import processor

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and no module remembered."""
    monkeypatch.setenv("RNNOPS_CACHE_DIR", str(tmp_path / "cache"))
    target._load.cache_clear()
    yield tmp_path / "cache"
    target._load.cache_clear()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.py"))


def test_a_text_is_one_file(folder: Path) -> None:
    one, again, other = (load_module(f"NUMBER = {n}\n") for n in (1, 1, 2))
    assert one is again
    assert (one.NUMBER, other.NUMBER) == (1, 2)
    assert len(files(folder)) == 2
    assert files(folder)[0].name.startswith("rnnops_generated_")
    assert not list(folder.glob("*.tmp"))


def test_a_file_that_is_there_is_used(folder: Path) -> None:
    load_module("NUMBER = 1\n")
    (path,) = files(folder)
    before = path.stat()
    target._load.cache_clear()
    assert load_module("NUMBER = 1\n").NUMBER == 1
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_a_folder_that_cannot_be_made_is_left_out(folder: Path) -> None:
    """A file stands where the folder should: the module lies in a folder of this process."""
    folder.write_text("no folder")
    processor.warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"cache \(Not a directory\)|cache \(File exists\)"):
        assert load_module("NUMBER = 3\n").NUMBER == 3
    assert folder.read_text() == "no folder"


@pytest.mark.parametrize("left", ["", "NUMB", "NUMBER = 5\n"])
def test_a_half_written_file_is_written_again(folder: Path, left: str) -> None:
    """What a process that was killed left under the name of a text."""
    load_module("NUMBER = 1\n")
    (path,) = files(folder)
    path.write_text(left)
    target._load.cache_clear()
    assert load_module("NUMBER = 1\n").NUMBER == 1
    assert path.read_text() == "NUMBER = 1\n"


def test_two_processes_at_once(tmp_path: Path) -> None:
    """Both compile the same net into an empty folder, and both get it right."""
    code = (
        "import numpy as np, rnnops as ro\n"
        "cell = ro.Net('c'); x, h = cell.inputs('x', 'h'); cell.outputs(h_t=ro.tanh(x + h))\n"
        "net = ro.Net('n'); xs, h0 = net.inputs('xs', 'h0')\n"
        "net.outputs(y=ro.recurrent_net(net, cell, [('x', xs)], [('h', h0)], {'h': 'h_t'})[0])\n"
        "out = ro.compile(net, device='cpu')(xs=np.ones((3, 2, 2)), h0=np.zeros((2, 2)))['y']\n"
        "print(repr(float(out[-1, 0, 0])))\n"
    )
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert float(outputs[0]) == pytest.approx(tanh(1 + tanh(1 + tanh(1))), rel=1e-12)
    assert not list(tmp_path.glob("*.tmp"))
