"""Threads: the functions of compiled code by which they start, wait for each other, and share out rows.

**Drivers**: functions that every thread of a run calls with its rank, `void driver(i64 rank, i64 threads, ptr words)`.
The words are the addresses of the arrays' memory, then the count of elements of each array. The first arrays are the
barrier, the status and the sizes. Python writes the addresses of NumPy's objects, for which it needs only `id`. The
function that starts a driver replaces them by those of the memory (`resolve`). Limits: arrays are C-contiguous and live
as long as the call; bools are read as bytes.

**Waiting**: a barrier for a team, a gate between two threads, jobs for workers. The barrier is the central
sense-reversing one of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991), with a phase number in place of the sense. A
thread that arrives reads the phase, then counts itself. The last one resets the count and begins the next phase. The
gate lets one thread through each time that another opens it. A thread that waits there for long sleeps on a lock. A
worker's job is a driver and its words, which stay unchanged until all ranks have ended.

Waiting threads pause the processor 64 times, give it to others once, and so on: two threads on one core hand it over in
microseconds. After some 100 microseconds the barrier gives the processor away at every try and the gate sleeps. Nothing
here needs the interpreter's lock, allocates or raises. After a barrier or a gate, all threads see all writes from
before it. A thread that waits in a barrier keeps its core busy, unless another thread wants it.

Limits: memory is not checked. A barrier must hold `new_barrier().size` numbers or more. All threads of a team must pass
the same number to `wait`, and only one team at a time may use a barrier. A thread that never arrives stops all.

**Lists of jobs**: all drivers of a plan, one after another, in one call of compiled code. Their numbers:

- A list: threads, the address of a barrier, that of the first job, the count of jobs, the address of the first place,
  the count of places. A list that Python performs goes on: mailboxes, memory for the given addresses, their count, the
  status, types to check, their count, Python's `False` and `True`.
- A job: a driver, its count of threads, its words, and whether all threads meet after it.
- A place, for a word of a job that holds the address of a given array: the word's address, the number of the array, and
  bytes from the array's beginning. Places are filled in before the first job.

Copies and fills of memory are drivers for one thread. Limits: those of drivers and barriers; only one caller at a time
may perform a list.

**OpenMP**: a driver runs on the threads of another library's pool, by the entry points of GNU's runtime, which LLVM's
and Intel's have on Linux, too. Threads of a pool stay awake for milliseconds after a region, on the cores that workers
of our own would need. Here they are the workers: `GOMP_parallel` runs one function on all of them, which asks for its
rank and calls a driver. Limits: the runtime may give fewer threads than asked for, for example in a region inside
another one; then no rank does anything. A forked child must not use the pool, because it lacks the threads.

**Rows**: `list_rows` lists a thread's rows that are not over, for each step of a tile. `order_rows` is a driver that
computes the order in which few rows are shared out, as `schedule/batch_axis.py` does in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    AddressOf,
    acquire_lock,
    added,
    attribute_of,
    call_count,
    call_driver,
    call_parallel,
    clear_bytes,
    compared,
    copied,
    copy_bytes,
    dict_item,
    exchanged,
    give_processor,
    let_go,
    list_element,
    loaded,
    loaded_int32,
    next_item,
    no_error,
    number_of,
    own,
    paused,
    release_lock,
    room,
    seen,
    shown,
    size_of,
    stored,
    text_of,
    with_lock,
    without_lock,
)

HEADER = object.__basicsize__  # bytes of an object's header; after it, an array of NumPy has the address of its memory
GIVEN = ("barrier", "status", "sizes")  # the first arrays of every driver, all int64


def as_words(arrays: Sequence[Any]) -> Any:
    """The words of a driver for these arrays, before `resolve`."""
    return np.array([*map(id, arrays), *(array.size for array in arrays)], np.int64)


def memory_address(array: Any) -> int:
    """The address of the memory of a NumPy array, in a fifth of the time of `array.ctypes.data`."""
    return c_size_t.from_address(id(array) + HEADER).value


PAUSES, PATIENCE = 64, 4096  # tries until a thread gives the processor away once; until it always does, or sleeps
CLOSED, OPEN, SLEEPER = 0, 1, 2  # states of a gate, which is two numbers: the state, the address of a lock


def rest(tries: int) -> int:
    """Let a moment pass between two tries. Returns the count of tries, with the next one."""
    paused()
    if tries >= PATIENCE or tries % PAUSES == PAUSES - 1:
        give_processor()
    return tries + 1


def wait(barrier: Address, size: int, threads: int) -> None:
    """Return when all threads of a team have called this. A team of one thread returns at once.

    Args:
        barrier, size: memory of `new_barrier`, the same for all. It may be used again at once, any number of times.
        threads: the count of threads in the team.
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
    """Let one thread through: the one that waits, or the next that comes."""
    if exchanged(gate, OPEN) == SLEEPER:
        release_lock(loaded(gate + WORD_BYTES))


