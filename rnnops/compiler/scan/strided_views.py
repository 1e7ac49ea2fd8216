"""Which ops outside of loops only look at their input another way: offset and strides of what they give.

The op's reference says so: run on memory that nobody touches, its results are NumPy's views of that, or they are not.
What it copies is run once more over element numbers, as for the compiler (`layouts.py`), as these may have strides all
the same. Limits: nothing larger than `LARGEST` elements is run so; arrays without elements are no views.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.scan.layouts import Layout, affine
from rnnops.interpreter import run_reference
from rnnops.loops import View
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import Array

LARGEST = 1 << 22  # elements
FIRST = 1 << 40  # the number of the first element: what an op fills in (the edges of Pad) is none of them


def views_of(call: Call) -> tuple[Layout, ...]:
    """Where each result's elements lie in the op's first input; empty where one is no view of it."""
    if "views" not in call.derived:
        schema = schema_of(call.op.type)
        call.derived["views"] = _views(call) if isinstance(schema.loop_form(call), View) else ()
    found: tuple[Layout, ...] = call.derived["views"]
    return found


def _views(call: Call) -> tuple[Layout, ...]:
    shape = call.shape(0)
    if prod(shape) == 0 or any(call.has(i) and call.values[i] is None for i in range(1, len(call.op.inputs))):
        return ()
    frame = np.zeros(shape, np.int8)
    layouts = [_layout_in(frame, result) for result in _results(call, frame)]
    if not all(layouts) and prod(shape) <= LARGEST:
        numbers = FIRST + np.arange(prod(shape)).reshape(shape)
        layouts = [_layout_of(result - FIRST, prod(shape)) for result in _results(call, numbers)]
    return tuple(layout for layout in layouts if layout) if all(layouts) else ()


def _results(call: Call, array: Array) -> tuple[Any, ...]:
    return run_reference(call, schema_of(call.op.type), [array, *call.values[1:]], RunContext())


def _layout_in(frame: Array, result: Array) -> Layout | None:
    """Where a view of single bytes lies; None where the result is none."""
    if result.size == 0 or not np.may_share_memory(frame, result):
        return None
    start, first = (array.__array_interface__["data"][0] for array in (frame, result))
    return Layout(first - start, tuple(result.shape), tuple(result.strides))


def _layout_of(numbers: Array, count: int) -> Layout | None:
    """Where elements lie that have these numbers; None where some are new, or no strides tell."""
    known = numbers.size > 0 and numbers.min() >= 0 and numbers.max() < count
    return affine(numbers) if known else None
