"""One node of a graph while it is read, and tensors of ONNX files as arrays.

A rule gets a `Node`. It appends the ops that replace the node to `node.net`, a small net, and returns its results as
blobs of that net. Then the small net is spliced into the net of the graph. So a rule that fails leaves the net of the
graph unchanged. Export uses the same small nets as patterns, to find such ops again.

Element types become dtypes, and a tensor must have exactly the bytes that its type and sizes claim. Numbers of half
precision, float16 and bfloat16, become the net's float, which holds each of them exactly. Numbers may lie in files next
to the model, such as `model.onnx.data` of PyTorch's exporter. A model is not trusted: it may name only files in its own
folder, by a path without links and `..`. It may claim up to twice the bytes of these files, because tied weights share
a place. The package `onnx` opens and reads the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from rnnops.errors import OnnxError, RnnopsError
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.onnx.open_sizes import Dims, Known, Probes
from rnnops.ops.base import numbers_of
from rnnops.types import BOOL, FLOAT, FLOATS, INTEGERS, Array

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # versions of the op set that are implemented
MAX_DEPTH = 8  # of graphs inside graphs
OWN_DOMAINS = ("", "ai.onnx")


@contextmanager
def about(where: str) -> Iterator[None]:
    """Turns any error inside into an OnnxError with a place: a file, or a node of it."""
    try:
        yield
    except RnnopsError as error:
        details = {"net": error.net, "op": error.op, "blob": error.blob, "hint": error.hint}
        problem = f"{where}: {error.problem}"
        raise OnnxError(problem, wanted=error.wanted, came=error.came, **details) from error
    except Exception as error:  # damaged files, and rules on senseless attributes, may raise any error
        raise OnnxError(f"{where}: it makes no sense", came=f"{type(error).__name__}: {error}"[:200]) from error


def op_name(node: onnx.NodeProto) -> str:
    """An op's name, with its domain if that is not ONNX's own: `com.microsoft::QuickGelu`."""
    return str(node.op_type if node.domain in OWN_DOMAINS else f"{node.domain}::{node.op_type}")


def nodes_of(graph: onnx.GraphProto, depth: int = 0) -> Iterator[onnx.NodeProto]:
    """All nodes, including those of inner graphs. Raises OnnxError if graphs are nested too deep."""
    if depth > MAX_DEPTH:
        raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from nodes_of(inner, depth + 1)


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        found += graphs_in(attribute)
    return found


def graphs_in(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    """The graphs that an attribute holds."""
    return [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, and names that its inner graphs read or return."""
    yield from node.input
    for graph in graphs_of(node):
        yield from (value.name for value in graph.output)
        for inner in graph.node:
            yield from names_read(inner)


FAR = 2**62  # beyond any end of an axis
MAX_BYTES = 2**31 - 1  # protobuf's own limit
RANK = 64  # NumPy's arrays have at most 64 axes
ELEMENT_TYPES = {
    getattr(onnx.TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())): name
    for name in (*FLOATS[1:], *INTEGERS, BOOL)
}
HALVES = {int(onnx.TensorProto.FLOAT16): "float16", int(onnx.TensorProto.BFLOAT16): "bfloat16"}
LIMITS = {"float16": 65520.0, "bfloat16": 2.0**128 - 2.0**119}  # numbers from here on become infinite in half precision
FIELDS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
FIELDS.update(dict.fromkeys(("uint32", "uint64"), "uint64_data"))


def element_dtype(element_type: int, what: str) -> str:
    """The dtype of an ONNX element type. For half precision it is the type's own name, which nets call `"float"`.

    Raises OnnxError for a type that rnnops lacks, such as a string.
    """
    if element_type in HALVES:
        return HALVES[element_type]
    if element_type not in ELEMENT_TYPES:
        wanted, came = ", ".join([*HALVES.values(), *ELEMENT_TYPES.values()]), dtype_in_words(element_type)
        raise OnnxError(f"{what} has an element type that is not supported", wanted=wanted, came=came)
    return ELEMENT_TYPES[element_type]


def dtype_in_words(element_type: int) -> str:
    """An ONNX element type for people to read, even if rnnops lacks it."""
    known = dict(zip(onnx.TensorProto.DataType.values(), onnx.TensorProto.DataType.keys(), strict=True))
    return ELEMENT_TYPES.get(element_type) or str(known.get(element_type, f"type {element_type}")).lower()


