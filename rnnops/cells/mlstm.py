"""LSTM with a matrix memory (Beck and others 2024, xLSTM, arXiv 2405.04517, equations 19 to 27).

With a number i and f for each head: `m = max(log s(f) + m', i)`, `C = exp(log s(f) + m' - m) C' + exp(i - m) k v^T`, n
likewise with k alone, and `h = s(o) (C^T q) / max(|n q|, exp(-m))`; keys are divided by the root of d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.heads import HeadCell, outer, read
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, softplus
from rnnops.ops.arithmetic import abs as absolute, exp
from rnnops.ops.extrema import max as maximum
from rnnops.ops.movement import concat, split, unsqueeze
from rnnops.ops.reduction import reduce_sum


@register_cell
class MLSTMCell(HeadCell):
    """States: memory `[heads, d, d]`, normalizer `[heads, d]`, and the largest exponent so far `[heads, 1]`.

    Parameters: `i2h_w [4H, D]`, `i2h_b [4H]` (query, key, value, output), `gates_t_w [2 heads, D]` (input, forget), and
    `enter_b [heads]`, zeros, and `forget_b [heads]`, which starts uniform in [3, 6], about as the authors' code has it.
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
