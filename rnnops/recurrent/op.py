"""The ops `RecurrentNetwork` and `RecurrentNetworkGradient`: shape rules, reference, gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rnnops.interpreter import Program
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Kernel
from rnnops.net.op import Op
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, RunContext, no_gradient, register
from rnnops.recurrent.recurrence import (
    Recurrence,
    backward_program,
    cell_program,
    input_types,
    is_training_form,
    runs_in_parts,
    verify_recurrence,
)
from rnnops.recurrent.reversed_recurrence import reversed_recurrence
from rnnops.recurrent.stepping import run_backward, run_forward
from rnnops.types import OPAQUE, Array, Shape, Type

ATTRIBUTES: dict[str, Any] = {
    "cell": REQUIRED,
    "inputs": (),
    "states": (),
    "references": (),
    "timestep": None,
    "steps": None,
    "reverse": 0,
    "recompute": (),
    "outputs_with_grads": None,
    "forward_only": 0,
    "keep": (),
    "backward": None,
    "output_grads": (),
    "schedule": None,
    "segments": 0,
    "sums": (),
    "loose": (),
    "wanted": None,
}


class RecurrentNetwork(OpSchema):
    """Steps a cell over T timesteps.

    sequences: [T, N, ...], those in `loose` [T, ...]; initial states: [D], [N, D] or [L, N, D]; references: anything.
    Outputs, for each state and then each other step output: `all` [T, N, ...] and `last` [1, N, ...]. For a step output
    in `sums`, which may have any axes, `all` is its sum over steps.
    """

    inputs = ("bound*",)
    outputs = ("result",)
    attributes: ClassVar[dict[str, Any]] = ATTRIBUTES
    same_dtype = ()
    keeps = ("*",)
    internal = True
    uses_context = True
    optional_grads = True
    may_omit_outputs = True
    loop = Kernel("recurrence")

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        return 2 * len(attributes["cell"].output_blobs) + ("backward" in attributes)

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        cell = attributes["cell"]
        carried = [row[1] for row in attributes.get("states", ())]
        names = [*carried, *(name for name in cell.output_blobs if name not in carried)]
        pairs = [cell.dtype_of(cell.output_blobs[name]) for name in names for _ in range(2)]
        return (*pairs, OPAQUE) if "backward" in attributes else tuple(pairs)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        recurrence = Recurrence(call.op, call.net)
        types = input_types(recurrence, call)
        steps, batch = recurrence.steps_and_batch(types)
        for state in recurrence.states:
            recurrence.initial_steps(state, types[state.input], batch)
        program = cell_program(recurrence, call)
        shapes: list[Shape] = []
        for name in recurrence.output_names():
            shape = program.types[program.net.output_blobs[name]].shape
            shapes += [shape if name in recurrence.sums else (steps, *shape), (1, *shape)]
        self._check_states(recurrence, types, program, batch)
        self._check_last(recurrence, steps)
        return (*shapes, ()) if recurrence.keeps_workspaces else tuple(shapes)

    def reference(self, call: Call, *arrays: Array, context: RunContext) -> Any:
        recurrence = Recurrence(call.op, call.net)
        return run_forward(recurrence, cell_program(recurrence, call), arrays, context)

    def gradient(self, call: Call, *blobs: Blob | None) -> Gradients:
        if not is_training_form(call.op):
            return reversed_recurrence(call, *blobs)
        recurrence = Recurrence(call.op, call.net)
        backward = call.op.attributes["backward"]
        again = runs_in_parts(call.op) or bool(call.op.attributes.get("segments"))
        n = len(call.op.inputs)
        inputs, workspaces, grads = blobs[:n], blobs[n + len(call.op.outputs) - 1], blobs[n + len(call.op.outputs) : -1]
        read = [
            blob if (name in backward.input_names or again) and kind != "initial" else None
            for blob, (kind, name, _) in zip(inputs, recurrence.bindings(), strict=True)
        ]
        net = next(blob.net for blob in grads if blob is not None)
        wanted = tuple(name in recurrence.op.attributes["backward"].output_blobs for name in recurrence.ports())
        attributes = {**call.op.attributes, "types": tuple((t.dtype, t.shape) for t in call.types if t is not None)}
        names = [None if want else "" for want in wanted]
        result = iter(net.append("RecurrentNetworkGradient", [*read, workspaces, *grads], attributes, names))
        return [next(result) if want else None for want in wanted]

    def outputs_without_grads(self, op: Op) -> Sequence[str]:
        allowed = op.attributes.get("outputs_with_grads")
        if allowed is None:
            return ()
        return [
            name
            for i, name in enumerate(op.outputs[: self.output_count({"cell": op.attributes["cell"]})])
            if name and i not in allowed
        ]

    def check(self, op: Op, net: str) -> None:
        verify_recurrence(Recurrence(op, net))

    def types_within(self, call: Call) -> Mapping[str, Type]:
        return cell_program(Recurrence(call.op, call.net), call).types

    def notes(self, op: Op) -> Sequence[str]:
        signs = {"sequence": "<- each step of", "initial": "<- state, from", "reference": "<-"}
        return [f"{name} {signs[kind]} {outer}" for kind, name, outer in Recurrence(op, "").bindings()]

    def _check_states(self, recurrence: Recurrence, types: Mapping[str, Type], program: Program, batch: int) -> None:
        for state in recurrence.states:
            initial, came = types[state.input], program.types[program.net.output_blobs[state.output]]
            features = recurrence.features(state, initial)
            if not state.has_features(features):
                recurrence.fail("initial state of other sizes", blob=state.input, wanted=state.features, came=initial)
            wanted = Type(initial.dtype, (batch, *features))
            if came != wanted:
                problem = f"output '{state.output}' does not fit state '{state.input}'"
                recurrence.fail(problem, blob=state.output, wanted=wanted, came=came)

    def _check_last(self, recurrence: Recurrence, steps: int) -> None:
        first = 2 * len(recurrence.states)
        lasts = recurrence.op.outputs[first + 1 : first + 2 * len(recurrence.step_outputs) : 2]
        for output, name in zip(recurrence.step_outputs, lasts, strict=True):
            if steps == 0 and name:
                hint = f"Use '{output}' as a state, or feed at least one step."
                recurrence.fail("with T = 0 an output that is not a state has no last value", blob=name, hint=hint)


class RecurrentNetworkGradient(OpSchema):
    """The gradient of RecurrentNetwork: steps the backward net from the last executed step to the first.

    Inputs: sequences and references that backward reads, the step workspaces, gradients of the outputs (optional).
    Outputs: gradients of the sequences, initial states and references that are wanted.
    """

    inputs = ("bound*",)
    outputs = ("grad",)
    attributes: ClassVar[dict[str, Any]] = {**ATTRIBUTES, "types": REQUIRED}
    same_dtype = ()
    internal = True
    uses_context = True
    may_omit_outputs = True
    gradient = no_gradient
    loop = Kernel("recurrence backward")

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        return len(attributes["types"])

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(dtype for dtype, _ in attributes["types"])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return tuple(tuple(shape) for _, shape in call.attr("types"))

    def reference(self, call: Call, *arrays: Array | None, context: RunContext) -> Any:
        recurrence = Recurrence(call.op, call.net)
        return run_backward(recurrence, backward_program(call), call.output_types, arrays, context)

    def check(self, op: Op, net: str) -> None:
        verify_recurrence(Recurrence(op, net))

    def notes(self, op: Op) -> Sequence[str]:
        return [
            f"d {name} -> {grad}" for name, grad in zip(Recurrence(op, "").ports(), op.outputs, strict=True) if grad
        ]


recurrent_network = register(RecurrentNetwork())
recurrent_network_gradient = register(RecurrentNetworkGradient())
