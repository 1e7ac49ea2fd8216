"""Recycling: what compiled ops need while they run, and results that die within their pass, share one block of memory.

A plan says where in the block each buffer lies (`plan_recycling`). A pass borrows a block from the run's pool when an
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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rnnops.compiler.buffers.arena import Interval, plan_arena
from rnnops.compiler.buffers.memory import SMALL, Block, Buffer, Memory, Pool, allocate, block_bytes
from rnnops.compiler.execute.backward import BackwardScan
from rnnops.compiler.execute.forward import ForwardScan
from rnnops.compiler.execute.row_pass import RowPass
from rnnops.interpreter import Program
from rnnops.schema import Call
from rnnops.types import Array, is_float

RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
SHARING = (ForwardScan, BackwardScan, RowPass)  # take `make`
Kernels = Mapping[str, Any]
Key = tuple[int, int]  # number of an op, id of one of its buffers


@dataclass(frozen=True)
class Recycled:
    """The block of a pass.

    Args:
        nbytes: of the block, which may be larger than what this pass needs.
        places: key of an op -> id of one of its buffers -> its offset.
        scratch: key of an op -> the offset of its scratch.
    """

    nbytes: int = 0
    places: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)

    def at_least(self, nbytes: int) -> Recycled:
        """The same in a larger block, which other passes use as well."""
        return replace(self, nbytes=max(self.nbytes, nbytes)) if self.places else self


@dataclass(frozen=True)
class Lives:
    """What may share a block within a pass, and when it is alive.

    Args:
        scratch: key of an op, and the life of its scratch.
        buffers: key of an op, one of its buffers, and its life.
    """

    scratch: tuple[tuple[str, Interval], ...] = ()
    buffers: tuple[tuple[str, Buffer, Interval], ...] = ()


def plan_recycling(program: Program, kernels: Kernels, keep: Collection[str] = ()) -> Recycled:
    """Where buffers that die within a pass lie in its block; arguments as for `find_lives`."""
    return place_lives(find_lives(program, kernels, keep))


def find_lives(program: Program, kernels: Kernels, keep: Collection[str] = ()) -> Lives:
    """The buffers that die within a pass.

    Args:
        kernels: what runs ops compiled, by key; those of other kinds than `SHARING` have memory of their own.
        keep: blobs that stay, beside outputs.
    """
    kernels = {key: kernel for key, kernel in kernels.items() if isinstance(kernel, SHARING)}
    found = _Lives(program, kernels).found({*keep, *program.net.output_blobs.values()})
    if not found:
        return Lives()
    within = [(n, call.op.key) for n, call in enumerate(program.calls) if call.op.key in kernels]
    scratch = [(key, Interval(block_bytes(kernels[key].compiled.lent.values()), n, n)) for n, key in within]
    buffers = [(program.calls[op].op.key, buffer, life) for op, buffer, life in found]
    return Lives(tuple(scratch), tuple(buffers))


def place_lives(lives: Lives) -> Recycled:
    """Where in a block what lies, given plain numbers."""
    if not lives.buffers:
        return Recycled()
    arena = plan_arena([*(life for _, life in lives.scratch), *(life for _, _, life in lives.buffers)])
    places: dict[str, dict[int, int]] = {key: {} for key, _ in lives.scratch}
    for (key, buffer, _), offset in zip(lives.buffers, arena.offsets[len(lives.scratch) :], strict=True):
        places[key][id(buffer)] = offset
    return Recycled(arena.nbytes, places, dict(zip(places, arena.offsets, strict=False)))


class _Lives:
    """A walk over the ops of a program: which buffers each blob lies in, and when these are read last."""

    def __init__(self, program: Program, kernels: Kernels) -> None:
        self.last: dict[Key, int] = {}
        self.buffers: dict[Key, Buffer] = {}
        self.lies_in: dict[str, set[Key]] = {}
        for number, call in enumerate(program.calls):
            for name in call.op.inputs:
                self.last.update(dict.fromkeys(self.lies_in.get(name, ()), number))
            kernel = kernels.get(call.op.key)
            if kernel is not None:
                self._make(number, call, kernel)
            held = {key for name in _held_by_results(call, kernel) for key in self.lies_in.get(name, ())}
            for name in filter(None, call.op.outputs if held else ()):
                self.lies_in.setdefault(name, set()).update(held)

    def found(self, stay: Collection[str]) -> list[tuple[int, Buffer, Interval]]:
        """The buffers in which none of these blobs lies, and when they are alive."""
        stays = {key for name in stay for key in self.lies_in.get(name, ())}
        keys = [key for key in self.last if key not in stays]
        found = [(key[0], self.buffers[key], self.last[key]) for key in keys]
        return [(op, buffer, Interval(buffer.nbytes, op, last)) for op, buffer, last in found]

    def _make(self, number: int, call: Call, kernel: Any) -> None:
        demand = kernel.demand()
        for buffer in demand.asked_for():
            if buffer.nbytes >= SMALL:
                self.last[number, id(buffer)], self.buffers[number, id(buffer)] = number, buffer
        for name, buffers in zip(call.op.outputs, demand.results, strict=True):
            keys = {(number, id(buffer)) for buffer in buffers}
            self.lies_in[name] = keys & self.last.keys()


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
    if not recycled.places:
        yield kernels
        return
    loan = _Loan(recycled, pool)
    try:
        yield {**kernels, **{key: partial(kernels[key], make=_Shared(loan, key)) for key in recycled.places}}
    finally:
        loan.end()


class _Loan:
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


class _Shared(Memory):
    """The memory of one op, from the block of its pass."""

    def __init__(self, loan: _Loan, key: str) -> None:
        self.loan, self.key = loan, key
        self.places = loan.recycled.places[key]

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Array:
        offset = self.places.get(id(buffer))
        if offset is None:
            return allocate(buffer, zeros)
        part = self.loan.block.part(buffer, offset)
        if zeros:
            part.fill(0)
        return part

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Block, int]:
        return self.loan.block, self.loan.recycled.scratch[self.key]

    def give_back(self, pool: Pool, block: Block) -> None:
        """The pass gives it back."""
