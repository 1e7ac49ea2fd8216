"""More small nets for the table of `gradient_cases`: convolutions and pooling."""

from __future__ import annotations

from typing import Any

from gradient_cases import apart, case

import rnnops as ro


def _convolutions() -> None:
    table: list[tuple[Any, ...]] = [  # x, w, attributes
        ((2, 2, 6), (3, 2, 3), {}),
        ((2, 2, 7), (3, 2, 2), {"strides": [2], "pads": [1, 1], "dilations": [2]}),
        ((2, 2, 7), (3, 2, 2), {"strides": [3], "auto_pad": "SAME_LOWER"}),
        ((1, 4, 5), (6, 2, 3), {"group": 2}),
        ((2, 3, 5), (6, 1, 3), {"group": 3, "strides": [2], "pads": [1, 1]}),
        ((1, 18, 3), (9, 2, 2), {"group": 9}),
        ((2, 3, 4), (2, 3, 1), {"strides": [2]}),
        ((1, 2, 4, 3), (2, 2, 2, 3), {"strides": [2, 1], "pads": [0, 1, 1, 0]}),
    ]  # fmt: skip
    for x, w, attributes in table:
        case("Conv", str((x, w, attributes)), lambda x, w, a=attributes: ro.conv(x, w, **a), apart(x), apart(w, turn=1))
    case("Conv", "bias", ro.conv, apart((2, 2, 5)), apart((3, 2, 3), turn=1), apart((3,), turn=2))
    case("Conv", "with itself", lambda x: ro.conv(x, x), apart((2, 2, 3)))
    table = [
        ((2, 2, 3), (2, 3, 3), {}),
        ((2, 2, 3), (2, 3, 2), {"strides": [3], "output_padding": [2], "pads": [1, 0]}),
        ((1, 4, 3), (4, 2, 3), {"group": 2, "dilations": [2]}),
        ((2, 3, 3), (3, 2, 3), {"group": 3, "strides": [2]}),
        ((2, 2, 3), (2, 1, 2), {"strides": [3], "auto_pad": "SAME_UPPER"}),
        ((2, 2, 3), (2, 1, 2), {"strides": [2], "output_shape": [9]}),
        ((1, 2, 2, 3), (2, 2, 2, 3), {"strides": [2, 1], "pads": [0, 1, 1, 0]}),
    ]
    for x, w, attributes in table:
        build = lambda x, w, a=attributes: ro.conv_transpose(x, w, **a)  # noqa: E731 - a line of the table
        case("ConvTranspose", str((x, w, attributes)), build, apart(x), apart(w, turn=1))
    case("ConvTranspose", "bias", ro.conv_transpose, apart((2, 2, 3)), apart((2, 3, 3), turn=1), apart((3,), turn=2))


def _pooling() -> None:
    table: list[dict[str, Any]] = [
        {"kernel_shape": [3]},
        {"kernel_shape": [2], "strides": [2], "pads": [1, 0], "ceil_mode": 1},
        {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"},
    ]
    for given in table:
        for op in (ro.max_pool, ro.average_pool, ro.lp_pool):
            case(op.name, str(given), lambda x, g=given, op=op: op(x, **g), apart((2, 2, 6)))
    image = {"kernel_shape": [2, 3], "strides": [1, 2]}
    for op in (ro.max_pool, ro.average_pool, ro.lp_pool):
        case(op.name, str(image), lambda x, op=op: op(x, **image), apart((1, 2, 4, 5)))
    case(
        "AveragePool",
        "pads count",
        lambda x: ro.average_pool(x, [3], pads=[1, 1], count_include_pad=1),
        apart((2, 2, 6)),
    )
    case("MaxPool", "dilations", lambda x: ro.max_pool(x, [2], dilations=[3]), apart((2, 2, 6)))
    for p in (1, 3):
        case("LpPool", f"p {p}", lambda x, p=p: ro.lp_pool(x, [2], p=p), apart((2, 2, 5)))
    for op in (ro.global_average_pool, ro.global_max_pool):
        case(op.name, "", op, apart((2, 3, 2, 2)))


_convolutions()
_pooling()
