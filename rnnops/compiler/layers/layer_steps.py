"""Runs a backward pass layer by layer: what `pullback.layers` iterates over.

Between two layers it holds only what later ones read. What it yields it holds no more, and shares no memory with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rnnops.compiler.execute.forward import ScanResiduals
from rnnops.compiler.layers.find_layers import layer_numbers
from rnnops.compiler.layers.layer_plan import LayerStep, layered_backward, plan_layers
from rnnops.compiler.pipeline import TrainingPlan
from rnnops.errors import GradientError
from rnnops.interpreter import Workspace, is_whole, run_call
from rnnops.op import Op
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import RunContext
from rnnops.twin_array import TwinArray
from rnnops.types import Array

LayerGradients: TypeAlias = tuple[list[str], list[Array], list[Array], dict[str, Array]]
ARRAYS = (np.ndarray, TwinArray)


def steps_of(plan: TrainingPlan, output: Any, freeze: Any) -> tuple[LayerStep, ...]:
    """The steps of a backward pass. Raises GradientError for names that are no layers.

    Args:
        output: names of layers.
        freeze: the name of a layer, None for all.
    """
    layers, net = layered_backward(plan).layers, plan.program.net.name
    names = [output] if isinstance(output, str) else output
    if not isinstance(names, Sequence):
        raise GradientError("output is no list of layer names", net=net, came=repr(output))
    wanted = layer_numbers(layers, names, "output", net)
    end = None if freeze is None else layer_numbers(layers, [freeze], "freeze", net)[0]
    late = [name for name, number in zip(names, wanted, strict=True) if end is not None and number > end]
    if late:
        raise GradientError(
            f"output names layer '{late[0]}', which comes after layer '{freeze}', where freeze stops the backward pass",
            net=net,
            hint="Leave it out of output, or name a lower layer in freeze.",
        )
    return plan_layers(plan, wanted, end)


def run_steps(
    steps: Sequence[LayerStep], workspace: Workspace, context: RunContext, values: Mapping[str, Array], owner: Any
) -> Generator[LayerGradients, None, None]:
    """Run the backward pass, one layer at each iteration.

    Args:
        workspace: holds the inputs of all steps; it is emptied on the way.
        values: input of the net -> the array that was fed.
        owner: the pullback; it stays alive until the pass is over, and lets go of what it was lent then.
    """
    try:
        borrowed = _Borrowed(workspace)
        read = {name for step in steps for name in step.program.net.input_names}
        read |= {grad for step in steps for _, grad in (*step.params, *step.inputs)}
        for name in set(workspace) - read:
            workspace.drop(name)
        for step in steps:
            _run(step, workspace, context, owner.kernels_of(step.program, step.kernels))
            for op, name, read_later in step.steps_read:
                _forget(workspace[name], op, read_later)
            _keep_from_changes(workspace, [owner.as_read(values[name]) for name, _ in step.params])
            yield _results(step, workspace, values, borrowed)
    finally:
        owner.release()


def _run(step: LayerStep, workspace: Workspace, context: RunContext, kernels: Mapping[str, Any]) -> None:
    for (call, schema, _), dead in zip(step.program.steps, step.dead, strict=False):
        results = run_call(call, schema, workspace, context, kernels.get(call.op.key))
        for name, array in zip(call.op.outputs, results, strict=True):
            if name:
                workspace[name] = array
        del results
        for name in dead:
            workspace.drop(name)


def _forget(held: Any, op: Op, read: Collection[str]) -> None:
    """Let go of what a recurrence kept of its steps, but for what layers below read."""
    recurrence = Recurrence(op, "")
    blobs = recurrence.cell.output_blobs
    states = {state.input for state in recurrence.states if state.input in read or blobs[state.output] in read}
    held.states = {name: array for name, array in held.states.items() if name in states}
    held.outputs = {name: array for name, array in held.outputs.items() if blobs[name] in read}
    if isinstance(held, ScanResiduals):
        held.kept = {name: array for name, array in held.kept.items() if name in read}
    else:
        for workspace in held.steps:
            workspace.local = {name: array for name, array in workspace.local.items() if name in read}


def _results(step: LayerStep, workspace: Workspace, values: Mapping[str, Array], borrowed: _Borrowed) -> LayerGradients:
    """What is yielded for one layer, taken out of the workspace."""
    arrays = [workspace[grad] for _, grad in (*step.params, *step.inputs)]
    for name in step.dead[-1]:
        workspace.drop(name)
    for place, array in enumerate(arrays):
        others = (*arrays[:place], *_arrays(workspace))
        shared = any(np.may_share_memory(array, other) for other in others) or borrowed.holds(array)
        if shared or not array.flags.writeable or not _is_whole(array):
            arrays[place] = array.copy()
    names, count = [name for name, _ in step.params], len(step.params)
    inputs = zip((name for name, _ in step.inputs), arrays[count:], strict=True)
    return names, [values[name] for name in names], arrays[:count], dict(inputs)


def _keep_from_changes(workspace: Workspace, params: Sequence[Array]) -> None:
    """Copy what is still to be read of arrays that the consumer may now overwrite."""
    for name in workspace:
        array = workspace[name]
        if isinstance(array, ARRAYS) and any(np.may_share_memory(array, param) for param in params):
            workspace[name] = array.copy()


def _arrays(workspace: Workspace) -> list[Array]:
    return [array for name in workspace if isinstance(array := workspace[name], ARRAYS)]


def _is_whole(array: Any) -> bool:
    """Whether an array is most of the memory that it keeps alive, on any device."""
    return 4 * array.nbytes >= 3 * array.base.nbytes if isinstance(array, TwinArray) else is_whole(array)


class _Borrowed:
    """The arrays that a backward pass was given, without keeping them alive."""

    def __init__(self, workspace: Workspace) -> None:
        self._owners = [weakref.ref(_owner(array)) for array in _arrays(workspace)]

    def holds(self, array: Array) -> bool:
        """Whether somebody else may have the memory of an array."""
        owners = (ref() for ref in self._owners)
        if isinstance(array, TwinArray):
            return any(owner is array.base for owner in owners)
        return any(isinstance(owner, np.ndarray) and np.may_share_memory(array, owner) for owner in owners)


def _owner(array: Any) -> Any:
    """The array that an array is a view of; on another device, the memory that it lies in."""
    if isinstance(array, TwinArray):
        return array.base
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
