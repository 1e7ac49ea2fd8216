"""Reports on a file: its outline, and the accuracy of its products of quantised numbers.

**The outline** uses only the protobuf, so it works for files that rnnops cannot read as a net. Nothing is computed and
no tensor is read: sizes and element types are those that the file claims. It gives the kind, layer, directions, sizes,
weights and branch of each recurrence. The number of a layer is the number of recurrences that its data has passed,
itself included.

**Products of quantised numbers** are compared node by node: the exact result, rnnops's, ONNX Runtime's, and the count
of sums beyond 16 bits. If outputs differ from ONNX Runtime's, each node with such a product is run separately, on the
values that ONNX Runtime has in the same call. The reference device computes the exact result: float32 holds whole
numbers up to 2^24.

**Without VNNI, ONNX Runtime's own numbers may be wrong.** Its x86 kernels multiply unsigned bytes (the left side) by
signed bytes (the right side) with `vpmaddubsw`. This instruction adds two neighbouring products in 16 bits and stops at
-32768 and 32767. Pairs whose exact sum lies beyond are counted here on any processor. A signed left side is moved by
128 first, as ONNX Runtime does. Unsigned right sides have other kernels, which are exact.

Limits: only nodes of the main graph are compared. Pairs of a convolution are counted for one group and explicit `pads`.
A `ConvInteger` has its weights on the left, so its kernels are the exact ones.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view

from rnnops.compiler import compile as compile_net
from rnnops.errors import OnnxError
from rnnops.net.op import absolute_names, free_name
from rnnops.onnx.functions import put_definitions_in_place, put_functions_in_place, with_loops
from rnnops.onnx.load import READABLE, opset_of, read_main_graph
from rnnops.onnx.node import (
    MAX_DEPTH,
    attributes_of,
    dtype_in_words,
    graphs_in,
    graphs_of,
    op_name,
    read_beside,
    read_proto,
)
from rnnops.onnx.open_sizes import Dims, dims_of
from rnnops.types import Array

CELLS = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
LOOPS = ("Scan", "Loop")
WEIGHTS = (1, 2, 3, 7)  # places of weights, biases and peepholes among a cell's inputs
Scope: TypeAlias = "ChainMap[str, Any]"


@dataclass(frozen=True)
class OutlineLayer:
    """A recurrence of the outline.

    Args:
        kind: its op; number: number of its layer, 1 if it reads no other recurrence.
        direction: `forward`, `reverse` or `bidirectional`; empty for loops.
        sizes: `96 -> 64`, features of input and state, `?` if the file does not give them; for loops, the carried
            values.
        weights: count of numbers; None if they are not in the file as initializers or constants.
        name: of the node; places: branches and bodies around it, the outermost first.
    """

    kind: str
    number: int
    direction: str
    sizes: str
    weights: int | None
    name: str
    places: tuple[str, ...]


@dataclass
class _RecurrenceWalk:
    """A walk over graphs that gathers recurrences in `found`."""

    found: list[OutlineLayer]

    def walk(self, graph: onnx.GraphProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The largest layer number among the values that a graph computes.

        Args:
            depths: value -> layer that it comes from; dims: value -> sizes of a tensor in the file.
        """
        dims.update({tensor.name: tuple(tensor.dims) for tensor in graph.initializer})
        deepest = 0
        for node in graph.node:
            dims.update({name: tuple(tensor.dims) for name in node.output for tensor in constants_of(node)})
            depth = self.node(node, places, depths, dims)
            depths.update(dict.fromkeys(node.output, depth))
            deepest = max(deepest, depth)
        return deepest

    def node(self, node: onnx.NodeProto, places: tuple[str, ...], depths: Scope, dims: Scope) -> int:
        """The layer that a node's results come from."""
        depth = max((depths.get(name, 0) for name in node.input), default=0)
        if is_recurrent := node.op_type in (*CELLS, *LOOPS):
            depth += 1
            self.found.append(layer_of(node, depth, places, dims))
        for place, inner in placed_graphs(node, places):
            inside = self.walk(inner, place, depths.new_child(), dims.new_child())
            depth = depth if is_recurrent else max(depth, inside)
        return depth


