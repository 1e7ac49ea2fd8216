"""Ops that are not compiled, on arrays of a CUDA device: views are views there too, the rest goes through the host.

What a view is, the op's reference says, of an array that stands for the device's and is never read
(`kernels/cuda/device_array.py`). Inputs that say how (shapes, axes, starts) are read on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.interpreter import run_reference
from rnnops.kernels.cuda.device_array import DeviceArray, on_device
from rnnops.loops import View
from rnnops.schema import Call, RunContext, schema_of


@dataclass(frozen=True)
class DeviceReference:
    """Runs one op that is not compiled."""

    call: Call

    def __call__(self, arrays: Sequence[Any], context: RunContext, **_: Any) -> tuple[Any, ...]:
        schema, viewed = schema_of(self.call.op.type), arrays[0] if arrays else None
        if isinstance(viewed, DeviceArray) and isinstance(schema.loop_form(self.call), View):
            twins = run_reference(self.call, schema, [viewed.twin, *map(_on_host, arrays[1:])], context)
            if all(np.may_share_memory(twin, viewed.memory.frame) for twin in twins):
                return tuple(viewed.viewed(twin) for twin in twins)
        results = run_reference(self.call, schema, [*map(_on_host, arrays)], context)
        if not any(isinstance(array, DeviceArray) for array in arrays) and arrays:
            return results
        return tuple(on_device(result) if isinstance(result, np.ndarray) else result for result in results)


def _on_host(array: Any) -> Any:
    return array.to_host() if isinstance(array, DeviceArray) else array
