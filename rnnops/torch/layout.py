"""Layout: what the tensors of a recurrence look like, and how they lie in the net that runs it.

Where all states and inputs have a batch axis of one size the batch is the recurrence's own. Else a step is one row: the
result is the same, but rows are not shared out among threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rnnops.torch.errors import StepError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Kind:
    """Dtype and shape of one step's tensor, and the axis of its batch, if it has one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    batch_axis: int | None

    @property
    def batch(self) -> int | None:
        """The size of the batch."""
        return None if self.batch_axis is None else self.shape[self.batch_axis]

    def to_front(self) -> list[int]:
        """The order of axes that puts the batch first."""
        assert self.batch_axis is not None
        others = [axis for axis in range(len(self.shape)) if axis != self.batch_axis]
        return [self.batch_axis, *others]

    def back(self) -> list[int]:
        """The order of axes that undoes `to_front`."""
        order = self.to_front()
        return [order.index(axis) for axis in range(len(order))]

    def without_data(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


@dataclass(frozen=True)
class Layout:
    """States and inputs of a recurrence, as one step sees them, and the device of what the step makes itself."""

    states: tuple[Kind, ...]
    inputs: tuple[Kind, ...]
    device: torch.device = CPU

    @cached_property
    def batch(self) -> int | None:
        """The size of the batch; None where a step is one row."""
        sizes = {kind.batch for kind in (*self.states, *self.inputs)}
        return sizes.pop() if len(sizes) == 1 else None

    def rows(self) -> list[tuple[torch.dtype, int | None, tuple[int, ...]]]:
        """What is the same for all batch sizes."""
        return [
            (
                kind.dtype,
                kind.batch_axis,
                tuple(size for axis, size in enumerate(kind.shape) if axis != kind.batch_axis),
            )
            for kind in self.kinds
        ]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (*self.states, *self.inputs)


def layout_of(states: Sequence[Tensor], inputs: Sequence[Tensor], batch_axis: int) -> Layout:
    """The layout of states, and of inputs `[T, N, ...]`; a tensor with too few axes has no batch.

    Raises StepError where no state has the axis that is said to be the batch's.
    """
    ranks = sorted({state.dim() for state in states})
    if batch_axis != 0 and not any(-rank <= batch_axis < rank for rank in ranks):  # 0 is said by leaving it out
        wanted = f"an axis of states with {' or '.join(map(str, ranks))} axes"
        raise StepError("batch_axis= is an axis of no state", wanted=wanted, came=batch_axis)

    def kind(tensor: Tensor, shape: tuple[int, ...], axis: int) -> Kind:
        rank = len(shape)
        return Kind(tensor.dtype, shape, axis % rank if -rank <= axis < rank else None)

    return Layout(
        tuple(kind(state, tuple(state.shape), batch_axis) for state in states),
        tuple(kind(sequence, tuple(sequence.shape[1:]), 0) for sequence in inputs),
        next((tensor.device for tensor in (*states, *inputs) if tensor.device.type == "cuda"), CPU),
    )
