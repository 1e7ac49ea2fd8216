"""LSTM with exponential gates (Beck and others 2024, xLSTM, arXiv 2405.04517, equations 8 to 17).

`m = max(log s(f) + m', i)`, `c = exp(log s(f) + m' - m) c' + exp(i - m) tanh(g)`, n likewise with 1 for `tanh(g)`, and
`h = s(o) c / n`. A head's gates see the hidden state of that head alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.heads import HeadCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import exp
from rnnops.ops.extrema import max as maximum
from rnnops.ops.movement import concat, split


@register_cell
class SLSTMCell(HeadCell):
    """States: hidden, cell, normalizer, and the largest exponent so far, which keeps the others small, `[H]` each.

    Parameters: `i2h_w [4H, D]`, `i2h_b [4H]` (input, forget, output, candidate), and for each head
    `gates_<head>_w [4d, d]`.
    """

    default_name: ClassVar[str] = "slstm"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/{state}_t" for state in ("hidden", "cell", "normalizer", "exponent")]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size] * 4

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.hidden_size,)] * 4

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/gates_{head}_w" for head in range(self.heads)]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev, n_prev, m_prev = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * self.hidden_size, extra)
        gates = step.labelled(x + self._recurrent(step, h_prev), f"{self.name}/gates_t", self.memory_optimization)
        gate = dict(zip(GATES, split(gates, len(GATES), axis=-1), strict=True))
        kept = m_prev - softplus(-(gate["f"] + self.forget_bias))
        m_t = maximum(kept, gate["i"])
        forget, enter = exp(kept - m_t), exp(gate["i"] - m_t)
        c_t, n_t = forget * c_prev + enter * tanh(gate["g"]), forget * n_prev + enter
        new = self.kept(step, [sigmoid(gate["o"]) * c_t / n_t, c_t, n_t, m_t], states)
        return new[0], new

    def _recurrent(self, step: Step, h_prev: Blob) -> Blob:
        """The products of all heads, gate by gate."""
        d, hs = self.width, split(h_prev, self.heads, axis=-1) if self.heads > 1 else [h_prev]
        products = [step.product(h, f"{self.name}/gates_{head}", d, len(GATES) * d) for head, h in enumerate(hs)]
        parts = [split(product, len(GATES), axis=-1) for product in products]
        return concat([part[gate] for gate in range(len(GATES)) for part in parts], axis=-1)
