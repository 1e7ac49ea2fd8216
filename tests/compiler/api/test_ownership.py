"""Who owns which array: outputs and gradients are the caller's, outputs that backward reads are lent."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from by_hand import random_arrays
from devices import on_device
from small_runs import D, H, N, T, lstm_feeds, lstm_net, same

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")


def test_outputs_are_the_callers() -> None:
    net = ro.Net("aliases")
    x, w = net.inputs("x", "w")
    constant = net.constant(np.arange(3.0))
    net.outputs(
        x=x,
        same=ro.identity(x),
        part=ro.slice(x, [0], [2], [0]),
        turned=ro.transpose(x, perm=[1, 0]),
        constant=constant,
        wide=ro.expand(constant, [2, 3]),
        flat=ro.reshape(x, [-1]),
        first=ro.split(x, 2, axis=0)[0],
        y=x * w,
    )
    feeds = random_arrays(x=(4, 3), w=(3,))
    before = {name: array.copy() for name, array in feeds.items()}
    run = on_device(net)
    wanted = {name: array.copy() for name, array in run(feeds).items()}
    for training in (False, True):
        out, pullback = run.vjp(feeds) if training else (run(feeds), None)
        del pullback
        for array in out.values():
            assert array.flags.writeable
            array[...] = np.nan
        same(feeds, before)
        same(run(feeds), wanted)


def test_gradients_are_the_callers() -> None:
    net = ro.Net("passed_on")
    a, b, c = net.inputs("a", "b", "c")
    net.outputs(y=a + b + c, z=ro.reshape(a, [6]))
    feeds = random_arrays(a=(2, 3), b=(2, 3), c=(3,))
    dys = {"y": np.ones((2, 3)), "z": np.ones(6)}
    grads = on_device(net).vjp(feeds)[1](dys)
    for name, grad in grads.items():
        others = [*dys.values(), *feeds.values(), *(other for key, other in grads.items() if key != name)]
        assert grad.flags.writeable
        assert not any(np.shares_memory(grad, other) for other in others), name


def test_outputs_that_backward_reads_are_lent_until_the_pullback_is_used() -> None:
    run, feeds = on_device(lstm_net()), lstm_feeds()
    out, pullback = run.vjp(feeds)
    assert not out["h_all"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        out["h_all"][0] = 0
    pullback({"h_all": np.ones_like(out["h_all"])})
    assert all(array.flags.writeable for array in out.values())
    out["h_all"][0] = 0


def test_lent_outputs_come_back_when_the_pullback_is_dropped() -> None:
    out, pullback = on_device(lstm_net()).vjp(lstm_feeds())
    assert not out["c_all"].flags.writeable
    del pullback
    gc.collect()
    assert all(array.flags.writeable for array in out.values())


def test_lent_outputs_come_back_when_the_backward_pass_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **_more: object) -> None:
        raise MemoryError

    out, pullback = on_device(lstm_net()).vjp(lstm_feeds())
    monkeypatch.setattr("rnnops.compiler.api.derivatives.execute", fails)
    with pytest.raises(MemoryError):
        pullback({"h_all": np.ones_like(out["h_all"])})
    assert all(array.flags.writeable for array in out.values())


def test_outputs_that_backward_does_not_read_are_never_lent() -> None:
    net = ro.Net("linear")
    x, w = net.inputs("x", "w")
    net.outputs(y=x @ w)
    out, pullback = on_device(net).vjp(random_arrays(x=(3, 2), w=(2, 4)))
    out["y"][...] = 0
    assert pullback(np.ones((3, 4)))["w"].shape == (2, 4)


def test_pullback_outlives_its_run_and_outputs_outlive_both() -> None:
    run, feeds = on_device(lstm_net()), lstm_feeds()
    wanted = run.vjp(feeds)[1]({"h_last": np.ones((1, N, H))})
    out, pullback = run.vjp(feeds)
    kept = out["h_all"].copy()
    del run
    gc.collect()
    same(pullback({"h_last": np.ones((1, N, H))}), wanted)
    del pullback
    gc.collect()
    assert np.array_equal(out["h_all"], kept)


def test_several_pullbacks_at_once_in_any_order() -> None:
    run = on_device(lstm_net())
    feeds = [{**lstm_feeds(), "x": random_arrays(k, x=(T, N, D))["x"]} for k in range(3)]
    dy = {"h_all": np.ones((T, N, H))}
    wanted = [run.vjp(fed)[1](dy) for fed in feeds]
    pullbacks = [run.vjp(fed)[1] for fed in feeds]
    for k in (1, 2, 0):
        same(pullbacks[k](dy), wanted[k])
