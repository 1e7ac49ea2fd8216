"""Groups of ops around recurrences that run row by row as one kernel.

**Groups of ops that work row by row**: which ops around recurrences can run as one compiled pass over rows. The search
is greedy, in the order of the net. A group knows the axis of each of its blobs that runs over its rows: the leading
axis of its first result (that of steps, in a batch of one row), and all axes that are read or written along it. An op
joins a group if every row of its results follows from the same row of its operands, or if it sums over rows. Only later
groups may read such a sum. Groups have levels, so that no two groups wait for each other. Ops that cost nothing, or far
less than reading their results (constants, views, one-hot codes), are free: each group that reads one has a copy of it.

Limits: views of more than `LARGEST_VIEW` elements stay outside of groups, because their layouts are found by running
them on element numbers. Ops with more than `MANY_BLOBS` operands and results stay outside, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod

from rnnops.compiler.lower.lower_ops import lower_op
from rnnops.compiler.lower.scan import Lowered, UnsupportedError
from rnnops.compiler.lower.statements import Access, Layout, Statement
from rnnops.compiler.schedule.batch_axis import BatchAxes, axes_along, find_batch_axes
from rnnops.compiler.schedule.products import as_contraction, as_product
from rnnops.interpreter import Program
from rnnops.net.loop_forms import Pointwise, View
from rnnops.net.schema import Call, form_of
from rnnops.types import OPAQUE, Type

Types = Mapping[str, Type]


def find_rows(
    before: Sequence[Statement], statements: Sequence[Statement], types: Types, known: Mapping[str, int]
) -> BatchAxes | None:
    """The rows of new statements; None if they do not fit. A group without rows takes an axis of the first statement.

    Args:
        before: statements that the group has already.
        known: owner of memory -> its axis that runs over rows; empty for a group without rows.
    """
    if not statements:
        return BatchAxes(dict(known), (), ())
    if known:
        return _unless_across(before, rows_known(statements, types, known))
    first = statements[0]
    if not first.extents:
        return None
    leading = _leading_axis(first)
    axes = dict.fromkeys((0, leading, *first.folded_axes()))
    found = {axis: rows_known(statements, types, axes_along(first, axis, types)) for axis in axes}
    blocked = [rows for rows in found.values() if rows is not None and _is_blocked(rows, types)]
    if not blocked and leading and first.form == "product":
        return None  # an axis other than the first is for products in blocks, and for elementwise work
    return blocked[0] if blocked else _unless_across(before, found[leading])


def _unless_across(before: Sequence[Statement], rows: BatchAxes | None) -> BatchAxes | None:
    """The rows. None if a statement would read and write the numbers of each row one by one, far apart."""
    if rows is None:
        return None
    made = {one.target.owner for one in (*before, *rows.statements) if one.form != "product" and not one.fold}
    return None if any(_is_across(statement, made) for statement in rows.statements) else rows


def _is_across(statement: Statement, made: Collection[str]) -> bool:
    """True if the numbers of a row lie far apart in all memory that an elementwise statement reads and writes.

    It then belongs in a group of its own with other rows: going row by row would be far slower. A transposition is not
    such a statement, because it reads rows in one piece. Nor is a statement that reads results of the same group
    (`made`): these are not read from memory, and are mostly transposed back in the end.
    """
    row, extents = statement.row_axis, statement.extents
    if statement.form == "product" or statement.fold or row is None or extents[row] == 1:
        return False
    inner, outer = prod(extents[row + 1 :]), prod(extents[:row])
    if inner > 1 or outer == 1:
        return False
    return not any(_is_in_pieces(read.layout, row) or _is_made(read, made) for read in statement.reads())


def _is_in_pieces(layout: Layout, row: int) -> bool:
    """True if elements of a row lie nearer to each other than to those of the next row."""
    apart = abs(layout.strides[row])
    return any(0 < abs(stride) < apart for axis, stride in enumerate(layout.strides) if axis != row)


def _is_made(read: Access, made: Collection[str]) -> bool:
    """True if an access reads each element of a result of the group once."""
    return read.owner in made and all(
        read.layout.strides[axis] or size == 1 for axis, size in enumerate(read.layout.shape)
    )


def _leading_axis(statement: Statement) -> int:
    """The first axis. For a batch of a single row, `[1, T, D]`, it is that of steps, so that products run in blocks.

    For `[1, D, 1]` it is the first: D are features, and a sum over them is not one over rows.
    """
    folded = statement.folded_axes()
    long = [axis for axis, size in enumerate(statement.extents) if axis not in folded and size != 1]
    return long[0] if len(long) > 1 else 0


def rows_known(statements: Sequence[Statement], types: Types, known: Mapping[str, int]) -> BatchAxes | None:
    found = find_batch_axes(statements, types, known)
    return None if found.mixing or any(s.row_axis is None for s in found.statements) else found


def _is_blocked(found: BatchAxes, types: Types) -> bool:
    """True if the first statement is a product that runs in blocks."""
    first = found.statements[0]
    owners = {access.owner for access in first.accesses()}
    sizes, fixed = {owner: types[owner].size for owner in owners}, owners - set(found.axes)
    return bool(as_product(first, sizes, fixed) or as_contraction(first, sizes, fixed))


LARGEST_VIEW = 1 << 22  # elements
LARGEST_GROUP = 64  # ops
MANY_BLOBS = 128  # the most operands and results of an op that joins groups: each group that it tries lowers all
CANDIDATES = 8  # groups that an op tries to join, the last ones first
MANY_VIEWS = 4  # an op with so many views reads them in place on one thread, and not copies of them on all threads
EXPANDS = 4  # an op is free if its result is so many times as large as its operands
PRODUCT_SPEED = 64  # multiply-adds that cost about as much as an elementwise result


@dataclass(frozen=True)
class FusionGroup:
    """Ops that run as one pass over rows.

    Args:
        level: blobs that it reads are made at lower levels.
        calls: in order, with free ops. Other groups may have copies of these.
        own: the calls that only this group has.
        axes: owner of memory -> its axis that runs over rows.
        sums: blobs that are sums over rows.
        lowered: the ops as statements.
    """

    level: int = 0
    calls: tuple[Call, ...] = ()
    own: tuple[Call, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    sums: frozenset[str] = frozenset()
    lowered: Lowered = field(default_factory=Lowered)

    def joined(self, calls: Sequence[Call], own: Sequence[Call], types: Types) -> FusionGroup | None:
        """The group with more ops, some of them its own; None if they do not fit."""
        known, mine = {id(call) for call in self.calls}, {id(call) for call in own}
        new = [call for call in calls if id(call) not in known and (id(call) in mine or not self._reads(call))]
        if len(self.calls) + len(new) > LARGEST_GROUP or (self.calls and not self.axes):
            return None
        lowered = self.lowered.copy()
        if not all(_lower(lowered, call, types) for call in new):
            return None
        group = replace(self, calls=(*self.calls, *new), own=(*self.own, *own), lowered=lowered)
        return _with_rows(group, lowered.statements[len(self.lowered.statements) :])

    def whole(self, calls: Sequence[Call], own: Sequence[Call], types: Types) -> FusionGroup | None:
        """A group without rows, on one thread; None if an op has no compiled form."""
        lowered = Lowered()
        if not all(_lower(lowered, call, types) for call in calls):
            return None
        return FusionGroup(self.level, tuple(calls), tuple(own), lowered=lowered)

    def scatters(self) -> bool:
        """True if it writes elements at places that an index gives."""
        return any(statement.target.index for statement in self.lowered.statements)

    def multiplies(self) -> bool:
        """True if it has products. These are slow on one row, and fast in blocks of many rows or in NumPy."""
        return any(statement.form == "product" for statement in self.lowered.statements)

    def _reads(self, call: Call) -> bool:
        """True if it reads an op's result from outside, so that it needs no copy of the op."""
        return any(name in self.lowered.views or name in self.lowered.numbers for name in call.op.outputs)

    @property
    def rows(self) -> int:
        """The count of rows; 1 for a group without rows."""
        if not self.axes:
            return 1
        owner, axis = next(iter(self.axes.items()))
        return self.lowered.types[owner].shape[axis]

    def results(self) -> set[str]:
        """Blobs that only this group makes."""
        return {name for call in self.own for name in call.op.outputs if name}

    def reads(self) -> dict[str, None]:
        """Blobs that it needs, in order."""
        made = {name for call in self.calls for name in call.op.outputs}
        return dict.fromkeys(name for call in self.calls for name in call.op.inputs if name and name not in made)


