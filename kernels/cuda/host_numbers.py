"""Numbers of the host in an array of the device: copied, or written by a kernel that has them as arguments.

Nobody waits for arguments, and a graph that is captured keeps them, while a copy in a graph would read memory of the
host whenever the graph runs: so where memory is lent. Both ways a first run loads what a captured one needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rnnops.kernels.cuda.device_array import DeviceArray, copy_to, empty, on_device
from rnnops.kernels.cuda.facade import kernel, launch
from rnnops.kernels.cuda.lenders import current_lender

TOGETHER = 32  # numbers of one launch


def numbers_on_device(numbers: Any, stream: Any) -> DeviceArray:
    """A new array of the numbers of a NumPy array of int64, for a stream."""
    return on_device(numbers) if current_lender() is None else written(numbers.tolist(), stream)


def renew(made: DeviceArray, numbers: Any, stream: Any) -> None:
    """Put the numbers of a NumPy array of int64 into an array, for a stream."""
    if current_lender() is None:
        copy_to(made, numbers)
    else:
        _write(made, numbers.tolist(), stream)


def written(numbers: Sequence[float], stream: Any, dtype: Any = "int64") -> DeviceArray:
    """A new array of numbers, written in a stream."""
    made = empty((len(numbers),), dtype)
    _write(made, numbers, stream)
    return made


def _write(made: DeviceArray, numbers: Sequence[float], stream: Any) -> None:
    number = int if np.dtype(made.dtype).kind == "i" else float
    for first in range(0, len(numbers), TOGETHER):
        some = [*map(number, numbers[first : first + TOGETHER])]
        padded = (*some, *[number(0)] * (TOGETHER - len(some)))
        launch(writing_kernel(), 1, 1, 0, stream, made, first, len(some), padded)


def writing(out: Any, first: int, count: int, numbers: Any) -> None:
    """A kernel: `out[first]` and those after it become the first numbers of a tuple."""
    for place in range(count):
        out[first + place] = numbers[place]


@cache
def writing_kernel() -> Any:
    """`writing`, compiled for each dtype when it is first used."""
    return kernel(writing, cache=True)
