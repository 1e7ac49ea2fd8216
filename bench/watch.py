"""Workers are watched: one that hangs, dies or runs out of time is ended, and the next one goes on after it.

A contender during whose turn a worker ended is not tried again in that case; the other contenders of the case are.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from bench.contender import Settings
from bench.environment import THREAD_VARIABLES

ROOT = Path(__file__).parent.parent
COMMAND = (sys.executable, "-m", "bench.worker")
HUNG_SECONDS, HUNG_SECONDS_OF_HOST = 180.0, 3600.0  # without a word; the longest that anybody compiles is less
MOST_FAULTS = 20  # then the device does not come back
Event = dict[str, Any]


class WorkerError(Exception):
    """A worker ended before it said what machine it is on."""


@dataclass
class Watch:
    """What is to be measured, and what came of it.

    Args:
        cases: names of those that are left, in order.
        settings: of all workers.
        saved: is told of each case that is done; `opened`, of the machine when it is known, and may drop cases;
            `begins`, the name of each case that comes next.
        until: when to stop, by `time.monotonic`; None for never.
        apart: names of cases that have a worker each, which no environment variable tells a number of threads.
        failed: case -> label -> why a contender is not tried.
        machine, rates: as the first worker found them.
    """

    cases: list[str]
    settings: Settings
    saved: Callable[[Watch, Event], None]
    opened: Callable[[Watch], None]
    begins: Callable[[str], None] = lambda case: None
    until: float | None = None
    hung: float = HUNG_SECONDS
    apart: frozenset[str] = frozenset()
    command: tuple[str, ...] = field(default_factory=lambda: COMMAND)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    rates: Mapping[str, Any] | None = None
    no_device: str = ""
    turn: tuple[str, str] = ("", "")
    worker: subprocess.Popen[str] | None = None
    workers: int = 0
    faults: int = 0

    def run(self) -> None:
        """Measure all cases, or as many as time allows. Raises WorkerError where nothing can be measured."""
        while self.cases and not self.is_over() and self.faults < MOST_FAULTS:
            self.turn, self.workers = ("", ""), self.workers + 1
            batch = self.batch()
            ended = self.run_worker(batch)
            if not {*batch}.isdisjoint(self.cases) and not self.is_over():
                self.blame(ended)

    def is_over(self) -> bool:
        return bool(self.no_device) or (self.until is not None and time.monotonic() >= self.until)

    def batch(self) -> list[str]:
        """What the next worker measures: one case that is apart, or all up to the next one."""
        return self.cases[:1] if self.cases[0] in self.apart else [*takewhile(self.together, self.cases)]

    def together(self, case: str) -> bool:
        return case not in self.apart

    def run_worker(self, batch: list[str]) -> str:
        """One worker to its end; how it ended, where it did not end well."""
        worker = self.worker = start_worker(self.command, environment(self.settings, batch[0] in self.apart))
        self.say({"settings": asdict(self.settings), "rates": self.rates})
        try:
            for event in self.events(worker):
                if event is None:
                    return f"its process ended with {worker.wait()}"
                self.note(event, batch)
                if event["event"] == "dead":
                    return f"{event['reason']} (the device did nothing any more)"
            return f"no word for {self.hung:.0f} s, it hangs"
        finally:
            end(worker)

    def events(self, worker: subprocess.Popen[str]) -> Iterator[Event | None]:
        """What a worker says, as it comes; None when it has ended, and no more where there is none for long."""
        events = read_events(worker)
        with suppress(queue.Empty):
            while True:
                yield events.get(timeout=self.patience())

    def patience(self) -> float:
        return self.hung if self.until is None else max(0.0, min(self.hung, self.until - time.monotonic()))

    def say(self, words: Mapping[str, Any]) -> None:
        """A line to the worker; one that has ended is found out when it is listened to."""
        assert self.worker
        assert self.worker.stdin
        with suppress(BrokenPipeError):
            print(json.dumps(words), file=self.worker.stdin, flush=True)

    def note(self, event: Event, batch: list[str]) -> None:
        """What a worker says."""
        if event["event"] == "no device":
            self.no_device = event["reason"]
        elif event["event"] == "machine":
            first, self.machine, self.rates = not self.machine, event["machine"], event["rates"]
            if first:
                self.opened(self)
            self.say({"cases": [case for case in self.cases if case in batch], "failed": self.failed})
        elif event["event"] == "turn":
            if event["case"] != self.turn[0]:
                self.begins(event["case"])
            self.turn = event["case"], event["label"]
        elif event["event"] == "case":
            self.cases.remove(event["case"])
            self.turn = "", ""
            self.saved(self, event)

    def blame(self, ended: str) -> None:
        """The contender whose turn it was; the whole case where nobody's was."""
        case, label = self.turn
        if not self.machine:
            raise WorkerError(f"the first worker measured nothing: {ended}")
        self.faults += 1
        case = case or self.cases[0]
        if label and label not in self.failed.get(case, {}):
            self.failed.setdefault(case, {})[label] = ended
            return
        self.note({"event": "case", "case": case, "measured": [], "error": ended}, [])


def environment(settings: Settings, is_apart: bool = False) -> dict[str, str]:
    """Of workers. Numba's simulator is on or off before it is imported; rows of four numbers need one thread."""
    variables = {name: value for name, value in os.environ.items() if not (is_apart and name in THREAD_VARIABLES)}
    if settings.is_cuda:
        variables["NUMBA_ENABLE_CUDASIM"] = str(int(settings.tiny))
    return {**variables, **({"OMP_NUM_THREADS": "1"} if settings.is_simulated else {})}


def start_worker(command: tuple[str, ...], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that waits for its job."""
    return subprocess.Popen(command, cwd=ROOT, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(worker: subprocess.Popen[str]) -> None:
    """Whatever it does."""
    worker.kill()
    worker.wait()
    assert worker.stdin
    with suppress(OSError):  # what it has not read
        worker.stdin.close()


def read_events(worker: subprocess.Popen[str]) -> queue.Queue[Event | None]:
    """Events as they come; None when there are no more."""
    events: queue.Queue[Event | None] = queue.Queue()

    def read(lines: IO[str]) -> None:
        with lines:
            for line in lines:
                events.put(json.loads(line))
        events.put(None)

    assert worker.stdout
    threading.Thread(target=read, args=(worker.stdout,), daemon=True).start()
    return events
