"""Dead code: nodes of a step that nothing reads which is stored or summed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from rnnops.compiler.ir.nodes import Node, node_reads, node_writes
from rnnops.compiler.schedule.step_plan import Step

SomeNode = TypeVar("SomeNode", bound=Node)


def drop_unread(step: Step) -> Step:
    """Drop nodes that nothing depends on which a step stores or sums."""
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
