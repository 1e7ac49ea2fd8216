"""How the lanes of a block of CUDA threads share out a nest of loops.

All lanes take iterations of one axis, or teams of neighbouring lanes take iterations of one axis and the lanes of a
team those of another: one further in, or, where few features are summed over many rows, one further out. An axis may
be shared out where its iterations write to elements of their own, or gather in registers what lanes fold together
later. Of what is possible the cheapest is taken, by a count of accesses and waits: neighbouring lanes should touch
neighbouring numbers, and none should be idle. Limits: the count knows a block of `LANES` in teams of `MATES`, whatever
there are; two axes at most are shared out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.loop_nests import Nest, is_register_fold

LANES, MATES = 256, 32
SCATTERED = 4  # accesses to neighbouring numbers that cost as much as one where each lane is elsewhere
FOLD_OF_TEAM, FOLD_OF_ALL = 4, 6  # what a fold in shared memory costs, in accesses


@dataclass(frozen=True)
class Share:
    """Axes of a nest that are shared out.

    Args:
        lanes: the axis of which each lane, or each lane of a team, takes iterations; None where lane 0 alone writes.
        teams: the axis of which each team takes iterations; None where there is one of all lanes.
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
        """Who has parts of a register fold: `""` a lane by itself, `team`, `across` teams, or `all` lanes."""
        of_lanes, of_teams = (axis is not None and axis in statement.folded_axes() for axis in (self.lanes, self.teams))
        if of_lanes:
            return "team" if self.teams is not None and not of_teams else "all"
        return "across" if of_teams else ""


def share_lanes(nest: Nest) -> Share:
    """The cheapest way to share out a nest."""
    return min(_possible(nest), key=lambda share: _cost(nest, share), default=Share())


def cost_of_nest(nest: Nest, lanes: int = LANES, mates: int = MATES) -> int:
    """Accesses of a lane one after another, and what folds of lanes cost beside, shared out in the cheapest way."""
    alone = prod(nest.extents) * sum(1 for statement in nest.statements for _ in statement.accesses())
    return min((_cost(nest, share, lanes, mates) for share in _possible(nest)), default=alone)


def _possible(nest: Nest) -> Iterator[Share]:
    free = [axis for axis in range(len(nest.extents)) if all(stands_apart(s, axis) for s in nest.statements)]
    for axis in free:
        yield Share(axis)
        yield from (Share(axis, other) for other in free if other != axis)


def stands_apart(statement: Statement, axis: int) -> bool:
    """Whether iterations of an axis write to elements of their own, or into registers."""
    if is_register_fold(statement) and axis in statement.folded_axes():
        return True
    target = statement.target
    first, last = target.layout.span()
    if target.index is not None and (target.index.layout.strides[axis] != 0 or last - first >= target.index_step):
        return False  # an index that is met twice, or rows that overlap
    return statement.extents[axis] == 1 or target.layout.strides[axis] != 0


def _cost(nest: Nest, share: Share, lanes: int = LANES, mates: int = MATES) -> int:
    """Accesses one after another, and what folds of lanes cost beside."""
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
