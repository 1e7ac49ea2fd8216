"""A scan: one step of ops, the tensors over time that it reads and writes, and the step as passes hand it on.

Forward and backward passes of a recurrence are both scans; a backward one runs the other way, and sums. A step is
statements over memory first, then nodes, at last a plan of them.

**Stages**. The step's graph with its carried edges splits into strongly connected components (Tarjan). Cyclic ones go
step by step. Only products drag work out of a loop: stages alternate between products of a whole tile (even numbers)
and loops over its steps (odd numbers); elementwise work stays in the loop that uses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf, prod
from typing import NamedTuple, TypeVar

import numpy as np

from rnnops.compiler.lower.statements import (
    Access,
    Layout,
    Node,
    Number,
    Stage,
    Statement,
    dense,
    node_reads,
    node_writes,
)
from rnnops.interpreter import Program
from rnnops.net.schema import Call
from rnnops.types import Array, Shape, Type
from rnnops.util import MadeOnDemand, cached_property, strong_components


class Role(str, Enum):
    """The meaning of a tensor's steps; as text, the prefix of the tensor's name."""

    SEQUENCE = ""  # given to a recurrence
    INPUT = "input"  # given to a group of fused ops
    STATE = "state"
    OUTPUT = "output"  # of the cell, and no state
    KEPT = "kept"  # what backward reads besides states and outputs
    RESULT = "result"
    GRADIENT = "grad"  # of a state
    BORDER = "border"  # of a state: as it is before the first step of each segment
    GIVEN = "given"  # a gradient from outside

    def of(self, blob: str) -> TensorName:
        """The name of a tensor of this role."""
        return TensorName(self, blob)


class TensorName(NamedTuple):
    """The key of a tensor in scans and runs. A call looks up many, so that hashing is left to tuples and strings."""

    role: Role
    blob: str

    def __str__(self) -> str:
        return self.blob if self.role is Role.SEQUENCE else f"{self.role.value} {self.blob}"


@dataclass(frozen=True)
class Tensor:
    """Steps of one kind, one behind the other in memory.

    Args:
        shape: of one step.
        length: steps that it holds.
        ring: whether position p lies at place p modulo `length`.
        segment: whether it holds the steps of a segment of one row at a time, in scratch of a thread.
    """

    dtype: str
    shape: Shape
    length: int
    ring: bool = False
    segment: bool = False


@dataclass(frozen=True)
class Slot:
    """Where step t touches a tensor: at index `t + shift` of its first axis, from there on where a blob is a window."""

    tensor: TensorName
    shift: int = 0


@dataclass(frozen=True)
class Scan:
    """A step of ops that runs once for each timestep.

    Args:
        program: one step, of primitive ops.
        steps, batch: T and N.
        reverse: whether t runs from T - 1 to 0.
        reads: input -> slot.
        references: inputs that are the same at every step.
        timestep: the input that holds t.
        writes: blob -> slots that store it.
        additions: blob, slot to whose content it is added, and how the blob lies there.
        sums: result -> blob that is summed over all steps.
        sums_are: `"sum"`, or `"gradient"` of an input: what sums are, for people.
        tensors: by name.
        states: tensors whose contents depend on earlier steps of the forward pass; their products are added last.
        batch_axes: inputs whose batch axis is known by meaning -> that axis.
        accesses: how inputs lie at their slots, where that is not row by row.
        row_tensors: tensors whose steps have the batch axis first.
        unseen: tensors that are not read where a row is over.
        gradients: tensors of gradients; products of what depends on them stay in order, whatever is computed again.
    """

    program: Program
    steps: int
    batch: int
    reverse: bool
    reads: Mapping[str, Slot]
    references: tuple[str, ...]
    timestep: str | None
    writes: tuple[tuple[str, Slot], ...]
    additions: tuple[tuple[str, Slot, Layout], ...]
    sums: Mapping[str, str]
    tensors: Mapping[TensorName, Tensor]
    states: tuple[TensorName, ...] = ()
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    accesses: Mapping[str, Access] = field(default_factory=dict)
    row_tensors: frozenset[TensorName] = frozenset()
    gradients: frozenset[TensorName] = frozenset()
    unseen: frozenset[TensorName] = frozenset()
    sums_are: str = "gradient"


class UnsupportedError(Exception):
    """An op that has no compiled form within a scan; its recurrence is stepped from Python, and the plan says so."""


class NothingToDoError(UnsupportedError):
    """No steps, or no elements; the interpreter does nothing as fast as anybody."""


@dataclass
class Lowered:
    """A step as statements.

    Args:
        views: where the elements of each blob lie.
        numbers: blobs that are one known number.
        constants: arrays that are known before a run.
        types: of blobs that own memory.
        statements: in order.
    """

    views: dict[str, Access] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    def copy(self) -> Lowered:
        """A copy that can grow by itself."""
        return Lowered(
            dict(self.views), dict(self.numbers), dict(self.constants), dict(self.types), list(self.statements)
        )

    def own(self, name: str, kind: Type) -> Access:
        """Give a blob memory of its own."""
        self.types[name] = kind
        self.views[name] = Access(name, dense(kind.shape))
        return self.views[name]

    def compute(
        self, name: str, kind: Type, operands: tuple[Access | Number, ...], form: str, call: Call | None
    ) -> Access:
        """Give a blob memory of its own, and add the statement that computes all of its elements."""
        target = self.own(name, kind)
        self.statements.append(Statement(name, kind.shape, target, operands, form, call, kind.dtype))
        return target

    def operand(self, name: str, shape: Shape) -> Access | Number:
        """A blob as an operand over axes of `shape`."""
        if name in self.numbers:
            return self.numbers[name]
        access = self.views[name]
        return replace(access, layout=access.layout.broadcast_to(shape))

    def fresh(self, name: str) -> str:
        """A name like this one that no blob has."""
        count = 0
        while f"{name}.{count}" in self.views:
            count += 1
        return f"{name}.{count}"

    def know(self, name: str, value: Array) -> None:
        """Take a blob's value down, known before a run."""
        if value.size == 1:
            self.numbers[name] = value.reshape(()).item()
        else:
            self.own(name, Type(str(value.dtype), value.shape))
            self.constants[name] = np.ascontiguousarray(value)

    def in_memory(self, name: str, kind: Type) -> Access:
        """Where a blob lies, also one that is a known number."""
        if name not in self.views:
            self.constants[name] = np.full(kind.shape, self.numbers[name], kind.dtype)
            self.own(name, kind)
        return self.views[name]


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
        whole: why rows are not independent, `""` where they are.
        in_place: the largest inner size of a product of rounded operands that adds to what is there as a sum does.
        calls: whether kernels of rows call products.
        batch_axes: owner -> axis; empty where rows are not independent.
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
    calls: bool = True
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

    def sizes(self) -> Mapping[str, int]:
        """Numbers from one step of an owner to the next; steps of windows overlap."""
        return MadeOnDemand(self._size)

    def _size(self, owner: str) -> int:
        slot = self.slots.get(owner)
        return prod((self.lowered.types[owner] if slot is None else self.scan.tensors[slot.tensor]).shape)

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
        lengths: name of the lengths where `stages` are only for rows that are not over; else `""`.
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


