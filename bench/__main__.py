"""`python -m bench`: rnnops beside PyTorch, JAX and ONNX Runtime, on processors or on a GPU beside cuDNN.

`--check` fails where a figure misses its goal.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from bench.environment import limit_threads

if TYPE_CHECKING:
    from bench.case import Case

RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--device", default="cpu", help="device of rnnops (default: cpu); cuda has cases of its own")
    arguments.add_argument("--threads", type=int, default=2, help="threads of every library (default: 2)")
    arguments.add_argument("--check", action="store_true", help="exit with 1 where a figure misses its goal")
    arguments.add_argument(
        "--only", metavar="PATTERN", help="a case, or all whose names have this in them; * and ? as in a shell"
    )
    arguments.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    arguments.add_argument("--without", metavar="PATTERN", default="", help="contenders that are left out, by label")
    arguments.add_argument("--rounds", type=int, default=5, help="blocks of each contender (default: 5)")
    arguments.add_argument(
        "--patience", type=float, default=20.0, help="seconds a case may lose to disturbed blocks (default: 20)"
    )
    arguments.add_argument(
        "--processor-time", action="store_true", help="count time of the processor, of all threads: on busy machines"
    )
    arguments.add_argument("--quick", action="store_true", help="two short rounds: numbers that are only about right")
    arguments.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: sizes for an interpreter")
    arguments.add_argument("--seconds", type=float, help="stop after so long, with what there is by then")
    arguments.add_argument(
        "--resume",
        action="store_true",
        help="go on in bench.json, or in the newest file of the GPU, of the same sources",
    )
    arguments.add_argument(
        "--full",
        action="store_true",
        help="all cases, in as many calls as it takes: the next one goes on (docs/cuda.md)",
    )
    arguments.add_argument(
        "--restart", action="store_true", help="where --resume or --full cannot go on in the newest file, begin another"
    )
    arguments.add_argument(
        "--first-minutes", action="store_true", help="cuda: what to try first on a GPU, in ten minutes (docs/cuda.md)"
    )
    arguments.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the results (default: bench/results)"
    )
    return arguments


def main(words: list[str] | None = None) -> int:
    """Run the benchmark; the exit status. Workers of their own measure."""
    options = parser().parse_args(words)
    words = sys.argv[1:] if words is None else words
    wrong = contradiction(options)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    if options.first_minutes:
        from bench.first_minutes.harness import run_first_minutes

        return run_first_minutes(options, words)
    if options.device == "cuda" and options.scale == "tiny":
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before anything imports numba
    if options.device != "cuda":
        limit_threads(options.threads)  # before any of what follows, and of what workers do, loads a numeric library
    from bench.cases import DEVICES, cases_of
    from bench.run import estimate, run_cases, settings_of

    if options.device not in DEVICES:
        print(f"no device '{options.device}'; wanted one of {', '.join(DEVICES)}", file=sys.stderr)
        return 2
    cases = chosen(cases_of(options.device, options.scale == "tiny"), options.only)
    if cases and not options.list:
        return run_cases(options, cases, words)
    if options.device == "cuda":
        print(estimate(cases, settings_of(options)), file=sys.stderr)
    return show_names(cases, options.only)


def contradiction(options: argparse.Namespace) -> str:
    """What does not go together; empty where all does."""
    if options.first_minutes and options.device != "cuda":
        return "--first-minutes is for --device cuda"
    if options.full and (options.only or options.quick or options.without or options.first_minutes):
        return "--full is all cases, carefully: not with --only, --quick, --without or --first-minutes"
    if options.restart and not (options.full or options.resume):
        return "--restart says what to do where --full or --resume cannot go on; without them a new file begins anyway"
    return ""


def show_names(cases: Sequence[Case], pattern: str) -> int:
    """Print the names of cases, or that there are none; the exit status."""
    if not cases:
        print(f"no case has '{pattern}' in its name; --list names them", file=sys.stderr)
        return 2
    print("\n".join(case.name for case in cases))
    return 0


def chosen(cases: Iterable[Case], pattern: str | None) -> list[Case]:
    """The case of this very name, else those whose names match."""
    everything = list(cases)
    exact = [case for case in everything if case.name == pattern]
    return exact or [case for case in everything if fnmatch(case.name, f"*{pattern or ''}*")]


if __name__ == "__main__":
    sys.exit(main())
