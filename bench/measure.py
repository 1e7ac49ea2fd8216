"""A case from its contenders to its figures: made, compared, timed, judged."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median

from bench.agreement import DisagreementError, check_agreement
from bench.apart import measure_apart
from bench.case import Case, Entry
from bench.child_runs import GIVEN_BACK, compile_seconds, peak_bytes
from bench.contender import Contender, MissingPeerError, Settings, make_contender
from bench.goals import Figure, Measured
from bench.load import OtherLoad, Quiet
from bench.problems import Arrays
from bench.rnnops_engine import kept_numbers
from bench.timing import no_collections, time_in_turn, time_once

FIRST_CALLS = 20


@dataclass(frozen=True)
class CaseResult:
    """What came of a case.

    Args:
        error: why there are no numbers, where contenders disagree or one of them fails.
        others: processors that other processes kept busy meanwhile.
    """

    group: str
    setting: str
    measured: tuple[Measured, ...] = ()
    figures: tuple[Figure, ...] = ()
    error: str = ""
    others: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}"


def run_case(case: Case, settings: Settings) -> CaseResult:
    """Measure one case. What goes wrong is part of the result, so that other cases still run."""
    quiet = Quiet(settings.patience)
    try:
        measured = (
            measure_apart(measure_here, case, settings, quiet) if case.apart else measure_here(case, settings, quiet)
        )
    except Exception as error:  # of any library; the report names it and the run fails
        came = str(error) if isinstance(error, DisagreementError) else f"{type(error).__name__}: {error}"
        return CaseResult(case.group, case.setting, error=came)
    table = {one.label: one for one in measured}
    figures = tuple(goal.figure(table) for goal in case.goals)
    return CaseResult(case.group, case.setting, tuple(measured), figures, others=quiet.processors)


def measure_here(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """What a case measures, in this process."""
    return MEASURES[case.measure](case, settings, quiet)


@dataclass(frozen=True)
class Ready:
    """A contender that has been called, compilers included."""

    contender: Contender
    seconds: float


def measure_time(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """Seconds of a call of each contender, in blocks in turn, after all of them have agreed."""
    ready, missing = prepare(case, settings)
    timed = {entry.label: ready[entry.label] for entry in case.entries if entry.timed and entry.label in ready}
    calls = {label: one.contender.call for label, one in timed.items()}
    times = time_in_turn(calls, settings.rounds, settings.settle, settings.counted, quiet)
    measured = [
        Measured(label, median(times[label]), "s", tuple(times[label]), one.seconds, one.contender.work)
        for label, one in timed.items()
    ]
    return measured + [Measured(label, None, missing=why) for label, why in missing.items()]


def measure_first_calls(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """The median of single calls in turn, of contenders that never do the same twice."""
    ready, missing = prepare(case, settings)
    times: dict[str, list[float]] = {label: [] for label in ready}
    load, start = OtherLoad(), time.perf_counter()
    with no_collections():
        for _ in range(FIRST_CALLS):
            for label, one in ready.items():
                times[label].append(time_once(one.contender.call))
    quiet.counted_seconds += time.perf_counter() - start
    quiet.disturbed_seconds += load.seconds()
    measured = [Measured(label, median(row), "s", tuple(row), ready[label].seconds) for label, row in times.items()]
    return measured + [Measured(label, None, missing=why) for label, why in missing.items()]


def measure_first_results(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """Seconds until the first results of each contender, compilers included, in a process that has compiled others.

    The folder of kernels is empty but for what all cells share, the first of which is not counted.
    """
    with tempfile.TemporaryDirectory() as folder, environment_of(RNNOPS_CACHE_DIR=folder):
        for engine in dict.fromkeys(entry.engine for entry in case.entries):
            with suppress(MissingPeerError):
                make_contender(engine, case.warm_up or case.entries[0].problem, "training", settings).call()
        ready, missing = prepare(case, settings)
    measured = [Measured(label, one.seconds, "s", (one.seconds,), one.seconds) for label, one in ready.items()]
    return measured + [Measured(label, None, missing=why) for label, why in missing.items()]


@contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """An environment with some variables, for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def prepare(case: Case, settings: Settings) -> tuple[dict[str, Ready], dict[str, str]]:
    """Contenders that are there and agree, and those that are missing with the reason."""
    ready: dict[str, Ready] = {}
    missing: dict[str, str] = {}
    agreed: dict[object, tuple[str, Arrays]] = {}
    shared = Counter(entry.problem.data for entry in case.entries)
    for entry in case.entries:
        start = time.perf_counter()
        try:
            contender = make_contender(entry.engine, entry.problem, entry.mode, settings)
        except MissingPeerError as error:
            missing[entry.label] = str(error)
            continue
        returned = contender.call()
        ready[entry.label] = Ready(contender, time.perf_counter() - start)
        if contender.results and shared[entry.problem.data] > 1:
            compare(entry, contender.results(returned), agreed)
        del returned
        contender.call()  # compilers that look at the first call's results compile once more
    return ready, missing


def compare(entry: Entry, arrays: Arrays, agreed: dict[object, tuple[str, Arrays]]) -> None:
    """The first contender of a problem is what the others are compared with."""
    other, wanted = agreed.setdefault(entry.problem.data, (entry.label, arrays))
    check_agreement(entry.label, arrays, other, wanted)


def measure_memory(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    return [peak_of(entry, settings, {}) for entry in case.entries]


def measure_memory_given_back(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    return [peak_of(entry, settings, GIVEN_BACK) for entry in case.entries]


def measure_kept(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """Numbers that a pullback holds, in U."""
    return [
        Measured(entry.label, kept_numbers(entry.problem, settings) / entry.problem.size.unit, "U")
        for entry in case.entries
    ]


def measure_compile(case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    seconds = compile_seconds(case.entries[0].problem, settings, quiet)
    return [Measured(label, value, "s") for label, value in seconds.items()]


def peak_of(entry: Entry, settings: Settings, environment: Mapping[str, str]) -> Measured:
    try:
        return Measured(entry.label, peak_bytes(entry.engine, entry.problem, settings, environment), "bytes")
    except MissingPeerError as error:
        return Measured(entry.label, None, "bytes", missing=str(error))


MEASURES: Mapping[str, Callable[[Case, Settings, Quiet], list[Measured]]] = {
    "time": measure_time,
    "first calls": measure_first_calls,
    "memory": measure_memory,
    "memory given back": measure_memory_given_back,
    "kept": measure_kept,
    "compile": measure_compile,
    "first results": measure_first_results,
}
