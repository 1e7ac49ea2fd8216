"""The attributes of a RecurrentNetwork op, by name (`Recurrence`) and checked (`verify_recurrence`).

**A RecurrentNetwork op** has a cell, and a blob for each input of the cell. The op's inputs are the sequences, then the
initial states, then the references. Its outputs are `all` and `last` of each state, then of each other step output,
then (in training form) the step workspaces. A step output in `sums` has its sum over all steps in place of `all`, and
no `last`.

A step output may be a state input, or one step `seen[j]` of the window that a state input sees. Such an output is not
stored: it is a view of the state's tensor, which begins with the initial steps (`Recurrence.before`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from rnnops.errors import RecurrentError
from rnnops.interpreter import Program, prepare
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call
from rnnops.ops.indexing import FEATURE_AXES, TIME_MAJOR
from rnnops.types import NUMERIC, Shape, Type
from rnnops.util import cached_property

Features: TypeAlias = tuple[int | None, ...]


def is_training_form(op: Op) -> bool:
    """True if an op is a recurrence in training form, which keeps values of its steps for backward."""
    return op.type == "RecurrentNetwork" and "backward" in op.attributes


def runs_in_parts(op: Op) -> bool:
    """True if an op is a recurrence, or the gradient of one, that runs in parts of its steps."""
    return bool(op.attributes.get("schedule"))


@dataclass(frozen=True)
class Link:
    """The earlier values of a step output that a state input reads; a value in `links=` of `ro.recurrent_net`.

    Args:
        output: the cell's output that the state input follows.
        window: how many steps the input sees at once; more than one adds a leading axis `[window, N, ...]`.
        offset: at step t the input sees the state tensor `[L + T, N, ...]` from step `t + offset` on. The first L steps
            of this tensor are the initial values. If left out, it is 0 and L must be `window`: the input sees the
            `window` steps just before t.

    Raises:
        RecurrentError: in `ro.recurrent_net`, if the cell has no such output, or the window does not fit the initial
            state.

    Example:
        Each output is the mean of an input and the last two outputs:

        >>> cell = ro.Net("average")
        >>> x, last = cell.inputs("x", "last")
        >>> cell.outputs(y=(x + last.sum(axis=0)) / 3.0)
        >>> net = ro.Net("n")
        >>> xs, h0 = net.inputs("xs", "h0")
        >>> links = {"last": ro.Link("y", window=2)}
        >>> y, _ = ro.recurrent_net(net, cell, [("x", xs)], [("last", h0)], links)
        >>> net.outputs(y=y)
        >>> ro.compile(net, device="reference")({"xs": np.ones((3, 1, 1)), "h0": np.zeros((2, 1, 1))})["y"][:, 0, 0]
        array([0.3333, 0.4444, 0.5926])
    """

    output: str
    window: int = 1
    offset: int | None = None


@dataclass(frozen=True)
class State:
    """One state.

    Args:
        input: the cell input that reads it.
        output: the cell output that writes it.
        window, offset: as of `Link`.
        features: sizes of its feature axes, None for an open size; None if it has one axis of any size.
    """

    input: str
    output: str
    window: int = 1
    offset: int | None = None
    features: Features | None = None

    @property
    def feature_rank(self) -> int:
        return 1 if self.features is None else len(self.features)

    def has_features(self, sizes: Shape) -> bool:
        """True if these sizes agree with its feature sizes; open sizes agree with all."""
        given = self.features
        return given is None or (
            len(given) == len(sizes) and all(want in (None, size) for want, size in zip(given, sizes, strict=True))
        )


Place: TypeAlias = tuple[State, int]  # a state, and the number of a step in the window that its input sees


def step_of_window(j: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Attributes of the two ops that compute `seen[j]` from a window: a Slice, then a Squeeze."""
    return {"starts": (j,), "ends": (j + 1,), "axes": (0,), "steps": (1,)}, {"axes": (0,)}


