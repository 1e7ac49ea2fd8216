"""What threads share in memory: barriers and mailboxes, and where in them what lies; `barrier.py` says what for."""

from __future__ import annotations

from typing import Any

import numpy as np

WORD_BYTES = 8
LINE_BYTES = 64
LINE = LINE_BYTES // WORD_BYTES
DONE_GATE, JOB, MAILBOX_LINES = LINE_BYTES, 2 * LINE_BYTES, 3  # a mailbox: gate to a worker, gate from it, its job
DRIVER, RANK, THREADS, WORDS = (JOB + i * WORD_BYTES for i in range(4))  # a job


def cache_lines(count: int) -> Any:
    """Zeros, int64, that fill cache lines of their own."""
    numbers = np.zeros((count + 1) * LINE, np.int64)
    start = -numbers.ctypes.data % LINE_BYTES // WORD_BYTES
    return numbers[start : start + count * LINE]


def new_barrier() -> Any:
    """The memory of a barrier: the count and the phase."""
    return cache_lines(2)
