"""Every op: its gradient against central differences, ties, and where gradients stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import axis_gradient_cases  # noqa: F401 - adds its cases to the table
import gradient_cases
import numpy as np
import pytest
import window_gradient_cases  # noqa: F401 - adds its cases to the table
from each import check_each
from gradient_cases import CASES, Case

import rnnops as ro
from rnnops.net.schema import REGISTRY, no_gradient, register
from rnnops.ops.base import Unary
from rnnops.testing import check_gradient

CONSTANT = {"Constant", "ConstantOfShape", "Shape", "Range"}  # their results depend on no input that has a gradient
MAY_RESAMPLE = {"Abs", "Relu", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Clip", "Max", "Min"}


@pytest.mark.parametrize("op", sorted({case.op for case in CASES}))
def test_gradient(op: str) -> None:
    check_each([case for case in CASES if case.op == op], assert_gradient)


def assert_gradient(case: Case) -> None:
    net, feeds = case.net()
    report = check_gradient(net, feeds, **case.options)
    assert len(report.inputs) == sum(array.dtype.kind == "f" for array in case.arrays)
    assert report.resampled <= (2 if case.op in MAY_RESAMPLE else 0)


def test_the_table_has_every_op_once_at_least() -> None:
    differentiable = {name for name in ro.op_names() if REGISTRY[name].differentiable} - CONSTANT
    assert {case.op for case in CASES} == differentiable
    labels = [str(case) for case in CASES]
    assert len(set(labels)) == len(labels)


def gradient_of(build: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """Gradients of the first output for an output gradient of 1, 2, 3, ..."""
    net, feeds = Case("ties", "", build, arrays).net()
    out, pullback = ro.compile(net, device="reference").vjp(feeds)
    weights = np.arange(1.0, 1.0 + out["y0"].size).reshape(out["y0"].shape)
    return list(pullback({"y0": weights}).values())


# -- ties and bounds, exactly --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [ro.max, ro.min])
def test_operands_that_tie_share_equally(op: Callable[..., Any]) -> None:
    a, b = gradient_of(op, np.array([1.0, 1.0]), np.array([1.0, 3.0]))
    first, second = (2.0, 0.0) if op is ro.min else (0.0, 2.0)
    assert (a.tolist(), b.tolist()) == ([0.5, first], [0.5, second])
    thirds = gradient_of(op, np.array([2.0]), np.array([2.0]), np.array([2.0]))
    assert [grad.tolist() for grad in thirds] == [[1 / 3]] * 3
    (same,) = gradient_of(lambda a: op(a, a), np.array([2.0, 3.0]))
    assert same.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("op", [ro.reduce_max, ro.reduce_min])
def test_elements_that_tie_share_equally(op: Callable[..., Any]) -> None:
    tied = np.array([[1.0, 1.0, 1.0, 1.0], [7.0, 7.0, -7.0, -7.0]])
    (grad,) = gradient_of(lambda x: op(x, [1], keepdims=0), tied)
    half = [1.0, 1.0, 0.0, 0.0] if op is ro.reduce_max else [0.0, 0.0, 1.0, 1.0]
    assert grad.tolist() == [[0.25] * 4, half]


def test_the_first_of_a_window_that_ties_gets_the_gradient_of_a_max_pool() -> None:
    tied = np.array([[[1.0, 3.0, 3.0, 2.0, 2.0, 2.0], [-1.0, -1.0, -1.0, 5.0, np.nan, 5.0]]])
    (grad,) = gradient_of(lambda x: ro.max_pool(x, [3], strides=[3]), tied)
    assert grad.tolist() == [[[0.0, 1.0, 0.0, 2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0, 0.0, 0.0]]]


def test_gradients_on_the_kinks() -> None:
    zero = np.array([0.0])
    for op in (ro.relu, ro.abs):
        assert gradient_of(op, zero)[0].tolist() == [0.0]
    ends = np.array([-2.5, 2.5])
    assert gradient_of(ro.hard_sigmoid, ends)[0].tolist() == [0.0, 0.0]
    grads = gradient_of(ro.clip, np.array([-1.0, 0.5, 1.0]), np.array(-1.0), np.array(1.0))
    assert [grad.tolist() for grad in grads] == [[1.0, 2.0, 3.0], 0.0, 0.0]


# -- where gradients stop ------------------------------------------------------------------------------------------

STOPPING: dict[str, Callable[..., Any]] = {
    "Sign": ro.sign,
    "Floor": ro.floor,
    "Ceil": ro.ceil,
    "Round": ro.round,
    "ArgMax": ro.argmax,
    "Equal": lambda a: ro.equal(a, 1.4),
    "Greater": lambda a: a > 0.1,
    "GreaterOrEqual": lambda a: a >= 0.1,
    "Less": lambda a: a < 0.1,
    "LessOrEqual": lambda a: a <= 0.1,
    "And": lambda a: (a < 0.1) & (a > -0.1),
    "Or": lambda a: (a < 0.1) | (a > 0.5),
    "Not": lambda a: ~(a > 0.1),
    "Cast": lambda a: ro.cast(a, "int32"),
    "Shape": ro.shape,
    "ConstantOfShape": lambda a: ro.constant_of_shape(a.net, ro.shape(a), 2.0),
    "Range": lambda a: ro.range(0, ro.squeeze(ro.shape(a), [0]), 1),
    "Constant": lambda a: a.net.constant(2.0),
}


def test_stop_gradient_leaves_the_value_and_takes_the_gradient() -> None:
    net, x = ro.Net("stopped"), np.array([0.3, -0.7])
    a = net.inputs("a")
    net.outputs(y=ro.stop_gradient(a * a) * a)
    out, pullback = ro.compile(net, device="reference").vjp(a=x)
    assert out["y"].tolist() == (x * x * x).tolist()
    assert pullback(np.ones(2))["a"].tolist() == (x * x).tolist()


@pytest.mark.parametrize("op", STOPPING)
def test_gradients_stop(op: str) -> None:
    net, feeds = Case(op, "", lambda a: ro.cast(STOPPING[op](a), "float") * a, (np.array([0.3, -0.7, 1.4]),)).net()
    assert op in {used.type for used in net.ops}
    check_gradient(net, feeds)
    alone = ro.Net("alone")
    a = alone.inputs("a")
    alone.outputs(y=ro.cast(STOPPING[op](a), "float") * 1.0)
    out, pullback = ro.compile(alone, device="reference").vjp(a=np.array([0.3, -0.7, 1.4]))
    assert pullback({"y": np.ones_like(out["y"])})["a"].tolist() == [0.0, 0.0, 0.0]


def test_every_op_without_gradient_is_there() -> None:
    stopping = {name for name in ro.op_names() if not REGISTRY[name].differentiable} | CONSTANT
    assert stopping <= {*STOPPING, "StopGradient", "RandomUniformLike"}


def test_an_op_without_gradient_on_a_needed_path_is_a_named_error() -> None:
    class Opaque(Unary):
        gradient = no_gradient

        def reference(self, call: Any, x: np.ndarray) -> np.ndarray:
            return x + 1.0

    register(Opaque())
    try:
        net = ro.Net("model")
        a, b = net.inputs("a", "b")
        net.outputs(y=net.apply("Opaque", [a * 2.0]).named("hidden") + b, b=b * 2.0)
        run, feeds = ro.compile(net, device="reference"), {"a": np.ones(2), "b": np.ones(2)}
        with pytest.raises(ro.GradientError, match="no gradient") as caught:
            run.vjp(feeds)
        assert (caught.value.net, caught.value.op) == ("model", "Opaque -> hidden")
        assert run.vjp(feeds, wrt=["b"])[1]({"y": np.ones(2)})["b"].tolist() == [1.0, 1.0]
    finally:
        del REGISTRY["Opaque"]


def test_a_shape_that_is_fed_is_a_named_error() -> None:
    net = ro.Net("model")
    a, n = net.input("a"), net.input("n", "int64")
    net.outputs(y=ro.reshape(a, n))
    with pytest.raises(ro.TypeRuleError, match="constant once shapes are known") as caught:
        ro.compile(net, device="reference").vjp(a=np.ones(4), n=np.array([2, 2]))
    assert caught.value.blob == "n"


# -- uses ----------------------------------------------------------------------------------------------------------


def test_several_uses_accumulate() -> None:
    net, feeds = Case("uses", "", lambda a: (a * a, ro.sin(a) + a, a, a), (gradient_cases.apart((3,)),)).net()
    check_gradient(net, feeds)


def test_unused_inputs_have_zero_gradients() -> None:
    net = ro.Net("model")
    a, b = net.inputs("a", "b")
    net.input("labels", "int32")
    net.outputs(y=a * 2.0, z=ro.exp(b))
    feeds = {"a": np.ones(2), "b": np.ones((2, 2)), "labels": np.zeros(2, np.int32)}
    _, pullback = ro.compile(net, device="reference").vjp(feeds)
    grads = pullback({"y": np.ones(2)})
    assert set(grads) == {"a", "b"}
    assert grads["b"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
