"""Windows over contiguous streams of a text, for truncated back-propagation with carried states.

The text is cut into N equal streams; window k of an epoch holds the steps k*T .. (k+1)*T-1 of every stream, so stream n
goes on where it stopped in the window before. A window follows from its position, a plain count from the start of
training: resuming needs nothing else. An epoch leaves out fewer than T*N + N characters at the ends of streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rnnops.errors import RnnopsError


class BatchError(RnnopsError):
    """Window sizes or a position make no sense, or the text is too short for them."""


@dataclass(frozen=True, eq=False)
class Window:
    """One training step's characters.

    Args:
        inputs, targets: [T, N] int32; a target is the character after its input.
        position: how many windows came before this one since the start of training.
        epoch: how many times the whole text came before it.
        reset: whether the streams start anew, so that carried states must be set back.
    """

    inputs: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    position: int
    epoch: int
    reset: bool


class Streams:
    """The windows of `streams` contiguous parts of a text, `steps` characters of each at a time."""

    def __init__(self, text: npt.NDArray[np.integer[Any]], steps: int, streams: int) -> None:
        _check_count("steps", steps, 1)
        _check_count("streams", streams, 1)
        if len(text) <= steps * streams:
            raise BatchError(
                f"the text is too short for {streams} streams of {steps} steps",
                wanted=f"more than {steps * streams} characters",
                came=len(text),
                hint="Use fewer streams, fewer steps or a longer text.",
            )
        length = (len(text) - 1) // streams
        self.steps, self.streams, self.stream_length = steps, streams, length
        used = text[: length * streams + 1]
        # Transposed views: row t holds character t of every stream.
        self._inputs = used[:-1].reshape(streams, length).T
        self._targets = used[1:].reshape(streams, length).T

    @property
    def windows_per_epoch(self) -> int:
        """How many whole windows the streams have."""
        return self.stream_length // self.steps

    @property
    def characters_per_window(self) -> int:
        """T * N, so that a position times this is the number of characters seen."""
        return self.steps * self.streams

    def window(self, position: int) -> Window:
        """Return the window at `position`; positions beyond the first epoch wrap."""
        _check_count("position", position, 0)
        epoch, index = divmod(position, self.windows_per_epoch)
        return self._window(slice(index * self.steps, (index + 1) * self.steps), position, epoch)

    def one_epoch(self, partial: bool = False) -> Iterator[Window]:
        """Yield the windows of one epoch; with `partial` also a last shorter one, so that only N - 1 or fewer targets
        are left out."""
        for position in range(self.windows_per_epoch):
            yield self.window(position)
        done = self.windows_per_epoch * self.steps
        if partial and done < self.stream_length:
            yield self._window(slice(done, None), self.windows_per_epoch, 0)

    def _window(self, rows: slice, position: int, epoch: int) -> Window:
        inputs, targets = (table[rows].astype(np.int32, order="C") for table in (self._inputs, self._targets))
        return Window(inputs, targets, position, epoch, reset=rows.start == 0)


def _check_count(what: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BatchError(f"{what} is no usable count", wanted=f"an int of at least {least}", came=repr(value))
