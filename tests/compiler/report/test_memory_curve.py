"""Memory over time: its peak and what is there then are those of memory tables, at each moment sums are by hand."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from arena_models import MODELS
from memory_nets import NETS, feeds_of
from small_runs import lstm_net

import rnnops as ro
from rnnops.compiler.memory.allocations import MOMENTS
from rnnops.compiler.report.memory_timeline import LARGEST, LINES, REST, timelines_of
from rnnops.compiler.run.compiled_scan import Options

SVG = "{http://www.w3.org/2000/svg}"


def planned(net: ro.Net, feeds: Any, backward: bool = True) -> Any:
    return ro.compile(net, device="cpu", tuning=Options(compiled=False)).plan(feeds, backward=backward)


def assert_is_the_table(plan: Any) -> None:
    curve, table = plan.memory_curve(), plan.memory()
    assert [one.name for one in curve.passes] == [one.name for one in table.passes]
    for drawn, told in zip(curve.passes, table.passes, strict=True):
        assert drawn.peak == max(drawn.totals) == told.total
        assert drawn.totals.index(drawn.peak) == max(drawn.moment, 0)
        assert {kind: at[max(drawn.moment, 0)] for kind, at in drawn.kinds.items() if at[max(drawn.moment, 0)]} == {
            kind: told.bytes_of(kind) for kind in {row.kind for row in told.rows} if told.bytes_of(kind)
        }
        assert min(min(at) for at in drawn.kinds.values()) >= 0
        assert len(drawn.totals) == MOMENTS * len(drawn.ops) + 1
    assert curve.peak == table.total


@pytest.mark.parametrize("name", NETS)
def test_the_peak_is_that_of_the_table(name: str) -> None:
    net = NETS[name]()
    assert_is_the_table(planned(net, feeds_of(net)))
    assert_is_the_table(planned(net, feeds_of(net), backward=False))


def test_every_moment_is_what_is_there_then() -> None:
    net = NETS["stack"]()
    plan = planned(net, feeds_of(net))
    timelines, _ = timelines_of(plan.plan)
    for timeline, drawn in zip(timelines, plan.memory_curve().passes, strict=True):
        for moment, total in enumerate(drawn.totals):
            there = [one for one in timeline.rows if one.first <= moment <= one.last and one.address is None]
            assert total == sum(one.nbytes for one in there)
        assert any(one.buffer.what == REST for one in timeline.rows)


def test_models_of_many_ops() -> None:
    for name in ("256 words", "perceptron"):
        net, shapes = MODELS[name]()
        plan = planned(net, shapes)
        assert_is_the_table(plan)
        assert all(len(list(one.lines(1 << 30))) <= LINES + LARGEST + 2 for one in plan.memory_curve().passes)


def test_words_name_the_peak_and_its_largest() -> None:
    net = NETS["stack"]()
    curve = planned(net, feeds_of(net)).memory_curve()
    lines = str(curve).splitlines()
    forward, backward = curve.passes
    assert forward.most.head in lines
    assert backward.most.head in lines
    assert sum("largest then:" in line for line in lines) == 2
    for row in (*forward.largest(), *backward.largest()):
        assert any(row.what in line and f"{row.nbytes:,}".replace(",", " ") in line for line in lines)
    assert all(op in str(curve) for one in curve.passes for op in one.ops)


def test_the_picture_says_what_the_words_say() -> None:
    net = NETS["attention"]()
    curve = planned(net, feeds_of(net)).memory_curve()
    root = ElementTree.fromstring(curve.svg)
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert curve.title in texts
    assert {one.most.head for one in curve.passes} <= set(texts)
    assert "peak" in " ".join(texts)
    tips = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sum(tip.endswith("bytes at most") for tip in tips) == sum(len(one.ops) for one in curve.passes)


def test_nothing_is_a_curve_too() -> None:
    for shapes in (
        {"x": (2, 0, 4), "lengths": (0,)},
        {"x": (0, 2, 4), "lengths": (2,)},
        {"x": (0, 0, 4), "lengths": (0,)},
    ):
        for backward in (True, False):
            plan = planned(lstm_net(), shapes, backward)
            assert_is_the_table(plan)
            ElementTree.fromstring(plan.memory_curve().svg)
            ElementTree.fromstring(plan.draw().svg)


def test_a_net_without_ops() -> None:
    net = ro.Net("through")
    net.outputs(y=net.input("x"))
    curve = planned(net, {"x": (2, 3)}, backward=False).memory_curve()
    assert curve.peak == planned(net, {"x": (2, 3)}, backward=False).memory().total
    ElementTree.fromstring(curve.svg)
    assert np.all(np.array(curve.passes[0].totals) >= 0)
