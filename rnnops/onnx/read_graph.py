"""Makes a net of a graph: an outer net of the main graph, a cell of the body of a Scan.

Constants (integers, scalars, small results of Constant nodes) come right before the first op that reads them as a blob.
Constants that only decide shapes do not appear. Other float initializers (also of bodies), and large results of
Constant nodes, are parameters of the outer net. An outer value that a body reads becomes an input of the cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.interpreter import prune
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Op, check_name, free_name
from rnnops.onnx.import_if import SEQUENCE_MAKERS, SEQUENCE_RULES, Condition, Parts, read_if, read_sequence
from rnnops.onnx.import_loop import read_loop
from rnnops.onnx.import_quantised import NARROW, VALUE_PORTS
from rnnops.onnx.node import (
    Attributes,
    Node,
    Rule,
    about,
    attributes_of,
    constant_value,
    dtype_in_net,
    graphs_of,
    nodes_of,
    op_name,
    read_tensor,
)
from rnnops.onnx.open_sizes import Dims, Known, KnownSizes, MadeUpSizes, OpenBranch, Probes
from rnnops.ops.comparison import identity
from rnnops.types import FLOAT, Array

LARGE_CONSTANT = 1024  # from this number of elements on, the result of a Constant node is a weight
SMALL = 64  # most elements of a constant that may be a shape


@dataclass
class GraphModel:
    """The state that all graphs of a file share.

    Args:
        rules: op type -> its rule; opset: version of the op set; float_dtype: dtype of the float data.
        params: values of the parameters, which reading adds.
        sizes: made-up sizes for the file's open sizes.
        branches: If nodes whose condition is not known: those that open sizes decided so far, and others while they are
            read.
        choices: condition that depends on open sizes -> the assumed value, in the order of reading.
    """

    rules: Mapping[str, Rule]
    opset: int
    float_dtype: str
    params: dict[str, Array] = field(default_factory=dict)
    sizes: MadeUpSizes = field(default_factory=MadeUpSizes)
    branches: list[OpenBranch] = field(default_factory=list)
    choices: dict[Condition, bool] = field(default_factory=dict)

    def dtype(self, name: str) -> str:
        """A dtype as nets have it: the model's own float dtype is `"float"`."""
        return dtype_in_net(name, self.float_dtype)


# inputs by op that rules take as values if a file fixes them
TAKEN_AS_VALUES = {**VALUE_PORTS, "Resize": (1, 2, 3), "Upsample": (1,)}


