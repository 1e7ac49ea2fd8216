"""SGD, Adam, AdamW, schedules and clipping against hand computations."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from docstrings import own_doc

from rnnops.errors import ArgumentError, GradientNormError, OptimizerError
from rnnops.model import (
    SGD,
    Adam,
    AdamW,
    Cosine,
    ExponentialDecay,
    InverseRoot,
    Optimizer,
    StepDecay,
    WarmUp,
    clip_by_global_norm,
    clip_by_value,
    global_norm,
)


def adam_by_hand(value: float, gradients: list[float], settings: Adam) -> list[float]:
    """The published algorithm for one number."""
    mean = square = 0.0
    values = []
    for step, gradient in enumerate(gradients, 1):
        mean = settings.beta1 * mean + (1 - settings.beta1) * gradient
        square = settings.beta2 * square + (1 - settings.beta2) * gradient**2
        corrected_mean, corrected_square = mean / (1 - settings.beta1**step), square / (1 - settings.beta2**step)
        value -= settings.learning_rate * corrected_mean / (math.sqrt(corrected_square) + settings.epsilon)
        values.append(value)
    return values


@pytest.mark.parametrize(
    "settings", [Adam(), Adam(0.1, beta1=0.5, beta2=0.7, epsilon=1e-3), Adam(beta1=0.0, beta2=0.0)]
)
def test_adam_follows_the_algorithm(settings):
    gradients = [[0.3, -2.0], [0.1, 0.0], [-5.0, 1e-9], [0.0, 4.0]]
    params = {"w": np.array([1.0, -1.0]), "b": np.array(0.5)}
    state = settings.start(params)
    wanted = [adam_by_hand(start, [row[i] for row in gradients], settings) for i, start in enumerate((1.0, -1.0))]
    for step, row in enumerate(gradients):
        params, state = settings.update(params, {"w": np.array(row), "b": np.array(row[0])}, state)
        np.testing.assert_allclose(params["w"], [wanted[0][step], wanted[1][step]], rtol=1e-13)
    assert params["b"] == pytest.approx(adam_by_hand(0.5, [row[0] for row in gradients], settings)[-1], rel=1e-13)
    assert state["step"] == 4
    assert all(isinstance(array, np.ndarray) for array in (*params.values(), *state.values()))


def test_the_first_step_is_the_learning_rate():
    params, _ = Adam(0.01).update(
        {"w": np.ones(3)}, {"w": np.array([5.0, -0.2, 1e-3])}, Adam().start({"w": np.ones(3)})
    )
    np.testing.assert_allclose(params["w"], [0.99, 1.01, 0.99], rtol=1e-6)


def test_the_learning_rate_follows_its_schedule():
    params, grads = {"w": np.ones(3)}, {"w": np.ones(3)}
    optimizer = SGD(lambda step: 0.5 ** (step + 1))
    state = optimizer.start(params)
    for wanted in (0.5, 0.25, 0.125):
        params, state = optimizer.update(params, grads, state)
        np.testing.assert_array_equal(params["w"], wanted)


def by_formula(optimizer: SGD, value: float, grads: list[float]) -> float:
    """SGD for one number."""
    velocity = 0.0
    for grad in grads:
        grad = grad + optimizer.weight_decay * value
        velocity = optimizer.momentum * velocity + grad
        value -= 0.1 * (grad + optimizer.momentum * velocity if optimizer.nesterov else velocity)
    return value


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.1),
        SGD(0.1, momentum=0.9),
        SGD(0.1, momentum=0.5, nesterov=True),
        SGD(0.1, 0.01),
        SGD(0.1, 0.3, momentum=0.9),
    ],
)
def test_sgd_follows_its_formula(optimizer):
    grads, params = [0.3, -2.0, 0.5, 0.0], {"w": np.array([1.0, -1.0], np.float64)}
    state = optimizer.start(params)
    assert ("velocity/w" in state) == (optimizer.momentum > 0)
    for grad in grads:
        params, state = optimizer.update(params, {"w": np.full(2, grad)}, state)
    np.testing.assert_allclose(params["w"], [by_formula(optimizer, value, grads) for value in (1.0, -1.0)], rtol=1e-13)


MOMENTS_OF_ADAMW = "m = beta1 * m + (1 - beta1) * g\ns = beta2 * s + (1 - beta2) * g ** 2\n"  # which Adam's page says


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_equations_of_docstrings_compute_the_updates(kind):
    blocks = re.findall(r"::\n\n((?:    .*\n)+)", own_doc(kind))
    code = (MOMENTS_OF_ADAMW if kind is AdamW else "") + "\n".join(map(dedent, blocks))
    settings = {"momentum": 0.9} if kind is SGD else {"epsilon": 0.01}
    optimizer = kind(0.1, weight_decay=0.2, **settings)
    params, rng = {"w": np.ones(4)}, np.random.default_rng(0)
    state = optimizer.start(params)
    known = {**vars(optimizer), "rate": 0.1, "sqrt": np.sqrt, "p": params["w"], "v": 0, "m": 0, "s": 0}
    for t in range(1, 4):
        g = rng.normal(size=4)
        params, state = optimizer.update(params, {"w": g}, state)
        known |= {"g": g, "t": t}
        exec(code, known)  # our own documents
        np.testing.assert_allclose(known["p"], params["w"], rtol=1e-12)


def test_weight_decay_of_adam_and_adamw():
    """In Adam it goes through the moments; in AdamW it is apart from them."""
    params, grads = {"w": np.array([2.0, -4.0])}, {"w": np.array([0.5, 0.25])}
    coupled = Adam(0.1, weight_decay=0.1)
    summed = {"w": grads["w"] + 0.1 * params["w"]}
    first = Adam(0.1).update(params, summed, Adam(0.1).start(params))[0]
    np.testing.assert_array_equal(coupled.update(params, grads, coupled.start(params))[0]["w"], first["w"])
    apart, plain = AdamW(0.1, weight_decay=0.1), Adam(0.1)
    wanted = plain.update(params, grads, plain.start(params))[0]["w"] - 0.1 * 0.1 * params["w"]
    np.testing.assert_allclose(apart.update(params, grads, apart.start(params))[0]["w"], wanted, rtol=1e-15)
    assert AdamW().weight_decay == 0.01


def test_optimizers_clip():
    params, grads = {"w": np.zeros(2)}, {"w": np.array([3.0, -4.0])}

    def moved(optimizer: Optimizer) -> list[float]:
        return (-optimizer.update(params, grads, optimizer.start(params))[0]["w"]).tolist()

    assert moved(SGD(1.0, max_norm=1.0)) == pytest.approx([0.6, -0.8])
    assert moved(SGD(1.0, max_value=3.5)) == [3.0, -3.5]
    assert moved(SGD(1.0, max_norm=1.0, max_value=3.0)) == pytest.approx([0.5**0.5, -(0.5**0.5)])
    with pytest.raises(GradientNormError):
        SGD(1.0, max_norm=1.0).update(params, {"w": np.array([np.nan, 0.0])}, {"step": np.array(0)})


def test_clipping_by_value_keeps_nan():
    clipped = clip_by_value({"w": np.array([-5.0, 0.5, np.nan, np.inf], np.float32)}, 2.0)["w"]
    np.testing.assert_array_equal(clipped, np.array([-2.0, 0.5, np.nan, 2.0], np.float32))
    assert clipped.dtype == np.float32


def test_schedules():
    assert [StepDecay(1.0, 2, 0.5)(step) for step in range(5)] == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert [ExponentialDecay(2.0, 0.5)(step) for step in range(3)] == [2.0, 1.0, 0.5]
    assert [InverseRoot(1.0, 1.0)(step) for step in (0, 3, 8)] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert [Cosine(1.0, 4, 0.2)(step) for step in (0, 2, 4, 9)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert [WarmUp(4, 1.0)(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [WarmUp(2, Cosine(1.0, 4))(step) for step in range(5)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.853553, 0.5], abs=1e-6
    )


def test_update_keeps_types_and_changes_nothing_in_place():
    params, grads = {"w": np.ones((2, 3), np.float32)}, {"w": np.full((2, 3), 0.5, np.float32)}
    state = Adam().start(params)
    new_params, new_state = Adam(np.float64(1e-3), epsilon=np.float64(1e-8)).update(params, grads, state)
    assert new_params["w"].dtype == new_state["mean/w"].dtype == new_state["square/w"].dtype == np.float32
    assert (params["w"] == 1).all()
    assert (grads["w"] == 0.5).all()
    assert state["step"] == 0
    assert not state["mean/w"].any()


def test_adam_finds_a_minimum():
    params = {"w": np.array([3.0, -2.0])}
    settings = Adam(0.1)
    state = settings.start(params)
    for _ in range(400):
        params, state = settings.update(params, {"w": 2 * (params["w"] - [1.0, 2.0])}, state)
    np.testing.assert_allclose(params["w"], [1.0, 2.0], atol=1e-3)


def test_parameters_without_gradients_stay():
    params = {"w": np.ones(3), "b": np.ones(1)}
    optimizer = AdamW(0.1, weight_decay=0.5)
    state = optimizer.start(params)
    new, new_state = optimizer.update(params, {"w": np.ones(3)}, state)
    assert new["b"] is params["b"]
    assert (int(new_state["updates/w"]), int(new_state["updates/b"]), int(new_state["step"])) == (1, 0, 1)


def test_a_negative_count_is_a_named_error():
    params = {"w": np.ones(3)}
    with pytest.raises(OptimizerError, match="step of the state is out of range; wanted 0 or more; got"):
        Adam().update(params, params, {**Adam().start(params), "step": np.array(-3)})


def test_arrays_that_do_not_fit_are_named_errors():
    params = {"w": np.ones(3), "b": np.ones(1)}
    state = Adam().start(params)
    with pytest.raises(OptimizerError, match=r"the gradients do not fit .* unknown: \['c'\]"):
        Adam().update(params, {"w": np.ones(3), "c": np.ones(1)}, state)
    with pytest.raises(OptimizerError, match=r"blob 'w': .* wanted float64\[3\]; got float64\[1\]"):
        Adam().update(params, {"w": np.ones(1), "b": np.ones(1)}, state)
    with pytest.raises(OptimizerError, match="got float32"):
        Adam().update(params, {"w": np.ones(3, np.float32), "b": np.ones(1)}, state)
    with pytest.raises(OptimizerError, match=r"the state .* missing: \['mean/b', 'square/b', 'updates/b'\]"):
        Adam().update(params, params, Adam().start({"w": np.ones(3)}))


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": -1.0}, {"learning_rate": math.nan}, {"learning_rate": "fast"}, {"learning_rate": True},
        {"beta1": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}, {"weight_decay": -1.0}, {"weight_decay": math.nan},
        {"max_norm": 0.0}, {"max_value": math.nan}, {"max_norm": "1"},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_named_errors(settings):
    with pytest.raises(OptimizerError, match="is out of range") as caught:
        Adam(**settings)
    assert next(iter(settings)).split("_")[-1] in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD(0.1, momentum=1.0), lambda: SGD(0.1, nesterov=True), lambda: StepDecay(1.0, 0),
        lambda: Cosine(1.0, 0), lambda: WarmUp(0, 1.0), lambda: InverseRoot(1.0, 0.0), lambda: StepDecay("a", 3),
        lambda: StepDecay(0.1, "a"), lambda: StepDecay(0.1, 2, "a"), lambda: ExponentialDecay(0.1, None),
        lambda: ExponentialDecay(math.nan, 0.5), lambda: InverseRoot("a", 1), lambda: InverseRoot(0.1, "a"),
        lambda: Cosine(0.1, None), lambda: Cosine(0.1, 10, "a"), lambda: WarmUp("a", 0.1), lambda: WarmUp(10, "a"),
    ],
)  # fmt: skip
def test_more_settings_out_of_range(make):
    with pytest.raises(OptimizerError, match="is out of range"):
        make()


def test_settings_that_are_not_there_are_named_errors():
    with pytest.raises(ArgumentError, match=r"Adam: .*'lr'.* Did you mean learning_rate\?"):
        Adam(lr=0.1)
    with pytest.raises(ArgumentError, match=r"SGD: missing .*'learning_rate'"):
        SGD()
    with pytest.raises(ArgumentError, match=r"Cosine: .*'steps'.* Did you mean steps\?"):
        Cosine(0.1, step=100)
    adam = Adam(0.1)
    assert pickle.loads(pickle.dumps(adam)) == adam == replace(Adam(0.2), learning_rate=0.1)


def test_a_schedule_that_goes_wrong_names_the_step():
    params = {"w": np.ones(1)}
    optimizer = SGD(lambda step: math.inf if step == 3 else 0.1)
    with pytest.raises(OptimizerError, match="the learning_rate of step 3"):
        optimizer.update(params, params, {"step": np.array(3)})


def test_clipping_scales_to_the_limit():
    grads = {"w": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}
    clipped, norm = clip_by_global_norm(grads, np.float64(1))
    assert norm == 5
    np.testing.assert_allclose(clipped["w"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"], [[0.8]], rtol=1e-6)
    assert clipped["w"].dtype == np.float32
    assert grads["w"][0] == 3
    assert global_norm(clipped) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("limit", [5.0, 6.0, math.inf])
def test_small_gradients_stay_as_they_are(limit):
    grads = {"w": np.array([3.0, 4.0])}
    clipped, norm = clip_by_global_norm(grads, limit)
    assert norm == 5
    np.testing.assert_array_equal(clipped["w"], grads["w"])


def test_the_norm_of_large_float32_gradients_is_finite():
    clipped, norm = clip_by_global_norm({"w": np.full(4, 1e30, np.float32)}, 1.0)
    assert norm == pytest.approx(2e30, rel=1e-6)
    np.testing.assert_allclose(clipped["w"], 0.5, rtol=1e-6)
    assert clip_by_global_norm({}, 1.0) == ({}, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_norm_that_is_not_finite_is_a_named_error(bad):
    with pytest.raises(GradientNormError, match="blob 'b': the gradient norm is not finite"):
        clip_by_global_norm({"w": np.ones(2), "b": np.array([1.0, bad])}, 1.0)


def test_an_overflowing_norm_and_a_bad_limit_are_named_errors():
    with pytest.raises(GradientNormError, match="not finite; got inf"):
        clip_by_global_norm({"w": np.full(2, 1e200)}, 1.0)
    for limit in (0.0, -1.0, math.nan, "1", None, True):
        with pytest.raises(OptimizerError, match="norm limit is out of range"):
            clip_by_global_norm({"w": np.ones(2)}, limit)
        with pytest.raises(OptimizerError, match="value limit is out of range"):
            clip_by_value({"w": np.ones(2)}, limit)


@pytest.mark.parametrize("grads", [[np.ones(2)], {"w": [1.0, 2.0]}, {"w": "x"}, {"w": np.array(["x"])}])
def test_gradients_that_are_no_arrays_are_named_errors(grads):
    for use in (global_norm, lambda given: clip_by_global_norm(given, 1.0), lambda given: clip_by_value(given, 1.0)):
        with pytest.raises(OptimizerError, match="gradient"):
            use(grads)
    with pytest.raises(OptimizerError, match=r"blob 'w': this is not an array; wanted float64\[2\]; got list"):
        SGD(0.1).update({"w": np.ones(2)}, {"w": [1.0, 2.0]}, SGD(0.1).start({"w": np.ones(2)}))
