"""The layers of models: those without time, and those over time.

Layers over time are RNN (any cell, stacked, in one or both directions) and Attention (a decoder that reads the outputs
of an encoder). Both return their output and the last states, so that a caller can pass them to the next call. States
that are not given start from zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from rnnops.cells import CELLS as CELLS, AttentionCell, DropoutCell, MultiRNNCell, RNNCell
from rnnops.errors import ModelError, check_flags, did_you_mean
from rnnops.model.layer import Layer, blob_of, sizes_of
from rnnops.model.schedules import is_number
from rnnops.net.blob import Blob, own_name
from rnnops.net.net import Net
from rnnops.ops.comparison import cast
from rnnops.ops.indexing import gather
from rnnops.ops.movement import concat, transpose
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.shapes import constant_of_shape, dropout

Init = Mapping[str, object] | None  # name or pattern below the layer -> initial values


def check_size(layer: str, what: str, value: object) -> int:
    """The value itself. Raises ModelError if it is not a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{what} of {layer} is not a size", wanted="an integer of 1 or more", came=repr(value))
    return value


def checked_indices(indices: Blob, count: int) -> Blob:
    """The indices with a check: a run raises an error if one is not below `count`."""
    return indices.net.apply("CheckLabels", [indices], classes=count, wrong="an index is out of range")


class Dense(Layer):
    """A product with a matrix, a bias, and an activation: `activation(x @ w.T + b)`.

    Trained parameters, below the layer's name: `w [U, D]`, uniform within `sqrt(3 / D)` on either side of 0, and
    `b [U]`, zeros.

    Args:
        units: features of the output, U.
        activation: an op of one operand, such as `ro.tanh`; None for none.
        bias: whether there is b.
        init: initial values of parameters, by name or pattern below the layer's, as for `Net.set_init`.

    Raises:
        ModelError: units is not a size, or activation no function.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> y = ro.model.Dense(4, ro.tanh)(net.input("x", shape=(7, 2, 3)))
        >>> y.shape, [spec.name for spec in net.parameters]
        ((7, 2, 4), ['dense/w', 'dense/b'])
    """

    def __init__(
        self, units: int, activation: Callable[[Blob], Blob] | None = None, bias: bool = True, init: Init = None
    ) -> None:
        check_flags("Dense", bias=bias)
        self._init = init
        self.units, self.activation, self.bias = check_size("Dense", "units", units), activation, bias
        if activation is not None and not callable(activation):
            own = own_name(activation) if isinstance(activation, str) else None
            sizes = None if isinstance(activation, str) else "Sizes of inputs follow from these: Dense(4)."
            hint = f"Give ro.{own}." if own else sizes
            wanted, came = "an op such as ro.tanh", repr(activation)
            raise ModelError("the activation of Dense is not a function", wanted=wanted, came=came, hint=hint)

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
        D = sizes_of(x, 1, "[..., D]", self)[-1]
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
        deviation: standard deviation of the initial values.
        init: initial values of parameters, by name or pattern below the layer's, as for `Net.set_init`.

    Raises:
        ModelError: count or size is not a size.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> rows = ro.model.Embedding(50, 16)(net.input("words", "int32", shape=(7, 2)))
        >>> rows.shape
        (7, 2, 16)
    """

    def __init__(self, count: int, size: int, deviation: float = 0.1, init: Init = None) -> None:
        self.count, self.size = check_size("Embedding", "count", count), check_size("Embedding", "size", size)
        self.deviation, self._init = deviation, init

    def forward(self, indices: Blob) -> Blob:
        """Append the look-up.

        Args:
            indices: [...] int32 or int64.

        Returns:
            A blob, [..., E].

        Raises:
            TypeRuleError: indices are not integers.
            NetError: deviation is not a number of 0 or more.
        """
        start = ("normal", 0.0, self.deviation)
        table = self.parameter(blob_of(indices, "[...]", self).net, "table", (self.count, self.size), start)
        return gather(table, checked_indices(indices, self.count))


class Dropout(Layer):
    """In training sets random elements to zero, and scales the others up to keep the mean; else it does nothing.

    In training an element becomes 0 with the probability `ratio`; otherwise it is multiplied by `1 / (1 - ratio)`.

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
        return dropout(blob_of(x, "[...]", self), self.ratio) if self.ratio else x