class GraphReader:
    """Reads one graph into a net whose inputs exist already.

    Args:
        outer: the reader of the surrounding graph; taken: names that must not be used for new values.

    Attributes:
        fits: while a branch is read that data decide: names of bools that are true if sizes fit the branch. Else None.
    """

    def __init__(
        self, model: GraphModel, net: Net, outer: GraphReader | None = None, taken: set[str] | None = None
    ) -> None:
        self.model, self.net, self.outer = model, net, outer
        self.probes = Probes(model.sizes, model.float_dtype)
        self.constants: dict[str, Array] = {}
        self.sizes = KnownSizes(self.net, is_body=outer is not None)
        self.captured: dict[str, str] = {}  # input of this net -> blob of the outer net
        self.promoted: dict[str, str] = {}  # initializer of a body -> parameter of the outer net
        self.taken: set[str] = set() if taken is None else taken
        self.recomputed: dict[str, str] = {}  # outer size -> the same size, computed in this graph
        self.read_names: set[str] = set()
        self.twins: dict[str, str] = {}  # blob of whole numbers -> blob of floats of the same values
        self.taken_as_values: set[str] = set()  # names that rules take as values if the file fixes them
        self.computed_with: set[str] = set()  # names that nodes read in any other way
        # parameters that rules made, by the name and kind of their numbers
        self.made: dict[tuple[str, bool], tuple[Array, str]] = {}
        self.sequences: dict[str, Parts] = {}  # values that are sequences of arrays
        self.fits: list[str] | None = None

    @property
    def root(self) -> GraphReader:
        return self if self.outer is None else self.outer.root

    def read(self, graph: onnx.GraphProto) -> list[Blob]:
        """Reads initializers and nodes. Returns the graph's outputs as blobs."""
        if graph.sparse_initializer:
            raise OnnxError("sparse initializers are not supported")
        self.taken.update(name for node in graph.node for name in node.output)
        self.read_names = {name for node in nodes_of(graph) for name in node.input} | results_of(graph)
        self.look_ahead(nodes_of(graph), results_of(graph))
        self.computed_with.update(tensor.name for tensor in graph.initializer if tensor.name not in self.read_names)
        for tensor in graph.initializer:
            self.read_initializer(tensor)
        for node in graph.node:
            self.read_node(node)
        return [self.blob(value.name) for value in graph.output]

    def look_ahead(self, nodes: Iterable[onnx.NodeProto], results: Iterable[str]) -> None:
        """Notes names that rules take as values (weights, scales, zero points), and names that are computed with."""
        self.computed_with.update(results)
        for node in nodes:
            ports = TAKEN_AS_VALUES.get(op_name(node), ())
            for i, name in enumerate(node.input):
                (self.taken_as_values if i in ports else self.computed_with).add(name)

    def blob(self, name: str) -> Blob:
        """A value as a blob of this net. A constant is made at its first use, and an outer value becomes an input."""
        if name in self.net:
            return self.net.blob(name)
        if name in self.constants and name not in self.promoted:
            return self._append_constant(name, self.constants[name])
        name = self.promoted.get(name, self.recomputed.get(name, name))
        if name in self.net:
            return self.net.blob(name)
        if self.sequence(name) is not None:
            raise OnnxError("a sequence is read as an array", blob=name)
        if self.outer is None or not self.outer.has(name):
            raise OnnxError("a value is read that no earlier node makes", blob=name)
        if is_small_integer(value := self.value(name)):
            self.recomputed[name] = free_name(f"{name}/again", self.root.taken)
            return self._append_constant(self.recomputed[name], value)
        blob = self.outer.blob(name)
        if (again := self._again(name, blob.name)) is not None:
            return again
        self.captured[name] = blob.name
        self.probes.give(name, self.outer.known(blob.name), self.outer.probes.is_certain(blob.name))
        return self.net.input(name, blob.dtype)

    def _again(self, name: str, outer: str) -> Blob | None:
        """Computes a known outer size again in this graph, so that it is known here too. None for other values."""
        assert self.outer is not None
        if self.outer.sizes.source(outer) is not None:
            return None
        op = next(op for op in self.outer.net.ops if outer in op.outputs)
        others = [name for name in op.inputs if self._is_own(name) and self.captured.get(name) != name]
        if op.type == "Constant" or len(op.outputs) != 1 or others:
            return None
        inputs = [self.blob(source) if source else None for source in op.inputs]
        self.recomputed[name] = free_name(f"{name}/again", self.root.taken)
        return self.net.append(op.type, inputs, op.attributes, [self.recomputed[name]])[0]

    def sequence(self, name: str) -> Parts | None:
        """The parts of a value that is a sequence of arrays, in this graph or an outer one. None for other values."""
        if self._is_own(name) or self.outer is None:
            return self.sequences.get(name)
        return self.outer.sequence(name)

    def has(self, name: str) -> bool:
        """True if this graph, or an outer one, has a value of this name."""
        return self._is_own(name) or (self.outer is not None and self.outer.has(name))

    def _is_own(self, name: str) -> bool:
        return name in self.net or name in self.constants or name in self.promoted or name in self.sequences

    def _check_new(self, names: Iterable[str]) -> None:
        for name in names:
            if self._is_own(name):
                raise OnnxError("two values have this name", blob=name)

    def value(self, name: str) -> Array | None:
        """The value of a constant of the file. None for other names."""
        own = self._is_own(name) and name not in self.captured
        return self.constants.get(name) if own or self.outer is None else self.outer.known_value(name)

    def known_value(self, name: str) -> Array | None:
        """As `value`. The value may also be computed from constants of the file and fixed sizes."""
        if name not in self.net or name in self.constants or name in self.captured:
            return self.value(name)
        self.probes.follow(self.net)
        return self.probes.certain_value(name)

    def likely_value(self, name: str) -> Array | None:
        """As `known_value`. The value may also be one that is equal for both choices of made-up sizes."""
        self.probes.follow(self.net)
        return self.probes.likely_value(name)

    def likely_numbers(self, name: str) -> tuple[int, int] | None:
        """The integers of a value for both choices of made-up sizes."""
        blob = self.blob(name)
        self.probes.follow(self.net)
        return self.probes.numbers(blob.name)

    def known(self, name: str) -> Known | None:
        """The known part of the type of a blob of this net."""
        self.probes.follow(self.net)
        return self.probes.known(name)

    def dims(self, name: str) -> Dims | None:
        """The sizes of a value. Open sizes are None, and the result is None if the type is unknown."""
        if name not in self.net and (value := self.value(name)) is not None:
            return value.shape
        blob = self.blob(name)
        self.probes.follow(self.net)
        return self.probes.dims(blob.name)

    def is_certain(self, name: str) -> bool:
        """True if the type of a value does not depend on open sizes."""
        blob = self.blob(name)
        self.probes.follow(self.net)
        return self.probes.is_certain(blob.name)

    def unknown_source(self, name: str) -> str | None:
        """The input or op that keeps a value from being known before a run. None if it is known."""
        return None if self.known_value(name) is not None else self.sizes.source(self.blob(name).name)

    def read_initializer(self, tensor: onnx.TensorProto) -> None:
        """Adds a constant, or a parameter with its value."""
        name, array = tensor.name, read_tensor(tensor, f"initializer '{tensor.name}'", self.model.float_dtype)
        self._check_new([name])
        self._weight(name, array, least=0)

    def _weight(self, name: str, array: Array, least: int) -> None:
        """Adds a parameter for an array of floats with `least` elements or more. Other arrays become constants."""
        is_data = array.dtype.name == self.model.float_dtype or (array.dtype.name in NARROW and array.ndim > 1)
        is_value = name in self.taken_as_values and name not in self.computed_with
        if not array.ndim or not is_data or is_value or array.size < least or is_no_weight(array):
            self.constants[name] = array
        elif self.outer is None:
            self._parameter(name, array)
        else:
            self.promoted[name] = self.root._parameter(free_name(name, self.root.taken), array)
        if array.dtype.name in NARROW:
            self.constants[name] = array

    def parameter(self, name: str, array: Array, scaled: bool) -> str:
        """A float parameter that a rule made of a quantised weight.

        Rules that make the same numbers share one parameter.

        Args:
            array: its numbers, which are stored in the model's float dtype.
            scaled: True if the scale is multiplied in, False if they are still whole numbers.
        """
        array = array.astype(self.model.float_dtype, copy=False)
        found, made = self.root.made.get((name, scaled), (None, ""))
        if found is None or not np.array_equal(found, array):
            hint = name.removesuffix("_quantized") if scaled else name
            made = self.root._parameter(free_name(f"{name}/float" if hint == name else hint, self.root.taken), array)
            self.root.made[name, scaled] = array, made
        return made

    def _parameter(self, name: str, array: Array) -> str:
        """Adds a parameter with its value to the net. Integers become an input that comes with its value."""
        dtype = array.dtype.name
        if dtype in NARROW:
            self.net.input(name, dtype, array.shape)
        else:
            dtype, init = FLOAT, "xavier" if array.ndim > 1 and array.size else "zeros"
            self.net.parameter(name, array.shape, init)
        self.probes.declare(name, dtype, array.shape)
        self.model.params[name] = array
        return name

    def _append_constant(self, name: str, array: Array) -> Blob:
        value = array.item() if array.ndim == 0 else array
        attributes = {"value": value, "dtype": self.model.dtype(array.dtype.name)}
        return self.net.append("Constant", [], attributes, [name])[0]

    def read_node(self, proto: onnx.NodeProto) -> None:
        """Appends the ops that a node becomes."""
        with about(f"node {proto.name or next(iter(proto.output), '')!r} ({proto.op_type})"):
            self._node(proto, attributes_of(proto))

    def _node(self, proto: onnx.NodeProto, attributes: Attributes) -> None:
        if proto.op_type == "Constant":
            return self._constant_node(proto, attributes)
        if proto.op_type == "If":
            return read_if(self, proto, attributes)
        if proto.op_type == "Loop":
            return read_loop(self, proto, attributes)
        if self._makes_a_sequence(proto):
            return read_sequence(self, proto, attributes)
        node = self._small_net(proto, attributes)
        results = list(self.model.rules[op_name(proto)](node))
        if unread := set(attributes) - node.read:
            raise OnnxError("these attributes are not supported", came=", ".join(sorted(unread)))
        if len(proto.output) > len(results):
            raise OnnxError("too many results", wanted=len(results), came=len(proto.output))
        wanted = self._wanted(proto)
        self._check_new(filter(None, wanted))
        names = result_names(node, results, wanted)
        twins = [blob.name for i, blob in node.twins.items() if node.wants(i)]
        node.net.outputs(*map(node.net.blob, dict.fromkeys([*names, *twins])))
        placed = self._splice(prune(node.net), node.bound, names, next(filter(None, wanted), proto.op_type))
        self.twins.update((wanted[i], placed[blob.name]) for i, blob in node.twins.items() if node.wants(i))
        self.sizes.check()
        self.probes.follow(self.net)
        return None

    def _makes_a_sequence(self, proto: onnx.NodeProto) -> bool:
        if proto.op_type != "Identity":
            return proto.op_type in SEQUENCE_MAKERS
        return len(proto.input) == 1 and self.sequence(proto.input[0]) is not None

    def add_sequence(self, name: str, parts: Parts) -> None:
        """Notes that a new value is a sequence."""
        self._check_new([name])
        self.sequences[name] = parts

    def _wanted(self, proto: onnx.NodeProto) -> list[str]:
        """Names of a node's results. A Scan must name all its results, so only those that are read are returned."""
        return [name if proto.op_type != "Scan" or name in self.read_names else "" for name in proto.output]

    def _constant_node(self, proto: onnx.NodeProto, attributes: Attributes) -> None:
        (name,) = proto.output
        self._check_new([name])
        value = constant_value(attributes, self.model.float_dtype)
        self._weight(name, value, LARGE_CONSTANT)

    def _small_net(self, proto: onnx.NodeProto, attributes: Attributes) -> Node:
        node = Node(
            op=proto.op_type,
            opset=self.model.opset,
            attributes=attributes,
            net=Net(self.net.name),
            wanted=[bool(name) for name in proto.output],
            probes=Probes(self.model.sizes, self.model.float_dtype),
            float_dtype=self.model.float_dtype,
            names=list(proto.input),
            reader=self,
        )
        for i, name in enumerate(proto.input):
            is_array = name and (i or proto.op_type not in SEQUENCE_RULES)
            node.inputs.append(node.outer_blob(name) if is_array else None)
        return node

    def dtype_of(self, name: str) -> str:
        """The dtype of a value. A constant does not become a blob for this."""
        if name not in self.net and (value := self.value(name)) is not None:
            return self.model.dtype(value.dtype.name)
        return self.blob(name).dtype

    def _splice(self, part: Net, bound: Mapping[str, str], results: Mapping[str, str], prefix: str) -> dict[str, str]:
        """Appends the ops of a small net.

        Its inputs are bound to values of the graph, and its results get the file's names.

        Returns the graph's names of its blobs.
        """
        read = {name for op in part.ops for name in op.inputs}
        own_inputs = [own for own in part.input_names if own in read and bound[own] not in self.constants]
        names = {own: self.blob(bound[own]).name for own in own_inputs}
        names.update(results)
        for op in part.ops:
            names.update((own, self.blob(bound[own]).name) for own in op.inputs if own in bound and own not in names)
            for name in filter(None, op.outputs):
                self._name_inner(name, part, names, prefix)
            if is_table(op):
                self._weight(names[op.outputs[0]], np.asarray(op.attributes["value"], self.model.float_dtype), 0)
                names[op.outputs[0]] = self.blob(names[op.outputs[0]]).name
                continue
            inputs = tuple(names[name] if name else "" for name in op.inputs)
            self.net.add_op(replace(op, inputs=inputs, outputs=tuple(names[n] if n else "" for n in op.outputs)))
        return names

    def _name_inner(self, name: str, part: Net, names: dict[str, str], prefix: str) -> str:
        """A name for a blob of a small net: after the node, or after a result with the same stem (`final/last`)."""
        if name not in names:
            home, _, rest = name.rpartition("/")
            around = self._name_inner(home, part, names, prefix) if home in part else prefix
            names[name] = free_name(f"{around}/{rest if home in part else name}", self.taken)
        return names[name]


