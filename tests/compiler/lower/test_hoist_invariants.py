"""Prologue: what follows from references and constants alone runs once, before the first step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import DEVICES
from scan_cases import step_of

import rnnops as ro
from rnnops.compiler.lower.lower_ops import Hoisted, hoist_invariants

N, D = 3, 2
Build = Callable[..., ro.Blob]


def hoisted(build: Build, **extra: tuple[int, ...]) -> Hoisted:
    """The cell `y = build(x, w, ...)`, of which all inputs but x are references."""
    cell = ro.Net("cell")
    kinds = {"x": (N, D), "w": (D,), **extra}
    cell.outputs(y=build(*cell.inputs(*kinds)))
    program = step_of(cell, **kinds)
    return hoist_invariants(program, [name for name in kinds if name != "x"], program.net.output_blobs.values())


def ops(program: object) -> list[str]:
    return [] if program is None else [str(op.type) for op in program.net.ops]  # type: ignore[attr-defined]


def test_work_on_references_runs_before() -> None:
    step = hoisted(lambda x, w: x * ro.exp(ro.tanh(w)))
    assert ops(step.prologue) == ["Tanh", "Exp"]
    assert ops(step.step) == ["Mul"]
    assert step.references == ("exp_0",)


def test_constants_do_not_keep_work_in_the_step() -> None:
    step = hoisted(lambda x, w: x * (w * 2.0 + 1.0))
    assert [op for op in ops(step.prologue) if op != "Constant"] == ["Mul", "Add"]
    assert [op for op in ops(step.step) if op != "Constant"] == ["Mul"]


def test_views_of_references_stay() -> None:
    step = hoisted(lambda x, w, v: x @ ro.transpose(v, perm=[1, 0]), v=(D, D))
    assert step.prologue is None
    assert ops(step.step) == ["Transpose", "MatMul"]


def test_references_side_by_side_are_no_view() -> None:
    """They are made once: a product reads them as one matrix."""
    step = hoisted(lambda x, w, v: x @ ro.concat(v, ro.exp(v), axis=1), v=(D, D))
    assert (ops(step.prologue), ops(step.step)) == (["Exp", "Concat"], ["MatMul"])


def test_views_of_what_runs_before_stay_too() -> None:
    step = hoisted(lambda x, w, v: x @ ro.transpose(ro.tanh(v), perm=[1, 0]), v=(D, D))
    assert (ops(step.prologue), ops(step.step)) == (["Tanh"], ["Transpose", "MatMul"])


def test_shapes_stay_known() -> None:
    """Sizes that follow from the shape of a reference are constants of the step, not results of ops before it."""

    def build(x: ro.Blob, w: ro.Blob) -> ro.Blob:
        size = ro.squeeze(ro.shape(ro.tanh(w)), [0])
        return x * ro.cast(ro.range(w.net.constant(0), size, w.net.constant(1)), "float")

    step = hoisted(build)
    assert "Range" not in [*ops(step.prologue), *ops(step.step)]


def test_what_nobody_needs_is_gone() -> None:
    cell = ro.Net("cell")
    x, w = cell.inputs("x", "w")
    unused = ro.exp(w) @ w
    cell.outputs(y=x * w, unused=unused)
    program = step_of(cell, x=(N, D), w=(D,))
    step = hoist_invariants(program, ["w"], [program.net.output_blobs["y"]])
    assert step.prologue is None
    assert ops(step.step) == ["Mul"]


def test_a_result_of_references_alone_is_stored_at_every_step() -> None:
    cell = ro.Net("cell")
    x, w = cell.inputs("x", "w")
    cell.outputs(y=x * w, z=ro.tanh(w))
    program = step_of(cell, x=(N, D), w=(D,))
    step = hoist_invariants(program, ["w"], program.net.output_blobs.values())
    assert ops(step.prologue) == ["Tanh"]
    assert step.references == ("w", "tanh_0")


@pytest.mark.parametrize("training", [False, True])
def test_random_ops_stay(training: bool) -> None:
    """Dropout of a reference draws anew at every step."""
    cell = ro.Net("cell")
    x, w = cell.inputs("x", "w")
    cell.outputs(y=x * ro.dropout(w, 0.5))
    net = ro.Net("outer")
    results = ro.recurrent_net(net, cell, [("x", net.input("xs"))], [], {})
    net.outputs(y=results[0])
    feeds = {"xs": np.ones((5, N, 8)), "w": np.ones(8)}
    reference, plain = (DEVICES[name](net)(feeds, seed=3, training=training)["y"] for name in ("reference", "plain"))
    np.testing.assert_array_equal(plain, reference)
    assert (len(np.unique(reference[:, 0], axis=0)) > 1) is training
