"""Teams of threads: one compiled function, run by several threads at the same time.

A worker thread enters compiled code once and stays there (kernels/cpu/barrier.py): it waits for a job, awake for some
100 microseconds, then asleep, runs it, tells the caller and waits again. Neither side needs the interpreter's lock for
that, so no other Python thread can hold up a rank. Idle teams wait in a pool: a call takes one out, so calls share
nothing and need no lock; a forked child starts with an empty pool.

Limits: functions return None; signals are handled when all ranks have ended; a team that grew keeps its workers. The
number of cores is the processor affinity: quotas of containers and variables such as OMP_NUM_THREADS count for nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from operator import index
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from rnnops.errors import DeviceError
from rnnops.kernels.cpu.barrier import (
    DONE_GATE,
    JOB,
    MAILBOX_LINES,
    NUMBER_BYTES,
    WORD,
    cache_lines,
    lead,
    only_compiled,
    open_gate,
    serve,
)
from rnnops.kernels.cpu.fastmath import types
from rnnops.kernels.cpu.machine_code import compile_once
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.revision import REVISION

MOST_THREADS = 1024  # more is a slip
IDLE_WORKERS = 128  # that wait in the pool
GATES = (0, DONE_GATE // NUMBER_BYTES)  # places in a mailbox
ENTRY, RANK = JOB // NUMBER_BYTES, JOB // NUMBER_BYTES + 2


def default_threads() -> int:
    """Cores that this process may use, by its processor affinity; hardware threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_core_of(processor) for processor in os.sched_getaffinity(0)})


def _core_of(processor: int) -> str:
    """A text that is the same for all hardware threads of a core, where the system tells."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(processor)


def check_threads(threads: Any) -> int:
    """The number of threads that is asked for. Raises DeviceError for what is no number from 1 to 1024."""
    try:
        number = 0 if isinstance(threads, bool | np.bool_) else index(threads)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST_THREADS:
        raise DeviceError(
            "no such number of threads", wanted=f"an integer from 1 to {MOST_THREADS}", came=repr(threads)
        )
    return number


def run_together(function: Any, threads: int, *arguments: Any) -> None:
    """Call `function(rank, threads, *arguments)` on several threads at the same time; return when all have ended.

    Args:
        function: compiled by numba for one signature, void(int64, int64, ...), that the arguments fit, or not yet and
            then for these. Ranks may meet in barriers; then none may raise, as the others would wait for ever.
        threads: how many; the caller is rank 0. With 1 the function may be plain Python.

    Raises, before any rank starts, DeviceError for a wrong function or number of threads and TypeError for arguments
    that do not fit; when all ranks have ended, what a rank raised (of several the lowest rank).
    """
    threads = check_threads(threads)
    if threads == 1 and not isinstance(function, Dispatcher | NativeFunction):
        function(0, 1, *arguments)
        return
    launch, address = _launches.get(function) or _prepare(function, arguments)
    team = _idle_team()
    try:
        team.grow(threads - 1)
        launch(address, team.mailboxes, threads, *arguments)
        if team.errors:
            raise min(team.errors, key=lambda rank_and_error: rank_and_error[0])[1]
    finally:
        team.errors.clear()
        _keep(team)


class Worker:
    """A thread that runs the jobs in its mailbox, until there is none.

    Args:
        errors: where it puts what functions raise, behind the rank.
    """

    def __init__(self, errors: list[tuple[int, BaseException]]) -> None:
        self.mailbox = cache_lines(MAILBOX_LINES)
        self.address = int(self.mailbox.ctypes.data)
        self._errors = errors
        for gate in GATES:
            self.mailbox[gate + 1] = _new_lock()
        self._thread = threading.Thread(target=self._run, name="rnnops worker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                return _serve()(self.address)  # type: ignore[no-any-return]
            except BaseException as error:
                self._errors.append((int(self.mailbox[RANK]), error))
                _open_gate()(self.address + DONE_GATE)

    def end(self) -> None:
        """End the thread, which must be idle."""
        self.mailbox[ENTRY] = 0
        _open_gate()(self.address)
        self._thread.join()
        for gate in GATES:
            ctypes.pythonapi.PyThread_free_lock(ctypes.c_void_p(int(self.mailbox[gate + 1])))


def _new_lock() -> int:
    """The address of a lock of the interpreter's, taken: who waits for it sleeps until another releases it."""
    allocate = ctypes.pythonapi.PyThread_allocate_lock
    allocate.restype = ctypes.c_void_p
    address = allocate()
    if address is None:
        raise MemoryError("no memory for a lock")
    ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(address), 1)
    return int(address)