@dataclass(frozen=True)
class Recurrence:
    """The attributes of a RecurrentNetwork op, with names."""

    op: Op
    net: str

    @property
    def cell(self) -> Net:
        cell: Net = self.op.attributes["cell"]
        return cell

    @cached_property
    def sequences(self) -> tuple[str, ...]:
        """Cell inputs that read sequences."""
        return tuple(self.op.attributes.get("inputs", ()))

    @cached_property
    def row_sequences(self) -> tuple[str, ...]:
        """Cell inputs that read sequences `[T, N, ...]`. Sequences in `loose` are left out: they are `[T, ...]`."""
        loose = self.op.attributes.get("loose", ())
        return tuple(name for name in self.sequences if name not in loose)

    @cached_property
    def states(self) -> tuple[State, ...]:
        return tuple(State(*row) for row in self.op.attributes.get("states", ()))

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Cell inputs that are the same at every step."""
        return tuple(self.op.attributes.get("references", ()))

    @cached_property
    def step_outputs(self) -> tuple[str, ...]:
        """Cell outputs that are not a state."""
        carried = {state.output for state in self.states}
        return tuple(name for name in self.cell.output_blobs if name not in carried)

    @cached_property
    def wanted_step_outputs(self) -> tuple[str, ...]:
        """Step outputs that are stored. They are read by other ops or by the backward pass, and are not stored already
        as kept blobs, inputs or states."""
        blobs = self.cell.output_blobs
        elsewhere = {*self.keep, *self.cell.input_names, *(blobs[state.output] for state in self.states)}
        found_there = self.backward_reads - elsewhere
        others = (name for name in self.step_outputs if name not in self.sums)
        read = self.read_outputs - self.before.keys()
        return tuple(name for name in others if name in read or blobs[name] in found_there)

    @cached_property
    def read_outputs(self) -> frozenset[str]:
        """Cell outputs whose `_all` or `_last` is read."""
        places = enumerate(self.output_names())
        return frozenset(name for i, name in places if any(self.op.outputs[2 * i : 2 * i + 2]))

    @cached_property
    def before(self) -> dict[str, Place]:
        """Step outputs that are equal to a value that a state input sees -> the state, and the step in its window."""
        places, blobs = self._places_read(), self.cell.output_blobs
        return {n: places[blobs[n]] for n in self.step_outputs if blobs[n] in places and n not in self.sums}

    def _places_read(self) -> dict[str, Place]:
        """Blob that is a state input or `seen[j]` of its window -> the state, and the step of the window."""
        found = {state.input: (state, 0) for state in self.states if state.window == 1}
        windows = [(state, j) for state in self.states if state.window > 1 for j in range(state.window)]
        makers = {op.outputs[0]: op for op in self.cell.ops if op.type == "Slice" and len(op.inputs) == 1}
        for op in self.cell.ops if windows else ():
            cut = makers.get(op.inputs[0]) if op.type == "Squeeze" else None
            for state, j in windows:
                if cut and cut.inputs[0] == state.input and (cut.attributes, op.attributes) == step_of_window(j):
                    found[op.outputs[0]] = state, j
        return found

    @cached_property
    def whole_states(self) -> frozenset[str]:
        """Inputs of the states whose steps are all stored, because they are read."""
        blobs, backward = self.cell.output_blobs, self.backward_reads
        read = {state.input for name, (state, _) in self.before.items() if name in self.read_outputs}
        pairs = zip(self.states, self.op.outputs[::2], strict=False)
        return frozenset(
            s.input for s, every in pairs if every or s.input in read or {s.input, blobs[s.output]} & backward
        )

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """Step outputs whose `all` is the sum over all steps, added up in order of execution."""
        return tuple(self.op.attributes.get("sums", ()))

    @cached_property
    def backward_reads(self) -> frozenset[str]:
        """Inputs of the backward step net; empty if there is no such net."""
        net: Net | None = self.op.attributes.get("backward")
        return frozenset(() if net is None else net.input_names)

    @property
    def timestep(self) -> str | None:
        name: str | None = self.op.attributes.get("timestep")
        return name

    @property
    def reverse(self) -> bool:
        return bool(self.op.attributes.get("reverse", 0))

    @property
    def keep(self) -> tuple[str, ...]:
        return tuple(self.op.attributes.get("keep", ()))

    @property
    def keeps_workspaces(self) -> bool:
        return "backward" in self.op.attributes

    def ports(self) -> list[str]:
        """Cell inputs in the order of the op's inputs."""
        return [*self.sequences, *(state.input for state in self.states), *self.references]

    def output_names(self) -> list[str]:
        """Cell outputs in the order of the op's outputs; each has `all` and `last`."""
        return [*(state.output for state in self.states), *self.step_outputs]

    def bindings(self) -> list[tuple[str, str, str]]:
        """(kind, cell input, outer blob) of each input; a kind is `sequence`, `initial` or `reference`."""
        s, r = len(self.sequences), len(self.sequences) + len(self.states)
        kinds = ["sequence"] * s + ["initial"] * (r - s) + ["reference"] * len(self.references)
        return list(zip(kinds, self.ports(), self.op.inputs, strict=False))

    def steps_and_batch(self, types: Mapping[str, Type]) -> tuple[int, int]:
        """T and N, from the sequences, else from `steps` and the initial states."""
        steps, batch = self._from_sequences(types)
        given: int | None = self.op.attributes.get("steps")
        if steps is not None and given is not None and steps != given:
            self.fail("steps= disagrees with the sequences", wanted=steps, came=given)
        steps = given if steps is None else steps
        if steps is None:
            self.fail("nothing says how many steps to take", hint="Give a sequence or steps=.")
        for state in self.states if batch is None else ():
            kind = types[state.input]
            if kind.rank > state.feature_rank:
                batch = kind.shape[-state.feature_rank - 1]
                break
        return steps, 1 if batch is None else batch

    def _from_sequences(self, types: Mapping[str, Type]) -> tuple[int | None, int | None]:
        head: tuple[int, int] | None = None
        for name in self.row_sequences:
            kind = types[name]
            if kind.rank < 2:
                self.fail("a sequence needs the axes [T, N, ...]", blob=name, came=kind, hint=_state_hint(name))
            if head is not None and kind.shape[:2] != head:
                wanted = f"[{head[0]}, {head[1]}, ...] as '{self.row_sequences[0]}' has"
                meant_as_state = kind.shape[0] == head[1] and kind.shape[1] != head[0]  # [N, D]
                hint = _state_hint(name) if meant_as_state else TIME_MAJOR
                self.fail("sequences differ in T or N", blob=name, wanted=wanted, came=kind, hint=hint)
            head = (kind.shape[0], kind.shape[1])
        return self._with_loose(types, *(head or (None, None)))

    def _with_loose(
        self, types: Mapping[str, Type], steps: int | None, batch: int | None
    ) -> tuple[int | None, int | None]:
        for name in self.op.attributes.get("loose", ()):
            came = types[name]
            if came.rank == 0 or steps not in (None, came.shape[0]):
                self.fail("a sequence of another T", blob=name, wanted=f"[{steps or 'T'}, ...]", came=came)
            steps = came.shape[0]
        return steps, batch

    def step_types(self, types: Mapping[str, Type]) -> dict[str, Type]:
        """Types of the cell's inputs in one step, given those of the op's inputs by cell input."""
        _, batch = self.steps_and_batch(types)
        step = {name: Type(types[name].dtype, types[name].shape[1:]) for name in self.sequences}
        for state in self.states:
            shape = (batch, *self.features(state, types[state.input]))
            step[state.input] = Type(types[state.input].dtype, shape if state.window == 1 else (state.window, *shape))
        step.update((name, types[name]) for name in self.references)
        if self.timestep is not None:
            step[self.timestep] = Type("int32", (1,))
        return step

    def check_declared_shapes(self, step: Mapping[str, Type]) -> None:
        """Raise RecurrentError where a cell input was declared with another shape than it gets in a step."""
        for spec in self.cell.input_specs:
            if spec.shape is not None and spec.shape != step[spec.name].shape:
                problem = "a cell input gets another shape than it was declared with"
                self.fail(problem, blob=spec.name, wanted=list(spec.shape), came=step[spec.name])

    def features(self, state: State, initial: Type) -> Shape:
        return initial.shape[initial.rank - state.feature_rank :]

    def initial_steps(self, state: State, initial: Type, batch: int) -> int:
        """L, the number of initial steps. Raises RecurrentError if they do not fit window and offset."""
        extra = initial.rank - state.feature_rank
        problem = (
            "the initial state has a wrong rank"
            if not 0 <= extra <= 2
            else "the initial state has another batch size"
            if extra >= 1 and initial.shape[extra - 1] != batch
            else None
        )
        if problem is not None:
            wanted = f"[D], [N, D] or [L, N, D] with N = {batch} and {state.feature_rank} feature axes D"
            hints = [TIME_MAJOR] if self.sequences and problem.endswith("size") else []
            hints += [FEATURE_AXES] if state.feature_rank == 1 < initial.rank else []
            self.fail(problem, blob=state.input, wanted=wanted, came=initial, hint=" ".join(hints) or None)
        length = initial.shape[0] if extra == 2 else 1
        first = state.offset or 0
        if first + state.window > length or (state.offset is None and state.window != length):
            problem = f"a window of {state.window} steps from offset {first} does not fit the initial state"
            wanted = f"{first + state.window} initial steps"
            hint = "Give [L, N, D] with as many steps as the window, or an offset in ro.Link."
            self.fail(problem, blob=state.input, wanted=wanted, came=length, hint=hint)
        return length

    def fail(self, problem: str, blob: str | None = None, **details: Any) -> NoReturn:
        raise RecurrentError(
            problem, net=self.net, op=f"{self.op.label} (cell '{self.cell.name}')", blob=blob, **details
        )


