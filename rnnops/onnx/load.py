"""`load` and `load_model` read an ONNX file, check it, and make a net of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx.defs import onnx_opset_version

from rnnops.errors import OnnxError
from rnnops.net.net import Net
from rnnops.net.op import Input, absolute_names, check_name
from rnnops.onnx.functions import put_definitions_in_place, put_functions_in_place, with_loops
from rnnops.onnx.import_groups import BLOCK_RULES, GROUP_RULES, MICROSOFT_RULES, NORMALIZATION_RULES, SPECTRUM_RULES
from rnnops.onnx.import_if import SEQUENCE_MAKERS, SEQUENCE_RULES, own_names
from rnnops.onnx.import_indexing import INDEXING_RULES
from rnnops.onnx.import_ops import PLAIN_RULES
from rnnops.onnx.import_quantised import QUANTISED_RULES
from rnnops.onnx.import_rnn import PROJECTION, recurrent_layer
from rnnops.onnx.import_scan import scan
from rnnops.onnx.node import (
    HALVES,
    LIMITS,
    NEWEST_OPSET,
    OLDEST_OPSET,
    OWN_DOMAINS,
    Rule,
    about,
    element_dtype,
    graphs_of,
    nodes_of,
    op_name,
    read_beside,
    read_proto,
)
from rnnops.onnx.open_sizes import Dims, dims_of, dims_of_inputs, fix_sizes, with_hints
from rnnops.onnx.read_graph import GraphModel, GraphReader
from rnnops.onnx.unrolled import join_weights
from rnnops.types import FLOATS, Array


def read_model(path: Path, known: Collection[str]) -> tuple[onnx.ModelProto, int]:
    """Reads a file. Returns its model and the version of its op set.

    Args:
        known: names of the ops that can be read.

    Raises OnnxError if the file is not a model, has an op set that is not implemented, or has ops outside of `known`.
    """
    model, _ = read_proto(path)
    read_beside(model, path.parent)
    put_functions_in_place(model)
    opset = opset_of(model)
    put_definitions_in_place(model, opset, known)
    check_ops(model, known)
    check_weights(model.graph)
    with suppress(OnnxError):  # the error comes later, while reading, and then has a place
        join_weights(model.graph)
    # If and Loop are read together with the values around them
    if any(node.op_type in ("If", "Loop") for node in nodes_of(model.graph)):
        check_scopes(model.graph)
    return model, opset


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own op set. Raises OnnxError if it is not implemented."""
    versions = {entry.version for entry in model.opset_import if entry.domain in OWN_DOMAINS}
    newest = min(NEWEST_OPSET, onnx_opset_version())
    if len(versions) != 1 or not OLDEST_OPSET <= min(versions) <= newest:
        wanted, came = f"one of {OLDEST_OPSET} to {newest}", sorted(versions) or "none"
        raise OnnxError("the version of its op set is not supported", wanted=wanted, came=came)
    return int(min(versions))


def check_ops(model: onnx.ModelProto, known: Collection[str]) -> None:
    """Raise OnnxError that lists all ops which cannot be read, with their numbers of nodes."""
    foreign = Counter(name for name in map(op_name, nodes_of(model.graph)) if name not in known)
    if foreign:
        names = sorted(foreign)
        counts = ", ".join(str(foreign[name]) for name in names)
        came = f"{', '.join(names)} (nodes of each: {counts})"
        hint = "docs/onnx.md lists the ops that can be read."
        raise OnnxError("it has ops that rnnops does not have", came=came, hint=hint)


def check_scopes(graph: onnx.GraphProto, around: Sequence[Collection[str]] = ()) -> None:
    """Raise OnnxError if a node reads a value that no earlier node makes, in this graph or around it.

    Args:
        around: names that exist in each surrounding graph.
    """
    here = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    scopes = [*around, here]
    for node in graph.node:
        check_seen(node.input, scopes)
        for inner in graphs_of(node):
            check_scopes(inner, scopes)
        here.update(node.output)
    check_seen((value.name for value in graph.output), scopes)


