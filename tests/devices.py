"""The devices that tests run on, by name, and the one that the running test is for.

A module with `pytestmark = pytest.mark.usefixtures("device")` runs all its tests on each device that `conftest.py`
names; they make their runs with `on_device`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options

Device = Callable[[ro.Net], ro.Run]

# what would be compiled, as plain Python: several tiles where T > 2, and all ops around recurrences that can be fused
PLAIN = Options(compiled=False, tile=2, around="rows")
DEVICES: dict[str, Device] = {
    "reference": partial(ro.compile, device="reference"),
    "plain": partial(ro.compile, device="cpu", threads=2, tuning=PLAIN),
    "cpu": partial(ro.compile, device="cpu", threads=2),
}
_chosen = ["reference"]


def on_device(net: ro.Net) -> ro.Run:
    """A run of a net on the device of the running test, the reference where it names none."""
    return DEVICES[_chosen[-1]](net)


def device_name() -> str:
    """The device of the running test."""
    return _chosen[-1]


@contextmanager
def chosen(name: str) -> Iterator[str]:
    """Let `on_device` mean another device for a while."""
    _chosen.append(name)
    try:
        yield name
    finally:
        _chosen.pop()
