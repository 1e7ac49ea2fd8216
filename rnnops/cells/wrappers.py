"""Cells made of cells (dropout, zoneout, stacks, unrolled copies), and the presets.

A preset runs a cell or a whole stack over time in one call: `LSTM(net, x, lengths, states, dim_in, dim_out)` and
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from inspect import signature
from itertools import count, pairwise
from typing import Any, ClassVar

import numpy as np

from rnnops.cells.base import Extra, RNNCell, Step, Stepped, require_cell
from rnnops.cells.gated import GRUCell, LayerNormLSTMCell, LayerNormMILSTMCell, LSTMCell, MILSTMCell
from rnnops.cells.simple import BasicRNNCell
from rnnops.errors import NetError, check_flags, named_arguments
from rnnops.net.blob import Blob
from rnnops.net.net import Net, require_net
from rnnops.net.op import absolute_names, check_name
from rnnops.ops.movement import concat, split, squeeze, unsqueeze
from rnnops.ops.shapes import constant_of_shape, dropout, shape


class CompoundCell(RNNCell):
    """Base of cells made of cells. States, parameters and prepared values are those of all of them, bottom first."""

    _cells: Sequence[RNNCell]

    def inner_cells(self) -> Sequence[RNNCell]:
        return self._cells

    def get_state_names(self) -> list[str]:
        return [name for cell in self.inner_cells() for name in cell.get_state_names()]

    def get_state_dims(self) -> list[int]:
        return [size for cell in self.inner_cells() for size in cell.get_state_dims()]

    def get_state_shapes(self) -> list[tuple[int, ...]]:
        return [shape for cell in self.inner_cells() for shape in cell.get_state_shapes()]

    def get_output_dim(self) -> int:
        return self.inner_cells()[-1].get_output_dim()

    def get_output_state_index(self) -> int:
        below = sum(len(cell.get_state_names()) for cell in self.inner_cells()[:-1])
        return below + self.inner_cells()[-1].get_output_state_index()

    def get_input_params(self) -> list[str]:
        return [name for cell in self.inner_cells() for name in cell.get_input_params()]

    def get_recurrent_params(self) -> list[str]:
        return [name for cell in self.inner_cells() for name in cell.get_recurrent_params()]

    def prepare_input(self, net: Net, input_blob: Blob) -> Blob:
        return self.inner_cells()[0].prepare_input(net, input_blob)

    def prepare(self, net: Net) -> None:
        for cell in self.inner_cells():
            cell.prepare(net)

    def default_initial_states(self, net: Net) -> list[Blob]:
        return [state for cell in self.inner_cells() for state in cell.initial_states(net, None)]


class WrapperCell(CompoundCell):
    """Passes everything on to the one cell inside. Subclasses override what they change."""

    owns_name: ClassVar[bool] = False

    def __init__(self, cell: RNNCell) -> None:
        require_cell(cell)
        super().__init__(cell.name, cell.forward_only)
        self._cells, self.is_named, self.input_name = (cell,), cell.is_named, cell.input_name


class DropoutCell(WrapperCell):
    """Inverted dropout on the output of a cell, in training only. Its recurrent connection has no dropout.

    In training an element of the output is 0 with probability `ratio`. Otherwise it is multiplied by `1 / (1 - ratio)`.
    States stay unchanged. The zeros depend on the seed of the run, and differ from step to step.

    Its name, states and parameters are those of the cell inside.

    Args:
        cell: the cell inside.
        ratio: from 0 to less than 1. None, 0, or a cell with `forward_only` switches dropout off.

    Raises:
        NetError: ratio is out of range, or cell is not a cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.DropoutCell(ro.cells.GRUCell(3, 4), 0.5)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(100, 20, 3)))
        >>> net.outputs(y=y)
        >>> run = ro.compile(net, device="reference")
        >>> out = run(ro.init_params(net, 0), x=np.ones((100, 20, 3), "float32"), seed=0, training=True)
        >>> round(float((out["y"] == 0).mean()), 2)
        0.5
    """

    def __init__(self, cell: RNNCell, ratio: float | None) -> None:
        super().__init__(cell)
        if ratio is not None and not (isinstance(ratio, int | float) and 0 <= ratio < 1):
            self.fail("the dropout ratio is out of range", wanted="0 <= ratio < 1 or None", came=repr(ratio))
        self.ratio = ratio

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        output, new = self.inner_cells()[0].step(step, x_t, states, extra)
        return (dropout(output, self.ratio) if self.ratio and not self.forward_only else output), new


class ZoneoutCell(WrapperCell):
    """In training each number of a state keeps its old value with a probability. Otherwise it takes the average step.

    With a new state h of the cell inside, and a random mask that is one with probability `1 - rate`::

        h = h_prev + mask * (h - h_prev)          # in training
        h = h_prev + (1 - rate) * (h - h_prev)    # outside of training, or for a cell that is forward_only

    A step of the cell inside may compute one new state from another (an LSTM its hidden state from its cell state). It
    uses that state before zoneout, as in the paper. If the output is a state, it is the state after zoneout.

    Krueger and others 2016, "Zoneout", arXiv 1606.01305, section 3. Its name, states and parameters are those of the
    cell inside.

    Args:
        cell: the cell inside.
        rates: the probability of staying, from 0 to 1: one for all states, or a list with one for each.

    Raises:
        NetError: a rate is out of range, the number of rates is wrong, or cell is not a cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ZoneoutCell(ro.cells.LSTMCell(3, 4), [0.05, 0.5])  # hidden, cell
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    def __init__(self, cell: RNNCell, rates: float | Sequence[float]) -> None:
        super().__init__(cell)
        count = len(cell.get_state_names())
        self.rates: list[float] = [*rates] if isinstance(rates, Sequence) else [rates] * count
        if len(self.rates) != count or not all(isinstance(r, int | float) and 0 <= r <= 1 for r in self.rates):
            wanted = f"a probability, or {count}, one for each state"
            self.fail("rates of zoneout are out of range", wanted=wanted, came=repr(rates))

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        output, new = self.inner_cells()[0].step(step, x_t, states, extra)
        zoned = [self._zoned(step, a, b, rate) for a, b, rate in zip(new, states, self.rates, strict=True)]
        for before, after in zip(new, zoned, strict=True):
            output = after if before is output else output
        return output, zoned

    def _zoned(self, step: Step, new: Blob, previous: Blob, rate: float) -> Blob:
        """`previous + (1 - rate) dropout(new - previous)`: one of both in training, else their weighted mean."""
        if rate == 0:
            return new
        change = new - previous
        if rate < 1 and not self.forward_only:
            change = dropout(change, rate)
        (cell,) = self.inner_cells()
        return step.masked(previous + (1.0 - rate) * change, previous, getattr(cell, "drop_states", False))


