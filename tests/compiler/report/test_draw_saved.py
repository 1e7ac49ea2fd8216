"""Nets of plans as drawings: what is kept and what is computed again has the colours that tables say in words."""

from __future__ import annotations

from memory_nets import NETS, feeds_of
from small_runs import lstm_feeds, lstm_net

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.net.drawing import Box, Drawing


def run_of(net: ro.Net, **options: object) -> ro.Run:
    return ro.compile(net, device="cpu", tuning=Options(compiled=False), **options)


def marks(drawing: Drawing) -> dict[str, str]:
    """Blob -> mark of its box."""
    return {box.named.split(" ")[0]: box.mark for box in drawing.boxes.values()}


def cell_of(drawing: Drawing) -> Drawing:
    (found,) = (box.inner for box in drawing.boxes.values() if box.inner is not None)
    return found


def test_marks_are_those_of_the_table() -> None:
    run, feeds = run_of(lstm_net()), lstm_feeds("float32")
    saved, inner = run.saved_residuals(feeds), marks(cell_of(run.plan(feeds).draw_net()))
    kept = {blob.name for blob in saved.blobs if blob.of and blob.status in ("kept", "alias")}
    assert kept == {blob for blob, mark in inner.items() if mark == "kept"} != set()
    again = {blob for blob, mark in inner.items() if mark == "recomputed"}
    assert again < {blob.name for blob in saved.blobs if blob.status == "recomputed"}, "but for views"
    assert "tanh_1" in again
    assert not {blob for blob in again if blob.startswith("transpose")}


def test_policies_change_colours() -> None:
    feeds = lstm_feeds("float32")
    least = marks(cell_of(run_of(lstm_net(), checkpoints="memory").plan(feeds).draw_net()))
    assert [blob for blob, mark in least.items() if mark == "kept"] == ["s/hidden_t_prev", "s/cell_t_prev"]
    parts = run_of(lstm_net(), checkpoints=ro.checkpoints.Slots(2, steps=1)).plan(feeds).draw_net()
    inner = marks(cell_of(parts))
    assert [blob for blob, mark in inner.items() if mark == "boundary"] == ["s/hidden_t_prev", "s/cell_t_prev"]
    assert {mark for blob, mark in inner.items() if "mat_mul" in blob} == {"recomputed"}, "all steps run again"
    forward = run_of(lstm_net()).plan(feeds, backward=False).draw_net()
    assert set(marks(forward).values()) == {""}


def test_notes_say_bytes_and_titles_the_sum() -> None:
    run, feeds = run_of(lstm_net()), lstm_feeds("float32")
    drawing = run.plan(feeds).draw_net()
    assert drawing.title == f"net lstm: {run.saved_residuals(feeds).total} B kept for the backward pass"
    (tanh,) = (box for box in cell_of(drawing).boxes.values() if box.named.startswith("tanh_0"))
    assert tanh.note == "kept for the backward pass, 120 bytes"
    assert f"<title>{tanh.note}</title>" in drawing.svg


def test_sizes_are_those_of_a_step_in_floats_of_the_run() -> None:
    feeds = lstm_feeds("float64")
    drawing = run_of(lstm_net()).plan(feeds).draw_net()
    assert "kept Tanh: tanh_0 [2, 5]" in drawing.text
    assert "s/gates_t [2, 20]" in drawing.text


def test_constants_in_cells() -> None:
    """They have the floats of the run, and are not computed again where all else is."""
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    cell.outputs(h_t=ro.tanh(x_t + h * 0.5))
    net = ro.Net("halved")
    x, h0 = net.inputs("x", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", x)], [("h", h0)], {"h": "h_t"})[0])
    run = run_of(net, checkpoints=ro.checkpoints.Slots(2, steps=2))
    inner = marks(cell_of(run.plan(x=(6, 2, 3), h0=(2, 3), dtype="float64").draw_net()))
    assert inner["constant_0"] == ""
    assert inner["tanh_0"] == "recomputed"


def test_fused_ops_show_what_they_are() -> None:
    net = ro.Net("chain")
    net.outputs(y=ro.tanh(ro.exp(net.input("x") * 2.0)))
    run = ro.compile(net, device="cpu", tuning=Options(compiled=False, around="rows"))
    (box,) = (box for box in run.plan(x=(40, 8), backward=False).draw_net().boxes.values() if box.kind == "fused")
    assert box.inner is not None
    assert [one.lines[-1] for one in box.inner.boxes.values() if one.kind == "op"][-1].endswith("[40, 8]")
    assert "fused" not in run.plan(x=(40, 8)).draw_net().text, "what is trained is shown before it is fused"


def test_nets_of_all_kinds_are_drawn() -> None:
    for name in ("window", "mixed rows", "attention"):
        net = NETS[name]()
        boxes = [*run_of(net).plan(feeds_of(net)).draw_net().boxes.values()]
        assert {"input", "recurrence", "output"} <= {box.kind for box in boxes}
        assert all(isinstance(box, Box) and box.lines for box in boxes)