def input_types(recurrence: Recurrence, call: Call) -> dict[str, Type]:
    """Types of the op's inputs, by cell input."""
    return {name: kind for name, kind in zip(recurrence.ports(), call.types, strict=True) if kind is not None}


def cell_program(recurrence: Recurrence, call: Call) -> Program:
    """The cell with the types of one step. It is made once for each call and kept there."""
    if "cell" not in call.derived:
        types = recurrence.step_types(input_types(recurrence, call))
        recurrence.check_declared_shapes(types)
        call.derived["cell"] = prepare(recurrence.cell, types, call.float_dtype)
    program: Program = call.derived["cell"]
    return program


def backward_program(call: Call) -> Program:
    """The backward step net with the types of one step. It is made once for each call and kept there."""
    if "backward" not in call.derived:
        net = call.op.attributes["backward"]
        types = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in net.input_specs}
        call.derived["backward"] = prepare(net, types, net.float_dtype)
    program: Program = call.derived["backward"]
    return program


def _state_hint(name: str) -> str:
    """A hint for a sequence that may be meant as a state."""
    return f"If '{name}' is a state, the cell must return it, dict({name}=...), or link an output to it."


def verify_recurrence(recurrence: Recurrence) -> None:
    """Raise RecurrentError if an attribute does not fit the cell."""
    attributes = recurrence.op.attributes
    if not isinstance(attributes["cell"], Net):
        recurrence.fail("attribute 'cell' is not a net")
    for name in ("inputs", "references", "recompute", "keep"):
        _check_names(recurrence, name, attributes.get(name, ()), recurrence.cell.blob_names)
    for row in _rows(recurrence, "states", attributes.get("states", ())):
        _check_state(recurrence, row)
    _check_names(recurrence, "wanted", attributes.get("wanted", ()), recurrence.ports())
    _check_names(recurrence, "loose", attributes.get("loose", ()), recurrence.sequences)
    _check_sums(recurrence)
    _check_numbers(recurrence)
    _check_bound(recurrence)
    if "backward" in attributes:
        _check_backward(recurrence)


