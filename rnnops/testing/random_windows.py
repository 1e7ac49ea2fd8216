"""Makers of random convolutions and pooling, over small axes with all kinds of windows."""

from __future__ import annotations

from math import prod
from typing import Any

from rnnops import ops
from rnnops.blob import Blob
from rnnops.testing.draw import Draw
from rnnops.testing.random_builder import LARGEST, Builder, Item


def convolved(builder: Builder) -> None:
    """A convolution with a parameter, or what adds up its windows."""
    item, draw = builder.of_rank(3), builder.draw
    channels, sizes = item.shape[1], item.shape[2:]
    group = draw.pick([1, channels])
    kernel, strides, dilations, pads = _windows(draw, sizes)
    made = draw.integer(1, 2) * group
    options: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    bias = builder.parameter((made,)).blob if draw.chance(0.4) else None
    if draw.chance(0.6):
        weight = builder.parameter((made, channels // group, *kernel))
        blob = ops.conv(item.blob, weight.blob, bias, pads=pads, **options)
        met = channels // group * prod(kernel)
    else:
        weight = builder.parameter((channels, made // group, *kernel))
        more = [draw.integer(0, stride - 1) for stride in strides]
        blob = ops.conv_transpose(item.blob, weight.blob, bias, output_padding=more, **options)
        met = channels // group * prod(kernel)
    _add(builder, blob, met * item.bound + 1.0)


def pooled(builder: Builder) -> None:
    """The largest, the mean or a norm of windows, or of all that a channel has."""
    item, draw = builder.of_rank(3), builder.draw
    kernel, strides, dilations, pads = _windows(draw, item.shape[2:])
    options: dict[str, Any] = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil_mode": draw.integer(0, 1),
    }
    choice = draw.integer(0, 4)
    if choice == 0:
        blob = ops.max_pool(item.blob, kernel, **{**options, "pads": None})
    elif choice == 1:
        blob = ops.average_pool(item.blob, kernel, count_include_pad=draw.integer(0, 1), **options)
    elif choice == 2:
        blob = ops.lp_pool(ops.softplus(item.blob) + 0.4, kernel, p=draw.integer(1, 3), **{**options, "pads": None})
    else:
        blob = (ops.global_max_pool if choice == 3 else ops.global_average_pool)(item.blob)
    _add(builder, blob, item.bound if choice != 2 else (item.bound + 1.2) * prod(kernel))


def _windows(draw: Draw, sizes: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations and pads of windows that fit axes of some sizes."""
    pads = [draw.integer(0, 1) for _ in range(2 * len(sizes))]
    covered = [size + pads[i] + pads[len(sizes) + i] for i, size in enumerate(sizes)]
    kernel = [draw.integer(1, min(size, whole, 2)) for size, whole in zip(sizes, covered, strict=True)]
    dilations = [
        draw.integer(1, 2) if size == 2 and whole >= 3 else 1 for size, whole in zip(kernel, sizes, strict=True)
    ]
    return kernel, [draw.integer(1, 2) for _ in sizes], dilations, pads


def _add(builder: Builder, blob: Blob, bound: float) -> Item | None:
    return builder.add(blob, bound) if prod(builder.shape(blob)) <= LARGEST else None