def pass_gate(gate: Address) -> None:
    """Wait until the gate is open, then close it."""
    while seen(gate) != OPEN:
        tries = 0
        while seen(gate) != OPEN and tries < PATIENCE:
            tries = rest(tries)
        if compared(gate, CLOSED, SLEEPER) == CLOSED:
            acquire_lock(loaded(gate + WORD_BYTES))  # sleeps until the gate opens, or until `wake` wakes it early
    shown(gate, CLOSED)


def wake(mailboxes: Address, workers: int) -> None:
    """Wake sleeping workers, because a job will come soon. They wait for it as if they had just ended one."""
    for worker in range(workers):
        gate = loaded(mailboxes + worker * WORD_BYTES)
        if compared(gate, SLEEPER, CLOSED) == SLEEPER:
            release_lock(loaded(gate + WORD_BYTES))


def resolve(words: Address, arrays: int) -> None:
    """Replace addresses of NumPy's objects by those of their memory, which are stored after the objects' headers."""
    for i in range(arrays):
        word = words + i * WORD_BYTES
        stored(word, loaded(loaded(word) + HEADER))


ITEM, ELEMENT, ATTRIBUTE, SIZE, TYPE, KEYS = range(6)
CHECK_BYTES = 4 * WORD_BYTES
TYPE_PLACE = HEADER - WORD_BYTES
next_room = room(3 * WORD_BYTES)


def truth(truths: Address, number: int) -> int:
    """Python's `False` or `True`, by number. The caller owns the reference.

    Args:
        truths: the addresses of both, one after the other.
    """
    found = loaded(truths + number * WORD_BYTES)
    own(found)
    return found


def unchanged(holder: Address, nothing: Address) -> int:
    """Python's `True` if all checks of objects hold, else `False`. The caller holds the interpreter's lock.

    Args:
        holder: a NumPy array of four words for each check: its kind, a holder, a key there, and the object or the
            number that is expected. Before the first check: their count, Python's `False` and `True`.
    """
    checks = loaded(holder + HEADER)
    for i in range(loaded(checks)):
        check = checks + (i + 1) * CHECK_BYTES
        kind, holder = loaded(check), loaded(check + WORD_BYTES)
        key, expected = loaded(check + 2 * WORD_BYTES), loaded(check + 3 * WORD_BYTES)
        if found_at(kind, holder, key, expected) != expected:
            no_error()
            return truth(checks + WORD_BYTES, 0)
    return truth(checks + WORD_BYTES, 1)


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
    """The count of keys of a dict; -1 if its first `count` keys are not these."""
    place = next_room()
    stored(place, 0)
    for i in range(count):
        if next_item(holder, place, place + WORD_BYTES, place + 2 * WORD_BYTES) == 0:
            return -1
        if loaded(place + WORD_BYTES) != loaded(keys + i * WORD_BYTES):
            return -1
    return size_of(holder)


