"""What a compiled forward pass leaves for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rnnops.compiler.lower.state_slots import StateTensor
from rnnops.op import Op
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import RunContext
from rnnops.types import Array


@dataclass(frozen=True)
class PastEnd:
    """Steps that rows of the batch do not have.

    Args:
        lengths: steps of each row.
        batch_axes: blob of which such rows are not computed -> its batch axis, None where all rows are one.
    """

    lengths: Array
    batch_axes: Mapping[str, int | None]

    def clear(self, stack: Array, batch_axis: int | None) -> None:
        """Put zeros where a row of a blob is over, in an array of all its steps."""
        steps = np.arange(len(stack))
        if batch_axis is None:
            stack[steps >= self.lengths.max()] = 0
        else:
            np.moveaxis(stack, batch_axis + 1, 1)[steps[:, None] >= self.lengths] = 0


@dataclass
class ScanResiduals:
    """Tensors over time that backward reads.

    Args:
        states: state input -> its tensor.
        outputs: step output that is no state -> `[T, N, ...]`.
        kept: blob -> `[T, ...]`.
        past_end: what of that is not there where a row is over.
        borders: state input -> what it is before each segment, where nothing else is kept.
    """

    states: dict[str, Array]
    outputs: dict[str, Array]
    kept: dict[str, Array]
    context: RunContext
    layouts: tuple[StateTensor, ...]
    past_end: PastEnd | None = None
    borders: dict[str, Array] = field(default_factory=dict)

    def arrays(self) -> list[Array]:
        """The whole tensors held, which outputs of the forward pass may be views of."""
        return [*self.states.values(), *self.outputs.values()]

    def named_arrays(self) -> dict[str, Array]:
        """Every array held, by what it is."""
        return {**self.states, **self.outputs, **self.kept, **self.borders}

    def stacks(self, op: Op) -> dict[str, Callable[[], Array]]:
        """For each blob or output at hand on the backward pass, a function that gives all its steps `[T, ...]`."""
        blobs = Recurrence(op, "").cell.output_blobs
        result: dict[str, Callable[[], Array]] = {name: partial(self._stack, name) for name in self.kept}
        for state in self.layouts:
            if state.state.input in self.states:
                steps = state.every(self.states[state.state.input])
                result.update((name, steps.copy) for name in (state.state.output, blobs[state.state.output]))
        for output, array in self.outputs.items():
            result.update((name, array.copy) for name in (output, blobs[output]))
        return result

    def _stack(self, name: str) -> Array:
        stack: Array = self.kept[name].copy()
        if self.past_end is not None and name in self.past_end.batch_axes:
            self.past_end.clear(stack, self.past_end.batch_axes[name])
        return stack
