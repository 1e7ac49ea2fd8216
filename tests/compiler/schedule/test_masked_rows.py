"""Steps simplified for rows that are over and for those that are not: text before and after."""

from __future__ import annotations

from typing import Any

import pytest

import rnnops as ro
from rnnops.compiler.lower.scan import Role, Scan, Slot, StepPlan, Tensor
from rnnops.compiler.schedule.plan_step import scheduled, staged
from rnnops.compiler.schedule.rows import gather_rows, simplify_rows
from rnnops.interpreter import prepare
from rnnops.net.blob import Blob
from rnnops.ops.indexing import mask_rows
from rnnops.types import Type

N, D = 4, 3


def planned(step: Any) -> tuple[Scan, StepPlan]:
    """A step of `x`, `h` and `w`, whose result is the next `h`."""
    net = ro.Net("step")
    x, h, w = net.inputs("x", "h", "w")
    lengths, t = net.input("lengths", "int32"), net.input("t", "int32")
    y = step(x, h, w, lengths, t).named("y")
    net.outputs(y=y)
    types = {"x": Type("float64", (N, D)), "h": Type("float64", (N, D)), "w": Type("float64", (D, D))}
    program = prepare(net, {**types, "lengths": Type("int32", (N,)), "t": Type("int32", (1,))}, "float64")
    x_steps, h_steps = Role.SEQUENCE.of("x"), Role.STATE.of("h")
    scan = Scan(
        program,
        steps=5,
        batch=N,
        reverse=False,
        reads={"x": Slot(x_steps), "h": Slot(h_steps)},
        references=("w", "lengths"),
        timestep="t",
        writes=(("y", Slot(h_steps, 1)),),
        additions=(),
        sums={},
        tensors={x_steps: Tensor("float64", (N, D), 5), h_steps: Tensor("float64", (N, D), 6)},
        states=(h_steps,),
        batch_axes={"x": 0, "h": 0},
        row_tensors=frozenset([x_steps, h_steps]),
    )
    return scan, staged(scheduled(scan))


def text(plan: StepPlan, over: bool) -> list[str]:
    return [str(node) for node in simplify_rows(plan, "lengths", "t", over)]


def valid(lengths: Blob, t: Blob) -> Blob:
    return ro.unsqueeze(ro.less(t, lengths), [1])


def test_select_valid() -> None:
    _, plan = planned(lambda x, h, w, lengths, t: ro.select_valid(x * 2.0, h, lengths, t))
    assert text(plan, over=True) == ["mul_0[4, 3] = Mul(x, 2.0)", "y[4, 3] = copy(h)"]
    assert text(plan, over=False) == ["mul_0[4, 3] = Mul(x, 2.0)", "y[4, 3] = copy(mul_0)"]


def test_select_valid_with_drop() -> None:
    _, plan = planned(lambda x, h, w, lengths, t: ro.select_valid(x * 2.0, h, lengths, t, drop=True))
    assert text(plan, over=True)[-1] == "y[4, 3] = copy(0)"
    assert text(plan, over=False)[-1] == "y[4, 3] = copy(mul_0)"


def test_masks_of_operands() -> None:
    """Rows that are not over read what is there without a copy; for others there is no product."""
    _, plan = planned(lambda x, h, w, lengths, t: ro.select_valid(mask_rows(x, lengths, t) @ w, h, lengths, t))
    assert text(plan, over=True)[-1] == "y[4, 3] = copy(h)"
    assert any(line.endswith("= x @ w: [4, 3] @ [3, 3]") for line in text(plan, over=False))


@pytest.mark.parametrize("read", [lambda x: x * 1.0, lambda x: ro.concat([x, x], axis=1)])
def test_masks_of_what_a_step_makes_are_copies(read: Any) -> None:
    """Only what lies in tensors is there for sure when a mask's readers run."""
    _, plan = planned(lambda x, h, w, lengths, t: mask_rows(ro.slice(read(x), [0], [D], [1]), lengths, t) @ w + h)
    assert any("mask_rows_0[4, 3] = copy(" in line for line in text(plan, over=False))


@pytest.mark.parametrize(
    ("step", "over"),
    [
        (lambda x, zero, w: zero * ro.exp(x), "y[4, 3] = copy(0)"),
        (lambda x, zero, w: zero / x + x, "y[4, 3] = copy(x)"),
        (lambda x, zero, w: x - ro.tanh(zero), "y[4, 3] = copy(x)"),
        (lambda x, zero, w: ro.exp(zero) * x, "y[4, 3] = Mul(1.0, x)"),
        (lambda x, zero, w: ro.split(ro.concat([zero, zero], axis=1), 2, axis=1)[0] + x, "y[4, 3] = copy(x)"),
        (lambda x, zero, w: zero @ w + x, "y[4, 3] = copy(x)"),
        (lambda x, zero, w: ro.reduce_sum(zero, axes=[1]) + x, "y[4, 3] = copy(x)"),
    ],
)
def test_zeros_go_through(step: Any, over: str) -> None:
    def whole(x: Blob, h: Blob, w: Blob, lengths: Blob, t: Blob) -> Blob:
        result: Blob = step(x, ro.where(valid(lengths, t), h, 0.0), w)
        return result

    _, plan = planned(whole)
    (y,) = (line for line in text(plan, over=True) if line.startswith("y"))
    assert y == over
    assert text(plan, over=False) != text(plan, over=True)


def test_rows_that_are_not_over_keep_what_is_not_a_number() -> None:
    """There 0 * x stays a product: x may be NaN."""
    _, plan = planned(lambda x, h, w, lengths, t: ro.where(valid(lengths, t), 0.0, h) * x)
    assert text(plan, over=False)[-1] == "y[4, 3] = Mul(0.0, x)"


def test_other_conditions_stay() -> None:
    _, plan = planned(lambda x, h, w, lengths, t: ro.where(ro.unsqueeze(ro.less(lengths, t), [1]), x, h))
    for over in (True, False):
        assert text(plan, over) == [str(node) for stage in plan.stages for node in stage.nodes]


def test_products_read_and_write_rows_side_by_side() -> None:
    scan, plan = planned(lambda x, h, w, lengths, t: h @ w + x @ w)
    gathered = gather_rows(scan, plan, [node for stage in plan.stages for node in stage.nodes], "lasting")
    assert [str(node) for stage in plan.stages for node in stage.nodes] == [
        "y = x @ w: [4, 3] @ [3, 3]",
        "y += h @ w: [4, 3] @ [3, 3]",
    ]
    assert [str(node) for stage in gathered.stages for node in stage.nodes] == [
        "x/lasting.0[4, 1, 3] = copy(x)",
        "y/lasting = x/lasting.0 @ w: [4, 3] @ [3, 3]",
        "h/lasting.1[4, 1, 3] = copy(h)",
        "y/lasting += h/lasting.1 @ w: [4, 3] @ [3, 3]",
        "y[4, 3] = copy(y/lasting)",
    ]
