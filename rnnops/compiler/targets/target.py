"""Targets: what a scan is written for, the threads that run it, and how its function is called.

**Teams**: one compiled function, run by several threads at the same time. A worker thread enters compiled code once and
stays there (kernels/cpu/threads.py): it waits for a job, awake for some 100 microseconds, then asleep, runs it, tells
the caller and waits again. Neither side needs the interpreter's lock for that, so no other Python thread can hold up a
rank. Idle teams wait in a pool: a call takes one out, so calls share nothing and need no lock; a forked child starts
with an empty pool. `wake_workers` wakes sleeping workers before a call, so that they are ready when Python has made
it.

Limits: signals are handled when all ranks have ended; a team that grew keeps its workers. The number of cores is that
of the processor affinity. Quotas of containers and variables such as OMP_NUM_THREADS are ignored.

**OpenMP**. Kernels can run on the OpenMP threads of another library that is loaded. These stay awake for milliseconds
after the library's own work, on the cores that workers of ours would need. With a pool for each, a step between two
matrix products of PyTorch takes half as long again.

Limits: runtimes with GNU's entry points, which on Linux are all (GNU's, LLVM's, Intel's). In a forked child, and if
the runtime gives fewer threads than asked for, a team of our own runs the function.

**Generated Python** goes into a file named by its hash, and is imported from there. The folder is that of
`rnnops.kernels.cpu.processor`, which also has machine code. So a text is compiled only once on a machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from rnnops.compiler.codegen.places import Layouts, lay_out
from rnnops.compiler.codegen.scan_module import Again, ScanModule, write_scan
from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.memory.memory import PLAIN, Memory, flat_memory
from rnnops.compiler.schedule.batch_axis import ScanTeam, order_rows, share_work
from rnnops.compiler.targets.driver_text import llvm_text
from rnnops.errors import DeviceError, OutOfMemoryError
from rnnops.interpreter import Program
from rnnops.kernels.cpu.native import K_BLOCK, NativeFunction, native_function, runtime, threads as thread_library
from rnnops.kernels.cpu.processor import (
    BYTES,
    INT8,
    MIB,
    REVISION,
    cache_folder,
    folder_of_process,
    has_room,
    key_of,
    reason,
    warn_once,
)
from rnnops.kernels.cpu.threads import GIVEN, MAILBOXES, as_words
from rnnops.kernels.cpu.words import DONE_GATE, DRIVER, MAILBOX_LINES, WORD_BYTES, cache_lines
from rnnops.types import Array
from rnnops.util import LOADING, LazyModule

elementary = LazyModule("rnnops.kernels.cpu.elementary")


def native_scan(module: ir.Module, width: int | None) -> NativeFunction:
    """The driver of a module, compiled or from the disk. Its key contains the revision of the kernels' sources.

    Args:
        width: of vectors in bits; the host's if None.
    """
    own = {program.name for program in module.programs}
    lines = (line for function in (*module.programs, module.driver) for line in ir.statements_of(function.body))
    called = {line.function for line in lines if isinstance(line, ir.Do)} - own - {"prefetch"}
    text, scalars = llvm_text(module, "scan", runtime(sorted(called), module.dtype, width), GIVEN)
    name = f"scan_{key_of(text)}"  # engines share one table of names
    text = text.replace('@"scan"(', f'@"{name}"(', 1)
    depends = f"{text}\n{sorted(scalars.used.items())} {REVISION:x}"
    return native_function(depends, name, lambda: text + elementary.definitions(scalars.used, scalars.declared))


ENTRY_POINTS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
PROCESS = os.getpid()  # it has the threads of the pool; a forked child has not, and would wait for them forever


@dataclass(frozen=True)
class OpenMP:
    """A runtime that this process has loaded, by the addresses of its entry points."""

    addresses: tuple[int, ...]


def openmp_of(library: str) -> OpenMP | None:
    """The runtime that a loaded library uses; None if it has none with these entry points.

    Args:
        library: the library's file.
    """
    try:
        loaded = ctypes.CDLL(library)
        found = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in ENTRY_POINTS]
    except (OSError, AttributeError):
        return None
    return OpenMP(tuple(address for address in found if address))


def run_in_region(openmp: OpenMP, driver: NativeFunction, threads: int, arrays: Sequence[Any]) -> None:
    """Have threads of a runtime's pool run a driver, as `run_together` does with ours."""
    threads = check_threads(threads)
    if threads > 1 and os.getpid() == PROCESS:
        words = as_words(arrays)
        lead_region = _native("lead_region", 7, ctypes.c_int64)
        if lead_region(driver.address, *openmp.addresses, threads, words.ctypes.data, len(arrays)):
            return
    run_together(driver, threads, arrays)


