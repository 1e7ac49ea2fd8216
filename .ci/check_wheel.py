"""Builds a source distribution and, from it, a wheel, and installs the wheel in an empty environment.

Usage: python3 .ci/check_wheel.py. The wheel must hold the packages and what they read, and nothing else; installed
alone, with what it depends on, it compiles a cell, differentiates it and exports it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDIST = "from setuptools import build_meta; print(build_meta.build_sdist(__import__('sys').argv[1]))"
USE = """
import numpy as np, rnnops as ro, sys

@ro.cell
def cell(x, h, *, w):
    return dict(h=np.tanh(x + h @ w))

net = ro.Net("net")
states, ys = ro.scan(cell, net.input("xs"), h=net.input("h0"))
net.outputs(y=ys["h"])
feeds = dict(xs=np.ones((5, 2, 3)), h0=np.zeros((2, 3)), w=np.eye(3))
print(ro.testing.check_gradient(net, feeds))
assert np.allclose(ro.compile(net)(feeds)["y"], ro.compile(net, device="reference")(feeds)["y"])
ro.compile(net).bind(w=feeds["w"].astype("float32")).export_native(sys.argv[1], xs=(1, 1, 3), h0=(1, 3), source="c99")
"""


def built(folder: Path) -> Path:
    """A wheel of a clone, made of the source distribution alone."""
    clone, made = folder / "clone", folder / "dist"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    venv = new_environment(folder / "build")
    subprocess.run([str(venv / "pip"), "install", "--quiet", "--no-cache-dir", "setuptools>=70.1"], check=True)
    subprocess.run([str(venv / "python"), "-c", SDIST, str(made)], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    (source,) = made.glob("*.tar.gz")
    subprocess.run(
        [str(venv / "pip"), "wheel", "--quiet", "--no-cache-dir", "--no-deps", "--wheel-dir", str(made), str(source)],
        check=True,
    )
    (wheel,) = made.glob("*.whl")
    return wheel


def new_environment(folder: Path) -> Path:
    """The programs of a new virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin"


def check_contents(wheel: Path) -> None:
    """Raise SystemExit where a wheel holds more or less than the packages."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    kernels = {f"rnnops/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.py")}
    wanted = kernels | {
        str(path.relative_to(ROOT)) for end in ("*.py", "*.h", "py.typed") for path in (ROOT / "rnnops").rglob(end)
    }
    if held != wanted:
        raise SystemExit(f"more than the packages: {sorted(held - wanted)}; less: {sorted(wanted - held)}")


def check_version(wheel: Path) -> str:
    """The version of a wheel. Raises SystemExit where the changelog has none of it."""
    version = wheel.name.split("-")[1]
    if not re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
        raise SystemExit(f"CHANGELOG.md has nothing on version {version}")
    return version


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rnnops-wheel-") as name:
        folder = Path(name)
        wheel = built(folder)
        check_contents(wheel)
        version = check_version(wheel)
        venv = new_environment(folder / "empty")
        subprocess.run([str(venv / "pip"), "install", "--quiet", "--no-cache-dir", str(wheel)], cwd=folder, check=True)
        environment = {**os.environ, "RNNOPS_CACHE_DIR": str(folder / "cache")}
        said = subprocess.run(
            [str(venv / "rnnops"), "--version"], cwd=folder, check=True, capture_output=True, text=True
        )
        if said.stdout != f"rnnops {version}\n":
            raise SystemExit(f"the wheel is of version {version}, and says {said.stdout!r}")
        subprocess.run([str(venv / "python"), "-c", USE, "exported"], cwd=folder, env=environment, check=True)
    print(f"the wheel of version {version} works alone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
