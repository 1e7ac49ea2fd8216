"""Cells whose memory is corrected by what it says of a key: delta rules, and a model that trains while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.linear_attention import HeadCell, outer, read, unit
from rnnops.cells.sized import register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import unsqueeze


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

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `beta_w [heads, D]`: xavier
    - `i2h_b [3H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones

    Args:
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read.

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
    recurrent_params: ClassVar[tuple[str, ...]] = ("beta_w", "beta_b", "norm_scale")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
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

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `beta_w [heads, D]`, `decay_w [heads, D]`: xavier
    - `i2h_b [4H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones
    - `decay_b [heads]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `decay_log [heads]`: uniform in [0, 2.77], for rates of 1 to 16

    Args:
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read.

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
    recurrent_params = (*DeltaNetCell.recurrent_params, "decay_w", "decay_b", "decay_log")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        *parts, gate = self.projected(step, x_t, 4, "projected_t", extra)
        S_t, seen = self.corrected(step, x_t, self._decay(step, x_t) * states[0], parts)
        return step.masked_output(gate * sigmoid(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def _decay(self, step: Step, x_t: Blob) -> Blob:
        scale = exp(step.parameter(f"{self.name}/decay_log", (self.heads,), ("uniform", 0.0, 2.77)))
        bias = step.parameter(f"{self.name}/decay_b", (self.heads,), ("uniform", -6.9, -2.2))
        rate = softplus(step.product(x_t, f"{self.name}/decay", self.input_size, self.heads) + bias)
        return unsqueeze(exp(-scale * rate), [2, 3])
