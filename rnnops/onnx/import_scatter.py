"""How the Scatter family and GatherND of ONNX become ops of rnnops."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.onnx.import_groups import extent, inside, numbers_along
from rnnops.onnx.import_ops import append
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.probes import fixed_dims
from rnnops.ops.comparison import cast
from rnnops.ops.indexing import gather, slice as slice_
from rnnops.ops.movement import concat, reshape, squeeze
from rnnops.ops.scatter import scatter_elements
from rnnops.ops.shapes import shape


def elements(node: Node) -> Sequence[Blob]:
    """Reductions are younger than the op."""
    return append(node, axis=node.attr("axis", "int"), reduction=node.attr("reduction", "string"))


def slices(node: Node) -> Sequence[Blob]:
    return append(node, reduction=node.attr("reduction", "string"))


def old_scatter(node: Node) -> Sequence[Blob]:
    """Scatter is the former name of ScatterElements."""
    return (scatter_elements(node.input(0), node.input(1), node.input(2), node.attr("axis", "int", 0)),)


def gather_nd(node: Node) -> Sequence[Blob]:
    """Slices by their places in an array whose first axes are one."""
    data, indices, batch = node.input(0), node.input(1), node.attr("batch_dims", "int", 0)
    known, rank, of = node.known(indices), node.rank(data), node.rank(indices)
    columns = fixed_dims(known)[-1] if known and of else None
    if not isinstance(columns, int) or not 0 <= batch < min(rank, of) or not 0 < columns <= rank - batch:
        node.fail("the last axis of indices is the number of axes that they are of", came=columns)
    whole, first = cast(indices, "int64"), batch + columns
    place = None
    for axis in range(first):
        if axis < batch:
            index = numbers_along(data, axis, of - 1)
        else:
            column = slice_(whole, [axis - batch], [axis - batch + 1], [-1])
            index = inside(squeeze(column, [-1]), data, axis)
        place = index if place is None else place * extent(data, axis) + index
    assert place is not None
    return (gather(rows_of(data, first, rank), place),)


def rows_of(data: Blob, first: int, rank: int) -> Blob:
    """An array whose first axes are one."""
    if first == rank:
        return reshape(data, [-1])
    rest = shape(data, first)  # before the constant, which a file has right before the op that reads it
    return reshape(data, concat(data.net.constant([-1], "int64"), rest, axis=0))


SCATTER_RULES: dict[str, Rule] = {
    "GatherND": gather_nd,
    "Scatter": old_scatter,
    "ScatterElements": elements,
    "ScatterND": slices,
}
