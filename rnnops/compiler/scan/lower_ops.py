"""From the ops of a step to statements over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from rnnops.compiler.scan.lookups import lower_check_labels, lower_gather, lower_scatter_add
from rnnops.compiler.scan.lowered import Lowered, UnsupportedError
from rnnops.compiler.scan.movements import lower_movement
from rnnops.compiler.scan.statements import Access, Statement
from rnnops.interpreter import Program
from rnnops.loops import Pointwise, Reduction, View
from rnnops.schema import Call, schema_of
from rnnops.types import Array, Shape, Type


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
            lowered.know(name, constants[name])
    for call in program.calls:
        lower_op(lowered, call)
    return lowered


def lower_op(lowered: Lowered, call: Call) -> None:
    """Add one op's statements and views. Raises UnsupportedError for an op without a compiled form."""
    if len(call.op.outputs) == 1 and call.output_values and call.output_values[0] is not None:
        return lowered.know(call.op.outputs[0], call.output_values[0])
    form = schema_of(call.op.type).loop_form(call)
    if call.op.type in RULES:
        RULES[call.op.type](lowered, call)
    elif isinstance(form, Pointwise):
        _pointwise(lowered, call)
    elif isinstance(form, View):
        lower_movement(lowered, call)
    elif isinstance(form, Reduction):
        _reduction(lowered, call)
    else:
        holds = "the cell holds a recurrence" if call.op.holds_net else f"{call.op.label} has no compiled form"
        raise UnsupportedError(holds)
    return None


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


def _product(lowered: Lowered, call: Call) -> None:
    """A fold over `[..., i, j, k]`; 1-D operands have no i or no j."""
    kind, a, b = call.output_types[0], call.shape(0), call.shape(1)
    inner = a[-1]
    head = kind.shape[: len(kind.shape) - (len(a) > 1) - (len(b) > 1)]
    rows, columns = (a[-2:-1], b[-1:]) if len(b) > 1 else (a[-2:-1], ())
    extents = (*head, *rows, *columns, inner)
    kinds = [Type(call.dtype(i), call.shape(i)) for i in range(2)]
    left, right = map(lowered.in_memory, call.op.inputs, kinds)
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
    "MatMul": _product,
    "ConstantOfShape": _constant_of_shape,
    "SelectValid": _select_valid,
    "Gather": lower_gather,
    "ScatterAdd": lower_scatter_add,
    "CheckLabels": lower_check_labels,
    "Dropout": _dropout,
    "DropoutGrad": _dropout_grad,
}
