"""`python -m bench.apart FILE`: measures a case in a process that no environment variable tells a number of threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.environment import THREAD_VARIABLES

if TYPE_CHECKING:
    from bench.case import Case
    from bench.contender import Settings
    from bench.goals import Measured
    from bench.load import Quiet

ROOT = Path(__file__).parent.parent


class ApartError(Exception):
    """A process that measures a case did not end well."""


def measure_apart(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """What a case measures in a process of its own. Raises ApartError with the last line that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case"
        file.write_bytes(pickle.dumps((case, settings, quiet)))
        command = [sys.executable, "-W", "ignore", "-m", "bench.apart", str(file)]
        done = subprocess.run(command, env=own_environment(), cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ApartError((done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1])
        measured: list[Measured]
        measured, after = pickle.loads(file.read_bytes())  # what our own process wrote
    vars(quiet).update(vars(after))
    return measured


def own_environment() -> dict[str, str]:
    """The environment without numbers of threads."""
    return {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}


def main() -> None:
    file = Path(sys.argv[1])
    case, settings, quiet = pickle.loads(file.read_bytes())
    from bench.measure import measure_here

    file.write_bytes(pickle.dumps((measure_here(case, settings, quiet), quiet)))


if __name__ == "__main__":
    main()
