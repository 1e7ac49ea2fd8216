"""Recycling: what compiled ops need while they run, and results that die within their pass, share one block of memory.

A plan says where in the block each buffer lies (`place_lives`). A pass borrows a block from the run's pool when an
op first asks for memory, and gives it back at its end (`recycling`). Never in a block are outputs, gradients that the
caller gets, and what is kept for the backward pass. Should anybody still hold a part of a block at the end of a pass,
as the traceback of an error may, the block is his and goes to no other.

Limit: no op writes over an operand. Had every group of fused ops done so where an operand of its result's size dies,
the blocks of language models, attention decoders and residual stacks would be no smaller, as most is alive at
recurrences and products, and those of random nets by 1 in 7000. Kernels are promised memory of their own instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rnnops.compiler.memory.allocations import MOMENTS, Allocation, allocations_of, intervals_of, plan_arena
from rnnops.compiler.memory.memory import SCRATCH, SMALL, Block, Buffer, Memory, Pool, allocate, block_bytes
from rnnops.compiler.run.forward import ForwardScan
from rnnops.interpreter import Program
from rnnops.net.schema import Call
from rnnops.types import Array, is_float
from rnnops.util import cached_property

RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
Kernels = Mapping[str, Any]
Lives = tuple[Allocation, ...]


@dataclass(frozen=True)
class Recycled:
    """The block of a pass.

    Args:
        nbytes: of the block, which may be larger than what this pass needs.
        placed: what lies in it.
    """

    nbytes: int = 0
    placed: tuple[Allocation, ...] = ()

    @cached_property
    def places(self) -> dict[str, dict[int, int]]:
        """Key of an op -> id of one of its buffers -> its address, that of its scratch first."""
        places: dict[str, dict[int, int]] = {}
        for one in self.placed:
            places.setdefault(one.of, {})[id(one.buffer)] = one.address or 0
        return places

    def at_least(self, nbytes: int) -> Recycled:
        """The same in a larger block, which other passes use as well."""
        return replace(self, nbytes=max(self.nbytes, nbytes)) if self.placed else self


def find_lives(program: Program, kernels: Kernels, keep: Collection[str] = ()) -> Lives:
    """Arrays that may share a block within a pass: scratch of each compiled op, then buffers that die within the pass.

    Args:
        kernels: what runs ops, by key; those that are not compiled have memory of their own.
        keep: blobs that stay, besides outputs.
    """
    kernels = {key: kernel for key, kernel in kernels.items() if kernel.compiled is not None}
    demands = {key: kernel.demand() for key, kernel in kernels.items()}
    asked = {id(buffer) for demand in demands.values() for buffer in demand.asked_for()}
    found = allocations_of(program, demands, keep, lambda call: _held_by_results(call, kernels.get(call.op.key)))
    end = MOMENTS * len(program.calls)
    dying = [one for one in found if id(one.buffer) in asked and one.nbytes >= SMALL and one.last < end]
    compiled = [(n, call.op.key) for n, call in enumerate(program.calls) if call.op.key in kernels] if dying else []
    return (*(_scratch(n, key, kernels[key]) for n, key in compiled), *dying)


def _scratch(number: int, key: str, kernel: Any) -> Allocation:
    buffer = Buffer(SCRATCH, SCRATCH, "uint8", (block_bytes(kernel.compiled.lent.values()),))
    return Allocation(number, key, buffer, (), MOMENTS * number, MOMENTS * number)


def place_lives(lives: Lives) -> Recycled:
    """Where in a block what lies, given plain numbers."""
    arena = plan_arena(intervals_of(lives))
    return Recycled(arena.nbytes, tuple(replace(one, address=at) for one, at in zip(lives, arena.offsets, strict=True)))


def _held_by_results(call: Call, kernel: Any) -> list[str]:
    """Inputs that an op's results may hold on to; all other results are memory of their own."""
    if kernel is None:
        return [name for name in call.op.inputs if name] if call.op.type in RECURRENT else []
    if not isinstance(kernel, ForwardScan) or not kernel.recurrence.keeps_workspaces:
        return []
    kinds = zip(call.op.inputs, call.types, strict=True)  # lengths, or what they follow from
    return [name for name, kind in kinds if kind is not None and not is_float(kind.dtype)]


@contextmanager
def recycling(recycled: Recycled, kernels: Kernels, pool: Pool) -> Iterator[Kernels]:
    """For one pass: kernels that take memory from one block, borrowed from a pool."""
    if not recycled.placed:
        yield kernels
        return
    lease = _BorrowedBlock(recycled, pool)
    try:
        yield {**kernels, **{key: partial(kernels[key], make=_SharedMemory(lease, key)) for key in recycled.places}}
    finally:
        lease.end()


class _BorrowedBlock:
    """A block that is borrowed when it is first needed."""

    def __init__(self, recycled: Recycled, pool: Pool) -> None:
        self.recycled, self.pool = recycled, pool
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        if self._block is None:
            self._block = self.pool.take(self.recycled.nbytes)
        return self._block

    def end(self) -> None:
        if self._block is not None and not self._block.is_held():
            self.pool.give(self._block)
        self._block = None


class _SharedMemory(Memory):
    """The memory of one op, from the block of its pass."""

    def __init__(self, lease: _BorrowedBlock, key: str) -> None:
        self.lease, self.places = lease, lease.recycled.places[key]

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Array:
        offset = self.places.get(id(buffer))
        if offset is None:
            return allocate(buffer, zeros)
        part = self.lease.block.part(buffer, offset)
        if zeros:
            part.fill(0)
        return part

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Block, int]:
        return self.lease.block, next(iter(self.places.values()))

    def give_back(self, pool: Pool, block: Block) -> None:
        """The pass gives it back."""
