"""`pullback.layers`: gradients of the plain pullback, one layer at a time, the last one first."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from devices import device_name, on_device
from layer_runs import Arrays, by_layers, layers_of, plain, start
from small_runs import lstm_feeds, lstm_net

import rnnops as ro
from rnnops import interpreter
from rnnops.compiler.run import layer_plan
from rnnops.interpreter import Program
from rnnops.testing.gradient_check import difference, tolerance_of
from rnnops.testing.random_net import random_net

pytestmark = pytest.mark.usefixtures("device")


def perceptron(layers: int = 4) -> ro.Net:
    """Layers `fc0`, `fc1`, ...; `fc0` is the only one to read an input."""
    net = ro.Net("perceptron")
    h = net.input("x")
    for k in range(layers):
        with net.layer(f"fc{k}"):
            h = ro.tanh(h @ net.parameter(f"w{k}", (5, 5)) * 2.0 + net.parameter(f"b{k}", (5,), 0.1))
    net.outputs(y=h)
    return net


def feeds_of(net: ro.Net, **shapes: tuple[int, ...]) -> Arrays:
    return {**ro.init_params(net, 0, "float64"), **random_arrays(**shapes)}


def assert_same(came: Arrays, wanted: Arrays) -> None:
    """The same bits on the reference device; elsewhere other ops are fused, which rounds differently."""
    assert came.keys() == wanted.keys()
    for name, array in wanted.items():
        if device_name() == "reference":
            assert came[name].tobytes() == array.tobytes(), name
        assert difference(came[name], array) <= 10 * tolerance_of(array.dtype).limit(array), name


# -- what is yielded -------------------------------------------------------------------------------------------------


def test_layers_come_last_first_with_what_they_own() -> None:
    net = perceptron(3)
    feeds = feeds_of(net, x=(2, 5))
    names, grads, layer_grads = by_layers(on_device(net), feeds, wrt=["w0", "b0", "b1", "w2", "b2"])
    assert names == [["w2", "b2"], ["b1"], ["w0", "b0"]]
    assert layer_grads == [{}, {}, {}]
    assert_same(grads, plain(on_device(net), feeds, wrt=list(grads)))


@pytest.mark.parametrize("seed", range(25))
def test_gradients_are_those_of_the_plain_pullback(seed: int) -> None:
    """Nothing that the consumer overwrites, parameters among it, changes what follows."""
    made = random_net(seed)
    run = on_device(made.net)
    names, grads, _ = by_layers(run, made.feeds)
    assert_same(grads, plain(run, made.feeds))
    assert len(names) == len(layers_of(run, made.feeds))


def test_every_op_outside_of_layers_is_one() -> None:
    """Layers without parameters come with empty lists; constants and sizes are none."""
    net = ro.Net("loose")
    x, w, v = net.inputs("x", "w", "v")
    h = ro.tanh(x @ w).named("h")
    net.outputs(y=ro.reshape(h * 2.0 @ v, ro.shape(x)))
    feeds = random_arrays(x=(3, 3), w=(3, 3), v=(3, 3))
    run = on_device(net)
    names, grads, _ = by_layers(run, feeds, wrt=["w", "v"])
    assert names == [[], ["v"], [], [], ["w"]]  # Reshape, MatMul, Mul, Tanh, MatMul
    assert layers_of(run, feeds, ["w"])[3] == ("h",)
    assert_same(grads, plain(run, feeds, wrt=["w", "v"]))


def test_shared_parameters_leave_with_the_lowest_layer() -> None:
    net = ro.Net("tied")
    x, w = net.inputs("x", "w")
    for name in ("bottom", "middle", "top"):
        with net.layer(name):
            x = ro.tanh(x @ (ro.transpose(w, perm=[1, 0]) if name == "middle" else w))
    net.outputs(y=x)
    feeds = random_arrays(x=(2, 4), w=(4, 4))
    names, grads, _ = by_layers(on_device(net), feeds)
    assert names == [[], [], ["x", "w"]]
    assert_same(grads, plain(on_device(net), feeds))


def test_a_layer_may_be_opened_twice() -> None:
    """It is where it was opened first; what layers between need of it runs before."""
    net = ro.Net("twice")
    x, w, v = net.inputs("x", "w", "v")
    with net.layer("outer"):
        h = ro.tanh(x * w)
    with net.layer("inner"):
        h = ro.sigmoid(h * v)
    with net.layer("outer"):
        net.outputs(y=ro.exp(h * w))
    feeds = random_arrays(x=(2, 3), w=(3,), v=(3,))
    names, grads, _ = by_layers(on_device(net), feeds, wrt=["w", "v"])
    assert names == [["v"], ["w"]]
    assert_same(grads, plain(on_device(net), feeds, wrt=["w", "v"]))


def test_inputs_without_gradients_get_zeros() -> None:
    net = ro.Net("unused")
    x, w, _ = net.inputs("x", "w", "idle")
    with net.layer("stopped"):
        h = ro.floor(x * w)
    with net.layer("top"):
        net.outputs(y=h + x)
    feeds = random_arrays(x=(2,), w=(2,), idle=(3,))
    names, grads, _ = by_layers(on_device(net), feeds)
    assert names == [[], ["x", "w", "idle"]]
    assert_same(grads, plain(on_device(net), feeds))


def test_feeds_that_are_not_contiguous_are_changed_all_the_same() -> None:
    """What is yielded as a parameter's value is the array that was fed, not a copy."""
    net = perceptron(1)
    wide = np.zeros((5, 10))
    feeds = {**feeds_of(net, x=(2, 5)), "w0": wide[:, ::2]}
    out, pullback = on_device(net).vjp(feeds)
    ((names, values, _, _),) = pullback.layers(np.ones_like(out["y"]))
    values[names.index("w0")][...] = 7
    assert (wide[:, ::2] == 7).all()


