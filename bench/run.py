"""A run of the benchmark: what is chosen, measured by workers that are watched, saved as it comes, and judged."""

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

from bench.case import Case
from bench.cases import cases_of
from bench.contender import Settings
from bench.cuda_cases import rough_seconds
from bench.judge import CaseResult, busy, describe, errors, misses
from bench.pictures import save_pictures
from bench.record import Record, load_record, result_of, save_record
from bench.resume import ResumeError, find, now, revision
from bench.watch import HUNG_SECONDS, HUNG_SECONDS_OF_HOST, Watch, WorkerError

TINY_SECONDS = 8.0
INSTALL = "wanted an NVIDIA GPU with PyTorch built for CUDA or with numba-cuda (extra 'cuda')"


def run_cases(options: argparse.Namespace, cases: list[Case], words: list[str]) -> int:
    """Measure cases; the exit status.

    Args:
        options: of `bench.__main__`.
        words: of the command line, for the record.
    """
    run = Run(options, words, cases)
    try:
        run.watch.run()
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 1
    except ResumeError as error:
        print(error, file=sys.stderr)
        return 2
    if run.watch.no_device:
        print(f"no usable GPU: {run.watch.no_device}; {INSTALL}; --scale tiny needs none", file=sys.stderr)
        return 2
    if not run.watch.machine:
        print("time was up before anything was measured", file=sys.stderr)
        return 1
    return run.judge()


def settings_of(options: argparse.Namespace) -> Settings:
    """How carefully is measured."""
    tiny, rounds = options.scale == "tiny", max(1, options.rounds)
    settings = Settings(
        options.device, options.threads, rounds,
        patience=options.patience, tiny=tiny, processor_time=options.processor_time, without=options.without,
    )  # fmt: skip
    if settings.is_cuda:
        settings = replace(settings, counted=0.05, sets=3)
    if not options.quick:
        return settings
    quick = replace(settings, rounds=min(2, rounds), settle=0.02, counted=0.03)
    return replace(quick, counted=0.01, sets=2) if settings.is_cuda else quick


def estimate(cases: Collection[Case], settings: Settings) -> str:
    """What a run on a GPU may take, in words."""
    minutes = seconds_of(cases, settings) / 60
    return f"{len(cases)} cases, very roughly {minutes:.1f} min; --only, --quick and --seconds make it less"


def seconds_of(cases: Iterable[Case], settings: Settings) -> float:
    return sum(TINY_SECONDS if settings.is_simulated else rough_seconds(case, settings.rounds) for case in cases)


def described(settings: Settings) -> str:
    """How it is measured, in words: equal where numbers may stand side by side."""
    clock = "processor time" if settings.processor_time else "the clock"
    without = f", without {settings.without}" if settings.without else ""
    return f"{settings.rounds} rounds of {settings.counted:g} s by {clock}, {settings.sets} sets of inputs{without}"


class Run:
    """One run of the command: what is chosen, what was known before, what comes."""

    def __init__(self, options: argparse.Namespace, words: list[str], cases: list[Case]) -> None:
        self.options, self.start = options, time.monotonic()
        self.command = shlex.join(["python", "-m", "bench", *words])
        self.settings = settings_of(options)
        self.everything = list(cases_of(options.device, options.scale == "tiny"))
        self.chosen = {case.name: case for case in cases}
        self.record, self.path, self.how = Record(), Path(), described(self.settings)
        self.watch = Watch(
            list(self.chosen), self.settings, self.saved, self.opened, begins=self.begins,
            until=None if options.seconds is None else self.start + options.seconds,
            hung=HUNG_SECONDS if self.settings.is_cuda else HUNG_SECONDS_OF_HOST,
            apart=frozenset(case.name for case in cases if case.apart),
        )  # fmt: skip

    def opened(self, watch: Watch) -> None:
        """The first worker has told what machine it is on: now results have a file. Raises ResumeError."""
        today, made_by = date.today().isoformat(), revision()
        on = self.options.resume or self.options.full
        found = find(watch.machine, made_by, today, self.options.output, "cuda", on, self.options.restart)
        self.path = found.path
        if found.saved:
            self.record = load_record(found.saved, self.everything)
            known = {name for name, result in self.record.cases.items() if result.measured and result.how == self.how}
            left, ended = [name for name in watch.cases if name not in known], found.saved.get("begun", "")
            watch.cases = sorted(left, key=lambda name: name == ended)  # what took a run with it comes last
            print(f"{self.path} has {len(self.chosen) - len(watch.cases)} of {len(self.chosen)} cases", file=sys.stderr)
        if self.settings.is_cuda:
            left = [self.chosen[name] for name in watch.cases]
            print(estimate(left, self.settings), file=sys.stderr, flush=True)
        self.record.machine, self.record.revision = watch.machine, made_by
        self.record.rates = dict(watch.rates or {})
        self.record.runs.append({"date": today, "command": self.command})

    def begins(self, case: str) -> None:
        """A case is to be measured: whatever ends this run, the next one knows where."""
        self.record.begun = case
        save_record(self.record, self.path, self.everything)

    def saved(self, watch: Watch, event: dict[str, Any]) -> None:
        """A case is done."""
        case = self.chosen[event["case"]]
        result = result_of(case, event["measured"], event["error"], event.get("others", 0.0), now(), self.how)
        self.record.cases[result.name], self.record.unreached, self.record.begun = result, list(watch.cases), ""
        save_record(self.record, self.path, self.everything)
        done = len(self.chosen) - len(watch.cases)
        print(f"[{done}/{len(self.chosen)}] {progress(result)}; {self.left(watch)}", file=sys.stderr, flush=True)

    def left(self, watch: Watch) -> str:
        """Time spent, and what is left at the pace so far."""
        spent = time.monotonic() - self.start
        rest = seconds_of([self.chosen[name] for name in watch.cases], self.settings)
        done = seconds_of(self.chosen.values(), self.settings) - rest
        rest *= spent / max(done, 1.0)
        return f"{spent:.0f} s so far, about {rest:.0f} s left"

    def judge(self) -> int:
        """Print the page and what went wrong; the exit status."""
        self.record.unreached = list(self.watch.cases)
        print(save_record(self.record, self.path, self.everything))
        print(f"wrote {self.path}", f"wrote {self.path.with_suffix('.md')}", sep="\n")
        results = [self.record.cases[name] for name in self.chosen if name in self.record.cases]
        if not self.settings.is_cuda:
            print(*save_pictures(results, self.record.machine, self.path.parent), sep="\n")
        failed = errors(results)
        if self.options.check:
            late = (f"{name}: not reached in time" for name in self.record.unreached)
            failed += [*misses(results), *busy(results), *late]
        for failure in failed:
            print(f"failed: {failure}", file=sys.stderr)
        return int(bool(failed))


def progress(result: CaseResult) -> str:
    """One line when a case is done."""
    missed = "; ".join(f"MISSED {describe(figure)}" for figure in result.figures if not figure.met)
    return f"{result.name}: {f'ERROR {result.error}' if result.error else missed or 'ok'}"
