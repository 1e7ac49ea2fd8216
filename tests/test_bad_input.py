"""Bad input to nets, runs and pullbacks: each a RnnopsError of the right kind that names net, op or blob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import on_device
from rejection import rejects

import rnnops as ro
from rnnops.net.schema import REGISTRY
from rnnops.ops.base import Unary

pytestmark = pytest.mark.usefixtures("device")

Trial = Callable[[], Any]


def net_with(*names: str) -> ro.Net:
    net = ro.Net("bad")
    for name in names:
        net.input(name)
    return net


# -- building nets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " ", "a ", "a\nb", 'a"b', None, 3, b"x", ["x"], ("x",)])
def test_names_that_are_none(name: Any) -> None:
    rejects(ro.NetError, lambda: ro.Net(name), "not a name")
    rejects(ro.NetError, lambda: net_with().input(name), "bad", "not a name")
    rejects(ro.NetError, lambda: net_with("x").blob("x").named(name), "bad", "not a name")
    rejects(ro.NetError, lambda: net_with().parameter(name, (2,)), "bad", "not a name")


def test_duplicate_names() -> None:
    rejects(ro.NetError, lambda: net_with("x").input("x"), "bad", "'x'", "taken")
    rejects(ro.NetError, lambda: net_with("x").parameter("x", (2,)), "bad", "'x'", "taken")
    net = net_with("x", "y")
    rejects(ro.NetError, lambda: net.blob("x").named("y"), "bad", "'y'", "taken")
    net.outputs(y=net.blob("x"))
    rejects(ro.NetError, lambda: net.outputs(y=net.blob("y")), "bad", "'y'", "declared already")
    rejects(ro.NetError, lambda: net.outputs(net.blob("y")), "bad", "'y'", "declared already")


@pytest.mark.parametrize("name", ["z", 3, None, ["x"]])
def test_unknown_blobs(name: Any) -> None:
    rejects(ro.NetError, lambda: net_with("x").blob(name), "bad", "no such blob")


@pytest.mark.parametrize("value", [3, "x", None, np.ones(2), [1]])
def test_outputs_that_are_no_blobs(value: Any) -> None:
    rejects(ro.NetError, lambda: net_with("x").outputs(y=value), "bad")
    rejects(ro.NetError, lambda: net_with("x").outputs(value), "bad")


def test_blobs_of_another_net() -> None:
    x, foreign = net_with("x").blob("x"), ro.Net("other").input("x")
    for trial in (
        lambda: x + foreign,
        lambda: x.net.outputs(foreign),
        lambda: ro.matmul(x, foreign),
        lambda: ro.concat([x, foreign], axis=0),
        lambda: x.net.append("Tanh", [foreign]),
    ):
        rejects(ro.NetError, trial, "'bad'", "'other'", "'x'")


@pytest.mark.parametrize("value", ["text", None, [1.0], {}, object(), 1j])
def test_operands_that_are_no_blobs(value: Any) -> None:
    x = net_with("x").blob("x")
    rejects(ro.NetError, lambda: ro.add(x, value))
    rejects(ro.NetError, lambda: ro.tanh(value))


def test_ops_on_finished_snapshots() -> None:
    net = net_with("x")
    net.outputs(y=ro.tanh(net.blob("x")))
    for finished in (net.snapshot(), on_device(net).net):
        x = finished.blob("x")
        for trial in (
            lambda x=x: x * 2.0,
            lambda x=x: x.named("z"),
            lambda x=x: x.net.input("z"),
            lambda x=x: x.net.outputs(z=x),
            lambda x=x: x.net.parameter("w", (2,)),
        ):
            rejects(ro.NetError, trial, "'bad'", "snapshot")


@pytest.mark.parametrize("shape", [None, -1, (2, -1), "ab", (1.5,), (None,), ((2,),), True, 2.0, object()])
def test_shapes_that_are_none(shape: Any) -> None:
    rejects(ro.NetError, lambda: net_with().parameter("w", shape), "bad", "not a shape")


@pytest.mark.parametrize("dtype", ["banana", "float16", "complex64", object, 7, "(", [("a", int)], "datetime64"])
def test_dtypes_that_are_none(dtype: Any) -> None:
    rejects(ro.NetError, lambda: net_with().input("n", dtype), "dtype")


@pytest.mark.parametrize(
    "init", ["banana", None, ("uniform", 1), ("normal", "a", "b"), [], True, object(), ("xavier", 1, 2)]
)
def test_initializers_that_are_none(init: Any) -> None:
    rejects(ro.NetError, lambda: net_with().parameter("w", (2,), init), "'w'", "initializer")


@pytest.mark.parametrize("scope", ["", "/", None, 3])
def test_scopes_and_layers_that_are_none(scope: Any) -> None:
    def opened(context: Any) -> None:
        with context:
            pass

    rejects(ro.NetError, lambda: opened(ro.name_scope(scope)))
    if scope != "/":
        rejects(ro.NetError, lambda: opened(net_with().layer(scope)))


def test_unknown_ops_and_attributes() -> None:
    x = net_with("x").blob("x")
    rejects(ro.NetError, lambda: x.net.append("Banana", [x]), "Banana", "unknown op")
    rejects(ro.NetError, lambda: x.net.append("Softmax", [x], {"axes": 1}), "Softmax", "axes")
    rejects(ro.NetError, lambda: x.net.append("Tanh", [x, x]), "Tanh", "number of inputs")
    rejects(ro.NetError, lambda: x.net.append("Tanh", []), "Tanh", "number of inputs")
    rejects(ro.NetError, lambda: x.net.append("Tanh", [x], names=["a", "b"]), "Tanh", "number of outputs")


# -- compiling and feeding --------------------------------------------------------------------------------------


def simple_run() -> ro.Run:
    """`y = x @ w + n` with integers n and a declared shape of w; a second output z."""
    net = ro.Net("bad")
    x, w, n = net.input("x"), net.input("w", shape=(2, 3)), net.input("n", "int32")
    net.outputs(y=x @ w + ro.cast(n, "float"), z=ro.tanh(x), count=n + 1)
    return on_device(net)


def good_feeds() -> dict[str, Any]:
    return {"x": np.ones((4, 2), "float32"), "w": np.ones((2, 3), "float32"), "n": np.ones(1, "int32")}


def test_compiling_what_cannot_be() -> None:
    net = net_with("x")
    rejects(ro.NetError, lambda: on_device(net), "bad", "no outputs")
    net.outputs(net.blob("x"))
    for device in ("tpu", None, 3, ["reference"]):
        rejects(ro.DeviceError, lambda device=device: ro.compile(net, device=device), "bad", "reference")
    for value in (3, None, "net"):
        rejects(ro.NetError, lambda value=value: on_device(value), "not a net")


FEEDS: dict[str, tuple[dict[str, Any], type[ro.RnnopsError], tuple[str, ...]]] = {
    "missing": ({"x": None}, ro.FeedError, ("'x'", "not fed")),
    "extra": ({"q": np.ones(2, "float32")}, ro.FeedError, ("'q'", "no such input", "x, w, n")),
    "list": ({"x": [[1.0, 2.0]]}, ro.FeedError, ("'x'", "list")),
    "number": ({"x": 1.0}, ro.FeedError, ("'x'", "float")),
    "numpy number": ({"x": np.float32(1)}, ro.FeedError, ("'x'", "float32")),
    "string": ({"x": "abc"}, ro.FeedError, ("'x'", "str")),
    "object array": ({"x": np.array([[None, None]])}, ro.FeedError, ("'x'", "object")),
    "half": ({"x": np.ones((4, 2), "float16")}, ro.FeedError, ("'x'", "float16")),
    "complex": ({"x": np.ones((4, 2), "complex64")}, ro.FeedError, ("'x'", "complex64")),
    "integers for floats": ({"x": np.ones((4, 2), "int64")}, ro.FeedError, ("'x'", "int64")),
    "mixed floats": ({"x": np.ones((4, 2), "float64")}, ro.FeedError, ("'w'", "'x'", "float32", "float64")),
    "other integers": ({"n": np.full(1, 2**40)}, ro.FeedError, ("'n'", "int32", "int64")),
    "floats for integers": ({"n": np.ones(1, "float32")}, ro.FeedError, ("'n'", "int32", "float32")),
    "declared shape": ({"w": np.ones((3, 2), "float32")}, ro.FeedError, ("'w'", "[2, 3]", "[3, 2]")),
    "declared rank": ({"w": np.ones(2, "float32")}, ro.FeedError, ("'w'", "[2, 3]", "[2]")),
    "size": ({"x": np.ones((4, 5), "float32")}, ro.TypeRuleError, ("MatMul", "float32[4, 5]", "float32[2, 3]")),
    "rank": ({"x": np.ones((), "float32")}, ro.TypeRuleError, ("MatMul", "float32[]")),
    "other byte order": ({"x": np.ones((4, 2), ">f4")}, ro.FeedError, ("'x'", ">f4")),
    "records": ({"x": np.zeros(4, [("a", "f4")])}, ro.FeedError, ("'x'",)),
}


@pytest.mark.parametrize("case", FEEDS)
@pytest.mark.parametrize("call", ["run", "vjp"])
def test_feeds_that_do_not_fit(case: str, call: str) -> None:
    changed, kind, mentioned = FEEDS[case]
    run, feeds = simple_run(), {**good_feeds(), **changed}
    feeds = {name: value for name, value in feeds.items() if value is not None}
    rejects(kind, lambda: (run if call == "run" else run.vjp)(feeds), "'bad'", *mentioned)
    assert (run if call == "run" else run.vjp)(good_feeds())


def test_feeds_that_are_no_dicts_or_come_twice() -> None:
    run = simple_run()
    for value in (np.ones(2), [("x", 1)], None, 3):
        rejects(ro.FeedError, lambda value=value: run(value), "'bad'", "dicts")
    rejects(ro.FeedError, lambda: run(good_feeds(), x=np.ones((4, 2), "float32")), "'x'", "twice")
    rejects(ro.FeedError, lambda: run(good_feeds(), {"x": np.ones((4, 2), "float32")}), "'x'", "twice")
    rejects(ro.FeedError, lambda: run({**good_feeds(), 3: np.ones(2)}), "'bad'", "3")


def test_bind_checks_like_a_feed() -> None:
    run = simple_run()
    rejects(ro.FeedError, lambda: run.bind(q=np.ones(2)), "'bad'", "'q'")
    for value in ([1.0], 3.0, None, "abc"):
        rejects(ro.FeedError, lambda value=value: run.bind(w=value), "'bad'", "'w'")
    bound = run.bind(w=np.ones((2, 3), "float32"))
    rejects(ro.FeedError, lambda: bound(good_feeds()), "'w'", "twice")
    rejects(ro.FeedError, lambda: run.bind(w=np.ones((3, 3), "float32"))(x=1, n=2))


def random_run() -> ro.Run:
    net = net_with("x")
    net.outputs(y=ro.dropout(net.blob("x"), 0.5))
    return on_device(net)


def test_seeds() -> None:
    run, x = random_run(), np.ones(4)
    for call in (lambda: run.vjp(x=x), lambda: run(x=x, training=True)):
        rejects(ro.FeedError, call, "'bad'", "Dropout", "seed")
    for seed in (-1, 2**64, 1.0, "1", True, np.float32(2), [1], None):
        if seed is not None:
            rejects(ro.FeedError, lambda seed=seed: run.vjp(x=x, seed=seed), "'bad'", "seed")
            rejects(ro.FeedError, lambda seed=seed: run(x=x, seed=seed), "'bad'", "seed")
            rejects(ro.FeedError, lambda seed=seed: ro.init_params(run.net, seed), "seed") if seed != 2**64 else None
    assert run.vjp(x=x, seed=np.int64(3))[0]["y"].shape == (4,)
    assert np.array_equal(run(x=x)["y"], x)
    for dtype in ("int32", "banana", "float16", 3):
        rejects(ro.FeedError, lambda dtype=dtype: ro.init_params(run.net, 0, dtype), "float32 or float64")


@pytest.mark.parametrize("wrt", [["q"], "q", ["n"], 3, [3], [["x"]], ["x", "n"], object()])
def test_wrt_of_unknown_or_integer_inputs(wrt: Any) -> None:
    rejects(ro.FeedError, lambda: simple_run().vjp(good_feeds(), wrt=wrt), "'bad'", "wrt")


# -- pulling back -----------------------------------------------------------------------------------------------

Y = np.ones((4, 3), "float32")
GRADS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "unknown output": ({"q": Y}, ("'q'", "y, z")),
    "integer output": ({"count": Y}, ("'count'", "y, z")),
    "shape": ({"y": Y[:2]}, ("'y'", "float32[4, 3]", "float32[2, 3]")),
    "rank": ({"y": Y[None]}, ("'y'", "float32[4, 3]", "float32[1, 4, 3]")),
    "broadcastable": ({"y": np.ones((1, 1), "float32")}, ("'y'", "float32[1, 1]")),
    "dtype": ({"y": Y.astype("float64")}, ("'y'", "float32", "float64")),
    "integers": ({"y": Y.astype("int32")}, ("'y'", "int32")),
    "list": ({"y": Y.tolist()}, ("'y'", "list")),
    "number": ({"y": 1.0}, ("'y'", "float")),
    "nothing": ({"y": None}, ("'y'", "NoneType")),
    "key that is not a name": ({3: Y}, ("'3'", "y, z")),
    "one array for two outputs": (Y, ("several", "y, z")),
    "list of arrays": ([Y], ("several",)),
}


@pytest.mark.parametrize("case", GRADS)
def test_gradients_that_do_not_fit(case: str) -> None:
    grads, mentioned = GRADS[case]
    _, pullback = simple_run().vjp(good_feeds())
    rejects(ro.GradientError, lambda: pullback(grads), "'bad'", *mentioned)
    assert pullback({"y": Y})["x"].shape == (4, 2), "a refused gradient must not use the pullback up"


def test_second_use_of_a_pullback() -> None:
    _, pullback = simple_run().vjp(good_feeds())
    pullback({"y": Y})
    rejects(ro.GradientError, lambda: pullback({"y": Y}), "'bad'", "used already")
    rejects(ro.GradientError, lambda: pullback.step_blobs("y"), "'bad'", "used already")


@pytest.mark.parametrize("name", ["gates", None, 3, ["x"]])
def test_step_blobs_of_a_net_without_recurrence(name: Any) -> None:
    _, pullback = simple_run().vjp(good_feeds())
    rejects(ro.GradientError, lambda: pullback.step_blobs(name), "'bad'", "not kept", "none")


def test_op_without_a_gradient_on_the_way() -> None:
    class Rounded(Unary):
        def reference(self, call: Any, x: np.ndarray) -> np.ndarray:
            return np.round(x)

    schema = REGISTRY["Rounded"] = Rounded()
    try:
        net = net_with("x", "w")
        x, w = net.blob("x"), net.blob("w")
        net.outputs(y=x.net.apply(schema.name, [x]) * w)
        run, feeds = on_device(net), {"x": np.ones(2), "w": np.ones(2)}
        rejects(ro.GradientError, lambda: run.vjp(feeds), "'bad'", "Rounded", "no gradient")
        assert run.vjp(feeds, wrt="w")[1](np.ones(2))["w"].tolist() == [1, 1]
    finally:
        del REGISTRY["Rounded"]


def test_errors_say_what_was_wanted_and_what_came() -> None:
    error = rejects(ro.FeedError, lambda: simple_run()({**good_feeds(), "w": np.ones((9, 9), "float32")}))
    assert (error.net, error.blob, error.wanted, error.came) == ("bad", "w", [2, 3], [9, 9])
    again = error.again()
    assert type(again) is ro.FeedError
    assert str(again) == str(error)
