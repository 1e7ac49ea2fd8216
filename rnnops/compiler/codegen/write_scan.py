"""Write the plan of a scan as a module; a backward pass may run steps of the forward pass again, segment by segment.

For each row, from the last segment to the first: its states come from the segment's border, all steps run again, which
leaves in scratch what backward reads of them, then all steps run backward. Nothing else of the forward pass was kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnnops.compiler.codegen.parameters import thread_share
from rnnops.compiler.codegen.scan_module import (
    BACKWARDS,
    ONE,
    RANK,
    STEPS,
    THREADS,
    TILE,
    ZERO,
    K,
    N,
    Part,
    ScanModule,
    ScanWriter,
    T,
)
from rnnops.compiler.ir.expressions import Name, choice, compare, least
from rnnops.compiler.ir.kernel import Assign, For, Statement as Line
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.schedule.places import Layouts
from rnnops.compiler.schedule.step_plan import SUM_PARTS, StepPlan, rows_of_sum
from rnnops.types import Type

Again = tuple[Scan, StepPlan]  # steps of the forward pass


def write_scan(scan: Scan, plan: StepPlan, layouts: Layouts, dtype: str, again: Again | None = None) -> ScanModule:
    """Write a plan as a module."""
    if again is None:
        return ScanWriter(scan, plan, layouts, dtype).written()
    return SegmentWriter(scan, plan, layouts, dtype, again=again).written()


@dataclass
class SegmentWriter(ScanWriter):
    """Writes a backward pass around steps of the forward pass."""

    again: Again | None = None

    @property
    def types(self) -> Mapping[str, Type]:
        return self.plan.types if self.again is None else {**self.again[1].types, **self.plan.types}

    def _driver(self) -> list[Line]:
        assert self.again is not None
        assert self.layouts.again is not None
        (scan, plan), layouts = self.again, self.layouts.again
        ahead = ScanWriter(
            scan, plan, layouts, self.dtype, self.constants, self.sizes, self.programs, copies=self.copies,
            starts_at_borders=True,
        )  # fmt: skip
        ahead.part = Part(plan.stages, layouts.places, ahead.shares())
        self.part = Part(self.plan.stages, self.layouts.places, self.shares())
        back = Name("back")
        up = ahead.steps_of_row(plan.stages[0], compare("==", Name("backwards"), 0), back)
        down = self.steps_of_row(self.plan.stages[0], BACKWARDS)
        together = self.sizes.of(rows_of_sum(self.scan.batch)) if self.scan.batch > SUM_PARTS else ONE
        tile = [
            Assign("back", (T - 1) // K * K - TILE),
            Assign("steps", least(K, T - back)),
            Assign("low", choice(BACKWARDS, back, T - back - STEPS)),
            self.part.shares.each_row([*up, *down]),
        ]
        return [*thread_share(("n0", "n1"), RANK, THREADS, N, together), For("tile", ZERO, T, K, tuple(tile))]
