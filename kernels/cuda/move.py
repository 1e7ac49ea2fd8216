"""Copies, fills and sums of arrays of a CUDA device with any strides: two kernels.

Axes that memory runs through without a gap are joined first; what is left are at most four axes, or several launches.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rnnops.kernels.cuda.facade import cuda, kernel, launch

AXES = 4
LANES = 256
MOST_BLOCKS = 4096
Axes = list[tuple[int, int, int]]  # size, and bytes from one element to the next in the target and the source


def move(target: Any, source: Any, adds: bool, stream: Any) -> None:
    """Elements of `target` become those of `source`, of the same shape and dtype, or are increased by them."""
    if source.dtype != target.dtype:
        raise TypeError(f"{source.dtype} elements for an array of {target.dtype}")
    if target.size == 0:
        return
    if target.memory.host is not None:
        into, elements = target.on_simulated_device(), source.on_simulated_device()
        with np.errstate(all="ignore"):  # as a device
            into[...] = into + elements if adds else elements
        return
    axes = joined([*zip(target.shape, target.strides, source.strides, strict=True)])
    _move(_flat(target), _flat(source), axes, target, source, adds, stream)


def joined(axes: Axes) -> Axes:
    """The same elements by fewer axes."""
    found: Axes = []
    for size, into, out in axes:
        if size == 1:
            continue
        if found and found[-1][1] == into * size and found[-1][2] == out * size:
            size *= found.pop()[0]
        found.append((size, into, out))
    return found


def _move(into: Any, out: Any, axes: Axes, target: Any, source: Any, adds: bool, stream: Any) -> None:
    if len(axes) > AXES:
        for i in range(axes[0][0]):
            _move(into, out, axes[1:], target[i], source[i], adds, stream)
        return
    itemsize = target.itemsize
    sizes = [1] * (AXES - len(axes)) + [size for size, _, _ in axes]
    strides = [[0] * (AXES - len(axes)) + [axis[side] // itemsize for axis in axes] for side in (1, 2)]
    starts = target.offset // itemsize, source.offset // itemsize
    count = int(np.prod(sizes))
    numbers = (count, *sizes[1:], *strides[0], *strides[1], *starts, int(adds))
    blocks = min(MOST_BLOCKS, -(-count // LANES))
    launch(moving_kernel(), blocks, LANES, 0, stream, into, out, *numbers)


def _flat(array: Any) -> Any:
    """All memory that an array lies in, as far as whole elements go."""
    memory, kind = array.memory, np.dtype(np.uint8) if array.dtype == np.bool_ else array.dtype
    frame = memory.frame[: memory.nbytes // kind.itemsize * kind.itemsize]
    return array.viewed(frame.view(kind))


def add_up(source: Any, out: Any, stream: Any) -> None:
    """`out` becomes the sum of a contiguous array along its first axis."""
    if source.memory.host is not None:
        with np.errstate(all="ignore"):  # as a device
            out.on_simulated_device()[...] = source.on_simulated_device().sum(axis=0)
        return
    rows, count = len(source), out.size
    if count == 0:
        return
    if rows == 0:
        out.fill(0)
        return
    blocks = min(MOST_BLOCKS, -(-count // LANES))
    launch(adding_kernel(), blocks, LANES, 0, stream, out.reshape(-1), source.reshape(-1), rows, count)


def moving(
    into: Any, out: Any, count: int, n1: int, n2: int, n3: int,
    t0: int, t1: int, t2: int, t3: int, s0: int, s1: int, s2: int, s3: int, first: int, start: int, adds: int,
) -> None:  # fmt: skip
    """A kernel: element (i0, i1, i2, i3) of four axes, of which the last three have these sizes."""
    for place in range(cuda.grid(1), count, cuda.gridsize(1)):
        i3, rest = place % n3, place // n3
        i2, rest = rest % n2, rest // n2
        i1, i0 = rest % n1, rest // n1
        t = first + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3
        s = start + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3
        if adds != 0:
            into[t] += out[s]
        else:
            into[t] = out[s]


def adding(out: Any, source: Any, rows: int, count: int) -> None:
    """A kernel: `out[i]` becomes the sum of `source[row * count + i]` over rows, in order."""
    for place in range(cuda.grid(1), count, cuda.gridsize(1)):
        total = source[place]
        for row in range(1, rows):
            total += source[row * count + place]
        out[place] = total


@cache
def moving_kernel() -> Any:
    """`moving`, compiled for each dtype when it is first used."""
    return kernel(moving, cache=True)


@cache
def adding_kernel() -> Any:
    """`adding`."""
    return kernel(adding, cache=True)
