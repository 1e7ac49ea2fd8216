"""Recurrences of a graph as its protobuf tells of them: kind, layer, directions, sizes, weights, and the branch.

A layer's number says how many recurrences its data has gone through, itself included.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.graphs import MAX_DEPTH
from rnnops.onnx.package import AttributeProto, GraphProto, NodeProto

CELLS = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
LOOPS = ("Scan", "Loop")
WEIGHTS = (1, 2, 3, 7)  # places of weights, biases and peepholes among a cell's inputs
Scope: TypeAlias = "ChainMap[str, Any]"


@dataclass(frozen=True)
class Layer:
    """A recurrence.

    Args:
        kind: its op; number: of the layer, 1 for one that reads no other recurrence.
        direction: `forward`, `reverse` or `bidirectional`; empty for loops.
        sizes: `96 -> 64`, features of input and state, `?` where the file does not say; of loops what they carry.
        weights: how many numbers, None where they are not in the file as they are.
        name: of the node; places: the branches and bodies that it lies in, the outermost first.
    """

    kind: str
    number: int
    direction: str
    sizes: str
    weights: int | None
    name: str
    places: tuple[str, ...]


def layers_of(graph: GraphProto) -> list[Layer]:
    """The recurrences of a graph, in its order, those in branches and bodies too."""
    found: list[Layer] = []
    _Walk(found).walk(graph, (), ChainMap(), ChainMap())
    return found


@dataclass
class _Walk:
    """A walk over graphs that gathers recurrences in `found`."""

    found: list[Layer]

    def walk(self, graph: GraphProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The largest layer among what a graph computes.

        Args:
            depths: value -> the layer that it comes from; dims: value -> sizes of a tensor of the file.
        """
        if len(places) > MAX_DEPTH:
            raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
        dims.update({tensor.name: tuple(tensor.dims) for tensor in graph.initializer})
        deepest = 0
        for node in graph.node:
            if node.op_type == "Constant":
                dims.update({name: size for name in node.output for size in constant_sizes(node)})
            depth = self.node(node, places, depths, dims)
            depths.update(dict.fromkeys(node.output, depth))
            deepest = max(deepest, depth)
        return deepest

    def node(self, node: NodeProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The layer that a node's results come from."""
        depth = max((depths.get(name, 0) for name in node.input), default=0)
        if is_recurrent := node.op_type in (*CELLS, *LOOPS):
            depth += 1
            self.found.append(layer_of(node, depth, places, dims))
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                place = f"{attribute.name} of {node.op_type} '{node.name or next(filter(None, node.output), '')}'"
                inside = self.walk(inner, (*places, place), depths.new_child(), dims.new_child())
                depth = depth if is_recurrent else max(depth, inside)
        return depth


def constant_sizes(node: NodeProto) -> Iterator[tuple[int, ...]]:
    """Sizes of the tensor of a Constant node, if it has one."""
    yield from (tuple(one.t.dims) for one in node.attribute if one.type == AttributeProto.TENSOR)


def layer_of(node: NodeProto, number: int, places: tuple[str, ...], dims: Scope) -> Layer:
    """What a node says of its recurrence."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    name = node.name or next(filter(None, node.output), "")
    if node.op_type in LOOPS:
        return Layer(node.op_type, number, "", loop_sizes(node, attributes), None, name, places)
    direction = attributes["direction"].s.decode("utf-8", "replace") if "direction" in attributes else "forward"
    sizes = cell_sizes(node, attributes, dims)
    return Layer(node.op_type, number, direction, sizes, weights_of(node.input, dims), name, places)


def cell_sizes(node: NodeProto, attributes: dict[str, AttributeProto], dims: Scope) -> str:
    """`96 -> 64`: features of the input, from the weights, and of the state."""
    axis = 1 if node.op_type == "DynamicQuantizeLSTM" else 2  # of W: [directions, 4 H, D], or [directions, D, 4 H]
    w = dims.get(node.input[1], ()) if len(node.input) > 1 else ()
    features = w[axis] if len(w) == 3 else "?"
    return f"{features} -> {attributes['hidden_size'].i if 'hidden_size' in attributes else '?'}"


def loop_sizes(node: NodeProto, attributes: dict[str, AttributeProto]) -> str:
    """What a loop carries, and how many ops a step has."""
    scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
    carried = len(node.input) - (scanned if node.op_type == "Scan" else 2)  # a Loop has its trip count and a condition
    steps = [f"{len(one.g.node)} ops a step" for one in node.attribute if one.type == AttributeProto.GRAPH]
    return ", ".join([f"{max(carried, 0)} states", *steps[:1]])


def weights_of(inputs: Sequence[str], dims: Scope) -> int | None:
    """How many numbers the weights, biases and peepholes of a cell have."""
    sizes = [dims.get(inputs[place]) for place in WEIGHTS if len(inputs) > place and inputs[place]]
    return None if None in sizes else sum(prod(max(size, 0) for size in one) for one in sizes if one is not None)