def lead(driver: Address, mailboxes: Address, threads: int, words: Address, arrays: int) -> None:
    """Run a driver as rank 0 while workers run it as the other ranks. Return when all have ended.

    Args:
        mailboxes: addresses of the mailboxes of workers, one for each other rank or more.
        words: the driver's words. The first `arrays` of them are addresses of NumPy's objects.
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
    """Run one job after another as a worker, until a job has no driver."""
    while True:
        pass_gate(mailbox)
        driver = loaded(mailbox + DRIVER)
        if driver == 0:
            return
        call_driver(driver, loaded(mailbox + RANK), loaded(mailbox + THREADS), loaded(mailbox + WORDS))
        open_gate(mailbox + DONE_GATE)


BARRIER, FIRST_JOB, JOB_COUNT, FIRST_PLACE, PLACE_COUNT = (i * WORD_BYTES for i in range(1, 6))
JOB_BYTES, PLACE_BYTES = 4 * WORD_BYTES, 3 * WORD_BYTES
TEAM, JOB_WORDS, MEETS = (i * WORD_BYTES for i in range(1, 4))  # places in a job; its driver comes first
TILE = 16  # rows of a tile: numbers of four bytes that fill a line of the cache
BARRIER_SIZE = 2 * LINE_BYTES // WORD_BYTES


def play(rank: int, threads: int, jobs: Address) -> None:
    """One thread's part of a list of jobs."""
    first = loaded(jobs + FIRST_JOB)
    for i in range(loaded(jobs + JOB_COUNT)):
        job = first + i * JOB_BYTES
        team = loaded(job + TEAM)
        if rank < team:
            call_driver(loaded(job), rank, team, loaded(job + JOB_WORDS))
        if loaded(job + MEETS) != 0:
            wait(loaded(jobs + BARRIER), BARRIER_SIZE, threads)


address_of_play = AddressOf(play)


def put_in(jobs: Address, given: Address) -> None:
    """Put addresses of the caller's arrays into the words of jobs."""
    first = loaded(jobs + FIRST_PLACE)
    for i in range(loaded(jobs + PLACE_COUNT)):
        place = first + i * PLACE_BYTES
        start = loaded(given + loaded(place + WORD_BYTES) * WORD_BYTES)
        stored(loaded(place), start + loaded(place + 2 * WORD_BYTES))


MAILBOXES, GIVEN_WORDS, GIVEN_COUNT, STATUS, KINDS, KIND_COUNT, TRUTHS = (i * WORD_BYTES for i in range(6, 13))
KIND_PLACE, KIND_TYPE, KIND_DTYPE, KIND_AXES, KIND_SHAPE = (i * WORD_BYTES for i in range(5))
AXES, SHAPE, DTYPE, FLAGS = (HEADER + i * WORD_BYTES for i in (1, 2, 5, 6))  # places in an array of NumPy
IN_ROWS = 0x101  # flags of arrays without gaps that are aligned


def is_of(array: Address, kind: Address) -> int:
    """1 if an object is a NumPy array of a certain dtype and shape, aligned and without gaps; else 0."""
    if loaded(array + TYPE_PLACE) != loaded(kind + KIND_TYPE):
        return 0
    axes, flags = loaded(kind + KIND_AXES), loaded_int32(array + FLAGS) & IN_ROWS
    if loaded(array + DTYPE) != loaded(kind + KIND_DTYPE) or loaded_int32(array + AXES) != axes or flags != IN_ROWS:
        return 0
    shape = loaded(array + SHAPE)
    for i in range(axes):
        if loaded(shape + i * WORD_BYTES) != loaded(kind + KIND_SHAPE + i * WORD_BYTES):
            return 0
    return 1


def answer(holder: Address, arrays: Address) -> int:
    """Do all jobs of a list for a list of arrays. Returns as `perform` does; also `False` if an array has another type.

    Args:
        holder: the NumPy array of the list of jobs.
    """
    jobs = loaded(holder + HEADER)
    kind, count = loaded(jobs + KINDS), loaded(jobs + GIVEN_COUNT)
    if size_of(arrays) != count:
        return truth(jobs + TRUTHS, 0)
    for _ in range(loaded(jobs + KIND_COUNT)):
        if is_of(list_element(arrays, loaded(kind + KIND_PLACE)), kind) == 0:
            return truth(jobs + TRUTHS, 0)
        kind += KIND_SHAPE + loaded(kind + KIND_AXES) * WORD_BYTES
    for i in range(count):
        stored(loaded(jobs + GIVEN_WORDS) + i * WORD_BYTES, loaded(list_element(arrays, i) + HEADER))
    return performed(jobs)


