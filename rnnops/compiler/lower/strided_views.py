"""Which ops outside of loops only look at their input another way: offset and strides of what they give.

The op's reference says so, run once over element numbers, as for the compiler (`layouts.py`). Limits: element numbers
take some tens of bytes each, for that moment, when a plan is first described or run; arrays without elements are no
views.
"""

from __future__ import annotations

from math import prod

from rnnops.compiler.ir.layouts import Layout, affine
from rnnops.compiler.lower.movements import moved_numbers
from rnnops.loops import View
from rnnops.schema import Call, form_of
from rnnops.types import Array

FIRST = 1 << 40  # the number of the first element: what an op fills in (the edges of Pad) is none of them


def stays_there(call: Call) -> bool:
    """Whether an op that is not compiled leaves arrays on their device: it is a view, or copies them side by side."""
    return call.op.type == "Concat" or bool(views_of(call))


def views_of(call: Call) -> tuple[Layout, ...]:
    """Where each result's elements lie in the op's first input; empty where one is no view of it."""
    if "views" not in call.derived:
        form = form_of(call)
        of_first = isinstance(form, View) and (not form.all_inputs or len(call.op.inputs) == 1)
        call.derived["views"] = _views(call) if of_first else ()
    found: tuple[Layout, ...] = call.derived["views"]
    return found


def _views(call: Call) -> tuple[Layout, ...]:
    if any(call.has(i) and call.values[i] is None for i in range(1, len(call.op.inputs))):
        return ()
    shape = call.shape(0)
    layouts = [_layout(result - FIRST, prod(shape)) for result in moved_numbers(call, [0], [FIRST])]
    return tuple(layout for layout in layouts if layout) if all(layouts) else ()


def _layout(numbers: Array, count: int) -> Layout | None:
    """Where elements lie that have these numbers; None where some are new, or no strides tell."""
    known = numbers.size > 0 and numbers.min() >= 0 and numbers.max() < count
    return affine(numbers) if known else None
