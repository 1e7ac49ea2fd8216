"""Where gradients of states lie on the backward pass, and which inputs of the op hold gradients from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rnnops.compiler.ir.scan import Tensor
from rnnops.compiler.ir.tensor_name import Role, TensorName
from rnnops.compiler.lower.state_slots import StateTensor, state_tensors
from rnnops.lazy import cached_property
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call
from rnnops.types import Array, Type, is_float

Places = tuple[int | None, int | None]  # of the op's inputs that hold gradients of `_all` and `_last`


@dataclass(frozen=True)
class StateGradient:
    """The gradient of a state, over time.

    Args:
        grad: blob of the step that stands for the gradient of the state's output, `""` where none does.
        rolls: whether two places serve it; else it is as long as the state, and gradients from outside lie in it.
        every, last: places of the op's inputs that hold gradients of `_all` and `_last`, None where there are none.
    """

    state: StateTensor
    grad: str
    rolls: bool
    every: int | None
    last: int | None

    @cached_property
    def name(self) -> TensorName:
        return Role.GRADIENT.of(self.state.state.input)

    def carried(self) -> str:
        return f"{self.grad}/carried"

    def given(self) -> str:
        return f"{self.grad}/given"

    def place(self, p: int) -> int:
        """Where position p, in order of execution, lies."""
        state = self.state
        place = state.length - 1 - p if state.reverse else p
        return place % 2 if self.rolls else place

    def tensor(self) -> Tensor:
        return Tensor(self.state.dtype, self.state.shape, 2 if self.rolls else self.state.length, self.rolls)

    def fill(self, tensor: Array, arrays: Sequence[Array | None]) -> None:
        """Put the gradients from outside into memory that is zero."""
        state, last = self.state, None if self.last is None else arrays[self.last]
        end = self.place(state.length - 1)
        if not self.rolls and self.every is not None:
            state.every(tensor)[...] += arrays[self.every]
            if last is not None:
                tensor[end] += last[0]
        elif last is not None:  # not added, as 0 + -0 is 0: a part goes on with the bits of the part behind it
            tensor[end] = last[0]

    def initial(self, tensor: Array, result: Array) -> None:
        """Put the gradient of the initial state, of as many axes as that has, into new memory."""
        head = tensor[self.place(0)][None] if self.rolls else self.state.head(tensor)
        extra = result.ndim - self.state.state.feature_rank
        if extra == 0:
            head[0].sum(axis=0, out=result)
        else:
            result[...] = head if extra == 2 else head[0]


def state_gradients(
    recurrence: Recurrence, call: Call, types: Mapping[str, Type], whole: frozenset[TensorName]
) -> list[StateGradient]:
    """The gradients of all float states; those in `whole` have memory for all steps."""
    grads, names = dict(call.op.attributes["output_grads"]), recurrence.output_names()
    result = []
    for tensor in state_tensors(recurrence, types):
        if is_float(tensor.dtype):
            every, last = _places(call, names.index(tensor.state.output))
            rolls = tensor.is_plain() and Role.GRADIENT.of(tensor.state.input) not in whole
            result.append(StateGradient(tensor, grads.get(tensor.state.output, ""), rolls, every, last))
    return result


def step_grads(recurrence: Recurrence, call: Call) -> dict[str, Places]:
    """Blob that stands for the gradient of a step output -> the op's inputs for `_all` and `_last`."""
    names = recurrence.output_names()
    grads = dict(call.op.attributes["output_grads"])
    return {grads[name]: _places(call, names.index(name)) for name in recurrence.step_outputs if name in grads}


def _places(call: Call, output: int) -> Places:
    first = len(call.output_types) + 1 + 2 * output
    return tuple(i if i < len(call.op.inputs) and call.op.inputs[i] else None for i in (first, first + 1))  # type: ignore[return-value]
