"""Models: layers, losses, optimizers and saving on top of nets (see `docs/models.md`)."""

from rnnops.model.layer import Layer as Layer, Placeholder as Placeholder
from rnnops.model.layers import (
    CELLS as CELLS,
    RNN as RNN,
    Attention as Attention,
    Dense as Dense,
    Dropout as Dropout,
    Embedding as Embedding,
    LayerNorm as LayerNorm,
)
from rnnops.model.losses import (
    CRF as CRF,
    HMM as HMM,
    log_partition as log_partition,
    mean_absolute_error as mean_absolute_error,
    mean_squared_error as mean_squared_error,
    sigmoid_cross_entropy as sigmoid_cross_entropy,
    softmax_cross_entropy as softmax_cross_entropy,
)
from rnnops.model.model import Model as Model
from rnnops.model.optimizers import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    Optimizer as Optimizer,
    clip_by_global_norm as clip_by_global_norm,
    clip_by_value as clip_by_value,
    global_norm as global_norm,
)
from rnnops.model.schedules import (
    Cosine as Cosine,
    ExponentialDecay as ExponentialDecay,
    InverseRoot as InverseRoot,
    StepDecay as StepDecay,
    WarmUp as WarmUp,
)
