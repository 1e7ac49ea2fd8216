"""Uses of convolutions and pooling, beside `onnx.reference`, and beside plain loops where that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from op_cases import Array, Case, appended, floats, integers, use

import rnnops as ro
from rnnops.ops.convolution import conv_matrix
from rnnops.ops.windows import channels_first, channels_last, windows

Sizes = Sequence[int]


def conv_loops(strides: Sizes, pads: Sizes, dilations: Sizes, group: int, *arrays: Array) -> tuple[Array]:
    """A convolution, element by element."""
    (x, w, *bias), count = arrays, arrays[0].ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:count], pads[count:], strict=True)])
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(w.shape[2:], dilations, strict=True)]
    covered = zip(padded.shape[2:], spans, strides, strict=True)
    y = np.zeros((x.shape[0], w.shape[0], *((size - span) // step + 1 for size, span, step in covered)), x.dtype)
    for place in np.ndindex(*y.shape):
        n, o, *at = place
        first = o // (w.shape[0] // group) * w.shape[1]
        for c, *tap in np.ndindex(*w.shape[1:]):
            where = tuple(a * s + t * d for a, s, t, d in zip(at, strides, tap, dilations, strict=True))
            y[place] += padded[(n, first + c, *where)] * w[(o, c, *tap)]
    return (y + bias[0].reshape(-1, *(1,) * count) if bias else y,)


def transpose_loops(
    strides: Sizes, begins: Sizes, dilations: Sizes, group: int, sizes: Sizes, *arrays: Array
) -> tuple[Array]:
    """A transposed convolution, element by element, of which so many places are taken from the begins on."""
    x, w, *bias = arrays
    y = np.zeros((x.shape[0], w.shape[1] * group, *sizes), x.dtype)
    for n, c, *at in np.ndindex(*x.shape):
        for o, *tap in np.ndindex(*w.shape[1:]):
            counted = zip(at, strides, tap, dilations, begins, strict=True)
            where = tuple(a * s + t * d - begin for a, s, t, d, begin in counted)
            if all(0 <= i < size for i, size in zip(where, sizes, strict=True)):
                y[(n, c // (x.shape[1] // group) * w.shape[1] + o, *where)] += x[(n, c, *at)] * w[(c, o, *tap)]
    return (y + bias[0].reshape(-1, *(1,) * len(sizes)) if bias else y,)


def pool_loops(
    function: Callable[[Array], Any], kernel: Sizes, strides: Sizes, pads: Sizes, places: Sizes, counted: bool, x: Array
) -> tuple[Array]:
    """What a function makes of each window, which has what is inside of x, and zeros of the pads if they count."""
    y, count = np.zeros((*x.shape[:2], *places), x.dtype), len(kernel)
    for n, c, *at in np.ndindex(*y.shape):
        held = []
        for tap in np.ndindex(*kernel):
            where = [a * s + t - p for a, s, t, p in zip(at, strides, tap, pads[:count], strict=True)]
            if all(0 <= i < size for i, size in zip(where, x.shape[2:], strict=True)):
                held.append(x[(n, c, *where)])
            elif counted and all(i < size + p for i, size, p in zip(where, x.shape[2:], pads[count:], strict=True)):
                held.append(x.dtype.type(0))
        y[(n, c, *at)] = function(np.array(held, x.dtype))
    return (y,)


CONVS: list[tuple[Any, ...]] = [  # x, w, strides, pads, dilations, group
    ((1, 1, 7), (1, 1, 3), [1], [0, 0], [1], 1),
    ((2, 3, 7), (4, 3, 3), [2], [1, 1], [1], 1),
    ((2, 3, 9), (2, 3, 2), [3], [2, 0], [3], 1),
    ((2, 4, 6), (6, 2, 3), [1], [0, 1], [2], 2),
    ((2, 3, 6), (6, 1, 3), [2], [1, 1], [1], 3),
    ((1, 3, 6), (3, 1, 1), [1], [0, 0], [1], 3),
    ((2, 18, 4), (9, 2, 3), [1], [1, 1], [1], 9),
    ((2, 5, 6), (3, 5, 1), [2], [0, 0], [1], 1),
    ((0, 2, 5), (3, 2, 3), [1], [0, 0], [1], 1),
    ((2, 2, 40), (2, 1, 35), [1], [0, 0], [1], 2),
    ((2, 2, 5, 6), (3, 2, 3, 2), [2, 1], [1, 0, 1, 1], [1, 2], 1),
    ((1, 4, 4, 5), (4, 1, 3, 3), [1, 2], [1, 1, 1, 1], [1, 1], 4),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), [1, 2, 1], [0, 0, 1, 0, 1, 0], [1, 1, 1], 1),
]  # fmt: skip


def conv_cases() -> Iterator[Case]:
    for x, w, strides, pads, dilations, group in CONVS:
        build = use(ro.conv, strides=strides, pads=pads, dilations=dilations, group=group)
        loops = partial(conv_loops, strides, pads, dilations, group)
        for bias in ([], [floats(w[0])]):
            yield Case("Conv", f"{strides} {pads} {dilations} {group}", build, (floats(*x), floats(*w), *bias), loops)
    for strides in ([1], [2], [3]):
        total = max((-(-7 // strides[0]) - 1) * strides[0] + 4 - 7, 0)
        less, more = total // 2, total - total // 2
        for auto, pads in (("VALID", [0, 0]), ("SAME_UPPER", [less, more]), ("SAME_LOWER", [more, less])):
            build = use(ro.conv, auto_pad=auto, strides=strides, kernel_shape=[4])
            loops = partial(conv_loops, strides, pads, [1], 1)
            yield Case("Conv", f"{auto} {strides}", build, (floats(1, 2, 7), floats(3, 2, 4)), loops)
    arrays = (floats(2, 3, 5, 5), floats(4, 3, 3, 3), floats(4))
    yield Case("Conv", "as onnx has it", use(ro.conv, pads=[1, 1, 1, 1], strides=[2, 2]), arrays)


def transpose_cases() -> Iterator[Case]:
    table: list[tuple[Any, ...]] = [  # x, w, attributes, begins, sizes
        ((2, 3, 4), (3, 2, 3), {}, [0], [6]),
        ((2, 3, 4), (3, 2, 3), {"strides": [3], "pads": [1, 2]}, [1], [9]),
        ((2, 3, 4), (3, 2, 2), {"strides": [3], "output_padding": [2]}, [0], [13]),
        ((2, 4, 3), (4, 2, 3), {"dilations": [2], "group": 2}, [0], [7]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "group": 3}, [0], [7]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "auto_pad": "SAME_UPPER"}, [0], [6]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "auto_pad": "SAME_LOWER"}, [1], [6]),
        ((2, 3, 3), (3, 2, 2), {"strides": [3], "auto_pad": "SAME_UPPER"}, [0], [9]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "auto_pad": "VALID"}, [0], [7]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "output_shape": [5]}, [1], [5]),
        ((2, 3, 3), (3, 2, 3), {"strides": [2], "output_shape": [9]}, [0], [9]),
        ((0, 3, 3), (3, 2, 3), {}, [0], [5]),
        ((1, 2, 3, 2), (2, 3, 2, 3), {"strides": [2, 1], "pads": [1, 0, 0, 1]}, [1, 0], [5, 3]),
        ((1, 2, 2, 2, 2), (2, 1, 2, 1, 2), {}, [0, 0, 0], [3, 2, 3]),
    ]  # fmt: skip
    for x, w, attributes, begins, sizes in table:
        count, group = len(sizes), attributes.get("group", 1)
        strides, dilations = (attributes.get(name, [1] * count) for name in ("strides", "dilations"))
        loops = partial(transpose_loops, strides, begins, dilations, group, sizes)
        for bias in ([], [floats(w[1] * group)]):
            arrays = (floats(*x), floats(*w), *bias)
            yield Case("ConvTranspose", str(attributes), use(ro.conv_transpose, **attributes), arrays, loops)
    arrays = (floats(2, 3, 3, 3), floats(3, 2, 3, 3))
    yield Case("ConvTranspose", "as onnx has it", use(ro.conv_transpose, strides=[2, 2]), arrays)


def norm(p: int, held: Array) -> Any:
    return (np.abs(held) ** p).sum() ** (1 / p)


def pool_cases() -> Iterator[Case]:
    table: list[tuple[Any, ...]] = [  # x, kernel, strides, pads, ceil_mode, places
        ((2, 3, 7), [3], [1], [0, 0], 0, [5]),
        ((2, 3, 7), [2], [2], [0, 0], 1, [4]),
        ((2, 3, 7), [3], [3], [1, 1], 1, [3]),
        ((1, 1, 5), [2], [3], [0, 1], 1, [2]),
        ((1, 1, 5), [1], [3], [0, 0], 1, [2]),
        ((0, 3, 7), [3], [2], [1, 0], 0, [3]),
        ((1, 2, 80), [70], [4], [0, 3], 0, [4]),
        ((2, 2, 5, 6), [3, 2], [2, 2], [1, 0, 1, 0], 0, [3, 3]),
        ((2, 2, 5, 6), [2, 3], [2, 2], [1, 1, 1, 1], 1, [3, 4]),
        ((1, 1, 3, 4, 3), [2, 2, 2], [1, 2, 1], [0] * 6, 0, [2, 2, 2]),
    ]  # fmt: skip
    for x, kernel, strides, pads, ceil_mode, places in table:
        given = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil_mode}
        named, where = f"{kernel} {strides} {pads} {ceil_mode}", (kernel, strides, pads, places)
        loops = partial(pool_loops, np.max, *where, False)
        yield Case("MaxPool", named, use(ro.max_pool, **given), (floats(*x),), loops)
        for p in (1, 2, 3):
            loops = partial(pool_loops, partial(norm, p), *where, False)
            yield Case("LpPool", f"{named} {p}", use(ro.lp_pool, p=p, **given), (floats(*x),), loops)
        for counted in (0, 1):
            loops = partial(pool_loops, np.mean, *where, bool(counted))
            build = use(ro.average_pool, count_include_pad=counted, **given)
            yield Case("AveragePool", f"{named} {counted}", build, (floats(*x),), loops)
    found = {"VALID": ([0] * 4, [2, 2]), "SAME_UPPER": ([0, 0, 1, 1], [3, 3]), "SAME_LOWER": ([1, 1, 0, 0], [3, 3])}
    for auto, (pads, places) in found.items():
        loops = partial(pool_loops, np.max, [3, 2], [2, 2], pads, places, False)
        for op, expected in ((ro.max_pool, loops), (ro.average_pool, None), (ro.lp_pool, None)):
            build = use(op, [3, 2], auto_pad=auto, strides=[2, 2])
            yield Case(op.name, auto, build, (floats(2, 2, 6, 5),), expected)
    yield Case("MaxPool", "dilations", use(ro.max_pool, [3], dilations=[2]), (floats(2, 3, 9),))
    loops = partial(pool_loops, np.max, [2], [1], [1, 0], [5], False)
    yield Case("MaxPool", "int32", use(ro.max_pool, [2], pads=[1, 0]), (integers(2, 3, 5),), loops)
    for shape in ((2, 3, 4), (2, 1, 3, 1), (0, 2, 3)):
        axes = tuple(range(2, len(shape)))
        largest = partial(np.max, axis=axes, keepdims=True)
        yield Case("GlobalMaxPool", "", ro.global_max_pool, (floats(*shape),), lambda x, f=largest: (f(x),))
        if shape[0]:
            yield Case("GlobalAveragePool", "", ro.global_average_pool, (floats(*shape),))


def window_op_cases() -> Iterator[Case]:
    """The internal ops that loop forms are made of."""

    def patches(x: Array) -> tuple[Array]:
        return (np.stack([[x[:, i * 2 + j * 3] for j in range(2)] for i in range(3)]).transpose(2, 0, 1, 3),)

    yield Case("Windows", "", use(windows, [2], [2], [3]), (floats(2, 8, 3),), patches)
    yield Case(
        "ChannelsLast", "", channels_last, (floats(2, 3, 4, 5),), lambda x: (x.reshape(2, 3, 20).swapaxes(1, 2),)
    )
    first = use(channels_first, [4, 5])
    yield Case("ChannelsFirst", "", first, (floats(2, 20, 3),), lambda x: (x.swapaxes(1, 2).reshape(2, 3, 4, 5),))
    matrix = conv_matrix
    yield Case("ConvMatrix", "", matrix, (floats(2, 3, 4, 5),), lambda w: (w.transpose(2, 3, 1, 0).reshape(60, 2),))
    for x, w, strides, pads, dilations, group in CONVS:
        given = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "kernel_shape": w[2:]}
        loops = partial(matrix_loops, w, (strides, pads, dilations, group))
        arrays = (floats(*x), floats(int(np.prod(w[1:])), w[0]), floats(w[0]))
        yield Case("MatrixConv", str(given), appended("MatrixConv", **given), arrays, loops)


def matrix_loops(shape: Sizes, attributes: Any, x: Array, matrix: Array, b: Array) -> tuple[Array]:
    made, inner, *kernel = shape
    w = np.moveaxis(matrix.reshape(*kernel, inner, made), (-1, -2), (0, 1))
    return conv_loops(*attributes, x, w, b)


WINDOW_CASES = [*conv_cases(), *transpose_cases(), *pool_cases()]
