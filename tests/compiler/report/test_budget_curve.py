"""Budget curves: each point is what such a budget takes, the last one the least that is enough."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from small_runs import lstm_feeds, lstm_net, product_net

import rnnops as ro
from rnnops.compiler.report.costs import BudgetCurve
from rnnops.compiler.run.compiled_scan import Options

STEPS = 12
SVG = "{http://www.w3.org/2000/svg}"


def run_of(net: ro.Net, **options: Any) -> ro.Run:
    return ro.compile(net, device="cpu", tuning=Options(compiled=False), **options)


@pytest.fixture(scope="module")
def curve() -> BudgetCurve:
    return run_of(lstm_net()).budget_curve(lstm_feeds("float32", steps=STEPS))


def test_each_point_is_what_its_budget_takes(curve: BudgetCurve) -> None:
    feeds = lstm_feeds("float32", steps=STEPS)
    assert len(curve.rows) > 4
    for row in (*curve.rows[:-1:4], curve.rows[-1]):
        assert run_of(lstm_net(), memory_budget=row.nbytes).memory_estimate(None, feeds) == row
    with pytest.raises(ro.BudgetError, match=f"at least {curve.least} bytes"):
        run_of(lstm_net(), memory_budget=curve.least - 1).memory_estimate(None, feeds)


def test_the_last_is_the_least_where_points_lie_close() -> None:
    """Most of the bytes are around the recurrence, whatever it keeps."""
    net = ro.Net("wide")
    h_all, *_ = ro.LSTM(net, net.input("x"), None, None, 4, 4, scope="s")
    net.outputs(y=ro.tanh(h_all @ net.parameter("w", (4, 16))))
    curve = run_of(net).budget_curve(x=(12, 2, 4))
    assert curve.rows[-1].nbytes > 0.95 * curve.rows[-2].nbytes
    with pytest.raises(ro.BudgetError, match=f"at least {curve.least} bytes"):
        run_of(net, memory_budget=curve.least - 1).plan(x=(12, 2, 4))


def test_bytes_fall_and_the_most_is_all(curve: BudgetCurve) -> None:
    nbytes = [row.nbytes for row in curve.rows]
    assert nbytes == sorted(set(nbytes), reverse=True)
    assert curve.rows[0].policy == "all"
    assert curve.rows[0].time == 1.0 < curve.rows[-1].time


def test_what_the_run_does_is_marked(curve: BudgetCurve) -> None:
    feeds = lstm_feeds("float32", steps=STEPS)
    assert curve.chosen == run_of(lstm_net()).memory_estimate(None, feeds)
    memory = run_of(lstm_net(), checkpoints="memory").budget_curve(feeds)
    assert memory.chosen.policy == "memory"
    assert f"this run: {memory.chosen}" in memory.text
    assert memory.rows == curve.rows


def test_words_and_picture_say_the_same(curve: BudgetCurve) -> None:
    lines = curve.text.splitlines()
    assert lines[0] == curve.title
    assert len(lines) == 3 + len(curve.rows)
    assert lines[-2].endswith(curve.rows[-1].policy)
    tips = [title.text or "" for title in ElementTree.fromstring(curve.svg).iter(f"{SVG}title")]
    for row in curve.rows:
        assert any(row.policy in tip and f"{row.nbytes:,}".replace(",", " ") in tip for tip in tips)
    assert sum(tip.startswith("this run") for tip in tips) == 1


def test_a_net_without_recurrences() -> None:
    found = run_of(product_net()).budget_curve(x=(3, 4), w=(4, 5))
    assert found.rows
    ElementTree.fromstring(found.svg)