def constants_of(node: onnx.NodeProto) -> list[onnx.TensorProto]:
    """The tensor of a Constant node, in a list. Empty for other nodes."""
    found = node.attribute if node.op_type == "Constant" else ()
    return [attribute.t for attribute in found if attribute.type == onnx.AttributeProto.TENSOR]


def layer_of(node: onnx.NodeProto, number: int, places: tuple[str, ...], dims: Scope) -> OutlineLayer:
    """The outline of a node that is a recurrence."""
    attributes, name = {attribute.name: attribute for attribute in node.attribute}, called(node)
    if node.op_type in LOOPS:
        return OutlineLayer(node.op_type, number, "", loop_sizes(node, attributes), None, name, places)
    direction = attributes["direction"].s.decode("utf-8", "replace") if "direction" in attributes else "forward"
    sizes = cell_sizes(node, attributes, dims)
    return OutlineLayer(node.op_type, number, direction, sizes, weights_of(node.input, dims), name, places)


def cell_sizes(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto], dims: Scope) -> str:
    """`96 -> 64`: features of the input (from the weights) and of the state."""
    # shape of W: [directions, 4 H, D], or [directions, D, 4 H]
    axis = 1 if node.op_type == "DynamicQuantizeLSTM" else 2
    w = dims.get(node.input[1], ()) if len(node.input) > 1 else ()
    features = w[axis] if len(w) == 3 else "?"
    return f"{features} -> {attributes['hidden_size'].i if 'hidden_size' in attributes else '?'}"


def loop_sizes(node: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> str:
    """The number of values that a loop carries, and of ops in a step, as text."""
    scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
    carried = len(node.input) - (scanned if node.op_type == "Scan" else 2)  # a Loop has a trip count and a condition
    steps = [f"{len(one.g.node)} ops a step" for one in node.attribute if one.type == onnx.AttributeProto.GRAPH]
    return ", ".join([f"{max(carried, 0)} states", *steps[:1]])


def weights_of(inputs: Sequence[str], dims: Scope) -> int | None:
    """The count of numbers in a cell's weights, biases and peepholes."""
    sizes = [dims.get(inputs[place]) for place in WEIGHTS if len(inputs) > place and inputs[place]]
    return None if None in sizes else sum(prod(max(size, 0) for size in one) for one in sizes if one is not None)


FIRST = 3  # number of nodes that are named for an unsupported op
BYTES = {"complex128": 16, "complex64": 8}
BYTES |= dict.fromkeys(("int64", "uint64", "float64"), 8) | dict.fromkeys(("float32", "int32", "uint32"), 4)
BYTES |= dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2)
QUANTISED = ("int8", "uint8")
Places: TypeAlias = "tuple[str, ...]"  # branches and bodies around a node, the outermost first


@dataclass(frozen=True)
class Value:
    """An input or output. `dims` is None if the file does not give the number of axes."""

    name: str
    dtype: str
    dims: Dims | None


@dataclass(frozen=True)
class TensorCounts:
    """Counts for one element type: tensors in the file, their numbers, and the bytes of these."""

    dtype: str
    tensors: int
    numbers: int
    nbytes: int


@dataclass(frozen=True)
class Unsupported:
    """An op that rnnops does not read.

    Args:
        op: its type, with its domain unless that is ONNX's own; domain: `ai.onnx` for ONNX's own.
        count: number of nodes; first: names of the first few, with the branches around them.
    """

    op: str
    domain: str
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True)
class Outline:
    """The outline of a file.

    Args:
        nbytes: size of the file; producer: the program that wrote it, and its version.
        opsets: domain -> version; functions: names of the model's own functions.
        layers: recurrences, including those in branches and bodies.
        parameters: tensors of floats and of bytes that have axes; others: all other tensors.
        ops: op -> number of its nodes, including those in branches and bodies.
    """

    nbytes: int
    ir_version: int
    producer: str
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    layers: tuple[OutlineLayer, ...]
    parameters: tuple[TensorCounts, ...]
    others: tuple[TensorCounts, ...]
    ops: Counter[str]
    unsupported: tuple[Unsupported, ...]


