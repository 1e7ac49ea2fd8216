"""LayerNormLSTMCell and LayerNormMILSTMCell: all gates of a step are normalized at once."""

from __future__ import annotations

from typing import ClassVar

from rnnops.blob import Blob
from rnnops.cells.gates import GATES
from rnnops.cells.lstm import LSTMCell
from rnnops.cells.milstm import MILSTMCell
from rnnops.cells.step import Step
from rnnops.cells.table import register_cell
from rnnops.ops.normalization import layer_normalization

EPSILON = 1e-4  # as Caffe2


@register_cell
class LayerNormLSTMCell(LSTMCell):
    """LSTM whose gates are normalized, all 4H of a row at once.

    With the gates `z [N, 4H]` of `LSTMCell` before their nonlinearity, and mean and variance over a row's 4H::

        n = (z - mean(z)) / sqrt(variance(z) + 0.0001) * gates_t_norm_scale + gates_t_norm_bias
        i, f, o, g = split(n, 4)
        c = sigmoid(f + forget_bias) * c_prev + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)

    Ba, Kiros and Hinton 2016, "Layer normalization", arXiv 1607.06450. The paper normalizes the two products apart and
    the cell state as well; this is the form of Caffe2, with its epsilon.

    States:

    - `hidden_t [N, H]`: h, the output
    - `cell_t [N, H]`: c

    Trained parameters, below the cell's name:

    - `i2h_w [4H, D]`, `gates_t_w [4H, H]`: xavier
    - `gates_t_norm_scale [4H]`: ones
    - `i2h_b [4H]`, `gates_t_b [4H]`, `gates_t_norm_bias [4H]`: zeros

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f, after the normalization.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LayerNormLSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "layer_norm_lstm"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *norm_params(self)]

    def normalized(self, step: Step, gates: Blob) -> Blob:
        return normalize(self, step, gates)


@register_cell
class LayerNormMILSTMCell(MILSTMCell):
    """MILSTM whose gates are normalized, all 4H of a row at once.

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
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to f, after the normalization.
        memory_optimization, drop_states, name, forward_only, initializer: as `SizedCell`'s.

    Raises:
        NetError: as `SizedCell`'s.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> cell = ro.cells.LayerNormMILSTMCell(3, 4)
        >>> y, states = cell.apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, len(states)
        ((7, 2, 4), 4)
    """

    default_name: ClassVar[str] = "layer_norm_milstm"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *norm_params(self)]

    def normalized(self, step: Step, gates: Blob) -> Blob:
        return normalize(self, step, gates)


def norm_params(cell: LSTMCell) -> list[str]:
    return [f"{cell.name}/gates_t_norm_scale", f"{cell.name}/gates_t_norm_bias"]


def normalize(cell: LSTMCell, step: Step, gates: Blob) -> Blob:
    """The normalized gates, computed again on the backward pass with memory optimization."""
    scale_name, bias_name = norm_params(cell)
    size = (len(GATES) * cell.hidden_size,)
    scale, bias = step.parameter(scale_name, size, "ones"), step.parameter(bias_name, size, "zeros")
    normalized = layer_normalization(gates, scale, bias, axis=-1, epsilon=EPSILON)
    return step.labelled(normalized, f"{cell.name}/gates_t_norm", cell.memory_optimization)
