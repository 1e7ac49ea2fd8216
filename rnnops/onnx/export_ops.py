"""How each op of rnnops is written in ONNX, into a graph that grows: most by their own name, a few as small groups.

Sizes and axes that are attributes here are constant inputs there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np

from rnnops.net.schema import Call, schema_of
from rnnops.onnx.node import element_type
from rnnops.onnx.package import NodeProto, OnnxError, ValueInfoProto, helper, numpy_helper
from rnnops.ops.indexing import cuts_and_fills
from rnnops.ops.windows import geometry_of
from rnnops.types import BOOL, Array, Shape, is_float

FLOAT_ATTRIBUTES = ("alpha", "beta", "gamma", "epsilon", "momentum")


@dataclass
class GraphWriter:
    """Writes the nodes of one graph.

    Args:
        opset: the version of the op set; float_dtype: what `"float"` is in the file.
        open_sizes: made-up sizes that stand for those the file leaves open.
        names: blob of the net -> name in the file, where they differ.
        taken: names in this graph and those around it; below: in graphs inside it.
        done: keys of ops that others have written along with themselves.
    """

    opset: int
    float_dtype: str
    taken: set[str]
    open_sizes: frozenset[int] = frozenset()
    below: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def name(self, blob: str) -> str:
        """A blob's name in the file."""
        return self.names.get(blob, blob)

    def fresh(self, name: str) -> str:
        """A name that is not taken, here, around or below; it is from then on."""
        names = chain([name], (f"{name}_{k}" for k in count(1)))
        found = next(free for free in names if free not in self.taken and free not in self.below)
        self.taken.add(found)
        return found

    def inner(self) -> GraphWriter:
        """A writer of a graph inside this one."""
        return GraphWriter(self.opset, self.float_dtype, set(self.taken), self.open_sizes)

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Write a node; inputs and outputs are names in the file, inputs left out at the end are not written."""
        for key in FLOAT_ATTRIBUTES:
            if key in attributes:
                attributes[key] = float(attributes[key])
        given = {key: value for key, value in attributes.items() if value is not None}
        name = next(filter(None, outputs), op)
        self.nodes.append(helper.make_node(op, trimmed(inputs), list(outputs), name=name, **given))

    def result(self, op: str, inputs: Sequence[str], hint: str, **attributes: Any) -> str:
        """Write a node with one output and return its name."""
        name = self.fresh(hint)
        self.node(op, inputs, [name], **attributes)
        return name

    def constant(self, value: Any, dtype: str, hint: str) -> str:
        """Write a Constant and return its name."""
        array: Array = np.asarray(value, dtype)
        return self.result("Constant", [], hint, value=numpy_helper.from_array(array))

    def sizes(self, sizes: Sequence[int], hint: str) -> str:
        """Write a list of sizes or axes and return its name."""
        return self.constant(list(sizes), "int64", hint)

    def inputs_of(self, call: Call) -> list[str]:
        """Names of an op's inputs."""
        return [self.name(name) if name else "" for name in call.op.inputs]

    def outputs_of(self, call: Call) -> list[str]:
        """Names of an op's outputs."""
        return [self.name(name) if name else "" for name in call.op.outputs]


def trimmed(names: Sequence[str]) -> list[str]:
    """Names without empty ones at the end."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def value_info(name: str, dtype: str, dims: Sequence[int | str | None]) -> ValueInfoProto:
    """A typed name; None is a size without a name."""
    return helper.make_tensor_value_info(name, element_type(dtype), list(dims))


def named_dims(shapes: tuple[Shape, Shape], names: Mapping[tuple[int, int], str]) -> list[int | str | None]:
    """Sizes that are equal with both choices of made-up sizes, or the names that these stand for."""
    return [a if a == b else names.get((a, b)) for a, b in zip(*shapes, strict=True)]


WriteRule: TypeAlias = Callable[[GraphWriter, Call], None]
OWN = ("dtype", "ordinal")  # attributes that say nothing in ONNX
RMS_SINCE, CUM_PROD_SINCE = 23, 26  # op sets that have RMSNormalization, and CumProd
FLOAT_MOD_SINCE = 28  # the op set whose Mod of floats may have the sign of `b`
SINCE = {"Gelu": 20}  # ops younger than the oldest op set that is written


def write_op(writer: GraphWriter, call: Call) -> None:
    """Write one op. Raises OnnxError for one that ONNX has no words for."""
    rule = WRITE_RULES.get(call.op.type, write_plain)
    if call.op.type not in WRITE_RULES and schema_of(call.op.type).internal:
        raise OnnxError("ONNX has no words for this op", net=call.net, op=call.op.label)
    if SINCE.get(call.op.type, 0) > writer.opset:
        wanted = f"opset={SINCE[call.op.type]} or later"
        raise OnnxError("the op set has no such op", net=call.net, op=call.op.label, wanted=wanted, came=writer.opset)
    rule(writer, call)


def write_plain(writer: GraphWriter, call: Call) -> None:
    """An op of the same name."""
    inputs, attributes = with_static_inputs(writer, call)
    writer.node(call.op.type, inputs, writer.outputs_of(call), **attributes)


def with_static_inputs(writer: GraphWriter, call: Call) -> tuple[list[str], dict[str, Any]]:
    """The op's inputs, those that stand in attributes as constants, and the other attributes."""
    inputs, attributes = writer.inputs_of(call), {k: v for k, v in call.op.attributes.items() if k not in OWN}
    for i, port in enumerate(port.rstrip("?*") for port in schema_of(call.op.type).inputs):
        if port in attributes:
            inputs += [""] * (i + 1 - len(inputs))
            inputs[i] = static_input(writer, call, port, attributes.pop(port))
    return inputs, attributes


