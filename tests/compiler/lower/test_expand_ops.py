"""Ops written out as simpler ops: texts before and after, and equal results in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from covering import covered
from each import check_each
from op_cases import INF, NAN, Array, Case, declare
from op_table import CASES, INTERNAL_CASES

import rnnops as ro
from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.interpreter import Program, Workspace, execute, prepare
from rnnops.net.loop_forms import Expansion, Kernel, Pointwise, ProductForm, Reduction, View
from rnnops.net.schema import REGISTRY, Call, OpSchema, RunContext, schema_of
from rnnops.ops.normalization import Softmax
from rnnops.recurrent.recurrence import Recurrence, cell_program
from rnnops.testing import random_net
from rnnops.testing.gradient_check import difference, tolerance_of
from rnnops.types import FLOATS, Shape, Type, type_of

ULPS = 4
DTYPES = ("float32", "float64")
threes = pytest.mark.parametrize("strength", [3, pytest.param(6, marks=pytest.mark.slow)])  # how many options meet


@pytest.fixture(autouse=True)
def _silent_edges() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def program_of(net: ro.Net, feeds: Mapping[str, Array], dtype: str = "float32") -> Program:
    return prepare(net, {name: type_of(array) for name, array in feeds.items()}, dtype)


def typed(text: str, dtype: str = "float32", **shapes: Shape) -> Program:
    """The program of a text, its inputs of these shapes."""
    net = ro.parse_net(text)
    dtypes = {name: dtype if net.dtype_of(name) == "float" else net.dtype_of(name) for name in shapes}
    return prepare(net, {name: Type(dtypes[name], shape) for name, shape in shapes.items()}, dtype)


def results(program: Program, feeds: Mapping[str, Array], keep: list[str]) -> dict[str, Array]:
    workspace = Workspace()
    for name, array in feeds.items():
        workspace[name] = array
    execute(program, workspace, RunContext(seed=1, training=True), keep)
    return {name: workspace[name] for name in keep}


def assert_expanded(program: Program) -> Program:
    """Expand; what is left are simple ops, and all that there was keeps its name, type, layer and marks."""
    expanded = expand_ops(program)
    for call in expanded.calls:
        form = schema_of(call.op.type).loop_form(call)
        assert form is None or isinstance(form, Pointwise | View | Reduction | ProductForm | Kernel), call.op
    assert expanded.types.items() >= program.types.items()
    assert expanded.net.output_blobs == program.net.output_blobs
    assert expanded.net.input_specs == program.net.input_specs
    assert {name for name in program.types if program.net.is_capturable(name)} == {
        name for name in expanded.types if expanded.net.is_capturable(name)
    }
    assert len({name for op in expanded.net.ops for name in op.outputs}) == len(expanded.types) - len(
        expanded.net.input_names
    )
    assert str(ro.parse_net(str(expanded.net))) == str(expanded.net)
    return expanded


def assert_same_results(program: Program, expanded: Program, feeds: Mapping[str, Array]) -> None:
    """A few units in the last place of the largest number of a row."""
    keep = [name for op in program.net.ops for name in op.outputs if name]
    wanted, came = results(program, feeds, keep), results(expanded, feeds, keep)
    for name in keep:
        assert type_of(came[name]) == type_of(wanted[name])
        eps = np.finfo(wanted[name].dtype).eps if wanted[name].dtype.kind == "f" else 0.0
        np.testing.assert_allclose(came[name], wanted[name], rtol=ULPS * eps, atol=ULPS * eps, err_msg=name)


# -- texts -------------------------------------------------------------------------------------------------------------

SOFTMAX = """
net n(x)
    *y = Softmax(x, axis=0) @ head
    return y
"""
SOFTMAX_EXPANDED = """
net n(x)
    y/reduce_max_0 = ReduceMax(x, axes=[0]) @ head
    y/sub_0 = Sub(x, y/reduce_max_0) @ head
    y/exp_0 = Exp(y/sub_0) @ head
    y/reduce_sum_0 = ReduceSum(y/exp_0, axes=[0]) @ head
    *y = Div(y/exp_0, y/reduce_sum_0) @ head
    return y
"""
NORMALIZATION = """
net n(x, scale, bias)
    y, _, inv = LayerNormalization(x, scale, bias, axis=0, epsilon=0.5) @ norm
    z = Add(y, inv)
    return z
