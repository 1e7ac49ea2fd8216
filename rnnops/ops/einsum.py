"""Einsum: sums of products over axes that an equation names."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.errors import NetError
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.base import quiet
from rnnops.ops.comparison import and_, equal, identity, where
from rnnops.ops.einsum_equation import Equation, EquationError, Labels, read_equation, terms_of, written
from rnnops.ops.movement import reshape, squeeze, transpose, unsqueeze
from rnnops.ops.ordering import numbered
from rnnops.ops.products import matmul
from rnnops.ops.reduction import reduce_sum
from rnnops.ops.repetition import expand
from rnnops.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.types import NUMERIC, Array, Shape, is_float


class Einsum(OpSchema):
    """Products of all operands, summed over the axes that the result does not have.

    ONNX: Einsum, op set 12. Two operands that are summed over a common axis are a matrix product; more are taken from
    left to right. Each gradient is an Einsum of the others.

    Args:
        equation: a term of letters for the axes of each operand, commas between them, after `->` that of the result.
            `...` stands for axes that broadcast. A letter that a term has twice takes the diagonal. Without `->` the
            result has the axes of `...`, then the letters that are there once, in the order of the alphabet.
        operands: float or integers of one dtype; axes of one letter have one size, or size 1, which broadcasts.

    Returns:
        The axes of the result's term, the same dtype.

    Raises:
        NetError: no operands, none is a blob, they are of several nets, or the equation is none.
        TypeRuleError: their dtypes differ or are bool; once shapes are known, the equation does not fit them.

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
            raise NetError(f"this is no equation: {error}", op=self.name, came=repr(equation)) from None
        if terms != len(operands):
            raise NetError("the equation is of others", op=self.name, wanted=f"{terms} operands", came=len(operands))
        return common_net(operands).append(self.name, list(operands), {"equation": equation})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (self.equation(call).shape,)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        equation = self.equation(call)
        text = written(equation.operands, equation.result)
        return np.array(np.einsum(text, *arrays, optimize=True), dtype=arrays[0].dtype)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        """Of each operand the product of the others, summed to its axes."""
        equation, count = self.equation(call), len(call.op.inputs)
        factors = [(blobs[i], equation.operands[i], call.shape(i)) for i in range(count)]
        factors.append((blobs[-1], equation.result, equation.shape))
        return [self.gradient_of(factors, i, equation.sizes) for i in range(count)]

    def gradient_of(self, factors: Sequence[tuple[Blob, Labels, Shape]], i: int, sizes: dict[str, int]) -> Blob:
        """The gradient of operand i; an axis that it broadcasts is summed over, one that it has alone repeats."""
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
        """The equation with its axes. Raises TypeRuleError where it does not fit the operands."""
        if "equation" not in call.derived:
            text = call.attr("equation")
            try:
                if not isinstance(text, str):
                    raise EquationError("it is no text")
                shapes = [call.shape(i) for i in range(len(call.op.inputs))]
                call.derived["equation"] = read_equation(text, shapes)
            except EquationError as error:
                call.fail(f"the equation does not fit: {error}", came=repr(text))
        found: Equation = call.derived["equation"]
        return found


Factor = tuple[Blob, Labels]


def contracted(operands: Sequence[Factor], equation: Equation) -> Blob:
    """The product of all operands from left to right; what nothing after it has is summed over at once."""
    (first, *rest), result = operands, set(equation.result)
    for k, other in enumerate(rest):
        later = result.union(*(labels for _, labels in rest[k + 1 :]))
        pair = summed(first, later.union(other[1])), summed(other, later.union(first[1]))
        first = product(*pair, later, equation.sizes)
    blob, labels = summed(first, result)
    return identity(arranged((blob, labels), equation.result))


def product(a: Factor, b: Factor, later: set[str], sizes: dict[str, int]) -> Factor:
    """Two operands multiplied, and summed over the axes that both have and nothing later."""
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
    """Two operands multiplied element by element, then summed."""
    left, right = others
    first, second = arranged(a, (*both, *left)), arranged(b, (*both, *right))
    if right:
        first = unsqueeze(first, [len(both) + len(left) + i for i in range(len(right))])
    if left:
        second = unsqueeze(second, [len(both) + i for i in range(len(left))])
    return summed((first * second, (*both, *left, *right)), later)


def summed(factor: Factor, kept: set[str]) -> Factor:
    """An operand summed over all but some axes."""
    blob, labels = factor
    axes = [place for place, label in enumerate(labels) if label not in kept]
    rest = tuple(label for label in labels if label in kept)
    return (reduce_sum(blob, axes, keepdims=0), rest) if axes else factor


def arranged(factor: Factor, order: Labels) -> Blob:
    """An operand with its axes in another order."""
    blob, labels = factor
    return blob if labels == order else transpose(blob, [labels.index(label) for label in order])


def grouped(blob: Blob, batch: Labels, groups: tuple[Labels, Labels], sizes: dict[str, int]) -> Blob:
    """Matrices: the axes of each of two groups as one."""
    if all(len(group) == 1 for group in groups):
        return blob
    shape = [sizes[label] for label in batch] + [prod(sizes[label] for label in group) for group in groups]
    return reshape(blob, shape, allowzero=1)


def plain_operand(blob: Blob, labels: Labels, shape: Shape, sizes: dict[str, int]) -> Factor:
    """An operand without axes that broadcast, and with its diagonal in place of axes of one label."""
    own = dict(zip(labels, shape, strict=True))
    if len(own) < len(labels):
        repeats = [place for place, label in enumerate(labels) if label in labels[:place]]
        blob = reduce_sum(where(diagonal(blob, labels, own), blob, 0), repeats, keepdims=0)
    narrow = [place for place, (label, size) in enumerate(own.items()) if size != sizes[label]]
    rest = tuple(label for label, size in own.items() if size == sizes[label])
    return (squeeze(blob, narrow), rest) if narrow else (blob, rest)


def on_diagonal(blob: Blob, labels: Labels, own: dict[str, int]) -> Blob:
    """Elements put on the diagonal of axes that have one label, zeros beside it."""
    repeats = [place for place, label in enumerate(labels) if label in labels[:place]]
    return where(diagonal(blob, labels, own), unsqueeze(blob, repeats), 0.0)


def diagonal(blob: Blob, labels: Labels, own: dict[str, int]) -> Blob:
    """Where all axes of one label have one index; it broadcasts over the other axes."""
    found = None
    for place, label in enumerate(labels):
        if label in labels[:place]:
            here = (numbered(blob, own[label], axis, len(labels)) for axis in (labels.index(label), place))
            found = equal(*here) if found is None else and_(found, equal(*here))
    return blob.net.constant(True) if found is None else found


einsum = register(Einsum())
