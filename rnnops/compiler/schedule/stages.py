"""Loops over time: which nodes of a step run step after step, and which run once for all steps of a tile.

The step's graph with its carried edges splits into strongly connected components (Tarjan). Cyclic ones go step by step.
Only products drag work out of a loop: stages alternate between products of a whole tile (even numbers) and loops over
its steps (odd numbers); elementwise work stays in the loop that uses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnops.compiler.graph.components import strong_components
from rnnops.compiler.ir.nodes import Node, Stage, node_reads, node_writes
from rnnops.compiler.ir.statements import Statement


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


def _is_loop(node: Node, group: int, cyclic: set[int]) -> bool:
    return isinstance(node, Statement) or group in cyclic


def _earliest(
    nodes: Sequence[Node], edges: Sequence[tuple[int, int]], groups: list[int], cyclic: set[int]
) -> list[int]:
    """The first stage in which each node can run: a fixed point, as members of a cyclic group share theirs."""
    number = [1 if _is_loop(node, groups[i], cyclic) else 0 for i, node in enumerate(nodes)]
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
