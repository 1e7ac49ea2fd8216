"""A case from its contenders to its numbers: made, compared, weighed, timed.

On processors, contenders that fail or disagree leave a case without numbers. On a CUDA device what goes wrong with one
is told as its reason and the others go on; only a device that has failed ends the case.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from bench.agreement import LOW_TOLERANCE, NORM_TOLERANCE, disagreement, norm_differences
from bench.case import Case, Entry
from bench.child_runs import GIVEN_BACK, compile_seconds, peak_bytes
from bench.contender import ENGINES, Bench, Contender, MissingPeerError, Settings, make_contender
from bench.data import Placed
from bench.floor import Rates, floor_of
from bench.goals import OURS, Measured
from bench.load import OtherLoad, Quiet
from bench.place import HostPlace, Place
from bench.rnnops_engine import kept_numbers
from bench.timing import DeviceBlock, HostBlock, no_collections, time_in_turn, time_once

FIRST_CALLS = 20
WORDS = 200  # of a reason
Tell = Callable[[str], None]


class DeadDeviceError(Exception):
    """The device does nothing any more for this process: what a kernel did wrong, each later call reports again."""


@dataclass(frozen=True)
class Prepared:
    """A contender that has been called, compared and weighed.

    Args:
        seconds: until its first result, compilers included.
    """

    contender: Contender
    seconds: float
    memory: int | None
    grown: int | None
    error: float | None


@dataclass
class Measurement:
    """One case while it is measured.

    Args:
        tell: is told the label of the contender that is about to run.
        reasons: label -> why it is not measured.
        wrong: what is wrong with the case: contenders that differ, or fail where all must run.
        agreed: label and results of the first contender of each problem, which others are compared with.
    """

    case: Case
    settings: Settings
    place: Place = field(default_factory=HostPlace)
    rates: Rates = field(default_factory=Rates)
    tell: Tell = lambda label: None
    reasons: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    agreed: dict[object, tuple[str, Placed]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench = Bench(self.settings, self.place)
        self.quiet = Quiet(self.settings.patience)
        if not self.settings.is_cuda:
            self.wrong += [f"{label}: {reason}" for label, reason in self.reasons.items()]

    def measured(self) -> list[Measured]:
        """What is measured of all contenders; none on processors where something is wrong. Raises DeadDeviceError."""
        rows = MEASURES[self.case.measure](self)
        if not self.settings.is_cuda:
            return [] if self.wrong else rows
        ours = [label for label in self.reasons if label.startswith(OURS) and self.must_run(label)]
        self.wrong[:0] = [f"{label} is not measured: {self.reasons[label]}" for label in ours]
        return rows

    def must_run(self, label: str) -> bool:
        """Ours in float32; in other floats rnnops may have no weights."""
        return next(entry for entry in self.case.entries if entry.label == label).precision == "fp32"

    def fail(self, label: str, error: Exception) -> None:
        """Note why a contender is not measured. Raises DeadDeviceError where nothing else will be either."""
        self.reasons[label] = reason_of(error)
        if not self.settings.is_cuda and not isinstance(error, MissingPeerError):
            self.wrong.append(f"{label}: {self.reasons[label]}")
        try:
            self.place.wait()
            self.place.clean()
        except Exception as dead:  # of any library
            raise DeadDeviceError(self.reasons[label]) from dead

    def prepare(self) -> dict[str, Prepared]:
        """All contenders that run, by label."""
        ready, shared = {}, Counter(entry.problem.data for entry in self.case.entries)
        for entry in self.case.entries:
            if entry.label not in self.reasons:
                self.tell(entry.label)
                try:
                    ready[entry.label] = self.prepared(entry, shared[entry.problem.data] > 1)
                except Exception as error:  # of any library
                    self.fail(entry.label, error)
            if self.wrong and not self.settings.is_cuda:
                return {}
        self.agreed.clear()
        return ready

    def prepared(self, entry: Entry, has_others: bool) -> Prepared:
        """Made and called: the first call compiles, the second one is weighed, the third one looks at fresh inputs."""
        self.place.clean()
        if ENGINES[entry.engine].is_fed:
            self.bench.data(entry.problem)
        before, start = self.place.free_bytes(), time.perf_counter()
        contender = make_contender(entry, self.bench)
        returned = contender.call(0)
        self.place.wait()
        seconds = time.perf_counter() - start
        after = self.place.free_bytes()
        error = self.compare(entry, contender, returned) if has_others else None
        del returned
        peak = self.place.peak_bytes(lambda: contender.call(1))
        memory = planned_bytes(contender) if contender.planned else peak
        contender.call(2)
        self.place.wait()
        return Prepared(contender, seconds, memory, None if before is None or after is None else before - after, error)

    def compare(self, entry: Entry, contender: Contender, returned: Any) -> float | None:
        """The largest error against the first contender of a problem, by norms; in float32 it must be small."""
        if contender.results is None:
            return None
        results = contender.results(returned)
        if entry.problem.data not in self.agreed:
            self.agreed[entry.problem.data] = entry.label, results
            return None
        other, wanted = self.agreed[entry.problem.data]
        if not self.settings.is_cuda and entry.precision == "fp32":
            self.wrong += disagreement(entry.label, results, other, wanted)
            return None
        errors = {name: float("inf") for name in results.keys() ^ wanted.keys()}
        errors.update({name: self.place.error(results[name], wanted[name]) for name in results.keys() & wanted.keys()})
        if entry.precision == "fp32" or not self.settings.is_cuda:
            tolerance = NORM_TOLERANCE if entry.precision == "fp32" else LOW_TOLERANCE
            self.wrong += norm_differences(entry.label, other, errors, tolerance)
        return max(errors.values(), key=lambda error: float("inf") if error != error else error)

    def row(self, entry: Entry, one: Prepared | None = None, times: list[float] | None = None) -> Measured:
        """What was measured of a contender, or why it was not."""
        row = Measured(
            entry.label, None, missing=self.reasons.get(entry.label, ""), precision=entry.precision,
            tf32=entry.floats.flag, algorithm=entry.algorithm,
        )  # fmt: skip
        if one is None or not times:
            return row
        floor = floor_of(entry, self.rates) if one.contender.results and self.settings.is_cuda else None
        return replace(
            row, value=median(times), rounds=tuple(times), prepare_seconds=one.seconds, missing="", memory=one.memory,
            work=one.contender.work() if one.contender.work else None, grown=one.grown, error=one.error,
            floor=floor.seconds if floor else None, floor_of=floor.what if floor else "",
        )  # fmt: skip

    def rows(self, ready: Mapping[str, Prepared], times: Mapping[str, list[float]]) -> list[Measured]:
        """In the order of the case, those that are missing too."""
        timed = [entry for entry in self.case.entries if entry.timed or entry.label in self.reasons]
        return [self.row(entry, ready.get(entry.label), times.get(entry.label)) for entry in timed]


def planned_bytes(contender: Contender) -> int | None:
    """What a library says that it needs; times do not depend on whether it can say."""
    try:
        return contender.planned() if contender.planned else None
    except Exception:  # of any library
        return None


def reason_of(error: Exception) -> str:
    """The first line of an error, cut where it goes on and on."""
    if isinstance(error, MissingPeerError):
        return str(error)
    text = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
    return text if len(text) <= WORDS else f"{text[:WORDS]}..."


def measure_time(it: Measurement) -> list[Measured]:
    """Seconds of a call of each contender, in blocks in turn, after all of them have agreed."""
    ready, times = it.prepare(), it.settings
    timed = {
        entry.label: ready[entry.label].contender for entry in it.case.entries if entry.timed and entry.label in ready
    }
    blocks = {
        label: DeviceBlock(one, times, it.place) if times.is_cuda else HostBlock(one, times, it.quiet)
        for label, one in timed.items()
    }
    return it.rows(ready, time_in_turn(blocks, times.rounds, it.tell, it.fail))


def measure_first_calls(it: Measurement) -> list[Measured]:
    """The median of single calls in turn, of contenders that never do the same twice."""
    ready = it.prepare()
    times: dict[str, list[float]] = {label: [] for label in ready}
    load, start = OtherLoad(), time.perf_counter()
    with no_collections():
        for _ in range(FIRST_CALLS):
            for label, one in ready.items():
                times[label].append(time_once(partial(one.contender.call, 0)))
    it.quiet.counted_seconds += time.perf_counter() - start
    it.quiet.disturbed_seconds += load.seconds()
    return it.rows(ready, times)


def measure_first_results(it: Measurement) -> list[Measured]:
    """Seconds until the first results of each contender, compilers included, in a process that has compiled others.

    The folder of kernels is empty but for what all cells share, the first of which is not counted.
    """
    with tempfile.TemporaryDirectory() as folder, environment_of(RNNOPS_CACHE_DIR=folder):
        for engine in dict.fromkeys(entry.engine for entry in it.case.entries):
            problem = it.case.warm_up or it.case.entries[0].problem
            with suppress(MissingPeerError):
                make_contender(Entry(engine, engine, problem), it.bench).call(0)
        gc.collect()
        with no_collections():  # a collection of all libraries' objects takes longer than a cell
            ready = it.prepare()
    return it.rows(ready, {label: [one.seconds] for label, one in ready.items()})


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


def measure_memory(it: Measurement, environment: Mapping[str, str] | None = None) -> list[Measured]:
    return [peak_of(entry, it, environment or {}) for entry in it.case.entries]


def measure_memory_given_back(it: Measurement) -> list[Measured]:
    return measure_memory(it, GIVEN_BACK)


def peak_of(entry: Entry, it: Measurement, environment: Mapping[str, str]) -> Measured:
    try:
        return Measured(entry.label, peak_bytes(entry, it.settings, environment), "bytes")
    except MissingPeerError as error:
        return Measured(entry.label, None, "bytes", missing=str(error))


def measure_kept(it: Measurement) -> list[Measured]:
    """Numbers that a pullback holds, in U."""
    return [
        Measured(entry.label, kept_numbers(entry.problem, it.settings) / entry.problem.size.unit, "U")
        for entry in it.case.entries
    ]


def measure_compile(it: Measurement) -> list[Measured]:
    seconds = compile_seconds(it.case.entries[0], it.settings, it.quiet)
    return [Measured(label, value, "s") for label, value in seconds.items()]


MEASURES: Mapping[str, Callable[[Measurement], list[Measured]]] = {
    "time": measure_time,
    "first calls": measure_first_calls,
    "memory": measure_memory,
    "memory given back": measure_memory_given_back,
    "kept": measure_kept,
    "compile": measure_compile,
    "first results": measure_first_results,
}
