"""From a scan to a step plan: statements, batch axes, products, stages, and what is summed how.

Rows of the batch are independent in most cells; then threads share them out, and what folds rows (gradients of weights)
is summed apart. Where a step mixes rows, all its rows are one, on one thread, and `whole` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.scan.batch_axis import find_batch_axes
from rnnops.compiler.scan.layouts import Layout, dense
from rnnops.compiler.scan.lower_ops import lower_ops
from rnnops.compiler.scan.products import (
    Contraction,
    Product,
    as_contraction,
    as_product,
    merge_folds,
    sum_products,
)
from rnnops.compiler.scan.scan import Scan, Slot
from rnnops.compiler.scan.stages import Node, Stage, node_reads, split_stages
from rnnops.compiler.scan.statements import Access, Number, Statement
from rnnops.schema import Call
from rnnops.types import Array, Type

LINEAR = ("Add", "Sum", "Sub", "Neg", "SumTo", "ReduceSum", "Identity")


@dataclass(frozen=True)
class StepPlan:
    """A step, ready to be laid out in memory.

    Args:
        stages: in order.
        types: of owners of memory.
        batch_axes: owner -> axis; empty where all rows are one.
        slots: owner -> slot of the tensor it lies in.
        invariant: owners that no step changes.
        constants: arrays known before a run.
        scalars: owners that are numbers of the step -> name.
        accumulators: owners summed over steps -> whether one for each row of the batch, added up at the end.
        sums: result -> accumulator that it is, or from which `epilogue` computes it.
        epilogue: ops that run once, on sums.
        whole: why all rows are one, `""` where rows are independent.
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


def plan_step(scan: Scan) -> StepPlan:
    """Plan one step. Raises UnsupportedError where an op has no compiled form."""
    if scan.batch > 1:
        try:
            return _Planner(scan, by_rows=True).plan("")
        except _MixedError as mixed:
            reason = str(mixed)
    else:
        reason = "the batch is one row"
    return _Planner(scan, by_rows=False).plan(reason)


class _MixedError(Exception):
    """Rows of the batch are not independent."""