def dtype_in_net(name: str, float_dtype: str) -> str:
    """A dtype as nets call it: the file's own float dtype, and half precision, become `"float"`."""
    return FLOAT if name == float_dtype or name in LIMITS else name


def element_type(dtype: str) -> int:
    """The ONNX element type of a dtype."""
    return next(int(number) for number, name in ELEMENT_TYPES.items() if name == dtype)


def read_tensor(tensor: onnx.TensorProto, what: str, float_dtype: str = "float32") -> Array:
    """The array of a tensor. Raises OnnxError if its bytes lie in another file, or do not fit its type and sizes.

    Args:
        float_dtype: the dtype for numbers of half precision.
    """
    if lies_elsewhere(tensor):
        raise OnnxError(f"{what} lies in another file", hint="Save the model with its data in one file.")
    name, dims = element_dtype(tensor.data_type, what), tuple(tensor.dims)
    dtype = "uint16" if name in LIMITS else name
    if len(dims) > RANK or min(dims, default=0) < 0 or tensor.HasField("segment"):
        raise OnnxError(f"{what} claims sizes that an array cannot have", came=list(dims[:RANK]))
    flat = _raw(tensor, dtype, what) if tensor.HasField("raw_data") else _listed(tensor, dtype, what)
    if flat.size != prod(dims):
        raise OnnxError(f"{what} does not hold what it claims", wanted=f"{prod(dims)} elements", came=flat.size)
    array = (flat if name == dtype else from_bits(flat, name, float_dtype)).reshape(dims)
    array.flags.writeable = False
    return array


def from_bits(bits: Array, name: str, float_dtype: str) -> Array:
    """The numbers that bits of half precision stand for."""
    with np.errstate(invalid="ignore"):  # for processors some NaN are signals
        return (bits.view(np.float16) if name == "float16" else numbers_of(bits)).astype(float_dtype)


def _raw(tensor: onnx.TensorProto, dtype: str, what: str) -> Array:
    data, stored = tensor.raw_data, np.dtype("uint8" if dtype == BOOL else dtype).newbyteorder("<")
    if len(data) % stored.itemsize:
        raise OnnxError(f"{what} ends within an element", came=f"{len(data)} bytes of {dtype}")
    flat: Array = np.frombuffer(data, stored)
    return flat != 0 if dtype == BOOL else flat.astype(dtype, copy=False)


def _listed(tensor: onnx.TensorProto, dtype: str, what: str) -> Array:
    values: Any = getattr(tensor, FIELDS.get(dtype, "int32_data"))
    wide: Array = np.array(values, {"float32": "float32", "float64": "float64", "uint64": "uint64"}.get(dtype, "int64"))
    flat = wide.astype(dtype)
    if dtype not in FLOATS and not np.array_equal(flat, wide):
        raise OnnxError(f"{what} has elements out of range", wanted=dtype)
    return flat


def read_proto(path: Path) -> tuple[onnx.ModelProto, int]:
    """A file's protobuf, and the file's size in bytes. Raises OnnxError if it is not the protobuf of a model."""
    if not path.is_file():
        raise OnnxError("it is not a file" if path.exists() else "it does not exist")
    if path.stat().st_size > MAX_BYTES:
        raise OnnxError("it is larger than a protobuf can be", wanted=f"at most {MAX_BYTES} bytes")
    data, model = path.read_bytes(), onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # the class depends on protobuf's version
        hint = "Is it an ONNX file, and is the whole file there?"
        raise OnnxError(f"it is not a protobuf of a model ({str(error)[:100]})", hint=hint) from error
    if not model.HasField("graph"):
        raise OnnxError("it has no graph", hint="Is it an ONNX file?")
    return model, len(data)


Where = tuple[Path, int, int]  # a file, the place of the first byte in it, number of bytes


def read_beside(model: onnx.ModelProto, folder: Path) -> None:
    """Reads numbers from files in the folder into the model. Raises OnnxError if they are missing."""
    elsewhere = [tensor for tensor in all_tensors(model) if lies_elsewhere(tensor)]
    places = [place_of(tensor, folder) for tensor in elsewhere]
    most = 2 * sum(path.stat().st_size for path in {path for path, _, _ in places})
    if (claimed := sum(size for _, _, size in places)) > most:
        raise OnnxError(
            "its tensors claim more than twice the bytes of the files next to it", wanted=most, came=claimed
        )
    for tensor in elsewhere:
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # `onnx` may raise any error
            raise OnnxError(f"the numbers of '{tensor.name}' cannot be read ({str(error)[:200]})") from error


