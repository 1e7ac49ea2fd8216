"""Products of a step: those that run as blocked products, and sums of them, which build up in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import TypeGuard

from rnnops.compiler.ir.nodes import Contraction, Product, node_reads, read_counts
from rnnops.compiler.ir.statements import Access, Number, Statement
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.compiler.schedule.products import as_product
from rnnops.compiler.schedule.step_plan import Step
from rnnops.kernels.cpu.vector_width import INT8
from rnnops.scopes import unused_name

Operand = Access | Number


def block_products(step: Step) -> Step:
    """Run products of rows with matrices that are the same at every step as blocked products, and sum them in place.

    rewrite: `a = x @ w; b = a + bias; c = h @ u; y = b + c`  -->  `y = x @ w + bias; y += h @ u`
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

    rules = Rules(products, step.stored, step.invariant, carried, reads, step.in_place)
    nodes = sum_products(step.statements, rules, beside)
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


@dataclass(frozen=True)
class Rules:
    """What is known of a step where its sums of products are scheduled.

    Args:
        products: by target.
        stored: owners that must exist by themselves.
        invariant: owners that no step changes.
        carried: owners that depend on an earlier step.
        reads: how often each owner is read in the step, by all of its nodes.
        in_place: the largest inner size of a product of rounded operands that adds to what is there as a sum does.
    """

    products: Mapping[str, Product]
    stored: Collection[str]
    invariant: Collection[str]
    carried: Collection[str]
    reads: Mapping[str, int]
    in_place: float = inf

    def is_only_in(self, operand: Operand, target: Access) -> TypeGuard[Access]:
        """Whether an operand is for this sum alone, and lies as the sum does."""
        if not isinstance(operand, Access) or operand.layout != target.layout or operand.owner in self.stored:
            return False
        product = self.products.get(operand.owner)
        return self.reads.get(operand.owner) == 1 and (product is None or product.size == operand.layout.size)

    def adds(self, operand: Operand, target: Access) -> TypeGuard[Access]:
        """Whether an operand is a product that may add to what is there."""
        if not self.is_only_in(operand, target) or operand.owner not in self.products:
            return False
        product = self.products[operand.owner]
        return product.rounding in ("", INT8) or product.inner <= self.in_place

    def waits(self, operand: Access) -> bool:
        """Whether an operand is a product of what depends on an earlier step; others run for many steps at once."""
        return operand.owner in self.products and self.products[operand.owner].left in self.carried

    def is_bias(self, operand: Operand) -> TypeGuard[Access]:
        """Whether an operand is a row that is the same at every step."""
        if not isinstance(operand, Access) or operand.owner not in self.invariant or operand.index:
            return False
        return all(stride == 0 for stride in operand.layout.strides[:-1]) and operand.layout.strides[-1] == 1


@dataclass(frozen=True)
class Chain:
    """A sum in the order in which it is computed: `start` or the first product with a bias, products, the rest."""

    products: tuple[Access, ...]
    start: Operand | None = None
    bias: Access | None = None
    rest: tuple[Operand, ...] = ()


def sum_products(
    statements: Sequence[Statement], rules: Rules, beside: Callable[[str], str]
) -> list[Statement | Product]:
    """Let products that a sum begins with add up in one place.

    rewrite: `a = x @ w; b = a + bias; c = h @ u; y = b + c`  -->  `y = x @ w + bias; y += h @ u`

    Operands are added in the order in which they stand, so that results do not depend on what else the step computes.

    Args:
        beside: makes a new owner for products of one.
    """
    writes = Counter(statement.target.owner for statement in statements)
    in_parts = [owner for owner, count in writes.items() if count > 1]
    rules = replace(rules, stored={*rules.stored, *in_parts})
    sums, inner = _sums_of_products(statements, rules)
    chains = {owner: _chain(operands, target, rules) for owner, (target, operands) in sums.items()}
    inner |= {product.owner for chain in chains.values() for product in chain.products}
    result: list[Statement | Product] = []
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
    """Sums that begin with a product, by owner, with their operands; and the sums that others begin with.

    Where a sum begins with another, the operands of that one come first. The first two operands may be exchanged.
    """
    found: dict[str, tuple[Access, tuple[Operand, ...]]] = {}
    inner: set[str] = set()
    for statement in filter(_is_sum, statements):
        target = statement.target
        first = [
            operand
            for operand in statement.operands[:2]
            if rules.is_only_in(operand, target) and (operand.owner in found or operand.owner in rules.products)
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
    if statement.fold or statement.call is None or statement.form not in ("apply", "sum"):
        return False
    return statement.call.op.type in ("Add", "Sum")


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
    """A product, and those behind it that may be added in its place."""
    products = [first]
    for operand in rest:
        if not rules.adds(operand, target) or rules.waits(products[-1]) > rules.waits(operand):
            break
        products.append(operand)
    return Chain(tuple(products), bias=bias, rest=tuple(rest[len(products) - 1 :]))


def _computed(
    chain: Chain, statement: Statement, rules: Rules, beside: Callable[[str], str]
) -> list[Statement | Product]:
    owner = statement.target.owner
    products = [rules.products[product.owner] for product in chain.products]
    if chain.start is not None:
        start = replace(statement, operands=(chain.start,), form="copy")
        return [start, *(replace(product, target=owner, accumulate=True) for product in products)]
    place = beside(owner) if chain.rest else owner
    first = replace(products[0], target=place, bias=chain.bias)
    added: list[Statement | Product] = [replace(p, target=place, accumulate=True) for p in products[1:]]
    if not chain.rest:
        return [first, *added]
    rest = replace(statement, operands=(replace(statement.target, owner=place), *chain.rest), form="sum")
    return [first, *added, rest]
