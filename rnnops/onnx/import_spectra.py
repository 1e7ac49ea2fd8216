"""How ONNX's windows, Fourier transforms and mel filters become constants and products with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_groups import extent
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.probes import fixed_dims
from rnnops.onnx.tensors import element_dtype
from rnnops.ops.indexing import gather
from rnnops.ops.movement import reshape, transpose, unsqueeze
from rnnops.ops.products import matmul
from rnnops.ops.shapes import range as range_

MOST = 2**24  # elements of a table that a file may ask for
LONGEST = 2**17  # elements of a window, some seconds of sound; transforms are of far shorter ones
WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}
Array = np.ndarray[Any, Any]


def window(node: Node) -> Sequence[Blob]:
    """A sum of cosines over a known number of elements."""
    size, periodic = number(node, 0), node.attr("periodic", "int", 1)
    if not 0 <= size <= LONGEST or (size == 1 and not periodic):
        node.fail("no window has this size", wanted=f"from {1 if periodic else 2} to {LONGEST}", came=size)
    turn = 2 * np.pi * np.arange(size) / max(size if periodic else size - 1, 1)
    mean, once, twice = WINDOWS[node.op]
    return (typed_constant(node, mean - once * np.cos(turn) + twice * np.cos(2 * turn)),)


def mel_weights(node: Node) -> Sequence[Blob]:
    """Triangles over the bins of a spectrum, evenly apart on the mel scale."""
    filters, length, rate = (number(node, i) for i in range(3))
    edges = [scalar(node, i) for i in (3, 4)]
    rows = length // 2 + 1
    if min(filters, length, rate) <= 0 or rows * filters > MOST or not -700 < edges[0] <= edges[1]:
        node.fail("no spectrum has these numbers", came=[filters, length, rate, *edges])
    low, high = (2595 * np.log1p(edge / 700) / np.log(10) for edge in edges)
    mels = low + np.arange(filters + 2) * (high - low) / (filters + 2)
    hertz = 700 * np.expm1(mels / 2595 * np.log(10))
    points = np.floor((length + 1) * hertz / rate).astype(np.int64)
    if points[0] < 0 or points[-1] > rows:
        node.fail("the edges lie outside of the spectrum", wanted=f"bins from 0 to {rows}", came=points.tolist()[:9])
    bins = np.arange(rows)[:, None]
    left, centre, right = (points[None, i : i + filters] for i in range(3))
    rising = np.where(centre == left, 1.0, (bins - left) / np.maximum(centre - left, 1))
    falling = (right - bins) / np.maximum(right - centre, 1)
    found = np.where((bins >= centre) & (bins < right), falling, np.where((bins >= left) & (bins <= centre), rising, 0))
    return (typed_constant(node, found),)


def dft(node: Node) -> Sequence[Blob]:
    """A product with a table: the axis is the last but one then, and each complex number two elements."""
    x, rank = node.input(0), node.rank(node.input(0))
    axis = node.attr("axis", "int", 1) if node.opset < 20 else number(node, 2) if node.has(2) else -2
    inverse, one_sided = (bool(node.attr(name, "int", 0)) for name in ("inverse", "onesided"))
    if not -rank <= axis < rank or axis % rank == rank - 1:
        node.fail("the axis is none of a signal's", wanted=f"0 to {rank - 2}", came=axis)
    size, parts = fixed(node, x, axis % rank), fixed(node, x, rank - 1)
    length = number(node, 1) if node.has(1) else 2 * (size - 1) if inverse and one_sided else size
    perm = [*(i for i in range(rank - 1) if i != axis % rank), axis % rank, rank - 1]
    moved = perm != list(range(rank))
    table = fourier(node, size, parts, length, inverse, one_sided)
    y = transformed(node, transpose(x, perm) if moved else x, rank, table)
    return (transpose(y, [perm.index(i) for i in range(rank)]) if moved else y,)


def stft(node: Node) -> Sequence[Blob]:
    """Frames of a signal are looked up, weighted, and transformed by one product."""
    x, step, one_sided = node.input(0), number(node, 1), bool(node.attr("onesided", "int", 1))
    if node.rank(x) == 2:
        x = unsqueeze(x, [2])
    parts = fixed(node, x, 2)
    weights = node.optional(2)
    length = number(node, 3) if node.has(3) else fixed(node, weights, 0) if weights is not None else fixed(node, x, 1)
    if step <= 0 or not 0 < length <= MOST or (weights is not None and fixed(node, weights, 0) != length):
        node.fail("frames have the length of the window, and a step", came=f"length {length}, step {step}")
    table = fourier(node, length, parts, length, inverse=False, one_sided=one_sided)
    first = range_(0, (extent(x, 1) - length) / step + 1) * step
    frames = gather(x, unsqueeze(first, [1]) + range_(0, length, net=node.net), 1)
    if weights is not None:
        frames = frames * unsqueeze(weights, [1])
    return (transformed(node, frames, 4, table),)


def fourier(node: Node, size: int, parts: int, length: int, inverse: bool, one_sided: bool) -> Array:
    """The table of a transform, [size, parts, bins, parts of the result]; parts are real, or real and imaginary."""
    if parts not in (1, 2) or length <= 0 or size <= 0 or 4 * size * length > MOST:
        node.fail("a transform of such sizes is not supported", came=f"{size} to {length}, {parts} parts")
    basis = np.eye(size) if parts == 1 else np.stack([np.eye(size), 1j * np.eye(size)], 1)
    rows = basis.reshape(size * parts, size)
    if inverse and one_sided:
        return np.fft.irfft(rows, length, 1).reshape(size, parts, length, 1)
    found = np.fft.ifft(rows, length, 1) if inverse else np.fft.fft(rows, length, 1)
    bins = length // 2 + 1 if one_sided else length
    both = np.stack([found.real, found.imag], -1)[:, :bins]
    return both.reshape(size, parts, bins, 2)


def transformed(node: Node, x: Blob, rank: int, table: Array) -> Blob:
    """The last two axes by a table."""
    size, parts, bins, results = table.shape
    flat = reshape(x, [*[0] * (rank - 2), size * parts])
    matrix = table.reshape(size * parts, bins * results).astype(node.float_dtype)
    return reshape(matmul(flat, node.net.constant(matrix)), [*[0] * (rank - 2), bins, results])


def typed_constant(node: Node, array: Array) -> Blob:
    """A constant of the element type that the node names."""
    dtype = element_dtype(node.attr("output_datatype", "int", 1), f"the result of a {node.op}")
    return node.net.constant(array.astype(dtype), node.dtype(dtype))


def scalar(node: Node, i: int) -> float:
    """The number that input i is. Raises OnnxError where it is not known before a run."""
    value = node.known_value(i)
    if value is None or value.size != 1:
        node.fail(f"input {i} is one number that is known before a run", came=None if value is None else value.shape)
    return float(value.item())


def number(node: Node, i: int) -> int:
    """As `scalar`, of an integer."""
    return int(scalar(node, i))


def fixed(node: Node, x: Blob, axis: int) -> int:
    """The size of an axis, which the file must fix."""
    known = node.known(x)
    dims = fixed_dims(known) if known else ()
    size = dims[axis] if -len(dims) <= axis < len(dims) else None
    if not isinstance(size, int):
        node.fail("a size decides a table, and the file leaves it open", hint="Give it: load(path, sizes={...}).")
    return size


SPECTRUM_RULES: dict[str, Rule] = {
    **dict.fromkeys(WINDOWS, window),
    "DFT": dft,
    "MelWeightMatrix": mel_weights,
    "STFT": stft,
}
