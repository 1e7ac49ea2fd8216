"""A case of the CUDA benchmark from its contenders to its numbers: made, compared, weighed, timed.

What goes wrong with one contender is told as its reason and the others go on. Only a device that has failed ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.contender import MissingPeerError
from bench.cuda_cases import RECOMPUTE, CudaCase, CudaEntry
from bench.cuda_data import Data, Placed, draw_data
from bench.cuda_floor import Rates, floor_of
from bench.cuda_peers import CudaContender, make_cuda_contender
from bench.cuda_place import Place
from bench.cuda_timing import Block, CudaSettings, time_in_turn
from bench.goals import OURS, Measured

TOLERANCE = 1e-3  # norm of the difference / norm, in float32 after 1024 steps; coarser floats are reported only
WORDS = 200  # of a reason
Tell = Callable[[str], None]


class DeadDeviceError(Exception):
    """The device does nothing any more for this process: what a kernel did wrong, each later call reports again."""


@dataclass(frozen=True)
class CudaMeasured(Measured):
    """What was measured of one contender.

    Args:
        memory: bytes that a call needs beside its feeds.
        grown: by how many bytes the device's free memory shrank at the first call, compiled code and pools included.
        floor: seconds of a step at least; `floor_of` says what for.
        error: the largest norm of a difference / norm, over outputs and gradients; None for the first one.
    """

    precision: str = "fp32"
    tf32: str = "off"
    algorithm: str = ""
    memory: int | None = None
    grown: int | None = None
    floor: float | None = None
    floor_of: str = ""
    error: float | None = None


@dataclass(frozen=True)
class Prepared:
    """A contender that has been called, compared and weighed."""

    contender: CudaContender
    seconds: float
    memory: int | None
    grown: int | None
    error: float | None


@dataclass
class Bench:
    """One case while it is measured.

    Args:
        reasons: label -> why it is not measured.
        differences: where a contender computed something else.
        first: label and results of the contender that others are compared with.
    """

    case: CudaCase
    place: Place
    settings: CudaSettings
    tell: Tell
    reasons: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    first: tuple[str, Placed] | None = None

    def fail(self, label: str, error: Exception) -> None:
        """Note why a contender is not measured. Raises DeadDeviceError where nothing else will be either."""
        self.reasons[label] = reason_of(error)
        try:
            self.place.wait()
            self.place.clean()
        except Exception as dead:  # of any library
            raise DeadDeviceError(self.reasons[label]) from dead

    def prepare(self) -> dict[str, Prepared]:
        """All contenders that run, by label."""
        data, ready = draw_data(self.case.problem, self.place, self.settings.sets), {}
        for entry in self.case.entries:
            if entry.label not in self.reasons:
                self.tell(entry.label)
                try:
                    ready[entry.label] = self.prepared(entry, data)
                except Exception as error:  # of any library
                    self.fail(entry.label, error)
        self.first = None
        return ready

    def prepared(self, entry: CudaEntry, data: Data) -> Prepared:
        """Made and called: the first call compiles, the second one is weighed, the third one looks at fresh inputs."""
        self.place.clean()
        before, start = self.place.free_bytes(), time.perf_counter()
        contender = make_cuda_contender(entry, data, self.place, self.settings.tiny)
        returned = contender.call(0)
        self.place.wait()
        seconds = time.perf_counter() - start
        after = self.place.free_bytes()
        error = self.compare(entry, contender, returned)
        del returned
        peak = self.place.peak_bytes(lambda: contender.call(1))
        memory = planned_bytes(contender) if contender.planned else peak
        contender.call(2)
        self.place.wait()
        return Prepared(contender, seconds, memory, None if before is None or after is None else before - after, error)

    def compare(self, entry: CudaEntry, contender: CudaContender, returned: Any) -> float | None:
        """The largest error against the first contender; in float32 it must be small."""
        if contender.results is None:
            return None
        results = contender.results(returned)
        if self.first is None:
            self.first = entry.label, results
            return None
        other, wanted = self.first
        errors = {name: float("inf") for name in results.keys() ^ wanted.keys()}
        errors.update({name: self.place.error(results[name], wanted[name]) for name in results.keys() & wanted.keys()})
        if entry.precision == "fp32":
            self.differences += differences(entry.label, other, errors)
        return max(errors.values(), key=lambda error: float("inf") if error != error else error)


def planned_bytes(contender: CudaContender) -> int | None:
    """What a library says that it needs; times do not depend on whether it can say."""
    try:
        return contender.planned() if contender.planned else None
    except Exception:  # of any library
        return None


def differences(label: str, other: str, errors: Mapping[str, float]) -> list[str]:
    """One line for all that differs by too much; NaN differs."""
    wrong = [f"{name} by {error:.1e}" for name, error in sorted(errors.items()) if not error <= TOLERANCE]
    return [f"{label} and {other} differ: {', '.join(wrong)}; allowed {TOLERANCE:.0e} of the norm"] if wrong else []


def reason_of(error: Exception) -> str:
    """The first line of an error, cut where it goes on and on."""
    line = next(iter(str(error).strip().splitlines()), "")
    text = line if isinstance(error, MissingPeerError) else f"{type(error).__name__}: {line}"
    return text if len(text) <= WORDS else f"{text[:WORDS]}..."


def measure_case(
    case: CudaCase, place: Place, rates: Rates, settings: CudaSettings, failed: Mapping[str, str], tell: Tell
) -> tuple[list[CudaMeasured], list[str]]:
    """What was measured of all contenders, and what is wrong: rnnops does not run, or contenders differ.

    Raises DeadDeviceError.

    Args:
        failed: label -> why a contender is not tried.
        tell: is told the label of the contender that is about to run.
    """
    bench = Bench(case, place, settings, tell, dict(failed))
    ready = bench.prepare()
    blocks = {label: Block(one.contender, place, settings.block) for label, one in ready.items()}
    times = time_in_turn(blocks, settings.rounds, tell, bench.fail)
    measured = [
        measured_of(entry, ready[entry.label], times[entry.label], rates)
        if entry.label in times
        else missing(entry, bench.reasons[entry.label])
        for entry in case.entries
    ]
    ours = [f"{label} is not measured: {why}" for label, why in bench.reasons.items() if label in (OURS, RECOMPUTE)]
    return measured, [*ours, *bench.differences]


def measured_of(entry: CudaEntry, one: Prepared, times: list[float], rates: Rates) -> CudaMeasured:
    floor = floor_of(entry, rates) if one.contender.results else None
    return CudaMeasured(
        entry.label, median(times), "s", tuple(times), one.seconds, precision=entry.precision, tf32=entry.settings.flag,
        algorithm=entry.algorithm, memory=one.memory, grown=one.grown, floor=floor.seconds if floor else None,
        floor_of=floor.what if floor else "", error=one.error,
    )  # fmt: skip


def missing(entry: CudaEntry, reason: str) -> CudaMeasured:
    return CudaMeasured(
        entry.label,
        None,
        missing=reason,
        precision=entry.precision,
        tf32=entry.settings.flag,
        algorithm=entry.algorithm,
    )
