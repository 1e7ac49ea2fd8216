"""Loop nests: which statements share one loop, and statements over large states.

**Loop nests**: which statements of a pointwise kernel share one pass over the features. This is greedy loop fusion
(Kennedy and McKinley 1993, without reordering). A statement joins the earliest nest of equal extents that its operands
allow. Both must touch the same element of all memory that one of them writes and the other uses. Statements are placed
from the first to the last, or from the last to the first if folds are to be innermost.

**Vector widths** are not chosen here or in any other pass. LLVM chooses them when it compiles a loop.

**Copies** are left out if the statement that makes a value can write it to the place of the copy.

**Statements over large states**: values go through memory only if they must, and no sum is one long chain of waits.
Copies are replaced by their source. A sum over two axes goes over the outer axis first, for all places of the inner
axis side by side, and then over these. If everything were added to one number, each addition would wait for the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod
from types import MappingProxyType

from rnnops.compiler.lower.scan import LoweredStep, dependencies
from rnnops.compiler.lower.statements import Access, Layout, Statement, dense, node_reads, node_writes, read_counts
from rnnops.compiler.schedule.product_axes import MatrixCall, is_whole_copy, matrix_call, source_of, within_row
from rnnops.compiler.schedule.sums import folds_innermost
from rnnops.types import Shape, Type

NO_CALLS: Mapping[int, MatrixCall] = MappingProxyType({})


@dataclass
class Nest:
    """Statements in one nest of loops, without axes of size 1 and without the batch axis.

    Args:
        call: the product that the nest's one statement is written as; None for loops.
    """

    extents: Shape
    statements: list[Statement] = field(default_factory=list)
    call: MatrixCall | None = None


def fuse_nests(
    statements: Sequence[Statement], folds_last: bool = False, large_apart: bool = False, products: str = ""
) -> list[Nest]:
    """Fuse the statements of a pointwise kernel into as few nests as order allows.

    Args:
        folds_last: whether loops over folded axes are the innermost, so that folds are in registers. Statements are
            then placed from the last to the first, so that a fold's operands are computed in its own nest.
        large_apart: whether smaller statements separate the large ones before and after them. Targets of folds in
            memory are then filled with their start first, so that folds can join the nest that makes their operands.
        products: the dtype of large products that become calls, each in a nest of its own; `""` for no calls.
    """
    own = [_within_row(statement) for statement in statements]
    calls = {id(one): call for one in own if products and (call := matrix_call(one, products))}
    own = (
        folds_innermost(own)
        if folds_last
        else [_streaming(s) if s.form == "product" and id(s) not in calls else s for s in own]
    )
    local = [part for s in own for part in ([s] if id(s) in calls else _from_start(s))]
    if large_apart:
        return [_collapsed(nest) for run in _runs(_starts_first(local)) for nest in _fused(run)]
    return [_collapsed(nest) for nest in _fused(local, folds_last, calls)]


def _fused(
    parts: Sequence[Statement], folds_last: bool = False, calls: Mapping[int, MatrixCall] = NO_CALLS
) -> list[Nest]:
    nests: list[_GrowingNest] = []
    for part in reversed(parts) if folds_last else parts:
        _place(nests, part, calls.get(id(part)))
    return [nest.finished(backwards=folds_last) for nest in (reversed(nests) if folds_last else nests)]


def _runs(parts: Sequence[Statement]) -> list[list[Statement]]:
    """The parts in runs: those over the most elements, and the smaller ones between them."""
    large = max((prod(part.extents) for part in parts), default=0)
    return [list(run) for _, run in groupby(parts, key=lambda part: prod(part.extents) >= large)]


def _within_row(statement: Statement) -> Statement:
    own = within_row(statement)
    if own.form == "uniform":
        own = replace(own, operands=(*own.operands, int(statement.row_axis == 0)))
    return own


def _from_start(own: Statement) -> list[Statement]:
    """The statement. If it is a fold in memory, a statement that fills its target with the start comes first."""
    if own.fold and own.start is not None and own.folded_axes() and not is_register_fold(own):
        return [_start(own), replace(own, start=None)]
    return [own]


def _starts_first(parts: Sequence[Statement]) -> list[Statement]:
    """The parts in another order: those that fill memory with a number first, unless an earlier part touches it."""
    first, others, touched = list[Statement](), list[Statement](), set[str]()
    for part in parts:
        fills = part.form == "copy" and not any(True for _ in part.reads()) and part.target.index is None
        (first if fills and part.target.owner not in touched else others).append(part)
        touched.update(access.owner for access in part.accesses())
    return [*first, *others]


def _streaming(statement: Statement) -> Statement:
    """A product as sums over columns, `c[j] += a[k] * b[k, j]`, where b lies row by row."""
    last = len(statement.extents) - 1
    if statement.folded_axes() != (last,) or last == 0:
        return statement
    strides = [o.layout.strides for o in statement.operands if isinstance(o, Access)]
    if statement.target.layout.strides[last - 1] == 1 and any(s[last - 1] == 1 and s[last] != 1 for s in strides):
        return statement.moved((*range(last - 1), last, last - 1))
    return statement


def is_register_fold(statement: Statement) -> bool:
    """True if the folded axes are the innermost ones, so that the value fits a register."""
    folded = statement.folded_axes()
    count = len(statement.extents)
    in_order = folded == tuple(range(count - len(folded), count))
    return bool(statement.fold) and statement.target.index is None and in_order


def _start(statement: Statement) -> Statement:
    """The statement that fills a fold's target with the number that the fold starts from."""
    kept = tuple(a for a in range(len(statement.extents)) if a not in statement.folded_axes())
    filled = replace(statement, operands=(), fold="", start=None, form="copy").moved(kept)
    return replace(filled, operands=(0 if statement.start is None else statement.start,))


