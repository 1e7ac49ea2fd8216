"""How the lanes of a block, and the blocks of a group, share out a loop nest.

**How the lanes of a block of CUDA threads share out a nest of loops**. Either all lanes take iterations of one axis, or
teams of neighbouring lanes do, and the lanes of a team share out another axis. That axis is further in, or, if few
features are summed over many rows, further out. An axis may be shared out if its iterations write to elements of their
own, or gather in registers what lanes fold together later. The cheapest way is taken, by a count of accesses and waits:
neighbouring lanes should touch neighbouring numbers, and none should be idle. Limits: the count assumes a block of
`LANES` in teams of `MATES`, and at most two axes are shared out.

**Nests of a row that several blocks of a group share out**: the work of each block, and the owner of each element.
There are three ways. Each block of the row takes a part of one axis of a nest (the positions of an encoder, the
features of a context). Or all blocks do the whole nest, each for itself, in memory of its own. Or only the first block
does it. Element `e` of a nest in parts belongs to the part that has `e // width % size` of the axis.

**Lanes count through all elements of a tile** and need the column, row and step of each. Dividing numbers of 64 bits
takes a device some hundred instructions, for which elementwise work would wait. Numbers of rows and steps have 32 bits
and are divided. Numbers of elements may have more, so that columns and rows are counted on by a stride instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

from rnnops.compiler.lower import kernel as ir
from rnnops.compiler.lower.expressions import INDEX, Expr, Literal, Name, ScalarCall, choice, compare, most
from rnnops.compiler.lower.statements import Access, Statement
from rnnops.compiler.schedule.loop_nests import Nest, is_register_fold

LANES, MATES = 256, 32
SCATTERED = 4  # accesses to neighbouring numbers that cost as much as one to distant numbers
FOLD_OF_TEAM, FOLD_OF_ALL = 4, 6  # the cost of a fold in shared memory, in accesses


@dataclass(frozen=True)
class Share:
    """Axes of a nest that are shared out.

    Args:
        lanes: the axis whose iterations lanes, or lanes of a team, share; None if only lane 0 writes.
        teams: the axis whose iterations teams share; None if all lanes are one team.
    """

    lanes: int | None = None
    teams: int | None = None

    @property
    def outer(self) -> int | None:
        """The axis of the two that is further out."""
        return self.lanes if self.lanes is None or self.teams is None else min(self.lanes, self.teams)

    @property
    def inner(self) -> int | None:
        """The axis of the two that is further in."""
        return self.lanes if self.lanes is None or self.teams is None else max(self.lanes, self.teams)

    def folds(self, statement: Statement) -> str:
        """The lanes that have parts of a register fold: `team`, `across` teams, `all`, or `""` for a single lane."""
        of_lanes, of_teams = (axis is not None and axis in statement.folded_axes() for axis in (self.lanes, self.teams))
        if of_lanes:
            return "team" if self.teams is not None and not of_teams else "all"
        return "across" if of_teams else ""


def share_lanes(nest: Nest) -> Share:
    """The cheapest way to share out a nest."""
    return min(_possible(nest), key=lambda share: _cost(nest, share), default=Share())


def cost_of_nest(nest: Nest, lanes: int = LANES, mates: int = MATES) -> int:
    """The cost of a nest that is shared out in the cheapest way: accesses of a lane, and folds over lanes."""
    alone = prod(nest.extents) * sum(1 for statement in nest.statements for _ in statement.accesses())
    return min((_cost(nest, share, lanes, mates) for share in _possible(nest)), default=alone)


def _possible(nest: Nest) -> Iterator[Share]:
    free = [axis for axis in range(len(nest.extents)) if all(stands_apart(s, axis) for s in nest.statements)]
    for axis in free:
        yield Share(axis)
        yield from (Share(axis, other) for other in free if other != axis)


def stands_apart(statement: Statement, axis: int) -> bool:
    """True if iterations of an axis write to elements of their own, or into registers."""
    if is_register_fold(statement) and axis in statement.folded_axes():
        return True
    target = statement.target
    first, last = target.layout.span
    if target.index is not None and (target.index.layout.strides[axis] != 0 or last - first >= target.index_step):
        return False  # an index may come twice, or rows may overlap
    return statement.extents[axis] == 1 or target.layout.strides[axis] != 0


def _cost(nest: Nest, share: Share, lanes: int = LANES, mates: int = MATES) -> int:
    """Accesses of a lane, one after another, and the cost of folds over lanes."""
    assert share.lanes is not None
    together = {share.lanes: lanes} if share.teams is None else {share.lanes: mates, share.teams: lanes // mates}
    rounds = [-(-size // together.get(axis, 1)) for axis, size in enumerate(nest.extents)]
    strides = [access.layout.strides[share.lanes] for s in nest.statements for access in s.accesses()]
    cost = prod(rounds) * sum(1 if stride in (0, 1) else SCATTERED for stride in strides)
    for statement in filter(is_register_fold, nest.statements):
        who = share.folds(statement)
        if who:
            each = FOLD_OF_ALL if who == "all" else FOLD_OF_TEAM
            cost += each * prod(rounds[: min(statement.folded_axes())])
    return cost


EVERY, FIRST = -1, -2  # in place of an axis: each part does the whole nest, or only the first part does it


@dataclass(frozen=True)
class RowNest:
    """A nest of a row, and its share of each part.

    Args:
        axis: the axis whose iterations parts share; or `EVERY` or `FIRST`.
    """

    nest: Nest
    axis: int

    @property
    def size(self) -> int:
        """The size of the axis that parts share out."""
        return self.nest.extents[self.axis]

    def part(self, parts: int) -> Nest:
        """The nest with the extents that one of so many parts has, for counts of work."""
        sizes = (-(-n // parts) if axis == self.axis else n for axis, n in enumerate(self.nest.extents))
        return Nest(tuple(sizes), self.nest.statements)

    def accesses(self) -> Iterator[tuple[Access, bool]]:
        """All accesses to memory; True for those that write."""
        for statement in self.nest.statements:
            for access in statement.accesses():
                yield access, access is statement.target


@dataclass(frozen=True)
class PartShare:
    """Elements that parts share out: `width` numbers for each position of an axis of `size`, again and again."""

    width: int
    size: int


@dataclass(frozen=True)
class OtherShare:
    """Elements that only the first part of a row touches, or that any part may touch."""

    first: bool


WHOLE_ROW, FIRST_PART = OtherShare(False), OtherShare(True)
RowShare = PartShare | OtherShare


def shares_of_parts(nests: Sequence[RowNest], private: Collection[str]) -> Mapping[str, tuple[RowShare, bool]]:
    """Owner -> the share of it that parts touch, and whether they write it. Owners in `private` are left out."""
    found: dict[str, tuple[RowShare, bool]] = {}
    for one in nests:
        for access, writes in one.accesses():
            if access.owner in private:
                continue
            share = _share(one, access, writes)
            before = found.get(access.owner, (share, writes))
            found[access.owner] = share if share == before[0] else WHOLE_ROW, writes or before[1]
    return found


def spans_of_parts(nests: Sequence[RowNest]) -> Mapping[str, tuple[int, int]]:
    """Owner -> the first and last element of a row that nests touch. Owners with an index are left out."""
    found: dict[str, tuple[int, int]] = {}
    indexed = {access.owner for one in nests for access, _ in one.accesses() if access.index is not None}
    for one in nests:
        for access, _ in one.accesses():
            first, last = access.layout.span
            before = found.get(access.owner, (first, last))
            found[access.owner] = min(first, before[0]), max(last, before[1])
    return {owner: span for owner, span in found.items() if owner not in indexed}


def _share(one: RowNest, access: Access, writes: bool) -> RowShare:
    if one.axis == FIRST or (one.axis == EVERY and writes):  # all compute it, the first part writes it
        return FIRST_PART
    if one.axis == EVERY:
        return WHOLE_ROW
    width = access.layout.strides[one.axis]
    return PartShare(width, one.size) if _lies_by_parts(access, one.axis) else WHOLE_ROW


def _lies_by_parts(access: Access, axis: int) -> bool:
    """True if the position along an axis tells which part an element belongs to."""
    layout = access.layout
    width, size = layout.strides[axis], layout.shape[axis]
    if access.index is not None or width <= 0 or layout.offset % width:
        return False
    others = [(stride, n) for i, (stride, n) in enumerate(zip(layout.strides, layout.shape, strict=True)) if i != axis]
    inside = [(stride, n) for stride, n in others if 0 < stride < width]
    across = [stride for stride, _ in others if stride >= width]
    reach = sum(stride * (n - 1) for stride, n in inside)
    starts = layout.offset % (width * size) == 0
    return starts and reach < width and all(stride % (width * size) == 0 for stride in across)


def owners_written(nests: Sequence[RowNest], axes: Collection[int] | None = None) -> frozenset[str]:
    """Owners that nests write.

    Args:
        axes: only of these nests.
    """
    chosen = (one.nest.statements for one in nests if axes is None or one.axis in axes)
    return frozenset(statement.target.owner for statement in chain.from_iterable(chosen))


U, ROW, ONE = Name("u"), Name("row"), Literal(1)


def quotient(a: Expr, b: Expr) -> Expr:
    """`a // b` for numbers of 32 bits."""
    return ScalarCall("quotient", (a, b), dtype=INDEX)


def remainder(a: Expr, b: Expr) -> Expr:
    """`a % b` for numbers of 32 bits."""
    return ScalarCall("remainder", (a, b), dtype=INDEX)


def step_and_row(row: Expr, rows: Expr) -> list[ir.Statement]:
    """Statements that set the step, and the row of the batch, of a row number among all steps."""
    return [ir.Assign("n", remainder(row, rows)), ir.Assign("step", quotient(row, rows))]


def columns_and_rows(first: Expr, stride: Expr, columns: Expr) -> tuple[list[ir.Statement], list[ir.Statement]]:
    """Statements before a loop that set column and row of its first element, and others that go on by a stride.

    Args:
        columns: of a row; if there are none, the loop has no rounds.
    """
    some, over = most(columns, ONE), compare(">=", U, columns)
    rows_on, columns_on = Name("rows_on"), Name("columns_on")
    before = [ir.Assign("row", first // some), ir.Assign("u", first - ROW * some)]
    before += [ir.Assign("rows_on", stride // some), ir.Assign("columns_on", stride - rows_on * some)]
    after = [ir.Assign("u", U + columns_on), ir.Assign("row", choice(over, ROW + rows_on + ONE, ROW + rows_on))]
    return [*before], [*after, ir.Assign("u", choice(over, U - columns, U))]
