"""Named arrays of a model: names with dots for people, with slashes in nets; checks before anything is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnops.compiler.buffers.memory import on_host
from rnnops.errors import RnnopsError
from rnnops.foreign_arrays import from_dlpack
from rnnops.types import Array, Type, type_of

Arrays = dict[str, Array]
TOLD = 12  # lines of one error


def dotted(name: str) -> str:
    """`encoder/layer_0/gates_t_w` -> `encoder.layer_0.gates_t_w`."""
    return name.replace("/", ".")


def by_dotted_names(arrays: Mapping[str, Array]) -> Arrays:
    """Copies by their names for people."""
    return {
        dotted(name): on_host(array) if hasattr(array, "to_host") else array.copy() for name, array in arrays.items()
    }


def checked(
    given: Mapping[str, Any], wanted: Mapping[str, Type], model: str, complete: bool, error: type[RnnopsError]
) -> Arrays:
    """Copies of arrays, by the names in nets.

    Args:
        given: by dotted names.
        wanted: what there is, by the names in nets.
        complete: whether every wanted array must be there.

    Raises the error, with a line for each array that is unknown, missing or of another type, up to 12.
    """
    names = {dotted(name): name for name in wanted}
    arrays = {name: _as_array(name, value, error) for name, value in given.items()}
    known = {name: wanted[own] for name, own in names.items() if complete or name in arrays}
    check_arrays(arrays, known, model, error)
    return {names[name]: np.array(array, order="C") for name, array in arrays.items()}


def check_arrays(arrays: Mapping[str, Array], wanted: Mapping[str, Type], owner: str, error: type[RnnopsError]) -> None:
    """Raise the error, with a line for each array that is unknown, missing or of another type, up to 12."""
    came = {name: type_of(array) for name, array in arrays.items()}
    problems = [f"{name}: unknown, {kind}" for name, kind in came.items() if name not in wanted]
    problems += [f"{name}: missing, {kind}" for name, kind in wanted.items() if name not in came]
    both = [(name, came[name], wanted[name]) for name in came if name in wanted]
    problems += [f"{name}: {kind} instead of {own}" for name, kind, own in both if kind != own]
    if problems:
        told = _told(problems)
        text = f"arrays do not fit {owner}; nothing was changed:\n  " + "\n  ".join(told)
        if any(problem.startswith("optimizer.") for problem in problems):
            text += "\nset_optimizer(...) as it was, or load(..., include_state=False) for parameters alone"
        raise error(text)


def _told(problems: Sequence[str]) -> list[str]:
    """The first problems of many, those of parameters before those that follow from them, and how many more."""
    first = sorted(problems, key=lambda problem: problem.startswith("optimizer."))
    left = len(first) - TOLD
    return [*first[:TOLD], *([f"and {left} more"] if left > 0 else [])]


def _as_array(name: str, value: Any, error: type[RnnopsError]) -> Array:
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return from_dlpack(value)
        except Exception as problem:  # whatever the other library raises
            raise error(f"this array cannot be read through DLPack: {problem}", blob=name) from problem
    raise error("this is no array", blob=name, wanted="a NumPy array", came=type(value).__name__)
