"""Models: from placeholders alone, against NumPy through steps of training, other shapes and structures, errors."""

from __future__ import annotations

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
from rnnops.model import SGD, Adam, Dense, Model, Placeholder
from rnnops.net.blob import Blob

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
    assert int("".join(lines[-4].split()[1:])) == sum(array.size for array in model.get_params().values())
    assert "optimizer" in lines[-3]
    assert lines[-2].startswith("train_one_batch: forward pass ")
    assert "backward pass" in lines[-2]
    assert lines[-1].startswith("forward: forward pass ")
    lines = str(model.compile(TAGGER, memory_budget=0.9)).splitlines()
    assert lines[-2].startswith("train_one_batch: memory_budget 0.9: ")
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
        (Perceptron, [[1.0, 2.0]], "'x_0': this is not an array"),
        (Perceptron, [Placeholder(())], "a layer's input has too few axes"),
        (Perceptron, [PERCEPTRON[0], Placeholder((5,), "int32")], "labels are scores' shape"),
        (Perceptron, [PERCEPTRON[0], Placeholder((6,))], "(?i)labels"),
        (Sequences, [Placeholder((4, D))], r"too few axes; wanted \[T, N, D\]"),
        (NoBlobs, [PERCEPTRON[0]], "a model returns its blobs"),
        (Twice, PERCEPTRON, "a model has one loss"),
        (Perceptron, [PERCEPTRON[0], None], "an input is not a blob"),
        (Perceptron, PERCEPTRON[0], "inputs are not a list"),
        (Perceptron, np.ones((1, 6, D), "float32"), "inputs are not a list"),
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
    with pytest.raises(ro.ModelError, match="this is not an optimizer"):
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
    model.compile(SEQUENCES, checkpoints="memory", residuals="bfloat16", threads=1)
    policy = model.graphs["train_one_batch"].run._saving.policy
    assert "memory" in str(policy)
    assert policy.residuals == "bfloat16"


@pytest.mark.parametrize("shape", [3, "ab", (2.5,), (-1,), (True,), None])
def test_placeholders_that_make_no_sense(shape: Any) -> None:
    with pytest.raises(ro.ModelError, match="not a shape"):
        Placeholder(shape)
