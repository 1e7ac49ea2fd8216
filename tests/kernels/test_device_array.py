"""Arrays of a CUDA device: what views and copies make, beside NumPy; and what they refuse."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from elsewhere import Elsewhere

from rnnops.kernels.cuda import device_array, facade
from rnnops.kernels.cuda.device_array import empty, on_device, zeros

pytestmark = on_cuda
X = np.arange(24.0).reshape(2, 3, 4)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "a step": lambda x: x[1],
    "steps": lambda x: x[1:],
    "backwards": lambda x: x[::-1, ::2],
    "one more axis": lambda x: x[None],
    "last axis": lambda x: x[..., 1:3],
    "an element": lambda x: x[1, 2, 3],
    "reshaped": lambda x: x.reshape(6, 4),
    "flat": lambda x: x.reshape(-1),
    "reshaped with a copy": lambda x: x.transpose(2, 0, 1).reshape(4, 6),
    "transposed": lambda x: x.transpose(1, 0, 2),
    "bytes": lambda x: x.view(np.uint8),
    "view of a view": lambda x: x[1:].transpose(2, 1, 0)[1:3, ::-1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_numpys(name: str) -> None:
    view, wanted = VIEWS[name](on_device(X)), VIEWS[name](X)
    assert (view.shape, view.dtype, view.ndim, view.size, view.nbytes) == (
        wanted.shape, wanted.dtype, np.ndim(wanted), wanted.size, wanted.nbytes,
    )  # fmt: skip
    np.testing.assert_array_equal(view.to_host(), wanted)
    np.testing.assert_array_equal(view.copy().to_host(), wanted)


def test_what_is_written_through_a_view_is_in_the_array() -> None:
    x, wanted = on_device(X), X.copy()
    x[1, :, ::2] = on_device(np.arange(6.0).reshape(3, 2))
    wanted[1, :, ::2] = np.arange(6.0).reshape(3, 2)
    x[0] = 7
    wanted[0] = 7
    x[:, 1] += on_device(np.ones((2, 4)))
    wanted[:, 1] += 1
    x[1] += x[0]
    wanted[1] += wanted[0]
    np.testing.assert_array_equal(x.to_host(), wanted)


def test_new_arrays_are_not_zeros_unless_wanted() -> None:
    assert np.isnan(empty((3,), "float32").to_host()).all() or not facade.SIMULATED
    assert not zeros((2, 3), "int64").to_host().any()
    assert empty((0, 4), "float32").to_host().shape == (0, 4)


def test_sums_along_the_first_axis() -> None:
    x, out = on_device(X), empty((3, 4), "float64")
    np.testing.assert_array_equal(x.sum(axis=0, out=out).to_host(), X.sum(axis=0))
    with pytest.raises(TypeError, match="along axis 0 into another"):
        x.sum(axis=1, out=out)


def test_bools() -> None:
    x = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(on_device(x).transpose(1, 0).to_host(), x.T)


def test_numpy_takes_none_by_accident() -> None:
    x = on_device(X)
    for use in (np.asarray, np.sum, lambda a: a + X if False else np.add(X, a), lambda a: np.concatenate([a, a])):
        with pytest.raises(TypeError):
            use(x)
    assert np.may_share_memory(x, x[1])
    assert not np.may_share_memory(x, on_device(X))
    assert not np.may_share_memory(x, X)


def test_numbers_and_what_is_not_there() -> None:
    assert float(on_device(np.float32(2.5))) == on_device(np.array([2.5])).item() == 2.5
    assert f"{on_device(np.float32(2.5)):.2f}" == "2.50"
    assert int(on_device(np.array(3))) == 3
    uses = (lambda a: a * 2.0, lambda a: 1.0 - a, lambda a: a @ a, lambda a: a.numpy(), lambda a: a.mean())
    for use in (*uses, lambda a: a == a, lambda a: a != a, lambda a: a.sum()):
        with pytest.raises((TypeError, AttributeError), match=r"\.to_host\(\)"):
            use(on_device(X))
    for wrong in (np.array(["a"]), X.astype(">f8"), np.array([None])):
        with pytest.raises(TypeError, match="no dtype"):
            on_device(wrong)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float32"):
        on_device(X).assign(on_device(X.astype("float32")))
    with pytest.raises(TypeError, match=r"no array that goes to a CUDA device: .*got list"):
        on_device([1.0])
    with pytest.raises(TypeError, match="whole numbers and slices"):
        on_device(X)[[0, 1]]
    with pytest.raises(TypeError, match="whole numbers and slices"):
        on_device(X)[True]
    with pytest.raises(TypeError, match="mask"):
        on_device(np.ma.array(X, mask=X > 3))


def test_parts_of_the_same_memory() -> None:
    x, wanted = on_device(X), X.copy()
    x[:, 1:] = x[:, :-1]
    wanted[:, 1:] = wanted[:, :-1].copy()
    x += x[::-1]
    wanted += wanted[::-1].copy()
    np.testing.assert_array_equal(x.to_host(), wanted)
    np.testing.assert_array_equal(deepcopy(x[1]).to_host(), wanted[1])
    with pytest.raises(ValueError, match="read-only"):
        on_device(X).broadcast_to((2, 2, 3, 4)).fill(1)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(x)


@pytest.mark.parametrize(
    ("axes", "wanted"),
    [
        ([(2, 96, 96), (3, 32, 32), (4, 8, 8)], [(24, 8, 8)]),
        ([(2, 96, 0), (3, 32, 32), (4, 8, 8)], [(2, 96, 0), (12, 8, 8)]),
        ([(1, 5, 7), (4, 8, 16)], [(4, 8, 16)]),
        ([(1, 5, 7)], []),
    ],
)
def test_axes_without_gaps_are_one(axes: Any, wanted: Any) -> None:
    assert device_array.joined(axes) == wanted


@pytest.mark.parametrize("adds", [False, True])
def test_the_kernel_that_moves(adds: bool) -> None:
    """What devices do in place of NumPy's assignment, for views of four axes."""
    source, target = on_device(np.arange(120.0)), on_device(np.arange(200.0))
    shape, into, out, starts = (2, 3, 2, 4), (90, -20, 7, 1), (1, 24, 0, 3), (60, 5)
    views = [
        np.lib.stride_tricks.as_strided(flat[start:], shape, [8 * stride for stride in strides])
        for flat, start, strides in ((target.to_host(), starts[0], into), (source.to_host(), starts[1], out))
    ]
    wanted = views[0] + views[1] if adds else views[1].copy()
    facade.launch(
        facade.kernel(device_array.moving), 2, 3, 0, 0, target, source, 48, *shape[1:], *into, *out, *starts, int(adds)
    )
    came = np.lib.stride_tricks.as_strided(target.to_host()[60:], shape, [8 * stride for stride in into])
    np.testing.assert_array_equal(came, wanted)


def test_the_kernel_that_sums() -> None:
    source, out = on_device(X.reshape(-1)), zeros((12,), "float64")
    facade.launch(facade.kernel(device_array.adding), 2, 3, 0, 0, out, source, 2, 12)
    np.testing.assert_array_equal(out.to_host(), X.sum(axis=0).reshape(-1))


def test_arrays_of_others_with_masks_or_backwards_are_refused() -> None:
    with pytest.raises(TypeError, match="mask"):
        on_device(Elsewhere(X, mask=X))
    with pytest.raises(TypeError, match="negative strides"):
        on_device(Elsewhere(X[::-1]))


@in_simulator
def test_arrays_of_others_are_read_where_they_are() -> None:
    x = X.copy()
    view = on_device(Elsewhere(x))
    x[0] = 5
    np.testing.assert_array_equal(view.to_host(), x)
    view[1] = 3
    assert (x[1] == 3).all()
    gaps = on_device(Elsewhere(x.transpose(1, 0, 2)[:, :, ::2]))  # those with gaps are copied
    np.testing.assert_array_equal(gaps.to_host(), x.transpose(1, 0, 2)[:, :, ::2])
    assert gaps.flags.c_contiguous