def lies_elsewhere(tensor: onnx.TensorProto) -> bool:
    """True if a tensor's numbers lie in another file than its model."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data)


def place_of(tensor: onnx.TensorProto, folder: Path) -> Where:
    """The place of a tensor's numbers, which is also noted in full in the tensor.

    Raises OnnxError if the file is too short.
    """
    given = {entry.key: entry.value for entry in tensor.external_data}
    path, what = path_in(given.get("location", ""), folder, tensor.name), f"'{tensor.name}'"
    name = element_dtype(tensor.data_type, what)
    if min(tensor.dims, default=0) < 0:
        raise OnnxError(f"{what} claims sizes that an array cannot have", came=list(tensor.dims))
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
    """A file in the model's own folder. Raises OnnxError if a location leads out of it, or to no file."""
    parts = PurePosixPath(location).parts
    inside = bool(parts) and not PurePosixPath(location).is_absolute() and ".." not in parts
    path = folder.joinpath(*parts) if inside else folder
    if not inside or "\\" in location or path.resolve() != folder.resolve().joinpath(*parts):
        hint = "Save the model with its data in one file, or in files next to it that are not links."
        raise OnnxError(f"the numbers of '{name}' lie outside of the model's folder", came=location, hint=hint)
    if not path.is_file():
        hint = f"Keep '{location}' in the folder of the model."
        raise OnnxError(f"the numbers of '{name}' lie in a file that is not there", came=location, hint=hint)
    return path


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers, and tensors in attributes, of all graphs and functions."""
    for graph in (model.graph, *model.functions):
        yield from tensors_within(graph)


def tensors_within(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Initializers, and tensors in attributes, of a graph or function with its inner graphs."""
    yield from getattr(graph, "initializer", ())
    for node in nodes_of(graph):
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else attribute.tensors
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from inner.initializer


GET: dict[str, Callable[[onnx.AttributeProto], Any]] = {
    "int": lambda a: int(a.i),
    "float": lambda a: float(a.f),
    "string": lambda a: str(a.s, "utf-8"),
    "ints": lambda a: tuple(map(int, a.ints)),
    "floats": lambda a: tuple(map(float, a.floats)),
    "strings": lambda a: tuple(str(s, "utf-8") for s in a.strings),
    "tensor": lambda a: a.t,
    "graph": lambda a: a.g,
}
Attributes: TypeAlias = Mapping[str, tuple[str, Any]]  # name -> (kind, value)
Rule: TypeAlias = "Callable[[Node], Sequence[Blob | None]]"