class MultiRNNCell(CompoundCell):
    """A stack of cells as one cell. A layer reads the output of the layer below it.

    A residual layer adds its input to its output before the next layer reads it. If the last layers are residual, the
    stack's output is the sum of their outputs and the output of the layer below them. The states are those of all
    layers, bottom first.

    Args:
        cells: from the bottom up. Each needs a name of its own.
        residual_output_layers: numbers of the residual layers, counted from 0; layer 0 cannot be residual. By default
            none.
        name: name of the stack. Parameters have the names of the cells.

    Raises:
        NetError: cells are not a list of cells, two share a name, or a residual layer does not exist or differs in size
            from the layer below.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cells = [ro.cells.LSTMCell(3, 4, name="bottom"), ro.cells.GRUCell(4, 4, name="top")]
        >>> stack = ro.cells.MultiRNNCell(cells, residual_output_layers=[1])
        >>> y, states = stack.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, stack.get_state_names()
        ((7, 2, 4), ['bottom/hidden_t', 'bottom/cell_t', 'top/hidden_t'])
    """

    default_name = "stack"

    def __init__(
        self, cells: Sequence[RNNCell], residual_output_layers: Sequence[int] | None = None, name: str | None = None
    ) -> None:
        if not isinstance(cells, Sequence) or not cells or not all(isinstance(cell, RNNCell) for cell in cells):
            raise NetError("a stack needs a list of cells, at least one", blob=name, came=repr(cells))
        super().__init__(name, any(cell.forward_only for cell in cells))
        layers = () if residual_output_layers is None else residual_output_layers
        if not isinstance(layers, Sequence | Set) or isinstance(layers, str):
            self.fail("residual_output_layers is not a list", came=repr(layers))
        self._cells, self.residual = list(cells), tuple(layers)
        self._check()

    def _check(self) -> None:
        names = [cell.name for cell in self.inner_cells()]
        if len(set(names)) < len(names):
            self.fail("cells of a stack share a name", came=", ".join(names), hint="Give each its name=.")
        for layer in self.residual:
            if not isinstance(layer, int) or not 0 < layer < len(self.inner_cells()):
                self.fail("no such residual layer", wanted=f"1 to {len(self.inner_cells()) - 1}", came=layer)
            below, own = self.inner_cells()[layer - 1].get_output_dim(), self.inner_cells()[layer].get_output_dim()
            if below != own:
                self.fail(f"residual layer {layer} differs in size from the one below", wanted=below, came=own)

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        remaining, new = list(states), []
        layer_input, output = x_t, x_t
        for layer, cell in enumerate(self.inner_cells()):
            count = len(cell.get_state_names())
            own, remaining = remaining[:count], remaining[count:]
            output, own_new = cell.step(step, layer_input, own, extra if layer == 0 else ())
            layer_input = output = output + layer_input if layer in self.residual else output
            new += own_new
        return output, new


