"""RGLRUCell, the real-gated linear recurrent unit of Griffin."""

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
    """Real-gated linear recurrent unit: a diagonal linear recurrence, with gates that see the input alone.

    The gates are in this order, recurrence and input::

        u = x @ i2h_w.T + i2h_b
        r, i = split(sigmoid(u @ gates_t_w.T + gates_t_b), 2)
        a = sigmoid(recurrent_w) ** (8 * r)
        h = a * h_prev + sqrt(1 - a ** 2) * (i * u)

    De and others 2024, "Griffin", arXiv 2402.19427, equations 1 to 4, without the block's convolution and gate, which
    are layers around the cell.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [2H, H]`: xavier
    - `i2h_b [H]`, `gates_t_b [2H]`: zeros
    - `recurrent_w [H]`: uniform in [4.323, 8.987], so that `sigmoid(recurrent_w) ** 8` is from 0.9 to 0.999, as the
      paper's

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.RGLRUCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
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
