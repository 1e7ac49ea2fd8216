"""SelectValid: what a recurrent state becomes past the end of a row."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import LoopForm, Pointwise
from rnnops.net import common_net
from rnnops.ops.base import flag
from rnnops.ops.comparison import less, where
from rnnops.ops.movement import reshape_to
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import Array, Shape


class SelectValid(OpSchema):
    """`new` in the rows that are not over yet (`timestep < seq_lengths[n]`), else `previous`, or 0 with `drop`.

    new, previous: [N, ...]; seq_lengths: int32 [N]; timestep: int32 [1].
    """

    inputs = ("new", "previous", "seq_lengths", "timestep")
    outputs = ("selected",)
    attributes: ClassVar[dict[str, Any]] = {"drop": 0}
    same_dtype = (0, 1)
    keeps = ("seq_lengths", "timestep")
    in_place = (0, 1)

    def __call__(self, new: Blob, previous: Blob, seq_lengths: Blob, timestep: Blob, drop: int = 0) -> Blob:
        inputs = [new, previous, seq_lengths, timestep]
        return common_net([new]).append(self.name, inputs, {"drop": flag(drop, self.name)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = call.shape(0)
        if not shape or call.shape(1) != shape:
            call.fail("new and previous have rows and one shape", came=f"{list(shape)} and {list(call.shape(1))}")
        for i, sizes in ((2, shape[:1]), (3, (1,))):
            if call.shape(i) != sizes or call.dtype(i) != "int32":
                blob, came = call.op.inputs[i], f"{call.dtype(i)}{list(call.shape(i))}"
                call.fail(f"not {self.inputs[i]} of these rows", blob=blob, wanted=f"int32{list(sizes)}", came=came)
        return (shape,)

    def reference(self, call: Call, new: Array, previous: Array, seq_lengths: Array, timestep: Array) -> Array:
        valid = (timestep < seq_lengths).reshape(-1, *(1,) * (new.ndim - 1))
        return np.asarray(np.where(valid, new, np.zeros_like(previous) if call.attr("drop") else previous))

    def gradient(
        self, call: Call, new: Blob, previous: Blob, lengths: Blob, timestep: Blob, y: Blob, dy: Blob
    ) -> Gradients:
        shape = call.shape(0)
        valid = reshape_to(less(timestep, lengths), (shape[0], *(1,) * (len(shape) - 1)))
        return where(valid, dy, 0.0), None if call.attr("drop") else where(valid, 0.0, dy), None, None

    def loop_form(self, call: Call) -> LoopForm:
        return Pointwise("{0} if {3} < {2} else " + ("0" if call.attr("drop") else "{1}"))


select_valid = register(SelectValid())
