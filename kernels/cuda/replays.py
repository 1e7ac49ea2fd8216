"""CUDA graphs: runs that launch much are recorded, and put into a stream at once when arrays lie where they lay before.

Python takes longer to launch a kernel than a device to run a small one. The first run with certain arrays launches as
usual, the second is recorded, and from the third on one call launches all: in a loop of training, memory pools give the
same addresses again and again. What changes from run to run (seeds) kernels read from an array that is written anew.

Limits: needs CuPy, whose binding of CUDA graphs this is. Of each driver the `KEPT` addresses that were used last are
remembered. What cannot be recorded is launched, as before, and `Replays.refused` says why.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.facade import record
from rnnops.kernels.cuda.host_numbers import renew, written
from rnnops.kernels.cuda.launches import ScanRun
from rnnops.kernels.cuda.lenders import current_lender
from rnnops.kernels.cuda.streams import address_of

LEAST = 32  # launches of a run that is worth recording
KEPT = 8  # recorded runs of a driver
KNOWN = 256  # numbers of a driver that are on the device, some two hundred bytes each: those of all parts of a schedule
SEEN, PLAIN = "seen", "plain"


class Recorded:
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
        if isinstance(found, Recorded):
            found.start(sizes, stream)
        else:
            self.launches = max(self.launches or 0, run.start(self._on_device(sizes, stream), stream))

    def _on_device(self, sizes: Any, stream: Any) -> Any:
        """Numbers that kernels read, copied when they are new: those of most runs are the same at every call."""
        if current_lender() is not None:  # which may capture a graph, and owns what a run takes
            return written(sizes.tolist(), stream)
        key = address_of(stream), sizes.tobytes()  # memory is used again in its stream alone
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
            found = Recorded(run, sizes)
        except Exception as error:  # of CuPy, cuBLAS and the driver: what they do not record, they launch
            self.refused = f"{type(error).__name__}: {error}"
            return PLAIN
        if found.replay is None:
            self.refused = "CuPy is missing"
            return PLAIN
        self.recorded += 1
        return found
