"""Work on bound weights that is done once: they are folded, laid out, scaled, made int8, or recognised as bytes.

**Scaled convolutions** (`scale_weights`): a BatchNormalization after a convolution goes into the convolution's weights
and bias, once, when these are bound. Results are rounded at other places than with two ops. The statistics must be
given, not those of the batch. They, and all inputs of the convolution except x, must follow from bound inputs.

Limit: if the factor of a channel is infinite (a variance of 0 without epsilon), results are nan that may be infinite
otherwise.

**Bound weights of products as whole numbers of a byte each, with a scale for each column (`ops/linear_algebra.py`)**. A
weight is the right operand of a MatMul or a Gemm, also in a cell, that follows only from bound inputs. Other readers
still read the float array.

**Products of bytes** (`byte_products`). An array that the net rounds to 8 bits, times whole numbers that fit a byte, is
multiplied in integers if the processor can do so. Such products are exact as floats, so that results are the same.

**Ops that follow only from bound inputs and constants** are a net of their own (`split_bound`), which is run once, when
inputs are bound. ONNX files ask to transpose, slice, join and scale weights in every run; here it happens once. Ops of
random numbers, recurrences, and ops whose results are outputs stay in the other net.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rnnops.errors import FeedError
from rnnops.interpreter import Workspace, execute, prepare, prune
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name
from rnnops.net.schema import RunContext, schema_of
from rnnops.ops.linear_algebra import Columns, as_int8
from rnnops.recurrent.cell_rewrites import with_references, without_unread_references
from rnnops.recurrent.recurrence import Recurrence
from rnnops.types import FLOAT, Array, Shape, is_float, type_of


def lay_out_weights(net: Net, bound: Collection[str]) -> Net:
    """Give the new layout of a weight an op of its own, if the weight follows only from bound inputs and constants.

    rewrite: `y = Gemm(x, w, transB=1)`  -->  `v = Transpose(w); y = Gemm(x, v)`, and
        `y = Conv(x, w, kernel_shape=...)`  -->  `m = ConvMatrix(w); y = MatrixConv(x, m, kernel_shape=...)`
    """
    fixed, ops = set(bound), list[Op]()
    declared = {spec.name: spec.shape for spec in net.input_specs if spec.shape is not None}
    taken = {*net.input_names, *(name for op in net.ops for name in op.outputs)}
    for op in net.ops:
        if {name for name in op.inputs if name} <= fixed and not schema_of(op.type).uses_context:
            fixed.update(op.outputs)
        elif op.type in ("Conv", "Gemm") and op.inputs[1] in fixed:
            ops += _laid_out(_with_kernel_shape(op, declared), taken)
            continue
        ops.append(op)
    return net.with_ops(ops).snapshot() if len(ops) > len(net.ops) else net


def _with_kernel_shape(op: Op, declared: Mapping[str, Shape]) -> Op:
    """A convolution with the `kernel_shape` of its weights, if these declare their shape. Other ops stay."""
    if op.type != "Conv" or op.attributes.get("kernel_shape") is not None or op.inputs[1] not in declared:
        return op
    return replace(op, attributes={**op.attributes, "kernel_shape": declared[op.inputs[1]][2:]})


def _laid_out(op: Op, taken: set[str]) -> list[Op]:
    """An op as two: one lays its weights out as a matrix, one reads that. The op itself if sizes are unknown."""
    x, w, *bias = op.inputs
    if op.type == "Gemm" and op.attributes.get("transB"):
        name = free_name(f"{w}/transposed", taken)
        attributes = {key: value for key, value in op.attributes.items() if key != "transB"}
        turned = Op("Transpose", (w,), (name,), {}, op.layer)
        return [turned, replace(op, inputs=(x, name, *bias), attributes=attributes)]
    if op.type == "Conv" and "kernel_shape" in op.attributes:
        name = free_name(f"{w}/matrix", taken)
        return [Op("ConvMatrix", (w,), (name,), {}, op.layer), replace(op, type="MatrixConv", inputs=(x, name, *bias))]
    return [op]


def scale_weights(net: Net, bound: Collection[str]) -> Net:
    """Let the matrix and the bias of a convolution include the BatchNormalization that follows.

    rewrite: `a = MatrixConv(x, m, b); y = BatchNormalization(a, scale, shift, mean, var)`  -->
        `factor = Div(scale, Sqrt(Add(var, epsilon))); y = MatrixConv(x, Mul(m, factor), (b - mean) * factor + shift)`

    Args:
        bound: inputs that are known when weights are laid out.
    """
    scaled = _convolutions_to_scale(net, bound)
    if not scaled:
        return net
    replaced = {convolution.outputs[0] for convolution in scaled.values()}
    taken, ops = {*net.input_names, *(name for op in net.ops for name in op.outputs)}, list[Op]()
    for op in net.ops:
        if op.outputs[0] in scaled:
            ops += _scaled(scaled[op.outputs[0]], op, taken)
        elif op.outputs[0] not in replaced:
            ops.append(op)
    return net.with_ops(ops).snapshot()


def _convolutions_to_scale(net: Net, bound: Collection[str]) -> dict[str, Op]:
    """Result of a BatchNormalization -> the convolution that can include it."""
    reads = Counter([*(name for op in net.ops for name in op.inputs), *net.output_blobs.values()])
    fixed, convolutions, found = {"", *bound}, dict[str, Op](), dict[str, Op]()
    for op in net.ops:
        if fixed.issuperset(op.inputs) and not schema_of(op.type).uses_context:
            fixed.update(op.outputs)
        elif op.type == "MatrixConv" and reads[op.outputs[0]] == 1 and fixed.issuperset(op.inputs[1:]):
            convolutions[op.outputs[0]] = op
        elif _scales_channels(op) and op.inputs[0] in convolutions and fixed.issuperset(op.inputs[1:]):
            found[op.outputs[0]] = convolutions[op.inputs[0]]
    return found


def _scales_channels(op: Op) -> bool:
    return op.type == "BatchNormalization" and not op.attributes.get("training_mode")


def _scaled(convolution: Op, normalization: Op, taken: set[str]) -> Iterable[Op]:
    """The ops that compute new weights and a new bias, then the convolution. New names go into `taken`."""
    x, matrix, *bias = convolution.inputs
    _, scale, shift, mean, variance = normalization.inputs
    ops = list[Op]()

    def made(op_type: str, *inputs: str, **attributes: object) -> str:
        name = free_name(f"{normalization.outputs[0]}/{op_type.lower()}", taken)
        ops.append(Op(op_type, inputs, (name,), attributes, normalization.layer))
        return name

    attributes = {**schema_of(normalization.type).attributes, **normalization.attributes}
    epsilon = made("Constant", value=attributes["epsilon"], dtype=FLOAT)
    factor = made("Div", scale, made("Sqrt", made("Add", variance, epsilon)))
    below = made("Sub", mean, bias[0]) if any(bias) else mean
    inputs = (x, made("Mul", matrix, factor), made("Sub", shift, made("Mul", below, factor)))
    return [*ops, replace(convolution, inputs=inputs, outputs=normalization.outputs, layer=normalization.layer)]


class Weight(NamedTuple):
    """A weight of a product: a blob or its transpose, and a factor of the product."""

    blob: str
    transposed: bool = False
    factor: float = 1.0


@dataclass
class _Names:
    """The names of stored weights in a net.

    Args:
        fixed: blob that may be a weight -> the count of its axes.
        taken: names in the net.
        stored: weight -> the names of its whole numbers and of its scales.
        first: weight -> the first op that multiplies with it.
    """

    fixed: Mapping[str, int]
    taken: set[str]
    stored: dict[Weight, tuple[str, str]] = field(default_factory=dict)
    first: dict[Weight, str] = field(default_factory=dict)

    def of(self, weight: Weight, op: str) -> tuple[str, str]:
        """The names of a weight's numbers and scales."""
        self.first.setdefault(weight, op)
        names = (free_name(f"{weight.blob}/{what}", self.taken) for what in ("int8", "scale"))
        return self.stored.get(weight) or self.stored.setdefault(weight, (next(names), next(names)))


