"""A step that a loop makes anew for each call: all that it holds counts, and few such steps are walked again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rnnops.torch as rt  # noqa: E402
from rnnops.torch import watch  # noqa: E402

T, N, H = 3, 2, 4
HELD: dict[str, Any] = {}


def expect_loop(step: Any) -> None:
    h, xs = torch.zeros(N, H), torch.randn(T, N, H)
    mine = rt.scan(step, h, xs)[0]
    for x in xs:
        h, _ = step(h, x)
    torch.testing.assert_close(mine, h)


def closing_over(a: Any, b: Any) -> Any:
    return lambda h, x: (torch.tanh(a * h + x * b),) * 2


class Owner:
    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def step(self, h: Any, x: Any) -> Any:
        return (torch.tanh(self.scale * h + x),) * 2


def with_attribute(scale: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        return (torch.tanh(h * getattr(HELD["step"], "scale", 2.0) + x),) * 2

    if scale is not None:
        step.scale = scale  # type: ignore[attr-defined]
    HELD["step"] = step
    return step


def with_default(scale: Any) -> Any:
    def step(h: Any, x: Any, scale: Any = scale) -> Any:
        return (torch.tanh(h * scale + x),) * 2

    return step


def with_an_empty_variable(scale: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        try:
            return (torch.tanh(h * later + x),) * 2
        except NameError:
            return (torch.tanh(h + x),) * 2

    if scale is not None:
        later = scale
    return step


W, V = torch.full((H,), 0.5), torch.full((H,), 0.25)
WAYS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "numbers": (lambda scale: closing_over(scale, 2.0), [0.5, 0.25, 0.5]),
    "tensors": (lambda scale: closing_over(scale, W), [W, V, W, torch.rand(1), torch.rand(H, requires_grad=True)]),
    "methods": (lambda scale: Owner(scale).step, [0.5, 0.25, W, V]),
    "attributes of functions": (with_attribute, [None, 0.5, 0.25, W, None]),
    "defaults": (with_default, [0.5, 0.25, W, V]),
    "a variable without a value": (with_an_empty_variable, [None, 0.5, None, W]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_what_each_step_holds_counts(way: str) -> None:
    HELD.clear()
    make, values = WAYS[way]
    for scale in [*values, *values]:
        expect_loop(make(scale))


def sharing_a_variable(scale: Any) -> tuple[Any, Callable[[Any], None]]:
    """A step whose helper stays the first one, with the variable of that time."""

    def helper(h: Any) -> Any:
        return h * scale

    def put(value: Any) -> None:
        nonlocal scale
        scale = value

    first = HELD.setdefault("helper", helper)
    return lambda h, x: (torch.tanh(first(h) + x * scale),) * 2, put


def calling_the_first_one(scale: Any) -> tuple[Any, Callable[[Any], None]]:
    """A step that calls the first one, which is of the same code."""

    def step(h: Any, x: Any, is_nested: bool = False) -> Any:
        if is_nested:
            return (torch.tanh(h * scale + x),) * 2
        return (HELD["first"][0](h, x, True)[0] * scale,) * 2

    def put(value: Any) -> None:
        nonlocal scale
        scale = value

    HELD.setdefault("first", (step,))
    return step, put


@pytest.mark.parametrize("make", [sharing_a_variable, calling_the_first_one])
def test_variables_of_the_first_step_count_where_others_read_them(make: Any) -> None:
    HELD.clear()
    first, put = make(0.5)
    expect_loop(first)
    put(0.25)
    expect_loop(make(0.5)[0])


class Remembering:
    """A step that sets a tensor beside its carry: in a variable, an attribute, an object that it has, or in place."""

    def __init__(self, way: str) -> None:
        self.last, self.inner, self._way = torch.zeros(N, H), SimpleNamespace(last=torch.zeros(N, H)), way
        last = torch.zeros(N, H)

        def in_a_variable(h: Any, x: Any) -> Any:
            nonlocal last
            last = torch.tanh(h + x * 0.5 + last)
            return h + last, h

        self.in_a_variable, self._variable = in_a_variable, lambda: last
        self.step = getattr(self, way)

    def in_an_attribute(self, h: Any, x: Any) -> Any:
        self.last = torch.tanh(h + x * 0.5 + self.last)
        return h + self.last, h

    def in_an_object(self, h: Any, x: Any) -> Any:
        self.inner.last = torch.tanh(h + x * 0.5 + self.inner.last)
        return h + self.inner.last, h

    def in_place(self, h: Any, x: Any) -> Any:
        self.last.add_(torch.tanh(h + x))
        return h + self.last, h

    def held(self) -> list[Any]:
        return [self.last, self.inner.last, self._variable()]


def expect_the_same_is_held(mine: Remembering, other: Remembering) -> None:
    xs, h = torch.randn(T, N, H), torch.zeros(N, H)
    found = rt.scan(mine.step, h, xs)[0]
    for x in xs:
        h, _ = other.step(h, x)
    torch.testing.assert_close([found, *mine.held()], [h, *other.held()])


@pytest.mark.parametrize("way", ["in_a_variable", "in_an_attribute", "in_an_object", "in_place"])
def test_each_step_sets_what_it_has_itself(way: str) -> None:
    for _ in range(3):
        expect_the_same_is_held(Remembering(way), Remembering(way))


def test_an_object_that_a_step_sets_something_in_may_be_replaced() -> None:
    mine, other = Remembering("in_an_object"), Remembering("in_an_object")
    for _ in range(3):
        expect_the_same_is_held(mine, other)
        for each in (mine, other):
            each.inner = SimpleNamespace(last=torch.zeros(N, H))


def test_all_of_one_def_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[Any] = []
    whole = watch.Walk
    expect_loop(closing_over(0.5, W))
    owner = Owner(W)
    expect_loop(owner.step)
    monkeypatch.setattr(watch, "Walk", lambda *words, **named: walks.append(words) or whole(*words, **named))
    for tensor in (W, V, torch.rand(H)):
        expect_loop(closing_over(0.5, tensor))
        expect_loop(owner.step)
    assert not walks
    expect_loop(closing_over(0.75, W))
    assert walks


def test_a_call_keeps_no_step_but_the_last() -> None:
    expect_loop(closing_over(0.125, W))
    steps = [closing_over(0.125, torch.rand(H)) for _ in range(3)]
    for step in steps:
        expect_loop(step)
    kept = [weakref.ref(step) for step in steps]
    del step, steps
    assert [reference() is None for reference in kept] == [True, True, False]
