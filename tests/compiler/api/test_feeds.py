"""What may be fed to a run: layouts of memory, arrays of other libraries, dtypes, seeds."""

from __future__ import annotations

from types import SimpleNamespace
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
    unaligned = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    return {
        "read-only": read_only,
        "not aligned": unaligned,
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

    class Nowhere(Half):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise RuntimeError("of no device")

    for value in (Broken(np.ones((3, 2))), Half(), Nowhere()):
        with pytest.raises(ro.FeedError, match="DLPack") as caught:
            on_device(product_net())(x=value, w=np.ones((2, 4)))
        assert caught.value.blob == "x"


class Negated(Exported):
    """A tensor whose sign is a bit beside its memory, as PyTorch makes them."""

    def __init__(self, array: np.ndarray, bit: bool = True) -> None:
        super().__init__(-array if bit else array)
        self.bit = bit

    def is_neg(self) -> bool:
        return self.bit

    def resolve_neg(self) -> Negated:
        return Negated(-self.array, bit=False)


def test_signs_beside_the_memory_count() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    x, dy = Negated(feeds["x"]), random_arrays(dy=(3, 4))["dy"]
    same(run(x=x, w=feeds["w"]), run(feeds))
    same(run.bind(x=x)(w=feeds["w"]), run(feeds))
    same(run.vjp(x=x, w=feeds["w"])[1]({"y": Negated(dy)}), run.vjp(feeds)[1]({"y": dy}))


class Stored(Exported):
    """A tensor with a storage of some bytes."""

    def __init__(self, array: np.ndarray, nbytes: int) -> None:
        super().__init__(array)
        self.bytes, self.shape = nbytes, array.shape

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: self.bytes)

    def element_size(self) -> int:
        return self.array.itemsize

    def storage_offset(self) -> int:
        return 0

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)


def test_tensors_without_memory_are_refused_by_name() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    same(run(x=Stored(feeds["x"], 48), w=feeds["w"]), run(feeds))
    for tensor in (Stored(feeds["x"], 40), Stored(feeds["x"], 0)):
        with pytest.raises(ro.FeedError, match="cannot be read through DLPack") as caught:
            run(x=tensor, w=feeds["w"])
        assert caught.value.blob == "x"
    with pytest.raises(
        ro.GradientError, match="a gradient cannot be read through DLPack: there is no memory"
    ) as refused:
        run.vjp(feeds)[1]({"y": Stored(np.ones((3, 4)), 8)})
    assert refused.value.blob == "y"


def torch_tensors(torch: Any, x: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors with the values of an array, and tensors that cannot be read."""
    plain = torch.from_numpy(x.copy())
    freed, shrunk = plain.clone(), plain.clone()
    freed.untyped_storage().resize_(0)
    shrunk.untyped_storage().resize_(16)
    readable = {
        "plain": plain,
        "negative bit": torch.complex(plain, -plain).conj().imag,
        "real part of a conjugate": torch.complex(plain, plain).conj().real,
        "parameter": torch.nn.Parameter(plain, requires_grad=False),
        "transposed": plain.t().contiguous().t(),
    }
    unreadable = {
        "requires a gradient": plain.clone().requires_grad_(),
        "negative and requires a gradient": torch._neg_view(plain.clone().requires_grad_()),
        "sparse": plain.to_sparse(),
        "compressed rows": plain.to_sparse_csr(),
        "bfloat16": plain.to(torch.bfloat16),
        "half": plain.half(),
        "complex": torch.complex(plain, plain).conj(),
        "quantized": torch.quantize_per_tensor(plain.float(), 0.1, 0, torch.qint8),
        "meta": plain.to("meta"),
        "mkldnn": plain.float().to_mkldnn(),
        "without memory": freed,
        "with too little memory": shrunk,
    }
    return readable, unreadable


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    run, feeds = on_device(product_net()), random_arrays(x=(3, 4), w=(4, 4))
    dy = random_arrays(dy=(3, 4))["dy"]
    wanted, grads = run(feeds), run.vjp(feeds)[1](dy)
    for tensor in torch_tensors(torch, feeds["x"])[0].values():
        same(run(x=tensor, w=feeds["w"]), wanted)
        same(run.bind(x=tensor)(w=feeds["w"]), wanted)
    readable, unreadable = torch_tensors(torch, dy)
    for tensor in readable.values():
        same(run.vjp(feeds)[1](tensor), grads)
    for label, tensor in unreadable.items():
        with pytest.raises(ro.FeedError) as caught:
            run(x=tensor, w=feeds["w"])
        assert caught.value.blob == "x", label
        assert ("Feed x.detach()" in str(caught.value)) == tensor.requires_grad, label
        with pytest.raises(ro.GradientError) as refused:
            run.vjp(feeds)[1]({"y": tensor})
        assert refused.value.blob == "y", label


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_arrays_of_other_kinds_are_right_or_refused_by_name() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    x = feeds["x"]
    for array in (np.matrix(x), x.view(np.recarray)):
        same(run(x=array, w=feeds["w"]), run(feeds))
    swapped, frame = x.astype(x.dtype.newbyteorder()), SimpleNamespace(__array__=lambda: x)
    for value in (swapped, x.astype(object), x.astype(np.longdouble), memoryview(x), frame, x.astype("S8")):
        with pytest.raises(ro.FeedError) as caught:
            run(x=value, w=feeds["w"])
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