def int8_weights(net: Net, bound: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[Net, dict[str, Array]]:
    """A net whose products have weights of int8, and its bound inputs.

    rewrite: `y = MatMul(x, w)`  -->  `y/whole = Int8MatMul(x, w/int8); y = Mul(y/whole, w/scale)`, and Gemm alike

    Args:
        bound: inputs of the net.
        given: the arrays that these follow from, for errors.

    Raises FeedError if there is no such weight, or one is not finite or not float32.
    """
    names = _Names({name: array.ndim for name, array in bound.items()}, _taken(net))
    changed = _with_int8(net, names)
    if not names.stored:
        hint = "Bind weights of MatMul, Gemm or recurrences: others stay floats, as kernels of convolutions do."
        raise FeedError("no bound input is a weight of a product", net=net.name, hint=hint)
    arrays = dict(bound)
    for weight, stored in names.stored.items():
        arrays.update(zip(stored, _columns(net, weight, bound[weight.blob], names.first[weight], given), strict=True))
    read = {name for op in changed.ops for name in op.inputs} | set(changed.output_blobs.values())
    specs = [spec for spec in changed.input_specs if spec.name in read or spec.name not in arrays]
    kept = changed.with_ops(changed.ops, inputs=specs).snapshot()
    return kept, {name: arrays[name] for name in kept.input_names if name in arrays}


def _columns(net: Net, weight: Weight, array: Array, op: str, given: Mapping[str, Array]) -> Columns:
    if array.dtype != np.float32:
        problem = "weights of int8 are for products of float32"
        raise FeedError(problem, net=net.name, op=op, blob=weight.blob, wanted="float32", came=array.dtype)
    if not np.isfinite(array).all():
        wrong = [name for name, one in given.items() if one.dtype.kind == "f" and not np.isfinite(one).all()]
        hint = f"Not finite: {', '.join(wrong) or 'a result of ops on bound inputs'}."
        problem = "a weight that is not finite has no scale"
        raise FeedError(problem, net=net.name, op=op, blob=weight.blob, wanted="finite numbers", hint=hint)
    whole, scale = as_int8(np.ascontiguousarray(array.T if weight.transposed else array))
    return Columns(whole, np.asarray(scale * np.float32(weight.factor)))


def _taken(net: Net) -> set[str]:
    return {name for op in net.ops for name in op.outputs} | set(net.input_names)


def _with_int8(net: Net, names: _Names) -> Net:
    ops = [new for op in net.ops for new in _changed(op, net.name, names)]
    inputs = [Input(name) for stored in names.stored.values() for name in stored]
    return net.with_ops(ops, inputs=[*net.input_specs, *inputs]).snapshot() if inputs else net


def _changed(op: Op, net: str, names: _Names) -> Iterator[Op]:
    if op.type == "MatMul" and op.inputs[1] in names.fixed:
        yield from _product(op, op.inputs[0], Weight(op.inputs[1]), op.outputs[0], names)
    elif op.type == "Gemm" and op.inputs[1] in names.fixed:
        yield from _gemm(op, names)
    elif op.type == "RecurrentNetwork":
        yield _with_changed_cell(op, net, names)
    else:
        yield op


def _product(op: Op, left: str, weight: Weight, result: str, names: _Names) -> Iterator[Op]:
    whole, scale = names.of(weight, op.label)
    product = free_name(f"{op.key}/whole", names.taken)
    yield Op("Int8MatMul", (left, whole), (product,), {}, op.layer)
    scaling = "Mul" if names.fixed[weight.blob] < 3 else "ScaleColumns"
    yield Op(scaling, (product, scale), (result,), {}, op.layer)


def _gemm(op: Op, names: _Names) -> Iterator[Op]:
    """A Gemm as ops of its own: a transposition, an int8 product, a scaled addend, a sum."""
    given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **op.attributes}
    left, right, addend = (*op.inputs, "")[:3]
    if given["transA"]:
        turned = free_name(f"{op.key}/left", names.taken)
        yield Op("Transpose", (left,), (turned,), {}, op.layer)
        left = turned
    product = free_name(f"{op.key}/product", names.taken) if addend else op.outputs[0]
    yield from _product(op, left, Weight(right, bool(given["transB"]), given["alpha"]), product, names)
    if addend and given["beta"] != 1.0:
        factor, scaled = (free_name(f"{op.key}/{what}", names.taken) for what in ("beta", "addend"))
        yield Op("Constant", (), (factor,), {"value": given["beta"], "dtype": "float"}, op.layer)
        yield Op("Mul", (addend, factor), (scaled,), {}, op.layer)
        addend = scaled
    if addend:
        yield Op("Add", (product, addend), op.outputs, {}, op.layer)


