"""Minimal gated cells without a recurrent product (Feng and others 2024, arXiv 2410.01201).

minGRU (section 3.1.4): `z = s(W_z x)`, `h = (1 - z) h' + z g(W_h x)`. minLSTM (section 3.2.4): `f = s(W_f x)`,
`i = s(W_i x)`, `h = (f h' + i g(W_h x)) / (f + i)`. `g` is the identity, or positive as in appendix B:
`g(v) = v + 0.5` for `v >= 0`, else `s(v)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import relu, sigmoid
from rnnops.ops.extrema import min as minimum


class MinimalCell(SizedCell):
    """What both cells share.

    Args:
        positive: candidates go through g, so that states stay positive where they begin so.
        forget_bias: added to the gate that keeps the state.
    """

    def __init__(self, input_size: int, hidden_size: int, *, positive: bool = False, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.positive = positive

    def candidate(self, value: Blob) -> Blob:
        """g of a candidate; its two halves meet at 0, and `s(min(v, 0)) + relu(v)` is both."""
        return sigmoid(minimum(value, 0.0)) + relu(value) if self.positive else value


@register_cell
class MinGRUCell(MinimalCell):
    """Parameters: `i2h_w [2H, D]`, `i2h_b [2H]` (update, candidate)."""

    default_name: ClassVar[str] = "min_gru"

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        update, value = self.projected(step, x_t, 2, "gates_t", extra)
        z = sigmoid(update - self.forget_bias)
        new = self.kept(step, [(1.0 - z) * states[0] + z * self.candidate(value)], states)
        return new[0], new


@register_cell
class MinLSTMCell(MinimalCell):
    """Parameters: `i2h_w [3H, D]`, `i2h_b [3H]` (forget, input, candidate)."""

    default_name: ClassVar[str] = "min_lstm"

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        forget, enter, value = self.projected(step, x_t, 3, "gates_t", extra)
        f, i = sigmoid(forget + self.forget_bias), sigmoid(enter)
        share = i / (f + i)
        new = self.kept(step, [states[0] + share * (self.candidate(value) - states[0])], states)
        return new[0], new