def perform(holder: Address, words: Address) -> int:
    """Do all jobs of a list for a list of addresses. Returns Python's `True`; `False` if a checked number was wrong.

    Args:
        holder: the NumPy array of the list of jobs.
    """
    jobs = loaded(holder + HEADER)
    for i in range(loaded(jobs + GIVEN_COUNT)):
        stored(loaded(jobs + GIVEN_WORDS) + i * WORD_BYTES, number_of(list_element(words, i)))
    return performed(jobs)


def performed(jobs: Address) -> int:
    """Do all jobs of a list, on workers, too, if it needs several threads. Other threads may run Python meanwhile."""
    thread = without_lock()
    put_in(jobs, loaded(jobs + GIVEN_WORDS))
    lead(address_of_play(), loaded(jobs + MAILBOXES), loaded(jobs), jobs, 0)
    with_lock(thread)
    status = loaded(jobs + STATUS)
    failed = loaded(status) != 0
    stored(status, 0)
    return truth(jobs + TRUTHS, 0 if failed else 1)


def make_copy_plane(size: int) -> Callable[..., None]:
    """`copy_plane(target, source, words)`: copies numbers of `size` bytes along the last two axes of a box.

    Tiles of rows are copied column by column, so that lines of the cache are read and written whole even if the source
    or the target is transposed.
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

    Words: target, source, bytes of a run; then for each of three axes the count of runs, and the bytes from one to the
    next in the source and in the target.
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
    """A driver that sets memory to zero. Words: its address, the count of bytes."""
    clear_bytes(loaded(words), loaded(words + 8))


NUMBER, MEMORY, WEIGHTS, DRIVERS = range(4)  # bases that the value of a word is relative to
ENTRY_BYTES = 3 * WORD_BYTES  # of an entry of a table: offset of a word, base of its value, the value


def set_up(memory: Address, weights: Address, entries: Address, count: int, drivers: Address) -> None:
    """Write the words of a list of jobs.

    Args:
        memory: the memory of the list.
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
        if base == DRIVERS:
            value = loaded(drivers + value * WORD_BYTES)
        stored(memory + loaded(entry), value)


def perform_alone(jobs: Address, given: Address) -> None:
    """Do all jobs of a list in this thread.

    Args:
        given: addresses of the caller's arrays.
    """
    put_in(jobs, given)
    play(0, 1, jobs)


REGION_DRIVER, REGION_WORDS, REGION_THREADS, RANK_OF, COUNT_OF, RAN = (i * WORD_BYTES for i in range(6))  # a job
new_job = room(6 * WORD_BYTES)


def region(job: Address) -> None:
    """Each thread of a pool runs this; it does nothing if there are fewer threads than wanted."""
    threads = loaded(job + REGION_THREADS)
    if call_count(loaded(job + COUNT_OF)) == threads:
        call_driver(loaded(job + REGION_DRIVER), call_count(loaded(job + RANK_OF)), threads, loaded(job + REGION_WORDS))
        stored(job + RAN, 1)


address_of_region = AddressOf(region)


def lead_region(
    driver: Address, parallel: Address, rank_of: Address, count_of: Address, threads: int, words: Address, arrays: int
) -> int:
    """Run a driver on threads of an OpenMP pool. The caller is rank 0. Returns 1, or 0 if no rank ran because too few
    threads came.

    Args:
        parallel, rank_of, count_of: addresses of `GOMP_parallel`, `omp_get_thread_num` and `omp_get_num_threads`.
        words, arrays: as `lead` takes them.
    """
    job = new_job()
    resolve(words, arrays)
    stored(job + REGION_DRIVER, driver)
    stored(job + REGION_WORDS, words)
    stored(job + REGION_THREADS, threads)
    stored(job + RANK_OF, rank_of)
    stored(job + COUNT_OF, count_of)
    stored(job + RAN, 0)
    call_parallel(parallel, address_of_region(), job, threads)
    return loaded(job + RAN)


