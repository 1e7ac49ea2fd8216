"""`load`, `load_model`: ONNX files as nets. The `onnx` package parses; meaning and limits are checked here."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rnnops.net import Net
from rnnops.onnx.errors import OnnxError, about
from rnnops.onnx.import_blocks import BLOCK_RULES
from rnnops.onnx.import_groups import GROUP_RULES
from rnnops.onnx.import_masks import MASK_RULES
from rnnops.onnx.import_microsoft import MICROSOFT_RULES
from rnnops.onnx.import_normalization import NORMALIZATION_RULES
from rnnops.onnx.import_ops import PLAIN_RULES
from rnnops.onnx.import_ordering import ORDERING_RULES
from rnnops.onnx.import_quantised import QUANTISED_RULES
from rnnops.onnx.import_quantised_conv import QUANTISED_CONV_RULES
from rnnops.onnx.import_resize import RESIZE_RULES
from rnnops.onnx.import_rnn import recurrent_layer
from rnnops.onnx.import_scan import scan
from rnnops.onnx.import_scatter import SCATTER_RULES
from rnnops.onnx.import_sequences import SEQUENCE_OPS
from rnnops.onnx.import_spectra import SPECTRUM_RULES
from rnnops.onnx.node import Rule
from rnnops.onnx.open_sizes import dims_of, dims_of_inputs, fix_sizes, with_hints
from rnnops.onnx.package import GraphProto, ModelProto, TensorProto, ValueInfoProto
from rnnops.onnx.probes import Dims
from rnnops.onnx.read_graph import GraphReader, Model
from rnnops.onnx.read_model import read_model
from rnnops.onnx.tensors import HALVES, LIMITS, element_dtype
from rnnops.scopes import absolute_names, check_name
from rnnops.types import FLOATS, Array

RULES: dict[str, Rule] = {
    **PLAIN_RULES,
    **MASK_RULES,
    **NORMALIZATION_RULES,
    **ORDERING_RULES,
    **GROUP_RULES,
    **RESIZE_RULES,
    **SCATTER_RULES,
    **QUANTISED_RULES,
    **MICROSOFT_RULES,
    **QUANTISED_CONV_RULES,
    **SPECTRUM_RULES,
    **BLOCK_RULES,
    "LSTM": recurrent_layer,
    "GRU": recurrent_layer,
    "RNN": recurrent_layer,
    "Scan": scan,
}
READABLE = frozenset([*RULES, *SEQUENCE_OPS, "Constant", "If", "Loop"])


@dataclass
class OnnxModel:
    """What `load_model` reads of a file; `ro.onnx.export` takes it, too.

    Args:
        net: the graph; its parameters are the file's float initializers.
        params: their values, read-only arrays by name.
        shapes: for each other input its sizes: a number, a name, or None for one that the file leaves open.
        dtype: of the float data in the file; the net itself runs in either.
        halves: inputs and outputs that are `"float16"` or `"bfloat16"` in the file; in the net, and where it is written
            again, they are float.

    Raises:
        OnnxError: by `load_model`, which makes it.

    Example:
        >>> net = ro.Net("net")
        >>> net.outputs(y=ro.tanh(net.input("x")))
        >>> ro.onnx.OnnxModel(net, {}, {"x": ("N", 3)}).get_params()
        {}
    """

    net: Net
    params: dict[str, Array]
    shapes: dict[str, Dims] = field(default_factory=dict)
    dtype: str = "float32"
    halves: dict[str, str] = field(default_factory=dict)

    def get_params(self) -> dict[str, Array]:
        """The parameters' values, arrays by name."""
        return dict(self.params)


