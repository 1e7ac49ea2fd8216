"""The backward pass of a plan by layers: which gradient op belongs to which layer, stacks split into theirs.

It is the plan's backward net before fusion. Gradient ops belong to the layer of the op whose rule made them; sums of
gradients and ops that run again belong to none yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rnnops.checkpoints.residuals import backward_net
from rnnops.compiler.execute.backward import compile_backward
from rnnops.compiler.execute.compiled import Runner
from rnnops.compiler.execute.compiled_scan import CompiledScan, Options
from rnnops.compiler.ir.lowered import UnsupportedError
from rnnops.compiler.ir.tensor_name import Role
from rnnops.compiler.layers.find_layers import Layer, OpPart, find_layers, result_names
from rnnops.compiler.layers.split_recurrence import Part, backward_parts, handed_down, split_gradient
from rnnops.compiler.pipeline import TrainingPlan, input_types
from rnnops.compiler.schedule.compaction import past_end_reads
from rnnops.interpreter import Program, prepare
from rnnops.net import Net
from rnnops.op import Op
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.schema import Call


@dataclass(frozen=True)
class LayeredBackward:
    """A backward pass whose ops know their layers.

    Args:
        layers: the last one first.
        program: all ops, the gradients of `wrt` its outputs.
        owners: blob -> the forward op, or part of one, that its gradient op belongs to.
        kernels: blob -> what runs the op that makes it, in place of its reference.
        numbers: forward op -> the place of its layer in `layers`.
        contributions: (forward blob, key of a forward op that reads it, what that adds to the blob's gradient).
    """

    layers: tuple[Layer, ...]
    program: Program
    owners: Mapping[str, OpPart]
    kernels: Mapping[str, Runner]
    numbers: Mapping[OpPart, int]
    contributions: Sequence[tuple[str, str, str]]

    def layer_of(self, op: Op) -> int | None:
        """The layer of a gradient op, None for sums and what runs again."""
        owner = next((self.owners[name] for name in op.outputs if name in self.owners), None)
        return None if owner is None else self.numbers.get(owner)

    def contribution_layer(self, key: str, grad: str) -> int | None:
        """The layer of a forward op that adds a blob to a gradient."""
        owner = self.owners.get(grad, (key, 0))
        return self.numbers.get(owner if owner[0] == key else (key, 0))


def layered_backward(plan: TrainingPlan) -> LayeredBackward:
    """Find the layers of a plan and who belongs to them; made once for each plan."""
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
    """Whether a recurrence may become several layers; one that runs in parts of its steps does not."""
    return is_training_form(call.op) and not runs_in_parts(call.op) and not call.op.layer


def _split(net: Net, parts: Mapping[str, Sequence[Part]], plan: TrainingPlan) -> tuple[Program, dict[str, OpPart]]:
    """The backward net with recurrences as their parts, and which op each blob belongs to."""
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


def _between_parts(net: Net, parts: Mapping[str, Sequence[Part]], plan: TrainingPlan) -> Iterator[tuple[str, str, str]]:
    """What parts of a recurrence add to the gradients of states below."""
    forward = {call.op.key: call.op for call in plan.unfused.calls if call.op.key in parts}
    for op in net.ops:
        key = plan.gradient.origins.get(op.key, "")
        if op.type == "RecurrentNetworkGradient" and key in parts:
            recurrence = Recurrence(forward[key], net.name)
            names = dict(zip(recurrence.output_names(), result_names(forward[key])[::2], strict=True))
            for part in parts[key]:
                yield from ((names[goal], key, handed_down(op, name)) for name, goal in part.given.items() if goal)


def _compile_parts(calls: Sequence[Call], whole: CompiledScan, options: Options) -> dict[str, Runner] | None:
    """Kernels of the parts of a recurrence, by blob; None where they would read what the forward pass left out.

    Args:
        whole: the backward pass in one piece; past the end of a row the forward pass stores what that reads.
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
