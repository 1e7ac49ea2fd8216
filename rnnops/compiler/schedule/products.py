"""Large products of a step: which matrix products run as blocked products, and how sums of products become one.

A product of rows with a matrix that is the same at every step is blocked (`Product`). A product whose inner axis runs
over the batch is blocked over a whole tile of steps (`Contraction`): the gradient of a weight. All other products stay
statements of row programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.types import Type


@dataclass(frozen=True)
class Product:
    """`target[rows, columns] (+)= left[rows, inner] @ right[inner, columns] (+ bias)`, once a step.

    Args:
        rows, inner, columns: sizes in one step.
        row_stride, offset: of `left` in its owner.
        right: over (inner, columns).
        accumulate: whether the product is added to what is there.
        bias: `[columns]`, added by the first product of a sum.
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

    def reads(self) -> list[str]:
        """Owners that vary from step to step."""
        return [self.left, *([self.target] if self.accumulate else [])]

    def __str__(self) -> str:
        sign = "+=" if self.accumulate else "="
        bias = f" + {self.bias.owner}" if self.bias else ""
        sizes = f"[{self.rows}, {self.inner}] @ [{self.inner}, {self.columns}]"
        return f"{self.target} {sign} {self.left} @ {self.right.owner}{bias}: {sizes}"


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
        return f"{self.target} += {self.left}^T @ {self.right}: {sizes}"


