"""Masked rows: what a step computes in rows that are over, and in those that are not, where lengths mask its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.nodes import Contraction, Node, Product, node_writes
from rnnops.compiler.ir.statements import IDEMPOTENT, Access, Number, Statement
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.schema import Call, schema_of


def simplify_rows(plan: StepPlan, lengths: str, timestep: str, over: bool) -> list[Node]:
    """Simplify a step for rows that are over, or for those that are not.

    rewrite, over:
        `h = SelectValid(new, previous, lengths, timestep)`  -->  `h = previous`, with drop `h = 0`
        `v = Less(timestep, lengths); y = Where(v, a, b)`    -->  `y = b`
        `a = 0; y = a * x; z = y @ w; s += z`                -->  `a = 0; y = 0; z = 0`, whatever x and w hold
        `a = MaskRows(x, lengths, timestep)`                 -->  `a = 0`
    rewrite, not over:
        `h = SelectValid(new, previous, lengths, timestep)`  -->  `h = new`
        `a = Where(v, 0, x); y = a + b; a += y @ w`          -->  `y = b; a = y @ w`
        `a = MaskRows(x, lengths, timestep); y = a @ w`      -->  `a = x; y = x @ w`, where x is what a step reads

    Args:
        lengths: the owner of `[N]` numbers of steps.
        timestep: the owner of the number of the step; a row is over where it is not below the row's length.
    """
    rows = _Simplifier(plan, lengths, timestep, over)
    for stage in plan.stages:
        for node in stage.nodes:
            rows.take(node)
    return rows.nodes


class _Simplifier:
    """Takes nodes in order and keeps what is left of them.

    Args:
        nodes: what is left.
        writers: owner -> what writes it.
        same: owner that is a copy of what a step reads -> that.
    """

    def __init__(self, plan: StepPlan, lengths: str, timestep: str, over: bool) -> None:
        self.plan, self.lengths, self.timestep, self.over = plan, lengths, timestep, over
        self.nodes: list[Node] = []
        self.writers: dict[str, list[Node]] = {}
        self.same: dict[str, str] = {}

    def take(self, node: Node) -> None:
        """Simplify a node by what is known of its operands."""
        if isinstance(node, Statement):
            self._keep(self._simplified(node))
            return
        node = self._without_copies(node)
        if isinstance(node, Contraction):
            self._keep(None if self.over and 0 in (self._number(node.left), self._number(node.right)) else node)
        elif self.over and self._number(node.left) == 0 and node.bias is None:
            self._keep(None if node.accumulate else _zeros(node, self.plan))
        else:
            self._keep(self._first_of_sum(node))

    def _first_of_sum(self, node: Product) -> Product:
        """A product that is added to zeros takes their place."""
        if not node.accumulate or self._number(node.target) != 0:
            return node
        for zeros in self.writers.pop(node.target):
            self.nodes.remove(zeros)
        return replace(node, accumulate=False)

    def _keep(self, node: Node | None) -> None:
        if node is not None:
            self.nodes.append(node)
            self.writers.setdefault(node_writes(node), []).append(node)

    def _number(self, owner: str) -> Number | None:
        """The number that all elements of an owner are; all that writes it comes before what reads it."""
        numbers = {_written_number(node) for node in self.writers.get(owner, ())}
        return numbers.pop() if len(numbers) == 1 else None

    def _known(self, operand: Access | Number) -> Access | Number:
        if not isinstance(operand, Access):
            return operand
        number = self._number(operand.owner)
        return replace(operand, owner=self.same.get(operand.owner, operand.owner)) if number is None else number

    def _without_copies(self, node: Product | Contraction) -> Product | Contraction:
        left = self.same.get(node.left, node.left)
        if isinstance(node, Product):
            return replace(node, left=left)
        return replace(node, left=left, right=self.same.get(node.right, node.right))

    # -- statements ----------------------------------------------------------------------------------------------

    def _simplified(self, statement: Statement) -> Statement | None:
        """What a statement becomes, None where it adds nothing to what is there."""
        statement = replace(statement, operands=tuple(self._known(o) for o in statement.operands))
        value = self._value(statement)
        if value is None:
            return _short_sum(statement)
        if not isinstance(value, Access) and statement.fold:
            return _folded_number(statement, value)
        if isinstance(value, Access) and self._is_read(value) and self._is_whole(statement, value):
            self.same[statement.target.owner] = value.owner
        return replace(statement, operands=(value,), form="copy")

    def _is_read(self, operand: Access) -> bool:
        """Whether it is what a step reads from a tensor, and nothing writes."""
        return operand.owner in self.plan.slots and operand.owner not in self.writers

    def _is_whole(self, statement: Statement, value: Access) -> bool:
        """Whether elements of a value and of all of a target have the same numbers."""
        target, kind = statement.target, self.plan.types[statement.target.owner]
        whole = not statement.fold and prod(statement.extents) == kind.size and kind.dtype == statement.dtype
        return whole and value.index is None and value.layout == target.layout

    def _value(self, statement: Statement) -> Access | Number | None:
        """The one operand or number that a statement's value is; None where it must be computed."""
        operands = statement.operands
        if statement.form == "copy":
            return operands[0]
        if statement.form in ("product", "square", "quotient", "dropped"):
            factors = operands[:1] if statement.form in ("quotient", "dropped") else operands
            return 0 if self.over and any(_is_zero(o) for o in factors) else None
        if statement.form == "sum":
            return _sum_value(operands)
        return self._applied(statement) if statement.form == "apply" else None

    def _applied(self, statement: Statement) -> Access | Number | None:
        call, operands = statement.made_by(), statement.operands
        kind = call.op.type
        if kind == "SelectValid" and self._compares(operands[3], operands[2]):
            return operands[0] if not self.over else 0 if call.attr("drop") else operands[1]
        if kind == "MaskRows" and self._compares(operands[2], operands[1]):
            return call.attr("fill") if self.over else operands[0]
        if kind in ("Less", "Greater") and self._compares(*(operands if kind == "Less" else operands[::-1])):
            return not self.over
        if not any(isinstance(operand, Access) for operand in operands):
            return _evaluated(call, operands)
        if kind == "Where" and not isinstance(operands[0], Access):
            return operands[1] if operands[0] else operands[2]
        return _algebra(kind, operands, self.over)

    def _compares(self, timestep: Access | Number, lengths: Access | Number) -> bool:
        """Whether these are the step's number and the rows' lengths."""
        owners = [operand.owner for operand in (timestep, lengths) if isinstance(operand, Access)]
        return owners == [self.timestep, self.lengths]


