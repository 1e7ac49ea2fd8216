"""Rings: a tensor may hold fewer steps than all if one loop over time alone touches it."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.compiler.ir.nodes import Stage, node_reads, node_writes
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.compiler.schedule.step_plan import StepPlan


class RingError(Exception):
    """Tensors that must hold all steps, as more than one loop over time touches them."""

    def __init__(self, tensors: frozenset[TensorName]) -> None:
        super().__init__(f"no ring will do for {', '.join(sorted(map(str, tensors)))}")
        self.tensors = tensors


def check_rings(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan as it is. Raises RingError where tensors that are rings must hold all steps."""
    wrong = frozenset(name for stages in (plan.stages, plan.past_end) for name in _wrong_rings(scan, plan, stages))
    if wrong:
        raise RingError(wrong)
    return plan


def _wrong_rings(scan: Scan, plan: StepPlan, stages: Sequence[Stage]) -> list[TensorName]:
    """Rings that several stages touch, or one that runs once for all steps of a tile."""
    touched: dict[TensorName, set[int]] = {}
    for number, stage in enumerate(stages):
        for node in stage.nodes:
            for owner in (*node_reads(node), node_writes(node)):
                slot = plan.slots.get(owner)
                if slot is not None and scan.tensors[slot.tensor].ring:
                    touched.setdefault(slot.tensor, set()).add(number if stage.loop else -1)
    return [name for name, numbers in touched.items() if len(numbers) > 1 or -1 in numbers]
