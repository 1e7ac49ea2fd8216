"""rnnops on a CUDA device: fed with arrays that are there, outputs and gradients stay there."""

from __future__ import annotations

from typing import Any

import rnnops as ro
from bench.contender import MissingPeerError
from bench.cuda_cases import CudaEntry
from bench.cuda_data import Data, Placed
from bench.cuda_peers import CudaContender, named
from bench.cuda_place import Place
from bench.nets import build_net

TOTALS = ("peak", "total")  # names of the figure in a table of memory, newest first


def plain(entry: CudaEntry, data: Data, place: Place) -> CudaContender:
    """Parameters are fed with every call."""
    sets = data.sets
    run = ro.compile(build_net(entry.problem), device="cuda", weights=weights_of(entry))

    def forward(k: int) -> Any:
        return run(sets[k % len(sets)].feeds), {}

    def training(k: int) -> Any:
        one = sets[k % len(sets)]
        outputs, pullback = run.vjp(one.feeds)
        return outputs, pullback(one.heads)

    training_mode = entry.mode == "training"
    call = training if training_mode else forward
    return CudaContender(call, named, planned=lambda: planned_bytes(run, sets[0].feeds, training_mode))


def weights_of(entry: CudaEntry) -> str | None:
    """How recurrent weights lie on chip; arrays are float32. Raises MissingPeerError for what rnnops has not."""
    dtype = entry.settings.dtype
    if dtype not in ("float32", "float16"):
        raise MissingPeerError(f"rnnops keeps no weights in {dtype}")
    return None if dtype == "float32" else dtype


def planned_bytes(run: Any, feeds: Placed, training: bool) -> int:
    """What the plan says that a call allocates when it needs most."""
    shapes = {name: tuple(array.shape) for name, array in feeds.items()}
    table = run.plan(shapes, backward=training).memory()
    return int(next(getattr(table, name) for name in TOTALS if hasattr(table, name)))
