"""Random nets on the CPU device: all of them as plain Python, some compiled, in memory that holds NaN before its use.

Long sweeps, by hand, of 1000 nets compiled and 2000 as plain Python: `pytest -m slow` with this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from devices import PLAIN, Device

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule import batch_axis
from rnnops.testing import check_devices, random_net

COUNT, BLOCK = 300, 10
TILES = (None, 1, 2, 3)


def plain(tile: int | None) -> Device:
    return lambda net: ro.compile(net, device="cpu", threads=2, tuning=replace(PLAIN, tile=tile))


def compiled(threads: int) -> Device:
    return lambda net: ro.compile(net, device="cpu", threads=threads, tuning=Options())


@pytest.fixture(autouse=True)
def _poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read before it is written is NaN, -1 or true."""
    empty: Callable[..., Any] = np.empty

    def poisoned(*args: Any, **kwargs: Any) -> np.ndarray:
        array: np.ndarray = empty(*args, **kwargs)
        if array.size and not array.dtype.hasobject:
            array.reshape(-1).view(np.uint8)[...] = 255
        return array

    monkeypatch.setattr(np, "empty", poisoned)


def check(seed: int, device: Device, dtype: str = "float64") -> None:
    """A random net agrees with the reference; a failing one is printed."""
    random = random_net(seed)
    feeds = {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in random.feeds.items()}
    try:
        check_devices(random.net, feeds, {"cpu": device}, seed=seed)
    except ro.RnnopsError as error:
        pytest.fail(f"{error}\n\n{random}", pytrace=False)


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
def test_as_plain_python(first: int) -> None:
    for seed in range(first, first + BLOCK):
        check(seed, plain(TILES[seed % len(TILES)]), "float32" if seed % 7 == 0 else "float64")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 20))
def test_many_as_plain_python(first: int) -> None:
    for seed in range(first, first + 20):
        for tile in TILES:
            check(seed, plain(tile))
        check(seed, plain(None), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 10))
def test_a_thousand_compiled(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)
    for seed in range(first, first + 10):
        check(seed, compiled(1 + seed % 3))
