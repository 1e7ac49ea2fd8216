"""`python -m bench`: rnnops beside PyTorch, JAX and ONNX Runtime; `--check` fails where a figure misses its goal."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from bench.environment import describe_machine, limit_threads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.cases import Case
    from bench.contender import Settings
    from bench.measure import CaseResult

RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("--device", default="cpu", help="device of rnnops (default: cpu)")
    arguments.add_argument("--threads", type=int, default=2, help="threads of every library (default: 2)")
    arguments.add_argument("--check", action="store_true", help="exit with 1 where a figure misses its goal")
    arguments.add_argument(
        "--only", metavar="PATTERN", help="a case, or all whose names have this in them; * and ? as in a shell"
    )
    arguments.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    arguments.add_argument("--rounds", type=int, default=5, help="blocks of each contender (default: 5)")
    arguments.add_argument(
        "--patience", type=float, default=20.0, help="seconds a case may lose to disturbed blocks (default: 20)"
    )
    arguments.add_argument("--quick", action="store_true", help="two short rounds: numbers that are only about right")
    arguments.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: sizes for an interpreter")
    arguments.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the results (default: bench/results)"
    )
    return arguments


def main(words: list[str] | None = None) -> int:
    """Run the benchmark; the exit status."""
    options = parser().parse_args(words)
    limit_threads(options.threads)  # before any of what follows loads a numeric library
    from bench.cases import all_cases
    from bench.check import errors, failures
    from bench.report import report
    from bench.save import save
    from rnnops.compiler import DEVICES

    cases = chosen(all_cases((lambda size: size.tiny()) if options.scale == "tiny" else lambda size: size), options)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not cases:
        print(f"no case has '{options.only}' in its name; --list names them", file=sys.stderr)
        return 2
    if options.device not in DEVICES:
        print(f"no device '{options.device}'; wanted one of {', '.join(DEVICES)}", file=sys.stderr)
        return 2
    results = run_all(cases, settings_of(options))
    machine = describe_machine(options.threads)
    text = report(results, machine)
    print(text, *save(results, machine, text, options.output), sep="\n")
    failed = failures(results) if options.check else errors(results)
    for failure in failed:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(failed))


def chosen(cases: Iterable[Case], options: argparse.Namespace) -> list[Case]:
    """The case of this very name, else those whose names match."""
    everything = list(cases)
    exact = [case for case in everything if case.name == options.only]
    return exact or [case for case in everything if fnmatch(case.name, f"*{options.only or ''}*")]


def settings_of(options: argparse.Namespace) -> Settings:
    from bench.contender import Settings

    settings = Settings(options.device, options.threads, options.rounds, patience=options.patience)
    return replace(settings, rounds=min(2, options.rounds), settle=0.02, counted=0.03) if options.quick else settings


def run_all(cases: list[Case], settings: Settings) -> list[CaseResult]:
    """All cases, one after another, with a line on standard error for each."""
    from bench.measure import run_case
    from bench.report import progress_line

    results = []
    for number, case in enumerate(cases, 1):
        start = time.perf_counter()
        results.append(run_case(case, settings))
        line = progress_line(results[-1], time.perf_counter() - start)
        print(f"[{number}/{len(cases)}] {line}", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
