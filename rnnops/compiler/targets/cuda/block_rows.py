"""Pointwise kernels for a block of CUDA threads: the same nests, whose loops the lanes of the block share out.

Which loops, `share_lanes.py` says. A fold that lanes have parts of ends in shared memory: they fold together what each
has gathered, in one order, and one of them writes it. Where no loop can be shared out (scatters to places that
iterations may share), all lanes go through the nest, and lane 0 alone writes.

After each nest the block waits, so that the next one may read what any lane has written. Teams take as many iterations
each, so that all lanes come to each wait: in those past the end they do nothing. Limits: a nest without loops is done
by all lanes alike.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnops.compiler.codegen.pointwise_kernel import ONE, ZERO, PointwiseWriter
from rnnops.compiler.ir.device import LaneFold
from rnnops.compiler.ir.expressions import Call, Expr, Literal, Name, choice, compare, names_in
from rnnops.compiler.ir.kernel import Assign, Do, If, Parameter, Store
from rnnops.compiler.ir.statements import FOLDS, Statement
from rnnops.compiler.schedule.loop_nests import Nest
from rnnops.compiler.targets.cuda.share_lanes import Share, share_lanes
from rnnops.kernels.cuda.lanes import fold_name
from rnnops.types import BOOL, INTEGERS

LANE, LANES, MATE, MATES, TEAM, TEAMS = map(Name, ("lane", "lanes", "mate", "mates", "team", "teams"))
FOLDING = {  # who folds: the first of them, how far they are apart, a lane's place among them, how many they are
    "all": (ZERO, ONE, LANE, LANES),
    "team": (LANE - MATE, ONE, MATE, MATES),
    "across": (MATE, MATES, TEAM, TEAMS),
}
SYNC = Do("cuda.syncthreads")
TRUE = Literal(True, dtype="bool")
DTYPES = ("float32", "float64", *INTEGERS, BOOL)
SHARED = {  # what lanes fold in, by name; bools are bytes
    f"shared_{dtype}": Parameter(f"shared_{dtype}", "uint8[]" if dtype == BOOL else f"{dtype}[]") for dtype in DTYPES
}


class BlockPointwiseWriter(PointwiseWriter):
    """Writes the nests of one pointwise kernel for the lanes of a block; each lane calls it for the same row."""

    share: Share  # of the nest that is being written
    inside: Expr  # whether a team has an iteration of it

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.share, self.inside = self._shared(nest), TRUE
        self._scalars("lane", "lanes")
        super()._nest(nest, needed)
        self.lines.append(SYNC)

    def _range(self, nest: Nest, depth: int) -> tuple[Expr, Expr, Expr]:
        (first, last), share = self._bounds(nest, depth), self.share
        if depth not in (share.lanes, share.teams):
            return first, last, ONE
        if share.teams is None:
            own, count = self._scalars("lane", "lanes")
            return _after(first, own), last, count
        own, count = self._scalars("team", "teams") if depth == share.teams else self._scalars("mate", "mates")
        if depth == share.inner:
            return choice(self.inside, _after(first, own), last), last, count
        self.inside = Name(f"i{depth}") < last
        return _after(first, own), own + last, count

    def _shared(self, nest: Nest) -> Share:
        """How lanes share out a nest."""
        return share_lanes(nest)

    def _bounds(self, nest: Nest, depth: int) -> tuple[Expr, Expr]:
        """First and last, not included, of what a block does of a loop."""
        return ZERO, self._size(nest.extents[depth])

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        who = self.share.folds(statement)
        if who:
            name, dtype = self.accumulators[id(statement)], self.types[statement.target.owner].dtype
            arguments = (name, LANE, *FOLDING[who], self._scalar(f"shared_{dtype}"))
            self._scalars("lane", *sorted(set().union(*map(names_in, FOLDING[who]))))
            folded = Call(self._fold_of_lanes(statement), arguments, dtype=name.dtype)
            self.lines.append(Assign(name.name, folded))
        super()._finish_register(statement, depth, needed)

    def _fold_of_lanes(self, statement: Statement) -> str:
        """The function that folds what lanes have gathered, written beside the program where no module has it."""
        name: str = fold_name(statement.fold)
        if statement.fold not in FOLDS:
            name = f"{self.result.name}_fold_{len(self.result.folds)}"
            a, b = Name("a", dtype=statement.dtype), Name("b", dtype=statement.dtype)
            self.result.folds.append(LaneFold(name, self._combined(statement, a, b)))
        return name

    def _write(self, depth: int, line: Store) -> None:
        """A line that writes to memory, for one lane where several would write the same element."""
        share = self.share
        if share.inner is not None and depth > share.inner:
            super()._write(depth, line)
        elif share.outer is not None and depth > share.outer:
            alike = self._scalar("mate" if share.outer == share.teams else "team")
            self.lines.append(If(compare("==", alike, 0), (If(self.inside, (line,)),)))
        elif share.lanes is None and depth > 0:
            self.lines.append(If(compare("==", Name("lane"), 0), (line,)))
        else:  # all lanes have read before one writes, and read again after it
            self.lines += [SYNC, If(compare("==", Name("lane"), 0), (line,)), SYNC]

    def _scalars(self, *names: str) -> tuple[Name, ...]:
        return tuple(map(self._scalar, names))


def _after(first: Expr, place: Expr) -> Expr:
    return place if first == ZERO else first + place
