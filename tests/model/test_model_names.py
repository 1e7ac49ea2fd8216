"""Names of layers, structures and Python state: what a model's functions see when they are written, and clashes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from small_models import (
    PERCEPTRON,
    C,
    D,
    H,
    Perceptron,
    perceptron_batch,
)

import rnnops as ro
from rnnops.model import SGD, Adam, Dense, Layer, Model, Placeholder
from rnnops.net.blob import Blob


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


@pytest.mark.parametrize("name", [3, "", " ", None])
def test_what_is_no_name_of_a_layer(name: Any) -> None:
    with pytest.raises(ro.NetError, match="not a name for a layer"):
        Dense(2).named(name)


def test_arguments_that_layers_do_not_have() -> None:
    with pytest.raises(ro.ArgumentError, match=r"Dense: .*'activaton'.* Did you mean activation\?"):
        Dense(2, activaton=ro.tanh)  # type: ignore[call-arg]
    with pytest.raises(ro.ArgumentError, match="Perceptron"):
        Perceptron(nothing=1)  # type: ignore[call-arg]


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
