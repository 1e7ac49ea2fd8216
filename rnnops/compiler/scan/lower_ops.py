"""From the ops of a step to statements over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.scan.layouts import Layout, affine, box, dense
from rnnops.compiler.scan.statements import Access, Number, Statement
from rnnops.interpreter import Program
from rnnops.loops import Pointwise, Product, Reduction, View
from rnnops.schema import Call, schema_of
from rnnops.types import Array, Shape, Type


class UnsupportedError(Exception):
    """An op that has no compiled form (yet); its recurrence runs in the interpreter, and the plan says so."""


@dataclass
class Lowered:
    """A step as statements.

    Args:
        views: where the elements of each blob lie.
        numbers: blobs that are one known number.
        constants: arrays that are known before a run.
        types: of blobs that own memory.
        statements: in order.
    """

    views: dict[str, Access] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    def own(self, name: str, kind: Type) -> Access:
        """Give a blob memory of its own."""
        self.types[name] = kind
        self.views[name] = Access(name, dense(kind.shape))
        return self.views[name]

    def operand(self, name: str, shape: Shape) -> Access | Number:
        """A blob as an operand over axes of `shape`."""
        if name in self.numbers:
            return self.numbers[name]
        access = self.views[name]
        return replace(access, layout=access.layout.broadcast_to(shape))

    def fresh(self, name: str) -> str:
        """A name like this one that no blob has."""
        count = 0
        while f"{name}.{count}" in self.views:
            count += 1
        return f"{name}.{count}"


def lower_ops(program: Program, given: Mapping[str, Access], constants: Mapping[str, Array]) -> Lowered:
    """Turn every op of a step into statements.

    Args:
        program: of primitive ops (see `expand_ops`).
        given: where the inputs lie.
        constants: inputs whose values are known.

    Raises UnsupportedError for an op without a compiled form.
    """
    lowered = Lowered()
    for name, kind in program.types.items():
        if name in given:
            lowered.views[name] = given[name]
            lowered.types[given[name].owner] = kind
        elif name in constants:
            _constant(lowered, name, constants[name])
    for call in program.calls:
        _lower(lowered, call)
    return lowered


def _lower(lowered: Lowered, call: Call) -> None:
    if len(call.op.outputs) == 1 and call.output_values and call.output_values[0] is not None:
        return _constant(lowered, call.op.outputs[0], call.output_values[0])
    form = schema_of(call.op.type).loop_form(call)
    if call.op.type in RULES:
        RULES[call.op.type](lowered, call)
    elif isinstance(form, Pointwise):
        _pointwise(lowered, call)
    elif isinstance(form, View):
        _view(lowered, call)
    elif isinstance(form, Product):
        _product(lowered, call)
    elif isinstance(form, Reduction):
        _reduction(lowered, call)
    else:
        raise UnsupportedError(f"{call.op.label} has no compiled form")
    return None


def _constant(lowered: Lowered, name: str, value: Array) -> None:
    if value.size == 1:
        lowered.numbers[name] = value.reshape(()).item()
    else:
        lowered.own(name, Type(str(value.dtype), value.shape))
        lowered.constants[name] = np.ascontiguousarray(value)


def _pointwise(lowered: Lowered, call: Call) -> None:
    kind = call.output_types[0]
    operands = tuple(lowered.operand(name, kind.shape) for name in call.op.inputs if name)
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, operands, "apply", call, kind.dtype))


def _select_valid(lowered: Lowered, call: Call) -> None:
    """The lengths lie along axis 0 of the other operands."""
    kind = call.output_types[0]
    new, previous = (lowered.operand(name, kind.shape) for name in call.op.inputs[:2])
    lengths, timestep = (
        lowered.operand(name, ()) if name in lowered.numbers else lowered.views[name] for name in call.op.inputs[2:]
    )
    if isinstance(lengths, Access):
        lengths = replace(lengths, layout=lengths.layout.with_axes((0, *(None,) * (len(kind.shape) - 1)), kind.shape))
    if isinstance(timestep, Access):
        timestep = replace(timestep, layout=timestep.layout.with_axes((None,) * len(kind.shape), kind.shape))
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(
        Statement(call.op.outputs[0], kind.shape, target, (new, previous, lengths, timestep), "apply", call, kind.dtype)
    )


def _view(lowered: Lowered, call: Call) -> None:
    """Run the reference on element numbers, and read off what it does."""
    schema, neutral = schema_of(call.op.type), _without_fill(call)
    moved = [i for i in range(len(call.op.inputs)) if call.has(i) and (i == 0 or call.op.type == "Concat")]
    starts = np.cumsum([1, *(prod(call.shape(i)) for i in moved)])
    arrays: list[Any] = [None if not name else np.zeros(1) for name in call.op.inputs]
    for start, i in zip(starts, moved, strict=False):
        arrays[i] = np.arange(start, start + prod(call.shape(i)), dtype=np.int64).reshape(call.shape(i))
    for i in range(len(arrays)):
        if i not in moved and call.has(i) and i < len(call.values) and call.values[i] is not None:
            arrays[i] = call.values[i]
    if call.op.type == "Pad" and call.has(2):
        arrays[2] = np.zeros((), np.int64)
    result = schema.reference(neutral, *arrays)
    for name, kind, numbers in zip(
        call.op.outputs, call.output_types, result if isinstance(result, tuple) else (result,), strict=True
    ):
        if name:
            _moved(lowered, call, name, kind, np.asarray(numbers), [call.op.inputs[i] for i in moved], starts)


def _without_fill(call: Call) -> Call:
    """The call with a fill value of 0, which is no element's number."""
    if "constant_value" not in call.op.attributes:
        return call
    attributes = {name: value for name, value in call.op.attributes.items() if name != "constant_value"}
    return replace(call, op=replace(call.op, attributes=attributes))


