"""`python -m bench --device cuda`: rnnops beside cuDNN, PyTorch and JAX on a GPU, with floors under the time of a step.

This process touches no device: it watches workers (`cuda_watch.py`), saves what they say and judges it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from bench.check import describe, errors, misses
from bench.cuda_cases import CudaCase, all_cases
from bench.cuda_report import CudaResult
from bench.cuda_save import Record, load_record, paths_of, result_of, save_record
from bench.cuda_timing import CudaSettings
from bench.cuda_watch import Watch, WorkerError

QUICK = CudaSettings(rounds=2, block=0.01, sets=2)
TINY_SECONDS = 8.0
INSTALL = "wanted an NVIDIA GPU with PyTorch built for CUDA or with numba-cuda (extra 'cuda')"


def run_cuda(options: argparse.Namespace, table: list[CudaCase], words: list[str]) -> int:
    """Measure the chosen cases of a table; the exit status.

    Args:
        options: of `bench.__main__`.
        words: of the command line, for the record.
    """
    run = Run(options, words, table)
    try:
        run.watch.run()
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 1
    if run.watch.no_device:
        print(f"no usable GPU: {run.watch.no_device}; {INSTALL}; --scale tiny needs none", file=sys.stderr)
        return 2
    if not run.watch.machine:
        print("time was up before anything was measured", file=sys.stderr)
        return 1
    return run.judge()


def settings_of(options: argparse.Namespace) -> CudaSettings:
    """How carefully is measured."""
    rounds, tiny = max(1, options.rounds), options.scale == "tiny"
    if options.quick:
        return replace(QUICK, rounds=min(QUICK.rounds, rounds), tiny=tiny)
    return CudaSettings(rounds, tiny=tiny)


def estimate(cases: Collection[CudaCase], settings: CudaSettings) -> str:
    """What a run may take, in words."""
    minutes = rough_seconds(cases, settings) / 60
    return f"{len(cases)} cases, very roughly {minutes:.1f} min; --only, --quick and --seconds make it less"


def rough_seconds(cases: Iterable[CudaCase], settings: CudaSettings) -> float:
    return sum(TINY_SECONDS if settings.tiny else case.rough_seconds(settings.rounds) for case in cases)


class Run:
    """One run of the command: what is chosen, what was known before, what comes."""

    def __init__(self, options: argparse.Namespace, words: list[str], table: list[CudaCase]) -> None:
        self.options, self.start = options, time.monotonic()
        self.everything = list(all_cases(options.scale == "tiny"))
        self.command = shlex.join(["python", "-m", "bench", *words])
        self.settings = settings_of(options)
        self.chosen = {case.name: case for case in table}
        self.record, self.path = Record(), Path()
        until = None if options.seconds is None else self.start + options.seconds
        self.watch = Watch(list(self.chosen), self.settings, self.saved, self.opened, until)

    def opened(self, watch: Watch) -> None:
        """The first worker has told what machine it is on: now results have a file."""
        print(estimate(self.chosen.values(), self.settings), file=sys.stderr, flush=True)
        today = date.today().isoformat()
        before, self.path = paths_of(watch.machine, today, self.options.output)
        if self.options.resume and before:
            self.path, self.record = before, load_record(before, self.everything)
            known = {name for name, result in self.record.cases.items() if result.measured}
            watch.cases = [name for name in watch.cases if name not in known]
        self.record.machine, self.record.rates = watch.machine, dict(watch.rates or {})
        self.record.runs.append({"date": today, "command": self.command})

    def saved(self, watch: Watch, event: dict[str, Any]) -> None:
        """A case is done."""
        result = result_of(self.chosen[event["case"]], event["measured"], event["error"])
        self.record.cases[result.name], self.record.unreached = result, list(watch.cases)
        save_record(self.record, self.path, self.everything)
        done = len(self.chosen) - len(watch.cases)
        print(f"[{done}/{len(self.chosen)}] {progress(result)}; {self.left(watch)}", file=sys.stderr, flush=True)

    def left(self, watch: Watch) -> str:
        """Time spent, and what is left at the pace so far."""
        spent = time.monotonic() - self.start
        rest = rough_seconds([self.chosen[name] for name in watch.cases], self.settings)
        done = rough_seconds(self.chosen.values(), self.settings) - rest
        rest *= spent / max(done, 1.0)
        return f"{spent:.0f} s so far, about {rest:.0f} s left"

    def judge(self) -> int:
        """Print the page and what went wrong; the exit status."""
        self.record.unreached = list(self.watch.cases)
        print(save_record(self.record, self.path, self.everything))
        print(f"wrote {self.path}", f"wrote {self.path.with_suffix('.md')}", sep="\n")
        results = [self.record.cases[name] for name in self.chosen if name in self.record.cases]
        failed = errors(results)
        if self.options.check:
            failed += [*misses(results), *(f"{name}: not reached in time" for name in self.record.unreached)]
        for failure in failed:
            print(f"failed: {failure}", file=sys.stderr)
        return int(bool(failed))


def progress(result: CudaResult) -> str:
    """One line when a case is done."""
    missed = "; ".join(f"MISSED {describe(figure)}" for figure in result.figures if not figure.met)
    return f"{result.name}: {f'ERROR {result.error}' if result.error else missed or 'ok'}"
