"""Counts copies between host and simulated device: of arrays of the device, and of NumPy arrays given to kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rnnops.kernels.cuda import device_array, facade
from rnnops.kernels.cuda.device_array import DeviceArray


@dataclass
class Transfers:
    """Copies of arrays that have elements."""

    to_device: int = 0
    to_host: int = 0

    @property
    def both(self) -> tuple[int, int]:
        """To the device, and to the host."""
        return self.to_device, self.to_host


@contextmanager
def counted_transfers() -> Iterator[Transfers]:
    """What is copied while this is open."""
    count = Transfers()
    copy_to, to_host, argument = device_array.copy_to, DeviceArray.to_host, facade._simulated

    def copies_to(target: DeviceArray, array: Any) -> None:
        count.to_device += bool(array.size)
        copy_to(target, array)

    def copies_to_host(self: DeviceArray) -> Any:
        count.to_host += bool(self.size)
        return to_host(self)

    def given(one: Any) -> Any:
        goes = isinstance(one, np.ndarray)
        count.to_device, count.to_host = count.to_device + goes, count.to_host + goes
        return argument(one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_array, "copy_to", copies_to)
        patch.setattr(DeviceArray, "to_host", copies_to_host)
        patch.setattr(facade, "_simulated", given)
        yield count