class LayerNorm(Layer):
    """Normalizes the last axis, then scales and shifts it: `(x - mean) / sqrt(variance + epsilon) * scale + b`.

    Ba, Kiros and Hinton 2016, "Layer normalization", arXiv 1607.06450. Trained parameters, below the layer's name:
    `scale [D]`, ones, and `b [D]`, zeros.

    Args:
        epsilon: added to the variance.
        bias: whether there is b.
        init: initial values of parameters, by name or pattern below the layer's, as for `Net.set_init`.

    Raises:
        ModelError: epsilon is not a finite number of 0 or more.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(y=ro.model.LayerNorm()(net.input("x", shape=(4,))))
        >>> run = ro.compile(net, device="reference")
        >>> run(ro.init_params(net, 0, "float64"), x=np.array([0.0, 0.0, 2.0, 2.0]))["y"].round(3)
        array([-1., -1.,  1.,  1.])
    """

    def __init__(self, epsilon: float = 1e-5, bias: bool = True, init: Init = None) -> None:
        check_flags("LayerNorm", bias=bias)
        if not is_number(epsilon) or epsilon < 0:
            raise ModelError("epsilon of LayerNorm is out of range", wanted="a number of 0 or more", came=repr(epsilon))
        self.epsilon, self.bias, self._init = epsilon, bias, init

    def forward(self, x: Blob) -> Blob:
        """Append the normalization.

        Args:
            x: [..., D] float, of known sizes.

        Returns:
            A blob of x's shape.

        Raises:
            ModelError: the sizes of x are not known, or it is one number.
        """
        D = sizes_of(x, 1, "[..., D]", self)[-1]
        scale = self.parameter(x.net, "scale", (D,), "ones")
        b = self.parameter(x.net, "b", (D,), "zeros") if self.bias else None
        return layer_normalization(x, scale, b, axis=-1, epsilon=self.epsilon)


MakeCell = Callable[..., RNNCell]
States = Sequence[Blob | None] | None


class RNN(Layer):
    """A cell over a sequence, as a stack of layers, in one direction or in both.

    A stack in one direction is one recurrence. With both directions, layers run one after another. Parameters are
    those of the cells, `layer_0`, `layer_0_reverse`, `layer_1`, ..., below the layer's name.

    Args:
        cell: a name in `ro.cells.CELLS`, or a function that makes a cell from (input size, hidden size, name=...).
        hidden: size of the hidden state, H.
        layers: number of layers of the stack.
        bidirectional: whether each layer also runs backwards, from the end of each row; outputs are joined, [T, N, 2H].
        dropout: dropout ratio for the output of all layers but the last, from 0 up to but not 1.
        trainable_states: whether states that are not given start from parameters, [H], instead of zeros.
        init: initial values of parameters, by name or pattern below the layer's, as for `Net.set_init`.
        **options: further arguments of the cell, such as `forget_bias=1.0`.

    Raises:
        ModelError: an unknown cell, a wrong size, or dropout out of range; in a call, options that the cell does not
            have.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> x, lengths = net.input("x", shape=(7, 2, 3)), net.input("lengths", "int32", shape=(2,))
        >>> y, states = ro.model.RNN("lstm", 4, layers=2, bidirectional=True)(x, lengths)
        >>> y.shape, len(states), states[0].shape
        ((7, 2, 8), 8, (1, 2, 4))
    """

    def __init__(
        self,
        cell: str | MakeCell,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        trainable_states: bool = False,
        init: Init = None,
        **options: Any,
    ) -> None:
        check_flags("RNN", bidirectional=bidirectional, trainable_states=trainable_states)
        self.make_cell = partial(cell_maker(cell), **options)
        self.hidden, self.count = check_size("RNN", "hidden", hidden), check_size("RNN", "layers", layers)
        self.directions = (False, True) if bidirectional else (False,)
        self.dropout, self.trainable_states, self._init = Dropout(dropout).ratio, trainable_states, init

    def forward(
        self, x: Blob, lengths: Blob | None = None, initial_states: States = None
    ) -> tuple[Blob, tuple[Blob, ...]]:
        """Step over x.

        Args:
            x: [T, N, D] float, of known sizes.
            lengths: [N] int32 or int64; None if all rows have length T. Larger lengths count as T.
            initial_states: [H], [N, H] or [1, N, H] each, in the order of the returned states; None among them means
                zeros.

        Returns:
            The output, [T, N, H] (2H for both directions), and a tuple of the last states, [1, N, H]. States are in the
            order of layers, within a layer of directions, within a direction of the cell's states.

        Raises:
            ModelError: x of another rank or unknown sizes, too few or too many states, or options that the cell does
                not have.
            NetError: lengths that are not integers.
        """
        given = _as_list(initial_states, self.scope)
        lasts: list[Blob] = []
        for stack in self._stacks(sizes_of(x, 3, "[T, N, D]", self)[-1]):
            outputs = []
            for reverse, cell in stack:
                own = None if given is None else _take(given, cell, self.scope)
                output, states = over_sequence(cell, x, lengths, own, self.trainable_states, reverse)
                outputs.append(output)
                lasts += states
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
        if given:
            raise ModelError(
                "too many initial states", blob=self.scope, wanted=len(lasts), came=len(lasts) + len(given)
            )
        return x, tuple(lasts)

    def state_shapes(self, input_size: int) -> list[tuple[int, ...]]:
        """Feature axes of the states, in the order in which `forward` takes and returns them.

        Args:
            input_size: features of x, D.

        Returns:
            A list of shapes, such as `(H,)`; a state is [1, N, ...].
        """
        return [shape for stack in self._stacks(input_size) for _, cell in stack for shape in cell.get_state_shapes()]

    def _stacks(self, input_size: int) -> Iterator[list[tuple[bool, RNNCell]]]:
        """The cells of each recurrence: all of a stack in one recurrence; with both directions, those of one layer."""
        if len(self.directions) == 1:
            cells = []
            for layer in range(self.count):
                cells.append(self._cell(input_size, layer, False))
                input_size = cells[-1].get_output_dim()
            yield [(False, cells[0] if self.count == 1 else MultiRNNCell(cells, name=self.scope))]
            return
        for layer in range(self.count):
            both = [(reverse, self._cell(input_size, layer, reverse)) for reverse in self.directions]
            yield both
            input_size = sum(cell.get_output_dim() for _, cell in both)

    def _cell(self, input_size: int, layer: int, reverse: bool) -> RNNCell:
        """A cell, with dropout on its output unless it is in the last layer."""
        name = f"{self.scope}/layer_{layer}{'_reverse' if reverse else ''}"
        cell = made_cell(self.make_cell, input_size, self.hidden, name)
        return DropoutCell(cell, self.dropout) if self.dropout and layer < self.count - 1 else cell


