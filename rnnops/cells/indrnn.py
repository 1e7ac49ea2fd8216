"""Independently recurrent cell (Li and others 2018, arXiv 1803.04831, equation 2).

`h = act(W x + u h' + b)`, u by units.
"""

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
    """A cell whose units see each their own state alone.

    Args:
        activation: `"relu"` or `"tanh"`.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `recurrent_w [H]`, which starts uniform in [0, 1] (section 4.1).
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
