"""Rows of the batch: the axis of each blob that they lie along, the threads that share them, the loop over them.

**The batch axis**. The search starts from what sequences and states mean: their axis 0 is the batch. Sizes play no
part, as another axis may have the same size. If an axis of a statement runs along the batch axis of one blob, it marks
the axis of every other blob that it runs along.

**Shares**. Threads share out rows of the batch, or columns of the products of a step. Threads that own rows never wait
within a loop, but each reads all weights at every step, which takes longer than the arithmetic where its rows are few.
Threads that share out columns read only their part of the weights, for all rows, and wait for each other before and
after the products of a step. The faster way follows from a model of one step:

    rows:     max(rows of a thread * multiply-adds of a row / SPEED, bytes of weights / BANDWIDTH)
    columns:  the same with all rows, divided by threads, + 2 waits * WAIT * threads

The constants were measured on two kinds of servers, of 2023 and 2025. On others the choice may be the slower one;
results are the same. Limits: with lengths, threads always share out rows. Elementwise work is taken to cost the same in
both ways.

**Rows outside**. Each row goes through all steps of a tile before the next one begins, so that its states stay in
cache. That pays if states are most of the memory of a step, for example if a state is a matrix. It does not pay if the
states of every step are kept, because those of one row lie far apart. A row that ends by lengths goes through its
steps, and then through those past its end. The choice depends on shapes and not on threads, because sums within a row
may be rounded another way.

Limits: rows stay within steps in four cases. The loop holds products; a step sees several steps of a state; several
rows add to one sum; or rows end by lengths and there is more than the loop.

Two changes make such a loop quick. Heads become rows: the axis after the batch's becomes part of it if no op folds or
mixes its places. Each row then has less of a state, and a batch of one row has more rows for threads to share. States
become resident: a row's state lies in one place of its thread, and steps change it there. An element is written when
all its readers have read it. Two places, used in turn, would take twice the memory. If they were a power of two apart,
they would compete for the same lines of the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np

from rnnops.compiler.lower.scan import SUM_PARTS, LoweredStep, MixedError, Role, Scan, StepPlan, carried_owners
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
)
from rnnops.compiler.schedule.loop_nests import Nest, for_states, fuse_nests, joined_statement
from rnnops.compiler.schedule.product_axes import matrix_call, within_row
from rnnops.types import Array, Shape, Type


@dataclass(frozen=True)
class BatchAxes:
    """The batch axes of a step.

    Args:
        axes: owner of memory -> its batch axis; owners that are the same for all rows are absent.
        statements: all statements, with `row_axis` filled in where one of their axes runs over the batch.
        mixing: blobs of statements that read across rows in a way that no fold over the batch explains.
    """

    axes: dict[str, int]
    statements: tuple[Statement, ...]
    mixing: tuple[str, ...]


def find_batch_axes(statements: Iterable[Statement], types: Mapping[str, Type], known: Mapping[str, int]) -> BatchAxes:
    """Find the batch axis of every owner of memory.

    Args:
        types: of all owners.
        known: batch axes of sequences and states.
    """
    axes = dict(known)
    pending = list(statements)
    while sum(hand_on(statement, types, axes) for statement in pending):
        pass
    marked, mixing = [], []
    for statement in pending:
        found = row_axis_of(statement, types, axes)
        if (found is None and any(access.owner in axes for access in statement.accesses())) or (
            found is not None and not _is_row_local(statement, found, types, axes)
        ):
            mixing.append(statement.blob)
        marked.append(statement if statement.row_axis == found else replace(statement, row_axis=found))
    return BatchAxes(axes, tuple(marked), tuple(mixing))


def mark_rows(step: LoweredStep) -> LoweredStep:
    """Mark the axis of each statement that runs over the batch. Raises MixedError where a statement mixes rows."""
    found = find_batch_axes(step.statements, step.lowered.types, known_axes(step))
    if found.mixing:
        raise MixedError(f"'{found.mixing[0]}' reads across rows")
    return replace(step, nodes=found.statements, batch_axes=found.axes)


def known_axes(step: LoweredStep) -> dict[str, int]:
    """Batch axes that are known by meaning: those of inputs, and of owners that are stored in tensors with rows."""
    scan, types = step.scan, step.lowered.types
    known = {name: axis for name, axis in scan.batch_axes.items() if name in scan.reads}
    for owner, slot in step.slots.items():
        if owner not in scan.reads and slot.tensor in scan.row_tensors:
            known[owner] = len(types[owner].shape) - len(scan.tensors[slot.tensor].shape)
    return known


def axes_along(statement: Statement, axis: int, types: Mapping[str, Type]) -> dict[str, int]:
    """The axis of each owner that an axis of the statement runs along."""
    found = {a.owner: _owner_axis(a, axis, types[a.owner].shape) for a in statement.accesses()}
    return {owner: own for owner, own in found.items() if own is not None}


def hand_on(statement: Statement, types: Mapping[str, Type], axes: dict[str, int]) -> bool:
    """Mark the batch axis of each owner that the statement touches along its own row axis. True if one was new."""
    row = row_axis_of(statement, types, axes)
    if row is None:
        return False
    news = False
    for access in statement.accesses():
        if access.owner not in axes:
            axis = _owner_axis(access, row, types[access.owner].shape)
            if axis is not None:
                axes[access.owner] = axis
                news = True
    return news


def row_axis_of(statement: Statement, types: Mapping[str, Type], axes: Mapping[str, int]) -> int | None:
    """The axis of the statement along which some operand's rows are read."""
    for access in statement.accesses():
        if access.owner in axes:
            own = axes[access.owner]
            shape = types[access.owner].shape
            stride = dense(shape).strides[own]
            for axis, size in enumerate(statement.extents):
                if size == shape[own] and size > 1 and access.layout.strides[axis] == stride:
                    return axis
    return None