def outline(model: onnx.ModelProto, nbytes: int) -> Outline:
    """The outline of a model. Raises OnnxError if graphs are nested too deep."""
    graph = as_read(model).graph
    nodes = list(placed_nodes(graph))
    valued = {tensor.name for tensor in graph.initializer}
    (parameters, others), layers = tensors_of(graph), list[OutlineLayer]()
    _RecurrenceWalk(layers).walk(graph, (), ChainMap(), ChainMap())
    return Outline(
        nbytes=nbytes,
        ir_version=model.ir_version,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        opsets=tuple((entry.domain or "ai.onnx", entry.version) for entry in model.opset_import),
        functions=tuple(f"{one.domain}::{one.name}" for one in model.functions),
        inputs=tuple(value_of(one) for one in graph.input if one.name not in valued),
        outputs=tuple(map(value_of, graph.output)),
        layers=tuple(layers),
        parameters=parameters,
        others=others,
        ops=Counter(op_name(node) for node, _ in nodes),
        unsupported=tuple(unsupported_of(nodes)),
    )


def placed_nodes(graph: onnx.GraphProto, places: Places = ()) -> Iterator[tuple[onnx.NodeProto, Places]]:
    """All nodes, with the branches around them. Raises OnnxError if graphs are nested too deep."""
    if len(places) > MAX_DEPTH:
        raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
    for node in graph.node:
        yield node, places
        for place, inner in placed_graphs(node, places):
            yield from placed_nodes(inner, place)


def placed_graphs(node: onnx.NodeProto, places: Places) -> Iterator[tuple[Places, onnx.GraphProto]]:
    """The graphs in a node's attributes. Each comes with the branches around it and its own name."""
    for attribute in node.attribute:
        place = f"{attribute.name} of {node.op_type} '{called(node)}'"
        yield from (((*places, place), inner) for inner in graphs_in(attribute))


def called(node: onnx.NodeProto) -> str:
    """The name of a node, else of its first result."""
    return str(node.name or next(filter(None, node.output), ""))


def value_of(value: onnx.ValueInfoProto) -> Value:
    """An input or output as the file describes it."""
    kind = value.type.WhichOneof("value") or "nothing said"
    if kind != "tensor_type":
        return Value(value.name, kind.removesuffix("_type"), None)
    return Value(value.name, dtype_in_words(value.type.tensor_type.elem_type), dims_of(value))


def tensors_of(graph: onnx.GraphProto) -> tuple[tuple[TensorCounts, ...], tuple[TensorCounts, ...]]:
    """Counts by dtype, including inner graphs: of parameters (floats and bytes with axes), then of other tensors."""
    found: defaultdict[tuple[bool, str], list[int]] = defaultdict(list)
    for tensor in all_tensors(graph):
        dtype = dtype_in_words(tensor.data_type)
        weighs = "float" in dtype or dtype in QUANTISED
        found[weighs and len(tensor.dims) > 0, dtype].append(prod(max(size, 0) for size in tensor.dims))
    rows = [
        (is_parameter, TensorCounts(dtype, len(sizes), sum(sizes), sum(sizes) * BYTES.get(dtype, 1)))
        for (is_parameter, dtype), sizes in found.items()
    ]
    return tuple(row for is_parameter, row in rows if is_parameter), tuple(row for other, row in rows if not other)


def all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes, including those of inner graphs."""
    yield from graph.initializer
    for node in graph.node:
        yield from constants_of(node)
        for inner in graphs_of(node):
            yield from all_tensors(inner)


def as_read(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with functions and definitions in place and loops rolled up. Unchanged if that fails."""
    read = deepcopy(model)
    with suppress(OnnxError):  # reading the file raises the error
        put_functions_in_place(read)
        put_definitions_in_place(read, opset_of(read), READABLE)
        read = with_loops(read, opset_of(read)) or read
    return read


