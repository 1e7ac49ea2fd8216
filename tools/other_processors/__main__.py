"""`python -m tools.other_processors [NAME ...]`: on aarch64, and on x86-64 without AVX; golden values and all cells.

Needs QEMU's emulators, and for aarch64 a Python and wheels: packages of Debian and of PyPI, which are unpacked into a
folder, not installed. Emulated code is some twenty times slower: all takes an hour, and a cell by --only a minute.
Exit status 0: all that was run is right; 1: something is not; 2: what a processor needs is not there to be had.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rnnops.kernels.cpu.processor import cache_folder
from tools.other_processors.machines import UnreachableError, aarch64, without_avx

RIGHT, WRONG, UNREACHED = 0, 1, 2
ROOT = Path(__file__).parents[2]
WORK = Path(__file__).with_name("work.py")
MACHINES: dict[str, Callable[[Path, Path], tuple[list[str], dict[str, str]]]] = {
    "aarch64": aarch64,
    "x86-64 without AVX": without_avx,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.other_processors", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MACHINES)}; both without any")
    parser.add_argument("--only", metavar="WORDS", help="names of cells and of golden files, with commas")
    parser.add_argument(
        "--folder", type=Path, default=cache_folder() / "processors", help="where packages are unpacked"
    )
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in MACHINES]:
        parser.error(f"no such processor: {', '.join(unknown)}")
    statuses = {run_on(name, given.folder, given.only) for name in given.names or MACHINES}
    return next((status for status in (WRONG, UNREACHED) if status in statuses), RIGHT)


def run_on(name: str, folder: Path, only: str | None) -> int:
    """Run the work on one processor; an exit status."""
    print(f"-- {name}, emulated on {platform.machine()}", flush=True)
    try:
        command, environment = MACHINES[name](folder, ROOT)
    except UnreachableError as error:
        print(f"skipped: {error}")
        return UNREACHED
    environment = {**os.environ, **environment, "RNNOPS_CACHE_DIR": str(folder / f"cache of {name}")}
    words = [*command, str(WORK), str(ROOT / "tests"), *([only] if only else [])]
    done = subprocess.run(words, env=environment, check=False)
    return WRONG if done.returncode else RIGHT


sys.exit(main(sys.argv[1:]))
