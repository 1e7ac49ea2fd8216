"""When training stops: enough steps, the time limit, or a signal that asks for it."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

SAFETY = 1.25  # an evaluation may take so much longer than expected
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While it is entered, the first Ctrl-C or SIGTERM sets `received` and the second raises KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True


class Clock:
    """The time limit of a command, counted from its start, less what its end will take.

    Args:
        limit: in seconds, None for none.
        closing: seconds that the end takes beside the evaluation.
    """

    def __init__(self, limit: float | None, closing: float = 0.0, started: float | None = None) -> None:
        self.started = time.monotonic() if started is None else started
        self.limit, self.closing, self.evaluation = limit, closing, 0.0

    def expect_evaluation(self, seconds: float) -> None:
        """Keep time for an evaluation that is expected to take so long; the latest figure counts."""
        self.evaluation = seconds

    def is_over(self) -> bool:
        """Whether what is left is needed for the end."""
        if self.limit is None:
            return False
        return time.monotonic() - self.started + SAFETY * self.evaluation + self.closing >= self.limit