class _GrowingNest:
    """A nest that statements join one after another, by what they write and touch."""

    def __init__(self, extents: Shape, call: MatrixCall | None) -> None:
        self.extents, self.call = extents, call
        self.statements: list[Statement] = []
        self.writers: dict[str, list[Statement]] = {}
        self.touched: dict[str, list[Access]] = {}

    def join(self, statement: Statement) -> None:
        """Take a statement in."""
        self.statements.append(statement)
        self.writers.setdefault(statement.target.owner, []).append(statement)
        for access in statement.accesses():
            self.touched.setdefault(access.owner, []).append(access)

    def shared(self, statement: Statement) -> Iterator[tuple[Statement, Access]]:
        """Pairs of a writer and an access to what it writes: one is in the nest, the other is the given statement's."""
        for access in statement.accesses():
            for other in self.writers.get(access.owner, ()):
                if _overlap(access, other.target):
                    yield other, access
        for access in self.touched.get(statement.target.owner, ()):
            if _overlap(access, statement.target):
                yield statement, access

    def finished(self, backwards: bool) -> Nest:
        """The nest.

        Args:
            backwards: whether its last statement joined first.
        """
        return Nest(self.extents, self.statements[::-1] if backwards else self.statements, self.call)


def _place(nests: list[_GrowingNest], statement: Statement, call: MatrixCall | None) -> None:
    """Put a statement into a nest that it may join, or into a new one at the end of `nests`."""
    best = None
    for nest in reversed([] if call else nests):
        if nest.call is None and nest.extents == statement.extents and _shares_elements(nest, statement):
            best = nest
        if any(True for _ in nest.shared(statement)):  # the statement comes after the nest, or into it
            break
    if best is None:
        best = _GrowingNest(statement.extents, call)
        nests.append(best)
    best.join(statement)


def _overlap(a: Access, b: Access) -> bool:
    """True if two accesses to one owner may touch the same element: by the ranges of their numbers."""
    if a.index is not None or b.index is not None:
        return True
    (a_first, a_last), (b_first, b_last) = a.layout.span, b.layout.span
    return a_first <= b_last and b_first <= a_last


