"""Cells that come from differential equations, and spiking cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.sized import SizedCell, count_of, finite, register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import relu, sigmoid, softplus, tanh
from rnnops.ops.arithmetic import abs as absolute
from rnnops.ops.base import number, stop_gradient, with_gradient
from rnnops.ops.comparison import cast
from rnnops.ops.movement import split, transpose
from rnnops.types import Array


@register_cell
class CfCCell(SizedCell):
    """Closed-form continuous-time cell. It moves from one candidate to another with the time that has passed.

    The parts of the heads are in the order g, k, a, b::

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
        backbone_size: U, features that candidates and gate share. The default is H.
        elapsed: time from step to step.
        forget_bias: not read.

    Raises:
        NetError: backbone_size is not a size, elapsed is not a number, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.CfCCell(3, 4, backbone_size=16)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "cfc"
    recurrent_params = ("hidden_w", "heads_w", "heads_b")

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

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,), (H, U) = states, (self.hidden_size, self.backbone_size)
        x = step.linear(x_t, self.input_name, self.input_size, U)
        gates = x + step.product(h_prev, f"{self.name}/hidden", H, U, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        backbone = 1.7159 * tanh(0.666 * gates)  # LeCun's tanh; 2/3 is rounded as in the authors' code
        first, second, rate, shift = split(step.linear(backbone, f"{self.name}/heads", U, 4 * H), 4, axis=-1)
        passed = sigmoid(self.elapsed * rate + shift)
        return self.stepped(step, [(1.0 - passed) * tanh(first) + passed * tanh(second)], states)


@register_cell
class LTCCell(SizedCell):
    """Liquid time-constant cell: neurons whose time constants depend on their input and state.

    `dv/dt = -(leak + f) v + f target` is solved by the paper's fused solver, in `unfolds` parts of a step of length
    `elapsed`. f is positive, so that states stay bounded (theorem 2)::

        dt, v = elapsed / unfolds, v_prev
        for _ in range(unfolds):
            f = sigmoid(x @ i2h_w.T + i2h_b + v @ gates_t_w.T)
            v = (v + dt * f * target) / (1 + dt * (softplus(leak) + f))

    Hasani and others 2021, "Liquid time-constant networks", arXiv 2006.04439, equations 1 to 3 and algorithm 1. The
    paper's `1 / tau` is `softplus(leak)`, and its A is `target`.

    States:

    - `hidden_t [N, H]`: v, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [H, H]`: xavier
    - `i2h_b [H]`, `leak [H]`: zeros
    - `target [H]`: uniform in [-1, 1]

    Args:
        unfolds: parts of a step, 1 or more; L in the paper.
        elapsed: time from step to step.
        forget_bias: not read.

    Raises:
        NetError: unfolds is not an integer of 1 or more, or elapsed is not a number, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LTCCell(3, 4, unfolds=3)
        >>> y, (v_all, v_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, v_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "ltc"
    recurrent_params = ("gates_t_w", "target", "leak")

    def __init__(
        self, input_size: int, hidden_size: int, *, unfolds: int = 6, elapsed: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.unfolds = count_of(unfolds, "unfolds", self.name)
        self.elapsed = finite(elapsed, "elapsed", self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (v,), H, dt = states, self.hidden_size, self.elapsed / self.unfolds
        (x,) = self.projected(step, x_t, 1)
        target = step.parameter(f"{self.name}/target", (H,), ("uniform", -1.0, 1.0))
        leak = softplus(step.parameter(f"{self.name}/leak", (H,), "zeros"))
        for _ in range(self.unfolds):
            gate = x + step.product(v, f"{self.name}/gates_t", H, H, extra)
            f = sigmoid(step.labelled(gate, f"{self.name}/gates_t", self.memory_optimization))
            v = (v + dt * f * target) / (1.0 + dt * (leak + f))
        return self.stepped(step, [v], states)


@register_cell
class LEMCell(SizedCell):
    """Long expressive memory: two states, each with a time step that is computed from the input.

    The parts of the input are in the order of the two time steps, z and y::

        xa, xb, xz, xy = split(x @ i2h_w.T + i2h_b, 4)
        ya, yb, yz = split(y_prev @ gates_t_w.T, 3)
        a, b = dt * sigmoid(xa + ya), dt * sigmoid(xb + yb)
        z = (1 - a) * z_prev + a * tanh(xz + yz)
        y = (1 - b) * y_prev + b * tanh(xy + z @ slow_w.T)

    Rusch and others 2022, "Long expressive memory for sequence modeling", arXiv 2110.04744.

    States:

    - `hidden_t [N, H]`: y, the output
    - `slow_t [N, H]`: z

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [3H, H]`, `slow_w [H, H]`: xavier
    - `i2h_b [4H]`: zeros

    Args:
        dt: the longest step in time.
        forget_bias: not read.

    Raises:
        NetError: dt is not a finite number, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LEMCell(3, 4, dt=0.5)
        >>> y, (y_all, y_last, z_all, z_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, z_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "lem"
    state_names = ("hidden_t", "slow_t")
    recurrent_params = ("gates_t_w", "slow_w")

    def __init__(self, input_size: int, hidden_size: int, *, dt: float = 1.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.dt = finite(dt, "dt", self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (y_prev, z_prev), H = states, self.hidden_size
        x, out = split(step.linear(x_t, self.input_name, self.input_size, 4 * H), [3 * H, H], axis=-1)
        gates = x + step.product(y_prev, f"{self.name}/gates_t", H, 3 * H, extra)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        slow, fast, candidate = split(gates, 3, axis=-1)
        a, b = self.dt * sigmoid(slow), self.dt * sigmoid(fast)
        z_t = (1.0 - a) * z_prev + a * tanh(candidate)
        y_t = (1.0 - b) * y_prev + b * tanh(out + step.product(z_t, f"{self.name}/slow", H, H))
        return self.stepped(step, [y_t, z_t], states)


@register_cell
class CoRNNCell(SizedCell):
    """Coupled oscillators. Their places y and their velocities z are states.

    The damping uses the velocity of the step before::

        force = x @ i2h_w.T + i2h_b + concat([y_prev, z_prev], axis=-1) @ hidden_w.T
        z = z_prev + dt * (tanh(force) - gamma * y_prev - epsilon * z_prev)
        y = y_prev + dt * z

    Rusch and Mishra 2021, "Coupled oscillatory recurrent neural network", arXiv 2010.00951, equation 3.

    States:

    - `hidden_t [N, H]`: y, the output
    - `velocity_t [N, H]`: z

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `hidden_w [H, 2H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        dt: length of a step in time. The defaults of dt, gamma and epsilon are the paper's for sequential MNIST.
        gamma: how strongly a place is drawn back.
        epsilon: damping of the velocity.
        forget_bias: not read; there is no gate.

    Raises:
        NetError: dt, gamma or epsilon is not a finite number, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.CoRNNCell(3, 4, dt=0.05)
        >>> y, (y_all, y_last, z_all, z_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, z_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "cornn"
    state_names = ("hidden_t", "velocity_t")
    recurrent_params = ("hidden_w",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        given = {"dt": dt, "gamma": gamma, "epsilon": epsilon}
        self.dt, self.gamma, self.epsilon = (finite(one, key, self.name) for key, one in given.items())

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (y_prev, z_prev), H = states, self.hidden_size
        (x,) = self.projected(step, x_t, 1)
        force = x + step.product(y_prev, f"{self.name}/hidden", H, H, [(z_prev, H), *extra])
        step.labelled(force, f"{self.name}/gates_t", self.memory_optimization)
        z_t = z_prev + self.dt * (tanh(force) - self.gamma * y_prev - self.epsilon * z_prev)
        return self.stepped(step, [y_prev + self.dt * z_t, z_t], states)


@register_cell
class LMUCell(SizedCell):
    """Legendre memory unit: a hidden state, and a linear memory of the last `theta` steps of one signal.

    The memory holds the signal u as d Legendre polynomials. A and B are the paper's closed form in continuous time,
    made discrete with a u that is constant within a step::

        u = x @ signal_x_w.T + h_prev @ signal_h_w.T + m_prev @ signal_m_w.T
        m = m_prev @ A.T + u * B
        h = tanh(x @ i2h_w.T + i2h_b + h_prev @ hidden_w.T + m @ memory_w.T)

    Voelker, Kajić and Eliasmith 2019, "Legendre memory units", NeurIPS, equations 1 to 7.

    States:

    - `hidden_t [N, H]`: h, the output
    - `memory_t [N, d]`: m

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `hidden_w [H, H]`, `memory_w [H, d]`: xavier
    - `signal_x_w [1, D]`, `signal_h_w [1, H]`: xavier
    - `signal_m_w [1, d]`: zeros, as in the paper
    - `i2h_b [H]`: zeros

    Args:
        order: d, by default H.
        theta: how many steps the memory reaches back, more than 0.
        forget_bias: not read; there is no gate.

    Raises:
        NetError: order is not a size, or theta is not a number above 0, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LMUCell(3, 4, order=6, theta=100.0)
        >>> y, (h_all, h_last, m_all, m_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, m_last.shape
        ((7, 2, 4), (1, 2, 6))
    """

    default_name: ClassVar[str] = "lmu"
    state_names = ("hidden_t", "memory_t")
    recurrent_params = ("hidden_w", "memory_w", "signal_x_w", "signal_h_w", "signal_m_w")

    def __init__(
        self, input_size: int, hidden_size: int, *, order: int | None = None, theta: float = 64.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.order = hidden_size if order is None else count_of(order, "order", self.name)
        self.theta = number(theta, f"theta of '{self.name}'")
        if not self.theta > 0:
            self.fail("theta, the window of the memory, must be positive", wanted="theta > 0", came=theta)

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size, self.order]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        h_prev, m_prev = states
        H, d = self.hidden_size, self.order
        seen = step.parameter(f"{self.name}/signal_m_w", (1, d), "zeros")
        signal = step.product(x_t, f"{self.name}/signal_x", self.input_size, 1)
        signal = signal + step.product(h_prev, f"{self.name}/signal_h", H, 1) + m_prev @ transpose(seen, perm=[1, 0])
        A, B = memory_matrices(d, self.theta)
        kept = m_prev @ step.constant(f"{self.name}/memory_transition", A.T)
        m_t = kept + signal * step.constant(f"{self.name}/memory_input", B)
        (x,) = self.projected(step, x_t, 1)
        x = x + step.product(h_prev, f"{self.name}/hidden", H, H, extra)
        gates = step.labelled(
            x + step.product(m_t, f"{self.name}/memory", d, H), f"{self.name}/gates_t", self.memory_optimization
        )
        return self.stepped(step, [tanh(gates), m_t], states)


def memory_matrices(order: int, theta: float) -> tuple[Array, Array]:
    """A `[d, d]` and B `[d]` of a step: the solution of equation 2 for a u that is constant within the step."""
    row, column = np.arange(order)[:, None], np.arange(order)[None, :]
    A = np.where(row < column, -1.0, (-1.0) ** (row - column + 1)) * (2 * row + 1) / theta
    B = (-1.0) ** row * (2 * row + 1) / theta
    both = exponential(np.block([[A, B], [np.zeros((1, order + 1))]]))
    return both[:order, :order], both[:order, order]


def exponential(matrix: Array) -> Array:
    """exp of a matrix. The matrix is halved until the series converges fast, and the result is squared as often."""
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(matrix).sum(axis=0).max(), 1e-300)))) + 2)
    term = result = np.eye(len(matrix))
    for k in range(1, 20):
        term = term @ (matrix / 2.0**halvings) / k
        result = result + term
    return np.linalg.matrix_power(result, 2**halvings)


