"""How threads share out a scan, and in which order they take rows.

The order in which rows of a batch are shared out among threads, so that each has long ones and short ones.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Contraction, Stage, Statement, StepProduct
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.types import Array


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
