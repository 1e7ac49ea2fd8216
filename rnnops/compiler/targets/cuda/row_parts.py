"""Nests of a row that several blocks of a group share out: what each of them does, and whose each element is.

Of the blocks that have a row, each takes a part of one axis of a nest (the positions of an encoder, the features of a
context), or all do the whole nest, each for itself, in memory of its own, or the first one does it alone. Element `e`
of what parts write belongs to the part that has `e // width % size` of the axis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rnnops.compiler.ir.statements import Access
from rnnops.compiler.schedule.loop_nests import Nest

EVERY, FIRST = -1, -2  # for an axis: each part does all of a nest, the first part alone does it


@dataclass(frozen=True)
class RowNest:
    """A nest of a row, and who does it.

    Args:
        axis: of which each part takes some, `EVERY` or `FIRST`.
    """

    nest: Nest
    axis: int

    @property
    def size(self) -> int:
        """Of the axis that parts share out."""
        return self.nest.extents[self.axis]

    def part(self, parts: int) -> Nest:
        """The nest as one of so many parts has it, for counts of work."""
        sizes = (-(-n // parts) if axis == self.axis else n for axis, n in enumerate(self.nest.extents))
        return Nest(tuple(sizes), self.nest.statements)

    def accesses(self) -> Iterator[tuple[Access, bool]]:
        """All memory it touches, and whether it is written."""
        for statement in self.nest.statements:
            for access in statement.accesses():
                yield access, access is statement.target


@dataclass(frozen=True)
class PartShare:
    """Elements that belong to parts: of what lies `width` numbers for each of `size`, over and over."""

    width: int
    size: int


@dataclass(frozen=True)
class OtherShare:
    """Elements that only the first part of a row touches, or any."""

    first: bool


WHOLE_ROW, FIRST_PART = OtherShare(False), OtherShare(True)
Share = PartShare | OtherShare


def shares_of_parts(nests: Sequence[RowNest], private: Collection[str]) -> Mapping[str, tuple[Share, bool]]:
    """How each owner is touched that parts do not have for themselves: by whom, and whether it is written."""
    found: dict[str, tuple[Share, bool]] = {}
    for one in nests:
        for access, writes in one.accesses():
            if access.owner in private:
                continue
            share = _share(one, access, writes)
            before = found.get(access.owner, (share, writes))
            found[access.owner] = share if share == before[0] else WHOLE_ROW, writes or before[1]
    return found


def spans_of_parts(nests: Sequence[RowNest]) -> Mapping[str, tuple[int, int]]:
    """The first and the last element of a row that nests touch of each owner, where no index says more."""
    found: dict[str, tuple[int, int]] = {}
    indexed = {access.owner for one in nests for access, _ in one.accesses() if access.index is not None}
    for one in nests:
        for access, _ in one.accesses():
            first, last = access.layout.span()
            before = found.get(access.owner, (first, last))
            found[access.owner] = min(first, before[0]), max(last, before[1])
    return {owner: span for owner, span in found.items() if owner not in indexed}


def _share(one: RowNest, access: Access, writes: bool) -> Share:
    if one.axis == FIRST or (one.axis == EVERY and writes):  # of what all know, the first part tells others
        return FIRST_PART
    if one.axis == EVERY:
        return WHOLE_ROW
    width = access.layout.strides[one.axis]
    return PartShare(width, one.size) if _lies_by_parts(access, one.axis) else WHOLE_ROW


def _lies_by_parts(access: Access, axis: int) -> bool:
    """Whether the position along an axis says whose an element is."""
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
        axes: of these nests alone.
    """
    chosen = (one.nest.statements for one in nests if axes is None or one.axis in axes)
    return frozenset(statement.target.owner for statement in chain.from_iterable(chosen))
