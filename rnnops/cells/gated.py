"""Gated cells: LSTM, GRU, MILSTM, peephole LSTM, projected LSTM, and versions with layer normalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rnnops.cells.base import Extra, Step, Stepped
from rnnops.cells.sized import SizedCell, count_of, register_cell
from rnnops.errors import check_flags
from rnnops.net.blob import Blob
from rnnops.ops.activation import sigmoid, tanh
from rnnops.ops.movement import split
from rnnops.ops.normalization import layer_normalization

GATES = "ifog"  # gates of LSTM and similar cells: input, forget, output, candidate
GRU_GATES = ("reset", "update", "output")


def gate_inputs(gates: Blob, order: Sequence[str] = GATES) -> dict[str, Blob]:
    """The parts of gates `[N, 4H]`, by their letters."""
    return dict(zip(order, split(gates, len(order), axis=-1), strict=True))


@register_cell
class GRUCell(SizedCell):
    """Gated recurrent unit.

    The parts of the input are in the order reset, update, output::

        xr, xu, xo = split(x @ i2h_w.T + i2h_b, 3)
        r = sigmoid(xr + h_prev @ reset_gate_t_w.T + reset_gate_t_b)
        u = sigmoid(xu + h_prev @ update_gate_t_w.T + update_gate_t_b)
        o = tanh(xo + (r * h_prev) @ output_gate_t_w.T + output_gate_t_b)
        h = u * h_prev + (1 - u) * o

    With `linear_before_reset` the candidate is `o = tanh(xo + r * (h_prev @ output_gate_t_w.T + output_gate_t_b))`.
    This is the form of cuDNN and PyTorch, and of ONNX with its attribute of that name.

    Cho and others 2014, "Learning phrase representations using RNN encoder-decoder", arXiv 1406.1078, equations 5 to 8.

    States:

    - `hidden_t [N, H]`: h, the output

    Trained parameters, below the cell's name:

    - `i2h_w [3H, D]`, `reset_gate_t_w [H, H]`, `update_gate_t_w [H, H]`, `output_gate_t_w [H, H]`: xavier
    - `i2h_b [3H]`, `reset_gate_t_b [H]`, `update_gate_t_b [H]`, `output_gate_t_b [H]`: zeros

    Args:
        forget_bias: not read; there is no forget gate.
        linear_before_reset: True if the reset gate multiplies the recurrent product, instead of the state before it.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.GRUCell(3, 4, linear_before_reset=True)
        >>> y, (h_all, h_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, h_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "gru"
    recurrent_params = tuple(f"{gate}_gate_t_{part}" for gate in GRU_GATES for part in ("w", "b"))

    def __init__(self, input_size: int, hidden_size: int, *, linear_before_reset: bool = False, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        check_flags(type(self).__name__, linear_before_reset=linear_before_reset)
        self.linear_before_reset = linear_before_reset

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        (h_prev,) = states
        x = step.linear(x_t, self.input_name, self.input_size, len(GRU_GATES) * self.hidden_size)
        x_gate = gate_inputs(x, GRU_GATES)
        reset = sigmoid(self._gate(step, "reset", self._product(step, "reset", h_prev, extra) + x_gate["reset"]))
        update = sigmoid(self._gate(step, "update", self._product(step, "update", h_prev, extra) + x_gate["update"]))
        if self.linear_before_reset:
            candidate = reset * self._product(step, "output", h_prev, extra)
        else:
            candidate = self._product(step, "output", reset * h_prev, extra)
        output = tanh(self._gate(step, "output", candidate + x_gate["output"]))
        h_t = step.masked(update * h_prev + (1.0 - update) * output, h_prev, self.drop_states)
        return h_t, [h_t]

    def _product(self, step: Step, gate: str, h: Blob, extra: Extra) -> Blob:
        return step.linear(h, f"{self.name}/{gate}_gate_t", self.hidden_size, self.hidden_size, extra)

    def _gate(self, step: Step, gate: str, blob: Blob) -> Blob:
        return step.labelled(blob, f"{self.name}/{gate}_gate_t", self.memory_optimization)


@register_cell
class LSTMCell(SizedCell):
    """Long short-term memory with a forget gate.

    The parts of the gates are in the order i, f, o, g::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Hochreiter and Schmidhuber 1997, "Long short-term memory", Neural Computation 9(8). The forget gate is from Gers,
    Schmidhuber and Cummins 2000, "Learning to forget", Neural Computation 12(10).

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros

    Args:
        forget_bias: added to f. `rnnops train` sets it to 1.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> x, lengths = net.input("x", shape=(7, 2, 3)), net.input("lengths", "int32", shape=(2,))
        >>> cell = ro.cells.LSTMCell(3, 4, forget_bias=1.0)
        >>> y, (h_all, h_last, c_all, c_last) = cell.apply_over_sequence(net, x, lengths)
        >>> y.shape, c_last.shape
        ((7, 2, 4), (1, 2, 4))
    """

    default_name: ClassVar[str] = "lstm"
    state_names: ClassVar[tuple[str, ...]] = ("hidden_t", "cell_t")
    recurrent_params: ClassVar[tuple[str, ...]] = ("gates_t_w", "gates_t_b")
    # gradients then reach back further from the start
    training_options: ClassVar[Mapping[str, Any]] = {"forget_bias": 1.0}

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        h_prev, c_prev = states
        gate = self.by_gate(step, x_t, h_prev, extra)
        forget = gate["f"] + self.forget_bias if self.forget_bias else gate["f"]
        c_t = sigmoid(forget) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = sigmoid(gate["o"]) * tanh(c_t)
        return self.stepped(step, [h_t, c_t], states)

    def by_gate(self, step: Step, x_t: Blob, h_prev: Blob, extra: Extra) -> dict[str, Blob]:
        """Each gate before its nonlinearity, `[N, H]`, by its letter.

        Args:
            step: the step under construction.
            x_t: [N, D].
            h_prev: the hidden state before.
            extra: (blob, feature size) of more blobs that the recurrent product reads.
        """
        x = step.linear(x_t, self.input_name, self.input_size, len(GATES) * self.hidden_size)
        gates = step.labelled(self.gates(step, x, h_prev, extra), f"{self.name}/gates_t", self.memory_optimization)
        return gate_inputs(self.normalized(step, gates))

    def gates(self, step: Step, x: Blob, h_prev: Blob, extra: Extra) -> Blob:
        """All four gates before their nonlinearity, [N, 4H]. Subclasses may override it.

        Args:
            step: the step under construction.
            x: [N, 4H], the projected input.
            h_prev: [N, H], or [N, P] in a cell that projects its output.
            extra: (blob, feature size) of more blobs that the recurrent product reads.
        """
        size = self.get_state_dims()[0]
        return x + step.linear(h_prev, f"{self.name}/gates_t", size, len(GATES) * self.hidden_size, extra)

    def normalized(self, step: Step, gates: Blob) -> Blob:
        """A hook between the gates and their nonlinearity, for subclasses.

        Args:
            step: the step under construction.
            gates: [N, 4H].
        """
        return gates


@register_cell
class MILSTMCell(LSTMCell):
    """LSTM with multiplicative integration: its gates multiply the two projections.

    The parts are in LSTM's order::

        a = x @ i2h_w.T + i2h_b
        p = h_prev @ prev_t_w.T + prev_t_b
        i, f, o, g = split((alpha * a + beta1) * p + beta2 * a + b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Wu and others 2016, "On multiplicative integration with recurrent neural networks", arXiv 1606.06630, in the general
    form.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `prev_t_w [4H, H]`: xavier
    - `alpha [4H]`, `beta1 [4H]`, `beta2 [4H]`: ones
    - `i2h_b [4H]`, `prev_t_b [4H]`, `b [4H]`: zeros

    Args:
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.MILSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "milstm"
    recurrent_params = ("prev_t_w", "prev_t_b", "alpha", "beta1", "beta2", "b")

    def gates(self, step: Step, x: Blob, h_prev: Blob, extra: Extra) -> Blob:
        size = len(GATES) * self.hidden_size
        p = step.linear(h_prev, f"{self.name}/prev_t", self.hidden_size, size, extra)
        alpha, beta1, beta2 = (
            step.parameter(f"{self.name}/{name}", (size,), "ones") for name in ("alpha", "beta1", "beta2")
        )
        return (alpha * x + beta1) * p + (beta2 * x + step.parameter(f"{self.name}/b", (size,), "zeros"))


@register_cell
class PeepholeLSTMCell(LSTMCell):
    """LSTM with a weight from each unit's cell state to its own gates.

    The parts are in LSTM's order::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + peephole_f * c_prev + forget_bias) * c_prev + sigmoid(i + peephole_i * c_prev) * tanh(g)
        h = sigmoid(o + peephole_o * c) * tanh(c)

    Gers and Schmidhuber 2000, "Recurrent nets that time and count", IJCNN, in the form of Graves 2013, arXiv 1308.0850,
    equations 7 to 11.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros
    - `peephole_i [H]`, `peephole_f [H]`, `peephole_o [H]`: zeros, so that it starts as an LSTM

    Args:
        forget_bias: added to f.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.PeepholeLSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "peephole_lstm"
    recurrent_params = (*LSTMCell.recurrent_params, "peephole_i", "peephole_f", "peephole_o")

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        h_prev, c_prev = states
        gate = self.by_gate(step, x_t, h_prev, extra)
        see = {key: step.parameter(f"{self.name}/peephole_{key}", (self.hidden_size,), "zeros") for key in "ifo"}
        forget = sigmoid(gate["f"] + see["f"] * c_prev + self.forget_bias)
        c_t = forget * c_prev + sigmoid(gate["i"] + see["i"] * c_prev) * tanh(gate["g"])
        h_t = sigmoid(gate["o"] + see["o"] * c_t) * tanh(c_t)
        return self.stepped(step, [h_t, c_t], states)


@register_cell
class ProjectedLSTMCell(LSTMCell):
    """LSTM with a hidden state, its output, that has fewer features than its cell state.

    The parts are in LSTM's order. Gates read the smaller `h_prev`::

        i, f, o, g = split(x @ i2h_w.T + i2h_b + h_prev @ gates_t_w.T + gates_t_b, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = (sigmoid(o) * tanh(c)) @ projection_w.T

    Sak, Senior and Beaufays 2014, arXiv 1402.1128, LSTMP of section 2, and `torch.nn.LSTM(proj_size=P)`. The paper's
    second, non-recurrent projection is left out: a layer after the cell can do it.

    States:

    - `hidden_t [N, P]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, P]`, `projection_w [P, H]`: xavier
    - `i2h_b [4H]`, `gates_t_b [4H]`: zeros

    Args:
        proj_size: P, features of the hidden state. The default is half of H, rounded up.
        forget_bias: added to f.

    Raises:
        NetError: hidden_size or proj_size is not a size, or as in `SizedCell`.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.ProjectedLSTMCell(3, 8, proj_size=2)
        >>> y, (h_all, h_last, c_all, c_last) = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, c_all.shape
        ((7, 2, 2), (7, 2, 8))
    """

    default_name: ClassVar[str] = "projected_lstm"
    recurrent_params = (*LSTMCell.recurrent_params, "projection_w")

    def __init__(self, input_size: int, hidden_size: int, *, proj_size: int | None = None, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        half = (count_of(hidden_size, "hidden_size", self.name) + 1) // 2
        self.proj_size = half if proj_size is None else count_of(proj_size, "proj_size", self.name)

    def get_state_dims(self) -> list[int]:
        return [self.proj_size, self.hidden_size]

    def get_output_dim(self) -> int:
        return self.proj_size

    def step(self, step: Step, x_t: Blob, states: Sequence[Blob], extra: Extra = ()) -> Stepped:
        h_prev, c_prev = states
        gate = self.by_gate(step, x_t, h_prev, extra)
        c_t = sigmoid(gate["f"] + self.forget_bias) * c_prev + sigmoid(gate["i"]) * tanh(gate["g"])
        h_t = step.product(sigmoid(gate["o"]) * tanh(c_t), f"{self.name}/projection", self.hidden_size, self.proj_size)
        return self.stepped(step, [h_t, c_t], states)


EPSILON = 1e-4  # as in Caffe2


class NormalizedGates(LSTMCell):
    """Base of cells that normalize all 4H gates of a row together. memory_optimization repeats that in backward."""

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *self._norm_params()]

    def _norm_params(self) -> list[str]:
        return [f"{self.name}/gates_t_norm_scale", f"{self.name}/gates_t_norm_bias"]

    def normalized(self, step: Step, gates: Blob) -> Blob:
        scale_name, bias_name = self._norm_params()
        size = (len(GATES) * self.hidden_size,)
        scale, bias = step.parameter(scale_name, size, "ones"), step.parameter(bias_name, size, "zeros")
        normalized = layer_normalization(gates, scale, bias, axis=-1, epsilon=EPSILON)
        return step.labelled(normalized, f"{self.name}/gates_t_norm", self.memory_optimization)


@register_cell
class LayerNormLSTMCell(NormalizedGates):
    """LSTM that normalizes all 4H gates of a row together.

    With the gates `z [N, 4H]` of `LSTMCell` before their nonlinearity, and mean and variance over a row's 4H::

        n = (z - mean(z)) / sqrt(variance(z) + 0.0001) * gates_t_norm_scale + gates_t_norm_bias
        i, f, o, g = split(n, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Ba, Kiros and Hinton 2016, "Layer normalization", arXiv 1607.06450. The paper normalizes the two products
    separately, and the cell state as well. This is the form of Caffe2, with its epsilon.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `gates_t_norm_scale [4H]`: ones
    - `i2h_b [4H]`, `gates_t_b [4H]`, `gates_t_norm_bias [4H]`: zeros

    Args:
        forget_bias: added to f, after the normalization.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LayerNormLSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "layer_norm_lstm"


@register_cell
class LayerNormMILSTMCell(NormalizedGates, MILSTMCell):
    """MILSTM that normalizes all 4H gates of a row together.

    The gates of `MILSTMCell`, `(alpha * a + beta1) * p + beta2 * a + b`, go through the normalization of
    `LayerNormLSTMCell` before their nonlinearity.

    Wu and others 2016, arXiv 1606.06630; Ba, Kiros and Hinton 2016, arXiv 1607.06450.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `prev_t_w [4H, H]`: xavier
    - `alpha [4H]`, `beta1 [4H]`, `beta2 [4H]`, `gates_t_norm_scale [4H]`: ones
    - `i2h_b [4H]`, `prev_t_b [4H]`, `b [4H]`, `gates_t_norm_bias [4H]`: zeros

    Args:
        forget_bias: added to f, after the normalization.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LayerNormMILSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "layer_norm_milstm"
