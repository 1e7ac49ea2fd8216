"""The passes from a scan to a step plan, in order, and the check after each of them.

**Checks of a step after every pass, in every compile, so that an error names the pass that made it**. Every node reads
owners that nodes before it have written, completely: a node that reads a sum that is not finished, or a product that is
added up elsewhere, would compute a wrong number. Accesses lie within the memory of their owners.

Limit: sizes that are symbols are not compared, as each comparison of symbols becomes a condition of a plan.

**From a scan to a step plan**: the passes on a step, in order, and those on its plan. Rows of the batch are independent
in most cells. Threads then share out rows, and sums over rows (gradients of weights) are computed apart. If a step
mixes rows, one thread computes all of them, and `whole` tells the reason.

**Work apart**. On CUDA elementwise work that shares no values with the loop over steps gets a stage of its own.
Blocks of the device wait for each other in the loop, and each owns some features there. Work of another width would
make them own rows instead. Threads of a processor do not wait for each other, so there it may stay in the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, prod

from rnnops.compiler.lower.lower_ops import lower_ops
from rnnops.compiler.lower.scan import (
    Lowered,
    LoweredStep,
    MixedError,
    Scan,
    Slot,
    StepPlan,
    TensorName,
    carried_edges,
    carried_owners,
    copied,
    dependencies,
    live_nodes,
    split_stages,
)
from rnnops.compiler.lower.statements import (
    Access,
    Contraction,
    Layout,
    Node,
    Stage,
    Statement,
    StepProduct,
    dense,
    node_reads,
    node_writes,
)
from rnnops.compiler.schedule.batch_axis import mark_rows, put_rows_outside
from rnnops.compiler.schedule.loop_nests import write_through_copies
from rnnops.compiler.schedule.product_axes import bring_to_matrices, read_through_copies
from rnnops.compiler.schedule.products import block_products, place_contractions
from rnnops.compiler.schedule.rows import compact_rows, cut_merged_rows
from rnnops.compiler.schedule.sums import contract_sums, merge_folds, split_sums, sum_over_steps
from rnnops.errors import RnnopsError
from rnnops.sizes import is_symbolic
from rnnops.types import Type
from rnnops.util import weak_components

HINT = "This is a fault of rnnops. Please report it with str(net); device='reference' computes the net meanwhile."


class PlanError(RnnopsError):
    """A pass has made a wrong plan of a step. This is a fault of the compiler, not of the net."""

    def __init__(self, problem: str, *, net: str | None = None) -> None:
        super().__init__(problem, net=net, hint=HINT)


def verify_step(step: LoweredStep, known: Collection[Node] = ()) -> None:
    """Raise PlanError for a step whose parts do not fit together.

    Args:
        known: nodes whose places in memory were verified before. `verify_plan` verifies all places once more.
    """
    types = _as_read(step.lowered.types, step.accumulators, step.scan.batch)
    for owner in step.stored:
        _need(owner in types, owner, "is stored, but has no type")
    for name in step.sums.values():
        blob = name in step.lowered.views or name in step.lowered.numbers
        _need(name in step.accumulators or blob, name, "is a sum, but not an accumulator or a blob")
    there = _given(step.scan, step.invariant) | set(step.accumulators)
    _verify_nodes(step.nodes, types, there | _added_to(step.slots, step.nodes), step.invariant, {*map(id, known)})
    for statement in [] if _has_symbols(types) else step.statements:
        if step.batch_axes and statement.row_axis is not None:
            rows = statement.extents[statement.row_axis]
            _need(rows == step.scan.batch, statement, f"{rows} rows, not {step.scan.batch}")


def verify_plan(scan: Scan, plan: StepPlan) -> None:
    """Raise PlanError for a plan whose parts do not fit together."""
    types = _as_read(plan.types, plan.accumulators, scan.batch)
    carried = {reader for reader, _ in carried_owners(scan, plan.slots)}
    there = _given(scan, plan.invariant) | carried | set(plan.accumulators)
    for stages in (plan.stages, plan.past_end):
        nodes = [node for stage in stages for node in stage.nodes]
        there |= _added_to(plan.slots, nodes)
        _verify_nodes(nodes, types, there, plan.invariant)
    for stage in (*plan.stages, *plan.past_end):
        batched = not any(isinstance(node, Statement) for node in stage.nodes)
        _need(stage.loop or batched, stage, "statements must run step by step")
        _need(not stage.loop or not any(isinstance(node, Contraction) for node in stage.nodes), stage, "needs a tile")


def _given(scan: Scan, invariant: Iterable[str]) -> set[str]:
    """The owners that have values when a step begins."""
    return {*scan.reads, *invariant, *([] if scan.timestep is None else [scan.timestep])}


def _as_read(types: Mapping[str, Type], accumulators: Mapping[str, bool], batch: int) -> dict[str, Type]:
    """Types of owners as statements see them. A sum in parts has a part for each row, though rows may share one."""
    parts = {owner: types[owner] for owner, in_parts in accumulators.items() if in_parts}
    return {**types, **{owner: Type(kind.dtype, (batch, *kind.shape[1:])) for owner, kind in parts.items()}}


def _added_to(slots: Iterable[str], nodes: Iterable[Node]) -> set[str]:
    """Owners in tensors whose content steps add to."""
    return {*slots} & {node_writes(s) for s in nodes if isinstance(s, Statement) and s.fold and s.start is None}


def _verify_nodes(
    nodes: Iterable[Node],
    types: Mapping[str, Type],
    there: set[str],
    invariant: Iterable[str],
    known: Collection[int] = (),
) -> None:
    """Raise PlanError unless each node reads only finished values, and writes only owners that may change."""
    fixed, there, readers = set(invariant), set(there), dict[str, Node]()
    sized = not _has_symbols(types)
    for node in nodes:
        target = node_writes(node)
        _need(target not in fixed, node, "writes what is the same at every step")
        _need(target in types, node, "its target has no type")
        if target in readers:
            raise PlanError(f"{node}: writes '{target}', which was read before, by {readers[target]}")
        for owner in node_reads(node):
            if owner not in there:
                raise PlanError(f"{node}: reads '{owner}', which nothing has written")
            if owner != target:
                readers.setdefault(owner, node)
        there.add(target)
        if sized and id(node) not in known:
            _verify_places(node, types)


def _verify_places(node: Node, types: Mapping[str, Type]) -> None:
    """Raise PlanError if a node touches memory outside of its owners."""
    if isinstance(node, Statement):
        for access in node.accesses():
            _verify_access(node, access, types)
    else:
        _verify_product(node, types)


def _verify_access(statement: Statement, access: Access, types: Mapping[str, Type]) -> None:
    _need(access.owner in types, statement, "a target or an operand has no type")
    _need(access.layout.shape == statement.extents, statement, "its extents are not those of an operand")
    first, last = access.layout.span
    size = prod(types[access.owner].shape)
    if access.layout.size and not 0 <= first <= last < size:
        raise PlanError(f"{statement}: '{access.owner}' has {size} numbers, not {first} to {last}")


def _verify_product(node: StepProduct | Contraction, types: Mapping[str, Type]) -> None:
    target = types[node.target]
    size = node.rows * node.columns
    if isinstance(node, Contraction):
        last = node.target_offset + (node.rows - 1) * node.target_stride + node.columns
        _need(last <= target.size, node, f"its target is {target}")
    else:
        _need(size == target.size, node, f"its target is {target}")


def _has_symbols(types: Mapping[str, Type]) -> bool:
    return any(is_symbolic(kind.shape) for kind in types.values())


def _need(holds: bool, where: object, problem: str) -> None:
    """Raise PlanError if something does not hold. The text of `where` is made only for an error."""
    if not holds:
        raise PlanError(f"{where}: {problem}")


def drop_unread(step: LoweredStep) -> LoweredStep:
    """Drop nodes that no stored or summed value needs."""
    return replace(step, nodes=tuple(live_nodes(step.nodes, step.stored)))


class RingError(Exception):
    """Some tensors must hold all steps, because more than one loop over time touches them."""

    def __init__(self, tensors: frozenset[TensorName]) -> None:
        super().__init__(f"these tensors must hold all steps: {', '.join(sorted(map(str, tensors)))}")
        self.tensors = tensors


def check_rings(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan, unchanged. Raises RingError if a tensor is a ring, but must hold all steps."""
    wrong = frozenset(name for stages in (plan.stages, plan.past_end) for name in _wrong_rings(scan, plan, stages))
    if wrong:
        raise RingError(wrong)
    return plan


