"""Every op against onnx.reference (NumPy, where that is wrong), over dtypes, sizes and memory layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from each import check_each
from onnx_twin import onnx_results
from op_cases import Case, run_case
from op_table import CASES, INTERNAL_CASES
from uniformity import uniform_probability

import rnnops as ro
from rnnops import compile as compile_net
from rnnops.errors import FeedError
from rnnops.kernels.scalar_functions import uniform_rows
from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.schema import REGISTRY, RunContext, op_names
from rnnops.ops.shapes import dropout_grad
from rnnops.types import Type, type_of

Array = npt.NDArray[Any]
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}
ALL_CASES = [*CASES, *INTERNAL_CASES]
OPS = sorted({case.op for case in ALL_CASES})


def runs_of(op: str) -> list[tuple[Case, str]]:
    """Cases of an op, each with the dtypes that make a difference to it."""
    return [
        (case, dtype)
        for case in ALL_CASES
        if case.op == op
        for dtype in case.dtypes
        if dtype == case.dtypes[0] or not case.inputs or any(array.dtype == np.float64 for array in case.inputs)
    ]


def name_of(run: tuple[Case, str]) -> str:
    return f"{run[0]} {run[1]}"


def assert_equal(came: tuple[Array, ...], wanted: tuple[Array, ...], dtype: str) -> None:
    assert len(came) == len(wanted)
    for one, other in zip(came, wanted, strict=True):
        assert isinstance(one, np.ndarray)
        assert type_of(one) == type_of(np.asarray(other))
        np.testing.assert_allclose(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def awkward(array: Array) -> Array:
    """The same values as a read-only view with gaps, in the order of another language where it has several axes."""
    if array.ndim == 0:
        view = np.stack([array, array])[1]
        return np.asarray(np.broadcast_to(view, ()))
    wide = np.repeat(np.asfortranarray(array), 2, axis=0)
    view = wide[::2]
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("op", OPS)
def test_results_are_those_of_onnx(op: str) -> None:
    check_each(runs_of(op), lambda run: assert_result_is_that_of_onnx(*run), name_of)


def assert_result_is_that_of_onnx(case: Case, dtype: str) -> None:
    arrays = case.arrays(dtype)
    run = run_case(case, arrays, dtype)
    if case.expected is not None:
        wanted = tuple(case.expected(*case.arrays(dtype)))
    else:
        wanted = onnx_results(run.last, [run.arrays.get(name) for name in run.last.op.inputs])
    assert_equal(run.results, wanted, dtype)
    assert tuple(type_of(result) for result in run.results) == run.last.output_types


@pytest.mark.parametrize("op", OPS)
def test_layout_of_inputs_changes_nothing(op: str) -> None:
    check_each(runs_of(op), lambda run: assert_layout_changes_nothing(*run), name_of)


def assert_layout_changes_nothing(case: Case, dtype: str) -> None:
    arrays = case.arrays(dtype)
    plain = run_case(case, arrays, dtype).results
    views = tuple(map(awkward, arrays))
    came = run_case(case, views, dtype).results
    for one, other in zip(came, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    for view, array, original in zip(views, arrays, case.arrays(dtype), strict=True):
        np.testing.assert_array_equal(view, original)
        np.testing.assert_array_equal(array, original)


@pytest.mark.parametrize("op", OPS)
def test_results_share_no_memory_with_inputs(op: str) -> None:
    check_each([case for case in ALL_CASES if case.op == op], assert_no_memory_is_shared)


def assert_no_memory_is_shared(case: Case) -> None:
    arrays = case.arrays("float32")
    for result in run_case(case, arrays, "float32").results:
        assert result.flags.writeable
        assert not any(np.shares_memory(result, array) for array in arrays)


def test_every_op_is_in_the_table() -> None:
    elsewhere = {
        "RecurrentNetwork",
        "RecurrentNetworkGradient",
        "FusedOps",
        "RoundedMatMul",
        "RoundedGemm",
        "Int8MatMul",
        "ByteMatMul",
    }  # ops that hold a net, round, or are of whole numbers, with tests of their own
    internal = {name for name, schema in REGISTRY.items() if schema.internal}
    assert {case.op for case in CASES} == set(op_names()) - elsewhere
    assert {case.op for case in INTERNAL_CASES} == internal - elsewhere


def test_every_case_is_about_its_op() -> None:
    for case in ALL_CASES:
        assert run_case(case, case.arrays("float32"), "float32").last.op.type == case.op


def test_only_ops_without_twin_and_gaps_of_onnx_use_numpy() -> None:
    wrong_or_missing = {
        "AveragePool",
        "Conv",
        "ConvTranspose",
        "GlobalMaxPool",
        "LpPool",
        "MaxPool",
        "Div",
        "Erf",
        "Flatten",
        "Gelu",
        "ArgMax",
        "LogSoftmax",
        "Mod",
        "OneHot",
        "Pad",
        "Range",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Shape",
        "SoftmaxCrossEntropyLoss",
        "Softsign",
        "TopK",
    }
    without_twin = {"SelectValid", "Log1p", "Expm1", "StopGradient", "WithGradient", "RandomUniformLike"}
    without_twin |= {"Solve", "Cholesky", "Slogdet"}
    assert {case.op for case in CASES if case.expected is not None} == wrong_or_missing | without_twin


# -- what has no twin ------------------------------------------------------------------------------------------------


def run_dropout(x: Array, context: RunContext, ratio: float = 0.5) -> tuple[Array, Array]:
    case = Case("Dropout", "", lambda blob: ro.dropout(blob, ratio), (x,))
    output, mask = run_case(case, (x,), str(x.dtype), context).results
    return output, mask


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 7), (2, 1, 7), (3, 0)])
def test_active_dropout_follows_its_counters(shape: tuple[int, ...]) -> None:
    x = np.linspace(1.0, 2.0, int(np.prod(shape))).reshape(shape)
    output, mask = run_dropout(x, RunContext(seed=2**40 + 5, training=True, t=3), ratio=0.25)
    rows, size = (shape[0], int(np.prod(shape[1:]))) if shape else (1, 1)
    uniform = uniform_rows(2**40 + 5, 0, 3, rows, size).reshape(shape)
    np.testing.assert_array_equal(mask, uniform >= 0.25)
    np.testing.assert_array_equal(output, np.where(mask, x * (1.0 / 0.75), 0.0))


def test_dropout_keeps_its_share_and_the_mean() -> None:
    output, mask = run_dropout(np.ones((40, 500), np.float32), RunContext(seed=1, training=True), ratio=0.25)
    assert output.dtype == np.float32
    assert abs(mask.mean() - 0.75) < 0.01
    assert abs(output.mean() - 1.0) < 0.02


@pytest.mark.parametrize("other", [RunContext(seed=2, training=True), RunContext(seed=1, training=True, t=1)])
def test_dropout_depends_on_seed_and_step(other: RunContext) -> None:
    x = np.ones((4, 16))
    first, again = (run_dropout(x, RunContext(seed=1, training=True))[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != run_dropout(x, other)[1]).any()


def test_masks_of_rows_do_not_depend_on_other_rows() -> None:
    context = RunContext(seed=1, training=True)
    few, many = (run_dropout(np.ones((rows, 5)), context)[1] for rows in (4, 9))
    np.testing.assert_array_equal(few, many[:4])


@pytest.mark.parametrize("context", [RunContext(seed=1), RunContext(), RunContext(training=True)])
def test_dropout_at_rest_is_a_copy(context: RunContext) -> None:
    x = np.ones((2, 7))
    output, mask = run_dropout(x, context, ratio=0.0 if context.training else 0.5)
    np.testing.assert_array_equal(output, x)
    assert mask.all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_uniform(dtype: str) -> None:
    """By the test of Kolmogorov and Smirnov; in training and outside of it, other numbers at each step."""
    case, x = Case("RandomUniformLike", "", ro.random_uniform_like, ()), np.ones((100, 80), dtype)
    for context in (RunContext(1), RunContext(1, training=True), RunContext(1, t=1), RunContext(2)):
        (numbers,) = run_case(case, (x,), dtype, context).results
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert uniform_probability(numbers) > 1e-3
        assert len(np.unique(numbers)) > 7990
    first, again = (run_case(case, (x,), dtype, RunContext(1, training=t)).results[0] for t in (False, True))
    np.testing.assert_array_equal(first, again)


def test_random_numbers_need_a_seed_outside_of_training_too() -> None:
    net = Net("net")
    net.outputs(y=ro.random_uniform_like(net.input("x")))
    for device in ("reference", "cpu"):
        with pytest.raises(FeedError, match=r"random ops are live and no seed is given"):
            compile_net(net, device=device)(x=np.ones((2, 3)), training=False)


def test_active_dropout_without_seed_is_an_error() -> None:
    with pytest.raises(FeedError, match=r"net 'case', op 'Dropout -> .*Pass seed=") as caught:
        run_dropout(np.ones(7), RunContext(training=True))
    assert caught.value.net == "case"


@pytest.mark.parametrize("training", [False, True])
def test_gradient_of_dropout_follows_the_mode(training: bool) -> None:
    mask = np.array([True, False, True, True]) | (not training)
    case = Case("DropoutGrad", "", lambda dy, m: dropout_grad(dy, m, 0.5), ())
    came = run_case(case, (np.ones(4), mask), "float64", RunContext(seed=1, training=training)).results[0]
    np.testing.assert_array_equal(came, mask * (2.0 if training else 1.0))


def test_replay_of_layer_normalization_is_exact() -> None:
    generator = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        arrays = tuple(generator.normal(size=shape).astype(dtype) for shape in ((5, 33), (33,), (33,)))
        case = Case("LayerNormalization", "", ro.layer_normalization, arrays)
        for count in (2, 3):
            run = run_case(case, arrays[:count], dtype)
            op = REGISTRY["LayerNormalization"].replay(run.last.op)
            assert op is not None
            types = [type_of(run.arrays[name]) for name in op.inputs]
            net = Net("replay")
            for name in op.inputs:
                net.input(name)
            call = infer(net.with_ops([op]), dict(zip(op.inputs, types, strict=True)), dtype)[op.key]
            again = REGISTRY[op.type].reference(call, *[run.arrays[name] for name in op.inputs])
            np.testing.assert_array_equal(again, run.results[0], strict=True)


def test_known_values() -> None:
    net = Net("known")
    x = net.input("x")
    size = ro.squeeze(ro.shape(x, end=1), [0])
    steps = ro.range(0, size, 1) * 2
    calls = infer(net, {"x": Type("float32", (3, 5))}, "float32")
    assert calls[steps.name].values[0] is not None
    np.testing.assert_array_equal(calls[steps.name].values[0], [0, 1, 2])
    net = Net("large")
    large = ro.identity(net.constant(np.zeros(4097, np.int64)))
    assert infer(net, {}, "float32")[large.name].values == (None,)
