"""ONNX ops that become one op of rnnops, in one table, and slices whose start depends on data.

**Slices whose start depends on data, with a length that the file gives** become look-ups, like `dynamic_slice` of JAX.
The length is known if the ends are the starts plus a constant, or if a step is longer than any axis. Where ONNX cuts
off places outside of the axis, a run raises an error here. It also raises one for a negative start whose slice passes
the end of the axis: ONNX counts an end of 0 or more from the front, so that its Slice is empty.

**Plain ops** have a small rule each where ONNX and rnnops differ. Constant inputs that decide a shape become
attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.schema import schema_of
from rnnops.onnx.loop_elements import FAR, Around
from rnnops.onnx.node import LIMITS, Node, Rule, element_dtype, read_tensor
from rnnops.ops.arithmetic import abs as abs_, sign
from rnnops.ops.comparison import cast, clip, equal, identity, less, where
from rnnops.ops.einsum import einsum
from rnnops.ops.indexing import cuts_and_fills, gather, slice as slice_
from rnnops.ops.movement import flatten, reshape
from rnnops.ops.shapes import constant_of_shape, random_uniform_like, shape
from rnnops.types import BOOL, FLOAT, INTEGERS, is_float


def moving_slice(node: Node) -> Blob | None:
    """The result of a Slice whose starts depend on data. None for other slices, and if the size is unknown."""
    names = node.names
    if len(names) < 3 or node.known_value(1) is not None or node.reader.unknown_source(names[1]) is None:
        return None
    found = SliceFinder(node, Around(node.reader, "Slice"))
    starts, lengths, axes = found.starts(), found.lengths(), node.known_value(3)
    if starts is None or lengths is None or len(starts) != len(lengths) or (axes is None and node.has(3)):
        return None
    data = node.input(0)
    for axis, start, length in zip(range(len(starts)) if axes is None else axes.ravel(), starts, lengths, strict=True):
        data = elements_along(node, data, int(axis), start, None if found.is_far() else length)
    return data


def elements_along(node: Node, data: Blob, axis: int, start: str, length: int | None) -> Blob:
    """`length` elements along an axis, from a start on. If `length` is None, only the first."""
    number = node.reader.known_value(start)
    if number is not None and number.size == 1:
        first = int(number.item())
        return slice_(data, [first], [first + length if length else first + 1 or FAR], [axis])
    places = node.outer_blob(start)
    if length:
        places = before_the_end(places, length)
    return gather(data, places if length in (None, 1) else places + np.arange(length), axis)


def before_the_end(start: Blob, length: int) -> Blob:
    """The start. A place that no axis has if the elements would pass the axis' end and go on at its front."""
    return where(equal(clip(start, -length, -1), start), FAR, start)