def _wrong_rings(scan: Scan, plan: StepPlan, stages: Sequence[Stage]) -> list[TensorName]:
    """Rings that several stages touch, or that a stage touches which runs once for all steps of a tile."""
    touched: dict[TensorName, set[int]] = {}
    for number, stage in enumerate(stages):
        for node in stage.nodes:
            for owner in (*node_reads(node), node_writes(node)):
                slot = plan.slots.get(owner)
                if slot is not None and scan.tensors[slot.tensor].ring:
                    touched.setdefault(slot.tensor, set()).add(number if stage.loop else -1)
    return [name for name, numbers in touched.items() if len(numbers) > 1 or -1 in numbers]


def store_results(step: LoweredStep) -> LoweredStep:
    """Give every stored blob an owner in its tensor. A blob without memory of its own is copied there.

    rewrite: `h = Tanh(x)`, stored in two tensors  -->  `h = Tanh(x); h/stored.0 = h`
    """
    scan, lowered, slots, nodes = step.scan, step.lowered.copy(), dict(step.slots), list(step.statements)
    made = Counter(statement.target.owner for statement in nodes)
    for blob, slot in scan.writes:
        owner = _own(lowered, blob)
        if owner and made[owner] and owner not in slots:
            slots[owner] = slot
        else:
            nodes.append(_stored(scan, lowered, blob, slot, slots))
    for blob, slot, layout in scan.additions:
        nodes.append(_stored(scan, lowered, blob, slot, slots, layout))
    return replace(step, lowered=lowered, slots=slots, nodes=tuple(nodes))


