"""Recurrences whose cells hold recurrences: steps called one by one, all that computes in them compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from devices import DEVICES, PLAIN
from layer_runs import by_layers, plain
from word_nets import D, T, feeds_of, words_net

import rnnops as ro
from rnnops.compiler.run.compile_programs import Stepped
from rnnops.compiler.run.forward import RowPass
from rnnops.compiler.run.pipeline import TrainingPlan
from rnnops.net.loop_forms import View
from rnnops.net.schema import Call, schema_of


def planned(net: ro.Net, **options: Any) -> TrainingPlan:
    plan = ro.compile(net, tuning=PLAIN, **options).plan(feeds_of()).plan
    assert isinstance(plan, TrainingPlan)
    return plan


def _stepped(runners: Mapping[str, Any]) -> list[Stepped]:
    return [runner for runner in runners.values() if isinstance(runner, Stepped)]


def left_over(stepped: Stepped) -> Iterator[Call]:
    """Ops of a step that compute something and have no kernel, however deep."""
    for call in stepped.program.calls:
        kernel = stepped.kernels.get(call.op.key)
        if isinstance(kernel, Stepped):
            yield from left_over(kernel)
        elif kernel is None and not isinstance(schema_of(call.op.type).loop_form(call), View):
            yield call


@pytest.mark.parametrize("mixes_rows", [False, True])
def test_all_that_computes_is_compiled(mixes_rows: bool) -> None:
    plan = planned(words_net(mixes_rows))
    assert not plan.compiled.interpreted
    (forward,), (backward,) = (_stepped(some) for some in (plan.compiled.forward, plan.compiled.backward))
    assert [call.op.type for one in (forward, backward) for call in left_over(one)] == []
    assert {call.op.type for call in forward.program.calls} == {"Transpose", "RecurrentNetwork", "FusedOps"}


@pytest.mark.parametrize("mixes_rows", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_agrees_with_the_reference(dtype: str, mixes_rows: bool) -> None:
    ro.testing.check_devices(words_net(mixes_rows), feeds_of(dtype), {"cpu": DEVICES["cpu"], "plain": DEVICES["plain"]})


def test_kernels_run_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    run_one = RowPass.__call__
    monkeypatch.setattr(
        RowPass, "__call__", lambda self, *given, **more: calls.append("") or run_one(self, *given, **more)
    )
    run, feeds = ro.compile(words_net(), tuning=PLAIN), feeds_of()
    (forward,) = _stepped(run.plan(feeds, backward=False).plan.compiled.forward)
    run(feeds)
    assert len(calls) == T * sum(isinstance(kernel, RowPass) for kernel in forward.kernels.values()) > 0


@pytest.mark.parametrize("options", [{}, {"recompute_blobs_on_backward": ["pre"]}, {"reverse": True}])
@pytest.mark.parametrize("more", [{"checkpoints": ro.checkpoints.Slots(2, steps=1)}, {"checkpoints": "memory"}])
def test_parts_and_policies(options: dict[str, Any], more: dict[str, Any]) -> None:
    net = words_net(**options)
    device = lambda net: ro.compile(net, tuning=PLAIN, **more)  # noqa: E731
    ro.testing.check_devices(net, feeds_of(), {"plain": device})
    assert not device(net).plan(feeds_of()).plan.compiled.interpreted


def test_gradients_by_layers() -> None:
    net, feeds = words_net(), feeds_of()
    run = ro.compile(net, tuning=PLAIN)
    wanted = plain(run, feeds)
    _, came, _ = by_layers(run, feeds)
    for name, grad in wanted.items():
        np.testing.assert_allclose(came[name], grad, rtol=1e-12, atol=1e-12, err_msg=name)


def test_plan_memory_and_profile_tell_of_steps() -> None:
    run, feeds = ro.compile(words_net(), tuning=PLAIN), feeds_of()
    planned = run.plan(feeds)
    assert "steps are called one by one, as the cell holds a recurrence" in str(planned)
    assert "in each step of 'h_t_all', backward" in str(planned)
    assert "# recurrence 'a_t_all', in each step of 'h_t_all', forward" in planned.source
    assert "called one by one" in planned.memory().note
    parts = ro.compile(words_net(), tuning=PLAIN, checkpoints=ro.checkpoints.Slots(2, steps=1)).plan(feeds).memory()
    assert "called one by one" in parts.note
    assert "in parts" in parts.note
    profile = run.profile(feeds, rounds=1, warm_up=0)
    assert {op.runs for op in profile.forward.ops if op.op == "RecurrentNetwork"} == {"compiled"}


def test_wrong_index_within_a_step_names_the_op() -> None:
    inner = ro.Net("inner")
    a, x = inner.inputs("a", "x")
    inner.outputs(a_t=a + x)
    cell = ro.Net("cell")
    h, table = cell.inputs("h", "table")
    row = cell.input("row", "int64")
    swept = ro.recurrent_net(cell, inner, [], [("a", h)], {"a": "a_t"}, steps=2)
    cell.outputs(h_t=ro.squeeze(swept[1], [0]) + ro.gather(table, row, axis=0))
    net = ro.Net("net")
    net.outputs(
        ro.recurrent_net(net, cell, [("row", net.input("rows", "int64"))], [("h", net.input("h0"))], {"h": "h_t"})[0]
    )
    feeds = {"rows": np.array([[0, 1], [2, 9]]), "h0": np.zeros((2, D)), "table": np.zeros((4, D)), "x": np.ones(D)}
    for device in ("reference", "plain"):
        with pytest.raises(ro.TypeRuleError, match="gather"):
            DEVICES[device](net)(feeds)


def steps_net(cell: ro.Net) -> ro.Net:
    net = ro.Net("steps")
    net.outputs(*ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, steps=3))
    return net


def cell_around(build: Callable[[ro.Net, ro.Blob], ro.Blob]) -> ro.Net:
    """A cell whose inner recurrence gives `every` [3, N, D], of which something is built, and added up over steps."""
    inner = ro.Net("inner")
    inner.outputs(a_t=ro.tanh(inner.input("a")))
    cell = ro.Net("around")
    every, last = ro.recurrent_net(cell, inner, [], [("a", cell.input("h"))], {"a": "a_t"}, steps=3)
    cell.outputs(h_t=ro.squeeze(last, [0]) + ro.reduce_sum(build(cell, every), axes=[0], keepdims=0))
    return cell


BUILDS: dict[str, Callable[[ro.Net, ro.Blob], ro.Blob]] = {
    "dropout": lambda cell, every: ro.dropout(every, 0.5),
    "filled": lambda cell, every: ro.constant_of_shape(cell, ro.shape(every), 0.5) * every,
    "products that mix rows": lambda cell, every: (
        ro.transpose(ro.squeeze(ro.slice(every, [0], [1], [0]), [0])) @ ro.squeeze(ro.slice(every, [1], [2], [0]), [0])
    ),
    "a shape": lambda cell, every: ro.expand(ro.reduce_sum(every, axes=[0]), ro.shape(every)),
}


@pytest.mark.parametrize("checkpoints", [None, "all", "memory"])
@pytest.mark.parametrize("name", BUILDS)
def test_what_follows_from_inner_results(name: str, checkpoints: str | None) -> None:
    net = steps_net(cell_around(BUILDS[name]))
    device = partial(ro.compile, tuning=PLAIN, checkpoints=checkpoints)
    ro.testing.check_devices(net, {"h0": np.ones((2, 3))}, {"plain": device}, seed=1)


@pytest.mark.parametrize("checkpoints", [None, "all", "speed", "memory"])
def test_an_inner_output_that_only_the_outer_output_reads(checkpoints: str | None) -> None:
    """Run again for the backward pass, the inner recurrence has nobody who reads the output, but its own gradient."""
    inner = ro.Net("inner")
    a = inner.input("a")
    inner.outputs(a_t=ro.tanh(a), y=ro.exp(a))
    cell = ro.Net("around")
    results = ro.recurrent_net(cell, inner, [], [("a", cell.input("h"))], {"a": "a_t"}, steps=3)
    cell.outputs(h_t=ro.squeeze(results[1], [0]), y=results[3])
    net, feeds = steps_net(cell), {"h0": np.ones((2, 3))}
    ro.testing.check_gradient(net, feeds, device=partial(ro.compile, device="reference", checkpoints=checkpoints))
    ro.testing.check_devices(net, feeds, {"plain": partial(ro.compile, tuning=PLAIN, checkpoints=checkpoints)})
