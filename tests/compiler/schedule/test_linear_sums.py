"""What follows from sums over rows: it waits where it is linear in them, and rows mix where it is not."""

from __future__ import annotations

import pytest
from small_programs import call_of, lowered_of, program_of

from rnnops.compiler.schedule.sums import LateCalls, is_linear, late_calls
from rnnops.net.loop_forms import Reduction
from rnnops.net.schema import Call, form_of

SUM = "s = ReduceSum(x, axes=[0])"
SHAPES = {"x": (2, 3), "w": (1, 3)}


def late(lines: str) -> LateCalls:
    """Calls of a step that sums x into `s`, and is given w at every step."""
    program, lowered = program_of(f"{SUM}; {lines}", **SHAPES), lowered_of(f"{SUM}; {lines}", **SHAPES)
    return late_calls(program.calls, ["s"], lowered, ["w"])


def made(calls: list[Call]) -> list[str]:
    return [call.op.outputs[0] for call in calls]


def test_what_is_linear_in_a_sum_waits() -> None:
    found = late("u = Mul(s, w); y = Neg(u)")
    assert (made([*found.calls]), {*found.summed}) == (["u", "y"], {"s", "u", "y"})


def test_what_is_the_same_at_every_step_is_there_for_it() -> None:
    found = late("e = Exp(w); t = Tanh(w); u = Mul(s, e); v = Neg(s); y = Add(u, v)")
    assert made([*found.fixed]) == ["e", "t"]
    assert made(found.needed(["u"])) == ["e", "u"], "nothing else depends on it"
    assert made(found.needed(["y"])) == ["e", "u", "v", "y"]


@pytest.mark.parametrize(
    "line",
    ["y = Exp(s)", "y = Mul(s, s)", "y = Add(s, w)", "y = Div(w, s)", "y = Mul(s, x)", "y = ReduceMax(s, axes=[1])"],
)
def test_anything_else_mixes_rows(line: str) -> None:
    assert late(line).refused == {"s": "y"}


@pytest.mark.parametrize(
    "line",
    [
        "y = Div(s, w)",
        "y = Sub(s, s)",
        "y = Transpose(s, perm=[1, 0])",
        "y = ReduceMean(s, axes=[1])",
        "y = Identity(s)",
    ],
)
def test_linear_functions(line: str) -> None:
    assert made([*late(line).calls]) == ["y"]


@pytest.mark.parametrize(
    ("op", "linear"), [("ReduceSum", True), ("ReduceMean", True), ("ReduceMax", False), ("ReduceSumSquare", False)]
)
def test_sums_and_means_are_linear(op: str, linear: bool) -> None:
    form = form_of(call_of(f"y = {op}(x, axes=[0])", x=(2, 3)))
    assert isinstance(form, Reduction)
    assert is_linear(form) is linear
