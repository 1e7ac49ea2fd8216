"""What runs the ops of a plan on a device: a runner for each op that is not left to the interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rnnops.compiler.buffers.memory import Demand, Pool
from rnnops.compiler.execute.compiled_scan import CompiledScan, Once
from rnnops.compiler.execute.recycle import Lives, Recycled, place_lives, recycling
from rnnops.compiler.targets.cpu.team import rouse_workers
from rnnops.compiler.targets.target import PROCESSOR
from rnnops.schema import RunContext


class Runner(Protocol):
    """What runs an op in place of its reference."""

    @property
    def compiled(self) -> CompiledScan | None:
        """The scan that it calls, None where Python steps through the op."""

    def __call__(self, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]: ...

    def demand(self) -> Demand | None:
        """The memory that a run takes, None where the interpreter makes its results."""

    def beside(self) -> Mapping[str, Once]:
        """Nets that run within it, by when."""


Runners = Mapping[str, Runner]


@dataclass(frozen=True)
class Compiled:
    """What runs the ops of a plan, by key; the interpreter runs all others.

    Args:
        forward: ops of the forward pass.
        backward: likewise; the backward pass may run ops of the forward pass again.
        interpreted: label of an op that could not be compiled -> why.
        recycled: what shares memory within the forward pass, and within the backward pass.
        pool: where passes borrow that memory.
        threads: of our own, the most that run one of the scans.
    """

    forward: dict[str, Runner] = field(default_factory=dict)
    backward: dict[str, Runner] = field(default_factory=dict)
    interpreted: dict[str, str] = field(default_factory=dict)
    recycled: tuple[Recycled, Recycled] = (Recycled(), Recycled())
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    threads: int = 1

    def running_forward(self) -> AbstractContextManager[Mapping[str, Any]]:
        """The runners of one forward pass, which share memory as long as this is open."""
        return recycling(self.recycled[0], self.forward, self.pool)

    def running_backward(self) -> AbstractContextManager[Mapping[str, Any]]:
        """Those of one backward pass."""
        return recycling(self.recycled[1], self.backward, self.pool)

    def sharing(self, pool: Pool, forward: Lives, backward: Lives = ()) -> Compiled:
        """With memory shared within both passes; blocks are as large in both, so that all use the same one."""
        recycled, kernels = (place_lives(forward), place_lives(backward)), self.kernels
        nbytes = max([one.nbytes for one in recycled] + [kernel.compiled.block for kernel in kernels])
        for kernel in kernels:
            kernel.compiled.reserve(nbytes)
        ahead, behind = (one.at_least(nbytes) for one in recycled)
        scans = (kernel.compiled for kernel in kernels)
        threads = max((scan.threads for scan in scans if scan.options.target == PROCESSOR), default=1)
        return replace(self, recycled=(ahead, behind), pool=pool, threads=threads)

    def rouse(self) -> None:
        """Wake the threads that a pass will want."""
        if self.threads > 1:
            rouse_workers(self.threads)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """All runners that are compiled, of both passes, with those that run within others."""
        return tuple(compiled_in((*self.forward.values(), *self.backward.values())))


def compiled_in(runners: Iterable[Runner]) -> Iterator[Any]:
    """Runners that are compiled, with those of nets that run within them."""
    for runner in runners:
        if runner.compiled is not None:
            yield runner
        yield from compiled_in(inner for once in runner.beside().values() for inner in once.kernels.values())


def demands_of(runners: Runners) -> dict[str, Demand]:
    """The memory that runners take, by key."""
    demands = {key: runner.demand() for key, runner in runners.items()}
    return {key: demand for key, demand in demands.items() if demand is not None}
