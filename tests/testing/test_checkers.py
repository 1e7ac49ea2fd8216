"""The checkers are checked: every kind of wrong gradient, device and loan is caught, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro
from rnnops.net.schema import REGISTRY, register
from rnnops.ops.activation import Relu, Tanh
from rnnops.ops.arithmetic import Mul
from rnnops.testing import CheckError, check_devices, check_gradient, checked_loans
from rnnops.testing.gradient_check import Probe

Arrays = dict[str, np.ndarray]


def feeds_of(*shapes: tuple[int, ...]) -> Arrays:
    generator = np.random.Generator(np.random.PCG64(7))
    return {name: generator.uniform(-1.5, 1.5, shape) for name, shape in zip("abc", shapes, strict=False)}


@contextmanager
def product_with(gradient: Callable[..., Any]) -> Iterator[ro.Net]:
    """A net around a throw-away op `a * b` with a gradient of its own."""

    class Product(Mul):
        def gradient(self, call: Any, a: Any, b: Any, c: Any, dc: Any) -> Any:
            return gradient(a, b, dc)

    register(Product())
    try:
        net = ro.Net("product")
        a, b = net.inputs("a", "b")
        net.outputs(y=ro.tanh(net.apply("Product", [a, b])))
        yield net
    finally:
        del REGISTRY["Product"]


RIGHT: list[Callable[..., Any]] = [lambda a, b, dc: (dc * b, dc * a)]
WRONG = {
    "0.1 % too large": lambda a, b, dc: (dc * b * 1.001, dc * a),
    "0.1 % too small": lambda a, b, dc: (dc * b, dc * a * 0.999),
    "all zero": lambda a, b, dc: (dc * b * 0.0, dc * a),
    "left out": lambda a, b, dc: (dc * b, None),
    "swapped": lambda a, b, dc: (dc * a, dc * b),
    "of the other sign": lambda a, b, dc: (-(dc * b), dc * a),
    "without what comes from above": lambda a, b, dc: (b, dc * a),
    "summed over an axis": lambda a, b, dc: (dc * b, ro.expand(ro.reduce_mean(dc * a, [0]), [3, 4])),
}


def test_a_right_gradient_passes() -> None:
    with product_with(RIGHT[0]) as net:
        report = check_gradient(net, feeds_of((3, 4), (3, 4)))
    assert report.error < 1e-9
    assert report.resampled == 0
    assert [row.probes for row in report.inputs] == [12, 12]


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("sample", [None, 1], ids=["every element", "sampled"])
def test_a_wrong_gradient_is_caught(kind: str, sample: int | None) -> None:
    with product_with(WRONG[kind]) as net, pytest.raises(CheckError) as caught:
        check_gradient(net, feeds_of((3, 4), (3, 4)), sample=sample)
    assert caught.value.net == "product"
    assert caught.value.blob in ("a", "b")
    assert "numeric" in str(caught.value)
    assert "analytic" in str(caught.value)


def test_one_wrong_element_is_named() -> None:
    mask = np.ones((3, 4))
    mask[2, 1] = 1.001
    with product_with(lambda a, b, dc: (dc * b, dc * a * mask)) as net, pytest.raises(CheckError) as caught:
        check_gradient(net, feeds_of((3, 4), (3, 4)))
    assert caught.value.blob == "b"
    assert "[2, 1]" in str(caught.value)


@pytest.mark.parametrize("factor", [1.001, 0.0, -1.0])
def test_a_wrong_gradient_of_an_existing_op_is_caught_in_a_cell(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = lstm()
    assert check_gradient(net, feeds).error < 1e-8
    right = Tanh.gradient
    monkeypatch.setattr(Tanh, "gradient", lambda *args: right(*args) * factor)
    with pytest.raises(CheckError, match="the gradient is wrong"):
        check_gradient(net, feeds)


def lstm() -> tuple[ro.Net, Arrays]:
    net = ro.Net("model")
    x, h, c = net.inputs("x", "h", "c")
    net.outputs(*ro.LSTM(net, x, None, [h, c], 2, 2, scope="lstm"))
    generator = np.random.Generator(np.random.PCG64(3))
    shapes = {"x": (3, 2, 2), "h": (2, 2), "c": (2,)}
    feeds = {name: generator.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return net, {**feeds, **ro.init_params(net, 0, "float64")}


# -- kinks ---------------------------------------------------------------------------------------------------------


def kinked(op: Callable[[ro.Blob], ro.Blob]) -> ro.Net:
    net = ro.Net("kinked")
    a = net.inputs("a")
    net.outputs(y=op(a) * 2.0 + ro.sin(a))
    return net


KINKS = {
    "relu": ro.relu,
    "abs": abs,
    "floor": lambda a: ro.floor(a) + a * a,
    "maximum": lambda a: ro.max(a, a * a * 40.0),
    "comparison": lambda a: ro.where(a > 0.0, a * 3.0, 1.0),
}


@pytest.mark.parametrize("off", [0.0, 1e-6, -4e-6, 9.9e-6])
@pytest.mark.parametrize("kind", KINKS)
def test_kinks_are_resampled(kind: str, off: float) -> None:
    feed = np.linspace(-1.7, 1.9, 12)
    feed[4] = off
    report = check_gradient(kinked(KINKS[kind]), {"a": feed})
    assert report.resampled == 1
    assert "1 resampled at kinks" in str(report)


@pytest.mark.parametrize("factor", [1.001, 0.0])
def test_a_kink_hides_no_wrong_gradient(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Relu.gradient
    monkeypatch.setattr(Relu, "gradient", lambda *args: right(*args) * factor)
    for feed in (np.array([0.0, 1.0]), np.array([3e-6, 0.5]), np.full(8, 0.0)):
        with pytest.raises(CheckError, match="the gradient is wrong"):
            check_gradient(kinked(ro.relu), {"a": feed})


def test_a_jump_does_not_loosen_the_tolerance() -> None:
    feed = np.linspace(-1.7, 1.9, 12)
    feed[4] = 0.0
    report = check_gradient(kinked(KINKS["floor"]), {"a": feed})
    assert report.inputs[0].limit < 1e-5


def test_too_many_kinks_fail() -> None:
    with pytest.raises(CheckError, match="kinks at too many feeds"):
        check_gradient(kinked(ro.relu), {"a": np.zeros(40)})


def test_kinks_everywhere_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "resampled", lambda self, feeds, generator: dict(feeds))
    with pytest.raises(CheckError, match="10 places out of 10"):
        check_gradient(kinked(ro.relu), {"a": np.array([0.0])})


def test_steps_too_fine_to_see_fail() -> None:
    with pytest.raises(CheckError, match="the gradient is wrong"):
        check_gradient(kinked(lambda a: ro.floor(a * 1e6)), {"a": np.array([0.3])})


def test_a_steep_smooth_function_is_no_kink() -> None:
    report = check_gradient(kinked(lambda a: ro.sin(a * 60.0) * 40.0), {"a": np.linspace(-1.0, 1.0, 9)}, step=3e-6)
    assert report.resampled == 0


# -- what else is checked ------------------------------------------------------------------------------------------


def test_feeds_must_be_float64() -> None:
    net = kinked(ro.relu)
    with pytest.raises(ro.FeedError, match="float64") as caught:
        check_gradient(net, {"a": np.zeros(3, np.float32)})
    assert (caught.value.net, caught.value.blob) == ("kinked", "a")
    with pytest.raises(ro.FeedError, match="not fed"):
        check_gradient(net, {})
    with pytest.raises(ro.FeedError, match="no such input"):
        check_gradient(net, {"a": np.zeros(3), "z": np.zeros(3)})


def test_unknown_outputs_and_inputs_are_errors() -> None:
    net = kinked(ro.relu)
    with pytest.raises(ro.GradientError, match="no float output"):
        check_gradient(net, {"a": np.ones(3)}, outputs=["z"])
    with pytest.raises(ro.FeedError, match="not fed"):
        check_gradient(net, {"a": np.ones(3)}, wrt=["z"])


def test_only_the_chosen_outputs_and_inputs_count() -> None:
    net = ro.Net("two")
    a, b = net.inputs("a", "b")
    net.outputs(product=a * b, log=ro.log(a - 1.0))
    report = check_gradient(net, feeds_of((2,), (2,)), outputs=["product"], wrt=["b"])
    assert [row.name for row in report.inputs] == ["b"]


def test_infinite_derivatives_are_named() -> None:
    with pytest.raises(CheckError, match="not finite"):
        check_gradient(kinked(lambda a: ro.sqrt(a)), {"a": np.array([0.5, 0.0])})


def test_empty_arrays_and_scalars() -> None:
    report = check_gradient(kinked(ro.tanh), {"a": np.zeros((0, 3))})
    assert report.inputs[0].probes == 0
    assert "a [0, 3]: 0 differences" in str(report)
    assert check_gradient(kinked(ro.tanh), {"a": np.array(0.4)}).inputs[0].worst == "[]"


def test_feeds_are_left_alone() -> None:
    feed = np.linspace(-1.0, 1.0, 5)
    feed.flags.writeable = False
    check_gradient(kinked(ro.relu), {"a": feed})


class Altered:
    """A run that changes what another one gives."""

    def __init__(
        self,
        net: ro.Net,
        output: Callable[[Arrays], Arrays] = dict,
        kept: Callable[[Arrays], Arrays] = dict,
        grad: Callable[[Arrays], Arrays] = dict,
    ) -> None:
        self.run, self.output, self.kept, self.grad = ro.compile(net, device="reference"), output, kept, grad

    def __call__(self, *dicts: Any, **options: Any) -> Arrays:
        return self.output(self.run(*dicts, **options))

    def vjp(self, *dicts: Any, **options: Any) -> tuple[Arrays, Any]:
        outputs, pullback = self.run.vjp(*dicts, **options)
        return self.kept(outputs), lambda grads: self.grad(pullback(grads))


def times(factor: float, name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {**arrays, name: arrays[name] * factor}


def test_a_vjp_with_another_forward_is_caught() -> None:
    net, feeds = lstm()
    name = next(iter(net.output_blobs))
    with pytest.raises(CheckError, match="another output than a plain run") as caught:
        check_gradient(net, feeds, device=lambda net: Altered(net, kept=times(1 + 2**-50, name)))
    assert caught.value.blob == name


def test_a_gradient_of_another_type_is_caught() -> None:
    net, feeds = lstm()
    for change in (lambda g: {}, lambda g: {**g, "x": g["x"][:1]}, lambda g: {**g, "x": g["x"].astype(np.float32)}):
        with pytest.raises(CheckError, match="wrong type"):
            check_gradient(net, feeds, device=lambda net, change=change: Altered(net, grad=change))


# -- devices -------------------------------------------------------------------------------------------------------


def branching() -> tuple[ro.Net, Arrays]:
    net = ro.Net("branching")
    a, b = net.inputs("a", "b")
    net.outputs(y=ro.tanh(a) * b, whole=ro.cast(a * 4.0, "int32"), positive=a > 0.0)
    return net, feeds_of((3, 4), (3, 1))


def plus(value: Any, name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {**arrays, name: (arrays[name] + value).astype(arrays[name].dtype)}


def place(value: float, name: str) -> Callable[[Arrays], Arrays]:
    def change(arrays: Arrays) -> Arrays:
        array = arrays[name].copy()
        array.flat[3] = value
        return {**arrays, name: array}

    return change


WRONG_DEVICES = {
    "output": {"output": plus(1e-3, "y")},
    "output of vjp": {"kept": plus(1e-3, "y")},
    "gradient": {"grad": times(1.001, "a")},
    "zero gradient": {"grad": times(0.0, "b")},
    "swapped gradients": {"grad": lambda g: {"a": g["b"] + 0 * g["a"], "b": g["a"].sum(1, keepdims=True)}},
    "NaN": {"output": place(np.nan, "y")},
    "infinity": {"grad": place(np.inf, "a")},
    "integer": {"output": plus(1, "whole")},
    "bool": {"output": lambda out: {**out, "positive": ~out["positive"]}},
    "missing": {"grad": lambda g: {"a": g["a"]}},
    "dtype": {"output": lambda out: {**out, "y": out["y"].astype(np.float16)}},
    "shape": {"output": lambda out: {**out, "y": out["y"][:2]}},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", WRONG_DEVICES)
def test_a_wrong_device_is_caught(kind: str, dtype: str) -> None:
    net, feeds = branching()
    device = {"odd": lambda net: Altered(net, **WRONG_DEVICES[kind])}
    with pytest.raises(CheckError, match="odd") as caught:
        check_devices(net, {name: array.astype(dtype) for name, array in feeds.items()}, device)
    assert caught.value.net == "branching"


@pytest.mark.parametrize(
    ("dtype", "off", "passes"),
    [
        ("float64", 1e-14, True),
        ("float64", 1e-11, False),
        ("float32", 1e-6, True),
        ("float32", 1e-4, False),
    ],
)
def test_tolerances_depend_on_the_dtype(dtype: str, off: float, passes: bool) -> None:
    net, feeds = branching()
    feeds = {name: array.astype(dtype) for name, array in feeds.items()}
    device = {"odd": lambda net: Altered(net, output=times(1 + off, "y"), grad=times(1 - off, "a"))}
    if passes:
        assert check_devices(net, feeds, device).devices == ("odd",)
    else:
        with pytest.raises(CheckError, match="differs"):
            check_devices(net, feeds, device)


def test_all_devices_agree_by_default() -> None:
    net, feeds = lstm()
    report = check_devices(net, feeds)
    assert "reference" in report.devices
    assert {row.error for row in report.rows if row.device == "reference"} == {0.0}
    assert "gradient of 'lstm/i2h_w'" in str(report)


def test_the_reference_is_held_to_its_own_bits() -> None:
    net, feeds = lstm()
    with pytest.raises(ro.DeviceError):
        check_devices(net, feeds, ["nowhere"])
    report = check_devices(net, feeds, ["reference"], wrt=["x"], outputs=[next(iter(net.output_blobs))])
    assert {row.limit for row in report.rows} == {0.0}
    assert [row.array for row in report.rows if row.array.startswith("gradient")] == ["gradient of 'x'"]


def test_a_net_without_gradient_is_compared_forward() -> None:
    net = ro.Net("forward")
    x, h = net.inputs("x", "h")
    net.outputs(*ro.BasicRNN(net, x, None, [h], 2, 2, scope="rnn", forward_only=True))
    feeds = {"x": np.ones((2, 1, 2)), "h": np.ones((1, 2)), **ro.init_params(net, 0, "float64")}
    assert all(row.array.startswith("output") for row in check_devices(net, feeds, gradients=False).rows)
    with pytest.raises(ro.GradientError, match="forward_only"):
        check_devices(net, feeds)


# -- loans ---------------------------------------------------------------------------------------------------------


def bits(arrays: Arrays) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def test_loans_that_are_kept_pass() -> None:
    net, feeds = lstm()
    run = checked_loans(ro.compile(net, device="reference"))
    plain, (out, pullback) = run(feeds), run.vjp(feeds)
    assert bits(plain) == bits(out)
    grads = pullback({name: np.ones_like(array) for name, array in out.items()})
    assert grads.keys() == feeds.keys()
    feeds["x"][...] = 0.0
    with pytest.raises(ro.GradientError, match="used already"):
        pullback({})


@pytest.mark.parametrize("name", ["x", "h", "lstm/gates_t_w"])
def test_a_changed_feed_is_named(name: str) -> None:
    net, feeds = lstm()
    _, pullback = checked_loans(ro.compile(net, device="reference")).vjp(feeds)
    feeds[name].flat[1] += 1e-9
    with pytest.raises(CheckError, match=f"'{name}' was changed"):
        pullback({})


def test_a_changed_kept_array_is_named() -> None:
    net, feeds = lstm()
    out, pullback = checked_loans(ro.compile(net, device="reference")).vjp(feeds)
    assert len(pullback.pullback.held_arrays()) > len(feeds)
    lent = next(array for array in out.values() if not array.flags.writeable)
    lent.flags.writeable = True
    lent.flat[0] += 1.0
    with pytest.raises(CheckError, match="was changed"):
        pullback({})


def test_every_kept_step_blob_is_watched() -> None:
    net, feeds = lstm()
    run = checked_loans(ro.compile(net, device="reference"))
    _, pullback = run.vjp(feeds)
    held = pullback.pullback.held_arrays()
    kept = [name for name, array in held.items() if array.flags.writeable and name not in feeds]
    assert kept
    for name in kept:
        _, pullback = run.vjp(feeds)
        pullback.pullback.held_arrays()[name].flat[0] += 0.5
        with pytest.raises(CheckError, match="was changed"):
            pullback({})


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [check_gradient, check_devices])
def test_what_is_no_net_no_feeds_and_no_output(check: Callable[..., Any]) -> None:
    net, feeds = lstm()
    rejects(ro.NetError, lambda: check(3, feeds), "not a net", "int")
    rejects(ro.FeedError, lambda: check(net, 3), "feeds are not a dict", "int")
    rejects(ro.GradientError, lambda: check(net, feeds, outputs=["nothing"]), "no float output", "'nothing'")


def test_devices_that_are_none() -> None:
    net, feeds = lstm()
    for devices in (3, [3]):
        rejects(ro.DeviceError, lambda devices=devices: check_devices(net, feeds, devices), "device", "3")
    rejects(ro.DeviceError, lambda: check_gradient(net, feeds, device=3), "this is not a device")


@pytest.mark.parametrize(
    "settings",
    [{"step": 0.0}, {"step": "a"}, {"tolerance": np.nan}, {"tolerance": None}, {"sample": 0}, {"sample": 2.5}],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    net, feeds = lstm()
    rejects(ro.ArgumentError, lambda: check_gradient(net, feeds, **settings), next(iter(settings)))


def test_loans_of_what_is_no_run() -> None:
    net, _ = lstm()
    rejects(ro.ArgumentError, lambda: checked_loans(net), "not a run", "Net")