MOST_THREADS = 1024  # more is a slip
IDLE_WORKERS = 128  # that wait in the pool
GATES = (0, DONE_GATE // WORD_BYTES)  # places in a mailbox


def default_threads() -> int:
    """The count of cores that this process may use, by its affinity. Hardware threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_core_of(processor) for processor in os.sched_getaffinity(0)})


def _core_of(processor: int) -> str:
    """A text that is the same for all hardware threads of a core, if the system knows them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(processor)


def check_threads(threads: Any) -> int:
    """The number of threads that is asked for. Raises DeviceError for what is not a number from 1 to 1024."""
    try:
        number = 0 if isinstance(threads, bool | np.bool_) else index(threads)
    except TypeError:
        number = 0
    if not 1 <= number <= MOST_THREADS:
        raise DeviceError(
            "no such number of threads", wanted=f"an integer from 1 to {MOST_THREADS}", came=repr(threads)
        )
    return number


def run_together(driver: NativeFunction, threads: int, arrays: Sequence[Any]) -> None:
    """Have several threads run a driver at the same time; return when all have ended.

    Args:
        driver: takes the arguments that `kernels/cpu/threads.py` describes. Its ranks may wait for each other.
        threads: the count of ranks; the caller is rank 0.
        arrays: the driver's arrays.

    Raises DeviceError, before any rank starts, for a wrong number of threads, or if the system gives no more.
    """
    threads = check_threads(threads)
    team = _idle_team()
    try:
        team.grow(threads - 1)
        words = as_words(arrays)
        _native("lead", 5)(driver.address, team.address, threads, words.ctypes.data, len(arrays))
    finally:
        _keep(team)


def perform_together(threads: int, jobs: Any, perform: Callable[[Any], bool], given: Any) -> bool:
    """Have several threads do a list of jobs, and return the result of `perform` when all are done.

    Args:
        jobs: the list (`kernels/cpu/threads.py`), which contains `threads` as well.
        perform: does the jobs of the list, with `given` as its argument.
    """
    team = _idle_team()
    try:
        team.grow(threads - 1)
        jobs[MAILBOXES // WORD_BYTES] = team.address
        return perform(given)
    finally:
        _keep(team)


def wake_workers(threads: int) -> None:
    """Wake the workers that a run of so many threads will need soon. Waking one takes as long as some steps."""
    try:
        team = _idle.pop()
    except IndexError:
        return
    try:
        _native("wake", 2)(team.address, min(threads - 1, len(team.workers)))
    finally:
        _keep(team)


class Worker:
    """A thread that runs jobs from its mailbox until it is told to end."""

    def __init__(self) -> None:
        self.mailbox = cache_lines(MAILBOX_LINES)
        self.address = int(self.mailbox.ctypes.data)
        for gate in GATES:
            self.mailbox[gate + 1] = _new_lock()
        serve, arguments = _native("serve", 1), (self.address,)
        self._thread = threading.Thread(target=serve, args=arguments, name="rnnops worker", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread, which must be idle."""
        self.mailbox[DRIVER // WORD_BYTES] = 0
        _native("open_gate", 1)(self.address)
        self._thread.join()
        for gate in GATES:
            ctypes.pythonapi.PyThread_free_lock(ctypes.c_void_p(int(self.mailbox[gate + 1])))


def _new_lock() -> int:
    """The address of a new Python lock that is taken. A thread that waits for it sleeps until another releases it."""
    allocate = ctypes.pythonapi.PyThread_allocate_lock
    allocate.restype = ctypes.c_void_p
    address = allocate()
    if address is None:
        raise MemoryError("no memory for a lock")
    ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(address), 1)
    return int(address)


def _stack_bytes() -> int:
    """The bytes that a thread needs: its stack, by Python's setting or else the system's, and 1 MiB."""
    own = threading.stack_size()
    if own:
        return int(own + MIB)
    try:
        limits: Any = import_module("resource")
        limit = limits.getrlimit(limits.RLIMIT_STACK)[0]
    except ImportError:  # there is none on Windows
        return int(2 * MIB)
    return int((limit if 0 < limit < 64 * MIB else 8 * MIB) + MIB)


class ThreadPool:
    """Workers that serve one caller at a time."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.mailboxes = np.empty(0, np.int64)
        self.address = 0  # of `mailboxes`

    def grow(self, workers: int) -> None:
        """Have at least so many workers. Raises DeviceError, or OutOfMemoryError, where the system gives no more."""
        if workers <= len(self.workers):
            return
        try:
            while len(self.workers) < workers:
                self.workers.append(Worker())
        except RuntimeError as error:
            if not has_room(_stack_bytes()):
                wanted, came = f"{workers} threads of {_stack_bytes()} bytes", f"{len(self.workers)} threads"
                hint = "Give the process more memory, or ask for fewer threads."
                raise OutOfMemoryError(
                    "memory has no room for the stacks of threads", wanted=wanted, came=came, hint=hint
                ) from error
            raise DeviceError("the system gives no more threads", wanted=workers, came=len(self.workers)) from error
        finally:
            self.mailboxes = np.array([worker.address for worker in self.workers], np.int64)
            self.address = int(self.mailboxes.ctypes.data)

    def end(self) -> None:
        """End the threads, which must be idle."""
        for worker in self.workers:
            worker.end()


_idle: list[ThreadPool] = []  # the last is the one whose workers are most likely awake; `pop` and `append` need no lock
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the child has none of the threads


def _idle_team() -> ThreadPool:
    try:
        return _idle.pop()
    except IndexError:
        return ThreadPool()


def _keep(team: ThreadPool) -> None:
    waiting = sum(len(other.workers) for other in tuple(_idle))
    if waiting == 0 or waiting + len(team.workers) <= IDLE_WORKERS:
        _idle.append(team)
    else:
        team.end()


@cache
def _native(function: str, numbers: int, result: Any = None) -> Any:
    """A function of the thread library that takes so many numbers."""
    return thread_library().callable(function, numbers, result)


def load_module(source: str) -> ModuleType:
    """The module of a generated text."""
    with LOADING:
        return _load(source)


@cache
def _load(source: str) -> ModuleType:
    name = f"rnnops_generated_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    path = _placed(f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"generated module {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba-cuda looks modules up when it loads kernels from disk
    spec.loader.exec_module(module)
    return module


def _placed(name: str, source: str) -> Path:
    """Write a module into the cache folder. If that fails, write it into a folder that is deleted with this process."""
    try:
        return _written(cache_folder() / name, source)
    except OSError as error:
        warn_once("generated modules", str(cache_folder()), reason(error))
        return _written(folder_of_process() / name, source)


def _written(path: Path, source: str) -> Path:
    """Write a file as a whole or not at all. A file that has this text already stays."""
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
    return path


TILE_ROWS = 512  # rows of products over a tile of steps: enough for their speed, few enough for the caches
ROUNDING = ("float32", "bfloat16")  # precisions of targets on processors
Work = Sequence[Any]  # barrier, status, sizes, then arrays, as the functions of modules take them


@dataclass(frozen=True)
class Written:
    """A scan, written for a target: its threads, the memory layout, the module, and notes for the plan.

    Args:
        plan: the plan as the target has changed it; None if it has not.
    """

    team: ScanTeam
    layouts: Layouts
    text: ScanModule
    notes: tuple[str, ...] = ()
    plan: StepPlan | None = None


class Target(Protocol):
    """A target that scans run on.

    Args:
        tile_rows: about so many rows have products over a tile of steps.
        compacts: whether products leave out rows that are over.
        in_place, calls: as in `LoweredStep`.
        worker: the word for a worker that takes a share of the work: `thread` or `block`.
        precisions: dtypes that it can round operands of products to.
        weight_types: how it can keep bound weights, besides as floats.
    """

    @property
    def tile_rows(self) -> int: ...

    @property
    def compacts(self) -> bool: ...

    @property
    def in_place(self) -> float: ...

    @property
    def calls(self) -> bool: ...

    @property
    def worker(self) -> str: ...

    @property
    def precisions(self) -> tuple[str, ...]: ...

    @property
    def weight_types(self) -> tuple[str, ...]: ...

    def write(self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None) -> Written:
        """Lay out and write a scan.

        Args:
            threads: at most so many.
            width: of vectors in bits; the host's if None.
        """

    def load(self, text: ScanModule, width: int | None) -> Any:
        """The function of a module, ready to be called.

        Args:
            width: of vectors in bits; the host's if None.
        """

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        """Run the function of a module. True if a checked number was wrong, such as an index out of range.

        Args:
            may_fail: whether the function checks any.
        """

    @property
    def memory(self) -> Memory:
        """The memory of ops."""

    def flat(self, array: Any) -> Any:
        """The elements of an array without gaps, as functions of modules take them."""

    def constant(self, array: Array) -> Any:
        """A constant array, in memory that functions of modules can read."""

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        """Put rows in an order in which they are shared out, as `order_rows` of `schedule` does."""

    def total(self, array: Any, out: Any) -> Any:
        """The sum over the first axis of an array, written to `out`."""

    def add(self, array: Any, other: Any) -> None:
        """Add `other` to `array`, which has the same shape and no gaps."""

    def references(self, program: Program) -> Mapping[str, Any]:
        """Key of an op that is not compiled -> its runner. The interpreter runs ops without one."""


class OnHost:
    """Base of targets whose arrays are NumPy's."""

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("float32",)

    @property
    def weight_types(self) -> tuple[str, ...]:
        return (INT8, BYTES)

    @property
    def memory(self) -> Memory:
        return PLAIN

    def flat(self, array: Any) -> Any:
        return flat_memory(array)

    def constant(self, array: Array) -> Any:
        return array

    def order_rows(self, lengths: Any, steps: int, order: Any, ends: Any, part: tuple[int, int]) -> None:
        order_rows(lengths, steps, order, ends, part)

    def total(self, array: Any, out: Any) -> Any:
        return np.add.reduce(array, axis=0, out=out)  # what `array.sum` calls

    def add(self, array: Any, other: Any) -> None:
        array += other

    def references(self, program: Program) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class Processor(OnHost):
    """Compiled code on the cores of this machine.

    Args:
        openmp: the runtime whose threads run kernels; None for threads of our own.
    """

    tile_rows: int = TILE_ROWS
    compacts: bool = True
    in_place: float = K_BLOCK
    calls: bool = True
    worker: str = "thread"
    openmp: OpenMP | None = None

    @property
    def precisions(self) -> tuple[str, ...]:
        return ROUNDING

    def write(
        self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None,
        again: Again | None = None,
    ) -> Written:  # fmt: skip
        team = share_work(scan, plan, threads)
        layouts = lay_out(scan, plan, tile, team.threads, again=again, apart=True)
        layouts.need(dtype)
        return Written(team, layouts, write_scan(scan, plan, layouts, dtype, again))

    def flat(self, array: Any) -> Any:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def load(self, text: ScanModule, width: int | None) -> Any:
        assert isinstance(text.module, ir.Module)
        return native_scan(text.module, width)

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        if self.openmp is None:
            run_together(function, team.threads, work)
        else:
            run_in_region(self.openmp, function, team.threads, work)
        return was_wrong(work)


@dataclass(frozen=True)
class OnOneThread(OnHost):
    """Base of targets with one thread."""

    tile_rows: int = TILE_ROWS
    compacts: bool = True
    in_place: float = K_BLOCK
    calls: bool = True
    worker: str = "thread"

    def write(
        self, scan: Scan, plan: StepPlan, tile: int, dtype: str, threads: int, width: int | None,
        again: Again | None = None,
    ) -> Written:  # fmt: skip
        layouts = lay_out(scan, plan, tile, 1, again=again)
        layouts.need(dtype)
        return Written(ScanTeam(1), layouts, write_scan(scan, plan, layouts, dtype, again))


@dataclass(frozen=True)
class PlainPython(OnOneThread):
    """The same module as plain Python."""

    @property
    def precisions(self) -> tuple[str, ...]:
        return ROUNDING

    def load(self, text: ScanModule, width: int | None) -> Any:
        return load_module(text.python()).scan

    def call(self, function: Any, team: ScanTeam, work: Work, may_fail: bool) -> bool:
        barrier, status, sizes, *arrays = work
        with np.errstate(all="ignore"):
            function(0, 1, barrier, status, sizes, arrays)
        return was_wrong(work)


def was_wrong(work: Work) -> bool:
    """True if a run has found a wrong number, such as an index out of range. Clears the status for the next run."""
    status = work[1]
    wrong = bool(status[0] != 0)
    status[0] = 0
    return wrong


PROCESSOR, PLAIN_PYTHON = Processor(), PlainPython()
