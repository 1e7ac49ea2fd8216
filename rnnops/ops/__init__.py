"""All ops: ONNX names as schemas in the registry, snake_case names as functions."""
# ruff: noqa: A004 - `abs`, `min`, `max`, `sum`, ... are ONNX op names

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
    div as div,
    erf as erf,
    exp as exp,
    log as log,
    mul as mul,
    neg as neg,
    pow as pow,
    reciprocal as reciprocal,
    sign as sign,
    sqrt as sqrt,
    sub as sub,
)
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
from rnnops.ops.functions import (
    atan as atan,
    ceil as ceil,
    cos as cos,
    cosh as cosh,
    expm1 as expm1,
    floor as floor,
    log1p as log1p,
    mod as mod,
    round as round,
    sin as sin,
    sinh as sinh,
    tan as tan,
)
from rnnops.ops.indexing import gather as gather, pad as pad, select_valid as select_valid, slice as slice
from rnnops.ops.internal import stop_gradient as stop_gradient, with_gradient as with_gradient
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
from rnnops.ops.pooling import (
    average_pool as average_pool,
    global_average_pool as global_average_pool,
    global_max_pool as global_max_pool,
    lp_pool as lp_pool,
    max_pool as max_pool,
)
from rnnops.ops.products import (
    gemm as gemm,
    int8_matmul as int8_matmul,
    matmul as matmul,
    rounded_gemm as rounded_gemm,
    rounded_matmul as rounded_matmul,
    scale_columns as scale_columns,
)
from rnnops.ops.random import dropout as dropout, random_uniform_like as random_uniform_like
from rnnops.ops.reduction import (
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
    range as range,
    shape as shape,
)
from rnnops.schema import OpSchema as _OpSchema

for _name, _op in tuple(globals().items()):
    if isinstance(_op, _OpSchema):  # as `help` and `inspect` name it
        _op.__name__ = _name
