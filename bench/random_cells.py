"""Cells that nobody has seen before: random elementwise ops around one to three products, the same for a seed.

All ops are smooth, so that devices which differ in the last bit do not end up on two sides of a kink, and a new state
depends weakly enough on the old ones that a difference in the last bit does not grow over a hundred steps.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import rnnops as ro

CONTRACTION = 0.3
UNARY: tuple[Callable[[ro.Blob], ro.Blob], ...] = (
    ro.tanh,
    ro.sigmoid,
    ro.softsign,
    ro.softplus,
    ro.erf,
    ro.gelu,
    lambda x: ro.exp(ro.tanh(x)),
    lambda x: 1.0 - x,
    lambda x: x / (1.0 + x * x),
)
BINARY: tuple[Callable[[ro.Blob, ro.Blob], ro.Blob], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * ro.sigmoid(y),
    lambda x, y: 0.5 * (ro.tanh(x) + y),
)


class RandomCell:
    """A random step net while it grows: `s0_prev`, perhaps `s1_prev`, and `x_t` in, the new states out.

    Args:
        seed: what is drawn from.
    """

    def __init__(self, seed: int) -> None:
        self.choose = Random(seed)
        self.net = ro.Net(f"random_{seed}_step")
        self.states = [self.net.inputs(f"s{k}_prev") for k in range(self.choose.randint(1, 2))]
        self.widths: dict[str, int] = {}
        self.blobs: list[ro.Blob] = []
        self.unread: list[ro.Blob] = []
        self._add_gates(self.choose.randint(1, 4))
        for _ in range(self.choose.randint(4, 14)):
            self._add_op()
        if self.choose.random() < 0.3:
            self._add_product()
        self._add_outputs()

    def _weight(self, name: str, parts: int) -> ro.Blob:
        self.widths[name] = parts
        return self.net.input(name)

    def _new(self, blob: ro.Blob) -> None:
        self.blobs.append(blob)
        self.unread.append(blob)

    def _pick(self) -> ro.Blob:
        """Any blob, more often one that nothing has read yet."""
        blob = self.choose.choice(self.unread if self.unread and self.choose.random() < 0.6 else self.blobs)
        self.unread = [other for other in self.unread if other is not blob]
        return blob

    def _add_gates(self, parts: int) -> None:
        x_t = self.net.inputs("x_t")
        w_x, w_h, b = (self._weight(name, parts) for name in ("w_x", "w_h", "b"))
        gates = x_t @ w_x + self.states[0] @ w_h + b
        for part in ro.split(gates, parts, axis=-1) if parts > 1 else [gates]:
            self._new(part)
        self.blobs += self.states

    def _add_op(self) -> None:
        unary = self.choose.random() < 0.5
        if unary:
            self._new(self.choose.choice(UNARY)(self._pick()))
        else:
            self._new(self.choose.choice(BINARY)(self._pick(), self._pick()))

    def _add_product(self) -> None:
        self._new(ro.tanh(self._pick()) @ self._weight("w_inner", 1))

    def _add_outputs(self) -> None:
        for k, previous in enumerate(self.states):
            keep = ro.sigmoid(self._pick())
            rest = self.unread if k == 0 else [self._pick()]
            new = ro.tanh(CONTRACTION * (sum(rest[1:], rest[0]) if rest else self._pick()))
            self.net.outputs(**{f"s{k}_t": keep * previous + (1.0 - keep) * new})
