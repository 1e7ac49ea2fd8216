"""Writes each op of rnnops in ONNX, into a graph that grows: most ops by their own name, a few as small groups.

Sizes and axes are attributes here and constant inputs in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, TypeAlias

import numpy as np
import onnx

from rnnops.errors import OnnxError
from rnnops.net.blob import Blob
from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.schema import Call, schema_of
from rnnops.onnx.node import element_type
from rnnops.ops.activation import tanh
from rnnops.ops.arithmetic import exp, log, mod, sqrt
from rnnops.ops.comparison import and_, equal, identity, less, not_, or_, where
from rnnops.ops.indexing import cuts_and_fills, pad, slice as slice_
from rnnops.ops.movement import unsqueeze
from rnnops.ops.reduction import reduce_mean
from rnnops.ops.windows import geometry_of
from rnnops.types import BOOL, FLOAT, Array, Shape, Type, is_float

FLOAT_ATTRIBUTES = ("alpha", "beta", "gamma", "epsilon", "momentum")


Operand: TypeAlias = str | int | Sequence[int]  # the name of a value, or integers that become a constant
Function: TypeAlias = "Callable[..., Sequence[Blob]]"


@dataclass
class GraphWriter:
    """Writes the nodes of one graph.

    Args:
        opset: the version of the op set; float_dtype: the file's dtype for `"float"`.
        open_sizes: two made-up numbers -> the name of the open size that they stand for.
        names: blob of the net -> name in the file, if they differ.
        taken: names in this graph and in surrounding graphs; below: names in graphs inside it.
        done: keys of ops that were written together with other ops.
    """

    opset: int
    float_dtype: str
    taken: set[str]
    open_sizes: frozenset[int] = frozenset()
    below: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def name(self, blob: str) -> str:
        """A blob's name in the file."""
        return self.names.get(blob, blob)

    def fresh(self, name: str) -> str:
        """A new name, which is taken in no surrounding or inner graph."""
        names = chain([name], (f"{name}_{k}" for k in count(1)))
        found = next(free for free in names if free not in self.taken and free not in self.below)
        self.taken.add(found)
        return found

    def inner(self) -> GraphWriter:
        """A writer for a graph inside this one."""
        return GraphWriter(self.opset, self.float_dtype, set(self.taken), self.open_sizes)

    def node(self, op: str, inputs: Sequence[Operand], outputs: Sequence[str], **attributes: Any) -> None:
        """Writes a node. Inputs and outputs are names in the file. Empty inputs at the end are left out.

        Integers among the inputs become constants.
        """
        for key in FLOAT_ATTRIBUTES:
            if key in attributes:
                attributes[key] = float(attributes[key])
        given = {key: value for key, value in attributes.items() if value is not None}
        name = next(filter(None, outputs), op)
        names = [
            operand if isinstance(operand, str) else self.constant(operand, "int64", f"{name}/input_{i}")
            for i, operand in enumerate(inputs)
        ]
        self.nodes.append(onnx.helper.make_node(op, trimmed(names), list(outputs), name=name, **given))

    def result(self, op: str, inputs: Sequence[Operand], hint: str, **attributes: Any) -> str:
        """Write a node with one output and return its name."""
        name = self.fresh(hint)
        self.node(op, inputs, [name], **attributes)
        return name

    def constant(self, value: Any, dtype: str, hint: str) -> str:
        """Write a Constant and return its name."""
        array: Array = np.asarray(value, dtype)
        return self.result("Constant", [], hint, value=onnx.numpy_helper.from_array(array))

    def written(
        self, inputs: Sequence[str], kinds: Sequence[Type | None], key: str, function: Function, *outputs: str
    ) -> list[str]:
        """Writes the ops that a function makes of blobs. Returns the names of its results.

        Args:
            inputs, kinds: names and types of values; key: prefix of made-up names.
            outputs: names of the results. Those left out are made up.
        """
        types = {f"in_{i}": kind for i, kind in enumerate(kinds) if kind is not None}
        net, writer = Net(key), replace(self, names=dict(zip(types, inputs, strict=True)))
        results = function(*(net.input(name, self.net_dtype(kind)) for name, kind in types.items()))
        writer.names.update((blob.name, name) for blob, name in zip(results, outputs, strict=False))
        for call in infer(net, types, self.float_dtype).values():
            for name in call.op.outputs:
                writer.names[name] = writer.names.get(name) or self.fresh(f"{key}/{name}")
            write_op(writer, call)
        return [writer.name(blob.name) for blob in results]

    def net_dtype(self, kind: Type) -> str:
        """The name of a dtype in nets."""
        return FLOAT if kind.dtype == self.float_dtype else kind.dtype

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


