"""Layer normalization of all gates at once (Ba and others 2016), for LSTM and MILSTM."""

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
    """LSTM whose gates are normalized over all 4H.

    Parameters beside LSTM's: `gates_t_norm_scale` (ones) and `gates_t_norm_bias` (zeros), `[4H]`.
    """

    default_name: ClassVar[str] = "layer_norm_lstm"

    def get_recurrent_params(self) -> list[str]:
        return [*super().get_recurrent_params(), *norm_params(self)]

    def normalized(self, step: Step, gates: Blob) -> Blob:
        return normalize(self, step, gates)


@register_cell
class LayerNormMILSTMCell(MILSTMCell):
    """MILSTM whose gates are normalized over all 4H; parameters as LayerNormLSTMCell's beside MILSTM's."""

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
