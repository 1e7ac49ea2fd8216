"""Cells: one a file, no calculus in any of them."""

from rnnops.cells.attention import (
    AttentionCell as AttentionCell,
    LSTMWithAttentionCell as LSTMWithAttentionCell,
    MILSTMWithAttentionCell as MILSTMWithAttentionCell,
)
from rnnops.cells.base import RNNCell as RNNCell
from rnnops.cells.basic_rnn import BasicRNNCell as BasicRNNCell
from rnnops.cells.cfc import CfCCell as CfCCell
from rnnops.cells.cornn import CoRNNCell as CoRNNCell
from rnnops.cells.delta_net import DeltaNetCell as DeltaNetCell, GatedDeltaNetCell as GatedDeltaNetCell
from rnnops.cells.dropout import DropoutCell as DropoutCell
from rnnops.cells.gru import GRUCell as GRUCell
from rnnops.cells.indrnn import IndRNNCell as IndRNNCell
from rnnops.cells.layer_norm import LayerNormLSTMCell as LayerNormLSTMCell, LayerNormMILSTMCell as LayerNormMILSTMCell
from rnnops.cells.linear_attention import GLACell as GLACell, RetentionCell as RetentionCell
from rnnops.cells.lmu import LMUCell as LMUCell
from rnnops.cells.lstm import LSTMCell as LSTMCell
from rnnops.cells.ltc import LTCCell as LTCCell
from rnnops.cells.milstm import MILSTMCell as MILSTMCell
from rnnops.cells.min_rnn import MinGRUCell as MinGRUCell, MinLSTMCell as MinLSTMCell
from rnnops.cells.mlstm import MLSTMCell as MLSTMCell
from rnnops.cells.multi import MultiRNNCell as MultiRNNCell
from rnnops.cells.ntm import NTMCell as NTMCell
from rnnops.cells.peephole_lstm import PeepholeLSTMCell as PeepholeLSTMCell
from rnnops.cells.presets import (
    GRU as GRU,
    LSTM as LSTM,
    MILSTM as MILSTM,
    BasicRNN as BasicRNN,
    LayerNormLSTM as LayerNormLSTM,
    LayerNormMILSTM as LayerNormMILSTM,
)
from rnnops.cells.projected_lstm import ProjectedLSTMCell as ProjectedLSTMCell
from rnnops.cells.qrnn import QRNNCell as QRNNCell
from rnnops.cells.rg_lru import RGLRUCell as RGLRUCell
from rnnops.cells.rwkv7 import RWKV7Cell as RWKV7Cell
from rnnops.cells.selective_ssm import SelectiveSSMCell as SelectiveSSMCell
from rnnops.cells.sized import SizedCell as SizedCell
from rnnops.cells.slstm import SLSTMCell as SLSTMCell
from rnnops.cells.spiking import ALIFCell as ALIFCell, LIFCell as LIFCell
from rnnops.cells.sru import SRUCell as SRUCell
from rnnops.cells.step import Step as Step
from rnnops.cells.table import CELLS as CELLS, register_cell as register_cell
from rnnops.cells.unrolled import UnrolledCell as UnrolledCell
from rnnops.cells.zoneout import ZoneoutCell as ZoneoutCell