def copied(scan: Scan, lowered: Lowered, blob: str, target: Access, fold: str = "") -> Statement:
    """A statement that copies a blob, or folds it into what is there."""
    kind = scan.program.types[blob]
    operand: Access | Number = lowered.operand(blob, kind.shape)
    call = next((call for call in scan.program.calls if blob in call.op.outputs), None)
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)


SomeNode = TypeVar("SomeNode", bound=Node)


def live_nodes(nodes: Sequence[SomeNode], wanted: Collection[str]) -> list[SomeNode]:
    """The nodes that owners which are wanted depend on."""
    needed = set(wanted)
    result: list[SomeNode] = []
    for node in reversed(nodes):
        if node_writes(node) in needed:
            needed.update(node_reads(node))
            result.append(node)
    return result[::-1]


def split_stages(nodes: Sequence[Node], carried: Sequence[tuple[str, str]]) -> list[Stage]:
    """Split a step into stages.

    Args:
        nodes: in an order in which one step can run.
        carried: (owner that a step reads, owner that an earlier step has written it to).
    """
    edges = dependencies(nodes)
    back = carried_edges(nodes, carried)
    groups = strong_components(len(nodes), [*edges, *back])
    cyclic = {groups[a] for a, b in back if groups[a] == groups[b]}
    across = [*edges, *((a, b) for a, b in back if groups[a] != groups[b])]
    number = _latest(nodes, across, groups, cyclic, _earliest(nodes, across, groups, cyclic))
    members: dict[int, list[int]] = {stage: [] for stage in sorted(set(number))}
    for i, stage in enumerate(number):
        members[stage].append(i)
    order = _alternating(members, number, nodes, edges)
    return [
        Stage(tuple(nodes[i] for i in order[stage]), bool(stage % 2), any(groups[i] in cyclic for i in members[stage]))
        for stage in members
    ]


