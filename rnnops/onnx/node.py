"""One node of a graph while it is read: its attributes, and a small net of its own that the ops replacing it go to.

A rule takes a `Node` and returns its results as blobs of `node.net`. The small net is then spliced into the net of the
graph; a rule that fails leaves that net as it was, and the same small net is the pattern by which export finds such
ops again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from rnnops.blob import Blob
from rnnops.net import Net
from rnnops.onnx.open_sizes import Known, Probes
from rnnops.onnx.package import AttributeProto, NodeProto, OnnxError, TensorProto
from rnnops.onnx.tensors import dtype_in_net, read_tensor
from rnnops.types import Array

GET: dict[int, Callable[[AttributeProto], Any]] = {
    AttributeProto.INT: lambda a: int(a.i),
    AttributeProto.FLOAT: lambda a: float(a.f),
    AttributeProto.STRING: lambda a: str(a.s, "utf-8"),
    AttributeProto.INTS: lambda a: tuple(map(int, a.ints)),
    AttributeProto.FLOATS: lambda a: tuple(map(float, a.floats)),
    AttributeProto.STRINGS: lambda a: tuple(str(s, "utf-8") for s in a.strings),
    AttributeProto.TENSOR: lambda a: a.t,
    AttributeProto.GRAPH: lambda a: a.g,
}
KINDS = {
    "int": AttributeProto.INT,
    "float": AttributeProto.FLOAT,
    "string": AttributeProto.STRING,
    "ints": AttributeProto.INTS,
    "floats": AttributeProto.FLOATS,
    "strings": AttributeProto.STRINGS,
    "tensor": AttributeProto.TENSOR,
    "graph": AttributeProto.GRAPH,
}

Rule: TypeAlias = "Callable[[Node], Sequence[Blob | None]]"


@dataclass
class Node:
    """A node under a rule.

    Args:
        op: its type; opset: the version of the op set; attributes: name -> (ONNX kind, value).
        net: the small net; wanted: for each result, whether it has a name.
        probes: what is known of the small net's blobs.
        inputs: the node's inputs as blobs of the small net, None for one left out.
        values: the inputs' values, where they are constants of the file.
        computed: the inputs' values, where they follow from constants of the file and fixed sizes.
        float_dtype: of the model's float data, which `"float"` stands for.
        reader: reads graphs inside this node; read: names of attributes that the rule has asked for.
        twins: number of a result that is integers -> floats of the same values, which a Cast back to float takes.
    """

    op: str
    opset: int
    attributes: Mapping[str, tuple[int, Any]]
    net: Net
    wanted: list[bool]
    probes: Probes
    inputs: list[Blob | None] = field(default_factory=list)
    values: list[Array | None] = field(default_factory=list)
    computed: list[Array | None] = field(default_factory=list)
    float_dtype: str = "float32"
    reader: Any = None
    read: set[str] = field(default_factory=set)
    twins: dict[int, Blob] = field(default_factory=dict)

    def attr(self, name: str, kind: str, default: Any = None) -> Any:
        """An attribute's value. Raises OnnxError where it is of another kind."""
        self.read.add(name)
        if name not in self.attributes:
            return default
        number, value = self.attributes[name]
        if number != KINDS[kind]:
            self.fail(f"attribute '{name}' is of another kind", wanted=kind)
        return value

    def required(self, name: str, kind: str) -> Any:
        """As `attr`, for an attribute that must be there."""
        if name not in self.attributes:
            self.fail(f"attribute '{name}' is missing")
        return self.attr(name, kind)

    def has(self, i: int) -> bool:
        """True if the i-th input is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def optional(self, i: int) -> Blob | None:
        """The i-th input, None where it is left out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def input(self, i: int) -> Blob:
        """The i-th input, which must be given."""
        blob = self.optional(i)
        return self.fail(f"input {i} is missing") if blob is None else blob

    def value(self, i: int) -> Array | None:
        """The value of the i-th input, where it is a constant of the file."""
        return self.values[i] if i < len(self.values) else None

    def known_value(self, i: int) -> Array | None:
        """As `value`, also where it is computed from constants of the file and fixed sizes."""
        return self.computed[i] if i < len(self.computed) else None

    def wants(self, i: int) -> bool:
        """True if the i-th result has a name."""
        return i < len(self.wanted) and self.wanted[i]

    def dtype(self, name: str) -> str:
        """A dtype as rnnops nets have it: the model's own float dtype is `"float"`."""
        return dtype_in_net(name, self.float_dtype)

    def known(self, blob: Blob) -> Known | None:
        """The known part of the type of a blob of the small net."""
        self.probes.follow(self.net)
        return self.probes.known(blob.name)

    def rank(self, blob: Blob) -> int:
        """The number of axes of a blob, which must be known."""
        known = self.known(blob)
        return self.fail("the rank of an operand does not follow from the file") if known is None else known[0].rank

    def fail(self, problem: str, **details: Any) -> NoReturn:
        raise OnnxError(problem, **details)


def attributes_of(proto: NodeProto) -> dict[str, tuple[int, Any]]:
    """All attributes of a node. Raises OnnxError for one given twice, or of a kind that no op here has."""
    found: dict[str, tuple[int, Any]] = {}
    for attribute in proto.attribute:
        if attribute.name in found or attribute.ref_attr_name or attribute.type not in GET:
            raise OnnxError(f"attribute '{attribute.name}' is given twice, or is of a kind that is not supported")
        found[attribute.name] = (attribute.type, GET[attribute.type](attribute))
    return found


def constant_value(attributes: Mapping[str, tuple[int, Any]], float_dtype: str) -> Array:
    """The array of a Constant node.

    Args:
        float_dtype: what numbers of half precision become.
    """
    if len(attributes) != 1:
        raise OnnxError("a Constant has one attribute", came=", ".join(attributes) or "none")
    ((name, (_, value)),) = attributes.items()
    dtypes = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if name == "value" and isinstance(value, TensorProto):
        return read_tensor(value, "the value of a Constant", float_dtype)
    if name not in dtypes:
        raise OnnxError("a Constant of this kind is not supported", came=name)
    return np.array(value, dtypes[name])
