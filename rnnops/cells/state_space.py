"""State space and time-mix cells: selective SSM, RG-LRU, RWKV-7."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp as exponential
from typing import Any, ClassVar

import numpy as np

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.linear_attention import HeadCell, outer, read, unit
from rnnops.cells.sized import ShapedCell, SizedCell, count_of, register_cell
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import exp, sqrt
from rnnops.ops.functions import expm1
from rnnops.ops.movement import reshape, split, unsqueeze
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.reduction import reduce_sum


@register_cell
class SelectiveSSMCell(ShapedCell):
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

    The output is `y [N, H]`, which is not a state.

    Trained parameters, below the cell's name:

    - `i2h_w [H, D]`, `select_w [rank + 2S, H]`, `delta_w [H, rank]`: xavier
    - `i2h_b [H]`, `decay_log [H, S]`: zeros
    - `delta_b [H]`: uniform in [-6.9, -2.2], for steps of about 0.001 to 0.1
    - `pass_w [H]`: ones

    Args:
        state_size: numbers of a channel, S.
        rank: of the product that gives steps; H / 16, rounded up, if left out.
        forget_bias: not read.

    Raises:
        NetError: hidden_size, state_size or rank is not a size, and as `SizedCell`'s.

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


POWER = 8.0  # c of the paper
SLOW, FAST = 4.323, 8.987  # logits of 0.9 ** (1 / 8) and 0.999 ** (1 / 8), between which the paper lets `a` begin


@register_cell
class RGLRUCell(SizedCell):
    """Real-gated linear recurrent unit: a diagonal linear recurrence, with gates that see only the input.

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
SLOWEST = exponential(-0.5)  # of decays, so that exp(-SLOWEST) is the least


@register_cell
class RWKV7Cell(HeadCell):
    """Time mix of RWKV-7: a memory for each head, with decays, removals and replacements of each key's features.

    Six products read each its own mix of x and the input before, `mixed(name) = x + (x_prev - x) * name_mix`. Products
    by `low_w` and `w` are two of a low rank. With r, k, v, w, a and z by head, d = H / heads features each, and
    `unit(a) = a / sqrt(sum(a ** 2) + 0.000001)`::

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
    first layer, without the last projection. It does not read `extra`, so that it is not a decoder of `AttentionCell`.

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
        rank: of the products that give decay, rate and gate.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: not read.

    Raises:
        NetError: rank is not a size, or heads do not divide hidden_size, and as `SizedCell`'s.

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
        w = exp(-SLOWEST * sigmoid(decay + self._vector(step, "decay_b", "zeros")))
        a = sigmoid(rate + self._vector(step, "rate_b", "zeros"))
        z = unit(self.by_head(k * self._vector(step, "removal_scale", "ones")))
        k = k * (1.0 + (a - 1.0) * self._vector(step, "replace_scale", "ones"))
        R, K, V = map(self.by_head, (r, k, v))
        S_t = unsqueeze(self.by_head(w), [3]) * S_prev - outer(self.by_head(a) * z, read(S_prev, z)) + outer(K, V)
        bonus = reduce_sum(self.by_head(r * k * self._vector(step, "bonus", "zeros")), axes=[2])
        seen = self._normalized(step, read(S_t, R)) + bonus * V
        out = self.joined(seen) * self._low(step, "gate", x_t, x_prev)
        return step.masked_output(out), self.kept(step, [S_t, x_t], states)

    def _vector(self, step: Step, name: str, init: str) -> Blob:
        return step.parameter(f"{self.name}/{name}", (self.hidden_size,), init)

    def _mixed(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        return x_t + (x_prev - x_t) * step.parameter(f"{self.name}/{mix}_mix", (self.input_size,), 0.5)

    def _plain(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        mixed = self._mixed(step, mix, x_t, x_prev)
        product = step.product(mixed, f"{self.name}/{mix}", self.input_size, self.hidden_size)
        return step.labelled(product, f"{self.name}/{mix}_t", self.memory_optimization)

    def _low(self, step: Step, mix: str, x_t: Blob, x_prev: Blob) -> Blob:
        """A product of low rank, with the paper's activation of each mix between its two parts."""
        mixed = self._mixed(step, mix, x_t, x_prev)
        low = step.product(mixed, f"{self.name}/{mix}_low", self.input_size, self.rank)
        low = {"decay": tanh, "gate": sigmoid}.get(mix, lambda same: same)(low)
        return step.product(low, f"{self.name}/{mix}", self.rank, self.hidden_size)

    def _normalized(self, step: Step, seen: Blob) -> Blob:
        shift = reshape(self._vector(step, "norm_bias", "zeros"), [self.heads, self.width])
        return layer_normalization(seen, self.scale_of_norm(step), shift, axis=-1, epsilon=self.width * 1e-5)
