"""Rows of the batch that are merged into a longer axis, and rows that are over.

**Merged rows**, as of `[N * places, C]`, get an axis of their own. People flatten rows before a product and take them
apart behind it. Such an axis hides the batch: no axis of the blob has its size. An axis whose stride says that it runs
through rows is cut into rows and what each of them has. Memory stays as it is, and so do strides: only shapes change.
Limits: values in tensors have their rows in front and are not cut. Statements of random numbers are not cut, because
they count elements; nor are checks of labels.

**Rows past their end**: the work of a step for rows that are over, and plans whose products leave these rows out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from rnnops.compiler.lower.scan import LoweredStep, Scan, StepPlan, TensorName, carried_owners, live_nodes, split_stages
from rnnops.compiler.lower.statements import (
    IDEMPOTENT,
    Access,
    Contraction,
    Layout,
    Node,
    Number,
    Statement,
    StepProduct,
    dense,
    node_reads,
    node_writes,
)
from rnnops.compiler.schedule.batch_axis import goes_outside, hand_on, known_axes, row_axis_of
from rnnops.compiler.schedule.product_axes import cut_axes
from rnnops.net.op import unused_name
from rnnops.net.schema import Call, schema_of
from rnnops.sizes import is_symbolic
from rnnops.types import Shape, Type

UNCUT = ("uniform", "dropped", "labels")


def cut_merged_rows(step: LoweredStep) -> LoweredStep:
    """Cut axes that rows are merged into.

    rewrite: `y[32 * 64, 16] += x[32 * 64, 9] * w[9, 16]`  -->  `y[32, 64, 16] += x[32, 64, 9] * w[9, 16]`
    """
    types, statements = dict(step.lowered.types), list(step.statements)
    axes, fixed = known_axes(step), {*step.slots, *step.accumulators, *step.invariant}
    changed = True
    while changed:
        while sum(hand_on(statement, types, axes) for statement in statements):
            pass
        changed = False
        for number, statement in enumerate(statements):
            cut = _cut_statement(statement, types, axes)
            if cut is not None:
                statements[number], changed = cut, True
            changed |= _cut_owners(statements[number], types, axes, fixed)
    lowered = step.lowered.copy()
    lowered.types.update(types)
    return replace(step, lowered=lowered, nodes=tuple(statements))


def _cut_statement(statement: Statement, types: Mapping[str, Type], axes: Mapping[str, int]) -> Statement | None:
    """The statement with its rows on an axis of their own. None if they have one already, or no axis contains them."""
    if statement.form in UNCUT or row_axis_of(statement, types, axes) is not None:
        return None
    for access in statement.accesses():
        if access.owner in axes:
            shape, own = types[access.owner].shape, axes[access.owner]
            axis = _merged_axis(access.layout, shape[own], dense(shape).strides[own])
            if axis is not None:
                return _with_axis_cut(statement, axis, shape[own])
    return None


def _merged_axis(layout: Layout, rows: int, stride: int) -> int | None:
    """The axis of a layout that runs through `rows` rows, `stride` apart, and through the elements of each row."""
    for axis, (size, step) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        if is_symbolic((rows,)) and not is_symbolic((size,)):
            continue  # a number is a multiple of a symbol only by chance
        if step > 0 and size > rows > 1 and size % rows == 0 and step * (size // rows) == stride:
            return axis
    return None


def _with_axis_cut(statement: Statement, axis: int, rows: int) -> Statement:
    cuts = [(rows, size // rows) if place == axis else (size,) for place, size in enumerate(statement.extents)]
    extents = tuple(chain.from_iterable(cuts))
    return statement.mapped(lambda access: cut_axes(access, cuts), extents=extents)


def _cut_owners(statement: Statement, types: dict[str, Type], axes: Mapping[str, int], fixed: set[str]) -> bool:
    """Cut shapes of owners along the rows of a statement; True if one was cut."""
    row = row_axis_of(statement, types, axes)
    found = False
    for access in statement.accesses() if row is not None else ():
        kind = types[access.owner]
        if row is None or access.owner in axes or access.owner in fixed:
            continue
        rows = statement.extents[row]
        axis = _merged_axis(dense(kind.shape), rows, access.layout.strides[row])
        if axis is not None:
            shape = (*kind.shape[:axis], rows, kind.shape[axis] // rows, *kind.shape[axis + 1 :])
            types[access.owner], found = replace(kind, shape=shape), True
    return found


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
    """Takes nodes in order, and simplifies or drops each.

    Args:
        nodes: the nodes that are left.
        writers: owner -> nodes that write it.
        same: owner that copies a value which the step reads -> the owner of that value.
    """

    def __init__(self, plan: StepPlan, lengths: str, timestep: str, over: bool) -> None:
        self.plan, self.lengths, self.timestep, self.over = plan, lengths, timestep, over
        self.nodes: list[Node] = []
        self.writers: dict[str, list[Node]] = {}
        self.same: dict[str, str] = {}

    def take(self, node: Node) -> None:
        """Simplify a node, given the nodes before it."""
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

    def _first_of_sum(self, node: StepProduct) -> StepProduct:
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
        """The number that all elements of an owner are, else None. All writers of an owner come before its readers."""
        numbers = {_written_number(node) for node in self.writers.get(owner, ())}
        return numbers.pop() if len(numbers) == 1 else None

    def _known(self, operand: Access | Number) -> Access | Number:
        if not isinstance(operand, Access):
            return operand
        number = self._number(operand.owner)
        return replace(operand, owner=self.same.get(operand.owner, operand.owner)) if number is None else number

    def _without_copies(self, node: StepProduct | Contraction) -> StepProduct | Contraction:
        left = self.same.get(node.left, node.left)
        if isinstance(node, StepProduct):
            return replace(node, left=left)
        return replace(node, left=left, right=self.same.get(node.right, node.right))

    # -- statements ----------------------------------------------------------------------------------------------

    def _simplified(self, statement: Statement) -> Statement | None:
        """The simplified statement; None if it adds nothing."""
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
        """True if the step reads an operand from a tensor, and no node has written it."""
        return operand.owner in self.plan.slots and operand.owner not in self.writers

    def _is_whole(self, statement: Statement, value: Access) -> bool:
        """True if a statement fills its whole target, each element from the same element number of a value."""
        target, kind = statement.target, self.plan.types[statement.target.owner]
        whole = not statement.fold and prod(statement.extents) == kind.size and kind.dtype == statement.dtype
        return whole and value.index is None and value.layout == target.layout

    def _value(self, statement: Statement) -> Access | Number | None:
        """The operand or number that equals a statement's value; None if the value must be computed."""
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
        """True if these are the step's number and the rows' lengths."""
        owners = [operand.owner for operand in (timestep, lengths) if isinstance(operand, Access)]
        return owners == [self.timestep, self.lengths]


