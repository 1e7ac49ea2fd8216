"""Lifetimes: what ops make and read, as numbers, and how much is alive when they run in some order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rnnops.compiler.buffers.allocations import Demands, allocations_of
from rnnops.interpreter import Program
from rnnops.types import OPAQUE


@dataclass(frozen=True)
class Lifetimes:
    """Ops and pieces of memory by number, in the order of the program.

    Args:
        makes: the pieces that each op makes for its results.
        reads: the pieces that each op reads.
        sizes: bytes of each piece.
        stays: pieces that are there at the end: outputs, and what others keep.
        within: bytes that each op needs only while it runs.
        given: pieces that are there at the beginning, and go after their last use.
    """

    makes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    stays: frozenset[int]
    within: tuple[int, ...]
    given: frozenset[int] = frozenset()


def most_alive(lifetimes: Lifetimes, order: Sequence[int]) -> int:
    """The largest sum of bytes that are alive at once, ops running in this order."""
    left = [0] * len(lifetimes.sizes)
    for read in lifetimes.reads:
        for piece in read:
            left[piece] += 1
    alive = most = sum(lifetimes.sizes[piece] for piece in lifetimes.given)
    for op in order:
        alive += sum(lifetimes.sizes[piece] for piece in lifetimes.makes[op])
        most = max(most, alive + lifetimes.within[op])
        for piece in lifetimes.reads[op]:
            left[piece] -= 1
        gone = {p for p in (*lifetimes.reads[op], *lifetimes.makes[op]) if not left[p] and p not in lifetimes.stays}
        alive -= sum(lifetimes.sizes[piece] for piece in gone)
    return most


def lifetimes_of(
    program: Program, demands: Demands, keep: Collection[str] = (), given: Collection[str] = ()
) -> Lifetimes:
    """The lifetimes of a program's memory.

    Args:
        demands: of ops that run compiled, by key.
        keep: blobs that stay beside the outputs.
        given: inputs that go after their last use; all others are not counted.
    """
    results = [one for one in allocations_of(program, demands, keep) if one.blobs]
    sizes = [program.types[name].nbytes if program.types[name].dtype != OPAQUE else 0 for name in given]
    lies_in = {name: [piece] for piece, name in enumerate(given)}
    makes: list[list[int]] = [[] for _ in program.calls]
    for piece, one in enumerate(results, len(sizes)):
        makes[one.op].append(piece)
        for name in filter(None, one.blobs):
            lies_in.setdefault(name, []).append(piece)
    sizes += [one.nbytes for one in results]
    reads, within = [], [0] * len(makes)
    for number, call in enumerate(program.calls):
        reads.append(tuple(dict.fromkeys(piece for name in call.op.inputs for piece in lies_in.get(name, ()))))
        if call.op.key in demands:
            most = max(sum(buffer.nbytes for buffer in moment) for moment in demands[call.op.key].moments())
            within[number] = most - sum(sizes[piece] for piece in makes[number])
    stays = {piece for name in (*keep, *program.net.output_blobs.values()) for piece in lies_in.get(name, ())}
    there = frozenset(range(len(given)))
    return Lifetimes(tuple(map(tuple, makes)), tuple(reads), tuple(sizes), frozenset(stays), tuple(within), there)
