"""Simple recurrent unit (Lei and others 2018, arXiv 1709.02755, equations 1 to 4 and section 3.2).

`f = s(W_f x + v_f c' + b_f)`, `c = f c' + (1 - f) W x`, `r = s(W_r x + v_r c' + b_r)`, `h = r c + (1 - r) a x`, with
`a = sqrt(1 + 2 exp(b_r))` of the initial `b_r`. Where D differs from H, a fourth product takes the place of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid
from rnnops.ops.base import number
from rnnops.ops.movement import split


@register_cell
class SRUCell(SizedCell):
    """A cell with a cell state; its output passes the input on by a highway.

    Args:
        highway_bias: where `b_r` starts, which scales the highway.

    Parameters: `i2h_w [3H, D]` (candidate, forget, highway; `[4H, D]` where D is not H), `forget_v`, `highway_v`,
    `forget_b`, `[H]` each, and `highway_b [H]`.
    """

    default_name: ClassVar[str] = "sru"

    def __init__(self, input_size: int, hidden_size: int, *, highway_bias: float = 0.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.highway_bias = number(highway_bias, f"highway_bias of '{self.name}'")

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/cell_t"]

    def get_input_params(self) -> list[str]:
        return [f"{self.input_name}_w"]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("forget_v", "highway_v", "forget_b", "highway_b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (c_prev,), (D, H) = states, (self.input_size, self.hidden_size)
        parts = 3 if D == H else 4
        product = step.product(x_t, self.input_name, D, parts * H, extra)
        step.labelled(product, f"{self.name}/gates_t", self.memory_optimization)
        value, forget, highway, *passed = split(product, parts, axis=-1)
        f = sigmoid(self._gate(step, "forget", forget, c_prev, 0.0) + self.forget_bias)
        r = sigmoid(self._gate(step, "highway", highway, c_prev, self.highway_bias))
        c_t = f * c_prev + (1.0 - f) * value
        scale = sqrt(1.0 + 2.0 * exp(self.highway_bias))
        h_t = r * c_t + (1.0 - r) * (scale * (passed[0] if passed else x_t))
        return step.masked_output(h_t), self.kept(step, [c_t], states)

    def _gate(self, step: Step, gate: str, value: Blob, c_prev: Blob, bias: float) -> Blob:
        seen = step.parameter(f"{self.name}/{gate}_v", (self.hidden_size,), "xavier") * c_prev
        return value + seen + step.parameter(f"{self.name}/{gate}_b", (self.hidden_size,), bias)
