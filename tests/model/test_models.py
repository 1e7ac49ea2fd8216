"""Models: from placeholders alone, against NumPy through steps of training, other shapes, names, states, errors."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from small_models import (
    PERCEPTRON,
    SEQUENCES,
    TAGGER,
    Arrays,
    C,
    D,
    H,
    Perceptron,
    Sequences,
    Tagger,
    perceptron_batch,
    perceptron_by_hand,
    sequence_batch,
    sequences_by_hand,
    tagger_batch,
)

import rnnops as ro
from rnnops.blob import Blob
from rnnops.model import SGD, Adam, Dense, Layer, Model, Placeholder, mean_squared_error
from rnnops.model.model import step_seed

RATE, MOMENTUM = 0.3, 0.9
WAYS = [{"use_graph": True}, {"use_graph": True, "sequential": True}, {"use_graph": False}]


def close(came: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(came, wanted, rtol=0, atol=1e-6 * max(1.0, float(np.abs(wanted).max())))


def moved(params: Arrays, steps: list[Arrays]) -> Arrays:
    """SGD with momentum by hand."""
    found = {name: array.astype("float64") for name, array in params.items()}
    velocity = {name: np.zeros_like(array) for name, array in found.items()}
    for grads in steps:
        for name in found:
            velocity[name] = MOMENTUM * velocity[name] + grads[name]
            found[name] = found[name] - RATE * velocity[name]
    return found


# -- the two models of the contract ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_perceptron_matches_numpy_through_steps_of_training(way: dict[str, bool]) -> None:
    model = Perceptron()
    model.set_optimizer(SGD(RATE, momentum=MOMENTUM))
    model.compile(PERCEPTRON, **way)
    start, gradients = model.get_params(), []
    for seed, N in enumerate((6, 6, 9)):  # the last batch has another size
        x, labels = perceptron_batch(N, seed)
        wanted_scores, wanted_loss, grads = perceptron_by_hand(model.get_params(), x, labels)
        scores, loss = model(x, labels)
        close(scores, wanted_scores)
        close(loss, wanted_loss)
        gradients.append(grads)
    for name, wanted in moved(start, gradients).items():
        close(model.get_params()[name], wanted)
    model.eval()
    x, labels = perceptron_batch(4, 9)
    close(model(x), perceptron_by_hand(model.get_params(), x, labels)[0])
    assert model.step_count == 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_lengths", [False, True])
def test_an_lstm_matches_numpy_through_steps_of_training(with_lengths: bool, way: dict[str, bool]) -> None:
    model = Sequences()
    model.set_optimizer(SGD(RATE, momentum=MOMENTUM))
    model.compile([*SEQUENCES, *([Placeholder((3,), "int32")] if with_lengths else [])], **way)
    start, gradients = model.get_params(), []
    for seed, (T, N) in enumerate(((4, 3), (4, 3), (7, 2))):
        x, target = sequence_batch(T, N, seed)
        more = (np.array([T, 2, 1][:N], np.int32),) if with_lengths else ()
        _, wanted_loss, grads = sequences_by_hand(model.get_params(), x, target, *more)
        close(model(x, target, *more), wanted_loss)
        gradients.append(grads)
    for name, wanted in moved(start, gradients).items():
        close(model.get_params()[name], wanted)
    model.train(False)
    x, target = sequence_batch(5, 4)
    close(model(x), sequences_by_hand(model.get_params(), x, target)[0])


def test_a_model_prints_before_any_data() -> None:
    model = Tagger()
    assert str(model).startswith("Tagger, not compiled\n  embedding: Embedding\n  blocks.0: Block\n")
    model.set_optimizer(Adam())
    model.compile(TAGGER)
    lines = str(model).splitlines()
    assert lines[0] == "Tagger(words: int32[4, 3], tags: int32[4, 3], lengths: int32[3])"
    rows = {line.split()[0]: line.split() for line in lines[2:-4]}
    assert rows["blocks.0.dense"] == ["blocks.0.dense", "Dense", "float32[4,", "3,", "6]", "42"]
    assert rows["heads.tags"][-1] == str(2 * H * C + C)
    assert rows["rnn"][2:5] == ["float32[4,", "3,", f"{2 * H}]"]
    assert lines[-4].split()[-2:] == ["1", "948"] or sum(a.size for a in model.get_params().values()) == int(
        "".join(lines[-4].split()[1:])
    )
    assert "optimizer" in lines[-3]
    assert lines[-2].startswith("train_one_batch: forward pass ")
    assert "backward pass" in lines[-2]
    assert lines[-1].startswith("forward: forward pass ")


def test_parameters_do_not_depend_on_how_a_model_is_compiled() -> None:
    wanted = None
    for inputs in (TAGGER, TAGGER[:2], TAGGER[:1], {"words": TAGGER[0], "lengths": None}, {"words": TAGGER[0]}):
        model = Tagger()
        model.compile(inputs)  # type: ignore[arg-type]
        params = model.get_params()
        assert wanted is None or all((params[name] == wanted[name]).all() for name in wanted)
        wanted = params
    other = Tagger()
    other.compile(TAGGER, seed=1)
    assert any((other.get_params()[name] != array).any() for name, array in (wanted or {}).items())


# -- modes, shapes, structures -----------------------------------------------------------------------------------------


def test_whose_arguments_the_inputs_are() -> None:
    """Two integer inputs are words and tags to train on, or words and lengths to evaluate."""
    model = Tagger()
    model.compile(TAGGER[:2])
    assert set(model.graphs) == {"train_one_batch", "forward"}
    model.compile(TAGGER[::2], is_train=False)
    assert [set(graph.types) for graph in model.graphs.values()] == [{"words", "lengths"}]
    model.compile(TAGGER, is_train=False)
    assert list(model.graphs) == ["train_one_batch", "forward"]


def test_training_drops_out_and_evaluation_does_not() -> None:
    model = Tagger()
    model.set_optimizer(SGD(0.0))
    model.compile(TAGGER, seed=3)
    batch = tagger_batch()
    losses = [float(model(*batch)) for _ in range(2)]
    assert losses[0] != losses[1], "each step has masks of its own"
    again = Tagger()
    again.set_optimizer(SGD(0.0))
    again.compile(TAGGER, seed=3)
    assert [float(again(*batch)) for _ in range(2)] == losses, "which follow from the seed"
    scored = [float(model.run(model.train_one_batch, *batch)) for _ in range(2)]
    assert scored[0] == scored[1]
    assert model.step_count == 2


def test_a_dictionary_comes_back_as_one() -> None:
    model = Tagger()
    model.compile(TAGGER, is_train=False)
    words, _, lengths = tagger_batch(6, 2)
    out = model(words, lengths)
    assert out["scores"].shape == (6, 2, C)
    assert out["last"].shape == (1, 2, H)
    short = model(words[: lengths[1]])["scores"]
    np.testing.assert_allclose(out["scores"][: lengths[1], 1], short[:, 1], atol=1e-6)


Pair = namedtuple("Pair", "first second")


class Structures(Model):
    """Takes and gives nested structures."""

    def forward(self, pair: Any, *more: Blob, scale: Blob | None = None) -> Any:
        first, second = pair
        total = first + second[0] + sum(more[1:], more[0])
        return Pair([total if scale is None else total * scale], {"a": (first,), "b": total})


def test_structures_go_in_and_come_out() -> None:
    model = Structures()
    one, row = Placeholder((2,)), np.ones(2, "float32")
    model.compile([(one, [one]), one, one], is_train=False)
    out = model((row, [2 * row]), 3 * row, 4 * row)
    assert isinstance(out, Pair)
    assert out.first[0].tolist() == out.second["b"].tolist() == [10, 10]
    assert out.second["a"][0].tolist() == [1, 1]
    assert model((row, [row]), row, scale=row * 2).first[0].tolist() == [6, 6]


def test_shapes_that_write_the_same_ops_share_a_run() -> None:
    model = Sequences()
    model.set_optimizer(SGD(0.1))
    model.compile(SEQUENCES, use_graph=False)
    for T in (2, 3, 9):
        model(*sequence_batch(T))
    assert model._graphs is not None
    assert len(model._graphs._runs) == 2, "one for training, one for forward"
    assert len(model._graphs._graphs) == 5


def test_a_model_is_a_layer_of_another() -> None:
    class Outer(Model):
        def __init__(self) -> None:
            self.inner, self.top = Perceptron(), Dense(1)

        def forward(self, x: Blob) -> Blob:
            return self.top(self.inner(x))

    model = Outer()
    model.compile([Placeholder((3, D))], is_train=False)
    assert {"inner.hidden.w", "inner.scores.b", "top.w"} < model.get_params().keys()
    assert model(perceptron_batch(3)[0]).shape == (3, 1)


def test_float64() -> None:
    model = Perceptron()
    model.set_optimizer(Adam(0.1))
    model.compile(PERCEPTRON, dtype="float64")
    x, labels = perceptron_batch()
    with pytest.raises(ro.ModelError, match="floats of another dtype; wanted float64; got float32"):
        model(x, labels)
    scores, _ = model(x.astype("float64"), labels)
    assert scores.dtype == np.float64
    assert {array.dtype.name for array in model.get_params().values()} == {"float64"}


# -- arrays ------------------------------------------------------------------------------------------------------------


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
        ({"hidden.w": [1.0]}, r"'hidden\.w': this is no array"),
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
    with pytest.raises(ro.ModelError, match=r"called without a blob. Layers, .* use model.run"):
        model.hidden(perceptron_batch()[0])
    assert model.run(model.hidden, perceptron_batch()[0]).shape == (6, H)
    for wrong in ("forward", 3):
        with pytest.raises(ro.ModelError, match="this is no function"):
            model.run(wrong, perceptron_batch()[0])  # type: ignore[arg-type]
    with pytest.raises(ro.ModelError, match="this is a method of another model"):
        model.run(Perceptron().forward, perceptron_batch()[0])


def test_a_failed_compile_changes_nothing() -> None:
    class Contradicts(Perceptron):
        def train_one_batch(self, x: Blob, labels: Blob) -> Blob:
            self.parameter(x.net, "z", (3,))
            return super().train_one_batch(x, labels)[1]

        def forward(self, x: Blob) -> Blob:
            return super().forward(x)

    model = Contradicts()
    model.forward_size = 4  # type: ignore[attr-defined]
    with pytest.raises(ro.RnnopsError):
        model.compile([PERCEPTRON[0], Placeholder((5,), "int32")])
    assert model.get_params() == {}


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


# -- names and Python state -------------------------------------------------------------------------------------------


class Branches(Model):
    """Its Python code asks what it is written for."""

    def __init__(self) -> None:
        self.gain, self.inner = 10.0, Asks()

    def forward(self, x: Blob) -> Blob:
        return self.inner(x * (2.0 if self.is_training else self.gain))

    def train_one_batch(self, x: Blob) -> Blob:
        return self.minimize(ro.reduce_sum(self.forward(x) * self.parameter(x.net, "one", (), "ones"), keepdims=0))


class Asks(Layer):
    def forward(self, x: Blob) -> Blob:
        return x + (1.0 if self.is_training else 0.0)


def test_code_sees_whether_it_is_trained() -> None:
    model, row = Branches(), np.ones((2,), "float32")
    model.set_optimizer(SGD(0.0))
    model.compile([Placeholder((2,))])
    for N in (2, 1):
        assert float(model(row[:N])) == 3.0 * N
        assert model.eval().run(model.train_one_batch, row[:N]) == 10.0 * N
        assert model(row[:N]).tolist() == [10.0] * N
        assert float(model.train()(row[:N])) == 3.0 * N
    assert set(model.get_params()) == {"one"}, "a model's own parameters have no prefix"


def test_attributes_are_read_when_a_model_is_compiled() -> None:
    model, row = Branches(), np.ones((2,), "float32")
    model.compile([Placeholder((2,))], is_train=False)
    model.gain = 20.0
    assert model(row).tolist() == [10, 10]
    model.compile([Placeholder((2,))], is_train=False)
    assert model(row).tolist() == [20, 20]


class Late(Model):
    def __init__(self, where: str) -> None:
        self.where, self.layers = where, [Dense(3)]  # any name will do for an attribute

    def forward(self, x: Blob) -> Blob:
        if self.where == "attribute" and not hasattr(self, "late"):
            self.late = Dense(2)
        return (self.late if self.where == "attribute" else Dense(2))(self.layers[0](x))


@pytest.mark.parametrize("where", ["attribute", "nowhere"])
def test_layers_that_are_made_late(where: str) -> None:
    with pytest.raises(ro.ModelError, match=r"a Dense is not in the model; .* Make layers in __init__"):
        Late(where).compile([Placeholder((1, 3))])


def test_layers_that_change_after_compile() -> None:
    class Sequence(Model):
        def __init__(self) -> None:
            self.blocks = [Dense(3, ro.tanh), Dense(3)]

        def forward(self, x: Blob) -> Blob:
            for block in self.blocks:
                x = block(x)
            return x

    model, x = Sequence(), np.ones((2, 3), "float32")
    model.compile([x], is_train=False)
    params = model.get_params()
    model.blocks.pop(0)
    np.testing.assert_allclose(model(x[:1]), x[:1] @ params["blocks.1.w"].T, rtol=1e-6)
    model.blocks.append(Dense(3))
    with pytest.raises(ro.ModelError, match="compile again after changes"):
        model(np.ones((3, 3), "float32"))


def test_a_layer_of_two_models_has_two_names() -> None:
    shared = Dense(2)

    class First(Model):
        def __init__(self) -> None:
            self.a = shared

        def forward(self, x: Blob) -> Blob:
            return self.a(x)

    class Second(First):
        def __init__(self) -> None:
            self.b, self.a = shared, shared

    one, two, x = First(), Second(), np.ones((3, 3), "float32")
    for model in (one, two):
        model.compile([x[:1]], is_train=False)
    for N in (2, 3):
        assert {one(x[:N]).shape, two(x[:N]).shape} == {(N, 2)}
    assert set(one.get_params()) == {"a.w", "a.b"}
    assert set(two.get_params()) == {"b.w", "b.b"}


def test_a_trained_model_goes_on_inside_another() -> None:
    inner = Perceptron()
    inner.compile(PERCEPTRON, is_train=False, seed=5)

    class Outer(Model):
        def __init__(self) -> None:
            self.inner, self.top = inner, Dense(1)

        def forward(self, x: Blob) -> Blob:
            return self.top(self.inner(x))

    outer, x = Outer(), perceptron_batch()[0]
    before = inner(x)
    outer.compile([x], is_train=False)
    assert all((outer.get_params()[f"inner.{name}"] == array).all() for name, array in inner.get_params().items())
    outer.set_params({"inner.hidden.w": np.zeros((H, D), "float32")})
    np.testing.assert_array_equal(inner(x), before)
    assert inner(x[:3]).shape == (3, C)


@pytest.mark.parametrize("name", ["optimizer", "state"])
def test_names_that_are_kept(name: str) -> None:
    model = Perceptron()
    setattr(model, name, model.hidden)
    model.__dict__.pop("hidden")
    model.forward = lambda x: getattr(model, name)(x)  # type: ignore[method-assign]
    with pytest.raises(ro.ModelError, match="this name is kept for the optimizer and the user"):
        model.compile([PERCEPTRON[0]])


def test_names_that_would_be_one() -> None:
    class Clash(Model):
        def __init__(self) -> None:
            self.a = Dense(3)

        def forward(self, x: Blob) -> Blob:
            return self.a(x) * self.parameter(x.net, "a.w", (3,))

    with pytest.raises(ro.ModelError, match="two parameters have one name"):
        Clash().compile([Placeholder((2, 3))])


def test_outputs_that_would_be_one() -> None:
    class Clash(Model):
        def forward(self, x: Blob) -> Any:
            return {"a": [x], "a_0": x * 100.0}

    with pytest.raises(ro.ModelError, match="'output_a_0': two outputs have one name"):
        Clash().compile([Placeholder((2,))])


class Optional(Model):
    def forward(self, x: Blob, scale: Any = 2.0, more: Any = None, **rest: Any) -> Any:
        y = x if scale is None else x * scale
        y = y if more is None else y * 10.0
        return y * (100.0 if "v" in rest else 1.0)


def test_structures_that_differ_are_not_confused() -> None:
    model, x = Optional(), np.ones(2, "float32")
    model.compile([x], is_train=False)
    for _ in range(2):
        assert model(x)[0] == 2
        assert model(x, scale=None)[0] == 1
        assert model(x, x)[0] == 1
        assert model(x, more=[])[0] == 20
        assert model(x, v=None)[0] == 200
        assert model(x, None, (x, x), v=x)[0] == 1000


def test_copies_are_to_be_compiled_again() -> None:
    model, x = Perceptron(), perceptron_batch()
    model.set_optimizer(Adam(0.1))
    model.compile(PERCEPTRON, use_graph=False)
    model(*x)
    for twin in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(Plain.trained()))):
        with pytest.raises(ro.ModelError, match="is not compiled"):
            twin.run(twin.forward, x[0])
    twin = copy.deepcopy(model)
    twin.compile(PERCEPTRON, use_graph=False)
    for one in (model, twin):
        one(*x)
    assert all((twin.get_states()[name] == array).all() for name, array in model.get_states().items())
    twin(*x)
    assert (model.step_count, twin.step_count) == (2, 3)


class Plain(Model):
    """No functions among its attributes, so that it can be pickled."""

    def __init__(self) -> None:
        self.dense = Dense(2)

    def forward(self, x: Blob) -> Blob:
        return self.dense(x)

    @classmethod
    def trained(cls) -> Plain:
        model = cls()
        model.compile([Placeholder((2, 3))], is_train=False)
        return model


# -- the optimizer over time -------------------------------------------------------------------------------------------


def test_an_optimizer_that_comes_late_starts_afresh() -> None:
    """Adam's first change is the rate, however many steps another optimizer took."""
    model, x = Perceptron(), perceptron_batch()
    model.set_optimizer(SGD(0.0))
    model.compile(PERCEPTRON, use_graph=False)
    for _ in range(30):
        model(*x)
    before = model.get_params()
    model.set_optimizer(Adam(0.01))
    model(*x)
    change = np.abs(model.get_params()["scores.b"] - before["scores.b"])
    np.testing.assert_allclose(change, 0.01, rtol=1e-3)
    assert model.step_count == 31


