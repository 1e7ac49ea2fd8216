"""The order of axes where folds are to be in registers.

A fold gets its folded axes last. What it reads is computed in the order in which it goes through it, and so is what is
made of that: all of it then fits one nest of loops, and needs no memory. Limits: what two folds read in different
orders is computed in that of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.compiler.ir.layouts import Layout
from rnnops.compiler.ir.statements import Statement

Order = tuple[int, ...]
Orders = dict[tuple[str, Layout], Order]  # of what is read or written, by owner and layout


def folds_innermost(statements: Sequence[Statement]) -> list[Statement]:
    """Statements of one row with the axes that they fold last, and all else in an order that suits these.

    rewrite: `p[s, e] = a[s] * b[s, e]; c[e] += p[s, e]`  -->  `p[e, s] = a[s] * b[s, e]; c[e] += p[e, s]`
    """
    wanted = _orders_of_readers(statements)
    made: Orders = {}
    found = []
    for statement in statements:
        target = statement.target.owner, statement.target.layout
        order = _folded_last(statement) or wanted.get(target) or _order_of_what_it_reads(statement, made)
        made[target] = order
        found.append(statement.moved(order))
    return found


def _folded_last(statement: Statement) -> Order | None:
    folded = statement.folded_axes() if statement.fold and statement.target.index is None else ()
    return (*(a for a in _axes(statement) if a not in folded), *folded) if folded else None


def _orders_of_readers(statements: Sequence[Statement]) -> Orders:
    """The orders in which folds, and what they are made of, go through what they read; the first reader's."""
    orders: Orders = {}
    for statement in reversed(statements):
        order = _folded_last(statement) or orders.get((statement.target.owner, statement.target.layout))
        if order:
            orders.update({(access.owner, access.layout): order for access in statement.reads()})
    return orders


def _order_of_what_it_reads(statement: Statement, made: Orders) -> Order:
    known = [made[key] for access in statement.reads() if (key := (access.owner, access.layout)) in made]
    return known[0] if known else _axes(statement)


def _axes(statement: Statement) -> Order:
    return tuple(range(len(statement.extents)))
