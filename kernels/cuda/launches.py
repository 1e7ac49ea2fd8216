"""What the driver of a generated module calls: launches of its kernels, and products of whole tiles.

Everything that a scan does on a device goes through one object, so that launches can be counted and all of them wait in
one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rnnops.kernels.cuda.facade import launch, prepared
from rnnops.kernels.cuda.gemm import Product, multiply
from rnnops.kernels.cuda.memory import in_stream
from rnnops.kernels.cuda.streams import address_of


class Launches:
    """The launches of one run of a scan.

    Args:
        sizes: numbers that kernels read, on the device.
        status: where kernels note that an index was out of range, on the device.
        counters: by which groups of blocks wait for each other, on the device.
        lanes: threads of a block.
        stream: of the device.
    """

    def __init__(self, sizes: Any, status: Any, counters: Any, lanes: int, stream: Any = 0) -> None:
        self.sizes, self.status, self.counters, self.lanes, self.stream = sizes, status, counters, lanes, stream
        self.count = 0
        self._prepared: dict[int, tuple[Any, Any]] = {}  # by id, with the array itself, so that the id stays its own

    def launch(
        self, kernel: Any, blocks: int, shared_bytes: int, low: int, begin: int, end: int, steps: int, *arrays: Any
    ) -> None:
        """Run a kernel for steps `begin ... end - 1` of a tile.

        Args:
            shared_bytes: that a block keeps in shared memory.
            low: the first step of the tile.
            steps: of the tile.
        """
        self.count += 1
        prepared_arrays = map(self._argument, (self.sizes, self.status, self.counters, *arrays))
        launch(kernel, blocks, self.lanes, shared_bytes, self.stream, low, begin, end, steps, *prepared_arrays)

    def _argument(self, array: Any) -> Any:
        found = self._prepared.get(id(array))
        if found is None:
            if not array.flags.c_contiguous:
                raise ValueError(f"kernels take arrays without gaps, not strides of {array.strides} bytes")
            found = self._prepared[id(array)] = array, prepared(array)
        return found[1]

    def multiply(self, *products: Product) -> None:
        """Compute products that do not depend on each other."""
        self.count += multiply(*products, stream=self.stream)


@dataclass(frozen=True)
class ScanRun:
    """One run of a driver, which launches all that it takes.

    Args:
        driver: `scan(on, numbers, *arrays)` of a generated module.
        numbers: that it reads.
        fixed: those of them that what it launches depends on.
        status: where kernels note that an index was out of range, on the device.
        lanes: threads of a block.
        counters: by which groups of blocks wait for each other, on the device; of the stream, which keeps runs apart.
    """

    driver: Callable[..., None]
    numbers: Sequence[int]
    fixed: Sequence[int]
    arrays: Sequence[Any]
    status: Any
    lanes: int
    counters: Any

    def start(self, sizes: Any, stream: Any) -> int:
        """Launch it; how many launches that took.

        Args:
            sizes: numbers that kernels read, on the device.
        """
        on = Launches(sizes, self.status, self.counters, self.lanes, stream)
        with in_stream(stream, ordered=False):
            self.driver(on, self.numbers, *self.arrays)
        return on.count

    def key(self, stream: Any) -> Hashable:
        """What two runs have in common that launch the same."""
        return address_of(stream), *self.fixed, *(array.pointer for array in (self.status, *self.arrays))
