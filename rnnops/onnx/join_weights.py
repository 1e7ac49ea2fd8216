"""Weights that a graph cuts and joins before use, as the weights that come out.

PyTorch's exporter puts the gates of its layers into ONNX's order by a Slice for each gate and a Concat. Each call, and
its gradient, would do that again. Where every number of such weights goes to one place, the parameter is the result:
the same numbers are trained, in another order.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from rnnops.onnx.node import RANK, op_name, read_tensor
from rnnops.onnx.package import onnx
from rnnops.onnx.unrolled import GraphView, attribute_of, first_result, names_read, replace_nodes
from rnnops.types import Array

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
MOVES = ("Concat", "Slice", "Squeeze", "Unsqueeze")


def join_weights(graph: onnx.GraphProto) -> None:
    """Replace Concats of parts of weights by weights, where each number of these goes to one place."""
    floats = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in FLOATS and tensor.dims}
    cut = {name for node in graph.node if node.op_type == "Slice" for name in node.input[:1]}
    if cut.isdisjoint(floats):
        return
    read = {name for node in graph.node if node.op_type in MOVES for name in node.input}
    weights = [tensor for name, tensor in floats.items() if name in read]
    numbers = [read_tensor(tensor, f"initializer '{tensor.name}'") for tensor in weights]
    ends = np.cumsum([array.size for array in numbers])
    places = {
        tensor.name: np.arange(end - array.size, end).reshape(array.shape)
        for tensor, array, end in zip(weights, numbers, ends, strict=True)
    }
    moved, view = dict[str, onnx.NodeProto](), GraphView(graph, {})
    for node in graph.node:
        if (result := moved_places(view, node, places)) is not None:
            places[first_result(node)], moved[first_result(node)] = result, node
    others = [node for node in graph.node if first_result(node) not in moved]
    results = {value.name for value in graph.output} | {name for node in others for name in names_read(node)}
    owners = np.repeat(np.arange(len(weights)), [array.size for array in numbers])
    joined = joined_whole({name: places[name] for name in places if name in results}, moved, owners)
    flat = np.concatenate([array.reshape(-1) for array in numbers])
    for name in joined:
        dtype = numbers[owners[places[name].flat[0]]].dtype
        graph.initializer.append(onnx.numpy_helper.from_array(flat[places[name]].astype(dtype), name))
    remove_unread(graph, moved, {tensor.name for tensor in weights}, joined)


def moved_places(view: GraphView, node: onnx.NodeProto, places: dict[str, Array]) -> Array | None:
    """The places among all weights that the elements of a result come from, if they are only moved."""
    names = node.input if node.op_type == "Concat" else node.input[:1]
    arrays = [places[name] for name in names if name in places]
    if op_name(node) not in MOVES or not arrays or len(arrays) != len(names):
        return None
    starts, ends, axes, steps = view.cuts(node) if node.op_type == "Slice" else ([], [], view.axes(node), [])
    with suppress(ValueError, TypeError, IndexError):  # a node that cannot run stays, and its rule says why
        if node.op_type == "Concat":
            return np.concatenate(arrays, attribute_of(node, "axis", "int", RANK))
        if node.op_type != "Slice":
            return (
                (np.squeeze if node.op_type == "Squeeze" else np.expand_dims)(arrays[0], tuple(axes)) if axes else None
            )
        if starts and len(starts) == len(ends) == len(axes) and set(steps) <= {1}:
            cuts = dict(zip(axes, map(slice, starts, ends), strict=True))
            return arrays[0][tuple(cuts.get(axis, slice(None)) for axis in range(arrays[0].ndim))]
    return None


def joined_whole(results: dict[str, Array], moved: dict[str, onnx.NodeProto], owners: Array) -> list[str]:
    """The results of Concats that have all that is read of their weights, each number once."""
    found = {name: set(owners[array.reshape(-1)].tolist()) for name, array in results.items()}
    counts = np.zeros(owners.size, int)
    for array in results.values():
        np.add.at(counts, array.reshape(-1), 1)
    kept = set(owners[counts > 1].tolist())
    kept.update(*(found[name] for name in found if name not in moved or moved[name].op_type != "Concat"))
    while more := set().union(*(own for own in found.values() if own & kept)) - kept:
        kept |= more
    return [name for name, own in found.items() if own and not own & kept]


def remove_unread(
    graph: onnx.GraphProto, moved: dict[str, onnx.NodeProto], weights: set[str], joined: list[str]
) -> None:
    """Remove the nodes that made joined weights, and the weights that nothing reads any more."""
    kept, read = list[onnx.NodeProto](), {value.name for value in graph.output}
    for node in reversed(graph.node):
        name = first_result(node)
        if name not in moved or (name not in joined and name in read):
            kept.append(node)
            read.update(names_read(node))
    replace_nodes(graph, kept[::-1], weights - read)