def _moved(
    lowered: Lowered, call: Call, name: str, kind: Type, numbers: Array, sources: list[str], starts: Array
) -> None:
    if len(sources) == 1 and sources[0] in lowered.numbers and (numbers > 0).all():
        lowered.numbers[name] = lowered.numbers[sources[0]]
        return
    if len(sources) == 1 and sources[0] in lowered.views and (numbers > 0).all():
        access = lowered.views[sources[0]]
        layout = affine(access.layout.numbers().reshape(-1)[numbers - 1])
        if layout is not None:
            lowered.views[name] = replace(access, layout=layout)
            return
    _copied(lowered, call, name, kind, numbers, sources, starts)


def _copied(
    lowered: Lowered, call: Call, name: str, kind: Type, numbers: Array, sources: list[str], starts: Array
) -> None:
    target = lowered.own(name, kind)
    if (numbers == 0).any():
        fill = _fill(lowered, call, kind)
        lowered.statements.append(Statement(name, kind.shape, target, (fill,), "copy", call, kind.dtype))
    for source, start, stop in zip(sources, starts[:-1], starts[1:], strict=True):
        mask = (numbers >= start) & (numbers < stop)
        if mask.any():
            _copied_part(lowered, call, name, kind, mask, numbers - start, source)


def _copied_part(lowered: Lowered, call: Call, name: str, kind: Type, mask: Array, numbers: Array, source: str) -> None:
    region, positions = box(mask), dense(kind.shape).numbers()
    target = None if region is None else affine(positions[region])
    if region is None or target is None:
        raise UnsupportedError(f"{call.op.label}: this movement of elements has no compiled form")
    if source in lowered.numbers:
        operand: Access | Number = lowered.numbers[source]
    else:
        access = lowered.views[source]
        layout = affine(access.layout.numbers().reshape(-1)[numbers[region]])
        operand = (
            replace(access, layout=layout) if layout is not None else _by_table(lowered, name, access, numbers[region])
        )
    lowered.statements.append(Statement(name, target.shape, Access(name, target), (operand,), "copy", call, kind.dtype))


def _by_table(lowered: Lowered, name: str, access: Access, numbers: Array) -> Access:
    """Elements in an order that no strides describe: an array of their numbers is the index."""
    if access.index is not None:
        raise UnsupportedError(f"elements of '{name}' are moved twice by tables")
    table = lowered.fresh(f"{name}/table")
    lowered.constants[table] = np.ascontiguousarray(access.layout.numbers().reshape(-1)[numbers])
    index = lowered.own(table, Type("int64", numbers.shape))
    still = Layout(0, numbers.shape, (0,) * numbers.ndim)
    return Access(access.owner, still, index, 1, prod(lowered.types[access.owner].shape))


