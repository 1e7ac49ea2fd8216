"""Regions of a loop over steps, the share of each block in their features, and the products that go together.

**Regions of a loop**: the work of blocks of a CUDA device at a step, and the features that each block owns. A region is
a product, or all elementwise work between two products. A block computes columns of a product. Elementwise work is done
feature by feature if all its results lie so, else row by row. With period P, element e of a row belongs to the block
that owns feature e modulo P. LSTM's gates are `[N, 4H]`. With P = H, a block owns all four gates of its features, so
that the work after the product needs no other block.

**Waits of blocks in a loop over steps** (`place_barriers`). Each region touches memory in shares of blocks: by rows, by
features with some period, or all of it. A product reads all of its left side. If blocks share out its inner axis, each
reads its own features instead, and all read partial sums of all. Two regions need a wait between them if they touch the
same element, one of them writes it, and the element may belong to different blocks. Steps are examined in the order in
which they run. The first region that needs a wait gets one at every step, until no region needs one. LSTM needs one
wait a step, before its product.

Limits: elements are told apart by owner, by step and by row or feature. Two parts of one blob count as the same, except
if blocks share rows.

**Split products** have their inner axis shared out by the members of a group. If members own columns of the weights, a
block reads the whole left side: `rows * inner` numbers. If they own rows of the weights, each multiplies the numbers of
its own features. It writes and reads `rows * columns` partial sums, and some zeros that fill tiles. For LSTM's gate
gradients times weights that is half as much, because a feature has four gates. For a product with one number for each
feature, as in a forward pass, it would be more. The cost of an added wait counts as well (`share_blocks.py`).

Limits: the left side and the result have whole numbers of features in a row, with the period of the loop. One decision
is made for all products of a loop that would read and write less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from rnnops.compiler.lower.scan import Scan, StepPlan, TensorName, rows_of_sum
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
from rnnops.compiler.targets.cuda import lane_nests
from rnnops.kernels.cuda.step_product import PartialSums, partial_sums
from rnnops.util import cached_property


def apart(nodes: Sequence[Node]) -> list[list[StepProduct | Contraction]]:
    """Products in order, in groups. In a group, a product may add to the one right before it. Otherwise products do not
    touch each other's results."""
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
PARTIAL, TOTAL = "partial sums", "total"  # the two parts of a product whose inner axis blocks share out


@dataclass(frozen=True)
class LoopRegion:
    """A product, or statements between two products.

    Args:
        period: of the features that a block owns; `BY_ROWS` if it owns rows.
        part: the part of a product, `PARTIAL` or `TOTAL`; empty for the whole product.
        work: the nests of rows that several blocks share (`share_rows.py`); empty if each row has one block.
        private: owners that each of these blocks has for itself.
    """

    nodes: tuple[Node, ...]
    period: int
    part: str = ""
    work: tuple[lane_nests.RowNest, ...] = ()
    private: frozenset[str] = frozenset()

    @property
    def product(self) -> StepProduct | None:
        """The region's product; None if it is elementwise work."""
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
    """The regions of a loop whose features are shared out with a period."""
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
    """The period for columns of a product: that of the loop if it divides them, else their number."""
    return period if period and product.columns % period == 0 else product.columns


def periods(stage: Stage) -> list[int]:
    """Periods that a loop may have, the largest first: the extents of its elementwise work."""
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
    """The nests of work that is done feature by feature. Values with one number for a row come first.

    Values with features then seldom need several nests, with memory between them.
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
    """The owners that statements write with one number for a row."""
    return frozenset(s.target.owner for s in statements if is_number(s.target.owner, statements, plan))


def shared_by_rows(written: Collection[str], plan: StepPlan) -> set[str]:
    """The owners without rows. Each block computes its own copy of them."""
    owners = {owner for owner in written if owner not in plan.accumulators and owner not in plan.slots}
    return {owner for owner in owners if owner not in plan.batch_axes} if plan.batch_axes else set()


def is_number(owner: str, statements: Sequence[Statement], plan: StepPlan) -> bool:
    """True if an owner has one element for a row, and one statement without loops writes it."""
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
        written: owners that the region writes, without `numbers`.
        numbers: owners with one number for a row.
    """
    if all(statement.target.owner in numbers for statement in nest.statements):
        read = {access.owner for statement in nest.statements for access in statement.reads()}
        return not nest.extents and not read & set(written)
    return feature_axis(nest, written, period) is not None