def test_unfrozen_parameters_start_afresh() -> None:
    model, x = Perceptron(), perceptron_batch()
    model.set_optimizer(Adam(0.01), freeze="scores.*")
    model.compile(PERCEPTRON, use_graph=False)
    for _ in range(30):
        model(*x)
    before = model.get_params()
    model.set_optimizer(Adam(0.01))
    model(*x)
    np.testing.assert_allclose(np.abs(model.get_params()["scores.b"] - before["scores.b"]), 0.01, rtol=1e-3)


@pytest.mark.parametrize("freeze", [["hidden"], ["hidden/*"], ["hiden.*"]])
def test_patterns_that_freeze_nothing(freeze: list[str]) -> None:
    model = Perceptron()
    model.set_optimizer(Adam(), freeze=freeze)
    with pytest.raises(ro.ModelError, match=r"freeze= names no parameter; wanted a pattern of hidden\.w"):
        model.compile(PERCEPTRON)
    model.set_optimizer(Adam())
    model.compile(PERCEPTRON)
    for wrong in (freeze, [None]):
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


# -- errors ------------------------------------------------------------------------------------------------------------


class Silent(Perceptron):
    def train_one_batch(self, x: Blob, labels: Blob) -> Blob:
        return self.forward(x)


class Twice(Perceptron):
    def train_one_batch(self, x: Blob, labels: Blob) -> Blob:
        loss = self.minimize(softmax(self.forward(x), labels))
        return self.minimize(loss * 2)


