"""Selective state space (Gu and Dao 2023, Mamba, arXiv 2312.00752, equation 2 and algorithm 2).

With `u = W x + b` and for each channel a step `D = softplus(W_2 W_1 u + c)`: `h = exp(D A) h' + D B u`,
`y = C h + E u`, where B and C `[S]` are products of u. A starts as -1, ..., -S (S4D-Real).
Without the block's convolution and gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import softplus
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import split, unsqueeze
from rnnops.ops.reduction import reduce_sum


@register_cell
class SelectiveSSMCell(SizedCell):
    """State: S numbers of each of H channels, `[H, S]`.

    Args:
        state_size: S; rank: of the product that gives steps, H / 16 rounded up if left out.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `select_w [rank + 2S, H]` (steps, B, C), `delta_w [H, rank]`,
    `delta_b [H]`, uniform in [-6.9, -2.2] (steps of 0.001 to 0.1), `decay_log [H, S]`, zeros, by which the log of -A
    differs from that of its start, and `pass_w [H]`, ones, the E above.
    """

    default_name: ClassVar[str] = "selective_ssm"

    def __init__(
        self, input_size: int, hidden_size: int, *, state_size: int = 16, rank: int | None = None, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.state_size, self.rank = state_size, -(-hidden_size // 16) if rank is None else rank

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/channels_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size * self.state_size]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.hidden_size, self.state_size)]

    def get_recurrent_params(self) -> list[str]:
        names = ("select_w", "delta_w", "delta_b", "decay_log", "pass_w")
        return [f"{self.name}/{name}" for name in names]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,), (H, S) = states, (self.hidden_size, self.state_size)
        (u,) = self.projected(step, x_t, 1, "projected_t", extra)
        low, B, C = split(step.product(u, f"{self.name}/select", H, self.rank + 2 * S), [self.rank, S, S], axis=-1)
        bias = step.parameter(f"{self.name}/delta_b", (H,), ("uniform", -6.9, -2.2))
        delta = softplus(step.product(low, f"{self.name}/delta", self.rank, H) + bias)
        begin = step.constant(f"{self.name}/decay_begin", np.log(np.arange(1.0, S + 1.0)))
        A = -exp(step.parameter(f"{self.name}/decay_log", (H, S), "zeros") + begin)
        h_t = exp(unsqueeze(delta, [2]) * A) * h_prev + unsqueeze(delta * u, [2]) * unsqueeze(B, [1])
        passed = step.parameter(f"{self.name}/pass_w", (H,), "ones") * u
        y_t = reduce_sum(h_t * unsqueeze(C, [1]), axes=[2], keepdims=0) + passed
        return step.masked_output(y_t), self.kept(step, [h_t], states)
