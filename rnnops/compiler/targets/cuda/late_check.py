"""Whether an index was out of range in a pass: asked once, at its end, as the host waits for the answer.

Kernels go on with the nearest index that is not, and note that one was. Where nobody opens a check, each scan that may
meet such an index is asked by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rnnops.kernels.cuda.device_array import DeviceArray, zeros
from rnnops.lazy import cached_property

_STATE = threading.local()


class LateCheck:
    """One pass, in one stream."""

    @cached_property
    def status(self) -> DeviceArray:
        """Where kernels note it; made for the first scan that may have to."""
        return zeros((4,), "int64")

    def failed(self) -> bool:
        """Whether an index was out of range; waits for all work so far, where there was a scan that may meet one."""
        return "status" in self.__dict__ and bool(self.status.to_host()[0] != 0)


def current_check() -> LateCheck | None:
    """The check of the pass that this thread is in, None where there is none."""
    return getattr(_STATE, "check", None)


@contextmanager
def checked_late() -> Iterator[LateCheck]:
    """Let scans of a pass leave the question to its end."""
    before, _STATE.check = current_check(), LateCheck()
    try:
        yield _STATE.check
    finally:
        _STATE.check = before
