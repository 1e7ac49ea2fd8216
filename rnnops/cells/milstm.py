"""MILSTMCell, an LSTM whose gates multiply their two projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell


@register_cell
class MILSTMCell(LSTMCell):
    """LSTM with multiplicative integration: its gates multiply the two projections.

    The parts are in LSTM's order::

        a = x @ i2h_w.T + i2h_b
        p = h_prev @ prev_t_w.T + prev_t_b
        i, f, o, g = split((alpha * a + beta1) * p + beta2 * a + b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Wu and others 2016, "On multiplicative integration with recurrent neural networks", arXiv 1606.06630, in its general
    form.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `prev_t_w [4H, H]`: xavier
    - `alpha [4H]`, `beta1 [4H]`, `beta2 [4H]`: ones
    - `i2h_b [4H]`, `prev_t_b [4H]`, `b [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MILSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "milstm"

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("prev_t_w", "prev_t_b", "alpha", "beta1", "beta2", "b")]

    def gates(self, step: Step, x: Blob, h_prev: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        size = len(GATES) * self.hidden_size
        p = step.linear(h_prev, f"{self.name}/prev_t", self.hidden_size, size, extra)
        alpha, beta1, beta2 = (
            step.parameter(f"{self.name}/{name}", (size,), "ones") for name in ("alpha", "beta1", "beta2")
        )
        return (alpha * x + beta1) * p + (beta2 * x + step.parameter(f"{self.name}/b", (size,), "zeros"))
