"""State space and time-mix cells: selective SSM, Mamba-2, LRU, S5, RG-LRU, RWKV-7."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import exp as exponential
from typing import Any, ClassVar

import numpy as np

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.linear_attention import EPSILON, HeadCell, outer, rate_logs, read, step_biases, swish, unit
from rnnops.cells.sized import ShapedCell, SizedCell, count_of, register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import cos, exp, expm1, sin, sqrt
from rnnops.ops.movement import concat, split, squeeze, unsqueeze
from rnnops.ops.normalization import layer_normalization, rms_normalization
from rnnops.ops.reduction import reduce_sum
from rnnops.types import Array


@register_cell
class SelectiveSSMCell(ShapedCell):
    """Selective state space: each of H channels has S numbers. Steps, inputs and readings are computed from the input.

    The parts are steps, B and C::

        u = x @ i2h_w.T + i2h_b
        low, B, C = split(u @ select_w.T, [rank, S, S])
        step = softplus(low @ delta_w.T + delta_b)
        A = -exp(decay_log) * arange(1, S + 1)
        h = exp(outer(step, 1) * A) * h_prev + outer(step * u, B)
        y = h @ C + pass_w * u

    Gu and Dao 2023, "Mamba", arXiv 2312.00752, equation 2 and algorithm 2. The block's convolution and gate are left
    out: layers around the cell can do them.

    States:

    - `channels_t [N, H, S]`: h

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `select_w [rank + 2S, H]`, `delta_w [H, rank]`: xavier
    - `i2h_b [H]`, `decay_log [H, S]`: zeros
    - `delta_b [H]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `pass_w [H]`: ones

    Args:
        state_size: S, numbers of a channel.
        rank: rank of the product that gives steps. The default is H / 16, rounded up.
        forget_bias: not read.

    Raises:
        NetError: hidden_size, state_size or rank is not a size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SelectiveSSMCell(3, 4, state_size=5)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4, 5))
    """

    default_name: ClassVar[str] = "selective_ssm"
    state_names = ("channels_t",)
    recurrent_params = ("select_w", "delta_w", "delta_b", "decay_log", "pass_w")

    def __init__(
        self, input_size: int, hidden_size: int, *, state_size: int = 16, rank: int | None = None, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        sixteenth = -(-count_of(hidden_size, "hidden_size", self.name) // 16)
        self.rank = sixteenth if rank is None else count_of(rank, "rank", self.name)
        self.state_size = count_of(state_size, "state_size", self.name)

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.hidden_size, self.state_size)]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
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


@register_cell
class Mamba2Cell(HeadCell):
    """Selective state space with heads. Each head has one decay, and all heads share inputs and readings.

    The parts are output gate, input, B, C and steps. u is split into heads of d = H / heads features, steps are one
    number for each head, B and C have S features, and `swish(a) = a * sigmoid(a)`::

        z, u, B, C, t = split(x @ i2h_w.T + i2h_b, [H, H, S, S, heads])
        u, B, C = swish(u), swish(B), swish(C)
        t = softplus(t + step_b)
        h = exp(-exp(decay_log) * t) * h_prev + t * outer(B, u)
        s = (h.T @ C + pass_w * u) * swish(z)
        y = s / sqrt(mean(s ** 2) + 0.00001) * norm_scale

    The mean is over all heads.

    Dao and Gu 2024, "Transformers are SSMs", arXiv 2405.21060 (Mamba-2, SSD). The block's convolution and last
    projection are left out: layers around the cell can do them.

    States:

    - `memory_t [N, heads, S, d]`: h

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [2H + 2S + heads, D]`: xavier
    - `i2h_b [2H + 2S + heads]`: zeros
    - `decay_log [heads]`: function `rate_logs`, rates uniform in [1, 16]
    - `step_b [heads]`: function `step_biases`, steps of 0.001 to 0.1
    - `pass_w [heads]`, `norm_scale [H]`: ones

    Args:
        state_size: S, features of B and C.
        forget_bias: not read.

    Raises:
        NetError: state_size is not a size, or heads do not divide hidden_size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.Mamba2Cell(3, 8, heads=2, state_size=5)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 8), (1, 2, 2, 5, 4))
    """

    default_name: ClassVar[str] = "mamba2"
    recurrent_params = ("decay_log", "step_b", "pass_w", "norm_scale")

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int = 64, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.state_size = count_of(state_size, "state_size", self.name)

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.state_size, self.width)]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        H, S = self.hidden_size, self.state_size
        sizes = [H, H, S, S, self.heads]
        product = step.linear(x_t, self.input_name, self.input_size, sum(sizes), extra)
        step.labelled(product, f"{self.name}/projected_t", self.memory_optimization)
        z, u, B, C, t = split(product, sizes, axis=-1)
        u, (B, C) = self.by_head(swish(u)), (unsqueeze(swish(part), [1]) for part in (B, C))
        starts = (("decay_log", rate_logs), ("step_b", step_biases), ("pass_w", "ones"))
        log, bias, passed = (step.parameter(f"{self.name}/{name}", (self.heads,), init) for name, init in starts)
        t = softplus(t + bias)
        h_t = unsqueeze(exp(-exp(log) * t), [2, 3]) * states[0] + outer(B, unsqueeze(t, [2]) * u)
        seen = self.joined(read(h_t, C) + unsqueeze(passed, [1]) * u) * swish(z)
        y_t = rms_normalization(seen, self.vector(step, "norm_scale", "ones"), epsilon=EPSILON)
        return step.masked_output(y_t), self.kept(step, [h_t], states)


class PairCell(SizedCell):
    """Base of diagonal linear recurrences of S complex numbers. Two states hold the real and the imaginary parts.

    Args:
        state_size: S, the number of complex numbers. The default is half of H, rounded up.

    Raises:
        NetError: hidden_size or state_size is not a size, or as in `SizedCell`.
    """

    state_names: ClassVar[tuple[str, ...]] = ("real_t", "imaginary_t")
    times: ClassVar[float] = 1.0  # 2 if a state also stands for its conjugate

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        half = (count_of(hidden_size, "hidden_size", self.name) + 1) // 2
        self.state_size = half if state_size is None else count_of(state_size, "state_size", self.name)

    def get_state_dims(self) -> list[int]:
        return [self.state_size] * 2

    def get_input_params(self) -> list[str]:
        return [f"{self.input_name}_w", f"{self.name}/skip_w"]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (re, im), (D, H, S) = states, (self.input_size, self.hidden_size, self.state_size)
        fed = step.product(x_t, self.input_name, D, 2 * S, extra, self.entering())
        step.labelled(fed, f"{self.name}/projected_t", self.memory_optimization)
        (a, b), (u, w) = self.discrete(step, *split(fed, 2, axis=-1))
        new = [a * re - b * im + u, a * im + b * re + w]
        seen = step.product(concat(new, axis=-1), f"{self.name}/read", 2 * S, H, init=self.reading())
        y_t = self.times * seen + step.product(x_t, f"{self.name}/skip", D, H)
        return step.masked_output(y_t), self.kept(step, new, states)

    @abstractmethod
    def entering(self) -> object:
        """Start values of `i2h_w [2S, D]`: first for real parts, then for imaginary parts."""

    @abstractmethod
    def reading(self) -> object:
        """Start values of `read_w [H, 2S]`: first for real parts, then for negated imaginary parts."""

    @abstractmethod
    def discrete(self, step: Step, real: Blob, imaginary: Blob) -> tuple[tuple[Blob, Blob], tuple[Blob, Blob]]:
        """Factors of the states, [S], and the numbers that are added to them, [N, S].

        Both have real and imaginary parts.

        Args:
            step: the step under construction.
            real, imaginary: parts of the product of the input, [N, S].
        """


def ring(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Logarithms of `-log(size)`, angle and gamma. Sizes lie in a ring from 0.9 to 0.999, uniform by area."""
    size = np.sqrt(rng.uniform(0.9**2, 0.999**2, shape[1]))
    return np.log([-np.log(size), 2.0 * np.pi * (1.0 - rng.random(shape[1])), np.sqrt(1.0 - size**2)])


