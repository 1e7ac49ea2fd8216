"""CfCCell, the closed-form continuous-time cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of, finite
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split


@register_cell
class CfCCell(SizedCell):
    """Closed-form continuous-time cell: it goes from one candidate to another by the time that has passed.

    The parts of the heads are in this order, g, k, a, b::

        z = 1.7159 * tanh(0.666 * (x @ i2h_w.T + i2h_b + h_prev @ hidden_w.T))
        g, k, a, b = split(z @ heads_w.T + heads_b, 4)
        p = sigmoid(elapsed * a + b)
        h = (1 - p) * tanh(g) + p * tanh(k)

    Hasani and others 2022, "Closed-form continuous-time neural networks", arXiv 2106.13898, gated in time, with one
    backbone; 0.666 is 2 / 3 as the authors' own code rounds it.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [U, D]`, `hidden_w [U, H]`, `heads_w [4H, U]`: xavier
    - `i2h_b [U]`, `heads_b [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        backbone_size: U, features that candidates and gate share; H if left out.
        elapsed: time from step to step.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: backbone_size is no size, or elapsed no number, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.CfCCell(3, 4, backbone_size=16)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
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
        self.backbone_size = (
            hidden_size if backbone_size is None else count_of(backbone_size, "backbone_size", self.name)
        )
        self.elapsed = finite(elapsed, "elapsed", self.name)

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
