"""Recurrences that run part by part, which needs less memory. A byte budget may choose this.

**A part** is the recurrence over some of its steps. All parts together compute the same as the whole recurrence. A part
begins with the last L steps of each state before it. Parts are cut backwards from the last step. So only the first part
may be shorter.

**A schedule** is the order in which parts run (see `rnnops.checkpoints.slot_schedule`). The forward pass does all
actions before the first `backward` of the schedule, and runs each step once. The backward pass does all other actions.
Each device has its own kernels for a part. This module is the same for all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rnnops.checkpoints.slot_schedule import Action
from rnnops.net.infer import infer_call
from rnnops.net.op import Op
from rnnops.net.schema import Call, RunContext
from rnnops.recurrent.recurrence import Recurrence, input_types
from rnnops.recurrent.stepping import HOST, StepMemory, tensor_shape
from rnnops.recurrent.training_form import plain_form
from rnnops.types import OPAQUE, Array, Type, is_float
from rnnops.util import cached_property


@dataclass(frozen=True)
class Part:
    """Some steps of a recurrence.

    Args:
        first, last: its steps, numbered in order of execution. `last` is not included.
        low, high: the same steps, numbered in order of time. `high` is not included.
    """

    first: int
    last: int
    low: int
    high: int

    @property
    def steps(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class PartCalls:
    """The ops of a part.

    Args:
        advance: forward; it keeps nothing.
        keep: forward; it keeps the values that `backward` reads.
        backward: the gradient.
    """

    advance: Call
    keep: Call
    backward: Call


@dataclass(frozen=True)
class Parts:
    """A recurrence in training form, cut into parts.

    Args:
        call: the RecurrentNetwork op.
        given: for each output, (its `_all` gets a gradient from outside, its `_last` does).
        unit: number of steps of a part.
    """

    call: Call
    given: tuple[tuple[bool, bool], ...]
    unit: int

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.call.op, self.call.net)

    @cached_property
    def types(self) -> dict[str, Type]:
        """Types of the op's inputs, by cell input."""
        return input_types(self.recurrence, self.call)

    @cached_property
    def size(self) -> tuple[int, int]:
        """T and N of the whole recurrence."""
        return self.recurrence.steps_and_batch(self.types)

    @cached_property
    def count(self) -> int:
        return -(-self.size[0] // self.unit)

    def part(self, number: int) -> Part:
        """The part of this number; parts are numbered in order of execution."""
        T, _ = self.size
        first = max(0, T - (self.count - number) * self.unit)
        last = T - (self.count - number - 1) * self.unit
        low, high = (T - last, T - first) if self.recurrence.reverse else (first, last)
        return Part(first, last, low, high)

    @cached_property
    def initial(self) -> dict[str, Type]:
        """Types of states before a part, `[L, N, ...]`, by state input."""
        batch = self.size[1]
        found = {}
        for state in self.recurrence.states:
            kind = self.types[state.input]
            length, *rest = tensor_shape(kind.shape, state.feature_rank, 0, batch)
            found[state.input] = Type(kind.dtype, (length, *rest))
        return found

    @cached_property
    def every(self) -> tuple[bool, ...]:
        """For each output, True if a part returns all steps: they are read, or the next part begins with them."""
        return tuple(
            bool(self.call.op.outputs[2 * i]) or (i < len(self.recurrence.states) and self.length(i) > 1)
            for i in range(len(self.recurrence.output_names()))
        )

    def calls(self, steps: int) -> PartCalls:
        """The ops of a part of `steps` steps."""
        kinds = self._part_types(steps)
        op = self._op(steps)
        keep = _inferred(op, kinds, self.call)
        return PartCalls(_inferred(plain_form(op), kinds, self.call), keep, self._backward(keep))

    # -- ops -----------------------------------------------------------------------------------------------------

    def length(self, i: int) -> int:
        """L, the number of initial steps, of the state with output number `i`."""
        return self.initial[self.recurrence.states[i].input].shape[0]

    def _op(self, steps: int) -> Op:
        """The op of a part, with the outputs that parts return."""
        op = self.call.op
        names: list[str] = []
        for i, every in enumerate(self.every):
            is_state = i < len(self.recurrence.states)
            last = is_state or bool(op.outputs[2 * i + 1])
            names += [
                op.outputs[2 * i] or f"{op.key}/part/all/{i}" if every else "",
                f"{op.key}/part/last/{i}" if last else "",
            ]
        attributes = {key: value for key, value in op.attributes.items() if key != "schedule"}
        attributes.update({"steps": steps} if attributes.get("steps") is not None else {})
        return replace(op, outputs=(*names, op.outputs[-1]), attributes=attributes)

    def _part_types(self, steps: int) -> list[Type]:
        types = []
        for name in self.recurrence.ports():
            kind = self.initial.get(name, self.types[name])
            if name in self.recurrence.sequences:
                kind = Type(kind.dtype, (steps, *kind.shape[1:]))
            types.append(kind)
        return types

    def _backward(self, keep: Call) -> Call:
        """The gradient op. A state gets its gradient from the part behind. `_all` gets the gradient from outside."""
        recurrence = self.recurrence
        net = recurrence.op.attributes["backward"]
        bindings = recurrence.bindings()
        inputs = [outer if name in net.input_names and kind != "initial" else "" for kind, name, outer in bindings]
        types: list[Type | None] = [kind if name else None for kind, name in zip(keep.types, inputs, strict=True)]
        inputs.append(keep.op.outputs[-1])
        types.append(Type(OPAQUE, ()))
        for i in range(len(recurrence.output_names())):
            for place, there in zip((2 * i, 2 * i + 1), self.gets(i), strict=True):
                inputs.append(f"{recurrence.op.key}/part/grad/{place}" if there else "")
                types.append(keep.output_types[place] if there else None)
        outputs = tuple(
            f"{recurrence.op.key}/part/d {name}" if name in net.output_blobs else "" for name in recurrence.ports()
        )
        kinds = tuple((kind.dtype, kind.shape) for kind in keep.types if kind is not None)
        op = Op("RecurrentNetworkGradient", tuple(inputs), outputs, {**keep.op.attributes, "types": kinds})
        return _inferred(op, types, self.call)

    def gets(self, i: int) -> tuple[bool, bool]:
        """True if `_all` and `_last` of an output get a gradient in a part."""
        every, last = self.given[i]
        if i >= len(self.recurrence.states):
            return every or last, False
        if not is_float(self.initial[self.recurrence.states[i].input].dtype):
            return False, False
        return (True, False) if self.length(i) > 1 else (every, True)


def _inferred(op: Op, types: Sequence[Type | None], call: Call) -> Call:
    """An op of these types of inputs, in the net of a call."""
    return infer_call(op, list(types), [None] * len(types), call.net, call.float_dtype)[0]


States = tuple[Array, ...]
Grads = tuple[Array | None, ...]


class PassRunner(Protocol):
    """Runs the ops of parts during one pass, and carries sums and scratch from part to part."""

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run the op `advance`, `keep` or `backward` of a part. Sums over steps are complete after the last one."""

    def end(self) -> None:
        """The pass is over. Give scratch back."""


@dataclass
class PartedResiduals:
    """The residuals of a forward pass in parts.

    Args:
        start: the initial states.
        done: how many actions of the schedule are done.
        stored: part -> states before it.
        kept: part -> its values for the backward pass.
        ends: part with kept values -> states after it.
        forward_steps: how many steps have run so far.
    """

    context: RunContext
    start: States
    done: int = 0
    stored: dict[int, States] = field(default_factory=dict)
    kept: dict[int, Any] = field(default_factory=dict)
    ends: dict[int, States] = field(default_factory=dict)
    forward_steps: int = 0

    def arrays(self) -> list[Array]:
        """The held tensors that share memory with outputs of the forward pass: none."""
        return []

    def named_arrays(self) -> dict[str, Array]:
        """Every array that is held, by name."""
        states = {
            f"{what} {part}/{i}": array
            for what, some in (("stored", self.stored), ("end", self.ends))
            for part, arrays in some.items()
            for i, array in enumerate(arrays)
        }
        kept = {f"kept {part}/{name}": a for part, one in self.kept.items() for name, a in one.named_arrays().items()}
        return {**{f"start/{i}": array for i, array in enumerate(self.start)}, **states, **kept}

    def stacks(self, op: Op) -> dict[str, Callable[[], Array]]:
        """Blobs that are held for all steps: none."""
        return {}

    def before(self, part: int) -> States:
        """The states before a part."""
        if part == 0:
            return self.start
        return self.stored[part] if part in self.stored else self.ends[part - 1]


@dataclass
class Parted:
    """Runs a recurrence in parts.

    Args:
        actions: the schedule of the parts.
        begin: returns the runner of a new pass.
        memory: makes the arrays.
    """

    parts: Parts
    actions: tuple[Action, ...]
    begin: Callable[[], PassRunner]
    memory: StepMemory = HOST

    def forward(self, arrays: Sequence[Array], context: RunContext) -> tuple[Any, ...]:
        """All outputs of the op; unread ones are None."""
        bound = dict(zip(self.parts.recurrence.ports(), arrays, strict=True))
        run = _Run(self, bound, PartedResiduals(context, self._start(bound)), self.begin())
        run.outputs = self._outputs()
        try:
            run.go()
        finally:
            run.runner.end()
        return (*run.outputs, run.held)

    def backward(self, arrays: Sequence[Any], context: RunContext) -> Grads:
        """Gradients of the op's inputs, None for those that are not wanted."""
        ports = self.parts.recurrence.ports()
        bound = {name: a for name, a in zip(ports, arrays, strict=False) if a is not None}
        run = _Run(self, bound, arrays[len(ports)], self.begin())
        run.given = dict(enumerate(arrays[len(ports) + 1 :]))
        run.carried = [None] * len(self.parts.recurrence.states)
        try:
            while run.held.done < len(self.actions):
                run.go()
                run.back()
        finally:
            run.runner.end()
        return run.gradients()

    def _start(self, bound: Mapping[str, Array]) -> States:
        """The initial states as `[L, N, ...]`, in arrays of their own."""
        kinds = [self.parts.initial[state.input] for state in self.parts.recurrence.states]
        start = tuple(self.memory.empty(kind.shape, kind.dtype) for kind in kinds)
        for state, array in zip(self.parts.recurrence.states, start, strict=True):
            array[...] = bound[state.input]
        return start

    def _outputs(self) -> list[Array | None]:
        """Memory for the `_all` outputs that are read. `_last` is None until the last part has run."""
        outputs: list[Array | None] = []
        for i, kind in enumerate(self.parts.call.output_types[:-1]):
            wanted = not i % 2 and self.parts.call.op.outputs[i]
            outputs.append(self.memory.empty(kind.shape, kind.dtype) if wanted else None)
        return outputs


@dataclass
class _Run:
    """One pass."""

    parted: Parted
    bound: Mapping[str, Array]
    held: PartedResiduals
    runner: PassRunner
    running: States = ()
    outputs: list[Array | None] = field(default_factory=list)
    given: dict[int, Array | None] = field(default_factory=dict)
    carried: list[Array | None] = field(default_factory=list)
    totals: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts, self.recurrence = self.parted.parts, self.parted.parts.recurrence
        self.running = self.held.start

    def go(self) -> None:
        """Do all actions of the schedule before the next `backward`."""
        held, actions = self.held, self.parted.actions
        while held.done < len(actions) and actions[held.done].what != "backward":
            action = actions[held.done]
            held.done += 1
            if action.what == "advance":
                for number in range(action.first, action.last):
                    self._step("advance", number)
            elif action.what == "keep":
                *_, held.kept[action.first] = self._step("keep", action.first)
                held.ends[action.first] = self.running
            elif action.what == "store":
                held.stored[action.first] = self.running
            elif action.what == "drop":
                del held.stored[action.first]
            else:
                self.running = held.before(action.first)

    # -- forward -------------------------------------------------------------------------------------------------

    def _step(self, what: str, number: int) -> tuple[Any, ...]:
        part = self.parts.part(number)
        results = self.runner.run(what, part, self._inputs(part, self.running), self._context(part))
        self.held.forward_steps += part.steps
        if self.outputs:
            self._collect(part, results)
        self.running = tuple(self._after(i, results) for i in range(len(self.recurrence.states)))
        return results

    def _inputs(self, part: Part, states: States) -> list[Array]:
        given = dict(zip((state.input for state in self.recurrence.states), states, strict=True))
        arrays = []
        for name in self.recurrence.ports():
            array = given[name] if name in given else self.bound[name]
            arrays.append(array[part.low : part.high] if name in self.recurrence.sequences else array)
        return arrays

    def _context(self, part: Part) -> RunContext:
        return replace(self.held.context, part=(part.low, self.parts.size[0]))

    def _collect(self, part: Part, results: Sequence[Any]) -> None:
        """Copy the results of a part to the outputs. `_last` comes from the part that runs last."""
        op = self.parts.call.op
        for i, whole in enumerate(self.outputs[::2]):
            if op.outputs[2 * i] and whole is not None:
                whole[part.low : part.high] = results[2 * i]
            if op.outputs[2 * i + 1] and part.last == self.parts.size[0]:
                self.outputs[2 * i + 1] = results[2 * i + 1].copy()

    def _after(self, i: int, results: Sequence[Any]) -> Array:
        """The last L steps of a state, in order of execution."""
        length = self.parts.length(i)
        if length == 1:
            return results[2 * i + 1].copy()  # type: ignore[no-any-return]
        steps = results[2 * i][::-1] if self.recurrence.reverse else results[2 * i]
        return self.parted.memory.last_steps(length, self.running[i], steps)

    # -- backward ------------------------------------------------------------------------------------------------

    def back(self) -> None:
        """Do the next action of the schedule, which is a `backward`."""
        number = self.parted.actions[self.held.done].first
        self.held.done += 1
        part, kept = self.parts.part(number), self.held.kept.pop(number)
        self.held.ends.pop(number)
        inputs = self._inputs(part, self.held.start)
        reads = [a if n in self._read() else None for a, n in zip(inputs, self.recurrence.ports(), strict=True)]
        grads, beyond = self._grads(part)
        results = self.runner.run("backward", part, [*reads, kept, *grads], self._context(part))
        self._take(part, results, beyond)

    def _read(self) -> frozenset[str]:
        states = {state.input for state in self.recurrence.states}
        return self.recurrence.backward_reads - states

    def _grads(self, part: Part) -> tuple[list[Array | None], list[Array | None]]:
        """Gradients of a part's results, and, for each state, of steps that lie before the part."""
        grads: list[Array | None] = []
        beyond: list[Array | None] = [None] * len(self.carried)
        for i in range(len(self.recurrence.output_names())):
            every, last = self.parts.gets(i)
            is_state = i < len(self.carried)
            total = self._slice(part, i, copied=not is_state or self.parts.length(i) > 1) if every else None
            if last:
                grads += [total, self._last(part, i)]
                continue
            if total is not None and is_state:
                beyond[i] = self._add_carried(total, part, i)
            elif total is not None and self.given.get(2 * i + 1) is not None and part.last == self.parts.size[0]:
                total[0 if self.recurrence.reverse else -1] += self.given[2 * i + 1][0]  # type: ignore[index]
            grads += [total, None]
        return grads, beyond

    def _slice(self, part: Part, i: int, copied: bool) -> Array:
        given = self.given.get(2 * i)
        if given is not None:
            return given[part.low : part.high].copy() if copied else given[part.low : part.high]
        kind = self.parts.call.output_types[2 * i]
        return self.parted.memory.zeros((part.steps, *kind.shape[1:]), kind.dtype)

    def _last(self, part: Part, i: int) -> Array:
        """The gradient of a state after a part: from the part behind; at the last part from outside."""
        carried, given = self.carried[i], self.given.get(2 * i + 1)
        if part.last < self.parts.size[0]:
            assert carried is not None
            return carried
        if given is not None:
            return given
        kind = self.parts.initial[self.recurrence.states[i].input]
        return self.parted.memory.zeros(kind.shape, kind.dtype)

    def _add_carried(self, total: Array, part: Part, i: int) -> Array | None:
        """Add the gradient of the last L steps of a state to `total`. Returns gradients of steps before the part."""
        steps = total[::-1] if self.recurrence.reverse else total
        carried, given = self.carried[i], self.given.get(2 * i + 1)
        if part.last == self.parts.size[0]:
            if given is not None:
                steps[-1:] += given
            return None
        assert carried is not None
        inside = min(len(carried), part.steps)
        steps[part.steps - inside :] += carried[len(carried) - inside :]
        return carried[: len(carried) - inside] if inside < len(carried) else None

    def _take(self, part: Part, results: Sequence[Any], beyond: Sequence[Array | None]) -> None:
        numbers = {state.input: i for i, state in enumerate(self.recurrence.states)}
        for name, grad in zip(self.recurrence.ports(), results, strict=True):
            if grad is None:
                continue
            if name in numbers:
                rest = beyond[numbers[name]]
                if rest is not None:
                    grad[len(grad) - len(rest) :] += rest
                self.carried[numbers[name]] = grad
            elif name in self.recurrence.sequences:
                if name not in self.totals:
                    self.totals[name] = self.parted.memory.empty(self.parts.types[name].shape, str(grad.dtype))
                self.totals[name][part.low : part.high] = grad
            else:
                self.totals[name] = grad

    def gradients(self) -> Grads:
        """Gradients of the op's inputs."""
        found, memory = dict[str, Array | None](self.totals), self.parted.memory
        for state, grad in zip(self.recurrence.states, self.carried, strict=True):
            if grad is not None:
                extra = self.parts.types[state.input].rank - state.feature_rank
                found[state.input] = memory.total(grad[0]) if extra == 0 else grad if extra == 2 else grad[0]
        return tuple(found.get(name) for name in self.recurrence.ports())
