"""Places: where in memory each blob of a step lies, and for how long.

A blob that one row program makes and uses lies in scratch of one row; one that passes from program to product within a
step, in scratch of one step; one that passes from stage to stage, in scratch of a tile. The rest lies in tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnops.compiler.scan.layouts import dense
from rnnops.compiler.scan.scan import Scan
from rnnops.compiler.scan.stages import Stage, node_reads, node_writes
from rnnops.compiler.scan.statements import Statement
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.types import Type

ALIGNMENT = 64  # bytes: a line of the cache


@dataclass(frozen=True)
class Place:
    """Where an owner lies: in array `array`, from number `start` on.

    Args:
        step: numbers from one step to the next, 0 where all steps share it.
        over: what the steps are counted by: `t`, `i` (the step within a tile), or `""`.
        shift: added to t.
        ring: steps after which it comes round, 0 where it does not.
        row: numbers from one row of the batch to the next.
        thread: numbers from one thread to the next.
    """

    array: str
    start: int = 0
    step: int = 0
    over: str = ""
    shift: int = 0
    ring: int = 0
    row: int = 0
    thread: int = 0


@dataclass(frozen=True)
class Layouts:
    """All places, and the sizes of the scratch arrays.

    Args:
        scratch: dtype -> numbers, for each array of scratch.
        arrays: names of arrays that the caller gives, by what lies in them.
    """

    places: Mapping[str, Place]
    scratch: Mapping[str, int]
    arrays: Mapping[str, str]


class _Scratch:
    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def take(self, dtype: str, count: int) -> int:
        width = ALIGNMENT // np.dtype(dtype).itemsize
        start = self.sizes.get(dtype, 0)
        self.sizes[dtype] = start + -(-count // width) * width
        return start


def lay_out(scan: Scan, plan: StepPlan, tile: int, threads: int) -> Layouts:
    """Give every owner a place.

    Args:
        tile: steps in a tile.
    """
    arrays = {f"tensor {name}": f"x{i}" for i, name in enumerate(scan.tensors)}
    for owner in (*sorted(plan.invariant), *plan.accumulators):
        arrays[owner] = f"x{len(arrays)}"
    scratch, places = _Scratch(), {}
    for owner, kind in plan.types.items():
        row = _row_stride(owner, kind, plan)
        if owner in plan.slots:
            places[owner] = _in_tensor(scan, plan, owner, row, arrays)
        elif owner in plan.invariant or owner in plan.accumulators:
            places[owner] = Place(arrays[owner], row=row)
    for owner, extent in _extents(plan.stages, set(places)).items():
        kind = plan.types[owner]
        places[owner] = _in_scratch(
            scratch, kind, extent, tile, threads, _row_stride(owner, kind, plan), plan.batch_axes.get(owner)
        )
    return Layouts(places, scratch.sizes, arrays)


def _row_stride(owner: str, kind: Type, plan: StepPlan) -> int:
    axis = plan.batch_axes.get(owner)
    return 0 if axis is None else dense(kind.shape).strides[axis]


def _in_tensor(scan: Scan, plan: StepPlan, owner: str, row: int, arrays: Mapping[str, str]) -> Place:
    slot = plan.slots[owner]
    tensor = scan.tensors[slot.tensor]
    ring = tensor.length if tensor.ring else 0
    return Place(arrays[f"tensor {slot.tensor}"], 0, prod(tensor.shape), "t", slot.shift, ring, row)


def _extents(stages: tuple[Stage, ...], placed: set[str]) -> dict[str, str]:
    """Owner -> `row`, `step` or `tile`: how long it is needed."""
    extents: dict[str, str] = {}
    home: dict[str, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        segment = 0
        before: bool | None = None
        for node in stage.nodes:
            is_row = isinstance(node, Statement)
            segment += before is not None and before != is_row
            before = is_row
            for owner in {*node_reads(node), node_writes(node)} - placed:
                first = home.setdefault(owner, (number, segment))
                extent = (
                    "tile"
                    if first[0] != number or not stage.loop
                    else "step"
                    if first[1] != segment or not is_row
                    else "row"
                )
                extents[owner] = max(extents.get(owner, "row"), extent, key=("row", "step", "tile").index)
    return extents


def _in_scratch(
    scratch: _Scratch, kind: Type, extent: str, tile: int, threads: int, row: int, batch_axis: int | None
) -> Place:
    size = prod(kind.shape)
    if extent == "row" and batch_axis in (None, 0):
        own = size if batch_axis is None else row
        width = -(-own // 16) * 16 + 16
        return Place(f"w_{kind.dtype}", scratch.take(kind.dtype, width * threads), thread=width)
    steps = tile if extent == "tile" else 1
    over = "i" if extent == "tile" else ""
    own = -(-size * steps // 16) * 16 if batch_axis is None and threads > 1 else 0  # each thread computes it for itself
    start = scratch.take(kind.dtype, own * threads or size * steps)
    return Place(f"w_{kind.dtype}", start, size if over else 0, over, row=row, thread=own)