@dataclass
class SliceFinder:
    """Finds the starts and lengths of a Slice.

    Args:
        around: integers of the surrounding graph, as sums.
    """

    node: Node
    around: Around

    def starts(self) -> list[str] | None:
        """Names of single numbers, one for each axis."""
        return self._parts(self.node.names[1])

    def lengths(self) -> list[int] | None:
        """Number of elements along each axis, in steps of 1."""
        steps = self.node.known_value(4)
        if self.node.has(4) and steps is None:
            return None
        if steps is not None and (steps >= FAR).all():
            return [1] * steps.size if self.is_far() else None
        if steps is not None and (steps != 1).any():
            return None
        return self._added() or self._apart()

    def is_far(self) -> bool:
        """True if all ends lie beyond every axis."""
        ends = self.node.known_value(2)
        return ends is not None and bool((ends >= FAR).all())

    def _added(self) -> list[int] | None:
        """The constant that is added to all starts to give the ends."""
        starts, ends = (self._blob(self.node.names[i]) for i in (1, 2))
        op = self.around.maker(ends)
        if op is None or op.type != "Add" or starts not in op.inputs:
            return None
        other = op.inputs[1 - op.inputs.index(starts)]
        value = self.node.reader.known_value(other)
        return None if value is None or value.ndim != 1 or (value < 1).any() else [int(number) for number in value]

    def _apart(self) -> list[int] | None:
        """The differences of ends and starts, one by one."""
        starts, ends = self.starts(), self._parts(self.node.names[2])
        if starts is None or ends is None or len(starts) != len(ends):
            return None
        sums = [(self.around.sum_of(start), self.around.sum_of(end)) for start, end in zip(starts, ends, strict=True)]
        apart = [end.plus(start, -1) for start, end in sums if start is not None and end is not None]
        if len(apart) < len(starts) or any(total.factors or total.number < 1 for total in apart):
            return None
        return [total.number for total in apart]

    def _parts(self, name: str) -> list[str] | None:
        """Names of the single numbers that a list is joined from."""
        blob = self._blob(name)
        if self._is_single(blob):
            return [blob]
        op = self.around.maker(blob)
        return (
            list(op.inputs) if op is not None and op.type == "Concat" and all(map(self._is_single, op.inputs)) else None
        )

    def _is_single(self, blob: str) -> bool:
        return bool(self.node.reader.dims(blob) == (1,))

    def _blob(self, name: str) -> str:
        found: Blob = self.node.reader.blob(name)
        return found.name


def append(node: Node, **attributes: Any) -> tuple[Blob, ...]:
    """Appends the op of the node's name to the node's inputs. Constants that decide shapes become attributes."""
    schema = schema_of(node.op)
    inputs = list(node.inputs)
    for i, port in enumerate(port.rstrip("?*") for port in schema.inputs[: len(inputs)]):
        value = node.value(i)
        if value is not None and port in schema.attributes and schema.inputs[i].endswith("?"):
            inputs[i], attributes[port] = None, static(node, port, value)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return node.net.append(node.op, inputs, attributes)


def static(node: Node, port: str, value: np.ndarray[Any, Any]) -> Any:
    """A constant input as an attribute: one number, or a list of integers."""
    if port == "constant_value":
        return value.item() if value.size == 1 else node.fail("constant_value is one number", came=list(value.shape))
    whole = value.astype("int64")
    if value.ndim > 1 or not np.array_equal(whole, value):
        node.fail(f"'{port}' is not a list of integers", came=f"{value.dtype}{list(value.shape)}")
    return tuple(whole.ravel().tolist())


def plain(**kinds: str) -> Rule:
    """A rule for an op with the same meaning in rnnops, and attributes of these kinds."""

    def rule(node: Node) -> Sequence[Blob]:
        return append(node, **node.given(kinds))

    return rule


def sized(port: str, since: int, **kinds: str) -> Rule:
    """A rule for an op with an input that decides a shape. The input was an attribute before op set `since`."""

    def rule(node: Node) -> Sequence[Blob]:
        given = node.given(kinds)
        if node.opset < since:
            if len(node.inputs) > 1:
                node.fail("an input is too many for this version of the op set", came=len(node.inputs))
            given[port] = node.attr(port, "ints")
        return append(node, **given)

    return rule


def import_clip(node: Node) -> Sequence[Blob]:
    """Clip. The bounds were attributes before op set 11."""
    if node.opset < 11:
        bounds = [node.attr(name, "float") for name in ("min", "max")]
        numbers = [None if bound is None else node.net.operands([bound], node.input(0).dtype)[0] for bound in bounds]
        node.inputs = [node.input(0), *numbers]
    return append(node)


def turned_back(node: Node) -> Blob | None:
    """The original array, if one Slice turns an axis around and this one turns it back. None for other Slices."""
    known = [node.known_value(i) for i in range(1, 5)] if len(node.inputs) == 5 else []
    axis = turned_axis([] if value is None else np.ravel(value).tolist() for value in known)
    maker = None if axis is None else Around(node.reader, "Slice").maker(node.names[0])
    if maker is None or maker.type != "Slice" or len(maker.inputs) != 1:
        return None
    cuts = (list(maker.attributes.get(name) or ()) for name in ("starts", "ends", "axes", "steps"))
    return node.outer_blob(maker.inputs[0]) if turned_axis(cuts) == axis else None


