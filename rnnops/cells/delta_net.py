"""Memories that are corrected: DeltaNet and gated DeltaNet.

Schlag and others 2021 (arXiv 2102.11174), as Yang and others 2024 (arXiv 2406.06484, section 2.2) have it; gated: Yang
and others 2025 (arXiv 2412.06464, equation 10).

`S = a S' + b k (v - (a S')^T k)^T`, `o = S^T q`, with `b = s(W_b x)` and, gated,
`a = exp(-exp(A) softplus(W_a x + c))` of each head, else `a = 1`. Queries and keys are `swish` of a projection, of
length 1. Then o over the root of its mean square; gated, times `swish(g)`. Without the papers' short convolutions,
which are layers before the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.heads import HeadCell, outer, read, unit
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import unsqueeze


@register_cell
class DeltaNetCell(HeadCell):
    """Parameters: `i2h_w [3H, D]`, `i2h_b [3H]` (query, key, value), `beta_w [heads, D]`, `beta_b [heads]`, and
    `norm_scale [H]`.
    """

    default_name: ClassVar[str] = "delta_net"

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("beta_w", "beta_b", "norm_scale")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        S_t, seen = self.corrected(step, x_t, states[0], self.projected(step, x_t, 3, "projected_t", extra))
        return step.masked_output(self.joined(seen)), self.kept(step, [S_t], states)

    def corrected(self, step: Step, x_t: Blob, left: Blob, parts: Sequence[Blob]) -> tuple[Blob, Blob]:
        """The new memory and what the query reads of it, normalized.

        Args:
            left: of the memory before, after it decayed; parts: query, key and value before their activation.
        """
        query, key, value = parts
        q, k = (unit(self.by_head(part * sigmoid(part))) for part in (query, key))
        beta = step.linear(x_t, f"{self.name}/beta", self.input_size, self.heads)
        correction = unsqueeze(sigmoid(beta), [2]) * (self.by_head(value) - read(left, k))
        S_t = left + outer(k, correction)
        return S_t, self.root_normalized(step, read(S_t, q))


@register_cell
class GatedDeltaNetCell(DeltaNetCell):
    """DeltaNet with a decay and a gate.

    Parameters beside DeltaNet's, whose `i2h` has a fourth part, the gate: `decay_w [heads, D]`, `decay_b [heads]`,
    uniform in [-6.9, -2.2] (steps of 0.001 to 0.1), and `decay_log [heads]`, uniform in [0, 2.77] (1 to 16).
    """

    default_name: ClassVar[str] = "gated_delta_net"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *(f"{self.name}/decay_{part}" for part in ("w", "b", "log"))]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        *parts, gate = self.projected(step, x_t, 4, "projected_t", extra)
        S_t, seen = self.corrected(step, x_t, self._decay(step, x_t) * states[0], parts)
        return step.masked_output(gate * sigmoid(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def _decay(self, step: Step, x_t: Blob) -> Blob:
        scale = exp(step.parameter(f"{self.name}/decay_log", (self.heads,), ("uniform", 0.0, 2.77)))
        bias = step.parameter(f"{self.name}/decay_b", (self.heads,), ("uniform", -6.9, -2.2))
        rate = softplus(step.product(x_t, f"{self.name}/decay", self.input_size, self.heads) + bias)
        return unsqueeze(exp(-scale * rate), [2, 3])
