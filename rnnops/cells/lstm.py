"""Long short-term memory (Hochreiter and Schmidhuber 1997, forget gate of Gers and others 2000).

With the gates in the order of `GATES`: `c = s(f + forget_bias) c' + s(i) tanh(g)`, `h = s(o) tanh(c)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split


@register_cell
class LSTMCell(SizedCell):
    """A cell with a hidden and a cell state.

    Args:
        input_size: D; hidden_size: H.
        forget_bias: added to the forget gate before its sigmoid.
        memory_optimization: gates are computed again on the backward pass; only the two states are stored.
        drop_states: states are zero past a row's end, instead of what they were.
        name: absolute prefix of parameter names.

    Parameters: `i2h_w [4H, D]`, `i2h_b [4H]`, `gates_t_w [4H, H]`, `gates_t_b [4H]`.
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
        gate = dict(zip(GATES, split(self.normalized(step, gates), len(GATES), axis=-1), strict=True))
        forget = gate["f"] + self.forget_bias if self.forget_bias else gate["f"]
        c_t = sigmoid(forget) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = sigmoid(gate["o"]) * tanh(c_t)
        new = [step.masked(h_t, h_prev, self.drop_states), step.masked(c_t, c_prev, self.drop_states)]
        return new[0], new

    def gates(self, step: Step, x: Blob, h_prev: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        """All four gates before their nonlinearity, `[N, 4H]`, from the projected input."""
        return x + step.linear(h_prev, f"{self.name}/gates_t", self.hidden_size, len(GATES) * self.hidden_size, extra)

    def normalized(self, step: Step, gates: Blob) -> Blob:
        """A hook between the gates and their nonlinearity."""
        return gates
