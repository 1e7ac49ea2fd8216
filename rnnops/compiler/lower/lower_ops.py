"""From the ops of a step to statements over memory: ops are expanded first, and folds checked.

**Checks of reductions**: `combine` is tried on some numbers. Processors fold in order. Lanes of a CUDA device fold
parts that all begin with `start`, and join these. Both give the same result only if `start` changes no number, and if
`combine` depends neither on order nor on grouping. Limit: faults that only other numbers show are not found.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.lower.expressions import Constants, Name, OperandPlace, expression_of, places_of_operands
from rnnops.compiler.lower.movements import lower_check_labels, lower_gather, lower_movement, lower_scatter_add
from rnnops.compiler.lower.scan import Lowered, UnsupportedError
from rnnops.compiler.lower.statements import Access, Number, Statement, fold_word, operands_of
from rnnops.errors import OpError
from rnnops.interpreter import Program, fold_constants, prepare_again, prune
from rnnops.kernels.scalar_functions import implementations
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import (
    NUMBERS,
    PREFIX,
    Expansion,
    Kernel,
    Pointwise,
    ProductForm,
    Reduction,
    View,
    normal_text,
    places_of,
    read_text,
)
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, absolute_names, free_name
from rnnops.net.schema import Call, form_of, is_number, schema_of
from rnnops.recurrent.cell_rewrites import is_view, split_step
from rnnops.types import BOOL, FLOATS, Array, Shape, Type

OPERATIONS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
SAMPLES = {"float": (-2.5, -0.5, 0.0, 0.75, 3.0), "int": (0, 1, 2, 5), "bool": (False, True)}
CASTS: Mapping[str, Callable[[Any], Any]] = {"float": np.float64, "int": int, "bool": bool}  # integers of any size
TOLERANCE = 1e-9  # in float64, of combinations of a few numbers
Numbers = tuple[tuple[str, Any], ...]


def check_fold(call: Call, form: Reduction) -> None:
    """Raise OpError if a call's reduction cannot be folded in parts."""
    numbers = tuple((name, call.attr(name)) for name in schema_of(call.op.type).attributes)
    known = tuple((name, np.asarray(value).item()) for name, value in numbers if is_number(value))
    problem = _problem(form, _kind(call.dtype(0)), _kind(call.output_types[0].dtype), known)
    if problem:
        raise OpError(problem, net=call.net, op=call.op.label, hint="Leave the form out, and it runs by its reference.")


def _kind(dtype: str) -> str:
    return "float" if dtype in FLOATS else "bool" if dtype == BOOL else "int"


@cache
def _problem(form: Reduction, operands: str, kind: str, numbers: Numbers) -> str:
    """The fault of a form for dtypes of these kinds; empty if it has none."""
    cast = CASTS[kind]

    def combine(a: Any, b: Any) -> Any:
        return cast(evaluate(form.combine, {"a": a, "b": b, **dict(numbers)}))

    with np.errstate(all="ignore"):
        found = [cast(evaluate(form.element, dict(given))) for given in _elements(form, operands, numbers)]
        start, tried = cast(form.start), [x for x in dict.fromkeys(found) if np.isfinite(x)][:6]
        for x in (start, *tried):
            for made in (combine(start, x), combine(x, start)):
                if not _same(made, x):
                    return f"`start` {form.start!r} is not neutral: '{form.combine}' makes {made} of {x}"
        for a, b, c in product(tried, repeat=3):
            if not _same(combine(a, b), combine(b, a)):
                return f"'{form.combine}' is {combine(a, b)} for {a}, {b} and {combine(b, a)} for {b}, {a}"
            if not _same(combine(combine(a, b), c), combine(a, combine(b, c))):
                return f"'{form.combine}' of {a}, {b}, {c} depends on which two are combined first"
    return ""


