"""ProjectedLSTMCell, an LSTM whose hidden state is a projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES, by_gate
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.sized import count_of
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class ProjectedLSTMCell(LSTMCell):
    """LSTM whose hidden state, its output, has fewer features than its cell state.

    The parts are in LSTM's order; gates read the smaller `h_prev`::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = (sigmoid(o) * tanh(c)) @ projection_w.T

    Sak, Senior and Beaufays 2014, arXiv 1402.1128, LSTMP of section 2, without its second, non-recurrent projection,
    which a layer after the cell can be; as `torch.nn.LSTM(proj_size=P)`.

    States:

    - `hidden_t [N, P]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, P]`, `projection_w [P, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        proj_size: P, features of the hidden state; left out, half of H, rounded up.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: hidden_size or proj_size is no size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ProjectedLSTMCell(3, 8, proj_size=2)
        >>> y, (h_all, h_last, c_all, c_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, c_all.shape
        ((7, 2, 2), (7, 2, 8))
    """

    default_name: ClassVar[str] = "projected_lstm"

    def __init__(self, input_size: int, hidden_size: int, *, proj_size: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        half = (count_of(hidden_size, "hidden_size", self.name) + 1) // 2
        self.proj_size = half if proj_size is None else count_of(proj_size, "proj_size", self.name)

    def get_state_dims(self) -> list[int]:
        return [self.proj_size, self.hidden_size]

    def get_output_dim(self) -> int:
        return self.proj_size

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), f"{self.name}/projection_w"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev = states
        H, P = self.hidden_size, self.proj_size
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * H)
        gates = x + step.linear(h_prev, f"{self.name}/gates_t", P, len(GATES) * H, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        gate = by_gate(gates)
        c_t = sigmoid(gate["f"] + self.forget_bias) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = step.product(sigmoid(gate["o"]) * tanh(c_t), f"{self.name}/projection", H, P)
        new = self.kept(step, [h_t, c_t], states)
        return new[0], new