def _shares_elements(nest: _GrowingNest, statement: Statement) -> bool:
    """True if the nest and the statement touch the same element of all memory that one of them writes."""
    return all(_same_element(writer, access) for writer, access in nest.shared(statement))


def _same_element(writer: Statement, access: Access) -> bool:
    if writer.target.index is not None or access.index is not None or writer.folded_axes():
        return False
    return access.layout == writer.target.layout


def _collapsed(nest: Nest) -> Nest:
    """The nest with neighbouring loops joined, if all its memory has no gap between them."""
    if nest.call:
        return nest
    axis = len(nest.extents) - 2
    while axis >= 0:
        if all(_joins(s, axis) for s in nest.statements):
            nest = Nest(_joined_extents(nest.extents, axis), [joined_statement(s, axis) for s in nest.statements])
        axis -= 1
    return nest


def _joins(statement: Statement, axis: int) -> bool:
    size = statement.extents[axis + 1]
    folded = statement.folded_axes()
    if (axis in folded) != (axis + 1 in folded) or statement.form == "uniform":
        return False
    return all(access.layout.strides[axis] == access.layout.strides[axis + 1] * size for access in statement.accesses())


def _joined_extents(extents: Shape, axis: int) -> Shape:
    return (*extents[:axis], extents[axis] * extents[axis + 1], *extents[axis + 2 :])


def joined_statement(statement: Statement, axis: int) -> Statement:
    """The statement with an axis and the next one as one."""
    extents = _joined_extents(statement.extents, axis)
    return statement.mapped(lambda access: _joined_access(access, axis), extents=extents)


def _joined_access(access: Access, axis: int) -> Access:
    layout = access.layout
    strides = (*layout.strides[:axis], *layout.strides[axis + 1 :])
    joined = Layout(layout.offset, _joined_extents(layout.shape, axis), strides)
    return replace(access, layout=joined, index=None if access.index is None else _joined_access(access.index, axis))


def write_through_copies(step: LoweredStep) -> LoweredStep:
    """Let statements write their result to the target of a copy, if only the copy reads it.

    rewrite: `y[k, n, j] += x[n, i, k] * w[i, j, k]; z[n, k, j] = y[k, n, j]`
        -->  `z[n, k, j] += x[n, i, k] * w[i, j, k]`
    """
    nodes, reads = list(step.nodes), read_counts(step.nodes)
    writers = Counter(map(node_writes, nodes))
    apart = {*step.stored, *step.slots, *step.invariant, *step.accumulators}
    apart |= {owner for n in nodes if not isinstance(n, Statement) for owner in (*node_reads(n), node_writes(n))}
    for copy in step.statements:
        if not is_whole_copy(copy, step) or {source_of(copy).owner, copy.target.owner} & apart:
            continue
        name = source_of(copy).owner
        if not _reaches_all_once(source_of(copy).layout, step.lowered.types[name].size):
            continue
        makers = [n for n in nodes if isinstance(n, Statement) and n.target.owner == name]
        folds = sum(name in node_reads(n) for n in makers)
        there = [_written_through(maker, copy, step.calls) for maker in makers]
        if writers[copy.target.owner] == 1 and reads[name] == folds + 1 and makers and None not in there:
            instead = {id(maker): made for maker, made in zip(makers, there, strict=True)}
            nodes = [instead.get(id(node)) or node for node in nodes if node is not copy]
    return replace(step, nodes=tuple(nodes))


def _reaches_all_once(layout: Layout, size: int) -> bool:
    """True if a layout reaches each of `size` numbers once: it has the axes of a dense array, in any order."""
    moving = [(stride, extent) for stride, extent in zip(layout.strides, layout.shape, strict=True) if extent != 1]
    reached = 1
    for stride, extent in sorted(moving):
        if stride != reached:
            return False
        reached *= extent
    return layout.offset == 0 and reached == size


