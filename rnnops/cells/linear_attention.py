"""Cells with a matrix state for each head: linear attention and delta rules.

HeadCell: what cells share whose state is a matrix for each head.

RetentionCell and GLACell: linear attention with decay.

DeltaNetCell and GatedDeltaNetCell: memories that are corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of, register_cell
from rnnops.cells.step import Step
from rnnops.errors import NetError
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp, sqrt
from rnnops.ops.movement import reshape, unsqueeze
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.reduction import reduce_mean, reduce_sum

EPSILON = 1e-5  # of norms


class HeadCell(SizedCell):
    """A cell of heads of `d = H / heads` features, with a memory `[heads, d, d]` of keys by values.

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        **options: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.
    """

    def __init__(self, input_size: int, hidden_size: int, *, heads: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        most = gcd(count_of(hidden_size, "hidden_size", self.name), 4)
        self.heads = most if heads is None else heads
        if not isinstance(self.heads, int) or self.heads < 1 or hidden_size % self.heads:
            raise NetError(f"heads do not divide hidden_size {hidden_size}", blob=self.name, came=repr(heads))

    @property
    def width(self) -> int:
        """d, features of a head."""
        return self.hidden_size // self.heads

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/memory_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size * self.width]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.width, self.width)]

    def by_head(self, blob: Blob) -> Blob:
        """`[N, H]` as `[N, heads, d]`.

        Args:
            blob: [N, H].
        """
        return reshape(blob, [-1, self.heads, self.width])

    def joined(self, blob: Blob) -> Blob:
        """`[N, heads, d]` as `[N, H]`.

        Args:
            blob: [N, heads, d].
        """
        return reshape(blob, [-1, self.hidden_size])

    def scale_of_norm(self, step: Step) -> Blob:
        """A parameter `norm_scale [H]`, ones, as `[heads, d]`.

        Args:
            step: what is written.
        """
        return reshape(step.parameter(f"{self.name}/norm_scale", (self.hidden_size,), "ones"), [self.heads, self.width])

    def layer_normalized(self, step: Step, blob: Blob) -> Blob:
        """Each head with a mean of 0 and a variance of 1, scaled.

        Args:
            step: what is written.
            blob: [N, heads, d].
        """
        return layer_normalization(blob, self.scale_of_norm(step), axis=-1, epsilon=EPSILON)

    def root_normalized(self, step: Step, blob: Blob) -> Blob:
        """Each head over the root of its mean square, scaled.

        Args:
            step: what is written.
            blob: [N, heads, d].
        """
        return blob / sqrt(reduce_mean(blob * blob, axes=[-1]) + EPSILON) * self.scale_of_norm(step)


def outer(key: Blob, value: Blob) -> Blob:
    """`[N, heads, d]` twice as `[N, heads, d, d]`: what a memory holds of a key and its value."""
    return unsqueeze(key, [3]) * unsqueeze(value, [2])


def read(memory: Blob, query: Blob) -> Blob:
    """The value of a key, `[N, heads, d]`."""
    return reduce_sum(memory * unsqueeze(query, [3]), axes=[2], keepdims=0)


def unit(blob: Blob) -> Blob:
    """Each head over its length."""
    return blob / sqrt(reduce_sum(blob * blob, axes=[-1]) + 1e-6)


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


@register_cell
class DeltaNetCell(HeadCell):
    """Linear attention by the delta rule: a step corrects what the memory says of its key.

    The parts are in the order of query, key and value, taken by head, d = H / heads features each; b is one number for
    each head, `unit(a) = a / sqrt(sum(a ** 2) + 0.000001)` and `swish(a) = a * sigmoid(a)`::

        q, k, v = split(x @ i2h_w.T + i2h_b, 3)
        q, k = unit(swish(q)), unit(swish(k))
        b = sigmoid(x @ beta_w.T + beta_b)
        S = S_prev + outer(k, b * (v - S_prev.T @ k))
        o = S.T @ q
        y = o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Schlag and others 2021, "Linear transformers are secretly fast weight programmers", arXiv 2102.11174, as Yang and
    others 2024, arXiv 2406.06484, section 2.2, have it; without the short convolutions and the last projection, which
    layers around the cell can be.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `beta_w [heads, D]`: xavier
    - `i2h_b [3H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.DeltaNetCell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
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
        """The new memory, [N, heads, d, d], and what the query reads of it, normalized, [N, heads, d].

        Args:
            step: what is written.
            x_t: [N, D].
            left: [N, heads, d, d], what is left of the memory before.
            parts: query, key and value before their activation, [N, H] each.
        """
        query, key, value = parts
        q, k = (unit(self.by_head(part * sigmoid(part))) for part in (query, key))
        beta = step.linear(x_t, f"{self.name}/beta", self.input_size, self.heads)
        correction = unsqueeze(sigmoid(beta), [2]) * (self.by_head(value) - read(left, k))
        S_t = left + outer(k, correction)
        return S_t, self.root_normalized(step, read(S_t, q))


@register_cell
class GatedDeltaNetCell(DeltaNetCell):
    """DeltaNet with a decay of each head's memory and a gate of its output.

    The parts are in the order of query, key, value and gate; a and b are one number for each head, all else is as in
    `DeltaNetCell`::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        q, k = unit(swish(q)), unit(swish(k))
        b = sigmoid(x @ beta_w.T + beta_b)
        a = exp(-exp(decay_log) * softplus(x @ decay_w.T + decay_b))
        S = a * S_prev + outer(k, b * (v - a * S_prev.T @ k))
        o = S.T @ q
        y = swish(g) * o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Yang, Kautz and Hatamizadeh 2025, "Gated delta networks", arXiv 2412.06464, equation 10; without the short
    convolutions and the last projection, which layers around the cell can be.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `beta_w [heads, D]`, `decay_w [heads, D]`: xavier
    - `i2h_b [4H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones
    - `decay_b [heads]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `decay_log [heads]`: uniform in [0, 2.77], for rates of 1 to 16

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GatedDeltaNetCell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
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
