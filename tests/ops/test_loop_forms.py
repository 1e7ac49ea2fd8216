"""Loop forms tell the truth: each, run in plain Python, gives what the reference gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from each import check_each
from op_cases import Case, Run, declare, evaluate, run_case
from op_table import CASES, INTERNAL_CASES

from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, Kernel, Pointwise, ProductForm, Reduction, View
from rnnops.net.net import Net
from rnnops.net.schema import REGISTRY, Call, RunContext
from rnnops.ops.base import bits_of, numbers_of
from rnnops.types import FLOAT

Array = npt.NDArray[Any]
TOLERANCE = 1e-11
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "atan": np.arctan,
    "bfloat16_code": lambda x: float(bits_of(np.asarray(x))),
    "bfloat16_value": lambda code: float(numbers_of(np.asarray(code).astype("uint16"))),
    "exp": np.exp,
    "fmod": np.fmod,
    "rint": np.rint,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "sign": np.sign,
    "pow": lambda a, b: np.power([a, a], [b, b])[0],
    "abs": np.abs,
    "erf": math.erf,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "divide_towards_zero": lambda a, b: int(a / b),
}
CONSTANTS = {"inf": math.inf}
WORDS = {*FUNCTIONS, *CONSTANTS, "and", "or", "not", "if", "else", "True", "False", "e"}


@pytest.fixture(autouse=True)
def _silent_edges() -> Any:
    with np.errstate(all="ignore"):
        yield


RUNS = {
    str(case): run_case(case, case.arrays("float64"), "float64")
    for case in [*CASES, *INTERNAL_CASES]
    if "float64" in case.dtypes
}


def form_of(run: Run) -> Any:
    return REGISTRY[run.last.op.type].loop_form(run.last)


def name_of(run: Run) -> str:
    return next(name for name, other in RUNS.items() if other is run)


def runs_of(form: type) -> dict[str, list[Run]]:
    """Cases whose op has a loop form of this kind, run in float64, by op."""
    found: dict[str, list[Run]] = {}
    for run in RUNS.values():
        if isinstance(form_of(run), form):
            found.setdefault(run.last.op.type, []).append(run)
    return found


POINTWISE, REDUCTIONS, EXPANSIONS, VIEWS = map(runs_of, (Pointwise, Reduction, Expansion, View))


def compiled(text: str, call: Call, names: dict[str, str]) -> Callable[..., Any]:
    """A function of the operands from a scalar expression; attributes are filled in."""
    schema = REGISTRY[call.op.type]
    attributes = {name: repr(call.attr(name)) for name in schema.attributes}
    filled = re.sub(r"{(\w+)}", lambda match: names.get(match[1]) or f"({attributes[match[1]]})", text)
    used = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"\b\d[\d.]*(e[+-]?\d+)?", "", filled)))
    assert used <= WORDS | set(names.values()), f"unknown words in {text!r}"
    function: Callable[..., Any] = eval(
        f"lambda {', '.join(names.values())}: {filled}", {"__builtins__": {}, **FUNCTIONS, **CONSTANTS}
    )
    return function


def operands(run: Run) -> dict[int, Array]:
    """Operands by position, each repeated to the result's shape; lengths lie along the axis of rows."""
    shape, result = run.last.output_types[0].shape, {}
    for i, name in enumerate(run.last.op.inputs):
        if name and run.last.op.type != "ConstantOfShape":  # whose operand is a shape
            array = run.arrays[name]
            if (run.last.op.type, i) in (("SelectValid", 2), ("MaskRows", 1)):
                axis = (run.last.attr("axis") or 0) % len(shape)
                array = array.reshape(-1, *(1,) * (len(shape) - axis - 1))
            result[i] = np.broadcast_to(array, shape)
    return result


@pytest.mark.parametrize("op", POINTWISE)
def test_pointwise_text_is_the_reference(op: str) -> None:
    check_each(POINTWISE[op], assert_pointwise_text_is_the_reference, name_of)