def _fill(lowered: Lowered, call: Call, kind: Type) -> Access | Number:
    if call.op.type == "Pad" and call.has(2):
        value = lowered.operand(call.op.inputs[2], ())
        return value if not isinstance(value, Access) else replace(value, layout=value.layout.broadcast_to(kind.shape))
    return call.attr("constant_value") if call.op.type == "Pad" else 0


def _product(lowered: Lowered, call: Call) -> None:
    """A fold over `[..., i, j, k]`; 1-D operands have no i or no j."""
    kind, a, b = call.output_types[0], call.shape(0), call.shape(1)
    inner = a[-1]
    head = kind.shape[: len(kind.shape) - (len(a) > 1) - (len(b) > 1)]
    rows, columns = (a[-2:-1], b[-1:]) if len(b) > 1 else (a[-2:-1], ())
    extents = (*head, *rows, *columns, inner)
    left, right = (_in_memory(lowered, name, call.types[i]) for i, name in enumerate(call.op.inputs))
    r, c, k = len(head), len(head) + len(rows), len(extents) - 1
    left_axes = _product_axes(len(a), len(head), (r, k) if rows else (k,))
    right_axes = _product_axes(len(b), len(head), (k, c) if columns else (k,))
    target_axes = [*range(len(kind.shape)), None]
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(
        Statement(
            call.op.outputs[0],
            extents,
            replace(target, layout=target.layout.with_axes(tuple(target_axes), extents)),
            (_placed(left, left_axes, extents), _placed(right, right_axes, extents)),
            "product",
            call,
            kind.dtype,
            "add",
            0.0,
        )
    )


def _in_memory(lowered: Lowered, name: str, kind: Type | None) -> Access:
    """Where a blob lies, also one that is a known number."""
    if name not in lowered.views and kind is not None:
        lowered.constants[name] = np.full(kind.shape, lowered.numbers[name], kind.dtype)
        lowered.own(name, kind)
    return lowered.views[name]


def _product_axes(rank: int, head: int, last: tuple[int, ...]) -> dict[int, int]:
    """For each axis of an operand the axis of the statement it runs along."""
    batch = rank - len(last)
    axes = {axis: head - batch + axis for axis in range(batch)}
    return {**axes, **{batch + i: axis for i, axis in enumerate(last)}}


def _placed(access: Access, axes: Mapping[int, int], extents: Shape) -> Access:
    order: list[int | None] = [None] * len(extents)
    for own, statement_axis in axes.items():
        order[statement_axis] = own
    return replace(access, layout=access.layout.with_axes(tuple(order), extents))


def _reduction(lowered: Lowered, call: Call) -> None:
    kind, shape, name = call.output_types[0], call.shape(0), call.op.outputs[0]
    axes = reduced_axes(call)
    fold, form = FOLD_OF[call.op.type], "square" if call.op.type == "ReduceSumSquare" else "copy"
    if kind.dtype == "bool":
        fold = {"max": "or", "min": "and"}[fold]
    mean = call.op.type == "ReduceMean"
    total = lowered.own(lowered.fresh(f"{name}/sum") if mean else name, kind)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    own = _axes_of_result(call, len(shape) - len(kind.shape), kept)
    order: list[int | None] = [None] * len(shape)
    for statement_axis, axis in zip(kept, own, strict=True):
        order[statement_axis] = axis
    target = replace(total, layout=total.layout.with_axes(tuple(order), shape))
    operand = lowered.operand(call.op.inputs[0], shape)
    start = 0 if fold == "add" else schema_of(call.op.type).start(call)  # type: ignore[attr-defined]
    lowered.statements.append(Statement(name, shape, target, (operand,), form, call, kind.dtype, fold, start))
    if mean:
        count = prod(shape[axis] for axis in axes)
        result = lowered.own(name, kind)
        lowered.statements.append(
            Statement(name, kind.shape, result, (total, float(count)), "quotient", call, kind.dtype)
        )


def _axes_of_result(call: Call, missing: int, kept: list[int]) -> list[int]:
    """The result's axis for each axis of the operand that is kept."""
    if call.op.type == "SumTo" or call.attr("keepdims"):
        return [axis - missing for axis in kept]
    return list(range(len(kept)))


