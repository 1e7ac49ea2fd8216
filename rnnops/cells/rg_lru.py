"""Real-gated linear recurrent unit (De and others 2024, "Griffin", arXiv 2402.19427, equations 1 to 4).

With `u = W x + b`: `r = s(W_a u + b_a)`, `i = s(W_x u + b_x)`, `a = s(L) ** (8 r)`, `h = a h' + sqrt(1 - a a) (i u)`.
Without the block's convolution and gate, which are layers around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp, sqrt
from rnnops.ops.functions import expm1
from rnnops.ops.movement import split

POWER = 8.0  # c of the paper
SLOW, FAST = 4.323, 8.987  # logits of 0.9 ** (1 / 8) and 0.999 ** (1 / 8), between which the paper lets `a` begin


@register_cell
class RGLRUCell(SizedCell):
    """A diagonal linear recurrence with gates that see the input alone.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `gates_t_w [2H, H]`, `gates_t_b [2H]` (recurrence, input), and
    `recurrent_w [H]`, the L above, uniform between the logits of the paper's bounds.
    """

    default_name: ClassVar[str] = "rg_lru"

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("gates_t_w", "gates_t_b", "recurrent_w")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (h_prev,), H = states, self.hidden_size
        (u,) = self.projected(step, x_t, 1, extra=extra)
        gates = step.linear(u, f"{self.name}/gates_t", H, 2 * H)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        recurrence, enter = split(gates, 2, axis=-1)
        decay = step.parameter(f"{self.name}/recurrent_w", (H,), ("uniform", SLOW, FAST))
        log_a = -POWER * softplus(-decay) * sigmoid(recurrence)
        h_t = exp(log_a) * h_prev + sqrt(-expm1(2.0 * log_a)) * (sigmoid(enter) * u)
        new = self.kept(step, [h_t], states)
        return new[0], new
