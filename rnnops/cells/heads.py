"""HeadCell: what cells share whose state is a matrix for each head."""

from __future__ import annotations

from math import gcd
from typing import Any

from rnnops.blob import Blob
from rnnops.cells.sized import SizedCell, count_of
from rnnops.cells.step import Step
from rnnops.errors import NetError
from rnnops.ops.arithmetic import sqrt
from rnnops.ops.movement import reshape, unsqueeze
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.reduction import reduce_mean, reduce_sum

EPSILON = 1e-5  # of norms


class HeadCell(SizedCell):
    """A cell of heads of `d = H / heads` features, with a memory `[heads, d, d]` of keys by values.

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        heads: that H is shared out among; left out, 4, or what H and 4 are both divisible by.
        **options: as `SizedCell`'s.

    Raises:
        NetError: heads do not divide hidden_size, and as `SizedCell`'s.
    """

    def __init__(self, input_size: int, hidden_size: int, *, heads: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        most = gcd(count_of(hidden_size, "hidden_size", self.name), 4)
        self.heads = most if heads is None else heads
        if not isinstance(self.heads, int) or self.heads < 1 or hidden_size % self.heads:
            raise NetError(f"heads do not divide hidden_size {hidden_size}", blob=self.name, came=repr(heads))

    @property
    def width(self) -> int:
        """d, features of a head."""
        return self.hidden_size // self.heads

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/memory_t"]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size * self.width]

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

    def scale_of_norm(self, step: Step) -> Blob:
        """A parameter `norm_scale [H]`, ones, as `[heads, d]`.

        Args:
            step: what is written.
        """
        return reshape(step.parameter(f"{self.name}/norm_scale", (self.hidden_size,), "ones"), [self.heads, self.width])

    def layer_normalized(self, step: Step, blob: Blob) -> Blob:
        """Each head with a mean of 0 and a variance of 1, scaled.

        Args:
            step: what is written.
            blob: [N, heads, d].
        """
        return layer_normalization(blob, self.scale_of_norm(step), axis=-1, epsilon=EPSILON)

    def root_normalized(self, step: Step, blob: Blob) -> Blob:
        """Each head over the root of its mean square, scaled.

        Args:
            step: what is written.
            blob: [N, heads, d].
        """
        return blob / sqrt(reduce_mean(blob * blob, axes=[-1]) + EPSILON) * self.scale_of_norm(step)


def outer(key: Blob, value: Blob) -> Blob:
    """`[N, heads, d]` twice as `[N, heads, d, d]`: what a memory holds of a key and its value."""
    return unsqueeze(key, [3]) * unsqueeze(value, [2])


def read(memory: Blob, query: Blob) -> Blob:
    """The value of a key, `[N, heads, d]`."""
    return reduce_sum(memory * unsqueeze(query, [3]), axes=[2], keepdims=0)


def unit(blob: Blob) -> Blob:
    """Each head over its length."""
    return blob / sqrt(reduce_sum(blob * blob, axes=[-1]) + 1e-6)
