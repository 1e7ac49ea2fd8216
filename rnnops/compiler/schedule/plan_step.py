"""From a scan to a step plan: the passes on a step, in order, and those on its plan.

Rows of the batch are independent in most cells; then threads share them out, and what folds rows (gradients of weights)
is summed apart. Where a step mixes rows, all its rows are one, on one thread, and `whole` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access
from rnnops.compiler.lower.lower_ops import lower_ops
from rnnops.compiler.schedule.batch_axis import mark_rows
from rnnops.compiler.schedule.check_rings import check_rings
from rnnops.compiler.schedule.compaction import compact_rows
from rnnops.compiler.schedule.contract_sums import contract_sums
from rnnops.compiler.schedule.drop_unread import drop_unread
from rnnops.compiler.schedule.merge_folds import merge_folds
from rnnops.compiler.schedule.put_rows_outside import put_rows_outside
from rnnops.compiler.schedule.set_apart import set_work_apart
from rnnops.compiler.schedule.split_sums import split_sums
from rnnops.compiler.schedule.stages import split_stages
from rnnops.compiler.schedule.step_plan import MixedError, Step, StepPlan, carried_owners
from rnnops.compiler.schedule.store_results import store_results
from rnnops.compiler.schedule.sum_over_steps import sum_over_steps
from rnnops.compiler.schedule.sum_products import block_products
from rnnops.compiler.schedule.turn_contractions import turn_contractions
from rnnops.compiler.schedule.verify_step import PlanError, verify_plan, verify_step

StepPass = Callable[[Step], Step]
PlanPass = Callable[[Scan, StepPlan], StepPlan]

ROWS_APART: tuple[StepPass, ...] = (  # each may raise MixedError
    store_results,  # first: no later pass asks for blobs, but for owners
    merge_folds,  # sums over rows that come in two folds are seen as one,
    mark_rows,
    split_sums,  # which is what this looks for; what it adds is merged and marked as well
    merge_folds,
    mark_rows,
    contract_sums,  # before products are blocked: they are no rows times a matrix
    turn_contractions,
    drop_unread,  # so that what only sums read which are contracted is no product
    block_products,
)
ROWS_TOGETHER: tuple[StepPass, ...] = (
    store_results,
    sum_over_steps,
    merge_folds,
    contract_sums,
    drop_unread,
    block_products,
)
COMPACTED: tuple[PlanPass, ...] = (
    compact_rows,
    check_rings,
    put_rows_outside,
)  # for targets whose products leave out rows that are over
WITH_ALL_ROWS: tuple[PlanPass, ...] = (set_work_apart, check_rings)


def plan_step(scan: Scan, compacts: bool = True, in_place: float = inf) -> StepPlan:
    """Plan one step.

    Args:
        compacts: whether rows that are over leave products.
        in_place: the largest inner size of a product of rounded operands that adds to what is there as a sum does.

    Raises UnsupportedError where an op has no compiled form, and RingError.
    """
    plan = staged(scheduled(scan, in_place))
    for plan_pass in COMPACTED if compacts else WITH_ALL_ROWS:
        plan = plan_pass(scan, plan)
        with _named(plan_pass, scan):
            verify_plan(scan, plan)
    return plan


def scheduled(scan: Scan, in_place: float = inf) -> Step:
    """The step after all passes, its rows apart where they are independent. Raises UnsupportedError."""
    lowered = lowered_step(scan)
    reason = "the batch is one row"
    if scan.batch > 1:
        try:
            return run_passes(ROWS_APART, first_step(scan, lowered, "", in_place))
        except MixedError as mixed:
            reason = str(mixed)
    return run_passes(ROWS_TOGETHER, first_step(scan, lowered, reason, in_place))


def run_passes(passes: Sequence[StepPass], step: Step) -> Step:
    """The step after these passes, verified after each."""
    for step_pass in passes:
        made = step_pass(step)
        with _named(step_pass, step.scan):
            verify_step(made, step.nodes)
        step = made
    return step


@contextmanager
def _named(made_by: Callable[..., object], scan: Scan) -> Iterator[None]:
    """An error says which pass has made what is wrong, of which net."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"after {made_by.__name__}: {error.problem}", net=scan.program.net.name) from None


def first_step(scan: Scan, lowered: Lowered, whole: str, in_place: float = inf) -> Step:
    """The step before all passes."""
    return Step(scan, lowered, tuple(lowered.statements), dict(scan.reads), whole, in_place)


def lowered_step(scan: Scan) -> Lowered:
    """The ops of a step as statements."""
    types = scan.program.types
    given = {name: Access(name, dense(types[name].shape)) for name in scan.program.net.input_names}
    return lower_ops(scan.program, {**given, **scan.accesses}, {})


def staged(step: Step) -> StepPlan:
    """The plan of a step that all passes have run on."""
    scan, lowered = step.scan, step.lowered
    stages = split_stages(step.nodes, carried_owners(scan, step.slots))
    scalars = {} if scan.timestep is None else {scan.timestep: "t"}
    return StepPlan(
        tuple(stages), lowered.types, step.batch_axes, step.slots, step.invariant, lowered.constants, scalars,
        step.accumulators, step.sums, step.epilogue, step.whole,
    )  # fmt: skip


def views_of(scan: Scan) -> dict[str, str]:
    """Blobs that lie in the memory of others -> those."""
    return {blob: access.owner for blob, access in lowered_step(scan).views.items() if access.owner != blob}