def turned_axis(cuts: Iterable[list[int]]) -> int | None:
    """The axis that a Slice with these starts, ends, axes and steps turns around. None for other slices."""
    match list(cuts):
        case [[-1], [end], [axis], [-1]] if end <= -FAR:
            return axis
    return None


def import_slice(node: Node) -> Sequence[Blob]:
    """Slice. All inputs but the data were attributes before op set 10."""
    if node.opset >= 10:
        found = turned_back(node)
        found = moving_slice(node) if found is None else found
        return append(node) if found is None else (found,)
    starts, ends = node.required("starts", "ints"), node.required("ends", "ints")
    return append(node, starts=starts, ends=ends, axes=node.attr("axes", "ints"))


def pad(node: Node) -> Sequence[Blob]:
    """Pad. Widths and value were attributes before op set 11."""
    mode = node.attr("mode", "string", "constant")
    pads = node.required("pads", "ints") if node.opset < 11 else node.known_value(1)
    if mode != "constant":
        check_one_sign(node, mode, pads)
    if node.opset >= 11:
        return append(node, mode=mode)
    return append(node, mode=mode, pads=pads, constant_value=node.attr("value", "float"))


def check_one_sign(node: Node, mode: str, pads: Sequence[int] | np.ndarray[Any, Any] | None) -> None:
    """Raise OnnxError if the mode may cut an axis on one side and fill it on the other."""
    if pads is None:
        node.fail(
            f"mode '{mode}' fills an axis or cuts it by the signs of input 'pads', which the file leaves open",
            blob=node.bound[node.input(1).name],
            wanted="pads that follow from constants and fixed sizes, or mode='constant'",
            hint="Give what decides them: load(path, sizes={...}) for open sizes, constants={...} for inputs.",
        )
    if cuts_and_fills(np.ravel(pads)):
        node.fail(
            f"mode '{mode}' on an axis that is also cut has no meaning that is agreed on",
            wanted="pads of one sign for each axis, or mode='constant'",
            came=np.ravel(pads).tolist(),
            hint="Cut with a Slice before it, or pad and then cut.",
        )


def split(node: Node) -> Sequence[Blob]:
    """Split. Without sizes, the pieces are equal and there is one for each result."""
    axis, pieces = node.attr("axis", "int"), len(node.wanted)
    sizes = node.attr("split", "ints") if node.opset < 13 else None
    given = node.attr("num_outputs", "int") if node.opset >= 18 else None
    if given not in (None, pieces):
        node.fail("num_outputs differs from the number of results", wanted=pieces, came=given)
    listed = sizes is not None or node.value(1) is not None
    return append(node, axis=axis, split=sizes, num_outputs=None if listed else pieces)


def dropout(node: Node) -> Sequence[Blob | None]:
    """Dropout. It is the identity, and active in training with the file's ratio.

    Dropout that is always active is refused.
    """
    node.attr("seed", "int")  # a run has its own seed
    ratio, switch = dropout_ratio(node), node.known_value(2)
    always = node.has(2) and (switch is None or bool(switch.any()))
    if always and ratio != 0.0:
        node.fail("dropout that is active outside training is not supported", hint="Export the model for inference.")
    x = node.input(0)
    if ratio is None or not 0.0 <= ratio < 1.0:
        return identity(x), constant_of_shape(node.net, shape(x), True)
    return node.net.append("Dropout", [x], {"ratio": ratio})


def dropout_ratio(node: Node) -> float | None:
    """The ratio, which was an attribute before op set 12. None if it is known only in the run."""
    if node.opset < 12 or not node.has(1):
        return float(node.attr("ratio", "float", 0.5))
    value = node.known_value(1)
    return None if value is None else float(value.item())