def check_weights(graph: onnx.GraphProto) -> None:
    """Raise OnnxError if a Concat joins weights of an LSTM with other arrays, as PyTorch writes a projection."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    joined = [node for node in graph.node if node.op_type == "Concat" and ranks.keys() >= set(node.input)]
    wrong = [node for node in joined if len({ranks[name] for name in node.input}) > 1]
    if wrong and any(node.op_type == "LSTM" for node in graph.node):
        problem = f"node '{wrong[0].name}' (Concat): arrays of different ranks become weights of an LSTM"
        raise OnnxError(problem, came=", ".join(wrong[0].input), hint=PROJECTION)


def check_seen(names: Iterable[str], scopes: Sequence[Collection[str]]) -> None:
    """Raise OnnxError for a name that no scope has."""
    for name in names:
        if name and not any(name in scope for scope in scopes):
            raise OnnxError("a value is read that no earlier node makes", blob=name)


RULES: dict[str, Rule] = {
    **PLAIN_RULES,
    **NORMALIZATION_RULES,
    **GROUP_RULES,
    **INDEXING_RULES,
    **QUANTISED_RULES,
    **MICROSOFT_RULES,
    **SPECTRUM_RULES,
    **SEQUENCE_RULES,
    **BLOCK_RULES,
    "LSTM": recurrent_layer,
    "GRU": recurrent_layer,
    "RNN": recurrent_layer,
    "Scan": scan,
}
MOST_TRIES = 16  # number of other branch choices by open sizes that are tried; each reads the file once more
READABLE = frozenset([*RULES, *SEQUENCE_MAKERS, "Constant", "If", "Loop"])


@dataclass
class OnnxModel:
    """A model that `load_model` has read from a file. `ro.onnx.export` takes it too.

    Args:
        net: the graph; its parameters are the file's float initializers.
        params: values of the parameters, read-only arrays by name.
        shapes: for each other input its sizes: a number, a name, or None for a size that the file leaves open.
        dtype: float dtype of the file's data. The net runs in float32 and in float64.
        halves: inputs and outputs that are `"float16"` or `"bfloat16"` in the file. In the net, and in a file that is
            written from it, they are ordinary floats.

    Raises:
        OnnxError: raised by `load_model`, which makes such models.

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
        """Values of the parameters, by name."""
        return dict(self.params)


def load(
    path: str | os.PathLike[str], constants: Mapping[str, object] | None = None, sizes: Mapping[str, int] | None = None
) -> Net:
    """The net of an ONNX file. `load_model` also gives the values of its parameters.

    Args:
        path: a file with its data inside.
        constants: graph input -> the array that replaces it. Use it for inputs that decide sizes.
        sizes: open size of an input -> the number that replaces it. Its key is the name in the file, else `INPUT.AXIS`,
            as in `{"x.0": 8}`. The branch of an `If` may depend on it.

    Returns:
        A net with the file's names. Its parameters are the float initializers.

    Raises:
        OnnxError: the file cannot be read exactly as it is meant; the error names file, node and op. Or a size is not
            open, is not a positive whole number, or does not fit the constants or the graph.

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
    path: str | os.PathLike[str], constants: Mapping[str, object] | None = None, sizes: Mapping[str, int] | None = None
) -> OnnxModel:
    """The net of an ONNX file, the values of its parameters, and the shapes of its inputs.

    Args:
        path, constants, sizes: as in `load`.

    Returns:
        An `OnnxModel`.

    Raises:
        OnnxError: as in `load`.

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
        raise OnnxError("this is not the path of a file", came=type(path).__name__)
    with about(os.fspath(path)), absolute_names():
        model, opset = read_model(Path(path), READABLE)
        fixed = fix_sizes(model.graph, {} if sizes is None else sizes, constants or {})
        # For example a state may change its sizes. The file is then read without rolled loops.
        with suppress(OnnxError):
            if (rolled := with_loops(model, opset)) is not None:
                return read_main_graph(rolled, opset, constants or {}, fixed)
        return read_main_graph(model, opset, constants or {}, fixed)


def read_main_graph(
    proto: onnx.ModelProto, opset: int, constants: Mapping[str, object], sizes: dict[str, int]
) -> OnnxModel:
    """Reads the graph of a model whose ops can all be read.

    Args:
        sizes: sizes that the caller has fixed, for error texts.
    """
    model = GraphModel(RULES, opset, float_dtype_of(proto.graph))
    return read_with_choices(proto.graph, model, constants, sizes, iter(range(MOST_TRIES)))