def value_info(name: str, dtype: str, dims: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    """A typed name. None is a size without a name."""
    return onnx.helper.make_tensor_value_info(name, element_type(dtype), list(dims))


def named_dims(shapes: tuple[Shape, Shape], names: Mapping[tuple[int, int], str]) -> list[int | str | None]:
    """Sizes as numbers if they are equal for both choices of made-up sizes, else as names."""
    return [a if a == b else names.get((a, b)) for a, b in zip(*shapes, strict=True)]


WriteRule: TypeAlias = Callable[[GraphWriter, Call], None]
OWN = ("dtype", "ordinal")  # attributes without a meaning in ONNX
RMS_SINCE, CUM_PROD_SINCE = 23, 26  # first op sets with RMSNormalization, and with CumProd
FLOAT_MOD_SINCE = 28  # first op set whose Mod of floats may take the sign of `b`
SINCE = {"Gelu": 20}  # ops that came after the oldest op set that is written -> their first op set


def write_op(writer: GraphWriter, call: Call) -> None:
    """Writes one op. Raises OnnxError if ONNX has no way to write it."""
    rule = WRITE_RULES.get(call.op.type, write_plain)
    if call.op.type not in WRITE_RULES and not onnx.defs.has(call.op.type):
        raise OnnxError("ONNX has no way to write this op", net=call.net, op=call.op.label)
    if SINCE.get(call.op.type, 0) > writer.opset:
        wanted = f"opset={SINCE[call.op.type]} or later"
        raise OnnxError("the op set has no such op", net=call.net, op=call.op.label, wanted=wanted, came=writer.opset)
    rule(writer, call)


def write_plain(writer: GraphWriter, call: Call) -> None:
    """Writes an op that has the same name in ONNX."""
    inputs, attributes = with_static_inputs(writer, call)
    writer.node(call.op.type, inputs, writer.outputs_of(call), **attributes)


def with_static_inputs(writer: GraphWriter, call: Call) -> tuple[list[str], dict[str, Any]]:
    """The op's inputs, with constants for attributes that are inputs in ONNX, and the other attributes."""
    inputs, attributes = writer.inputs_of(call), {k: v for k, v in call.op.attributes.items() if k not in OWN}
    for i, port in enumerate(port.rstrip("?*") for port in schema_of(call.op.type).inputs):
        if port in attributes:
            inputs += [""] * (i + 1 - len(inputs))
            inputs[i] = static_input(writer, call, port, attributes.pop(port))
    return inputs, attributes


def static_input(writer: GraphWriter, call: Call, port: str, value: Any) -> str:
    """A constant that holds the value of an attribute."""
    dtype = call.dtype(0) if port == "constant_value" else "int64"
    if port == "depth":
        value = value[0] if isinstance(value, tuple) else value
    return writer.constant(value, dtype, f"{writer.name(call.op.key)}/{port}")


def write_constant(writer: GraphWriter, call: Call) -> None:
    """Writes the value as a tensor of the output's dtype."""
    array = np.asarray(call.attr("value")).astype(call.output_types[0].dtype)
    writer.node("Constant", [], writer.outputs_of(call), value=onnx.numpy_helper.from_array(array))


def write_constant_of_shape(writer: GraphWriter, call: Call) -> None:
    """Writes the number as a tensor of one element."""
    inputs, attributes = with_static_inputs(writer, call)
    attributes["value"] = onnx.numpy_helper.from_array(np.full(1, call.attr("value"), call.output_types[0].dtype))
    writer.node("ConstantOfShape", inputs, writer.outputs_of(call), **attributes)


def write_cast(writer: GraphWriter, call: Call) -> None:
    """Writes the run's float dtype as the float dtype of the file."""
    to = element_type(call.output_types[0].dtype)
    writer.node("Cast", writer.inputs_of(call), writer.outputs_of(call), to=to)


def write_split(writer: GraphWriter, call: Call) -> None:
    """Writes either the sizes or the number of pieces, never both."""
    inputs, attributes = with_static_inputs(writer, call)
    if len(inputs) > 1:
        attributes.pop("num_outputs", None)
    writer.node("Split", inputs, writer.outputs_of(call), **attributes)


def write_dropout(writer: GraphWriter, call: Call) -> None:
    """Writes dropout for inference. Its ratio serves those who train the file."""
    ratio = writer.constant(call.attr("ratio"), "float32", f"{writer.name(call.op.key)}/ratio")
    writer.node("Dropout", [*writer.inputs_of(call), ratio], writer.outputs_of(call))


def write_pad(writer: GraphWriter, call: Call) -> None:
    """Cuts in a node of its own at the end: runtimes differ if one op mirrors on one side and cuts on the other."""
    inputs, attributes = with_static_inputs(writer, call)
    pads = call.static("pads", 1)
    if attributes.get("mode") == "wrap" and writer.opset < 19:
        raise OnnxError(
            "the op set has no mode 'wrap'", op=call.op.label, wanted="opset=19 or later", came=writer.opset
        )
    if attributes.get("mode", "constant") == "constant" or not cuts_and_fills(pads):
        return writer.node("Pad", inputs, writer.outputs_of(call), **attributes)
    wider, narrower, axes = np.maximum(pads, 0).tolist(), np.minimum(pads, 0).tolist(), inputs[3:]
    wide = writer.result("Pad", [inputs[0], wider, "", *axes], f"{writer.name(call.op.key)}/wide", **attributes)
    writer.node("Pad", [wide, narrower, "", *axes], writer.outputs_of(call))
    return None


def write_pool(writer: GraphWriter, call: Call) -> None:
    """Before op set 22, some runtimes left out a last window that starts beyond the array. Such pools are refused."""
    geometry = geometry_of(call, call.attr("kernel_shape"))
    within = geometry_of(call, call.attr("kernel_shape"), bool(call.attr("ceil_mode"))).places
    counted = zip(geometry.covered, geometry.spans, geometry.strides, strict=True)
    every = tuple(-(-(size - span) // stride) + 1 for size, span, stride in counted)
    if call.attr("ceil_mode") and writer.opset < 22 and every != within:
        problem = "this op set has no way to write a last window that starts in the padding"
        raise OnnxError(problem, op=call.op.label, wanted="opset=22 or later", came=writer.opset)
    write_plain(writer, call)


def write_top_k(writer: GraphWriter, call: Call) -> None:
    """Writes k as an input."""
    inputs, k = writer.inputs_of(call), call.attr("k")
    writer.node("TopK", inputs if k is None else [inputs[0], [k]], writer.outputs_of(call), axis=call.attr("axis"))


def write_cumulated(writer: GraphWriter, call: Call) -> None:
    """Writes the axis as an input."""
    flags = {name: call.attr(name) for name in ("exclusive", "reverse")}
    writer.node(call.op.type, [*writer.inputs_of(call), call.attr("axis")], writer.outputs_of(call), **flags)


def write_copy(writer: GraphWriter, call: Call) -> None:
    """Writes the first operand only. ONNX has no words for the rest of the op, which concerns labels or gradients."""
    writer.node("Identity", writer.inputs_of(call)[:1], writer.outputs_of(call))


def in_other_words(function: Callable[..., Blob | None], plain: WriteRule = write_plain) -> WriteRule:
    """A rule that writes an op as a group of ops, which `function` makes from writer, call and operands.

    Args:
        function: returns None if the op is written by its own name.
        plain: the rule that then writes it.
    """

    def rule(writer: GraphWriter, call: Call) -> None:
        def results(*operands: Blob) -> list[Blob]:
            result = function(writer, call, *operands)
            return [] if result is None else [result]

        key, outputs = writer.name(call.op.key), writer.outputs_of(call)
        if not writer.written(writer.inputs_of(call), call.types, key, results, *outputs):
            plain(writer, call)

    return rule


def cum_prod(writer: GraphWriter, call: Call, total: Blob) -> Blob | None:
    """CumProd since op set 26. Before: multiplies by products of 1, 2, 4, ... neighbours."""
    if writer.opset >= CUM_PROD_SINCE:
        return None
    axis, reverse = call.axis(call.attr("axis"), call.rank(0)), bool(call.attr("reverse"))
    size = call.shape(0)[axis]
    if size in writer.open_sizes:
        problem, wanted = "the op set has no such op, and the axis is open", f"opset={CUM_PROD_SINCE} or later"
        raise OnnxError(problem, net=call.net, op=call.op.label, wanted=wanted, came=writer.opset)

    def moved(x: Blob, distance: int) -> Blob:
        first, pads = (distance, [0, distance]) if reverse else (0, [distance, 0])
        wide = pad(x, pads, 1.0 if is_float(x.dtype) else 1, axes=[axis])
        return slice_(wide, [first], [first + size], [axis])

    total, distance = moved(total, 1) if call.attr("exclusive") and size else total, 1
    while distance < size:
        total, distance = total * moved(total, distance), 2 * distance
    return identity(total)


def select_valid(writer: GraphWriter, call: Call, new: Blob, previous: Blob, lengths: Blob, timestep: Blob) -> Blob:
    """`where(timestep < lengths, new, previous)`, with the condition of rows broadcast to their features."""
    valid, rank = less(timestep, lengths), call.output_types[0].rank
    valid = unsqueeze(valid, list(range(1, rank))) if rank > 1 else valid
    return where(valid, new, new.net.constant(0, new.dtype) if call.attr("drop") else previous)


def log1p(writer: GraphWriter, call: Call, x: Blob) -> Blob:
    """`log(u) + (x - d) / u` with u = 1 + x and d = u - 1.

    The second term restores what rounding took from x (at inf, d is x).
    """
    u = x + 1.0
    d = u - 1.0
    return log(u) + where(equal(x, d), 0.0, (x - d) / u)


def expm1(writer: GraphWriter, call: Call, x: Blob) -> Blob:
    """`tanh(x / 2) * (exp(x) + 1)`, which has no subtraction of near numbers."""
    return tanh(x * 0.5) * (exp(x) + 1.0)


def modulo(writer: GraphWriter, call: Call, a: Blob, b: Blob) -> Blob | None:
    """Mod since op set 28. Before: `fmod`, whose sign is that of `a`, and `b` is added if the signs differ."""
    if call.attr("fmod") or not is_float(call.dtype(0)) or writer.opset >= FLOAT_MOD_SINCE:
        return None
    rest = mod(a, b, fmod=1)
    differ = not_(equal(less(rest, 0.0), less(b, 0.0)))
    return where(and_(not_(equal(rest, 0.0)), differ), rest + b, rest)


def rms_normalization(writer: GraphWriter, call: Call, x: Blob, scale: Blob) -> Blob | None:
    """RMSNormalization since op set 23. Before: `x / sqrt(reduce_mean(x * x) + epsilon) * scale`."""
    if writer.opset >= RMS_SINCE:
        return None
    axes = list(range(call.axis(call.attr("axis"), call.rank(0)), call.rank(0)))
    return x / sqrt(reduce_mean(x * x, axes) + call.attr("epsilon")) * scale


def chosen(writer: GraphWriter, call: Call, condition: Blob, a: Blob, b: Blob) -> Blob | None:
    """Where of bools as `(condition and a) or (not condition and b)`: ONNX Runtime has no Where of bools."""
    return or_(and_(condition, a), and_(not_(condition), b)) if call.dtype(1) == BOOL else None


WRITE_RULES: dict[str, WriteRule] = {
    "AveragePool": write_pool,
    "Cast": write_cast,
    "CheckCount": write_copy,
    "CheckLabels": write_copy,
    "Constant": write_constant,
    "ConstantOfShape": write_constant_of_shape,
    "CumProd": in_other_words(cum_prod, write_cumulated),
    "CumSum": write_cumulated,
    "Dropout": write_dropout,
    "Expm1": in_other_words(expm1),
    "Log1p": in_other_words(log1p),
    "LpPool": write_pool,
    "MaxPool": write_pool,
    "Mod": in_other_words(modulo),
    "Pad": write_pad,
    "RMSNormalization": in_other_words(rms_normalization),
    "SelectValid": in_other_words(select_valid),
    "Split": write_split,
    "StopGradient": write_copy,
    "TopK": write_top_k,
    "Where": in_other_words(chosen),
    "WithGradient": write_copy,
}
