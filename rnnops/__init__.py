"""rnnops: recurrent network operators. Write a cell as a small net; step it, differentiate it, choose what it keeps."""

from __future__ import annotations

from importlib import import_module
from sys import modules as _modules
from typing import TYPE_CHECKING, Any

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
    did_you_mean as _did_you_mean,
    out_of_memory_of as _out_of_memory_of,
)
from rnnops.net.blob import Blob as Blob
from rnnops.net.net import Net as Net
from rnnops.net.op import init_params as init_params, name_scope as name_scope
from rnnops.net.schema import OpSchema as _OpSchema, op_names as op_names
from rnnops.ops.activation import (
    elu as elu,
    gelu as gelu,
    hard_sigmoid as hard_sigmoid,
    leaky_relu as leaky_relu,
    relu as relu,
    selu as selu,
    sigmoid as sigmoid,
    softplus as softplus,
    softsign as softsign,
    tanh as tanh,
)
from rnnops.ops.arithmetic import (
    abs as abs,
    add as add,
    atan as atan,
    ceil as ceil,
    cos as cos,
    cosh as cosh,
    div as div,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    log as log,
    log1p as log1p,
    mod as mod,
    mul as mul,
    neg as neg,
    pow as pow,
    reciprocal as reciprocal,
    round as round,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    sub as sub,
    tan as tan,
)
from rnnops.ops.base import stop_gradient as stop_gradient, with_gradient as with_gradient
from rnnops.ops.comparison import (
    and_ as and_,
    cast as cast,
    clip as clip,
    equal as equal,
    greater as greater,
    greater_or_equal as greater_or_equal,
    identity as identity,
    less as less,
    less_or_equal as less_or_equal,
    max as max,
    min as min,
    not_ as not_,
    or_ as or_,
    where as where,
)
from rnnops.ops.convolution import conv as conv, conv_transpose as conv_transpose
from rnnops.ops.einsum import einsum as einsum
from rnnops.ops.indexing import gather as gather, pad as pad, select_valid as select_valid, slice as slice
from rnnops.ops.linear_algebra import (
    cholesky as cholesky,
    gemm as gemm,
    matmul as matmul,
    slogdet as slogdet,
    solve as solve,
)
from rnnops.ops.loss import one_hot as one_hot, softmax_cross_entropy_loss as softmax_cross_entropy_loss
from rnnops.ops.movement import (
    concat as concat,
    expand as expand,
    flatten as flatten,
    reshape as reshape,
    split as split,
    squeeze as squeeze,
    tile as tile,
    transpose as transpose,
    unsqueeze as unsqueeze,
)
from rnnops.ops.normalization import (
    batch_normalization as batch_normalization,
    layer_normalization as layer_normalization,
    log_softmax as log_softmax,
    rms_normalization as rms_normalization,
    softmax as softmax,
)
from rnnops.ops.ordering import argmax as argmax, cumprod as cumprod, cumsum as cumsum, topk as topk
from rnnops.ops.reduction import (
    global_average_pool as global_average_pool,
    global_max_pool as global_max_pool,
    mean as mean,
    reduce_log_sum_exp as reduce_log_sum_exp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    reduce_sum_square as reduce_sum_square,
    sum as sum,
)
from rnnops.ops.scatter import scatter_elements as scatter_elements, scatter_nd as scatter_nd
from rnnops.ops.shapes import (
    constant as constant,
    constant_of_shape as constant_of_shape,
    dropout as dropout,
    random_uniform_like as random_uniform_like,
    range as range,
    shape as shape,
)
from rnnops.ops.windows import average_pool as average_pool, lp_pool as lp_pool, max_pool as max_pool
from rnnops.recurrent import Link as Link, cell as cell, recurrent_net as recurrent_net, scan as scan
from rnnops.util import LOADING as _LOADING, MovedModule as _MovedModule

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
    from rnnops.compiler.api.derivative_nets import gradient_net as gradient_net, tangent_net as tangent_net
    from rnnops.compiler.api.online_net import online_net as online_net
    from rnnops.compiler.api.streamed_net import streamed_net as streamed_net
    from rnnops.compiler.memory.memory import release_memory as release_memory
    from rnnops.net.text import parse_net as parse_net

