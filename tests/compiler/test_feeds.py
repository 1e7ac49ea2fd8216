"""What may be fed to a run: layouts of memory, arrays of other libraries, dtypes, seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from devices import on_device
from small_runs import D, N, T, lstm_feeds, lstm_net, product_net, same

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in other places of memory."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    read_only = array.copy()
    read_only.flags.writeable = False
    return {
        "read-only": read_only,
        "every second": wide[..., ::2],
        "Fortran": np.asfortranarray(array),
        "backwards": array[..., ::-1].copy()[..., ::-1],
        "transposed": array.T.copy().T,
        "repeated": np.broadcast_to(array, (1, *array.shape))[0],
    }


@pytest.mark.parametrize("layout", layouts(np.ones((2, 2))))
def test_any_memory_layout_gives_the_same_bits_and_feeds_stay_as_they_are(layout: str) -> None:
    plain = lstm_feeds()
    fed = {name: layouts(array)[layout] for name, array in plain.items()}
    before = {name: array.copy() for name, array in fed.items()}
    run = on_device(lstm_net())
    results = []
    for feeds in (plain, fed):
        out, pullback = run.vjp(feeds)
        grads = pullback({"h_all": np.ones_like(out["h_all"]), "c_all": np.ones_like(out["c_all"])})
        results.append({**out, **{f"grad {name}": grad for name, grad in grads.items()}, **run(feeds)})
    same(results[1], results[0])
    same(fed, before)
    assert all(not np.shares_memory(array, feed) for array in results[1].values() for feed in fed.values())


def test_gradients_of_any_layout_are_accepted_and_stay_as_they_are() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    dy = random_arrays(dy=(3, 4))["dy"]
    wanted = run.vjp(feeds)[1](dy)
    for layout, array in layouts(dy).items():
        grads = run.vjp(feeds)[1]({"y": array})
        assert np.array_equal(array, dy), layout
        same(grads, wanted)


class Exported:
    """An array of another library, which NumPy reaches through DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_by_dlpack() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    exported = {name: Exported(array) for name, array in feeds.items()}
    same(run(exported), run(feeds))
    dy = np.ones((3, 4))
    same(run.vjp(exported)[1]({"y": Exported(dy)}), run.vjp(feeds)[1]({"y": dy}))
    same(run.bind(w=exported["w"])(x=exported["x"]), run(feeds))


def test_dlpack_that_fails_is_a_named_error() -> None:
    class Broken(Exported):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("the tensor requires a gradient")

    class Half:
        def __dlpack__(self, **options: Any) -> Any:
            raise AssertionError("an error of the other library")

    for value in (Broken(np.ones((3, 2))), Half()):
        with pytest.raises(ro.FeedError, match="DLPack") as caught:
            on_device(product_net())(x=value, w=np.ones((2, 4)))
        assert caught.value.blob == "x"


def test_cuda_arrays_are_refused_by_name() -> None:
    class OnDevice(Exported):
        __cuda_array_interface__ = {"shape": (3, 2), "typestr": "<f8", "data": (0, False), "version": 3}

    with pytest.raises(ro.FeedError, match="CUDA array") as caught:
        on_device(product_net())(x=OnDevice(np.ones((3, 2))), w=np.ones((2, 4)))
    assert caught.value.blob == "x"
    assert caught.value.net == "product"


