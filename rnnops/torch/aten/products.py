"""aten ops that multiply matrices: products, products with a sum, convolutions of stride 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import rnnops as ro
from rnnops.blob import Blob
from rnnops.torch.aten.table import Node, rule


@rule("mm", "bmm", "mv", "dot")
def _matmul(node: Node, a: Blob, b: Blob) -> Blob:
    return a @ b


@rule("addmm", "baddbmm", "addmv")
def _addmm(node: Node, bias: Blob, a: Blob, b: Blob, beta: float = 1, alpha: float = 1) -> Blob:
    y = a @ b if alpha == 1 else (a @ b) * alpha
    return y if beta == 0 else y + (bias if beta == 1 else bias * beta)


@rule("convolution")
def _convolution(
    node: Node, x: Blob, weight: Blob, bias: Blob | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Blob:  # fmt: skip
    """Stride 1: shifted slices of the padded input, side by side along channels, then one product."""
    (_, C, *sizes), (D, _, *kernel) = node.shape_of(0), node.shape_of(1)
    plain = not transposed and {*stride, *dilation} == {1} and (groups == 1 or groups == C == D)
    if not plain:
        node.fail(
            "this convolution is not translated",
            wanted="stride and dilation 1, one group or one for each channel",
            came=f"stride {list(stride)}, dilation {list(dilation)}, {groups} groups, transposed: {transposed}",
        )
    axes = list(range(2, 2 + len(kernel)))
    padded = ro.pad(x, [*padding, *padding], axes=axes) if any(padding) else x
    out = [size + 2 * pad - width + 1 for size, pad, width in zip(sizes, padding, kernel, strict=True)]
    shifts = list(product(*map(range, kernel)))
    parts = [
        ro.slice(padded, list(at), [a + size for a, size in zip(at, out, strict=True)], axes=axes) for at in shifts
    ]
    if groups == 1:
        y = _by_product(parts, weight, node.shape_of(0)[0], out, D)
    else:
        y = (
            ro.sum(*[p * _tap(weight, at, D) for p, at in zip(parts, shifts, strict=True)])
            if len(parts) > 1
            else parts[0] * _tap(weight, shifts[0], D)
        )
    return y if bias is None else y + ro.reshape(bias, [D, *[1] * len(kernel)])


def _by_product(parts: list[Blob], weight: Blob, N: int, out: list[int], D: int) -> Blob:
    axes = list(range(2, 2 + len(out)))
    patches = ro.transpose(parts[0] if len(parts) == 1 else ro.concat(parts, axis=1), [0, *axes, 1])
    matrix = ro.reshape(ro.transpose(weight, [*axes, 1, 0]), [-1, D])
    y = ro.reshape(patches, [N * prod(out), -1]) @ matrix
    return ro.transpose(ro.reshape(y, [N, *out, D]), [0, len(out) + 1, *range(1, len(out) + 1)])


def _tap(weight: Blob, at: tuple[int, ...], D: int) -> Any:
    """The weight of each channel at one place of the kernel: `[D, 1, ...]`."""
    ends = [D, 1, *[i + 1 for i in at]]
    return ro.reshape(ro.slice(weight, [0, 0, *at], ends), [D, *[1] * len(at)])
