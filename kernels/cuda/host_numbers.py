"""Numbers of the host in an array of the device: copied, or, where memory is lent, written by a kernel.

A kernel has them as arguments, which a graph that is captured keeps; a copy in a graph would read memory of the host
whenever the graph runs. Both ways a first run loads what a captured one needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from rnnops.kernels.cuda.device_array import DeviceArray, empty, on_device
from rnnops.kernels.cuda.facade import kernel, launch
from rnnops.kernels.cuda.lenders import current_lender

TOGETHER = 32  # numbers of one launch


def numbers_on_device(numbers: Any, stream: Any) -> DeviceArray:
    """A new array of the numbers of a NumPy array of int64, for a stream."""
    return on_device(numbers) if current_lender() is None else written(numbers.tolist(), stream)


def written(numbers: Sequence[int], stream: Any) -> DeviceArray:
    """A new array of int64 numbers, written in a stream."""
    made = empty((len(numbers),), "int64")
    for first in range(0, len(numbers), TOGETHER):
        some = numbers[first : first + TOGETHER]
        padded = (*some, *[0] * (TOGETHER - len(some)))
        launch(writing_kernel(), 1, 1, 0, stream, made, first, len(some), padded)
    return made


def writing(out: Any, first: int, count: int, numbers: Any) -> None:
    """A kernel: `out[first]` and those after it become the first numbers of a tuple."""
    for place in range(count):
        out[first + place] = numbers[place]


@cache
def writing_kernel() -> Any:
    """`writing`."""
    return kernel(writing, cache=True)
