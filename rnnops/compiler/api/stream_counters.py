"""Counters of a streamed net, where a caller gives some of its states.

A recurrence begins with its initial state as long as the state `stream/position` is 0. So a state that a caller gives
is read only if the position is not 0. Where the position does nothing else, it follows from the states that are given.
Windows with a look-ahead count frames by it, and their number is not known: the caller has to give it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from rnnops.errors import RnnopsError
from rnnops.net.net import Net

COUNTER = re.compile(r"stream/(position|frames)(_\d+)?")
WINDOW = re.compile(r".+/frames(_\d+)?")  # frames before a chunk


def position_of(states: Collection[str]) -> str | None:
    """The state that counts the frames of earlier calls; None where there is none."""
    return next((name for name in states if COUNTER.fullmatch(name) and name.startswith("stream/position")), None)


def position_to_set(net: Net, states: Collection[str], given: Collection[str], error: type[RnnopsError]) -> str | None:
    """The position that has to be above 0 with the given states; None where it may stay what it is.

    Args:
        states: inputs that are states; given: those that a caller gives.
        error: raised where the position does not follow from what is given.
    """
    states = [name for name in states if isinstance(name, str)]  # others are refused later
    counters = [name for name in states if COUNTER.fullmatch(name)]
    others = [name for name in states if name not in counters]
    position = position_of(counters)
    if position is None or {*given} >= {*counters} or not {*given} & {*others}:
        return None
    counts, begun = _begun(net, position)
    read = [name for name in others if name in begun or (counts and WINDOW.fullmatch(name))]
    missing = [name for name in read if name not in given]
    if not {*given} & {*read}:
        return None  # a recurrence reads the others as they are
    if missing or counts:
        raise _error(net, counters, read, given, error)
    return position


def _begun(net: Net, position: str) -> tuple[bool, set[str]]:
    """True if the position counts frames of windows; and the states that are read once it is above 0."""
    readers = [op for op in net.ops if position in op.inputs]
    counts = any(op.type not in ("Add", "Greater") for op in readers)
    flags = {name for op in readers if op.type == "Greater" for name in op.outputs}
    came = dict[str, str]()  # blob -> the input that it is, reshaped
    found = set[str]()
    for op in net.ops:
        if op.type == "Reshape" and op.inputs[0] in flags:
            flags.update(op.outputs)
        elif op.type == "Reshape":
            came[op.outputs[0]] = came.get(op.inputs[0], op.inputs[0])
        elif op.type == "Expand" and op.inputs[0] in flags:
            flags.update(op.outputs)
        elif op.type == "Where" and op.inputs[0] in flags:
            found.add(came.get(op.inputs[1], op.inputs[1]))
    return counts, found


def _error(
    net: Net, counters: Collection[str], others: Collection[str], given: Any, error: type[RnnopsError]
) -> RnnopsError:
    missing = [name for name in (*others, *counters) if name not in given]
    return error(
        "states of a streamed net are given without those that say where it is",
        net=net.name,
        blob=", ".join(missing),
        wanted=", ".join([*others, *counters]),
        came=", ".join(map(str, given)),
        hint="Give all of them, as from stream.states.",
    )