def _written_through(statement: Statement, copy: Statement, calls: bool) -> Statement | None:
    """The statement with the copy's target as its own.

    None if its axes are not those of the copy, or if a product could no longer be called.
    """
    source, layout = source_of(copy).layout, statement.target.layout
    if statement.target.index is not None or layout.offset != 0:
        return None
    axes = list[int | None]()
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        alike = (a for a, own in enumerate(source.strides) if stride and own == stride and source.shape[a] == size)
        axes.append(next(alike, None))
        if stride and axes[-1] is None:
            return None
    there = replace(copy.target, layout=copy.target.layout.with_axes(tuple(axes), layout.shape))
    found = replace(statement, target=there)
    called = calls and matrix_call(within_row(statement), statement.dtype) is not None
    return None if called and matrix_call(within_row(found), statement.dtype) is None else found


CHEAP = ("Mul", "Add", "Sub", "Neg")


def for_states(
    statements: Sequence[Statement],
    types: dict[str, Type],
    batch_axes: dict[str, int],
    kept: Collection[str],
    carried: Collection[tuple[str, str]],
) -> tuple[Statement, ...]:
    """The statements of a loop over steps, for large states.

    Args:
        types, batch_axes: of owners; those of new owners are added.
        kept: owners that are also read outside of these statements.
        carried: pairs of the owner that a step reads and the owner that it writes for the next step.
    """
    split = [part for s in _without_copies(statements, types, kept) for part in _split(s, types, batch_axes)]
    ordered = _large_together(split, carried)
    return tuple(_made_again(ordered, types, batch_axes, kept, carried))


def _without_copies(statements: Sequence[Statement], types: dict[str, Type], kept: Collection[str]) -> list[Statement]:
    """The statements without plain copies. Their readers read the source, if it does not change afterwards."""
    writes = Counter(s.target.owner for s in statements)
    sources: dict[str, str] = {}
    result = []
    for number, statement in enumerate(statements):
        statement = _renamed(statement, sources)
        source = _copied(statement, types)
        target = statement.target.owner
        later = {s.target.owner for s in statements[number:]}
        if source and target not in kept and writes[target] == 1 and source not in later:
            sources[target] = source
        else:
            result.append(statement)
    return result


def _copied(statement: Statement, types: dict[str, Type]) -> str:
    """The owner that a statement copies as a whole; `""` for any other statement."""
    plain = statement.form == "copy" or (statement.form == "apply" and statement.made_by().op.type == "Identity")
    if not plain or statement.fold or len(statement.operands) != 1:
        return ""
    source, target = statement.operands[0], statement.target
    if not isinstance(source, Access) or source.index is not None or target.index is not None:
        return ""
    same = source.layout == target.layout and types[source.owner] == types[target.owner]
    return source.owner if same and target.layout.size == dense(types[target.owner].shape).size else ""


def _renamed(statement: Statement, sources: dict[str, str]) -> Statement:
    """The statement with sources in place of copies, in operands and indices. Its target stays."""
    made = statement.mapped(lambda access: access.renamed(sources))
    return made.writing(statement.target.owner)


def _split(statement: Statement, types: dict[str, Type], batch_axes: dict[str, int]) -> list[Statement]:
    """A sum over two axes as two sums over one each.

    rewrite: `s += x[i, j]`  -->  `c[j] += x[i, j]`, `s += c[j]`
    """
    folded, rows = statement.folded_axes(), statement.row_axis
    if statement.fold != "add" or len(folded) != 2 or rows in folded or statement.target.index is not None:
        return [statement]
    outer, _inner = folded
    kept = tuple(axis for axis in range(len(statement.extents)) if axis != outer)
    shape: Shape = tuple(statement.extents[axis] for axis in kept)
    owner = f"{statement.target.owner}/columns"
    if owner in types:
        return [statement]
    types[owner] = Type(types[statement.target.owner].dtype, shape)
    if rows is not None:
        batch_axes[owner] = kept.index(rows)
    layout = dense(shape)
    places = tuple(kept.index(axis) if axis != outer else None for axis in range(len(statement.extents)))
    columns = replace(statement, blob=owner, target=Access(owner, layout.with_axes(places, statement.extents)), start=0)
    total = replace(
        statement, extents=shape, form="copy", operands=(Access(owner, layout),),
        target=replace(statement.target, layout=statement.target.layout.with_axes(kept, shape)),
        row_axis=None if rows is None else kept.index(rows),
    )  # fmt: skip
    return [columns, total]


