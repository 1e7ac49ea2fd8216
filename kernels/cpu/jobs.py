"""Lists of jobs, and what an exported list needs.

**Lists of jobs**: all that a plan does, one driver after the other, in one call of compiled code. A list is six
numbers: threads, the address of a barrier, of the first job, how many jobs there are, the address of the first place,
how many places. A job is a driver, how many threads run it, the words that it is given, and whether all threads meet
behind it. A place is a word of a job that holds an address of what the caller gives: the word's address, which of the
given arrays it is, and how many bytes from its beginning. Places are filled in before the first job.

Copies and fills of memory are drivers for one thread. Limits: as of drivers and barriers; a list is performed by one
caller at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from rnnops.kernels.cpu.barrier import lead, resolve, wait
from rnnops.kernels.cpu.words import (
    LINE_BYTES,
    WORD_BYTES,
    Address,
    AddressOf,
    call_driver,
    clear_bytes,
    copied,
    copy_bytes,
    loaded,
    stored,
)

THREADS, BARRIER, FIRST, COUNT, PLACES, PLACE_COUNT = (i * WORD_BYTES for i in range(6))
JOB_BYTES, PLACE_BYTES = 4 * WORD_BYTES, 3 * WORD_BYTES
TEAM, WORDS, MEETS = (i * WORD_BYTES for i in range(1, 4))  # of a job; its driver comes first
TILE = 16  # rows of four bytes that fill a line of the cache
BARRIER_SIZE = 2 * LINE_BYTES // WORD_BYTES


def play(rank: int, threads: int, jobs: Address) -> None:
    """One thread's part of a list of jobs."""
    first = loaded(jobs + FIRST)
    for i in range(loaded(jobs + COUNT)):
        job = first + i * JOB_BYTES
        team = loaded(job + TEAM)
        if rank < team:
            call_driver(loaded(job), rank, team, loaded(job + WORDS))
        if loaded(job + MEETS) != 0:
            wait(loaded(jobs + BARRIER), BARRIER_SIZE, threads)


address_of_play = AddressOf(play)


def put_in(jobs: Address, given: Address) -> None:
    """Put addresses of what the caller gives into the words of jobs."""
    first = loaded(jobs + PLACES)
    for i in range(loaded(jobs + PLACE_COUNT)):
        place = first + i * PLACE_BYTES
        start = loaded(given + loaded(place + WORD_BYTES) * WORD_BYTES)
        stored(loaded(place), start + loaded(place + 2 * WORD_BYTES))


def perform(jobs: Address, given: Address, objects: int, mailboxes: Address) -> None:
    """Do all jobs of a list, on workers too where it wants several threads; return when all are done.

    Args:
        given: addresses of what the caller gives; the first are NumPy's objects, as many as there are `objects`.
        mailboxes: as for `lead`.
    """
    resolve(given, objects)
    put_in(jobs, given)
    lead(address_of_play(), mailboxes, loaded(jobs), jobs, 0)


def make_copy_plane(size: int) -> Callable[..., None]:
    """`copy_plane(target, source, words)`: numbers of `size` bytes along the last two axes of a box.

    Tiles of rows are copied column by column, so that lines of the cache are read and written whole where the source or
    the target lies transposed.
    """
    copy_number = copied(size, 1)

    def copy_plane(target: int, source: int, words: int) -> None:
        rows, columns = loaded(words + 48), loaded(words + 72)
        row_out, row_in, out, into = loaded(words + 56), loaded(words + 64), loaded(words + 80), loaded(words + 88)
        for first in range(0, rows, TILE):
            for k in range(columns):
                for j in range(first, min(first + TILE, rows)):
                    copy_number(target + j * row_in + k * into, source + j * row_out + k * out)

    return copy_plane


copy_fours, copy_eights = make_copy_plane(4), make_copy_plane(8)


def copy_box(rank: int, threads: int, words: Address) -> None:
    """A driver that copies runs of bytes which lie apart.

    Words: target, source, bytes of a run; for each of three axes how many there are, and the bytes from one to the next
    in the source and in the target.
    """
    target, source, run = loaded(words), loaded(words + 8), loaded(words + 16)
    for i in range(loaded(words + 24)):
        into, out = target + i * loaded(words + 40), source + i * loaded(words + 32)
        if run == 4:
            copy_fours(into, out, words)
        elif run == 8:
            copy_eights(into, out, words)
        else:
            for j in range(loaded(words + 48)):
                for k in range(loaded(words + 72)):
                    to = into + j * loaded(words + 64) + k * loaded(words + 88)
                    copy_bytes(to, out + j * loaded(words + 56) + k * loaded(words + 80), run)


def clear(rank: int, threads: int, words: Address) -> None:
    """A driver that sets memory to zero; words: where it begins, how many bytes."""
    clear_bytes(loaded(words), loaded(words + 8))


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
