"""What is being compiled: said when it begins and when it is done, and counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

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
