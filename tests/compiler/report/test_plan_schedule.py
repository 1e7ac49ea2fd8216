"""Schedules of plans: values are those of the plan and of what drivers do, and pictures say what the words say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from memory_nets import NETS, N, T, feeds_of, recurrent_model
from small_runs import lstm_feeds, lstm_net

import rnnops as ro
from rnnops.compiler.lower.expressions import Literal, Name, share_of
from rnnops.compiler.lower.statements import Contraction, StepProduct
from rnnops.compiler.report.describe import compiled_ops
from rnnops.compiler.report.schedule import ONCE, STEP, TILE, OpsSchedule, ScanSchedule, ranged, share_out
from rnnops.compiler.run.compiled_scan import Options

SVG = "{http://www.w3.org/2000/svg}"


def planned(net: ro.Net, feeds: Any, threads: int = 1, tile: int | None = None, **options: Any) -> Any:
    tuning = Options(compiled=threads > 1, tile=tile)  # nothing is loaded, so that nothing is compiled
    return ro.compile(net, device="cpu", threads=threads, tuning=tuning, **options).plan(feeds)


def scans(plan: Any) -> list[ScanSchedule]:
    return [part for one in plan.draw().passes for part in one.parts if isinstance(part, ScanSchedule)]


@pytest.mark.parametrize("name", NETS)
def test_values_are_those_of_the_plan(name: str) -> None:
    net = NETS[name]()
    plan = planned(net, feeds_of(net), threads=2)
    runners = [runner for _, _, runner in compiled_ops(plan.plan) if runner is not None]
    parts = scans(plan)
    assert len(parts) == len(runners) > 0
    for part, runner in zip(parts, runners, strict=True):
        compiled = runner.compiled
        stages = [lane for lane in part.lanes if lane.when != ONCE or not part.steps]
        assert part.steps in (0, compiled.scan.steps)
        if part.steps:
            stages = [lane for lane in part.lanes if lane.when in (TILE, STEP)]
            assert [lane.when == STEP for lane in stages] == [stage.loop for stage in compiled.plan.stages]
        products = [
            node
            for stage in compiled.plan.stages
            for node in stage.nodes
            if isinstance(node, StepProduct | Contraction)
        ]
        assert [line for lane in stages for line in lane.work if "@" in line] == list(map(str, products))
        adds = sum(node.rows * node.inner * node.columns for node in products) * compiled.scan.steps
        assert sum(lane.gflop for lane in part.lanes) == pytest.approx(2e-9 * adds)
        demand = runner.demand()
        buffers = (*demand.made, *demand.sums, *demand.late, *demand.lent, *demand.lasting)
        assert sum(part.nbytes.values()) == sum(buffer.nbytes for buffer in buffers)


def test_tiles_are_those_of_drivers() -> None:
    net = recurrent_model("LSTM", False, False, 2)
    forward, backward = scans(planned(net, feeds_of(net), tile=32))
    assert forward.tiles() == [(0, 32), (32, 64), (64, 96), (96, 100)]
    assert backward.tiles() == [(68, 100), (36, 68), (4, 36), (0, 4)]
    assert "4 tiles, of steps 68 to 99, 36 to 67, 4 to 35, 0 to 3" in " ".join(str(line) for line in backward.lines())
    assert (forward.steps, forward.tile, backward.reverse) == (T, 32, True)


def test_threads_take_what_drivers_give_them() -> None:
    rank, parts, things = Name("rank"), Name("parts"), Name("things")
    for block in (1, 3, 16):
        first, last = (str(bound) for bound in share_of(rank, parts, things, Literal(block)))
        for threads in (1, 2, 3, 7):
            for count in (0, 1, 5, 16, 100):
                shares = share_out(count, threads, block)
                names = [{"rank": r, "parts": threads, "things": count, "min": min} for r in range(threads)]
                assert list(shares) == [(eval(first, dict(one)), eval(last, dict(one))) for one in names]
                assert (shares[0][0], shares[-1][1]) == (0, count)
                assert all(a[1] == b[0] for a, b in pairwise(shares))


def test_rows_and_columns_are_shared_out() -> None:
    net = recurrent_model("LSTM", False, False, 2)
    forward, _ = scans(planned(net, feeds_of(net), threads=2))
    assert forward.shares == {"rows": ((0, N // 2), (N // 2, N))}
    one_row = {name: array[:, :1] if name == "x" else array[:1] if array.ndim == 2 and name in ("h0", "c0") else array
               for name, array in feeds_of(net).items()}  # fmt: skip
    (forward, *_) = scans(planned(net, one_row, threads=2))
    assert dict(forward.shares)["1024 columns"] == ((0, 528), (528, 1024))
    assert not scans(planned(net, feeds_of(net)))[0].shares, "one thread takes all"


def test_rows_that_are_over_come_after_the_others_and_before_them_in_reverse() -> None:
    forward, backward = scans(planned(lstm_net(), lstm_feeds("float32")))
    heads = [[lane.head for lane in part.lanes if lane.when != ONCE] for part in (forward, backward)]
    assert [head.startswith("rows that are over") for head in heads[0]] == [*[False] * (len(heads[0]) - 1), True]
    assert [head.startswith("rows that are over") for head in heads[1]] == [True, *[False] * (len(heads[1]) - 1)]


def test_other_ops_have_their_place() -> None:
    net = NETS["stack"]()
    forward, backward = planned(net, feeds_of(net)).draw().passes
    kinds = [type(part) for part in forward.parts]
    assert kinds[0] is ScanSchedule
    assert OpsSchedule in kinds
    listed = [op for part in forward.parts if isinstance(part, OpsSchedule) for op in part.ops]
    assert "Reshape -> reshape_0" in listed
    assert backward.name == "backward"


def nested_net() -> ro.Net:
    """A cell that holds a recurrence, which Python steps through."""
    inner = ro.Net("inner")
    a, s = inner.inputs("a", "s")
    inner.outputs(s_t=ro.tanh(a + s))
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    s_all, _ = ro.recurrent_net(cell, inner, [("a", ro.unsqueeze(x, [0]))], [("s", h)], {"s": "s_t"})
    cell.outputs(h_t=ro.squeeze(s_all, [0]))
    net = ro.Net("nested")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"})[0])
    return net


def test_all_ways_to_run() -> None:
    net, feeds = lstm_net(), lstm_feeds("float32")
    reference = ro.compile(net, device="reference").plan(feeds).draw()
    assert all(isinstance(part, OpsSchedule) for one in reference.passes for part in one.parts)
    assert "recurrence 's/hidden_t_all', in the interpreter" in reference.text
    parted = planned(net, feeds, checkpoints=ro.checkpoints.Slots(2, steps=1)).draw()
    assert "in parts: 2 slots" in parted.text
    assert "rows that are over, loop over steps" in parted.text
    (alone,) = ro.compile(net, device="cpu", tuning=Options(compiled=False)).plan(feeds, backward=False).draw().passes
    assert alone.name == "forward"
    stepped = planned(nested_net(), {"xs": (5, 2, 4), "h0": (2, 4)}).draw().text
    assert "steps one by one" in stepped
    assert "in each step of" in stepped


def test_the_picture_says_what_the_words_say() -> None:
    for net, more in ((NETS["attention"](), {}), (recurrent_model("GRU", True, True, 2), {"threads": 3, "tile": 10})):
        schedule = planned(net, feeds_of(net), **more).draw()
        said = " ".join(str(schedule).split())
        texts = [text.text or "" for text in ElementTree.fromstring(schedule.svg).iter(f"{SVG}text")]
        known = ("steps", "once", "step by step", "all steps", "…", "forward pass", "backward pass", "memory")
        for text in texts:
            shown = " ".join(text.removesuffix("…").split())
            if not text.startswith(known) and not any(one.isdigit() for one in text[:1]):
                assert shown.split(" of ")[0] in said or shown in said, text
        assert schedule.title in texts


def test_shares_in_words() -> None:
    assert [ranged(one) for one in ((0, 8), (3, 4), (5, 5))] == ["0 to 7", "3", "none"]
    assert np.all([first <= end for first, end in share_out(10, 4, 3)])
