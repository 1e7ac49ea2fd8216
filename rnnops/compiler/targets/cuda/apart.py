"""Which products one launch may compute together."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_reads


def apart(nodes: Sequence[Node]) -> list[list[Product | Contraction]]:
    """Products in order, those together that do not touch what another of them writes, or go on with the one before."""
    groups: list[list[Product | Contraction]] = []
    for node in nodes:
        assert isinstance(node, Product | Contraction)
        there = groups[-1] if groups else []
        goes_on = bool(there) and _goes_on(node, there[-1])
        written = {other.target for other in there if not goes_on or other.target != node.target}
        touched = written.union(*map(node_reads, there))
        if there and (goes_on or node.target not in touched) and not written & set(node_reads(node)):
            there.append(node)
        else:
            groups.append([node])
    return groups


def _goes_on(node: Product | Contraction, before: Product | Contraction) -> bool:
    """Whether a product adds to the one before, element by element."""
    if not isinstance(node, Product) or not isinstance(before, Product) or node.left == node.target:
        return False
    sizes = (node.target, node.rows, node.columns) == (before.target, before.rows, before.columns)
    return node.accumulate and sizes
