"""DropoutCell: dropout on a cell's output, never on its recurrent connection."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.cells.base import RNNCell
from rnnops.cells.step import Step
from rnnops.cells.wrapper import WrapperCell
from rnnops.errors import NetError
from rnnops.ops.random import dropout


class DropoutCell(WrapperCell):
    """Inverted dropout on the output of a cell, active in training only.

    Args:
        cell: the cell inside.
        ratio: probability of zero, from 0 up to but not 1; None or 0 switches it off.
    """

    def __init__(self, cell: RNNCell, ratio: float | None) -> None:
        super().__init__(cell)
        if ratio is not None and not (isinstance(ratio, int | float) and 0 <= ratio < 1):
            raise NetError("a ratio out of range", blob=self.name, wanted="0 <= ratio < 1 or None", came=repr(ratio))
        self.ratio = ratio

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        output, new = self.cell.step(step, x_t, states, extra)
        return (dropout(output, self.ratio) if self.ratio and not self.forward_only else output), new