def softmax(scores: Blob, labels: Blob) -> Blob:
    return ro.softmax_cross_entropy_loss(scores, labels)


class NoBlobs(Model):
    def forward(self, x: Blob) -> float:
        return 3.0


class SizedByBatch(Model):
    """Its parameter depends on N."""

    def __init__(self) -> None:
        self.dense = Dense(2)

    def forward(self, x: Blob) -> Blob:
        return self.dense(ro.transpose(x, perm=[1, 0]))


def test_calls_before_compile() -> None:
    for call in (
        lambda: Perceptron()(*perceptron_batch()),
        lambda: Perceptron().set_params({}),
        lambda: Perceptron().graphs,
        lambda: Perceptron().save("never"),
    ):
        with pytest.raises(ro.ModelError, match="Perceptron is not compiled"):
            call()


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (Perceptron, [], "inputs do not fit forward"),
        (Perceptron, [*PERCEPTRON, PERCEPTRON[0]], "inputs do not fit forward"),
        (Perceptron, {"y": PERCEPTRON[0]}, "inputs do not fit forward"),
        (Perceptron, [[1.0, 2.0]], "'x_0': this is no array"),
        (Perceptron, [Placeholder(())], "a layer's input has too few axes"),
        (Perceptron, [PERCEPTRON[0], Placeholder((5,), "int32")], "labels are scores' shape"),
        (Perceptron, [PERCEPTRON[0], Placeholder((6,))], "(?i)labels"),
        (Sequences, [Placeholder((4, D))], r"too few axes; wanted \[T, N, D\]"),
        (NoBlobs, [PERCEPTRON[0]], "a model returns its blobs"),
        (Twice, PERCEPTRON, "a model has one loss"),
        (Perceptron, [PERCEPTRON[0], None], "an input is no blob"),
        (Perceptron, PERCEPTRON[0], "inputs are no list"),
        (Perceptron, np.ones((1, 6, D), "float32"), "inputs are no list"),
    ],
)
def test_inputs_that_do_not_fit(model: type[Model], inputs: Any, words: str) -> None:
    with pytest.raises(ro.RnnopsError, match=words):
        model().compile(inputs)


