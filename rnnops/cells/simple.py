"""Simple and quasi-recurrent cells: BasicRNN, IndRNN, SRU, QRNN, FastGRNN, MinGRU, MinLSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, sqrt
from typing import Any, ClassVar

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.sized import SizedCell, finite, register_cell
from rnnops.errors import NetError, check_flags
from rnnops.net.blob import Blob
from rnnops.ops.activation import relu, sigmoid, tanh
from rnnops.ops.comparison import min as minimum
from rnnops.ops.movement import split

ACTIVATIONS = {"tanh": tanh, "relu": relu}


@register_cell
class BasicRNNCell(SizedCell):
    """The plain recurrent cell.

    The step is::

        h = activation(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b)

    Elman 1990, "Finding structure in time", Cognitive Science 14(2).

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [H, H]`: xavier
    - `i2h_b [H]`, `gates_t_b [H]`: zeros

    Args:
        forget_bias: not read; there is no gate.
        activation: `"tanh"` or `"relu"`.

    Raises:
        NetError: another activation, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.BasicRNNCell(3, 4, activation="relu")
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "basic_rnn"
    recurrent_params = ("gates_t_w", "gates_t_b")

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "tanh", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.activation = activation_of(activation, self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,) = states
        x = step.linear(x_t, self.input_name, self.input_size, self.hidden_size)
        gates = x + step.linear(h_prev, f"{self.name}/gates_t", self.hidden_size, self.hidden_size, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        h_t = step.masked(self.activation(gates), h_prev, self.drop_states)
        return h_t, [h_t]


def activation_of(name: object, cell: str) -> Callable[[Blob], Blob]:
    """The function for an activation's name. Raises NetError for an unknown name."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise NetError("unknown activation", blob=cell, wanted=" or ".join(ACTIVATIONS), came=name)
    return ACTIVATIONS[name]


@register_cell
class IndRNNCell(SizedCell):
    """A recurrent cell in which each unit reads only its own state.

    The step is::

        h = activation(x @ i2h_w.T + i2h_b + recurrent_w * h_prev)

    Li and others 2018, "Independently recurrent neural network", arXiv 1803.04831, equation 2.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`: xavier
    - `i2h_b [H]`: zeros
    - `recurrent_w [H]`: uniform in [0, 1], as in section 4.1

    Args:
        activation: `"relu"` or `"tanh"`.
        forget_bias: not read; there is no gate.

    Raises:
        NetError: another activation, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.IndRNNCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "indrnn"
    recurrent_params = ("recurrent_w",)

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "relu", **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.activation = activation_of(activation, self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,) = states
        (x,) = self.projected(step, x_t, 1, extra=extra)
        recurrent = step.parameter(f"{self.name}/recurrent_w", (self.hidden_size,), ("uniform", 0.0, 1.0))
        gates = step.labelled(x + recurrent * h_prev, f"{self.name}/gates_t", self.memory_optimization)
        return self.stepped(step, [self.activation(gates)], states)


LARGEST_BIAS = 80.0  # above it, the root of its exponential is not a finite float32