"""
NORMALIZATION_EXPANDED = """
net n(x, scale, bias)
    y/reduce_mean_0 = ReduceMean(x, axes=[0, 1]) @ norm
    y/sub_0 = Sub(x, y/reduce_mean_0) @ norm
    y/mul_0 = Mul(y/sub_0, y/sub_0) @ norm
    y/reduce_mean_1 = ReduceMean(y/mul_0, axes=[0, 1]) @ norm
    y/constant_0 = Constant(value=0.5, dtype="float") @ norm
    y/add_0 = Add(y/reduce_mean_1, y/constant_0) @ norm
    y/sqrt_0 = Sqrt(y/add_0) @ norm
    inv = Reciprocal(y/sqrt_0) @ norm
    y/mul_1 = Mul(y/sub_0, inv) @ norm
    y/mul_2 = Mul(y/mul_1, scale) @ norm
    y = Add(y/mul_2, bias) @ norm
    z = Add(y, inv)
    return z
"""
ONLY_MEAN = """
net n(x, scale)
    _, mean, _ = LayerNormalization(x, scale, _)
    return mean
"""
ONLY_MEAN_EXPANDED = """
net n(x, scale)
    mean = ReduceMean(x, axes=[1])
    return mean
"""
PRODUCT = """
net n(x)
    y = Gemm(x, x, _, transB=1)
    return y
"""
ROUNDED_PRODUCT = """
net n(x)
    y = RoundedGemm(x, x, _, transB=1, operands="bfloat16")
    return y
"""
ROUNDED_PRODUCT_EXPANDED = """
net n(x)
    y/transpose_0 = Transpose(x)
    y/rounded_mat_mul_0 = RoundedMatMul(x, y/transpose_0, operands="bfloat16")
    y/constant_0 = Constant(value=1.0, dtype="float")
    y = Mul(y/rounded_mat_mul_0, y/constant_0)
    return y
"""
PRODUCT_EXPANDED = """
net n(x)
    y/transpose_0 = Transpose(x)
    y/mat_mul_0 = MatMul(x, y/transpose_0)
    y/constant_0 = Constant(value=1.0, dtype="float")
    y = Mul(y/mat_mul_0, y/constant_0)
    return y
"""
LOSS = """
net n(x, labels: int32, y/neg_0)
    y, log_y = SoftmaxCrossEntropyLoss(x, labels, _, reduction="sum") @ loss
    return y, log_y
"""
LOSS_EXPANDED = """
net n(x, labels: int32, y/neg_0)
    log_y/reduce_max_0 = ReduceMax(x, axes=[1]) @ loss
    log_y/sub_0 = Sub(x, log_y/reduce_max_0) @ loss
    log_y/exp_0 = Exp(log_y/sub_0) @ loss
    log_y/reduce_sum_0 = ReduceSum(log_y/exp_0, axes=[1]) @ loss
    log_y/log_0 = Log(log_y/reduce_sum_0) @ loss
    log_y = Sub(log_y/sub_0, log_y/log_0) @ loss
    y/check_labels_0 = CheckLabels(labels, classes=2) @ loss
    y/unsqueeze_0 = Unsqueeze(y/check_labels_0, axes=[1]) @ loss
    y/cast_0 = Cast(y/unsqueeze_0, to="int64") @ loss
    y/constant_0 = Constant(value=array(int64, [2], [0, 1]), dtype="int64") @ loss
    y/equal_0 = Equal(y/cast_0, y/constant_0) @ loss
    y/cast_1 = Cast(y/equal_0, to="float") @ loss
    y/mul_0 = Mul(log_y, y/cast_1) @ loss
    y/constant_1 = Constant(value=0.0, dtype="float") @ loss
    y/where_0 = Where(y/equal_0, y/mul_0, y/constant_1) @ loss
    y/reduce_sum_0 = ReduceSum(y/where_0, axes=[1], keepdims=0) @ loss
    y/neg_0_1 = Neg(y/reduce_sum_0) @ loss
    y = ReduceSum(y/neg_0_1, keepdims=0) @ loss
    return y, log_y
"""
CLASSES = """
net n(i: int32, values)
    y = OneHot(i, _, values, depth=2)
    return y
