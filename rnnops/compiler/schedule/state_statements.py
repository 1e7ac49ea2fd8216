"""Statements over large states: nothing goes through memory that need not, and no sum waits for itself at each number.

Copies are read where they come from. A sum over two axes is one over the outer, for all places of the inner side by
side, and then one over these: a single number that everything is added to would be a chain of waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.nodes import node_reads
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.stages import dependencies
from rnnops.types import Shape, Type

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
        carried: (owner that a step reads, owner that it writes for the next one).
        types, batch_axes: of owners; what the statements need beside is added.
        kept: owners that others read.
    """
    split = [part for s in _without_copies(statements, types, kept) for part in _split(s, types, batch_axes)]
    ordered = _large_together(split, carried)
    return tuple(_made_again(ordered, types, batch_axes, kept, carried))


def _without_copies(statements: Sequence[Statement], types: dict[str, Type], kept: Collection[str]) -> list[Statement]:
    """The statements without copies of what stays as it is, where nobody else reads these."""
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
    """The owner that a statement copies as a whole, `""` where it does something else."""
    plain = statement.form == "copy" or (statement.form == "apply" and statement.made_by().op.type == "Identity")
    if not plain or statement.fold or len(statement.operands) != 1:
        return ""
    source, target = statement.operands[0], statement.target
    if not isinstance(source, Access) or source.index is not None or target.index is not None:
        return ""
    same = source.layout == target.layout and types[source.owner] == types[target.owner]
    return source.owner if same and target.layout.size == dense(types[target.owner].shape).size else ""


def _renamed(statement: Statement, sources: dict[str, str]) -> Statement:
    """The statement, reading copies where they come from, also where it looks places up."""

    def renamed(access: Access) -> Access:
        index = None if access.index is None else renamed(access.index)
        return replace(access, owner=sources.get(access.owner, access.owner), index=index)

    operands = tuple(renamed(o) if isinstance(o, Access) else o for o in statement.operands)
    place = None if statement.target.index is None else renamed(statement.target.index)
    return replace(statement, operands=operands, target=replace(statement.target, index=place))


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
    """The statements in an order in which those over whole states stand side by side, to share loops.

    All that can run of the others comes first, then all that can run of these, and so on; a state is written when all
    that reads the one before has run.
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
    """The statements, those over whole states made again where a later loop reads them: no memory holds them then.

    Only what is one multiplication or addition of what is there anyway is made again.
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
    """Whether a statement is one multiplication or addition, of which nobody else reads the result."""
    if statement.fold or statement.form != "apply" or statement.made_by().op.type not in CHEAP:
        return False
    owner = statement.target.owner
    plain = all(access.index is None for access in statement.accesses())
    return plain and owner not in kept and [s.target.owner for s in statements].count(owner) == 1
