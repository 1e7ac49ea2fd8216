"""How EyeLike, NonZero and Compress of ONNX become ops of rnnops; sizes that data decide are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_groups import extent
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.tensors import element_dtype
from rnnops.ops.comparison import cast, equal
from rnnops.ops.indexing import gather
from rnnops.ops.movement import reshape, unsqueeze
from rnnops.ops.shapes import range as range_


def eye_like(node: Node) -> Sequence[Blob]:
    """1 on a diagonal of a matrix, 0 elsewhere, in the input's dtype or another."""
    x, k, to = node.input(0), node.attr("k", "int", 0), node.attr("dtype", "int")
    if node.rank(x) != 2:
        node.fail("it is no matrix", wanted="two axes", came=node.rank(x))
    dtype = x.dtype if to is None else node.dtype(element_dtype(to, "the result of an EyeLike"))
    rows, columns = range_(0, extent(x, 0)), range_(0, extent(x, 1))
    here = unsqueeze(rows, [1])
    return (cast(equal(here + k if k else here, columns), dtype),)


def non_zero(node: Node) -> Sequence[Blob]:
    """The indices of what is not zero in an array that is known."""
    found = np.array(np.nonzero(_known(node, 0, "which elements are not zero")), np.int64)
    return (node.net.constant(found, "int64"),)


def compress(node: Node) -> Sequence[Blob]:
    """The slices that a known condition takes."""
    x, condition, axis = node.input(0), _known(node, 1, "which slices stay"), node.attr("axis", "int")
    if condition.ndim != 1:
        node.fail("the condition has one axis", came=condition.ndim)
    taken = node.net.constant(np.flatnonzero(condition), "int64") if axis is not None else None
    if taken is not None:
        return (gather(x, taken, axis),)
    flat = reshape(x, [-1])
    return (gather(flat, node.net.constant(np.flatnonzero(condition), "int64"), 0),)


def _known(node: Node, i: int, what: str) -> np.ndarray[Any, Any]:
    value = node.known_value(i)
    if value is None:
        node.fail(
            f"{what} decides a shape, but cannot be known before a run",
            blob=node.reader.bound[node.input(i).name],
            wanted="what follows from constants and fixed sizes",
            hint="If it is the same in all runs, give the inputs that decide it: load(path, constants={...}).",
        )
    return value


MASK_RULES: dict[str, Rule] = {
    "Compress": compress,
    "EyeLike": eye_like,
    "NonZero": non_zero,
}