def unsupported_of(nodes: list[tuple[onnx.NodeProto, Places]]) -> Iterator[Unsupported]:
    """The ops among nodes that rnnops cannot read, by name."""
    found: defaultdict[tuple[str, str], list[tuple[onnx.NodeProto, Places]]] = defaultdict(list)
    for node, places in nodes:
        if op_name(node) not in READABLE:
            found[op_name(node), node.domain].append((node, places))
    for (op, domain), these in sorted(found.items(), key=lambda item: item[0]):
        first = tuple(" in ".join((f"'{called(node)}'", *reversed(places))) for node, places in these[:FIRST])
        yield Unsupported(op, domain or "ai.onnx", len(these), first)


Arrays: TypeAlias = Mapping[str, Array]
Matrices: TypeAlias = Iterable[tuple[Array, Array]]  # left [M, K] and right [K, N] sides, numbers of 8 bits
Operands: TypeAlias = "Callable[[onnx.NodeProto, Sequence[Any], Arrays], Matrices]"
SHORT = np.iinfo("int16")
LSTM = "com.microsoft::DynamicQuantizeLSTM"
FLIPS = 0.01  # relative change of states near the middle of two 8-bit numbers, as these may be rounded the other way


@dataclass(frozen=True)
class ProductNode:
    """A node with a product of quantised numbers.

    Args:
        name, op: of the node. Without a name, its first result.
        theirs, ours: errors of ONNX Runtime and of rnnops, relative to the largest exact value. An LSTM of ONNX Runtime
            is compared with an LSTM that rounds x and states to 8 bits, as ONNX Runtime does; nan if that is not
            available.
        beyond, pairs: number of neighbouring products whose sum lies beyond 16 bits, and number of all pairs.
    """

    name: str
    op: str
    theirs: float
    ours: float
    beyond: int
    pairs: int

    def saturates(self, tolerance: float) -> bool:
        """True if ONNX Runtime's result is wrong, rnnops's is right, and sums leave 16 bits."""
        most = max(tolerance, FLIPS) if self.op == LSTM else tolerance
        return bool(self.beyond) and self.ours <= tolerance and self.theirs > most


def products_of_file(
    path: Path, feeds: Arrays, run: Callable[[onnx.ModelProto, Arrays], Arrays]
) -> Iterator[ProductNode]:
    """The nodes of a file that multiply quantised numbers. Each is compared with its exact result.

    Args:
        run: runs a model in ONNX Runtime. It gets the file with more outputs.

    Raises OnnxError for a node that cannot be read, and the errors of `run`.
    """
    model, _ = read_proto(path)
    read_beside(model, path.parent)
    nodes = [node for node in model.graph.node if op_name(node) in OPERANDS]
    if not nodes:
        return
    fixed = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    name_states(model.graph, nodes)
    values = {**feeds, **run(with_outputs(model, nodes, {*fixed, *feeds}), feeds), **fixed}
    for node in nodes:
        yield product_of_node(model, node, values, fixed)


def name_states(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Makes all states of each LSTM a result, because the product of the next step reads them."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    for node in nodes:
        if op_name(node) == LSTM and not node.output[0]:
            node.output[0] = free_name(f"{node.name}/states", taken)


def with_outputs(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], known: set[str]) -> onnx.ModelProto:
    """A model whose outputs also include the values that these nodes read and make."""
    there = known | {value.name for value in model.graph.output}
    wanted = dict.fromkeys(name for node in nodes for name in (*node.input, *node.output) if name not in {"", *there})
    more = onnx.ModelProto()
    more.CopyFrom(model)
    more.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return more