def _with_changed_cell(op: Op, net: str, names: _Names) -> Op:
    """A recurrence whose cell has weights of int8. These are inputs of the recurrence."""
    recurrence = Recurrence(op, net)
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference" and blob in names.fixed}
    inner = _Names({name: names.fixed[blob] for name, blob in outer.items()}, _taken(recurrence.cell))
    cell = _with_int8(recurrence.cell, inner)
    more = dict[str, str]()
    for weight, own in inner.stored.items():
        label = f"{inner.first[weight]} in the cell of {op.label}"
        more.update(zip(own, names.of(weight._replace(blob=outer[weight.blob]), label), strict=True))
    changed = with_references(replace(op, attributes={**op.attributes, "cell": cell}), more)
    return without_unread_references(changed) if more else op


Pattern: TypeAlias = "tuple[Any, ...] | str | float"
LOW: Pattern = ("Min", ("ReduceMin", "x"), 0.0)
WIDTH: Pattern = ("Sub", ("Max", ("ReduceMax", "x"), 0.0), LOW)
SCALE: Pattern = ("Div", ("Where", ("Equal", WIDTH, 0.0), 1.0, WIDTH), 255.0)
ZERO: Pattern = ("Round", ("Clip", ("Div", ("Neg", LOW), SCALE), 0.0, 255.0))
NUMBERS: Pattern = ("Clip", ("Add", ("Round", ("Div", "x", SCALE)), ZERO), 0.0, 255.0)
WITHOUT_ZERO: Pattern = ("Sub", NUMBERS, ZERO)  # x in 8 bits of its range; one nan makes all nan
EXACT_UP_TO = 2**24  # float32 has all whole numbers up to here


