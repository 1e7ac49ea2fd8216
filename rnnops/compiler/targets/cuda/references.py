"""Ops that are not compiled, on arrays of a CUDA device: what moves elements is a view there, or copied.

Limit: all else goes through the host: arrays without elements, ops without a compiled form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler.buffers.memory import on_host
from rnnops.compiler.lower.strided_views import views_of
from rnnops.interpreter import run_reference
from rnnops.kernels.cuda.device_array import DeviceArray, empty, on_device, settled
from rnnops.schema import Call, RunContext, schema_of


@dataclass(frozen=True)
class DeviceReference:
    """Runs one op that is not compiled."""

    call: Call

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        if arrays and isinstance(arrays[0], DeviceArray):
            layouts = views_of(self.call)
            if layouts:
                return tuple(arrays[0].strided(one.offset, one.shape, one.strides) for one in layouts)
            if self.call.op.type == "Concat":
                return (_side_by_side(self.call, arrays),)
        schema = schema_of(self.call.op.type)
        if not arrays and not schema.uses_context:
            return self._constants(context)
        results = run_reference(self.call, schema, [*map(on_host, arrays)], context)
        if arrays and not any(isinstance(array, DeviceArray) for array in arrays):
            return results
        return tuple(on_device(result) if isinstance(result, np.ndarray) else result for result in results)

    def _constants(self, context: RunContext) -> tuple[Any, ...]:
        """What is the same in all runs, on the device once and for all, to be read alone."""
        if "constants" not in self.call.derived:
            results = run_reference(self.call, schema_of(self.call.op.type), [], context)
            made = tuple(settled(on_device(result)) for result in results)
            for array in made:
                array.flags.writeable = False
            self.call.derived["constants"] = made
        found: tuple[Any, ...] = self.call.derived["constants"]
        return found


def _side_by_side(call: Call, arrays: Sequence[Any]) -> DeviceArray:
    """Arrays one behind the other along the axis of a Concat."""
    kind = call.output_types[0]
    made, end = empty(kind.shape, kind.dtype), 0
    before = (slice(None),) * (call.attr("axis") % len(kind.shape))
    for array in map(on_device, arrays):
        start, end = end, end + array.shape[len(before)]
        place = (*before, slice(start, end))
        made[place] = array
    return made