def read_with_choices(
    graph: onnx.GraphProto,
    model: GraphModel,
    constants: Mapping[str, object],
    sizes: dict[str, int],
    tries: Iterator[int],
) -> OnnxModel:
    """Reads the graph with the branches that the model chooses.

    If that fails, the last free choice is changed, and so on.

    Raises the error of the first try if all tries fail.
    """
    made = len(model.choices)
    try:
        return read_once(graph, model, constants, sizes)
    except OnnxError:
        choices = list(model.choices.items())
        for i, _ in zip(reversed(range(made, len(choices))), tries, strict=False):
            condition, taken = choices[i]
            other = GraphModel(
                RULES, model.opset, model.float_dtype, choices=dict(choices[:i]) | {condition: not taken}
            )
            with suppress(OnnxError):
                return read_with_choices(graph, other, constants, sizes, tries)
        raise


def read_once(
    graph: onnx.GraphProto, model: GraphModel, constants: Mapping[str, object], sizes: dict[str, int]
) -> OnnxModel:
    """Reads the graph into the model, which must be new."""
    with with_hints(dims_of_inputs(graph), sizes, model.branches):
        reader = GraphReader(model, Net(check_name(graph.name or "model", "net")), taken=set(own_names(graph)))
        reader.constants.update(fixed_inputs(graph, constants, model.float_dtype))
        shapes = declare_inputs(reader, graph, constants)
        for value, blob in zip(graph.output, reader.read(graph), strict=True):
            reader.net.outputs(**{value.name: blob})
    return OnnxModel(reader.net, model.params, shapes, model.float_dtype, halves_of([*graph.input, *graph.output]))


def halves_of(values: Iterable[onnx.ValueInfoProto]) -> dict[str, str]:
    """Values of half precision, with their element types."""
    return {value.name: HALVES[kind] for value in values if (kind := value.type.tensor_type.elem_type) in HALVES}


def fixed_inputs(graph: onnx.GraphProto, constants: Mapping[str, object], float_dtype: str) -> dict[str, Array]:
    """Values of inputs that the caller fixes, in the dtypes of the graph."""
    inputs = {value.name: value for value in graph.input}
    if unknown := sorted(map(str, set(constants) - set(inputs))):
        raise OnnxError("constants name values that are not inputs of the graph", came=", ".join(unknown))
    found = {}
    for name, value in constants.items():
        given, dtype = np.asarray(value), input_type(inputs[name])[0]
        dtype = float_dtype if dtype in LIMITS else dtype
        if given.dtype.kind not in "biuf" or not np.array_equal(given.astype(dtype), given, given.dtype.kind == "f"):
            raise OnnxError("a constant does not have its input's dtype", blob=name, wanted=dtype, came=given.dtype)
        found[name] = given.astype(dtype)
    return found


def declare_inputs(reader: GraphReader, graph: onnx.GraphProto, constants: Collection[str]) -> dict[str, Dims]:
    """Adds the graph's inputs without values to the net. Returns their sizes in the file."""
    valued = {tensor.name for tensor in graph.initializer} | set(constants)
    shapes: dict[str, Dims] = {}
    for value in graph.input:
        if value.name in valued:
            continue
        dtype, dims = input_type(value)
        fixed = dims if dims is not None and all(isinstance(dim, int) for dim in dims) else None
        sizes = {} if dims is None or fixed else {i: dim for i, dim in enumerate(dims) if isinstance(dim, int)}
        reader.net.add_input(Input(value.name, reader.model.dtype(dtype), fixed, fixed=sizes))  # type: ignore[arg-type]
        if dims is not None:
            reader.probes.declare(value.name, reader.model.dtype(dtype), dims)
            shapes[value.name] = dims
    return shapes


def input_type(value: onnx.ValueInfoProto) -> tuple[str, Dims | None]:
    """Dtype and sizes of a graph input. Sizes are None if the file does not give the number of axes."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise OnnxError("an input is not a tensor", blob=value.name)
    kind = value.type.tensor_type
    dtype = element_dtype(kind.elem_type, f"input '{value.name}'")
    return dtype, dims_of(value)


def float_dtype_of(graph: onnx.GraphProto) -> str:
    """The one float dtype: of the graph's inputs, else of its initializers, else float32."""
    numbers = {"float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE}
    kinds = [value.type.tensor_type.elem_type for value in graph.input]
    found = [name for name in FLOATS[1:] if numbers[name] in kinds]
    if len(found) > 1:
        raise OnnxError("a graph has both float32 and float64 inputs", hint="A run has one float dtype.")
    kinds += [tensor.data_type for tensor in graph.initializer]
    return next((name for name in FLOATS[1:] if numbers[name] in kinds), "float32") if not found else found[0]