def _own(lowered: Lowered, blob: str) -> str:
    """The owner whose elements are exactly those of a blob, in order; `""` if there is none."""
    access = lowered.views.get(blob)
    whole = access is not None and access.layout == dense(lowered.types[access.owner].shape)
    return access.owner if whole and access is not None else ""


def _stored(
    scan: Scan, lowered: Lowered, blob: str, slot: Slot, slots: dict[str, Slot], added: Layout | None = None
) -> Statement:
    """The statement that copies a blob into a slot, or adds it to the slot's content, in the layout `added`."""
    kind = scan.program.types[blob]
    owner = lowered.fresh(f"{blob}/stored")
    target = lowered.own(owner, kind)
    slots[owner] = slot
    if added is None:
        return copied(scan, lowered, blob, target)
    return copied(scan, lowered, blob, replace(target, layout=added), "add")


def set_work_apart(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with stages of their own for work that shares no values with a loop over steps; see `set_apart`."""
    return replace(plan, stages=tuple(set_apart(plan.stages, carried_owners(scan, plan.slots))))


def set_apart(stages: Sequence[Stage], carried: Sequence[tuple[str, str]]) -> Iterator[Stage]:
    """Give elementwise work a stage of its own, before a loop that it shares no values with.

    rewrite: `loop over steps: y = MaskRows(x); h = Tanh(h')`  -->
        `for each step: y = MaskRows(x)`, `loop over steps: h = Tanh(h')`

    Args:
        carried: as from `carried_owners`.
    """
    for stage in stages:
        looped = _in_loops(stage, carried) if stage.cyclic else [True] * len(stage.nodes)
        for inside in (False, True):
            nodes = tuple(node for node, own in zip(stage.nodes, looped, strict=True) if own == inside)
            if nodes:
                yield Stage(nodes, stage.loop, stage.cyclic and inside)


def _in_loops(stage: Stage, carried: Sequence[tuple[str, str]]) -> list[bool]:
    """For each node: True if it shares values, also through others, with a product or with a value that is carried."""
    back = carried_edges(stage.nodes, carried)
    groups = weak_components(len(stage.nodes), [*dependencies(stage.nodes), *back])
    loops = {groups[i] for i, _ in back}
    loops |= {groups[i] for i, node in enumerate(stage.nodes) if not isinstance(node, Statement)}
    return [group in loops for group in groups]


StepPass = Callable[[LoweredStep], LoweredStep]
PlanPass = Callable[[Scan, StepPlan], StepPlan]

ROWS_APART: tuple[StepPass, ...] = (  # each may raise MixedError
    store_results,  # first: later passes work on owners, not on blobs
    merge_folds,  # sums over rows that come in two folds are seen as one,
    cut_merged_rows,
    mark_rows,
    split_sums,  # needs marked rows; its new sums are merged and marked next
    merge_folds,
    mark_rows,
    read_through_copies,
    bring_to_matrices,
    contract_sums,  # before products are blocked: they are not rows times a matrix
    place_contractions,
    drop_unread,  # statements that only contracted sums read; they would be blocked as products
    block_products,
    write_through_copies,  # after all passes that look for products
)
ROWS_TOGETHER: tuple[StepPass, ...] = (
    store_results,
    sum_over_steps,
    merge_folds,
    bring_to_matrices,
    contract_sums,
    place_contractions,
    drop_unread,
    block_products,
    write_through_copies,
)
COMPACTED: tuple[PlanPass, ...] = (
    compact_rows,
    check_rings,
    put_rows_outside,
)  # for targets whose products leave out rows that are over
WITH_ALL_ROWS: tuple[PlanPass, ...] = (set_work_apart, check_rings)


def plan_step(scan: Scan, compacts: bool = True, in_place: float = inf, calls: bool = True) -> StepPlan:
    """Plan one step.

    Args:
        compacts: whether products leave out rows that are over.
        in_place, calls: as in `LoweredStep`.

    Raises UnsupportedError if an op has no compiled form; RingError as `check_rings` does.
    """
    plan = staged(scheduled(scan, in_place, calls))
    for plan_pass in COMPACTED if compacts else WITH_ALL_ROWS:
        plan = plan_pass(scan, plan)
        with _named(plan_pass, scan):
            verify_plan(scan, plan)
    return plan


def scheduled(scan: Scan, in_place: float = inf, calls: bool = True) -> LoweredStep:
    """The step after all passes; rows are apart if they are independent. Raises UnsupportedError."""
    lowered = lowered_step(scan)
    reason = "the batch is one row"
    if scan.batch > 1:
        try:
            return run_passes(ROWS_APART, first_step(scan, lowered, "", in_place, calls))
        except MixedError as mixed:
            reason = str(mixed)
    return run_passes(ROWS_TOGETHER, first_step(scan, lowered, reason, in_place, calls))


def run_passes(passes: Sequence[StepPass], step: LoweredStep) -> LoweredStep:
    """The step after these passes. It is verified after each of them."""
    for step_pass in passes:
        made = step_pass(step)
        with _named(step_pass, step.scan):
            verify_step(made, step.nodes)
        step = made
    return step


@contextmanager
def _named(made_by: Callable[..., object], scan: Scan) -> Iterator[None]:
    """A PlanError from within names the pass and the net."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"after {made_by.__name__}: {error.problem}", net=scan.program.net.name) from None


def first_step(scan: Scan, lowered: Lowered, whole: str, in_place: float = inf, calls: bool = True) -> LoweredStep:
    """The step before all passes."""
    return LoweredStep(scan, lowered, tuple(lowered.statements), dict(scan.reads), whole, in_place, calls)


def lowered_step(scan: Scan) -> Lowered:
    """The ops of a step as statements."""
    types = scan.program.types
    given = {name: Access(name, dense(types[name].shape)) for name in scan.program.net.input_names}
    return lower_ops(scan.program, {**given, **scan.accesses}, {})


def staged(step: LoweredStep) -> StepPlan:
    """The plan of a step that all passes have run on."""
    scan, lowered = step.scan, step.lowered
    stages = split_stages(step.nodes, carried_owners(scan, step.slots))
    scalars = {} if scan.timestep is None else {scan.timestep: "t"}
    return StepPlan(
        tuple(stages), lowered.types, step.batch_axes, step.slots, step.invariant, lowered.constants, scalars,
        step.accumulators, step.sums, step.epilogue, step.whole,
    )  # fmt: skip


def views_of(scan: Scan) -> dict[str, str]:
    """Blob without memory of its own -> the owner whose memory it lies in."""
    return {blob: access.owner for blob, access in lowered_step(scan).views.items() if access.owner != blob}