@dataclass
class Node:
    """A node, as a rule sees it.

    Args:
        op: its type; opset: the version of the op set.
        net: the small net; wanted: for each result, True if it has a name.
        probes: known types and values of the small net's blobs.
        inputs: the node's inputs as blobs of the small net, None if left out; names: their names in the graph.
        float_dtype: dtype of the model's float data, which nets call `"float"`.
        reader: the reader of the graph around the node; bound: input of the small net -> the graph's value for it.
        read: names of the attributes that the rule has asked for.
        twins: number of an integer result -> floats of the same values. A Cast back to float takes these.
    """

    op: str
    opset: int
    attributes: Attributes
    net: Net
    wanted: list[bool]
    probes: Probes
    inputs: list[Blob | None] = field(default_factory=list)
    float_dtype: str = "float32"
    names: Sequence[str] = ()
    reader: Any = None
    bound: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    twins: dict[int, Blob] = field(default_factory=dict)

    def attr(self, name: str, kind: str, default: Any = None) -> Any:
        """The value of an attribute. Raises OnnxError if it has another kind."""
        self.read.add(name)
        if name not in self.attributes:
            return default
        came, value = self.attributes[name]
        if came != kind:
            self.fail(f"attribute '{name}' is of another kind", wanted=kind)
        return value

    def required(self, name: str, kind: str) -> Any:
        """As `attr`, for an attribute that must be given."""
        if name not in self.attributes:
            self.fail(f"attribute '{name}' is missing")
        return self.attr(name, kind)

    def given(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """Those attributes of the node that have these names and kinds."""
        found = {name: self.attr(name, kind) for name, kind in kinds.items()}
        return {name: value for name, value in found.items() if value is not None}

    def has(self, i: int) -> bool:
        """True if the i-th input is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def optional(self, i: int) -> Blob | None:
        """The i-th input. None if it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def input(self, i: int) -> Blob:
        """The i-th input. It must be given."""
        blob = self.optional(i)
        return self.fail(f"input {i} is missing") if blob is None else blob

    def value(self, i: int) -> Array | None:
        """The value of the i-th input, if it is a constant of the file; else None."""
        name = self.names[i] if i < len(self.names) else ""
        return self.reader.value(name) if name else None

    def known_value(self, i: int) -> Array | None:
        """As `value`. The value may also be computed from constants of the file and fixed sizes."""
        name = self.names[i] if i < len(self.names) else ""
        return self.reader.known_value(name) if name else None

    def outer_blob(self, name: str) -> Blob:
        """A value of the graph as an input of the small net."""
        for own, outer in self.bound.items():
            if outer == name:
                return self.net.blob(own)
        own = f"in_{len(self.bound)}"
        self.bound[own] = name
        blob, value = self.net.input(own, self.reader.dtype_of(name)), self.reader.value(name)
        if value is not None:
            self.probes.declare(own, blob.dtype, value.shape)
            self.probes.give_value(own, value)
        else:
            outer = self.reader.blob(name).name
            self.probes.give(own, self.reader.known(outer), self.reader.probes.is_certain(outer))
        return blob

    def twin(self, blob: Blob) -> Blob | None:
        """Floats of the same values as an integer input, if a rule has computed it. Else None."""
        twin = self.reader.twins.get(self.bound.get(blob.name, ""))
        return None if twin is None else self.outer_blob(twin)

    def parameter(self, i: int, array: Array, scaled: bool = False) -> Blob:
        """A float parameter of the model that replaces the i-th input. A single number becomes a constant."""
        if not array.ndim:
            return self.net.constant(array, FLOAT)
        return self.outer_blob(self.reader.parameter(self.names[i], array, scaled))

    def wants(self, i: int) -> bool:
        """True if the i-th result has a name."""
        return i < len(self.wanted) and self.wanted[i]

    def dtype(self, name: str) -> str:
        """A dtype as rnnops nets have it: the model's own float dtype is `"float"`."""
        return dtype_in_net(name, self.float_dtype)

    def known(self, blob: Blob) -> Known | None:
        """The known part of a blob's type, in the small net."""
        self.probes.follow(self.net)
        return self.probes.known(blob.name)

    def dims(self, blob: Blob) -> Dims:
        """The sizes of a blob of the small net. Open sizes are None. Empty if the type is unknown."""
        self.probes.follow(self.net)
        return self.probes.dims(blob.name) or ()

    def rank(self, blob: Blob) -> int:
        """The number of axes of a blob. It must be known."""
        known = self.known(blob)
        return self.fail("the rank of an operand is not known from the file") if known is None else known[0].rank

    def fail(self, problem: str, **details: Any) -> NoReturn:
        raise OnnxError(problem, **details)


def attributes_of(proto: onnx.NodeProto) -> Attributes:
    """All attributes of a node. Raises OnnxError for one that is given twice, or has an unsupported kind."""
    found: dict[str, tuple[str, Any]] = {}
    for attribute in proto.attribute:
        kind = onnx.AttributeProto.AttributeType.Name(attribute.type).lower()
        if attribute.name in found or attribute.ref_attr_name or kind not in GET:
            raise OnnxError(f"attribute '{attribute.name}' is given twice, or is of a kind that is not supported")
        found[attribute.name] = (kind, GET[kind](attribute))
    return found


def constant_value(attributes: Attributes, float_dtype: str) -> Array:
    """The array of a Constant node.

    Args:
        float_dtype: the dtype for numbers of half precision.
    """
    if len(attributes) != 1:
        raise OnnxError("a Constant has one attribute", came=", ".join(attributes) or "none")
    ((name, (_, value)),) = attributes.items()
    dtypes = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if name == "value" and isinstance(value, onnx.TensorProto):
        return read_tensor(value, "the value of a Constant", float_dtype)
    if name not in dtypes:
        raise OnnxError("a Constant of this kind is not supported", came=name)
    return np.array(value, dtypes[name])
