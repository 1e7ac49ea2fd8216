"""Quasi-recurrent cell (Bradbury and others 2017, arXiv 1611.01576, equations 1 and 4): width 2, fo-pooling.

`z = tanh(W_z [x'; x])`, `f = s(W_f [x'; x])`, `o = s(W_o [x'; x])`, `c = f c' + (1 - f) z`, `h = o c`; x' is the
input of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh


@register_cell
class QRNNCell(SizedCell):
    """States: the cell state `[N, H]` and the input before, `[N, D]`, which begins with zeros in the paper.

    Parameters: `i2h_w [3H, 2D]`, of `[x; x']`, and `i2h_b [3H]` (candidate, forget, output).
    """

    default_name: ClassVar[str] = "qrnn"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/cell_t", f"{self.name}/input_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size, self.input_size]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        c_prev, x_prev = states
        candidate, forget, out = self.projected(step, x_t, 3, "gates_t", [(x_prev, self.input_size), *extra])
        f = sigmoid(forget + self.forget_bias)
        c_t = f * c_prev + (1.0 - f) * tanh(candidate)
        return step.masked_output(sigmoid(out) * c_t), self.kept(step, [c_t, x_t], states)
