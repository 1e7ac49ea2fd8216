"""Ready cells, by kind. None of them has a derivative of its own."""

from rnnops.cells.attention import (
    AttentionCell as AttentionCell,
    LSTMWithAttentionCell as LSTMWithAttentionCell,
    MILSTMWithAttentionCell as MILSTMWithAttentionCell,
    NTMCell as NTMCell,
)
from rnnops.cells.base import RNNCell as RNNCell, Step as Step
from rnnops.cells.continuous import (
    ALIFCell as ALIFCell,
    CfCCell as CfCCell,
    CoRNNCell as CoRNNCell,
    LEMCell as LEMCell,
    LIFCell as LIFCell,
    LMUCell as LMUCell,
    LTCCell as LTCCell,
)
from rnnops.cells.delta_rules import (
    DeltaNetCell as DeltaNetCell,
    GatedDeltaNetCell as GatedDeltaNetCell,
    GatedDeltaProductCell as GatedDeltaProductCell,
    KDACell as KDACell,
    TTTLinearCell as TTTLinearCell,
)
from rnnops.cells.gated import (
    GRUCell as GRUCell,
    LayerNormLSTMCell as LayerNormLSTMCell,
    LayerNormMILSTMCell as LayerNormMILSTMCell,
    LSTMCell as LSTMCell,
    MILSTMCell as MILSTMCell,
    PeepholeLSTMCell as PeepholeLSTMCell,
    ProjectedLSTMCell as ProjectedLSTMCell,
)
from rnnops.cells.linear_attention import (
    BlockGRUCell as BlockGRUCell,
    GLACell as GLACell,
    HGRN2Cell as HGRN2Cell,
    MLSTMCell as MLSTMCell,
    MLSTMSigmoidCell as MLSTMSigmoidCell,
    RetentionCell as RetentionCell,
    SLSTMCell as SLSTMCell,
)
from rnnops.cells.simple import (
    BasicRNNCell as BasicRNNCell,
    FastGRNNCell as FastGRNNCell,
    IndRNNCell as IndRNNCell,
    MinGRUCell as MinGRUCell,
    MinLSTMCell as MinLSTMCell,
    QRNNCell as QRNNCell,
    SRUCell as SRUCell,
)
from rnnops.cells.sized import CELLS as CELLS, SizedCell as SizedCell, register_cell as register_cell
from rnnops.cells.state_space import (
    LRUCell as LRUCell,
    Mamba2Cell as Mamba2Cell,
    RGLRUCell as RGLRUCell,
    RWKV7Cell as RWKV7Cell,
    S5Cell as S5Cell,
    SelectiveSSMCell as SelectiveSSMCell,
)
from rnnops.cells.wrappers import (
    GRU as GRU,
    LSTM as LSTM,
    MILSTM as MILSTM,
    BasicRNN as BasicRNN,
    DropoutCell as DropoutCell,
    LayerNormLSTM as LayerNormLSTM,
    LayerNormMILSTM as LayerNormMILSTM,
    MultiRNNCell as MultiRNNCell,
    UnrolledCell as UnrolledCell,
    ZoneoutCell as ZoneoutCell,
)