def test_one_array_fed_twice_may_be_overwritten() -> None:
    net = perceptron(3)
    feeds = feeds_of(net, x=(2, 5))
    feeds["w0"] = feeds["w1"] = feeds["w2"]
    wanted = plain(on_device(net), feeds)
    out, pullback = on_device(net).vjp(feeds)
    dy = start(on_device(net), feeds)[1]
    grads = {}
    for names, values, param_grads, _ in pullback.layers(dy):
        grads.update(zip(names, param_grads, strict=True))
        for value in values:
            value[...] = np.nan
    assert_same(grads, wanted)
    assert out["y"].flags.writeable


def test_bound_parameters_cannot_be_overwritten() -> None:
    """Packed copies of them would not follow."""
    net = perceptron(1)
    feeds = feeds_of(net, x=(2, 5))
    run = on_device(net).bind(w0=feeds.pop("w0"))
    out, pullback = run.vjp(feeds)
    ((names, values, _, _),) = pullback.layers(np.ones_like(out["y"]))
    with pytest.raises(ValueError, match="read-only"):
        values[names.index("w0")][...] = 0


# -- gradients of what layers read -----------------------------------------------------------------------------------


def test_layer_grads_are_of_the_inputs_of_named_layers() -> None:
    net = perceptron(3)
    feeds = feeds_of(net, x=(2, 5))
    run = on_device(net)
    pullback, dy = start(run, feeds)
    found = [of_inputs for *_, of_inputs in pullback.layers(dy, output=["fc0", "fc2"])]
    assert [list(of_inputs) for of_inputs in found] == [["tanh_1"], [], ["x"]]
    assert len({id(of_inputs) for of_inputs in found}) == 3
    wanted = plain(run, feeds)
    assert_same({"x": found[2]["x"]}, {"x": wanted["x"]})
    top = ro.Net("top")  # `fc2` alone, its input an input of the net
    h, w, b = top.inputs("h", "w2", "b2")
    top.outputs(h=h, y=ro.tanh(h @ w * 2.0 + b))
    h_value = np.tanh(np.tanh(feeds["x"] @ feeds["w0"] * 2.0 + feeds["b0"]) @ feeds["w1"] * 2.0 + feeds["b1"])
    _, pullback = on_device(top).vjp({"h": h_value, "w2": feeds["w2"], "b2": feeds["b2"]}, wrt="h")
    np.testing.assert_allclose(found[0]["tanh_1"], pullback({"y": dy["y"]})["h"], rtol=1e-12, atol=1e-14)