class UnrolledCell(WrapperCell):
    """A cell that is written out T times in the outer net, instead of as a recurrence.

    All copies share their parameters.

    Its results equal the cell's, but the net has T times as many ops. Its name, states and parameters are those of the
    cell inside.

    Args:
        cell: the cell to unroll.
        T: number of steps, fixed, 1 or more.

    Raises:
        NetError: T is not an integer of 1 or more, or cell is not a cell.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.UnrolledCell(ro.cells.BasicRNNCell(3, 4), 7)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, sum(op.type == "Tanh" for op in net.ops)
        ((7, 2, 4), 7)
    """

    def __init__(self, cell: RNNCell, T: int) -> None:
        super().__init__(cell)
        if not isinstance(T, int) or isinstance(T, bool) or T < 1:
            self.fail("an unrolled cell needs a number of steps", wanted="1 or more", came=T)
        self.T = T

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        return self.inner_cells()[0].step(step, x_t, states, extra)

    def apply_over_sequence(
        self,
        net: Net,
        inputs: Blob,
        seq_lengths: Blob | None = None,
        initial_states: Sequence[Blob] | None = None,
        outputs_with_grads: Sequence[int] | None = None,
        reverse: bool = False,
    ) -> tuple[Blob, tuple[Blob, ...]]:
        """Write T steps of the cell.

        Args:
            net: the outer net.
            inputs: [T, N, D].
            seq_lengths: [N] int32, or None for full length.
            initial_states: one for each state, `[H]`, `[N, H]` or `[1, N, H]`. By default the initializer makes them.
            outputs_with_grads: not supported. Gradients flow to every output that receives one.
            reverse: True to go from the last step to the first. Each row starts at its own end.

        Returns:
            As `RNNCell.apply_over_sequence`.

        Raises:
            NetError: outputs_with_grads is given, or as in `RNNCell.apply_over_sequence`.
        """
        if outputs_with_grads is not None:
            self.fail("outputs_with_grads needs a recurrence", net, hint="Leave it out here.")
        check_flags(type(self).__name__, reverse=reverse)
        self._claim(net)
        inputs = self.prepare_input(net, inputs)
        self.prepare(net)
        given = zip(self.initial_states(net, initial_states), self.get_state_shapes(), strict=True)
        current = [self._with_rows(net, inputs, state, len(shape)) for state, shape in given]
        steps, outputs = [], []
        turn = slice(None, None, -1 if reverse else 1)
        for t, x_t in list(enumerate(split(inputs, [1] * self.T, axis=0)))[turn]:
            timestep = net.constant(np.array([t], np.int32))
            context = Step(net, None, seq_lengths, timestep, f"timestep_{t}/")
            output, current = self.inner_cells()[0].step(context, squeeze(x_t, [0]), current)
            outputs.append(unsqueeze(output, [0]))
            steps.append([unsqueeze(state, [0]) for state in current])
        self._start(net)
        columns = [list(column) for column in zip(*steps, strict=True)]
        states = [blob for column in columns for blob in (concat(column[turn], axis=0), column[-1])]
        return concat(outputs[turn], axis=0), tuple(states)

    def _with_rows(self, net: Net, inputs: Blob, state: Blob, axes: int) -> Blob:
        """Broadcasts an initial state `[H]`, `[N, H]` or `[1, N, H]` to `[N, H]`. H may be several axes."""
        one, features = net.constant(np.array([1], np.int64)), net.constant(np.ones(axes, np.int64))
        zeros = constant_of_shape(net, concat([one, shape(inputs, start=1, end=2), features], axis=0))
        return squeeze(state + zeros, [0])


