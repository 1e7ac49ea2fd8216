"""Numbers of a model that lie in files beside it, as PyTorch's exporter writes them: `model.onnx.data`.

A model is not trusted: it may name files in its own folder alone, by a path without links and `..`, and no more than
twice the bytes that these have, as weights that are tied may lie in one place. The package `onnx` opens and reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np

from rnnops.onnx.errors import OnnxError
from rnnops.onnx.graphs import nodes_of
from rnnops.onnx.package import FunctionProto, GraphProto, ModelProto, TensorProto, load_external_data_for_tensor
from rnnops.onnx.tensors import LIMITS, element_dtype

Where = tuple[Path, int, int]  # a file, the place of the first byte in it, bytes


def read_beside(model: ModelProto, folder: Path) -> None:
    """Put numbers that lie in files of a folder into the model. Raises OnnxError where they are not there."""
    elsewhere = [tensor for tensor in all_tensors(model) if lies_elsewhere(tensor)]
    places = [place_of(tensor, folder) for tensor in elsewhere]
    most = 2 * sum(path.stat().st_size for path in {path for path, _, _ in places})
    if (claimed := sum(size for _, _, size in places)) > most:
        raise OnnxError(
            "its tensors claim more than twice the bytes that the files beside it have", wanted=most, came=claimed
        )
    for tensor in elsewhere:
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # what it raises is its own affair
            raise OnnxError(f"the numbers of '{tensor.name}' cannot be read ({str(error)[:200]})") from error


def lies_elsewhere(tensor: TensorProto) -> bool:
    """Whether a tensor's numbers are in another file than its model."""
    return bool(tensor.data_location == TensorProto.EXTERNAL or tensor.external_data)


def place_of(tensor: TensorProto, folder: Path) -> Where:
    """Where a tensor's numbers lie, which is noted in it in full; what it claims must be there."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    path, what = path_in(given.get("location", ""), folder, tensor.name), f"'{tensor.name}'"
    name = element_dtype(tensor.data_type, what)
    if min(tensor.dims, default=0) < 0:
        raise OnnxError(f"{what} has no sizes that an array can have", came=list(tensor.dims))
    size = prod(tensor.dims) * (2 if name in LIMITS else np.dtype(name).itemsize)
    try:
        offset, length = int(given.get("offset", "0")), int(given.get("length", str(size)))
    except ValueError:
        raise OnnxError(f"{what} does not say where its numbers lie", came=str(given)) from None
    there = path.stat().st_size
    if length != size or not 0 <= offset <= there - size:
        came = f"{length} bytes from {offset}, of {there}"
        raise OnnxError(f"{what} is not in '{path.name}' as it claims", wanted=f"{size} bytes", came=came)
    if "length" not in given:
        tensor.external_data.add(key="length", value=str(size))
    return path, offset, size


def path_in(location: str, folder: Path, name: str) -> Path:
    """A file of the model's own folder. Raises OnnxError where a location leads out of it, or to no file."""
    parts = PurePosixPath(location).parts
    inside = bool(parts) and not PurePosixPath(location).is_absolute() and ".." not in parts
    path = folder.joinpath(*parts) if inside else folder
    if not inside or "\\" in location or path.resolve() != folder.resolve().joinpath(*parts):
        hint = "Save the model with its data in one file, or in files beside it that are no links."
        raise OnnxError(f"the numbers of '{name}' lie outside of the model's folder", came=location, hint=hint)
    if not path.is_file():
        hint = f"Keep '{location}' in the folder of the model."
        raise OnnxError(f"the numbers of '{name}' lie in a file that is not there", came=location, hint=hint)
    return path


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Initializers, and tensors in attributes, of all graphs and functions."""
    for graph in (model.graph, *model.functions):
        yield from tensors_within(graph)


def tensors_within(graph: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    """The same of a graph or a function, with the graphs inside it."""
    yield from getattr(graph, "initializer", ())
    for node in nodes_of(graph):
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else attribute.tensors
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from inner.initializer
