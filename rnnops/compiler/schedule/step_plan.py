"""Steps: what passes hand on of one step of a scan, statements over memory first, then nodes; and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, prod

from rnnops.compiler.ir.scan import Lowered, Scan, Slot
from rnnops.compiler.ir.statements import Node, Stage, Statement
from rnnops.schema import Call
from rnnops.types import Array, Type
from rnnops.util import cached_property

SUM_PARTS = 64  # sums over rows are added up from at most so many


class MixedError(Exception):
    """Rows of the batch are not independent."""


@dataclass(frozen=True)
class LoweredStep:
    """One step of a scan between two passes.

    Args:
        lowered: where blobs lie, and what has memory of its own.
        nodes: in an order in which they can run; products over rows or steps are the last.
        slots: owner -> slot of the tensor it lies in.
        whole: why all rows are one, `""` where rows are independent.
        in_place: the largest inner size of a product of rounded operands that adds to what is there as a sum does.
        batch_axes: owner -> axis; empty where all rows are one.
        accumulators: owners summed over steps -> whether in parts, each for some rows, that are added up at the end.
        sums: result -> accumulator that it is, or from which `epilogue` computes it.
        epilogue: ops that run once, on sums.
    """

    scan: Scan
    lowered: Lowered
    nodes: tuple[Node, ...]
    slots: Mapping[str, Slot]
    whole: str
    in_place: float = inf
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    accumulators: Mapping[str, bool] = field(default_factory=dict)
    sums: Mapping[str, str] = field(default_factory=dict)
    epilogue: tuple[Call, ...] = ()

    @property
    def statements(self) -> list[Statement]:
        """Nodes that are not large products."""
        return [node for node in self.nodes if isinstance(node, Statement)]

    @property
    def stored(self) -> list[str]:
        """Owners that outlast the step."""
        return [*self.slots, *self.accumulators]

    @property
    def invariant(self) -> frozenset[str]:
        """Owners that no step changes."""
        return frozenset([*self.scan.references, *self.lowered.constants])

    def sizes(self) -> dict[str, int]:
        """Numbers from one step of an owner to the next; steps of windows overlap."""
        sizes = {owner: prod(kind.shape) for owner, kind in self.lowered.types.items()}
        tensors = {owner: self.scan.tensors[slot.tensor] for owner, slot in self.slots.items()}
        return {**sizes, **{owner: prod(tensor.shape) for owner, tensor in tensors.items()}}

    def __str__(self) -> str:
        stored = [f"{owner} is stored in {slot.tensor}" for owner, slot in self.slots.items()]
        rows = [f"{owner} axis {axis}" for owner, axis in self.batch_axes.items()]
        sums = [f"sum {name} is {owner}" for name, owner in self.sums.items()]
        parts = [f"{owner} is summed in parts" for owner, in_parts in self.accumulators.items() if in_parts]
        once = [f"once: {call.op.outputs[0]} = {call.op.type}({', '.join(call.op.inputs)})" for call in self.epilogue]
        rows = [f"rows: {', '.join(rows)}"] if rows else []
        return "\n".join([*map(str, self.nodes), *stored, *rows, *sums, *parts, *once])


@dataclass(frozen=True)
class StepPlan:
    """A step, ready to be laid out in memory; the fields of `LoweredStep`, and these.

    Args:
        stages: in order.
        types: of owners of memory.
        invariant: owners that no step changes.
        constants: arrays known before a run.
        scalars: owners that are numbers of the step -> name.
        lengths: the reference by which rows end, where `stages` are for rows that are not over; else `""`.
        past_end: the stages for rows that are over, in which nothing is that lengths mask.
        uncompacted: why rows cost the same past their end although there are lengths.
        large_states: whether loops over steps are written for states that are most of what a step touches.
        rows_outside: whether a row goes through all steps of a tile before the next one begins.
        heads: rows that stand for each row of the batch.
    """

    stages: tuple[Stage, ...]
    types: Mapping[str, Type]
    batch_axes: Mapping[str, int]
    slots: Mapping[str, Slot]
    invariant: frozenset[str]
    constants: Mapping[str, Array]
    scalars: Mapping[str, str]
    accumulators: Mapping[str, bool]
    sums: Mapping[str, str]
    epilogue: tuple[Call, ...]
    whole: str
    lengths: str = ""
    past_end: tuple[Stage, ...] = ()
    uncompacted: str = ""
    large_states: bool = False
    rows_outside: bool = False
    heads: int = 1

    @cached_property
    def may_fail(self) -> bool:
        """True if a run says so where a number is none that an op takes (`Statement.may_fail`)."""
        stages = (*self.stages, *self.past_end)
        return any(isinstance(n, Statement) and n.may_fail() for stage in stages for n in stage.nodes)

    def __str__(self) -> str:
        over = ["rows that are over:", *map(str, self.past_end)] if self.past_end else []
        uncompacted = [f"rows cost the same past their end: {self.uncompacted}"] if self.uncompacted else []
        order = "outside" if self.rows_outside else "within steps"
        large = [f"large states, rows {order}, {self.heads} for each of the batch"] if self.large_states else []
        return "\n".join([*map(str, self.stages), *over, *uncompacted, *large])


def rows_of_sum(batch: int) -> int:
    """How many neighbouring rows add to one sum, all of them on one thread."""
    return -(-batch // SUM_PARTS)


def carried_owners(scan: Scan, slots: Mapping[str, Slot]) -> list[tuple[str, str]]:
    """(Owner that a step reads, owner that an earlier step has written to the same tensor.)"""
    written = [(owner, slot.tensor) for owner, slot in slots.items() if owner not in scan.reads]
    return [(name, owner) for name, slot in scan.reads.items() for owner, tensor in written if tensor == slot.tensor]
