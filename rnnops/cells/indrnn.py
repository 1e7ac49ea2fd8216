"""IndRNNCell, whose units see each their own state alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.basic_rnn import activation_of
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell


@register_cell
class IndRNNCell(SizedCell):
    """A recurrent cell whose units see each their own state alone.

    It computes::

        h = activation(x @ i2h_w.T + i2h_b + recurrent_w * h_prev)

    Li and others 2018, "Independently recurrent neural network", arXiv 1803.04831, equation 2.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`: xavier
    - `i2h_b [H]`: zeros
    - `recurrent_w [H]`: uniform in [0, 1], as in section 4.1

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        activation: `"relu"` or `"tanh"`.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: another activation, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.IndRNNCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "indrnn"

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "relu", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.activation = activation_of(activation, self.name)

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/recurrent_w"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,) = states
        (x,) = self.projected(step, x_t, 1, extra=extra)
        recurrent = step.parameter(f"{self.name}/recurrent_w", (self.hidden_size,), ("uniform", 0.0, 1.0))
        gates = step.labelled(x + recurrent * h_prev, f"{self.name}/gates_t", self.memory_optimization)
        new = self.kept(step, [self.activation(gates)], states)
        return new[0], new
