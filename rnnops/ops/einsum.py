"""Einsum: sums of products over axes that an equation names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from operator import itemgetter
from string import ascii_letters
from typing import Any, ClassVar

import numpy as np

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion
from rnnops.net.net import common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.base import quiet
from rnnops.ops.comparison import and_, equal, identity, where
from rnnops.ops.linear_algebra import matmul
from rnnops.ops.movement import expand, reshape, squeeze, transpose, unsqueeze
from rnnops.ops.ordering import numbered
from rnnops.ops.reduction import reduce_sum
from rnnops.types import NUMERIC, Array, Shape, is_float

MOST_LABELS = 32  # NumPy's limit of axes in such a sum
Labels = tuple[str, ...]
TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


class EquationError(ValueError):
    """An equation that cannot be read, or does not fit its operands."""


@dataclass(frozen=True)
class Equation:
    """Labels of all axes: letters, and for the axes of an ellipsis numbers, counted from its end.

    Args:
        operands: for each operand the labels of its axes. A label that occurs twice takes the diagonal.
        result: labels of the result. All other labels are summed over.
        sizes: label -> size. An axis of size 1 broadcasts.
    """

    operands: tuple[Labels, ...]
    result: Labels
    sizes: dict[str, int]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return tuple(self.sizes[label] for label in self.result)


def terms_of(equation: str) -> tuple[list[str], str | None]:
    """The terms of the operands, and the term of the result (None if it is left out)."""
    text = re.sub(r"\s", "", equation)
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in (*terms, right):
        if not TERM.fullmatch(term):
            raise EquationError(f"'{term}' is not a term of letters with at most one '...'")
    if len(set(right)) < len(right.replace("...", ".")):
        raise EquationError(f"the result has a letter twice: '{right}'")
    if unknown := sorted(set(right) - {"."} - set("".join(terms))):
        raise EquationError(f"the result has letters that no operand has: {', '.join(unknown)}")
    return terms, right if arrow else None


def read_equation(equation: str, shapes: Sequence[Shape]) -> Equation:
    """The labels of all axes of operands with these shapes. Raises EquationError if they do not fit."""
    terms, right = terms_of(equation)
    if len(terms) != len(shapes):
        raise EquationError(f"it has {len(terms)} terms for {len(shapes)} operands")
    operands = tuple(labels_of(term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    sizes = sizes_of(operands, shapes)
    dots = tuple(sorted((label for label in sizes if label.isdigit()), key=int, reverse=True))
    letters = "".join(terms)
    once = tuple(letter for letter in sorted(set(letters) - {"."}) if letters.count(letter) == 1)
    if right is None:
        return Equation(operands, dots + once, sizes)
    before, dotted, after = parts_of(right)
    return Equation(operands, (*before, *(dots if dotted else ()), *after), sizes)


def labels_of(term: str, rank: int) -> Labels:
    """The labels of the axes of one operand."""
    before, dotted, after = parts_of(term)
    rest = rank - len(before) - len(after)
    if rest < 0 or (rest and not dotted):
        raise EquationError(f"'{term}' does not name the axes of an operand of rank {rank}")
    return (*before, *(str(i) for i in reversed(range(rest))), *after)


def parts_of(term: str) -> tuple[str, bool, str]:
    """Letters before an ellipsis, True if there is one, letters after it."""
    before, dots, after = term.partition("...")
    return before, bool(dots), after


def sizes_of(operands: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each label. Raises EquationError if two sizes of a label differ and neither is 1."""
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        own = dict(zip(labels, shape, strict=True))
        for label, size in zip(labels, shape, strict=True):
            known = sizes.get(label, size)
            if own[label] != size or (known != size and 1 not in (known, size)):
                name = "an axis of '...'" if label.isdigit() else f"'{label}'"
                raise EquationError(f"{name} has sizes {known if known != size else own[label]} and {size}")
        sizes.update((label, size) for label, size in own.items() if sizes.get(label, 1) == 1)
    if len(sizes) > MOST_LABELS:
        raise EquationError(f"it has more than {MOST_LABELS} axes")
    return sizes


