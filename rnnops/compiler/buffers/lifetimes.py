"""Lifetimes of blobs, and an order of ops that keeps little memory alive.

Lifetimes: what ops make and read, as numbers, and how much is alive when they run in some order.

An order of ops that keeps little memory alive.

Greedy (as Sethi and Ullman do for trees, exact for none of the nets here): of the ops that may run next the one after
which least is alive; from the first op on, and from the last one back. Of the orders found and the given one the one
with the smallest peak is taken, the given one where another is not better. Random numbers do not depend on the order,
as random ops are numbered before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rnnops.compiler.buffers.allocations import Demands, allocations_of
from rnnops.compiler.graph import makers_before, topological_order
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


Before = Sequence[Collection[int]]


def order_ops(program: Program, demands: Demands, keep: Collection[str] = (), given: Collection[str] = ()) -> Program:
    """Run ops in an order in which less is alive at once; the program itself where its own order is as good.

    rewrite: `a = Exp(x); b = Exp(y); c = ReduceSum(a); d = ReduceSum(b)`  -->
        `a = Exp(x); c = ReduceSum(a); b = Exp(y); d = ReduceSum(b)`

    Args:
        demands, keep, given: as for `lifetimes_of`.
    """
    own = list(range(len(program.calls)))
    before = makers_before([(call.op.inputs, call.op.outputs) for call in program.calls])
    order = least_alive(lifetimes_of(program, demands, keep, given), before)
    if order == own:
        return program
    net = program.net.with_ops([program.calls[i].op for i in order]).snapshot()
    return Program(net, tuple(program.calls[i] for i in order), program.types, program.float_dtype)


def least_alive(lifetimes: Lifetimes, before: Before) -> list[int]:
    """The order with the smallest peak of those that are tried.

    Args:
        before: for each op those that it needs.
    """
    own = list(range(len(lifetimes.makes)))
    orders = (own, _forwards(lifetimes, before), _backwards(lifetimes, before))
    return min(orders, key=lambda order: most_alive(lifetimes, order))


def _forwards(lifetimes: Lifetimes, before: Before) -> list[int]:
    """Next comes the op after which least is alive: what it makes less what it is the last to read."""
    left = _readers(lifetimes)

    def growth(op: int) -> int:
        last = [p for p in (*lifetimes.reads[op], *lifetimes.makes[op]) if left[p] <= {op} and p not in lifetimes.stays]
        made, gone = lifetimes.makes[op], set(last)
        return sum(lifetimes.sizes[p] for p in made) - sum(lifetimes.sizes[p] for p in gone)

    def ran(op: int) -> list[int]:
        for piece in lifetimes.reads[op]:
            left[piece].discard(op)
        return [reader for piece in lifetimes.reads[op] if len(left[piece]) == 1 for reader in left[piece]]

    return topological_order(before, growth, ran)


def _backwards(lifetimes: Lifetimes, before: Before) -> list[int]:
    """Last comes the op before which least is alive: what it is the last to read less what it makes."""
    alive, readers = set(lifetimes.stays), _readers(lifetimes)

    def growth(op: int) -> int:
        read = [p for p in lifetimes.reads[op] if p not in alive]
        made = [p for p in lifetimes.makes[op] if p in alive]
        return sum(lifetimes.sizes[p] for p in read) - sum(lifetimes.sizes[p] for p in made)

    def ran(op: int) -> list[int]:
        news = [piece for piece in lifetimes.reads[op] if piece not in alive]
        alive.difference_update(lifetimes.makes[op])
        alive.update(news)
        return [reader for piece in news for reader in readers[piece]]

    count = len(before)
    after: list[set[int]] = [set() for _ in range(count)]
    for op, needed in enumerate(before):
        for maker in needed:
            after[maker].add(op)
    mirrored = [{count - 1 - op for op in after[count - 1 - place]} for place in range(count)]
    order = topological_order(
        mirrored,
        lambda place: growth(count - 1 - place),
        lambda place: [count - 1 - op for op in ran(count - 1 - place)],
    )
    return [count - 1 - place for place in reversed(order)]


def _readers(lifetimes: Lifetimes) -> list[set[int]]:
    """The ops that read each piece."""
    readers: list[set[int]] = [set() for _ in lifetimes.sizes]
    for op, read in enumerate(lifetimes.reads):
        for piece in read:
            readers[piece].add(op)
    return readers
