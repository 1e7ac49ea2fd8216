"""Calls of one frame: ops that see nothing of the frames before, which a warning names.

A net that is called frame by frame should keep earlier frames in states. Windows over an axis of one element see their
fill. A recurrence of one step has no past if its initial state is not fed. Such ops are found by a look at the net with
a second frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rnnops.compiler.api.stream_parts import is_windowed
from rnnops.errors import RnnopsError
from rnnops.interpreter import prepare
from rnnops.net.net import Net
from rnnops.net.schema import Call, schema_of
from rnnops.ops.windows import FIRST_AXIS
from rnnops.recurrent.recurrence import Recurrence, input_types
from rnnops.types import Type


def warn_of_single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> None:
    """Warn of ops that see one frame in each call, and nothing of earlier calls.

    Args:
        types: of the inputs, for one frame.
        given: inputs that a call is given, states among them.
        open_axes: each time input -> the axis that may be that of frames.
        dtype: of floats.
    """
    found = dict.fromkeys(label for axes in open_axes for label in _single_frames(net, types, given, axes, dtype))
    if found:
        text = f"net '{net.name}': these ops see one frame a call and nothing of earlier calls: {', '.join(found)}"
        hint = "steps= of run.stream, ro.streamed_net or `rnnops export --steps` keeps earlier frames in states."
        warnings.warn(f"{text}. {hint}", UserWarning, stacklevel=6)


def _single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], axes: Mapping[str, int], dtype: str
) -> list[str]:
    """Labels of the ops over one frame, which are ops over two where these axes have two elements."""
    longer = dict(types)
    for name, axis in axes.items():
        shape = types[name].shape
        longer[name] = Type(types[name].dtype, (*shape[:axis], 2, *shape[axis + 1 :]))
    try:
        one, two = prepare(net, types, dtype), prepare(net, longer, dtype)
    except RnnopsError:  # the axis is not open, or no frame is enough
        return []
    follows = set(given)
    for call in one.calls:
        if follows.intersection(call.op.inputs) and any(value is None for value in call.output_values):
            follows.update(call.op.outputs)  # not by its sizes only
    pairs = zip(one.calls, two.calls, strict=True)
    return [call.op.label for call, other in pairs if _has_no_past(call, other, follows)]


def _has_no_past(call: Call, longer: Call, follows: set[str]) -> bool:
    """True for windows over one element that may be two, and for one step from a state that no call feeds."""
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        steps = [recurrence.steps_and_batch(input_types(recurrence, one))[0] for one in (call, longer)]
        initial = [blob for kind, _, blob in recurrence.bindings() if kind == "initial"]
        return steps == [1, 2] and not follows.issuperset(initial)
    if not is_windowed(call):
        return False
    schema: Any = schema_of(call.op.type)
    sizes = zip(schema.geometry(call).spans, call.shape(0)[FIRST_AXIS:], longer.shape(0)[FIRST_AXIS:], strict=True)
    return any(span > 1 and (size, more) == (1, 2) for span, size, more in sizes)