class _Planner:
    def __init__(self, scan: Scan, by_rows: bool) -> None:
        self.scan, self.by_rows = scan, by_rows
        program = scan.program
        given = {name: Access(name, dense(program.types[name].shape)) for name in program.net.input_names}
        given.update(scan.accesses)
        self.lowered = lower_ops(program, given, {})
        self.slots: dict[str, Slot] = dict(scan.reads)
        self.scalars = {} if scan.timestep is None else {scan.timestep: "t"}
        self.accumulators: dict[str, bool] = {}
        self.sums: dict[str, str] = {}
        self.epilogue: list[Call] = []

    def plan(self, whole: str) -> StepPlan:
        lowered = self.lowered
        self._store_writes()
        if not self.by_rows:
            self._sum_whole()
        statements = merge_folds(lowered.statements, [*self.slots, *self.accumulators])
        invariant = frozenset([*self.scan.references, *lowered.constants])
        axes: Mapping[str, int] = {}
        contractions: dict[str, Contraction] = {}
        if self.by_rows:
            statements, axes, contractions = self._by_rows(statements)
        statements = _live(statements, [*self.slots, *self.accumulators, *contractions_reads(contractions)])
        nodes = self._nodes(statements, contractions, invariant, axes)
        stages = split_stages(nodes, self._carried())
        return StepPlan(
            tuple(stages), lowered.types, axes, self.slots, invariant, lowered.constants, self.scalars,
            self.accumulators, self.sums, tuple(self.epilogue), whole,
        )  # fmt: skip

    # -- what is stored ------------------------------------------------------------------------------------------

    def _store_writes(self) -> None:
        """Give every stored blob an owner that lies in its tensor, by a copy where it has none of its own."""
        lowered = self.lowered
        made = Counter(s.target.owner for s in lowered.statements)
        for blob, slot in self.scan.writes:
            access = lowered.views.get(blob)
            kind = self.scan.program.types[blob]
            own = access is not None and made[access.owner] > 0 and access.owner not in self.slots
            if own and access is not None and access.layout == dense(lowered.types[access.owner].shape):
                self.slots[access.owner] = slot
            else:
                self._copy(blob, slot, kind, add=False)
        for blob, slot, layout in self.scan.additions:
            self._copy(blob, slot, self.scan.program.types[blob], add=True, layout=layout)

    def _copy(self, blob: str, slot: Slot, kind: Type, add: bool, layout: Layout | None = None) -> str:
        lowered = self.lowered
        owner = lowered.fresh(f"{blob}/stored")
        target = lowered.own(owner, kind)
        target = target if layout is None else replace(target, layout=layout)
        operand = lowered.operand(blob, kind.shape)
        self.slots[owner] = slot
        lowered.statements.append(_copy_statement(self.scan, blob, kind, target, operand, add))
        return owner

    def _carried(self) -> list[tuple[str, str]]:
        """(owner that reads, owner that an earlier step wrote)."""
        written = [(owner, slot.tensor) for owner, slot in self.slots.items() if owner not in self.scan.reads]
        return [
            (name, owner)
            for name, slot in self.scan.reads.items()
            for owner, tensor in written
            if tensor == slot.tensor
        ]

    # -- sums over time ------------------------------------------------------------------------------------------

    def _sum_whole(self) -> None:
        for result, blob in self.scan.sums.items():
            self.sums[result] = self._accumulate(blob)

    def _accumulate(self, blob: str) -> str:
        lowered, kind = self.lowered, self.scan.program.types[blob]
        owner = lowered.fresh(f"{blob}/total")
        target = lowered.own(owner, kind)
        self.accumulators[owner] = False
        operand = lowered.operand(blob, kind.shape)
        lowered.statements.append(_copy_statement(self.scan, blob, kind, target, operand, True))
        return owner

    def _by_rows(
        self, statements: list[Statement]
    ) -> tuple[list[Statement], Mapping[str, int], dict[str, Contraction]]:
        lowered, scan = self.lowered, self.scan
        known = self._known_axes()
        found = find_batch_axes(statements, lowered.types, known)
        if found.mixing:
            raise _MixedError(f"'{found.mixing[0]}' reads across rows")
        for statement in found.statements:
            self._check_stored_once(statement)
        frontier = {s.target.owner for s in found.statements if s.row_axis in s.folded_axes()}
        writers = [s for s in found.statements if s.target.owner in frontier]
        if any(s.row_axis not in s.folded_axes() or s.fold != "add" for s in writers):
            raise _MixedError("a fold over rows is written in parts, or is no sum")
        self._split_sums(frontier, found.axes)
        again = find_batch_axes(
            merge_folds(lowered.statements, [*self.slots, *self.accumulators]), lowered.types, known
        )
        return self._row_sums(list(again.statements), again.axes, frontier)

    def _known_axes(self) -> dict[str, int]:
        """Batch axes by meaning: of what is read, and of what lies in tensors of sequences and states."""
        scan, types = self.scan, self.lowered.types
        known = {name: axis for name, axis in scan.batch_axes.items() if name in scan.reads}
        for owner, slot in self.slots.items():
            if owner not in scan.reads and slot.tensor in scan.row_tensors:
                known[owner] = len(types[owner].shape) - len(scan.tensors[slot.tensor].shape)
        return known

    def _check_stored_once(self, statement: Statement) -> None:
        """What is the same for all rows is computed with each of them, which is no way to add to what is there."""
        if statement.row_axis is None and statement.fold and statement.target.owner in self.slots:
            raise _MixedError(f"'{statement.blob}' is the same for all rows, and a fold that is stored")

    def _split_sums(self, frontier: set[str], axes: Mapping[str, int]) -> None:
        """What is summed over time: sums over rows at the frontier, linear ops on them later, the rest row by row."""
        summed = {blob for blob, access in self.lowered.views.items() if access.owner in frontier}
        late: list[Call] = []
        for call in self.scan.program.calls:
            if any(name in summed for name in call.op.inputs) and call.op.outputs[0] not in frontier:
                self._check_linear(call, summed)
                late.append(call)
                summed.update(name for name in call.op.outputs if name)
        sources = {s.target.owner for s in self.lowered.statements if s.call and s.call.op.outputs[0] in frontier}
        makers = [s.call.op.outputs[0] for s in self.lowered.statements if s.target.owner in frontier and s.call]
        if not set(makers) <= frontier or not sources <= frontier:
            raise _MixedError("a sum over rows is used in its step")
        if any(blob in summed for blob, *_ in (*self.scan.writes, *self.scan.additions)):
            raise _MixedError("a sum over rows is stored at every step")
        needed: set[str] = set()
        for result, blob in self.scan.sums.items():
            if blob in summed:
                self.sums[result] = blob
                needed.add(blob)
            else:
                access = self.lowered.views.get(blob)
                if access is None or access.owner not in axes:
                    raise _MixedError(f"'{blob}' is the same for all rows, and summed")
                self.sums[result] = self._accumulate(blob)
        self.epilogue = _needed_calls(late, needed)
        late_outputs = {name for call in late for name in call.op.outputs}
        stored = {*self.slots, *self.accumulators}
        self.lowered.statements = [
            s
            for s in self.lowered.statements
            if s.call is None or s.call.op.outputs[0] not in late_outputs or s.target.owner in stored
        ]
        if any(access.owner in frontier for s in self.lowered.statements for access in s.reads()):
            raise _MixedError("a sum over rows is used in its step")
        wanted = needed | {name for call in self.epilogue for name in call.op.inputs}
        self.frontier_wanted = {name for name in wanted if name in frontier}

    def _check_linear(self, call: Call, summed: set[str]) -> None:
        from_rows = [name for name in call.op.inputs if name and name not in summed]
        views = call.op.type in ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Split", "Concat", "Slice", "Flatten")
        if from_rows or not (call.op.type in LINEAR or views):
            raise _MixedError(f"'{call.op.outputs[0]}' is no linear function of sums over rows")

    def _row_sums(
        self, statements: list[Statement], axes: Mapping[str, int], frontier: set[str]
    ) -> tuple[list[Statement], Mapping[str, int], dict[str, Contraction]]:
        """Sums over rows: products over whole tiles, or one sum for each row, added up at the end."""
        result: list[Statement] = []
        contractions: dict[str, Contraction] = {}
        axes = dict(axes)
        for statement in statements:
            owner = statement.target.owner
            if owner not in frontier:
                result.append(statement)
            elif owner in self.frontier_wanted:
                contraction = as_contraction(statement, self._step_sizes())
                if contraction is not None:
                    contractions[owner] = contraction
                    self.accumulators[owner] = False
                else:
                    result.append(self._row_sum(statement, axes))
        return result, axes, contractions

    def _row_sum(self, statement: Statement, axes: dict[str, int]) -> Statement:
        owner, types = statement.target.owner, self.lowered.types
        kind = types[owner]
        types[owner] = Type(kind.dtype, (self.scan.batch, *kind.shape))
        axes[owner] = 0
        self.accumulators[owner] = True
        layout = statement.target.layout
        strides = [prod(kind.shape) if a == statement.row_axis else s for a, s in enumerate(layout.strides)]
        target = replace(statement.target, layout=replace(layout, strides=tuple(strides)))
        return replace(statement, target=target, start=None)

    # -- products ------------------------------------------------------------------------------------------------

    def _nodes(
        self,
        statements: Sequence[Statement],
        contractions: Mapping[str, Contraction],
        invariant: frozenset[str],
        axes: Mapping[str, int],
    ) -> list[Node]:
        types = self.lowered.types
        products: dict[str, Product] = {}
        sizes = self._step_sizes()
        for statement in statements:
            product = as_product(statement, sizes, invariant)
            if product is not None and self._rows_outermost(statement, product, sizes):
                products[product.target] = product
        stored = {*self.slots, *self.accumulators}
        used = {owner for s in statements for owner in node_reads(s)} | set(contractions_reads(contractions))
        carried = _dependent(statements, self._state_inputs())
        nodes: list[Node] = [
            *sum_products(statements, products, stored, invariant, carried, used, types),
            *contractions.values(),
        ]
        for owner in list(types):
            if owner.endswith("/products") and owner.removesuffix("/products") in axes:
                axes[owner] = axes[owner.removesuffix("/products")]  # type: ignore[index]
        return nodes

    def _rows_outermost(self, statement: Statement, product: Product, sizes: Mapping[str, int]) -> bool:
        """Whether the rows that a thread owns lie one behind the other."""
        if not self.by_rows:
            return True
        if statement.row_axis is None:
            return False
        rows = product.rows // self.scan.batch  # of the product, for each of the batch
        before = prod(statement.extents[: statement.row_axis])
        return before == 1 and rows * product.row_stride * self.scan.batch == sizes[product.left]

    def _step_sizes(self) -> dict[str, int]:
        """Numbers from one step of an owner to the next; steps of windows overlap."""
        sizes = {owner: prod(kind.shape) for owner, kind in self.lowered.types.items()}
        tensors = {owner: self.scan.tensors[slot.tensor] for owner, slot in self.slots.items()}
        return {**sizes, **{owner: prod(tensor.shape) for owner, tensor in tensors.items()}}

    def _state_inputs(self) -> set[str]:
        return {name for name, slot in self.scan.reads.items() if slot.tensor in self.scan.states}


