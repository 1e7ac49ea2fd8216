"""Loop nests: which statements of a pointwise kernel share one pass over the features.

Greedy loop fusion (Kennedy and McKinley 1993, without reordering): a statement joins the nest of its extents that is
furthest from the end without coming before anything it needs, if all that it shares with the statements there is the
same element; or, from the last statement to the first, the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod

from rnnops.compiler.ir.layouts import Layout
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.fold_order import folds_innermost
from rnnops.types import Shape


@dataclass
class Nest:
    """Statements in one nest of loops; axes of size 1 and the batch axis are gone from them."""

    extents: Shape
    statements: list[Statement] = field(default_factory=list)


def fuse_nests(statements: Sequence[Statement], folds_last: bool = False, large_apart: bool = False) -> list[Nest]:
    """Fuse the statements of a pointwise kernel into as few nests as order allows.

    Args:
        large_apart: whether statements over the most elements share no nest with some beyond a smaller one, and folds
            in memory start before all else, so that they join what makes their operands.
        folds_last: whether loops over folded axes are the innermost, so that folds are in registers; statements are
            then placed from the last to the first, so that what a fold reads is computed where it is folded.
    """
    own = [_within_row(statement) for statement in statements]
    own = folds_innermost(own) if folds_last else [_streaming(s) if s.form == "product" else s for s in own]
    local = [part for statement in own for part in _from_start(statement)]
    if large_apart:
        return [_collapsed(nest) for run in _runs(_starts_first(local)) for nest in _fused(run)]
    return [_collapsed(nest) for nest in _fused(local, folds_last)]


def _fused(parts: Sequence[Statement], folds_last: bool = False) -> list[Nest]:
    nests: list[_GrowingNest] = []
    for part in reversed(parts) if folds_last else parts:
        _place(nests, part)
    return [nest.finished(backwards=folds_last) for nest in (reversed(nests) if folds_last else nests)]


def _runs(parts: Sequence[Statement]) -> list[list[Statement]]:
    """Parts over as many elements as any, and those between them."""
    large = max((prod(part.extents) for part in parts), default=0)
    return [list(run) for _, run in groupby(parts, key=lambda part: prod(part.extents) >= large)]


def _within_row(statement: Statement) -> Statement:
    axes = tuple(a for a, size in enumerate(statement.extents) if size > 1 and a != statement.row_axis)
    own = replace(statement.moved(axes), row_axis=None)
    if own.form == "uniform":
        own = replace(own, operands=(*own.operands, int(statement.row_axis == 0)))
    return own


def _from_start(own: Statement) -> list[Statement]:
    """The statement with what a fold in memory starts from."""
    if own.fold and own.start is not None and own.folded_axes() and not is_register_fold(own):
        return [_start(own), replace(own, start=None)]
    return [own]


def _starts_first(parts: Sequence[Statement]) -> list[Statement]:
    """The parts with what fills memory with a number before all others, where none of these has touched it before."""
    first, others, touched = list[Statement](), list[Statement](), set[str]()
    for part in parts:
        fills = part.form == "copy" and not any(True for _ in part.reads()) and part.target.index is None
        (first if fills and part.target.owner not in touched else others).append(part)
        touched.update(access.owner for access in part.accesses())
    return [*first, *others]


def _streaming(statement: Statement) -> Statement:
    """A product as sums over columns, `c[j] += a[k] * b[k, j]`, where b lies row by row."""
    last = len(statement.extents) - 1
    if statement.folded_axes() != (last,) or last == 0:
        return statement
    strides = [o.layout.strides for o in statement.operands if isinstance(o, Access)]
    if statement.target.layout.strides[last - 1] == 1 and any(s[last - 1] == 1 and s[last] != 1 for s in strides):
        return statement.moved((*range(last - 1), last, last - 1))
    return statement


def is_register_fold(statement: Statement) -> bool:
    """Whether the folded axes are the innermost ones, so that the value fits a register."""
    folded = statement.folded_axes()
    count = len(statement.extents)
    in_order = folded == tuple(range(count - len(folded), count))
    return bool(statement.fold) and statement.target.index is None and in_order


def _start(statement: Statement) -> Statement:
    """Fill a fold's target with what it starts from."""
    kept = tuple(a for a in range(len(statement.extents)) if a not in statement.folded_axes())
    start = 0 if statement.start is None else statement.start
    filled = replace(statement, operands=(), fold="", start=None, form="copy").moved(kept)
    return replace(filled, operands=(start,))


