"""Resident states: what a row carries from step to step lies in one place of its thread, which steps change in place.

Two places in turn would be twice the memory, and where they lie a power of two apart they fight for the same lines of
the cache. A state may change in place where all that reads it has read an element when the new one is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.loop_nests import Nest, fuse_nests
from rnnops.compiler.schedule.put_rows_outside import is_row_loop
from rnnops.compiler.schedule.step_plan import StepPlan, carried_owners


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
    """The states of a plan whose rows are outside that may change in place."""
    loops = [stage for stage in plan.stages if is_row_loop(stage)]
    if not plan.rows_outside or len(loops) != 1:
        return []
    loops = [*loops, *plan.past_end]
    nests = [fuse_nests([n for n in loop.nodes if isinstance(n, Statement)], large_apart=True) for loop in loops]
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
    """Whether nothing reads an element of `read` behind the statement that writes its successor."""
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
    """Whether a statement does nothing where its target lies where this owner does."""
    if statement.form != "copy" or statement.fold:
        return False
    (source,) = statement.operands
    return isinstance(source, Access) and source.owner == owner and _is_same(source, statement.target)


def _is_same(access: Access, target: Access) -> bool:
    return access.index is None and access.layout == target.layout
