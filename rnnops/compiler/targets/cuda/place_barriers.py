"""Where blocks wait for each other in a loop over steps: before what reads or writes what other blocks have touched.

Each region of a step touches memory as blocks share it out: by rows, by features with some period, or all of it (a
product reads all of its left side, unless blocks share out its inner axis: then each reads its own features, and
partial sums go from all to all). Two regions need a wait between them where they touch the same element, one of them
writing, and not each block its own. Steps are gone through one after another, as they will run; the first region found
to need a wait gets one, at every step, until none is found. LSTM needs one wait a step, that before its product.

Limits: elements are told apart by owner, by step and by row or feature; two parts of one blob count as the same, but
where blocks share rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.ir.nodes import Product, node_reads
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.cuda.cyclic_distribution import (
    BY_ROWS,
    PARTIAL,
    TOTAL,
    Region,
    feature_axis,
    feature_nests,
    is_number,
    lies_by_features,
    numbers_of,
)
from rnnops.compiler.targets.cuda.row_parts import WHOLE_ROW, PartShare, Share, shares_of_parts, spans_of_parts

COPIES = 2  # of a blob that lives for a step: the next step writes another one
EVERYTHING = -1  # how a product's left side is touched: by every block


@dataclass(frozen=True)
class Touch:
    """What a region does with memory.

    Args:
        memory: a tensor, an owner in scratch, or a product whose partial sums lie there.
        first, last: positions over time, relative to the step.
        ring: after how many steps positions come round; 0 where they do not.
        share: `BY_ROWS`, the period of features, `EVERYTHING`, or how the blocks of a row share it.
        span: the first and last element of each row, None where it may be any, or of several steps (a window).
    """

    memory: TensorName | str | Product
    first: int
    last: int
    ring: int
    share: int | Share
    writes: bool
    span: tuple[int, int] | None = None

    def conflicts(self, earlier: Touch, steps: int) -> bool:
        """Whether blocks must wait between this and what was done so many steps (in order of time) before."""
        if self.memory != earlier.memory or not (self.writes or earlier.writes):
            return False
        if self.span and earlier.span and not max(self.span[0], earlier.span[0]) <= min(self.span[1], earlier.span[1]):
            return False
        own = self.share == earlier.share and self.share not in (EVERYTHING, WHOLE_ROW)
        return not own and self._meets(earlier, steps)

    def _meets(self, earlier: Touch, steps: int) -> bool:
        low, high = earlier.first - self.last - steps, earlier.last - self.first - steps
        return low <= 0 <= high if self.ring == 0 else high - low >= self.ring or -low % self.ring <= high - low


def place_barriers(scan: Scan, plan: StepPlan, regions: Sequence[Region], copies: int = COPIES) -> frozenset[int]:
    """Numbers of the regions before which all blocks wait.

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


def steps_stand_apart(scan: Scan, plan: StepPlan, regions: Sequence[Region]) -> bool:
    """Whether steps may run at once: no step touches what another writes, in tensors or in sums over steps.

    What lies in scratch is left out: each step can have its own.
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
    since: list[tuple[int, Touch]] = []  # what has been touched since the last wait, and at which step
    for step in range(steps):
        for number, own in enumerate(touches):
            if number in waits:
                since.clear()
            elif any(t.conflicts(other, direction * (step - then)) for t in own for then, other in since):
                return number
            since += [(step, touch) for touch in own]
    return None


def _reach(touches: Sequence[Sequence[Touch]]) -> int:
    """How many steps apart two touches of the same element may be."""
    places: dict[TensorName | str | Product, list[Touch]] = {}
    for touch in (touch for region in touches for touch in region):
        places.setdefault(touch.memory, []).append(touch)
    spans = [max(t.last for t in same) - min(t.first for t in same) for same in places.values()]
    return max([0, *spans, *(touch.ring for region in touches for touch in region)])


def _seen(regions: Sequence[Region], number: int) -> set[str]:
    """What other regions read."""
    others = [node for i, region in enumerate(regions) if i != number for node in region.nodes]
    return {owner for node in others for owner in node_reads(node)}


def _touches(
    scan: Scan, plan: StepPlan, region: Region, seen: Collection[str], copies: int = COPIES
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
    lasting, spans = {*seen, *plan.slots, *plan.accumulators}, spans_of_parts(region.work)
    for owner, (share, writes) in _shares(region, plan).items():
        if owner in lasting or not is_number(owner, region.statements, plan):  # others stay in registers
            touch = place.touch(owner, share, writes)
            yield replace(touch, span=spans.get(owner) if touch.first == touch.last else None)


def _shares(region: Region, plan: StepPlan) -> Mapping[str, tuple[int | Share, bool]]:
    """How each owner that changes is touched: by whom, and whether it is written."""
    found = shares_of_parts(region.work, region.private) if region.work else _shares_of_nests(region, plan)
    return {owner: share for owner, share in found.items() if owner not in plan.invariant}


def _shares_of_nests(region: Region, plan: StepPlan) -> Mapping[str, tuple[int, bool]]:
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
    """Where in tensors the owners of a plan lie."""

    def __init__(self, scan: Scan, plan: StepPlan) -> None:
        self.scan, self.plan = scan, plan

    def touch(self, owner: str, share: int | Share, writes: bool) -> Touch:
        """What a region does with an owner that blocks share out so."""
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


def _is_alike(share: int | Share, numbers: int) -> bool:
    """Whether the same block has an element of several steps wherever it stands among them, so many numbers each."""
    if isinstance(share, PartShare):
        return numbers % (share.width * share.size) == 0
    return not isinstance(share, int) or share <= 0 or numbers % share == 0
