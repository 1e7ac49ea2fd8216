"""ZoneoutCell: states that stay what they were by chance."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.cells.base import RNNCell
from rnnops.cells.step import Step
from rnnops.cells.wrapper import WrapperCell
from rnnops.errors import NetError
from rnnops.ops.random import dropout


class ZoneoutCell(WrapperCell):
    """In training each number of a state stays what it was with a probability; else it goes so far on the average.

    With a new state h of the cell inside, and a random mask of ones with the probability `1 - rate`::

        h = h_prev + mask * (h - h_prev)          # in training
        h = h_prev + (1 - rate) * (h - h_prev)    # else, and for a cell that is forward_only

    What a step of the cell inside computes from another new state (an LSTM its hidden state from its cell state), it
    computes before that is zoned out, as in the paper. Where the output is a state, it is the state zoned out.

    Krueger and others 2016, "Zoneout", arXiv 1606.01305, section 3. Its name, states and parameters are those of the
    cell inside.

    Args:
        cell: the cell inside.
        rates: probability of staying, from 0 to 1, of all states, or a list with one of each.

    Raises:
        NetError: rates are out of range or of another number, or cell is no cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ZoneoutCell(ro.cells.LSTMCell(3, 4), [0.05, 0.5])  # hidden, cell
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    def __init__(self, cell: RNNCell, rates: float | Sequence[float]) -> None:
        super().__init__(cell)
        count = len(cell.get_state_names())
        self.rates: list[float] = [*rates] if isinstance(rates, Sequence) else [rates] * count
        if len(self.rates) != count or not all(isinstance(r, int | float) and 0 <= r <= 1 for r in self.rates):
            wanted = f"a probability, or {count}, one of each state"
            raise NetError("rates of zoneout out of range", blob=self.name, wanted=wanted, came=repr(rates))

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        output, new = self.cell.step(step, x_t, states, extra)
        zoned = [self._zoned(step, a, b, rate) for a, b, rate in zip(new, states, self.rates, strict=True)]
        for before, after in zip(new, zoned, strict=True):
            output = after if before is output else output
        return output, zoned

    def _zoned(self, step: Step, new: Blob, previous: Blob, rate: float) -> Blob:
        """`previous + (1 - rate) dropout(new - previous)`, which is one of both in training, and their mean else."""
        if rate == 0:
            return new
        change = new - previous
        if rate < 1 and not self.forward_only:
            change = dropout(change, rate)
        return step.masked(previous + (1.0 - rate) * change, previous, getattr(self.cell, "drop_states", False))