def reduced_axes(call: Call) -> tuple[int, ...]:
    """The axes that a reduction folds."""
    if call.op.type != "SumTo":
        axes: tuple[int, ...] = schema_of(call.op.type).reduced_axes(call)  # type: ignore[attr-defined]
        return axes
    shape, out = call.shape(0), call.output_types[0].shape
    missing = len(shape) - len(out)
    return tuple(
        axis for axis in range(len(shape)) if axis < missing or (out[axis - missing] == 1 and shape[axis] != 1)
    )


FOLD_OF = {
    "ReduceSum": "add",
    "ReduceMean": "add",
    "ReduceSumSquare": "add",
    "SumTo": "add",
    "ReduceMax": "max",
    "ReduceMin": "min",
}


def _gather(lowered: Lowered, call: Call) -> None:
    """`data[..., index, ...]`: the index replaces the data's axis."""
    axis, kind = call.axis(call.attr("axis"), call.rank(0)), call.output_types[0]
    data, rank = lowered.views.get(call.op.inputs[0]), call.rank(1)
    index = lowered.operand(call.op.inputs[1], call.shape(1))
    if data is None or data.index is not None or not isinstance(index, Access):
        raise UnsupportedError(f"{call.op.label}: this look-up has no compiled form")
    order = (*range(axis), *(None,) * rank, *range(axis + 1, call.rank(0)))
    index_order = (*(None,) * axis, *range(rank), *(None,) * (call.rank(0) - axis - 1))
    operand = Access(
        data.owner,
        data.layout.with_axes(order, kind.shape),
        replace(index, layout=index.layout.with_axes(index_order, kind.shape)),
        data.layout.strides[axis],
        call.shape(0)[axis],
    )
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, (operand,), "copy", call, kind.dtype))


def _scatter_add(lowered: Lowered, call: Call) -> None:
    axis, kind, shape = call.attr("axis"), call.output_types[0], call.shape(0)
    rank, name = call.rank(1), call.op.outputs[0]
    index = lowered.operand(call.op.inputs[1], call.shape(1))
    if not isinstance(index, Access):
        raise UnsupportedError(f"{call.op.label}: this index has no compiled form")
    target = lowered.own(name, kind)
    lowered.statements.append(Statement(name, kind.shape, target, (0,), "copy", call, kind.dtype))
    order = (*range(axis), *(None,) * rank, *range(axis + 1, len(kind.shape)))
    index_order = (*(None,) * axis, *range(rank), *(None,) * (len(shape) - axis - rank))
    place = Access(
        name,
        target.layout.with_axes(order, shape),
        replace(index, layout=index.layout.with_axes(index_order, shape)),
        target.layout.strides[axis],
        kind.shape[axis],
    )
    operand = lowered.operand(call.op.inputs[0], shape)
    lowered.statements.append(Statement(name, shape, place, (operand,), "copy", call, kind.dtype, "add", None))


def _check_labels(lowered: Lowered, call: Call) -> None:
    raise UnsupportedError(f"{call.op.label}: checked labels have no compiled form")


def _dropout(lowered: Lowered, call: Call) -> None:
    """The mask first, from random numbers of its own; then what it keeps, scaled."""
    kind = call.output_types[0]
    name, mask = call.op.outputs[0], call.op.outputs[1] or lowered.fresh(f"{call.op.outputs[0]}/mask")
    kept = lowered.own(mask, Type("bool", kind.shape))
    lowered.statements.append(Statement(mask, kind.shape, kept, (prod(kind.shape[1:]),), "uniform", call, "bool"))
    if name:
        operands = (lowered.operand(call.op.inputs[0], kind.shape), kept)
        target = lowered.own(name, kind)
        lowered.statements.append(Statement(name, kind.shape, target, operands, "dropped", call, kind.dtype))


def _dropout_grad(lowered: Lowered, call: Call) -> None:
    kind = call.output_types[0]
    operands = tuple(lowered.operand(name, kind.shape) for name in call.op.inputs)
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, operands, "dropped", call, kind.dtype))


def _constant_of_shape(lowered: Lowered, call: Call) -> None:
    lowered.numbers[call.op.outputs[0]] = call.attr("value")


RULES: Mapping[str, Callable[[Lowered, Call], None]] = {
    "ConstantOfShape": _constant_of_shape,
    "SelectValid": _select_valid,
    "Gather": _gather,
    "ScatterAdd": _scatter_add,
    "CheckLabels": _check_labels,
    "Dropout": _dropout,
    "DropoutGrad": _dropout_grad,
}