def group_of(program: Program) -> FusionGroup:
    """All ops of a net as one group. Raises UnsupportedError if one has no compiled form."""
    group = FusionGroup().joined(program.calls, program.calls, program.types)
    group = group or FusionGroup().whole(program.calls, program.calls, program.types)
    if group is None:
        raise UnsupportedError(f"net '{program.net.name}' has an op without a compiled form")
    return group


def group_alone(program: Program, call: Call) -> FusionGroup | None:
    """An op as a group, with the constants that it reads. None if it has no compiled form, or moves too many
    elements."""
    if not _may_join(call):
        return None
    constants = [one for one in program.calls if _is_constant(one) and set(one.op.outputs) & set(call.op.inputs)]
    calls = (*constants, call)
    return FusionGroup().joined(calls, (call,), program.types) or FusionGroup().whole(calls, (call,), program.types)


@dataclass(frozen=True)
class Grouping:
    """The ops of a net, some of them in groups.

    Args:
        groups: groups, each with ops of its own.
        free: ops that groups may have copies of. Outside of groups they run only if something there reads them.
    """

    groups: tuple[FusionGroup, ...]
    free: tuple[Call, ...]


def group_ops(program: Program, all_ops: bool = False) -> Grouping:
    """Group the ops of a net of primitive ops. Ops outside of groups run by themselves.

    Args:
        all_ops: whether each op that computes something gets into a group, if need be one without rows.
    """
    walk = _GroupWalk(program, all_ops)
    walk.walk()
    walk.merge()
    return Grouping(tuple(walk.found), tuple({id(call): call for call in walk.free.values()}.values()))