def test_layer_grads_are_what_this_layer_adds() -> None:
    """`h` is read by three layers, by one of them twice."""
    net = ro.Net("fork")
    x, w = net.inputs("x", "w")
    h = (x * w).named("h")
    with net.layer("left"):
        left = h * h
    with net.layer("right"):
        right = h * 3.0
    net.outputs(y=left, z=right, h=h)
    feeds = random_arrays(x=(4,), w=(4,))
    pullback, _ = start(on_device(net), feeds)
    ones = np.ones(4)
    found = [of for *_, of in pullback.layers(dict.fromkeys("yzh", ones), output=["left", "right"])]
    np.testing.assert_allclose(found[0]["h"], 3 * ones)
    np.testing.assert_allclose(found[1]["h"], 2 * feeds["x"] * feeds["w"])
    assert found[2] == {}


def test_one_name_will_do_for_output() -> None:
    net = perceptron(2)
    pullback, dy = start(on_device(net), feeds_of(net, x=(2, 5)))
    assert [list(of) for *_, of in pullback.layers(dy, output="fc1")] == [["tanh_0"], []]


# -- stopping --------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Types of the ops that backward passes by layers run."""
    ran: list[str] = []

    def execute(program: Program, *rest: Any) -> None:
        ran.extend(call.op.type for call in program.calls)
        original(program, *rest)

    original = layer_plan.execute
    monkeypatch.setattr(layer_plan, "execute", execute)
    return ran


def test_freeze_computes_nothing_below(counted: list[str]) -> None:
    net = perceptron(4)
    feeds = feeds_of(net, x=(2, 5))
    run = on_device(net)
    names, _, _ = by_layers(run, feeds)
    whole = len(counted)
    counted.clear()
    frozen, grads, _ = by_layers(run, feeds, freeze="fc2")
    assert frozen == names[:2]
    assert 0 < len(counted) <= whole / 2
    wanted = plain(run, feeds)
    assert_same(grads, {name: wanted[name] for name in grads})


def test_freeze_keeps_parameters_that_layers_below_share() -> None:
    net = ro.Net("tied")
    x, w, v = net.inputs("x", "w", "v")
    with net.layer("bottom"):
        h = ro.tanh(x @ w)
    with net.layer("top"):
        net.outputs(y=ro.tanh(h @ w * v))
    feeds = random_arrays(x=(2, 4), w=(4, 4), v=(4,))
    assert by_layers(on_device(net), feeds, freeze="top")[0] == [["v"]]


def test_nothing_runs_until_it_is_iterated(counted: list[str]) -> None:
    net = perceptron(4)
    pullback, dy = start(on_device(net), feeds_of(net, x=(2, 5)))
    layers = pullback.layers(dy)
    assert not counted
    next(layers)
    first = len(counted)
    next(layers)
    assert 0 < first < len(counted)


@pytest.mark.parametrize("steps", [0, 1])
def test_stopping_early_gives_everything_back(steps: int) -> None:
    net = lstm_net()
    out, pullback = on_device(net).vjp(lstm_feeds())
    layers = pullback.layers({"h_all": np.ones_like(out["h_all"])})
    for _ in range(steps):
        next(layers)
    assert steps or not out["h_all"].flags.writeable
    del layers
    gc.collect()
    assert all(array.flags.writeable for array in out.values())


