"""One table of uses of every op: how it is called, with which arrays, and NumPy where onnx.reference fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from einsum_cases import einsum_cases
from internal_cases import bfloat16_cases, internal_cases
from normalization_cases import batch_cases, normalization_cases, row_cases
from op_cases import EDGES, INF, NAN, SEED, SHAPES, Array, Case, Shapes, bools, floats, int64, integers, use
from scatter_cases import scatter_cases
from window_cases import WINDOW_CASES, window_op_cases

import rnnops as ro
from rnnops.kernels.scalar_functions import uniform_rows
from rnnops.ops.base import quiet

PAIRS = [((), ()), ((7,), ()), ((2, 7), (7,)), ((2, 1), (1, 7)), ((0, 7), (7,)), ((1,), (0,)), ((2, 1, 7), (2, 1))]
MINUS_INF = np.array([[-INF, -INF], [-INF, 1.0]])


def unary_cases() -> Iterator[Case]:
    anywhere = (
        ro.abs,
        ro.neg,
        ro.sign,
        ro.floor,
        ro.ceil,
        ro.round,
        ro.atan,
        ro.tan,
        ro.sinh,
        ro.cosh,
        ro.exp,
        ro.sin,
        ro.cos,
        ro.sigmoid,
        ro.tanh,
        ro.relu,
        ro.elu,
        ro.softplus,
        ro.identity,
    )
    for op in (*anywhere, ro.log, ro.sqrt, ro.reciprocal):
        for shape in SHAPES:
            yield Case(op.name, "", op, (floats(*shape, low=-2.0 if op in anywhere else 0.25),))
        yield Case(op.name, "edges", op, (EDGES,))
    for op in (ro.abs, ro.neg, ro.sign, ro.identity):
        yield Case(op.name, "int32", op, (integers(2, 7),))
        yield Case(op.name, "int64", op, (integers(7, dtype="int64"),))
    for shape in SHAPES:
        yield Case("Not", "", ro.not_, (bools(*shape),))
    yield Case("Identity", "bool", ro.identity, (bools(2, 7),))


def activation_cases() -> Iterator[Case]:
    yield Case("LeakyRelu", "", use(ro.leaky_relu, 0.25), (floats(2, 7),))
    yield Case("Elu", "alpha", use(ro.elu, alpha=0.5), (floats(0, 2),))
    yield Case("Elu", "negative", use(ro.elu, alpha=-0.5), (floats(2, 7),))
    yield Case("Selu", "", ro.selu, (floats(2, 7),))
    yield Case("Selu", "edges", ro.selu, (EDGES,))
    yield Case("Selu", "scalar", use(ro.selu, 0.5, 2.0), (floats(),))
    yield Case("HardSigmoid", "", use(ro.hard_sigmoid, alpha=0.75, beta=0.25), (floats(2, 7),))
    yield Case("HardSigmoid", "scalar", use(ro.hard_sigmoid, 0.5), (floats(),))
    for array in (floats(), EDGES):  # attributes of ONNX are float32, and so are its defaults
        yield Case("LeakyRelu", "default", ro.leaky_relu, (array,), dtypes=("float32",))
        yield Case("HardSigmoid", "default", ro.hard_sigmoid, (array,), dtypes=("float32",))


def activation_cases_in_numpy() -> Iterator[Case]:
    """Erf and Gelu, which onnx.reference rounds to float32 on the way, and Softsign, where it fails on scalars."""
    erf = np.vectorize(math.erf, otypes=[float])

    def gelu(x: Array) -> tuple[Array]:
        return (0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),)

    def gelu_tanh(x: Array) -> tuple[Array]:
        return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)

    functions: Shapes = [
        ("Erf", "", ro.erf, lambda x: (erf(x),)),
        ("Gelu", "", ro.gelu, gelu),
        ("Gelu", "tanh", use(ro.gelu, approximate="tanh"), gelu_tanh),
    ]
    for array in (*(floats(*shape) for shape in SHAPES), EDGES[1:-2]):
        for name, label, op, expected in functions:
            yield Case(name, label, op, (array,), dtypes=("float32",))
            yield Case(name, label, op, (array,), expected, dtypes=("float64",))
        if array.ndim:
            yield Case("Softsign", "", ro.softsign, (array,))
    yield Case("Softsign", "", ro.softsign, (floats(),), lambda x: (x / (1 + abs(x)),))


def cast_cases() -> Iterator[Case]:
    for to in ("float", "float32", "float64", "int32", "int64", "uint8", "bool"):
        yield Case("Cast", f"to_{to}", use(ro.cast, to), (floats(2, 7, low=0.0, high=99.0),))
        yield Case("Cast", f"bool_to_{to}", use(ro.cast, to), (bools(7),))
        yield Case("Cast", f"int_to_{to}", use(ro.cast, to), (integers(7, low=0),))
    yield Case("Cast", "truncates", use(ro.cast, "int32"), (np.array([-2.75, -0.5, 0.0, 0.5, 2.75]),))
    yield Case("Cast", "nan", use(ro.cast, "bool"), (np.array([NAN, INF, 0.0, -0.0]),))
    yield Case("Cast", "scalar", use(ro.cast, "int64"), (floats(),))


def binary_cases() -> Iterator[Case]:
    arithmetic = (ro.add, ro.sub, ro.mul, ro.div)
    for op in (*arithmetic, ro.equal, ro.greater, ro.greater_or_equal, ro.less, ro.less_or_equal):
        for a, b in PAIRS:
            yield Case(op.name, "", op, (floats(*a), floats(*b, low=0.5)))
        yield Case(op.name, "int32", op, (integers(2, 7), integers(7, low=1)))
        yield Case(op.name, "edges", op, (EDGES[:, None], EDGES))
        yield Case(op.name, "number", use(op, 2.0), (floats(7),))
        yield Case(op.name, "number_first", lambda a, op=op: op(2, a), (integers(7, low=1, dtype="int64"),))
    for a, b in PAIRS:
        yield Case("Pow", "", ro.pow, (floats(*a, low=0.25), floats(*b)))
        for logic in (ro.and_, ro.or_, ro.equal):
            yield Case(logic.name, "bool", logic, (bools(*a), bools(*b)))
    yield Case("Pow", "edges", ro.pow, (EDGES[:, None], EDGES))
    yield Case("Pow", "int", ro.pow, (integers(7, dtype="int64"), integers(7, low=0, high=3, dtype="int64")))
    # onnx.reference rounds quotients of integers down, the standard cuts them off towards zero
    signs = (np.array([7, 7, -7, -7, 6, 0, 1]), np.array([2, -2, 2, -2, 3, 5, -3]))
    yield Case("Div", "towards_zero", ro.div, signs, lambda a, b: (np.trunc(a / b).astype(a.dtype),))


def variadic_cases() -> Iterator[Case]:
    for op in (ro.sum, ro.mean, ro.min, ro.max):
        yield Case(op.name, "one", lambda x, op=op: x.net.append(op.name, [x])[0], (floats(2, 7),))
        yield Case(op.name, "scalars", op, (floats(), floats()))
        yield Case(op.name, "three", op, (floats(2, 7), floats(7), floats(2, 1)))
        yield Case(op.name, "empty", op, (floats(0, 7), floats(7), floats()))
        yield Case(op.name, "edges", op, (EDGES[:, None] + 0.0 * EDGES[1:8], EDGES[-7:]))
        yield Case(op.name, "number", use(op, 0.5), (floats(2, 7),))
    for op in (ro.min, ro.max):
        yield Case(op.name, "int", op, (integers(2, 7), integers(7)))
        yield Case(op.name, "grows", op, (floats(1), floats(2, 1), floats(7)))
    triples: Shapes = [
        ((), (), ()),
        ((2, 1), (7,), ()),
        ((2, 7), (2, 7), (2, 7)),
        ((0, 1), (7,), (1,)),
        ((1,), (2, 1), (7,)),
    ]
    for c, x, y in triples:
        yield Case("Where", "", ro.where, (bools(*c), floats(*x), floats(*y)))
    yield Case("Where", "numbers", use(ro.where, 1.0, 0.0), (bools(2, 7),))
    yield Case("Where", "number", use(ro.where, 0), (bools(2, 1), integers(7)))
    yield Case("Where", "bool", use(ro.where, True), (bools(2, 1), bools(7)))


def clip_cases() -> Iterator[Case]:
    for shape in SHAPES:
        yield Case("Clip", "numbers", use(ro.clip, -0.5, 1.0), (floats(*shape),))
    yield Case("Clip", "blobs", ro.clip, (floats(2, 7), np.array(-0.5), np.array(0.5)))
    yield Case("Clip", "min", use(ro.clip, min=0.0), (floats(2, 7),))
    yield Case("Clip", "max", use(ro.clip, max=0.0), (floats(2, 7),))
    yield Case("Clip", "none", ro.clip, (floats(2, 7),))
    yield Case("Clip", "crossed", use(ro.clip, 1.0, -1.0), (floats(7),))
    yield Case("Clip", "edges", use(ro.clip, -1.0, 1.0), (EDGES,))
    yield Case("Clip", "int", use(ro.clip, -2, 3), (integers(7),))


def product_cases() -> Iterator[Case]:
    pairs: Shapes = [
        ((2, 7), (7, 2)),
        ((7,), (7,)),
        ((7,), (7, 2)),
        ((2, 7), (7,)),
        ((0, 7), (7, 2)),
        ((2, 0), (0, 7)),
        ((1, 2, 7), (2, 7, 1)),
        ((2, 1, 2, 7), (7, 2)),
        ((7,), (2, 7, 1)),
        ((2, 1, 7), (7,)),
    ]
    for a, b in pairs:
        yield Case("MatMul", "", ro.matmul, (floats(*a), floats(*b)))
    yield Case("Gemm", "", ro.gemm, (floats(2, 7), floats(7, 1)))
    yield Case("Gemm", "c", ro.gemm, (floats(2, 7), floats(7, 2), floats(2)))
    yield Case("Gemm", "empty", ro.gemm, (floats(0, 7), floats(7, 2), floats(1, 2)))
    scaled = use(ro.gemm, alpha=0.5, beta=0.25, transA=1, transB=1)
    yield Case("Gemm", "scaled", scaled, (floats(7, 2), floats(1, 7), floats()))
    yield Case("Gemm", "number", use(ro.gemm, 1.0, beta=0.5), (floats(1, 2), floats(2, 7)))


def reshape_cases() -> Iterator[Case]:
    shapes: Shapes = [
        ((2, 7), [14]),
        ((2, 7), [7, -1]),
        ((2, 7), [0, -1]),
        ((2, 1, 7), [0, 7, 1]),
        ((), [1, 1]),
        ((1,), []),
        ((0, 2), [0, 2]),
    ]
    for shape, wanted in shapes:
        yield Case("Reshape", f"to_{wanted}", use(ro.reshape, wanted), (floats(*shape),))
    yield Case("Reshape", "blob", lambda x: ro.reshape(x, int64(x, 7, -1)), (floats(2, 7),))
    yield Case("Reshape", "allowzero", use(ro.reshape, [2, 0, 7], allowzero=1), (floats(0, 7),))
    yield Case("Reshape", "int", use(ro.reshape, [-1]), (integers(2, 7),))
    # onnx.reference hands 0 and -1 on to NumPy, which refuses to infer a size of an empty array
    yield Case("Reshape", "empty", use(ro.reshape, [0, -1]), (floats(0, 2, 7),), lambda x: (x.reshape(0, 14),))
    yield Case("Flatten", "empty", ro.flatten, (floats(0, 7),), lambda x: (x,))

    def computed(x: Any, y: Any) -> Any:
        return ro.reshape(x, ro.concat(ro.shape(y, end=1), int64(x, -1), axis=0))

    yield Case("Reshape", "computed", computed, (floats(2, 7), floats(7)), lambda x, y: (x.reshape(7, 2),))
    flat: Shapes = [((2, 7), 1), ((2, 1, 7), 2), ((2, 1, 7), 0), ((2, 1, 7), -1), ((), 0), ((7,), 1)]
    for shape, axis in flat:
        yield Case("Flatten", f"axis_{axis}", use(ro.flatten, axis), (floats(*shape),))
    for axes in ([0], [-1], [0, 2], None):
        yield Case("Squeeze", f"axes_{axes}", use(ro.squeeze, axes), (floats(1, 7, 1),))
        yield Case("Squeeze", f"axes_{axes}", use(ro.squeeze, axes), (floats(1, 0, 1),))
    yield Case("Squeeze", "blob", lambda x: ro.squeeze(x, int64(x, 1)), (floats(2, 1),))
    yield Case("Squeeze", "scalar", ro.squeeze, (floats(),))
    new_axes: Shapes = [((7,), [0]), ((2, 7), [-1]), ((2, 7), [1, 3]), ((), [0, 1]), ((0, 2), [-2])]
    for shape, axes in new_axes:
        yield Case("Unsqueeze", f"axes_{axes}", use(ro.unsqueeze, axes), (floats(*shape),))
    yield Case("Unsqueeze", "blob", lambda x: ro.unsqueeze(x, int64(x, -1)), (integers(7),))


def movement_cases() -> Iterator[Case]:
    orders: Shapes = [((2, 7), None), ((2, 1, 7), [2, 0, 1]), ((), None), ((0, 7), [1, 0]), ((7,), [0])]
    for shape, perm in orders:
        yield Case("Transpose", f"perm_{perm}", use(ro.transpose, perm), (floats(*shape),))
    wider: Shapes = [((), [2, 7]), ((7,), [2, 7]), ((2, 1), [7]), ((2, 1), [1, 1]), ((1,), [0]), ((1, 7), [2, 1, 1])]
    for shape, wanted in wider:
        yield Case("Expand", f"to_{wanted}", use(ro.expand, wanted), (floats(*shape),))
    yield Case("Expand", "blob", lambda x: ro.expand(x, int64(x, 2, 7)), (bools(7),))
    tiles: Shapes = [((7,), [2]), ((2, 1), [1, 7]), ((2, 7), [0, 1]), ((0, 2), [2, 2]), ((), []), ((2, 7), [1, 1])]
    for shape, repeats in tiles:
        yield Case("Tile", f"by_{repeats}", use(ro.tile, repeats), (floats(*shape),))
    yield Case("Tile", "blob", lambda x: ro.tile(x, int64(x, 2, 1)), (integers(2, 7),))
    parts = (floats(2, 7), floats(2, 1), floats(2, 0))
    yield Case("Concat", "", lambda *blobs: ro.concat(blobs, 1), parts)
    yield Case("Concat", "negative", use(ro.concat, axis=-1), parts)
    yield Case("Concat", "one", lambda x: ro.concat([x], axis=0), (floats(7),))
    yield Case("Concat", "int", use(ro.concat, axis=0), (integers(2, 7), integers(1, 7)))
    yield Case("Concat", "empty", use(ro.concat, axis=0), (floats(0, 7), floats(0, 7)))
    pieces: Shapes = [((2, 7), 7, 1), ((2, 7), 2, -1), ((7,), 3, 0), ((7,), 4, 0), ((0, 2), 2, 0), ((2, 6), 4, 1)]
    for shape, count, axis in pieces:
        yield Case("Split", f"in_{count}", use(ro.split, count, axis=axis), (floats(*shape),))
    yield Case("Split", "sizes", use(ro.split, [1, 0, 6], axis=1), (floats(2, 7),))
    yield Case("Split", "blob", lambda x: ro.split(x, int64(x, 5, 2), axis=1, num_outputs=2), (floats(2, 7),))
    yield Case("Split", "int", use(ro.split, 1), (integers(7),))


def indexing_cases() -> Iterator[Case]:
    cuts: Shapes = [
        ([1], [5]),
        ([0, -3], [1, 99], [0, 1]),
        ([-1], [-99], [1], [-2]),
        ([6], [1], [-1], [-2]),
        ([5], [2], [1]),
        ([1], [-1], [1], [3]),
        ([-99], [99], [1], [2]),
    ]
    for arguments in cuts:
        yield Case("Slice", f"{arguments}", use(ro.slice, *arguments), (floats(2, 7),))
    yield Case("Slice", "empty", use(ro.slice, [0], [9], steps=[2]), (floats(0, 2),))
    yield Case("Slice", "int", use(ro.slice, [1], [2]), (integers(7),))
    blobs = use(lambda x: ro.slice(x, int64(x, 1), int64(x, 6), int64(x, -1), int64(x, 2)))
    yield Case("Slice", "blobs", blobs, (floats(2, 7),))
    places: Shapes = [
        ((7,), (), 0),
        ((7,), (2,), 0),
        ((2, 7), (2, 1), 1),
        ((7, 2), (0,), 0),
        ((2, 7), (1,), -1),
        ((7, 0), (2,), 0),
    ]
    for shape, index, axis in places:
        indices = integers(*index, low=-shape[axis], high=shape[axis], dtype="int64")
        yield Case("Gather", f"axis_{axis}", use(ro.gather, axis=axis), (floats(*shape), indices))
    yield Case("Gather", "int32", ro.gather, (integers(7), np.array([0, -1, 6], np.int32)))
    yield Case("Gather", "list", use(ro.gather, [1, 1, 0]), (floats(2, 7),))
    yield Case("Gather", "none_of_none", ro.gather, (floats(0, 2), np.zeros((0,), np.int64)))


def pad_cases() -> Iterator[Case]:
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([0, 2, 0, 3], [1, 0, 1, 1], [0, 0, 0, 0]):
            yield Case("Pad", f"{mode}_{pads}", use(ro.pad, pads, mode=mode), (floats(2, 7),))
        yield Case("Pad", f"{mode}_axes", use(ro.pad, [3, 1], mode=mode, axes=[-1]), (floats(2, 1, 7),))
        yield Case("Pad", f"{mode}_one", use(ro.pad, [2, 1], mode=mode), (floats(1),))
    yield Case("Pad", "value", use(ro.pad, [1, 1], 1.5), (floats(7),))
    yield Case("Pad", "value_blob", lambda x, value: ro.pad(x, [1, 1], value), (floats(7), floats()))
    yield Case("Pad", "blobs", lambda x: ro.pad(x, int64(x, 1, 2), axes=int64(x, 1)), (floats(2, 7),))
    yield Case("Pad", "empty", use(ro.pad, [1, 0, 0, 1]), (floats(0, 2),))
    yield Case("Pad", "bool", use(ro.pad, [1, 2], True), (bools(7),))
    yield Case("Pad", "int", use(ro.pad, [1, 2], 5), (integers(7),))
    # onnx.reference fails where there is no axis, and on the negative widths that ONNX allows
    yield Case("Pad", "scalar", use(ro.pad, []), (floats(),), lambda x: (x,))
    cropped = use(ro.pad, [0, -2, 0, 1])
    yield Case("Pad", "crop", cropped, (floats(2, 7),), lambda x: (np.pad(x[:, 2:], [(0, 0), (0, 1)]),))
    mirrored = use(ro.pad, [-2, 1], mode="reflect")
    yield Case("Pad", "crop_reflect", mirrored, (floats(7),), lambda x: (np.append(x[2:], x[-2]),))


def shape_cases() -> Iterator[Case]:
    for shape in SHAPES:
        yield Case("Shape", "", ro.shape, (floats(*shape),))
    for start, end in [(1, None), (0, 2), (-2, None), (1, -1), (0, -1)]:
        yield Case("Shape", f"{start}_{end}", use(ro.shape, start, end), (floats(2, 1, 7),))
    # onnx.reference does not bring start and end into range, the standard does
    yield Case("Shape", "clamped", use(ro.shape, -9, 9), (floats(2, 7),), lambda x: (np.array([2, 7]),))
    for value in (1.5, 3, True, np.arange(6.0).reshape(2, 3), np.zeros((0, 2)), np.array([1, 2]), INF):
        yield Case("Constant", f"{np.asarray(value).dtype}", use(ro.constant, value), ())
    yield Case("Constant", "int32", use(ro.constant, 3, "int32"), ())
    yield Case("Constant", "float64", use(ro.constant, 3, "float64"), ())
    for value in (0.0, 2.5, 7, True):
        yield Case("ConstantOfShape", f"{value}", use(ro.constant_of_shape, [2, 0, 7], value), ())
    yield Case("ConstantOfShape", "scalar", use(ro.constant_of_shape, [], 1.5), ())
    yield Case("ConstantOfShape", "int32", use(ro.constant_of_shape, [7], 1, "int32"), ())
    like = use(lambda x: ro.constant_of_shape(x.net, int64(x, 2, 7), 0.5))
    yield Case("ConstantOfShape", "blob", like, (floats(2, 7),))
    whole: Shapes = [(0, 7, 1), (7, 0, -2), (0, 0, 1), (3, 1, 1), (-2, 7, 3)]
    for numbers in (*whole, (0.0, 1.0, 0.25), (1.0, -1.0, -0.5), (0.0, 7.0, 2.0)):
        yield Case("Range", f"{numbers}", lambda net, n=numbers: ro.range(n[0], n[1], n[2], net=net), ())
    of_size = use(lambda x: ro.range(0, ro.squeeze(ro.shape(x, end=1), [0]), 1))
    yield Case("Range", "of_size", of_size, (floats(7, 2),), lambda x: (np.arange(7),))


def reduction_cases() -> Iterator[Case]:
    ops = (ro.reduce_sum, ro.reduce_mean, ro.reduce_max, ro.reduce_min, ro.reduce_sum_square, ro.reduce_prod)
    for op in (*ops, ro.reduce_log_sum_exp):
        for axes in (None, [0], [-1], [0, 2], [], [0, 1, 2]):
            for keepdims in (0, 1):
                yield Case(op.name, f"{axes}_{keepdims}", use(op, axes, keepdims=keepdims), (floats(2, 1, 7),))
        yield Case(op.name, "empty", use(op, [1]), (floats(2, 0),))
        yield Case(op.name, "no_rows", use(op, [1], keepdims=0), (floats(0, 7),))
        yield Case(op.name, "blob", lambda x, op=op: op(x, int64(x, -1), keepdims=0), (floats(2, 7),))
        yield Case(op.name, "noop", use(op, [], noop_with_empty_axes=1), (floats(2, 7),))
    for op in ops:
        yield Case(op.name, "scalar", op, (floats(),))
        yield Case(op.name, "edges", op, (EDGES,))
    for op in (ro.reduce_sum, ro.reduce_max, ro.reduce_min, ro.reduce_sum_square, ro.reduce_prod):
        yield Case(op.name, "int", use(op, [0]), (integers(2, 7, dtype="int64"),))
        yield Case(op.name, "int_empty", use(op, [0]), (integers(0, 7, dtype="int64"),))
    yield Case("ReduceMax", "bool", use(ro.reduce_max, [1]), (bools(2, 7),))
    yield Case("ReduceLogSumExp", "large", ro.reduce_log_sum_exp, (floats(7) + 1000.0,))
    # onnx.reference knows no least bool, fails on scalars below, and takes inf - inf
    yield Case("ReduceMax", "no_bools", ro.reduce_max, (bools(0),), lambda x: (np.array([False]),))
    yield Case("ReduceMin", "no_bools", ro.reduce_min, (bools(0),), lambda x: (np.array([True]),))
    yield Case("ReduceLogSumExp", "scalar", ro.reduce_log_sum_exp, (floats(),), lambda x: (x,))
    yield Case("ReduceLogSumExp", "inf", ro.reduce_log_sum_exp, (EDGES[:-1],), lambda x: (x[-1:],))
    rows = use(ro.reduce_log_sum_exp, [1])
    yield Case("ReduceLogSumExp", "minus_inf", rows, (MINUS_INF,), lambda x: (x[:, 1:],))


def ordering_cases() -> Iterator[Case]:
    for shape, axis in (((7,), 0), ((2, 7), -1), ((2, 7), 0), ((2, 3, 7), 1)):
        for exclusive, reverse in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for op in (ro.cumsum, ro.cumprod):
                build = use(op, axis, exclusive, reverse)
                yield Case(op.name, f"{shape} {axis} {exclusive}{reverse}", build, (floats(*shape),))
        for keepdims in (0, 1):
            yield Case("ArgMax", f"{shape} {axis}", use(ro.argmax, axis, keepdims), (floats(*shape),))
            yield Case(
                "ArgMax", f"int {shape} {axis}", use(ro.argmax, axis, keepdims), (integers(*shape, low=0, high=3),)
            )
        for k in (1, 2):
            yield Case("TopK", f"{shape} {axis} {k}", use(ro.topk, k, axis), (floats(*shape),))
    yield Case("CumSum", "int32", ro.cumsum, (integers(2, 7),))
    yield Case("CumProd", "empty", use(ro.cumprod, 1, 1), (floats(2, 0),))
    yield Case("CumProd", "int32", ro.cumprod, (integers(2, 7),))
    yield Case("CumSum", "infinite", ro.cumsum, (np.array([1.0, INF, 2.0, 3.0]),))
    yield Case("TopK", "int64", use(ro.topk, 3), (integers(2, 7, dtype="int64"),))
    yield Case("TopK", "blob", lambda x: ro.topk(x, int64(x, 3)), (floats(2, 7),))
    for k, axis, shape in ((20, -1, (2, 21)), (9, 0, (12, 3)), (17, 1, (3, 33, 5)), (11, 0, (11,)), (10, 1, (2, 600))):
        yield Case("TopK", f"{k} of {shape} along {axis}", use(ro.topk, k, axis), (floats(*shape),))
        yield Case("TopK", f"{k} of {shape} along {axis}, integers", use(ro.topk, k, axis), (integers(*shape),))
    mixed = np.array([[2.0, NAN, -INF, 2.0, INF, 0.0, NAN, -0.0, -INF, INF, 1.0]])
    order = np.array([[1, 6, 4, 9, 0, 3, 10, 5, 7, 2, 8]])
    yield Case("TopK", "many, of every kind", use(ro.topk, 11), (mixed,), lambda x: (x[:, order[0]], order))
    ties = np.array([[2.0, -INF, 2.0, -INF], [-INF, -INF, -INF, -INF]])
    yield Case(
        "TopK", "ties", use(ro.topk, 4), (ties,), lambda x: (x[:, [0, 2, 1, 3]], np.array([[0, 2, 1, 3], [0, 1, 2, 3]]))
    )
    holes = np.array([[1.0, NAN, 3.0, NAN], [0.0, 1.0, 5.0, 5.0]])
    places = np.array([[1, 3, 2], [2, 3, 1]])
    yield Case("TopK", "holes", use(ro.topk, 3), (holes,), lambda x: (np.take_along_axis(x, places, 1), places))
    yield Case("ArgMax", "holes", use(ro.argmax, 1), (holes,), lambda x: (np.array([[1], [2]]),))
    for fmod in (0, 1):
        pairs = (integers(7, low=-9, high=9), np.array([3, -3, 2, -2, 5, -5, 1], np.int32))
        yield Case("Mod", f"int {fmod}", use(ro.mod, fmod), pairs)
        values = np.array([5.5, -5.5, 5.5, -5.5, 0.0, 4.0, -4.0]), np.array([3.0, 3.0, -3.0, -3.0, 2.0, -2.0, 2.0])
        yield Case(
            "Mod",
            f"float {fmod}",
            use(ro.mod, fmod),
            values,
            lambda a, b, f=fmod: (np.fmod(a, b) if f else np.mod(a, b),),
        )


def drawn(x: Array) -> tuple[Array]:
    """What the counters give, with the bits that a float32 holds."""
    rows, size = (x.shape[0], int(np.prod(x.shape[1:]))) if x.shape else (1, 1)
    uniform = uniform_rows(SEED, 0, 0, rows, size).reshape(x.shape)
    return ((np.floor(uniform * 2.0**24) / 2.0**24 if x.dtype == np.float32 else uniform).astype(x.dtype),)


def loss_cases() -> Iterator[Case]:
    for shape in SHAPES:
        yield Case("Dropout", "inactive", use(ro.dropout, 0.25), (floats(*shape),))
        yield Case("RandomUniformLike", "", ro.random_uniform_like, (floats(*shape),), drawn)
    indices = np.array([[0, 2, -1], [3, 9, -4]])
    for axis in (-1, 0, 1):
        yield Case("OneHot", f"axis_{axis}", use(ro.one_hot, 4, axis=axis), (indices,))
    yield Case("OneHot", "values", lambda i, values: ro.one_hot(i, 4, values), (indices, np.array([0.25, -1.5])))
    yield Case("OneHot", "int", use(ro.one_hot, 2, np.array([5, 6], np.int32)), (integers(7, low=0, high=2),))
    yield Case("OneHot", "scalar", use(ro.one_hot, 3), (np.array(1, np.int32),))
    yield Case("OneHot", "empty", use(ro.one_hot, 3), (np.zeros((0, 2), np.int64),))
    yield Case("OneHot", "blob", lambda i: ro.one_hot(i, i.net.constant(3)), (np.array([0, 1]),))
    # onnx.reference fails on a depth of rank 1
    depth = use(lambda i: ro.one_hot(i, int64(i, 3)))
    yield Case("OneHot", "blob_1d", depth, (np.array([0, 1]),), lambda i: (np.eye(3, dtype=np.float32)[i],))
    for shape in ((2, 7), (7, 2), (2, 7, 1), (1, 2, 2, 7)):
        yield from cross_entropy_cases(shape)
    none = use(ro.softmax_cross_entropy_loss, reduction="none")
    # onnx.reference fails on an empty batch
    empty = (floats(0, 7), np.zeros(0, np.int32))
    yield Case("SoftmaxCrossEntropyLoss", "empty", none, empty, lambda scores, labels: (scores[:, 0], scores))


def cross_entropy_cases(shape: tuple[int, ...]) -> Iterator[Case]:
    labels = integers(shape[0], *shape[2:], low=0, high=shape[1], dtype="int64")
    for reduction in ("mean", "sum", "none"):
        for ignored in (None, 1, -1):
            build = use(ro.softmax_cross_entropy_loss, reduction=reduction, ignore_index=ignored)
            inputs = (floats(*shape), np.where(labels == 0, -1, labels) if ignored == -1 else labels)
            yield Case("SoftmaxCrossEntropyLoss", f"{reduction}_{ignored}", build, inputs)
            weighted = (*inputs, floats(shape[1], low=0.5))
            yield Case("SoftmaxCrossEntropyLoss", f"{reduction}_{ignored}_weights", build, weighted)


def select_cases() -> Iterator[Case]:
    def expected(new: Array, previous: Array, lengths: Array, t: Array) -> tuple[Array]:
        return (np.array([a if t[0] < n else b for a, b, n in zip(new, previous, lengths, strict=True)]),)

    lengths, step = np.array([1, 0, 3, 2, 2, 9, 0], np.int32), np.array([1], np.int32)
    for shape in ((7,), (7, 2), (7, 1, 2)):
        inputs = (floats(*shape), floats(*shape) + 1.0, lengths, step)
        yield Case("SelectValid", "", ro.select_valid, inputs, expected)
        dropping = use(ro.select_valid, drop=1)
        yield Case("SelectValid", "drop", dropping, inputs, lambda a, b, n, t: expected(a, 0 * b, n, t))
    nothing = (floats(0, 2), floats(0, 2), lengths[:0], step)
    yield Case("SelectValid", "empty", ro.select_valid, nothing, lambda new, *others: (new,))


def cases_without_twin() -> Iterator[Case]:
    """Ops that ONNX has not."""
    for shape in SHAPES:
        yield Case("Log1p", "", ro.log1p, (floats(*shape, low=-0.75),), lambda x: (np.log1p(x),))
        yield Case("Expm1", "", ro.expm1, (floats(*shape),), lambda x: (np.expm1(x),))
        yield Case("WithGradient", "", ro.with_gradient, tuple(floats(*shape) for _ in range(3)), lambda y, x, d: (y,))
    yield Case("Log1p", "edges", ro.log1p, (EDGES,), quiet(lambda x: (np.log1p(x),)))
    yield Case("Expm1", "edges", ro.expm1, (EDGES,), quiet(lambda x: (np.expm1(x),)))
    yield Case("StopGradient", "edges", ro.stop_gradient, (EDGES,), lambda x: (x,))
    yield Case("StopGradient", "int64", ro.stop_gradient, (integers(7, dtype="int64"),), lambda x: (x,))


def matrices(*shape: int) -> Array:
    """Matrices without symmetry, whose symmetric part is positive definite."""
    return floats(*shape) + 2 * shape[-1] * np.eye(shape[-1])


def determinant(x: Array) -> tuple[Array, Array]:
    product = np.prod(np.linalg.eigvals(x), axis=-1).real.astype(x.dtype)
    return np.sign(product), np.log(abs(product))


def linear_system_cases() -> Iterator[Case]:
    for shape, other in (
        ((2, 2), (2, 3)),
        ((7, 3, 3), (3, 1)),
        ((3, 3), (2, 3, 2)),
        ((0, 2, 2), (2, 1)),
        ((0, 0), (0, 2)),
    ):
        yield Case("Solve", "", ro.solve, (matrices(*shape), floats(*other)), lambda a, b: (np.linalg.inv(a) @ b,))
    for shape in ((1, 1), (3, 3), (2, 3, 3), (0, 2, 2), (0, 0)):
        factor = lambda x: (np.linalg.cholesky((x + np.swapaxes(x, -1, -2)) / 2),)  # noqa: E731
        yield Case("Cholesky", "", ro.cholesky, (matrices(*shape),), factor)
        yield Case("Slogdet", "", ro.slogdet, (matrices(*shape),), determinant)
    flat = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]])
    yield Case("Slogdet", "edges", ro.slogdet, (flat,), quiet(determinant))
    nan = np.full((2, 2), np.nan)
    yield Case("Slogdet", "NaN", ro.slogdet, (nan,), quiet(lambda x: (*np.linalg.slogdet(x),)))
    yield Case("Solve", "NaN", ro.solve, (nan, floats(2, 2)), lambda a, b: (a,))


GROUPS = (
    cases_without_twin,
    linear_system_cases,
    unary_cases,
    activation_cases,
    activation_cases_in_numpy,
    cast_cases,
    binary_cases,
    variadic_cases,
    clip_cases,
    product_cases,
    reshape_cases,
    movement_cases,
    indexing_cases,
    pad_cases,
    shape_cases,
    reduction_cases,
    normalization_cases,
    einsum_cases,
    scatter_cases,
    batch_cases,
    row_cases,
    loss_cases,
    ordering_cases,
    select_cases,
)
CASES = [*(case for group in GROUPS for case in group()), *WINDOW_CASES]
INTERNAL_CASES = [*internal_cases(), *bfloat16_cases(), *window_op_cases()]