def written(operands: Sequence[Labels], result: Labels) -> str:
    """An equation with these labels, without an ellipsis."""
    labels = list(dict.fromkeys(label for term in (*operands, result) for label in term))
    letters = dict(zip(labels, ascii_letters, strict=False))
    terms = ["".join(letters[label] for label in term) for term in (*operands, result)]
    return f"{','.join(terms[:-1])}->{terms[-1]}"


class Einsum(OpSchema):
    """Products of all operands, summed over the axes that the result does not have.

    ONNX: Einsum, op set 12. Two operands that are summed over a common axis become a matrix product. More operands are
    multiplied two at a time. Each gradient is an Einsum of the result's gradient and the other operands.

    Args:
        equation: for each operand a term with a letter for each axis, with commas between terms, then `->` and the term
            of the result. `...` stands for axes that broadcast. A letter that occurs twice in a term takes the
            diagonal. Without `->` the result has the axes of `...`, then the letters that occur once, in alphabetical
            order.
        operands: float or integers of one dtype. Axes with one letter have one size, or size 1, which broadcasts.

    Returns:
        The axes of the result's term, the same dtype.

    Raises:
        NetError: there are no operands, one is not a blob, they are of several nets, or the equation cannot be read.
        TypeRuleError: the dtypes differ or are bool. Once shapes are known: the equation does not fit them.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.einsum("nd,md->nm", a, b))
        >>> feeds = {"a": np.array([[1.0, 2.0]]), "b": np.array([[3.0, 4.0], [5.0, 6.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[11., 17.]])
    """

    inputs = ("A", "more*")
    outputs = ("Output",)
    attributes: ClassVar[dict[str, Any]] = {"equation": REQUIRED}
    accepts = NUMERIC
    keeps = ("A", "more")
    loop = Expansion()

    def __call__(self, equation: str, *operands: Blob) -> Blob:
        try:
            terms = len(terms_of(equation)[0])
        except (EquationError, TypeError) as error:
            hint = None if isinstance(equation, str) else 'It comes first: ro.einsum("ni,ij->nj", x, w).'
            raise NetError(f"this is not an equation: {error}", op=self.name, came=repr(equation), hint=hint) from None
        if terms != len(operands):
            raise NetError(
                "the equation is for other operands", op=self.name, wanted=f"{terms} operands", came=len(operands)
            )
        return common_net(operands).append(self.name, list(operands), {"equation": equation})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (self.equation(call).shape,)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        equation = self.equation(call)
        text = written(equation.operands, equation.result)
        return np.array(np.einsum(text, *arrays, optimize=True), dtype=arrays[0].dtype)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        """For each operand, the product of the result's gradient and the others, summed to its axes."""
        equation, count = self.equation(call), len(call.op.inputs)
        factors = [(blobs[i], equation.operands[i], call.shape(i)) for i in range(count)]
        factors.append((blobs[-1], equation.result, equation.shape))
        return [self.gradient_of(factors, i, equation.sizes) for i in range(count)]

    def gradient_of(self, factors: Sequence[tuple[Blob, Labels, Shape]], i: int, sizes: dict[str, int]) -> Blob:
        """The gradient of operand i.

        It is summed over axes that the operand broadcasts, and repeated along axes of its own.
        """
        labels, shape = factors[i][1:]
        others = [*factors[:i], *factors[i + 1 :]]
        there = {label: size for _, names, of in reversed(others) for label, size in zip(names, of, strict=True)}
        own = dict(zip(labels, shape, strict=True))
        kept = tuple(label for label, size in own.items() if label in there and size == sizes[label])
        text = written([names for _, names, _ in others], kept)
        found = self(text, *(blob for blob, _, _ in others))
        if lost := [place for place, label in enumerate(own) if label not in kept]:
            found = expand(unsqueeze(found, lost), list(own.values()))
        elif any(there[label] != sizes[label] for label in kept):
            found = expand(found, list(own.values()))
        return found if len(own) == len(labels) else on_diagonal(found, labels, own)

    def expand(self, call: Call, *blobs: Blob) -> Blob:
        equation = self.equation(call)
        operands = [
            plain_operand(blob, labels, call.shape(i), equation.sizes)
            for i, (blob, labels) in enumerate(zip(blobs, equation.operands, strict=True))
        ]
        return contracted(operands, equation)

    def equation(self, call: Call) -> Equation:
        """The equation with its axes. Raises TypeRuleError if it does not fit the operands."""
        if "equation" not in call.derived:
            text = call.attr("equation")
            try:
                if not isinstance(text, str):
                    raise EquationError("it is not a string")
                shapes = [call.shape(i) for i in range(len(call.op.inputs))]
                call.derived["equation"] = read_equation(text, shapes)
            except EquationError as error:
                call.fail(f"the equation does not fit: {error}", came=repr(text))
        found: Equation = call.derived["equation"]
        return found