def product_of_node(model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays, fixed: Arrays) -> ProductNode:
    """Compares one node."""
    free = {name: values[name] for name in node.input if name and name not in fixed}
    theirs = {name: values[name] for name in node.output if name}
    with absolute_names():
        alone = one_node(model, node, free, {name: fixed[name] for name in node.input if name in fixed}, theirs)
        read = read_main_graph(alone, opset_of(alone), {}, {})
    exact, ours = (compile_net(read.net, device=device).bind(**read.params)(free) for device in ("reference", "cpu"))
    inputs = [values.get(name) for name in node.input]
    wanted = rounded_lstm(node, inputs) if op_name(node) == LSTM else exact
    operands = OPERANDS[op_name(node)](node, inputs, values)
    counts = np.array([(0, 0), *(pairs_beyond(*each) for each in operands)]).sum(0)
    name = node.name or next(iter(theirs))
    return ProductNode(name, op_name(node), apart(theirs, wanted), apart(ours, exact), *map(int, counts))


def one_node(
    model: onnx.ModelProto, node: onnx.NodeProto, free: Arrays, fixed: Arrays, results: Arrays
) -> onnx.ModelProto:
    """A model of one node. Some of its inputs are weights."""
    inputs, outputs = (
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        for arrays in (free, results)
    )
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()]
    graph = onnx.helper.make_graph([node], "node", inputs, outputs, weights)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def apart(out: Arrays, exact: Arrays) -> float:
    """The largest difference, relative to the largest value, of numbers of any dtype."""
    pairs = [(out[name].astype("float64"), exact[name].astype("float64")) for name in exact]
    return max((float(np.abs(a - b).max(initial=0) / np.abs(b).max(initial=1e-30)) for a, b in pairs), default=np.nan)