class Attention(Layer):
    """A decoder cell that attends to an encoder's outputs at every step.

    The cell is `ro.cells.AttentionCell`, whose docstring describes the kinds. Parameters are those of `decoder` and, if
    the kind has any, of `attention`, below the layer's name.

    Args:
        cell: as for `RNN`; its recurrent product also reads the context.
        hidden: size of the decoder's hidden state, H.
        kind: `"regular"`, `"recurrent"`, `"dot"` or `"soft_coverage"`.
        memory_optimization: whether energies are computed again on the backward pass instead of stored.
        trainable_states: whether states that are not given start from parameters instead of zeros.
        init: initial values of parameters, by name or pattern below the layer's, as for `Net.set_init`.
        **options: further arguments of the cell.

    Raises:
        ModelError: an unknown cell, or a wrong size; in a call, options that the cell does not have.
        NetError: in a call, an unknown kind.

    Example:
        >>> net = ro.Net("net", sizes_for="float32")
        >>> x, encoded = net.input("x", shape=(7, 2, 3)), net.input("encoded", shape=(5, 2, 6))
        >>> y, states = ro.model.Attention("gru", 4)(x, encoded)
        >>> y.shape, [state.shape for state in states]
        ((7, 2, 10), [(1, 2, 4), (1, 2, 6)])
    """

    def __init__(
        self,
        cell: str | MakeCell,
        hidden: int,
        kind: str = "regular",
        memory_optimization: bool = False,
        trainable_states: bool = False,
        init: Init = None,
        **options: Any,
    ) -> None:
        check_flags("Attention", memory_optimization=memory_optimization, trainable_states=trainable_states)
        self.make_cell = partial(cell_maker(cell), **options)
        self.hidden, self.kind = check_size("Attention", "hidden", hidden), kind
        self.memory_optimization, self.trainable_states, self._init = memory_optimization, trainable_states, init

    def forward(
        self,
        x: Blob,
        encoder_outputs: Blob,
        encoder_lengths: Blob | None = None,
        lengths: Blob | None = None,
        initial_states: States = None,
    ) -> tuple[Blob, tuple[Blob, ...]]:
        """Decode x.

        Args:
            x: [T, N, D] float, of known sizes.
            encoder_outputs: [S, N, E] float, of known sizes.
            encoder_lengths: [N] int32 or int64; None if all rows have length S.
            lengths: [N] int32 or int64; None if all rows have length T.
            initial_states: the states of the decoder, the context [N, E] and, for soft coverage, the coverage [N, S];
                or the last states of another call. None among them means zeros.

        Returns:
            Hidden states and contexts joined, [T, N, H + E], and a tuple of the last states, [1, N, ...].

        Raises:
            ModelError: inputs of another rank or unknown sizes, or states that are not a list of blobs.
            NetError: wrong number of states, or an unknown kind.
        """
        D, E = sizes_of(x, 3, "[T, N, D]", self)[-1], sizes_of(encoder_outputs, 3, "[S, N, E]")[-1]
        decoder = made_cell(self.make_cell, D, self.hidden, f"{self.scope}/decoder")
        cell = AttentionCell(
            E,
            encoder_outputs,
            encoder_lengths,
            decoder,
            decoder.get_output_dim(),
            self.kind,
            attention_memory_optimization=self.memory_optimization,
            name=f"{self.scope}/attention",
        )
        given = _as_list(initial_states, self.scope)
        output, states = over_sequence(cell, x, lengths, given, self.trainable_states)
        return output, tuple(states)