def as_product(statement: Statement, sizes: Mapping[str, int], invariant: Collection[str]) -> Product | None:
    """The statement as a product of rows with a fixed matrix; None where it is none.

    Args:
        sizes: numbers from one step of an owner to the next.
    """
    if statement.form != "product" or statement.start is None or len(statement.extents) < 2:
        return None
    left, right = statement.operands
    inner = len(statement.extents) - 1
    if not isinstance(left, Access) or not isinstance(right, Access) or left.index or right.index:
        return None
    if left.owner in invariant or statement.extents[inner] == 1:  # an outer product is elementwise work
        return None
    columns = inner - 1
    moving = [axis for axis, stride in enumerate(right.layout.strides) if stride and statement.extents[axis] > 1]
    if right.owner not in invariant or not set(moving) <= {columns, inner} or statement.extents[columns] < 2:
        return None
    if left.layout.strides[columns] != 0 or statement.row_axis in (columns, inner):
        return None
    rows = prod(statement.extents[:columns])
    stride = _common_stride(left, range(columns), sizes[left.owner] // rows)
    if not _is_matrix(left, stride, rows, statement.extents[inner], left.layout.strides[inner], sizes):
        return None
    if statement.target.layout.strides[columns] != 1 or statement.target.layout != dense_over(statement, inner):
        return None
    extents = (statement.extents[inner], statement.extents[columns])
    matrix = replace(right, layout=right.layout.with_axes((inner, columns), extents))
    if packing_of(matrix) is None:
        return None
    return Product(
        statement.blob, left.owner, rows, *extents, left.layout.offset, stride or 0, matrix, statement.target.owner
    )  # fmt: skip


def dense_over(statement: Statement, inner: int) -> object:
    """The layout of a target that is written in full, in order, by a fold over axis `inner`."""
    shape = tuple(size for axis, size in enumerate(statement.extents) if axis != inner)
    order = [axis if axis < inner else None for axis in range(len(statement.extents))]
    return dense(shape).with_axes(tuple(order), statement.extents)


def as_contraction(
    statement: Statement, sizes: Mapping[str, int], invariant: Collection[str], whole: bool = False
) -> Contraction | None:
    """The statement as a product that folds the batch; None where it is none.

    Args:
        sizes: as for `as_product`.
        whole: whether all rows are one, so that every fold folds them.
    """
    if statement.form != "product" or statement.fold != "add":
        return None
    if not whole and statement.row_axis not in statement.folded_axes():
        return None
    left, right = statement.operands
    if not isinstance(left, Access) or not isinstance(right, Access) or left.index or right.index:
        return None
    if left.owner in invariant or right.owner in invariant:
        return None  # which has no rows for each step
    folded = statement.folded_axes()
    kept = [axis for axis, size in enumerate(statement.extents) if axis not in folded and size > 1]
    of_left = [axis for axis in kept if left.layout.strides[axis] and not right.layout.strides[axis]]
    of_right = [axis for axis in kept if right.layout.strides[axis] and not left.layout.strides[axis]]
    if len(of_left) != 1 or len(of_right) != 1 or len(kept) != 2:
        return None
    (row,), (column,) = of_left, of_right
    if statement.target.layout.strides[row] == 1:  # the target lies the other way round
        (left, row), (right, column) = (right, column), (left, row)
    inner = prod(statement.extents[axis] for axis in folded)
    strides = [_common_stride(side, folded, sizes[side.owner] // inner) for side in (left, right)]
    matrices = [
        _is_matrix(side, stride, inner, statement.extents[axis], side.layout.strides[axis], sizes)
        for side, stride, axis in ((left, strides[0], row), (right, strides[1], column))
    ]
    target = statement.target.layout
    extents = (statement.extents[row], statement.extents[column])
    if not all(matrices) or target.offset or target.strides[column] != 1 or target.strides[row] != extents[1]:
        return None
    return Contraction(
        statement.blob, left.owner, right.owner, inner, *extents, left.layout.offset, strides[0] or 0,
        right.layout.offset, strides[1] or 0, statement.target.owner,
    )  # fmt: skip


def _common_stride(access: Access, axes: Iterable[int], single: int) -> int | None:
    """The stride of several axes taken as one, `single` where nothing moves, None where they are no one axis."""
    stride, step = None, 0
    for axis in reversed([axis for axis in axes if access.layout.shape[axis] > 1]):
        size, own = access.layout.shape[axis], access.layout.strides[axis]
        if stride is None:
            stride, step = own, own * size
        elif own == step:
            step = own * size
        else:
            return None
    return single if stride is None else stride


def _is_matrix(
    access: Access, stride: int | None, rows: int, columns: int, column_stride: int, sizes: Mapping[str, int]
) -> bool:
    """Whether an access is `[rows, columns]` within rows of `stride` numbers that make up one step of its owner."""
    if stride is None or stride <= 0 or rows * stride != sizes[access.owner]:
        return False
    within = access.layout.offset % stride + columns <= stride
    return within and (columns == 1 or column_stride == 1)


@dataclass(frozen=True)
class Packing:
    """How a matrix `[inner, columns]` lies in its owner: from `start` on in rows of `stride` numbers, at `column`."""

    start: int
    stride: int
    column: int
    transposed: bool


def packing_of(matrix: Access) -> Packing | None:
    """How to pack a matrix, None where neither its rows nor its columns are contiguous."""
    (inner, columns), (along, across) = matrix.layout.shape, matrix.layout.strides
    for transposed, rows, width, near, far in (
        (False, inner, columns, across, along),
        (True, columns, inner, along, across),
    ):
        stride = far if rows > 1 else width
        column = matrix.layout.offset % stride if rows > 1 and stride > 0 else 0
        if (near == 1 or width == 1) and stride >= width and column + width <= stride:
            return Packing(matrix.layout.offset - column, stride, column, transposed)
    return None


def merge_folds(statements: Sequence[Statement], stored: Collection[str]) -> list[Statement]:
    """Fold at once what is folded in two steps.

    rewrite: `x[n, i, j] += a[n, k, i] * b[n, k, j]; y[i, j] += x[n, i, j]`
        -->  `y[i, j] += a[n, k, i] * b[n, k, j]`
    """
    reads = Counter(access.owner for statement in statements for access in statement.reads())
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


def sum_products(
    statements: Sequence[Statement],
    products: Mapping[str, Product],
    stored: Collection[str],
    invariant: Collection[str],
    carried: Collection[str],
    used_in_step: Collection[str],
    types: dict[str, Type],
) -> list[Statement | Product]:
    """Let products of one sum add up in one place.

    rewrite: `a = x @ w; b = h @ u; c = a + b; y = c + bias`  -->  `y = x @ w + bias; y += h @ u`

    Args:
        products: by target.
        stored: owners that must exist by themselves.
        carried: owners that depend on an earlier step; their products come last.
        used_in_step: owners that the same step reads again.
        types: of owners; new ones are added.
    """
    reads = Counter(access.owner for statement in statements for access in statement.reads())
    reads.update(p.left for p in products.values())
    makers = {s.target.owner: s for s in statements if _is_sum(s) and s.target.owner not in stored}
    inner_sums = {
        access.owner
        for s in statements
        if _is_sum(s)
        for access in s.reads()
        if access.owner in makers and reads[access.owner] == 1 and access.layout == makers[access.owner].target.layout
    }
    result: list[Statement | Product] = []
    done: set[str] = set()
    for statement in statements:
        owner = statement.target.owner
        if (owner in inner_sums and owner in makers) or owner in done:
            continue
        leaves = _leaves(statement, makers, inner_sums) if _is_sum(statement) else []
        found = [
            leaf.owner
            for leaf in leaves
            if isinstance(leaf, Access)
            and leaf.owner in products
            and reads[leaf.owner] == 1
            and leaf.owner not in stored
            and leaf.layout == statement.target.layout
        ]
        if not found or len(set(found)) != len(found):
            if owner in products:
                result.append(products[owner])
            else:
                result += _whole_sum(statement, makers, inner_sums)
            continue
        others = [leaf for leaf in leaves if not (isinstance(leaf, Access) and leaf.owner in found)]
        ordered = sorted(found, key=lambda name: products[name].left in carried)
        result = [item for item in result if not (isinstance(item, Product) and item.target in found)]
        result += _summed(statement, [products[name] for name in ordered], others, invariant, used_in_step, types)
        done.update(found)
    return result


def _is_sum(statement: Statement) -> bool:
    if statement.fold or statement.call is None or statement.form not in ("apply", "sum"):
        return False
    return statement.call.op.type in ("Add", "Sum")


def _leaves(statement: Statement, makers: Mapping[str, Statement], inner: Collection[str]) -> list[object]:
    """The operands of a sum in order, an inner sum's in its place; a loop, as a sum may be thousands deep."""
    leaves: list[object] = []
    ahead = [*reversed(statement.operands)]
    while ahead:
        operand = ahead.pop()
        if isinstance(operand, Access) and operand.owner in inner:
            ahead += reversed(makers[operand.owner].operands)
        else:
            leaves.append(operand)
    return leaves


def _whole_sum(statement: Statement, makers: Mapping[str, Statement], inner: Collection[str]) -> list[Statement]:
    """The sums inside a sum that is left as it is, then the sum: found from the last to the first."""
    found: list[Statement] = []
    ahead = [statement]
    while ahead:
        found.append(ahead.pop())
        if _is_sum(found[-1]):
            owners = [operand.owner for operand in found[-1].operands if isinstance(operand, Access)]
            ahead += [makers[owner] for owner in owners if owner in inner]
    return found[::-1]


def _summed(
    statement: Statement,
    products: Sequence[Product],
    others: Sequence[object],
    invariant: Collection[str],
    used_in_step: Collection[str],
    types: dict[str, Type],
) -> list[Statement | Product]:
    bias = next((leaf for leaf in others if _is_bias(leaf, statement, invariant)), None)
    rest = [leaf for leaf in others if leaf is not bias]
    owner = statement.target.owner
    if rest and owner not in used_in_step:
        first = _sum_of([*others], statement)
        return [first, *(replace(p, target=owner, accumulate=True) for p in products)]
    place = owner
    if rest:
        place = f"{owner}/products"
        types[place] = types[owner]
    chain = [
        replace(p, target=place, accumulate=i > 0, bias=bias if i == 0 else None)  # type: ignore[arg-type]
        for i, p in enumerate(products)
    ]
    if not rest:
        return list(chain)
    return [*chain, _sum_of([replace(statement.target, owner=place), *rest], statement)]


def _sum_of(operands: Sequence[object], statement: Statement) -> Statement:
    form = "copy" if len(operands) == 1 else "sum"
    return replace(statement, operands=tuple(operands), form=form)  # type: ignore[arg-type]


def _is_bias(leaf: object, statement: Statement, invariant: Collection[str]) -> bool:
    if not isinstance(leaf, Access) or leaf.owner not in invariant or leaf.index:
        return False
    return all(stride == 0 for stride in leaf.layout.strides[:-1]) and leaf.layout.strides[-1] == 1
