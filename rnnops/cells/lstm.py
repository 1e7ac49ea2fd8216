"""LSTMCell, the long short-term memory that others here are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES, by_gate
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class LSTMCell(SizedCell):
    """Long short-term memory with a forget gate.

    The parts of the gates are in this order, i, f, o, g::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Hochreiter and Schmidhuber 1997, "Long short-term memory", Neural Computation 9(8); the forget gate: Gers,
    Schmidhuber and Cummins 2000, "Learning to forget", Neural Computation 12(10).

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f; `rnnops train` gives 1.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> x, lengths = net.input("x", shape=(7, 2, 3)), net.input("lengths", "int32", shape=(2,))
        >>> cell = ro.cells.LSTMCell(3, 4, forget_bias=1.0)
        >>> y, (h_all, h_last, c_all, c_last) = cell.apply_over_sequence(net, x, lengths)
        >>> y.shape, c_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "lstm"
    training_options: ClassVar[Mapping[str, Any]] = {"forget_bias": 1.0}  # gradients reach back further at once

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/hidden_t", f"{self.name}/cell_t"]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/gates_t_w", f"{self.name}/gates_t_b"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * self.hidden_size)
        gates = self.gates(step, x, h_prev, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        gate = by_gate(self.normalized(step, gates))
        forget = gate["f"] + self.forget_bias if self.forget_bias else gate["f"]
        c_t = sigmoid(forget) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = sigmoid(gate["o"]) * tanh(c_t)
        new = [step.masked(h_t, h_prev, self.drop_states), step.masked(c_t, c_prev, self.drop_states)]
        return new[0], new

    def gates(self, step: Step, x: Blob, h_prev: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        """All four gates before their nonlinearity, [N, 4H]; for subclasses.

        Args:
            step: what is written.
            x: [N, 4H], the projected input.
            h_prev: [N, H].
            extra: (blob, feature size) that the recurrent product reads beside it.
        """
        return x + step.linear(h_prev, f"{self.name}/gates_t", self.hidden_size, len(GATES) * self.hidden_size, extra)

    def normalized(self, step: Step, gates: Blob) -> Blob:
        """A hook between the gates and their nonlinearity; for subclasses.

        Args:
            step: what is written.
            gates: [N, 4H].
        """
        return gates
