"""What a model holds: names, copies, the optimizer's state, freezing, other parameters for a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_models import (
    PERCEPTRON,
    TAGGER,
    C,
    D,
    H,
    Perceptron,
    Tagger,
    perceptron_batch,
)

import rnnops as ro
from rnnops.model import SGD, Adam, Dense, Model, Optimizer, Placeholder, mean_squared_error
from rnnops.model.model import step_seed
from rnnops.net.blob import Blob


def test_names_have_dots_and_shared_layers_one_name() -> None:
    model = Tagger()
    model.compile(TAGGER)
    names = set(model.get_params())
    assert {"embedding.table", "blocks.1.dense.w", "blocks.0.norm.scale", "heads.tags.b"} < names
    assert {"rnn.layer_0.reset_gate_w", "rnn.layer_1_reverse.i2h_w"} & names
    assert not any(name.startswith("blocks.2") for name in names)


def test_what_is_given_out_is_a_copy() -> None:
    model = Perceptron()
    model.compile(PERCEPTRON, is_train=False)
    params = model.get_params()
    params["hidden.w"][:] = 0
    assert model.get_params()["hidden.w"].any()
    given = np.ones((H, D), "float32")
    model.set_params({"hidden.w": given})
    given[:] = 5
    assert (model.get_params()["hidden.w"] == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        model.arrays["hidden/w"][:] = 1


def test_states_hold_the_optimizer() -> None:
    model, twin = Perceptron(), Perceptron()
    batch = perceptron_batch()
    for one in (model, twin):
        one.set_optimizer(Adam(0.1))
        one.compile(PERCEPTRON)
    for _ in range(3):
        model(*batch)
    states = model.get_states()
    assert int(states["optimizer.step"]) == 3
    assert states["optimizer.mean.hidden.w"].any()
    twin.set_states(states)
    model(*batch), twin(*batch)
    assert all((twin.get_states()[name] == array).all() for name, array in model.get_states().items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden.w": np.ones((D, H), "float32")}, r"hidden\.w: float32\[5, 7\] instead of float32\[7, 5\]"),
        ({"hidden.b": np.ones(H)}, r"hidden\.b: float64\[7\] instead of float32\[7\]"),
        ({"hidden.c": np.ones(1)}, r"hidden\.c: unknown"),
        ({"hidden/w": np.ones((H, D), "float32")}, r"hidden/w: unknown"),
        ({"hidden.w": [1.0]}, r"'hidden\.w': this is not an array"),
    ],
)
def test_arrays_that_do_not_fit_change_nothing(change: dict[str, Any], words: str) -> None:
    model = Perceptron()
    model.compile(PERCEPTRON)
    before = model.get_params()
    for call in (model.set_params, model.set_states):
        with pytest.raises(ro.ModelError, match=words):
            call({"scores.b": np.ones(C, "float32"), **change})
        assert all((model.get_params()[name] == array).all() for name, array in before.items())


class Exported:
    """An array of another library, whose sign may be a bit beside its memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def is_neg(self) -> bool:
        return True

    def resolve_neg(self) -> np.ndarray:
        return -self.array

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("the memory has the other sign")


def test_arrays_of_other_libraries() -> None:
    model = Perceptron()
    model.compile(PERCEPTRON)
    model.set_params({"hidden.b": Exported(np.full(H, -2.0, "float32"))})
    assert (model.get_params()["hidden.b"] == 2).all()
    broken = Exported(np.ones(H, "float32"))
    broken.is_neg = lambda: False  # type: ignore[method-assign]
    with pytest.raises(ro.ModelError, match=r"'hidden\.b': this array cannot be read through DLPack"):
        model.set_params({"hidden.b": broken})


def test_frozen_parameters_stay() -> None:
    model = Perceptron()
    model.set_optimizer(SGD(0.5), freeze=["hidden.*"])
    model.compile(PERCEPTRON)
    before = model.get_params()
    model(*perceptron_batch())
    changed = {name for name, array in model.get_params().items() if (array != before[name]).any()}
    assert changed == {"scores.w", "scores.b"}
    model.set_optimizer(SGD(0.5))
    model(*perceptron_batch())
    assert (model.get_params()["hidden.w"] != before["hidden.w"]).any()


def test_other_parameters_for_a_while() -> None:
    model = Perceptron()
    model.compile(PERCEPTRON, is_train=False)
    x, _ = perceptron_batch()
    before = model(x)
    zeros = {name: np.zeros_like(array) for name, array in model.get_params().items()}
    with model.using_params(zeros):
        assert not model(x).any()
    with pytest.raises(ro.ModelError), model.using_params(zeros):
        model(x, x)
    np.testing.assert_array_equal(model(x), before)


