"""Recurrences that Python steps through on the CUDA device: arrays stay there, numbers are the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from cuda_runs import assert_same, on_device
from fake_driver import fake_device
from transfers import counted_transfers
from whole_grid import whole_grid
from word_nets import T, feeds_of, stacks_feeds, stacks_net, words_net

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets import target
from rnnops.compiler.targets.cuda import target as cuda_target
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda.device_array import DeviceArray
from rnnops.kernels.cuda.facade import stream_of

pytestmark = on_cuda
Slots = ro.checkpoints.Slots
Case = tuple[Callable[[], ro.Net], dict[str, Any]]


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


def window_net() -> ro.Net:
    """A state whose last two steps a step sees, another of which nobody reads all steps, and a sequence backwards."""
    cell = ro.Net("cell")
    x, before, total, w = cell.inputs("x", "before", "total", "w")
    h = ro.tanh(x + ro.reduce_sum(before, axes=[0], keepdims=0) @ w)
    cell.outputs(h_t=h, total_t=total + h * h, seen=h * total)
    net = ro.Net("windows")
    xs, h0, s0 = net.inputs("xs", "h0", "s0")
    links = {"before": ro.Link("h_t", window=2), "total": "total_t"}
    h_all, _, _, total, seen, _ = ro.recurrent_net(
        net, cell, [("x", xs)], [("before", h0), ("total", s0)], links, reverse=True
    )
    net.outputs(h=h_all, total=total, seen=seen)
    return net


def lstm_net() -> ro.Net:
    net = ro.Net("lstm")
    h, last, *_ = ro.LSTM(net, net.input("xs"), net.input("lengths", "int32"), None, 3, 4)
    net.outputs(h=h, last=last)
    return net


def given_to(net: ro.Net, dtype: str = "float64") -> dict[str, Any]:
    """Feeds of one of the nets of this module."""
    if net.name == "text":
        return stacks_feeds(net, dtype) if "counts" in net.input_names else feeds_of(dtype)
    random = np.random.default_rng(0)
    shapes = {"xs": (6, 2, 3), "h0": (2, 2, 3), "s0": (3,), "w": (3, 3)}
    shapes.update({spec.name: spec.shape for spec in net.parameters})
    feeds = {name: random.normal(size=shapes[name]).astype(dtype) for name in net.input_names if name in shapes}
    return {**feeds, **({"lengths": np.array([6, 4], "int32")} if "lengths" in net.input_names else {})}


def run_of(net: ro.Net, weights: str = "", blocks: int = 2, **options: Any) -> ro.Run:
    tuning = Options(tile=2, around="rows", device=Cuda(lanes=2, blocks=blocks, weights=weights))
    return ro.compile(net, device="cuda", tuning=tuning, **options)


CASES: dict[str, Case] = {
    "recurrences in cells": (words_net, {}),
    "stacks, lengths, timesteps": (stacks_net, {}),
    "stacks in reverse, slots": (lambda: stacks_net(reverse=True), {"checkpoints": Slots(2, steps=1)}),
    "rows that are mixed, all of a step": (lambda: words_net(mixes_rows=True), {"checkpoints": Slots(2, "step", 3)}),
    "windows, states": (window_net, {"checkpoints": Slots(2)}),
    "windows, either": (window_net, {"checkpoints": Slots(3, "mixed", steps=2, cost=2)}),
    "lstm, states": (lstm_net, {"checkpoints": Slots(2, steps=2)}),
    "lstm, all of a part": (lstm_net, {"checkpoints": Slots(1, "step", steps=4)}),
    "lstm, a budget": (lstm_net, {"memory_budget": 0.55}),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_the_reference(name: str) -> None:
    """Memory is full of NaN before it is written, in the simulator."""
    build, options = CASES[name]
    net = build()
    feeds = given_to(net)
    ro.testing.check_devices(net, on_device(feeds), {"cuda": partial(run_of, **options)})


@in_simulator
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied_but_feeds_and_results(name: str) -> None:
    build, options = CASES[name]
    net = build()
    run, feeds = run_of(net, blocks=1, **options), given_to(net)
    given = on_device(feeds)
    run(given)  # numbers that kernels read go to the device at the first run
    out, pullback = run.vjp(given)
    heads = {name: np.ones(array.shape) for name, array in out.items()}
    pullback(heads)
    there = on_device(heads)
    with counted_transfers() as count:
        run(given)
        _, pullback = run.vjp(given)
        pullback(there)
    assert count.both == (0, 0)
    with counted_transfers() as count:
        run(feeds)
    assert count.both == (len(feeds), len(out))
    with counted_transfers() as count:
        _, pullback = run.vjp(feeds)
    assert count.both == (len(feeds), len(out))
    with counted_transfers() as count:
        grads = pullback(heads)
    assert count.both == (len(heads), len(grads))


@pytest.mark.parametrize("place", [on_device, dict], ids=["device", "host"])
def test_results_are_where_feeds_were(place: Any) -> None:
    net = stacks_net()
    feeds, kind = given_to(net), DeviceArray if place is on_device else np.ndarray
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {name: np.ones_like(array) for name, array in wanted.items()}
    run = run_of(net, checkpoints=Slots(2, steps=1))
    came, back = run.vjp(place(feeds))
    assert_same(came, wanted, kind)
    assert_same(back(place(ones)), pullback(ones), kind)
    with pytest.raises(ro.GradientError, match="used already"):
        back(place(ones))


@pytest.mark.parametrize(("weights", "most"), [("float16", 5e-3), ("", 2e-5)])
@pytest.mark.parametrize("name", ["stacks, lengths, timesteps", "lstm, states"])
def test_float32_and_weights_of_float16(name: str, weights: str, most: float) -> None:
    build, options = CASES[name]
    net = build()
    feeds = given_to(net, "float32")
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {name: np.ones_like(array) for name, array in wanted.items()}
    exact = pullback(ones)
    came, back = run_of(net, weights, **options).vjp(feeds)
    grads = back(ones)
    errors = [np.abs(came[name] - wanted[name]).max() for name in wanted]
    errors += [np.abs(grads[name] - exact[name]).max() / max(np.abs(exact[name]).max(), 1) for name in exact]
    assert max(errors) <= most
    assert (max(errors) > 2e-5) == bool(weights)


def test_outputs_that_backward_reads_are_lent_and_kept_blobs_are_told() -> None:
    out, pullback = run_of(words_net()).vjp(on_device(feeds_of()))
    with pytest.raises(ValueError, match="read-only"):
        out["shown_all"].fill(1)
    assert {type(array) for array in pullback.held_arrays().values()} == {DeviceArray}
    assert any("a_t_all" in name for name in pullback.held_arrays()), "also of recurrences within"
    _, exact = ro.compile(words_net(), device="reference").vjp(feeds_of())
    for name in ("shown", "a_t_all"):
        assert type(pullback.step_blobs(name)) is DeviceArray
        np.testing.assert_allclose(pullback.step_blobs(name).to_host(), exact.step_blobs(name), rtol=1e-12)


def test_a_changed_loan_is_found() -> None:
    net = words_net()
    run = ro.testing.checked_loans(run_of(net))
    given = on_device(given_to(net))
    out, pullback = run.vjp(given)
    given["words"][0] = 3.0
    with pytest.raises(ro.testing.CheckError, match="'words' was changed"):
        pullback({"h_t_all": np.ones(out["h_t_all"].shape)})


@in_simulator
@pytest.mark.parametrize("cupy", [False, True])
def test_a_driver_copies_feeds_and_results_alone_in_one_stream(cupy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels do not run here; what there is to do for them does."""
    net = stacks_net()
    feeds = given_to(net)
    monkeypatch.setattr(cuda_target, "load_module", target._load.__wrapped__)  # its kernels are of this driver alone
    with fake_device(cupy) as fakes:
        run = run_of(net, checkpoints=Slots(2, steps=1))
        for round_ in range(2):
            fakes.log.clear()
            out, pullback = run.vjp(feeds, stream=stream_of(7))
            grads = pullback({name: np.ones_like(array) for name, array in out.items()})
            if round_:
                assert len(fakes.said("to device")) == len(feeds) + len(out)
                assert len(fakes.said("to host")) == len(out) + len(grads)
                assert {entry[3] for entry in fakes.said("launch")} == {7}
                assert {entry[-1] for entry in fakes.said("to device", "to host", "memset")} == {7}
                assert len(fakes.said("launch")) > 10 * T