def _owner_axis(access: Access, row: int, shape: Shape) -> int | None:
    """The axis of the owner that the statement's axis runs along."""
    size, stride = access.layout.shape[row], access.layout.strides[row]
    for axis, (own_size, own_stride) in enumerate(zip(shape, dense(shape).strides, strict=True)):
        if own_size == size and own_stride == stride:
            return axis
    return None


def _is_row_local(statement: Statement, row: int, types: Mapping[str, Type], axes: Mapping[str, int]) -> bool:
    """True if row n of the statement touches only row n of owners with rows, or folds rows into an owner without."""
    target = statement.target
    if statement.form == "uniform" and row != 0:
        return False
    if target.owner not in axes and target.index is not None and target.index.layout.strides[row] != 0:
        return False  # rows are scattered
    for access in statement.accesses():
        if access.owner not in axes:
            if access.layout.strides[row] != 0:
                return False
            continue
        shape = types[access.owner].shape
        own = axes[access.owner]
        stride, size = dense(shape).strides[own], shape[own]
        if access.layout.strides[row] != stride or access.layout.shape[row] != size:
            return False
        if access.index is not None and access.index_step >= stride and size > 1 and access.owner in axes:
            return False
        if not _is_within_row(access.layout, row, stride, size):
            return False
    return True


