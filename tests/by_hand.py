"""Comparison of a net with the same calculation written by hand as a NumPy loop: outputs, and every gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from devices import DEVICES, device_name, on_device

import rnnops as ro

Arrays = dict[str, np.ndarray]
Loop = Callable[..., Mapping[str, np.ndarray]]


def random_arrays(seed: int = 0, **shapes: tuple[int, ...]) -> Arrays:
    """Float64 arrays of these shapes."""
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}


def assert_agrees(
    net: ro.Net, feeds: Arrays, loop: Loop, weighted: Iterable[str] | None = None, **vjp: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Run a net on the device of the running test and `loop(**feeds)` by hand, and compare outputs and gradients.

    Args:
        loop: takes the feeds by name (`/` and the like as `_`), returns the outputs by name.
        weighted: outputs that get a gradient; all float ones if left out.
    """
    run = on_device(net)
    out, pullback = run.vjp(feeds, **vjp)
    wanted = by_name(loop, feeds)
    assert set(out) == set(wanted)
    for name, array in wanted.items():
        assert out[name].shape == array.shape, name
        np.testing.assert_allclose(out[name], array, rtol=1e-12, atol=1e-12, err_msg=name)
    np.testing.assert_equal(run(feeds, **{key: vjp[key] for key in vjp if key != "wrt"}, training=True), out)
    floats = [name for name, array in out.items() if array.dtype.kind == "f"]
    dys = {name: np.random.default_rng(7).uniform(-1, 1, out[name].shape) for name in weighted or floats}
    grads = pullback(dys)
    if device_name() == "reference":
        assert_gradients(grads, feeds, loop, dys)
    else:
        assert_gradients_of_the_reference(net, grads, feeds, dys, **vjp)
    for name in dys if len(out) > 1 else ():
        assert_alone(run, name, feeds, out[name], **vjp)
    return out, grads


def assert_alone(run: ro.Run, name: str, feeds: Arrays, wanted: np.ndarray, **vjp: Any) -> None:
    """A net with but one of the outputs of a run, which keeps less, gives the same output and gradients."""
    net = run.net
    alone = on_device(net.with_ops(net.ops, {name: net.output_blobs[name]}))
    options = {key: vjp[key] for key in vjp if key != "wrt"}
    for one in (run, alone):
        np.testing.assert_array_equal(one(feeds, training=True, **options)[name], wanted, err_msg=name)
    grads = [one.vjp(feeds, **vjp)[1]({name: np.ones_like(wanted)}) for one in (run, alone)]
    assert grads[0].keys() == grads[1].keys()
    for key, grad in grads[0].items():
        np.testing.assert_allclose(grads[1][key], grad, rtol=1e-12, atol=1e-14, err_msg=f"{key} from {name} alone")


def assert_gradients(grads: Arrays, feeds: Arrays, loop: Loop, dys: Mapping[str, np.ndarray]) -> None:
    """Compare gradients with central differences of the loop."""
    for name, grad in grads.items():
        assert grad.shape == feeds[name].shape, name
        np.testing.assert_allclose(grad, difference(feeds, name, loop, dys), rtol=1e-6, atol=2e-8, err_msg=name)


def assert_gradients_of_the_reference(
    net: ro.Net, grads: Arrays, feeds: Arrays, dys: Mapping[str, np.ndarray], **vjp: Any
) -> None:
    """Compare gradients with those of the reference, which the same test compares with differences on that device."""
    wanted = DEVICES["reference"](net).vjp(feeds, **vjp)[1](dys)
    assert grads.keys() == wanted.keys()
    for name, grad in wanted.items():
        assert grads[name].shape == grad.shape, name
        np.testing.assert_allclose(grads[name], grad, rtol=1e-9, atol=1e-12, err_msg=name)


def difference(feeds: Arrays, name: str, loop: Loop, dys: Mapping[str, np.ndarray], step: float = 1e-5) -> np.ndarray:
    """Central differences of `sum(dy * output)` with respect to one feed, in float64."""
    result = np.zeros(feeds[name].shape)
    for place in np.ndindex(result.shape):
        totals = []
        for sign in (1, -1):
            moved = feeds[name].copy()
            moved[place] += sign * step
            out = by_name(loop, {**feeds, name: moved})
            totals.append(sum(float(np.sum(dy * out[key])) for key, dy in dys.items()))
        result[place] = (totals[0] - totals[1]) / (2 * step)
    return result


def by_name(loop: Loop, feeds: Arrays) -> Mapping[str, np.ndarray]:
    return loop(**{name.replace("/", "_"): array for name, array in feeds.items()})


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
