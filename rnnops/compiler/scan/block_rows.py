"""Row programs for a block of CUDA threads: the same nests, whose loops the lanes of the block share out.

Which loops, `share_lanes.py` says. A fold that lanes have parts of ends in shared memory: they fold together what each
has gathered, in one order, and one of them writes it. Where no loop can be shared out (scatters to places that
iterations may share), all lanes go through the nest, and lane 0 alone writes.

After each nest the block waits, so that the next one may read what any lane has written. Teams take as many iterations
each, so that all lanes come to each wait: in those past the end they do nothing. Limits: a nest without loops is done
by all lanes alike.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnops.compiler.scan.nests import Nest
from rnnops.compiler.scan.row_text import RowText, RowWriter
from rnnops.compiler.scan.share_lanes import Share, share_lanes
from rnnops.compiler.scan.statements import FOLDS, Statement
from rnnops.kernels.cuda.lanes import fold_name, fold_text

ALL, TEAM = ("lane", "lane", "lanes"), ("lane", "mate", "mates")


class BlockRowWriter(RowWriter):
    """Writes the nests of one row program for the lanes of a block; each lane calls it for the same row."""

    share: Share  # of the nest that is being written
    inside: str  # whether a team has an iteration of it

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.share, self.inside = share_lanes(nest), ""
        self._scalars("lane", "lanes")
        super()._nest(nest, needed)
        self._line(0, "cuda.syncthreads()")

    def _loop(self, nest: Nest, depth: int) -> str:
        size, teams = self._size(nest.extents[depth]), self.share.teams
        if depth == teams:
            self._scalars("team", "teams")
            self.inside = f"i{depth} < {size}"
            return f"for i{depth} in range(team, team + {size}, teams):"
        if depth == self.share.lanes:
            if teams is None:
                return f"for i{depth} in range(lane, {size}, lanes):"
            self._scalars("mate", "mates")
            return f"for i{depth} in range(mate if {self.inside} else {size}, {size}, mates):"
        return super()._loop(nest, depth)

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        who = self.share.folds(statement)
        if who:
            name, dtype = self.accumulators[id(statement)], self.types[statement.target.owner].dtype
            lanes = ", ".join(self._scalars(*(TEAM if who == "team" else ALL)))
            self._line(depth, f"{name} = {self._fold_of_lanes(statement)}({name}, {lanes}, shared_{dtype})")
            self._scalar(f"shared_{dtype}")
        super()._finish_register(statement, depth, needed)

    def _fold_of_lanes(self, statement: Statement) -> str:
        """The function that folds what lanes have gathered, written beside the program where no module has it."""
        name: str = fold_name(statement.fold)
        if statement.fold not in FOLDS:
            name = f"{self.result.name}_fold_{len(self.result.functions)}"
            self.result.functions.append(fold_text(name, self._combined(statement, "a", "b")))
        return name

    def _write(self, depth: int, text: str) -> None:
        """A line that writes to memory, for one lane where several would write the same element."""
        lanes, teams = self.share.lanes, self.share.teams
        if lanes is not None and depth > lanes:
            super()._write(depth, text)
        elif teams is not None and depth > teams:
            self._line(depth, f"if mate == 0 and {self.inside}:")
            self._line(depth + 1, text)
        elif lanes is None and depth > 0:
            self._line(depth, "if lane == 0:")
            self._line(depth + 1, text)
        else:  # all lanes have read before one writes, and read again after it
            self._line(depth, "cuda.syncthreads()")
            self._line(depth, "if lane == 0:")
            self._line(depth + 1, text)
            self._line(depth, "cuda.syncthreads()")

    def _scalars(self, *names: str) -> tuple[str, ...]:
        return tuple(map(self._scalar, names))


def block_program(program: RowText) -> str:
    """The text of a row program that a kernel calls."""
    return "\n\n\n".join([*program.functions, program.text("device_function")])
