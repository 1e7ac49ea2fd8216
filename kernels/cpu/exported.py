"""What an exported list of jobs needs beside its drivers: its words set up in a caller's memory, and one thread."""

from __future__ import annotations

from rnnops.kernels.cpu.instructions import loaded, stored
from rnnops.kernels.cpu.jobs import play, put_in
from rnnops.kernels.cpu.team_memory import WORD_BYTES
from rnnops.kernels.cpu.words import Address

NUMBER, MEMORY, WEIGHTS, DRIVER = range(4)  # what the value of a word counts from
ENTRY_BYTES = 3 * WORD_BYTES  # of a table: offset of a word, what its value counts from, the value


def set_up(memory: Address, weights: Address, entries: Address, count: int, drivers: Address) -> None:
    """Write the words of a list of jobs.

    Args:
        memory: where the list begins.
        entries, count: the table of its words.
        drivers: addresses of drivers, which words name by number.
    """
    for i in range(count):
        entry = entries + i * ENTRY_BYTES
        base, value = loaded(entry + WORD_BYTES), loaded(entry + 2 * WORD_BYTES)
        if base == MEMORY:
            value += memory
        if base == WEIGHTS:
            value += weights
        if base == DRIVER:
            value = loaded(drivers + value * WORD_BYTES)
        stored(memory + loaded(entry), value)


def perform_alone(jobs: Address, given: Address) -> None:
    """Do all jobs of a list in this thread.

    Args:
        given: addresses of what the caller gives.
    """
    put_in(jobs, given)
    play(0, 1, jobs)
