"""Cells that correct the value which their memory gives for a key: delta rules, and a model that trains as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.linear_attention import EPSILON, HeadCell, outer, rate_logs, read, step_biases, swish, unit
from rnnops.cells.sized import count_of, register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import exp, reciprocal, sqrt
from rnnops.ops.movement import split, unsqueeze
from rnnops.ops.normalization import layer_normalization, through_unit
from rnnops.ops.reduction import reduce_mean


@register_cell
class DeltaNetCell(HeadCell):
    """Linear attention by the delta rule: a step corrects the value that the memory gives for its key.

    The parts are query, key and value, each split into heads of d = H / heads features. b is one number for each head,
    `unit(a) = a / sqrt(sum(a ** 2) + 0.000001)` and `swish(a) = a * sigmoid(a)`::

        q, k, v = split(x @ i2h_w.T + i2h_b, 3)
        q, k = unit(swish(q)), unit(swish(k))
        b = sigmoid(x @ beta_w.T + beta_b)
        S = S_prev + outer(k, b * (v - S_prev.T @ k))
        o = S.T @ q
        y = o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Schlag and others 2021, "Linear transformers are secretly fast weight programmers", arXiv 2102.11174, in the form of
    Yang and others 2024, arXiv 2406.06484, section 2.2. The short convolutions and the last projection are left out:
    layers around the cell can do them.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `beta_w [heads, D]`: xavier
    - `i2h_b [3H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones

    Args:
        forget_bias: not read.

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
        """The new memory, [N, heads, d, d], and the normalized result of the query, [N, heads, d].

        Args:
            step: the step under construction.
            x_t: [N, D].
            left: [N, heads, d, d], the memory before, after its decay.
            parts: query, key and value before their activation, [N, H] each.
        """
        query, key, value = parts
        beta = step.linear(x_t, f"{self.name}/beta", self.input_size, self.heads)
        S_t = self.written(left, key, value, sigmoid(beta))
        return S_t, self.root_normalized(step, read(S_t, self.direction(query)))

    def written(self, left: Blob, key: Blob, value: Blob, rate: Blob) -> Blob:
        """The memory after one correction, [N, heads, d, d].

        Args:
            left: [N, heads, d, d], the memory before.
            key, value: [N, H].
            rate: [N, heads], the share of the error that is corrected.
        """
        k = self.direction(key)
        return left + outer(k, unsqueeze(rate, [2]) * (self.by_head(value) - read(left, k)))

    def direction(self, part: Blob) -> Blob:
        """Query or key after the activation, with length 1 in each head, [N, heads, d].

        Args:
            part: [N, H].
        """
        return unit(self.by_head(swish(part)))


@register_cell
class GatedDeltaNetCell(DeltaNetCell):
    """DeltaNet with a decay of each head's memory and a gate of its output.

    The parts are query, key, value and gate. a and b are one number for each head. The rest is as in `DeltaNetCell`::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        q, k = unit(swish(q)), unit(swish(k))
        b = sigmoid(x @ beta_w.T + beta_b)
        a = exp(-exp(decay_log) * softplus(x @ decay_w.T + decay_b))
        S = a * S_prev + outer(k, b * (v - a * S_prev.T @ k))
        o = S.T @ q
        y = swish(g) * o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Yang, Kautz and Hatamizadeh 2025, "Gated delta networks", arXiv 2412.06464, equation 10. The short convolutions and
    the last projection are left out: layers around the cell can do them.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `beta_w [heads, D]`, `decay_w [heads, D]`: xavier
    - `i2h_b [4H]`, `beta_b [heads]`: zeros
    - `norm_scale [H]`: ones
    - `decay_b [heads]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `decay_log [heads]`: uniform in [0, 2.77], for rates of 1 to 16

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
        return step.masked_output(swish(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def _decay(self, step: Step, x_t: Blob) -> Blob:
        scale = exp(step.parameter(f"{self.name}/decay_log", (self.heads,), ("uniform", 0.0, 2.77)))
        bias = step.parameter(f"{self.name}/decay_b", (self.heads,), ("uniform", -6.9, -2.2))
        rate = softplus(step.product(x_t, f"{self.name}/decay", self.input_size, self.heads) + bias)
        return unsqueeze(exp(-scale * rate), [2, 3])


@register_cell
class KDACell(DeltaNetCell):
    """Kimi delta attention: DeltaNet with a decay of each feature of each key.

    The parts are query, key and value, each split into heads of d = H / heads features. b is one number for each head,
    and a and g are products of rank d. The rest is as in `DeltaNetCell`::

        q, k, v = split(x @ i2h_w.T + i2h_b, 3)
        q, k, v = unit(swish(q)), unit(swish(k)), swish(v)
        b = sigmoid(x @ beta_w.T + beta_b)
        a = exp(-exp(decay_log) * softplus(x @ decay_low_w.T @ decay_w.T + decay_b))
        left = diag(a) @ S_prev
        S = left + outer(k, b * (v - left.T @ k))
        o = S.T @ q
        g = x @ gate_low_w.T @ gate_w.T + gate_b
        y = sigmoid(g) * o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Kimi Team 2025, "Kimi Linear", arXiv 2510.26692. The short convolutions and the last projection are left out: layers
    around the cell can do them.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `beta_w [heads, D]`: xavier
    - `decay_low_w [d, D]`, `decay_w [H, d]`, `gate_low_w [d, D]`, `gate_w [H, d]`: xavier
    - `i2h_b [3H]`, `beta_b [heads]`, `gate_b [H]`: zeros
    - `decay_log [heads]`: function `rate_logs`, rates uniform in [1, 16]
    - `decay_b [H]`: function `step_biases`, steps of 0.001 to 0.1
    - `norm_scale [H]`: ones

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.KDACell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "kda"
    recurrent_params = (
        *DeltaNetCell.recurrent_params,
        *("decay_low_w", "decay_w", "decay_b", "decay_log", "gate_low_w", "gate_w", "gate_b"),
    )

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        q, k, v = self.projected(step, x_t, 3, "projected_t", extra)
        left = unsqueeze(self._decay(step, x_t), [3]) * states[0]
        S_t, seen = self.corrected(step, x_t, left, [q, k, swish(v)])
        gate = self._low(step, x_t, "gate") + self.vector(step, "gate_b", "zeros")
        return step.masked_output(sigmoid(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def _decay(self, step: Step, x_t: Blob) -> Blob:
        rate = exp(step.parameter(f"{self.name}/decay_log", (self.heads,), rate_logs))
        steps = softplus(self._low(step, x_t, "decay") + self.vector(step, "decay_b", step_biases))
        return exp(-unsqueeze(rate, [1]) * self.by_head(steps))

    def _low(self, step: Step, x_t: Blob, name: str) -> Blob:
        """A product of rank d, [N, H]."""
        low = step.product(x_t, f"{self.name}/{name}_low", self.input_size, self.width)
        return step.product(low, f"{self.name}/{name}", self.width, self.hidden_size)


@register_cell
class GatedDeltaProductCell(GatedDeltaNetCell):
    """Gated DeltaNet with several corrections in a step. Each has its own key, value and rate.

    The parts are the query, all keys, all values, and the gate, H features each. Rates are up to 2, so that a
    correction may negate a key's value. The rest is as in `GatedDeltaNetCell`::

        q, *kv, g = split(x @ i2h_w.T + i2h_b, 2 + 2 * products)
        b = 2 * sigmoid(x @ beta_w.T + beta_b)
        S = exp(-exp(decay_log) * softplus(x @ decay_w.T + decay_b)) * S_prev
        for j in range(products):
            k, v = unit(swish(kv[j])), kv[products + j]
            S = S + outer(k, b[j] * (v - S.T @ k))
        o = S.T @ unit(swish(q))
        y = swish(g) * o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    Siems and others 2025, "DeltaProduct: improving state-tracking in linear RNNs via Householder products", arXiv
    2502.10297. The short convolutions and the last projection are left out: layers around the cell can do them. Values
    have no activation here, while they go through `swish` in the authors' code.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [2H + 2 products H, D]`, `beta_w [products heads, D]`, `decay_w [heads, D]`: xavier
    - `i2h_b [2H + 2 products H]`, `beta_b [products heads]`: zeros
    - `norm_scale [H]`: ones
    - `decay_b [heads]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `decay_log [heads]`: uniform in [0, 2.77], for rates of 1 to 16

    Args:
        products: number of corrections in a step.

    Raises:
        NetError: products is not a size, or heads do not divide hidden_size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GatedDeltaProductCell(3, 8, heads=2, products=3)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "gated_delta_product"

    def __init__(self, input_size: int, hidden_size: int, *, products: int = 2, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.products = count_of(products, "products", self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        n, heads = self.products, self.heads
        query, *parts, gate = self.projected(step, x_t, 2 + 2 * n, "projected_t", extra)
        rates = 2.0 * sigmoid(step.linear(x_t, f"{self.name}/beta", self.input_size, n * heads))
        S_t = self._decay(step, x_t) * states[0]
        for key, value, rate in zip(parts[:n], parts[n:], split(rates, n, axis=-1), strict=True):
            S_t = self.written(S_t, key, value, rate)
        seen = self.joined(self.root_normalized(step, read(S_t, self.direction(query))))
        return step.masked_output(swish(gate) * seen), self.kept(step, [S_t], states)


@register_cell
class TTTLinearCell(HeadCell):
    """Test-time training: each head has a linear model, which each step trains to rebuild a value from a key.

    The parts are query, key and value, each split into heads of d = H / heads features. The rate is one number for each
    head. The model's matrix is W = `start_w[head] + S`, and e is the error of the rebuilt value::

        q, k, v = split(x @ i2h_w.T + i2h_b, 3)
        rate = sigmoid(x @ rate_w.T + rate_b) / d
        z = (start_w[head] + S_prev).T @ k
        e = normalized(z) * norm_scale + norm_bias - (v - k)
        g = e * norm_scale
        slope = (g - mean(g) - normalized(z) * mean(g * normalized(z))) / sqrt(variance(z) + 0.00001)
        S = S_prev - rate * outer(k, slope)
        y = q + normalized((start_w[head] + S).T @ q) * norm_scale + norm_bias

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of 0.00001. So the model is
    `k + normalized(W k)`, and `outer(k, slope)` is the gradient of half its squared error.

    Sun and others 2024, "Learning to (learn at test time): RNNs with expressive hidden states", arXiv 2407.04620,
    TTT-Linear with one descent in each step (mini-batches of 1), without the layers around it. The authors' code
    divides rates by d too. It also trains a bias of the model and a factor of the rate, rotates queries and keys, and
    has an epsilon of 0.000001.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `rate_w [heads, D]`: xavier
    - `i2h_b [3H]`, `rate_b [heads]`, `norm_bias [H]`: zeros
    - `start_w [heads, d, d]`: normal, with a deviation of 0.02
    - `norm_scale [H]`: ones

    Args:
        forget_bias: not read.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.TTTLinearCell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "ttt_linear"
    recurrent_params = ("rate_w", "rate_b", "start_w", "norm_scale", "norm_bias")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (S_prev,), d = states, self.width
        q, k, v = map(self.by_head, self.projected(step, x_t, 3, "projected_t", extra))
        rate = sigmoid(step.linear(x_t, f"{self.name}/rate", self.input_size, self.heads)) / float(d)
        start = step.parameter(f"{self.name}/start_w", (self.heads, d, d), ("normal", 0.0, 0.02))
        scale, shift = self.vectors(step, "norm_scale", "ones"), self.vectors(step, "norm_bias", "zeros")
        z = read(S_prev + start, k)
        centred = z - reduce_mean(z, axes=[-1])
        inverse = reciprocal(sqrt(reduce_mean(centred * centred, axes=[-1]) + EPSILON))
        error = centred * inverse * scale + shift - (v - k)
        slope = through_unit(centred * inverse, error * scale, inverse, axes=[-1])
        S_t = S_prev - outer(unsqueeze(rate, [2]) * k, slope)
        y_t = q + layer_normalization(read(S_t + start, q), scale, shift, axis=-1, epsilon=EPSILON)
        return step.masked_output(self.joined(y_t)), self.kept(step, [S_t], states)