class _GrowingNest:
    """A nest that statements join one after another, by what they write and touch."""

    def __init__(self, extents: Shape) -> None:
        self.extents = extents
        self.statements: list[Statement] = []
        self.writers: dict[str, list[Statement]] = {}
        self.touched: dict[str, list[Access]] = {}

    def join(self, statement: Statement) -> None:
        """Take a statement in."""
        self.statements.append(statement)
        self.writers.setdefault(statement.target.owner, []).append(statement)
        for access in statement.accesses():
            self.touched.setdefault(access.owner, []).append(access)

    def shared(self, statement: Statement) -> Iterator[tuple[Statement, Access]]:
        """What is written by one and touched by the other: the writer and the other's access."""
        for access in statement.accesses():
            for other in self.writers.get(access.owner, ()):
                if _overlap(access, other.target):
                    yield other, access
        for access in self.touched.get(statement.target.owner, ()):
            if _overlap(access, statement.target):
                yield statement, access

    def finished(self, backwards: bool) -> Nest:
        """The nest; its last statement joined first where they came backwards."""
        return Nest(self.extents, self.statements[::-1] if backwards else self.statements)


def _place(nests: list[_GrowingNest], statement: Statement) -> None:
    """Put a statement into a nest, or into one of its own, behind all (or before all) that are there."""
    best = None
    for nest in reversed(nests):
        if nest.extents == statement.extents and _shares_elements(nest, statement):
            best = nest
        if _conflicts(nest, statement):
            break
    if best is None:
        best = _GrowingNest(statement.extents)
        nests.append(best)
    best.join(statement)


def _conflicts(nest: _GrowingNest, statement: Statement) -> bool:
    """Whether the statement must come after the nest, or into it."""
    return any(True for _ in nest.shared(statement))


def _overlap(a: Access, b: Access) -> bool:
    """Whether two accesses to one owner may touch the same element: by the ranges of their numbers."""
    if a.index is not None or b.index is not None:
        return True
    (a_first, a_last), (b_first, b_last) = a.layout.span(), b.layout.span()
    return a_first <= b_last and b_first <= a_last


def _shares_elements(nest: _GrowingNest, statement: Statement) -> bool:
    """Whether everything that is written there or here and touched by the other is touched at the same element."""
    return all(_same_element(writer, access) for writer, access in nest.shared(statement))


def _same_element(writer: Statement, access: Access) -> bool:
    if writer.target.index is not None or access.index is not None or writer.folded_axes():
        return False
    return access.layout == writer.target.layout


def _collapsed(nest: Nest) -> Nest:
    """Join neighbouring loops that all memory runs through without a gap."""
    axis = len(nest.extents) - 2
    while axis >= 0:
        if all(_joins(s, axis) for s in nest.statements):
            nest = Nest(_joined_extents(nest.extents, axis), [joined_statement(s, axis) for s in nest.statements])
        axis -= 1
    return nest


def _joins(statement: Statement, axis: int) -> bool:
    size = statement.extents[axis + 1]
    folded = statement.folded_axes()
    if (axis in folded) != (axis + 1 in folded) or statement.form == "uniform":
        return False
    return all(access.layout.strides[axis] == access.layout.strides[axis + 1] * size for access in statement.accesses())


def _joined_extents(extents: Shape, axis: int) -> Shape:
    return (*extents[:axis], extents[axis] * extents[axis + 1], *extents[axis + 2 :])


def joined_statement(statement: Statement, axis: int) -> Statement:
    """The statement with an axis and the next one as one."""
    return replace(
        statement,
        extents=_joined_extents(statement.extents, axis),
        target=_joined_access(statement.target, axis),
        operands=tuple(_joined_access(o, axis) if isinstance(o, Access) else o for o in statement.operands),
    )


def _joined_access(access: Access, axis: int) -> Access:
    layout = access.layout
    strides = (*layout.strides[:axis], *layout.strides[axis + 1 :])
    joined = Layout(layout.offset, _joined_extents(layout.shape, axis), strides)
    return replace(access, layout=joined, index=None if access.index is None else _joined_access(access.index, axis))