@register_cell
class LIFCell(SizedCell):
    """Leaky integrate-and-fire neurons. Their output is spikes, 0 or 1.

    The step is::

        current = x @ i2h_w.T + i2h_b + z_prev @ spikes_w.T
        v = decay * v_prev + (1 - decay) * current - threshold * z_prev
        z = where(v > threshold, 1, 0)

    In the backward pass the slope of z with respect to `u = (v - threshold) / threshold` is taken as `dampening *
    max(0, 1 - abs(u))`.

    Bellec and others 2018, "Long short-term memory and learning-to-learn in networks of spiking neurons",
    arXiv 1803.09574.

    States:

    - `spikes_t [N, H]`: z, the output
    - `potential_t [N, H]`: v

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `spikes_w [H, H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        decay: factor of the potential in a step. The default is `exp(-1 / 20)`, a membrane of 20 steps.
        threshold: potential above which a neuron spikes, more than 0. A spike lowers the potential by it.
        dampening: factor of the surrogate slope.
        forget_bias: not read; there is no gate.

    Raises:
        NetError: decay, threshold or dampening is not a finite number, decay is not from 0 to 1, or threshold not above
            0, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LIFCell(3, 4, decay=0.9)
        >>> z, (z_all, z_last, v_all, v_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> z.shape, v_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "lif"
    state_names: ClassVar[tuple[str, ...]] = ("spikes_t", "potential_t")
    recurrent_params = ("spikes_w",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        decay: float = 0.9512,
        threshold: float = 1.0,
        dampening: float = 0.3,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        given = {"decay": decay, "threshold": threshold, "dampening": dampening}
        self.decay, self.threshold, self.dampening = (finite(one, key, self.name) for key, one in given.items())
        self._check_share("decay", self.decay)
        if self.threshold <= 0:
            self.fail("a neuron's threshold must be positive", came=threshold)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        z_prev, v_prev = states
        current = self.current(step, x_t, z_prev, extra)
        v_t = self.decay * v_prev + (1.0 - self.decay) * current - self.threshold * z_prev
        return self.stepped(step, [self.spikes((v_t - self.threshold) / self.threshold), v_t], states)

    def _check_share(self, what: str, value: float) -> None:
        """Raise NetError for a number that is not from 0 to 1."""
        if not 0 <= value <= 1:
            self.fail(f"{what} is out of range", wanted="0 to 1", came=value)

    def current(self, step: Step, x_t: Blob, z_prev: Blob, extra: Extra) -> Blob:
        """The input current, [N, H], from outside and from the neurons' own spikes.

        Args:
            step: the step under construction.
            x_t: [N, D].
            z_prev: [N, H].
            extra: (blob, feature size) of more blobs that the recurrent product reads.
        """
        (x,) = self.projected(step, x_t, 1)
        current = x + step.product(z_prev, f"{self.name}/spikes", self.hidden_size, self.hidden_size, extra)
        return step.labelled(current, f"{self.name}/current_t", self.memory_optimization)

    def spikes(self, above: Blob) -> Blob:
        """1 for positive numbers, else 0, with the surrogate slope.

        Args:
            above: [N, H], (potential - threshold) / threshold.
        """
        fired = stop_gradient(cast(above > 0.0, "float"))
        return with_gradient(fired, above, stop_gradient(self.dampening * relu(1.0 - absolute(above))))


@register_cell
class ALIFCell(LIFCell):
    """Leaky integrate-and-fire neurons that adapt: each spike raises their threshold for a while.

    The step is::

        current = x @ i2h_w.T + i2h_b + z_prev @ spikes_w.T
        u = adaptation * u_prev + (1 - adaptation) * z_prev
        v = decay * v_prev + (1 - decay) * current - (threshold + strength * u_prev) * z_prev
        B = threshold + strength * u
        z = where(v > B, 1, 0)

    In the backward pass the slope of z with respect to `w = (v - B) / B` is taken as `dampening * max(0, 1 - abs(w))`.

    Bellec and others 2018, "Long short-term memory and learning-to-learn in networks of spiking neurons",
    arXiv 1803.09574.

    States:

    - `spikes_t [N, H]`: z, the output
    - `potential_t [N, H]`: v
    - `adaptation_t [N, H]`: u

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `spikes_w [H, H]`: xavier
    - `i2h_b [H]`: zeros

    Args:
        adaptation: factor of u in a step. The default is `exp(-1 / 200)`, 200 steps.
        strength: factor with which u raises the threshold.
        forget_bias: not read; there is no gate.

    Raises:
        NetError: adaptation or strength is not a finite number, or adaptation not from 0 to 1, or as in `LIFCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ALIFCell(3, 4, strength=1.0)
        >>> z, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> z.shape, len(states)
        ((7, 2, 4), 6)
    """

    default_name: ClassVar[str] = "alif"
    state_names = (*LIFCell.state_names, "adaptation_t")

    def __init__(
        self, input_size: int, hidden_size: int, *, adaptation: float = 0.995, strength: float = 1.8, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.adaptation = finite(adaptation, "adaptation", self.name)
        self._check_share("adaptation", self.adaptation)
        self.strength = finite(strength, "strength", self.name)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        z_prev, v_prev, u_prev = states
        u_t = self.adaptation * u_prev + (1.0 - self.adaptation) * z_prev
        before, level = (self.threshold + self.strength * u for u in (u_prev, u_t))
        current = self.current(step, x_t, z_prev, extra)
        v_t = self.decay * v_prev + (1.0 - self.decay) * current - before * z_prev
        return self.stepped(step, [self.spikes((v_t - level) / level), v_t, u_t], states)