Preset = Callable[..., Any]


def _preset(cell_class: Callable[..., RNNCell], kind: str) -> Preset:
    def preset(
        net: Net,
        input_blob: Blob,
        seq_lengths: Blob | None,
        initial_states: Sequence[Blob] | None,
        dim_in: int,
        dim_out: int | Sequence[int],
        scope: str | None = None,
        outputs_with_grads: Sequence[int] | None = None,
        return_params: bool = False,
        memory_optimization: bool = False,
        forget_bias: float = 0.0,
        forward_only: bool = False,
        drop_states: bool = False,
        return_last_layer_only: bool = True,
        static_rnn_unroll_size: int | None = None,
        init: Mapping[str, object] | None = None,
        **cell_options: Any,
    ) -> Any:
        """{kind} over a sequence, one layer or a stack: `{kind}Cell` in one call.

        Args:
            net: the outer net.
            input_blob: [T, N, D].
            seq_lengths: [N] int32, or None for full length. Past a row's end states stay.
            initial_states: for each layer its states, bottom first, `[H]`, `[N, H]` or `[1, N, H]`. None for parameters
                that start with zeros.
            dim_in: features of the input, D.
            dim_out: number of units, H, or a list with one for each layer, bottom first.
            scope: prefix of parameter and result names. By default a free one is made up.
            outputs_with_grads: positions in the last layer's results that may get gradients. By default all.
            return_params: True to also return the parameter blobs, `{"input": [...], "recurrent": [...]}`, at the end.
            memory_optimization: True to compute gates again in the backward pass instead of storing them.
            forget_bias: added to the forget gate, if there is one.
            forward_only: True for a recurrence without a gradient.
            drop_states: True for zero states past a row's end. By default states stay there.
            return_last_layer_only: False to return the results of all layers, bottom first.
            static_rnn_unroll_size: T, to write out the steps in the outer net instead of a recurrence.
            init: initial values of parameters, by name or pattern below `scope`, as for `Net.set_init`.
            **cell_options: further arguments of `{kind}Cell`: {options}.

        Returns:
            A tuple with all values, [T, N, H], and the last one, [1, N, H], of each state of the last layer.

        Raises:
            NetError: the cell does not have an option, a size is not a size, or the number of states is wrong.
            RecurrentError: an input or states do not fit the cell.
            ArgumentError: an argument is unknown or missing.

        Example:
            >>> net = ro.Net("model", sizes_for="float32")
            >>> h_all, h_last, *others = ro.{kind}(net, net.input("x", shape=(7, 2, 3)), None, None, 3, [8, 4])
            >>> h_all.shape, h_last.shape
            ((7, 2, 4), (1, 2, 4))
        """
        require_net(net)
        check_flags(kind, return_params=return_params, return_last_layer_only=return_last_layer_only)
        name = _free_name(net, kind) if scope is None else net.scoped(check_name(scope, "scope", net.name))
        sizes = list(dim_out) if isinstance(dim_out, Sequence) else [dim_out]
        _check_options(cell_class, net, kind, cell_options)
        flags = {"memory_optimization": memory_optimization, "drop_states": drop_states, "forward_only": forward_only}
        options = {"forget_bias": forget_bias, **flags, **cell_options}
        cell = _stack(cell_class, name, [dim_in, *sizes], options)
        cell._init = init
        if static_rnn_unroll_size is not None:
            cell = UnrolledCell(cell, static_rnn_unroll_size)
        per_layer = 2 * len(cell.get_state_names()) // len(sizes)
        first = per_layer * (len(sizes) - 1)
        with_grads = _places(net, name, outputs_with_grads, first, per_layer)
        with absolute_names():
            _, states = cell.apply_over_sequence(net, input_blob, seq_lengths, initial_states, with_grads)
        result = states[first:] if return_last_layer_only else states
        return (*result, _params(net, cell)) if return_params else result

    preset.__name__ = preset.__qualname__ = kind
    taken = {*signature(preset).parameters, "input_size", "hidden_size", "name"}
    options = [f"`{name}`" for name in signature(cell_class).parameters if name not in taken]
    preset.__doc__ = (preset.__doc__ or "").replace("{kind}", kind).replace("{options}", ", ".join(options))
    return named_arguments(preset)


