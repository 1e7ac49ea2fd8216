"""Arrays of another library on the CUDA device, in the simulator: what `__cuda_array_interface__` says of one."""

from __future__ import annotations

from typing import Any


class Elsewhere:
    """What another library has on the device."""

    def __init__(self, array: Any, **changes: Any) -> None:
        data = (array.__array_interface__["data"][0], False)
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": data, "strides": array.strides, "version": 3,
            **changes,
        }  # fmt: skip


class At:
    """A NumPy array as DLPack's capsules are made of: with a `pointer`."""

    def __init__(self, array: Any) -> None:
        self.array, self.pointer = array, array.__array_interface__["data"][0]
        self.shape, self.strides, self.dtype, self.ndim = array.shape, array.strides, array.dtype, array.ndim
