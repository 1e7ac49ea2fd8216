"""What `--cell` names: a preset, or a function of one's own that builds a cell."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rnnops.arguments import did_you_mean
from rnnops.cells import CELLS, RNNCell
from rnnops.errors import RnnopsError

CellBuilder = Callable[[int, int, str], Any]


class CellError(RnnopsError):
    """`--cell` names nothing that builds a cell."""


def build_cell(spec: str, input_size: int, hidden_size: int, name: str, recompute: bool = False) -> RNNCell:
    """Build the cell that `--cell` names.

    Args:
        spec: a preset, or `module:function`; the function gets (input_size, hidden_size, name) and returns an RNNCell.
            Its module is looked for in the working directory too.
        recompute: turn the cell's `memory_optimization` on.

    Raises CellError, and what rnnops itself says about the cell.
    """
    if is_own(spec):
        with _working_directory_on_path():
            cell = _call(spec, _function(spec), input_size, hidden_size, name)
    elif spec in CELLS:
        cell = CELLS[spec](input_size, hidden_size, name=name, **CELLS[spec].training_options)
    else:
        wanted = f"{', '.join(CELLS)} or module:function"
        raise CellError("unknown cell", wanted=wanted, came=repr(spec), hint=did_you_mean(spec, CELLS))
    if recompute:
        _turn_on_recompute(spec, cell)
    return cell


def is_own(spec: str) -> bool:
    """Whether a spec names a function instead of a preset."""
    return ":" in spec


def _function(spec: str) -> CellBuilder:
    module_name, _, function_name = spec.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except Exception as error:  # a module of the user's may fail in any way
        _fail(spec, f"the module '{module_name}' cannot be imported ({type(error).__name__}: {error})", error)
    if not callable(function):
        _fail(spec, f"the module '{module_name}' has no function '{function_name}'")
    return function  # type: ignore[no-any-return]


def _call(spec: str, function: CellBuilder, input_size: int, hidden_size: int, name: str) -> RNNCell:
    try:
        cell = function(input_size, hidden_size, name)
    except RnnopsError:
        raise
    except Exception as error:
        _fail(spec, f"the function failed ({type(error).__name__}: {error})", error)
    if not isinstance(cell, RNNCell):
        raise CellError(f"--cell {spec}: no cell came back", wanted="an rnnops.cells.RNNCell", came=type(cell).__name__)
    return cell


def _turn_on_recompute(spec: str, cell: RNNCell) -> None:
    if not hasattr(cell, "memory_optimization"):
        hint = (
            "Leave --recompute out, or give the cell the attribute and label its blobs as rnnops.cells.LSTMCell does."
        )
        raise CellError(f"--recompute: the cell {spec} has no memory_optimization", hint=hint)
    cell.memory_optimization = True


def _fail(spec: str, problem: str, cause: Exception | None = None) -> NoReturn:
    hint = "Write module:function; the function gets (input_size, hidden_size, name)."
    raise CellError(f"--cell {spec}: {problem}", hint=hint) from cause


@contextmanager
def _working_directory_on_path() -> Iterator[None]:
    """Let modules of the working directory be imported, as `python -m` does; a console script does not."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