def _rows(recurrence: Recurrence, name: str, rows: object) -> Sequence[object]:
    if not isinstance(rows, tuple):
        recurrence.fail(f"attribute '{name}' is not a list", came=repr(rows))
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
        recurrence.fail("a state's feature sizes are not sizes", blob=name, came=repr(features))


def _check_sums(recurrence: Recurrence) -> None:
    for name in _rows(recurrence, "sums", recurrence.op.attributes.get("sums", ())):
        if name not in recurrence.step_outputs:
            recurrence.fail("attribute 'sums' names no step output", blob=str(name))
        dtype = recurrence.cell.dtype_of(recurrence.cell.output_blobs[name])
        if dtype not in NUMERIC:
            recurrence.fail("a sum over steps needs numbers", blob=name, came=dtype)
        places = 2 * recurrence.output_names().index(name) + 1
        if recurrence.op.type == "RecurrentNetwork" and recurrence.op.outputs[places]:
            recurrence.fail("a step output that is summed has no last value", blob=name)


def _check_numbers(recurrence: Recurrence) -> None:
    attributes = recurrence.op.attributes
    for name in ("steps", "reverse", "forward_only"):
        if name in attributes and not _is_size(attributes[name]):
            recurrence.fail(f"attribute '{name}' is not a number", came=repr(attributes[name]))
    for place in _rows(recurrence, "outputs_with_grads", attributes.get("outputs_with_grads", ())):
        if not _is_size(place):
            recurrence.fail("outputs_with_grads names no result", came=repr(place))


def _check_bound(recurrence: Recurrence) -> None:
    """Check that each input of the cell is bound once, that the op has an input for each, and that no two states follow
    one output."""
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
        recurrence.fail("attribute 'backward' is not a net")
    for row in _rows(recurrence, "output_grads", attributes.get("output_grads", ())):
        if not isinstance(row, tuple) or len(row) != 2 or row[1] not in attributes["backward"].input_names:
            recurrence.fail("output_grads names no input of the backward net", came=repr(row))


def _is_size(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
