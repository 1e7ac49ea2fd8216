"""PeepholeLSTMCell, an LSTM whose gates see the cell state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES, by_gate
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class PeepholeLSTMCell(LSTMCell):
    """LSTM with a weight from each unit's cell state to its own gates.

    The parts are in LSTM's order::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + peephole_f * c_prev + forget_bias) * c_prev + sigmoid(i + peephole_i * c_prev) * tanh(g)
        h = sigmoid(o + peephole_o * c) * tanh(c)

    Gers and Schmidhuber 2000, "Recurrent nets that time and count", IJCNN, in the form of Graves 2013, arXiv 1308.0850,
    equations 7 to 11.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros
    - `peephole_i [H]`, `peephole_f [H]`, `peephole_o [H]`: zeros, so that it starts as an LSTM

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.PeepholeLSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "peephole_lstm"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *(f"{self.name}/peephole_{gate}" for gate in "ifo")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * self.hidden_size)
        gates = step.labelled(self.gates(step, x, h_prev, extra), f"{self.name}/gates_t", self.memory_optimization)
        gate = by_gate(gates)
        see = {key: step.parameter(f"{self.name}/peephole_{key}", (self.hidden_size,), "zeros") for key in "ifo"}
        forget = sigmoid(gate["f"] + see["f"] * c_prev + self.forget_bias)
        c_t = forget * c_prev + sigmoid(gate["i"] + see["i"] * c_prev) * tanh(gate["g"])
        h_t = sigmoid(gate["o"] + see["o"] * c_t) * tanh(c_t)
        new = self.kept(step, [h_t, c_t], states)
        return new[0], new