VERSION = "0.1.0"
"""The version, `major.minor.patch`, which wheels and CHANGELOG.md name; also `rnnops.__version__`.

Example:
    >>> ro.VERSION.count(".")
    2
"""
__version__ = VERSION
# Loaded at first use, so that `import rnnops` stays light.
_HIDDEN = {"Any", "TYPE_CHECKING", "annotations", "import_module"}
_MODULES = ("cells", "checkpoints", "model", "onnx", "testing")
_LAZY = {
    **dict.fromkeys(("BasicRNN", "GRU", "LSTM", "LayerNormLSTM", "LayerNormMILSTM", "MILSTM"), "rnnops.cells"),
    "parse_net": "rnnops.net.text",
    **dict.fromkeys(("compile", "Run", "Pullback"), "rnnops.compiler"),
    **dict.fromkeys(("devices", "on_device"), "rnnops.compiler.api.compile"),
    "gradient_net": "rnnops.compiler.api.derivative_nets",
    "online_net": "rnnops.compiler.api.online_net",
    "streamed_net": "rnnops.compiler.api.streamed_net",
    "tangent_net": "rnnops.compiler.api.derivative_nets",
    "release_memory": "rnnops.compiler.memory.memory",
    **dict.fromkeys(_MODULES, "rnnops"),
}
# Modules that users' ops and passes import by name: former names, for one release.
_MOVED = {"blob": "net.blob", "infer": "net.infer", "loops": "net.loop_forms", "op": "net.op", "schema": "net.schema"}
for _name, _new in _MOVED.items():
    _modules[f"rnnops.{_name}"] = globals()[_name] = _MovedModule(f"rnnops.{_name}", f"rnnops.{_new}")
# Names in other libraries -> names here.
_MEANINGS = {
    "concatenate": "concat", "cat": "concat", "stack": "concat", "chunk": "split", "take": "gather", "arctan": "atan",
    "negative": "neg", "absolute": "abs", "power": "pow", "multiply": "mul", "subtract": "sub", "divide": "div",
    "maximum": "max", "minimum": "min", "expand_dims": "unsqueeze", "permute": "transpose", "embedding": "gather",
    "logsumexp": "reduce_log_sum_exp", "layer_norm": "layer_normalization", "detach": "stop_gradient",
    "cross_entropy": "softmax_cross_entropy_loss", "onehot": "one_hot", "jit": "compile", "grad": "Run.vjp",
    "rnn": "BasicRNN", "lstmcell": "cells.LSTMCell", "grucell": "cells.GRUCell",
    **dict.fromkeys(("save", "save_model"), "model.Model.save, for the parameters of a model"),
    **dict.fromkeys(("load", "load_model"), "model.Model.load, or onnx.load"), "load_onnx": "onnx.load",
    "export": "onnx.export, or Run.export_native", **dict.fromkeys(("vjp", "backward", "value_and_grad"), "Run.vjp"),
    **dict.fromkeys(("tensor", "array", "zeros", "ones", "full", "eye"), "constant, which takes a NumPy array"),
    **dict.fromkeys(("rand", "randn", "random", "uniform"), "random_uniform_like"), "arange": "range",
    **dict.fromkeys(("seed", "manual_seed", "init"), "init_params"), "while_loop": "scan", "for_loop": "scan",
    **dict.fromkeys(("input", "placeholder", "variable"), "Net.input"), "parameter": "Net.parameter",
    "torch": "rnnops.torch, which has to be imported", "stream": "Run.stream",
    "plan": "Run.plan", "profile": "Run.profile", "draw": "Net.draw", "view": "reshape",
    **dict.fromkeys(("train", "fit", "module", "sequential"), "model.Model"), "nn": "model", "optim": "model.Adam",
    **dict.fromkeys(("linear", "dense"), "model.Dense"), "adam": "model.Adam", "sgd": "model.SGD",
    **dict.fromkeys(("inv", "inverse", "solve_triangular"), "solve, of the unit matrix for an inverse"),
    **dict.fromkeys(("det", "logdet"), "slogdet"), "linalg": "solve, cholesky or slogdet",
    **dict.fromkeys(("mse", "mse_loss"), "model.mean_squared_error"), "nll_loss": "softmax_cross_entropy_loss",
}  # fmt: skip


def __dir__() -> list[str]:
    """Public names, those that are loaded at first use included."""
    return sorted(
        name for name in {*globals(), *_LAZY} if not name.startswith("_") and name not in _HIDDEN | _MOVED.keys()
    )


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


for _name, _op in tuple(globals().items()):
    if isinstance(_op, _OpSchema):  # as `help` and `inspect` name it
        _op.__name__ = _name
