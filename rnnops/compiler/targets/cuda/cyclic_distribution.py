"""Regions of a loop over steps, how blocks share out their features, and which products go together.

**Regions of a loop**: what blocks of a CUDA device do together at a step, and which features each of them owns. A
region is a product, or all elementwise work between two products. Of a product, a block computes columns; a region of
elementwise work is done feature by feature where everything it writes lies so, else row by row. With period P element e
of a row belongs to the block that owns feature e modulo P: of LSTM's gates [N, 4H] with P = H a block owns all four
gates of its features, so that what follows the product needs no other block.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from rnnops.compiler.lower.scan import StepPlan
from rnnops.compiler.lower.statements import (
    Access,
    Contraction,
    Node,
    Stage,
    Statement,
    StepProduct,
    node_reads,
    node_writes,
)
from rnnops.compiler.schedule.loop_nests import Nest, fuse_nests
from rnnops.compiler.targets.cuda.lane_nests import RowNest
from rnnops.util import cached_property


def apart(nodes: Sequence[Node]) -> list[list[StepProduct | Contraction]]:
    """Products in order, those together that do not touch what another of them writes, or go on with the one before."""
    groups: list[list[StepProduct | Contraction]] = []
    for node in nodes:
        assert isinstance(node, StepProduct | Contraction)
        there = groups[-1] if groups else []
        goes_on = bool(there) and _goes_on(node, there[-1])
        written = {other.target for other in there if not goes_on or other.target != node.target}
        touched = written.union(*map(node_reads, there))
        if there and (goes_on or node.target not in touched) and not written & set(node_reads(node)):
            there.append(node)
        else:
            groups.append([node])
    return groups


def _goes_on(node: StepProduct | Contraction, before: StepProduct | Contraction) -> bool:
    """True if a product adds to the one before, element by element."""
    if not isinstance(node, StepProduct) or not isinstance(before, StepProduct) or node.left == node.target:
        return False
    sizes = (node.target, node.rows, node.columns) == (before.target, before.rows, before.columns)
    return node.accumulate and sizes


BY_ROWS = 0  # the period of a region whose rows blocks share out
PARTIAL, TOTAL = "partial sums", "total"  # what a region does of a product whose inner axis blocks share out


@dataclass(frozen=True)
class LoopRegion:
    """A product, or statements between two products.

    Args:
        period: of features that a block owns; `BY_ROWS` where it owns rows.
        part: of a product, `PARTIAL` or `TOTAL`; all of it if empty.
        work: of rows that several blocks share, nest by nest (`share_rows.py`); empty where each row has one block.
        private: what each of these blocks has for itself.
    """

    nodes: tuple[Node, ...]
    period: int
    part: str = ""
    work: tuple[RowNest, ...] = ()
    private: frozenset[str] = frozenset()

    @property
    def product(self) -> StepProduct | None:
        """The product that it is, if it is one."""
        return self.nodes[0] if isinstance(self.nodes[0], StepProduct) else None

    @property
    def statements(self) -> list[Statement]:
        """Its elementwise work."""
        return [node for node in self.nodes if isinstance(node, Statement)]

    @cached_property
    def written(self) -> frozenset[str]:
        """Owners that it writes."""
        return frozenset(map(node_writes, self.nodes))


def regions_of(stage: Stage, plan: StepPlan, period: int) -> list[LoopRegion]:
    """The regions of a loop where features are shared out with a period."""
    regions = []
    for is_row, group in groupby(stage.nodes, key=lambda node: isinstance(node, Statement)):
        nodes = tuple(group)
        if is_row:
            statements = [node for node in nodes if isinstance(node, Statement)]
            regions.append(LoopRegion(nodes, period if by_features(statements, plan, period) else BY_ROWS))
        else:
            regions += [
                LoopRegion((node,), period_of_product(node, period)) for node in nodes if isinstance(node, StepProduct)
            ]
    return regions


def period_of_product(product: StepProduct, period: int) -> int:
    """The period with which columns of a product are shared out: that of the loop if they are so many times it."""
    return period if period and product.columns % period == 0 else product.columns


def periods(stage: Stage) -> list[int]:
    """Periods that a loop may have, the largest first: sizes of what its elementwise work loops over."""
    statements = [node for node in stage.nodes if isinstance(node, Statement)]
    return sorted({size for nest in fuse_nests(statements) for size in nest.extents if size > 1}, reverse=True)


def by_features(statements: Sequence[Statement], plan: StepPlan, period: int) -> bool:
    """True if elementwise work can be done feature by feature, each by itself."""
    written = {statement.target.owner for statement in statements}
    if not period or shared_by_rows(written, plan):
        return False
    numbers = numbers_of(statements, plan)
    nests = feature_nests(statements, plan)
    return all(_has_features(nest, written - numbers, numbers, period) for nest in nests)


def feature_nests(statements: Sequence[Statement], plan: StepPlan) -> list[Nest]:
    """The nests of work that is done feature by feature: what a row has one number of comes first.

    What has features then seldom needs to be in several nests, with memory between them.
    """
    early: list[Statement] = []
    rest: list[Statement] = []
    waiting = {statement.target.owner for statement in statements} - numbers_of(statements, plan)
    for statement in statements:
        late = statement.target.owner in waiting or any(access.owner in waiting for access in statement.reads())
        (rest if late else early).append(statement)
        if late:
            waiting.add(statement.target.owner)
    return fuse_nests([*early, *rest])


def numbers_of(statements: Sequence[Statement], plan: StepPlan) -> frozenset[str]:
    """The buffers that statements write with one number a row."""
    return frozenset(s.target.owner for s in statements if is_number(s.target.owner, statements, plan))


def shared_by_rows(written: Collection[str], plan: StepPlan) -> set[str]:
    """The buffers without rows; each block computes its own copy."""
    owners = {owner for owner in written if owner not in plan.accumulators and owner not in plan.slots}
    return {owner for owner in owners if owner not in plan.batch_axes} if plan.batch_axes else set()


def is_number(owner: str, statements: Sequence[Statement], plan: StepPlan) -> bool:
    """True if a row has one element of it, written once by what loops over nothing."""
    writers = [statement for statement in statements if statement.target.owner == owner]
    if len(writers) != 1 or writers[0].target.index is not None:
        return False
    axis = plan.batch_axes.get(owner)
    single = all(size == 1 for i, size in enumerate(plan.types[owner].shape) if i != axis)
    own = [size for i, size in enumerate(writers[0].extents) if i != writers[0].row_axis]
    return single and prod(own) == 1


def _has_features(nest: Nest, written: Collection[str], numbers: Collection[str], period: int) -> bool:
    """True if a nest can be done for a single feature.

    Args:
        written: owners that the region writes, but for numbers.
    """
    if all(statement.target.owner in numbers for statement in nest.statements):
        read = {access.owner for statement in nest.statements for access in statement.reads()}
        return not nest.extents and not read & set(written)
    return feature_axis(nest, written, period) is not None


def feature_axis(nest: Nest, written: Collection[str], period: int) -> int | None:
    """The axis of a nest along which features lie in everything it writes, None where there is none.

    Args:
        written: owners that the region writes; reads of them must be of the same feature.
    """
    for axis in reversed(range(len(nest.extents))):
        if nest.extents[axis] % period == 0 and all(_keeps(s, axis, written, period) for s in nest.statements):
            return axis
    return None


def _keeps(statement: Statement, axis: int, written: Collection[str], period: int) -> bool:
    if axis in statement.folded_axes() or statement.target.index is not None:
        return False
    own = [access for access in statement.accesses() if access.owner in written]
    return all(lies_by_features(access, axis, period) for access in (statement.target, *own))


def lies_by_features(access: Access, axis: int, period: int) -> bool:
    """True if the position along an axis is the feature, modulo the period, of every element touched."""
    if access.index is not None or access.layout.offset % period or access.layout.strides[axis] != 1:
        return False
    return all(stride % period == 0 for i, stride in enumerate(access.layout.strides) if i != axis)
