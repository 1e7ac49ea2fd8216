"""Memory of compiled recurrences on a CUDA device: what `buffers/memory.py` is for the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnops.compiler.buffers.memory import Buffer, Memory, Pool, rounded
from rnnops.kernels.cuda.device_array import DeviceArray, empty, on_device, settled
from rnnops.kernels.cuda.lenders import current_lender
from rnnops.kernels.cuda.memory import current_stream
from rnnops.kernels.cuda.streams import address_of


class DeviceBlock:
    """Memory of the device that is lent to one scan at a time."""

    def __init__(self, nbytes: int) -> None:
        self.memory = empty((nbytes,), "uint8")

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> dict[str, DeviceArray]:
        """The buffers that a user wants, side by side from an offset on."""
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.memory[offset : offset + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)
            offset += rounded(buffer.nbytes)
        return parts


class DeviceMemory(Memory):
    """Each buffer by itself, scratch from a pool for the stream that is current: work in one stream keeps its order.

    A lender has a pool itself, and owns what its graphs use: what it lends goes back to it.
    """

    def __init__(self) -> None:
        self._pools: dict[int, Pool] = {}
        self._numbers: Any = None  # 0, 1, 2 and so on

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Any:
        made = empty(buffer.shape, buffer.dtype)
        if zeros:
            made.fill(0)
        return made

    def timesteps(self, first: int, count: int) -> Any:
        numbers = self._numbers
        if numbers is None or len(numbers) < first + count:
            numbers = self._numbers = settled(on_device(super().timesteps(0, 2 * (first + count))))
        return numbers[first : first + count]

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Any, int]:
        return (DeviceBlock(nbytes) if current_lender() else self._pool().take(nbytes)), 0

    def give_back(self, pool: Pool, block: Any) -> None:
        if current_lender() is None:
            self._pool().give(block)

    def _pool(self) -> Pool:
        return self._pools.setdefault(address_of(current_stream()), Pool(DeviceBlock))
