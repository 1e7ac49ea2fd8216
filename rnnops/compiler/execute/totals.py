"""What sums over steps become: rows are added up, then what is linear in sums is computed, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rnnops.compiler.buffers.memory import GRADIENT, SUMS, Buffer, Memory
from rnnops.compiler.execute.once import ON_SUMS, Once
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.target import Target
from rnnops.interpreter import Program, prepare
from rnnops.lazy import cached_property
from rnnops.op import Input
from rnnops.types import Array, Shape


@dataclass
class Totals:
    """Turns sums over steps into results.

    Args:
        epilogue: the ops that run on sums, None where there are none.
    """

    plan: StepPlan
    float_dtype: str
    epilogue: Once | None

    def results(
        self, sums: dict[str, Array], references: Mapping[str, Array], make: Memory, target: Target
    ) -> dict[str, Array]:
        """Totals by result.

        Args:
            sums: over steps, by owner.
            references: what is the same at every step.
        """
        added = dict(sums)
        for owner, buffer in self.over_rows.items():
            added[owner] = target.total(sums[owner], make(buffer))
        if self.epilogue is not None:
            workspace = self.epilogue({**references, **added}, target)
            added.update((name, workspace[name]) for name in self.epilogue.program.net.output_blobs)
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
        types = self.epilogue.program.types
        kinds = {name: types[name] for name in self.epilogue.program.net.output_blobs}
        return {name: self._buffer(name, kind.dtype, kind.shape) for name, kind in kinds.items()}

    def made(self) -> dict[str, Buffer]:
        """All that is allocated here, by owner."""
        return {**self.over_rows, **self.interpreted}

    def beside(self) -> dict[str, Once]:
        """What runs once, by when."""
        return {ON_SUMS: self.epilogue} if self.epilogue else {}

    def _buffer(self, owner: str, dtype: str, shape: Shape) -> Buffer:
        results = {blob: f"gradient of {result}" for result, blob in self.plan.sums.items()}
        kind = GRADIENT if owner in results else SUMS
        return Buffer(results.get(owner, owner), kind, dtype, shape)


def totals_of(plan: StepPlan, step: Program, once: Callable[[Program], Once]) -> Totals:
    """The totals of a step, with the ops on sums as a net of their own.

    Args:
        once: makes such a net ready to run.
    """
    if not plan.epilogue:
        return Totals(plan, step.float_dtype, None)
    made = {name for call in plan.epilogue for name in call.op.outputs}
    read = list(dict.fromkeys(name for call in plan.epilogue for name in call.op.inputs if name and name not in made))
    inputs = [Input(name, step.net.dtype_of(name), step.types[name].shape) for name in read]
    outputs = {blob: blob for blob in plan.sums.values() if blob in made}
    net = step.net.with_ops([call.op for call in plan.epilogue], outputs=outputs, inputs=inputs)
    epilogue = prepare(net, {name: step.types[name] for name in read}, step.float_dtype)
    return Totals(plan, step.float_dtype, once(epilogue))
