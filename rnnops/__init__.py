"""rnnops: recurrent network operators. Write a cell as a small net; step it, differentiate it, choose what it keeps."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rnnops.arguments import did_you_mean as _did_you_mean
from rnnops.blob import Blob as Blob
from rnnops.errors import (
    ArgumentError as ArgumentError,
    BudgetError as BudgetError,
    CheckpointError as CheckpointError,
    DeviceError as DeviceError,
    FeedError as FeedError,
    GradientError as GradientError,
    GradientNormError as GradientNormError,
    ModelError as ModelError,
    NetError as NetError,
    NoBottleneckError as NoBottleneckError,
    NothingToRecomputeError as NothingToRecomputeError,
    NumericsError as NumericsError,
    OpError as OpError,
    OptimizerError as OptimizerError,
    OutOfMemoryError as OutOfMemoryError,
    ParseError as ParseError,
    RecurrentError as RecurrentError,
    RnnopsError as RnnopsError,
    SaveError as SaveError,
    StreamError as StreamError,
    TypeRuleError as TypeRuleError,
    UnknownCheckpointError as UnknownCheckpointError,
    UnknownNameError as UnknownNameError,
    out_of_memory_of as _out_of_memory_of,
)
from rnnops.net import Net as Net
from rnnops.op import init_params as init_params
from rnnops.ops import (
    abs as abs,
    add as add,
    and_ as and_,
    argmax as argmax,
    atan as atan,
    average_pool as average_pool,
    batch_normalization as batch_normalization,
    cast as cast,
    ceil as ceil,
    clip as clip,
    concat as concat,
    constant as constant,
    constant_of_shape as constant_of_shape,
    conv as conv,
    conv_transpose as conv_transpose,
    cos as cos,
    cosh as cosh,
    cumprod as cumprod,
    cumsum as cumsum,
    div as div,
    dropout as dropout,
    einsum as einsum,
    elu as elu,
    equal as equal,
    erf as erf,
    exp as exp,
    expand as expand,
    expm1 as expm1,
    flatten as flatten,
    floor as floor,
    gather as gather,
    gelu as gelu,
    gemm as gemm,
    global_average_pool as global_average_pool,
    global_max_pool as global_max_pool,
    greater as greater,
    greater_or_equal as greater_or_equal,
    hard_sigmoid as hard_sigmoid,
    identity as identity,
    layer_normalization as layer_normalization,
    leaky_relu as leaky_relu,
    less as less,
    less_or_equal as less_or_equal,
    log as log,
    log1p as log1p,
    log_softmax as log_softmax,
    lp_pool as lp_pool,
    matmul as matmul,
    max as max,
    max_pool as max_pool,
    mean as mean,
    min as min,
    mod as mod,
    mul as mul,
    neg as neg,
    not_ as not_,
    one_hot as one_hot,
    or_ as or_,
    pad as pad,
    pow as pow,
    random_uniform_like as random_uniform_like,
    range as range,
    reciprocal as reciprocal,
    reduce_log_sum_exp as reduce_log_sum_exp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_sum_square as reduce_sum_square,
    relu as relu,
    reshape as reshape,
    rms_normalization as rms_normalization,
    round as round,
    scatter_elements as scatter_elements,
    scatter_nd as scatter_nd,
    select_valid as select_valid,
    selu as selu,
    shape as shape,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    sinh as sinh,
    slice as slice,
    softmax as softmax,
    softmax_cross_entropy_loss as softmax_cross_entropy_loss,
    softplus as softplus,
    softsign as softsign,
    split as split,
    sqrt as sqrt,
    squeeze as squeeze,
    stop_gradient as stop_gradient,
    sub as sub,
    sum as sum,
    tan as tan,
    tanh as tanh,
    tile as tile,
    topk as topk,
    transpose as transpose,
    unsqueeze as unsqueeze,
    where as where,
    with_gradient as with_gradient,
)
from rnnops.recurrent import Link as Link, cell as cell, recurrent_net as recurrent_net, scan as scan
from rnnops.schema import op_names as op_names
from rnnops.scopes import name_scope as name_scope
from rnnops.util import LOADING as _LOADING
from rnnops.version import VERSION as VERSION

if TYPE_CHECKING:
    from rnnops import cells as cells, checkpoints as checkpoints, model as model, onnx as onnx, testing as testing
    from rnnops.cells import (
        GRU as GRU,
        LSTM as LSTM,
        MILSTM as MILSTM,
        BasicRNN as BasicRNN,
        LayerNormLSTM as LayerNormLSTM,
        LayerNormMILSTM as LayerNormMILSTM,
    )
    from rnnops.compiler import Pullback as Pullback, Run as Run, compile as compile
    from rnnops.compiler.buffers.memory import release_memory as release_memory
    from rnnops.parse import parse_net as parse_net

__version__ = VERSION
# Loaded at first use, so that `import rnnops` stays light.
_HIDDEN = {"Any", "TYPE_CHECKING", "annotations", "import_module"}
_MODULES = ("cells", "checkpoints", "model", "onnx", "testing")
_LAZY = {
    **dict.fromkeys(("BasicRNN", "GRU", "LSTM", "LayerNormLSTM", "LayerNormMILSTM", "MILSTM"), "rnnops.cells"),
    "parse_net": "rnnops.parse",
    **dict.fromkeys(("compile", "Run", "Pullback"), "rnnops.compiler"),
    **dict.fromkeys(("devices", "on_device"), "rnnops.compiler.api.compile"),
    "release_memory": "rnnops.compiler.buffers.memory",
    **dict.fromkeys(_MODULES, "rnnops"),
}
# What other libraries call functions that are here.
_MEANINGS = {
    "concatenate": "concat", "cat": "concat", "stack": "concat", "chunk": "split", "take": "gather", "arctan": "atan",
    "negative": "neg", "absolute": "abs", "power": "pow", "multiply": "mul", "subtract": "sub", "divide": "div",
    "maximum": "max", "minimum": "min", "expand_dims": "unsqueeze", "permute": "transpose", "embedding": "gather",
    "logsumexp": "reduce_log_sum_exp", "layer_norm": "layer_normalization", "detach": "stop_gradient",
    "cross_entropy": "softmax_cross_entropy_loss", "onehot": "one_hot", "jit": "compile", "grad": "compile",
    "rnn": "BasicRNN", "lstmcell": "cells.LSTMCell", "grucell": "cells.GRUCell",
}  # fmt: skip


def __dir__() -> list[str]:
    """Public names, those that are loaded at first use included."""
    return sorted(name for name in {*globals(), *_LAZY} if not name.startswith("_") and name not in _HIDDEN)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        hint = None if name.startswith("_") else _did_you_mean(name, __dir__(), _MEANINGS)
        raise UnknownNameError(f"rnnops has no '{name}'", hint=hint)
    with _LOADING:  # a fork meanwhile waits
        try:
            value = import_module(f"rnnops.{name}") if name in _MODULES else getattr(import_module(_LAZY[name]), name)
        except Exception as error:
            found = _out_of_memory_of(error, None)
            if found is None or found is error:
                raise
            raise found from error
    globals()[name] = value
    return value
