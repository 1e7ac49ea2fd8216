"""Machine code on disk: in the cache folder and nowhere else; a damaged or full disk stops nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rnnops
from rnnops import kernels
from rnnops.kernels.cache_folder import cache_folder

PROGRAM = """
import numpy as np
from rnnops.kernels.cpu.gemm import gemm

products = gemm("float32")
rng = np.random.default_rng(0)
a, b = (rng.normal(size=(5, 5)).astype(np.float32) for _ in range(2))
c = np.zeros((5, 5), np.float32)
products.gemm_tn(a, b, c, False, 0, 5, 0, 5)
assert np.allclose(c, a.T @ b, atol=1e-5)
print(sum(products.gemm_tn.compiled.stats.cache_hits.values()))
"""
PACKAGES = (Path(rnnops.__file__).parent, Path(kernels.__file__).parent)


def run_program(folder: Path, *options: str) -> str:
    """What the program prints: how often machine code was found."""
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(folder)}
    command = [sys.executable, *options, "-c", PROGRAM]
    return subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout


def files_of(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")}


def test_nothing_is_written_inside_the_package(tmp_path: Path) -> None:
    before = files_of(*PACKAGES)
    assert run_program(tmp_path) == "0\n"
    assert files_of(tmp_path / "machine_code")
    assert files_of(*PACKAGES) == before
    assert run_program(tmp_path) == "1\n"


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, ending: str) -> None:
    run_program(tmp_path)
    damaged = [path for path in files_of(tmp_path) if path.suffix == ending]
    for number, path in enumerate(damaged):
        path.write_bytes((b"", b"damaged", path.read_bytes()[:100])[number % 3])
    assert run_program(tmp_path) == "0\n"
    assert run_program(tmp_path) == "1\n"


def test_where_nothing_can_be_written_functions_are_compiled(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(subprocess.CalledProcessError):
        run_program(tmp_path / "file", "-W", "error::RuntimeWarning")
    assert run_program(tmp_path / "file", "-W", "ignore::RuntimeWarning") == "0\n"


CUDA_PROGRAM = """
from numba.cuda.dispatcher import CUDACache
from rnnops.kernels.cuda import move

print(CUDACache(move.moving).cache_path)
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
        "from rnnops.kernels.cache_folder import cache_folder\n"
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
