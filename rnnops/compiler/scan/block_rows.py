"""Row programs for a block of CUDA threads: the same nests, whose outermost loops the lanes of the block share out.

Three kinds of work in a nest:

- iterations of the outermost loop are independent: lane l takes l, l + lanes, ...;
- a fold that begins at the outermost loop: each lane folds its share, then all lanes fold their results in one order;
- what is joined with memory at places that iterations may share (scatters, folds over an outer axis): all lanes go
  through the loop, and lane 0 alone writes.

After each nest the block waits, so that the next one may read what any lane has written. Limits: nests of the third
kind take as long as one lane does; a nest without loops is done by all lanes alike.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnops.compiler.scan.nests import Nest, is_register_fold
from rnnops.compiler.scan.row_text import RowText, RowWriter
from rnnops.compiler.scan.statements import Statement
from rnnops.kernels.cuda.lanes import fold_name

BLOCK = ("lane", "lanes")


class BlockRowWriter(RowWriter):
    """Writes the nests of one row program for the lanes of a block; each lane calls it for the same row."""

    together: bool  # whether lanes share out the outermost loop of the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.together = _independent(nest)
        for name in BLOCK:
            self._scalar(name)
        super()._nest(nest, needed)
        self._line(0, "cuda.syncthreads()")

    def _loop(self, nest: Nest, depth: int) -> str:
        if depth == 0 and self.together:
            return f"for i0 in range(lane, {self._size(nest.extents[0])}, lanes):"
        return super()._loop(nest, depth)

    def _finish_register(self, statement: Statement, depth: int, needed: Collection[str]) -> None:
        if depth == 0 and self.together:
            name, dtype = self.accumulators[id(statement)], self.types[statement.target.owner].dtype
            self._line(depth, f"{name} = {fold_name(statement.fold)}({name}, lane, lanes, shared_{dtype})")
            self._scalar(f"shared_{dtype}")
        super()._finish_register(statement, depth, needed)

    def _write(self, depth: int, text: str) -> None:
        """A line that writes to memory, for lane 0 where all lanes would write the same element."""
        if self.together and depth > 0:
            super()._write(depth, text)
            return
        if depth == 0:  # where nothing is in a loop, all lanes have read before one writes, and read again after it
            self._line(depth, "cuda.syncthreads()")
        self._line(depth, "if lane == 0:")
        self._line(depth + 1, text)
        if depth == 0:
            self._line(depth, "cuda.syncthreads()")


def _independent(nest: Nest) -> bool:
    """Whether iterations of the outermost loop write to elements of their own, but for folds in registers."""
    return bool(nest.extents) and all(_writes_apart(statement) for statement in nest.statements)


def _writes_apart(statement: Statement) -> bool:
    if statement.target.index is not None:
        return False
    if is_register_fold(statement) and 0 in statement.folded_axes():
        return True
    return statement.extents[0] == 1 or statement.target.layout.strides[0] != 0


def block_program(program: RowText) -> str:
    """The text of a row program that a kernel calls."""
    return program.text().replace("@row_program", "@device_function", 1)