def test_dropout_in_steps_draws_what_the_reference_draws() -> None:
    inner = ro.Net("inner")
    a, w = inner.inputs("a", "w")
    inner.outputs(a_t=ro.dropout(ro.tanh(a @ w), 0.5))
    cell = ro.Net("cell")
    last = ro.recurrent_net(cell, inner, [], [("a", cell.input("h"))], {"a": "a_t"}, steps=2)[1]
    cell.outputs(h_t=ro.dropout(ro.squeeze(last, [0]), 0.25) + cell.input("x"))
    net = ro.Net("dropped")
    net.outputs(*ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h_t"}))
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=shape) for name, shape in {"xs": (3, 2, 4), "h0": (4,), "w": (4, 4)}.items()}
    for options in ({}, {"checkpoints": Slots(2, steps=1)}):
        run = partial(run_of, **options)
        ro.testing.check_devices(net, feeds, {"cuda": run}, seed=3)


def lookups_net() -> ro.Net:
    """A recurrence whose cell holds one, and looks rows of a table up."""
    inner = ro.Net("inner")
    a, x = inner.inputs("a", "x")
    inner.outputs(a_t=a + x)
    cell = ro.Net("cell")
    h, table, row = cell.input("h"), cell.input("table"), cell.input("row", "int64")
    swept = ro.recurrent_net(cell, inner, [], [("a", h)], {"a": "a_t"}, steps=2)
    cell.outputs(h_t=ro.squeeze(swept[1], [0]) + ro.gather(table, row, axis=0))
    net = ro.Net("net")
    rows = net.input("rows", "int64")
    net.outputs(ro.recurrent_net(net, cell, [("row", rows)], [("h", net.input("h0"))], {"h": "h_t"})[0])
    return net


