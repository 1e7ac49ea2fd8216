"""Models whose parameters are on the CUDA device: the CPU's training, copies of batches and results alone, errors."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from small_models import Tagger, tagger_batch

import rnnops as ro
from rnnops.kernels.cuda import device_array, facade
from rnnops.kernels.cuda.device_array import DeviceArray
from rnnops.model import RNN, SGD, Adam, AdamW, Cosine, Dense, Model, Optimizer, mean_squared_error
from rnnops.net.blob import Blob

pytestmark = on_cuda
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(0.3),
    "momentum": SGD(0.1, momentum=0.9, weight_decay=0.01, max_norm=0.1),
    "nesterov": SGD(0.1, momentum=0.9, nesterov=True, max_value=0.05),
    "adam": Adam(Cosine(0.1, 20), weight_decay=0.1),
    "adamw": AdamW(0.1, weight_decay=0.1, max_value=0.5, max_norm=0.2),
}


class Line(Model):
    """`[N, 2] -> [N, 1]`."""

    def __init__(self) -> None:
        self.dense = Dense(1)

    def forward(self, x: Blob) -> Blob:
        return self.dense(x)

    def train_one_batch(self, x: Blob, y: Blob) -> Blob:
        return self.minimize(mean_squared_error(self.forward(x), y))


class Steps(Line):
    """An LSTM under it, whose rows end."""

    def __init__(self) -> None:
        self.rnn, self.dense = RNN("lstm", 2), Dense(1)

    def forward(self, x: Blob, lengths: Blob | None = None) -> Blob:
        return self.dense(self.rnn(x, lengths)[0])

    def train_one_batch(self, x: Blob, y: Blob, lengths: Blob | None = None) -> Blob:
        return self.minimize(mean_squared_error(self.forward(x, lengths), y))


X = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]], "float32")
Y = np.array([[3.0], [-2.0], [1.0]], "float32")


def steps_batch() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(3, 2, size)).astype("float32") for size in (2, 1))
    return x, y, np.array([3, 2], "int32")


def compiled(model: Model, batch: Any, optimizer: Optimizer, device: str = "cuda", **options: Any) -> Any:
    model.set_optimizer(optimizer)
    return model.compile(list(batch), device=device, **options)


def assert_close(came: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(came) == set(wanted)
    for name, array in wanted.items():
        assert type(came[name]) is np.ndarray
        np.testing.assert_allclose(came[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


# -- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_the_cpu(name: str) -> None:
    exact, model = (compiled(Line(), (X, Y), OPTIMIZERS[name], device) for device in ("cpu", "cuda"))
    wanted = [float(exact(X, Y)) for _ in range(10)]
    np.testing.assert_allclose([float(model(X, Y)) for _ in range(10)], wanted, rtol=1e-5)
    assert wanted[-1] < 0.9 * wanted[0]
    assert_close(model.get_states(), exact.get_states())
    assert_close(dict(model.arrays), dict(exact.arrays))
    np.testing.assert_allclose(model.eval()(X), exact.eval()(X), rtol=1e-4)


def test_recurrences_with_lengths_and_other_shapes() -> None:
    x, y, lengths = steps_batch()
    optimizer = Adam(0.05, max_norm=0.3)
    exact, model = (compiled(Steps(), (x, y, lengths), optimizer, device) for device in ("cpu", "cuda"))
    batches = [(x, y, lengths)] * 2 + [(x[:2, :1], y[:2, :1])]
    wanted = [float(exact(*batch)) for batch in batches]
    np.testing.assert_allclose([float(model(*batch)) for batch in batches], wanted, rtol=1e-5)
    assert_close(model.get_states(), exact.get_states())


def test_lookups_dropout_and_labels_in_float64() -> None:
    batch = tagger_batch(2, 2)
    exact, model = (compiled(Tagger(), batch, SGD(0.5), device, dtype="float64") for device in ("cpu", "cuda"))
    wanted = [float(exact(*batch)) for _ in range(2)]
    np.testing.assert_allclose([float(model(*batch)) for _ in range(2)], wanted, rtol=1e-10)
    assert_close(model.get_states(), exact.get_states())


def test_frozen_for_a_while() -> None:
    """Adam counts updates by parameter, so that corrections of bias differ."""
    exact, model = (compiled(Line(), (X, Y), Adam(0.1), device) for device in ("cpu", "cuda"))
    for one in (exact, model):
        one(X, Y)
        one.set_optimizer(Adam(0.1), freeze=["dense.b"])
        one(X, Y)
        one.set_optimizer(Adam(0.2))
        one(X, Y)
    assert_close(model.get_states(), exact.get_states())
    assert [int(model.get_states()[f"optimizer.updates.dense.{name}"]) for name in "wb"] == [3, 1]


# -- what goes between host and device ---------------------------------------------------------------------------------


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, tuple[int, ...]]]:
    """Shapes of what is copied to the device and from it."""
    found: Counter[tuple[str, tuple[int, ...]]] = Counter()
    copy_to, to_host = device_array.copy_to, DeviceArray.to_host

    def copy_in(target: DeviceArray, array: Any) -> None:
        found["in", array.shape] += 1
        copy_to(target, array)

    def copy_out(array: DeviceArray) -> Any:
        found["out", array.shape] += 1
        return to_host(array)

    monkeypatch.setattr(device_array, "copy_to", copy_in)
    monkeypatch.setattr(DeviceArray, "to_host", copy_out)
    return found


@in_simulator
@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_a_step_copies_its_batch_in_and_its_loss_out(copies: Counter[Any], max_norm: float | None) -> None:
    batch = x, y, lengths = steps_batch()
    model = compiled(Steps(), batch, Adam(Cosine(0.05, 20), max_norm=max_norm))
    for _ in range(2):
        model(*batch)
    copies.clear()
    model(*batch)
    out = 1 if max_norm is None else 2  # the loss, and the norm
    assert copies == {("in", x.shape): 1, ("in", y.shape): 1, ("in", lengths.shape): 1, ("out", ()): out}
    model.eval()(x, lengths)
    copies.clear()
    model(x, lengths)
    assert copies == {("in", x.shape): 1, ("in", lengths.shape): 1, ("out", (3, 2, 1)): 1}


@in_simulator
def test_a_batch_on_the_device_leaves_all_there(copies: Counter[Any]) -> None:
    model = compiled(Line(), (X, Y), SGD(0.1, momentum=0.9))
    batch = ro.on_device(X), ro.on_device(Y)
    model(*batch)
    model.eval()(batch[0])
    copies.clear()
    assert type(model(batch[0])) is DeviceArray
    losses = [model.train()(*batch) for _ in range(2)]
    assert not copies
    assert f"{losses[1]:.3f}" == f"{float(losses[1]):.3f}"
    assert float(losses[1]) < float(losses[0])


# -- what is kept and given back ---------------------------------------------------------------------------------------


def test_saved_and_loaded_in_between_is_uninterrupted(tmp_path: Path) -> None:
    through, model, other = (compiled(Line(), (X, Y), Adam(0.1, max_norm=1.0)) for _ in range(3))
    wanted = [float(through(X, Y)) for _ in range(4)]
    came = [float(model(X, Y)) for _ in range(2)]
    model.save(tmp_path / "model.safetensors", {"epoch": 1})
    assert other.load(tmp_path / "model.safetensors") == {"epoch": 1}
    assert came + [float(other(X, Y)) for _ in range(2)] == wanted
    on_cpu = Line().compile([X, Y])
    on_cpu.load(tmp_path / "model.safetensors", include_state=False)
    assert_close(on_cpu.get_params(), model.get_params())


def test_the_best_parameters_come_back() -> None:
    model = compiled(Line(), (X, Y), SGD(0.1, momentum=0.9))
    model(X, Y)
    best, scored = model.get_states(), float(model.run(model.train_one_batch, X, Y))
    model(X, Y)
    with model.using_params({name: array for name, array in best.items() if "optimizer" not in name}):
        assert float(model.run(model.train_one_batch, X, Y)) == scored
        model(X, Y)
    assert model.step_count == 2
    model.set_states(best)
    assert model.step_count == 1
    assert float(model.run(model.train_one_batch, X, Y)) == scored


def test_copies_and_other_devices_go_on_with_the_same_arrays() -> None:
    model = compiled(Line(), (X, Y), Adam(0.1))
    model(X, Y)
    states = model.get_states()
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all((made.get_states()[name] == array).all() for name, array in states.items())
    exact = copy.deepcopy(model).compile([X, Y])
    wanted = float(exact(X, Y))
    assert type(exact._store.params["dense/w"]) is np.ndarray
    np.testing.assert_allclose(float(model(X, Y)), wanted, rtol=1e-5)
    model.compile([X, Y])
    np.testing.assert_allclose(float(model(X, Y)), float(exact(X, Y)), rtol=1e-5)
    assert "optimizer 48 B" in str(model)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_norm_that_is_not_finite_changes_nothing() -> None:
    model = compiled(Line(), (X, Y), Adam(0.1, max_norm=1.0))
    model(X, Y)
    before = model.get_states()
    with pytest.raises(ro.GradientNormError, match=r"dense/[wb]'.*the gradient norm is not finite; got (inf|nan)"):
        model(X, np.full_like(Y, np.inf))
    assert all((model.get_states()[name] == array).all() for name, array in before.items())
    model(X, Y)
    assert model.step_count == 2


def test_a_batch_on_both_sides_is_an_error_that_names_them() -> None:
    model = compiled(Line(), (X, Y), SGD(0.1))
    with pytest.raises(ro.FeedError, match="on the host: y; on the device: x"):
        model(ro.on_device(X), Y)
    on_cpu = compiled(Line(), (X, Y), SGD(0.1), device="cpu")
    with pytest.raises(ro.FeedError, match="a CUDA array is fed to a run on the CPU"):
        on_cpu(ro.on_device(X), Y)


def test_without_a_device_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compiled(Line(), (X, Y), SGD(0.1), device="cpu")
    model(X, Y)
    states = model.get_states()
    monkeypatch.setattr(facade, "missing", lambda: "no CUDA driver")
    with pytest.raises(ro.DeviceError, match=r"net 'Line': no CUDA device.*no CUDA driver"):
        model.compile([X, Y], device="cuda")
    assert all((model.get_states()[name] == array).all() for name, array in states.items())
    model(X, Y)


class Rounded(SGD):
    """A rule of NumPy's alone."""

    def _updated(self, value: Any, grad: Any, moments: list[Any], *numbers: Any) -> Any:
        return np.round(value - numbers[0] * np.fft.fft(grad).real, 3), []


def test_a_rule_that_blobs_do_not_know() -> None:
    model = compiled(Line(), (X, Y), Rounded(0.1))
    with pytest.raises(ro.OptimizerError, match=r"net 'Line': the rule of Rounded is not one for blobs"):
        model(X, Y)
    assert model.step_count == 0
