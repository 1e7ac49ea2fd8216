"""Memory that runs out in a call is an OutOfMemoryError that names the net, whoever noticed it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from rnnops.errors import out_of_memory_of
from rnnops.kernels.cpu.room import MIB, has_room, held_back

PLENTY = 64 * MIB
Method = TypeVar("Method", bound=Callable[..., Any])


def memory_named(name_of: Callable[[Any], str | None]) -> Callable[[Method], Method]:
    """A decorator: errors of memory in the function name the net.

    Args:
        name_of: the net's name, from the function's first argument; None where it is not known.
    """

    def named(function: Method) -> Method:
        @wraps(function)
        def called(*arguments: Any, **keywords: Any) -> Any:
            try:
                return function(*arguments, **keywords)
            except Exception as error:
                held_back.release()
                first = next(iter((*arguments, *keywords.values())), None)
                strange = isinstance(error, SystemError) and not has_room(PLENTY)  # Python's own, without memory
                found = out_of_memory_of(MemoryError(str(error)) if strange else error, name_of(first))
                held_back.hold()
                if found is None or found is error:
                    raise
                raise found from error

        return cast("Method", called)

    return named


def of_run(run: Any) -> str:
    """The name of a run's net."""
    return str(run.net.name)