class Loud(np.ndarray):
    """An array with arithmetic of its own."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the arithmetic of a subclass is used")


def test_subclasses_of_arrays_are_plain_arrays_and_masks_are_refused() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    loud = {name: array.view(Loud) for name, array in feeds.items()}
    same(run(loud), run(feeds))
    same(run.vjp(loud)[1](np.ones((3, 4)).view(Loud)), run.vjp(feeds)[1](np.ones((3, 4))))
    with pytest.raises(ro.FeedError, match="masked"):
        run(x=np.ma.masked_array(feeds["x"], feeds["x"] > 0), w=feeds["w"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_run_has_the_dtype_of_its_feeds(dtype: str) -> None:
    out, pullback = on_device(lstm_net()).vjp(lstm_feeds(dtype))
    grads = pullback({"h_last": np.ones_like(out["h_last"])})
    assert {str(array.dtype) for array in (*out.values(), *grads.values())} == {dtype}


def test_python_numbers_take_the_dtype_of_the_run() -> None:
    net = ro.Net("numbers")
    x = net.input("x")
    net.outputs(y=x * 0.1 + 1, z=ro.where(x > 0, x, 0.5), c=net.constant(0.1))
    for dtype in ("float32", "float64"):
        out = on_device(net)(x=np.ones(2, dtype))
        assert {str(array.dtype) for array in out.values()} == {dtype}
        assert out["y"][0] == np.dtype(dtype).type(1) * np.dtype(dtype).type(0.1) + 1


def test_a_net_without_float_feeds_runs_in_float32() -> None:
    net = ro.Net("integers")
    n = net.input("n", "int64")
    net.outputs(y=ro.cast(n, "float") * 0.5)
    assert on_device(net)(n=np.array([1, 2]))["y"].dtype == np.float32


def test_a_net_without_inputs_runs() -> None:
    net = ro.Net("constant")
    net.outputs(y=net.constant(3.0) * 2.0)
    run = on_device(net)
    out, pullback = run.vjp()
    same(out, run())
    assert out["y"] == 6
    assert pullback({}) == {}


@pytest.mark.parametrize(("dtype", "inner"), [("float64", "float32"), ("float32", "float64")])
@pytest.mark.parametrize("state", [False, True])
def test_a_cell_may_compute_in_the_other_float_dtype(dtype: str, inner: str, state: bool) -> None:
    cell = ro.Net("mixed")
    x, h = cell.input("x", inner), cell.input("h", inner if state else None)
    new = ro.tanh(x) * 2.0
    cell.outputs(h_t=h * 0.5 + (new if state else ro.cast(new, "float")), x_t=x * 3.0)
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    start = ro.cast(h0, inner) if state else h0
    net.outputs(*ro.recurrent_net(net, cell, [("x", ro.cast(xs, inner))], [("h", start)], {"h": "h_t"}))
    out, pullback = on_device(net).vjp(xs=np.ones((2, 1, 1), dtype), h0=np.ones(1, dtype))
    assert out["x_t_all"].dtype == inner
    assert out["h_t_all"].dtype == (inner if state else dtype)
    grads = pullback({"h_t_last": np.ones_like(out["h_t_last"]), "x_t_last": np.ones_like(out["x_t_last"])})
    assert {str(grad.dtype) for grad in grads.values()} == {dtype}
    slope = 2 * (1 - np.tanh(1.0) ** 2)
    np.testing.assert_allclose(grads["xs"].ravel(), [slope / 2, slope + 3], rtol=1e-6)
    np.testing.assert_allclose(grads["h0"], 0.25)


def dropout_net() -> ro.Net:
    net = ro.Net("noisy")
    x = net.input("x")
    net.outputs(a=ro.dropout(x, 0.5), b=ro.dropout(x, 0.5))
    return net


def test_seeds_decide_masks_and_training_switches_them() -> None:
    run, x = on_device(dropout_net()), np.ones((4, 8))
    first, again, other = (run(x=x, seed=seed, training=True) for seed in (1, 1, 2))
    same(again, first)
    assert not np.array_equal(first["a"], other["a"])
    assert not np.array_equal(first["a"], first["b"]), "each random op has numbers of its own"
    assert np.array_equal(run(x=x)["a"], x)
    assert np.array_equal(run(x=x, seed=1)["a"], x)
    out, pullback = run.vjp(x=x, seed=1)
    same(out, first)
    assert np.array_equal(pullback({"a": x})["x"], first["a"])
    out, pullback = run.vjp(x=x, training=False)
    assert np.array_equal(out["a"], x)
    assert np.array_equal(pullback({"a": x})["x"], x)


def test_seeds_use_all_their_bits() -> None:
    run, x = on_device(dropout_net()), np.ones((4, 8))
    masks = {run(x=x, seed=seed, training=True)["a"].tobytes() for seed in (0, 1, 2**32, 2**63, 2**64 - 1)}
    assert len(masks) == 5


def test_no_seed_is_needed_where_no_random_op_is_live() -> None:
    net = ro.Net("quiet")
    x = net.input("x")
    ro.dropout(x, 0.5)
    net.outputs(y=ro.dropout(x, 0.0) * 2.0)
    out, pullback = on_device(net).vjp(x=np.ones(3))
    assert np.all(out["y"] == 2)
    assert np.all(pullback(np.ones(3))["x"] == 2)


def test_dead_random_op_of_a_cell_needs_no_seed() -> None:
    cell = ro.Net("quiet")
    x, h = cell.inputs("x", "h")
    ro.dropout(x, 0.5)
    cell.outputs(h_t=x + h)
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"})[0])
    assert on_device(net).vjp(xs=np.ones((T, N, D)), h0=np.zeros(D))[0]["y"].shape == (T, N, D)
