"""Progress on standard error: threads, compiling, training.

How many threads NumPy's matrix products use.

The products of one step are small: on two idle cores a second thread makes a step 10 to 30 % faster, and where another
process holds that core the library waits for it at every product and a step takes ten times as long. One thread also
makes a curve independent of how many cores there are.

What is being compiled: said when it begins and when it is done, and counted.

Progress of training on standard error: a bar where tqdm and a terminal are there, else a line now and then.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from rnnops.terminal import is_terminal, tqdm_or_none


def limit_product_threads(threads: int) -> bool:
    """Set the number of threads; False, and nothing done, without threadpoolctl, which comes with the extra `demo`."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return False
    threadpool_limits(threads, user_api="blas")
    return True


Result = TypeVar("Result")


class Compiling:
    """Nets that are compiled when they run for the first time, which takes from seconds to minutes.

    Args:
        say: prints a line; None on a device that compiles nothing.
        seconds: that compiling took so far, with the first run of each net.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self.seconds = 0.0
        self._say, self._compiled = say, set[str]()

    def run(self, what: str, function: Callable[[], Result]) -> Result:
        """Run a net, and if it is for the first time, say so."""
        first = what not in self._compiled
        self._compiled.add(what)
        if self._say is None or not first:
            return function()
        self._say(f"compiling {what} ...")
        began = time.monotonic()
        result = function()
        took = time.monotonic() - began
        self.seconds += took
        self._say(f"compiled {what} in {took:.1f} s")
        return result

    def ahead(self, what: str, function: Callable[[], object]) -> None:
        """Run a net so that it is compiled and planned, unless it ran before."""
        if what not in self._compiled:
            self.run(what, function)


LINE_SECONDS = 10.0
BITS_STEPS = 50  # the bits shown are the mean of so many steps


class Progress(Protocol):
    """What the training loop tells."""

    def advance(self, characters: int, bits: float) -> None:
        """One more step is done."""

    def say(self, text: str) -> None:
        """Print a line between the others."""

    def close(self) -> None:
        """Training is over."""


class Lines:
    """A line every few seconds.

    Args:
        done: characters that were seen before.
        seconds: between two lines.
    """

    def __init__(self, done: int = 0, seconds: float = LINE_SECONDS) -> None:
        self.done, self.seconds = done, seconds
        self._last = time.monotonic(), done
        self._bits: deque[float] = deque(maxlen=BITS_STEPS)

    def advance(self, characters: int, bits: float) -> None:
        self.done += characters
        self._bits.append(bits)
        now, (then, before) = time.monotonic(), self._last
        if now - then >= self.seconds:
            rate = (self.done - before) / (now - then)
            self.say(f"{self.done:,} characters, {rate:,.0f} a second, {mean(self._bits):.3f} bits per character")
            self._last = now, self.done

    def say(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        pass


class Bar:
    """A tqdm bar that counts characters."""

    def __init__(self, tqdm: Any, done: int, total: int | None) -> None:
        self._bar = tqdm(initial=done, total=total, unit=" characters", unit_scale=True, mininterval=0.5, leave=False)
        self._bits: deque[float] = deque(maxlen=BITS_STEPS)

    def advance(self, characters: int, bits: float) -> None:
        self._bits.append(bits)
        self._bar.set_postfix_str(f"{mean(self._bits):.3f} bits per character", refresh=False)
        self._bar.update(characters)

    def say(self, text: str) -> None:
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


def show_progress(done: int = 0, total: int | None = None) -> Progress:
    """A bar or lines, for `total` characters of which some are done."""
    tqdm = tqdm_or_none()
    return Bar(tqdm, done, total) if tqdm is not None and is_terminal() else Lines(done)


def say(text: str) -> None:
    """Print a line on standard error, above the bar if there is one."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        print(text, file=sys.stderr, flush=True)
    else:
        tqdm.write(text, file=sys.stderr)


def mean(values: deque[float]) -> float:
    return sum(values) / len(values)
