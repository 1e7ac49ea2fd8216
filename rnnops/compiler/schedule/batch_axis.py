"""The batch axis of each blob, and how threads share out its rows.

The batch axis: which axis of each blob runs over the rows of the batch, and whether rows are independent.

What is known at first, by meaning and not by size, is that axis 0 of sequences and states runs over the batch. A
statement that reads one axis of a blob along one of its own hands the axis on to all that it reads or writes along it.

How threads share out a scan: rows of the batch, or columns of the products of a step.

Threads that own rows never wait within a loop, but each reads all weights at every step, which takes longer than the
arithmetic where its rows are few. Threads that share out columns read but their part of the weights, for all rows, and
wait for each other before and after the products of a step. Which is faster follows from a model of one step:

    rows:     max(rows of a thread * multiply-adds of a row / SPEED, bytes of weights / BANDWIDTH)
    columns:  the same with all rows, divided by threads, + 2 waits * WAIT * threads

The constants were measured on two kinds of servers of 2023 and 2025; on others the choice may be off by some, results
never are. Limits: rows that end by lengths keep to rows; elementwise work is taken to cost the same in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np

from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Contraction, Layout, Stage, Statement, StepProduct, dense
from rnnops.compiler.schedule.step_plan import LoweredStep, MixedError, StepPlan
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
    while sum(_hand_on(statement, types, axes) for statement in pending):
        pass
    marked, mixing = [], []
    for statement in pending:
        found = _row_axis(statement, types, axes)
        if (found is None and any(access.owner in axes for access in statement.accesses())) or (
            found is not None and not _is_row_local(statement, found, types, axes)
        ):
            mixing.append(statement.blob)
        marked.append(statement if statement.row_axis == found else replace(statement, row_axis=found))
    return BatchAxes(axes, tuple(marked), tuple(mixing))


def mark_rows(step: LoweredStep) -> LoweredStep:
    """Mark the axis of each statement that runs over the batch. Raises MixedError where a statement mixes rows."""
    found = find_batch_axes(step.statements, step.lowered.types, _known_axes(step))
    if found.mixing:
        raise MixedError(f"'{found.mixing[0]}' reads across rows")
    return replace(step, nodes=found.statements, batch_axes=found.axes)


def _known_axes(step: LoweredStep) -> dict[str, int]:
    """Batch axes by meaning: of what is read, and of what lies in tensors of sequences and states."""
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


def _hand_on(statement: Statement, types: Mapping[str, Type], axes: dict[str, int]) -> bool:
    """Give the batch axis to what the statement reads or writes along its own; True where that was news."""
    row = _row_axis(statement, types, axes)
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


def _row_axis(statement: Statement, types: Mapping[str, Type], axes: Mapping[str, int]) -> int | None:
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
    """True if row n of the statement reads and writes nothing but row n, or folds rows into something without rows."""
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

    The place is `number // stride % size`. Steps that are whole turns of the axis leave it; if all others lead upwards,
    they end at `last`, which decides unless it is a turn further.
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
    """Put rows in an order of which every stretch holds about as many rows that last until step t as any other.

    Rows that all last as long stay as they are: memory is read fastest in the order in which it lies.

    Args:
        lengths: steps of each row.
        steps: of this part of a recurrence.
        order, ends: get the rows in their order, and how many steps of the part each has.
        part: its first timestep, and how many steps a row has at most; all steps if left out.
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


LITTLE_WORK = 4_000_000  # multiply-adds, twice: some ten microseconds, about the price of waking a thread
SLOWER = 100  # an elementwise result costs about so many operations of a product
SPEED, BANDWIDTH, WAIT = 80e9, 100e9, 1e-7  # multiply-adds and bytes a second, of one core; seconds of a wait, a thread
CLEARLY = 0.9  # of the time with rows: what columns must be under
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
    """As many threads as have rows to work on, or columns of a step's products; one where there is little to do."""
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
    """The number of threads, a power of 2 or all, with which columns take least time."""
    counts = {threads, *(1 << k for k in range(threads.bit_length()) if 1 << k < threads)}
    return min(sorted(counts), key=lambda count: _columns(products, count))


def _rows(products: Products, share: float) -> float:
    """Seconds of a step where a thread owns a share of the rows."""
    return sum(max(share * adds / SPEED, nbytes / BANDWIDTH) for adds, nbytes in products)


def _columns(products: Products, threads: int) -> float:
    """Seconds of a step where threads share out columns."""
    waits = 2 * WAIT * threads if threads > 1 else 0.0
    return sum(max(adds / SPEED, nbytes / BANDWIDTH) / threads + waits for adds, nbytes in products)
