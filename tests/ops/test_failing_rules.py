"""Rules of users' ops that raise, and what ops are given that they cannot take: errors with names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro
from rnnops.net.schema import REGISTRY, Call, OpSchema, register
from rnnops.ops.base import Unary

X = np.linspace(-1.0, 1.0, 6).reshape(2, 3)


class Faulty(Unary):
    """A copy, but for the one rule that a test replaces."""

    attributes = {"alpha": 1.0}

    def shapes(self, call: Call) -> Any:
        return (call.shape(0),)

    def dtypes(self, dtypes: Any, attributes: Any) -> Any:
        return (dtypes[0],)

    def loop_form(self, call: Call) -> Any:
        return None

    def reference(self, call: Call, x: Any) -> Any:
        return np.array(x)

    def gradient(self, call: Call, x: Any, y: Any, dy: Any) -> Any:
        return dy


@pytest.fixture
def faulty() -> Iterator[OpSchema]:
    yield register(Faulty())
    del REGISTRY["Faulty"]


def gradient_of(device: str) -> None:
    net = ro.Net("net")
    net.outputs(y=net.apply("Faulty", [net.input("x")]))
    out, pullback = ro.compile(net, device=device).vjp(x=X)
    pullback({"y": np.ones_like(out["y"])})


def raises(*arguments: Any, **more: Any) -> Any:
    raise KeyError("what is missing")


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("rule", ["shapes", "dtypes", "loop_form", "reference", "gradient"])
@pytest.mark.usefixtures("faulty")
def test_a_rule_that_raises_is_named(rule: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule == "loop_form" and device == "reference":
        pytest.skip("the interpreter asks for no loop form before it runs")
    monkeypatch.setattr(Faulty, rule, raises)
    wanted = ("net 'net", "op 'Faulty", f"its rule `{rule}` fails with KeyError", "what is missing")
    rejects(ro.OpError, lambda: gradient_of(device), *wanted)


@pytest.mark.usefixtures("faulty")
def test_rnnops_own_errors_and_memory_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: OpSchema, call: Call, x: Any) -> Any:
        call.fail("there are too few rows")

    monkeypatch.setattr(Faulty, "reference", fails)
    rejects(ro.TypeRuleError, lambda: gradient_of("reference"), "op 'Faulty", "there are too few rows")


OPERATIONS: list[Callable[[Any], Any]] = [
    lambda x: -x,
    lambda x: x + 1.0,
    lambda x: 2.0 * x,
    lambda x: 1.0 / x,
    lambda x: x**2.0,
    lambda x: x @ x,
    lambda x: x[0],
    lambda x: x > 0.0,
    lambda x: x.shape,
]


@pytest.mark.parametrize("use", OPERATIONS)
@pytest.mark.usefixtures("faulty")
def test_a_gradient_that_reads_what_is_not_kept_is_named(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "gradient", lambda self, call, x, y, dy: use(x))
    rejects(ro.GradientError, lambda: gradient_of("reference"), "op 'Faulty", "reads 'X'", "keeps")


@pytest.mark.parametrize("made", [lambda x: np.ma.masked_less(x, 0.0), lambda x: x.view(np.recarray)])
@pytest.mark.usefixtures("faulty")
def test_special_arrays_are_refused(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "reference", lambda self, call, x: made(x))
    rejects(
        ro.OpError, lambda: gradient_of("reference"), "op 'Faulty", "its reference returned", type(made(X)).__name__
    )


@pytest.mark.parametrize("value", ["a", 10**400, (1.0,), "1.0"])
@pytest.mark.usefixtures("faulty")
def test_an_attribute_that_is_no_float_is_refused(value: Any) -> None:
    net = ro.Net("net")
    x = net.input("x")
    rejects(ro.NetError, lambda: net.apply("Faulty", [x], alpha=value), "op 'Faulty'", "'alpha' is not a number")


@pytest.mark.parametrize("value", ['"a"', "1" + 400 * "0", "[1.0]"])
def test_nor_is_it_read(value: str) -> None:
    text = f"net n(x: float)\n    y = LeakyRelu(x, alpha={value})\n    return y"
    rejects(ro.ParseError, lambda: ro.parse_net(text), "op 'LeakyRelu'", "line 2", "'alpha' is not a number")


def test_more_axes_than_arrays_have_are_refused() -> None:
    net = ro.Net("net")
    net.outputs(y=ro.unsqueeze(net.input("x"), list(range(31))))
    rejects(ro.TypeRuleError, lambda: ro.compile(net)(x=X), "op 'Unsqueeze", "at most 32", "got 33")
