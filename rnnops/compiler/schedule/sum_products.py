"""Products of a step: those that run as blocked products, and sums of them, which build up in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.nodes import Contraction, Product, node_reads, read_counts
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.compiler.schedule.products import as_product
from rnnops.compiler.schedule.step_plan import Step
from rnnops.scopes import unused_name


def block_products(step: Step) -> Step:
    """Run products of rows with matrices that are the same at every step as blocked products, and sum them in place.

    rewrite: `a = x @ w; b = h @ u; c = a + b; y = c + bias`  -->  `y = x @ w + bias; y += h @ u`
    """
    lowered, axes, sizes = step.lowered.copy(), dict(step.batch_axes), step.sizes()
    contractions = [node for node in step.nodes if isinstance(node, Contraction)]
    products: dict[str, Product] = {}
    for statement in step.statements:
        product = as_product(statement, sizes, step.invariant)
        if product is not None and _rows_outermost(step, statement, product, sizes):
            products[product.target] = product
    reads = read_counts(step.nodes)
    carried = _dependent(step.statements, _inputs_in(step, step.scan.states))
    carried -= _dependent(step.statements, _inputs_in(step, step.scan.gradients))

    def beside(owner: str) -> str:
        name = unused_name(f"{owner}/products", lowered.types)
        lowered.types[name] = lowered.types[owner]
        axes.update({name: axes[owner]} if owner in axes else {})
        return name

    nodes = sum_products(step.statements, products, step.stored, step.invariant, carried, reads, beside)
    return replace(step, nodes=(*nodes, *contractions), lowered=lowered, batch_axes=axes)


def _rows_outermost(step: Step, statement: Statement, product: Product, sizes: Mapping[str, int]) -> bool:
    """Whether the rows that a thread owns lie one behind the other."""
    if step.whole:
        return True
    if statement.row_axis is None:
        return False
    rows = product.rows // step.scan.batch  # of the product, for each of the batch
    before = prod(statement.extents[: statement.row_axis])
    return before == 1 and rows * product.row_stride * step.scan.batch == sizes[product.left]


def _inputs_in(step: Step, tensors: Collection[TensorName]) -> set[str]:
    return {name for name, slot in step.scan.reads.items() if slot.tensor in tensors}


def _dependent(statements: Sequence[Statement], sources: set[str]) -> set[str]:
    """Owners that depend on `sources` within a step."""
    found = set(sources)
    for statement in statements:
        if any(owner in found for owner in node_reads(statement)):
            found.add(statement.target.owner)
    return found


def sum_products(
    statements: Sequence[Statement],
    products: Mapping[str, Product],
    stored: Collection[str],
    invariant: Collection[str],
    carried: Collection[str],
    reads: Mapping[str, int],
    beside: Callable[[str], str],
) -> list[Statement | Product]:
    """Let products of one sum add up in one place.

    rewrite: `a = x @ w; b = h @ u; c = a + b; y = c + bias`  -->  `y = x @ w + bias; y += h @ u`

    Args:
        products: by target.
        stored: owners that must exist by themselves.
        carried: owners that depend on an earlier step; their products come last.
        reads: how often each owner is read in the step, by all of its nodes.
        beside: makes a new owner for products of one.
    """
    writes = Counter(s.target.owner for s in statements)
    whole = {owner for owner, count in writes.items() if count == 1 and owner not in stored}
    makers = {s.target.owner: s for s in statements if _is_sum(s) and s.target.owner in whole}
    inner_sums = {
        access.owner
        for s in statements
        if _is_sum(s)
        for access in s.reads()
        if access.owner in makers
        and reads.get(access.owner) == 1
        and access.layout == makers[access.owner].target.layout
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
            and leaf.owner in whole
            and reads.get(leaf.owner) == 1
            and leaf.layout == statement.target.layout
            and leaf.layout.size == products[leaf.owner].size
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
        result += _summed(statement, [products[name] for name in ordered], others, invariant, reads, beside)
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
    reads: Mapping[str, int],
    beside: Callable[[str], str],
) -> list[Statement | Product]:
    bias = next((leaf for leaf in others if _is_bias(leaf, statement, invariant)), None)
    rest = [leaf for leaf in others if leaf is not bias]
    owner = statement.target.owner
    if rest and not reads.get(owner):
        first = _sum_of([*others], statement)
        return [first, *(replace(p, target=owner, accumulate=True) for p in products)]
    place = beside(owner) if rest else owner
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
