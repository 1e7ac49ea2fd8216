"""Measures, from outside and in bytes, what a pullback holds."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping

import numpy as np

import rnnops as ro

Feeds = Mapping[str, np.ndarray]


def freed_with_pullback(net: ro.Net, feeds: Feeds) -> int:
    """Bytes that are freed when the pullback is dropped; feeds are made before, outputs are dropped before."""
    run = ro.compile(net, device="reference")
    run.vjp(feeds, seed=1)
    gc.collect()
    tracemalloc.start()
    try:
        outputs, pullback = run.vjp(feeds, seed=1)
        del outputs
        gc.collect()
        held = array_bytes()
        del pullback
        gc.collect()
        return held - array_bytes()
    finally:
        tracemalloc.stop()


def array_bytes() -> int:
    """Bytes of array data that tracemalloc sees; the interpreter's own objects come and go by a few hundred bytes."""
    data = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([data]).traces)


def peak_of_run(net: ro.Net, feeds: Feeds) -> int:
    """The most bytes that a plain run has at once, its outputs included."""
    run = ro.compile(net, device="reference")
    run(feeds)
    gc.collect()
    tracemalloc.start()
    try:
        outputs = run(feeds)
        peak = tracemalloc.get_traced_memory()[1]
        del outputs
        return peak
    finally:
        tracemalloc.stop()


def growth(measure: Callable[[ro.Net, Feeds], int], net: ro.Net, feeds_at: Callable[[int], Feeds], T: int) -> float:
    """What T more steps cost: constants drop out of the difference between T and 2T."""
    return measure(net, feeds_at(2 * T)) - measure(net, feeds_at(T))
