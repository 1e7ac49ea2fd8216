"""Sums of a step over axes, rows and time.

**Folds in registers** need an order of axes. A fold gets its folded axes last. The values that a fold reads, and those
made of its result, are computed in the order of its axes: they then share one nest of loops, and need no memory.
Limit: if two folds read a value in different orders, it is computed in the order of the first.

**Linear functions of sums over rows** are computed once, from totals over all steps. The gradient of a weight is a sum
over the rows of the batch. Threads share out rows, so no thread has such a sum within a step. But a linear function of
it may wait until all steps have been summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.lower.scan import Lowered, LoweredStep, MixedError, Scan, copied, rows_of_sum
from rnnops.compiler.lower.statements import Access, Contraction, Layout, Node, Statement, dense, fold_word, read_counts
from rnnops.compiler.schedule.products import as_contraction
from rnnops.net.loop_forms import Reduction, View, normal_text
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.types import Type

Order = tuple[int, ...]
Orders = dict[tuple[str, Layout], Order]  # of what is read or written, by owner and layout


def folds_innermost(statements: Sequence[Statement]) -> list[Statement]:
    """Statements of one row, with folded axes last. Other statements get the order of the folds that they belong to.

    rewrite: `p[s, e] = a[s] * b[s, e]; c[e] += p[s, e]`  -->  `p[e, s] = a[s] * b[s, e]; c[e] += p[e, s]`
    """
    wanted = _orders_of_readers(statements)
    made: Orders = {}
    found = []
    for statement in statements:
        target = statement.target.owner, statement.target.layout
        order = _folded_last(statement) or wanted.get(target) or _order_of_what_it_reads(statement, made)
        made[target] = order
        found.append(statement.moved(order))
    return found


def _folded_last(statement: Statement) -> Order | None:
    folded = statement.folded_axes() if statement.fold and statement.target.index is None else ()
    return (*(a for a in _axes(statement) if a not in folded), *folded) if folded else None


def _orders_of_readers(statements: Sequence[Statement]) -> Orders:
    """What is read by folds, or by statements that make their operands -> the order of axes of its first reader."""
    orders: Orders = {}
    for statement in reversed(statements):
        order = _folded_last(statement) or orders.get((statement.target.owner, statement.target.layout))
        if order:
            orders.update({(access.owner, access.layout): order for access in statement.reads()})
    return orders


def _order_of_what_it_reads(statement: Statement, made: Orders) -> Order:
    known = [made[key] for access in statement.reads() if (key := (access.owner, access.layout)) in made]
    return known[0] if known else _axes(statement)


def _axes(statement: Statement) -> Order:
    return tuple(range(len(statement.extents)))


def merge_folds(step: LoweredStep) -> LoweredStep:
    """Fold at once what a step folds in two steps; see `merged`."""
    return replace(step, nodes=tuple(merged(step.statements, step.stored)))


def merged(statements: Sequence[Statement], stored: Collection[str]) -> list[Statement]:
    """Fold at once what is folded in two steps.

    rewrite: `x[n, i, j] += a[n, k, i] * b[n, k, j]; y[i, j] += x[n, i, j]`
        -->  `y[i, j] += a[n, k, i] * b[n, k, j]`
    """
    reads = read_counts(statements)
    makers = {s.target.owner: s for s in statements if s.fold == "add" and s.start is not None}
    writes = Counter(s.target.owner for s in statements)
    merged: list[Statement] = []
    gone: set[int] = set()
    for statement in statements:
        source = statement.operands[0] if statement.operands else None
        first = makers.get(source.owner) if isinstance(source, Access) else None
        if (
            first is None
            or statement.fold != "add"
            or statement.form != "copy"
            or statement.target.index is not None
            or first.form != "product"
            or not isinstance(source, Access)
            or source.owner in stored
            or reads[source.owner] != 1
            or writes[source.owner] != 1
            or (places := _places_of_axes(source, first)) is None
        ):
            merged.append(statement)
            continue
        folded = first.folded_axes() or (len(first.extents) - 1,)
        if len(folded) > 1:
            merged.append(statement)
            continue
        order = (*places, None)
        target = replace(statement.target, layout=statement.target.layout.with_axes(order, first.extents))
        merged.append(replace(first, blob=statement.blob, target=target, start=statement.start))
        gone.add(id(first))
    return [statement for statement in merged if id(statement) not in gone]


def _places_of_axes(source: Access, maker: Statement) -> tuple[int, ...] | None:
    """For each axis that a product keeps, the axis of `source` that runs along it; None where one is missing."""
    kept = maker.extents[:-1]
    if source.layout.offset or source.layout.size != prod(kept):
        return None
    places = []
    for size, stride in zip(kept, dense(kept).strides, strict=True):
        found = [
            axis
            for axis, (own, step) in enumerate(zip(source.layout.shape, source.layout.strides, strict=True))
            if own == size and (step == stride or size == 1) and axis not in places
        ]
        if not found:
            return None
        places.append(found[0])
    return tuple(places) if len(places) == len(source.layout.shape) else None


def contract_sums(step: LoweredStep) -> LoweredStep:
    """Turn summed products into products over a whole tile of steps, and other sums over rows into sums in parts.

    rewrite: `dw[i, j] += x[n, i] * dy[n, j]`  -->  `dw += x^T @ dy`; where rows are independent, a sum without
        product, `db[j] += dy[n, j]`  -->  `db[part of n, j] += dy[n, j]`
    """
    lowered, axes, accumulators = step.lowered.copy(), dict(step.batch_axes), dict(step.accumulators)
    sizes, contractions = step.sizes(), list[Contraction]()
    nodes: list[Node] = []
    writers: dict[str, list[Contraction | None]] = {}
    for statement in step.statements:
        found = as_contraction(statement, sizes, step.invariant, bool(step.whole))
        writers.setdefault(statement.target.owner, []).append(found)
    for statement in step.statements:
        owner = statement.target.owner
        every = writers[owner]
        if owner not in accumulators or not (step.whole or statement.row_axis in statement.folded_axes()):
            nodes.append(statement)
        elif all(every):
            contractions += [found for found in every if found]
            every.clear()
        elif step.whole:
            nodes.append(statement)
        else:
            accumulators[owner], axes[owner] = True, 0
            nodes.append(_in_parts(statement, lowered, step.scan.batch))
    return replace(step, lowered=lowered, nodes=(*nodes, *contractions), batch_axes=axes, accumulators=accumulators)


def _in_parts(statement: Statement, lowered: Lowered, batch: int) -> Statement:
    """The statement of a sum over rows, with a part of the target for some rows each. Threads add to parts of their
    own."""
    owner, layout = statement.target.owner, statement.target.layout
    kind = lowered.types[owner]
    lowered.types[owner] = Type(kind.dtype, (-(-batch // rows_of_sum(batch)), *kind.shape))
    strides = [prod(kind.shape) if a == statement.row_axis else s for a, s in enumerate(layout.strides)]
    target = replace(statement.target, layout=replace(layout, strides=tuple(strides)))
    return replace(statement, target=target, start=None)


SUMS = ("Add", "Sum", "Sub")  # linear in all operands at once
SCALED = ("Mul", "MatMul")  # linear in either operand
FIRST = ("Div", "Gather", "Identity", "Neg", "ScatterAdd")  # linear in the first operand; so are sums and means
CHOICES = ("Where",)  # linear in all operands but the first


@dataclass(frozen=True)
class LateCalls:
    """The ops of a step that may wait for sums over rows.

    Args:
        calls: ops that are linear functions of sums, in order.
        fixed: ops whose results are the same at every step.
        summed: blob that is a sum or a linear function of sums -> the owners of these sums.
        refused: owner of a sum -> a blob that depends on it, but not linearly.
    """

    calls: Sequence[Call]
    fixed: Sequence[Call]
    summed: Mapping[str, Collection[str]]
    refused: Mapping[str, str]

    def needed(self, blobs: Iterable[str]) -> list[Call]:
        """The ops that these blobs depend on."""
        wanted = set(blobs)
        result: list[Call] = []
        for call in reversed([*self.fixed, *self.calls]):
            if any(name in wanted for name in call.op.outputs):
                wanted.update(call.op.inputs)
                result.append(call)
        return result[::-1]


def late_calls(
    calls: Iterable[Call], frontier: Collection[str], lowered: Lowered, references: Iterable[str]
) -> LateCalls:
    """Find the ops that depend on sums over rows.

    Args:
        calls: of a step, in order.
        frontier: owners that are sums over rows.
        lowered: the step.
        references: blobs that are the same at every step.
    """
    summed = {blob: {access.owner} for blob, access in lowered.views.items() if access.owner in frontier}
    zeros, fixed = {name for name, value in lowered.numbers.items() if value == 0}, set(references)
    late, first, refused = list[Call](), list[Call](), dict[str, str]()
    for call in calls:
        outputs = [name for name in call.op.outputs if name]
        sums = {owner for name in call.op.inputs for owner in summed.get(name, ())}
        if sums and outputs[0] not in frontier and _is_linear(call, summed, fixed, zeros):
            late.append(call)
            summed.update(dict.fromkeys(outputs, sums))
        elif sums:
            for owner in sums:
                refused.setdefault(owner, outputs[0])
        elif all(name in fixed for name in call.op.inputs if name) and not schema_of(call.op.type).random:
            first.append(call)
            fixed.update(outputs)
    return LateCalls(late, first, summed, refused)


def _is_linear(call: Call, summed: Collection[str], fixed: Collection[str], zeros: Collection[str]) -> bool:
    """True if a call is linear in the summed operands, for fixed others."""
    names, kind = [name for name in call.op.inputs if name], call.op.type
    others = [name for name in names if name not in summed]
    if kind in SUMS:
        return all(name in zeros for name in others)
    if kind in CHOICES:
        return names[0] in fixed and all(name in zeros for name in others[1:])
    if any(name not in fixed and name not in zeros for name in others):
        return False
    if kind in SCALED:
        return len(others) == 1
    form = form_of(call)
    if isinstance(form, View) and form.all_inputs:
        return all(name in zeros for name in others)
    if isinstance(form, View):
        return names[0] in summed and (kind != "Pad" or _fills_with_zero(call, zeros))
    first = kind in FIRST or (isinstance(form, Reduction) and is_linear(form))
    return first and names[0] in summed and names.count(names[0]) == 1


def _fills_with_zero(call: Call, zeros: Collection[str]) -> bool:
    if call.attr("mode") != "constant":
        return True
    return call.op.inputs[2] in zeros if call.has(2) else call.attr("constant_value") == 0


def is_linear(form: Reduction) -> bool:
    """True if a reduction is a sum of its elements, or their mean."""
    plain = fold_word(form.combine) == "add" and normal_text(form.element) == normal_text("{0}")
    return plain and normal_text(form.finish) in map(normal_text, ("{acc}", "{acc} / {count}"))


def split_sums(step: LoweredStep) -> LoweredStep:
    """Sums over rows are also summed over steps. Linear functions of them run once, after the last step.

    All other work runs row by row.

    rewrite: `s = ReduceSum(x, rows); y = Mul(s, w)`, y summed over steps  -->  `s += x`, then once `y = Mul(s, w)`

    Raises MixedError if a step uses a sum over its rows.
    """
    frontier = _frontier(step)
    late = late_calls(step.scan.program.calls, frontier, step.lowered, step.scan.references)
    _check_unused(step, frontier, late)
    scan, lowered, nodes = step.scan, step.lowered.copy(), step.statements
    sums: dict[str, str] = {}
    accumulators: dict[str, bool] = {}
    for result, blob in scan.sums.items():
        if blob in late.summed:
            sums[result] = blob
            continue
        zero = lowered.numbers.get(blob) == 0
        if not zero and (blob not in lowered.views or lowered.views[blob].owner not in step.batch_axes):
            raise MixedError(f"'{blob}' is the same for all rows, and summed")
        sums[result] = accumulator(scan, lowered, blob)
        accumulators[sums[result]] = False
        if not zero:
            nodes.append(added(scan, lowered, blob, sums[result]))
    needed = {blob for blob in sums.values() if blob in late.summed}
    epilogue = tuple(late.needed(needed))
    wanted = needed | {name for call in epilogue for name in call.op.inputs}
    left = _left(nodes, late, frontier, {*step.slots, *accumulators}, wanted)
    accumulators.update((s.target.owner, False) for s in left if s.target.owner in frontier)
    return replace(step, lowered=lowered, nodes=tuple(left), sums=sums, accumulators=accumulators, epilogue=epilogue)


def _frontier(step: LoweredStep) -> set[str]:
    """Owners that are sums over rows. Raises MixedError for other folds over rows."""
    for statement in step.statements:
        if statement.row_axis is None and statement.fold and statement.target.owner in step.slots:
            # each row would compute it again, which cannot add to the stored value
            raise MixedError(f"'{statement.blob}' is the same for all rows, and a fold that is stored")
    frontier = {s.target.owner for s in step.statements if s.row_axis in s.folded_axes()}
    writers = [s for s in step.statements if s.target.owner in frontier]
    if any(s.row_axis not in s.folded_axes() or s.fold != "add" for s in writers):
        raise MixedError("a fold over rows is written in parts, or is not a sum")
    return frontier


def _check_unused(step: LoweredStep, frontier: Collection[str], late: LateCalls) -> None:
    """Raise MixedError if a sum over rows is used in its step, or stored."""
    if late.refused:
        raise MixedError(f"'{next(iter(late.refused.values()))}' is not a linear function of sums over rows")
    if any((s.blob in frontier) != (s.target.owner in frontier) for s in step.statements):
        raise MixedError("a sum over rows is used in its step")
    if any(blob in late.summed for blob, *_ in (*step.scan.writes, *step.scan.additions)):
        raise MixedError("a sum over rows is stored at every step")


def _left(
    nodes: list[Statement], late: LateCalls, frontier: Collection[str], stored: Collection[str], wanted: Collection[str]
) -> list[Statement]:
    """The statements of a step without those that wait, and without unused sums over rows."""
    waits = {name for call in late.calls for name in call.op.outputs}
    left = [s for s in nodes if s.blob not in waits or s.target.owner in stored]
    if any(access.owner in frontier for s in left for access in s.reads()):
        raise MixedError("a sum over rows is used in its step")
    return [s for s in left if s.target.owner not in frontier or s.target.owner in wanted]


def sum_over_steps(step: LoweredStep) -> LoweredStep:
    """Add results that are summed over steps to accumulators. Linear functions of products run once, at the end.

    rewrite: `dw = ...`, summed over steps  -->  `dw = ...; dw/total.0 += dw`
        `p = x^T @ dy; dw = Concat(p, q)`  -->  `p += x^T @ dy`, then once `dw = Concat(p, q)`
    """
    scan, lowered = step.scan, step.lowered.copy()
    frontier, late = _products_to_wait_for(step)
    waits = {name for call in late.calls for name in call.op.outputs}
    needed = {b for b in scan.sums.values() if b in waits and lowered.views[b].owner not in frontier}
    epilogue = tuple(late.needed(needed))
    products = dict.fromkeys(name for call in epilogue for name in call.op.inputs if name in frontier)
    each = {product: accumulator(scan, lowered, product) for product in products}
    sums: dict[str, str] = {}
    totals = [added(scan, lowered, product, product) for product in products]
    for result, blob in scan.sums.items():
        sums[result] = blob if blob in needed or blob in products else accumulator(scan, lowered, blob)
        if sums[result] != blob and lowered.numbers.get(blob) != 0:
            totals.append(added(scan, lowered, blob, sums[result]))
    gone = {name for call in epilogue for name in call.op.outputs}
    nodes = [s.writing(each.get(s.target.owner, s.target.owner)) for s in step.statements if s.blob not in gone]
    nodes += [s.reading(each) for s in totals]
    accumulators = dict.fromkeys((*products, *(owner for owner in sums.values() if owner not in needed)), False)
    return replace(step, lowered=lowered, nodes=tuple(nodes), sums=sums, accumulators=accumulators, epilogue=epilogue)


def _products_to_wait_for(step: LoweredStep) -> tuple[set[str], LateCalls]:
    """The products of a step that only linear functions use, and these functions."""
    stored = [*(blob for blob, _ in step.scan.writes), *(blob for blob, *_ in step.scan.additions)]
    products = (s for s in step.statements if s.form == "product" and s.fold == "add" and s.start is not None)
    frontier = {s.blob for s in products if s.blob == s.target.owner and s.blob not in step.slots}
    while True:
        late = late_calls(step.scan.program.calls, frontier, step.lowered, step.scan.references)
        used = {owner for blob in stored for owner in late.summed.get(blob, ())}
        if not (late.refused or used):
            return frontier, late
        frontier -= {*late.refused, *used}


def accumulator(scan: Scan, lowered: Lowered, blob: str) -> str:
    """An owner that a blob is added to at every step."""
    owner = lowered.fresh(f"{blob}/total")
    lowered.own(owner, scan.program.types[blob])
    return owner


def added(scan: Scan, lowered: Lowered, blob: str, owner: str) -> Statement:
    """The statement that adds a blob to its accumulator."""
    return copied(scan, lowered, blob, lowered.views[owner], "add")
