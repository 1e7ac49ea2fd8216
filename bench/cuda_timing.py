"""Timing on a device: blocks of calls between two events, contenders in turn, input sets in rotation.

Calls of a block are enqueued one after another, so that what Python does is hidden where a library lets the device run
behind, as in training. The result is a median over rounds; a contender that fails leaves, the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.cuda_peers import CudaContender
from bench.cuda_place import Place
from bench.timing import no_collections

MOST_CALLS = 50
SLOW_SECONDS, SLOW_ROUNDS = 0.25, 3  # calls this long vary little, and cost minutes


@dataclass(frozen=True)
class CudaSettings:
    """What holds for a whole run.

    Args:
        rounds: blocks of each contender.
        block: seconds that a block should take.
        sets: of inputs.
        tiny: in numba's simulator.
    """

    rounds: int = 5
    block: float = 0.05
    sets: int = 3
    tiny: bool = False


@dataclass
class Block:
    """Calls of one contender that are timed together.

    Args:
        calls: of a block; grows until it lasts as long as it should.
    """

    contender: CudaContender
    place: Place
    seconds: float
    calls: int = 1
    done: int = 0

    def time(self) -> float:
        """Seconds of a call."""
        if not self.contender.waits:
            return self.place.seconds(self.run) / self.calls
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) / self.calls

    def run(self) -> None:
        """All calls of a block; results die at the next call."""
        for _ in range(self.calls):
            self.contender.call(self.done)
            self.done += 1

    def settle(self) -> None:
        """How many calls make a block."""
        self.calls = min(MOST_CALLS, max(1, round(self.seconds / max(self.time(), 1e-9))))


Fail = Callable[[str, Exception], None]


def time_in_turn(
    blocks: Mapping[str, Block], rounds: int, turn_of: Callable[[str], None], fail: Fail
) -> dict[str, list[float]]:
    """Seconds of a call of each contender, one number a round.

    Args:
        turn_of: is told whose turn it is.
        fail: is told what failed; numbers that were measured before do not count then.
    """
    times: dict[str, list[float]] = {label: [] for label in blocks}
    with no_collections():
        for turn in range(-1, rounds):  # the first turn finds out how many calls make a block
            for label in [label for label, values in times.items() if not enough(values, turn)]:
                turn_of(label)
                try:
                    blocks[label].settle() if turn < 0 else times[label].append(blocks[label].time())
                except Exception as error:  # of any library
                    del times[label]
                    fail(label, error)
    return times


def enough(values: list[float], turn: int) -> bool:
    return turn >= SLOW_ROUNDS and values[-1] >= SLOW_SECONDS