def test_training_that_cannot_be() -> None:
    model = Silent()
    model.set_optimizer(SGD(0.1))
    model.compile(PERCEPTRON)
    with pytest.raises(ro.ModelError, match="minimises nothing"):
        model(*perceptron_batch())
    model = Perceptron()
    model.compile(PERCEPTRON)
    with pytest.raises(ro.ModelError, match="there is no optimizer"):
        model(*perceptron_batch())
    with pytest.raises(ro.ModelError, match="this is no optimizer"):
        model.set_optimizer("adam")  # type: ignore[arg-type]
    nested = Structures()
    row = np.ones(2, "float32")
    nested.compile([(row, [row]), row])
    with pytest.raises(ro.ModelError, match="Structures cannot be trained"):
        nested((row, [row]), row)


def test_a_parameter_whose_size_follows_the_batch() -> None:
    model = SizedByBatch()
    model.compile([Placeholder((6, D))], is_train=False)
    with pytest.raises(ro.ModelError, match="Sizes of parameters may not depend on what changes"):
        model(np.ones((7, D), "float32"))


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"}, {"dtype": "int32"}, {"device": "abacus"}, {"checkpoints": "some"}, {"seed": -1},
        {"seed": "abc"}, {"use_graph": False, "device": "cpu"}, {"memory_budget": 10},
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    model = Perceptron()
    with pytest.raises(ro.RnnopsError):
        model.compile(PERCEPTRON, **options)
    with pytest.raises(ro.ModelError, match="not compiled"):
        model(*perceptron_batch())


def test_options_reach_the_run() -> None:
    model = Sequences()
    model.compile(SEQUENCES, checkpoints="memory", threads=1)
    assert "memory" in str(model.graphs["train_one_batch"].run._saving.policy)


@pytest.mark.parametrize("shape", [3, "ab", (2.5,), (-1,), (True,), None])
def test_placeholders_that_make_no_sense(shape: Any) -> None:
    with pytest.raises(ro.ModelError, match="not a shape"):
        Placeholder(shape)
