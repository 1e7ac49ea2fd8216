"""Nodes of graphs, and graphs inside nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.package import AttributeProto, GraphProto, NodeProto

MAX_DEPTH = 8  # of graphs inside graphs
OWN_DOMAINS = ("", "ai.onnx")


def op_name(node: NodeProto) -> str:
    """An op with its domain, where that is not ONNX's own: `com.microsoft::QuickGelu`."""
    return str(node.op_type if node.domain in OWN_DOMAINS else f"{node.domain}::{node.op_type}")


def nodes_of(graph: GraphProto, depth: int = 0) -> Iterator[NodeProto]:
    """All nodes, those of graphs inside graphs included. Raises OnnxError where they lie too deep."""
    if depth > MAX_DEPTH:
        raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from nodes_of(inner, depth + 1)


def graphs_of(node: NodeProto) -> list[GraphProto]:
    """The graphs in a node's attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
    return found


def copied(proto: Any) -> Any:
    """A protobuf of the same contents."""
    found = type(proto)()
    found.CopyFrom(proto)
    return found
