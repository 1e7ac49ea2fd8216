"""Times of a bound run beside those of ONNX Runtime, one thread each: calls, and steps whose states are handed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rnnops.onnx.runtime import Session
from rnnops.onnx.turns import time_in_turns
from rnnops.types import Array

if TYPE_CHECKING:
    from rnnops.compiler.api.run import Run
    from rnnops.compiler.api.stream import Stream

OURS, THEIRS = "rnnops", "ONNX Runtime"
Arrays = Mapping[str, Array]


def call_times(run: Run, session: Session, feeds: Arrays, constants: Arrays, **options: Any) -> dict[str, float]:
    """Seconds of a call of each.

    Args:
        constants: what the file is fed beside what the run is fed; options: of `time_in_turns`.
    """
    theirs = session.repeated({**feeds, **constants})
    return time_in_turns({OURS: lambda: run(feeds), THEIRS: theirs}, **options)


def step_times(
    stream: Stream, session: Session | None, feeds: Arrays, links: Mapping[str, str], constants: Arrays, **options: Any
) -> dict[str, float]:
    """Seconds of a step of each; of ours alone without a session.

    Args:
        feeds: of a step, without states; links: output -> the state that it is; constants, options: as above.
    """
    calls: dict[str, Callable[[], object]] = {OURS: lambda: stream(feeds)}
    if session is not None:
        calls[THEIRS] = session.stepped({**feeds, **constants, **stream.states}, links)
    return time_in_turns(calls, **options)
