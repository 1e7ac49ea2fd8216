"""LTCCell, neurons whose time constants depend on what they see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of, finite
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus


@register_cell
class LTCCell(SizedCell):
    """Liquid time-constant cell: neurons whose time constants depend on what they see.

    `dv/dt = -(leak + f) v + f target`, by the paper's fused solver, in `unfolds` parts of a step of the length
    `elapsed`; f is positive, so that states stay bounded (theorem 2)::

        dt, v = elapsed / unfolds, v_prev
        for _ in range(unfolds):
            f = sigmoid(x @ i2h_w.T + i2h_b + v @ gates_t_w.T)
            v = (v + dt * f * target) / (1 + dt * (softplus(leak) + f))

    Hasani and others 2021, "Liquid time-constant networks", arXiv 2006.04439, equations 1 to 3 and algorithm 1; the
    paper's `1 / tau` is `softplus(leak)`, its A is `target`.

    States:

    - `hidden_t [N, H]`: v, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [H, H]`: xavier
    - `i2h_b [H]`, `leak [H]`: zeros
    - `target [H]`: uniform in [-1, 1]

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        unfolds: parts of a step, 1 or more; L in the paper.
        elapsed: time from step to step.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: unfolds is no integer of 1 or more, or elapsed no number, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LTCCell(3, 4, unfolds=3)
        >>> y, (v_all, v_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, v_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "ltc"

    def __init__(
        self, input_size: int, hidden_size: int, *, unfolds: int = 6, elapsed: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.unfolds = count_of(unfolds, "unfolds", self.name)
        self.elapsed = finite(elapsed, "elapsed", self.name)

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
