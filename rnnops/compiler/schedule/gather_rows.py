"""Rows side by side: products read and write memory in which the rows that are not over lie one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rnnops.compiler.ir.layouts import Layout, dense
from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_reads, node_writes
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.stages import split_stages
from rnnops.compiler.schedule.step_plan import StepPlan, carried_owners
from rnnops.scopes import unused_name
from rnnops.types import Shape, Type


def gather_rows(scan: Scan, plan: StepPlan, nodes: Sequence[Node], kind: str) -> StepPlan:
    """Let products touch scratch alone, and pointwise kernels copy from and to tensors, which hold all rows.

    rewrite: `y = x @ w; g += x^T @ d`  -->  `x' = x; y' = x' @ w; g += x'^T @ d; y = y'`, where x and y lie in tensors

    Args:
        nodes: of a step, in an order in which they can run.
        kind: of rows, in names of copies.
    """
    rows = _Gatherer(scan.batch, plan, kind)
    for node in rows.with_own_targets(nodes):
        rows.take(node)
    stages = split_stages(rows.nodes, carried_owners(scan, plan.slots))
    return replace(plan, stages=tuple(stages), types=rows.types, batch_axes=rows.axes)


@dataclass(frozen=True)
class _Part:
    """What a product reads of an owner: `[rows, columns]` at `offset`, in rows of `stride` numbers."""

    owner: str
    offset: int
    stride: int
    rows: int
    columns: int


class _Gatherer:
    def __init__(self, batch: int, plan: StepPlan, kind: str) -> None:
        self.batch, self.plan, self.kind = batch, plan, kind
        self.types, self.axes = dict(plan.types), dict(plan.batch_axes)
        self.nodes: list[Node] = []
        self.targets: dict[str, str] = {}
        self.copies: dict[str, list[tuple[_Part, str]]] = {}

    # -- targets -------------------------------------------------------------------------------------------------

    def with_own_targets(self, nodes: Sequence[Node]) -> list[Node]:
        """Products write owners in scratch; behind the last of them these are copied to where they are stored."""
        stored = {node.target for node in nodes if isinstance(node, Product) and node.target in self.plan.slots}
        last = {node_writes(node): i for i, node in enumerate(nodes)}
        result: list[Node] = []
        for i, node in enumerate(nodes):
            renamed = node
            for owner in stored & {*node_reads(node), node_writes(node)}:
                renamed = _renamed(renamed, owner, self._scratch(owner))
            result.append(renamed)
            if node_writes(node) in stored and last[node_writes(node)] == i:
                result.append(self._stored(node_writes(node)))
        return result

    def _scratch(self, owner: str) -> str:
        if owner not in self.targets:
            self.targets[owner] = self._new(f"{owner}/{self.kind}", self.types[owner], self.axes[owner])
        return self.targets[owner]

    def _new(self, name: str, kind: Type, axis: int) -> str:
        name = unused_name(name, self.types)
        self.types[name], self.axes[name] = kind, axis
        return name

    def _stored(self, owner: str) -> Statement:
        kind = self.types[owner]
        layout = dense(kind.shape)
        return Statement(
            owner, kind.shape, Access(owner, layout), (Access(self._scratch(owner), layout),), "copy", None, kind.dtype,
            row_axis=self.axes[owner],
        )  # fmt: skip

    # -- operands ------------------------------------------------------------------------------------------------

    def take(self, node: Node) -> None:
        """Keep a node, behind copies of what it reads from tensors where it is a product."""
        if isinstance(node, Product) and node.left in self.plan.slots:
            left = self._copied(_Part(node.left, node.offset, node.row_stride, node.rows, node.inner))
            node = replace(node, left=left, offset=0, row_stride=node.inner)
        elif isinstance(node, Contraction):
            node = self._contraction(node)
        self.nodes.append(node)

    def _contraction(self, node: Contraction) -> Contraction:
        if node.left in self.plan.slots:
            part = _Part(node.left, node.left_offset, node.left_stride, node.inner, node.rows)
            node = replace(node, left=self._copied(part), left_offset=0, left_stride=node.rows)
        if node.right in self.plan.slots:
            part = _Part(node.right, node.right_offset, node.right_stride, node.inner, node.columns)
            node = replace(node, right=self._copied(part), right_offset=0, right_stride=node.columns)
        return node

    def _copied(self, part: _Part) -> str:
        """The owner of a copy of a part, made where it is first needed."""
        copies = self.copies.setdefault(part.owner, [])
        for known, name in copies:
            if known == part:
                return name
        dtype = self.types[part.owner].dtype
        each = part.rows // self.batch
        shape: Shape = (self.batch, each, part.columns)
        source = Layout(part.offset, shape, (each * part.stride, part.stride, 1))
        number = sum(map(len, self.copies.values()))
        name = self._new(f"{part.owner}/{self.kind}.{number}", Type(dtype, shape), 0)
        copies.append((part, name))
        target, operand = Access(name, dense(shape)), Access(part.owner, source)
        self.nodes.append(Statement(name, shape, target, (operand,), "copy", None, dtype, row_axis=0))
        return name


def _renamed(node: Node, owner: str, name: str) -> Node:
    if isinstance(node, Product):
        left, target = (name if own == owner else own for own in (node.left, node.target))
        return replace(node, left=left, target=target)
    if isinstance(node, Contraction):
        left, right = (name if own == owner else own for own in (node.left, node.right))
        return replace(node, left=left, right=right)
    operands = tuple(_renamed_access(o, owner, name) if isinstance(o, Access) else o for o in node.operands)
    return replace(node, target=_renamed_access(node.target, owner, name), operands=operands)


def _renamed_access(access: Access, owner: str, name: str) -> Access:
    index = None if access.index is None else _renamed_access(access.index, owner, name)
    return replace(access, owner=name if access.owner == owner else access.owner, index=index)
