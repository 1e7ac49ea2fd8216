"""Numbers of the host in an array of the device: they travel as arguments of a launch, and no copy is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from rnnops.kernels.cuda.device_array import DeviceArray, empty
from rnnops.kernels.cuda.facade import kernel, launch
from rnnops.kernels.cuda.memory import current_stream

TOGETHER = 4  # of one launch


def numbers_on_device(numbers: Sequence[float], dtype: Any) -> DeviceArray:
    """An array of one axis that begins with these numbers; zeros may follow."""
    padded = [*map(float, numbers), *[0.0] * (-len(numbers) % TOGETHER)]
    made = empty((len(padded),), dtype)
    for start in range(0, len(padded), TOGETHER):
        into = made[start : start + TOGETHER]
        launch(putting_kernel(), 1, 1, 0, current_stream(), into, *padded[start : start + TOGETHER])
    return made


def putting(into: Any, a: float, b: float, c: float, d: float) -> None:
    """A kernel of one lane."""
    into[0] = a
    into[1] = b
    into[2] = c
    into[3] = d


@cache
def putting_kernel() -> Any:
    """`putting`, compiled for each dtype when it is first used."""
    return kernel(putting, cache=True)
