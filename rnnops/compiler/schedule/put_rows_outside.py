"""Rows outside: each row goes through all steps of a tile before the next one begins, so that its states stay in cache.

That is worth it where states are most of what a step touches, as where a state is a matrix and what comes and goes are
vectors, unless each step's states are kept, which lie far apart for a row. Either way statements of such a loop are
changed to go well over large states (`state_statements.py`), and an axis behind that of the batch which nothing folds
or mixes (heads) joins the rows, so that each has less of a state.

A row that ends by lengths goes through the steps that it lasts, and through those past its end. Heads of a batch of one
row are its rows.

The choice goes by shape and not by threads, as sums within a row may be rounded another way. Limits: rows stay within
steps where the loop holds products, where a step sees several steps of a state, where several rows add to one sum, and
where rows end by lengths and there is more than the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from rnnops.compiler.ir.nodes import Node, Stage, node_reads
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.ir.tensor_name import Role
from rnnops.compiler.schedule.join_heads import join_heads
from rnnops.compiler.schedule.state_statements import for_states
from rnnops.compiler.schedule.step_plan import SUM_PARTS, StepPlan, carried_owners
from rnnops.types import Type

LEAST_STATE = 4096  # bytes of a row's states: what is less stays in cache anyway
PASSING = (Role.SEQUENCE, Role.RESULT, Role.GIVEN)  # what comes and goes with steps
LEAST_SHARE = 4  # numbers of states for each of a sequence


def put_rows_outside(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with loops over rows outside of those over steps, where states are most of what a step touches.

    rewrite: for each step, for each row  -->  for each row (and head), for each step
    """
    if not _can_be_outside(scan, plan) or not _is_mostly_states(scan, plan):
        return plan
    outside = _stays_in_cache(scan)
    plan = join_heads(scan, plan) if outside or (scan.batch == 1 and not plan.lengths) else plan
    stages, types, axes = _for_states(scan, plan, plan.stages)
    over, types_over, axes_over = _for_states(scan, plan, plan.past_end)
    if any(types[name] != kind for name, kind in types_over.items() if name in types):
        over, types_over, axes_over = plan.past_end, {}, {}
    types, axes = {**types_over, **types}, {**axes_over, **axes}
    changed = replace(plan, stages=stages, past_end=over, types=types, batch_axes=axes)
    return replace(changed, large_states=True, rows_outside=outside)


def goes_outside(scan: Scan, plan: StepPlan) -> bool:
    """Whether a row may go through all its steps by itself."""
    return _can_be_outside(scan, plan) and _is_mostly_states(scan, plan) and _stays_in_cache(scan)


def _for_states(
    scan: Scan, plan: StepPlan, stages: tuple[Stage, ...]
) -> tuple[tuple[Stage, ...], dict[str, Type], dict[str, int]]:
    """Stages for large states, and the types and batch axes of owners."""
    changed, types, axes = [], dict(plan.types), dict(plan.batch_axes)
    for stage in stages:
        if _is_elementwise(stage):
            kept = {*plan.slots, *plan.accumulators, *_read_in(other for other in stages if other is not stage)}
            carried = carried_owners(scan, plan.slots)
            stage = replace(stage, nodes=for_states(_statements(stage.nodes), types, axes, kept, carried))
        changed.append(stage)
    return tuple(changed), types, axes


def is_row_loop(stage: Stage) -> bool:
    """Whether a stage is a loop over steps of nothing but elementwise work, where a step needs the one before."""
    return stage.cyclic and _is_elementwise(stage)


def _is_elementwise(stage: Stage) -> bool:
    return stage.loop and len(_statements(stage.nodes)) == len(stage.nodes)


def _statements(nodes: Iterable[Node]) -> list[Statement]:
    return [node for node in nodes if isinstance(node, Statement)]


def _read_in(stages: Iterable[Stage]) -> set[str]:
    return {owner for stage in stages for node in stage.nodes for owner in node_reads(node)}


def _can_be_outside(scan: Scan, plan: StepPlan) -> bool:
    """Whether rows are independent in a loop of elementwise work, and no two of them add to one sum."""
    if not (plan.batch_axes or scan.batch == 1) or scan.steps == 1 or not any(map(is_row_loop, plan.stages)):
        return False
    if plan.lengths and not (len(plan.stages) == 1 >= len(plan.past_end) and all(map(_is_elementwise, plan.past_end))):
        return False
    if any(len(plan.types[owner].shape) != len(scan.tensors[slot.tensor].shape) for owner, slot in plan.slots.items()):
        return False  # windows overlap
    return not any(plan.accumulators.values()) or scan.batch <= SUM_PARTS


def _is_mostly_states(scan: Scan, plan: StepPlan) -> bool:
    """Whether a row's states are large, one a matrix, and much larger than what comes or goes with a step."""
    carried = {reader for reader, _ in carried_owners(scan, plan.slots)}
    states = sum(prod(plan.types[owner].shape) for owner in carried)
    nbytes = sum(prod(plan.types[owner].shape) * np.dtype(plan.types[owner].dtype).itemsize for owner in carried)
    given = max(sum(prod(t.shape) for name, t in scan.tensors.items() if name.role is role) for role in PASSING)
    is_matrix = any(len(plan.types[owner].shape) > 2 for owner in carried)  # rows, and two axes
    return is_matrix and nbytes >= LEAST_STATE * scan.batch and states >= LEAST_SHARE * given


def _stays_in_cache(scan: Scan) -> bool:
    """Whether most of what a step touches is the same memory at every step: a row's steps in others lie far apart."""
    tensors = [tensor for name, tensor in scan.tensors.items() if name.role is not Role.BORDER]
    stay = sum(prod(tensor.shape) for tensor in tensors if tensor.ring or tensor.segment)
    return stay > sum(prod(tensor.shape) for tensor in tensors) - stay