def byte_products(net: Net, bound: Mapping[str, Array]) -> tuple[Net, dict[str, Array]]:
    """A net whose products of rounded arrays and whole numbers are products of bytes, and its bound values.

    rewrite: `y = MatMul(Sub(q, zero), w)`  -->  `y = Sub(ByteMatMul(q, w), Mul(zero, w/sum))`, where q is x in 8
        bits by its own range, as ONNX's DynamicQuantizeLinear makes it, and w whole numbers that fit a byte

    All numbers are whole and small enough to be floats without an error, so that results have the same bits.
    """
    made = {name: op for op in net.ops for name in op.outputs}
    taken, ops, sums = _taken(net), list[Op](), dict[str, str]()
    for op in net.ops:
        if (
            op.type == "MatMul"
            and _fits_bytes(bound.get(op.inputs[1]))
            and _matches(WITHOUT_ZERO, op.inputs[0], made, {})
        ):
            (numbers, zero), weight = made[op.inputs[0]].inputs, op.inputs[1]
            sums.setdefault(weight, free_name(f"{weight}/sum", taken))
            product, moved = (free_name(f"{op.key}/{what}", taken) for what in ("bytes", "zero"))
            ops.append(Op("ByteMatMul", (numbers, weight), (product,), {}, op.layer))
            ops.append(Op("Mul", (zero, sums[weight]), (moved,), {}, op.layer))
            op = Op("Sub", (product, moved), op.outputs, {}, op.layer)
        ops.append(op)
    if not sums:
        return net, dict(bound)
    inputs = [*net.input_specs, *(Input(name) for name in sums.values())]
    more = {name: bound[weight].sum(0) for weight, name in sums.items()}
    return net.with_ops(ops, inputs=inputs).snapshot(), {**bound, **more}


def _fits_bytes(weight: Array | None) -> bool:
    """True for a matrix of whole numbers of a byte each, whose sums of products with bytes are exact."""
    if weight is None or weight.dtype != np.float32 or weight.ndim != 2 or not weight.size:
        return False
    fits = weight.min() >= -128 and weight.max() <= 127 and np.array_equal(weight, np.rint(weight))
    return bool(fits) and all(255 * np.maximum(x, 0).sum(0, "float64").max() < EXACT_UP_TO for x in (weight, -weight))


def _matches(pattern: Pattern, name: str, made: Mapping[str, Op], found: dict[str, str]) -> bool:
    """True if a blob is made by the ops of a pattern.

    Args:
        pattern: an op and patterns of its inputs, the name of any blob, or a number.
        found: name in the pattern -> the blob.
    """
    if isinstance(pattern, str):
        return found.setdefault(pattern, name) == name
    op = made.get(name)
    if op is None:
        return False
    if isinstance(pattern, float):
        return op.type == "Constant" and np.shape(op.attributes["value"]) == () and op.attributes["value"] == pattern
    kind, *parts = pattern
    if op.type != kind or len(op.inputs) != len(parts) or op.attributes not in ({}, {"keepdims": 0}):
        return False
    return all(_matches(part, one, made, found) for part, one in zip(parts, op.inputs, strict=True))


LARGE_CONSTANT = 1024  # elements from which on an array is an input, which kernels may pack, and not a constant