Factor = tuple[Blob, Labels]


def contracted(operands: Sequence[Factor], equation: Equation) -> Blob:
    """The product of all operands, in the cheapest order of pairs. Axes are summed once they are not needed."""
    factors, result, sizes = list(operands), set(equation.result), equation.sizes
    for first, second in cheapest_order([labels for _, labels in factors], result, sizes):
        other, one = factors.pop(second), factors.pop(first)
        later = result.union(*(labels for _, labels in factors))
        pair = summed(one, later.union(other[1])), summed(other, later.union(one[1]))
        factors.insert(first, product(*pair, later, sizes))
    blob, labels = summed(factors[0], result)
    return identity(arranged((blob, labels), equation.result))


MOST_TRIED = 4  # number of operands up to which all orders are tried: 18 orders
WRITTEN = 64  # multiply-adds of a product that take as long as writing a number and reading it
Pair = tuple[int, int]


def cheapest_order(operands: Sequence[Labels], result: set[str], sizes: dict[str, int]) -> tuple[Pair, ...]:
    """Pairs of operands to multiply, in order. A product takes the place of its first operand."""
    return _order_and_cost(tuple(operands), result, sizes)[0]


def _order_and_cost(
    operands: tuple[Labels, ...], result: set[str], sizes: dict[str, int]
) -> tuple[tuple[Pair, ...], int]:
    """The best order and its cost.

    For few operands all orders are tried, for many only those that begin with the cheapest pair.
    """
    if len(operands) < 2:
        return (), 0
    steps = [_joined(operands, pair, result, sizes) for pair in combinations(range(len(operands)), 2)]
    if len(steps) == 1:
        return (steps[0][0],), steps[0][2]
    if len(operands) > MOST_TRIED:
        steps = [min(steps, key=itemgetter(2))]
    rests = [_order_and_cost(left, result, sizes) for _, left, _ in steps]
    found = [((pair, *order), cost + more) for (pair, _, cost), (order, more) in zip(steps, rests, strict=True)]
    return min(found, key=itemgetter(1))


def _joined(
    operands: tuple[Labels, ...], pair: Pair, result: set[str], sizes: dict[str, int]
) -> tuple[Pair, tuple[Labels, ...], int]:
    """The pair, the operands after they are multiplied, and the cost."""
    first, second = pair
    others = [labels for place, labels in enumerate(operands) if place not in pair]
    later, both = result.union(*others), dict.fromkeys((*operands[first], *operands[second]))
    kept = tuple(label for label in both if label in later)
    everything, written = (prod(sizes[label] for label in labels) for labels in (both, kept))
    return pair, (*others[:first], kept, *others[first:]), everything + WRITTEN * written


