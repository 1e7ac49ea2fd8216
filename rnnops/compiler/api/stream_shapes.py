"""What a user says of the states of a stream, checked: names, shapes, and the axis of rows in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from rnnops.compiler.api.stream_states import State
from rnnops.errors import StreamError
from rnnops.net import Net
from rnnops.types import FLOAT, Array, Shape

SHAPE_HINT = "Say shapes={{'{0}': ...}}: numbers, and a name for the axis of rows, as in (1, 'N', 64)."


def read_states(
    net: Net,
    links: Mapping[str, str],
    shapes: Mapping[str, Any],
    rows: int | None,
    initial: Mapping[str, Array],
    float_dtype: str,
) -> tuple[State, ...]:
    """The states of a stream, in the order in which they are given.

    Args:
        links: output name -> input name.
        shapes: input name -> numbers, and a name or None in place of the number of rows; also of others than states.
        rows: if it is said.
        initial: input name -> initial state.
        float_dtype: of floats.

    Raises StreamError for outputs whose dtype is not that of the input they feed, and for shapes that are unknown, no
    shapes, not as declared, or have several axes that may be that of rows.
    """
    return tuple(
        _state(net, output, name, _sizes(net, name, shapes, rows, initial), rows, float_dtype)
        for output, name in links.items()
    )


def check_names(net: Net, links: Any, shapes: Any, initial: Any, bound: Collection[str]) -> None:
    """Raise StreamError for what is no dict, names that are unknown or there twice, and states that are bound."""
    for what, given in (("states=", links), ("shapes=", shapes), ("initial=", initial)):
        if not isinstance(given, Mapping) or (given is links and not given):
            wanted = "output name -> input name" if given is links else "input name -> value"
            raise StreamError(f"{what} is no dict of names", net=net.name, wanted=wanted, came=repr(given))
    fed = list(links.values())
    _check_known(net, "states= names no output", links, net.output_blobs)
    _check_known(net, "states= feeds no input of the net", fed, net.input_names)
    _check_known(net, "shapes= names no input", shapes, net.input_names)
    _check_known(net, "initial= names no state", initial, fed)
    for name in fed:
        if fed.count(name) > 1:
            raise StreamError("two outputs feed one input", net=net.name, blob=name)
        if name in bound:
            raise StreamError("the input of a state is bound", net=net.name, blob=name)


def _check_known(net: Net, problem: str, names: Iterable[Any], known: Collection[str]) -> None:
    unknown = [str(name) for name in names if not isinstance(name, str) or name not in known]
    if unknown:
        raise StreamError(problem, net=net.name, blob=", ".join(unknown), wanted=f"one of {', '.join(known) or 'none'}")


def _state(
    net: Net, output: str, name: str, sizes: tuple[Shape, int | None], rows: int | None, float_dtype: str
) -> State:
    """One state. Raises StreamError where dtypes differ, or the net declares another shape."""
    given, wanted = (
        float_dtype if dtype == FLOAT else dtype
        for dtype in (net.dtype_of(net.output_blobs[output]), net.dtype_of(name))
    )
    if given != wanted:
        raise StreamError(
            f"output '{output}' has another dtype than the input that it feeds",
            net=net.name,
            blob=name,
            wanted=wanted,
            came=given,
        )
    declared = _declared(net, name)
    state = State(output, name, wanted, *sizes)
    if declared is None:
        return state
    fixed = None if state.axis is None or len(declared) <= state.axis else declared[state.axis]
    came = state.type(1 if rows is None else rows).shape
    if came != declared:
        raise StreamError("not the shape that is declared", net=net.name, blob=name, wanted=declared, came=came)
    return State(output, name, wanted, *sizes, fixed)


def _declared(net: Net, name: str) -> Shape | None:
    return next(spec.shape for spec in net.input_specs if spec.name == name)


def _sizes(
    net: Net, name: str, shapes: Mapping[str, Any], rows: int | None, initial: Mapping[str, Array]
) -> tuple[Shape, int | None]:
    """The sizes of a state and its axis of rows: as said, else as declared, else those of its initial array."""
    if name in shapes:
        return _read_shape(net, name, shapes[name])
    known = _declared(net, name)
    if known is None and name in initial:
        known = initial[name].shape
    if known is None:
        raise StreamError("the shape of a state is not known", net=net.name, blob=name, hint=SHAPE_HINT.format(name))
    return known, None if rows is None else _axis_of(net, name, known, rows)


def is_number(value: Any) -> bool:
    """Whether a value is an integer."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _read_shape(net: Net, name: str, shape: Any) -> tuple[Shape, int | None]:
    """Sizes and the axis of rows from what a user writes, as `(1, "N", 64)`."""
    entries = tuple(shape) if isinstance(shape, tuple | list) else (True,)
    free = [axis for axis, size in enumerate(entries) if size is None or isinstance(size, str)]
    numbers = [size for axis, size in enumerate(entries) if axis not in free]
    if not all(is_number(size) and size >= 0 for size in numbers):
        wanted = "numbers of 0 or more, and a name for the axis of rows"
        raise StreamError("no shape of a state", net=net.name, blob=name, wanted=wanted, came=repr(shape))
    if len(free) > 1:
        raise StreamError(
            "several axes may be that of rows",
            net=net.name,
            blob=name,
            wanted="one without a number",
            came=repr(shape),
            hint=SHAPE_HINT.format(name),
        )
    return tuple(1 if axis in free else int(size) for axis, size in enumerate(entries)), free[0] if free else None


def _axis_of(net: Net, name: str, sizes: Shape, rows: int) -> int:
    """The one axis that has as many elements as there are rows."""
    found = [axis for axis, size in enumerate(sizes) if size == rows]
    if len(found) != 1:
        raise StreamError(
            "several axes may be that of rows" if found else "no axis is that of rows",
            net=net.name,
            blob=name,
            wanted=f"one of {rows} elements",
            came=list(sizes),
            hint=SHAPE_HINT.format(name),
        )
    return found[0]