def assert_pointwise_text_is_the_reference(run: Run) -> None:
    arrays = operands(run)
    function = compiled(form_of(run).text, run.last, {str(i): f"x{i}" for i in arrays})
    kind = run.last.output_types[0]
    came = np.empty(kind.shape, kind.dtype)
    for place in np.ndindex(kind.shape):
        came[place] = function(*(array[place] for array in arrays.values()))
    np.testing.assert_allclose(came, run.results[0], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reduction_is_the_reference(op: str) -> None:
    check_each(REDUCTIONS[op], assert_reduction_is_the_reference, name_of)


def assert_reduction_is_the_reference(run: Run) -> None:
    call, form = run.last, form_of(run)
    shape, folded = call.shape(0), REGISTRY[call.op.type].reduced_axes(call)
    kept = tuple(1 if axis in folded else size for axis, size in enumerate(shape))
    element = compiled(form.element, call, {"0": "x"})
    combine = compiled(form.combine, call, {"a": "a", "b": "b"})
    finish = compiled(form.finish, call, {"acc": "acc", "count": "count"})
    accumulators = np.full(kept, form.start, dtype=object)
    x = run.arrays[call.op.inputs[0]]
    for place in np.ndindex(shape):
        target = tuple(0 if size == 1 else at for at, size in zip(place, kept, strict=True))
        accumulators[target] = combine(accumulators[target], element(x[place]))
    count, kind = np.float64(math.prod(shape[axis] for axis in folded)), call.output_types[0]
    number = np.float64 if kind.dtype == "float64" else np.asarray
    came = [finish(number(acc), count) for acc in accumulators.ravel()]
    np.testing.assert_allclose(np.array(came, kind.dtype).reshape(kind.shape), run.results[0], rtol=TOLERANCE)


@pytest.mark.parametrize("op", EXPANSIONS)
def test_expansion_is_the_reference(op: str) -> None:
    check_each(EXPANSIONS[op], assert_expansion_is_the_reference, name_of)


def assert_expansion_is_the_reference(run: Run) -> None:
    call = run.last
    net = Net("expanded")
    given = [(i, run.arrays[name]) for i, name in enumerate(call.op.inputs) if name]
    blobs: list[Blob | None] = [None] * len(call.op.inputs)
    for (i, _), blob in zip(given, declare(net, [array for _, array in given]), strict=True):
        blobs[i] = blob
    result = REGISTRY[call.op.type].expand(call, *blobs)
    results = result if isinstance(result, tuple) else (result,)
    feeds = dict(zip(net.input_names, (array for _, array in given), strict=True))
    arrays = evaluate(net, feeds, "float64", RunContext()).arrays
    assert call.op.type not in {op.type for op in net.ops}
    for blob, wanted in zip(results, run.results, strict=True):
        assert arrays[blob.name].dtype == wanted.dtype
        assert arrays[blob.name].shape == wanted.shape
        np.testing.assert_allclose(arrays[blob.name], wanted, rtol=TOLERANCE, atol=TOLERANCE)
        assert blob.dtype == (FLOAT if wanted.dtype.kind == "f" else str(wanted.dtype))


@pytest.mark.parametrize("op", VIEWS)
def test_views_only_move_elements(op: str) -> None:
    check_each(VIEWS[op], assert_elements_only_move, name_of)


def assert_elements_only_move(run: Run) -> None:
    call = run.last
    sources = [run.arrays[name] for name in call.op.inputs if name]
    filler = {"Pad": [call.attr("constant_value")], "ScatterSlice": [0]}.get(call.op.type, [])
    known = {*filler, *(item for array in sources for item in array.ravel().tolist())}
    assert {item for result in run.results for item in result.ravel().tolist()} <= known


def test_products_and_kernels_are_few_and_named() -> None:
    assert set(runs_of(ProductForm)) == {"MatMul"}
    kernels = {op: form_of(run).name for op, runs in runs_of(Kernel).items() for run in runs}
    assert kernels == {
        "Gather": "gather",
        "ScatterAdd": "scatter_add",
        "Dropout": "dropout",
        "DropoutGrad": "dropout_grad",
        "RandomUniformLike": "uniform",
        "CheckLabels": "check_labels",
    }


def test_ops_without_a_form_are_few() -> None:
    runs = [run for run in RUNS.values() if form_of(run) is None]
    systems = {"Solve", "Cholesky", "Slogdet"}
    known = {"Range", "Shape", "Constant", "TopK", "ScatterElements", "ScatterND"}
    assert {run.last.op.type for run in runs} == known | systems


def test_every_scalar_function_has_a_meaning_here() -> None:
    assert set(FUNCTIONS) == set(SCALAR_FUNCTIONS)


def test_a_wrong_text_is_caught() -> None:
    run = run_case(Case("Sub", "", lambda a: a - 2.0, ()), (np.arange(3.0),), "float64")
    assert compiled("{0} - {1}", run.last, {"0": "x0", "1": "x1"})(5.0, 2.0) == 3.0
    with pytest.raises(AssertionError, match="unknown words"):
        compiled("{0} - open({1})", run.last, {"0": "x0", "1": "x1"})