def pairs_beyond(a: Array, b: Array) -> tuple[int, int]:
    """Number of neighbouring products in `a @ b` whose sum lies beyond 16 bits, and number of pairs.

    Args:
        a: [M, K] of uint8 or int8; b: [K, N]. If b is uint8, no pair counts as beyond.
    """
    pairs = a.shape[0] * ((a.shape[1] + 1) // 2) * b.shape[1]
    if b.dtype != np.int8:
        return 0, pairs
    left, right = a.astype("int32") + (128 if a.dtype == np.int8 else 0), b.astype("int32")
    beyond = 0
    for k in range(0, a.shape[1] - 1, 2):  # a last product without a neighbour fits into 16 bits
        columns = right[k : k + 2]
        reached = 255 * np.maximum(columns, 0).sum(0), 255 * np.minimum(columns, 0).sum(0)
        columns = columns[:, (reached[0] > SHORT.max) | (reached[1] < SHORT.min)]
        sums = left[:, k : k + 2] @ columns
        beyond += int(np.count_nonzero((sums > SHORT.max) | (sums < SHORT.min)))
    return beyond, pairs


def sides(left: int, right: int) -> Operands:
    """Makes the operands of a product, from the places of both sides among a node's inputs."""

    def operands(node: onnx.NodeProto, inputs: Sequence[Any], values: Arrays) -> Matrices:
        a, b = inputs[left], inputs[right]
        yield from matrices(in_bytes(a).numbers if a.dtype.kind == "f" else a, b)

    return operands


def matrices(a: Array, b: Array) -> Matrices:
    """Pairs of matrices, from a stack of products."""
    a, b = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
    if b.ndim == 2:
        return [(a.reshape(-1, a.shape[-1]), b)]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    lefts, rights = (np.broadcast_to(x, stack + x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (a, b))
    return zip(lefts, rights, strict=True)


class InBytes(NamedTuple):
    """Floats that are rounded to 8 bits by their own range, as a DynamicQuantizeLinear does:

    `(numbers - zero) * scale`.
    """

    numbers: Array
    zero: Array
    scale: Array

    def meant(self) -> Array:
        """The floats that the numbers stand for, as float64."""
        return np.asarray((self.numbers - np.float64(self.zero)) * self.scale)


def in_bytes(x: Array) -> InBytes:
    """Rounds an array to 8 bits."""
    low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    scale = np.float32(high - low or 1) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return InBytes(np.clip(np.rint(x / scale) + zero, 0, 255).astype("uint8"), zero, scale)


def states_of_lstm(node: onnx.NodeProto, inputs: Sequence[Any], values: Arrays) -> Matrices:
    """The products of an LSTM: x with W, and R with ONNX Runtime's states before each step."""
    x, w, r, *_, initial = inputs[:6]
    states = values[node.output[0]]
    for d in range(len(w)):
        yield in_bytes(x).numbers.reshape(-1, x.shape[-1]), w[d]
        before = [*(states[1:, d] if is_backwards(node, d) else states[:-1, d])]
        before += [] if initial is None else [initial[d]]
        yield np.concatenate([np.zeros((0, len(r[d])), "uint8"), *(in_bytes(step).numbers for step in before)]), r[d]


def is_backwards(node: onnx.NodeProto, direction: int) -> bool:
    """True if a direction of an LSTM begins with the last step."""
    return bool(direction) or attribute_values(node).get("direction") == "reverse"


def rounded_lstm(node: onnx.NodeProto, inputs: Sequence[Any]) -> dict[str, Array]:
    """All states of an LSTM that rounds x, and its states at each step, to 8 bits by the range of all rows.

    Empty for an LSTM with lengths, peepholes or unusual activations.
    """
    x, w, r, bias, lengths, initial, cell, peepholes, *parts = inputs
    unusual = {name for name, value in attribute_values(node).items() if value} - {"direction", "hidden_size"}
    if lengths is not None or peepholes is not None or unusual:
        return {}
    states = np.zeros((len(x), len(w), x.shape[1], len(r[0])))
    for d in range(len(w)):
        scales = [np.broadcast_to(part[d], w.shape[-1]) for part in parts]
        weight, recurrent = (
            (each[d] - np.float64(zero)) * scale for each, scale, zero in ((w, *scales[:2]), (r, *scales[2:]))
        )
        gates = in_bytes(x).meant() @ weight + (0 if bias is None else bias[d].reshape(2, -1).sum(0))
        h, c = (states[0, d] if each is None else each[d] for each in (initial, cell))
        for t in range(len(x))[:: -1 if is_backwards(node, d) else 1]:
            i, o, f, g = np.split(gates[t] + in_bytes(h.astype("float32")).meant() @ recurrent, 4, -1)
            i, o, f = (1 / (1 + np.exp(-gate)) for gate in (i, o, f))
            c = f * c + i * np.tanh(g)
            states[t, d] = h = o * np.tanh(c)
    return {node.output[0]: states}


def windows_of_conv(node: onnx.NodeProto, inputs: Sequence[Any], values: Arrays) -> Matrices:
    """The product of a QLinearConv: windows (channels last) and weights."""
    x, zero, w = inputs[0], inputs[2], inputs[3]
    attributes, rank = attribute_values(node), w.ndim - 2
    pads = attributes.get("pads") or [0] * 2 * rank
    if attributes.get("group", 1) != 1 or attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, around, constant_values=0 if zero is None else zero.item())
    reach = [(size - 1) * step + 1 for size, step in zip(w.shape[2:], dilations, strict=True)]
    windows = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    every = [slice(None, None, step) for step in (1, 1, *strides, *dilations)]
    windows = windows[tuple(every)]
    order = (0, *range(2, 2 + 2 * rank), 1)
    yield (windows.transpose(order).reshape(-1, w[0].size), w.transpose(*range(2, 2 + rank), 1, 0).reshape(-1, len(w)))


def attribute_values(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, without their kinds."""
    return {name: value for name, (_, value) in attributes_of(node).items()}


OPERANDS: dict[str, Operands] = {
    "ConvInteger": lambda node, inputs, values: (),  # its kernels do not add pairs in 16 bits
    "MatMulInteger": sides(0, 1),
    "QLinearConv": windows_of_conv,
    "QLinearMatMul": sides(0, 3),
    "com.microsoft::DynamicQuantizeMatMul": sides(0, 1),
    "com.microsoft::MatMulIntegerToFloat": sides(0, 1),
    "com.microsoft::QLinearConv": windows_of_conv,
    LSTM: states_of_lstm,
}
