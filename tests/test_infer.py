"""Shape inference and what it folds."""

from __future__ import annotations

import numpy as np
import pytest
from devices import DEVICES

import rnnops as ro
from rnnops.net.infer import FOLD_LIMIT, infer
from rnnops.types import Type


def run(net: ro.Net, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    return ro.compile(net, device="reference")(feeds)


def test_omitted_inputs_keep_their_place_when_folding() -> None:
    net = ro.Net("n")
    x = net.inputs("x")
    sizes = ro.clip(net.constant(np.array([1, 5])), max=4)
    net.outputs(y=ro.reshape(x, sizes))
    assert run(net, x=np.zeros((2, 2)))["y"].shape == (1, 4)


def test_shapes_may_be_computed() -> None:
    net = ro.Net("n")
    x, y = net.inputs("x", "y")
    net.outputs(z=ro.reshape(x, ro.shape(y)))
    assert run(net, x=np.zeros((2, 6)), y=np.zeros((3, 4)))["z"].shape == (3, 4)


def folded(net: ro.Net, blob: ro.Blob, **feeds: Type) -> np.ndarray | None:
    """The value of a blob that is known before a run."""
    calls = infer(net, feeds, "float32")
    return next(call.output_values[0] for call in calls.values() if blob.name in call.op.outputs)


def test_a_constant_of_a_constant_shape_is_known() -> None:
    """`expand(-1, 5)` as exporters write it: ones where the shape says -1."""
    net = ro.Net("n")
    x = net.inputs("x")
    ones, wanted = ro.constant_of_shape(net, [2], 1), net.constant(np.array([-1, 5]))
    keeps = ro.equal(wanted, ones * net.constant(-1))
    net.outputs(y=ro.expand(x, ro.where(keeps, ones, wanted)))
    assert folded(net, keeps, x=Type("float32", (3, 1))).tolist() == [True, False]
    for device in ("reference", "plain"):
        assert DEVICES[device](net)(x=np.ones((3, 1)))["y"].shape == (3, 5)


@pytest.mark.parametrize(("value", "kind"), [(7, "int64"), (True, "bool")])
def test_integers_and_bools_are_known_and_large_ones_are_not(value: int, kind: str) -> None:
    net = ro.Net("n")
    small, large = (ro.constant_of_shape(net, [size], value) for size in (FOLD_LIMIT, FOLD_LIMIT + 1))
    net.outputs(a=small, b=large)
    known = folded(net, small)
    assert (known.dtype.name, known.shape, known.all()) == (kind, (FOLD_LIMIT,), True)
    assert folded(net, large) is None


def test_floats_are_data() -> None:
    net = ro.Net("n")
    zeros = ro.constant_of_shape(net, [2])
    net.outputs(y=zeros)
    assert folded(net, zeros) is None


def test_a_range_may_end_at_a_size_as_a_float() -> None:
    net = ro.Net("n")
    x = net.inputs("x")
    size = ro.cast(ro.gather(ro.shape(x), 0), "float")
    net.outputs(y=ro.range(net.constant(0.0), size, net.constant(0.5)) * ro.reduce_sum(x))
    for device in ("reference", "plain"):
        np.testing.assert_array_equal(DEVICES[device](net)(x=np.ones(2))["y"], [0.0, 1.0, 2.0, 3.0])
    assert ro.testing.check_gradient(net, {"x": np.ones(2)})


def test_a_fed_shape_is_a_named_error() -> None:
    net = ro.Net("n")
    x, s = net.inputs("x"), net.input("s", "int64")
    net.outputs(z=ro.reshape(x, s))
    with pytest.raises(ro.TypeRuleError, match=r"net 'n', op 'Reshape.*blob 's'.*must be constant"):
        run(net, x=np.zeros((2, 6)), s=np.array([3, 4]))


def test_backward_keeps_no_blob_for_its_shape() -> None:
    """A reshape to a computed shape runs again on the backward pass from constants."""
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    big = ro.exp(h)
    sizes = ro.concat([ro.gather(ro.shape(big), cell.constant(np.array([0]))), cell.constant(np.array([-1]))], axis=0)
    flat = ro.reshape(ro.tanh(x), sizes).named("flat")
    cell.outputs(h_t=ro.tanh(flat * flat + h))
    net = ro.Net("n")
    xs, h0 = net.inputs("xs", "h0")
    h_all, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, recompute_blobs_on_backward=["flat"])
    net.outputs(y=h_all)
    feeds = {"xs": np.random.default_rng(0).normal(size=(3, 2, 4)), "h0": np.zeros((2, 4))}
    assert ro.testing.check_gradient(net, feeds)


def test_typed_errors_name_net_op_and_blobs() -> None:
    net = ro.Net("model")
    a, b = net.inputs("a", "b")
    net.outputs(c=a + b)
    with pytest.raises(ro.TypeRuleError, match=r"net 'model', op 'Add -> .*a: float64\[2, 3\].*do not broadcast"):
        run(net, a=np.zeros((2, 3)), b=np.zeros((4,)))


def test_sizes_may_be_known_in_a_net_without_dtypes() -> None:
    net = ro.Net("n", sizes_for="float64")
    x, free = net.input("x", shape=(2, 3)), net.input("free")
    y = ro.reshape(x @ net.parameter("w", (3, 4)), [-1])
    assert str(y.type) == "float64[8]"
    assert y.dtype == "float"
    assert (free + y).type is None, "it does not follow"
    net.outputs(y=y)
    feeds = {"x": np.ones((2, 3), "float32"), "free": np.ones(8, "float32"), "w": np.ones((3, 4), "float32")}
    assert run(net, **feeds)["y"].dtype == np.float32
    assert str(net).startswith("net n(x: float[2, 3], free, w: param[3, 4] = xavier)\n")
