"""The threads of a simulated CUDA grid: they take turns, each runs alone until it comes to a barrier.

A thread of Python stands for each of CUDA's, and one baton for all of them: who has it runs, and hands it back at
`syncthreads`, at a grid's `sync`, at an atomic operation (so that other threads can answer one that polls), and at its
end. So a launch is a sequence of turns that a seed decides. With a seed, turns go to a favourite block for a while, a
short or a long one, so that blocks run ahead of each other as far as barriers allow.

Limits: between two barriers a thread is never interrupted. That threads of a block wait at the same barrier is told
from lines of source: the same line in another round of a loop counts as the same barrier.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from types import CodeType
from typing import Any, Protocol

import numpy as np
from happens_before import Clocks
from numba.cuda.simulator.kernelapi import Dim3

Site = tuple[tuple[str, int], ...]  # files and lines of a call, the innermost first
READY, AT_BLOCK, AT_GRID, ENDED = "can run", "waits at syncthreads", "waits at a grid's sync", "has ended"
INNER_MODULES = {"grid_threads", "race_check", "whole_grid", "ordering", "warps", "threading", "contextlib"} | {
    "rnnops.kernels.cuda.simulated"
}
STAYS_FAVOURITE = 0.0, 0.9, 0.99  # probabilities at each turn, of which a seed chooses one


class BarrierError(RuntimeError):
    """Threads wait at a barrier that others cannot reach."""


class DivergentBarrierError(BarrierError):
    """Threads of a block go to different barriers, or some end while others wait."""


class DeadlockError(BarrierError):
    """Nobody can go on, or nobody has come to a barrier for a long time."""


class EndThread(BaseException):
    """Raised within threads of a launch that has failed."""


class Block:
    """What the threads of a block have in common.

    Args:
        shared: its shared arrays.
    """

    def __init__(self, index: tuple[int, ...]) -> None:
        self.index = Dim3(*index)
        self.threads: list[GridThread] = []
        self.shared: Any = None

    def __str__(self) -> str:
        return f"block {short(self.index)}"


class GridThread(threading.Thread):
    """A thread of a grid; numba's `cuda` asks the current thread for its indices, and calls its `syncthreads`."""

    def __init__(self, grid: Grid, block: Block, index: tuple[int, ...]) -> None:
        super().__init__(daemon=True)
        self.grid, self.block = grid, block
        self.blockIdx, self.threadIdx = block.index, Dim3(*index)
        self.thread_id = len(block.threads)
        self.number = 0
        self.state = READY
        self.site: Site = ()
        self.error: BaseException | None = None
        self.turn = held_lock()
        self.vote: Any = None

    def __str__(self) -> str:
        return f"thread {short(self.threadIdx)} of {self.block}"

    def run(self) -> None:
        try:
            self._await_turn()
            self.grid.launch.work()
        except EndThread:
            pass
        except BaseException as error:
            self.error = error
        self.state = ENDED
        if not self.grid.ending:
            self.grid.pass_on(self)

    def _await_turn(self) -> None:
        self.turn.acquire()
        if self.grid.ending:
            raise EndThread

    def hand_over(self, state: str = READY) -> None:
        """Let others run, until the barrier of that state opens."""
        if self.grid.ending:
            raise EndThread
        self.state = state
        self.site = call_site(sys._getframe(1))
        if not self.grid.pass_on(self):
            self._await_turn()

    def syncthreads(self) -> None:
        self.hand_over(AT_BLOCK)

    def sync_grid(self) -> None:
        self.hand_over(AT_GRID)

    def _votes(self, value: Any) -> list[bool]:
        self.vote = value
        self.syncthreads()
        votes = [bool(thread.vote) for thread in self.block.threads]
        self.syncthreads()
        return votes

    def syncthreads_count(self, value: Any) -> int:
        return sum(self._votes(value))

    def syncthreads_and(self, value: Any) -> int:
        return int(all(self._votes(value)))

    def syncthreads_or(self, value: Any) -> int:
        return int(any(self._votes(value)))

    def interrupt(self) -> None:
        """End a thread that runs, wherever it is, and has not seen that the launch ends."""
        if self.ident is not None and self.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(EndThread))


class Launch(Protocol):
    """What a grid is for."""

    name: str

    def work(self) -> None:
        """What each thread does."""

    def synced(self) -> None:
        """Called when all threads have come to a grid's `sync`."""


