"""Cells with heads: linear attention, xLSTM's cells, and a GRU of blocks. Their states are matrices or vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, ClassVar

import numpy as np

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.gated import GATES, gate_inputs
from rnnops.cells.sized import ShapedCell, count_of, finite, register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import abs as absolute, exp, sqrt
from rnnops.ops.comparison import max as maximum
from rnnops.ops.movement import concat, reshape, split, unsqueeze
from rnnops.ops.normalization import layer_normalization, rms_normalization
from rnnops.ops.reduction import reduce_sum
from rnnops.types import Array

EPSILON = 1e-5  # added to variances and mean squares


class HeadCell(ShapedCell):
    """A cell of heads of `d = H / heads` features, with a memory `[heads, d, d]` of keys by values.

    Args:
        heads: number of heads, which share out H. The default is the greatest common divisor of H and 4.

    Raises:
        NetError: heads is not a size or does not divide hidden_size, or as in `SizedCell`.
    """

    state_names: ClassVar[tuple[str, ...]] = ("memory_t",)

    def __init__(self, input_size: int, hidden_size: int, *, heads: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        most = gcd(count_of(hidden_size, "hidden_size", self.name), 4)
        self.heads = most if heads is None else count_of(heads, "heads", self.name)
        if hidden_size % self.heads:
            self.fail("heads do not divide hidden_size", wanted=f"a divisor of {hidden_size}", came=self.heads)

    @property
    def width(self) -> int:
        """d, features of a head."""
        return self.hidden_size // self.heads

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

    def vector(self, step: Step, name: str, init: object) -> Blob:
        """A parameter `[H]`.

        Args:
            step: the step under construction.
            name: its name below the cell's name.
            init: as for `Net.parameter`.
        """
        return step.parameter(f"{self.name}/{name}", (self.hidden_size,), init)

    def vectors(self, step: Step, name: str, init: object) -> Blob:
        """A parameter `[H]` as `[heads, d]`.

        Args:
            step, name, init: as in `vector`.
        """
        return reshape(self.vector(step, name, init), [self.heads, self.width])

    def root_normalized(self, step: Step, blob: Blob, epsilon: float = EPSILON) -> Blob:
        """Each head divided by the root of its mean square, times a parameter `norm_scale [H]`.

        Args:
            step: the step under construction.
            blob: [N, heads, d].
            epsilon: added to the mean square.
        """
        return rms_normalization(blob, self.vectors(step, "norm_scale", "ones"), epsilon=epsilon)


class BlockCell(HeadCell):
    """A cell whose recurrent weights are one matrix for each head. Its states are vectors."""

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.hidden_size,)] * len(self.state_names)

    def get_recurrent_params(self) -> list[str]:
        return [*(f"{self.name}/gates_{head}_w" for head in range(self.heads)), *super().get_recurrent_params()]

    def gates(self, step: Step, x_t: Blob, h_prev: Blob, count: int, extra: Extra) -> Blob:
        """Gates `[N, count H]`: products of x, plus products of each head's part of h with the head's own matrix.

        Args:
            step: the step under construction.
            x_t: [N, D].
            h_prev: [N, H].
            count: number of gates. Parameters are `gates_<head>_w [count d, d]`.
            extra: as in `step`.
        """
        d, hs = self.width, split(h_prev, self.heads, axis=-1)
        products = [step.product(own, f"{self.name}/gates_{head}", d, count * d) for head, own in enumerate(hs)]
        parts = zip(*(split(product, count, axis=-1) for product in products), strict=True)
        x = step.linear(x_t, self.input_name, self.input_size, count * self.hidden_size, extra)
        gates = x + concat([part for gate in parts for part in gate], axis=-1)
        return step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)


def swish(blob: Blob) -> Blob:
    return blob * sigmoid(blob)


def outer(key: Blob, value: Blob) -> Blob:
    """Outer products of keys and values, both `[N, heads, d]`, as `[N, heads, d, d]`."""
    return unsqueeze(key, [3]) * unsqueeze(value, [2])


def read(memory: Blob, query: Blob) -> Blob:
    """The value that the memory gives for a key, `[N, heads, d]`."""
    return reduce_sum(memory * unsqueeze(query, [3]), axes=[2], keepdims=0)


def unit(blob: Blob) -> Blob:
    """Each head divided by its length."""
    return blob / sqrt(reduce_sum(blob * blob, axes=[-1]) + 1e-6)


def rate_logs(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Logarithms of rates that are uniform from 1 to 16."""
    return np.log(rng.uniform(1.0, 16.0, shape))


