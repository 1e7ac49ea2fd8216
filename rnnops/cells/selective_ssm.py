"""SelectiveSSMCell, the selective state space of Mamba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import softplus
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import split, unsqueeze
from rnnops.ops.reduction import reduce_sum


@register_cell
class SelectiveSSMCell(SizedCell):
    """Selective state space: S numbers of each of H channels, with steps, inputs and readings computed from the input.

    The parts are in the order of steps, B and C::

        u = x @ i2h_w.T + i2h_b
        low, B, C = split(u @ select_w.T, [rank, S, S])
        step = softplus(low @ delta_w.T + delta_b)
        A = -exp(decay_log) * arange(1, S + 1)
        h = exp(outer(step, 1) * A) * h_prev + outer(step * u, B)
        y = h @ C + pass_w * u

    Gu and Dao 2023, "Mamba", arXiv 2312.00752, equation 2 and algorithm 2, without the block's convolution and gate,
    which layers around the cell can be.

    States:

    - `channels_t [N, H, S]`: h

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `select_w [rank + 2S, H]`, `delta_w [H, rank]`: xavier
    - `i2h_b [H]`, `decay_log [H, S]`: zeros
    - `delta_b [H]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `pass_w [H]`: ones

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        state_size: numbers of a channel, S.
        rank: of the product that gives steps; H / 16, rounded up, if left out.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: hidden_size, state_size or rank is no size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SelectiveSSMCell(3, 4, state_size=5)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4, 5))
    """

    default_name: ClassVar[str] = "selective_ssm"

    def __init__(
        self, input_size: int, hidden_size: int, *, state_size: int = 16, rank: int | None = None, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        sixteenth = -(-count_of(hidden_size, "hidden_size", self.name) // 16)
        self.rank = sixteenth if rank is None else count_of(rank, "rank", self.name)
        self.state_size = count_of(state_size, "state_size", self.name)

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
