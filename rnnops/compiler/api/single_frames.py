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
from rnnops.ops.reduction import FIRST_AXIS
from rnnops.recurrent.recurrence import Recurrence, input_types
from rnnops.types import Type


def warn_of_single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> None:
    """Warn of `single_frames` where a user calls `stream` or `export_native`."""
    if text := single_frames(net, types, given, open_axes, dtype):
        warnings.warn(text, UserWarning, stacklevel=6)


def single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> str:
    """A text that names ops which see the frames of one call and nothing of earlier calls; empty where there are none.

    Args:
        types: of the inputs.
        given: inputs that a call is given, states among them.
        open_axes: each time input -> the axis that may be that of frames.
        dtype: of floats.
    """
    found = dict.fromkeys(label for axes in open_axes for label in _single_frames(net, types, given, axes, dtype))
    text = f"net '{net.name}': these ops see the frames of one call and nothing of earlier calls: {', '.join(found)}"
    return f"{text}. {KEEP}" if found else ""


KEEP = (
    "steps= of run.stream, ro.streamed_net or --steps of `rnnops export` and `rnnops onnx --stream` keeps earlier "
    "frames in states."
)


def open_axes(shapes: Mapping[str, Any], others: Collection[str] = ()) -> list[dict[str, int]]:
    """The axes of inputs that have no number in `shapes`: those of one name together; `others` are left out."""
    found = dict[object, dict[str, int]]()
    for name, dims in shapes.items():
        for axis, size in enumerate(() if name in others or dims is None else dims):
            if size is None or isinstance(size, str):
                found.setdefault(size or (name, axis), {})[name] = axis
    return [*found.values()]


def _single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], axes: Mapping[str, int], dtype: str
) -> list[str]:
    """Labels of the ops over one frame, which are ops over two where these axes have two elements."""
    try:
        one, two = (prepare(net, _with_frames(types, axes, count), dtype) for count in (1, 2))
    except RnnopsError:  # the axis is not open, or no frame is enough
        return []
    follows = set(given)
    for call in one.calls:
        if follows.intersection(call.op.inputs) and any(value is None for value in call.output_values):
            follows.update(call.op.outputs)  # not by its sizes only
    pairs = zip(one.calls, two.calls, strict=True)
    return [call.op.label for call, other in pairs if _has_no_past(call, other, follows)]


def _with_frames(types: Mapping[str, Type], axes: Mapping[str, int], count: int) -> dict[str, Type]:
    """Types with so many elements along these axes."""
    found = dict(types)
    for name, axis in axes.items():
        shape = types[name].shape
        found[name] = Type(types[name].dtype, (*shape[:axis], count, *shape[axis + 1 :]))
    return found


def _has_no_past(call: Call, longer: Call, follows: set[str]) -> bool:
    """True for windows or a fill around one element that may be two, and for a step from a state that no call feeds."""
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        steps = [recurrence.steps_and_batch(input_types(recurrence, one))[0] for one in (call, longer)]
        initial = [blob for kind, _, blob in recurrence.bindings() if kind == "initial"]
        return steps == [1, 2] and not follows.issuperset(initial)
    schema: Any = schema_of(call.op.type)
    if call.op.type == "Pad":
        widths = schema.widths(call).items()
        return any(max(more) > 0 and (call.shape(0)[i], longer.shape(0)[i]) == (1, 2) for i, more in widths)
    if not is_windowed(call):
        return False
    sizes = zip(schema.geometry(call).spans, call.shape(0)[FIRST_AXIS:], longer.shape(0)[FIRST_AXIS:], strict=True)
    return any(span > 1 and (size, more) == (1, 2) for span, size, more in sizes)
