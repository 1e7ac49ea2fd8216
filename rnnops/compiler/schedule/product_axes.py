"""Products of two operands over any axes, as products of matrices.

The axes of a product are of four kinds, by the operands and the result that move along them: batch axes (all three),
rows (left and result), columns (right and result), folded ones (left and right). `block_products` and `contract_sums`
take products of one row, one column and one folded axis, with operands that lie as matrices do. This pass brings others
to that form, however they were written: as a MatMul of stacks, a product from the left, an Einsum, windows.

- Each index along a batch axis becomes a product. So does each index along an axis that does not lie in memory as one
  axis with the others of its kind.
- An operand that does not lie as a matrix is copied. Copies are fused with the elementwise work before.
- A result that does not lie as a matrix is computed into one, and copied.
- A copy that only a product of a row's kernel reads (of windows, for example) is left out if the product can read its
  source.

Some products have the rows of the batch along a batch axis, such as those of attention. They stay statements. If a
row's operands and result lie as matrices do, its kernel calls a product of unpacked operands (`matrix_call`).

A copy of a number costs about one multiply-add. The product does as many with it as the matrix has columns. A small
product, or one that would become more than `MOST_PARTS` products, stays a loop of a pointwise kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, product as every
from math import prod

from rnnops.compiler.lower.scan import LoweredStep
from rnnops.compiler.lower.statements import Access, Layout, Node, Statement, dense, node_writes, read_counts
from rnnops.compiler.schedule import products
from rnnops.net.op import unused_name
from rnnops.types import Shape, Type

LEAST_SIDE = 16  # the least size of a product's two fixed sides: those of the matrix, or of a sum's result
MOST_PARTS = 16  # the most products that one statement becomes

Group = tuple[int, ...]  # axes that lie as one, the outermost first


def bring_to_matrices(step: LoweredStep) -> LoweredStep:
    """Write large products over any axes as products of matrices.

    rewrite: `y[n, h, e] += x[n, h, d] * w[h, d, e]`  -->  for each h `y.h[n, e] += x[n, h, d] * w[h, d, e]`,
        `y[n, h, e] = y.h[n, e]`
    """
    made = _Blocking(replace(step, lowered=step.lowered.copy(), batch_axes=dict(step.batch_axes)))
    nodes = [made.products(node) if isinstance(node, Statement) else [node] for node in step.nodes]
    return replace(made.step, nodes=tuple(chain.from_iterable(nodes)))


def read_through_copies(step: LoweredStep) -> LoweredStep:
    """Let products that row kernels call read the source of a copy in place of the copy.

    rewrite: `p[n, a, b, k] = x[n, a, b, k]; y[n, a * b, c] += p[n, a * b, k] * w[k, c]`
        -->  `y[n, a, b, c] += x[n, a, b, k] * w[k, c]`
    """
    if not step.calls:
        return step
    nodes, reads = list(step.nodes), read_counts(step.nodes)
    copies: dict[str, Statement] = {}
    for number, node in enumerate(nodes):
        if isinstance(node, Statement):
            once = {name: copy for name, copy in copies.items() if reads[name] == 1}
            nodes[number] = _through_copies(node, once)
        written = node_writes(node)
        copies = {name: copy for name, copy in copies.items() if written not in (name, source_of(copy).owner)}
        if isinstance(node, Statement) and is_whole_copy(node, step):
            copies[written] = node
    return replace(step, nodes=tuple(nodes))


def is_whole_copy(node: Statement, step: LoweredStep) -> bool:
    """True if a statement only copies elements, and they fill an owner within the step."""
    plain = node.form == "copy" or (node.form == "apply" and node.made_by().op.type == "Identity")
    if not plain or node.fold or node.target.owner in step.stored or node.target.index is not None:
        return False
    (source,), types = node.operands, step.lowered.types
    return (
        isinstance(source, Access)
        and source.index is None
        and types[source.owner].dtype == types[node.target.owner].dtype
        and node.target.layout == dense(node.extents)
        and node.target.layout.size == types[node.target.owner].size
    )


def source_of(copy: Statement) -> Access:
    """The memory that a copy reads."""
    (source,) = copy.operands
    assert isinstance(source, Access)
    return source


def _through_copies(statement: Statement, copies: Mapping[str, Statement]) -> Statement:
    """The product, reading the source of copies where a row kernel can still call it. Other statements stay."""
    axes = product_axes(statement)
    if axes is None or statement.row_axis is None or statement.row_axis in axes.folded:
        return statement
    for place, operand in enumerate(_operands(statement)):
        found = _through(statement, place, copies[operand.owner]) if operand.owner in copies else None
        if found is not None and _is_called_for_rows(found):
            statement = found
    return statement


def _is_called_for_rows(statement: Statement) -> bool:
    call = matrix_call(within_row(statement), statement.dtype)
    return call is not None and call.function == "gemm_nn" and call.operands[1].size <= products.FEW_NUMBERS


def _through(statement: Statement, place: int, copy: Statement) -> Statement | None:
    """The product with one operand read from the source of a copy.

    None if an axis of the product runs through a part of an axis of the copy.
    """
    layout, copied = _operands(statement)[place].layout, copy.target.layout
    if layout.offset != 0:
        return None
    parts = list[Group]()
    for size, stride in zip(layout.shape, layout.strides, strict=True):
        part = _axes_along(copied, size, stride) if stride else ()
        if part is None:
            return None
        parts.append(part)
    cuts = [tuple(copied.shape[a] for a in part) or (size,) for part, size in zip(parts, layout.shape, strict=True)]
    if statement.row_axis is None or len(cuts[statement.row_axis]) > 1:
        return None
    operands = [cut_axes(access, cuts) for access in _operands(statement)]
    source, extents = source_of(copy), tuple(chain.from_iterable(cuts))
    along = tuple(chain.from_iterable(part or (None,) for part in parts))
    operands[place] = replace(source, layout=source.layout.with_axes(along, extents))
    row = sum(map(len, cuts[: statement.row_axis]))
    target = cut_axes(statement.target, cuts)
    return replace(statement, extents=extents, target=target, operands=tuple(operands), row_axis=row)


def _axes_along(layout: Layout, size: int, stride: int) -> Group | None:
    """The axes of a dense layout that `size` elements, `stride` apart, run through; None if one is not run through
    whole."""
    found: Group = ()
    for axis in reversed(range(len(layout.shape))):
        if layout.strides[axis] == stride and size != 1:
            if size != layout.shape[axis] and size % layout.shape[axis]:
                return None
            found = (axis, *found)
            size, stride = size // layout.shape[axis], stride * layout.shape[axis]
    return found if size == 1 else None


def cut_axes(access: Access, cuts: Sequence[Shape]) -> Access:
    """The access with each axis cut into several: axis i into axes of the sizes `cuts[i]`."""
    strides: list[int] = []
    for cut, stride in zip(cuts, access.layout.strides, strict=True):
        strides += [stride * prod(cut[place + 1 :]) for place in range(len(cut))]
    layout = Layout(access.layout.offset, tuple(chain.from_iterable(cuts)), tuple(strides))
    return replace(access, layout=layout, index=None if access.index is None else cut_axes(access.index, cuts))


@dataclass(frozen=True)
class ProductAxes:
    """The axes of a product that are longer than 1, by kind."""

    batch: Group
    rows: Group
    columns: Group
    folded: Group


KINDS = ((True, True, True), (True, False, True), (False, True, True), (True, True, False))  # left, right, result


def product_axes(statement: Statement) -> ProductAxes | None:
    """The axes by kind. None if an axis moves only one operand, or if this is not a product of operands in memory."""
    if statement.form != "product" or statement.fold != "add" or statement.target.index is not None:
        return None
    sides = products.in_memory(statement)
    if sides is None:
        return None
    kinds: dict[tuple[bool, ...], list[int]] = {kind: [] for kind in KINDS}
    for axis, size in enumerate(statement.extents):
        if size > 1:
            moved = tuple(access.layout.strides[axis] != 0 for access in (*sides, statement.target))
            if moved not in kinds:
                return None
            kinds[moved].append(axis)
    return ProductAxes(*map(tuple, kinds.values()))


def groups_of(axes: Group, layout: Layout, *others: Layout) -> list[Group]:
    """The axes as groups that lie as one in all layouts, the largest last."""
    groups: list[Group] = []
    for axis in sorted(axes, key=lambda axis: -abs(layout.strides[axis])):
        last = groups[-1][-1] if groups else None
        if last is not None and all(
            one.strides[last] == one.strides[axis] * one.shape[axis] for one in (layout, *others)
        ):
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return sorted(groups, key=lambda group: prod(layout.shape[axis] for axis in group))


def over_groups(access: Access, groups: Sequence[Group], extents: Shape) -> Access | None:
    """The access with each group of its axes as one axis. Nothing moves along an empty group.

    None if a group does not lie as one axis.
    """
    layout, strides = access.layout, []
    for group in groups:
        for outer, inner in pairwise(group):
            if layout.strides[outer] != layout.strides[inner] * layout.shape[inner]:
                return None
        strides.append(layout.strides[group[-1]] if group else 0)
    return replace(access, layout=Layout(layout.offset, extents, tuple(strides)))


def moved_by(access: Access, axes: Group, index: Sequence[int]) -> Access:
    """The access at one index along some axes."""
    layout = access.layout
    offset = layout.offset + sum(layout.strides[axis] * i for axis, i in zip(axes, index, strict=True))
    return replace(access, layout=replace(layout, offset=offset))


LEAST_WORK = 1024  # the least multiply-adds of a product that a row kernel calls


@dataclass(frozen=True)
class CalledMatrix:
    """A matrix that a product of a kernel reads or writes.

    Args:
        access: over the axes of the statement.
        rows, columns, stride: of the matrix as it lies in memory, which may be the transpose of the operand.
    """

    access: Access
    rows: int
    columns: int
    stride: int

    @property
    def size(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class MatrixCall:
    """A statement as calls of a product of matrices, one for each index along `loops` and `folds`.

    Args:
        function: `gemm_nn`, `gemm_tn` or `gemm_nt`; `t` marks a transposed operand.
        folds: folded axes, along which products are added up.
        operands: left, right and result.
    """

    function: str
    loops: Group
    folds: Group
    operands: tuple[CalledMatrix, CalledMatrix, CalledMatrix]

    def __str__(self) -> str:
        a, b, _ = self.operands
        turned = ["^T" if letter == "t" else "" for letter in self.function[-2:]]
        return f"[{a.rows}, {a.columns}]{turned[0]} @ [{b.rows}, {b.columns}]{turned[1]}"


def matrix_call(statement: Statement, dtype: str) -> MatrixCall | None:
    """The statement of a row as calls of a product.

    None if it is not a product, or a small one, or if its operands and result do not lie as matrices.

    Args:
        dtype: of products.
    """
    axes = product_axes(statement)
    if axes is None or statement.dtype != dtype or statement.rounding or (statement.start or 0) != 0:
        return None
    found = (_called(sides, own) for sides, own in _turned(statement, axes))
    return next((call for call in found if call is not None), None)


def within_row(statement: Statement) -> Statement:
    """The statement of one row, without axes of size 1."""
    axes = tuple(a for a, size in enumerate(statement.extents) if size > 1 and a != statement.row_axis)
    return replace(statement.moved(axes), row_axis=None)


def _called(statement: Statement, axes: ProductAxes) -> MatrixCall | None:
    left, right = _operands(statement)
    target = statement.target
    groups = [
        groups_of(own, first.layout, second.layout)
        for own, first, second in ((axes.rows, target, left), (axes.columns, target, right), (axes.folded, left, right))
    ]
    if not all(groups):
        return None
    rows, columns, folded = (group[-1] for group in groups)
    M, N, K = (_size(statement, group) for group in (rows, columns, folded))
    if min(M, N, K) < products.LEAST_OF_CALL or M * N * K < LEAST_WORK:
        return None
    a, b, c = (
        _as_it_lies(access, *sides, access is target)
        for access, sides in (
            (left, ((rows, M), (folded, K))), (right, ((folded, K), (columns, N))), (target, ((rows, M), (columns, N)))
        )
    )  # fmt: skip
    if a is None or b is None or c is None or c[1] or (a[1] and b[1]):
        return None
    loops = (*axes.batch, *chain.from_iterable((*groups[0][:-1], *groups[1][:-1])))
    folds = tuple(chain.from_iterable(groups[2][:-1]))
    if any(access.layout.strides[axis] < 0 for access in (left, right, target) for axis in (*loops, *folds)):
        return None
    return MatrixCall(f"gemm_{'nt'[a[1]]}{'nt'[b[1]]}", loops, folds, (a[0], b[0], c[0]))


def _as_it_lies(
    access: Access, first: tuple[Group, int], second: tuple[Group, int], is_written: bool
) -> tuple[CalledMatrix, bool] | None:
    """A matrix over two groups of axes. The bool is True if the first group is contiguous instead of the second.

    Rows that are only read may overlap, as windows do.
    """
    strides = [access.layout.strides[group[-1]] for group, _ in (first, second)]
    for turned, (near, far) in ((False, strides[::-1]), (True, strides)):
        rows, columns = (second[1], first[1]) if turned else (first[1], second[1])
        apart = far >= columns and access.layout.offset % far + columns <= far
        if near == 1 and far > 0 and (apart or not is_written):
            return CalledMatrix(access, rows, columns, far), turned
    return None


@dataclass
class _Blocking:
    """Makes products of matrices, and the buffers that they need.

    Args:
        copies: access that was copied, over the axes of the copy -> the copy.
    """

    step: LoweredStep
    copies: dict[Access, Access] = field(default_factory=dict)

    def products(self, statement: Statement) -> list[Node]:
        """The nodes that replace a statement: products, with copies around them. Other statements stay."""
        axes = product_axes(statement)
        called = self.step.calls and matrix_call(within_row(statement), statement.dtype)
        if axes is None or called or self._is_known(statement):
            return [statement]
        before = self.step.lowered.copy(), dict(self.step.batch_axes), dict(self.copies)
        ways = (self._of_rows, self._of_sums, self._of_calls)
        for made in (way(sides, own) for way in ways for sides, own in _turned(statement, axes)):
            if made is not None:
                return list(made)
            lowered, batch_axes, self.copies = before[0].copy(), dict(before[1]), dict(before[2])
            self.step = replace(self.step, lowered=lowered, batch_axes=batch_axes)
        return [statement]

    def _is_known(self, statement: Statement) -> bool:
        sizes, invariant = self.step.sizes(), self.step.invariant
        product = products.as_product(statement, sizes, invariant)
        if product is not None and products.rows_outermost(self.step, statement, product, sizes):
            return True
        return products.as_contraction(statement, sizes, invariant, bool(self.step.whole)) is not None

    # -- rows times a matrix that is the same at every step ------------------------------------------------------------

    def _of_rows(self, statement: Statement, axes: ProductAxes) -> list[Node] | None:
        left, right = _operands(statement)
        if right.owner not in self.step.invariant or left.owner in self.step.invariant or statement.start is None:
            return None
        if not axes.rows or statement.row_axis not in (None, *axes.rows):
            return None
        columns, folded = groups_of(axes.columns, right.layout), groups_of(axes.folded, right.layout)
        if not columns or not folded or products.packing_of(_matrix(right, folded[-1], columns[-1])) is None:
            return None
        apart = (*axes.batch, *chain.from_iterable(columns[:-1]))
        summed = tuple(chain.from_iterable(folded[:-1]))
        if not _is_large(statement, columns[-1], folded[-1], (*apart, *summed)):
            return None
        rows = _rows_first(axes.rows, statement)
        made: list[Node] = []
        for index in _indices(statement, apart):
            parts = []
            for at in _indices(statement, summed):
                place = (*apart, *summed), (*index, *at)
                part = self._row_product(statement, rows, columns[-1], folded[-1], place, made)
                if part is None:
                    return None
                parts.append(part)
            if parts != [statement.target.owner]:
                result = moved_by(statement.target, apart, index)
                made.append(self._result(statement, (*rows, *columns[-1]), result, parts))
        return made

    def _row_product(
        self, statement: Statement, rows: Group, columns: Group, folded: Group, place: tuple[Group, Sequence[int]],
        made: list[Node],
    ) -> str | None:  # fmt: skip
        """The owner of the result of one product. The product goes into `made`, after the copies that it needs."""
        left, right = (moved_by(side, *place) for side in _operands(statement))
        shape, single = (*_shape(statement, rows), _size(statement, columns)), [(axis,) for axis in rows]
        extents = (*shape, _size(statement, folded))
        target = over_groups(statement.target, [*single, columns], shape)
        if place[0] or target is None or target.layout != dense(shape):
            target = self._buffer(f"{statement.blob}/product", statement.dtype, shape, statement.row_axis)
        matrix = over_groups(right, [*(() for _ in rows), columns, folded], extents)
        at = replace(target, layout=target.layout.with_axes((*range(len(shape)), None), extents))
        one = replace(_of_rows_first(statement, extents), blob=target.owner, target=at)
        for copied in (False, True):
            whole = self._placed(left, rows, ((), folded), extents, statement, made if copied else None)
            if whole is not None and matrix is not None:
                one = replace(one, operands=(whole, matrix))
                if self._is_known(one):
                    made.append(one)
                    return target.owner
        return None

    def _result(self, statement: Statement, axes: Group, target: Access, parts: Sequence[str]) -> Statement:
        """The statement that writes the sum of some products, over `axes`, to the result's memory."""
        extents = _shape(statement, axes)
        layout = target.layout.with_axes(axes, extents)
        operands = tuple(Access(part, dense(extents)) for part in parts)
        return Statement(
            statement.blob, extents, replace(target, layout=layout), operands, "copy" if len(parts) == 1 else "sum",
            statement.call, statement.dtype, row_axis=None if statement.row_axis is None else 0,
        )  # fmt: skip

    # -- sums over rows and steps --------------------------------------------------------------------------------------

    def _of_sums(self, statement: Statement, axes: ProductAxes) -> list[Node] | None:
        target, invariant = statement.target, self.step.invariant
        if target.owner not in self.step.accumulators or any(s.owner in invariant for s in _operands(statement)):
            return None
        if not self.step.whole and statement.row_axis not in axes.folded:
            return None
        rows, columns = groups_of(axes.rows, target.layout), groups_of(axes.columns, target.layout)
        if not rows or not columns:
            return None
        apart = (*axes.batch, *chain.from_iterable((*rows[:-1], *columns[:-1])))
        if not _is_large(statement, rows[-1], columns[-1], apart):
            return None
        folded, made = _rows_first(axes.folded, statement), list[Node]()
        for index in _indices(statement, apart):
            part = self._sum(statement, folded, rows[-1], columns[-1], (apart, index), made)
            if part is None:
                return None
            made.append(part)
        return made

    def _sum(
        self, statement: Statement, folded: Group, rows: Group, columns: Group, place: tuple[Group, Sequence[int]],
        made: list[Node],
    ) -> Statement | None:  # fmt: skip
        left, right = (moved_by(side, *place) for side in _operands(statement))
        extents = (*_shape(statement, folded), _size(statement, rows), _size(statement, columns))
        target = over_groups(moved_by(statement.target, *place), [*(() for _ in folded), rows, columns], extents)
        one = replace(_of_rows_first(statement, extents), target=target or statement.target)
        for copied in every((False, True), (False, True)):
            a = self._placed(left, folded, (rows, ()), extents, statement, made if copied[0] else None)
            b = self._placed(right, folded, ((), columns), extents, statement, made if copied[1] else None)
            if a is not None and b is not None:
                one = replace(one, operands=(a, b))
                if products.as_contraction(one, self.step.sizes(), self.step.invariant, bool(self.step.whole)):
                    return one
        return None

    # -- products that kernels of rows call ----------------------------------------------------------------------------

    def _of_calls(self, statement: Statement, axes: ProductAxes) -> list[Node] | None:
        left, right = _operands(statement)
        row = statement.row_axis
        if not self.step.calls or row is None or right.layout.strides[row] == 0:
            return None
        made, order = list[Node](), _rows_first((*axes.batch, *axes.folded, *axes.columns), statement)
        copy, places = self._copied(right, order, statement, made), {axis: place for place, axis in enumerate(order)}
        layout = copy.layout.with_axes(tuple(map(places.get, range(len(statement.extents)))), statement.extents)
        one = replace(statement, operands=(left, replace(copy, layout=layout)))
        return [*made, one] if matrix_call(within_row(one), one.dtype) else None

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _buffer(self, name: str, dtype: str, shape: Shape, row: int | None) -> Access:
        """A new buffer, its rows first where there are rows."""
        name = unused_name(name, self.step.lowered.types)
        self.step.lowered.own(name, Type(dtype, shape))
        if row is not None:
            self.step.batch_axes[name] = 0  # type: ignore[index]
        return Access(name, dense(shape))

    def _placed(
        self, access: Access, single: Group, groups: tuple[Group, Group], extents: Shape, statement: Statement,
        made: list[Node] | None,
    ) -> Access | None:  # fmt: skip
        """An operand over single axes and two groups, one of them empty. With `made` it is a copy, made there."""
        if made is None:
            return over_groups(access, [*((axis,) for axis in single), *groups], extents)
        copy = self._copied(access, (*single, *groups[0], *groups[1]), statement, made)
        shape = (*_shape(statement, single), _size(statement, groups[0] or groups[1]))
        last = len(single)
        order = (*range(last), *(last if group else None for group in groups))
        return replace(copy, layout=dense(shape).with_axes(order, extents))

    def _copied(self, access: Access, axes: Group, statement: Statement, made: list[Node]) -> Access:
        """A row-major copy over some axes of a statement. An earlier copy of the same elements is used again."""
        extents = _shape(statement, axes)
        source = replace(access, layout=access.layout.with_axes(axes, extents))
        if source not in self.copies:
            dtype = self.step.lowered.types[access.owner].dtype
            copy = self._buffer(f"{access.owner}/matrix", dtype, extents, statement.row_axis)
            row = None if statement.row_axis is None else 0
            made.append(Statement(copy.owner, extents, copy, (source,), "copy", None, dtype, row_axis=row))
            self.copies[source] = copy
        return self.copies[source]


