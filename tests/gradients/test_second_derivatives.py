"""Every op twice: the gradient of its gradient beside central differences in float64, on the reference device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import axis_gradient_cases  # noqa: F401 - adds its cases to the table
import numpy as np
import op_table
import pytest
import window_gradient_cases  # noqa: F401 - adds its cases to the table
from each import check_each
from gradient_cases import CASES, Array, Case
from op_cases import SEED

import rnnops as ro
from rnnops.interpreter import number_random_ops
from rnnops.net.op import Op
from rnnops.testing import check_gradient
from rnnops.testing.gradient_check import rotation

LINEAR = ("SumTo", "ScatterAdd", "ScatterSlice", "Normalize", "DropoutGrad")
INTERNAL = [
    Case(case.op, str(case), case.build, case.arrays("float64"), {"seed": SEED})
    for case in op_table.INTERNAL_CASES
    if case.op in LINEAR
]
ALL = [case for case in [*CASES, *INTERNAL] if case.op != "WithGradient"]  # whose gradient is a slope that is given


@pytest.mark.parametrize("op", sorted({case.op for case in ALL}))
def test_every_op_is_differentiated_twice(op: str) -> None:
    check_each([case for case in ALL if case.op == op], assert_second)


def assert_second(case: Case) -> None:
    """The gradient of a net of squares, as the op may be linear, and its own gradient."""
    net, feeds = replace(case, build=squares(case)).net()
    feeds = {
        name: array if array.dtype.kind != "f" else off_ties(array, i) for i, (name, array) in enumerate(feeds.items())
    }
    gradient = ro.gradient_net(net, **{name: array.shape for name, array in feeds.items()})
    check_gradient(gradient, {**grads_for(gradient, feeds), **feeds}, **{"sample": 4, **case.options})


def squares(case: Case) -> Any:
    """What builds the squares of the float results of a case."""

    def build(*blobs: ro.Blob) -> list[ro.Blob]:
        made = case.build(*blobs)
        results = made if isinstance(made, tuple | list) else [made]
        return [blob * blob for blob in results if blob.dtype.startswith("float")]

    return build


def off_ties(array: Array, i: int) -> Array:
    """Floats moved a little, each by another number: a gradient jumps where operands tie."""
    return array + 0.01 * rotation(array.shape, 100 * i)


def grads_for(gradient: ro.Net, feeds: dict[str, Array]) -> dict[str, Array]:
    """Feeds for the gradients of outputs."""
    given = [spec for spec in gradient.input_specs if spec.name not in feeds]
    return {spec.name: rotation(spec.shape or ()) for spec in given}


def test_powers_of_zero_have_second_derivatives() -> None:
    net = ro.Net("powers")
    x, b = net.inputs("x", "b")
    net.outputs(y=x**b)
    gradient = ro.gradient_net(net, wrt="x", x=(5,), b=(5,))
    feeds = {"x": np.array([0.0, 0.0, 0.0, 0.0, 2.0]), "b": np.array([0.0, 1.0, 2.0, 3.0, 0.0]), "d_y": np.ones(5)}
    out, pullback = ro.compile(gradient, device="reference").vjp(feeds)
    assert out["d_x"].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    second = pullback({"d_x": np.ones(5)})
    assert second["x"].tolist() == [0.0, 0.0, 2.0, 0.0, 0.0]
    assert second["b"][-1] == 0.5  # d/db of b x^(b-1)


def test_powers_of_nan_to_the_0_have_no_slope() -> None:
    net = ro.Net("powers")
    x, b = net.inputs("x", "b")
    net.outputs(y=x**b)
    gradient = ro.gradient_net(net, wrt="x", x=(4,), b=(4,))
    given = {"x": np.array([np.nan, np.nan, np.inf, 2.0]), "b": np.array([0.0, 1.0, 0.0, 0.0]), "d_y": np.ones(4)}
    for dtype in ("float32", "float64"):
        feeds = {name: array.astype(dtype) for name, array in given.items()}
        for device in ("reference", "cpu"):
            out, pullback = ro.compile(gradient, device=device).vjp(feeds)
            np.testing.assert_array_equal(out["d_x"], [0.0, 1.0, 0.0, 0.0])
            second = pullback({"d_x": np.ones(4, dtype)})
            assert (second["x"][0], second["x"][3], second["b"][3]) == (0.0, 0.0, 0.5)


def test_random_ops_draw_the_same_numbers_when_a_net_is_numbered_again() -> None:
    net = ro.Net("drops")
    x = net.input("x")
    net.outputs(y=ro.dropout(x, 0.5) * ro.dropout(x, 0.5), z=ro.random_uniform_like(x))
    numbered = number_random_ops(net)
    assert number_random_ops(numbered) is numbered
    last = numbered.with_ops(numbered.ops[-1:], {"z": numbered.output_blobs["z"]}).snapshot()
    given = {"x": np.ones(50)}
    wanted = ro.compile(net, device="reference")(given, seed=SEED, training=True)["z"]
    assert ro.compile(last, device="reference")(given, seed=SEED, training=True)["z"].tolist() == wanted.tolist()
    more = last.with_ops([*last.ops, Op("Dropout", ("x",), ("new", ""))]).snapshot()
    assert [op.attributes["ordinal"] for op in number_random_ops(more).ops] == [2, 0]


def test_the_gradient_net_of_dropout_is_that_of_its_run() -> None:
    net = ro.Net("drops")
    x = net.input("x")
    net.outputs(y=ro.dropout(x * x, 0.5) * ro.dropout(x, 0.3))
    feeds, dy = {"x": np.linspace(-1.0, 2.0, 20)}, np.linspace(1.0, 2.0, 20)
    _, pullback = ro.compile(net, device="reference").vjp(feeds, seed=SEED)
    came = ro.compile(ro.gradient_net(net, x=(20,)), device="reference")(feeds, d_y=dy, seed=SEED, training=True)
    assert came["d_x"].tolist() == pullback({"y": dy})["x"].tolist()
