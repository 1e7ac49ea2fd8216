"""Drivers, which every thread of a run calls, and how their threads wait for each other.

**Drivers**: functions that every thread of a run calls with its rank, `void driver(i64 rank, i64 threads, ptr words)`.
The words are the addresses of the memory of a run's arrays, then how many elements each has: first the barrier, the
status and the sizes, then all others. Python writes the addresses of NumPy's objects, as it has nothing to look up for
these but `id`; what starts a driver replaces them.

Limits: arrays are C-contiguous and live as long as the call; bools are read as bytes.

**How threads work together in compiled code**: a barrier for a team, a gate between two threads, jobs for workers. The
barrier is the central sense-reversing one of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991), a phase number taking the
place of the sense: who arrives reads the phase, then counts itself; the last sets the count back and opens the next
phase. The gate lets one thread through each time that another opens it; who waits long sleeps on a lock. A job is a
driver and the words that it is given, which stay where they are until all ranks have ended.

Waiting threads pause the processor 64 times, give it to others once, and so on: two threads on one core hand it over in
microseconds. After some 100 microseconds the barrier gives the processor away at every try and the gate sleeps. Nothing
here needs the interpreter's lock, allocates or raises. What a thread wrote before a barrier or a gate is seen by all
after it.

Limits: memory is not checked: barriers hold `new_barrier().size` numbers or more, all threads of a team pass the same
number to `wait`, one team at a time uses a barrier, and one thread that never arrives stops all. Who waits in a barrier
keeps its core busy where no other wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_size_t
from typing import Any

import numpy as np

from rnnops.kernels.cpu.words import (
    DONE_GATE,
    DRIVER,
    LINE_BYTES,
    RANK,
    THREADS,
    WORD_BYTES,
    WORDS,
    Address,
    acquire_lock,
    added,
    attribute_of,
    call_driver,
    compared,
    dict_item,
    exchanged,
    give_processor,
    let_go,
    list_element,
    loaded,
    next_item,
    no_error,
    paused,
    release_lock,
    room,
    seen,
    shown,
    size_of,
    stored,
)

HEADER = object.__basicsize__  # of an object, behind which NumPy's C interface has the address of an array's memory
GIVEN = ("barrier", "status", "sizes")  # the first arrays of every driver, int64 all


def as_words(arrays: Sequence[Any]) -> Any:
    """Arrays as what starts drivers takes them."""
    return np.array([*map(id, arrays), *(array.size for array in arrays)], np.int64)


def memory_address(array: Any) -> int:
    """The address of the memory of a NumPy array, in a fifth of the time of `array.ctypes.data`."""
    return c_size_t.from_address(id(array) + HEADER).value


PAUSES, PATIENCE = 64, 4096  # tries between two gifts of the processor, tries until it is always given or slept
CLOSED, OPEN, SLEEPER = 0, 1, 2  # states of a gate, which is two numbers: the state, the address of a lock


def rest(tries: int) -> int:
    """Let a moment pass between two tries; one more try."""
    paused()
    if tries >= PATIENCE or tries % PAUSES == PAUSES - 1:
        give_processor()
    return tries + 1


def wait(barrier: Address, size: int, threads: int) -> None:
    """Return when all threads of a team have called this; one returns at once.

    Args:
        barrier, size: memory of `new_barrier`, the same for all; may be used again at once, any number of times.
        threads: how many they are.
    """
    if threads > 1:
        phase = barrier + LINE_BYTES
        now = seen(phase)  # before the count: as soon as all are counted it may change
        if added(barrier, 1) == threads - 1:
            shown(barrier, 0)  # before the phase: whoever sees the next phase may count itself again
            shown(phase, now + 1)
        else:
            tries = 0
            while seen(phase) == now:
                tries = rest(tries)


def open_gate(gate: Address) -> None:
    """Let the thread through that waits, or that comes next."""
    if exchanged(gate, OPEN) == SLEEPER:
        release_lock(loaded(gate + WORD_BYTES))


def pass_gate(gate: Address) -> None:
    """Wait until the gate is open, and close it behind."""
    while seen(gate) != OPEN:
        tries = 0
        while seen(gate) != OPEN and tries < PATIENCE:
            tries = rest(tries)
        if compared(gate, CLOSED, SLEEPER) == CLOSED:
            acquire_lock(loaded(gate + WORD_BYTES))  # sleeps until the gate opens, or until `wake` wakes it early
    shown(gate, CLOSED)


def wake(mailboxes: Address, workers: int) -> None:
    """Wake workers that sleep, as a job will come soon; they wait for it as if they had just ended one."""
    for worker in range(workers):
        gate = loaded(mailboxes + worker * WORD_BYTES)
        if compared(gate, SLEEPER, CLOSED) == SLEEPER:
            release_lock(loaded(gate + WORD_BYTES))


def resolve(words: Address, arrays: int) -> None:
    """Put the addresses of memory in the place of those of NumPy's objects, which have them behind their header."""
    for i in range(arrays):
        word = words + i * WORD_BYTES
        stored(word, loaded(loaded(word) + HEADER))


