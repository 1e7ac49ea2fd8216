"""LSTM with a recurrent projection (Sak, Senior and Beaufays 2014, arXiv 1402.1128, LSTMP of section 2).

`c` as in LSTM; `m = s(o) tanh(c)`, `h = W_p m`, and gates read the smaller `h'`. Without the paper's second,
non-recurrent projection, which a layer after it can be; as `torch.nn.LSTM(proj_size=)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split


@register_cell
class ProjectedLSTMCell(LSTMCell):
    """LSTM whose hidden state, its output, has fewer features than its cell state.

    Args:
        proj_size: P, features of the hidden state; half of H if left out.

    Parameters: `i2h_w [4H, D]`, `i2h_b [4H]`, `gates_t_w [4H, P]`, `gates_t_b [4H]`, `projection_w [P, H]`.
    """

    default_name: ClassVar[str] = "projected_lstm"

    def __init__(self, input_size: int, hidden_size: int, *, proj_size: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.proj_size = (hidden_size + 1) // 2 if proj_size is None else proj_size

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
        gate = dict(zip(GATES, split(gates, len(GATES), axis=-1), strict=True))
        c_t = sigmoid(gate["f"] + self.forget_bias) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = step.product(sigmoid(gate["o"]) * tanh(c_t), f"{self.name}/projection", H, P)
        new = self.kept(step, [h_t, c_t], states)
        return new[0], new
