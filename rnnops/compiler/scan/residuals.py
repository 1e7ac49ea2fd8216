"""What a compiled forward pass leaves for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rnnops.compiler.scan.state_slots import StateTensor
from rnnops.op import Op
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import RunContext
from rnnops.types import Array


@dataclass
class ScanResiduals:
    """Tensors over time that backward reads.

    Args:
        states: state input -> its tensor.
        outputs: step output that is no state -> `[T, N, ...]`.
        kept: blob -> `[T, ...]`.
    """

    states: dict[str, Array]
    outputs: dict[str, Array]
    kept: dict[str, Array]
    context: RunContext
    layouts: tuple[StateTensor, ...]

    def arrays(self) -> list[Array]:
        """The whole tensors held, which outputs of the forward pass may be views of."""
        return [*self.states.values(), *self.outputs.values()]

    def named_arrays(self) -> dict[str, Array]:
        """Every array held, by what it is."""
        return {**self.states, **self.outputs, **self.kept}

    def stacks(self, op: Op) -> dict[str, Callable[[], Array]]:
        """For each blob or output at hand on the backward pass, a function that gives all its steps `[T, ...]`."""
        blobs = Recurrence(op, "").cell.output_blobs
        result: dict[str, Callable[[], Array]] = {name: array.copy for name, array in self.kept.items()}
        for state in self.layouts:
            if state.state.input in self.states:
                steps = state.every(self.states[state.state.input])
                result.update((name, steps.copy) for name in (state.state.output, blobs[state.state.output]))
        for output, array in self.outputs.items():
            result.update((name, array.copy) for name in (output, blobs[output]))
        return result
