"""Linear attention with decay: retention, and a gate of each key's feature.

Retention (Sun and others 2023, RetNet, arXiv 2307.08621, equations 6 to 8, without the rotation of queries and keys):
`S = (1 - 2 ** (-5 - head)) S' + k v^T`, `o = S^T q`. GLA (Yang and others 2024, arXiv 2312.06635, section 4):
`S = a S' + k v^T` by rows, `a = s(W_2 W_1 x + b) ** (1 / 16)`. Then `swish(g) norm(o)`; the projection that follows in
both papers is a layer after the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.heads import HeadCell, outer, read
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import unsqueeze

RANK, TEMPERATURE = 16, 16.0  # of the gate of GLA


class LinearAttentionCell(HeadCell):
    """What both share: queries, keys, values and the output's gate come from the input alone."""

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/norm_scale"]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        *parts, gate = self.projected(step, x_t, 4, "projected_t", extra)
        q, k, v = map(self.by_head, parts)
        S_t = self.decay(step, x_t) * states[0] + outer(k, v)
        seen = self.layer_normalized(step, read(S_t, q * self.width**-0.5))
        return step.masked_output(gate * sigmoid(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def decay(self, step: Step, x_t: Blob) -> Blob:
        """What is left of the memory, of a shape that broadcasts to `[N, heads, d, d]`."""
        raise NotImplementedError


@register_cell
class RetentionCell(LinearAttentionCell):
    """Parameters: `i2h_w [4H, D]`, `i2h_b [4H]` (query, key, value, gate), `norm_scale [H]`."""

    default_name: ClassVar[str] = "retention"

    def decay(self, step: Step, x_t: Blob) -> Blob:
        left = 1.0 - 2.0 ** (-5.0 - np.arange(self.heads))
        return step.constant(f"{self.name}/decay", left.reshape(-1, 1, 1))


@register_cell
class GLACell(LinearAttentionCell):
    """Parameters: `i2h_w [4H, D]`, `i2h_b [4H]` (query, key, value, gate), `norm_scale [H]`, `low_w [16, D]`,
    `decay_w [H, 16]`, `decay_b [H]`.
    """

    default_name: ClassVar[str] = "gla"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *(f"{self.name}/{name}" for name in ("low_w", "decay_w", "decay_b"))]

    def decay(self, step: Step, x_t: Blob) -> Blob:
        low = step.product(x_t, f"{self.name}/low", self.input_size, RANK)
        gate = step.linear(low, f"{self.name}/decay", RANK, self.hidden_size) + self.forget_bias
        return unsqueeze(self.by_head(exp(softplus(-gate) * (-1.0 / TEMPERATURE))), [3])
