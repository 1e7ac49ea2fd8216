"""`run.profile`: averages of a clock that is known, what warm-up leaves out, bytes, tables and dicts, bad arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from arena_models import perceptron
from small_runs import lstm_feeds, lstm_net, product_net, same

import rnnops as ro
from rnnops.compiler.api import run as run_module
from rnnops.compiler.run.compiled_scan import CompiledScan, Options


def plain_run(net: ro.Net, **options: Any) -> ro.Run:
    return ro.compile(net, device="cpu", tuning=Options(compiled=False), **options)


def ticking(durations: Iterator[float]) -> Callable[[], float]:
    """A clock on which so much time passes between readings, one duration after another."""
    now = [0.0]

    def clock() -> float:
        now[0] += next(durations)
        return now[0]

    return clock


def test_warm_up_is_in_no_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ops, four readings for them and two for the pass; the first two rounds are a thousand times slower."""
    readings = chain(repeat(1000.0, 2 * 6), repeat(1.0))
    monkeypatch.setattr(run_module, "perf_counter", ticking(readings))
    run = ro.compile(product_net(), device="reference")
    feeds = {"x": np.ones((2, 3)), "w": np.ones((3, 4))}
    found = run.profile(feeds, backward=False, rounds=5, warm_up=2)
    assert [(one.op, one.result, one.calls, one.seconds) for one in found.forward.ops] == [
        ("MatMul", "mat_mul_0", 5, 1.0),
        ("Tanh", "tanh_0", 5, 1.0),
    ]
    assert found.forward.seconds == 5.0
    assert found.backward is None


def test_a_slow_round_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = chain(repeat(1.0, 6), repeat(10.0, 6), repeat(1.0))
    monkeypatch.setattr(run_module, "perf_counter", ticking(readings))
    run = ro.compile(product_net(), device="reference")
    found = run.profile(x=np.ones((2, 3)), w=np.ones((3, 4)), backward=False, rounds=3, warm_up=0)
    assert [one.seconds for one in found.forward.ops] == [4.0, 4.0]
    assert found.forward.seconds == 20.0


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_every_op_of_both_passes(device: str) -> None:
    net = lstm_net()
    run = plain_run(net) if device == "cpu" else ro.compile(net, device="reference")
    feeds = lstm_feeds()
    found, plan = run.profile(feeds, rounds=2, warm_up=1), run.plan(feeds).plan
    assert found.backward is not None
    for one, program in ((found.forward, plan.program), (found.backward, plan.backward)):
        assert [(op.op, op.result, op.calls) for op in one.ops] == [(c.op.type, c.op.key, 2) for c in program.calls]
        assert 0 < sum(op.seconds for op in one.ops) <= one.seconds
    runs = {op.op: op.runs for op in found.forward.ops}
    assert runs["RecurrentNetwork"] == ("compiled" if device == "cpu" else "interpreter")


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_recurrences_in_parts_are_one_op_each(device: str) -> None:
    options: dict[str, Any] = {"checkpoints": ro.checkpoints.Slots(2)}
    run = plain_run(lstm_net(), **options) if device == "cpu" else ro.compile(lstm_net(), device=device, **options)
    found = run.profile(lstm_feeds(), rounds=2, warm_up=1)
    assert found.backward is not None
    for one in (*found.forward.ops, *found.backward.ops):
        assert one.calls == 2
        assert one.seconds > 0
        if one.op.startswith("RecurrentNetwork"):
            assert one.runs == ("compiled" if device == "cpu" else "interpreter")
            assert one.nbytes > 0


def test_bytes_are_those_of_the_memory_that_results_lie_in() -> None:
    T, N, H = 3, 2, 5
    forward = plain_run(lstm_net()).profile(lstm_feeds(), rounds=1, warm_up=0).forward
    nbytes = {op.result: op.nbytes for op in forward.ops}
    states, gates = 2 * (T + 1) * N * H, 4 * T * N * H
    assert nbytes["s/hidden_t_all"] == 8 * (states + gates)


def test_a_profile_changes_nothing() -> None:
    run, feeds = plain_run(lstm_net()), lstm_feeds()
    before = run(feeds)
    run.profile(feeds, rounds=1, warm_up=0)
    run.profile(feeds, backward=False, rounds=1, warm_up=0)
    same(run(feeds), before)
    assert type(run._forward).__name__ == type(run._training).__name__ == "PlanCache"
    assert len(run._forward) == len(run._training) == 1, "plans are shared, not made again"


@pytest.mark.parametrize("recycle", [False, True])
def test_kernels_share_memory_as_in_a_call(recycle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledScan, "_function", lambda *arguments: None)
    net = perceptron()
    run = ro.compile(net, recycle=recycle, tuning=Options(compiled=False, around="rows"))
    feeds = {**ro.init_params(net, 0, "float32"), "x": np.zeros((160, 64), "float32")}
    run.profile(feeds, rounds=1, warm_up=1)
    assert len(run._options.pool._idle) == 1


