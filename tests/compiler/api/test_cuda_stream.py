"""Streams on a CUDA device: states stay where feeds are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from rejection import rejects
from transfers import counted_transfers

import rnnops as ro
from rnnops.compiler.api.compile import on_device
from rnnops.kernels.cuda.device_array import DeviceArray

pytestmark = on_cuda
X = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")


def gru_run() -> ro.Run:
    net = ro.Net("gru")
    x, h = net.inputs("x", "h")
    h_all, h_last = ro.GRU(net, x, None, [h], 3, 2)
    net.outputs(y=h_all, h_out=h_last)
    return ro.compile(net, device="cuda").bind(**ro.init_params(net, 0))


def to_host(array: Any) -> np.ndarray:
    return array.to_host() if isinstance(array, DeviceArray) else array


@pytest.mark.parametrize("place", [on_device, np.asarray], ids=["device", "host"])
def test_chunks_are_one_call(place: Any) -> None:
    run, kind = gru_run(), type(place(X))
    wanted = to_host(run(x=X, h=np.zeros((1, 2, 2), "float32"))["y"])
    stream = run.stream({"h_out": "h"}, rows=2, shapes={"h": (1, "N", 2)})
    first = stream(place(X[:1]))["y"]
    kept = stream.copy()
    second = stream(place(X[1:]), rows=[True, False], stream=0)["y"]
    assert type(first) is type(second) is kind
    np.testing.assert_array_equal(np.concatenate([to_host(first), to_host(second)]), wanted)
    assert type(kept.states["h"]) is kind
    np.testing.assert_array_equal(to_host(stream.states["h"])[0], [wanted[3, 0], wanted[0, 1]])
    np.testing.assert_array_equal(to_host(kept(X[1:])["y"]), wanted[1:])  # from the host after the device
    stream.load(kept.states)
    stream.reset(1)
    np.testing.assert_array_equal(to_host(stream.states["h"])[0], [wanted[3, 0], [0, 0]])


@in_simulator
def test_rows_that_wait_and_places_that_are_free_stay_on_the_device() -> None:
    run = gru_run()
    frames = np.random.default_rng(1).normal(size=(3, 1, 5, 3)).astype("float32")
    took_part = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1], [1, 0, 0, 0, 1]], bool)
    on_card, on_host = (run.stream({"h_out": "h"}, rows=5, shapes={"h": (1, "N", 2)}) for _ in range(2))
    given = [on_device(frame) for frame in frames]
    for t, rows in enumerate(took_part):
        with counted_transfers() as count:
            on_card(given[t], rows=rows)
        on_host(frames[t], rows=rows)
        assert t == 0 or count.both == (0, 0), "states begin on the host"
        np.testing.assert_array_equal(to_host(on_card.states["h"]), on_host.states["h"])
    on_card.leave(2)
    on_host.leave(2)
    on_card(given[0])  # numbers of a call with all rows are the same
    on_host(frames[0])
    with counted_transfers() as count:
        on_card(given[1])
    on_host(frames[1])
    assert count.both == (0, 0)
    np.testing.assert_array_equal(to_host(on_card.states["h"]), on_host.states["h"])
    assert type(on_card.states["h"]) is DeviceArray
    assert not on_card.states["h"].flags.writeable


def test_a_mixture_is_refused_and_states_stay() -> None:
    net = ro.Net("sum")
    x, b, h = net.inputs("x", "b", "h")
    net.outputs(h_out=x + b + h)
    stream = ro.compile(net, device="cuda").stream({"h_out": "h"}, shapes={"h": (4,)})
    rejects(ro.FeedError, lambda: stream(x=on_device(np.ones(4, "float32")), b=np.ones(4, "float32")), "blob 'b'")
    assert not stream.states["h"].any()
