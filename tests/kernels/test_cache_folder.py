"""The cache folder: where it is, that machine code goes there, and that a run needs neither numba nor SciPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rnnops.kernels.cpu.processor import cache_folder

WRITERS = ("rnnops.kernels.cpu.coefficients", "rnnops.kernels.cpu.elementary")  # of code
PROGRAM = """
import sys
import numpy as np
import rnnops as ro

net = ro.Net("m")
net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 5, 7, scope="lstm")[0])
out, pullback = ro.compile(net, threads=2).vjp({**ro.init_params(net, seed=0), "x": np.ones((3, 4, 5), np.float32)})
print(sum(float(np.sum(gradient)) for gradient in pullback({"y": out["y"]}).values()))
print(*sorted({"numba", "scipy", "onnx", "torch", "numba.core"} & set(sys.modules)))
print(*sorted(set(WRITERS) & set(sys.modules)))
""".replace("WRITERS", repr([*WRITERS]))


def test_a_net_needs_no_numba_and_writes_no_pickle(tmp_path: Path) -> None:
    """Object files alone lie in the cache folder; the next process computes the same, and loads no writer of code."""
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    runs = [
        subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout.split("\n")
        for _ in range(2)
    ]
    assert runs[0][:2] == runs[1][:2]
    assert runs[0][1] == ""
    assert (runs[0][2].split(), runs[1][2]) == (sorted(WRITERS), "")
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".o"}


CUDA_PROGRAM = """
from numba.cuda.dispatcher import CUDACache
from rnnops.kernels.cuda import device_array

print(CUDACache(device_array.moving).cache_path)
"""


def test_cuda_kernels_go_there_too(tmp_path: Path) -> None:
    """Where they would go is asked without a device: of numba's own CUDA, or of numba-cuda where it is installed."""
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(tmp_path), "NUMBA_ENABLE_CUDASIM": "0"}
    command = [sys.executable, "-W", "ignore", "-c", CUDA_PROGRAM]
    found = subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout
    assert Path(found.strip()).is_relative_to(tmp_path / "machine_code")


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RNNOPS_CACHE_DIR", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RNNOPS_CACHE_DIR", "~/chosen")
    assert cache_folder() == tmp_path / "home" / "chosen"
    monkeypatch.delenv("RNNOPS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "rnnops"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "rnnops"


def test_without_a_folder_of_the_users_there_is_one_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv("RNNOPS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    own = cache_folder()
    assert own.is_dir()
    assert own == cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "locked"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder() == own, "a folder that may not be written to is as good as none"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_the_folder_of_a_process_goes_with_it_and_not_with_its_children(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from rnnops.kernels.cpu.processor import cache_folder\n"
        "folder = cache_folder()\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait()\n"
        "print(folder.is_dir(), folder)\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": "/dev/null", "RNNOPS_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    there, folder = run.stdout.split()
    assert there == "True"
    assert Path(folder).parent == tmp_path
    assert not Path(folder).exists()