def _algebra(kind: str, operands: Sequence[Access | Number], over: bool) -> Access | Number | None:
    """Simplified sums and products with 0. In rows that are over, 0 times anything is 0, even NaN."""
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
    """A fold whose values are all one number. None if it changes nothing. A plain copy if the number is the result."""
    unchanged = _is_zero(value) if statement.fold in ("add", "or") else False
    if statement.start is None:
        return None if unchanged else replace(statement, operands=(value,), form="copy")
    if statement.fold not in IDEMPOTENT and not unchanged:
        return replace(statement, operands=(value,), form="copy")
    kept = tuple(axis for axis in range(len(statement.extents)) if axis not in statement.folded_axes())
    bare = replace(statement, operands=(), form="copy", fold="", start=None)
    row = None if statement.row_axis is None else kept.index(statement.row_axis)
    return replace(bare.moved(kept), operands=(value,), row_axis=row)


def _zeros(product: StepProduct, plan: StepPlan) -> Statement:
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


def gather_rows(scan: Scan, plan: StepPlan, nodes: Sequence[Node], kind: str) -> StepPlan:
    """Let products touch only scratch, and pointwise kernels copy from and to tensors, which hold all rows.

    rewrite: `y = x @ w; g += x^T @ d`  -->  `x' = x; y' = x' @ w; g += x'^T @ d; y = y'`, where x and y lie in tensors

    Args:
        nodes: of a step, in an order in which they can run.
        kind: the word for these rows in names of copies.
    """
    rows = _Gatherer(scan.batch, plan, kind)
    for node in rows.with_own_targets(nodes):
        rows.take(node)
    stages = split_stages(rows.nodes, carried_owners(scan, plan.slots))
    return replace(plan, stages=tuple(stages), types=rows.types, batch_axes=rows.axes)


