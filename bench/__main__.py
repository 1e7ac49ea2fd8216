"""`python -m bench`: rnnops beside PyTorch, JAX and ONNX Runtime; `--check` fails where a figure misses its goal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.environment import describe_machine, limit_threads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.cases import Case
    from bench.contender import Settings
    from bench.cuda_cases import CudaCase
    from bench.measure import CaseResult

Named = TypeVar("Named", "Case", "CudaCase")
RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument(
        "--device", default="cpu", help="device of rnnops (default: cpu); cuda has a benchmark of its own"
    )
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
    arguments.add_argument("--seconds", type=float, help="cuda: stop after so long, with what there is by then")
    arguments.add_argument("--resume", action="store_true", help="cuda: go on in today's newest file of this GPU")
    arguments.add_argument(
        "--first-minutes", action="store_true", help="cuda: what to try first on a GPU, in ten minutes (docs/cuda.md)"
    )
    arguments.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the results (default: bench/results)"
    )
    return arguments


def main(words: list[str] | None = None) -> int:
    """Run the benchmark; the exit status."""
    options = parser().parse_args(words)
    words = sys.argv[1:] if words is None else words
    if options.first_minutes and options.device != "cuda":
        print("--first-minutes is for --device cuda", file=sys.stderr)
        return 2
    if options.first_minutes:
        from bench.first_minutes import run_first_minutes

        return run_first_minutes(options, words)
    if options.device == "cuda":
        return main_cuda(options, words)
    limit_threads(options.threads)  # before any of what follows loads a numeric library
    from bench.cases import all_cases
    from bench.check import errors, failures
    from bench.report import report
    from bench.save import save
    from rnnops.compiler import DEVICES

    cases = chosen(all_cases((lambda size: size.tiny()) if options.scale == "tiny" else lambda size: size), options)
    if options.list or not cases:
        return show_names(cases, options)
    if options.device not in DEVICES:
        print(f"no device '{options.device}'; wanted one of {', '.join((*DEVICES, 'cuda'))}", file=sys.stderr)
        return 2
    results = run_all(cases, settings_of(options))
    machine = describe_machine(options.threads)
    text = report(results, machine)
    print(text, *save(results, machine, text, options.output), sep="\n")
    failed = failures(results) if options.check else errors(results)
    for failure in failed:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(failed))


def main_cuda(options: argparse.Namespace, words: list[str]) -> int:
    """Run the benchmark of CUDA devices; the exit status. Workers of their own load numeric libraries."""
    if options.scale == "tiny":
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # before anything imports numba
    from bench.cuda_cases import all_cases
    from bench.cuda_main import estimate, run_cuda, settings_of

    cases = chosen(all_cases(options.scale == "tiny"), options)
    if cases and not options.list:
        return run_cuda(options, cases, words)
    print(estimate(cases, settings_of(options)), file=sys.stderr)
    return show_names(cases, options)


def show_names(cases: Sequence[Named], options: argparse.Namespace) -> int:
    """Print the names of cases, or that there are none; the exit status."""
    if not cases:
        print(f"no case has '{options.only}' in its name; --list names them", file=sys.stderr)
        return 2
    print("\n".join(case.name for case in cases))
    return 0


def chosen(cases: Iterable[Named], options: argparse.Namespace) -> list[Named]:
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
