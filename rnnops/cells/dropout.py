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
    """Inverted dropout on the output of a cell, in training only; never on its recurrent connection.

    In training an element of the output is 0 with the probability `ratio`, and else it is multiplied by `1 / (1 -
    ratio)`; states stay as they are. Which ones are zero depends on the seed of the run, and differs from step to step.

    Its name, states and parameters are those of the cell inside.

    Args:
        cell: the cell inside.
        ratio: from 0 up to but not 1; None or 0 switches it off, as does `forward_only` of the cell.

    Raises:
        NetError: ratio is out of range, or cell is no cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.DropoutCell(ro.cells.GRUCell(3, 4), 0.5)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(100, 20, 3)))
        >>> net.outputs(y=y)
        >>> run = ro.compile(net, device="reference")
        >>> out = run(ro.init_params(net, 0), x=np.ones((100, 20, 3), "float32"), seed=0, training=True)
        >>> round(float((out["y"] == 0).mean()), 2)
        0.5
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
