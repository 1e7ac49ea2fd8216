"""`residuals="bfloat16"` on a CUDA device: gradients are those of the reference, which rounds the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda

import rnnops as ro
from rnnops.compiler.api.compile import on_device
from rnnops.kernels.cuda.device_array import DeviceArray

pytestmark = on_cuda


@pytest.mark.parametrize("place", [on_device, np.asarray], ids=["device", "host"])
def test_gradients_are_those_of_the_reference(place: Any) -> None:
    net = ro.Net("gru")
    net.outputs(y=ro.GRU(net, net.input("x"), None, None, 3, 4)[0])
    feeds = {**ro.init_params(net, 0), "x": np.random.default_rng(0).normal(size=(3, 2, 3)).astype("float32")}
    dy = np.random.default_rng(1).normal(size=(3, 2, 4)).astype("float32")
    wanted = ro.compile(net, device="reference", residuals="bfloat16").vjp(feeds)[1](dy)
    exact = ro.compile(net, device="reference").vjp(feeds)[1](dy)
    placed = {name: place(array) for name, array in feeds.items()}
    pullback = ro.compile(net, device="cuda", residuals="bfloat16").vjp(placed)[1]
    blob = pullback.step_blobs("sigmoid_0")
    assert type(blob) is type(placed["x"])
    assert not np.any((blob.to_host() if isinstance(blob, DeviceArray) else blob).view("uint32") & 0xFFFF)
    for name, grad in pullback(place(dy)).items():
        found = grad.to_host() if isinstance(grad, DeviceArray) else grad
        most = np.abs(wanted[name]).max()
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-5 * most, err_msg=name)
        assert np.abs(wanted[name] - exact[name]).max() > 1e-4 * most