ROWS = {"rows": np.array([[0, 1], [2, 3]]), "h0": np.zeros((2, 3)), "table": np.zeros((4, 3)), "x": np.ones(3)}


def test_a_wrong_index_within_a_step_names_the_op() -> None:
    net = lookups_net()
    run = run_of(net)
    wrong = on_device({**ROWS, "rows": np.array([[0, 1], [2, 9]])})
    for call in (run, run.vjp):
        with pytest.raises(ro.TypeRuleError, match=r"gather.*9"):
            call(wrong)
    out, pullback = run.vjp(ROWS)
    pullback({"h_t_all": np.ones_like(out["h_t_all"])})  # nothing is left of it
    ro.testing.check_devices(net, ROWS, {"cuda": run_of})


@in_simulator
def test_whether_indices_were_in_range_is_asked_once_a_pass() -> None:
    run, given = run_of(lookups_net()), on_device(ROWS)
    out, pullback = run.vjp(given)
    pullback(on_device({"h_t_all": np.ones(out["h_t_all"].shape)}))
    ones = on_device({"h_t_all": np.ones(out["h_t_all"].shape)})
    with counted_transfers() as count:
        _, pullback = run.vjp(given)
    assert count.both == (0, 1)
    given["rows"][0] = 7  # in what is borrowed
    with counted_transfers() as count, pytest.raises(ro.TypeRuleError, match=r"net 'net': an index .*Were feeds"):
        pullback(ones)
    assert count.both == (0, 1)
