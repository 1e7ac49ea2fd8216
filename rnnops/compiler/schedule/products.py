"""Products of a step: which run blocked, which sums build up in place, which are transposed.

**Large products of a step**: which matrix products run as blocked products, and how matrices are packed for them. A
product of rows with a matrix that is the same at every step is blocked (`StepProduct`). A product whose inner axis runs
over the batch is blocked over a whole tile of steps (`Contraction`): the gradient of a weight. All other products stay
statements of pointwise kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf, prod
from typing import TypeGuard

from rnnops.compiler.lower.scan import LoweredStep, TensorName
from rnnops.compiler.lower.statements import (
    Access,
    Contraction,
    Number,
    Statement,
    StepProduct,
    dense,
    node_reads,
    node_writes,
    read_counts,
)
from rnnops.kernels.cpu.processor import INT8
from rnnops.net.op import unused_name
from rnnops.net.schema import Call


def as_product(statement: Statement, sizes: Mapping[str, int], invariant: Collection[str]) -> StepProduct | None:
    """The statement as a product of rows with a matrix that no step changes; None if it is not one.

    Args:
        sizes: numbers from one step of an owner to the next.
    """
    if statement.form != "product" or statement.start is None or len(statement.extents) < 2:
        return None
    sides, inner = in_memory(statement), len(statement.extents) - 1
    if sides is None:
        return None
    left, right = sides
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
    return StepProduct(
        statement.blob, left.owner, rows, *extents, left.layout.offset, stride or 0, matrix, statement.target.owner,
        rounding=statement.rounding,
    )  # fmt: skip


def in_memory(product: Statement) -> tuple[Access, Access] | None:
    """Both operands of a product; None if one is a number or has an index."""
    left, right = product.operands
    if not isinstance(left, Access) or not isinstance(right, Access) or left.index or right.index:
        return None
    return left, right


def dense_over(statement: Statement, inner: int) -> object:
    """The layout of a target that is written in full, in order, by a fold over axis `inner`."""
    shape = tuple(size for axis, size in enumerate(statement.extents) if axis != inner)
    order = [axis if axis < inner else None for axis in range(len(statement.extents))]
    return dense(shape).with_axes(tuple(order), statement.extents)


def as_contraction(
    statement: Statement, sizes: Mapping[str, int], invariant: Collection[str], whole: bool = False
) -> Contraction | None:
    """The statement as a product that folds the batch; None if it is not one.

    Args:
        sizes: as for `as_product`.
        whole: whether rows are not independent. Then any fold counts as one over rows.
    """
    if statement.form != "product" or statement.fold != "add":
        return None
    if not whole and statement.row_axis not in statement.folded_axes():
        return None
    sides = in_memory(statement)
    if sides is None or any(side.owner in invariant for side in sides):
        return None  # an invariant has no rows for each step
    left, right = sides
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
    if not all(matrices) or target.strides[column] != 1 or target.strides[row] < extents[1]:
        return None
    return Contraction(
        statement.blob, left.owner, right.owner, inner, *extents, left.layout.offset, strides[0] or 0,
        right.layout.offset, strides[1] or 0, statement.target.owner, target.offset, target.strides[row],
        statement.rounding,
    )  # fmt: skip


def _common_stride(access: Access, axes: Iterable[int], single: int) -> int | None:
    """The stride of several axes that lie as one. `single` if all have size 1; None if they do not lie as one."""
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
    """True if an access is a matrix `[rows, columns]` within rows of `stride` numbers, and these rows are all of one
    step of its owner."""
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
    """How to pack a matrix; None if neither its rows nor its columns are contiguous."""
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


Operand = Access | Number


def block_products(step: LoweredStep) -> LoweredStep:
    """Run products of rows with matrices that are the same at every step as blocked products, and sum them in place.

    rewrite: `a = x @ w; b = a + bias; c = h @ u; y = b + c`  -->  `y = x @ w + bias; y += h @ u`
    """
    lowered, axes, sizes = step.lowered.copy(), dict(step.batch_axes), step.sizes()
    contractions = [node for node in step.nodes if isinstance(node, Contraction)]
    products: dict[str, StepProduct] = {}
    for statement in step.statements:
        product = as_product(statement, sizes, step.invariant)
        if product is None or _stays_a_call(step, statement, product):
            continue
        if rows_outermost(step, statement, product, sizes):
            products[product.target] = product
    reads = read_counts(step.nodes)
    carried = _dependent(step.statements, _inputs_in(step, step.scan.states))
    carried -= _dependent(step.statements, _inputs_in(step, step.scan.gradients))

    def beside(owner: str) -> str:
        name = unused_name(f"{owner}/products", lowered.types)
        lowered.types[name] = lowered.types[owner]
        axes.update({name: axes[owner]} if owner in axes else {})
        return name

    rules = Rules(products, step.stored, step.invariant, carried, reads, step.in_place)
    nodes = sum_products(step.statements, rules, beside)
    return replace(step, nodes=(*nodes, *contractions), lowered=lowered, batch_axes=axes)


LEAST_OF_CALL = 8  # the least rows, columns and folded numbers of a product that a row kernel calls
# The least rows of such a product in one row of the batch, and the most numbers of its matrix, which each call packs.
MANY_ROWS, FEW_NUMBERS = 32, 2**16


def _stays_a_call(step: LoweredStep, statement: Statement, product: StepProduct) -> bool:
    """True if a row kernel calls this product on unpacked operands. Its many rows then stay in the cache."""
    if not step.calls or statement.row_axis is None or product.rounding:
        return False
    large = min(product.inner, product.columns) >= LEAST_OF_CALL and product.inner * product.columns <= FEW_NUMBERS
    return large and product.rows // step.scan.batch >= MANY_ROWS


def rows_outermost(step: LoweredStep, statement: Statement, product: StepProduct, sizes: Mapping[str, int]) -> bool:
    """True if the product's rows for one thread's rows of the batch are one range."""
    if step.whole:
        return True
    if statement.row_axis is None:
        return False
    rows = product.rows // step.scan.batch  # of the product, for each of the batch
    before = prod(statement.extents[: statement.row_axis])
    return before == 1 and rows * product.row_stride * step.scan.batch == sizes[product.left]


def _inputs_in(step: LoweredStep, tensors: Collection[TensorName]) -> set[str]:
    return {name for name, slot in step.scan.reads.items() if slot.tensor in tensors}


def _dependent(statements: Sequence[Statement], sources: set[str]) -> set[str]:
    """Owners that depend on `sources` within a step."""
    found = set(sources)
    for statement in statements:
        if any(owner in found for owner in node_reads(statement)):
            found.add(statement.target.owner)
    return found


@dataclass(frozen=True)
class Rules:
    """Facts about a step for the schedule of its sums of products.

    Args:
        products: by target.
        stored: owners that must stay in memory of their own.
        invariant: owners that no step changes.
        carried: owners that depend on an earlier step.
        reads: how often each owner is read in the step, by all of its nodes.
        in_place: as in `LoweredStep`.
    """

    products: Mapping[str, StepProduct]
    stored: Collection[str]
    invariant: Collection[str]
    carried: Collection[str]
    reads: Mapping[str, int]
    in_place: float = inf

    def is_only_in(self, operand: Operand, target: Access) -> TypeGuard[Access]:
        """True if only this sum reads an operand, and the operand has the layout of the sum."""
        if not isinstance(operand, Access) or operand.layout != target.layout or operand.owner in self.stored:
            return False
        product = self.products.get(operand.owner)
        return self.reads.get(operand.owner) == 1 and (product is None or product.size == operand.layout.size)

    def adds(self, operand: Operand, target: Access) -> TypeGuard[Access]:
        """True if an operand is a product that may add to the sum in place."""
        if not self.is_only_in(operand, target) or operand.owner not in self.products:
            return False
        product = self.products[operand.owner]
        return product.rounding in ("", INT8) or product.inner <= self.in_place

    def waits(self, operand: Access) -> bool:
        """True if an operand is a product of a value that depends on an earlier step. Others run for a tile at once."""
        return operand.owner in self.products and self.products[operand.owner].left in self.carried

    def is_bias(self, operand: Operand) -> TypeGuard[Access]:
        """True if an operand is a row that is the same at every step."""
        if not isinstance(operand, Access) or operand.owner not in self.invariant or operand.index:
            return False
        return all(stride == 0 for stride in operand.layout.strides[:-1]) and operand.layout.strides[-1] == 1


@dataclass(frozen=True)
class Chain:
    """A sum in order: `start`, or the first product with `bias`; then the other products; then `rest`."""

    products: tuple[Access, ...]
    start: Operand | None = None
    bias: Access | None = None
    rest: tuple[Operand, ...] = ()


def sum_products(
    statements: Sequence[Statement], rules: Rules, beside: Callable[[str], str]
) -> list[Statement | StepProduct]:
    """Let products that a sum begins with add up in one place.

    rewrite: `a = x @ w; b = a + bias; c = h @ u; y = b + c`  -->  `y = x @ w + bias; y += h @ u`

    Operands are added in the order in which they stand, so that results do not depend on what else the step computes.

    Args:
        beside: makes a new owner, in which the products of a given owner are summed.
    """
    writes = Counter(statement.target.owner for statement in statements)
    in_parts = [owner for owner, count in writes.items() if count > 1]
    rules = replace(rules, stored={*rules.stored, *in_parts})
    sums, inner = _sums_of_products(statements, rules)
    chains = {owner: _chain(operands, target, rules) for owner, (target, operands) in sums.items()}
    inner |= {product.owner for chain in chains.values() for product in chain.products}
    result: list[Statement | StepProduct] = []
    for statement in statements:
        owner = statement.target.owner
        if owner in chains:
            result += _computed(chains[owner], statement, rules, beside)
        elif owner not in inner:
            result.append(rules.products.get(owner, statement))
    return result


def _sums_of_products(
    statements: Sequence[Statement], rules: Rules
) -> tuple[dict[str, tuple[Access, tuple[Operand, ...]]], set[str]]:
    """Owner of a sum that begins with a product -> its target and operands; and the owners that these sums took in.

    If a sum begins with another sum of the same axes, the operands of that one come first. The first two operands may
    be exchanged.
    """
    found: dict[str, tuple[Access, tuple[Operand, ...]]] = {}
    inner: set[str] = set()
    for statement in filter(_is_sum, statements):
        target = statement.target
        first = [
            operand
            for operand in statement.operands[:2]
            if rules.is_only_in(operand, target)
            and (
                found[operand.owner][0].layout == target.layout
                if operand.owner in found
                else operand.owner in rules.products
            )
        ]
        if first:
            begin = min(first, key=lambda operand: (operand.owner not in found, rules.waits(operand)))
            _, operands = found.pop(begin.owner, (target, (begin,)))
            inner.add(begin.owner)
            rest = [*statement.operands]
            rest.remove(begin)
            found[target.owner] = target, (*operands, *rest)
    return found, inner


def _is_sum(statement: Statement) -> bool:
    if statement.fold or statement.call is None:
        return False
    return statement.form == "sum" or (statement.form == "apply" and statement.call.op.type in ("Add", "Sum"))


def _chain(operands: Sequence[Operand], target: Access, rules: Rules) -> Chain:
    first, *rest = operands
    assert isinstance(first, Access)
    if not rest or not rules.adds(first, target):
        return Chain((first,), rest=tuple(rest))
    second, *others = rest
    later = [operand for operand in others if rules.adds(operand, target)]
    if rules.is_bias(second):
        return _with_products(first, second, others, target, rules)
    if not rules.adds(second, target) and later == others and not rules.reads.get(target.owner):
        return Chain((first, *later), start=second)
    return _with_products(first, None, rest, target, rules)


def _with_products(first: Access, bias: Access | None, rest: list[Operand], target: Access, rules: Rules) -> Chain:
    """The chain of a product and of the operands after it. Products come first as long as they may add in place."""
    products = [first]
    for operand in rest:
        if not rules.adds(operand, target) or rules.waits(products[-1]) > rules.waits(operand):
            break
        products.append(operand)
    return Chain(tuple(products), bias=bias, rest=tuple(rest[len(products) - 1 :]))


def _computed(
    chain: Chain, statement: Statement, rules: Rules, beside: Callable[[str], str]
) -> list[Statement | StepProduct]:
    owner = statement.target.owner
    products = [rules.products[product.owner] for product in chain.products]
    if chain.start is not None:
        start = replace(statement, operands=(chain.start,), form="copy")
        return [start, *(replace(product, target=owner, accumulate=True) for product in products)]
    place = beside(owner) if chain.rest else owner
    first = replace(products[0], target=place, bias=chain.bias)
    added: list[Statement | StepProduct] = [replace(p, target=place, accumulate=True) for p in products[1:]]
    if not chain.rest:
        return [first, *added]
    rest = replace(statement, operands=(replace(statement.target, owner=place), *chain.rest), form="sum")
    return [first, *added, rest]


def place_contractions(step: LoweredStep) -> LoweredStep:
    """Let products over tiles write into a transpose or a joined matrix, if nothing else reads their result.

    rewrite: `a += x^T @ y`, then once `b = Transpose(a)`  -->  `b += y^T @ x`
        `a += x^T @ y; b += h^T @ y`, then once `c = Concat(a, b)`  -->  `c[:D] += x^T @ y; c[D:] += h^T @ y`
    """
    lowered, epilogue, accumulators = step.lowered.copy(), list[Call](), dict(step.accumulators)
    nodes = [*step.nodes]
    readers = Counter(name for call in step.epilogue for name in call.op.inputs)
    readers.update(step.sums.values())
    for call in step.epilogue:
        products = {node_writes(node) for node in nodes if isinstance(node, Contraction)}
        products -= {node_writes(node) for node in nodes if not isinstance(node, Contraction)}
        if not (places := _places_of(call)) or any(readers[n] > 1 or n not in products for n in call.op.inputs):
            epilogue.append(call)
            continue
        nodes = [
            _placed(node, call, places[node.target])
            if isinstance(node, Contraction) and node.target in places
            else node
            for node in nodes
        ]
        blob = call.op.outputs[0]
        lowered.types[blob], accumulators[blob] = call.output_types[0], False
        for name in call.op.inputs:
            del accumulators[name]
    return replace(step, lowered=lowered, nodes=tuple(nodes), accumulators=accumulators, epilogue=tuple(epilogue))


def _places_of(call: Call) -> dict[str, tuple[int, int]]:
    """Operand -> its first row and column in the result of a Concat or Transpose of matrices; empty for other ops."""
    kind = call.op.type
    if kind not in ("Concat", "Transpose") or call.rank(0) != 2:
        return {}
    if kind == "Transpose":
        return {call.op.inputs[0]: (0, 0)} if tuple(call.attr("perm") or (1, 0)) == (1, 0) else {}
    axis = call.axis(call.attr("axis"), 2)
    begins = accumulate((call.shape(i)[axis] for i in range(len(call.op.inputs) - 1)), initial=0)
    return {name: (0, at) if axis else (at, 0) for name, at in zip(call.op.inputs, begins, strict=True)}


def _placed(node: Contraction, call: Call, place: tuple[int, int]) -> Contraction:
    blob, size = call.op.outputs[0], call.output_types[0].shape[1]
    return node.turned(blob, size) if call.op.type == "Transpose" else node.placed(blob, *place, size)