def static_input(writer: GraphWriter, call: Call, port: str, value: Any) -> str:
    """A constant that holds what an attribute says."""
    dtype = call.dtype(0) if port == "constant_value" else "int64"
    if port == "depth":
        value = value[0] if isinstance(value, tuple) else value
    return writer.constant(value, dtype, f"{writer.name(call.op.key)}/{port}")


def write_constant(writer: GraphWriter, call: Call) -> None:
    """The value as a tensor of the output's dtype."""
    array = np.asarray(call.attr("value")).astype(call.output_types[0].dtype)
    writer.node("Constant", [], writer.outputs_of(call), value=numpy_helper.from_array(array))


def write_constant_of_shape(writer: GraphWriter, call: Call) -> None:
    """The number as a tensor of one element."""
    inputs, attributes = with_static_inputs(writer, call)
    attributes["value"] = numpy_helper.from_array(np.full(1, call.attr("value"), call.output_types[0].dtype))
    writer.node("ConstantOfShape", inputs, writer.outputs_of(call), **attributes)


def write_cast(writer: GraphWriter, call: Call) -> None:
    """The run's float dtype is that of the file."""
    to = element_type(call.output_types[0].dtype)
    writer.node("Cast", writer.inputs_of(call), writer.outputs_of(call), to=to)


def write_split(writer: GraphWriter, call: Call) -> None:
    """Either sizes or a number of pieces, never both."""
    inputs, attributes = with_static_inputs(writer, call)
    if len(inputs) > 1:
        attributes.pop("num_outputs", None)
    writer.node("Split", inputs, writer.outputs_of(call), **attributes)


def write_dropout(writer: GraphWriter, call: Call) -> None:
    """Dropout of inference, with its ratio for those who train on."""
    ratio = writer.constant(call.attr("ratio"), "float32", f"{writer.name(call.op.key)}/ratio")
    writer.node("Dropout", [*writer.inputs_of(call), ratio], writer.outputs_of(call))


def write_pad(writer: GraphWriter, call: Call) -> None:
    """What is cut off is cut off last: runtimes differ where one op mirrors on one side and cuts on the other."""
    inputs, attributes = with_static_inputs(writer, call)
    pads = call.static("pads", 1)
    if attributes.get("mode") == "wrap" and writer.opset < 19:
        raise OnnxError(
            "the op set has no mode 'wrap'", op=call.op.label, wanted="opset=19 or later", came=writer.opset
        )
    if attributes.get("mode", "constant") == "constant" or not cuts_and_fills(pads):
        return writer.node("Pad", inputs, writer.outputs_of(call), **attributes)
    key, axes = writer.name(call.op.key), inputs[3:]
    more, less = (
        writer.sizes(part, f"{key}/{name}")
        for name, part in (("more", np.maximum(pads, 0)), ("less", np.minimum(pads, 0)))
    )
    wide = writer.result("Pad", [inputs[0], more, "", *axes], f"{key}/wide", **attributes)
    writer.node("Pad", [wide, less, "", *axes], writer.outputs_of(call))
    return None