def test_tables_and_dicts_say_the_same() -> None:
    found = plain_run(lstm_net()).profile(lstm_feeds(), rounds=2, warm_up=1)
    text, numbers = str(found), found.as_dict()
    assert text.startswith("averages of 2 rounds after 1 to warm up\n\nforward pass: ")
    assert "\nbackward pass: " in text
    assert "around ops" in text
    lines = text.split("\n\n")[1].splitlines()[1:]
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    assert numbers["rounds"] == 2
    assert numbers["forward"]["ops"][0].keys() == {"op", "result", "runs", "calls", "seconds", "nbytes"}
    assert numbers["backward"]["seconds"] == found.backward.seconds if found.backward else False
    json.dumps(numbers)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 1.5}, {"rounds": True}, {"warm_up": -1}, {"warm_up": "3"}])
def test_numbers_of_rounds_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ro.FeedError, match=next(iter(wrong))):
        plain_run(lstm_net()).profile(lstm_feeds(), **wrong)


def test_bad_feeds_are_those_of_a_call() -> None:
    with pytest.raises(ro.FeedError, match="lengths"):
        plain_run(lstm_net()).profile({"x": np.ones((2, 2, 4))})


def test_outputs_that_take_no_gradient_get_none() -> None:
    net = ro.Net("net")
    x = net.inputs("x")
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    cell.outputs(h_t=ro.tanh(x_t + h), extra=ro.exp(x_t))
    h0 = net.inputs("h0")
    results = ro.recurrent_net(net, cell, [("x_t", x)], [("h", h0)], {"h": "h_t"}, outputs_with_grads=(0,))
    net.outputs(y=results[0], extra=results[2], count=ro.shape(x))
    feeds = {"x": np.ones((3, 2, 4)), "h0": np.ones((2, 4))}
    found = ro.compile(net, device="reference").profile(feeds, rounds=1, warm_up=0)
    assert found.backward is not None


def test_a_trace_is_what_ran_when(tmp_path: Path) -> None:
    """Ops lie within passes, in the order in which they ran; their averages are those of the tables."""
    run = ro.compile(product_net(), device="reference")
    found = run.profile({"x": np.ones((2, 3)), "w": np.ones((3, 4))}, rounds=3, warm_up=1)
    file = tmp_path / "trace.json"
    file.write_text("older")
    found.trace(file)
    head, *events = json.loads(file.read_text())["traceEvents"]
    assert head["args"]["name"] == "rnnops, 3 rounds"
    assert {event["ph"] for event in events} == {"X"}
    passes = [event for event in events if event["cat"] == "pass"]
    assert [event["name"] for event in passes] == ["forward", "backward"] * 3
    assert events[0]["ts"] == 0.0
    ends = [(event["ts"], event["ts"] + event["dur"]) for event in passes]
    for event in events:
        assert any(start <= event["ts"] and event["ts"] + event["dur"] <= end + 1e-6 for start, end in ends)
    for one in found.forward.ops:
        mine = [
            event["dur"] for event in events if event["name"] == f"{one.op} {one.result}" and event["cat"] == one.runs
        ]
        assert len(mine) == one.calls == 3
        assert np.mean(mine) == pytest.approx(1e6 * one.seconds)
    with pytest.raises(OSError, match="no folder"):
        found.trace(tmp_path / "nowhere" / "trace.json")


def test_what_notebooks_show() -> None:
    """Tables as HTML; names are text, whatever they hold."""
    net = ro.Net("<b>bold</b>")
    net.outputs(y=ro.tanh(net.input("x")))
    run = ro.compile(net, device="reference")
    plan = run.plan(x=(2, 3))
    for shown in (net, plan, plan.memory(), run.profile(x=np.ones((2, 3)), rounds=1, warm_up=0)):
        parts = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
        text = "".join(parts.itertext())
        assert not list(parts.iter("b"))
        assert ("<b>" in text) == (shown in (net, plan))
        lines = {cell for line in str(shown).splitlines() for cell in line.split()}
        missing = {word for word in lines if word not in text}
        assert not missing


def test_a_profile_that_took_no_time_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a clock of coarse ticks."""
    monkeypatch.setattr(run_module, "perf_counter", lambda: 0.0)
    net = ro.Net("same")
    net.outputs(y=net.input("x"))
    for run in (ro.compile(net), ro.compile(product_net())):
        feeds = {name: np.ones((2, 2), "float32") for name in run.net.input_names}
        found = run.profile(feeds, rounds=1)
        assert "0.000 ms" in str(found)
        assert "forward pass" in found._repr_html_()