def _turned(statement: Statement, axes: ProductAxes) -> Iterator[tuple[Statement, ProductAxes]]:
    """A product, and the same with its operands exchanged."""
    yield statement, axes
    turned = replace(statement, operands=statement.operands[::-1])
    yield turned, ProductAxes(axes.batch, axes.columns, axes.rows, axes.folded)


def _operands(statement: Statement) -> tuple[Access, Access]:
    sides = products.in_memory(statement)
    assert sides is not None
    return sides


def _matrix(right: Access, folded: Group, columns: Group) -> Access:
    strides = (right.layout.strides[folded[-1]], right.layout.strides[columns[-1]])
    sizes = (prod(right.layout.shape[axis] for axis in group) for group in (folded, columns))
    return replace(right, layout=Layout(right.layout.offset, tuple(sizes), strides))


def _rows_first(axes: Group, statement: Statement) -> Group:
    """The axes in their order, that of the batch first."""
    return tuple(sorted(axes, key=lambda axis: axis != statement.row_axis))


def _of_rows_first(statement: Statement, extents: Shape) -> Statement:
    """The statement over other axes, that of the batch first."""
    return replace(statement, extents=extents, row_axis=None if statement.row_axis is None else 0)


def _size(statement: Statement, group: Group) -> int:
    return prod(_shape(statement, group))


def _shape(statement: Statement, axes: Group) -> Shape:
    return tuple(statement.extents[axis] for axis in axes)


def _indices(statement: Statement, axes: Group) -> Iterator[tuple[int, ...]]:
    return every(*(range(statement.extents[axis]) for axis in axes))


def _is_large(statement: Statement, one: Group, other: Group, apart: Group) -> bool:
    """True if products are large enough, and few."""
    sides = (_size(statement, group) for group in (one, other))
    return all(side >= LEAST_SIDE for side in sides) and _size(statement, apart) <= MOST_PARTS