def _copy_statement(
    scan: Scan, blob: str, kind: Type, target: Access, operand: Access | Number, add: bool
) -> Statement:
    call = next((c for c in scan.program.calls if blob in c.op.outputs), None)
    fold = "add" if add else ""
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)


def _needed_calls(calls: Sequence[Call], needed: set[str]) -> list[Call]:
    wanted, result = set(needed), []
    for call in reversed(calls):
        if any(name in wanted for name in call.op.outputs):
            wanted.update(call.op.inputs)
            result.append(call)
    return result[::-1]


def contractions_reads(contractions: Mapping[str, Contraction]) -> list[str]:
    return [owner for contraction in contractions.values() for owner in contraction.reads()]


def _live(statements: Sequence[Statement], stored: Sequence[str]) -> list[Statement]:
    """The statements that something stored depends on."""
    wanted, result = set(stored), []
    for statement in reversed(statements):
        if statement.target.owner in wanted:
            wanted.update(node_reads(statement))
            result.append(statement)
    return result[::-1]


def _dependent(statements: Sequence[Statement], sources: set[str]) -> set[str]:
    """Owners that depend on `sources` within a step."""
    found = set(sources)
    for statement in statements:
        if any(owner in found for owner in node_reads(statement)):
            found.add(statement.target.owner)
    return found
