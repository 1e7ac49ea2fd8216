"""BasicRNNCell, the plain recurrent cell, and the activations of such cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import relu, tanh

ACTIVATIONS = {"tanh": tanh, "relu": relu}


@register_cell
class BasicRNNCell(SizedCell):
    """The plain recurrent cell.

    It computes::

        h = activation(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b)

    Elman 1990, "Finding structure in time", Cognitive Science 14(2).

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [H, H]`: xavier
    - `i2h_b [H]`, `gates_t_b [H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: not read; there is no gate.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.
        activation: `"tanh"` or `"relu"`.

    Raises:
        NetError: another activation, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.BasicRNNCell(3, 4, activation="relu")
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "basic_rnn"

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "tanh", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.activation = activation_of(activation, self.name)

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/gates_t_w", f"{self.name}/gates_t_b"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,) = states
        x = step.linear(x_t, self.input_name, self.input_size, self.hidden_size)
        gates = x + step.linear(h_prev, f"{self.name}/gates_t", self.hidden_size, self.hidden_size, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        h_t = step.masked(self.activation(gates), h_prev, self.drop_states)
        return h_t, [h_t]


def activation_of(name: object, cell: str) -> Callable[[Blob], Blob]:
    """The function of an activation's name. Raises NetError for an unknown one."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise NetError("unknown activation", blob=cell, wanted=" or ".join(ACTIVATIONS), came=name)
    return ACTIVATIONS[name]
