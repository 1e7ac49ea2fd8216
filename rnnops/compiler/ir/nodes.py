"""Nodes of a step, statements and large products of matrices, and the stages that they run in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rnnops.compiler.ir.statements import Access, Statement


@dataclass(frozen=True)
class Product:
    """`target[rows, columns] (+)= left[rows, inner] @ right[inner, columns] (+ bias)`, once a step.

    Args:
        rows, inner, columns: sizes in one step.
        row_stride, offset: of `left` in its owner.
        right: over (inner, columns).
        accumulate: whether the product is added to what is there.
        bias: `[columns]`, added by the first product of a sum.
        rounding: what operands are rounded to first, or `"int8"` where `right` is packed as such; empty for neither.
    """

    blob: str
    left: str
    rows: int
    inner: int
    columns: int
    offset: int
    row_stride: int
    right: Access
    target: str
    accumulate: bool = False
    bias: Access | None = None
    rounding: str = ""

    @property
    def size(self) -> int:
        """How many numbers it writes."""
        return self.rows * self.columns

    def reads(self) -> list[str]:
        """Owners that vary from step to step."""
        return [self.left, *([self.target] if self.accumulate else [])]

    def __str__(self) -> str:
        sign = "+=" if self.accumulate else "="
        bias = f" + {self.bias.owner}" if self.bias else ""
        sizes = f"[{self.rows}, {self.inner}] @ [{self.inner}, {self.columns}]"
        return f"{self.target} {sign} {self.left} @ {self.right.owner}{bias}: {sizes}{_rounded(self.rounding)}"


@dataclass(frozen=True)
class Contraction:
    """`target[rows, columns] += left[inner, rows]^T @ right[inner, columns]`, summed over all steps."""

    blob: str
    left: str
    right: str
    inner: int
    rows: int
    columns: int
    left_offset: int
    left_stride: int
    right_offset: int
    right_stride: int
    target: str
    rounding: str = ""

    def reads(self) -> list[str]:
        return [self.left, self.right]

    def turned(self, target: str) -> Contraction:
        """The transpose of the product, `target[columns, rows]`."""
        return replace(
            self,
            left=self.right,
            right=self.left,
            rows=self.columns,
            columns=self.rows,
            left_offset=self.right_offset,
            left_stride=self.right_stride,
            right_offset=self.left_offset,
            right_stride=self.left_stride,
            target=target,
        )

    def __str__(self) -> str:
        sizes = f"[{self.inner}, {self.rows}]^T @ [{self.inner}, {self.columns}]"
        return f"{self.target} += {self.left}^T @ {self.right}: {sizes}{_rounded(self.rounding)}"


def _rounded(rounding: str) -> str:
    return f" of {rounding}" if rounding else ""


Node = Statement | Product | Contraction


@dataclass(frozen=True)
class Stage:
    """Nodes between two barriers.

    Args:
        nodes: in an order in which they can run.
        loop: whether they run step by step (else once for all steps of a tile).
        cyclic: whether a step needs the one before.
    """

    nodes: tuple[Node, ...]
    loop: bool
    cyclic: bool

    @property
    def head(self) -> str:
        """How its nodes run."""
        return ("loop over steps" if self.cyclic else "for each step") if self.loop else "all steps of a tile at once"

    def __str__(self) -> str:
        return "\n    ".join([self.head, *map(str, self.nodes)])


def node_reads(node: Node) -> list[str]:
    """Owners that a node reads, its target included where it adds to it."""
    if isinstance(node, Statement):
        adds = [node.target.owner] if node.fold and node.start is None else []
        index = [node.target.index.owner] if node.target.index else []
        return [*(access.owner for access in node.reads()), *adds, *index]
    return node.reads()


def read_counts(nodes: Iterable[Node]) -> Counter[str]:
    """How often nodes read each owner, whatever kind of node reads it."""
    return Counter(owner for node in nodes for owner in node_reads(node))


def node_writes(node: Node) -> str:
    return node.target.owner if isinstance(node, Statement) else node.target
