"""Teams inside another library's OpenMP pool: a parallel region of ours, by the entry points of GNU's runtime.

Threads of an OpenMP pool stay awake for milliseconds after a region, and hold the cores that workers of our own would
want. Here they are the workers: `GOMP_parallel` runs one function on all of them, which asks for its rank and calls a
driver as a worker of ours would. LLVM's and Intel's runtimes have these entry points on Linux too.

Limits: the runtime may give fewer threads than asked for, in a region inside another one for example; then no rank does
anything. Whoever forks must not use the pool in the child, where the threads are not.
"""

from __future__ import annotations

from rnnops.kernels.cpu.barrier import resolve
from rnnops.kernels.cpu.words import (
    WORD_BYTES,
    Address,
    AddressOf,
    call_count,
    call_driver,
    call_parallel,
    loaded,
    room,
    stored,
)

DRIVER, WORDS, THREADS, RANK_OF, COUNT_OF, RAN = (i * WORD_BYTES for i in range(6))  # a job
JOB_BYTES = 6 * WORD_BYTES
new_job = room(JOB_BYTES)


def region(job: Address) -> None:
    """Each thread of a pool runs this; it does nothing if there are fewer threads than wanted."""
    threads = loaded(job + THREADS)
    if call_count(loaded(job + COUNT_OF)) == threads:
        call_driver(loaded(job + DRIVER), call_count(loaded(job + RANK_OF)), threads, loaded(job + WORDS))
        stored(job + RAN, 1)


address_of_region = AddressOf(region)


def lead_region(
    driver: Address,
    parallel: Address,
    rank_of: Address,
    count_of: Address,
    threads: int,
    words: Address,
    arrays: int,
) -> int:
    """Run a driver on a team of an OpenMP pool, the caller being rank 0; 1 if as many threads came as wanted, else 0.

    Args:
        parallel, rank_of, count_of: addresses of `GOMP_parallel`, `omp_get_thread_num` and `omp_get_num_threads`.
        words, arrays: as `barrier.lead` takes them; nothing has changed in them where no rank ran.
    """
    job = new_job()
    resolve(words, arrays)
    stored(job + DRIVER, driver)
    stored(job + WORDS, words)
    stored(job + THREADS, threads)
    stored(job + RANK_OF, rank_of)
    stored(job + COUNT_OF, count_of)
    stored(job + RAN, 0)
    call_parallel(parallel, address_of_region(), job, threads)
    return loaded(job + RAN)
