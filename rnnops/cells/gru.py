"""Gated recurrent unit (Cho and others 2014).

`r = s(W_r h' + b_r + x_r)`, `u = s(W_u h' + b_u + x_u)`, `o = tanh(W_o (r h') + b_o + x_o)`, `h = u h' + (1 - u) o`;
with `linear_before_reset` (cuDNN, PyTorch) `o = tanh(r (W_o h' + b_o) + x_o)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.base import Initializer
from rnnops.cells.gates import GRU_GATES
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split


@register_cell
class GRUCell(SizedCell):
    """A cell with one state.

    Args:
        input_size: D; hidden_size: H.
        forget_bias: accepted for a common signature; there is no forget gate.
        memory_optimization: gates are computed again on the backward pass; only the state is stored.
        drop_states: the state is zero past a row's end, instead of what it was.
        name: absolute prefix of parameter names.
        linear_before_reset: apply the reset gate after the recurrent product.

    Parameters: `i2h_w [3H, D]`, `i2h_b [3H]` (reset, update, output),
    `{reset,update,output}_gate_t_w [H, H]`, `{reset,update,output}_gate_t_b [H]`.
    """

    default_name: ClassVar[str] = "gru"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        forget_bias: float = 0.0,
        memory_optimization: bool = False,
        drop_states: bool = False,
        name: str | None = None,
        forward_only: bool = False,
        initializer: Initializer | None = None,
        linear_before_reset: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, forget_bias, memory_optimization, drop_states, name, forward_only, initializer
        )
        self.linear_before_reset = linear_before_reset

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{gate}_gate_t_{part}" for gate in GRU_GATES for part in ("w", "b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,) = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GRU_GATES) * self.hidden_size)
        x_gate = dict(zip(GRU_GATES, split(x, len(GRU_GATES), axis=-1), strict=True))
        reset = sigmoid(self._gate(step, "reset", self._product(step, "reset", h_prev, extra) + x_gate["reset"]))
        update = sigmoid(self._gate(step, "update", self._product(step, "update", h_prev, extra) + x_gate["update"]))
        if self.linear_before_reset:
            candidate = reset * self._product(step, "output", h_prev, extra)
        else:
            candidate = self._product(step, "output", reset * h_prev, extra)
        output = tanh(self._gate(step, "output", candidate + x_gate["output"]))
        h_t = step.masked(update * h_prev + (1.0 - update) * output, h_prev, self.drop_states)
        return h_t, [h_t]

    def _product(self, step: Step, gate: str, h: Blob, extra: Sequence[tuple[Blob, int]]) -> Blob:
        return step.linear(h, f"{self.name}/{gate}_gate_t", self.hidden_size, self.hidden_size, extra)

    def _gate(self, step: Step, gate: str, blob: Blob) -> Blob:
        return step.labelled(blob, f"{self.name}/{gate}_gate_t", self.memory_optimization)