@register_cell
class SRUCell(SizedCell):
    """Simple recurrent unit: an elementwise recurrence, and a highway from the input to the output.

    The parts are candidate, forget, highway, and p, which replaces x. If D equals H, there are only three parts, and p
    is x::

        v, f, r, p = split(x @ i2h_w.T, 4)
        f = sigmoid(f + forget_v * c_prev + forget_b + forget_bias)
        r = sigmoid(r + highway_v * c_prev + highway_b)
        c = f * c_prev + (1 - f) * v
        y = r * c + (1 - r) * p * sqrt(1 + 2 * exp(highway_bias))

    Lei and others 2018, "Simple recurrent units for highly parallelizable recurrence", arXiv 1709.02755, equations 1 to
    4. The scale of the highway is from section 3.2.

    States:

    - `cell_t [N, H]`: c

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name, if D is not H:

    - `i2h_w [4H, D]`: xavier; it has 3H rows if D equals H
    - `forget_v [H]`, `highway_v [H]`: xavier
    - `forget_b [H]`: zeros
    - `highway_b [H]`: `highway_bias`

    Args:
        highway_bias: start value of `highway_b`, at most 80. It scales the highway.
        forget_bias: added to f.

    Raises:
        NetError: highway_bias is not a finite number, or above 80, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SRUCell(4, 4)
        >>> y, (c_all, c_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 4)))
        >>> y.shape, c_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "sru"
    state_names = ("cell_t",)
    recurrent_params = ("forget_v", "highway_v", "forget_b", "highway_b")

    def __init__(self, input_size: int, hidden_size: int, *, highway_bias: float = 0.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.highway_bias = finite(highway_bias, "highway_bias", self.name)
        if not self.highway_bias <= LARGEST_BIAS:
            wanted = f"at most {LARGEST_BIAS}"
            self.fail("the scale of the highway is not a finite number", wanted=wanted, came=highway_bias)

    def get_input_params(self) -> list[str]:
        return [f"{self.input_name}_w"]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (c_prev,), (D, H) = states, (self.input_size, self.hidden_size)
        parts = 3 if D == H else 4
        product = step.product(x_t, self.input_name, D, parts * H, extra)
        step.labelled(product, f"{self.name}/gates_t", self.memory_optimization)
        value, forget, highway, *passed = split(product, parts, axis=-1)
        f = sigmoid(self._gate(step, "forget", forget, c_prev, 0.0) + self.forget_bias)
        r = sigmoid(self._gate(step, "highway", highway, c_prev, self.highway_bias))
        c_t = f * c_prev + (1.0 - f) * value
        scale = sqrt(1.0 + 2.0 * exp(self.highway_bias))
        h_t = r * c_t + (1.0 - r) * (scale * (passed[0] if passed else x_t))
        return step.masked_output(h_t), self.kept(step, [c_t], states)

    def _gate(self, step: Step, gate: str, value: Blob, c_prev: Blob, bias: float) -> Blob:
        seen = step.parameter(f"{self.name}/{gate}_v", (self.hidden_size,), "xavier") * c_prev
        return value + seen + step.parameter(f"{self.name}/{gate}_b", (self.hidden_size,), bias)


@register_cell
class QRNNCell(SizedCell):
    """Quasi-recurrent cell: a convolution of width 2 over time, and fo-pooling.

    `x_prev` is the input of the step before. The parts are candidate, forget, output::

        v, f, o = split(concat([x, x_prev], axis=-1) @ i2h_w.T + i2h_b, 3)
        f = sigmoid(f + forget_bias)
        c = f * c_prev + (1 - f) * tanh(v)
        y = sigmoid(o) * c

    Bradbury and others 2017, "Quasi-recurrent neural networks", arXiv 1611.01576, equations 1 and 4.

    States:

    - `cell_t [N, H]`: c
    - `input_t [N, D]`: x, which is `x_prev` in the next step. In the paper it begins with zeros

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [3H, 2D]`: xavier
    - `i2h_b [3H]`: zeros

    Args:
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.QRNNCell(3, 4)
        >>> y, (c_all, c_last, x_all, x_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, x_last.shape
        ((7, 2, 4), (1, 2, 3))
    """

    default_name: ClassVar[str] = "qrnn"
    state_names = ("cell_t", "input_t")

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size, self.input_size]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        c_prev, x_prev = states
        candidate, forget, out = self.projected(step, x_t, 3, "gates_t", [(x_prev, self.input_size), *extra])
        f = sigmoid(forget + self.forget_bias)
        c_t = f * c_prev + (1.0 - f) * tanh(candidate)
        return step.masked_output(sigmoid(out) * c_t), self.kept(step, [c_t, x_t], states)


@register_cell
class FastGRNNCell(SizedCell):
    """Fast gated recurrent network: gate and candidate share one product, and have separate biases.

    `enter` and `leak` are two numbers, the paper's zeta and nu before their sigmoid::

        a = x @ i2h_w.T + h_prev @ gates_t_w.T
        z = sigmoid(a + update_b + forget_bias)
        h = (sigmoid(enter) * (1 - z) + sigmoid(leak)) * tanh(a + i2h_b) + z * h_prev

    Kusupati and others 2018, "FastGRNN", arXiv 1901.02358, with matrices of full rank. Biases, `enter` and `leak` start
    as in the authors' code.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [H, H]`: xavier
    - `i2h_b [H]`, `update_b [H]`, `enter [1]`: ones
    - `leak [1]`: -4

    Args:
        forget_bias: added to the gate before its sigmoid.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.FastGRNNCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "fast_grnn"
    recurrent_params = ("gates_t_w", "update_b", "enter", "leak")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,), H = states, self.hidden_size
        x = step.product(x_t, self.input_name, self.input_size, H)
        gates = x + step.product(h_prev, f"{self.name}/gates_t", H, H, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        z = sigmoid(gates + step.parameter(f"{self.name}/update_b", (H,), "ones") + self.forget_bias)
        candidate = tanh(gates + step.parameter(f"{self.input_name}_b", (H,), "ones"))
        enter, leak = (
            sigmoid(step.parameter(f"{self.name}/{name}", (1,), init))
            for name, init in (("enter", "ones"), ("leak", -4.0))
        )
        return self.stepped(step, [(enter * (1.0 - z) + leak) * candidate + z * h_prev], states)


class MinimalCell(SizedCell):
    """Base of MinGRUCell and MinLSTMCell.

    Args:
        positive: True to put candidates through g, so that states that begin positive stay positive.
        forget_bias: added to the gate that keeps the state.
    """

    def __init__(self, input_size: int, hidden_size: int, *, positive: bool = False, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        check_flags(type(self).__name__, positive=positive)
        self.positive = positive

    def candidate(self, value: Blob) -> Blob:
        """g of a candidate. Its two parts meet at 0. `sigmoid(min(v, 0)) + relu(v)` computes both.

        Args:
            value: [N, H].
        """
        return sigmoid(minimum(value, 0.0)) + relu(value) if self.positive else value


@register_cell
class MinGRUCell(MinimalCell):
    """GRU without a reset gate and without a recurrent product. Its gate reads only the input.

    The parts are in the order update and candidate::

        u, v = split(x @ i2h_w.T + i2h_b, 2)
        z = sigmoid(u - forget_bias)
        h = (1 - z) * h_prev + z * g(v)

    `g(v)` is v, or with `positive` it is `v + 0.5` for `v >= 0` and `sigmoid(v)` below.

    Feng and others 2024, "Were RNNs all we needed?", arXiv 2410.01201, section 3.1.4; `positive`: appendix B.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [2H, D]`: xavier
    - `i2h_b [2H]`: zeros

    Args:
        positive: True to put candidates through g, so that states that begin positive stay positive.
        forget_bias: subtracted from the gate that lets the candidate in, so that more of the state is kept.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MinGRUCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "min_gru"

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        update, value = self.projected(step, x_t, 2, "gates_t", extra)
        z = sigmoid(update - self.forget_bias)
        return self.stepped(step, [(1.0 - z) * states[0] + z * self.candidate(value)], states)


@register_cell
class MinLSTMCell(MinimalCell):
    """LSTM without a cell state and without a recurrent product. Its gates read only the input.

    The parts are in the order forget, input and candidate. The two gates are scaled so that their sum is 1::

        f, i, v = split(x @ i2h_w.T + i2h_b, 3)
        f, i = sigmoid(f + forget_bias), sigmoid(i)
        h = f / (f + i) * h_prev + i / (f + i) * g(v)

    `g(v)` is v, or with `positive` it is `v + 0.5` for `v >= 0` and `sigmoid(v)` below.

    Feng and others 2024, "Were RNNs all we needed?", arXiv 2410.01201, section 3.2.4; `positive`: appendix B.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`: xavier
    - `i2h_b [3H]`: zeros

    Args:
        positive: True to put candidates through g, so that states that begin positive stay positive.
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MinLSTMCell(3, 4, positive=True)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "min_lstm"

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        forget, enter, value = self.projected(step, x_t, 3, "gates_t", extra)
        f, i = sigmoid(forget + self.forget_bias), sigmoid(enter)
        share = i / (f + i)
        return self.stepped(step, [states[0] + share * (self.candidate(value) - states[0])], states)
