"""A scan: one step of ops and the tensors over time that it reads and writes. Also the forms of a step between passes.

Forward and backward passes of a recurrence are both scans. A backward scan runs over time the other way, and sums
gradients. A step is first statements over memory (`Lowered`), then nodes (`LoweredStep`), then a plan (`StepPlan`).

**Stages**. The graph of a step has edges between its nodes, and edges to later steps for carried values. It splits into
strongly connected components (Tarjan). Cyclic components run step by step. Stages alternate: even numbers are products
over a whole tile of steps, odd numbers are loops over its steps. Only products outside of cycles run over a whole tile.
Elementwise work runs in the loop that uses its result.
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
    """The meaning of a tensor's steps. The value is the prefix of the tensor's name."""

    SEQUENCE = ""  # given to a recurrence
    INPUT = "input"  # given to a group of fused ops
    STATE = "state"
    OUTPUT = "output"  # of the cell, other than states
    KEPT = "kept"  # a blob for the backward pass, besides states and outputs
    RESULT = "result"
    GRADIENT = "grad"  # of a state
    BORDER = "border"  # a state before the first step of each segment
    GIVEN = "given"  # a gradient from outside

    def of(self, blob: str) -> TensorName:
        """The name of a tensor of this role."""
        return TensorName(self, blob)


class TensorName(NamedTuple):
    """The key of a tensor in scans and runs. It is a tuple of strings: calls look up many, and these hash fast."""

    role: Role
    blob: str

    def __str__(self) -> str:
        return self.blob if self.role is Role.SEQUENCE else f"{self.role.value} {self.blob}"


@dataclass(frozen=True)
class Tensor:
    """An array over time: steps of the same shape, one after another in memory.

    Args:
        shape: of one step.
        length: steps that it holds.
        ring: whether step p is stored at place p modulo `length`, over an older step.
        segment: whether it holds one segment of one row at a time, in scratch of a thread.
    """

    dtype: str
    shape: Shape
    length: int
    ring: bool = False
    segment: bool = False


@dataclass(frozen=True)
class Slot:
    """Where step t reads or writes a tensor: at index `t + shift` of its first axis. A window begins there."""

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
        writes: pairs of a blob and a slot that stores it. A blob may have several.
        additions: a blob, the slot whose content it is added to, and its layout there.
        sums: result -> blob that is summed over all steps.
        sums_are: the word for such a result in texts for people, `"sum"` or `"gradient"`.
        tensors: by name.
        states: tensors whose contents depend on earlier steps of the forward pass. In a sum, products of such values
            are added after products that do not depend on earlier steps.
        batch_axes: inputs whose batch axis is known by meaning -> that axis.
        accesses: layouts of inputs at their slots, where they are not row-major.
        row_tensors: tensors whose steps have the batch axis first.
        unseen: tensors whose steps past the end of a row are never read.
        gradients: tensors of gradients. In a sum, products of values that depend on them keep their order, even if
            the values depend on `states` as well.
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
    """A scan of no steps or no elements. The interpreter runs it: compiled code could not be faster."""


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
        """A copy; what is added to one of the two is not in the other."""
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
        """Record the value of a blob that is known before a run."""
        if value.size == 1:
            self.numbers[name] = value.reshape(()).item()
        else:
            self.own(name, Type(str(value.dtype), value.shape))
            self.constants[name] = np.ascontiguousarray(value)

    def in_memory(self, name: str, kind: Type) -> Access:
        """The memory of a blob. A blob that is a known number becomes a constant array first."""
        if name not in self.views:
            self.constants[name] = np.full(kind.shape, self.numbers[name], kind.dtype)
            self.own(name, kind)
        return self.views[name]


SUM_PARTS = 64  # the most parts of a sum over rows


class MixedError(Exception):
    """Rows of the batch are not independent."""


@dataclass(frozen=True)
class LoweredStep:
    """One step of a scan between two passes.

    Args:
        lowered: where blobs lie, and which of them own memory.
        nodes: in an order in which they can run; products over rows or steps are the last.
        slots: owner -> slot of the tensor it lies in.
        whole: the reason if rows are not independent, else `""`.
        in_place: the largest inner size of a product with rounded operands that may add to its target. A product with
            a larger one would round in another order than a separate sum.
        calls: whether kernels of rows may call products.
        batch_axes: owner -> axis; empty if rows are not independent.
        accumulators: owners summed over steps -> whether they have parts. Each part is for some rows; the parts are
            added up at the end.
        sums: result -> its accumulator, or the blob that `epilogue` computes from accumulators.
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
        """The nodes that are statements, without large products."""
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
        """Owner -> numbers from one step to the next. Steps of windows overlap."""
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
    """A step, ready to be laid out in memory. Fields without a description are those of `LoweredStep`.

    Args:
        stages: in order.
        types: of owners of memory.
        invariant: owners that no step changes.
        constants: arrays known before a run.
        scalars: owner of the step's number -> its variable in kernels.
        lengths: the input with the rows' lengths, if `stages` are only for rows that are not over; else `""`.
        past_end: the stages for rows that are over, without the work that lengths mask.
        uncompacted: the reason if steps past the end of a row cost as much as other steps.
        large_states: whether kernels are written for states that are most of the memory of a step.
        rows_outside: whether a row goes through all steps of a tile before the next row begins.
        heads: rows of kernels for each row of the batch (see `join_heads`).
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
        """True if a run checks numbers that an op may not take (`Statement.may_fail`)."""
        stages = (*self.stages, *self.past_end)
        return any(isinstance(n, Statement) and n.may_fail() for stage in stages for n in stage.nodes)

    def __str__(self) -> str:
        over = ["rows that are over:", *map(str, self.past_end)] if self.past_end else []
        uncompacted = [f"rows cost the same past their end: {self.uncompacted}"] if self.uncompacted else []
        order = "outside" if self.rows_outside else "within steps"
        large = [f"large states, rows {order}, {self.heads} for each of the batch"] if self.large_states else []
        return "\n".join([*map(str, self.stages), *over, *uncompacted, *large])


def rows_of_sum(batch: int) -> int:
    """The number of neighbouring rows that add to one part of a sum. One thread has all of them."""
    return -(-batch // SUM_PARTS)


def carried_owners(scan: Scan, slots: Mapping[str, Slot]) -> list[tuple[str, str]]:
    """Pairs of owners in the same tensor: one that a step reads, and one that an earlier step has written."""
    written = [(owner, slot.tensor) for owner, slot in slots.items() if owner not in scan.reads]
    return [(name, owner) for name, slot in scan.reads.items() for owner, tensor in written if tensor == slot.tensor]


def copied(scan: Scan, lowered: Lowered, blob: str, target: Access, fold: str = "") -> Statement:
    """A statement that copies a blob to a target, or folds it into the target's content."""
    kind = scan.program.types[blob]
    operand: Access | Number = lowered.operand(blob, kind.shape)
    call = next((call for call in scan.program.calls if blob in call.op.outputs), None)
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)


SomeNode = TypeVar("SomeNode", bound=Node)


def live_nodes(nodes: Sequence[SomeNode], wanted: Collection[str]) -> list[SomeNode]:
    """The nodes that the wanted owners depend on."""
    needed = set(wanted)
    result: list[SomeNode] = []
    for node in reversed(nodes):
        if node_writes(node) in needed:
            needed.update(node_reads(node))
            result.append(node)
    return result[::-1]


def split_stages(nodes: Sequence[Node], carried: Sequence[tuple[str, str]]) -> list[Stage]:
    """Split a step into stages. Even stages run once for a tile of steps, odd ones are loops over its steps.

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
    """Pairs (first, then): numbers of nodes that must keep their order, because both use an owner that one writes."""
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
    """Pairs (writer, reader in a later step) of numbers of nodes."""
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
    """The earliest stage of each node: 0 for a product outside of all cycles, else 1 or later.

    The search repeats until nothing changes, because all nodes of a cycle need one stage.
    """
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
    """The stages after elementwise work has moved into the loop that uses its result."""
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
    """For each stage an order with few changes between products and statements: first all products that can run, then
    all statements that can run, and so on."""
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