@register_cell
class LRUCell(PairCell):
    """Linear recurrent unit: a diagonal linear recurrence of complex numbers, whose factors start in a ring.

    `eigenvalues` has a row for sizes, one for angles, and one for a factor of the input that keeps states at one size::

        nu, theta, gamma = exp(eigenvalues)
        u, w = split(x @ i2h_w.T, 2)
        s = exp(-nu + 1j * theta) * (re_prev + 1j * im_prev) + gamma * (u + 1j * w)
        re, im = s.real, s.imag
        y = concat([re, im]) @ read_w.T + x @ skip_w.T

    Orvieto and others 2023, "Resurrecting recurrent neural networks for long sequences", arXiv 2303.06349, section 3
    and appendix A. The paper's C is `read_w`, with imaginary parts negated. Its D is `skip_w`, a matrix here.

    States:

    - `real_t [N, S]`: re
    - `imaginary_t [N, S]`: im

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [2S, D]`: normal, with a variance of 1 / 2D
    - `eigenvalues [3, S]`: function `ring`, sizes from 0.9 to 0.999, as in the paper
    - `read_w [H, 2S]`: normal, with a variance of 1 / S
    - `skip_w [H, D]`: xavier

    Args:
        state_size: S, the number of complex numbers. The default is half of H, rounded up.
        forget_bias: not read.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LRUCell(3, 4, state_size=5)
        >>> y, (re_all, re_last, im_all, im_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, im_last.shape
        ((7, 2, 4), (1, 2, 5))
    """

    default_name: ClassVar[str] = "lru"
    recurrent_params = ("eigenvalues", "read_w")

    def entering(self) -> object:
        return "normal", 0.0, (2 * max(self.input_size, 1)) ** -0.5

    def reading(self) -> object:
        return "normal", 0.0, self.state_size**-0.5

    def discrete(self, step: Step, real: Blob, imaginary: Blob) -> tuple[tuple[Blob, Blob], tuple[Blob, Blob]]:
        logs = step.parameter(f"{self.name}/eigenvalues", (3, self.state_size), ring)
        nu, theta, gamma = (squeeze(row, [0]) for row in split(exp(logs), 3, axis=0))
        return (exp(-nu) * cos(theta), exp(-nu) * sin(theta)), (gamma * real, gamma * imaginary)


