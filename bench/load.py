"""How much other processes use the processors: times of a busy machine are worth little.

Libraries suffer unequally. Where a thread of OpenMP waits for one that another process has pushed off its processor, a
call takes a hundred times as long; a single thread hardly notices. So a ratio from a busy machine is not even roughly
right, and blocks are repeated, for some time, until the machine was quiet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

STAT = Path("/proc/stat")
IDLE_FIELDS = (3, 4)  # idle, waiting for the disk
NOTICEABLE = 0.15  # processors, over a whole case
BLOCK_NOTICEABLE = 0.3  # in one block, where the system's clock ticks show
PAUSE = 0.25


@dataclass(frozen=True)
class Sample:
    """Seconds since some start: on the wall, of all processes on all processors, of this one and its children."""

    wall: float
    everybody: float
    own: float


def sample() -> Sample:
    times = os.times()
    own = time.process_time() + times.children_user + times.children_system
    return Sample(time.perf_counter(), everybody_seconds(own), own)


def everybody_seconds(own: float) -> float:
    """Processor time of all processes, time stolen by other virtual machines included."""
    if not STAT.exists():
        return own
    fields = [int(text) for text in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return sum(t for k, t in enumerate(fields) if k not in IDLE_FIELDS) / os.sysconf("SC_CLK_TCK")


@dataclass
class OtherLoad:
    """Processor time of other processes since it was made."""

    start: Sample = field(default_factory=sample)

    def seconds(self) -> float:
        now = sample()
        return max(0.0, (now.everybody - self.start.everybody) - (now.own - self.start.own))

    def processors(self) -> float:
        """How many they kept busy on average."""
        return self.seconds() / max(1e-9, time.perf_counter() - self.start.wall)


@dataclass
class Quiet:
    """Repeats blocks that others disturbed.

    Args:
        patience: seconds that may be lost to repetitions and pauses, in all.
    """

    patience: float
    disturbed_seconds: float = 0.0
    counted_seconds: float = 0.0

    @property
    def processors(self) -> float:
        """What others used while blocks ran that counted."""
        return self.disturbed_seconds / max(1e-9, self.counted_seconds)

    def block(self, measure: Callable[[], float]) -> float:
        """What `measure` returns, from a time when the machine was quiet if patience lasts."""
        while True:
            load, start = OtherLoad(), time.perf_counter()
            value = measure()
            others, wall = load.seconds(), time.perf_counter() - start
            if others < BLOCK_NOTICEABLE * wall or self.patience <= 0:
                self.disturbed_seconds += others
                self.counted_seconds += wall
                return value
            time.sleep(PAUSE)
            self.patience -= wall + PAUSE