def _stack(cell_class: Callable[..., RNNCell], name: str, sizes: Sequence[int], options: dict[str, Any]) -> RNNCell:
    """One cell, or a stack of `<name>/layer_<i>`. The bottom layer has its input weights under `<name>/i2h`."""
    if len(sizes) < 2:
        raise NetError("dim_out is an empty list", blob=name, wanted="a size for each layer")
    if len(sizes) == 2:
        return cell_class(sizes[0], sizes[1], name=name, **options)
    pairs = enumerate(pairwise(sizes))
    cells = [cell_class(size_in, size_out, name=f"{name}/layer_{i}", **options) for i, (size_in, size_out) in pairs]
    cells[0].input_name = f"{name}/i2h"
    return MultiRNNCell(cells, name=name)


def _check_options(cell_class: Callable[..., RNNCell], net: Net, kind: str, options: dict[str, Any]) -> None:
    known = signature(cell_class).parameters
    for option in options:
        if option not in known:
            raise NetError(f"{kind} has no option '{option}'", net=net.name, wanted=f"one of {', '.join(known)}")


def _places(net: Net, name: str, given: Sequence[int] | None, first: int, count: int) -> list[int] | None:
    """Positions in the last layer's results, as positions in the results of all layers."""
    places = None if given is None else list(given) if isinstance(given, Sequence) else [given]
    for place in places or ():
        if not isinstance(place, int) or not 0 <= place < count:
            problem = "outputs_with_grads names a result that the last layer does not have"
            raise NetError(problem, net=net.name, blob=name, wanted=f"0 to {count - 1}", came=repr(place))
    return None if places is None else [first + place for place in places]


def _params(net: Net, cell: RNNCell) -> dict[str, list[Blob]]:
    return {
        "input": [net.blob(name) for name in cell.get_input_params()],
        "recurrent": [net.blob(name) for name in cell.get_recurrent_params()],
    }


def _free_name(net: Net, kind: str) -> str:
    """A prefix that no blob of the net has: `lstm`, `lstm_1`, ..."""
    base = net.scoped(kind.lower())
    candidates = (base if k == 0 else f"{base}_{k}" for k in count())
    return next(name for name in candidates if not any(blob.startswith(f"{name}/") for blob in net.blob_names))


BasicRNN = _preset(BasicRNNCell, "BasicRNN")
LSTM = _preset(LSTMCell, "LSTM")
MILSTM = _preset(MILSTMCell, "MILSTM")
LayerNormLSTM = _preset(LayerNormLSTMCell, "LayerNormLSTM")
LayerNormMILSTM = _preset(LayerNormMILSTMCell, "LayerNormMILSTM")
GRU = _preset(GRUCell, "GRU")