def feature_axis(nest: Nest, written: Collection[str], period: int) -> int | None:
    """The axis of a nest along which features lie in all its results; None if there is none.

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
    """True if the position along an axis, modulo the period, is the feature of every element touched."""
    if access.index is not None or access.layout.offset % period or access.layout.strides[axis] != 1:
        return False
    return all(stride % period == 0 for i, stride in enumerate(access.layout.strides) if i != axis)


COPIES = 2  # of a blob that lives for a step: the next step writes the other one
EVERYTHING = -1  # the share of memory that every block touches, such as a product's left side


@dataclass(frozen=True)
class Touch:
    """The use of memory by a region.

    Args:
        memory: a tensor, an owner in scratch, or a product for its partial sums.
        first, last: positions over time, relative to the step.
        ring: steps after which memory is used again; 0 if it never is.
        share: `BY_ROWS`, the period of features, `EVERYTHING`, or the share of the blocks of a row.
        span: the first and last element of each row; None if it may be any, or for a window of several steps.
    """

    memory: TensorName | str | StepProduct
    first: int
    last: int
    ring: int
    share: int | lane_nests.RowShare
    writes: bool
    span: tuple[int, int] | None = None

    def conflicts(self, earlier: Touch, steps: int) -> bool:
        """True if blocks must wait between an earlier touch and this one, `steps` steps of time later."""
        if self.memory != earlier.memory or not (self.writes or earlier.writes):
            return False
        if self.span and earlier.span and not max(self.span[0], earlier.span[0]) <= min(self.span[1], earlier.span[1]):
            return False
        own = self.share == earlier.share and self.share not in (EVERYTHING, lane_nests.WHOLE_ROW)
        return not own and self._meets(earlier, steps)

    def _meets(self, earlier: Touch, steps: int) -> bool:
        low, high = earlier.first - self.last - steps, earlier.last - self.first - steps
        return low <= 0 <= high if self.ring == 0 else high - low >= self.ring or -low % self.ring <= high - low


def place_barriers(scan: Scan, plan: StepPlan, regions: Sequence[LoopRegion], copies: int = COPIES) -> frozenset[int]:
    """The numbers of the regions before which all blocks wait.

    Args:
        copies: of partial sums of products.
    """
    touches = [
        list(_touches(scan, plan, region, _seen(regions, number), copies)) for number, region in enumerate(regions)
    ]
    steps = min(scan.steps, 2 + _reach(touches))
    waits: set[int] = set()
    while (found := _first_conflict(touches, waits, steps, -1 if scan.reverse else 1)) is not None:
        waits.add(found)
    return frozenset(waits)


def steps_stand_apart(scan: Scan, plan: StepPlan, regions: Sequence[LoopRegion]) -> bool:
    """True if steps may run at once: no step touches what another writes, in tensors or in sums over steps.

    Values in scratch are ignored: each step can have its own.
    """
    lasting = {*plan.slots, *plan.accumulators}
    place = Positions(scan, plan)
    touches = [
        place.touch(owner, EVERYTHING, writes)
        for region in regions
        for owner, (_, writes) in _shares(region, plan).items()
        if owner in lasting
    ]
    steps = range(1, min(scan.steps, 2 + _reach([touches])))
    return not any(a.conflicts(b, sign * step) for a in touches for b in touches for step in steps for sign in (1, -1))


def _first_conflict(touches: Sequence[Sequence[Touch]], waits: set[int], steps: int, direction: int) -> int | None:
    since: list[tuple[int, Touch]] = []  # the touches since the last wait, each with its step
    for step in range(steps):
        for number, own in enumerate(touches):
            if number in waits:
                since.clear()
            elif any(t.conflicts(other, direction * (step - then)) for t in own for then, other in since):
                return number
            since += [(step, touch) for touch in own]
    return None


def _reach(touches: Sequence[Sequence[Touch]]) -> int:
    """The most steps between two touches of the same element."""
    places: dict[TensorName | str | StepProduct, list[Touch]] = {}
    for touch in (touch for region in touches for touch in region):
        places.setdefault(touch.memory, []).append(touch)
    spans = [max(t.last for t in same) - min(t.first for t in same) for same in places.values()]
    return max([0, *spans, *(touch.ring for region in touches for touch in region)])


def _seen(regions: Sequence[LoopRegion], number: int) -> set[str]:
    """The owners that other regions read."""
    others = [node for i, region in enumerate(regions) if i != number for node in region.nodes]
    return {owner for node in others for owner in node_reads(node)}


def _touches(
    scan: Scan, plan: StepPlan, region: LoopRegion, seen: Collection[str], copies: int = COPIES
) -> Iterator[Touch]:
    place = Positions(scan, plan)
    product = region.product
    if product is not None:
        if region.part != TOTAL:
            yield place.touch(product.left, region.period if region.part else EVERYTHING, False)
        if region.part:
            yield Touch(product, 0, 0, copies, EVERYTHING, region.part == PARTIAL)
        if region.part != PARTIAL:
            yield place.touch(product.target, region.period, True)
        return
    lasting, spans = {*seen, *plan.slots, *plan.accumulators}, lane_nests.spans_of_parts(region.work)
    for owner, (share, writes) in _shares(region, plan).items():
        if owner in lasting or not is_number(owner, region.statements, plan):  # others stay in registers
            touch = place.touch(owner, share, writes)
            yield replace(touch, span=spans.get(owner) if touch.first == touch.last else None)


def _shares(region: LoopRegion, plan: StepPlan) -> Mapping[str, tuple[int | lane_nests.RowShare, bool]]:
    """Owner that steps change -> the share of it that blocks touch, and whether they write it."""
    found = lane_nests.shares_of_parts(region.work, region.private) if region.work else _shares_of_nests(region, plan)
    return {owner: share for owner, share in found.items() if owner not in plan.invariant}


def _shares_of_nests(region: LoopRegion, plan: StepPlan) -> Mapping[str, tuple[int, bool]]:
    found: dict[str, tuple[int, bool]] = {}
    written = region.written - numbers_of(region.statements, plan)
    for nest in feature_nests(region.statements, plan):
        axis = None if region.period == BY_ROWS else feature_axis(nest, written, region.period)
        for statement in nest.statements:
            for access in statement.accesses():
                writes = access is statement.target
                share = BY_ROWS
                if region.period != BY_ROWS:
                    known = axis is not None and lies_by_features(access, axis, region.period)
                    share = region.period if known else EVERYTHING
                before = found.get(access.owner, (share, writes))
                found[access.owner] = (share if share == before[0] else EVERYTHING, writes or before[1])
    return found


class Positions:
    """The positions of a plan's owners in tensors."""

    def __init__(self, scan: Scan, plan: StepPlan) -> None:
        self.scan, self.plan = scan, plan

    def touch(self, owner: str, share: int | lane_nests.RowShare, writes: bool) -> Touch:
        """The use of an owner by a region, with this share."""
        slot = self.plan.slots.get(owner)
        if slot is None:
            lasting = owner in self.plan.accumulators
            return Touch(owner, 0, 0, 1 if lasting else COPIES, share, writes)
        tensor = self.scan.tensors[slot.tensor]
        shape = self.plan.types[owner].shape
        steps = shape[0] if len(shape) > len(tensor.shape) else 1
        if steps > 1 and not _is_alike(share, prod(shape[1:])):
            share = EVERYTHING
        ring = tensor.length if tensor.ring else 0
        return Touch(slot.tensor, slot.shift, slot.shift + steps - 1, ring, share, writes)


