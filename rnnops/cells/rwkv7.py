"""Time mix of RWKV-7 (Peng and others 2025, arXiv 2503.14456, section 4).

As in a first layer, without the last projection. Each of six products reads its own mix of x and the input before,
`x + (x' - x) mu`. With `w = exp(-exp(-0.5) s(..))`, `a = s(..)`, the removal key `z = k k_k` of length 1 in each head,
and `k = k (1 + (a - 1) k_a)`: `S = w S' - (a z) (S'^T z)^T + k v^T` (keys by rows), `o = norm(S^T r) + (r r_k . k) v`,
times a gate `W_2 s(W_1 ..)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp as exponential
from typing import Any, ClassVar

from rnnops.blob import Blob
from rnnops.cells.heads import HeadCell, outer, read, unit
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.arithmetic import exp
from rnnops.ops.movement import reshape, unsqueeze
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.reduction import reduce_sum

MIXES = ("receptance", "decay", "key", "value", "rate", "gate")
SLOWEST = exponential(-0.5)  # of decays, so that exp(-SLOWEST) is the least


@register_cell
class RWKV7Cell(HeadCell):
    """States: memory `[heads, d, d]` and the input before `[D]`.

    Args:
        rank: of the products that give decay, rate and gate.

    Parameters, `mix` one of receptance, decay, key, value, rate, gate: `<mix>_mix [D]`, 0.5; `<mix>_w [H, D]` of
    receptance, key and value; `<mix>_low_w [rank, D]` and `<mix>_w [H, rank]` of the others; `decay_b`, `rate_b`,
    `norm_bias` and `bonus` (zeros), `removal_scale`, `replace_scale`, `norm_scale` (ones), `[H]` each.
    """

    default_name: ClassVar[str] = "rwkv7"

    def __init__(self, input_size: int, hidden_size: int, *, rank: int = 16, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.rank = rank

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/memory_t", f"{self.name}/input_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size * self.width, self.input_size]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [(self.heads, self.width, self.width), (self.input_size,)]

    def get_input_params(self) -> list[str]:
        low = ("decay", "rate", "gate")
        names = [f"{mix}_mix" for mix in MIXES] + [f"{mix}_{'low_w' if mix in low else 'w'}" for mix in MIXES]
        return [f"{self.name}/{name}" for name in names]

    def get_recurrent_params(self) -> list[str]:
        vectors = ("decay_b", "rate_b", "norm_bias", "bonus", "removal_scale", "replace_scale", "norm_scale")
        return [f"{self.name}/{name}" for name in ("decay_w", "rate_w", "gate_w", *vectors)]

    def step(
        self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Sequence[tuple[Blob, int]] = ()
    ) -> tuple[Blob, list[Blob]]:
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
