"""Cases that are measured in a process of their own, which no environment variable tells a number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING

from bench.environment import THREAD_VARIABLES

if TYPE_CHECKING:
    from bench.case import Case
    from bench.contender import Settings
    from bench.goals import Measured
    from bench.load import Quiet

    Measure = Callable[[Case, Settings, Quiet], list[Measured]]


def measure_apart(measure: Measure, case: Case, settings: Settings, quiet: Quiet) -> list[Measured]:
    """What a case measures in a process of its own. Raises what is raised there."""
    with without_thread_variables(), ProcessPoolExecutor(1, get_context("spawn")) as process:
        measured, after = process.submit(_with_load, measure, case, settings, quiet).result()
    vars(quiet).update(vars(after))
    return measured


def _with_load(measure: Measure, case: Case, settings: Settings, quiet: Quiet) -> tuple[list[Measured], Quiet]:
    return measure(case, settings, quiet), quiet


@contextmanager
def without_thread_variables() -> Iterator[None]:
    """An environment for processes that start in here, without numbers of threads."""
    before = {name: os.environ.pop(name) for name in THREAD_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)