def living(ends: Address, t: int, first: int, last: int) -> int:
    """The count of rows of a range that are not over at a step."""
    count = 0
    for p in range(first, last):
        count += 1 if loaded(ends + p * WORD_BYTES) > t else 0
    return count


def list_rows(
    ends: Address,
    batch: int,
    order: Address,
    _: int,
    low: int,
    steps: int,
    first: int,
    last: int,
    lists: Address,
    _size: int,
    start: int,
) -> int:
    """List a thread's rows for steps `low ... low + steps - 1`. Returns the rows of all threads that are not over,
    summed over these steps.

    Each step has two numbers and as many places as there are rows: the count of rows that are not over before the
    thread's own, with those of earlier steps; the count of its own rows that are not over; its own rows, those that are
    over last.

    Args:
        ends: [batch] int64, steps of each row, in the order in which rows are shared out.
        order: [batch] int64, the rows as the caller numbers them, in that order.
        first, last: the thread's share, `last` not included.
        lists, start: the memory for the lists, and the first number to write.
    """
    total = 0
    for i in range(steps):
        t, place = low + i, lists + (start + i * (batch + 2)) * WORD_BYTES
        total += living(ends, t, 0, first)
        own = living(ends, t, first, last)
        stored(place, total)
        stored(place + WORD_BYTES, own)
        front = place + 2 * WORD_BYTES
        back = front + own * WORD_BYTES
        for p in range(first, last):
            row = loaded(order + p * WORD_BYTES)
            if loaded(ends + p * WORD_BYTES) > t:
                stored(front, row)
                front += WORD_BYTES
            else:
                stored(back, row)
                back += WORD_BYTES
        total += own + living(ends, t, last, batch)
    return total


MOST_ROWS = 256  # few, because each row is compared with each other
LENGTHS, ORDER, ENDS, POSITIONS, ROWS, LENGTH_BYTES, STEPS, FIRST_STEP, MOST_STEPS = (
    i * WORD_BYTES for i in range(9)
)  # words


def lasting(words: Address, row: int) -> int:
    """Steps of a row."""
    size = loaded(words + LENGTH_BYTES)
    place = loaded(words + LENGTHS) + row * size
    length = loaded_int32(place)
    if size == WORD_BYTES:
        length = loaded(place)
    return min(length, loaded(words + MOST_STEPS))


def longer(words: Address, row: int) -> int:
    """The count of rows before a row, if the longest come first and rows of equal length keep their order."""
    own, count = lasting(words, row), 0
    for other in range(loaded(words + ROWS)):
        length = lasting(words, other)
        count += 1 if length > own else 0
        count += 1 if length == own and other < row else 0
    return count


def order_rows(rank: int, threads: int, words: Address) -> None:
    """A driver for one thread that orders rows.

    Words: addresses of lengths, of the order and of ends, which it writes, and of places (`places[k]`: the position of
    the row that comes after k rows by length); then the count of rows, bytes of a length, steps, the first timestep,
    and the most steps of a row.
    """
    rows = loaded(words + ROWS)
    different = False
    for row in range(rows):
        different = different or lasting(words, row) != lasting(words, 0)
    for row in range(rows):
        place = row * WORD_BYTES
        if different:
            place = loaded(loaded(words + POSITIONS) + longer(words, row) * WORD_BYTES) * WORD_BYTES
        stored(loaded(words + ORDER) + place, row)
        stored(
            loaded(words + ENDS) + place, min(lasting(words, row) - loaded(words + FIRST_STEP), loaded(words + STEPS))
        )


def _by_name(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {function.__name__: function for function in functions}


CALLED = _by_name(
    wait, list_rows, lead, serve, open_gate, wake, lead_region, answer, perform, copy_box, clear, order_rows, unchanged
)  # by drivers, and by Python
EXPORTED = _by_name(set_up, perform_alone, copy_box, clear, order_rows)  # by an exported list of jobs


def threads_text(symbols: Mapping[str, str]) -> str:
    """Functions of this file as LLVM IR.

    Args:
        symbols: function -> its name in LLVM.
    """
    return text_of(symbols, {name: {**CALLED, **EXPORTED}[name] for name in symbols})