def test_compiling_again_keeps_parameters() -> None:
    model = Perceptron()
    model.set_optimizer(Adam(0.1))
    model.compile(PERCEPTRON)
    model(*perceptron_batch())
    before = model.get_states()
    model.compile(PERCEPTRON, use_graph=False)
    assert all((model.get_states()[name] == array).all() for name, array in before.items())
    with pytest.raises(ro.ModelError, match="'hidden/w': a parameter has another type"):
        model.compile([Placeholder((6, D + 1)), PERCEPTRON[1]])
    model(*perceptron_batch())


def test_arrays_where_blobs_belong() -> None:
    model = Perceptron()
    model.compile(PERCEPTRON, is_train=False)
    with pytest.raises(ro.ModelError, match=r"called without a blob. Layers take blobs.* model.run"):
        model.hidden(perceptron_batch()[0])
    assert model.run(model.hidden, perceptron_batch()[0]).shape == (6, H)
    for wrong in ("forward", 3):
        with pytest.raises(ro.ModelError, match="this is not a function"):
            model.run(wrong, perceptron_batch()[0])  # type: ignore[arg-type]
    with pytest.raises(ro.ModelError, match="this is a method of another model"):
        model.run(Perceptron().forward, perceptron_batch()[0])


def test_a_failed_compile_changes_nothing() -> None:
    """The parameters of `train_one_batch` are there when `forward` turns out to contradict it."""

    class Contradicts(Perceptron):
        def train_one_batch(self, x: Blob, labels: Blob) -> Blob:
            self.parameter(x.net, "z", (3,))
            return super().train_one_batch(x, labels)[1]

        def forward(self, x: Blob) -> Blob:
            if not self.is_training:
                self.parameter(x.net, "z", (4,))
            return super().forward(x)

    model = Contradicts()
    with pytest.raises(ro.ModelError, match="'z': a parameter has another type"):
        model.compile(PERCEPTRON)
    assert model.get_params() == {}
    with pytest.raises(ro.ModelError, match="not compiled"):
        model(*perceptron_batch())


def test_a_parameter_that_the_loss_does_not_depend_on_stays() -> None:
    class TwoHeads(Model):
        def __init__(self) -> None:
            self.used, self.unused = Dense(2), Dense(3)

        def forward(self, x: Blob) -> tuple[Blob, Blob]:
            return self.used(x), self.unused(x)

        def train_one_batch(self, x: Blob, y: Blob) -> Blob:
            return self.minimize(mean_squared_error(self.used(x), y))

    model = TwoHeads()
    model.set_optimizer(Adam(0.1))
    model.compile([Placeholder((4, D)), Placeholder((4, 2))])
    before = model.get_params()
    model(np.ones((4, D), "float32"), np.ones((4, 2), "float32"))
    after = model.get_params()
    assert (after["unused.w"] == before["unused.w"]).all()
    assert (after["used.w"] != before["used.w"]).any()


@pytest.mark.parametrize(("before", "freeze"), [(SGD(0.0), ()), (Adam(0.01), "scores.*")], ids=["late", "unfrozen"])
def test_an_optimizer_starts_afresh_where_it_kept_nothing(before: Optimizer, freeze: str) -> None:
    """Adam's first change of a parameter is the rate, however many steps there were."""
    model, x = Perceptron(), perceptron_batch()
    model.set_optimizer(before, freeze)
    model.compile(PERCEPTRON, use_graph=False)
    for _ in range(30):
        model(*x)
    start = model.get_params()["scores.b"]
    model.set_optimizer(Adam(0.01))
    model(*x)
    np.testing.assert_allclose(np.abs(model.get_params()["scores.b"] - start), 0.01, rtol=1e-3)
    assert model.step_count == 31


@pytest.mark.parametrize("freeze", [["hidden"], ["hidden/*"], ["hiden.*"]])
def test_patterns_that_freeze_nothing(freeze: list[str]) -> None:
    model = Perceptron()
    model.set_optimizer(Adam(), freeze=freeze)
    with pytest.raises(ro.ModelError, match=r"freeze= names no parameter; wanted a pattern of hidden\.w"):
        model.compile(PERCEPTRON)
    model.set_optimizer(Adam())
    model.compile(PERCEPTRON)
    for wrong in (freeze, [None], 3):
        with pytest.raises(ro.ModelError, match="freeze="):
            model.set_optimizer(SGD(0.1), freeze=wrong)  # type: ignore[arg-type]
    model(*perceptron_batch())
    assert "optimizer.mean.hidden.w" in model.get_states()


def test_an_optimizer_set_for_a_while() -> None:
    model = Perceptron()
    model.set_optimizer(Adam(0.1))
    model.compile(PERCEPTRON)
    with model.using_params({}):
        model.set_optimizer(SGD(0.1))
    model(*perceptron_batch())
    assert "optimizer.mean.hidden.w" in model.get_states()


def test_step_seeds_differ() -> None:
    seeds = {step_seed(seed, step) for seed in range(20) for step in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**64 for seed in seeds)
