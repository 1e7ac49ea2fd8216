"""An order of ops that keeps little memory alive.

Greedy (as Sethi and Ullman do for trees, exact for none of the nets here): of the ops that may run next the one after
which least is alive; from the first op on, and from the last one back. Of the orders found and the given one the one
with the smallest peak is taken, the given one where another is not better. Random numbers do not depend on the order,
as random ops are numbered before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rnnops.compiler.buffers.allocations import Demands
from rnnops.compiler.buffers.lifetimes import Lifetimes, lifetimes_of, most_alive
from rnnops.compiler.graph.topological import makers_before, topological_order
from rnnops.interpreter import Program

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
