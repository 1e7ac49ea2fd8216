"""Loops over time: which nodes run step after step, which run for all steps at once, which are dead.

**Work apart**. On CUDA elementwise work that shares no values with the loop over steps gets a stage of its own.
Blocks of the device wait for each other in the loop, and each owns some features there. Work of another width would
make them own rows instead. Threads of a processor do not wait for each other, so there it may stay in the loop.

**Stages**. The step's graph with its carried edges splits into strongly connected components (Tarjan). Cyclic ones go
step by step. Only products drag work out of a loop: stages alternate between products of a whole tile (even numbers)
and loops over its steps (odd numbers); elementwise work stays in the loop that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rnnops.compiler.lower.scan import Lowered, LoweredStep, Scan, Slot, StepPlan, TensorName, carried_owners
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
from rnnops.util import strong_components, weak_components

SomeNode = TypeVar("SomeNode", bound=Node)


def drop_unread(step: LoweredStep) -> LoweredStep:
    """Drop nodes that no stored or summed value needs."""
    return replace(step, nodes=tuple(live_nodes(step.nodes, step.stored)))


def live_nodes(nodes: Sequence[SomeNode], wanted: Collection[str]) -> list[SomeNode]:
    """The nodes that owners which are wanted depend on."""
    needed = set(wanted)
    result: list[SomeNode] = []
    for node in reversed(nodes):
        if node_writes(node) in needed:
            needed.update(node_reads(node))
            result.append(node)
    return result[::-1]


class RingError(Exception):
    """Tensors that must hold all steps, as more than one loop over time touches them."""

    def __init__(self, tensors: frozenset[TensorName]) -> None:
        super().__init__(f"no ring will do for {', '.join(sorted(map(str, tensors)))}")
        self.tensors = tensors


def check_rings(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan as it is. Raises RingError where tensors that are rings must hold all steps."""
    wrong = frozenset(name for stages in (plan.stages, plan.past_end) for name in _wrong_rings(scan, plan, stages))
    if wrong:
        raise RingError(wrong)
    return plan


def _wrong_rings(scan: Scan, plan: StepPlan, stages: Sequence[Stage]) -> list[TensorName]:
    """Rings that several stages touch, or one that runs once for all steps of a tile."""
    touched: dict[TensorName, set[int]] = {}
    for number, stage in enumerate(stages):
        for node in stage.nodes:
            for owner in (*node_reads(node), node_writes(node)):
                slot = plan.slots.get(owner)
                if slot is not None and scan.tensors[slot.tensor].ring:
                    touched.setdefault(slot.tensor, set()).add(number if stage.loop else -1)
    return [name for name, numbers in touched.items() if len(numbers) > 1 or -1 in numbers]


def store_results(step: LoweredStep) -> LoweredStep:
    """Give every stored blob an owner that lies in its tensor, by a copy where it has none of its own.

    rewrite: `h = Tanh(x)`, stored in two tensors  -->  `h = Tanh(x); h/stored.0 = h`
    """
    scan, lowered, slots, nodes = step.scan, step.lowered.copy(), dict(step.slots), list(step.statements)
    made = Counter(statement.target.owner for statement in nodes)
    for blob, slot in scan.writes:
        owner = _own(lowered, blob)
        if owner and made[owner] and owner not in slots:
            slots[owner] = slot
        else:
            nodes.append(_stored(scan, lowered, blob, slot, slots))
    for blob, slot, layout in scan.additions:
        nodes.append(_stored(scan, lowered, blob, slot, slots, layout))
    return replace(step, lowered=lowered, slots=slots, nodes=tuple(nodes))


def _own(lowered: Lowered, blob: str) -> str:
    """The buffer that a blob is all of, element by element; `""` where there is none."""
    access = lowered.views.get(blob)
    whole = access is not None and access.layout == dense(lowered.types[access.owner].shape)
    return access.owner if whole and access is not None else ""


def _stored(
    scan: Scan, lowered: Lowered, blob: str, slot: Slot, slots: dict[str, Slot], added: Layout | None = None
) -> Statement:
    """A copy of a blob into a slot, or what adds it to what lies there so."""
    kind = scan.program.types[blob]
    owner = lowered.fresh(f"{blob}/stored")
    target = lowered.own(owner, kind)
    slots[owner] = slot
    if added is None:
        return copied(scan, lowered, blob, target)
    return copied(scan, lowered, blob, replace(target, layout=added), "add")


def copied(scan: Scan, lowered: Lowered, blob: str, target: Access, fold: str = "") -> Statement:
    """A statement that copies a blob, or folds it into what is there."""
    kind = scan.program.types[blob]
    operand: Access | Number = lowered.operand(blob, kind.shape)
    call = next((call for call in scan.program.calls if blob in call.op.outputs), None)
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)


def set_work_apart(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan with stages of their own for work that loops have nothing to do with; see `set_apart`."""
    return replace(plan, stages=tuple(set_apart(plan.stages, carried_owners(scan, plan.slots))))


def set_apart(stages: Sequence[Stage], carried: Sequence[tuple[str, str]]) -> Iterator[Stage]:
    """Give elementwise work a stage of its own, before the loop that it has nothing to do with.

    rewrite: `loop over steps: y = MaskRows(x); h = Tanh(h')`  -->
        `for each step: y = MaskRows(x)`, `loop over steps: h = Tanh(h')`

    Args:
        carried: (owner that a step reads, owner that an earlier step has written it to).
    """
    for stage in stages:
        looped = _in_loops(stage, carried) if stage.cyclic else [True] * len(stage.nodes)
        for inside in (False, True):
            nodes = tuple(node for node, own in zip(stage.nodes, looped, strict=True) if own == inside)
            if nodes:
                yield Stage(nodes, stage.loop, stage.cyclic and inside)


def _in_loops(stage: Stage, carried: Sequence[tuple[str, str]]) -> list[bool]:
    """For each node whether it, or what it has to do with, is a product or is carried from step to step."""
    back = carried_edges(stage.nodes, carried)
    groups = weak_components(len(stage.nodes), [*dependencies(stage.nodes), *back])
    loops = {groups[i] for i, _ in back}
    loops |= {groups[i] for i, node in enumerate(stage.nodes) if not isinstance(node, Statement)}
    return [group in loops for group in groups]


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
    nodes: Sequence[Node],
    edges: Sequence[tuple[int, int]],
    groups: list[int],
    cyclic: set[int],
    earliest: list[int],
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
