"""The two cells of xLSTM: sLSTM and mLSTM.

SLSTMCell, the LSTM with exponential gates of xLSTM.

MLSTMCell, the LSTM with a matrix memory of xLSTM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gated import GATES, by_gate
from rnnops.cells.linear_attention import HeadCell, outer, read
from rnnops.cells.sized import register_cell
from rnnops.cells.step import Step
from rnnops.ops.activation import sigmoid, softplus, tanh
from rnnops.ops.arithmetic import abs as absolute, exp
from rnnops.ops.comparison import max as maximum
from rnnops.ops.movement import concat, split, unsqueeze
from rnnops.ops.reduction import reduce_sum


@register_cell
class SLSTMCell(HeadCell):
    """LSTM with exponential gates, which see the hidden state of their own head alone.

    The parts are in LSTM's order, H each, of which a head has d = H / heads::

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

    - `i2h_w [4H, D]`, and one of each head, `gates_0_w [4d, d]`, `gates_1_w [4d, d]`, ...: xavier
    - `i2h_b [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.SLSTMCell(3, 8, heads=2)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 8), 8)
    """

    default_name: ClassVar[str] = "slstm"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/{state}_t" for state in ("hidden", "cell", "normalizer", "exponent")]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size] * 4

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.hidden_size,)] * 4

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/gates_{head}_w" for head in range(self.heads)]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        h_prev, c_prev, n_prev, m_prev = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * self.hidden_size, extra)
        gates = step.labelled(x + self._recurrent(step, h_prev), f"{self.name}/gates_t", self.memory_optimization)
        gate = by_gate(gates)
        kept = m_prev - softplus(-(gate["f"] + self.forget_bias))
        m_t = maximum(kept, gate["i"])
        forget, enter = exp(kept - m_t), exp(gate["i"] - m_t)
        c_t, n_t = forget * c_prev + enter * tanh(gate["g"]), forget * n_prev + enter
        new = self.kept(step, [sigmoid(gate["o"]) * c_t / n_t, c_t, n_t, m_t], states)
        return new[0], new

    def _recurrent(self, step: Step, h_prev: Blob) -> Blob:
        """The products of all heads, gate by gate."""
        d, hs = self.width, split(h_prev, self.heads, axis=-1) if self.heads > 1 else [h_prev]
        products = [step.product(h, f"{self.name}/gates_{head}", d, len(GATES) * d) for head, h in enumerate(hs)]
        parts = [split(product, len(GATES), axis=-1) for product in products]
        return concat([part[gate] for gate in range(len(GATES)) for part in parts], axis=-1)


@register_cell
class MLSTMCell(HeadCell):
    """LSTM whose memory is a matrix for each head, keys by rows; its gates see the input alone.

    The parts are in the order of query, key, value and output gate; q, k and v are taken by head, d = H / heads
    features each, and i and f are one number for each head::

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

    The output is `y [N, H]`, which is no state.

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [2 heads, D]`: xavier
    - `i2h_b [4H]`, `enter_b [heads]`: zeros
    - `forget_b [heads]`: uniform in [3, 6], about as the authors' code has it

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        forget_bias: added to f.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MLSTMCell(3, 8, heads=2)
        >>> y, (C_all, C_last, *others) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, C_last.shape
        ((7, 2, 8), (1, 2, 2, 4, 4))
    """

    default_name: ClassVar[str] = "mlstm"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/{state}_t" for state in ("memory", "normalizer", "exponent")]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size * self.width, self.hidden_size, self.heads]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.width, self.width), (self.heads, self.width), (self.heads, 1)]

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{name}" for name in ("gates_t_w", "enter_b", "forget_b")]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
        C_prev, n_prev, m_prev = states
        *parts, out = self.projected(step, x_t, 4, "projected_t", extra)
        q, k, v = map(self.by_head, parts)
        k = k * self.width**-0.5
        gates = step.product(x_t, f"{self.name}/gates_t", self.input_size, 2 * self.heads) + self._biases(step)
        i, f = (unsqueeze(gate, [2]) for gate in split(gates, 2, axis=-1))
        kept = m_prev - softplus(-(f + self.forget_bias))
        m_t = maximum(kept, i)
        forget, enter = exp(kept - m_t), exp(i - m_t)
        C_t = unsqueeze(forget, [3]) * C_prev + outer(enter * k, v)
        n_t = forget * n_prev + enter * k
        norm = maximum(absolute(reduce_sum(n_t * q, axes=[2])), exp(-m_t))
        h_t = sigmoid(out) * self.joined(read(C_t, q) / norm)
        return step.masked_output(h_t), self.kept(step, [C_t, n_t, m_t], states)

    def _biases(self, step: Step) -> Blob:
        enter = step.parameter(f"{self.name}/enter_b", (self.heads,), "zeros")
        return concat([enter, step.parameter(f"{self.name}/forget_b", (self.heads,), ("uniform", 3.0, 6.0))], axis=0)
