"""A backward pass cut into steps, one for each layer, and how `pullback.layers` runs them.

**The backward pass of a plan by layers** (`layered_backward`): which gradient op belongs to which layer. It is the
plan's backward net before fusion, with stacks in one recurrence split. A gradient op belongs to the layer of the
forward op whose gradient rule made it. Sums of gradients, and ops that run again, belong to no layer yet.

**Steps** (`plan_layers`), one for each layer, the last layer first. An op runs in the step of its layer, or earlier if
an earlier step needs it, as with a layer that is opened twice. Ops that run again do so in the first step that reads
them; their results stay for later steps. Gradients are added up as soon as all of them are computed. The gradient of a
parameter is returned with the lowest layer that uses it. Ops are fused within a step, never across steps.

**Runs a backward pass layer by layer** (`run_steps`). Between two layers it holds only arrays that later steps read. It
keeps no arrays that it has yielded, and shares no memory with them.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

import numpy as np

from rnnops.checkpoints.policy import backward_net
from rnnops.compiler.lower.scan import Role, UnsupportedError
from rnnops.compiler.rewrite.fuse_ops import fuse_ops
from rnnops.compiler.run.backward import compile_backward
from rnnops.compiler.run.compile_programs import Runner
from rnnops.compiler.run.compiled_scan import CompiledScan, Options
from rnnops.compiler.run.find_layers import (
    LayerPart,
    NetLayer,
    OpPart,
    backward_parts,
    find_layers,
    handed_down,
    layer_numbers,
    result_names,
    split_gradient,
)
from rnnops.compiler.run.forward import ScanResiduals, compile_groups
from rnnops.compiler.run.pipeline import TrainingPlan, input_types
from rnnops.compiler.schedule.rows import past_end_reads
from rnnops.errors import GradientError
from rnnops.interpreter import Program, Workspace, execute, is_whole, prepare, prepare_again, prune
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, RunContext
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.types import Array, TwinArray


@dataclass(frozen=True)
class LayeredBackward:
    """A backward pass whose ops know their layers.

    Args:
        layers: the layers, the last one first.
        program: all ops; its outputs are the gradients of `wrt`.
        owners: blob -> the forward op, or part of one, that its gradient op belongs to.
        kernels: blob -> the runner of the op that makes it.
        numbers: forward op -> the position of its layer in `layers`.
        contributions: (forward blob, key of a forward op that reads it, blob that this op adds to the blob's gradient).
    """

    layers: tuple[NetLayer, ...]
    program: Program
    owners: Mapping[str, OpPart]
    kernels: Mapping[str, Runner]
    numbers: Mapping[OpPart, int]
    contributions: Sequence[tuple[str, str, str]]

    def layer_of(self, op: Op) -> int | None:
        """The layer of a gradient op; None for sums and for ops that run again."""
        owner = next((self.owners[name] for name in op.outputs if name in self.owners), None)
        return None if owner is None else self.numbers.get(owner)

    def contribution_layer(self, key: str, grad: str) -> int | None:
        """The layer of a forward op that adds a blob to a gradient."""
        owner = self.owners.get(grad, (key, 0))
        return self.numbers.get(owner if owner[0] == key else (key, 0))


def layered_backward(plan: TrainingPlan) -> LayeredBackward:
    """The backward pass of a plan by layers. It is made once for each plan."""
    found: LayeredBackward = plan.derived.get("layers", lambda: _layered(plan))
    return found


def _layered(plan: TrainingPlan) -> LayeredBackward:
    net = backward_net(plan.unfused, plan.gradient, plan.residuals)
    runs = plan.compiled.backward
    kernels = {
        name: runs[call.op.key]
        for call in plan.backward.calls
        if call.op.type != "FusedOps" and call.op.key in runs
        for name in filter(None, call.op.outputs)
    }
    parts = {call.op.key: found for call in plan.unfused.calls if _may_split(call) and (found := backward_parts(call))}
    program, owners = _split(net, parts, plan)
    for key in list(parts):
        calls = [call for call in program.calls if owners.get(call.op.key, ("", 0))[0] == key]
        whole = next((kernels[name] for call in calls for name in call.op.outputs if name in kernels), None)
        if whole is not None:
            compiled = whole.compiled and _compile_parts(calls, whole.compiled, plan.options)
            if compiled is None:
                del parts[key]
            kernels.update(compiled or {})
    program, owners = _split(net, parts, plan)
    layers = find_layers(plan.unfused, parts)
    numbers = {op: k for k, layer in enumerate(layers) for op in layer.ops}
    contributions = (*plan.gradient.contributions, *_between_parts(net, parts, plan))
    return LayeredBackward(layers, program, owners, kernels, numbers, contributions)


def _may_split(call: Call) -> bool:
    """True if a recurrence may become several layers; one that runs in parts of its steps does not."""
    return is_training_form(call.op) and not runs_in_parts(call.op) and not call.op.layer


def _split(net: Net, parts: Mapping[str, Sequence[LayerPart]], plan: TrainingPlan) -> tuple[Program, dict[str, OpPart]]:
    """The backward net with recurrences split into parts; and blob -> the forward op that it belongs to."""
    ops: list[Op] = []
    owners: dict[str, OpPart] = {}
    for op in net.ops:
        key = next((plan.gradient.origins[name] for name in op.outputs if name in plan.gradient.origins), None)
        split = op.type == "RecurrentNetworkGradient" and key in parts
        for k, part in enumerate(split_gradient(op, net.name, parts[key]) if split and key else [op]):
            made = [name for name in part.outputs if name]
            ops += [part] if made else []
            owners.update((name, (key, k)) for name in made if key is not None)
    return prepare(net.with_ops(ops), input_types(net), plan.unfused.float_dtype), owners


def _between_parts(
    net: Net, parts: Mapping[str, Sequence[LayerPart]], plan: TrainingPlan
) -> Iterator[tuple[str, str, str]]:
    """Contributions between parts of a recurrence: (name of a state's result, key of the op, blob that a part above
    adds to its gradient)."""
    forward = {call.op.key: call.op for call in plan.unfused.calls if call.op.key in parts}
    for op in net.ops:
        key = plan.gradient.origins.get(op.key, "")
        if op.type == "RecurrentNetworkGradient" and key in parts:
            recurrence = Recurrence(forward[key], net.name)
            names = dict(zip(recurrence.output_names(), result_names(forward[key])[::2], strict=True))
            for part in parts[key]:
                yield from ((names[goal], key, handed_down(op, name)) for name, goal in part.given.items() if goal)


def _compile_parts(calls: Sequence[Call], whole: CompiledScan, options: Options) -> dict[str, Runner] | None:
    """Blob -> runner, for the parts of a recurrence; None if a part cannot be compiled, or would read values in
    finished rows that the forward pass does not store.

    Args:
        whole: the backward pass in one piece. In finished rows the forward pass stores only the values that it reads.
    """
    found: dict[str, Runner] = {}
    if whole.layouts.again is not None:
        return None
    for call in calls:
        if call.op.type != "RecurrentNetworkGradient":
            continue
        try:
            kernel = compile_backward(call, options)
        except UnsupportedError:
            return None
        kept = {Role.KEPT.of(name) for name in call.op.attributes["keep"]}
        if not past_end_reads(kernel.compiled.plan) & kept <= past_end_reads(whole.plan):
            return None
        found.update((name, kernel) for name in call.op.outputs if name)
    return found


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LayerStep:
    """The part of a backward pass for one layer.

    Args:
        program: the ops of the step.
        kernels: key of an op -> its runner.
        stay: blobs that stay in the workspace after the ops have run.
        gone: blobs of the workspace that later steps do not read; they are dropped at the end of the step.
        params: (input of the net, blob of its gradient), for gradients that are returned with this layer.
        inputs: (blob that the layer reads, blob of its gradient), if these are wanted.
        steps_read: for recurrences: (op, its step workspaces, blobs of a step that later layers read).
    """

    program: Program
    kernels: Mapping[str, Runner]
    stay: frozenset[str]
    gone: tuple[str, ...]
    params: Pairs
    inputs: Pairs
    steps_read: tuple[tuple[Op, str, frozenset[str]], ...] = ()


def plan_layers(plan: TrainingPlan, output: Sequence[int], freeze: int | None) -> tuple[LayerStep, ...]:
    """The steps of a backward pass; made once for each set of arguments.

    Args:
        output: positions, in backward order, of layers whose inputs' gradients are wanted.
        freeze: the position of the last layer to run; None for all.

    Raises GradientError for a layer without gradients of inputs.
    """
    steps: tuple[LayerStep, ...] = plan.derived.get(
        (tuple(sorted(set(output))), freeze), lambda: _LayerCut(plan, sorted(set(output)), freeze).steps()
    )
    return steps


class _LayerCut:
    """One way to cut the backward pass of a plan."""

    def __init__(self, plan: TrainingPlan, output: Sequence[int], freeze: int | None) -> None:
        self.plan, self.layered = plan, layered_backward(plan)
        self.last = len(self.layered.layers) - 1
        self.end = self.last if freeze is None else freeze
        self.ops = list(self.layered.program.net.ops)
        self.inputs = {number: self._input_grads(number) for number in output}
        self.places = _places(self.ops, self.layered, set(plan.gradient.output_grads.values()))
        self.params = self._params()

    def steps(self) -> tuple[LayerStep, ...]:
        """All steps up to the last one wanted."""
        results = [pair for k in range(self.end + 1) for pair in (*self.params.get(k, ()), *self.inputs.get(k, ()))]
        net = self.layered.program.net
        pruned = prune(net.with_ops(self.ops, {f"{k} {name}": grad for k, (name, grad) in enumerate(results)}), ())
        program = prepare_again(self.layered.program, pruned)
        at: list[list[Op]] = [[] for _ in range(self.end + 1)]
        for op in pruned.ops:
            at[int(min(self.places[name] for name in op.outputs if name))].append(op)
        needed: set[str] = set()  # blobs that later steps read or return
        of_steps: dict[str, frozenset[str]] = {}
        steps: list[LayerStep] = []
        for k in reversed(range(self.end + 1)):
            step = replace(self._step(k, at[k], program, frozenset(needed)), steps_read=_steps_read(at[k], of_steps))
            needed.update(name for op in at[k] for name in op.inputs if name)
            needed.update(grad for _, grad in (*step.params, *step.inputs))
            steps.append(step)
        return tuple(steps[::-1])

    def _step(self, k: int, ops: Sequence[Op], whole: Program, needed: frozenset[str]) -> LayerStep:
        params, inputs = tuple(self.params.get(k, ())), tuple(self.inputs.get(k, ()))
        stay = needed | {grad for _, grad in (*params, *inputs)}
        made = [name for op in ops for name in op.outputs if name]
        read = dict.fromkeys(name for op in ops for name in op.inputs if name and name not in set(made))
        specs = [Input(name, whole.types[name].dtype, whole.types[name].shape) for name in read]
        net = whole.net.with_ops(ops, {name: name for name in made if name in stay}, specs).snapshot()
        program, kernels = self._compiled(prepare_again(whole, net))
        unread = set(program.net.input_names).difference(stay, *(op.inputs for op in program.net.ops))
        return LayerStep(program, kernels, stay, (*sorted(stay - needed), *sorted(unread)), params, inputs)

    def _compiled(self, program: Program) -> tuple[Program, dict[str, Runner]]:
        options = self.plan.options
        if options.around != "none":
            program = fuse_ops(program, (), options.around == "all")
        kernels = {
            op.key: self.layered.kernels[name]
            for op in program.net.ops
            if op.type != "FusedOps"
            for name in op.outputs
            if name in self.layered.kernels
        }
        return program, {**kernels, **compile_groups(program, options, {})}

    def _params(self) -> dict[int, list[tuple[str, str]]]:
        """Step -> (input, gradient) of inputs whose gradients are complete and which no later step reads."""
        forward = self.layered.layers
        found: dict[int, list[tuple[str, str]]] = {}
        for name, grad in self.layered.program.net.output_blobs.items():
            users = [k for k, layer in enumerate(forward) if name in layer.reads]
            users += [int(self.places[o]) for op in self.ops if name in op.inputs for o in op.outputs if o]
            made = self.places.get(grad, 0)
            step = max([*users, *([int(made)] if made < inf else [])], default=self.last)
            self.places[grad] = min(made, step)
            found.setdefault(step, []).append((name, grad))
        return found

    def _input_grads(self, number: int) -> list[tuple[str, str]]:
        """Blobs that a layer reads -> the blob that it adds to their gradients. If there are several, ops that add them
        are appended."""
        layer, net = self.layered.layers[number], self.plan.unfused.net
        mine = {spec.name for spec in net.parameters} | layer.makes
        parts: dict[str, list[str]] = {}
        for name, key, grad in self.layered.contributions:
            there = grad in self.layered.program.types and name not in mine
            if there and self.layered.contribution_layer(key, grad) == number:
                parts.setdefault(name, []).append(grad)
        if not parts:
            raise GradientError(
                f"output names layer '{layer.names[0]}', to whose inputs no gradient flows",
                net=net.name,
                wanted="a layer that reads results of others, or inputs of the net that are not parameters",
                hint="Inputs of the net must be in wrt= of run.vjp.",
            )
        return [(name, self._sum(name, number, grads)) for name, grads in parts.items()]

    def _sum(self, name: str, number: int, grads: Sequence[str]) -> str:
        total = grads[0]
        for k, grad in enumerate(grads[1:]):
            added = f"layer {number}/{name}/{k}"
            self.ops.append(Op("Add", (total, grad), (added,)))
            total = added
        return total


def _places(ops: Sequence[Op], layered: LayeredBackward, given: set[str]) -> dict[str, float]:
    """Blob -> the step in which the op runs that makes it; `inf` if it is read in no step."""
    places: dict[str, float] = {}
    flows = set(given)  # blobs that depend on gradients from outside
    for op in ops:
        if any(name in flows for name in op.inputs):
            flows.update(op.outputs)
    for op in reversed(ops):
        number = layered.layer_of(op)
        place = min([inf if number is None else number, *(places[name] for name in op.outputs if name in places)])
        for name in op.inputs:
            places[name] = min(places.get(name, inf), place)
        places.update((name, place) for name in op.outputs if name)
    for op in ops:
        if layered.layer_of(op) is None and any(name in flows for name in op.inputs):
            makers = [places[name] for name in op.inputs if name and name not in given]
            places.update((name, max(makers, default=0)) for name in op.outputs if name)
    return places


def _steps_read(ops: Sequence[Op], later: dict[str, frozenset[str]]) -> tuple[tuple[Op, str, frozenset[str]], ...]:
    """For each gradient of a recurrence: the blobs of its steps that gradients of later layers read.

    Args:
        later: step workspaces -> blobs that later layers read. The reads of these ops are added.
    """
    found = []
    for op in reversed(ops):
        if op.type == "RecurrentNetworkGradient":
            name = op.inputs[len(op.attributes["types"])]
            if name in later:
                found.append((op, name, later[name]))
            later[name] = later.get(name, frozenset()) | set(op.attributes["backward"].input_names)
    return tuple(found)


LayerGradients: TypeAlias = tuple[list[str], list[Array], list[Array], dict[str, Array]]
ARRAYS = (np.ndarray, TwinArray)


def steps_of(plan: TrainingPlan, output: Any, freeze: Any) -> tuple[LayerStep, ...]:
    """The steps of a backward pass. Raises GradientError for names that are not layers.

    Args:
        output: names of layers.
        freeze: the name of the last layer to run; None for all.
    """
    layers, net = layered_backward(plan).layers, plan.program.net.name
    names = [output] if isinstance(output, str) else output
    if not isinstance(names, Sequence):
        raise GradientError("output is not a list of layer names", net=net, came=repr(output))
    wanted = layer_numbers(layers, names, "output", net)
    end = None if freeze is None else layer_numbers(layers, [freeze], "freeze", net)[0]
    late = [name for name, number in zip(names, wanted, strict=True) if end is not None and number > end]
    if late:
        raise GradientError(
            f"output names layer '{late[0]}', but freeze='{freeze}' stops the backward pass before it",
            net=net,
            hint="Leave it out of output, or name a lower layer in freeze.",
        )
    return plan_layers(plan, wanted, end)


def run_steps(
    steps: Sequence[LayerStep], workspace: Workspace, context: RunContext, values: Mapping[str, Array], owner: Any
) -> Generator[LayerGradients, None, None]:
    """Run the backward pass, one layer at each iteration.

    Args:
        workspace: holds the inputs of all steps. Each is dropped after its last use.
        values: input of the net -> the array that was fed.
        owner: the pullback. It stays alive until the pass is over, and gives lent outputs back then.
    """
    try:
        borrowed = _Borrowed(workspace)
        read = {name for step in steps for name in step.program.net.input_names}
        read |= {grad for step in steps for _, grad in (*step.params, *step.inputs)}
        for name in set(workspace) - read:
            workspace.drop(name)
        for step in steps:
            kernels = owner.kernels_of(step.program, step.kernels)
            execute(step.program, workspace, context, step.stay, None, kernels, step.program.net.input_names)
            for op, name, read_later in step.steps_read:
                _forget(workspace[name], op, read_later)
            _keep_from_changes(workspace, [owner.as_read(values[name]) for name, _ in step.params])
            yield _results(step, workspace, values, borrowed)
    finally:
        owner.release()


def _forget(held: Any, op: Op, read: Collection[str]) -> None:
    """Drop the values that a recurrence kept of its steps, except those that layers below read."""
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
    """The result for one layer. Its arrays leave the workspace and are the consumer's own."""
    arrays = [workspace[grad] for _, grad in (*step.params, *step.inputs)]
    for name in step.gone:
        workspace.drop(name)
    for place, array in enumerate(arrays):
        others = (*arrays[:place], *_arrays(workspace))
        shared = any(np.may_share_memory(array, other) for other in others) or borrowed.holds(array)
        if shared or not array.flags.writeable or not is_whole(array):
            arrays[place] = array.copy()
    names, count = [name for name, _ in step.params], len(step.params)
    inputs = zip((name for name, _ in step.inputs), arrays[count:], strict=True)
    return names, [values[name] for name in names], arrays[:count], dict(inputs)


def _keep_from_changes(workspace: Workspace, params: Sequence[Array]) -> None:
    """Copy arrays of the workspace that share memory with `params`, which the consumer may overwrite from now on."""
    for name in workspace:
        array = workspace[name]
        if isinstance(array, ARRAYS) and any(np.may_share_memory(array, param) for param in params):
            workspace[name] = array.copy()


def _arrays(workspace: Workspace) -> list[Array]:
    return [array for name in workspace if isinstance(array := workspace[name], ARRAYS)]


class _Borrowed:
    """Knows the arrays that a backward pass was given, without keeping them alive."""

    def __init__(self, workspace: Workspace) -> None:
        self._owners = [weakref.ref(_owner(array)) for array in _arrays(workspace)]

    def holds(self, array: Array) -> bool:
        """True if an array shares memory with an array that the pass was given and that is still alive."""
        owners = (ref() for ref in self._owners)
        if isinstance(array, TwinArray):
            return any(owner is array.base for owner in owners)
        return any(isinstance(owner, np.ndarray) and np.may_share_memory(array, owner) for owner in owners)


def _owner(array: Any) -> Any:
    """The array that owns an array's memory; on another device, the memory itself."""
    if isinstance(array, TwinArray):
        return array.base
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
