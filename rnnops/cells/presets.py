"""Presets: `LSTM(net, x, lengths, states, dim_in, dim_out)` and its kin, stacks included, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import count, pairwise
from typing import Any

from rnnops.cells.base import RNNCell
from rnnops.cells.gated import GRUCell, LayerNormLSTMCell, LayerNormMILSTMCell, LSTMCell, MILSTMCell
from rnnops.cells.simple import BasicRNNCell
from rnnops.cells.wrappers import MultiRNNCell, UnrolledCell
from rnnops.errors import NetError, check_flags, named_arguments
from rnnops.net.blob import Blob
from rnnops.net.net import Net, require_net
from rnnops.net.text import absolute_names, check_name

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
            seq_lengths: [N] int32, None for full length; past a row's end states stay.
            initial_states: of each layer its states, bottom first, `[H]`, `[N, H]` or `[1, N, H]`; None for parameters
                that start with zeros.
            dim_in: features of the input, D.
            dim_out: number of units, H, or a list with one of each layer, bottom first.
            scope: prefix of parameter and result names; a free one is made up if left out.
            outputs_with_grads: positions in the last layer's results that may get gradients; all if left out.
            return_params: whether `{"input": [...], "recurrent": [...]}`, the parameter blobs, comes behind the states.
            memory_optimization: gates are computed again on the backward pass instead of stored.
            forget_bias: added to the forget gate, where there is one.
            forward_only: the recurrence has no gradient.
            drop_states: past a row's end states are zero, instead of what they were.
            return_last_layer_only: else the results of all layers are returned, bottom first.
            static_rnn_unroll_size: T, to write the steps out in the outer net instead of a recurrence.
            init: initial values of parameters, by name or pattern below `scope`, as for `Net.set_init`.
            **cell_options: further arguments of `{kind}Cell`, such as `initializer`.

        Returns:
            A tuple of, for each state of the last layer, all its values, [T, N, H], and the last, [1, N, H].

        Raises:
            NetError: an option that the cell does not have, sizes that are none, states of another number.
            RecurrentError: an input or states that do not fit the cell.
            ArgumentError: arguments that the function does not have, or that it lacks.

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
    preset.__doc__ = (preset.__doc__ or "").replace("{kind}", kind)
    return named_arguments(preset)


def _stack(cell_class: Callable[..., RNNCell], name: str, sizes: Sequence[int], options: dict[str, Any]) -> RNNCell:
    """One cell, or a stack of `<name>/layer_<i>` whose bottom layer has its input weights under `<name>/i2h`."""
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
    """Positions in the last layer's results as positions in those of all layers."""
    places = None if given is None else list(given) if isinstance(given, Sequence) else [given]
    for place in places or ():
        if not isinstance(place, int) or not 0 <= place < count:
            problem = "outputs_with_grads names no result of the last layer"
            raise NetError(problem, net=net.name, blob=name, wanted=f"0 to {count - 1}", came=repr(place))
    return None if places is None else [first + place for place in places]


def _params(net: Net, cell: RNNCell) -> dict[str, list[Blob]]:
    return {
        "input": [net.blob(name) for name in cell.get_input_params()],
        "recurrent": [net.blob(name) for name in cell.get_recurrent_params()],
    }


def _free_name(net: Net, kind: str) -> str:
    """`lstm`, `lstm_1`, ...: a prefix that no blob of the net has."""
    base = net.scoped(kind.lower())
    candidates = (base if k == 0 else f"{base}_{k}" for k in count())
    return next(name for name in candidates if not any(blob.startswith(f"{name}/") for blob in net.blob_names))


BasicRNN = _preset(BasicRNNCell, "BasicRNN")
LSTM = _preset(LSTMCell, "LSTM")
MILSTM = _preset(MILSTMCell, "MILSTM")
LayerNormLSTM = _preset(LayerNormLSTMCell, "LayerNormLSTM")
LayerNormMILSTM = _preset(LayerNormMILSTMCell, "LayerNormMILSTM")
GRU = _preset(GRUCell, "GRU")