@dataclass(frozen=True)
class BoundSplit:
    """A net in two parts.

    Args:
        once: the part that runs once, from bound inputs to blobs that the rest reads.
        net: the whole net.
        rest: all other ops. `with_bound` makes a net of them.
        known: outputs of `once` that follow only from constants.
    """

    once: Net
    net: Net
    rest: tuple[Op, ...]
    known: frozenset[str] = frozenset()

    def with_bound(self, arrays: Mapping[str, Array], large: float = LARGE_CONSTANT) -> tuple[Net, dict[str, Array]]:
        """The rest as a net, and its bound inputs.

        Args:
            arrays: bound inputs, and the outputs of `once`.
            large: elements from which on an array that follows only from constants is an input.

        Whole numbers that come from `once` become constants, as shapes may depend on their values; small arrays that
        follow only from constants stay constants.
        """
        made = [name for name in self.once.output_blobs if name not in self.net.input_names]
        stay = [name for name in made if self._stays(name, arrays[name].size < large)]
        constants = [_constant(name, arrays[name], self.once.dtype_of(self.once.output_blobs[name])) for name in stay]
        inputs = [Input(name, shape=arrays[name].shape) for name in made if name not in stay]
        ops = [*constants, *self.rest]
        read = {name for op in ops for name in op.inputs} | set(self.net.output_blobs.values())
        kept = [spec for spec in self.net.input_specs if spec.name not in self.once.input_names or spec.name in read]
        net = self.net.with_ops(ops, inputs=[*kept, *inputs]).snapshot()
        return net, {name: arrays[name] for name in net.input_names if name in arrays}

    def _stays(self, name: str, small: bool) -> bool:
        """True if a blob is a constant of the rest."""
        return not is_float(self.once.dtype_of(self.once.output_blobs[name])) or (small and name in self.known)


def split_bound(net: Net, bound: Collection[str]) -> BoundSplit | None:
    """A net in two parts; None if no op can run once.

    rewrite: `v = Transpose(w); y = MatMul(x, v)`, w bound  -->  `v = Transpose(w)` once, `y = MatMul(x, v)`
    rewrite: `y = Gemm(x, w, transB=1)`, w bound  -->  `v = Transpose(w)` once, `y = Gemm(x, v)`
    """
    net = scale_weights(lay_out_weights(net, bound), bound)
    follows, constant, known = set(bound), set[str](), set[str]()  # blobs
    once, rest = list[Op](), list[Op]()
    outputs = set(net.output_blobs.values())
    for op in net.ops:
        given = {name for name in op.inputs if name}
        if not given and not schema_of(op.type).uses_context:
            constant.update(op.outputs)
            once.append(op)
            rest.append(op)
        elif given and given <= follows | constant and _may_run_once(op, outputs):
            known.update(op.outputs if given <= known | constant else ())
            follows.update(op.outputs)
            once.append(op)
        else:
            rest.append(op)
    read = {name for op in rest for name in op.inputs}
    made = {name: name for op in once for name in op.outputs if name in read and name in follows}
    if not made:
        return None
    inputs = [spec for spec in net.input_specs if spec.name in bound]
    return BoundSplit(prune(net.with_ops(once, made, inputs), ()), net, tuple(rest), frozenset(known))


def _may_run_once(op: Op, outputs: set[str]) -> bool:
    schema = schema_of(op.type)
    return not (schema.random or schema.uses_context or op.holds_net or outputs.intersection(op.outputs))


def _constant(name: str, value: Array, dtype: str) -> Op:
    plain = value.item() if value.ndim == 0 else value
    return Op("Constant", (), (name,), {"value": plain, "dtype": dtype})


def folded(
    net: Net, bound: dict[str, Array], float_dtype: str | None, large: float = LARGE_CONSTANT
) -> tuple[Net, dict[str, Array]]:
    """A live net and its bound inputs. Ops that read only bound inputs and constants are replaced by their results.

    Random ops stay, and keep their numbers, so that they draw the same.
    """
    split = None if float_dtype is None else split_bound(net, bound)
    if split is None or float_dtype is None:
        return net, bound
    workspace = Workspace()
    workspace.local.update(bound)
    types = {name: type_of(bound[name]) for name in split.once.input_names}
    execute(prepare(split.once, types, float_dtype), workspace, RunContext())
    return split.with_bound({**bound, **{name: workspace[name] for name in split.once.output_blobs}}, large)