def _algebra(kind: str, operands: Sequence[Access | Number], over: bool) -> Access | Number | None:
    """Sums with 0, and products with it: whatever a row that is over holds besides, 0 times it is 0."""
    zeros = [_is_zero(operand) for operand in operands]
    if over and kind in ("Mul", "Div") and (zeros[0] or (kind == "Mul" and zeros[1])):
        return 0
    if kind in ("Add", "Sum"):
        return _sum_value(operands)
    return operands[0] if kind == "Sub" and zeros[1] else None


def _sum_value(operands: Sequence[Access | Number]) -> Access | Number | None:
    rest = [operand for operand in operands if not _is_zero(operand)]
    return 0 if not rest else rest[0] if len(rest) == 1 else None


def _short_sum(statement: Statement) -> Statement:
    """A sum without its zeros."""
    if statement.form != "sum":
        return statement
    return replace(statement, operands=tuple(o for o in statement.operands if not _is_zero(o)))


def _folded_number(statement: Statement, value: Number) -> Statement | None:
    """What a fold over one number becomes."""
    unchanged = _is_zero(value) if statement.fold in ("add", "or") else False
    if statement.start is None:
        return None if unchanged else replace(statement, operands=(value,), form="copy")
    if statement.fold not in IDEMPOTENT and not unchanged:
        return replace(statement, operands=(value,), form="copy")
    kept = tuple(axis for axis in range(len(statement.extents)) if axis not in statement.folded_axes())
    bare = replace(statement, operands=(), form="copy", fold="", start=None)
    row = None if statement.row_axis is None else kept.index(statement.row_axis)
    return replace(bare.moved(kept), operands=(value,), row_axis=row)


def _zeros(product: Product, plan: StepPlan) -> Statement:
    kind = plan.types[product.target]
    target = Access(product.target, dense(kind.shape))
    row = plan.batch_axes.get(product.target)
    return Statement(product.blob, kind.shape, target, (0,), "copy", None, kind.dtype, row_axis=row)


def _written_number(node: Node) -> Number | None:
    """The number that a node writes to all elements it touches."""
    if not isinstance(node, Statement) or node.form != "copy" or node.fold:
        return None
    return None if isinstance(node.operands[0], Access) else node.operands[0]


def _is_zero(operand: Access | Number) -> bool:
    return not isinstance(operand, Access) and operand == 0


def _evaluated(call: Call, operands: Sequence[Access | Number]) -> Number:
    """The value of an elementwise op of numbers."""
    given = iter(operands)
    arrays = [None if kind is None else np.full((1,) * kind.rank, next(given), kind.dtype) for kind in call.types]
    with np.errstate(all="ignore"):
        result: Number = np.asarray(schema_of(call.op.type).reference(call, *arrays)).item()
    return result
