"""Closed-form continuous-time cell (Hasani and others 2022, arXiv 2106.13898, gated in time, with one backbone).

`b = 1.7159 tanh(0.666 (W [x; h'] + ..))`, `g = tanh(W_g b)`, `k = tanh(W_k b)`, `p = s(t W_a b + W_b b)`, each with a
bias, and `h = (1 - p) g + p k`; t is the time since the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.base import number
from rnnops.ops.movement import split


@register_cell
class CfCCell(SizedCell):
    """A cell between two candidates, by a gate of the time that has passed.

    Args:
        backbone_size: U, features that candidates and gate share; H if left out.
        elapsed: time from step to step.

    Parameters: `i2h_w [U, D]`, `i2h_b [U]`, `hidden_w [U, H]`, `heads_w [4H, U]`, `heads_b [4H]` (g, k, a, b).
    """

    default_name: ClassVar[str] = "cfc"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        backbone_size: int | None = None,
        elapsed: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.backbone_size = hidden_size if backbone_size is None else backbone_size
        self.elapsed = number(elapsed, f"elapsed of '{self.name}'")

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("hidden_w", "heads_w", "heads_b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,), (H, U) = states, (self.hidden_size, self.backbone_size)
        x = step.linear(x_t, self.input_name, self.input_size, U)
        gates = x + step.product(h_prev, f"{self.name}/hidden", H, U, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        backbone = 1.7159 * tanh(0.666 * gates)  # LeCun's tanh, with 2/3 as the authors' own code rounds it
        first, second, rate, shift = split(step.linear(backbone, f"{self.name}/heads", U, 4 * H), 4, axis=-1)
        passed = sigmoid(self.elapsed * rate + shift)
        new = self.kept(step, [(1.0 - passed) * tanh(first) + passed * tanh(second)], states)
        return new[0], new