def _elements(form: Reduction, kind: str, numbers: Numbers) -> list[Numbers]:
    """Values for the placeholders of `element`, for each try."""
    operands = [place for place in places_of(form.element) if place.isdigit()]
    samples = SAMPLES[kind]
    return [
        (*numbers, *((place, samples[(i + number) % len(samples)]) for number, place in enumerate(operands)))
        for i in range(len(samples))
    ]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int):
        return bool(a == b)
    return bool(np.isclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a text of a loop form, given a number for each placeholder."""
    return _value(read_text(text), values)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return NUMBERS[node.id] if node.id in NUMBERS else values[node.id.removeprefix(PREFIX)]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, values) else node.orelse, values)
    if isinstance(node, ast.BoolOp):
        parts = [bool(_value(part, values)) for part in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.Compare):
        sides = [_value(side, values) for side in (node.left, *node.comparators)]
        return all(OPERATIONS[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.BinOp):
        left = _value(node.left, values)
        left = np.float64(left) if isinstance(left, float) else left  # NumPy divides by 0 without an error
        return OPERATIONS[type(node.op)](left, _value(node.right, values))
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    result = implementations("cpu")[node.func.id](*(_scalar(_value(argument, values)) for argument in node.args))
    return np.asarray(result).item()


def _scalar(value: Any) -> Any:
    """The number as a NumPy scalar, which scalar functions take."""
    if isinstance(value, int):
        return np.uint64(value) if value > np.iinfo(np.int64).max else np.int64(value)
    return np.float64(value)


DEEPEST = 16  # expansions within expansions: those of the library go three deep


def expand_ops(program: Program, only: Collection[str] | None = None) -> Program:
    """Replace every op of loop form `Expansion` by simpler ops, until none is left. Nets in attributes do not change.

    Args:
        only: types of the ops that are replaced; None for all.

    rewrite: `y = Softmax(x)`  -->
        `a = ReduceMax(x, axes=[-1]); b = Sub(x, a); c = Exp(b); d = ReduceSum(c, axes=[-1]); y = Div(c, d)`
    """
    for _ in range(DEEPEST):
        expansions = [c for c in program.calls if _is_expansion(c) and (only is None or c.op.type in only)]
        if not expansions:
            return program
        program = _expanded_once(program, expansions)
    endless = expansions[0]
    problem = f"its loop form is Expansion(), and ops are left to expand after {DEEPEST} rounds"
    raise OpError(problem, net=program.net.name, op=endless.op.label, hint="Use simpler ops in `expand`.")


def _is_expansion(call: Call) -> bool:
    return isinstance(form_of(call), Expansion)


def _expanded_once(program: Program, expansions: Collection[Call]) -> Program:
    taken, keys = set(program.types), {call.op.key for call in expansions}
    expanded = [_parts(call, program.net, taken) if call.op.key in keys else [call.op] for call in program.calls]
    net = program.net.with_ops(list(chain.from_iterable(expanded)))
    found = prepare_again(program, net)
    for call in expansions:
        for name, kind in zip(call.op.outputs, call.output_types, strict=True):
            if name and found.types[name] != kind:
                problem = "`expand` gives another type than `shapes` and `dtypes` do"
                came = found.types[name]
                raise OpError(problem, net=net.name, op=call.op.label, blob=name, wanted=kind, came=came)
    return found


def _parts(call: Call, net: Net, taken: set[str]) -> list[Op]:
    """The ops that replace a call. Blobs inside are named `<its first output>/<name>`; these names go into `taken`."""
    scratch, results = _scratch_net(call, net)
    needed = prune(scratch, outputs=results)
    names = {blob: name for name, blob in results.items()}
    for blob in chain.from_iterable(op.outputs for op in needed.ops):
        if blob and blob not in names:
            names[blob] = free_name(f"{call.op.key}/{blob}", taken)
    return [_renamed(op, names) for op in needed.ops]


def _scratch_net(call: Call, net: Net) -> tuple[Net, dict[str, str]]:
    """The expansion of a call as a net with the call's inputs, and the blob in it for each output of the call."""
    op, scratch = call.op, Net(net.name, net.float_dtype)
    given = {name: kind for name, kind in zip(op.inputs, call.types, strict=True) if kind is not None}
    # inputs keep the dtypes that the net declares: one op may not take both "float" and "float32"
    blobs = {name: scratch.add_input(Input(name, net.dtype_of(name), kind.shape)) for name, kind in given.items()}
    with absolute_names(), scratch.in_layer(op.layer):
        result = schema_of(op.type).expand(call, *map(blobs.get, op.inputs))
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) != len(op.outputs) or not all(isinstance(part, Blob) for part in parts):
            problem, wanted = "`expand` must return a blob for each output", f"{len(op.outputs)} blobs"
            raise OpError(problem, net=net.name, op=op.label, wanted=wanted, came=result)
        results: dict[str, str] = {}
        for name, blob in zip(op.outputs, parts, strict=True):
            if name:
                results[name] = _as_result(blob, {*blobs, *results.values()})
    return scratch, results


