"""Recurrences that run segments again: what they keep, where they do, and the same gradients as without."""

from __future__ import annotations

import numpy as np
import pytest
from devices import PLAIN
from matrix_cells import CELLS, Feeds, assert_close, assert_equal, case, ending, over_time, results

import rnnops as ro
from rnnops.compiler.memory import choose_saved
from rnnops.compiler.memory.choose_saved import goes_in_segments, seconds
from rnnops.compiler.run import segments
from rnnops.compiler.run.backward import BackwardScan
from rnnops.compiler.run.forward import ForwardScan
from rnnops.compiler.schedule import batch_axis


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can go in segments does, on as many threads as may be."""
    monkeypatch.setattr(choose_saved, "CACHE", 0)
    monkeypatch.setattr(choose_saved, "SPEED", 1e15)
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)


def scans(net: ro.Net, feeds: Feeds, **options: object) -> tuple[ForwardScan, BackwardScan]:
    """What runs the recurrence of a net."""
    plan = ro.compile(net, **options).plan(feeds).plan  # type: ignore[arg-type]
    (forward,), (backward,) = plan.compiled.forward.values(), plan.compiled.backward.values()
    return forward, backward


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_as_the_reference_has_it(name: str, reverse: bool) -> None:
    for T, N in ((1, 3), (8, 3), (43, 3), (43, 1)):
        net, feeds = case(name, T=T, N=N, dtype="float64", reverse=reverse)
        assert scans(net, feeds)[1].again is not None or T == 1
        assert_close(results(net, feeds), results(net, feeds, device="reference"), 1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_threads_change_no_bit(name: str) -> None:
    for N in (3, 1):
        net, feeds = case(name, T=43, N=N)
        one = results(net, feeds, threads=1)
        for threads in (2, 3):
            assert_equal(results(net, feeds, threads=threads), one)


def test_heads_of_one_row_are_rows() -> None:
    net, feeds = case("mlstm", N=1)
    for options in ({}, {"checkpoints": "all"}):
        assert [one.compiled.plan.heads for one in scans(net, feeds, **options)] == [2, 2]
        assert [one.compiled.threads for one in scans(net, feeds, threads=2, **options)] == [2, 2]


def test_channels_of_few_numbers_are_no_rows() -> None:
    net, feeds = case("selective", N=1)
    assert [one.compiled.plan.heads for one in scans(net, feeds)] == [1, 1]


def test_plain_python_does_the_same() -> None:
    net, feeds = case("delta_net", T=10, N=2)
    assert_close(results(net, feeds, device="cpu", tuning=PLAIN), results(net, feeds), 1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("drop", "reverse"), [(0, False), (0, True), (1, False)])
def test_rows_that_end(drop: int, reverse: bool, masked: bool) -> None:
    """Three tiles, in which rows are over, not over, or both."""
    for N in (5, 1):
        net, feeds = ending(T=37, N=N, drop=drop, masked=masked, reverse=reverse)
        forward, backward = scans(net, feeds)
        assert backward.again is not None
        assert [one.compiled.plan.lengths for one in (forward, backward)] == ["lengths", "lengths"]
        found = results(net, feeds, threads=2)
        assert_close(found, results(net, feeds, device="reference"), 1e-12)
        assert_equal(results(net, feeds, threads=1), found)
        assert_close(results(net, feeds, checkpoints="all"), found, 1e-12)


def test_rows_that_end_in_plain_python_and_for_other_lengths() -> None:
    net, feeds = ending(T=9, N=3, width=16)
    wanted = results(net, feeds, device="reference")
    assert_close(results(net, feeds, device="cpu", tuning=PLAIN), wanted, 1e-12)
    run = ro.compile(net)
    for lengths in ([9, 9, 9], [0, 0, 0], [3, 8, 5]):
        feeds["lengths"][:] = lengths
        assert_close(run(feeds), ro.compile(net, device="reference")(feeds), 1e-12)


def test_padding_that_is_no_number_reaches_no_gradient() -> None:
    net, feeds = ending(T=20, N=4, masked=True)
    wanted = ro.compile(net).vjp(feeds)[1]({"last_C": np.ones((1, 4, 2, 16, 16))})
    for row, length in enumerate(feeds["lengths"]):
        feeds["seq_v"][length:, row] = np.nan
    assert_equal(ro.compile(net).vjp(feeds)[1]({"last_C": np.ones((1, 4, 2, 16, 16))}), wanted)


def test_a_new_length_needs_no_new_plan() -> None:
    net, feeds = case("mlstm", T=40, dtype="float64")
    run = ro.compile(net)
    for T in (40, 41, 23, 9):
        part = {name: array[:T] if name.startswith("seq_") else array for name, array in feeds.items()}
        outputs, pullback = run.vjp(part)
        head = np.ones_like(outputs["y"])
        wanted = ro.compile(net, device="reference").vjp(part)[1]({"y": head})
        assert_close(pullback({"y": head}), wanted, 1e-12)


def test_states_at_borders_are_all_that_is_kept() -> None:
    net, feeds = case("mlstm", T=40)
    forward, backward = scans(net, feeds)
    assert "takes longer than to compute them again" in " ".join(ro.compile(net).plan(feeds).describe().split())
    kept = {buffer.what: buffer.shape for buffer in forward.tensors.values() if buffer.kind == "kept"}
    assert backward.compiled.tile == forward.compiled.tile == 32
    assert kept == {"border C": (2, 3, 2, 32, 32), "border n": (2, 3, 2, 32), "border m": (2, 3, 2, 1)}


def test_segments_are_powers_of_two_that_fit_the_cache() -> None:
    assert segments.LEAST_STEPS == 8
    for name, T, wanted in (("mlstm", 200, 64), ("mlstm", 20, 16), ("selective", 200, 32), ("selective", 5, 8)):
        net, feeds = case(name, T=T)
        _, backward = scans(net, feeds)
        assert backward.compiled.tile == wanted, (name, T)


def test_segments_hold_what_costs_more_than_a_sum_or_a_product() -> None:
    """Vectors, and what a scalar function makes of a whole state; no sums and products as large as a state."""
    kept = {
        name: {one.blob for one in scans(*case(name, T=20))[1].compiled.scan.tensors if one.role.value == "kept"}
        for name in CELLS
    }
    assert {"exp_0", "exp_1", "sigmoid_0"} <= kept["mlstm"]
    assert kept["delta_net"] == {"sigmoid_0", "sigmoid_1", "sub_0", "mul_2"}, "not the state times its gate"
    assert "exp_0" in kept["selective"]


def test_layers_and_what_is_saved_know_of_segments() -> None:
    net, feeds = case("delta_net", T=20)
    run = ro.compile(net)
    outputs, pullback = run.vjp(feeds)
    head = {name: np.ones_like(array) for name, array in outputs.items()}
    wanted = run.vjp(feeds)[1](head)
    found: Feeds = {}
    for names, _, grads, _ in pullback.layers(head):
        found.update(zip(names, grads, strict=True))
    assert_equal(found, wanted)
    saved = [blob for blob in run.saved_residuals(feeds).blobs if blob.status != "recomputed"]
    assert [(blob.status, blob.name, blob.shape) for blob in saved] == [("boundary", "S", (2, 3, 2, 32, 32))]


def test_a_state_that_steps_down_alone_read_comes_from_its_border() -> None:
    """What is computed again of a step does not read R, whose gradient by q does."""
    cell = ro.Net("cell")
    q, S, R = cell.inputs("q", "S", "R")
    seen = ro.reduce_sum(R * ro.unsqueeze(q, [3]), axes=[2], keepdims=0)
    cell.outputs(y=seen, S_t=S * 0.5 + ro.unsqueeze(q, [3]), R_t=ro.tanh(S))
    net = over_time(cell, "q", {"S": (2, 24, 24), "R": (2, 24, 24)})
    rng = np.random.default_rng(0)
    feeds = {"seq_q": rng.normal(size=(19, 3, 2, 24))}
    feeds |= {name: rng.normal(size=(3, 2, 24, 24)) for name in ("S0", "R0")}
    assert scans(net, feeds)[1].again is not None
    assert_close(results(net, feeds), results(net, feeds, device="reference"), 1e-12)


def test_who_keeps_all_steps() -> None:
    net, feeds = case("mlstm", T=20)
    assert scans(net, feeds)[1].again is not None
    for options in ({"checkpoints": "all"}, {"checkpoints": "memory"}):
        assert scans(net, feeds, **options)[1].again is None
    net.outputs(states=net.blob("C_t_all"))
    assert scans(net, feeds)[1].again is None, "somebody reads all steps anyway"


def test_the_choice_is_by_bytes_and_results(monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = case("mlstm", T=20)
    (call,) = [call for call in ro.compile(net).plan(feeds).plan.unfused.calls if call.op.type == "RecurrentNetwork"]
    kept, again = seconds(call)
    assert kept == pytest.approx(2 * 20 * 3 * 2 * 4 * (32 * 32 + 32 + 1) / choose_saved.BANDWIDTH)
    assert again < kept
    assert goes_in_segments(call)
    monkeypatch.setattr(choose_saved, "CACHE", 2**30)
    assert not goes_in_segments(call)


def mixing(**options: object) -> tuple[ro.Net, Feeds]:
    """A matrix state whose rows look at each other."""
    cell = ro.Net("cell")
    q, S = cell.inputs("q", "S")
    mean = ro.reduce_mean(S, axes=[0], keepdims=1)
    S_t = ro.tanh(S) * 0.5 + mean * ro.exp(ro.unsqueeze(q, [2]))
    cell.outputs(S_t=S_t, y=ro.reduce_sum(S_t, axes=[2], keepdims=0))
    net = over_time(cell, "q", {"S": (16, 16)}, **options)
    rng = np.random.default_rng(0)
    return net, {"seq_q": rng.normal(size=(20, 3, 16)).astype(np.float32), "S0": np.ones((3, 16, 16), np.float32)}


def test_who_cannot_keeps_what_it_would_without(monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = mixing()
    runs = {kind: ro.compile(net, residuals=kind) for kind in ("float32", "bfloat16")}
    found = {kind: run.saved_residuals(feeds).total for kind, run in runs.items()}
    estimate = runs["float32"].memory_estimate(None, feeds).nbytes
    assert scans(net, feeds)[1].again is None
    monkeypatch.setattr(choose_saved, "goes_in_segments", lambda call: False)
    for kind, total in found.items():
        assert total == ro.compile(net, residuals=kind).saved_residuals(feeds).total
    assert found["bfloat16"] < found["float32"]
    assert estimate == ro.compile(net).memory_estimate(None, feeds).nbytes


@pytest.mark.parametrize("device", ["reference", "cuda"])
def test_devices_that_keep_all_steps_choose_as_ever(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = case("delta_net")
    found = ro.compile(net, device=device).saved_residuals(feeds)
    monkeypatch.setattr(choose_saved, "goes_in_segments", lambda call: False)
    assert found == ro.compile(net, device=device).saved_residuals(feeds)


def test_estimates_count_borders() -> None:
    net, feeds = case("mlstm", T=40)
    run = ro.compile(net)
    assert run.memory_estimate(None, feeds).nbytes == run.saved_residuals(feeds).total