def load(
    path: str | os.PathLike[str],
    constants: Mapping[str, object] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Net:
    """The net of an ONNX file; `load_model` gives the values of its parameters, too.

    Args:
        path: a file with its data inside.
        constants: graph input -> array that it is from now on, as sizes must be that a file leaves to its caller.
        sizes: open size of the inputs -> its number from now on, as though the file had it: by the name that the file
            gives it, else `INPUT.AXIS`, as in `{"x.0": 8}`. A branch of an `If` may follow from it.

    Returns:
        A net with the file's names; float initializers are its parameters.

    Raises:
        OnnxError: anything that cannot be read exactly as it is meant; it names file, node and op. A size that is not
            open, is no positive whole number, or does not fit the constants or the graph.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = ro.Net("net", sizes_for="float32")
        >>> net.outputs(y=ro.tanh(net.input("x", shape=(2, 3))))
        >>> with TemporaryDirectory() as folder:
        ...     ro.onnx.export(net, f"{folder}/net.onnx")
        ...     print(ro.onnx.load(f"{folder}/net.onnx").ops[0].type)
        Tanh
    """
    return load_model(path, constants, sizes).net


def load_model(
    path: str | os.PathLike[str],
    constants: Mapping[str, object] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> OnnxModel:
    """The net of an ONNX file, the values of its parameters, and the shapes of its inputs.

    Args:
        path, constants, sizes: as `load`'s.

    Returns:
        An `OnnxModel`.

    Raises:
        OnnxError: as `load`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = ro.Net("net", sizes_for="float32")
        >>> net.outputs(y=ro.model.Dense(4)(net.input("x", shape=(2, 3))))
        >>> with TemporaryDirectory() as folder:
        ...     ro.onnx.export(net, f"{folder}/net.onnx", ro.init_params(net, 0), {"x": ("N", 3)})
        ...     model = ro.onnx.load_model(f"{folder}/net.onnx")
        >>> ro.compile(model.net, device="reference")(model.params, x=np.ones((5, 3), "float32"))["y"].shape
        (5, 4)
        >>> model.shapes, sorted(model.params)
        ({'x': ('N', 3)}, ['dense/b', 'dense/w'])
    """
    if not isinstance(path, str | os.PathLike):
        raise OnnxError("this is no path of a file", came=type(path).__name__)
    with about(os.fspath(path)), absolute_names():
        model, opset = read_model(Path(path), READABLE)
        fixed = fix_sizes(model.graph, {} if sizes is None else sizes, constants or {})
        return read_main_graph(model, opset, constants or {}, fixed)


def read_main_graph(proto: ModelProto, opset: int, constants: Mapping[str, object], sizes: dict[str, int]) -> OnnxModel:
    """The graph of a model whose ops are all in the set.

    Args:
        sizes: those that were fixed, of which errors tell.
    """
    graph = proto.graph
    model = Model(RULES, opset, float_dtype_of(graph))
    with with_hints(dims_of_inputs(graph), sizes, model.branches):
        return read_graph(graph, model, constants)


def read_graph(graph: GraphProto, model: Model, constants: Mapping[str, object]) -> OnnxModel:
    """A graph as a net, with what comes with it."""
    reader = GraphReader(model, Net(check_name(graph.name or "model", "net")), taken=names_of(graph))
    reader.constants.update(fixed_inputs(graph, constants, model.float_dtype))
    shapes = declare_inputs(reader, graph, constants)
    outputs = reader.read(graph)
    for value, blob in zip(graph.output, outputs, strict=True):
        reader.net.outputs(**{value.name: blob})
    return OnnxModel(reader.net, model.params, shapes, model.float_dtype, halves_of([*graph.input, *graph.output]))


def halves_of(values: Iterable[ValueInfoProto]) -> dict[str, str]:
    """Which values are of half precision."""
    return {value.name: HALVES[kind] for value in values if (kind := value.type.tensor_type.elem_type) in HALVES}


def fixed_inputs(graph: GraphProto, constants: Mapping[str, object], float_dtype: str) -> dict[str, Array]:
    """Values of inputs that the caller fixes, in the dtypes of the graph."""
    inputs = {value.name: value for value in graph.input}
    if unknown := sorted(map(str, set(constants) - set(inputs))):
        raise OnnxError("constants name no inputs of the graph", came=", ".join(unknown))
    found = {}
    for name, value in constants.items():
        given, dtype = np.asarray(value), input_type(inputs[name])[0]
        dtype = float_dtype if dtype in LIMITS else dtype
        if given.dtype.kind not in "biuf" or not np.array_equal(given.astype(dtype), given, given.dtype.kind == "f"):
            raise OnnxError("a constant does not have its input's dtype", blob=name, wanted=dtype, came=given.dtype)
        found[name] = given.astype(dtype)
    return found


def declare_inputs(reader: GraphReader, graph: GraphProto, constants: Collection[str]) -> dict[str, Dims]:
    """Add the graph's inputs to the net, except those that have values; what the file says of their sizes."""
    valued = {tensor.name for tensor in graph.initializer} | set(constants)
    shapes: dict[str, Dims] = {}
    for value in graph.input:
        if value.name in valued:
            continue
        dtype, dims = input_type(value)
        fixed = dims if dims is not None and all(isinstance(dim, int) for dim in dims) else None
        reader.net.input(value.name, reader.model.dtype(dtype), fixed)  # type: ignore[arg-type]
        if dims is not None:
            reader.probes.declare(value.name, reader.model.dtype(dtype), dims)
            shapes[value.name] = dims
    return shapes


def input_type(value: ValueInfoProto) -> tuple[str, Dims | None]:
    """Dtype and sizes of a graph input, None where the file does not say how many axes there are."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise OnnxError("an input is no tensor", blob=value.name)
    kind = value.type.tensor_type
    dtype = element_dtype(kind.elem_type, f"input '{value.name}'")
    return dtype, dims_of(value)


def float_dtype_of(graph: GraphProto) -> str:
    """The one float dtype of a graph's inputs, else of its initializers, else float32."""
    numbers = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
    kinds = [value.type.tensor_type.elem_type for value in graph.input]
    found = [name for name in FLOATS[1:] if numbers[name] in kinds]
    if len(found) > 1:
        raise OnnxError("float32 and float64 inputs in one graph are not supported", hint="A run has one float dtype.")
    kinds += [tensor.data_type for tensor in graph.initializer]
    return next((name for name in FLOATS[1:] if numbers[name] in kinds), "float32") if not found else found[0]


def names_of(graph: GraphProto) -> set[str]:
    """Names of values that the file gives; made-up ones must be others."""
    names = {value.name for value in (*graph.input, *graph.output)} | {tensor.name for tensor in graph.initializer}
    return names | {name for node in graph.node for name in node.output}
