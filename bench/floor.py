"""Floors under the time of a step: waiting for all multiprocessors, moving what must move, multiplying.

What the device can do is measured, what a step must do is counted; the largest of the three is the floor. A cell that
reached it would hide nothing behind anything: the three could overlap, but none can be shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from math import prod
from statistics import median
from typing import Any

from bench.case import PRECISIONS, Entry
from bench.counting import count_work
from bench.nets import user_net
from bench.place import Place
from bench.problems import Problem

WAITS, THREADS = 1000, 256  # of the empty kernel
COPIED, SIDE, ROUNDS = 2**29, 8192, 5  # bytes of the copy, rows of the square product
Blocked = Callable[[], object]


@dataclass(frozen=True)
class Rates:
    """What a device can do; None and missing where it could not be measured.

    Args:
        sync_seconds: of one wait of a grid with a block on each multiprocessor.
        bytes_a_second: of a copy, what is read and what is written.
        flops: a second, of a large product, by precision.
        missing: why something was not measured.
    """

    sync_seconds: float | None = None
    bytes_a_second: float | None = None
    flops: Mapping[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Floor:
    """Seconds of a step at least, and what for."""

    seconds: float
    what: str


def floor_of(entry: Entry, rates: Rates) -> Floor | None:
    """The largest of the floors that are known."""
    problem, T = entry.problem, entry.problem.size.T
    training = entry.is_training
    floors = []
    if rates.sync_seconds:  # what a step writes is read by all at the next one, there and back
        floors.append(Floor(rates.sync_seconds * (2 if training else 1), "sync"))
    if rates.bytes_a_second:
        floors.append(Floor(bytes_moved(problem, training, entry.floats.itemsize) / T / rates.bytes_a_second, "bytes"))
    if entry.precision in rates.flops:
        floors.append(Floor(count_work(problem, training).flops / T / rates.flops[entry.precision], "arithmetic"))
    return max(floors, key=lambda floor: floor.seconds, default=None)


def bytes_moved(problem: Problem, training: bool, itemsize: int) -> float:
    """Bytes of a pass at least: sequences in and out once, all else that is fed once.

    In training their gradients too, each as large as what it is the gradient of.
    """
    net, size = user_net(problem.net), problem.size
    shapes = net.shapes(size)
    fed = sum(prod(shape) for shape in shapes.values())
    out = len(net.differentiated) * size.unit
    return float((fed + out) * (2 if training else 1) * itemsize)


def measure_rates(place: Place) -> Rates:
    """What the device can do; what cannot be measured is named."""
    missing: list[str] = []

    def tried(what: str, measure: Callable[[Place], float]) -> float | None:
        try:
            return measure(place)
        except Exception as error:  # of any library
            missing.append(f"{what}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return None

    sync, moved = tried("sync", sync_seconds), tried("bytes", copy_rate)
    flops = {name: tried(f"flops {name}", partial(product_rate, precision=name)) for name in PRECISIONS}
    place.clean()
    return Rates(sync, moved, {name: rate for name, rate in flops.items() if rate}, tuple(missing))


def sync_seconds(place: Place) -> float:
    """An empty kernel whose grid waits for itself again and again."""
    cuda: Any = import_module("numba.cuda")

    @cuda.jit  # type: ignore[untyped-decorator]
    def wait(count: int) -> None:
        grid = cuda.cg.this_grid()
        for _ in range(count):
            grid.sync()

    blocks = cuda.get_current_device().MULTIPROCESSOR_COUNT
    return typical(place, lambda: wait[blocks, THREADS](WAITS)) / WAITS


def copy_rate(place: Place) -> float:
    """Bytes that a copy within the device reads and writes, a second."""
    if place.torch_device == "cuda":
        import torch

        source, target = (torch.ones(COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
        return 2 * COPIED / typical(place, lambda: target.copy_(source))
    cuda: Any = import_module("numba.cuda")
    one, other = (cuda.device_array(COPIED, "uint8") for _ in range(2))
    return 2 * COPIED / typical(place, lambda: other.copy_to_device(one))


def product_rate(place: Place, precision: str) -> float:
    """Flops a second of a large product of random matrices by cuBLAS."""
    import torch

    from bench.torch_engine import tf32

    kind = PRECISIONS[precision]
    a, b = (torch.randn(SIDE, SIDE, device="cuda").to(getattr(torch, kind.dtype)) for _ in range(2))
    c = torch.empty_like(a)
    with tf32(kind.tf32):
        return 2.0 * SIDE**3 / typical(place, lambda: torch.mm(a, b, out=c))


def typical(place: Place, block: Blocked) -> float:
    """Median seconds of a block, after one that does not count."""
    block()
    place.wait()
    return median(place.seconds(block) for _ in range(ROUNDS))