def _large_together(statements: Sequence[Statement], carried: Collection[tuple[str, str]]) -> list[Statement]:
    """The statements in an order in which those over whole states are neighbours, so that they share loops.

    First come all others that can run, then all over whole states that can run, and so on. A state is written after all
    reads of its old value.
    """
    readers = {read: [i for i, s in enumerate(statements) if read in node_reads(s)] for read, _ in carried}
    writers = {written: [i for i, s in enumerate(statements) if s.target.owner == written] for _, written in carried}
    edges = set(dependencies(statements))
    edges |= {(i, j) for read, written in carried for i in readers[read] for j in writers[written] if i < j}
    waiting = Counter(then for _, then in edges)
    sizes = [prod(s.extents) for s in statements]
    large = max(sizes, default=0)
    ready = {i for i in range(len(statements)) if not waiting[i]}
    order: list[int] = []
    is_large = False
    while ready:
        is_large = is_large if any((sizes[i] >= large) == is_large for i in ready) else not is_large
        now = min(i for i in ready if (sizes[i] >= large) == is_large)
        ready.remove(now)
        order.append(now)
        for then in (then for first, then in edges if first == now):
            waiting[then] -= 1
            if not waiting[then]:
                ready.add(then)
    return [statements[i] for i in order]


def _made_again(
    statements: Sequence[Statement],
    types: dict[str, Type],
    batch_axes: dict[str, int],
    kept: Collection[str],
    carried: Collection[tuple[str, str]],
) -> list[Statement]:
    """The statements, with cheap ones over whole states repeated in later loops that read their result.

    Then no memory has to hold the result. A statement is repeated only while its operands are unchanged.
    """
    large = max((prod(s.extents) for s in statements), default=0)
    runs = [list(group) for _, group in groupby(statements, key=lambda s: prod(s.extents) >= large)]
    successors = dict(carried)
    for number, run in enumerate(runs):
        for statement in [s for s in run if prod(s.extents) >= large and _is_cheap(s, kept, statements)]:
            owner, reads = statement.target.owner, set(node_reads(statement))
            gone = set[str]()
            for later in range(number, len(runs)):
                if later > number and gone & (reads | {successors.get(read, "") for read in reads}):
                    break
                readers = [s for s in runs[later] if owner in node_reads(s)]
                if later > number and readers and all(prod(s.extents) >= large for s in readers):
                    again = f"{owner}/again.{later}"
                    types[again] = types[owner]
                    if owner in batch_axes:
                        batch_axes[again] = batch_axes[owner]
                    copy = replace(statement, target=replace(statement.target, owner=again))
                    runs[later] = [copy, *(_renamed(s, {owner: again}) for s in runs[later])]
                gone |= {s.target.owner for s in runs[later]}
    return [statement for run in runs for statement in run]


def _is_cheap(statement: Statement, kept: Collection[str], statements: Sequence[Statement]) -> bool:
    """True if a statement is one operation of `CHEAP`, and only these statements read its result."""
    if statement.fold or statement.form != "apply" or statement.made_by().op.type not in CHEAP:
        return False
    owner = statement.target.owner
    plain = all(access.index is None for access in statement.accesses())
    return plain and owner not in kept and [s.target.owner for s in statements].count(owner) == 1