def _as_result(blob: Blob, others: set[str]) -> str:
    """The name of a blob that becomes an output. If it is an input or another output, a copy is made."""
    return (blob.net.apply("Identity", [blob]) if blob.name in others else blob).name


def _renamed(op: Op, names: Mapping[str, str]) -> Op:
    inputs = tuple(names.get(name, name) for name in op.inputs)
    return replace(op, inputs=inputs, outputs=tuple(names.get(name, name) for name in op.outputs))


@dataclass(frozen=True)
class Hoisted:
    """A step, and apart from it the ops whose results are the same at every step.

    Args:
        step: its references include the outputs of `prologue`.
        references: inputs of `step` that are the same at every step.
        prologue: the ops that run once; None if there are none.
    """

    step: Program
    references: tuple[str, ...]
    prologue: Program | None


def hoist_invariants(program: Program, references: Collection[str], wanted: Iterable[str]) -> Hoisted:
    """Move ops that read only references and constants out of a step; views and values known before a run stay.

    rewrite: `w2 = Exp(w); y = Mul(x, w2)`  -->  before: `w2 = Exp(w)`; step: `y = Mul(x, w2)`

    Args:
        wanted: blobs of the step that are stored or summed.
    """
    wanted = list(wanted)
    program = prepare_again(program, prune(fold_constants(program), outputs={name: name for name in wanted}))
    split = split_step(program, references, wanted, copied=_copied_views(program, references))
    read = {*wanted, *(name for op in split.stay for name in op.inputs)}
    inputs = [
        *(spec for spec in program.net.input_specs if spec.name in read),
        *(Input(name, program.net.dtype_of(name), program.types[name].shape) for name in split.results),
    ]
    step = prepare_again(program, program.net.with_ops(split.stay, outputs={}, inputs=inputs))
    kept = tuple(spec.name for spec in inputs if spec.name in split.fixed)
    return Hoisted(step, kept, prepare_again(program, split.once) if split.results else None)


LOOKED_AT = 1 << 22  # elements: views of more are not tested, as a test takes long
PLAIN_VIEWS = ("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")  # of a whole array: never copies


def _copied_views(program: Program, references: Collection[str]) -> set[str]:
    """Results of view ops that need a copy, because no strides describe them: for example a reshaped transpose."""
    calls = [call for call in program.calls if is_view(call) and len(call.op.outputs) == 1]
    views = {call.op.outputs[0]: call for call in calls if call.output_types[0].size <= LOOKED_AT}
    lowered, copied = Lowered(), set[str]()
    for name in references:
        lowered.own(name, program.types[name])
    for name, call in views.items():
        plain = call.op.inputs[0] in references and call.op.type in PLAIN_VIEWS
        if not plain and _is_copy(name, views, lowered):
            copied.add(name)
    return copied


def _is_copy(name: str, views: Mapping[str, Call], lowered: Lowered) -> bool:
    """True if a view op needs a copy. The views that it reads are lowered first."""
    if name not in lowered.views and name in views and not _is_copy(views[name].op.inputs[0], views, lowered):
        count = len(lowered.statements)
        if views[name].op.inputs[0] in lowered.views:
            lower_op(lowered, views[name])
        return len(lowered.statements) > count
    return False


ELEMENTS = {normal_text("{0}"): "copy", normal_text("{0} * {0}"): "square"}  # if operands have the result's dtype
RESULT, MEAN = normal_text("{acc}"), normal_text("{acc} / {count}")