def test_the_pullback_may_be_dropped_while_its_layers_run() -> None:
    net = perceptron(3)
    feeds = feeds_of(net, x=(2, 5))
    out, pullback = on_device(net).vjp(feeds)
    layers = pullback.layers(np.ones_like(out["y"]))
    del pullback
    gc.collect()
    lent = not out["y"].flags.writeable
    next(layers)
    assert lent
    assert len(list(layers)) == 2
    assert out["y"].flags.writeable


def test_outputs_come_back_at_the_last_layer() -> None:
    """Also while pullback and iterator are still there."""
    out, pullback = on_device(lstm_net()).vjp(lstm_feeds())
    layers = pullback.layers({"h_all": np.ones_like(out["h_all"])})
    lent = [array.flags.writeable for array in out.values()]
    for _ in layers:
        pass
    assert not all(lent)
    assert all(array.flags.writeable for array in out.values())


def test_an_error_on_the_way_gives_outputs_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    out, pullback = on_device(lstm_net()).vjp(lstm_feeds())
    monkeypatch.setattr(layer_plan, "execute", fails)
    with pytest.raises(MemoryError):
        next(pullback.layers({"h_all": np.ones_like(out["h_all"])}))
    assert all(array.flags.writeable for array in out.values())


def test_memory_that_runs_out_names_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    net = perceptron(2)
    pullback, dy = start(on_device(net), feeds_of(net, x=(2, 5)))
    monkeypatch.setattr(interpreter, "run_call", fails)
    with pytest.raises(ro.OutOfMemoryError, match=r"op '\w+ -> "):
        next(pullback.layers(dy))


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"output": ["fc9"]}, r"net 'perceptron', blob 'fc9': output names no layer; wanted one of fc1, fc0"),
        ({"output": 3}, r"output is not a list of layer names; got 3"),
        ({"output": [["fc0"]]}, r"output names no layer"),
        ({"freeze": "w0"}, r"blob 'w0': freeze names no layer; wanted one of fc1, fc0\. A layer is"),
        ({"output": ["fc0"], "freeze": "fc1"}, r"layer 'fc0', but freeze='fc1' stops .* before it.*Leave it out"),
    ],
)
def test_names_of_layers_are_checked(arguments: dict[str, object], said: str) -> None:
    """A wrong name costs nothing: the pullback may still be used."""
    net = perceptron(2)
    pullback, dy = start(on_device(net), feeds_of(net, x=(2, 5)))
    with pytest.raises(ro.GradientError, match=said):
        pullback.layers(dy, **arguments)  # type: ignore[arg-type]
    assert len(list(pullback.layers(dy))) == 2


def test_a_layer_without_gradients_of_inputs_is_an_error() -> None:
    net = perceptron(2)
    feeds = feeds_of(net, x=(2, 5))
    pullback, dy = start(on_device(net), feeds, wrt=["w0"])
    with pytest.raises(ro.GradientError, match=r"'fc0', to whose inputs no gradient flows.*wrt="):
        pullback.layers(dy, output=["fc0"])


def test_gradients_of_outputs_are_checked_at_once() -> None:
    net = perceptron(2)
    pullback, _ = start(on_device(net), feeds_of(net, x=(2, 5)))
    with pytest.raises(ro.GradientError, match="wrong type"):
        pullback.layers(np.ones((1, 5)))
    with pytest.raises(ro.GradientError, match="no float output of this name"):
        pullback.layers({"q": np.ones((2, 5))})


@pytest.mark.parametrize("first", ["call", "layers"])
@pytest.mark.parametrize("second", ["call", "layers"])
def test_a_pullback_is_used_once(first: str, second: str) -> None:
    net = perceptron(2)
    pullback, dy = start(on_device(net), feeds_of(net, x=(2, 5)))
    uses = {"call": pullback, "layers": pullback.layers}
    used = uses[first](dy)
    with pytest.raises(ro.GradientError, match="this pullback was used already"):
        uses[second](dy)
    assert len(list(used)) == (5 if first == "call" else 2)