class Grid:
    """All blocks of one launch.

    Args:
        seed: of the order of turns; None goes through threads in order.
        seconds: how long no thread may come to a barrier or to its end.
    """

    def __init__(
        self, launch: Launch, grid_dim: tuple[int, ...], block_dim: tuple[int, ...], seed: int | None, seconds: float
    ) -> None:
        self.launch, self.seconds = launch, seconds
        self.random = None if seed is None else random.Random(seed)
        self.stays = 0.0 if self.random is None else self.random.choice(STAYS_FAVOURITE)
        self.baton, self.ending = held_lock(), False
        self.blocks = [Block(index) for index in _indices(grid_dim)]
        for block in self.blocks:
            for index in _indices(block_dim):
                block.threads.append(GridThread(self, block, index))
        self.threads = [thread for block in self.blocks for thread in block.threads]
        self.clocks = Clocks(len(self.threads))
        for number, thread in enumerate(self.threads):
            thread.number = number
        self.ready, self.favourite = list(self.threads), self.blocks[0]
        self.deadline, self.current = 0.0, self.threads[0]
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run all threads to their ends. Raises what one of them raises, or BarrierError."""
        self._progress()
        try:
            for thread in self.threads:
                thread.start()
            self._start(self._next())
            self._await_end()
        finally:
            self._end()
        if any(thread.state != ENDED for thread in self.threads):
            raise self._stuck()

    def _progress(self) -> None:
        self.deadline = time.monotonic() + self.seconds

    def _next(self) -> GridThread:
        if self.random is None:
            return self.ready.pop(0)
        if self.random.random() >= self.stays or all(thread.block is not self.favourite for thread in self.ready):
            self.favourite = self.random.choice(self.ready).block
        places = [i for i, thread in enumerate(self.ready) if thread.block is self.favourite]
        return self.ready.pop(self.random.choice(places))

    def _start(self, thread: GridThread) -> None:
        self.current = thread
        release(thread.turn)

    def _await_end(self) -> None:
        """Wait until nobody can run. Raises what stops the launch."""
        while not self.baton.acquire(timeout=max(0.0, self.deadline - time.monotonic())):
            if time.monotonic() >= self.deadline:
                self.current.site = call_site(sys._current_frames()[self.current.ident])
                raise DeadlockError(
                    self._message(f"no thread has come to a barrier for {self.seconds} s", self.threads)
                )
        if self.error is not None:
            raise self.error

    def pass_on(self, thread: GridThread) -> bool:
        """The thread that runs lets another run, or whoever waits for the end; whether it is to go on itself."""
        try:
            self._end_turn(thread)
        except BaseException as error:
            self.error, self.ready = error, []
        if not self.ready:
            self.baton.release()
            return False
        following = self._next()
        if following is thread:
            return True
        self._start(following)
        return False

    def _end_turn(self, thread: GridThread) -> None:
        if thread.error is not None:
            if hasattr(thread.error, "add_note"):  # from Python 3.11 on
                thread.error.add_note(f"in {thread} of kernel {self.launch.name}")
            raise thread.error
        if thread.state == READY:
            self.ready.append(thread)
            return
        self._progress()
        if thread.state == AT_BLOCK:
            self._arrive(thread.block.threads, [thread.block])
        elif thread.state == AT_GRID and self._arrive(self.threads, self.blocks):
            self.launch.synced()

    def _arrive(self, threads: list[GridThread], blocks: list[Block]) -> bool:
        """Open a barrier for its threads if all have come to it."""
        state = threads[-1].state
        if state not in (AT_BLOCK, AT_GRID) or any(thread.state != state for thread in threads):
            return False
        for block in blocks:
            if len({thread.site for thread in block.threads}) > 1:
                raise DivergentBarrierError(self._message("threads wait at different barriers", block.threads))
        self.clocks.meet([thread.number for thread in threads])
        for thread in threads:
            thread.state = READY
        self.ready += threads
        return True

    def _stuck(self) -> BarrierError:
        """Nobody can run, and some have not ended."""
        for block in self.blocks:
            states = {thread.state for thread in block.threads}
            if len(states) > 1:
                what = "some threads have ended" if ENDED in states else "some threads wait at another barrier"
                return DivergentBarrierError(self._message(f"{what}, and others wait for them", block.threads))
        return DeadlockError(self._message("some blocks have ended, and others wait for them", self.threads))

    def _message(self, what: str, threads: Iterable[GridThread]) -> str:
        """What is wrong, and where each thread is; threads of a block that are at one place share a line."""
        places: dict[tuple[Block, str, Site], list[str]] = {}
        for thread in threads:
            site = () if thread.state == ENDED else thread.site
            places.setdefault((thread.block, thread.state, site), []).append(short(thread.threadIdx))
        lines = [
            f"{block}, thread {', '.join(names)}: {state}" + (f" ({site_text(site)})" if site else "")
            for (block, state, site), names in places.items()
        ]
        return "\n  ".join([f"kernel {self.launch.name}: {what}:", *lines])

    def _end(self) -> None:
        """End threads that have not: of a launch that has failed. Their states stay as they were, for the message."""
        states = [thread.state for thread in self.threads]
        self.ending = True
        for thread in self.threads:
            release(thread.turn)
        for thread in self.threads:
            if thread.ident is not None:
                thread.join(0.2)
                thread.interrupt()
                thread.join(5)
        for thread, state in zip(self.threads, states, strict=True):
            thread.state = state


def _indices(dims: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """All indices (x, y, z), x first, as CUDA numbers threads."""
    return (index[::-1] for index in np.ndindex(*dims[::-1]))


def held_lock() -> Any:
    """A lock that one thread holds, and another releases: much faster than a semaphore of Python."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def release(lock: Any) -> None:
    """Release a lock, which another thread may have done a moment ago: where a launch ends early."""
    with suppress(RuntimeError):
        lock.release()


def short(index: Dim3) -> str:
    """An index as text, without axes that only ever hold 0 in most kernels."""
    return str(index.x) if index.y == index.z == 0 else str(index)


def call_site(frame: Any) -> Site:
    """Where a kernel is, and through which calls it came there."""
    return tuple(lines_of(frame))


def lines_of(frame: Any) -> Iterator[tuple[str, int]]:
    """Files and lines of a frame and its callers, but for those of the simulator."""
    while frame is not None:
        file = file_of(frame.f_code, frame.f_globals.get("__name__", ""))
        if file:
            yield file, frame.f_lineno
        frame = frame.f_back


@cache
def file_of(code: CodeType, module: str) -> str:
    """The file of a function; empty for one of the simulator."""
    return "" if module in INNER_MODULES or module.startswith("numba.") else code.co_filename


def site_text(site: Site) -> str:
    """The files and lines of a call as text."""
    return ", called from ".join(f"{os.path.basename(file)}:{line}" for file, line in site)