def lower_ops(program: Program, given: Mapping[str, Access], constants: Mapping[str, Array]) -> Lowered:
    """Turn every op of a step into statements.

    Args:
        program: of primitive ops (see `expand_ops`).
        given: the memory of the inputs.
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
    """A statement with one scalar expression. An op that reads no operand becomes a known number."""
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
    lowered.compute(call.op.outputs[0], kind, operands, "apply", call)


def _number_of(call: Call, form: Pointwise) -> Number | None:
    """The number that all elements are, if the loop form is only an attribute (`{value}`); else None."""
    places = places_of(form.text)
    if len(places) != 1 or places[0].isdigit() or form.text != f"{{{places[0]}}}":
        return None
    value: Number = call.attr(places[0])
    return value


def _placed_operand(lowered: Lowered, name: str, begin: int, shape: Shape) -> Access | Number:
    """An operand whose axis 0 is axis `begin` of the statement."""
    if name in lowered.numbers:
        return lowered.numbers[name]
    access = lowered.views[name]
    rank = len(access.layout.shape)
    axes = (*(None,) * begin, *range(rank), *(None,) * (len(shape) - rank - begin))
    return replace(access, layout=access.layout.with_axes(axes, shape))


def _product(lowered: Lowered, call: Call, rounding: str) -> None:
    """A product as a statement over `[..., i, j, k]` that folds k. A 1-D operand has no i or no j.

    Args:
        rounding: the dtype that operands are rounded to.
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
    target = lowered.own(call.op.outputs[0], kind)
    target = replace(target, layout=target.layout.with_axes((*range(len(kind.shape)), None), extents))
    operands = _placed(left, left_axes, extents), _placed(right, right_axes, extents)
    made = Statement(call.op.outputs[0], extents, target, operands, "product", call, kind.dtype, "add", 0.0)
    lowered.statements.append(replace(made, rounding=rounding))


def _product_axes(rank: int, head: int, last: tuple[int, ...]) -> dict[int, int]:
    """Axis of an operand -> axis of the statement that it runs along."""
    batch = rank - len(last)
    axes = {axis: head - batch + axis for axis in range(batch)}
    return {**axes, **{batch + i: axis for i, axis in enumerate(last)}}


def _placed(access: Access, axes: Mapping[int, int], extents: Shape) -> Access:
    order: list[int | None] = [None] * len(extents)
    for own, statement_axis in axes.items():
        order[statement_axis] = own
    return replace(access, layout=access.layout.with_axes(tuple(order), extents))


def _reduction(lowered: Lowered, call: Call, form: Reduction) -> None:
    """A fold of the `element` values. If `finish` changes the fold, a second statement computes the result."""
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
        lowered.compute(name, kind, (total, count), "quotient" if finish == MEAN else "finish", call)


def _fold_of(form: Reduction, dtype: str) -> str:
    """The word of `FOLDS` for a combination, else its text. `or` and `and` are words only for bools."""
    word = fold_word(form.combine)
    return form.combine if not word or (word in ("or", "and") and dtype != BOOL) else word


def _check_texts(call: Call, form: Reduction) -> None:
    """Raise OpError if a form has no meaning for the dtypes of a call, or cannot be folded in parts."""
    dtype = call.output_types[0].dtype
    a, b = OperandPlace(Name("a", dtype=dtype), dtype), OperandPlace(Name("b", dtype=dtype), dtype)
    operands = [Name("x", dtype=kind.dtype) if kind else 0 for kind in call.types]
    expression_of(call, form.element, places_of_operands(call, operands), dtype, Constants())
    expression_of(call, form.combine, {"a": a, "b": b}, dtype, Constants())
    expression_of(call, form.finish, {"acc": a, "count": b}, dtype, Constants())
    check_fold(call, form)


def _axes_of_result(call: Call) -> tuple[int | None, ...]:
    """The result's axis for each axis of the operand; None for a folded one."""
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
    """A statement for the random mask, then one for the elements that it keeps, scaled."""
    kind = call.output_types[0]
    name, mask = call.op.outputs[0], call.op.outputs[1] or lowered.fresh(f"{call.op.outputs[0]}/mask")
    kept = lowered.compute(mask, Type("bool", kind.shape), (prod(kind.shape[1:]),), "uniform", call)
    if name:
        lowered.compute(name, kind, (lowered.operand(call.op.inputs[0], kind.shape), kept), "dropped", call)


def _uniform(lowered: Lowered, call: Call) -> None:
    kind = call.output_types[0]
    lowered.compute(call.op.outputs[0], kind, (prod(kind.shape[1:]),), "uniform", call)


def _dropout_grad(lowered: Lowered, call: Call) -> None:
    kind = call.output_types[0]
    operands = tuple(lowered.operand(name, kind.shape) for name in call.op.inputs)
    lowered.compute(call.op.outputs[0], kind, operands, "dropped", call)


RULES: Mapping[str, Callable[[Lowered, Call], None]] = {  # by the name of a Kernel
    "gather": lower_gather,
    "scatter_add": lower_scatter_add,
    "check_labels": lower_check_labels,
    "dropout": _dropout,
    "dropout_grad": _dropout_grad,
    "uniform": _uniform,
}