def product(a: Factor, b: Factor, later: set[str], sizes: dict[str, int]) -> Factor:
    """The product of two operands, summed over the axes that both have and that are not needed later."""
    both = [label for label in a[1] if label in b[1]]
    batch, inner = (tuple(label for label in both if (label in later) == kept) for kept in (True, False))
    left, right = (tuple(label for label in labels if label not in both) for labels in (a[1], b[1]))
    if not inner or not is_float(a[0].dtype):
        return multiplied(a, b, (*batch, *inner), (left, right), later)
    rows = grouped(arranged(a, (*batch, *left, *inner)), batch, (left, inner), sizes)
    columns = grouped(arranged(b, (*batch, *inner, *right)), batch, (inner, right), sizes)
    found = matmul(rows, columns)
    if len(left) != 1 or len(right) != 1:
        found = reshape(found, [sizes[label] for label in (*batch, *left, *right)], allowzero=1)
    return found, (*batch, *left, *right)


def multiplied(a: Factor, b: Factor, both: Labels, others: tuple[Labels, Labels], later: set[str]) -> Factor:
    """The elementwise product of two operands, summed."""
    left, right = others
    first, second = arranged(a, (*both, *left)), arranged(b, (*both, *right))
    if right:
        first = unsqueeze(first, [len(both) + len(left) + i for i in range(len(right))])
    if left:
        second = unsqueeze(second, [len(both) + i for i in range(len(left))])
    return summed((first * second, (*both, *left, *right)), later)


def summed(factor: Factor, kept: set[str]) -> Factor:
    """An operand, summed over all axes except for those that are kept."""
    blob, labels = factor
    axes = [place for place, label in enumerate(labels) if label not in kept]
    rest = tuple(label for label in labels if label in kept)
    return (reduce_sum(blob, axes, keepdims=0), rest) if axes else factor


def arranged(factor: Factor, order: Labels) -> Blob:
    """An operand with its axes in another order."""
    blob, labels = factor
    return blob if labels == order else transpose(blob, [labels.index(label) for label in order])


def grouped(blob: Blob, batch: Labels, groups: tuple[Labels, Labels], sizes: dict[str, int]) -> Blob:
    """Matrices: the axes of each of the two groups are joined to one."""
    if all(len(group) == 1 for group in groups):
        return blob
    shape = [sizes[label] for label in batch] + [prod(sizes[label] for label in group) for group in groups]
    return reshape(blob, shape, allowzero=1)


def plain_operand(blob: Blob, labels: Labels, shape: Shape, sizes: dict[str, int]) -> Factor:
    """An operand without axes that broadcast, and with diagonals instead of repeated labels."""
    own = dict(zip(labels, shape, strict=True))
    if len(own) < len(labels):
        repeats = [place for place, label in enumerate(labels) if label in labels[:place]]
        blob = reduce_sum(where(diagonal(blob, labels, own), blob, 0), repeats, keepdims=0)
    narrow = [place for place, (label, size) in enumerate(own.items()) if size != sizes[label]]
    rest = tuple(label for label, size in own.items() if size == sizes[label])
    return (squeeze(blob, narrow), rest) if narrow else (blob, rest)


def on_diagonal(blob: Blob, labels: Labels, own: dict[str, int]) -> Blob:
    """Puts elements on the diagonal of axes that share a label. The rest is zero."""
    repeats = [place for place, label in enumerate(labels) if label in labels[:place]]
    return where(diagonal(blob, labels, own), unsqueeze(blob, repeats), 0.0)


def diagonal(blob: Blob, labels: Labels, own: dict[str, int]) -> Blob:
    """True where all axes with one label have the same index. It broadcasts over other axes."""
    found = None
    for place, label in enumerate(labels):
        if label in labels[:place]:
            here = (numbered(blob, own[label], axis, len(labels)) for axis in (labels.index(label), place))
            found = equal(*here) if found is None else and_(found, equal(*here))
    return blob.net.constant(True) if found is None else found


einsum = register(Einsum())
