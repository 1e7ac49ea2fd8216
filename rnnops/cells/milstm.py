"""LSTM with multiplicative integration (Wu and others 2016, arXiv 1606.06630).

With `x = W_x x_t + b_x` and `p = W_h h' + b_h`: gates = `(alpha x + beta1) p + beta2 x + b`.
"""

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
    """LSTM whose gates multiply the two projections.

    Parameters beside LSTM's `i2h`: `prev_t_w [4H, H]`, and `[4H]` each `prev_t_b`, `alpha`,
    `beta1`, `beta2` (ones) and `b` (zeros).
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