class Team:
    """Workers that serve one caller at a time."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.mailboxes = np.empty(0, np.int64)
        self.errors: list[tuple[int, BaseException]] = []

    def grow(self, workers: int) -> None:
        """Have at least so many workers. Raises DeviceError where the system gives no more."""
        if workers <= len(self.workers):
            return
        _serve(), _open_gate()  # compiled here, not by all workers at once
        try:
            while len(self.workers) < workers:
                self.workers.append(Worker(self.errors))
        except RuntimeError as error:
            raise DeviceError("the system gives no more threads", wanted=workers, came=len(self.workers)) from error
        finally:
            self.mailboxes = np.array([worker.address for worker in self.workers], np.int64)

    def end(self) -> None:
        """End the threads, which must be idle."""
        for worker in self.workers:
            worker.end()


_idle: list[Team] = []  # the last is the one whose workers are most likely awake; `pop` and `append` need no lock
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the child has none of the threads


def _idle_team() -> Team:
    try:
        return _idle.pop()
    except IndexError:
        return Team()


def _keep(team: Team) -> None:
    waiting = sum(len(other.workers) for other in tuple(_idle))
    if waiting == 0 or waiting + len(team.workers) <= IDLE_WORKERS:
        _idle.append(team)
    else:
        team.end()


_launches: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()


def _prepare(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """What starts a function, and the address of its machine code."""
    kinds, address = machine_code_of(function, arguments)
    _launches[function] = _launch(kinds), address
    return _launches[function]


def machine_code_of(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """Types of the arguments behind the ranks, and the address of the machine code, which lives with the function.

    Raises as `run_together` does for wrong functions.
    """
    if isinstance(function, NativeFunction):
        return function.kinds, function.address
    if not isinstance(function, Dispatcher):
        raise only_compiled()
    version = _only_version(function, arguments)
    return version.signature.args[2:], version.library.get_pointer_to_function(version.fndesc.llvm_func_name)


def _only_version(function: Any, arguments: tuple[Any, ...]) -> Any:
    if not function.overloads:
        function.compile((WORD, WORD, *map(numba.typeof, arguments)))
    kinds = [version.signature for version in function.overloads.values()]
    if len(kinds) != 1 or kinds[0].return_type != types.none or kinds[0].args[:2] != (WORD, WORD):
        came = " and ".join(map(str, kinds))
        raise DeviceError("no function for threads", wanted="one signature, void(int64, int64, ...)", came=came)
    return next(iter(function.overloads.values()))


@cache
def _launch(kinds: tuple[Any, ...]) -> Any:
    """Compiled code that hands arguments of these types to a team and is its rank 0."""
    revision = REVISION

    def launch(function: int, mailboxes: Any, threads: int, *arguments: Any) -> None:
        _ = revision
        lead(function, mailboxes, threads, arguments)

    return _compile(launch, WORD, types.Array(WORD, 1, "C"), WORD, types.Tuple(kinds))


@cache
def _serve() -> Any:
    revision = REVISION

    def work(mailbox: int) -> None:
        _ = revision
        serve(mailbox)

    return _compile(work, WORD)


@cache
def _open_gate() -> Any:
    revision = REVISION

    def open_one(gate: int) -> None:
        _ = revision
        open_gate(gate)

    return _compile(open_one, WORD)


def _compile(function: Any, *kinds: Any) -> Any:
    return compile_once(function, types.void(*kinds))
