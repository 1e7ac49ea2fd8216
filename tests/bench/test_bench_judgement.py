"""Agreement, goals and the check are able to fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import contender
from bench.agreement import disagreement
from bench.contender import ENGINES
from bench.counting import Work
from bench.goals import (
    Figure,
    Goal,
    Measured,
    added,
    at_most,
    beyond_products,
    either,
    extra,
    linear,
    of_estimate,
    of_peak,
    of_sum,
    over_pairs,
    ratio,
    speedup,
)
from bench.judge import CaseResult, busy, describe, errors, misses, missing_peers, show_value

MEASURED = {
    "rnnops": Measured("rnnops", 2.0, work=Work(80.0, 0.0)),
    "gates": Measured("gates", 3.0, work=Work(60.0, 15e9)),
    "nn.LSTM": Measured("nn.LSTM", 3.0),
    "JAX": Measured("JAX", 5.0),
    "peak": Measured("peak", 1.0, work=Work(50.0, 0.0)),
    "gone": Measured("gone", None, missing="gone is not measured: no such library"),
}


def test_time_beyond_products_is_for_information() -> None:
    figure = beyond_products("gates")(MEASURED)
    assert figure.value == pytest.approx((3.0 - 60 / 50) / 15)
    assert figure.met
    assert beyond_products("nn.LSTM")(MEASURED).value is None, "nobody has counted its work"


@pytest.mark.parametrize(
    ("make", "value", "better"),
    [
        (lambda goal: speedup(("nn.LSTM",), goal), 1.5, -1),
        (lambda goal: speedup(("JAX", "nn.LSTM"), goal), 1.5, -1),
        (lambda goal: speedup(("JAX",), goal, "nn.LSTM"), 5 / 3, -1),
        (lambda goal: of_peak(goal), 0.8, -1),
        (lambda goal: ratio("rnnops", "nn.LSTM", goal), 2 / 3, 1),
        (lambda goal: at_most("rnnops", goal), 2.0, 1),
        (lambda goal: extra("gates", "rnnops", "JAX", goal), 0.2, 1),
        (lambda goal: of_estimate("gates", goal), 3.0 / (60 / 40 + 15), 1),
        (lambda goal: of_sum("JAX", ("rnnops", "nn.LSTM"), goal), 1.0, 1),
        (lambda goal: added("JAX", "rnnops", goal), 3.0, 1),
        (lambda goal: over_pairs((("rnnops", "nn.LSTM"), ("rnnops", "JAX"), ("gone", "JAX")), goal), 2.0, -1),
        (lambda goal: over_pairs((("rnnops", "nn.LSTM"), ("rnnops", "JAX")), goal, least=True), 1.5, -1),
        (lambda goal: linear({"rnnops": 1, "nn.LSTM": 2, "JAX": 2}, goal), 2.5 / 2.0, 1),
    ],
)
def test_goals_are_met_and_missed(make: Callable[[float], Goal], value: float, better: int) -> None:
    """`better`: the direction in which the goal is easier."""
    assert make(value)(MEASURED).value == pytest.approx(value)
    assert make(value + better * 0.01)(MEASURED).met
    assert not make(value - better * 0.01)(MEASURED).met


@pytest.mark.parametrize(
    "goal",
    [
        speedup(("nn.LSTM", "gone"), 1.0),
        ratio("rnnops", "gone", 9.0),
        at_most("gone", 9.0),
        extra("gates", "rnnops", "gone", 9.0),
        speedup(("never heard of",), 1.0),
        of_sum("gone", ("rnnops", "JAX"), 9.0),
        added("gone", "rnnops", 9.0),
    ],
)
def test_what_is_not_measured_is_missed(goal: Goal) -> None:
    figure = goal(MEASURED)
    assert figure.value is None
    assert not figure.met
    assert "is not measured" in describe(figure)


def test_without_a_peak_no_share_of_it() -> None:
    without = {label: one for label, one in MEASURED.items() if label != "peak"}
    assert not of_peak(0.1)(without).met
    assert not of_estimate("gates", 9.0)(without).met


@pytest.mark.parametrize(("first", "second", "name"), [(1.4, 9, 0), (1.4, 0.5, 0), (1.6, 0.7, 1), (1.6, 9, 0)])
def test_one_of_two_goals_is_enough(first: float, second: float, name: int) -> None:
    """The second is told of only where it alone is met."""
    figure = either(speedup(("nn.LSTM",), first), of_peak(second))(MEASURED)
    assert figure.name == ("nn.LSTM / rnnops", "rnnops, share of peak")[name]
    assert figure.met == (first == 1.4 or name == 1)


def test_a_figure_without_a_goal_is_for_information() -> None:
    assert speedup(("gone",), None)(MEASURED).met
    assert "wanted" not in describe(speedup(("JAX",), None)(MEASURED))


RESULT = CaseResult("lstm training", "1,2,3", figures=(Figure("JAX / rnnops", 1.5, 2.0), Figure("b", 1.5, 1.0)))


def test_the_check_lists_each_miss() -> None:
    assert misses([RESULT]) == ["lstm training 1,2,3: JAX / rnnops 1.500, wanted at least 2.000"]
    assert misses([CaseResult("good", "1", figures=(Figure("a", 1.0, 2.0, at_least=False),))]) == []


def test_errors_and_a_busy_machine_are_told() -> None:
    error = CaseResult("lstm", "1", error="they differ")
    loaded = CaseResult("lstm", "2", figures=(Figure("a", 2.0, 1.0),), others=0.9)
    assert errors([error]) == ["lstm 1: they differ"]
    assert "0.9 processors" in busy([loaded])[0]
    assert busy([CaseResult("for information", "1", figures=(Figure("a", 2.0),), others=0.9)]) == []


def test_missing_peers_are_named_once() -> None:
    results = [CaseResult("a", "1", (MEASURED["gone"],)), CaseResult("a", "2", (MEASURED["gone"], MEASURED["JAX"]))]
    assert missing_peers(results) == ["gone: gone is not measured: no such library (2 cases)"]


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
    (line,) = disagreement("JAX", {**ARRAYS, **changed}, "rnnops", ARRAYS)
    assert re.match(f"JAX and rnnops differ: .*{words}", line)


def test_agreement_allows_rounding_and_forward_passes() -> None:
    close = {name: array * np.float32(1 + 5e-5) for name, array in ARRAYS.items()}
    assert disagreement("JAX", close, "rnnops", ARRAYS) == []
    assert disagreement("onnxruntime", {"y": ARRAYS["y"]}, "rnnops", ARRAYS) == []
    (line,) = disagreement("onnxruntime", {}, "rnnops", {"y": ARRAYS["y"]})
    assert "y is computed by one only" in line


def test_every_engine_has_its_maker() -> None:
    """Modules of engines are named as text, and may need packages that are not installed."""
    for name, engine in ENGINES.items():
        text = (Path(contender.__file__).parent / f"{engine.module}.py").read_text()
        assert f"\ndef {engine.maker}(" in text, f"{name}: bench/{engine.module}.py has no {engine.maker}"