def _is_within_row(layout: Layout, row: int, stride: int, size: int) -> bool:
    """True if all elements of the first row lie at place 0 of the owner's axis of this stride and size.

    The place is `number // stride % size`. Strides that are whole turns of the axis do not change it. If all others are
    positive, the highest number that they reach is `last`. If that is within the first turn, it decides.
    """
    turn, others = stride * size, [axis for axis in range(len(layout.shape)) if axis != row]
    moves = [(layout.shape[axis], layout.strides[axis]) for axis in others]
    steps = [(extent, step) for extent, step in moves if step % turn]
    last = layout.offset % turn + sum((extent - 1) * step for extent, step in steps)
    if last < turn and all(step > 0 for _, step in steps):
        return last < stride
    first_row = layout.with_axes(tuple(others), tuple(extent for extent, _ in moves))
    return not ((first_row.numbers() // stride) % size).any()


def order_rows(lengths: Array, steps: int, order: Array, ends: Array, part: tuple[int, int] | None = None) -> None:
    """Order rows so that threads, which take a stretch each, have about equally many unfinished rows at every step.

    If all rows have the same length, their order stays: memory is read fastest in the order in which it lies.

    Args:
        lengths: steps of each row.
        steps: of this part of a recurrence.
        order, ends: results: the rows in their order, and the steps of this part that each has.
        part: the part's first timestep, and the most steps that a row has; None for all steps.
    """
    first, most = part or (0, steps)
    lasting = np.minimum(lengths, most)
    order[...] = np.arange(len(lengths))
    if (lasting != lasting[0]).any():
        order[...] = np.argsort(-lasting.astype(np.int64), kind="stable")[scattered(len(lengths))]
    ends[...] = np.minimum(lasting[order] - first, steps)


@cache
def scattered(count: int) -> Array:
    """The numbers below `count` by their bits read backwards: neighbours are far apart (van der Corput)."""
    numbers, backwards = np.arange(count), np.zeros(count, np.int64)
    for bit in range(count.bit_length()):
        backwards = 2 * backwards + (numbers >> bit & 1)
    return np.argsort(backwards, kind="stable")


LITTLE_WORK = 4_000_000  # operations, two for a multiply-add: some ten microseconds, the price of waking a thread
SLOWER = 100  # operations that an elementwise result counts as
# of one core: multiply-adds and bytes in a second; seconds of a wait, for each thread that waits
SPEED, BANDWIDTH, WAIT = 80e9, 100e9, 1e-7
CLEARLY = 0.9  # columns are shared out if they take less than this part of the time with rows
Products = Sequence[tuple[int, int]]  # multiply-adds, and bytes of the matrix


@dataclass(frozen=True)
class ScanTeam:
    """The threads that run a scan.

    Args:
        by_columns: whether they share out columns of products in loops over steps, and not rows of the batch.
    """

    threads: int
    by_columns: bool = False


def share_work(scan: Scan, plan: StepPlan, threads: int) -> ScanTeam:
    """The team for a scan: as many threads as have rows, or columns of products. One if there is little work."""
    in_loops = [stage for stage in plan.stages if stage.loop]
    in_tiles = multiply_adds(stage for stage in plan.stages if not stage.loop)
    elements = sum(prod(node.extents) for stage in plan.stages for node in stage.nodes if isinstance(node, Statement))
    if scan.steps * (2 * multiply_adds(in_loops) + 2 * in_tiles + SLOWER * elements) < LITTLE_WORK:
        return ScanTeam(1)
    rows = scan.batch * plan.heads if plan.batch_axes else 1
    by_rows = min(threads, rows)
    products, share = _products(plan, in_loops), -(-rows // by_rows) / rows
    by_columns = 1 if plan.lengths else _fastest(products, threads)
    if by_columns > 1 and _columns(products, by_columns) < CLEARLY * _rows(products, share):
        return ScanTeam(by_columns, by_columns=True)
    return ScanTeam(threads if 2 * scan.steps * in_tiles >= LITTLE_WORK else by_rows)


def multiply_adds(stages: Iterable[Stage]) -> int:
    """Multiply-adds of a step."""
    products = [node for stage in stages for node in stage.nodes if isinstance(node, StepProduct | Contraction)]
    return sum(node.rows * node.inner * node.columns for node in products)


def _products(plan: StepPlan, stages: Iterable[Stage]) -> list[tuple[int, int]]:
    """(multiply-adds, bytes of the matrix) of the products of a step."""
    found = [node for stage in stages for node in stage.nodes if isinstance(node, StepProduct)]
    width = {node.target: np.dtype(plan.types[node.target].dtype).itemsize for node in found}
    return [(p.rows * p.inner * p.columns, p.inner * p.columns * width[p.target]) for p in found]


def _fastest(products: Products, threads: int) -> int:
    """The number of threads, a power of 2 or all, with which sharing out columns takes the least time."""
    counts = {threads, *(1 << k for k in range(threads.bit_length()) if 1 << k < threads)}
    return min(sorted(counts), key=lambda count: _columns(products, count))


def _rows(products: Products, share: float) -> float:
    """Seconds of a step where a thread owns a share of the rows."""
    return sum(max(share * adds / SPEED, nbytes / BANDWIDTH) for adds, nbytes in products)


def _columns(products: Products, threads: int) -> float:
    """Seconds of a step where threads share out columns."""
    waits = 2 * WAIT * threads if threads > 1 else 0.0
    return sum(max(adds / SPEED, nbytes / BANDWIDTH) / threads + waits for adds, nbytes in products)


LEAST_HEAD = 1024  # bytes of a head's largest state: smaller heads do not become rows, as a row costs a call a step


def join_heads(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with the axis after the batch's joined to it. Every owner with rows must have that axis.

    rewrite: rows `[N]` of blobs `[N, K, ...]`  -->  rows `[N * K]` of blobs `[N * K, ...]`
    """
    statements = _statements_of_rows(plan)
    if statements is None:
        return plan
    return _heads_as_rows(scan, plan, statements) if scan.batch == 1 else _joined_plan(plan, statements)


def _statements_of_rows(plan: StepPlan) -> list[Statement] | None:
    """All nodes of a step if they are statements, else None."""
    nodes = [node for stage in (*plan.stages, *plan.past_end) for node in stage.nodes]
    statements = _statements_in(nodes)
    return statements if len(statements) == len(nodes) else None


def _with_statements(plan: StepPlan, statements: Iterable[Statement]) -> StepPlan:
    """The plan with these statements in place of its own, in the same order."""
    rest = iter(statements)
    stages, over = (
        tuple(replace(stage, nodes=tuple(next(rest) for _ in stage.nodes)) for stage in some)
        for some in (plan.stages, plan.past_end)
    )
    return replace(plan, stages=stages, past_end=over)


# -- a batch of one row ------------------------------------------------------------------------------------------------


def _heads_as_rows(scan: Scan, plan: StepPlan, statements: Sequence[Statement]) -> StepPlan:
    """The plan of a batch of one row, with heads as rows. If heads cannot be rows, it has one row.

    rewrite: one row of blobs `[1, K, ...]`  -->  rows `[K]` of blobs `[K, ...]`
    """
    carried = {owner for pair in carried_owners(scan, plan.slots) for owner in pair}
    heads = _heads_of([plan.types[owner].shape for owner in carried])
    found = find_batch_axes(statements, plan.types, dict.fromkeys(carried, 1))
    nbytes = max((plan.types[owner].nbytes for owner in carried), default=0)
    if heads < 2 or nbytes < LEAST_HEAD * heads or plan.accumulators or not _are_rows(plan, found):
        return replace(plan, batch_axes=dict.fromkeys(carried, 0))  # scratch needs no axis: each thread has its own
    types = {
        name: replace(kind, shape=kind.shape[found.axes[name] :]) if name in found.axes else kind
        for name, kind in plan.types.items()
    }
    plan = _with_statements(plan, found.statements)
    return replace(plan, types=types, batch_axes=dict.fromkeys(found.axes, 0), heads=heads, whole="")


def _are_rows(plan: StepPlan, found: BatchAxes) -> bool:
    """True if heads are independent, and lie one behind the other in all that is written."""
    if found.mixing or any(prod(plan.types[owner].shape[:axis]) != 1 for owner, axis in found.axes.items()):
        return False
    for statement in found.statements:
        if statement.target.owner not in found.axes or statement.form in ("uniform", "dropped"):
            return False
        if statement.row_axis is None or statement.row_axis in statement.folded_axes():
            return False
    return True


# -- several rows ------------------------------------------------------------------------------------------------------


def _joined_plan(plan: StepPlan, statements: Sequence[Statement]) -> StepPlan:
    owners = {access.owner for s in statements for access in s.accesses()} & plan.batch_axes.keys()
    owners -= _numbers_of_rows(statements, plan)
    heads = _heads_of([plan.types[owner].shape for owner in owners])
    if heads < 2 or plan.accumulators or any(plan.batch_axes[owner] for owner in owners):
        return plan
    found = find_batch_axes(statements, plan.types, dict.fromkeys(owners, 1))
    if found.mixing or found.axes.keys() != owners:
        return plan
    if not all(_can_join(s, h, owners) for s, h in zip(statements, found.statements, strict=True)):
        return plan
    joined = (_joined(s, h.row_axis) for s, h in zip(statements, found.statements, strict=True))
    types = {name: _joined_type(kind) if name in owners else kind for name, kind in plan.types.items()}
    return replace(_with_statements(plan, joined), types=types, heads=heads)


def _numbers_of_rows(statements: Sequence[Statement], plan: StepPlan) -> set[str]:
    """Owners with one number for each row that all its heads share, for example its length."""
    written = {s.target.owner for s in statements}
    return {owner for owner in plan.batch_axes if len(plan.types[owner].shape) == 1 and owner not in written}


def _heads_of(shapes: Collection[tuple[int, ...]]) -> int:
    """The size of the axis after the batch's; 1 if shapes differ in it."""
    sizes = [shape[1] if len(shape) > 1 else 1 for shape in shapes]
    return sizes[0] if sizes and all(size == sizes[0] for size in sizes) else 1


def _can_join(statement: Statement, with_heads: Statement, owners: Collection[str]) -> bool:
    """True if a statement has neither rows nor heads, or has both and they lie as one axis in all `owners`."""
    rows, heads = statement.row_axis, with_heads.row_axis
    if rows is None or heads is None:
        return rows is heads
    if statement.form in ("uniform", "dropped") or {rows, heads} & set(statement.folded_axes()):
        return False
    strides = [access.layout.strides for access in statement.accesses() if access.owner in owners]
    return all(one[rows] == one[heads] * statement.extents[heads] for one in strides)


def _joined(statement: Statement, heads: int | None) -> Statement:
    """The statement with rows and heads as one axis, which comes first."""
    rows = statement.row_axis
    if rows is None or heads is None:
        return statement
    others = (axis for axis in range(len(statement.extents)) if axis not in (rows, heads))
    return replace(joined_statement(statement.moved((rows, heads, *others)), 0), row_axis=0)


def _joined_type(kind: Type) -> Type:
    rows, heads, *rest = kind.shape
    return replace(kind, shape=(rows * heads, *rest))


@dataclass(frozen=True)
class Resident:
    """A state that changes in place.

    Args:
        read: owner that a step reads.
        written: owner that it writes.
        size: numbers of a row.
    """

    read: str
    written: str
    size: int


def resident_states(scan: Scan, plan: StepPlan) -> list[Resident]:
    """The states that may change in place. Only plans with rows outside have any."""
    loops = [stage for stage in plan.stages if is_row_loop(stage)]
    if not plan.rows_outside or len(loops) != 1:
        return []
    loops = [*loops, *plan.past_end]
    nests = [fuse_nests(_statements_in(loop.nodes), large_apart=True) for loop in loops]
    users = [slot.tensor for slot in plan.slots.values()]
    found = []
    for read, written in carried_owners(scan, plan.slots):
        slot, kind = plan.slots[read], plan.types[read]
        alone = scan.tensors[slot.tensor].ring and users.count(slot.tensor) == 2
        follows = abs(slot.shift - plan.slots[written].shift) == 1
        by_rows = plan.batch_axes.get(read) == plan.batch_axes.get(written) == 0
        if alone and follows and by_rows and kind == plan.types[written]:
            if not all(changes_in_place(own, read, written) for own in nests):
                continue
            rows = scan.batch * plan.heads
            found.append(Resident(read, written, prod(kind.shape) // rows))
    return found


def changes_in_place(nests: Sequence[Nest], read: str, written: str) -> bool:
    """True if no statement reads an element of `read` after the new value of that element is written."""
    places = [
        (n, i) for n, nest in enumerate(nests) for i, s in enumerate(nest.statements) if s.target.owner == written
    ]
    if len(places) != 1 or any(s.target.owner == read for nest in nests for s in nest.statements):
        return False
    last, position = places[0]
    writer = nests[last].statements[position]
    if copies(writer, read):
        return True
    if writer.fold or writer.target.index is not None:
        return False
    for n, nest in enumerate(nests):
        for i, statement in enumerate(nest.statements):
            accesses = [access for access in statement.reads() if access.owner == read]
            if accesses and (n, i) > (last, position):
                return False
            if n == last and not all(_is_same(access, writer.target) for access in accesses):
                return False
    return True


def copies(statement: Statement, owner: str) -> bool:
    """True if a statement only copies this owner, element by element. It does nothing if both share memory."""
    if statement.form != "copy" or statement.fold:
        return False
    (source,) = statement.operands
    return isinstance(source, Access) and source.owner == owner and _is_same(source, statement.target)


def _is_same(access: Access, target: Access) -> bool:
    return access.index is None and access.layout == target.layout


LEAST_STATE = 4096  # bytes of a row's states: smaller states stay in cache anyway
PASSING = (Role.SEQUENCE, Role.RESULT, Role.GIVEN)  # tensors that steps read or write once
LEAST_SHARE = 4  # numbers of states, for each number of a step in such tensors


def put_rows_outside(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with loops over rows outside of those over steps, if states are most of the memory of a step.

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
    """True if a row may go through all its steps by itself."""
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
            stage = replace(stage, nodes=for_states(_statements_in(stage.nodes), types, axes, kept, carried))
        changed.append(stage)
    return tuple(changed), types, axes


def is_row_loop(stage: Stage) -> bool:
    """True if a stage is a loop over steps of only elementwise work, and each step needs the one before."""
    return stage.cyclic and _is_elementwise(stage)


def _is_elementwise(stage: Stage) -> bool:
    return stage.loop and len(_statements_in(stage.nodes)) == len(stage.nodes)


def _statements_in(nodes: Iterable[Node]) -> list[Statement]:
    return [node for node in nodes if isinstance(node, Statement)]


def _read_in(stages: Iterable[Stage]) -> set[str]:
    return {owner for stage in stages for node in stage.nodes for owner in node_reads(node)}


def _can_be_outside(scan: Scan, plan: StepPlan) -> bool:
    """True if rows are independent in a loop of elementwise work, and no two of them add to one sum."""
    if not (plan.batch_axes or scan.batch == 1) or scan.steps == 1 or not any(map(is_row_loop, plan.stages)):
        return False
    if any(matrix_call(within_row(node), node.dtype) for stage in plan.stages for node in _statements_in(stage.nodes)):
        return False  # loops over large states do without calls of products
    if plan.lengths and not (len(plan.stages) == 1 >= len(plan.past_end) and all(map(_is_elementwise, plan.past_end))):
        return False
    if any(len(plan.types[owner].shape) != len(scan.tensors[slot.tensor].shape) for owner, slot in plan.slots.items()):
        return False  # windows overlap
    return not any(plan.accumulators.values()) or scan.batch <= SUM_PARTS


def _is_mostly_states(scan: Scan, plan: StepPlan) -> bool:
    """True if a row's states are large, one of them a matrix, and much larger than its step of other tensors."""
    carried = {reader for reader, _ in carried_owners(scan, plan.slots)}
    states = sum(prod(plan.types[owner].shape) for owner in carried)
    nbytes = sum(prod(plan.types[owner].shape) * np.dtype(plan.types[owner].dtype).itemsize for owner in carried)
    given = max(sum(prod(t.shape) for name, t in scan.tensors.items() if name.role is role) for role in PASSING)
    is_matrix = any(len(plan.types[owner].shape) > 2 for owner in carried)  # rows, and two axes
    return is_matrix and nbytes >= LEAST_STATE * scan.batch and states >= LEAST_SHARE * given


def _stays_in_cache(scan: Scan) -> bool:
    """True if most memory of a step is the same at every step. In other tensors the steps of one row lie far apart."""
    tensors = [tensor for name, tensor in scan.tensors.items() if name.role is not Role.BORDER]
    stay = sum(prod(tensor.shape) for tensor in tensors if tensor.ring or tensor.segment)
    return stay > sum(prod(tensor.shape) for tensor in tensors) - stay
