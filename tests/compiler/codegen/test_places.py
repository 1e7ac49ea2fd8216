"""Places: rows of scratch for what one kernel uses, steps and tiles for what others read, tensors for the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.codegen.places import ALIGNMENT, APART, Layouts, lay_out
from rnnops.compiler.run.compiled_scan import CompiledScan

T, N, D, H = 6, 3, 2, 5


def scans(tile: int = 2) -> tuple[CompiledScan, CompiledScan]:
    cell = ro.Net("cell")
    x, h, w, u, v = cell.inputs("x", "h", "w", "u", "v")
    low = ro.softmax(x @ w + h @ u, axis=-1)
    cell.outputs(h_t=ro.tanh(low @ v * x.net.constant(0.5) + h))
    net = recurrent(cell, {"x": "xs"}, {"h": "h_t"})
    (forward,), (backward,) = training_scans(net, tile, xs=(T, N, D), h0=(N, H), w=(D, H), u=(H, H), v=(H, H))
    return forward.compiled, backward.compiled


def laid_out(scan: CompiledScan, threads: int = 1, apart: bool = False) -> Layouts:
    return lay_out(scan.scan, scan.plan, scan.tile, threads, apart=apart)


def test_how_long_a_blob_is_needed() -> None:
    forward, _ = scans()
    extents = {owner: place.extent for owner, place in laid_out(forward).places.items() if place.extent}
    assert extents["add_0"] == "tile", "a batched product fills it for all steps of a tile"
    assert extents["softmax_0/exp_0"] == "row"
    assert extents["mat_mul_2"] == "step", "a product within the step reads what the pointwise kernel wrote"


def test_steps_of_a_tile_lie_one_behind_the_other() -> None:
    forward, _ = scans(tile=3)
    place = laid_out(forward).places["add_0"]
    assert (place.step, place.over, place.row) == (N * H, "i", H)
    assert place.size >= 3 * N * H


def test_threads_have_rows_of_their_own() -> None:
    forward, _ = scans()
    one, four = (laid_out(forward, threads).places["softmax_0/exp_0"] for threads in (1, 4))
    assert four.thread == one.thread >= H
    assert four.size == 4 * one.size


def test_rows_of_different_threads_lie_in_different_pages_of_what_serves_a_step() -> None:
    """Row n of thread k lies at `start + n * row + k * apart`: a page behind the last of the thread before, and no
    further than what is taken."""
    forward, _ = scans()
    place = laid_out(forward, threads=N, apart=True).places["mat_mul_2"]
    rows = [place.start + n * place.row + n * place.apart for n in range(N)]
    item = np.dtype(place.array.removeprefix("w_")).itemsize
    assert all(item * (after - before - place.row) >= APART > 4096 for before, after in pairwise(rows))
    assert rows[-1] + place.row <= place.start + place.size
    assert laid_out(forward, threads=N).places["mat_mul_2"].apart == 0, "devices that have no such threads"


@pytest.mark.parametrize("apart", [False, True])
def test_places_do_not_overlap_and_are_aligned(apart: bool) -> None:
    for scan in scans():
        layouts = laid_out(scan, threads=3, apart=apart)
        taken: dict[str, list[tuple[int, int]]] = {}
        for place in layouts.places.values():
            if place.extent:
                taken.setdefault(place.array, []).append((place.start, place.start + place.size))
        for array, spans in taken.items():
            spans.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(spans)), array
            item = np.dtype(array.removeprefix("w_")).itemsize
            assert all(start * item % ALIGNMENT == 0 for start, _ in spans)
            assert spans[-1][1] <= layouts.scratch[array.removeprefix("w_")]


def test_states_lie_in_their_tensors() -> None:
    forward, backward = scans()
    places = laid_out(forward).places
    new, old = (places[name] for name in ("tanh_0", "h"))
    assert (old.array, old.step, old.over, old.shift) == (new.array, N * H, "t", 0)
    assert new.shift == 1
    rolling = laid_out(backward).places["grad/h_t/carried"]
    assert rolling.ring == 2, "two steps serve the gradient of a state"


def test_what_is_the_same_for_all_rows_each_thread_computes_for_itself() -> None:
    """A blob without rows that passes from program to product would be written by all threads at once."""
    cell = ro.Net("clock")
    h, w, t = cell.input("h"), cell.input("w"), cell.input("t", "int32")
    clock = ro.tanh(ro.cast(t, "float") * ro.cast(cell.constant(np.arange(H), "int64"), "float"))
    cell.outputs(h_t=ro.tanh((h + clock) @ w + clock))
    net = ro.Net("outer")
    results = ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, timestep="t", steps=T)
    net.outputs(y=results[0])
    (forward,), _ = training_scans(net, h0=(N, H), w=(H, H))
    plan = forward.compiled.plan
    assert plan.whole == ""
    (owner,) = (s.target.owner for stage in plan.stages for s in stage.nodes if getattr(s, "blob", "") == "tanh_0")
    assert owner not in plan.batch_axes
    place = laid_out(forward.compiled, threads=3).places[owner]
    assert place.extent == "step"
    assert place.thread >= H
    assert place.size >= 3 * place.thread
