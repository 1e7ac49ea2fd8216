"""What sums over steps become: rows are added up, then what is linear in sums is computed, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rnnops.compiler.scan.memory import GRADIENT, SUMS, Buffer, Memory
from rnnops.compiler.scan.step_plan import StepPlan
from rnnops.interpreter import Program, Workspace, execute, prepare
from rnnops.op import Input
from rnnops.schema import RunContext
from rnnops.types import Array, Shape


@dataclass
class Totals:
    """Turns sums over steps into results.

    Args:
        epilogue: the ops that run on sums, None where there are none.
    """

    plan: StepPlan
    float_dtype: str
    epilogue: Program | None

    def results(
        self,
        sums: dict[str, Array],
        references: Mapping[str, Array],
        make: Memory,
        kernels: Callable[[Program, Workspace], Mapping[str, Any]],
    ) -> dict[str, Array]:
        """Totals by result.

        Args:
            sums: over steps, by owner.
            references: what is the same at every step.
            kernels: what runs ops on sums, of a program and the arrays it gets.
        """
        added = dict(sums)
        for owner, buffer in self.over_rows.items():
            added[owner] = sums[owner].sum(axis=0, out=make(buffer))
        if self.epilogue is not None:
            workspace = Workspace()
            inputs = self.epilogue.net.input_names
            workspace.local.update((name, added[name] if name in added else references[name]) for name in inputs)
            execute(self.epilogue, workspace, RunContext(), kernels=kernels(self.epilogue, workspace))
            added.update((name, workspace[name]) for name in self.epilogue.net.output_blobs)
        return {result: added[blob] for result, blob in self.plan.sums.items()}

    @cached_property
    def over_rows(self) -> dict[str, Buffer]:
        """Sums over rows, by owner of what is summed over steps row by row."""
        plan = self.plan
        summed = {o: plan.types[o] for o, by_row in plan.accumulators.items() if by_row}
        return {o: self._buffer(o, kind.dtype, kind.shape[1:]) for o, kind in summed.items()}

    @cached_property
    def interpreted(self) -> dict[str, Buffer]:
        """What the interpreter makes of sums, by owner."""
        if self.epilogue is None:
            return {}
        types = self.epilogue.types
        kinds = {name: types[name] for name in self.epilogue.net.output_blobs}
        return {name: self._buffer(name, kind.dtype, kind.shape) for name, kind in kinds.items()}

    def made(self) -> dict[str, Buffer]:
        """All that is allocated here, by owner."""
        return {**self.over_rows, **self.interpreted}

    def _buffer(self, owner: str, dtype: str, shape: Shape) -> Buffer:
        results = {blob: f"gradient of {result}" for result, blob in self.plan.sums.items()}
        kind = GRADIENT if owner in results else SUMS
        return Buffer(results.get(owner, owner), kind, dtype, shape)


def totals_of(plan: StepPlan, step: Program) -> Totals:
    """The totals of a step, with the ops on sums as a net of their own."""
    if not plan.epilogue:
        return Totals(plan, step.float_dtype, None)
    made = {name for call in plan.epilogue for name in call.op.outputs}
    read = list(dict.fromkeys(name for call in plan.epilogue for name in call.op.inputs if name and name not in made))
    inputs = [Input(name, step.net.dtype_of(name), step.types[name].shape) for name in read]
    outputs = {blob: blob for blob in plan.sums.values() if blob in made}
    net = step.net.with_ops([call.op for call in plan.epilogue], outputs=outputs, inputs=inputs)
    return Totals(plan, step.float_dtype, prepare(net, {name: step.types[name] for name in read}, step.float_dtype))
