"""Cells: one a file, no calculus in any of them."""

from rnnops.cells.attention import (
    AttentionCell as AttentionCell,
    LSTMWithAttentionCell as LSTMWithAttentionCell,
    MILSTMWithAttentionCell as MILSTMWithAttentionCell,
)
from rnnops.cells.base import RNNCell as RNNCell
from rnnops.cells.basic_rnn import BasicRNNCell as BasicRNNCell
from rnnops.cells.dropout import DropoutCell as DropoutCell
from rnnops.cells.gru import GRUCell as GRUCell
from rnnops.cells.layer_norm import LayerNormLSTMCell as LayerNormLSTMCell, LayerNormMILSTMCell as LayerNormMILSTMCell
from rnnops.cells.lstm import LSTMCell as LSTMCell
from rnnops.cells.milstm import MILSTMCell as MILSTMCell
from rnnops.cells.multi import MultiRNNCell as MultiRNNCell
from rnnops.cells.presets import (
    GRU as GRU,
    LSTM as LSTM,
    MILSTM as MILSTM,
    BasicRNN as BasicRNN,
    LayerNormLSTM as LayerNormLSTM,
    LayerNormMILSTM as LayerNormMILSTM,
)
from rnnops.cells.step import Step as Step
from rnnops.cells.unrolled import UnrolledCell as UnrolledCell