def is_table(op: Op) -> bool:
    """True for a Constant with so many floats that it becomes a parameter when the net is read again."""
    is_float = op.type == "Constant" and op.attributes["dtype"] == FLOAT
    return bool(is_float and np.size(op.attributes["value"]) >= LARGE_CONSTANT)


def is_small_integer(value: Array | None) -> TypeGuard[Array]:
    """True for a constant that may decide shapes. Every graph that reads such a constant gets it."""
    return value is not None and value.dtype.kind in "iub" and value.size <= SMALL


def is_no_weight(array: Array) -> bool:
    """True for a small array without finite numbers, such as the result of `jnp.var` of nothing."""
    return 0 < array.size <= SMALL and array.dtype.kind == "f" and not np.isfinite(array).any()


def results_of(graph: onnx.GraphProto) -> set[str]:
    """Names of the outputs of a graph and of its inner graphs."""
    inner = {name for node in graph.node for body in graphs_of(node) for name in results_of(body)}
    return inner | {value.name for value in graph.output}


def result_names(node: Node, results: Sequence[Blob | None], wanted: Sequence[str]) -> dict[str, str]:
    """Blob of the small net -> name in the file. A result that is an input, or another result, is copied."""
    names: dict[str, str] = {}
    for blob, name in zip(results, wanted, strict=False):
        if not name:
            continue
        if blob is None:
            raise OnnxError("this result is not supported", blob=name)
        if blob.name in names or blob.name in node.net.input_names:
            blob = identity(blob)
        names[blob.name] = check_name(name, "value")
    return names