@dataclass(frozen=True)
class _Part:
    """The part of a buffer that a product reads: `[rows, columns]` at `offset`, in rows of `stride` numbers."""

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
        """The nodes, with targets in scratch for products that write tensors. After its last write, a target is copied
        to the tensor."""
        stored = {node.target for node in nodes if isinstance(node, StepProduct) and node.target in self.plan.slots}
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
        """Keep a node. A product reads copies of values in tensors; these copies come before it."""
        if isinstance(node, StepProduct) and node.left in self.plan.slots:
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
    if isinstance(node, StepProduct):
        left, target = (name if own == owner else own for own in (node.left, node.target))
        return replace(node, left=left, target=target)
    if isinstance(node, Contraction):
        left, right = (name if own == owner else own for own in (node.left, node.right))
        return replace(node, left=left, right=right)
    return node.mapped(lambda access: access.renamed({owner: name}))


def compact_rows(scan: Scan, plan: StepPlan) -> StepPlan:
    """The plan for rows that end. If leaving out finished rows saves nothing, the old plan, with the reason.

    rewrite: stages of all rows  -->  stages of rows that are not over, and fewer of rows that are
    """
    names = lengths_of(scan)
    if scan.timestep is None or not names:
        return plan
    # if each row runs all its steps before the next row, telling steps past its end apart costs nothing
    alone = len(plan.stages) == 1 and goes_outside(scan, plan)
    reason = "" if scan.batch == 1 and alone else plan.whole or _interleaved(scan, plan)
    for lengths in [] if reason else names:
        over, lasting = (simplify_rows(plan, lengths, scan.timestep, over) for over in (True, False))
        over = live_nodes(over, [*_stored(plan, scan.unseen), *_checked(scan, plan)])
        lasting = live_nodes(lasting, _stored(plan, ()))
        if _work(over) < _work(lasting) or alone:
            first = gather_rows(scan, plan, lasting, "lasting")
            second = gather_rows(scan, first, over, "over")
            return replace(second, stages=first.stages, past_end=second.stages, lengths=lengths)
        reason = f"'{lengths}' masks no product"
    return replace(plan, uncompacted=reason)


def _work(nodes: Sequence[Node]) -> tuple[int, int]:
    """The counts of products and of all nodes."""
    products = [node for node in nodes if not isinstance(node, Statement) or node.form == "product"]
    return len(products), len(nodes)


def _stored(plan: StepPlan, unseen: Collection[TensorName]) -> list[str]:
    return [*(owner for owner, slot in plan.slots.items() if slot.tensor not in unseen), *plan.accumulators]


def _checked(scan: Scan, plan: StepPlan) -> list[str]:
    """Results of statements that check numbers: wrong ones are reported in all rows. Backward passes check nothing."""
    statements = [node for stage in plan.stages for node in stage.nodes if isinstance(node, Statement)]
    return [] if scan.gradients else [s.target.owner for s in statements if s.may_fail()]


def past_end_reads(plan: StepPlan) -> frozenset[TensorName]:
    """Tensors that steps past the end of a row read. These are all tensors if such rows are not left out."""
    if not plan.lengths:
        return frozenset(slot.tensor for slot in plan.slots.values())
    owners = {owner for stage in plan.past_end for node in stage.nodes for owner in node_reads(node)}
    return frozenset(plan.slots[owner].tensor for owner in owners if owner in plan.slots)


def lengths_of(scan: Scan) -> list[str]:
    """The references that hold a length for each row, which the step compares with its own number."""
    names = []
    for call in scan.program.calls:
        inputs = call.op.inputs
        if call.op.type in ("SelectValid", "MaskRows"):
            names.append(inputs[-2])
        elif call.op.type in ("Less", "Greater") and scan.timestep in inputs:
            names += [name for name in inputs if name != scan.timestep]
    rows = Type("int32", (scan.batch,))
    return [name for name in dict.fromkeys(names) if name in scan.references and scan.program.types[name] == rows]


def _interleaved(scan: Scan, plan: StepPlan) -> str:
    """The reason if rows cannot be left out of products, because an operand does not lie row by row; else `""`."""
    for stage in plan.stages:
        for node in stage.nodes:
            if isinstance(node, StepProduct | Contraction):
                sides = (node.left, node.target) if isinstance(node, StepProduct) else (node.left, node.right)
                for owner in sides:
                    if not _lies_by_rows(owner, scan, plan):
                        return f"rows of '{owner}' do not lie side by side, as the product '{node.blob}' reads them"
    return ""


def _lies_by_rows(owner: str, scan: Scan, plan: StepPlan) -> bool:
    """True if the batch axis comes first in a step of an owner. In a window, the axis of steps comes before it."""
    axis, shape = plan.batch_axes.get(owner), plan.types[owner].shape
    windows = len(shape) - len(scan.tensors[plan.slots[owner].tensor].shape) if owner in plan.slots else 0
    return axis is not None and axis >= windows and prod(shape[windows:axis]) == 1
