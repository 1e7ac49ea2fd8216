"""From a file to a model whose frame is checked: size, op sets, and that every op is in the set that rnnops reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from rnnops.onnx.beside_file import read_beside
from rnnops.onnx.definitions import put_definitions_in_place
from rnnops.onnx.errors import OnnxError
from rnnops.onnx.graphs import OWN_DOMAINS, graphs_of, nodes_of, op_name
from rnnops.onnx.model_functions import put_functions_in_place
from rnnops.onnx.package import NEWEST_OPSET, OLDEST_OPSET, GraphProto, ModelProto, onnx_opset_version

MAX_BYTES = 2**31 - 1  # protobuf's own limit


def read_model(path: Path, known: Collection[str]) -> tuple[ModelProto, int]:
    """A file's model and the version of its op set.

    Args:
        known: names of the ops that can be read.

    Raises OnnxError where it is no model, is of an op set that is not implemented, or has ops outside of `known`.
    """
    if not path.is_file():
        raise OnnxError("it is no file" if path.exists() else "it does not exist")
    if path.stat().st_size > MAX_BYTES:
        raise OnnxError("it is larger than a protobuf can be", wanted=f"at most {MAX_BYTES} bytes")
    model = parse_model(path.read_bytes())
    read_beside(model, path.parent)
    put_functions_in_place(model)
    opset = opset_of(model)
    put_definitions_in_place(model, opset, known)
    check_ops(model, known)
    if any(
        node.op_type in ("If", "Loop") for node in nodes_of(model.graph)
    ):  # whose graphs are read with values around
        check_scopes(model.graph)
    return model, opset


def parse_model(data: bytes) -> ModelProto:
    """The model that bytes encode. Raises OnnxError for anything else."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # which class it is depends on protobuf's version
        raise OnnxError(f"it is no protobuf of a model ({str(error)[:100]})") from error
    if not model.HasField("graph"):
        raise OnnxError("it has no graph", hint="Is it an ONNX file?")
    return model


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's own op set. Raises OnnxError where it is not one of those that are implemented."""
    versions = {entry.version for entry in model.opset_import if entry.domain in OWN_DOMAINS}
    newest = min(NEWEST_OPSET, onnx_opset_version())
    if len(versions) != 1 or not OLDEST_OPSET <= min(versions) <= newest:
        wanted, came = f"one of {OLDEST_OPSET} to {newest}", sorted(versions) or "none"
        raise OnnxError("the version of its op set is not supported", wanted=wanted, came=came)
    return int(min(versions))


def check_ops(model: ModelProto, known: Collection[str]) -> None:
    """Raise OnnxError that lists all ops which cannot be read, and how many nodes of each there are."""
    foreign = Counter(name for name in map(op_name, nodes_of(model.graph)) if name not in known)
    if foreign:
        names = sorted(foreign)
        counts = ", ".join(str(foreign[name]) for name in names)
        came = f"{', '.join(names)} (nodes of each: {counts})"
        hint = "docs/onnx.md lists the ops that can be read."
        raise OnnxError("it has ops that rnnops does not have", came=came, hint=hint)


def check_scopes(graph: GraphProto, around: Sequence[Collection[str]] = ()) -> None:
    """Raise OnnxError where a value is read that is not made before, in this graph or around it.

    Args:
        around: names that are there in each graph around this one.
    """
    here = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    scopes = [*around, here]
    for node in graph.node:
        check_seen(node.input, scopes)
        for inner in graphs_of(node):
            check_scopes(inner, scopes)
        here.update(node.output)
    check_seen((value.name for value in graph.output), scopes)


def check_seen(names: Iterable[str], scopes: Sequence[Collection[str]]) -> None:
    """Raise OnnxError for a name that is in none of the scopes."""
    for name in names:
        if name and not any(name in scope for scope in scopes):
            raise OnnxError("a value is read that nothing before makes", blob=name)