def cell_maker(cell: str | MakeCell) -> MakeCell:
    """The function that makes the cell. Raises ModelError for an unknown name."""
    found = CELLS.get(cell) if isinstance(cell, str) else cell
    if not callable(found):
        wanted = f"one of {', '.join(CELLS)}, or a cell class"
        hint = did_you_mean(cell, CELLS) if isinstance(cell, str) else None
        raise ModelError("no such cell", wanted=wanted, came=repr(cell), hint=hint)
    return found


def made_cell(make: MakeCell, input_size: int, hidden: int, name: str) -> RNNCell:
    """A cell of a layer. Raises ModelError for options that it does not take, and if no cell comes back."""
    try:
        signature(make).bind(input_size, hidden, name=name)
    except (TypeError, ValueError) as error:  # the latter where a partial's arguments do not fit
        wanted = "options that the cell takes beside (input size, hidden size, name=...)"
        raise ModelError(f"the cell cannot be made: {error}", blob=name, wanted=wanted) from None
    cell = make(input_size, hidden, name=name)
    if not isinstance(cell, RNNCell):
        raise ModelError("no cell came back", blob=name, wanted="an rnnops.cells.RNNCell", came=type(cell).__name__)
    return cell


def over_sequence(
    cell: RNNCell, x: Blob, lengths: Blob | None, initial_states: States, trainable_states: bool, reverse: bool = False
) -> tuple[Blob, list[Blob]]:
    """The output of a cell over a sequence, and its last states."""
    if isinstance(lengths, Blob) and lengths.dtype == "int64":
        lengths = cast(lengths, "int32")
    own_start = initial_states is None and (trainable_states or cell.initializer is not None)
    states = None if own_start else _with_zeros(x.net, cell, initial_states)
    output, results = cell.apply_over_sequence(x.net, x, lengths, states, reverse=reverse)
    return output, list(results[1::2])


def _with_zeros(net: Net, cell: RNNCell, given: States) -> list[Blob]:
    """The given states. None becomes zeros `[H]`, or, if sizes are not known, the cell's own initial value."""
    shapes = cell.get_state_shapes()
    states = [None] * len(shapes) if given is None else list(given)
    zeros = [constant_of_shape(net, list(shape)) if all(shape) else None for shape in shapes[: len(states)]]
    found = [zero if state is None else state for state, zero in zip(states, zeros, strict=False)]
    return [state for state in found + states[len(shapes) :] if state is not None]


def _take(given: list[Blob | None], cell: RNNCell, layer: str) -> list[Blob | None]:
    """Take the states of this cell from the beginning of the given ones."""
    count = len(cell.get_state_names())
    if len(given) < count:
        raise ModelError("too few initial states", blob=layer, wanted=f"{count} for {cell.name}", came=len(given))
    own = given[:count]
    del given[:count]
    return own


def _as_list(states: object, layer: str) -> list[Blob | None] | None:
    """Initial states as a list. Raises ModelError if they are not a list of blobs."""
    if states is None:
        return None
    if not isinstance(states, list | tuple) or not all(state is None or isinstance(state, Blob) for state in states):
        came = [type(state).__name__ for state in states] if isinstance(states, list | tuple) else type(states).__name__
        raise ModelError(
            "initial states are not a list of blobs", blob=layer, wanted="blobs, or None for zeros", came=came
        )
    return list(states)
