"""CUDA graphs: runs that launch much are recorded, and put into a stream at once when arrays lie where they lay before.

Python takes longer to launch a kernel than a device to run a small one. The first run with certain arrays launches as
usual, the second is recorded, and from the third on one call launches all: in a loop of training, memory pools give the
same addresses again and again. What changes from run to run (seeds) kernels read from an array that is written anew.

Limits: needs CuPy, whose binding of CUDA graphs this is. Of each function the `KEPT` addresses that were used last are
remembered. What cannot be recorded is launched, as before.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from rnnops.kernels.cuda.device_array import copy_to, in_stream, on_device
from rnnops.kernels.cuda.facade import record
from rnnops.kernels.cuda.launches import Launches

LEAST = 32  # launches of a run that is worth recording
KEPT = 8  # recorded runs of a function
SEEN, PLAIN = "seen", "plain"


class Recorded:
    """A recorded run.

    Args:
        start: launches what `record` gave it.
        make: `Launches` with numbers on the device, in a stream.
        sizes: numbers of the first run.
    """

    def __init__(self, start: Callable[[Launches], None], make: Callable[[Any, Any], Launches], sizes: Any) -> None:
        self.sizes = on_device(sizes)
        self.replay = record(lambda stream: self._launch(start, make, stream))

    def _launch(self, start: Callable[[Launches], None], make: Callable[[Any, Any], Launches], stream: Any) -> None:
        with in_stream(stream):
            start(make(self.sizes, stream))

    def run(self, sizes: Any, stream: Any) -> None:
        """Launch it all, with other numbers."""
        copy_to(self.sizes, sizes)
        self.replay(stream)


class Replays:
    """The runs of one function."""

    def __init__(self) -> None:
        self.launches: int | None = None  # of a run, once there was one
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def run(
        self,
        key: Callable[[], Hashable],
        start: Callable[[Launches], None],
        make: Callable[[Any, Any], Launches],
        sizes: Any,
        stream: Any,
    ) -> None:
        """Launch as usual, record, or launch what was recorded.

        Args:
            key: what must be as it was for a recorded run to be right: addresses, numbers that the function reads.
            start: launches all.
            make: `Launches` with the numbers, given on the device, in a stream.
            sizes: numbers that kernels read, as a NumPy array.
            stream: of the device.
        """
        if self.launches is not None and self.launches < LEAST:
            start(make(on_device(sizes), stream))
            return
        found = self._found(key(), start, make, sizes)
        if isinstance(found, Recorded):
            found.run(sizes, stream)
            return
        on = make(on_device(sizes), stream)
        start(on)
        self.launches = on.count

    def _found(
        self, key: Hashable, start: Callable[[Launches], None], make: Callable[[Any, Any], Launches], sizes: Any
    ) -> Any:
        with self._lock:
            found = self._known.pop(key, None)
            if found is SEEN:
                found = _recorded(start, make, sizes)
            self._known[key] = SEEN if found is None else found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found


def _recorded(start: Callable[[Launches], None], make: Callable[[Any, Any], Launches], sizes: Any) -> Any:
    """A recorded run; `PLAIN` where none can be had."""
    try:
        found = Recorded(start, make, sizes)
    except Exception:  # of CuPy, cuBLAS and the driver: what they do not record, they launch
        return PLAIN
    return PLAIN if found.replay is None else found