def dependencies(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Pairs (first, then): what must have run before what, from reads and writes in order."""
    edges: list[tuple[int, int]] = []
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        for owner in node_reads(node):
            edges += [(j, i) for j in writers.get(owner, ())]
            readers.setdefault(owner, []).append(i)
        target = node_writes(node)
        edges += [(j, i) for j in (*writers.get(target, ()), *readers.get(target, ())) if j != i]
        writers.setdefault(target, []).append(i)
    return sorted(set(edges))


def carried_edges(nodes: Sequence[Node], carried: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Pairs (writer, reader in a later step)."""
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        writers.setdefault(node_writes(node), []).append(i)
        for owner in set(node_reads(node)):
            readers.setdefault(owner, []).append(i)
    return sorted(
        {(i, j) for read, written in carried for i in writers.get(written, ()) for j in readers.get(read, ())}
    )


def _earliest(
    nodes: Sequence[Node], edges: Sequence[tuple[int, int]], groups: list[int], cyclic: set[int]
) -> list[int]:
    """The first stage in which each node can run: a fixed point, as members of a cyclic group share theirs."""
    number = [1 if isinstance(node, Statement) or groups[i] in cyclic else 0 for i, node in enumerate(nodes)]
    together: dict[int, list[int]] = {group: [] for group in cyclic}
    for i, group in enumerate(groups):
        if group in cyclic:
            together[group].append(i)
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = number[a] if number[a] % 2 == number[b] % 2 else number[a] + 1
            if number[b] < low:
                number[b], changed = low, True
        for members in together.values():
            top = max(number[i] for i in members)
            if any(number[i] != top for i in members):
                changed = True
                for i in members:
                    number[i] = top
    return number


def _latest(
    nodes: Sequence[Node], edges: Sequence[tuple[int, int]], groups: list[int], cyclic: set[int], earliest: list[int]
) -> list[int]:
    """Move elementwise work out of loops of its own into the loop that uses it."""
    number = list(earliest)
    users: dict[int, list[int]] = {}
    for a, b in edges:
        users.setdefault(a, []).append(b)
    for i in reversed(range(len(nodes))):
        if groups[i] in cyclic or not users.get(i) or not isinstance(nodes[i], Statement):
            continue
        last = min(number[j] if number[j] % 2 else number[j] - 1 for j in users[i])
        number[i] = max(number[i], last)
    return number


def _alternating(
    members: Mapping[int, Sequence[int]], number: Sequence[int], nodes: Sequence[Node], edges: Sequence[tuple[int, int]]
) -> dict[int, list[int]]:
    """For each stage an order of few changes between products and pointwise work: as much of one kind as can run, then
    of the other."""
    after: list[list[int]] = [[] for _ in nodes]
    waiting = [0] * len(nodes)
    for a, b in edges:
        if number[a] == number[b]:
            after[a].append(b)
            waiting[b] += 1
    orders: dict[int, list[int]] = {}
    for stage, own in members.items():
        ready: dict[bool, list[int]] = {True: [], False: []}  # statements, and products
        for i in own:
            if not waiting[i]:
                ready[isinstance(nodes[i], Statement)].append(i)
        orders[stage] = order = []
        statements = False
        while ready[True] or ready[False]:
            while now := sorted(ready[statements]):
                ready[statements] = []
                order += now
                for then in (then for i in now for then in after[i]):
                    waiting[then] -= 1
                    if not waiting[then]:
                        ready[isinstance(nodes[then], Statement)].append(then)
            statements = not statements
    return orders
