"""What a RecurrentNetwork op says: its cell, and what each input of the cell is bound to.

The op's inputs are the sequences, then the initial states, then the references; its outputs are `all` and `last` of
each state, then of each other step output, then (in training form) the step workspaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from rnnops.errors import RecurrentError
from rnnops.lazy import cached_property
from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.select import FEATURE_AXES, TIME_MAJOR
from rnnops.types import Shape, Type

Features: TypeAlias = tuple[int | None, ...]


def is_training_form(op: Op) -> bool:
    """Whether an op is a recurrence in training form, which keeps what backward reads of its steps."""
    return op.type == "RecurrentNetwork" and "backward" in op.attributes


def runs_in_parts(op: Op) -> bool:
    """Whether an op is a recurrence, or the gradient of one, that runs in parts of its steps."""
    return bool(op.attributes.get("schedule"))


@dataclass(frozen=True)
class Link:
    """Which earlier values of a step output a state input reads; in `links=` of `ro.recurrent_net`.

    Args:
        output: the cell's output that the state input follows.
        window: how many steps it sees at once; more than one adds a leading axis `[window, N, ...]`.
        offset: first step it sees, counted in the state tensor `[L + T, N, ...]`, whose first L are initial values;
            left out, L must be `window`, so that the input sees the steps just before t.

    Raises:
        RecurrentError: in `ro.recurrent_net`, where the cell has no such output, or the window does not fit the initial
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
    """One state: the input that reads it, the output that writes it, its link, its feature sizes where given.

    Of feature sizes None stands for one that is open."""

    input: str
    output: str
    window: int = 1
    offset: int | None = None
    features: Features | None = None

    @property
    def feature_rank(self) -> int:
        return 1 if self.features is None else len(self.features)

    def has_features(self, sizes: Shape) -> bool:
        """Whether these are its feature sizes, as far as any are given."""
        given = self.features
        return given is None or (
            len(given) == len(sizes) and all(want in (None, size) for want, size in zip(given, sizes, strict=True))
        )


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
    def states(self) -> tuple[State, ...]:
        return tuple(State(*row) for row in self.op.attributes.get("states", ()))

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Cell inputs that are the same at every step."""
        return tuple(self.op.attributes.get("references", ()))

    @cached_property
    def step_outputs(self) -> tuple[str, ...]:
        """Cell outputs that are no state."""
        carried = {state.output for state in self.states}
        return tuple(name for name in self.cell.output_blobs if name not in carried)

    @cached_property
    def wanted_step_outputs(self) -> tuple[str, ...]:
        """Those of which somebody reads `_all` or `_last`, or the backward pass what it finds nowhere else."""
        blobs = self.cell.output_blobs
        elsewhere = {*self.keep, *self.cell.input_names, *(blobs[state.output] for state in self.states)}
        found_there = self.backward_reads - elsewhere
        places = enumerate(self.step_outputs, len(self.states))
        return tuple(
            name for i, name in places if any(self.op.outputs[2 * i : 2 * i + 2]) or blobs[name] in found_there
        )

    @cached_property
    def backward_reads(self) -> frozenset[str]:
        """Inputs of the backward step net; none where there is no such net."""
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
        """Cell outputs in the order of the op's outputs, each of which has `all` and `last`."""
        return [*(state.output for state in self.states), *self.step_outputs]

    def bindings(self) -> list[tuple[str, str, str]]:
        """(kind, cell input, outer blob) for the listing of a net."""
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
        for name in self.sequences:
            kind = types[name]
            if kind.rank < 2:
                self.fail("a sequence needs the axes [T, N, ...]", blob=name, came=kind, hint=_state_hint(name))
            if head is not None and kind.shape[:2] != head:
                wanted = f"[{head[0]}, {head[1]}, ...] as '{self.sequences[0]}' has"
                meant_as_state = kind.shape[0] == head[1] and kind.shape[1] != head[0]  # [N, D]
                hint = _state_hint(name) if meant_as_state else TIME_MAJOR
                self.fail("sequences differ in T or N", blob=name, wanted=wanted, came=kind, hint=hint)
            head = (kind.shape[0], kind.shape[1])
        return head or (None, None)

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
                self.fail(
                    "a cell input gets another shape than it was declared with",
                    blob=spec.name,
                    wanted=list(spec.shape),
                    came=step[spec.name],
                )

    def features(self, state: State, initial: Type) -> Shape:
        return initial.shape[initial.rank - state.feature_rank :]

    def initial_steps(self, state: State, initial: Type, batch: int) -> int:
        """L, the number of initial steps. Raises RecurrentError where they do not fit window and offset."""
        extra = initial.rank - state.feature_rank
        problem = (
            "initial state of a wrong rank"
            if not 0 <= extra <= 2
            else "initial state of another batch size"
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
            self.fail(
                f"a window of {state.window} steps from offset {first} does not fit the initial state",
                blob=state.input,
                wanted=f"{first + state.window} initial steps",
                came=length,
                hint="Give [L, N, D] with as many steps as the window, or an offset in ro.Link.",
            )
        return length

    def fail(self, problem: str, blob: str | None = None, **details: Any) -> NoReturn:
        raise RecurrentError(
            problem, net=self.net, op=f"{self.op.label} (cell '{self.cell.name}')", blob=blob, **details
        )


def _state_hint(name: str) -> str:
    """What to do where a sequence may have been meant as a state."""
    return f"If '{name}' is a state, the cell must return it, dict({name}=...), or link an output to it."
