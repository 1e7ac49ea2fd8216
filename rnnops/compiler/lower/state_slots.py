"""Where the states of a recurrence lie: tensors `[L + T, N, ...]` in order of time, initial steps before or behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from rnnops.compiler.lower.scan import Role, Slot, Tensor, TensorName
from rnnops.compiler.lower.statements import Access, Layout, dense
from rnnops.recurrent.recurrence import Recurrence, State
from rnnops.recurrent.stepping import tensor_shape
from rnnops.types import Array, Shape, Type
from rnnops.util import cached_property


@dataclass(frozen=True)
class StateTensor:
    """A state's tensor. Places are in order of time: a recurrence in reverse has its initial steps at the end.

    Args:
        initial_steps: L.
        shape: of one step.
    """

    state: State
    initial_steps: int
    steps: int
    shape: Shape
    dtype: str
    reverse: bool

    @cached_property
    def name(self) -> TensorName:
        return Role.STATE.of(self.state.input)

    @property
    def length(self) -> int:
        return self.initial_steps + self.steps

    @property
    def first(self) -> int:
        """The earliest step in order of execution that a state input sees at its first step."""
        return self.state.offset or 0

    def read(self) -> Slot:
        """Where step t's state input begins."""
        if not self.reverse:
            return Slot(self.name, self.first)
        return Slot(self.name, self.initial_steps - self.first - (self.state.window - 1))

    def write(self) -> Slot:
        return Slot(self.name, 0 if self.reverse else self.initial_steps)

    def access(self) -> Access:
        """The state input as a blob: a window in reverse runs from the last place to the first."""
        kind = self.input_shape
        layout = dense(kind)
        if self.reverse and self.state.window > 1:
            step = prod(self.shape)
            layout = Layout((self.state.window - 1) * step, kind, (-step, *layout.strides[1:]))
        return Access(self.state.input, layout)

    @property
    def input_shape(self) -> Shape:
        return self.shape if self.state.window == 1 else (self.state.window, *self.shape)

    @property
    def batch_axis(self) -> int:
        """Of the state input."""
        return 0 if self.state.window == 1 else 1

    def can_roll(self) -> bool:
        """True if a ring of L + 1 steps serves where not all steps are read."""
        return self.state.window == 1

    def is_plain(self) -> bool:
        """True if a step sees just the step before, so that two places serve its gradient."""
        return self.state.window == 1 and self.initial_steps == 1

    def tensor(self, ring: bool) -> Tensor:
        return Tensor(self.dtype, self.shape, self.initial_steps + 1 if ring else self.length, ring)

    # -- memory --------------------------------------------------------------------------------------------------

    def fill(self, tensor: Array, initial: Array) -> None:
        """Put the initial steps into new memory, which rolls where it is shorter than the state."""
        steps = initial if initial.ndim == len(self.shape) + 1 else initial[None]
        for p in range(self.initial_steps):
            place = (self.length - 1 - p) % len(tensor) if self.reverse else p
            tensor[place] = steps[min(p, len(steps) - 1)]

    def every(self, tensor: Array) -> Array:
        """`_all` of a tensor that does not roll."""
        return tensor[: self.steps] if self.reverse else tensor[self.initial_steps :]

    def last(self, tensor: Array) -> Array:
        """`_last`: after the last executed step."""
        place = (0 if self.reverse else self.length - 1) % len(tensor)
        return tensor[place : place + 1]

    def head(self, tensor: Array) -> Array:
        """The initial steps, in order of execution, of a tensor that does not roll."""
        return tensor[self.steps :][::-1] if self.reverse else tensor[: self.initial_steps]


def state_tensors(recurrence: Recurrence, types: Mapping[str, Type]) -> list[StateTensor]:
    """The tensors of all states, given the types of the recurrence's inputs by cell input."""
    steps, batch = recurrence.steps_and_batch(types)
    result = []
    for state in recurrence.states:
        kind = types[state.input]
        length, *shape = tensor_shape(kind.shape, state.feature_rank, steps, batch)
        result.append(StateTensor(state, length - steps, steps, tuple(shape), kind.dtype, recurrence.reverse))
    return result


def read_by_backward(recurrence: Recurrence) -> list[TensorName]:
    """Tensors that the forward pass fills and the backward pass reads."""
    read, blobs = recurrence.backward_reads, recurrence.cell.output_blobs
    states = [Role.STATE.of(state.input) for state in recurrence.states if {state.input, blobs[state.output]} & read]
    outputs = [Role.OUTPUT.of(name) for name in recurrence.wanted_step_outputs if blobs[name] in read]
    return [*states, *outputs, *map(Role.KEPT.of, recurrence.keep)]
