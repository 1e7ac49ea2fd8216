"""More small nets for the table of `gradient_cases`: ops that move, reduce, normalize, multiply or look up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from einsum_equations import EQUATIONS
from gradient_cases import apart, case, ints, sizes

import rnnops as ro


def _movement() -> None:
    x, cube = apart((2, 5)), apart((2, 3, 4))
    case("Split", "2 of 5", lambda x: ro.split(x, 2, axis=1), x)
    case("Split", "sizes", lambda x: ro.split(x, [1, 0, 4], axis=-1), x)
    case("Split", "sizes as a blob", lambda x: ro.split(x, sizes(x, 2, 3), axis=1, num_outputs=2), x)
    case("Split", "one piece", lambda x: ro.split(x, 1, axis=0), x)
    for used in range(3):
        case("Split", f"only piece {used} used", lambda x, i=used: ro.split(x, [1, 2, 2], axis=1)[i], x)
    case("Concat", "axis 0", lambda a, b: ro.concat([a, b], axis=0), x, apart((1, 5), turn=1))
    case("Concat", "axis -1", lambda a, b, c: ro.concat(a, b, c, axis=-1), x, apart((2, 0)), apart((2, 1), turn=1))
    case("Concat", "one", lambda a: ro.concat([a], axis=1), x)
    case("Concat", "a blob twice", lambda a, b: ro.concat([a, b, a], axis=1), x, apart((2, 1), turn=1))
    for axis in (-2, 0, 1, 2, 3):
        case("Flatten", f"axis {axis}", lambda x, a=axis: ro.flatten(x, axis=a), cube)
    case("Reshape", "copy and infer", lambda x: ro.reshape(x, [0, -1]), cube)
    case("Reshape", "to a scalar", lambda x: ro.reshape(x, []), apart((1, 1)))
    case("Reshape", "from a scalar", lambda x: ro.reshape(x, [1, 1]), apart(()))
    case("Reshape", "empty", lambda x: ro.reshape(x, [3, 0], allowzero=1), apart((0, 3)))
    case("Reshape", "blob", lambda x: ro.reshape(x, sizes(x, 4, 6)), cube)
    for perm in (None, [0, 2, 1], [2, 0, 1], [1, 2, 0]):
        case("Transpose", str(perm), lambda x, p=perm: ro.transpose(x, perm=p), cube)
    case("Transpose", "scalar", ro.transpose, apart(()))
    case("Squeeze", "all", ro.squeeze, apart((1, 3, 1)))
    case("Squeeze", "axis -1", lambda x: ro.squeeze(x, [-1]), apart((1, 3, 1)))
    case("Squeeze", "blob", lambda x: ro.squeeze(x, sizes(x, 0, 2)), apart((1, 3, 1)))
    case("Unsqueeze", "axes", lambda x: ro.unsqueeze(x, [-1, 0]), apart((3,)))
    case("Unsqueeze", "blob", lambda x: ro.unsqueeze(x, sizes(x, 1)), apart((3,)))
    case("Expand", "sizes of 1 stay", lambda x: ro.expand(x, [2, 1, 1, 4]), apart((3, 1)))
    case("Expand", "as it is", lambda x: ro.expand(x, [1]), apart((2, 3)))
    case("Expand", "to nothing", lambda x: ro.expand(x, [0, 3]), apart((1, 3)))
    case("Expand", "blob", lambda x: ro.expand(x, sizes(x, 2, 3)), apart((3,)))
    case("Tile", "repeats", lambda x: ro.tile(x, [2, 3]), apart((2, 3)))
    case("Tile", "0 and 1", lambda x: (ro.tile(x, [1, 0]), ro.tile(x, [1, 1])), apart((2, 3)))
    case("Tile", "blob", lambda x: ro.tile(x, sizes(x, 2)), apart((3,)))


def _slices() -> None:
    x = apart((4, 5))
    for starts, ends, axes, steps in (
        ([1], [3], None, None),
        ([0, 1], [4, -1], None, None),
        ([-2], [99], [-1], None),
        ([0], [5], [1], [2]),
        ([4], [-9], [1], [-1]),
        ([3, 4], [0, 0], [0, 1], [-2, -3]),
        ([2], [2], [0], None),
        ([1], [4], [0], [2]),
    ):
        args = {"axes": axes, "steps": steps}
        case("Slice", f"{starts} {ends} {axes} {steps}", lambda x, s=starts, e=ends, a=args: ro.slice(x, s, e, **a), x)
    case("Slice", "blobs", lambda x: ro.slice(x, sizes(x, 1), sizes(x, 9), sizes(x, 1), sizes(x, 3)), x)
    for label, indices, axis in (
        ("scalar", ints(2), 0),
        ("repeated", ints([0, 2, 2, -1]), 0),
        ("axis -1", ints([[1, 1], [0, -2]]), -1),
        ("none", np.zeros(0, np.int64), 1),
        ("int32", ints([3, 0], dtype="int32"), 1),
    ):
        case("Gather", label, lambda x, i, a=axis: ro.gather(x, i, axis=a), x, indices)
    case("Gather", "constant", lambda x: ro.gather(x, [[0, 1], [1, 1]], axis=1), x)
    for mode in ("constant", "reflect", "edge", "wrap"):
        for pads in ([1, 2, 0, 3], [0, 0, 0, 0], [-1, 1, 2, -2], [5, 0, 0, 6]):
            case("Pad", f"{mode} {pads}", lambda x, m=mode, p=pads: ro.pad(x, p, mode=m), x)
        case("Pad", f"{mode} axes", lambda x, m=mode: ro.pad(x, [1, 2], mode=m, axes=[-1]), x)
        case("Pad", f"{mode} size 1", lambda x, m=mode: ro.pad(x, [2, 2], mode=m), apart((1,)))
    case("Pad", "number", lambda x: ro.pad(x, [1, 0, 0, 1], constant_value=2.5), x)
    case("Pad", "blob", lambda x, v: ro.pad(x, sizes(x, 1, -1, 0, 1), v), x, np.array(0.8))
    case("Pad", "blob [1], axes", lambda x, v: ro.pad(x, [1, 2], v, axes=sizes(x, 1)), x, np.array([0.8]))
    case("Pad", "blob unused", lambda x, v: ro.pad(x, [1, 2, 0, 0], v, mode="edge"), x, np.array([0.8]))


REDUCTIONS = {
    "ReduceSum": ro.reduce_sum,
    "ReduceMean": ro.reduce_mean,
    "ReduceMax": ro.reduce_max,
    "ReduceMin": ro.reduce_min,
    "ReduceSumSquare": ro.reduce_sum_square,
    "ReduceProd": ro.reduce_prod,
    "ReduceLogSumExp": ro.reduce_log_sum_exp,
}


def _reductions() -> None:
    x = apart((2, 3, 4))
    for op, function in REDUCTIONS.items():
        for axes in (None, [0], [-1], [0, 2], [2, 0], [0, 1, 2], []):
            for keepdims in (0, 1):
                options = {"keepdims": keepdims}
                case(op, f"{axes} {keepdims}", lambda x, f=function, a=axes, o=options: f(x, a, **o), x)
        case(op, "no axes, nothing", lambda x, f=function: f(x, [], noop_with_empty_axes=1), x)
        case(op, "blob", lambda x, f=function: f(x, sizes(x, 1), keepdims=0), x)
        case(op, "scalar", lambda x, f=function: f(x), apart(()))
        case(op, "one element", lambda x, f=function: f(x, [1]), apart((3, 1)))
        if op in ("ReduceSum", "ReduceSumSquare", "ReduceProd"):
            case(op, "empty", lambda x, f=function: f(x, [0]), apart((0, 3)))
    zeros = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.5, -1.0, 2.0]])
    for keepdims in (0, 1):
        case("ReduceProd", f"zeros {keepdims}", lambda x, k=keepdims: ro.reduce_prod(x, [1], keepdims=k), zeros)
    case("ReduceLogSumExp", "large", lambda x: ro.reduce_log_sum_exp(x * 300.0, [1]) * 0.01, x)
    for axis in (0, 1, -1):
        case("Softmax", f"axis {axis}", lambda x, a=axis: ro.softmax(x, axis=a), x)
        case("LogSoftmax", f"axis {axis}", lambda x, a=axis: ro.log_softmax(x, axis=a), x)
    case("Softmax", "size 1", lambda x: ro.softmax(x, axis=1), apart((3, 1)))
    case("LogSoftmax", "size 1", lambda x: ro.log_softmax(x, axis=1), apart((3, 1)))


def _scatter() -> None:
    rows, pairs = np.array([[0, -1, 1], [2, 2, 0]]), np.array([[[0, 1], [-1, 0]], [[1, -2], [0, 1]]])
    for reduction in ("none", "add", "mul", "max", "min"):
        build = lambda x, i, y, r=reduction: ro.scatter_elements(x, i, y, 1, r)  # noqa: E731 - a line of the table
        case("ScatterElements", reduction, build, apart((2, 3)) + 0.02, rows, apart((2, 3), turn=1))
        if reduction not in ("max", "min"):
            case("ScatterElements", f"{reduction}, zeros", build, apart((2, 3)), rows, np.zeros((2, 3)))
        halves = np.array([[0.0, 0.5, 0.7], [0.0, -0.6, 0.3]])
        case("ScatterElements", f"{reduction}, a zero", build, apart((2, 3)), rows, halves)
        few = lambda x, i, y, r=reduction: ro.scatter_elements(x, i, y, -2, r)  # noqa: E731
        case("ScatterElements", f"{reduction}, few", few, apart((3, 5, 2)), rows[:, :, None], apart((2, 3, 1), turn=1))
        nd = lambda x, i, y, r=reduction: ro.scatter_nd(x, i, y, r)  # noqa: E731
        case("ScatterND", reduction, nd, apart((3, 2)), pairs, apart((2, 2), turn=1))
        case("ScatterND", f"{reduction}, rows", nd, apart((3, 2)), rows[1:, :, None], apart((1, 3, 2), turn=1))
    known = lambda x, y: ro.scatter_elements(x, x.net.constant(rows), y, 1)  # noqa: E731
    case("ScatterElements", "constant", known, apart((2, 3)), apart((2, 3), turn=1))


def _einsum() -> None:
    for equation, shapes in EQUATIONS:
        build = lambda *b, e=equation: ro.einsum(e, *b)  # noqa: E731 - a line of the table
        case("Einsum", f"{equation} {shapes}", build, *(apart(shape, turn=i) for i, shape in enumerate(shapes)))
    case("Einsum", "a blob twice", lambda x: ro.einsum("ij,kj->ik", x, x), apart((2, 3)))


def _batches() -> None:
    for shape in ((4, 3), (2, 3, 4), (2, 3, 2, 2), (5,)):
        channels = shape[1:2] or (1,)
        arrays = (
            apart(shape),
            apart(channels, 0.5, 1.5),
            apart(channels, turn=1),
            apart(channels, turn=2),
            apart(channels, 0.5, 2.0),
        )
        given = lambda *b: ro.batch_normalization(*b, epsilon=0.01)  # noqa: E731 - a line of the table
        case("BatchNormalization", f"{shape}", given, *arrays)
        trained = lambda *b: ro.batch_normalization(*b, 0.1, 1, 0.7)  # noqa: E731
        case("BatchNormalization", f"training {shape}", trained, *arrays)
        for used in range(3):
            part = lambda *b, i=used: ro.batch_normalization(*b, 0.1, 1, 0.7)[i]  # noqa: E731
            case("BatchNormalization", f"training {shape}, result {used}", part, *arrays)


def _normalization() -> None:
    x = apart((2, 3, 4))

    def normalized(axis: int, used: tuple[int, ...]) -> Callable[..., Any]:
        def build(*blobs: ro.Blob) -> list[ro.Blob]:
            outputs = blobs[0].net.append("LayerNormalization", blobs, {"axis": axis, "epsilon": 0.01})
            return [outputs[i] for i in used]

        return build

    for axis, shape in ((-1, (4,)), (2, (1,)), (1, (3, 4)), (0, (2, 3, 4)), (1, (3, 1)), (-1, ()), (2, (2, 1, 4))):
        scale, bias = apart(shape, 0.5, 1.5), apart(shape, turn=1)
        case("LayerNormalization", f"axis {axis} {shape}", normalized(axis, (0,)), x, scale, bias)
        case("LayerNormalization", f"axis {axis} {shape} no bias", normalized(axis, (0,)), x, scale)
    for used in ((1,), (2,), (0, 1), (0, 2), (1, 2), (2, 1, 0)):
        case("LayerNormalization", f"outputs {used}", normalized(-1, used), x, apart((4,)), apart((4,), turn=1))
        case("LayerNormalization", f"outputs {used} axis 1", normalized(1, used), x, apart((4,)))
    for axis, shape in ((-1, (4,)), (1, (3, 4)), (0, (2, 3, 4)), (1, (3, 1)), (-1, ())):
        build = lambda x, s, a=axis: ro.rms_normalization(x, s, a, epsilon=0.01)  # noqa: E731 - a line of the table
        case("RMSNormalization", f"axis {axis} {shape}", build, x, apart(shape, 0.5, 1.5))
    case("LayerNormalization", "row of 1", normalized(1, (0, 1, 2)), apart((3, 1)), apart((1,)), apart((1,)))
    case("LayerNormalization", "function", lambda x, s: ro.layer_normalization(x, s, epsilon=1e-3), x, apart((4,)))


def _products() -> None:
    for a, b in (
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 2, 3), (3, 4)),
        ((2, 3), (2, 3, 2)),
        ((2, 2, 3), (2, 3, 2)),
        ((2, 1, 2, 3), (2, 3, 2)),
        ((1, 2, 3), (2, 3, 1)),
        ((3,), (2, 3, 2)),
        ((2, 2, 3), (3,)),
        ((1, 1), (1, 1)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((0, 2, 3), (3, 1)),
    ):
        case("MatMul", f"{a} {b}", ro.matmul, apart(a), apart(b, turn=1))
    case("MatMul", "by itself", lambda a: a @ a, apart((3, 3)))
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            a, b = apart((3, 2) if trans_a else (2, 3)), apart((4, 3) if trans_b else (3, 4), turn=1)
            options = {"transA": trans_a, "transB": trans_b}
            case("Gemm", f"{trans_a}{trans_b}", lambda a, b, o=options: ro.gemm(a, b, **o), a, b)
            for shape in ((), (1,), (4,), (2, 1), (1, 4), (2, 4)):
                scaled = {**options, "alpha": 0.7, "beta": -1.3}
                c = apart(shape, turn=2)
                case("Gemm", f"{trans_a}{trans_b} {shape}", lambda a, b, c, o=scaled: ro.gemm(a, b, c, **o), a, b, c)


def _linear_systems() -> None:
    unit = np.eye(3)
    for a, b in (
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3, 1)),
        ((3, 3), (2, 3, 1)),
        ((2, 1, 3, 3), (2, 3, 2)),
        ((0, 3, 3), (3, 1)),
    ):
        case("Solve", f"{a} {b}", ro.solve, 3.0 * unit + apart(a), apart(b, turn=1))
    case("Solve", "inverse", lambda a: ro.solve(a, unit), 3.0 * unit + apart((2, 3, 3)))
    case("Solve", "by itself", lambda a: ro.solve(a, a @ a), 3.0 * unit + apart((3, 3)))
    for shape in ((3, 3), (2, 3, 3), (1, 1)):
        matrix = 4.0 * np.eye(shape[-1]) + apart(shape)
        case("Cholesky", f"{shape}", ro.cholesky, matrix)
        case("Slogdet", f"{shape}", lambda x: ro.slogdet(x)[1], matrix)
        case("Slogdet", f"{shape}, both", ro.slogdet, -matrix)
    case("Cholesky", "of a product", lambda x: ro.cholesky(x @ ro.transpose(x) + unit), apart((3, 3)))


def _labels() -> None:
    for axis in (0, 1, -1):
        build = lambda i, v, a=axis: ro.one_hot(i, 3, v, axis=a)  # noqa: E731 - a line of the table
        case("OneHot", f"axis {axis}", build, ints([[0, 2], [-1, 1]]), np.array([0.3, -0.9]))
    case("OneHot", "no class", lambda i, v: ro.one_hot(i, 2, v), ints([5, -3, 1], dtype="int32"), np.array([0.3, -0.9]))
    case("OneHot", "depth blob", lambda i, v: ro.one_hot(i, sizes(i, 2), v), ints([0, 1]), np.array([0.3, -0.9]))


def _losses() -> None:
    op, loss = "SoftmaxCrossEntropyLoss", ro.softmax_cross_entropy_loss
    flat, labels = apart((4, 3)), ints([2, 0, 1, 1])
    deep, places = apart((2, 3, 2)), ints([[2, 0], [1, -1]], dtype="int32")
    weights = np.array([0.5, 1.5, 0.8])
    for reduction in ("mean", "sum", "none"):
        for ignore in (None, 1):
            o = {"reduction": reduction, "ignore_index": ignore}
            label = f"{reduction}, ignore {ignore}"
            case(op, label, lambda s, i, o=o: loss(s, i, **o), flat, labels)
            case(op, f"{label}, weights", lambda s, i, w, o=o: loss(s, i, w, **o), flat, labels, weights)
        o = {"reduction": reduction, "ignore_index": -1}
        case(op, f"{reduction}, deep", lambda s, i, w, o=o: loss(s, i, w, **o), deep, places, weights)
        for used in ((1,), (0, 1)):

            def both(*blobs: ro.Blob, o: dict[str, Any] = o, used: tuple[int, ...] = used) -> list[ro.Blob]:
                outputs = blobs[0].net.append("SoftmaxCrossEntropyLoss", blobs, o)
                return [outputs[i] for i in used]

            case(op, f"{reduction}, outputs {used}", both, deep, places, weights)
            case(op, f"{reduction}, outputs {used}, plain", both, deep, places)


for _part in (
    _movement,
    _slices,
    _reductions,
    _batches,
    _einsum,
    _scatter,
    _normalization,
    _products,
    _linear_systems,
    _labels,
    _losses,
):
    _part()
