"""Work apart: what a loop over steps neither makes nor reads does not wait with it from step to step.

Threads lose nothing by it, as they do not wait for each other. Blocks of a device do, and own features in a loop; work
of other widths would make them own rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rnnops.compiler.graph.components import weak_components
from rnnops.compiler.ir.nodes import Stage
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.stages import carried_edges, dependencies
from rnnops.compiler.schedule.step_plan import StepPlan, carried_owners


def set_work_apart(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with stages of their own for work that loops have nothing to do with; see `set_apart`."""
    return replace(plan, stages=tuple(set_apart(plan.stages, carried_owners(scan, plan.slots))))


def set_apart(stages: Sequence[Stage], carried: Sequence[tuple[str, str]]) -> Iterator[Stage]:
    """Give elementwise work a stage of its own, before the loop that it has nothing to do with.

    rewrite: `loop over steps: y = MaskRows(x); h = Tanh(h')`  -->
        `for each step: y = MaskRows(x)`, `loop over steps: h = Tanh(h')`

    Args:
        carried: (owner that a step reads, owner that an earlier step has written it to).
    """
    for stage in stages:
        looped = _in_loops(stage, carried) if stage.cyclic else [True] * len(stage.nodes)
        for inside in (False, True):
            nodes = tuple(node for node, own in zip(stage.nodes, looped, strict=True) if own == inside)
            if nodes:
                yield Stage(nodes, stage.loop, stage.cyclic and inside)


def _in_loops(stage: Stage, carried: Sequence[tuple[str, str]]) -> list[bool]:
    """For each node whether it, or what it has to do with, is a product or is carried from step to step."""
    back = carried_edges(stage.nodes, carried)
    groups = weak_components(len(stage.nodes), [*dependencies(stage.nodes), *back])
    loops = {groups[i] for i, _ in back}
    loops |= {groups[i] for i, node in enumerate(stage.nodes) if not isinstance(node, Statement)}
    return [group in loops for group in groups]
