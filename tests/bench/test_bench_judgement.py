"""Agreement, goals and the check are able to fail."""

from __future__ import annotations

import numpy as np
import pytest

from bench.agreement import DisagreementError, check_agreement
from bench.check import busy, describe, failures, misses, missing_peers, show_value
from bench.counting import Work
from bench.goals import AtMost, Extra, Figure, Goal, Linear, Measured, OfEstimate, OfPeak, Ratio, Speedup
from bench.measure import CaseResult

MEASURED = {
    "rnnops": Measured("rnnops", 2.0, work=Work(80.0, 0.0)),
    "gates": Measured("gates", 3.0, work=Work(60.0, 15e9)),
    "nn.LSTM": Measured("nn.LSTM", 3.0),
    "JAX": Measured("JAX", 5.0),
    "peak": Measured("peak", 1.0, work=Work(50.0, 0.0)),
    "gone": Measured("gone", None, missing="gone is not measured: no such library"),
}


@pytest.mark.parametrize(
    ("make", "value", "better"),
    [
        (lambda goal: Speedup(("nn.LSTM",), goal), 1.5, -1),
        (lambda goal: Speedup(("JAX", "nn.LSTM"), goal), 1.5, -1),
        (lambda goal: Speedup(("JAX",), goal, "nn.LSTM"), 5 / 3, -1),
        (lambda goal: OfPeak(goal), 0.8, -1),
        (lambda goal: Ratio("rnnops", "nn.LSTM", goal), 2 / 3, 1),
        (lambda goal: AtMost("rnnops", goal), 2.0, 1),
        (lambda goal: Extra("gates", "rnnops", "JAX", goal), 0.2, 1),
        (lambda goal: OfEstimate("gates", goal), 3.0 / (60 / 40 + 15), 1),
        (lambda goal: Linear({"rnnops": 1, "nn.LSTM": 2, "JAX": 2}, goal), 2.5 / 2.0, 1),
    ],
)
def test_goals_are_met_and_missed(make: type[Goal], value: float, better: int) -> None:
    """`better`: the direction in which the goal is easier."""
    assert make(value).figure(MEASURED).value == pytest.approx(value)
    assert make(value + better * 0.01).figure(MEASURED).met
    assert not make(value - better * 0.01).figure(MEASURED).met


@pytest.mark.parametrize(
    "goal",
    [
        Speedup(("nn.LSTM", "gone"), 1.0),
        Ratio("rnnops", "gone", 9.0),
        AtMost("gone", 9.0),
        Extra("gates", "rnnops", "gone", 9.0),
        Speedup(("never heard of",), 1.0),
    ],
)
def test_what_is_not_measured_is_missed(goal: Goal) -> None:
    figure = goal.figure(MEASURED)
    assert figure.value is None
    assert not figure.met
    assert "is not measured" in describe(figure)


def test_without_a_peak_no_share_of_it() -> None:
    without = {label: one for label, one in MEASURED.items() if label != "peak"}
    assert not OfPeak(0.1).figure(without).met
    assert not OfEstimate("gates", 9.0).figure(without).met


def test_a_figure_without_a_goal_is_for_information() -> None:
    assert Speedup(("gone",), None).figure(MEASURED).met
    assert "wanted" not in describe(Speedup(("JAX",), None).figure(MEASURED))


RESULT = CaseResult("lstm training", "1,2,3", figures=(Figure("JAX / rnnops", 1.5, 2.0), Figure("b", 1.5, 1.0)))


def test_the_check_lists_each_miss() -> None:
    assert misses([RESULT]) == ["lstm training 1,2,3: JAX / rnnops 1.500, wanted at least 2.000"]
    assert failures([RESULT]) == misses([RESULT])
    assert failures([CaseResult("good", "1", figures=(Figure("a", 1.0, 2.0, at_least=False),))]) == []


def test_the_check_fails_on_errors_and_on_a_busy_machine() -> None:
    error = CaseResult("lstm", "1", error="they differ")
    loaded = CaseResult("lstm", "2", figures=(Figure("a", 2.0, 1.0),), others=0.9)
    assert failures([error]) == ["lstm 1: they differ"]
    assert "0.9 processors" in failures([loaded])[0]
    assert busy([CaseResult("for information", "1", figures=(Figure("a", 2.0),), others=0.9)]) == []


def test_missing_peers_are_named_once() -> None:
    results = [CaseResult("a", "1", (MEASURED["gone"],)), CaseResult("a", "2", (MEASURED["gone"], MEASURED["JAX"]))]
    assert missing_peers(results) == ["gone is not measured: no such library"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.234, "s", "1.23 s"),
        (0.0123, "s", "12.3 ms"),
        (0.123, "s", "123 ms"),
        (31.4e-6, "s", "31.4 us"),
        (3 * 2**20, "bytes", "3.0 MiB"),
        (2.015, "U", "2.02 U"),
        (1.5, "", "1.50"),
        (None, "s", "is not measured"),
    ],
)
def test_values_in_units_that_fit(value: float | None, unit: str, text: str) -> None:
    assert show_value(value, unit) == text


ARRAYS = {"y": np.array([1.0, -4.0], "float32"), "gradient of xs": np.array([2.0, 0.5], "float32")}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"y": np.array([1.0, -4.001], "float32")}, "y is off by 1.00e-03"),
        ({"gradient of xs": np.array([2.0, 0.503], "float32")}, "gradient of xs is off by"),
        ({"gradient of xs": np.array([np.nan, 0.5], "float32")}, "gradient of xs is off by nan"),
        ({"y": np.array([[1.0, -4.0]], "float32")}, r"y has shape \[1, 2\], wanted \[2\]"),
        ({"gradient of b": np.zeros(1)}, "gradient of b is computed by one only"),
    ],
)
def test_disagreement_names_what_differs(changed: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(DisagreementError, match=f"JAX and rnnops differ: .*{words}"):
        check_agreement("JAX", {**ARRAYS, **changed}, "rnnops", ARRAYS)


def test_agreement_allows_rounding_and_forward_passes() -> None:
    close = {name: array * np.float32(1 + 5e-5) for name, array in ARRAYS.items()}
    check_agreement("JAX", close, "rnnops", ARRAYS)
    check_agreement("onnxruntime", {"y": ARRAYS["y"]}, "rnnops", ARRAYS)
    with pytest.raises(DisagreementError, match="y is computed by one only"):
        check_agreement("onnxruntime", {}, "rnnops", {"y": ARRAYS["y"]})