@dataclass
class _GroupWalk:
    """The state of the greedy walk.

    Args:
        all_ops: as for `group_ops`.
        found: all groups so far.
        home: blob -> number of its group.
        levels: blob -> level at which it is made; inputs and constants have none.
        free: blob -> the free op that makes it.
        leaves: blob that a free op makes -> the count of numbers that are read to make it.
        last: (number, level, count) of recent groups. `count` later groups have the same or a higher level; it is below
            `CANDIDATES`.
    """

    program: Program
    all_ops: bool = False
    found: list[FusionGroup] = field(default_factory=list)
    home: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    free: dict[str, Call] = field(default_factory=dict)
    leaves: dict[str, int] = field(default_factory=dict)
    last: list[tuple[int, int, int]] = field(default_factory=list)

    @cached_property
    def places(self) -> dict[int, int]:
        """Id of a call -> its number in the program."""
        return {id(call): place for place, call in enumerate(self.program.calls)}

    @cached_property
    def users(self) -> dict[str, list[Call]]:
        """Blob -> the ops that read it."""
        users: dict[str, list[Call]] = {}
        for call in self.program.calls:
            for name in filter(None, dict.fromkeys(call.op.inputs)):
                users.setdefault(name, []).append(call)
        return users

    def walk(self) -> None:
        """Walk over all ops."""
        for call in self.program.calls:
            outputs = [name for name in call.op.outputs if name]
            leaves = sum(self._read_for(name) for name in call.op.inputs if name)
            number = None
            if (_is_constant(call) or _is_view(call) or _expands(call, leaves)) and _may_join(call):
                self.free.update(dict.fromkeys(outputs, call))
                self.leaves.update(dict.fromkeys(outputs, leaves))
            if _may_join(call) and not _is_constant(call) and not _is_view(call):
                number = self._join(call)
            if number is not None:
                self.home.update(dict.fromkeys(outputs, number))
            if not _is_constant(call):
                level = self._level_after(call.op.inputs) if number is None else self.found[number].level
                self.levels.update(dict.fromkeys(outputs, level))

    def merge(self) -> None:
        """Let groups run within groups that read them, if nothing else needs their results before."""
        readers: dict[str, set[int]] = {}
        for number, group in enumerate(self.found):
            for name in group.reads():
                readers.setdefault(name, set()).add(number)
        for first in reversed(range(len(self.found))):
            found = self._merged(
                first, sorted(set().union(*(readers.get(name, ()) for name in self.found[first].results())))
            )
            if found is not None:
                for name in self.found[first].reads():
                    readers[name].add(found[0])
                self._move(first, *found)
        self.found = [group for group in self.found if group.own]

    def _merged(self, first: int, readers: Iterable[int]) -> tuple[int, FusionGroup] | None:
        """The first reader within which group `first` can run: its number, and the two as one group."""
        a = self.found[first]
        made, seen = self._made_of(a.results())
        between = seen - a.results()  # free ops outside of groups cannot run between the parts of a group
        for second in readers:
            b = self.found[second]
            if (
                first == second
                or b.level <= a.level
                or not a.results() & b.reads().keys()
                or between & b.reads().keys()
            ):
                continue
            if not all(self.home.get(name) in (first, second) or self.levels[name] > b.level for name in made):
                continue
            both = {id(call): call for call in (*a.calls, *b.calls)}.values()
            calls = sorted(both, key=lambda call: self.places[id(call)])
            group = FusionGroup(b.level).joined(calls, (*a.own, *b.own), self.program.types)
            if group is not None:
                return second, group
        return None

    def _move(self, first: int, second: int, group: FusionGroup) -> None:
        """Move group `first` into group `second`, which becomes `group`."""
        a = self.found[first]
        self.found[second], self.found[first] = group, FusionGroup(a.level)
        self.home.update(dict.fromkeys(a.results(), second))
        self.levels.update(dict.fromkeys(a.results(), group.level))

    def _made_of(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """The results of ops that read these blobs, also through free ops; and all blobs that were read on the way."""
        found, read, pending = set[str](), set(names), list(names)
        while pending:
            for call in self.users.get(pending.pop(), ()):
                outputs = {name for name in call.op.outputs if name}
                if outputs & self.free.keys():
                    pending += outputs - read
                    read |= outputs
                if not outputs & self.free.keys() or outputs & self.home.keys():
                    found |= outputs
        return found, read

    def _join(self, call: Call) -> int | None:
        """The number of the group that the op has joined: the first in which its products run in blocks, else the first
        that fits."""
        fits: tuple[int, FusionGroup] | None = None
        for number, group in self._possible(call):
            blocked = _in_blocks(group, call)
            fits = (number, group) if blocked or fits is None else fits
            if blocked:
                break
        if fits is None:
            return None
        number, group = fits
        if number == len(self.found):
            follow = [(n, level, later + (level <= group.level)) for n, level, later in self.last]
            self.last = [*(one for one in follow if one[2] < CANDIDATES), (number, group.level, 0)]
        self.found[number : number + 1] = [group]
        return number

    def _possible(self, call: Call) -> Iterator[tuple[int, FusionGroup]]:
        """Numbers of groups that the op may join, each with the joined group. A new group has the next free number.

        If no group can read the op's views in place, a new group without rows comes before groups that read copies.
        """
        ways, any_rows = list[tuple[FusionGroup, list[Call]]](), False
        for reads_copies, before in self._makers_with(call):
            made = {name for one in before for name in one.op.outputs}
            read = [name for one in (*before, call) for name in one.op.inputs if name and name not in made]
            new = FusionGroup(self._level_after(read))
            if reads_copies and not any_rows:
                yield from self._of_one_row(call, ways)
            ways.append((new, before))
            groups = [(number, self.found[number]) for number in self._that_may_read(read)]
            for number, group in (*groups, (len(self.found), new)):
                joined = group.joined((*before, call), (call,), self.program.types)
                if joined is not None:
                    any_rows = True
                    yield number, joined

    def _of_one_row(
        self, call: Call, ways: Sequence[tuple[FusionGroup, Sequence[Call]]]
    ) -> Iterator[tuple[int, FusionGroup]]:
        """A new group for an op that has no rows: with many views, or of this op only.

        Args:
            ways: empty groups, each with free ops that may join it with the op.
        """
        constants = self._free_makers(call, _is_constant)
        for new, before in ways:
            many = sum(_is_view(call) and _moves(call) for call in before) >= MANY_VIEWS
            found = new.whole((*before, call), (call,), self.program.types) if many else None
            if found is not None and not found.multiplies():
                yield len(self.found), found
            alone = new.whole((*constants, call), (call,), self.program.types)
            if alone is not None and (self.all_ops or alone.scatters()):
                yield len(self.found), alone

    def _makers_with(self, call: Call) -> Iterator[tuple[bool, list[Call]]]:
        """Sets of free ops that may join a group with an op: all, those that move elements, its own views, those that
        compute.

        With the last set, which is always there, the op reads copies of all its views: the bool is True.
        """
        for wanted in (_any_op, _moves, None, _computes):
            makers = self._own_views(call) if wanted is None else self._free_makers(call, wanted, LARGEST_GROUP)
            if len(makers) <= LARGEST_GROUP or wanted is _computes:
                yield wanted is _computes, makers

    def _own_views(self, call: Call) -> list[Call]:
        """The free ops whose results an op reads itself, with the constants that these read."""
        own = [self.free[name] for name in call.op.inputs if name in self.free]
        return self._in_order([*own, *(one for maker in own for one in self._free_makers(maker, _is_constant))])

    def _that_may_read(self, names: Collection[str]) -> list[int]:
        """Recent groups in which, or before which, all these blobs are made, the last first."""
        level = self._level_after(names) - 1
        highest = [name for name in names if self.levels.get(name) == level]
        homes = {self.home.get(name) for name in highest}
        later = [number for number, own, _ in self.last if own > level]
        return sorted({*later, *(home for home in homes if home is not None and len(homes) == 1)})[
            : -CANDIDATES - 1 : -1
        ]

    def _level_after(self, names: Iterable[str]) -> int:
        return max((self.levels[name] for name in names if name in self.levels), default=-1) + 1

    def _free_makers(self, call: Call, wanted: Callable[[Call], bool], most: float = inf) -> list[Call]:
        """The free ops that an op reads, directly or through others, if `wanted`. Beyond `most` ops the search ends."""
        found: dict[int, Call] = {}
        pending = [call]
        while pending and len(found) <= most:
            for name in pending.pop().op.inputs:
                maker = self.free.get(name)
                if maker is not None and id(maker) not in found and wanted(maker):
                    found[id(maker)] = maker
                    pending.append(maker)
        return self._in_order(found.values())

    def _in_order(self, calls: Iterable[Call]) -> list[Call]:
        """Ops in the order of the program, each once."""
        return sorted({id(call): call for call in calls}.values(), key=lambda call: self.places[id(call)])

    def _read_for(self, name: str) -> int:
        return self.leaves[name] if name in self.leaves else self.program.types[name].size


def _lower(lowered: Lowered, call: Call, types: Types) -> bool:
    """Lower one more op. False if it has no compiled form."""
    names = [name for name in (*call.op.inputs, *call.op.outputs) if name]
    if any(types[name].size == 0 or types[name].dtype == OPAQUE for name in names):
        return False
    for name in filter(None, call.op.inputs):
        if name not in lowered.views and name not in lowered.numbers:
            lowered.own(name, types[name])
    try:
        lower_op(lowered, call)
    except UnsupportedError:
        return False
    return True


def _with_rows(group: FusionGroup, statements: Sequence[Statement]) -> FusionGroup | None:
    """The group with the axes and sums of new statements; None if these do not work row by row."""
    before = group.lowered.statements[: len(group.lowered.statements) - len(statements)]
    rows = find_rows(before, statements, group.lowered.types, group.axes)
    if rows is None:
        return None
    sums = {s.target.owner for s in rows.statements if s.row_axis in s.folded_axes()}
    if any(s.fold != "add" or s.start is None for s in rows.statements if s.target.owner in sums):
        return None
    views = group.lowered.views
    blobs = group.sums | {name for name, access in views.items() if access.owner in sums}
    if any(access.owner in blobs | sums for s in rows.statements for access in s.reads()):
        return None
    return replace(group, axes=rows.axes, sums=blobs) if rows.axes else None


def _in_blocks(group: FusionGroup, call: Call) -> bool:
    """True if all products of an op run in blocks."""
    types = group.lowered.types
    products = [s for s in group.lowered.statements if s.call is call and s.form == "product"]
    known = rows_known(products, types, group.axes) if group.axes else None
    products = list(known.statements) if known else products
    sizes = {access.owner: types[access.owner].size for s in products for access in s.accesses()}
    fixed = sizes.keys() - group.axes.keys() if group.axes else set()
    return all(
        as_product(s, sizes, fixed)
        or as_contraction(s, sizes, fixed, not group.axes)
        or (s.row_axis is not None and as_contraction(_over_rows(s), sizes, fixed))
        for s in products
    )


def _over_rows(product: Statement) -> Statement:
    """A product of each row, summed over rows, as gradients of weights are."""
    layout = product.target.layout
    strides = tuple(0 if axis == product.row_axis else stride for axis, stride in enumerate(layout.strides))
    return replace(product, target=replace(product.target, layout=replace(layout, strides=strides)))


def _may_join(call: Call) -> bool:
    if len(call.op.inputs) + len(call.op.outputs) > MANY_BLOBS:
        return False
    if not _is_view(call):
        return not call.op.holds_net
    return all(kind is None or kind.size <= LARGEST_VIEW for kind in (*call.types, *call.output_types))


def _is_constant(call: Call) -> bool:
    return all(value is not None for value in call.output_values)


def _expands(call: Call, leaves: int) -> bool:
    """True if an op's result is so much larger than its operands that computing it is faster than reading it."""
    form = form_of(call)
    return isinstance(form, Pointwise) and EXPANDS * leaves <= call.output_types[0].size


def _is_view(call: Call) -> bool:
    return isinstance(form_of(call), View)


def _any_op(call: Call) -> bool:
    return True


def _moves(call: Call) -> bool:
    """True if a view changes the order of elements."""
    return call.op.type not in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def _computes(call: Call) -> bool:
    return not _is_view(call)
