"""The ops `RecurrentNetwork` and `RecurrentNetworkGradient`, and the function `recurrent_net`.

First come the two ops, with shape rules, reference and gradient. Then `Binder` checks the arguments of `recurrent_net`
and binds the inputs of the cell. Last is `recurrent_net`, which appends a `RecurrentNetwork` to a net.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from rnnops.errors import RecurrentError, did_you_mean, is_flag, named_arguments
from rnnops.interpreter import Program
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Kernel
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, absolute_names, some_of
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, RunContext, no_gradient, register
from rnnops.recurrent.recurrence import (
    Features,
    Link,
    Recurrence,
    backward_program,
    cell_program,
    input_types,
    is_training_form,
    runs_in_parts,
    verify_recurrence,
)
from rnnops.recurrent.stepping import run_backward, run_forward
from rnnops.types import OPAQUE, Array, Shape, Type
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.recurrent import reversed_recurrence as reversals
else:  # second derivatives only
    reversals = LazyModule("rnnops.recurrent.reversed_recurrence")

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

    Inputs: sequences `[T, N, ...]`, or `[T, ...]` if they are in `loose`; initial states `[D]`, `[N, D]` or
    `[L, N, D]`; references of any shape.
    Outputs: `all` `[T, N, ...]` and `last` `[1, N, ...]` of each state, then of each other step output. For a step
    output in `sums`, which may have any axes, `all` is its sum over steps.
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
            return reversals.reversed_recurrence(call, *blobs)
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
                recurrence.fail(
                    "the initial state has other sizes", blob=state.input, wanted=state.features, came=initial
                )
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
        return run_backward(recurrence, backward_program(call), call.output_types, arrays)

    def check(self, op: Op, net: str) -> None:
        verify_recurrence(Recurrence(op, net))

    def notes(self, op: Op) -> Sequence[str]:
        return [
            f"d {name} -> {grad}" for name, grad in zip(Recurrence(op, "").ports(), op.outputs, strict=True) if grad
        ]


recurrent_network = register(RecurrentNetwork())
recurrent_network_gradient = register(RecurrentNetworkGradient())


class Binder:
    """Binds each input of a cell once, and checks the arguments of `recurrent_net`.

    Args:
        net: the outer net.
        written: the cell as it was given.
        scope: prefix of the names of results and of new inputs.
    """

    def __init__(self, net: Net, written: Net, scope: str | None) -> None:
        self.net, self.written, self.scope = net, written, scope
        if not isinstance(written, Net):
            self.fail("the cell is not a net", wanted="a ro.Net", came=type(written).__name__)
        if scope is not None and not (isinstance(scope, str) and scope.strip("/")):
            self.fail("scope is not a name", wanted="a non-empty string", came=repr(scope))
        self.cell = written.snapshot()
        if not self.cell.output_blobs:
            self.fail("the cell has no outputs", hint="Call cell.outputs(...).")
        self.open: dict[str, Input] = {spec.name: spec for spec in self.cell.input_specs}

    def fail(self, problem: str, blob: object = None, **details: Any) -> NoReturn:
        op = f"RecurrentNetwork of cell '{getattr(self.written, 'name', '?')}'"
        raise RecurrentError(problem, net=self.net.name, op=op, blob=None if blob is None else str(blob), **details)

    def listed(self, argument: str, value: object) -> list[Any]:
        """An argument that must be a list."""
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            wanted = "a list of (cell input, blob)" if "inputs" in argument else "a list"
            self.fail(f"{argument} is not a list", wanted=wanted, came=repr(value))
        return list(value)

    def _computed(self) -> dict[str, None]:
        """Blobs that ops of the cell compute, named ones first."""
        blobs = [name for name in self.cell.blob_names if name not in self.cell.input_names]
        return dict.fromkeys(sorted(blobs, key=lambda name: not self.cell.is_capturable(name)))

    def flag(self, argument: str, value: object) -> int:
        """An argument that is on or off."""
        if not is_flag(value):
            self.fail(f"{argument} is neither on nor off", wanted="True or False", came=repr(value)[:60])
        return int(bool(value))

    def table(self, argument: str, value: object) -> Mapping[Any, Any]:
        """An argument that must be a dict."""
        if not isinstance(value, Mapping):
            self.fail(f"{argument} is not a dict", came=repr(value))
        return value

    def bind(self, pairs: Sequence[tuple[str, Blob]], kind: str) -> dict[str, Blob]:
        """Bind cell inputs, which are then no longer open. Raises RecurrentError for an unknown or bound input."""
        bound: dict[str, Blob] = {}
        for pair in pairs:
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[1], Blob)):
                self.fail(f"{kind}: not a pair", wanted="(cell input, blob)", came=repr(pair))
            name, blob = pair
            bound[str(name)] = self._take(str(name), blob, kind)
        return bound

    def _take(self, name: str, blob: Blob, kind: str) -> Blob:
        if not isinstance(blob, Blob):
            self.fail(f"{kind}: not a blob", blob=name, came=type(blob).__name__)
        spec = self.open.pop(name, None)
        if spec is None:
            twice = name in self.cell.input_names
            problem = "this cell input is bound twice" if twice else f"the {kind} is bound to no input of the cell"
            self.fail(problem, blob=name, wanted=f"one of {', '.join(self.open) or 'none'}")
        if blob.net is not self.net:
            self.fail(f"the {kind} belongs to net '{blob.net.name}'", blob=blob.name)
        if blob.dtype != spec.dtype:
            self.fail(
                f"cell input '{name}' and its {kind} differ in dtype",
                blob=blob.name,
                wanted=spec.dtype,
                came=blob.dtype,
                hint=f'Declare it as cell.input("{name}", "{blob.dtype}"), with ro.cell as '
                f'dtypes={{"{name}": "{blob.dtype}"}}, or cast the blob.',
            )
        return blob

    def states(
        self, initials: Mapping[str, Blob], links: Mapping[str, str | Link], shapes: Mapping[str, Sequence[int | None]]
    ) -> tuple[tuple[Any, ...], ...]:
        for name in links:
            if name not in initials:
                wanted = f"one of {', '.join(initials) or 'none'}"
                hint = "Give it an initial value in initial_cell_inputs."
                self.fail("a link from something that is not a state", blob=name, wanted=wanted, hint=hint)
        for name in shapes:
            if name not in initials:
                self.fail("state_shapes names something that is not a state", blob=name)
        rows = tuple(self._state(name, links, shapes.get(name)) for name in initials)
        outputs = [row[1] for row in rows]
        for output in outputs:
            if outputs.count(output) > 1:
                self.fail(
                    "two states follow one output", blob=output, hint="Give each its own output, e.g. ro.identity(h)."
                )
        return rows

    def _state(self, name: str, links: Mapping[str, str | Link], shape: Sequence[int | None] | None) -> tuple[Any, ...]:
        if name not in links:
            self.fail(
                "a state without a link", blob=name, wanted="an entry in links", hint="Say which output it follows."
            )
        link = links[name] if isinstance(links[name], Link) else Link(str(links[name]))
        assert isinstance(link, Link)
        if not isinstance(link.output, str) or link.output not in self.cell.output_blobs:
            self.fail(
                "a link to nothing", blob=name, wanted=f"one of {', '.join(self.cell.output_blobs)}", came=link.output
            )
        if not _is_whole(link.window) or link.window < 1:
            self.fail("a link's window is out of range", blob=name, wanted="1 or more", came=link.window)
        if link.offset is not None and (not _is_whole(link.offset) or link.offset < 0):
            self.fail("a link's offset is out of range", blob=name, wanted="0 or more", came=link.offset)
        return (
            name,
            link.output,
            int(link.window),
            None if link.offset is None else int(link.offset),
            None if shape is None else self._feature_sizes(name, shape),
        )

    def _feature_sizes(self, name: str, shape: Sequence[int | None]) -> Features:
        sizes = list(shape) if isinstance(shape, Sequence) else [-1]
        if not all(size is None or (_is_whole(size) and size >= 0) for size in sizes):
            wanted = "a tuple of integers of 0 or more, None for an open size"
            self.fail("state_shapes gives no sizes", blob=name, wanted=wanted, came=repr(shape))
        return tuple(None if size is None else operator.index(size) for size in sizes)

    def take_timestep(self, name: str | None) -> None:
        if name is None:
            return
        spec = self.open.pop(str(name), None)
        if spec is None or spec.dtype != "int32":
            came = spec.dtype if spec else "no such input"
            self.fail("the timestep must be an int32 input of the cell", blob=name, came=came)

    def references(self, given: Mapping[str, Blob]) -> dict[str, Blob]:
        """Bind all open cell inputs: to the given blobs, else to blobs of the same name, else to new inputs of the
        outer net."""
        explicit = {str(name): self._take(str(name), blob, "reference") for name, blob in given.items()}
        bound: dict[str, Blob] = {}
        for name in self.cell.input_names:
            if name in explicit:
                bound[name] = explicit[name]
            elif name in self.open:
                bound[name] = self._by_name(self.open[name])
        return bound

    def _by_name(self, spec: Input) -> Blob:
        own = self.net.scoped(f"{self.scope}/{spec.name}" if self.scope else spec.name)
        for candidate in (own, self.net.scoped(spec.name), spec.name):
            if candidate in self.net and self.net.is_capturable(candidate):
                self._check_shape(spec, candidate)
                return self._take(spec.name, self.net.blob(candidate), "reference")
        self.open.pop(spec.name)
        with absolute_names():
            if spec.initializer is not None:
                return self.net.parameter(own, spec.shape or (), spec.initializer)
            return self.net.input(own, spec.dtype, spec.shape)

    def _check_shape(self, spec: Input, candidate: str) -> None:
        found = next((other for other in self.net.input_specs if other.name == candidate), None)
        if found is not None and None not in (found.shape, spec.shape) and found.shape != spec.shape:
            problem, hint = "a reference found by its name has another shape", "Give scope= or references=."
            self.fail(problem, blob=candidate, wanted=spec.shape, came=found.shape, hint=hint)

    def output_names(self, states: Sequence[tuple[Any, ...]]) -> list[str]:
        carried = [row[1] for row in states]
        names = [*carried, *(name for name in self.cell.output_blobs if name not in carried)]
        return [f"{name}_{part}" for name in names for part in ("all", "last")]

    def result_names(self, outputs: Sequence[str]) -> list[str]:
        names = [f"{self.scope}/{name}" if self.scope else name for name in outputs]
        for name in map(self.net.scoped, names):
            if name in self.net:
                hint = "Give scope= to keep them apart. Inputs of one name stay shared, unlike under ro.name_scope."
                self.fail("a result's name is taken", blob=name, hint=hint)
        return names

    def checked_steps(self, steps: int | None) -> int | None:
        if steps is not None and (not _is_whole(steps) or steps < 0):
            self.fail("steps is not a number of steps", wanted="an integer of 0 or more", came=repr(steps))
        return None if steps is None else int(steps)

    def recompute(
        self, wanted: str | Blob | Sequence[str | Blob] | None, states: Sequence[tuple[Any, ...]]
    ) -> tuple[str, ...]:
        listed = (
            [wanted] if isinstance(wanted, str | Blob) else self.listed("recompute_blobs_on_backward", wanted or ())
        )
        for blob in listed:
            if isinstance(blob, Blob) and blob.net not in (self.written, self.cell):
                self.fail(f"recompute_blobs_on_backward names a blob of net '{blob.net.name}'", blob=blob.name)
        carried = {self.cell.output_blobs[row[1]]: row[1] for row in states}
        names = tuple(blob.name if isinstance(blob, Blob) else str(blob) for blob in listed)
        for name in names:
            if name not in self.cell:
                problem = "recompute_blobs_on_backward names an unknown blob"
                hint = did_you_mean(name, self.cell.blob_names) or f'Name it where the cell makes it: .named("{name}").'
                self.fail(problem, blob=name, wanted=some_of(self._computed()), hint=hint)
            if name in carried:
                self.fail(
                    f"a state cannot be recomputed ('{carried[name]}' is one): backward starts from it", blob=name
                )
            if name in self.cell.input_names:
                self.fail(
                    "an input of the cell cannot be recomputed", blob=name, hint="The backward pass has it already."
                )
        return names

    def with_grads(self, wanted: Sequence[int | str] | None, outputs: Sequence[str]) -> tuple[int, ...] | None:
        if wanted is None:
            return None
        places: list[int] = []
        for item in self.listed("outputs_with_grads", wanted):
            place = outputs.index(item) if item in outputs else item
            if not _is_whole(place) or not 0 <= place < len(outputs):
                wanted = f"0 to {len(outputs) - 1} or one of {', '.join(outputs)}"
                self.fail("outputs_with_grads names no result", wanted=wanted, came=item)
            places.append(int(place))
        if not places:
            self.fail("outputs_with_grads is empty", hint="Leave it out, or give forward_only=True.")
        return tuple(places)

    def check_reverse(self, reverse: bool, states: Sequence[tuple[Any, ...]]) -> None:
        carried = {self.cell.output_blobs[row[1]] for row in states}
        dropped: set[str] = set()  # blobs that depend on a SelectValid with drop=1
        for op in self.cell.ops if reverse else ():
            selects = op.type == "SelectValid"  # past a row's end its result is its second input
            read = op.inputs[1:2] if selects else op.inputs
            if dropped.intersection(read) or (selects and op.attributes.get("drop")):
                dropped.update(op.outputs)
            if carried.intersection(op.outputs) & dropped:
                self.fail(
                    "reverse=True with a state that is dropped to zero past a row's end would wipe its initial state",
                    blob=op.key,
                    hint="Use SelectValid with drop=0 and mask the result.",
                )


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


Binding = Sequence[tuple[str, Blob]]


@named_arguments
def recurrent_net(
    net: Net,
    cell_net: Net,
    inputs: Binding,
    initial_cell_inputs: Binding,
    links: Mapping[str, str | Link],
    timestep: str | None = None,
    scope: str | None = None,
    outputs_with_grads: Sequence[int | str] | None = None,
    recompute_blobs_on_backward: str | Blob | Sequence[str | Blob] | None = None,
    forward_only: bool = False,
    *,
    references: Mapping[str, Blob] | None = None,
    steps: int | None = None,
    reverse: bool = False,
    state_shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> tuple[Blob, ...]:
    """Step a cell over time, as `ro.scan` does: for t = 0..T-1 it reads `xs[t]` and its states, and writes its outputs.

    Args:
        net: the net to which the recurrence is appended.
        cell_net: a net of one step; later changes of it have no effect.
        inputs: (cell input, sequence `[T, N, ...]`), any number; the cell reads `[N, ...]`.
        initial_cell_inputs: (state input, initial value `[D]`, `[N, D]` or `[L, N, D]`), one for each state, in order.
        links: state input -> the cell output that it reads one step later, or a `ro.Link`.
        timestep: the cell input (int32) that gets `[t]`.
        scope: prefix of the results' names and of inputs made for the cell's references.
        outputs_with_grads: positions or names of results that may get a gradient; left out, all may.
        recompute_blobs_on_backward: cell blobs that the backward pass computes again; they are not stored.
        forward_only: the op has no gradient and keeps nothing.
        references: cell input -> outer blob. A cell input that is bound nowhere is looked up by its name
            (`<scope>/<name>`, then `<name>`) among inputs, parameters and `.named` blobs of the outer net. If it is not
            found, it becomes a new input of the outer net.
        steps: T, if there is no sequence.
        reverse: run from T-1 to 0; `_all[t]` still belongs to time t.
        state_shapes: state input -> sizes of its feature axes, None for an open size. It is needed if a state does not
            have one feature axis `D`.

    Returns:
        `<output>_all [T, N, ...], <output>_last [1, N, ...]` for each state in order, then for other outputs.

    Raises:
        RecurrentError: names, links, states or lists do not fit the cell.
        NetError: a blob is of another net, or a name is taken.
        TypeRuleError: once shapes are known, they do not fit the cell.

    Example:
        >>> cell = ro.Net("cell")
        >>> x, h = cell.inputs("x", "h")
        >>> cell.outputs(h_t=x + 0.5 * h)
        >>> net = ro.Net("n")
        >>> xs, h0 = net.inputs("xs", "h0")
        >>> h_all, h_last = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], links={"h": "h_t"})
        >>> net.outputs(y=h_all)
        >>> ro.compile(net, device="reference")({"xs": np.ones((3, 1, 1)), "h0": np.zeros((1, 1))})["y"][:, 0, 0]
        array([1.  , 1.5 , 1.75])
    """
    if not isinstance(net, Net):
        raise RecurrentError("the outer net is not a net", wanted="a ro.Net", came=type(net).__name__)
    binder = Binder(net, cell_net, scope)
    sequences = binder.bind(binder.listed("inputs", inputs), "sequence")
    initials = binder.bind(binder.listed("initial_cell_inputs", initial_cell_inputs), "initial state")
    states = binder.states(initials, binder.table("links", links), binder.table("state_shapes", state_shapes or {}))
    binder.take_timestep(timestep)
    bound = binder.references(binder.table("references", references or {}))
    outputs = binder.output_names(states)
    attributes = {
        "cell": binder.cell,
        "inputs": tuple(sequences),
        "states": states,
        "references": tuple(bound),
        "timestep": timestep,
        "steps": binder.checked_steps(steps),
        "reverse": binder.flag("reverse", reverse) or None,
        "recompute": binder.recompute(recompute_blobs_on_backward, states),
        "outputs_with_grads": binder.with_grads(outputs_with_grads, outputs),
        "forward_only": binder.flag("forward_only", forward_only) or None,
    }
    binder.check_reverse(reverse, states)
    return _appended(net, [*sequences.values(), *initials.values(), *bound.values()], attributes, binder, outputs)


def _appended(
    net: Net, blobs: Sequence[Blob], attributes: Mapping[str, Any], binder: Binder, outputs: Sequence[str]
) -> tuple[Blob, ...]:
    """Append the recurrence, without attributes that are None or empty, and return its results."""
    told = {name: value for name, value in attributes.items() if value not in (None, ())}
    return net.append(recurrent_network.name, blobs, told, binder.result_names(outputs))