def step_biases(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Biases before `softplus`. They give steps from 0.001 to 0.1 with uniform logarithms."""
    return np.log(np.expm1(np.exp(rng.uniform(np.log(0.001), np.log(0.1), shape))))


RANK, TEMPERATURE = 16, 16.0  # rank and temperature of GLA's gate


class LinearAttentionCell(HeadCell):
    """Base of two cells whose queries, keys, values and output gates depend only on the input."""

    recurrent_params: ClassVar[tuple[str, ...]] = ("norm_scale",)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        *parts, gate = self.projected(step, x_t, 4, "projected_t", extra)
        q, k, v = map(self.by_head, parts)
        S_t = self.decay(step, x_t) * states[0] + outer(k, v)
        seen = read(S_t, q * self.width**-0.5)
        seen = layer_normalization(seen, self.vectors(step, "norm_scale", "ones"), axis=-1, epsilon=EPSILON)
        return step.masked_output(swish(gate) * self.joined(seen)), self.kept(step, [S_t], states)

    def decay(self, step: Step, x_t: Blob) -> Blob:
        """The factor by which the memory decays. It broadcasts to `[N, heads, d, d]`.

        Args:
            step: the step under construction.
            x_t: [N, D].
        """
        raise NotImplementedError


@register_cell
class RetentionCell(LinearAttentionCell):
    """Retention: linear attention with a fixed decay for each head.

    The parts are query, key, value and gate. All but the gate are split into heads of d = H / heads features::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        S = (1 - 2 ** (-5 - head)) * S_prev + outer(k, v)
        o = S.T @ q / sqrt(d)
        y = g * sigmoid(g) * normalized(o) * norm_scale

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of 0.00001.

    Sun and others 2023, "Retentive network", arXiv 2307.08621, equations 6 to 8. The rotation of queries and keys and
    the last projection are left out. A layer after the cell can do the projection.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`: xavier
    - `i2h_b [4H]`: zeros
    - `norm_scale [H]`: ones

    Args:
        forget_bias: not read; the decay is fixed.

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

    The parts are query, key, value and gate. All but the gate are split into heads of d = H / heads features::

        q, k, v, g = split(x @ i2h_w.T + i2h_b, 4)
        a = sigmoid(x @ low_w.T @ decay_w.T + decay_b + forget_bias) ** (1 / 16)
        S = diag(a) @ S_prev + outer(k, v)
        o = S.T @ q / sqrt(d)
        y = g * sigmoid(g) * normalized(o) * norm_scale

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of 0.00001.

    Yang and others 2024, "Gated linear attention transformers with hardware-efficient training", arXiv 2312.06635,
    section 4. The last projection is left out: a layer after the cell can do it.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `low_w [16, D]`, `decay_w [H, 16]`: xavier
    - `i2h_b [4H]`, `decay_b [H]`: zeros
    - `norm_scale [H]`: ones

    Args:
        forget_bias: added to the decay before its sigmoid.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GLACell(3, 8, heads=2)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "gla"
    recurrent_params = (*LinearAttentionCell.recurrent_params, "low_w", "decay_w", "decay_b")

    def decay(self, step: Step, x_t: Blob) -> Blob:
        low = step.product(x_t, f"{self.name}/low", self.input_size, RANK)
        gate = step.linear(low, f"{self.name}/decay", RANK, self.hidden_size) + self.forget_bias
        return unsqueeze(self.by_head(exp(softplus(-gate) * (-1.0 / TEMPERATURE))), [3])


@register_cell
class HGRN2Cell(HeadCell):
    """Gated linear recurrence with a matrix as state. Its keys are 1 minus its forget gates.

    The parts are output gate, forget gate and input, each split into heads of d = H / heads features::

        q, f, v = split(x @ i2h_w.T + i2h_b, 3)
        a = lower_bound + (1 - lower_bound) * sigmoid(f + forget_bias)
        S = diag(a) @ S_prev + outer(1 - a, v)
        o = S.T @ swish(q)
        y = o / sqrt(mean(o ** 2) + 0.00001) * norm_scale

    The mean is over all heads, and `swish(a) = a * sigmoid(a)`.

    Qin and others 2024, "HGRN2: gated linear RNNs with state expansion", arXiv 2404.07904. The last projection is left
    out: a layer after the cell can do it. In the paper the lower bound grows from layer to layer.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`: xavier
    - `i2h_b [3H]`: zeros
    - `norm_scale [H]`: ones

    Args:
        lower_bound: the smallest share that the memory keeps in a step, from 0 to less than 1.
        forget_bias: added to the forget gate before its sigmoid.

    Raises:
        NetError: lower_bound is not a number from 0 to less than 1, heads do not divide hidden_size, and as
            `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.HGRN2Cell(3, 8, heads=2, lower_bound=0.9)
        >>> y, (S_all, S_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "hgrn2"
    recurrent_params = ("norm_scale",)

    def __init__(self, input_size: int, hidden_size: int, *, lower_bound: float = 0.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.lower_bound = finite(lower_bound, "lower_bound", self.name)
        if not 0.0 <= self.lower_bound < 1.0:
            self.fail("lower_bound is out of range", wanted="from 0 to less than 1", came=repr(lower_bound))

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        q, f, v = map(self.by_head, self.projected(step, x_t, 3, "projected_t", extra))
        left = self.lower_bound + (1.0 - self.lower_bound) * sigmoid(f + self.forget_bias)
        S_t = unsqueeze(left, [3]) * states[0] + outer(1.0 - left, v)
        seen = self.joined(read(S_t, swish(q)))
        y_t = rms_normalization(seen, self.vector(step, "norm_scale", "ones"), epsilon=EPSILON)
        return step.masked_output(y_t), self.kept(step, [S_t], states)


@register_cell
class SLSTMCell(BlockCell):
    """LSTM with exponential gates, which read only the hidden state of their own head.

    The parts are in LSTM's order, H features each, with d = H / heads for a head::

        zx = split(x @ i2h_w.T + i2h_b, 4)
        zh = split(h_prev @ gates_<head>_w.T, 4)    # of a head's part of h_prev, for that head
        i, f, o, g = zx + zh
        k = log(sigmoid(f + forget_bias)) + m_prev
        m = max(k, i)
        c = exp(k - m) * c_prev + exp(i - m) * tanh(g)
        n = exp(k - m) * n_prev + exp(i - m)
        h = sigmoid(o) * c / n

    Beck and others 2024, "xLSTM: extended long short-term memory", arXiv 2405.04517, equations 8 to 17.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c
    - `normalizer_t [N, H]`: n
    - `exponent_t [N, H]`: m, the largest exponent so far, which keeps the others small

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, and one matrix for each head, `gates_0_w [4d, d]`, `gates_1_w [4d, d]`, ...: xavier
    - `i2h_b [4H]`: zeros

    Args:
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SLSTMCell(3, 8, heads=2)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 8), 8)
    """

    default_name: ClassVar[str] = "slstm"
    state_names = ("hidden_t", "cell_t", "normalizer_t", "exponent_t")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        h_prev, c_prev, n_prev, m_prev = states
        gate = gate_inputs(self.gates(step, x_t, h_prev, len(GATES), extra))
        kept = m_prev - softplus(-(gate["f"] + self.forget_bias))
        m_t = maximum(kept, gate["i"])
        forget, enter = exp(kept - m_t), exp(gate["i"] - m_t)
        c_t, n_t = forget * c_prev + enter * tanh(gate["g"]), forget * n_prev + enter
        return self.stepped(step, [sigmoid(gate["o"]) * c_t / n_t, c_t, n_t, m_t], states)


@register_cell
class BlockGRUCell(BlockCell):
    """GRU with recurrent weights in blocks, and normalized gates.

    The parts are reset, candidate and update, H features each, with d = H / heads for a block::

        zh = h_prev @ gates_<head>_w.T    # of a block's part of h_prev, for that block
        z = x @ i2h_w.T + i2h_b + zh
        r, c, u = split(normalized(z) * gates_t_norm_scale + gates_t_norm_bias, 3)
        u = sigmoid(u - 1 - forget_bias)
        h = u * tanh(sigmoid(r) * c) + (1 - u) * h_prev

    `normalized` gives all 3H of a row a mean of 0 and a variance of 1, with an epsilon of 0.00001.

    Hafner and others 2023, "Mastering diverse domains through world models", arXiv 2301.04104 (DreamerV3): the
    recurrence of its sequence model, without the layers before the gates. The authors' code of 2023 normalizes the
    gates and has one full matrix. Their later code has blocks, and normalizes the layer before instead.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, and one matrix for each block, `gates_0_w [3d, d]`, `gates_1_w [3d, d]`, ...: xavier
    - `gates_t_norm_scale [3H]`: ones
    - `i2h_b [3H]`, `gates_t_norm_bias [3H]`: zeros

    Args:
        heads: blocks of the recurrent weights, 8 in the paper. The default is the greatest common divisor of H and 4.
        forget_bias: added to the gate that keeps the state, before its sigmoid.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.BlockGRUCell(3, 8, heads=2)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 8), (1, 2, 8))
    """

    default_name: ClassVar[str] = "block_gru"
    state_names = ("hidden_t",)
    recurrent_params = ("gates_t_norm_scale", "gates_t_norm_bias")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,), size = states, 3 * self.hidden_size
        gates = self.gates(step, x_t, h_prev, 3, extra)
        scale = step.parameter(f"{self.name}/gates_t_norm_scale", (size,), "ones")
        bias = step.parameter(f"{self.name}/gates_t_norm_bias", (size,), "zeros")
        reset, candidate, update = split(layer_normalization(gates, scale, bias, axis=-1, epsilon=EPSILON), 3, axis=-1)
        enter = sigmoid(update - (1.0 + self.forget_bias))
        return self.stepped(step, [enter * tanh(sigmoid(reset) * candidate) + (1.0 - enter) * h_prev], states)


@register_cell
class MLSTMCell(HeadCell):
    """LSTM with one matrix as memory for each head, keys by rows. Its gates read only the input.

    The parts are query, key, value and output gate. q, k and v are split into heads of d = H / heads features, and i
    and f are one number for each head::

        q, k, v, o = split(x @ i2h_w.T + i2h_b, 4)
        i, f = split(x @ gates_t_w.T + concat([enter_b, forget_b]), 2)
        k = k / sqrt(d)
        a = log(sigmoid(f + forget_bias)) + m_prev
        m = max(a, i)
        C = exp(a - m) * C_prev + exp(i - m) * outer(k, v)
        n = exp(a - m) * n_prev + exp(i - m) * k
        y = sigmoid(o) * (C.T @ q) / max(abs(dot(n, q)), exp(-m))

    Beck and others 2024, "xLSTM: extended long short-term memory", arXiv 2405.04517, equations 19 to 27.

    States:

    - `memory_t [N, heads, d, d]`: C
    - `normalizer_t [N, heads, d]`: n
    - `exponent_t [N, heads, 1]`: m, the largest exponent so far

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [2 heads, D]`: xavier
    - `i2h_b [4H]`, `enter_b [heads]`: zeros
    - `forget_b [heads]`: uniform in [3, 6], close to the authors' code

    Args:
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MLSTMCell(3, 8, heads=2)
        >>> y, (C_all, C_last, *others) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, C_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "mlstm"
    state_names: ClassVar[tuple[str, ...]] = ("memory_t", "normalizer_t", "exponent_t")
    recurrent_params: ClassVar[tuple[str, ...]] = ("gates_t_w", "enter_b", "forget_b")
    enter_start: ClassVar[float] = 0.0

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.width, self.width), (self.heads, self.width), (self.heads, 1)]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        C_prev, n_prev, m_prev = states
        (q, k, v, out), (i, f) = self.parts(step, x_t, extra)
        k = k * self.width**-0.5
        kept = m_prev - softplus(-f)
        m_t = maximum(kept, i)
        forget, enter = exp(kept - m_t), exp(i - m_t)
        C_t = unsqueeze(forget, [3]) * C_prev + outer(enter * k, v)
        n_t = forget * n_prev + enter * k
        norm = maximum(absolute(reduce_sum(n_t * q, axes=[2])), exp(-m_t))
        h_t = sigmoid(out) * self.joined(read(C_t, q) / norm)
        return step.masked_output(h_t), self.kept(step, [C_t, n_t, m_t], states)

    def parts(self, step: Step, x_t: Blob, extra: Extra) -> tuple[list[Blob], list[Blob]]:
        """Query, key and value, [N, heads, d]; the output gate, [N, H]; input and forget gate, [N, heads, 1].

        Gates come before their activation.

        Args:
            step: the step under construction.
            x_t: [N, D].
            extra: as in `step`.
        """
        *parts, out = self.projected(step, x_t, 4, "projected_t", extra)
        q, k, v = map(self.by_head, parts)
        starts = {"enter_b": self.enter_start, "forget_b": ("uniform", 3.0, 6.0)}
        biases = [step.parameter(f"{self.name}/{name}", (self.heads,), init) for name, init in starts.items()]
        gates = step.product(x_t, f"{self.name}/gates_t", self.input_size, 2 * self.heads) + concat(biases, axis=0)
        i, f = (unsqueeze(gate, [2]) for gate in split(gates, 2, axis=-1))
        return [q, k, v, out], [i, f + self.forget_bias]


