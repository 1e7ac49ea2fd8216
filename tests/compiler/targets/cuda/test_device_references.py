"""Ops that are not compiled, on arrays of the device: views and copies there, all else through the host."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_marks import on_cuda
from small_programs import call_of

from rnnops.compiler.targets.cuda.target import DeviceReference
from rnnops.kernels.cuda.device_array import DeviceArray, on_device
from rnnops.net.schema import RunContext

pytestmark = on_cuda
X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("y = Transpose(x, perm=[1, 0])", X.T),
        ("y = Slice(x, starts=[2], ends=[-4], axes=[1], steps=[-1])", X[:, ::-1]),
        ("y = Concat(x, x, axis=1)", np.concatenate([X, X], axis=1)),
        ("y = Exp(x)", np.exp(X)),
    ],
)
def test_results_stay_on_the_device(text: str, wanted: np.ndarray) -> None:
    call = call_of(text, x=(2, 3))
    (found,) = DeviceReference(call)([on_device(X)] * len(call.op.inputs), RunContext())
    assert isinstance(found, DeviceArray)
    np.testing.assert_array_equal(found.to_host(), wanted)


def test_a_view_is_no_copy() -> None:
    array = on_device(X)
    (turned,) = DeviceReference(call_of("y = Transpose(x, perm=[1, 0])", x=(2, 3)))([array], RunContext())
    array.fill(7)
    assert (turned.to_host() == 7).all()


def test_constants_go_to_the_device_once() -> None:
    call = call_of('y = Constant(value=2.5, dtype="float64")')
    (first,), (second,) = (DeviceReference(call)([], RunContext()) for _ in range(2))
    assert first is second
    assert first.item() == 2.5
    with pytest.raises(ValueError, match="read-only"):
        first.fill(1)


def test_arrays_of_the_host_stay_there() -> None:
    (found,) = DeviceReference(call_of("y = Exp(x)", x=(2, 3)))([X], RunContext())
    assert isinstance(found, np.ndarray)
