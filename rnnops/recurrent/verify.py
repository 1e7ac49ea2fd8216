"""Checks the attributes of recurrence ops, which may come from text: names that exist, rows of the right form."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.net import Net
from rnnops.recurrent.recurrence import Recurrence


def verify_recurrence(recurrence: Recurrence) -> None:
    """Raise RecurrentError unless every attribute says something about the cell that can be."""
    attributes = recurrence.op.attributes
    if not isinstance(attributes["cell"], Net):
        recurrence.fail("attribute 'cell' is no net")
    for name in ("inputs", "references", "recompute", "keep"):
        _check_names(recurrence, name, attributes.get(name, ()), recurrence.cell.blob_names)
    for row in _rows(recurrence, "states", attributes.get("states", ())):
        _check_state(recurrence, row)
    _check_numbers(recurrence)
    _check_bound(recurrence)
    if "backward" in attributes:
        _check_backward(recurrence)


def _rows(recurrence: Recurrence, name: str, rows: object) -> Sequence[object]:
    if not isinstance(rows, tuple):
        recurrence.fail(f"attribute '{name}' is no list", came=repr(rows))
    return rows


def _check_names(recurrence: Recurrence, name: str, names: object, known: Sequence[str]) -> None:
    for item in _rows(recurrence, name, names):
        if not isinstance(item, str) or item not in known:
            recurrence.fail(f"attribute '{name}' names no blob of the cell", blob=str(item))


def _check_state(recurrence: Recurrence, row: object) -> None:
    form = "[input, output, window, offset, features]"
    if not isinstance(row, tuple) or len(row) != 5 or not all(isinstance(part, str) for part in row[:2]):
        recurrence.fail("a state of a wrong form", wanted=form, came=repr(row))
    name, output, window, offset, features = row
    if output not in recurrence.cell.output_blobs:
        recurrence.fail("a link to nothing", blob=name, came=output)
    if not _is_size(window, least=1) or not (offset is None or _is_size(offset)):
        recurrence.fail("a link's window or offset is out of range", blob=name, came=(window, offset))
    if features is not None and not (
        isinstance(features, tuple) and all(size is None or _is_size(size) for size in features)
    ):
        recurrence.fail("a state's feature sizes are no sizes", blob=name, came=repr(features))


def _check_numbers(recurrence: Recurrence) -> None:
    attributes = recurrence.op.attributes
    for name in ("steps", "reverse", "forward_only"):
        if name in attributes and not _is_size(attributes[name]):
            recurrence.fail(f"attribute '{name}' is no number", came=repr(attributes[name]))
    for place in _rows(recurrence, "outputs_with_grads", attributes.get("outputs_with_grads", ())):
        if not _is_size(place):
            recurrence.fail("outputs_with_grads names no result", came=repr(place))


def _check_bound(recurrence: Recurrence) -> None:
    """Every input of the cell is bound once, the op has an input for each, no two states follow one output."""
    inputs = len(recurrence.op.inputs)
    if recurrence.op.type == "RecurrentNetwork" and "" in recurrence.op.inputs:
        recurrence.fail("an input is left out", blob=recurrence.ports()[recurrence.op.inputs.index("")])
    if recurrence.op.type == "RecurrentNetwork" and inputs != len(recurrence.ports()):
        recurrence.fail("wrong number of inputs", wanted=len(recurrence.ports()), came=inputs)
    timestep = recurrence.timestep
    bound = [*recurrence.ports(), *([] if timestep is None else [timestep])]
    if sorted(map(str, bound)) != sorted(recurrence.cell.input_names):
        recurrence.fail("inputs of the cell are not bound once each", wanted=recurrence.cell.input_names, came=bound)
    if timestep is not None and recurrence.cell.dtype_of(timestep) != "int32":
        recurrence.fail("the timestep must be an int32 input of the cell", blob=timestep)
    outputs = [state.output for state in recurrence.states]
    if len(set(outputs)) != len(outputs):
        recurrence.fail("two states follow one output", came=outputs)


def _check_backward(recurrence: Recurrence) -> None:
    attributes = recurrence.op.attributes
    if not isinstance(attributes["backward"], Net):
        recurrence.fail("attribute 'backward' is no net")
    for row in _rows(recurrence, "output_grads", attributes.get("output_grads", ())):
        if not isinstance(row, tuple) or len(row) != 2 or row[1] not in attributes["backward"].input_names:
            recurrence.fail("output_grads names no input of the backward net", came=repr(row))


def _is_size(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
