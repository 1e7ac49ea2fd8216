"""Liquid time-constant cell (Hasani and others 2021, arXiv 2006.04439, equations 1 to 3 and algorithm 1).

`dv/dt = -(1 / tau + f) v + f A` with `f = s(W x + R v + b)`, by the paper's fused solver: in each of `unfolds` parts of
a step, `v = (v + dt f A) / (1 + dt (1 / tau + f))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.errors import NetError
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.base import number


@register_cell
class LTCCell(SizedCell):
    """Neurons whose time constants depend on what they see; f is positive, so that states stay bounded (theorem 2).

    Args:
        unfolds: parts of a step, L in the paper.
        elapsed: time from step to step.

    Parameters: `i2h_w [H, D]`, `i2h_b [H]`, `gates_t_w [H, H]`, `target [H]`, the A above, uniform in [-1, 1],
    and `leak [H]`, zeros, where `1 / tau = softplus(leak)`.
    """

    default_name: ClassVar[str] = "ltc"

    def __init__(
        self, input_size: int, hidden_size: int, *, unfolds: int = 6, elapsed: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        if not isinstance(unfolds, int) or isinstance(unfolds, bool) or unfolds < 1:
            raise NetError("a step has parts", blob=self.name, wanted="unfolds of 1 or more", came=repr(unfolds))
        self.unfolds, self.elapsed = unfolds, number(elapsed, f"elapsed of '{self.name}'")

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("gates_t_w", "target", "leak")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        (v,), H, dt = states, self.hidden_size, self.elapsed / self.unfolds
        (x,) = self.projected(step, x_t, 1)
        target = step.parameter(f"{self.name}/target", (H,), ("uniform", -1.0, 1.0))
        leak = softplus(step.parameter(f"{self.name}/leak", (H,), "zeros"))
        for _ in range(self.unfolds):
            gate = x + step.product(v, f"{self.name}/gates_t", H, H, extra)
            f = sigmoid(step.labelled(gate, f"{self.name}/gates_t", self.memory_optimization))
            v = (v + dt * f * target) / (1.0 + dt * (leak + f))
        new = self.kept(step, [v], states)
        return new[0], new