def hippo(pairs: int) -> tuple[Array, Array]:
    """Positive imaginary parts of the eigenvalues of HiPPO-N, and their eigenvectors, [2 pairs, pairs]."""
    root = np.sqrt(np.arange(2 * pairs) + 0.5)
    above = np.triu(np.outer(root, root), 1)
    values, vectors = np.linalg.eigh(-1j * (above - above.T))
    vectors *= np.exp(-1j * np.angle(vectors[:1]))  # LAPACK may choose any phases
    return values[pairs:], vectors[:, pairs:]


def hippo_angles(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Imaginary parts of eigenvalues."""
    return hippo(shape[0])[0]


def hippo_entering(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """A normal input matrix in the basis of eigenvectors: first real parts, then imaginary parts."""
    B = hippo(shape[0] // 2)[1].conj().T @ rng.normal(0.0, max(shape[1], 1) ** -0.5, shape)
    return np.concatenate([B.real, B.imag])


def hippo_reading(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """A normal output matrix in the basis of eigenvectors: first real parts, then negated imaginary parts."""
    C = rng.normal(0.0, shape[1] ** -0.5, shape) @ hippo(shape[1] // 2)[1]
    return np.concatenate([C.real, -C.imag], axis=1)


@register_cell
class S5Cell(PairCell):
    """Simplified state space: a continuous diagonal system of complex numbers.

    The lengths of its time steps are trained.

    A state stands for a conjugate pair::

        a = eigenvalue_re + 1j * eigenvalue_im
        A = exp(a * exp(log_step))
        u, w = split(x @ i2h_w.T, 2)
        s = A * (re_prev + 1j * im_prev) + (A - 1) / a * (u + 1j * w)
        re, im = s.real, s.imag
        y = 2 * concat([re, im]) @ read_w.T + x @ skip_w.T

    Smith, Warrington and Linderman 2023, "Simplified state space layers for sequence modeling", arXiv 2208.04933, with
    inputs that are constant within a step, and one block of HiPPO-N. The paper's C is `read_w`, with imaginary parts
    negated. Its D is `skip_w`, a matrix here, as D and H may differ. In the authors' code B starts with a variance of 1
    / 2S, and C is complex before the change of basis.

    States:

    - `real_t [N, S]`: re
    - `imaginary_t [N, S]`: im

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [2S, D]`: function `hippo_entering`, normal with a variance of 1 / D, in the basis of eigenvectors
    - `read_w [H, 2S]`: function `hippo_reading`, the same with a variance of 1 / 2S
    - `eigenvalue_re [S]`: -0.5
    - `eigenvalue_im [S]`: function `hippo_angles`
    - `log_step [S]`: uniform in [-6.908, -2.303], for steps of 0.001 to 0.1
    - `skip_w [H, D]`: xavier

    Args:
        state_size: S, the number of conjugate pairs. The default is half of H, rounded up.
        forget_bias: not read.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.S5Cell(3, 4, state_size=5)
        >>> y, (re_all, re_last, im_all, im_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, im_last.shape
        ((7, 2, 4), (1, 2, 5))
    """

    default_name: ClassVar[str] = "s5"
    recurrent_params = ("eigenvalue_re", "eigenvalue_im", "log_step", "read_w")
    times = 2.0

    def entering(self) -> object:
        return hippo_entering

    def reading(self) -> object:
        return hippo_reading

    def discrete(self, step: Step, real: Blob, imaginary: Blob) -> tuple[tuple[Blob, Blob], tuple[Blob, Blob]]:
        starts = {"eigenvalue_re": -0.5, "eigenvalue_im": hippo_angles, "log_step": ("uniform", -6.908, -2.303)}
        re, im, log = (step.parameter(f"{self.name}/{name}", (self.state_size,), init) for name, init in starts.items())
        decay, angle = re * exp(log), im * exp(log)
        a, b = exp(decay) * cos(angle), exp(decay) * sin(angle)
        # the real part of A - 1, exact for small steps
        moved = expm1(decay) * cos(angle) - 2.0 * sin(0.5 * angle) * sin(0.5 * angle)
        size = re * re + im * im
        g, f = (moved * re + b * im) / size, (b * re - moved * im) / size
        return (a, b), (g * real - f * imaginary, g * imaginary + f * real)


POWER = 8.0  # c of the paper
SLOW, FAST = 4.323, 8.987  # logits of 0.9 ** (1 / 8) and 0.999 ** (1 / 8); in the paper `a` starts between these two


@register_cell
class RGLRUCell(SizedCell):
    """Real-gated linear recurrent unit: a diagonal linear recurrence. Its gates read only the input.

    The gates are in the order recurrence and input::

        u = x @ i2h_w.T + i2h_b
        r, i = split(sigmoid(u @ gates_t_w.T + gates_t_b), 2)
        a = sigmoid(recurrent_w) ** (8 * r)
        h = a * h_prev + sqrt(1 - a ** 2) * (i * u)

    De and others 2024, "Griffin", arXiv 2402.19427, equations 1 to 4. The block's convolution and gate are left out:
    layers around the cell can do them.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `gates_t_w [2H, H]`: xavier
    - `i2h_b [H]`, `gates_t_b [2H]`: zeros
    - `recurrent_w [H]`: uniform in [4.323, 8.987], so that `sigmoid(recurrent_w) ** 8` lies between 0.9 and 0.999, as
      in the paper

    Args:
        forget_bias: not read.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.RGLRUCell(3, 4)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "rg_lru"
    recurrent_params = ("gates_t_w", "gates_t_b", "recurrent_w")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,), H = states, self.hidden_size
        (u,) = self.projected(step, x_t, 1, extra=extra)
        gates = step.linear(u, f"{self.name}/gates_t", H, 2 * H)
        step.labelled(gates, f"{self.name}/gates_t", self.memory_optimization)
        recurrence, enter = split(gates, 2, axis=-1)
        decay = step.parameter(f"{self.name}/recurrent_w", (H,), ("uniform", SLOW, FAST))
        log_a = -POWER * softplus(-decay) * sigmoid(recurrence)
        h_t = exp(log_a) * h_prev + sqrt(-expm1(2.0 * log_a)) * (sigmoid(enter) * u)
        return self.stepped(step, [h_t], states)


MIXES = ("receptance", "decay", "key", "value", "rate", "gate")
SLOWEST = exponential(-0.5)  # exp(-SLOWEST) is the smallest decay factor


@register_cell
class RWKV7Cell(HeadCell):
    """Time mix of RWKV-7: each head has a memory, and each feature of a key decays, is removed and is replaced.

    Each of six products reads its own mix of x and the input before, `mixed(name) = x + (x_prev - x) * name_mix`. Pairs
    of `low_w` and `w` are products of a low rank. r, k, v, w, a and z are split into heads of d = H / heads features,
    and `unit(a) = a / sqrt(sum(a ** 2) + 0.000001)`::

        r = mixed(receptance) @ receptance_w.T
        k = mixed(key) @ key_w.T
        v = mixed(value) @ value_w.T
        w = exp(-exp(-0.5) * sigmoid(tanh(mixed(decay) @ decay_low_w.T) @ decay_w.T + decay_b))
        a = sigmoid(mixed(rate) @ rate_low_w.T @ rate_w.T + rate_b)
        z = unit(k * removal_scale)
        k = k * (1 + (a - 1) * replace_scale)
        S = diag(w) @ S_prev - outer(a * z, S_prev.T @ z) + outer(k, v)
        o = normalized(S.T @ r) * norm_scale + norm_bias + sum(r * bonus * k) * v
        y = o * (sigmoid(mixed(gate) @ gate_low_w.T) @ gate_w.T)

    `normalized` gives each head a mean of 0 and a variance of 1, with an epsilon of `0.00001 * d`.

    Peng and others 2025, "RWKV-7 Goose with expressive dynamic state evolution", arXiv 2503.14456, section 4, as in a
    first layer, without the last projection. The cell does not read `extra`, so it cannot be a decoder of
    `AttentionCell`.

    States:

    - `memory_t [N, heads, d, d]`: S, keys by rows
    - `input_t [N, D]`: x, which is `x_prev` in the next step

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `receptance_mix [D]`, `decay_mix [D]`, `key_mix [D]`, `value_mix [D]`, `rate_mix [D]`, `gate_mix [D]`: 0.5
    - `receptance_w [H, D]`, `key_w [H, D]`, `value_w [H, D]`: xavier
    - `decay_low_w [rank, D]`, `rate_low_w [rank, D]`, `gate_low_w [rank, D]`: xavier
    - `decay_w [H, rank]`, `rate_w [H, rank]`, `gate_w [H, rank]`: xavier
    - `decay_b [H]`, `rate_b [H]`, `norm_bias [H]`, `bonus [H]`: zeros
    - `removal_scale [H]`, `replace_scale [H]`, `norm_scale [H]`: ones

    Args:
        rank: rank of the products that give decay, rate and gate.
        forget_bias: not read.

    Raises:
        NetError: rank is not a size, or heads do not divide hidden_size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.RWKV7Cell(3, 8, rank=2, heads=2)
        >>> y, (S_all, S_last, x_all, x_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, S_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "rwkv7"
    state_names = ("memory_t", "input_t")

    def __init__(self, input_size: int, hidden_size: int, *, rank: int = 16, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.rank = count_of(rank, "rank", self.name)

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.width, self.width), (self.input_size,)]

    def get_input_params(self) -> list[str]:
        low = ("decay", "rate", "gate")
        names = [f"{mix}_mix" for mix in MIXES] + [f"{mix}_{'low_w' if mix in low else 'w'}" for mix in MIXES]
        return [f"{self.name}/{name}" for name in names]

    def get_recurrent_params(self) -> list[str]:
        vectors = ("decay_b", "rate_b", "norm_bias", "bonus", "removal_scale", "replace_scale", "norm_scale")
        return [f"{self.name}/{name}" for name in ("decay_w", "rate_w", "gate_w", *vectors)]

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        S_prev, x_prev = states
        r, k, v = (self._plain(step, mix, x_t, x_prev) for mix in ("receptance", "key", "value"))
        decay, rate = (self._low(step, mix, x_t, x_prev) for mix in ("decay", "rate"))
        w = exp(-SLOWEST * sigmoid(decay + self.vector(step, "decay_b", "zeros")))
        a = sigmoid(rate + self.vector(step, "rate_b", "zeros"))
        z = unit(self.by_head(k * self.vector(step, "removal_scale", "ones")))
        k = k * (1.0 + (a - 1.0) * self.vector(step, "replace_scale", "ones"))
        R, K, V = map(self.by_head, (r, k, v))
        S_t = unsqueeze(self.by_head(w), [3]) * S_prev - outer(self.by_head(a) * z, read(S_prev, z)) + outer(K, V)
        bonus = reduce_sum(self.by_head(r * k * self.vector(step, "bonus", "zeros")), axes=[2])
        scale, shift = self.vectors(step, "norm_scale", "ones"), self.vectors(step, "norm_bias", "zeros")
        seen = layer_normalization(read(S_t, R), scale, shift, axis=-1, epsilon=self.width * 1e-5) + bonus * V
        out = self.joined(seen) * self._low(step, "gate", x_t, x_prev)
        return step.masked_output(out), self.kept(step, [S_t, x_t], states)

    def _mixed(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        return x_t + (x_prev - x_t) * step.parameter(f"{self.name}/{mix}_mix", (self.input_size,), 0.5)

    def _plain(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        mixed = self._mixed(step, mix, x_t, x_prev)
        product = step.product(mixed, f"{self.name}/{mix}", self.input_size, self.hidden_size)
        return step.labelled(product, f"{self.name}/{mix}_t", self.memory_optimization)

    def _low(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        """A product of low rank, with the paper's activation for this mix between its two parts."""
        mixed = self._mixed(step, mix, x_t, x_prev)
        low = step.product(mixed, f"{self.name}/{mix}_low", self.input_size, self.rank)
        low = {"decay": tanh, "gate": sigmoid}.get(mix, lambda same: same)(low)
        return step.product(low, f"{self.name}/{mix}", self.rank, self.hidden_size)
