"""Errors of a run that is a stream's: they say what the stream has, as its states are nothing that the caller feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.compiler.api.stream_states import States
from rnnops.errors import FeedError, RecurrentError, RnnopsError, TypeRuleError
from rnnops.net import Net
from rnnops.types import FLOATS, is_float, type_of


def of_stream(error: RnnopsError, net: Net, now: States, fed: Mapping[str, Any]) -> RnnopsError:
    """The error that says which feed does not fit the states of a stream, else the error as it is.

    Args:
        error: of the run.
        now: states of the stream.
        fed: what the caller fed, by name.
    """
    arrays = {name: value for name, value in fed.items() if isinstance(value, np.ndarray) and name in net.input_names}
    if isinstance(error, FeedError):
        return _of_dtypes(net, now, arrays) or error
    if isinstance(error, RecurrentError | TypeRuleError) and any(state.axis is not None for state in now.places.links):
        return _of_rows(error, now.places.rows, arrays)
    return error


def _of_dtypes(net: Net, now: States, arrays: Mapping[str, np.ndarray]) -> FeedError | None:
    """The error for a float feed of another float dtype than the states have; None where there is none."""
    wanted = next((state.dtype for state in now.places.links if state.dtype in FLOATS), None)
    for name, array in arrays.items():
        came = str(array.dtype)
        if wanted is not None and is_float(net.dtype_of(name)) and came in FLOATS and came != wanted:
            problem, short = (
                "a feed of another dtype than the stream's states",
                name if name.isidentifier() else "array",
            )
            hint = f"Convert it: {short}.astype('{wanted}'); dtype= of run.stream says which dtype states have."
            return FeedError(problem, net=net.name, blob=name, wanted=wanted, came=came, hint=hint)
    return None


def _of_rows(error: RnnopsError, rows: int, arrays: Mapping[str, np.ndarray]) -> RnnopsError:
    """The error with what the stream wants and what it was fed."""
    fed = ", ".join(f"{name} {type_of(array)}" for name, array in arrays.items())
    place = f"This stream has {rows} rows, so a sequence of one step is [1, {rows}, ...]"
    hint = f"{place}; it was fed {fed}." if fed else f"{place}."
    if isinstance(error, TypeRuleError) and error.hint:
        hint = f"{error.hint} {hint}"  # that of a recurrence says how to feed states
    return type(error)(
        error.problem, net=error.net, op=error.op, blob=error.blob, wanted=error.wanted, came=error.came, hint=hint
    )