def along_axis(function: Callable[[Node, Blob, int], Blob]) -> Rule:
    """A rule for a function along an axis. Before op set 13 all axes from `axis` on counted as one."""

    def rule(node: Node) -> Sequence[Blob]:
        x = node.input(0)
        if len(node.inputs) != 1:
            node.fail("wrong number of inputs", wanted=1, came=len(node.inputs))
        if node.opset >= 13:
            return (function(node, x, node.attr("axis", "int", -1)),)
        rows = flatten(x, axis=node.attr("axis", "int", 1))
        return (reshape(function(node, rows, -1), shape(x), allowzero=1),)

    return rule


def softmax(node: Node, x: Blob, axis: int) -> Blob:
    return node.net.apply(node.op, [x], axis=axis)


def import_cast(node: Node) -> Sequence[Blob]:
    """Cast. `saturate` and `round_mode` concern float types that are not supported.

    Half precision becomes the net's float. Numbers beyond the range of half precision become infinite.
    """
    node.attr("saturate", "int")
    node.attr("round_mode", "string")
    name = element_dtype(node.required("to", "int"), "the target of a Cast")
    to = node.dtype(name)
    twin = node.twin(node.input(0)) if to == FLOAT else None
    numbers = cast(node.input(0), to) if twin is None else twin
    return (within(numbers, LIMITS[name]) if name in LIMITS else numbers,)


def within(x: Blob, limit: float) -> Blob:
    """x, with infinity for numbers whose size is at the limit or above."""
    return where(less(abs_(x), limit), x, sign(x) * float("inf"))


def import_pow(node: Node) -> Sequence[Blob]:
    """Pow. The exponent may have its own dtype. The result has the dtype of the base."""
    base, exponent = node.input(0), node.input(1)
    if base.dtype == exponent.dtype:
        return (base**exponent,)
    if is_float(exponent.dtype) and not is_float(base.dtype):
        return (cast(cast(base, exponent.dtype) ** exponent, base.dtype),)
    return (base ** cast(exponent, base.dtype),)


def import_constant_of_shape(node: Node) -> Sequence[Blob]:
    """ConstantOfShape: filled with the one element of `value`, by default 0.0."""
    proto = node.attr("value", "tensor")
    value = (
        np.zeros(1, "float32")
        if proto is None
        else read_tensor(proto, "the value of a ConstantOfShape", node.float_dtype)
    )
    if value.size != 1:
        node.fail("the value of a ConstantOfShape must have one element", came=list(value.shape))
    dtype = node.dtype(value.dtype.name)
    return append(node, value=value.item(), dtype=None if dtype in (FLOAT, "int64", BOOL) else dtype)


def one_hot(node: Node) -> Sequence[Blob]:
    """OneHot. Indices may be floats without fractions."""
    if node.input(0).dtype not in INTEGERS:
        node.inputs[0] = cast(node.input(0), "int64")
    return append(node, axis=node.attr("axis", "int"))


def layer_normalization(node: Node) -> Sequence[Blob]:
    """LayerNormalization and RMSNormalization.

    Statistics have the run's dtype, which is at least the float32 of `stash_type`.
    """
    if node.attr("stash_type", "int", 1) != 1:
        node.fail("statistics of this element type are not supported", wanted="stash_type=1")
    return append(node, axis=node.attr("axis", "int"), epsilon=node.attr("epsilon", "float"))


def max_pool(node: Node) -> Sequence[Blob]:
    """MaxPool. The op here gives no indices of the largest elements, and `storage_order` concerns only these."""
    node.attr("storage_order", "int")
    if node.wants(1):
        node.fail("MaxPool gives no indices", wanted="the second result left out")
    return append(node, **node.given({"ceil_mode": "int", **WINDOWS}))


def import_range(node: Node) -> Sequence[Blob]:
    """Range. `stash_type` concerns half precision. A bound may be an array of one number, as in ONNX's definitions."""
    node.attr("stash_type", "int")
    return (node.net.append("Range", [number(node, i) for i in range(3)])[0],)