def _is_alike(share: int | lane_nests.RowShare, numbers: int) -> bool:
    """True if an element's place in a step decides its block, also in a window of steps of `numbers` numbers each."""
    if isinstance(share, lane_nests.PartShare):
        return numbers % (share.width * share.size) == 0
    return not isinstance(share, int) or share <= 0 or numbers % share == 0


L2_BYTES = 40 << 20  # of an A100; partial sums should not leave it


@dataclass(frozen=True)
class Sharing:
    """Blocks that share out a loop.

    Args:
        rows: of the batch.
    """

    rows: int
    groups: int
    members: int

    def rows_of(self, product: StepProduct) -> int:
        """The most rows of a product's left side that a group has. Rows that add to one sum stay together."""
        together = rows_of_sum(self.rows)
        parts = -(-self.rows // together)
        own = together * -(-parts // self.groups)
        return own * product.rows // max(self.rows, 1)

    def sums_of(self, product: StepProduct, period: int) -> PartialSums:
        """The partial sums that a group keeps."""
        return partial_sums(self.rows_of(product), product.columns, period, self.members)

    def numbers(self, region: LoopRegion) -> int:
        """The numbers that a block reads and writes for a region's product; 0 for elementwise work."""
        product = region.product
        if product is None:
            return 0
        rows = self.rows_of(product)
        if not region.part:
            return rows * product.inner
        own = product.inner // region.period * -(-region.period // self.members)
        sums: int = self.members * self.sums_of(product, region.period).width
        return rows * (sums + own if region.part == PARTIAL else sums)


def can_split(region: LoopRegion, sharing: Sharing, whatever_it_costs: bool) -> bool:
    """True if a region is a product whose inner axis may be shared out, and blocks then read and write less."""
    product = region.product
    if product is None or region.period == BY_ROWS:
        return False
    if any(size % region.period for size in (product.inner, product.columns, product.offset, product.row_stride)):
        return False
    halves = (LoopRegion(region.nodes, region.period, part) for part in (PARTIAL, TOTAL))
    return whatever_it_costs or sum(map(sharing.numbers, halves)) < sharing.numbers(region)


def with_split_products(
    regions: Sequence[LoopRegion], sharing: Sharing, whatever_it_costs: bool = False
) -> tuple[LoopRegion, ...]:
    """Regions with split products in place of products. In a group, all partial sums come before all totals."""
    found: list[LoopRegion] = []
    for splits, group in groupby(regions, key=lambda region: can_split(region, sharing, whatever_it_costs)):
        found += (half for some in members_apart(list(group)) for half in halves(some)) if splits else group
    return tuple(found)


def halves(regions: Sequence[LoopRegion]) -> Iterator[LoopRegion]:
    """Partial sums of all products, then totals."""
    for part in (PARTIAL, TOTAL):
        yield from (LoopRegion(region.nodes, region.period, part) for region in regions)


def members_apart(regions: Sequence[LoopRegion]) -> Iterator[list[LoopRegion]]:
    """Products in order, in groups. Products of a group do not read each other's results as their left side."""
    group: list[LoopRegion] = []
    for region in regions:
        left = region.product.left if region.product else ""
        if any(left in other.written for other in group):
            yield group
            group = []
        group.append(region)
    yield group


def copies_of_sums(regions: Sequence[LoopRegion], sharing: Sharing, itemsize: int) -> int:
    """The copies of partial sums that L2 holds, at most two. With two, no step waits for readers of the last step."""
    nbytes = places_of_sums(regions, sharing, 1)[-1] * itemsize
    return 2 if 2 * nbytes <= L2_BYTES else 1 if nbytes <= L2_BYTES else 0


def places_of_sums(regions: Sequence[LoopRegion], sharing: Sharing, copies: int) -> tuple[int, ...]:
    """The places of each product's partial sums, counted in numbers from the first one on, and their end."""
    places = [0]
    for region in regions:
        if region.product and region.part == PARTIAL:
            places.append(
                places[-1] + copies * sharing.groups * sharing.sums_of(region.product, region.period).of_group
            )
    return tuple(places)


@dataclass(frozen=True)
class Loop:
    """A loop over steps as blocks share it out.

    Args:
        regions: of a step, in order.
        waits: numbers of the regions before which all blocks wait.
        persistent: whether one launch runs all steps of a tile.
        apart: whether its steps do not depend on each other, and run at once.
        groups: of blocks, each with rows of its own.
        members: blocks of a group.
        parts: blocks that share a row in work by rows (`share_rows.py`).
        over: regions of a step at which all rows of a group are over; empty if such a step runs like others.
        lengths: the reference with the lengths of rows, for `over`.
        weights: the place of each product's columns or rows in shared memory, counted in weights.
        staged: the place of rows of a product's left side there.
        depth: numbers of each such row that are there at a time.
        sums: the place of lanes' sums there.
        numbers: the size of that memory, counted in numbers.
        copies: of partial sums of products, used in turn.
        partials: the place of each split product's partial sums, and the end of all.
        scratch: the place of the first partial sums in scratch of the products' dtype.
    """

    regions: tuple[LoopRegion, ...]
    waits: frozenset[int]
    persistent: bool
    groups: int
    members: int
    apart: bool = False
    weights: tuple[int, ...] = ()
    staged: int = 0
    depth: int = 1
    sums: int = 0
    numbers: int = 0
    copies: int = COPIES
    partials: tuple[int, ...] = ()
    scratch: int = 0
    parts: int = 1
    over: tuple[LoopRegion, ...] = ()
    lengths: str = ""

    def sharing(self, rows: int) -> Sharing:
        """The groups and members, for so many rows of the batch."""
        return Sharing(rows, self.groups, self.members)

    @property
    def blocks(self) -> int:
        """The blocks of a launch."""
        return self.groups * self.members

    @property
    def period(self) -> int:
        """The most features that members share out."""
        return max((region.period for region in self.regions), default=BY_ROWS)

    def lines(self, itemsize: int) -> list[str]:
        """The lines about the loop in a printed plan.

        Args:
            itemsize: bytes of a number.
        """
        if not self.persistent:
            return ["weights do not fit on chip: each step launches its products, and the work between them"]
        waits = f"{len(self.waits)} wait{'s' if len(self.waits) != 1 else ''} a step"
        members = f"{self.members} block{'s' if self.members != 1 else ''}"
        groups = f"{self.groups} group{'s' if self.groups != 1 else ''} of {members}"
        groups += f", {self.parts} blocks a row" if self.parts > 1 else ""
        sums = f", {self.partials[-1] * itemsize} bytes of partial sums" if self.partials else ""
        weights = f"{self.staged * itemsize} bytes of weights on chip in each block"
        over = ["groups whose rows are all over skip products and waits"] if self.over else []
        return [f"one launch a tile: {groups}, {waits}, {weights}{sums}", *over]

    @property
    def products(self) -> list[StepProduct]:
        """Its products, in order."""
        return [region.product for region in self.regions if region.product and region.part != TOTAL]