ITEM, ELEMENT, ATTRIBUTE, SIZE, TYPE, KEYS = range(6)
CHECK_BYTES = 4 * WORD_BYTES
TYPE_PLACE = HEADER - WORD_BYTES
next_room = room(3 * WORD_BYTES)


def unchanged(checks: Address, count: int) -> int:
    """1 if all checks of Python's objects hold, else 0; the caller holds the interpreter's lock.

    Args:
        checks: four words each: which it is, a holder, a key there, and the object or the number that is expected.
    """
    for i in range(count):
        check = checks + i * CHECK_BYTES
        kind, holder = loaded(check), loaded(check + WORD_BYTES)
        key, expected = loaded(check + 2 * WORD_BYTES), loaded(check + 3 * WORD_BYTES)
        if found_at(kind, holder, key, expected) != expected:
            no_error()
            return 0
    return 1


def found_at(kind: int, holder: Address, key: Address, expected: int) -> int:
    """The object or the number that a check finds."""
    if kind == ITEM:
        return dict_item(holder, key)
    if kind == SIZE:
        return size_of(holder)
    if kind == KEYS:
        return same_keys(holder, key, expected)
    if kind == TYPE:
        return loaded(holder + TYPE_PLACE)
    if kind == ELEMENT:
        return list_element(holder, key)
    found = attribute_of(holder, key)
    if found != 0:
        let_go(found)
    return found


def same_keys(holder: Address, keys: Address, count: int) -> int:
    """How many keys a dict has; -1 if the first are not these."""
    place = next_room()
    stored(place, 0)
    for i in range(count):
        if next_item(holder, place, place + WORD_BYTES, place + 2 * WORD_BYTES) == 0:
            return -1
        if loaded(place + WORD_BYTES) != loaded(keys + i * WORD_BYTES):
            return -1
    return size_of(holder)


def lead(driver: Address, mailboxes: Address, threads: int, words: Address, arrays: int) -> None:
    """Run a driver as rank 0 while workers run it as the other ranks; return when all have ended.

    Args:
        mailboxes: addresses of the mailboxes of workers, one for each other rank or more.
        words: what the driver is given; the first are NumPy's objects, as many as there are `arrays`.
    """
    resolve(words, arrays)
    for rank in range(1, threads):
        mailbox = loaded(mailboxes + (rank - 1) * WORD_BYTES)
        stored(mailbox + DRIVER, driver)
        stored(mailbox + RANK, rank)
        stored(mailbox + THREADS, threads)
        stored(mailbox + WORDS, words)
        open_gate(mailbox)
    call_driver(driver, 0, threads, words)
    for rank in range(1, threads):
        pass_gate(loaded(mailboxes + (rank - 1) * WORD_BYTES) + DONE_GATE)


def serve(mailbox: Address) -> None:
    """Run one job after the other as a worker, until there is none."""
    while True:
        pass_gate(mailbox)
        driver = loaded(mailbox + DRIVER)
        if driver == 0:
            return
        call_driver(driver, loaded(mailbox + RANK), loaded(mailbox + THREADS), loaded(mailbox + WORDS))
        open_gate(mailbox + DONE_GATE)
