"""From a scan to a step plan: statements, batch axes, products, stages, and what is summed how.

Rows of the batch are independent in most cells; then threads share them out, and what folds rows (gradients of weights)
is summed apart. Where a step mixes rows, all its rows are one, on one thread, and `whole` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.ir.layouts import Layout, dense
from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.scan import Scan, Slot
from rnnops.compiler.ir.statements import Access, Number, Statement
from rnnops.compiler.lower.lower_ops import lower_ops
from rnnops.compiler.schedule.batch_axis import find_batch_axes
from rnnops.compiler.schedule.linear_sums import MixedError, late_calls
from rnnops.compiler.schedule.products import (
    Contraction,
    Product,
    as_contraction,
    as_product,
    merge_folds,
    sum_products,
)
from rnnops.compiler.schedule.stages import Node, Stage, live_nodes, node_reads, split_stages
from rnnops.lazy import cached_property
from rnnops.schema import Call
from rnnops.types import Array, Type

SUM_PARTS = 64  # sums over rows are added up from at most so many


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
        accumulators: owners summed over steps -> whether in parts, each for some rows, that are added up at the end.
        sums: result -> accumulator that it is, or from which `epilogue` computes it.
        epilogue: ops that run once, on sums.
        whole: why all rows are one, `""` where rows are independent.
        lengths: the reference by which rows end, where `stages` are for rows that are not over; else `""`.
        past_end: the stages for rows that are over, in which nothing is that lengths mask.
        unshrunk: why rows cost the same past their end although there are lengths.
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
    unshrunk: str = ""

    @cached_property
    def may_fail(self) -> bool:
        """Whether a run says so where a number is none that an op takes (`Statement.may_fail`)."""
        stages = (*self.stages, *self.past_end)
        return any(isinstance(n, Statement) and n.may_fail() for stage in stages for n in stage.nodes)


def rows_of_sum(batch: int) -> int:
    """How many neighbouring rows add to one sum, all of them on one thread."""
    return -(-batch // SUM_PARTS)


def plan_step(scan: Scan) -> StepPlan:
    """Plan one step. Raises UnsupportedError where an op has no compiled form."""
    if scan.batch > 1:
        try:
            return _Planner(scan, by_rows=True).plan("")
        except MixedError as mixed:
            reason = str(mixed)
    else:
        reason = "the batch is one row"
    return _Planner(scan, by_rows=False).plan(reason)


def carried_owners(scan: Scan, slots: Mapping[str, Slot]) -> list[tuple[str, str]]:
    """(Owner that a step reads, owner that an earlier step has written to the same tensor.)"""
    written = [(owner, slot.tensor) for owner, slot in slots.items() if owner not in scan.reads]
    return [(name, owner) for name, slot in scan.reads.items() for owner, tensor in written if tensor == slot.tensor]


def views_of(scan: Scan) -> dict[str, str]:
    """Blobs that lie in the memory of others -> those."""
    return {blob: access.owner for blob, access in _lowered(scan).views.items() if access.owner != blob}


def _lowered(scan: Scan) -> Lowered:
    types = scan.program.types
    given = {name: Access(name, dense(types[name].shape)) for name in scan.program.net.input_names}
    return lower_ops(scan.program, {**given, **scan.accesses}, {})


class _Planner:
    def __init__(self, scan: Scan, by_rows: bool) -> None:
        self.scan, self.by_rows = scan, by_rows
        self.lowered = _lowered(scan)
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
            statements, axes, contractions = self._by_rows(statements, invariant)
        else:
            statements, contractions = self._whole_contractions(statements, invariant)
        statements = live_nodes(statements, [*self.slots, *self.accumulators, *contractions_reads(contractions)])
        nodes = self._nodes(statements, contractions, invariant, axes)
        stages = split_stages(nodes, carried_owners(self.scan, self.slots))
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

    # -- sums over time ------------------------------------------------------------------------------------------

    def _sum_whole(self) -> None:
        for result, blob in self.scan.sums.items():
            zero = self.lowered.numbers.get(blob) == 0
            self.sums[result] = self._nothing(blob) if zero else self._accumulate(blob)

    def _whole_contractions(
        self, statements: Sequence[Statement], invariant: Collection[str]
    ) -> tuple[list[Statement], dict[str, Contraction]]:
        """Sums over time that are products of whole tiles, and all other statements."""
        writers = Counter(statement.target.owner for statement in statements)
        found: dict[str, Contraction] = {}
        sizes = self._step_sizes()
        for statement in statements:
            owner = statement.target.owner
            if owner in self.accumulators and writers[owner] == 1:
                contraction = as_contraction(statement, sizes, invariant, whole=True)
                if contraction is not None:
                    found[owner] = contraction
        return [statement for statement in statements if statement.target.owner not in found], found

    def _nothing(self, blob: str) -> str:
        """A sum to which no step adds."""
        owner = self.lowered.fresh(f"{blob}/total")
        self.lowered.own(owner, self.scan.program.types[blob])
        self.accumulators[owner] = False
        return owner

    def _accumulate(self, blob: str) -> str:
        lowered, kind = self.lowered, self.scan.program.types[blob]
        owner = lowered.fresh(f"{blob}/total")
        target = lowered.own(owner, kind)
        self.accumulators[owner] = False
        operand = lowered.operand(blob, kind.shape)
        lowered.statements.append(_copy_statement(self.scan, blob, kind, target, operand, True))
        return owner

    def _by_rows(
        self, statements: list[Statement], invariant: Collection[str]
    ) -> tuple[list[Statement], Mapping[str, int], dict[str, Contraction]]:
        lowered, known = self.lowered, self._known_axes()
        found = find_batch_axes(statements, lowered.types, known)
        if found.mixing:
            raise MixedError(f"'{found.mixing[0]}' reads across rows")
        for statement in found.statements:
            self._check_stored_once(statement)
        frontier = {s.target.owner for s in found.statements if s.row_axis in s.folded_axes()}
        writers = [s for s in found.statements if s.target.owner in frontier]
        if any(s.row_axis not in s.folded_axes() or s.fold != "add" for s in writers):
            raise MixedError("a fold over rows is written in parts, or is no sum")
        self._split_sums(frontier, found.axes)
        again = find_batch_axes(
            merge_folds(lowered.statements, [*self.slots, *self.accumulators]), lowered.types, known
        )
        return self._row_sums(list(again.statements), again.axes, frontier, invariant)

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
            raise MixedError(f"'{statement.blob}' is the same for all rows, and a fold that is stored")

    def _split_sums(self, frontier: set[str], axes: Mapping[str, int]) -> None:
        """What is summed over time: sums over rows at the frontier, linear ops on them later, the rest row by row."""
        lowered = self.lowered
        late = late_calls(self.scan.program.calls, frontier, lowered, self.scan.references)
        sources = {s.target.owner for s in lowered.statements if s.call and s.call.op.outputs[0] in frontier}
        makers = [s.call.op.outputs[0] for s in lowered.statements if s.target.owner in frontier and s.call]
        if not set(makers) <= frontier or not sources <= frontier:
            raise MixedError("a sum over rows is used in its step")
        if any(blob in late.summed for blob, *_ in (*self.scan.writes, *self.scan.additions)):
            raise MixedError("a sum over rows is stored at every step")
        needed: set[str] = set()
        for result, blob in self.scan.sums.items():
            if blob in late.summed:
                self.sums[result] = blob
                needed.add(blob)
            elif lowered.numbers.get(blob) == 0:
                self.sums[result] = self._nothing(blob)
            else:
                access = lowered.views.get(blob)
                if access is None or access.owner not in axes:
                    raise MixedError(f"'{blob}' is the same for all rows, and summed")
                self.sums[result] = self._accumulate(blob)
        self.epilogue = late.needed(needed)
        late_outputs = {name for call in late.calls for name in call.op.outputs}
        stored = {*self.slots, *self.accumulators}
        lowered.statements = [
            s
            for s in lowered.statements
            if s.call is None or s.call.op.outputs[0] not in late_outputs or s.target.owner in stored
        ]
        if any(access.owner in frontier for s in lowered.statements for access in s.reads()):
            raise MixedError("a sum over rows is used in its step")
        wanted = needed | {name for call in self.epilogue for name in call.op.inputs}
        self.frontier_wanted = {name for name in wanted if name in frontier}

    def _row_sums(
        self, statements: list[Statement], axes: Mapping[str, int], frontier: set[str], invariant: Collection[str]
    ) -> tuple[list[Statement], Mapping[str, int], dict[str, Contraction]]:
        """Sums over rows: products over whole tiles, or one sum for each row, added up at the end."""
        result: list[Statement] = []
        contractions: dict[str, Contraction] = {}
        axes, sizes = dict(axes), self._step_sizes()
        for statement in statements:
            owner = statement.target.owner
            if owner not in frontier:
                result.append(statement)
            elif owner in self.frontier_wanted:
                contraction = as_contraction(statement, sizes, invariant)
                if contraction is not None:
                    contractions[owner] = contraction
                    self.accumulators[owner] = False
                else:
                    result.append(self._row_sum(statement, axes))
        return result, axes, self._turned(contractions)

    def _turned(self, contractions: Mapping[str, Contraction]) -> dict[str, Contraction]:
        """Products whose transposes alone are wanted, written the other way round.

        rewrite: `a += x^T @ y`, then once `b = Transpose(a)`  -->  `b += y^T @ x`
        """
        found: dict[str, Contraction] = {}
        for owner, contraction in contractions.items():
            readers = [call for call in self.epilogue if owner in call.op.inputs]
            blob = readers[0].op.outputs[0] if len(readers) == 1 else ""
            read_on = any(blob in call.op.inputs for call in self.epilogue)
            flips = [tuple(call.attr("perm") or (1, 0)) == (1, 0) for call in readers if call.op.type == "Transpose"]
            if blob and flips == [True] and not read_on and owner not in self.sums.values():
                self.epilogue.remove(readers[0])
                self.lowered.types[blob] = readers[0].output_types[0]
                self.accumulators[blob] = self.accumulators.pop(owner)
                found[blob] = contraction.turned(blob)
            else:
                found[owner] = contraction
        return found

    def _row_sum(self, statement: Statement, axes: dict[str, int]) -> Statement:
        owner, types = statement.target.owner, self.lowered.types
        kind = types[owner]
        parts = -(-self.scan.batch // rows_of_sum(self.scan.batch))
        types[owner] = Type(kind.dtype, (parts, *kind.shape))
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
        carried = _dependent(statements, self._inputs_in(self.scan.states))
        carried -= _dependent(statements, self._inputs_in(self.scan.gradients))
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

    def _inputs_in(self, tensors: Collection[str]) -> set[str]:
        return {name for name, slot in self.scan.reads.items() if slot.tensor in tensors}


def _copy_statement(
    scan: Scan, blob: str, kind: Type, target: Access, operand: Access | Number, add: bool
) -> Statement:
    call = next((c for c in scan.program.calls if blob in c.op.outputs), None)
    fold = "add" if add else ""
    return Statement(target.owner, kind.shape, target, (operand,), "copy", call, kind.dtype, fold)


def contractions_reads(contractions: Mapping[str, Contraction]) -> list[str]:
    return [owner for contraction in contractions.values() for owner in contraction.reads()]


def _dependent(statements: Sequence[Statement], sources: set[str]) -> set[str]:
    """Owners that depend on `sources` within a step."""
    found = set(sources)
    for statement in statements:
        if any(owner in found for owner in node_reads(statement)):
            found.add(statement.target.owner)
    return found
