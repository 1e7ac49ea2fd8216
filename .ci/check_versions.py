"""Asks the package index whether each Python of pyproject.toml can install what rnnops needs, as wheels for Linux.

Usage: python3 .ci/check_versions.py [EXTRA ...]. Nothing is installed. It needs a network, so continuous integration
leaves it out: run it before a release, and where a version of Python or a package is added.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def listed(text: str, name: str) -> list[str]:
    """The requirements of one list in pyproject.toml, but for our own."""
    (found,) = re.findall(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    return [one for one in re.findall(r'"([^"]*)"', found) if not one.startswith("rnnops")]


def resolves(python: str, machine: str, requirements: list[str]) -> bool:
    """Whether pip finds wheels of all of them for a Python and a machine."""
    platforms = [part for library in LIBRARIES for part in ("--platform", f"{library}_{machine}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--only-binary=:all:",
            "--target",
            folder,
        ]
        command += ["--implementation", "cp", "--python-version", python, *platforms, *requirements]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"Python {python} {machine}: {'wheels of all' if ran.returncode == 0 else ran.stderr}")
    return ran.returncode == 0


def main(extras: list[str]) -> int:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requirements = [one for name in ("dependencies", *extras) for one in listed(text, name)]
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    found = [resolves(version, machine, requirements) for version in versions for machine in ("x86_64", "aarch64")]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
