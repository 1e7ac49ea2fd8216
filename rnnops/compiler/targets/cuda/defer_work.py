"""Work moved past a barrier, and reads moved before it.

**Elementwise work that no wait needs to wait for**: what only sums over steps, and products of a tile, will read. A
region before a wait is split in two: what products of the step read, or a later step, comes before the block says that
it has arrived, the rest between that and the wait, when lanes would be idle. LSTM's gradient of a bias is such: each
lane adds to numbers in memory, one after another. A block may do it while others are past the wait: it reads nothing
that another region of the loop changes. Limits: only what is done feature by feature, all of whose operands lie in
memory anyway; only where no product but partial sums is between the region and the wait.

**Kernel IR of early reads**: while blocks wait, what they will read between this wait and the next one comes nearer.
That is what no block writes in the loop: preactivations that a product is added to, and what was kept of the forward
pass, which elementwise work behind the wait reads, of this step or of the next one. It lies in memory far behind L2,
from where the last step's copies were read long ago. Limits: a blob counts if its rows of the batch lie one behind the
other, and a whole number of features in each; what is the same at every step is in L2 already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rnnops.compiler.codegen.scan_module import BACKWARDS, LOW, STEP, STEPS
from rnnops.compiler.lower.expressions import Expr, Literal, Name, choice, compare
from rnnops.compiler.lower.kernel import Array, Assign, Do, If, Statement as Line
from rnnops.compiler.lower.scan import Scan, StepPlan
from rnnops.compiler.lower.statements import Node, Statement, node_reads, node_writes
from rnnops.compiler.schedule.places import Layouts, Place
from rnnops.compiler.targets.cuda.loop import BY_ROWS, PARTIAL, Loop, LoopRegion, by_features, numbers_of


def deferred(loop: Loop, plan: StepPlan, number: int) -> tuple[LoopRegion, LoopRegion | None]:
    """Region `number` of a loop as what comes first, and what may be done while blocks wait after it."""
    region = loop.regions[number]
    if region.period == BY_ROWS or not region.statements or not _waits_next(loop, number):
        return region, None
    owners = _owners(loop, plan, region)
    late = [s for s in region.statements if s.target.owner in owners]
    early = [s for s in region.statements if s.target.owner not in owners]
    if not late or not early or not all(by_features(part, plan, region.period) for part in (early, late)):
        return region, None
    return replace(region, nodes=tuple(early)), replace(region, nodes=tuple(late))


def _waits_next(loop: Loop, number: int) -> bool:
    """True if nothing but partial sums comes between a region and the next wait of the same step."""
    following = loop.regions[number + 1 :]
    for i, region in enumerate(following, number + 1):
        if i in loop.waits:
            return loop.persistent
        if region.part != PARTIAL:
            return False
    return False


def _owners(loop: Loop, plan: StepPlan, region: LoopRegion) -> set[str]:
    """Buffers that may be written late: in the loop only late work reads them."""
    others = [node for one in loop.regions if one.nodes != region.nodes for node in one.nodes]
    needed = {owner for node in others for owner in node_reads(node)}
    numbers, read = numbers_of(region.statements, plan), _tensors([*others, *region.nodes], plan, node_reads)
    found = {
        owner
        for owner in region.written - needed - numbers
        if owner in plan.accumulators or owner not in plan.slots or plan.slots[owner].tensor not in read
    }
    in_memory = {*needed, *plan.slots, *plan.accumulators, *plan.invariant}
    changed = _tensors(others, plan, lambda node: [node_writes(node)]) | {node_writes(node) for node in others}
    while True:
        early = [s for s in region.statements if s.target.owner not in found]
        wrong = {owner for statement in early for owner in _operands(statement)}
        for statement in region.statements:
            there = set(_operands(statement)) <= found | in_memory
            if not there or not _is_own(statement, changed, region, plan):
                wrong.add(statement.target.owner)
        if not found & wrong:
            return found
        found -= wrong


def _operands(statement: Statement) -> list[str]:
    return [owner for owner in node_reads(statement) if owner != statement.target.owner]


def _tensors(nodes: Sequence[Node], plan: StepPlan, touched: Callable[[Node], list[str]]) -> set[object]:
    """Tensors that nodes read, or write."""
    return {plan.slots[owner].tensor for node in nodes for owner in touched(node) if owner in plan.slots}


def _is_own(statement: Statement, changed: Collection[object], region: LoopRegion, plan: StepPlan) -> bool:
    """True if nothing else changes what it reads, nor reads what it writes: blocks may be past the wait by then."""
    for access in statement.reads():
        slot = plan.slots.get(access.owner)
        tensor = slot.tensor if slot else access.owner
        if tensor in changed or (slot and access.owner not in region.written and _is_written(tensor, region, plan)):
            return False
    return True


def _is_written(tensor: object, region: LoopRegion, plan: StepPlan) -> bool:
    return any(owner in plan.slots and plan.slots[owner].tensor == tensor for owner in region.written)


M0, M1, N0, N1 = map(Name, ("m0", "m1", "n0", "n1"))


def step_of_tile(step: Expr) -> tuple[Line, Line]:
    """Names of a step: which of its tile it is, and which of all."""
    return Assign("i", choice(BACKWARDS, STEPS - 1 - step, step)), Assign("t", LOW + Name("i"))


@dataclass(frozen=True)
class FetchLines:
    """Lines of one kernel.

    Args:
        size: writes a number of the plan.
        address: of a row of a place at a step.
        features: first and last feature of a member, for a period.
    """

    scan: Scan
    plan: StepPlan
    layouts: Layouts
    loop: Loop
    size: Callable[[int], Expr]
    address: Callable[[Place, Expr], Expr]
    features: Callable[[int], tuple[Name, Name]]

    def before(self, number: int) -> list[Line]:
        """While blocks wait before region `number`."""
        regions, waits = self.loop.regions, sorted(self.loop.waits)
        later = [wait for wait in waits if wait > number]
        lines = list(self._of(regions[number : later[0] if later else None]))
        following = [] if later else list(self._of(regions[: waits[0]]))
        if following:
            there = compare("<", STEP + 1, Name("end"))
            lines.append(If(there, (*step_of_tile(STEP + 1), *following, *step_of_tile(STEP))))
        return lines

    def _of(self, regions: Sequence[LoopRegion]) -> Iterator[Line]:
        for owner, period in self._owners(regions).items():
            place, own = self.layouts.places[owner], self.features(period) if period else None
            width = self.size(place.row)
            first, last = (M0, M1) if own else (N0, N1)
            share = (self.size(period), *own) if own else (width, Literal(0), width)
            where = Array(place.array), self.address(place, first), last - first, width
            yield Do("fetch_columns", (*where, *share))

    def _owners(self, regions: Sequence[LoopRegion]) -> dict[str, int]:
        """Distant buffers that regions read, and the period with which a block reads it; one owner a tensor."""
        found: dict[str, int] = {}
        newest: dict[object, str] = {}
        for region in regions:
            for owner in dict.fromkeys(owner for node in region.nodes for owner in node_reads(node)):
                if not self._is_far(owner, region):
                    continue
                slot = self.plan.slots.get(owner)
                tensor = slot.tensor if slot else owner
                known = newest.setdefault(tensor, owner)
                if known != owner and self._is_newer(owner, known):
                    found.pop(known, None)
                    newest[tensor] = owner
                if newest[tensor] == owner:
                    found[owner] = region.period
        return found

    def _is_newer(self, owner: str, other: str) -> bool:
        """True if no step before has read it from their tensor."""
        shift, known = (self.plan.slots[name].shift for name in (owner, other))
        return shift < known if self.scan.reverse else shift > known

    def _is_far(self, owner: str, region: LoopRegion) -> bool:
        place = self.layouts.places.get(owner)
        if place is None or self.plan.batch_axes.get(owner) != 0 or owner in self.plan.invariant:
            return False
        if not place.row or place.together > 1 or (region.period != BY_ROWS and place.row % region.period):
            return False
        product = region.product
        if product and (owner != product.target or product.rows != self.scan.batch):
            return False
        lasting = owner in self.plan.slots or place.extent == "tile"
        return lasting and not self._is_written(owner, region)

    def _is_written(self, owner: str, region: LoopRegion) -> bool:
        """True if a step writes it, other than the product that adds to it."""
        slot = self.plan.slots.get(owner)
        others = {name for one in self.loop.regions if one.nodes != region.nodes for name in one.written}
        others |= set() if region.product else region.written
        tensors = {self.plan.slots[name].tensor for name in others if name in self.plan.slots}
        return owner in others or (slot is not None and slot.tensor in tensors)