"""
CLASSES_EXPANDED = """
net n(i: int32, values)
    y/split_0, y/split_1 = Split(values, axis=0, num_outputs=2)
    y/unsqueeze_0 = Unsqueeze(i, axes=[1])
    y/cast_0 = Cast(y/unsqueeze_0, to="int64")
    y/constant_0 = Constant(value=array(int64, [2], [0, 1]), dtype="int64")
    y/equal_0 = Equal(y/cast_0, y/constant_0)
    y/constant_1 = Constant(value=2, dtype="int64")
    y/add_0 = Add(y/cast_0, y/constant_1)
    y/constant_2 = Constant(value=array(int64, [2], [0, 1]), dtype="int64")
    y/equal_1 = Equal(y/add_0, y/constant_2)
    y/or_0 = Or(y/equal_0, y/equal_1)
    y/squeeze_0 = Squeeze(y/split_1, axes=[0])
    y/squeeze_1 = Squeeze(y/split_0, axes=[0])
    y = Where(y/or_0, y/squeeze_0, y/squeeze_1)
    return y
"""
TEXTS: dict[str, tuple[str, str, dict[str, Shape]]] = {
    "softmax": (SOFTMAX, SOFTMAX_EXPANDED, {"x": (2, 3)}),
    "layer normalization": (NORMALIZATION, NORMALIZATION_EXPANDED, {"x": (2, 3), "scale": (3,), "bias": ()}),
    "only the mean": (ONLY_MEAN, ONLY_MEAN_EXPANDED, {"x": (2, 3), "scale": (3,)}),
    "one operand twice": (PRODUCT, PRODUCT_EXPANDED, {"x": (2, 3)}),
    "of rounded operands": (ROUNDED_PRODUCT, ROUNDED_PRODUCT_EXPANDED, {"x": (2, 3)}),
    "a name is taken": (LOSS, LOSS_EXPANDED, {"x": (3, 2), "labels": (3,), "y/neg_0": ()}),
    "classes": (CLASSES, CLASSES_EXPANDED, {"i": (3,), "values": (2,)}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_before_and_after(name: str) -> None:
    before, after, shapes = TEXTS[name]
    assert str(expand_ops(typed(before, **shapes)).net) == after.strip()


def test_simple_ops_stay_as_they_are() -> None:
    program = typed("net n(x)\n    y = Tanh(x)\n    z = Add(y, x) @ a\n    return z", x=(2, 3))
    assert expand_ops(program) is program


def test_open_scopes_and_layers_change_nothing() -> None:
    with ro.name_scope("open"):
        assert str(expand_ops(typed(SOFTMAX, x=(2, 3))).net) == SOFTMAX_EXPANDED.strip()


def attention_net() -> tuple[ro.Net, dict[str, Array]]:
    """A recurrence whose cell has a softmax, and a softmax over what comes out of it."""
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.softmax(x + h))
    net = ro.Net("outer")
    every, _ = ro.recurrent_net(net, cell, [("x", net.input("x"))], [("h", net.input("h"))], {"h": "h_t"})
    net.outputs(y=ro.softmax(every))
    generator = np.random.default_rng(0)
    return net, {"x": generator.normal(size=(3, 2, 4)), "h": generator.normal(size=(2, 4))}


def test_nets_in_attributes_stay() -> None:
    net, feeds = attention_net()
    program = program_of(net, feeds, "float64")
    expanded = assert_expanded(program)
    assert [op.type for op in expanded.net.ops][:2] == ["RecurrentNetwork", "ReduceMax"]
    assert expanded.net.ops[0] == program.net.ops[0]
    assert_same_results(program, expanded, feeds)


def test_what_is_an_input_or_returned_twice_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twins(OpSchema):
        outputs = ("first", "second", "third")
        loop = Expansion()

        def shapes(self, call: Call) -> tuple[Shape, ...]:
            return (call.shape(0),) * 3

        def expand(self, call: Call, *blobs: Any, **more: Any) -> tuple[ro.Blob, ...]:
            x = blobs[0]
            y = x + 1.0
            return y, x, y

    monkeypatch.setitem(REGISTRY, "Twins", Twins())
    expanded = expand_ops(typed("net n(x)\n    a, b, c = Twins(x)\n    return a, b, c", x=(2,)))
    assert [(op.type, op.inputs, op.outputs) for op in expanded.net.ops[1:]] == [
        ("Add", ("x", "a/constant_0"), ("a",)),
        ("Identity", ("x",), ("b",)),
        ("Identity", ("a",), ("c",)),
    ]


def test_labels_are_still_checked() -> None:
    program = typed(LOSS, **TEXTS["a name is taken"][2])
    feeds = {"x": np.zeros((3, 2), np.float32), "labels": np.array([0, 1, 2], np.int32), "y/neg_0": np.float32(0)}
    for checked in (program, expand_ops(program)):
        with pytest.raises(ro.TypeRuleError, match="a label is not a class; wanted 0 to 1; got 2"):
            results(checked, feeds, ["y"])


# -- results -----------------------------------------------------------------------------------------------------------

TABLE = [case for case in [*CASES, *INTERNAL_CASES] if isinstance(REGISTRY[case.op].loop, Expansion)]


def test_the_test_finds_a_wrong_expansion(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Softmax.expand
    monkeypatch.setattr(Softmax, "expand", lambda *args: right(*args) * (1.0 + 1e-5))
    with pytest.raises(AssertionError, match="Mismatched elements"):
        check_line("Softmax(x)", {"x": np.ones((2, 3))}, "float64")


def test_every_op_with_an_expansion_is_in_the_table() -> None:
    found = {name for name, schema in REGISTRY.items() if isinstance(schema.loop, Expansion)}
    assert {case.op for case in TABLE} == found - {"RoundedGemm"}  # of float32 alone, compared on devices


@pytest.mark.parametrize("op", sorted({case.op for case in TABLE}))
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_stay(op: str, dtype: str) -> None:
    check_each(
        [case for case in TABLE if case.op == op and dtype in case.dtypes], lambda case: assert_stays(case, dtype)
    )


def assert_stays(case: Case, dtype: str) -> None:
    net, arrays = ro.Net("case"), case.arrays(dtype)
    case.build(*declare(net, arrays))
    feeds = dict(zip(net.input_names, arrays, strict=True))
    program = program_of(net, feeds, dtype)
    assert_same_results(program, assert_expanded(program), feeds)


SHAPES: list[Shape] = [(3,), (0,), (2, 3), (3, 0), (0, 3), (2, 1, 3), (3, 2, 2, 2)]
POOLS = {
    "finite": (-3.0, -1.0, 0.0, 0.5, 2.0, 80.0),
    "minus inf": (-INF,),
    "some minus inf": (-INF, -INF, 0.5),
    "inf": (INF, 1.0, 2.0, -INF),
    "nan": (NAN, 1.0, 2.0, -INF, 3.0, 4.0),
    "large": (-1e30, 1e30, 3e38, 1.0),
}


def filled(pool: str, shape: Shape, dtype: str) -> Array:
    return np.asarray(np.random.default_rng(len(shape)).choice(POOLS[pool], shape)).astype(dtype)


def check_line(text: str, feeds: dict[str, Array], dtype: str, outputs: str = "y") -> None:
    types = tuple((name, type_of(array)) for name, array in feeds.items())
    assert_same_results(*line_expanded(text, types, dtype, outputs), feeds)


@cache  # other numbers go through the same program
def line_expanded(text: str, types: tuple[tuple[str, Type], ...], dtype: str, outputs: str) -> tuple[Program, Program]:
    """The program of a line, and what it is expanded to."""
    inputs = ", ".join(name if kind.dtype in FLOATS else f"{name}: {kind.dtype}" for name, kind in types)
    named = ", ".join(name for name in outputs.split(", ") if name != "_")
    net = ro.parse_net(f"net n({inputs})\n    {outputs} = {text}\n    return {named}")
    program = prepare(net, dict(types), dtype)
    return program, assert_expanded(program)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_at_its_edges(op: str, pool: str, dtype: str) -> None:
    for shape in SHAPES:
        for axis in range(-len(shape), len(shape)):
            check_line(f"{op}(x, axis={axis})", {"x": filled(pool, shape, dtype)}, dtype)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
def test_log_of_summed_exponentials_at_its_edges(pool: str, dtype: str) -> None:
    for shape, keepdims in product([(), *SHAPES], (0, 1)):
        feeds = {"x": filled(pool, shape, dtype)}
        for axes in [[], *([axis] for axis in range(-len(shape), len(shape))), list(range(len(shape)))]:
            check_line(f"ReduceLogSumExp(x, axes={axes}, keepdims={keepdims})", feeds, dtype)
        check_line(f"ReduceLogSumExp(x, axes=[], keepdims={keepdims}, noop_with_empty_axes=1)", feeds, dtype)
        check_line(f"ReduceLogSumExp(x, _, keepdims={keepdims})", feeds, dtype)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
def test_layer_normalization_at_its_edges(pool: str, dtype: str) -> None:
    for shape in SHAPES:
        for axis in range(-len(shape), len(shape)):
            rows = shape[axis % len(shape) :]
            affine = {"scale": filled("finite", rows, dtype), "bias": filled("finite", rows[-1:], dtype)}
            feeds = {"x": filled(pool, shape, dtype), **affine}
            for outputs, bias in product(("y, mean, inv", "y, _, _", "_, mean, inv", "_, _, inv"), ("bias", "_")):
                check_line(f"LayerNormalization(x, scale, {bias}, axis={axis})", feeds, dtype, outputs)


@threes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
def test_general_products_at_their_edges(pool: str, dtype: str, strength: int) -> None:
    sizes, scalings = [(2, 3, 4), (0, 3, 2), (2, 0, 3), (1, 1, 0)], ("", ", alpha=0.5", ", alpha=0.0, beta=0.25")
    options = covered(strength, sizes, (0, 1), (0, 1), range(4), scalings, ("c", "_"))
    for (m, k, n), transA, transB, kind, scales, bias in options:
        a, b = filled(pool, (k, m) if transA else (m, k), dtype), filled(pool, (n, k) if transB else (k, n), dtype)
        feeds = {"a": a, "b": b, "c": filled("inf", ((), (n,), (m, 1), (m, n))[kind], dtype)}
        check_line(f"Gemm(a, b, {bias}{scales}, transA={transA}, transB={transB})", feeds, dtype)


@pytest.mark.parametrize("kind", ["float32", "float64", "int8", "uint8", "bool"])
def test_classes_at_their_edges(kind: str) -> None:
    for indices, shape in product(("int8", "int32", "uint64"), ((), (0,), (2, 3))):
        i = np.random.default_rng(0).integers(0 if indices[0] == "u" else -5, 5, shape).astype(indices)
        for axis, depth in product(range(-len(shape) - 1, len(shape) + 1), (0, 1, 3)):
            feeds = {"i": i, "values": np.array([INF if kind[0] == "f" else 1, 0], kind)}
            check_line(
                f"OneHot(i, _, values, depth={depth}, axis={axis})", feeds, kind if kind[0] == "f" else "float32"
            )


@threes
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", POOLS)
def test_losses_at_their_edges(pool: str, dtype: str, strength: int) -> None:
    shapes = [(2, 3), (0, 3), (3, 1), (2, 3, 2), (1, 2, 0, 3), (2, 2, 1, 3)]
    kinds, results = (("mean", "sum", "none"), (None, 0, -1, 99)), ("y, log_y", "y, _", "_, log_y")
    for shape, reduction, ignored, outputs, weights in covered(strength, shapes, *kinds, results, ("w", "_")):
        rows = (shape[0], *shape[2:])
        labels = np.random.default_rng(1).integers(0, shape[1], rows).astype("int32" if ignored else "int64")
        if ignored is not None and labels.size:
            labels.flat[0] = ignored
        feeds = {"x": filled(pool, shape, dtype), "i": labels, "w": filled("finite", shape[1:2], dtype)}
        option = "" if ignored is None else f", ignore_index={ignored}"
        text = f'SoftmaxCrossEntropyLoss(x, i, {weights}, reduction="{reduction}"{option})'
        check_line(text, feeds, dtype, outputs)


def test_nothing_counts_where_all_labels_are_ignored() -> None:
    feeds = {"x": np.ones((2, 0), np.float32), "i": np.full(2, -1)}
    for reduction in ("mean", "sum", "none"):
        check_line(f'SoftmaxCrossEntropyLoss(x, i, reduction="{reduction}", ignore_index=-1)', feeds, "float32", "y, l")


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_nets_keep_their_results_in_cells_too(first: int) -> None:
    for seed in range(first, first + 10):
        random = random_net(seed)
        program = program_of(random.net, random.feeds, "float64")
        keep = list(dict.fromkeys(random.net.output_blobs.values()))
        wanted = results(program, random.feeds, keep)
        expanded = assert_expanded(program)
        for call in expanded.calls:
            if call.op.type == "RecurrentNetwork":
                call.derived["cell"] = assert_expanded(cell_program(Recurrence(call.op, call.net), call))
        came = results(expanded, random.feeds, keep)
        for name in keep:
            limit = tolerance_of(wanted[name].dtype).limit(wanted[name])
            assert difference(came[name], wanted[name]) <= limit, f"{name}\n{random}"