def number(node: Node, i: int) -> Blob:
    """The i-th input. An array that is known to have one number becomes this number."""
    value = node.known_value(i)
    return node.input(i) if value is None or value.shape != (1,) else reshape(node.input(i), [])


def import_einsum(node: Node) -> Sequence[Blob]:
    """Einsum. A senseless equation is refused while the file is read."""
    return (einsum(node.required("equation", "string"), *(node.input(i) for i in range(len(node.inputs)))),)


def import_random_uniform_like(node: Node) -> Sequence[Blob]:
    """RandomUniformLike: numbers in [low, high). The run's `seed` decides which, not the file's."""
    node.attr("seed", "float")
    x, low, high = node.input(0), node.attr("low", "float", 0.0), node.attr("high", "float", 1.0)
    to = FLOAT if (given := node.attr("dtype", "int")) is None else node.dtype(element_dtype(given, "its result"))
    if to != FLOAT:
        node.fail("random numbers have the float dtype of the file", came=to)
    numbers = random_uniform_like(x if is_float(x.dtype) else cast(x, FLOAT))
    return (numbers if (low, high) == (0.0, 1.0) else numbers * (high - low) + low,)


SAME = (
    "Abs", "Add", "And", "Atan", "Ceil", "Cos", "Cosh", "Div", "Equal", "Erf", "Exp", "Expand", "Floor", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Mean", "Min", "Mul", "Neg", "Not",
    "Or", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Tan", "Tanh", "Tile", "Where",
)  # fmt: skip
AXES_ARE_INPUTS_SINCE = {"ReduceSum": 13} | dict.fromkeys(
    ("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"), 18
)

WINDOWS = {"auto_pad": "string", "dilations": "ints", "kernel_shape": "ints", "pads": "ints", "strides": "ints"}
CONV = {**WINDOWS, "group": "int"}

PLAIN_RULES: dict[str, Rule] = {
    **{name: plain() for name in SAME},
    **{
        name: sized("axes", since, keepdims="int", noop_with_empty_axes="int")
        for name, since in AXES_ARE_INPUTS_SINCE.items()
    },
    "AveragePool": plain(**WINDOWS, ceil_mode="int", count_include_pad="int"),
    "Cast": import_cast,
    "Clip": import_clip,
    "Concat": plain(axis="int"),
    "ConstantOfShape": import_constant_of_shape,
    "Conv": plain(**CONV),
    "ConvTranspose": plain(**CONV, output_padding="ints", output_shape="ints"),
    "Dropout": dropout,
    "Einsum": import_einsum,
    "Elu": plain(alpha="float"),
    "Flatten": plain(axis="int"),
    "Gather": plain(axis="int"),
    "Gelu": plain(approximate="string"),
    "Gemm": plain(alpha="float", beta="float", transA="int", transB="int"),
    "GlobalAveragePool": plain(),
    "GlobalMaxPool": plain(),
    "HardSigmoid": plain(alpha="float", beta="float"),
    "LayerNormalization": layer_normalization,
    "LeakyRelu": plain(alpha="float"),
    "LogSoftmax": along_axis(softmax),
    "LpPool": plain(**WINDOWS, ceil_mode="int", p="int"),
    "MaxPool": max_pool,
    "Mod": plain(fmod="int"),
    "OneHot": one_hot,
    "Pad": pad,
    "Pow": import_pow,
    "RandomUniformLike": import_random_uniform_like,
    "Range": import_range,
    "Reshape": plain(allowzero="int"),
    "Selu": plain(alpha="float", gamma="float"),
    "Shape": plain(start="int", end="int"),
    "Slice": import_slice,
    "Softmax": along_axis(softmax),
    "SoftmaxCrossEntropyLoss": plain(reduction="string", ignore_index="int"),
    "Split": split,
    "Squeeze": sized("axes", 13),
    "Transpose": plain(perm="ints"),
    "Unsqueeze": sized("axes", 13),
}
