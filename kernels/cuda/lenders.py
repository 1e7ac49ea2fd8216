"""Lenders: others who give the memory that work on a CUDA device takes, and say whether a CUDA graph is captured.

A framework that owns the device's memory lends what a call takes: results are then its own, without a copy, and a graph
that it captures finds all memory in its pool. While one is captured nothing may wait, be copied from the host or be
read there, or be loaded: what would do so is an error here, before it spoils the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rnnops.errors import DeviceError

_STATE = threading.local()
RUN_BEFORE = "Run it once before the capture, with arrays of the same shapes and dtypes, as PyTorch wants it too."


class Lender(Protocol):
    """Who lends memory of the device.

    Args:
        captures: whether what is done in the stream that is current becomes a graph.
    """

    captures: bool

    def take(self, nbytes: int) -> tuple[Any, int]:
        """New memory: what owns it, and its address, a multiple of 256; for the stream that is current."""


def current_lender() -> Lender | None:
    """Who lends memory to this thread; None where it is the driver's, or a pool's of ours."""
    return getattr(_STATE, "lender", None)


@contextmanager
def lent_by(lender: Lender) -> Iterator[None]:
    """Let all memory that this thread takes for arrays of the device come from a lender."""
    before = current_lender()
    _STATE.lender = lender
    try:
        yield
    finally:
        _STATE.lender = before


def is_captured() -> bool:
    """Whether what this thread does becomes a graph."""
    lender = current_lender()
    return lender is not None and lender.captures


def refuse_in_graph(problem: str, hint: str = RUN_BEFORE) -> None:
    """Raise DeviceError where a graph is captured, which has no place for what is to be done."""
    if is_captured():
        raise DeviceError(f"a CUDA graph is captured, and {problem}", hint=hint)
