"""What tests of runs on the CUDA device share: a net of two recurrences, its feeds, and arrays that stay there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda.device_array import DeviceArray

T, N, D, H = 3, 2, 3, 4
TUNING = Options(tile=2, device=Cuda(lanes=3, blocks=2))


def model() -> ro.Net:
    """Two recurrences with views, and ops that mix rows, around them."""
    net = ro.Net("model")
    h, _ = ro.GRU(net, net.input("x"), net.input("lengths", "int32"), None, D, H, scope="a")
    turned = ro.transpose(ro.slice(h, [0], [2], [2]), [1, 0, 2])
    back = ro.reshape(ro.transpose(turned, [1, 0, 2]), [T, N, 2])
    y, last, *_ = ro.LSTM(net, back, None, None, 2, H, scope="b")
    net.outputs(y=y, last=last, spread=ro.reduce_max(y, axes=[0, 1, 2]), turned=turned)
    return net


def feeds_of(net: ro.Net, dtype: str = "float64") -> dict[str, Any]:
    random = np.random.default_rng(0)
    given = {"x": random.normal(size=(T, N, D)).astype(dtype), "lengths": np.array([3, 2], "int32")}
    return {**{spec.name: random.normal(size=spec.shape).astype(dtype) for spec in net.parameters}, **given}


def on_device(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: ro.on_device(array) for name, array in arrays.items()}


def assert_same(came: dict[str, Any], wanted: dict[str, Any], kind: type) -> None:
    assert set(came) == set(wanted)
    for name, array in wanted.items():
        assert type(came[name]) is kind
        found = came[name].to_host() if kind is DeviceArray else came[name]
        np.testing.assert_allclose(found, array, rtol=1e-12, atol=1e-12, err_msg=name)


@contextmanager
def staying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No array goes through the host."""
    with monkeypatch.context() as patched:
        patched.setattr(DeviceArray, "to_host", lambda self: pytest.fail(f"{self} goes through the host"))
        yield
