"""Ops that are not compiled, on arrays of a CUDA device: what moves elements is a view there.

Which elements a view has, the op's reference says, run once over element numbers, as for the compiler
(`scan/layouts.py`). Limit: all else goes through the host: arrays without elements, ops without a compiled form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.scan.layouts import Layout, affine
from rnnops.compiler.scan.memory import on_host
from rnnops.interpreter import run_reference
from rnnops.kernels.cuda.device_array import DeviceArray, on_device
from rnnops.loops import View
from rnnops.schema import Call, RunContext, schema_of

FIRST = 1 << 40  # the number of the first element: what an op fills in (the edges of Pad) is none of them


@dataclass(frozen=True)
class DeviceReference:
    """Runs one op that is not compiled."""

    call: Call

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        if arrays and isinstance(arrays[0], DeviceArray):
            layouts = views_of(self.call)
            if layouts:
                return tuple(_view(arrays[0], layout) for layout in layouts)
        results = run_reference(self.call, schema_of(self.call.op.type), [*map(on_host, arrays)], context)
        if arrays and not any(isinstance(array, DeviceArray) for array in arrays):
            return results
        return tuple(on_device(result) if isinstance(result, np.ndarray) else result for result in results)


def views_of(call: Call) -> tuple[Layout, ...]:
    """Where each result's elements lie in the op's first input; empty where one is no view of it."""
    if "views" not in call.derived:
        schema = schema_of(call.op.type)
        call.derived["views"] = _views(call) if isinstance(schema.loop_form(call), View) else ()
    found: tuple[Layout, ...] = call.derived["views"]
    return found


def _views(call: Call) -> tuple[Layout, ...]:
    if any(call.has(i) and call.values[i] is None for i in range(1, len(call.op.inputs))):
        return ()
    shape = call.shape(0)
    numbers = FIRST + np.arange(prod(shape)).reshape(shape)
    results = run_reference(call, schema_of(call.op.type), [numbers, *call.values[1:]], RunContext())
    layouts = [_layout(result - FIRST, prod(shape)) for result in results]
    return tuple(layout for layout in layouts if layout) if all(layouts) else ()


def _layout(numbers: Any, count: int) -> Layout | None:
    """Where elements lie that have these numbers; None where some are new, or no strides tell."""
    known = numbers.size > 0 and numbers.min() >= 0 and numbers.max() < count
    return affine(numbers) if known else None


def _view(array: DeviceArray, layout: Layout) -> DeviceArray:
    flat = array.contiguous().reshape(-1)
    strides = [stride * array.itemsize for stride in layout.strides]
    return flat.viewed(np.lib.stride_tricks.as_strided(flat.twin[layout.offset :], layout.shape, strides))