def write_pool(writer: GraphWriter, call: Call) -> None:
    """Before op set 22 a last window might start beyond the array, which some runtimes left out even then."""
    geometry = geometry_of(call, call.attr("kernel_shape"))
    within = geometry_of(call, call.attr("kernel_shape"), bool(call.attr("ceil_mode"))).places
    counted = zip(geometry.covered, geometry.spans, geometry.strides, strict=True)
    every = tuple(-(-(size - span) // stride) + 1 for size, span, stride in counted)
    if call.attr("ceil_mode") and writer.opset < 22 and every != within:
        problem = "the op set has a last window that starts in what is put around"
        raise OnnxError(problem, op=call.op.label, wanted="opset=22 or later", came=writer.opset)
    write_plain(writer, call)


def write_top_k(writer: GraphWriter, call: Call) -> None:
    """The number is an input there."""
    inputs, key, k = writer.inputs_of(call), writer.name(call.op.key), call.attr("k")
    if k is not None:
        inputs = [inputs[0], writer.constant([k], "int64", f"{key}/k")]
    writer.node("TopK", inputs, writer.outputs_of(call), axis=call.attr("axis"))


def write_cumulated(writer: GraphWriter, call: Call) -> None:
    """The axis is an input there."""
    inputs, key = writer.inputs_of(call), writer.name(call.op.key)
    axis = writer.constant(call.attr("axis"), "int64", f"{key}/axis")
    flags = {name: call.attr(name) for name in ("exclusive", "reverse")}
    writer.node(call.op.type, [*inputs, axis], writer.outputs_of(call), **flags)


def write_cum_prod(writer: GraphWriter, call: Call) -> None:
    """By its name since op set 26; before that each product with that of twice as many elements, and so on."""
    if writer.opset >= CUM_PROD_SINCE:
        return write_cumulated(writer, call)
    axis, (total,), key = call.axis(call.attr("axis"), call.rank(0)), writer.inputs_of(call), writer.name(call.op.key)
    size = call.shape(0)[axis]
    if size in writer.open_sizes:
        problem, wanted = "the op set has no such op, and the axis is open", f"opset={CUM_PROD_SINCE} or later"
        raise OnnxError(problem, net=call.net, op=call.op.label, wanted=wanted, came=writer.opset)
    one, axes = writer.constant(1, call.dtype(0), f"{key}/one"), writer.sizes([axis], f"{key}/axes")

    def moved(distance: int) -> str:
        first = distance if call.attr("reverse") else 0
        pads = writer.sizes([0, distance] if call.attr("reverse") else [distance, 0], f"{key}/pads")
        starts, ends = (writer.sizes([place], f"{key}/place") for place in (first, first + size))
        wide = writer.result("Pad", [total, pads, one, axes], f"{key}/wide")
        return writer.result("Slice", [wide, starts, ends, axes], f"{key}/moved")

    total, distance = moved(1) if call.attr("exclusive") and size else total, 1
    while distance < size:
        total, distance = writer.result("Mul", [total, moved(distance)], f"{key}/product"), 2 * distance
    writer.node("Identity", [total], writer.outputs_of(call))
    return None


def write_select_valid(writer: GraphWriter, call: Call) -> None:
    """`Where(timestep < lengths, new, previous)`, the rows' condition widened to their features."""
    new, previous, lengths, timestep = writer.inputs_of(call)
    key, kind = writer.name(call.op.key), call.output_types[0]
    valid = writer.result("Less", [timestep, lengths], f"{key}/valid")
    if kind.rank > 1:
        axes = writer.sizes(range(1, kind.rank), f"{key}/axes")
        valid = writer.result("Unsqueeze", [valid, axes], f"{key}/rows")
    if call.attr("drop"):
        previous = writer.constant(0, kind.dtype, f"{key}/zero")
    writer.node("Where", [valid, new, previous], writer.outputs_of(call))


def write_copy(writer: GraphWriter, call: Call) -> None:
    """The first operand as it is: what else the op says, about labels or gradients, has no words there."""
    writer.node("Identity", writer.inputs_of(call)[:1], writer.outputs_of(call))


def write_log1p(writer: GraphWriter, call: Call) -> None:
    """`Log(u) + (x - d) / u` with u = 1 + x and d = u - 1: what rounding took from x comes back (at inf, d is x)."""
    (x,), key = writer.inputs_of(call), writer.name(call.op.key)
    zero, one = (writer.constant(value, call.output_types[0].dtype, f"{key}/{value}") for value in (0, 1))
    u = writer.result("Add", [x, one], f"{key}/u")
    d = writer.result("Sub", [u, one], f"{key}/d")
    lost = writer.result("Div", [writer.result("Sub", [x, d], f"{key}/lost"), u], f"{key}/part")
    same = writer.result("Equal", [x, d], f"{key}/same")
    rest = writer.result("Where", [same, zero, lost], f"{key}/rest")
    writer.node("Add", [writer.result("Log", [u], f"{key}/log"), rest], writer.outputs_of(call))


def write_expm1(writer: GraphWriter, call: Call) -> None:
    """`Tanh(x / 2) * (Exp(x) + 1)`, which subtracts nothing."""
    (x,), key = writer.inputs_of(call), writer.name(call.op.key)
    half, one = (writer.constant(value, call.output_types[0].dtype, f"{key}/{value}") for value in (0.5, 1))
    slope = writer.result("Tanh", [writer.result("Mul", [x, half], f"{key}/half")], f"{key}/tanh")
    above = writer.result("Add", [writer.result("Exp", [x], f"{key}/exp"), one], f"{key}/above")
    writer.node("Mul", [slope, above], writer.outputs_of(call))


def write_mod(writer: GraphWriter, call: Call) -> None:
    """Before op set 28 that of floats has the sign of `a` (`fmod`): `b` is added where its sign is another one."""
    if call.attr("fmod") or not is_float(call.dtype(0)) or writer.opset >= FLOAT_MOD_SINCE:
        return write_plain(writer, call)
    (a, b), key = writer.inputs_of(call), writer.name(call.op.key)
    zero = writer.constant(0, call.dtype(0), f"{key}/zero")
    rest = writer.result("Mod", [a, b], f"{key}/rest", fmod=1)
    signs = [writer.result("Less", [x, zero], f"{key}/sign") for x in (rest, b)]
    some = writer.result("Not", [writer.result("Equal", [rest, zero], f"{key}/none")], f"{key}/some")
    other = writer.result("And", [some, writer.result("Xor", signs, f"{key}/differ")], f"{key}/other")
    writer.node("Where", [other, writer.result("Add", [rest, b], f"{key}/sum"), rest], writer.outputs_of(call))


def write_rms_normalization(writer: GraphWriter, call: Call) -> None:
    """By its name since op set 23; before that `X / Sqrt(ReduceMean(X * X) + epsilon) * scale`."""
    if writer.opset >= RMS_SINCE:
        return write_plain(writer, call)
    (x, scale), key = writer.inputs_of(call), writer.name(call.op.key)
    epsilon = writer.constant(call.attr("epsilon"), call.output_types[0].dtype, f"{key}/epsilon")
    axes = writer.sizes(range(call.axis(call.attr("axis"), call.rank(0)), call.rank(0)), f"{key}/axes")
    mean = writer.result("ReduceMean", [writer.result("Mul", [x, x], f"{key}/square"), axes], f"{key}/mean")
    root = writer.result("Sqrt", [writer.result("Add", [mean, epsilon], f"{key}/sum")], f"{key}/root")
    writer.node("Mul", [writer.result("Div", [x, root], f"{key}/unit"), scale], writer.outputs_of(call))
    return None


def write_where(writer: GraphWriter, call: Call) -> None:
    """Of bools as `(condition and a) or (not condition and b)`: ONNX Runtime has no Where of bools."""
    if call.dtype(1) != BOOL:
        return write_plain(writer, call)
    key = writer.name(call.op.key)
    condition, a, b = writer.inputs_of(call)
    other = writer.result("Not", [condition], f"{key}/not")
    kept = [writer.result("And", pair, f"{key}/and") for pair in ([condition, a], [other, b])]
    writer.node("Or", kept, writer.outputs_of(call))


WRITE_RULES: dict[str, WriteRule] = {
    "AveragePool": write_pool,
    "Cast": write_cast,
    "CheckLabels": write_copy,
    "Constant": write_constant,
    "ConstantOfShape": write_constant_of_shape,
    "CumProd": write_cum_prod,
    "CumSum": write_cumulated,
    "Dropout": write_dropout,
    "Expm1": write_expm1,
    "Log1p": write_log1p,
    "LpPool": write_pool,
    "MaxPool": write_pool,
    "Mod": write_mod,
    "Pad": write_pad,
    "RMSNormalization": write_rms_normalization,
    "SelectValid": write_select_valid,
    "Split": write_split,
    "StopGradient": write_copy,
    "TopK": write_top_k,
    "Where": write_where,
    "WithGradient": write_copy,
}