@register_cell
class MLSTMSigmoidCell(MLSTMCell):
    """mLSTM with a sigmoid as input gate. It needs neither a normalizer nor the largest exponent.

    The parts are as in `MLSTMCell`::

        q, k, v, o = split(x @ i2h_w.T + i2h_b, 4)
        i, f = split(x @ gates_t_w.T + concat([enter_b, forget_b]), 2)
        C = sigmoid(f + forget_bias) * C_prev + sigmoid(i) * outer(k, v)
        s = C.T @ q / sqrt(d)
        y = sigmoid(o) * s / sqrt(mean(s ** 2) + 0.000001) * norm_scale

    Beck and others 2025, "Tiled flash linear attention: more efficient linear RNN and xLSTM kernels", arXiv 2503.14376,
    with the authors' epsilon and start values of biases.

    States:

    - `memory_t [N, heads, d, d]`: C, keys by rows

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [2 heads, D]`: xavier
    - `i2h_b [4H]`: zeros
    - `enter_b [heads]`: -10
    - `forget_b [heads]`: uniform in [3, 6], close to the authors' code
    - `norm_scale [H]`: ones

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MLSTMSigmoidCell(3, 8, heads=2)
        >>> y, (C_all, C_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, C_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "mlstm_sigmoid"
    state_names = ("memory_t",)
    recurrent_params = (*MLSTMCell.recurrent_params, "norm_scale")
    enter_start = -10.0

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return super().get_state_shapes()[:1]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (q, k, v, out), (i, f) = self.parts(step, x_t, extra)
        C_t = unsqueeze(sigmoid(f), [3]) * states[0] + outer(sigmoid(i) * k, v)
        seen = self.joined(self.root_normalized(step, read(C_t, q * self.width**-0.5), 1e-6))
        return step.masked_output(sigmoid(out) * seen), self.kept(step, [C_t], states)
