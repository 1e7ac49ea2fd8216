"""LSTM whose gates see the cell state (Gers and Schmidhuber 2000, "Recurrent nets that time and count").

In the form of Graves 2013 (arXiv 1308.0850, equations 7 to 11), `p` by elements: `i = s(.. + p_i c')`,
`f = s(.. + p_f c')`, `c = f c' + i tanh(g)`, `o = s(.. + p_o c)`, `h = o tanh(c)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split


@register_cell
class PeepholeLSTMCell(LSTMCell):
    """LSTM with a weight from each unit's cell state to its own gates.

    Parameters beside LSTM's: `peephole_i`, `peephole_f`, `peephole_o`, `[H]` each, zeros, so that it starts as an LSTM.
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
        gate = dict(zip(GATES, split(gates, len(GATES), axis=-1), strict=True))
        see = {key: step.parameter(f"{self.name}/peephole_{key}", (self.hidden_size,), "zeros") for key in "ifo"}
        forget = sigmoid(gate["f"] + see["f"] * c_prev + self.forget_bias)
        c_t = forget * c_prev + sigmoid(gate["i"] + see["i"] * c_prev) * tanh(gate["g"])
        h_t = sigmoid(gate["o"] + see["o"] * c_t) * tanh(c_t)
        new = self.kept(step, [h_t, c_t], states)
        return new[0], new
