"""Layers without time: Dense, Embedding, Dropout, LayerNorm."""

from __future__ import annotations

from collections.abc import Callable

from rnnops.arguments import check_flags
from rnnops.blob import Blob
from rnnops.errors import ModelError
from rnnops.model.layer import Layer, sizes_of
from rnnops.model.schedules import is_number
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
    """A product with a matrix, a bias, and an activation: `activation(x @ w.T + b)`.

    Trained parameters, below the layer's name: `w [U, D]`, uniform within `sqrt(3 / D)` on either side of 0, and
    `b [U]`, zeros.

    Args:
        units: features of the output, U.
        activation: an op of one operand, such as `ro.tanh`; None for none.
        bias: whether there is b.

    Raises:
        ModelError: units is no size, or activation no function.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> y = ro.model.Dense(4, ro.tanh)(net.input("x", shape=(7, 2, 3)))
        >>> y.shape, [spec.name for spec in net.parameters]
        ((7, 2, 4), ['dense/w', 'dense/b'])
    """

    def __init__(self, units: int, activation: Callable[[Blob], Blob] | None = None, bias: bool = True) -> None:
        check_flags("Dense", bias=bias)
        self.units, self.activation, self.bias = check_size("Dense", "units", units), activation, bias
        if activation is not None and not callable(activation):
            raise ModelError("the activation is no function", wanted="an op such as ro.tanh", came=repr(activation))

    def forward(self, x: Blob) -> Blob:
        """Append the product.

        Args:
            x: [..., D] float, of known sizes.

        Returns:
            A blob, [..., U].

        Raises:
            ModelError: the sizes of x are not known, or it is one number.
            TypeRuleError: x is not float.
        """
        D = sizes_of(x, 1, "[..., D]")[-1]
        y = x @ transpose(self.parameter(x.net, "w", (self.units, D)), perm=[1, 0])
        if self.bias:
            y = y + self.parameter(x.net, "b", (self.units,), "zeros")
        return y if self.activation is None else self.activation(y)


class Embedding(Layer):
    """Rows of a table by index.

    Trained parameter, below the layer's name: `table [V, E]`, normal with a mean of 0.

    Args:
        count: rows of the table, V; an index outside 0 to V - 1 is an error of the run, negative ones included.
        size: features of a row, E.
        deviation: of the normal distribution that rows start from.

    Raises:
        ModelError: count or size is no size.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> rows = ro.model.Embedding(50, 16)(net.input("words", "int32", shape=(7, 2)))
        >>> rows.shape
        (7, 2, 16)
    """

    def __init__(self, count: int, size: int, deviation: float = 0.1) -> None:
        self.count, self.size = check_size("Embedding", "count", count), check_size("Embedding", "size", size)
        self.deviation = deviation

    def forward(self, indices: Blob) -> Blob:
        """Append the look-up.

        Args:
            indices: [...] int32 or int64.

        Returns:
            A blob, [..., E].

        Raises:
            TypeRuleError: indices are no integers.
            NetError: deviation is no number of 0 or more.
        """
        start = ("normal", 0.0, self.deviation)
        table = self.parameter(indices.net, "table", (self.count, self.size), start)
        return gather(
            table, indices.net.apply("CheckLabels", [indices], classes=self.count, wrong="an index is out of range")
        )


class Dropout(Layer):
    """Zeros some elements by chance while training, and scales the others up to keep the mean; else it does nothing.

    In training an element is 0 with the probability `ratio`, and else multiplied by `1 / (1 - ratio)`.

    Args:
        ratio: from 0 up to but not 1.

    Raises:
        ModelError: ratio is out of range.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> net.outputs(y=ro.model.Dropout(0.5)(net.input("x", shape=(6,))))
        >>> run = ro.compile(net, device="reference")
        >>> run(x=np.ones(6, "float32"), seed=0, training=True)["y"]
        array([0., 0., 0., 2., 0., 0.], dtype=float32)
        >>> run(x=np.ones(6, "float32"))["y"]
        array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """

    def __init__(self, ratio: float = 0.5) -> None:
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio < 1:
            raise ModelError("a dropout ratio is out of range", wanted="0 <= ratio < 1", came=repr(ratio))
        self.ratio = float(ratio)

    def forward(self, x: Blob) -> Blob:
        """Append the dropout.

        Args:
            x: any shape, float.

        Returns:
            A blob of x's shape.
        """
        return dropout(x, self.ratio) if self.ratio else x


class LayerNorm(Layer):
    """Normalizes the last axis, then scales and shifts it: `(x - mean) / sqrt(variance + epsilon) * scale + b`.

    Ba, Kiros and Hinton 2016, "Layer normalization", arXiv 1607.06450. Trained parameters, below the layer's name:
    `scale [D]`, ones, and `b [D]`, zeros.

    Args:
        epsilon: added to the variance.
        bias: whether there is b.

    Raises:
        ModelError: epsilon is no finite number of 0 or more.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(y=ro.model.LayerNorm()(net.input("x", shape=(4,))))
        >>> run = ro.compile(net, device="reference")
        >>> run(ro.init_params(net, 0, "float64"), x=np.array([0.0, 0.0, 2.0, 2.0]))["y"].round(3)
        array([-1., -1.,  1.,  1.])
    """

    def __init__(self, epsilon: float = 1e-5, bias: bool = True) -> None:
        check_flags("LayerNorm", bias=bias)
        if not is_number(epsilon) or epsilon < 0:
            raise ModelError("epsilon of LayerNorm is out of range", wanted="a number of 0 or more", came=repr(epsilon))
        self.epsilon, self.bias = epsilon, bias

    def forward(self, x: Blob) -> Blob:
        """Append the normalization.

        Args:
            x: [..., D] float, of known sizes.

        Returns:
            A blob of x's shape.

        Raises:
            ModelError: the sizes of x are not known, or it is one number.
        """
        D = sizes_of(x, 1, "[..., D]")[-1]
        scale = self.parameter(x.net, "scale", (D,), "ones")
        b = self.parameter(x.net, "b", (D,), "zeros") if self.bias else None
        return layer_normalization(x, scale, b, axis=-1, epsilon=self.epsilon)
