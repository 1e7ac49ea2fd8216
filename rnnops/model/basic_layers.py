"""Layers without time: Dense, Embedding, Dropout, LayerNorm."""

from __future__ import annotations

from collections.abc import Callable

from rnnops.blob import Blob
from rnnops.errors import ModelError
from rnnops.model.layer import Layer, sizes_of
from rnnops.ops.indexing import gather
from rnnops.ops.movement import transpose
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.random import dropout


def check_size(layer: str, what: str, value: object) -> int:
    """The value itself. Raises ModelError for what is no positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{what} of {layer} is no size", wanted="an integer of 1 or more", came=repr(value))
    return value


class Dense(Layer):
    """`activation(x W^T + b)`.

    Args:
        units: features of the output, U.
        activation: an op of one operand, such as `ro.tanh`; None for none.
        bias: whether there is b.

    Parameters: `w [U, D]`, `b [U]`.
    """

    def __init__(self, units: int, activation: Callable[[Blob], Blob] | None = None, bias: bool = True) -> None:
        self.units, self.activation, self.bias = check_size("Dense", "units", units), activation, bias
        if activation is not None and not callable(activation):
            raise ModelError("the activation is no function", wanted="an op such as ro.tanh", came=repr(activation))

    def forward(self, x: Blob) -> Blob:
        """x: [..., D] float -> [..., U]."""
        D = sizes_of(x, 1, "[..., D]")[-1]
        y = x @ transpose(self.parameter(x.net, "w", (self.units, D)), perm=[1, 0])
        if self.bias:
            y = y + self.parameter(x.net, "b", (self.units,), "zeros")
        return y if self.activation is None else self.activation(y)


class Embedding(Layer):
    """Rows of a table by index.

    Args:
        count: rows of the table, V; an index outside 0 to V - 1 is an error of the run, negative ones included.
        size: features of a row, E.
        deviation: of the normal distribution that rows start from.

    Parameter: `table [V, E]`.
    """

    def __init__(self, count: int, size: int, deviation: float = 0.1) -> None:
        self.count, self.size = check_size("Embedding", "count", count), check_size("Embedding", "size", size)
        self.deviation = deviation

    def forward(self, indices: Blob) -> Blob:
        """indices: [...] int32 or int64 -> [..., E]."""
        start = ("normal", 0.0, self.deviation)
        table = self.parameter(indices.net, "table", (self.count, self.size), start)
        return gather(table, indices.net.apply("CheckLabels", [indices], classes=self.count))


class Dropout(Layer):
    """Zeroes elements with probability `ratio` while training and scales the others by 1 / (1 - ratio)."""

    def __init__(self, ratio: float = 0.5) -> None:
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio < 1:
            raise ModelError("a dropout ratio is out of range", wanted="0 <= ratio < 1", came=repr(ratio))
        self.ratio = float(ratio)

    def forward(self, x: Blob) -> Blob:
        """x: any shape, float."""
        return dropout(x, self.ratio) if self.ratio else x


class LayerNorm(Layer):
    """Normalises the last axis, then scales and shifts it (Ba and others 2016).

    Args:
        epsilon: added to the variance.
        bias: whether it shifts.

    Parameters: `scale [D]`, `b [D]`.
    """

    def __init__(self, epsilon: float = 1e-5, bias: bool = True) -> None:
        self.epsilon, self.bias = epsilon, bias

    def forward(self, x: Blob) -> Blob:
        """x: [..., D] float."""
        D = sizes_of(x, 1, "[..., D]")[-1]
        scale = self.parameter(x.net, "scale", (D,), "ones")
        b = self.parameter(x.net, "b", (D,), "zeros") if self.bias else None
        return layer_normalization(x, scale, b, axis=-1, epsilon=self.epsilon)
