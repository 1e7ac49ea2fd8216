"""Links and assembles CUDA kernels where NVIDIA's wheels can be had, in an environment of its own; no GPU is needed.

Usage: python3 .ci/check_assembly.py [cu12|cu13]. Installed are the extra `assembly` of pyproject.toml, some 800 MB, and
rnnops as it lies here; then the tests of machine code run. Where the wheels cannot be had in time, a line says so and
nothing fails; where they are there and a kernel spills, or nothing could be assembled, this does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTALL_SECONDS, TEST_SECONDS = 240, 420
TESTS = "tests/bench/test_cuda_assembly.py"
LACKING = "from bench.cuda_assembly import lacking; import sys; sys.exit(lacking() or 0)"


def requirements(toolkit: str) -> list[str]:
    """The extra, for another CUDA if need be."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(r"^assembly = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    return [one.replace("[cu12]", f"[{toolkit}]") for one in re.findall(r'"([^"]*)"', found)]


def install(folder: Path, toolkit: str) -> str:
    """Make the environment; why it could not be made, empty where it was."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", "--only-binary", "numba-cuda,nvidia-cuda-nvdisasm"]
    try:
        words = [*command, *requirements(toolkit), "--editable", str(ROOT)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not installed within {INSTALL_SECONDS} s"
    errors = [line.strip() for line in done.stderr.splitlines() if "ERROR" in line]
    return "" if done.returncode == 0 else (errors or ["pip failed"])[0]


def main(toolkit: str = "cu12") -> int:
    with tempfile.TemporaryDirectory(prefix="rnnops-assembly-") as name:
        folder = Path(name)
        missing = install(folder / "venv", toolkit)
        if missing:
            print(f"kernels for CUDA are not assembled here, NVIDIA's wheels are not at hand: {missing}")
            return 0
        python = str(folder / "venv" / "bin" / "python")
        environment = {**os.environ, "RNNOPS_CACHE_DIR": str(folder / "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the tests are processes that import the same again and again
        subprocess.run([python, "-c", LACKING], cwd=ROOT, env=environment, check=True)
        tests = [python, "-m", "pytest", "--quiet", "-rP", "--numprocesses", "2", "--dist", "worksteal"]
        tests += ["-p", "no:cacheprovider", TESTS]
        return subprocess.run(tests, cwd=ROOT, env=environment, timeout=TEST_SECONDS, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
