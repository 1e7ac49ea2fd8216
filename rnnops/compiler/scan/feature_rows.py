"""Row programs for single features: the same nests, each lane of a CUDA device going through those of its own feature.

A lane calls the function for a row and a feature `u`, and does all nests of the program for it, one after another,
without a look at any other lane. Loops along the axis of features take `u, u + P, u + 2P, ...`. What a row has but one
number of is computed by all lanes alike, and written by the one of feature 0.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnops.compiler.scan.nests import Nest
from rnnops.compiler.scan.row_text import RowWriter
from rnnops.compiler.scan.unit_periods import feature_axis


class FeatureRowWriter(RowWriter):
    """Writes a row program whose features stand by themselves (`by_features`)."""

    period: int  # of features
    written: Collection[str]  # owners that the program writes
    axis: int | None  # of the nest that is being written

    def _nest(self, nest: Nest, needed: Collection[str]) -> None:
        self.axis = feature_axis(nest, self.written, self.period)
        self._scalar("u")
        super()._nest(nest, needed)

    def _loop(self, nest: Nest, depth: int) -> str:
        if depth != self.axis:
            return super()._loop(nest, depth)
        size = nest.extents[depth]
        last = "u + 1" if size == self.period else self._size(size)
        step = "" if size == self.period else f", {self._size(self.period)}"
        return f"for i{depth} in range(u, {last}{step}):"

    def _write(self, depth: int, text: str) -> None:
        if depth > 0:
            super()._write(depth, text)
            return
        self._line(depth, "if u == 0:")
        self._line(depth + 1, text)
