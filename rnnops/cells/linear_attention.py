"""RetentionCell and GLACell: linear attention with decay."""

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
        """What is left of the memory, of a shape that broadcasts to `[N, heads, d, d]`.

        Args:
            step: what is written.
            x_t: [N, D].
        """
        raise NotImplementedError


@register_cell
class RetentionCell(LinearAttentionCell):
    """Retention: linear attention with a fixed decay for each head.

    The parts are in the order of query, key, value and gate; all but the gate are taken by head, d = H / heads features
    each::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        S = (1 - 2 ** (-5 - head)) * S_prev + outer(k, v)
        o = S.T @ q / sqrt(d)
        y = g * sigmoid(g) * normalized(o) * norm_scale

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of 0.00001.

    Sun and others 2023, "Retentive network", arXiv 2307.08621, equations 6 to 8, without the rotation of queries and
    keys and the last projection, which a layer after the cell can be.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`: xavier
    - `i2h_b [4H]`: zeros
    - `norm_scale [H]`: ones

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read; the decay is fixed.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.RetentionCell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "retention"

    def decay(self, step: Step, x_t: Blob) -> Blob:
        left = 1.0 - 2.0 ** (-5.0 - np.arange(self.heads))
        return step.constant(f"{self.name}/decay", left.reshape(-1, 1, 1))


@register_cell
class GLACell(LinearAttentionCell):
    """Gated linear attention: a decay of each feature of each key, computed from the input.

    The parts are in the order of query, key, value and gate; all but the gate are taken by head, d = H / heads features
    each::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        a = sigmoid(x @ low_w.T @ decay_w.T + decay_b + forget_bias) ** (1 / 16)
        S = diag(a) @ S_prev + outer(k, v)
        o = S.T @ q / sqrt(d)
        y = g * sigmoid(g) * normalized(o) * norm_scale

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of 0.00001.

    Yang and others 2024, "Gated linear attention transformers with hardware-efficient training", arXiv 2312.06635,
    section 4, without the last projection, which a layer after the cell can be.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `low_w [16, D]`, `decay_w [H, 16]`: xavier
    - `i2h_b [4H]`, `decay_b [H]`: zeros
    - `norm_scale [H]`: ones

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: added to the decay before its sigmoid.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GLACell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "gla"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *(f"{self.name}/{name}" for name in ("low_w", "decay_w", "decay_b"))]

    def decay(self, step: Step, x_t: Blob) -> Blob:
        low = step.product(x_t, f"{self.name}/low", self.input_size, RANK)
        gate = step.linear(low, f"{self.name}/decay", RANK, self.hidden_size) + self.forget_bias
        return unsqueeze(self.by_head(exp(softplus(-gate) * (-1.0 / TEMPERATURE))), [3])
