"""From the ops of a step to statements over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.expressions import Name
from rnnops.compiler.ir.scan import Lowered, UnsupportedError
from rnnops.compiler.ir.statements import Access, Number, Statement, fold_word, operands_of
from rnnops.compiler.lower.check_fold import check_fold
from rnnops.compiler.lower.movements import lower_check_labels, lower_gather, lower_movement, lower_scatter_add
from rnnops.compiler.lower.scalar_expressions import Constants, OperandPlace, expression_of, places_of_operands
from rnnops.errors import OpError
from rnnops.interpreter import Program
from rnnops.loops import Kernel, Pointwise, ProductForm, Reduction, View, normal_text, places_of
from rnnops.schema import Call, form_of, schema_of
from rnnops.types import BOOL, Array, Shape, Type

ELEMENTS = {normal_text("{0}"): "copy", normal_text("{0} * {0}"): "square"}  # of the result's dtype
RESULT, MEAN = normal_text("{acc}"), normal_text("{acc} / {count}")


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
    form = form_of(call)
    if isinstance(form, Kernel) and form.name in RULES:
        RULES[form.name](lowered, call)
    elif isinstance(form, ProductForm):
        _product(lowered, call, form.operands)
    elif isinstance(form, Pointwise):
        _pointwise(lowered, call, form)
    elif isinstance(form, View):
        lower_movement(lowered, call, form)
    elif isinstance(form, Reduction):
        _reduction(lowered, call, form)
    elif call.op.holds_net:
        raise UnsupportedError("the cell holds a recurrence")
    else:
        raise UnsupportedError(f"{call.op.label} has no loop form and runs by its reference")
    return None


def _pointwise(lowered: Lowered, call: Call, form: Pointwise) -> None:
    """One scalar expression for each element; one that reads no operand is a number."""
    kind = call.output_types[0]
    number = _number_of(call, form)
    if number is not None:
        lowered.numbers[call.op.outputs[0]] = number
        return
    begins, given = dict(form.begins), [(i, name) for i, name in enumerate(call.op.inputs) if name]
    operands = tuple(
        _placed_operand(lowered, name, begins[i], kind.shape) if i in begins else lowered.operand(name, kind.shape)
        for i, name in given
    )
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, operands, "apply", call, kind.dtype))


def _number_of(call: Call, form: Pointwise) -> Number | None:
    """The attribute that all elements of a call are (`{value}`); None where they are something else."""
    places = places_of(form.text)
    if len(places) != 1 or places[0].isdigit() or form.text != f"{{{places[0]}}}":
        return None
    value: Number = call.attr(places[0])
    return value


def _placed_operand(lowered: Lowered, name: str, begin: int, shape: Shape) -> Access | Number:
    """An operand whose axes are those of the statement from one on."""
    if name in lowered.numbers:
        return lowered.numbers[name]
    access = lowered.views[name]
    rank = len(access.layout.shape)
    axes = (*(None,) * begin, *range(rank), *(None,) * (len(shape) - rank - begin))
    return replace(access, layout=access.layout.with_axes(axes, shape))


def _product(lowered: Lowered, call: Call, rounding: str) -> None:
    """A fold over `[..., i, j, k]`; 1-D operands have no i or no j.

    Args:
        rounding: what operands are rounded to.
    """
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
            rounding=rounding,
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


def _reduction(lowered: Lowered, call: Call, form: Reduction) -> None:
    """A fold of what elements contribute, and what is made of it where that is not the result itself."""
    kind, shape, name = call.output_types[0], call.shape(0), call.op.outputs[0]
    _check_texts(call, form)
    fold, finish = _fold_of(form, kind.dtype), normal_text(form.finish)
    label = f"{name}/sum" if fold == "add" else f"{name}/folded"
    total = lowered.own(name if finish == RESULT else lowered.fresh(label), kind)
    target = replace(total, layout=total.layout.with_axes(_axes_of_result(call), shape))
    same, element = call.dtype(0) == kind.dtype, normal_text(form.element)
    what, places = ELEMENTS.get(element, "element") if same else "element", operands_of(form)
    operands = tuple(lowered.operand(call.op.inputs[i], shape) for i in places)
    start = 0 if fold == "add" else form.start
    lowered.statements.append(Statement(name, shape, target, operands, what, call, kind.dtype, fold, start))
    if finish != RESULT:
        count = float(prod(shape[axis] for axis in schema_of(call.op.type).reduced_axes(call)))
        what = "quotient" if finish == MEAN else "finish"
        result = lowered.own(name, kind)
        lowered.statements.append(Statement(name, kind.shape, result, (total, count), what, call, kind.dtype))


def _fold_of(form: Reduction, dtype: str) -> str:
    """The word for a combination that kernels have steps for, else its text; `or` is one of bools alone."""
    word = fold_word(form.combine)
    return form.combine if not word or (word in ("or", "and") and dtype != BOOL) else word


def _check_texts(call: Call, form: Reduction) -> None:
    """Raise OpError where a form has no meaning for the dtypes of a call, or cannot be folded in parts."""
    dtype = call.output_types[0].dtype
    a, b = OperandPlace(Name("a", dtype=dtype), dtype), OperandPlace(Name("b", dtype=dtype), dtype)
    operands = [Name("x", dtype=kind.dtype) if kind else 0 for kind in call.types]
    expression_of(call, form.element, places_of_operands(call, operands), dtype, Constants())
    expression_of(call, form.combine, {"a": a, "b": b}, dtype, Constants())
    expression_of(call, form.finish, {"acc": a, "count": b}, dtype, Constants())
    check_fold(call, form)


def _axes_of_result(call: Call) -> tuple[int | None, ...]:
    """The result's axis for each axis of the operand, None where that is folded."""
    shape, result = call.shape(0), call.output_types[0].shape
    folded = call.axes(schema_of(call.op.type).reduced_axes(call), len(shape))
    kept = [axis for axis in range(len(shape)) if axis not in folded]
    missing = len(shape) - len(result)
    own = range(len(kept)) if len(result) == len(kept) else [axis - missing for axis in kept]
    order: list[int | None] = [None] * len(shape)
    for axis, place in zip(kept, own, strict=True):
        order[axis] = place
    sizes = [1] * len(result)
    if all(0 <= place < len(result) for place in own):
        for axis, place in zip(kept, own, strict=True):
            sizes[place] = shape[axis]
    if tuple(sizes) != result:
        raise OpError(
            "its shape is not that of its operand without the axes that `reduced_axes` names",
            net=call.net,
            op=call.op.label,
            wanted=f"{list(result)}, as `shapes` says",
            came=f"axes {list(folded)} of {list(shape)}",
        )
    return tuple(order)


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


def _uniform(lowered: Lowered, call: Call) -> None:
    kind, name = call.output_types[0], call.op.outputs[0]
    target = lowered.own(name, kind)
    lowered.statements.append(Statement(name, kind.shape, target, (prod(kind.shape[1:]),), "uniform", call, kind.dtype))


def _dropout_grad(lowered: Lowered, call: Call) -> None:
    kind = call.output_types[0]
    operands = tuple(lowered.operand(name, kind.shape) for name in call.op.inputs)
    target = lowered.own(call.op.outputs[0], kind)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, operands, "dropped", call, kind.dtype))


RULES: Mapping[str, Callable[[Lowered, Call], None]] = {  # by the name of a Kernel
    "gather": lower_gather,
    "scatter_add": lower_scatter_add,
    "check_labels": lower_check_labels,
    "dropout": _dropout,
    "dropout_grad": _dropout_grad,
    "uniform": _uniform,
}
