"""Launches of kernels by a driver, and CUDA graphs that replay them.

**CUDA graphs**: runs that launch much are recorded, and put into a stream at once when arrays lie where they lay
before. Python takes longer to launch a kernel than a device to run a small one. The first run with certain arrays
launches as usual, the second is recorded, and from the third on one call launches all: in a loop of training, memory
pools give the same addresses again and again. What changes from run to run (seeds) kernels read from an array that is
written anew.

Limits: needs CuPy, whose binding of CUDA graphs this is. Of each driver the `KEPT` addresses that were used last are
remembered. What cannot be recorded is launched, as before, and `Replays.refused` says why.

**What the driver of a generated module calls**: launches of its kernels, and products of whole tiles. Everything that a
scan does on a device goes through one object, so that launches can be counted and all of them wait in one stream.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rnnops.kernels.cuda.device_array import on_device, renew, written
from rnnops.kernels.cuda.facade import address_of, launch, prepared, record
from rnnops.kernels.cuda.gemm import Product, multiply
from rnnops.kernels.cuda.memory import current_lender, in_stream

LEAST = 32  # launches of a run that is worth recording
KEPT = 8  # recorded runs of a driver
KNOWN = 256  # numbers of a driver that are on the device, some two hundred bytes each: those of all parts of a schedule
SEEN, PLAIN = "seen", "plain"


class RecordedGraph:
    """A recorded run."""

    def __init__(self, run: ScanRun, sizes: Any) -> None:
        self.sizes, self.written = on_device(sizes), sizes.tobytes()
        self.replay = record(lambda stream: run.start(self.sizes, stream))

    def start(self, sizes: Any, stream: Any) -> None:
        """Launch it all, with other numbers for kernels."""
        numbers, lent = sizes.tobytes(), current_lender() is not None
        if lent or self.written != numbers:
            renew(self.sizes, sizes, stream)
            self.written = b"" if lent else numbers  # a graph that has captured this may write them at any time
        self.replay(stream)


class Replays:
    """The runs of one driver."""

    def __init__(self) -> None:
        self.launches: int | None = None  # of the longest run as usual, once there was one
        self.recorded = 0  # runs that were
        self.refused = ""  # why the last run that was to be recorded was not
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._sizes: OrderedDict[Hashable, Any] = OrderedDict()  # numbers that are on the device already, by stream
        self._lock = threading.Lock()

    def start(self, run: ScanRun, sizes: Any, stream: Any) -> None:
        """Launch a run as usual, record it, or launch what was recorded.

        Args:
            sizes: numbers that kernels read, as a NumPy array.
            stream: of the device.
        """
        few = self.launches is not None and self.launches < LEAST
        found = PLAIN if few else self._found(run, sizes, stream)
        if isinstance(found, RecordedGraph):
            found.start(sizes, stream)
        else:
            self.launches = max(self.launches or 0, run.start(self._on_device(sizes, stream), stream))

    def _on_device(self, sizes: Any, stream: Any) -> Any:
        """Numbers that kernels read, copied when they are new: those of most runs are the same at every call."""
        if current_lender() is not None:  # which may capture a graph, and owns what a run takes
            return written(sizes.tolist(), stream)
        key = address_of(stream), sizes.tobytes()  # memory is used again only in its stream
        with self._lock:
            found = self._sizes.pop(key, None)
            found = self._sizes[key] = on_device(sizes) if found is None else found
            while len(self._sizes) > KNOWN:
                self._sizes.popitem(last=False)
        return found

    def _found(self, run: ScanRun, sizes: Any, stream: Any) -> Any:
        key = run.key(stream)
        with self._lock:
            found = self._known.pop(key, None)
            if found is SEEN:
                found = self._recorded(run, sizes)
            self._known[key] = SEEN if found is None else found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found

    def _recorded(self, run: ScanRun, sizes: Any) -> Any:
        """A recorded run; `PLAIN` where none can be had, with the reason."""
        try:
            found = RecordedGraph(run, sizes)
        except Exception as error:  # of CuPy, cuBLAS and the driver: what they do not record, they launch
            self.refused = f"{type(error).__name__}: {error}"
            return PLAIN
        if found.replay is None:
            self.refused = "CuPy is missing"
            return PLAIN
        self.recorded += 1
        return found


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
        """The key that two runs share if they launch the same."""
        return address_of(stream), *self.fixed, *(array.pointer for array in (self.status, *self.arrays))
