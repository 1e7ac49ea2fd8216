"""Byte budgets: never exceeded, the same gradients, the fastest way that fits; what is said before any data exists."""

from __future__ import annotations

import numpy as np
import pytest
from part_cells import busy_feeds, busy_net, results

import rnnops as ro
from rnnops.checkpoints import Slots
from rnnops.compiler.run.compiled_scan import Options
from rnnops.recurrent import parts as parted
from rnnops.util import readable

T, N, H = 60, 2, 8
FRACTIONS = (1.0, 0.6, 0.3, 0.15, 0.08)
Arrays = dict[str, np.ndarray]


def model() -> ro.Net:
    net = ro.Net("model")
    h_all, *_ = ro.LSTM(net, net.input("x"), None, None, 3, H, scope="lstm")
    net.outputs(y=h_all)
    return net


def feeds_of(net: ro.Net) -> Arrays:
    rng = np.random.default_rng(0)
    return {**ro.init_params(net, 0, "float64"), "x": rng.normal(size=(T, N, 3))}


def make(net: ro.Net, device: str, **options: object) -> ro.Run:
    tuning = None if device == "reference" else Options(compiled=device == "cpu", tile=4)
    return ro.compile(net, device=device.replace("plain", "cpu"), tuning=tuning, **options)  # type: ignore[arg-type]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most bytes that recurrences in parts held, after each of their actions."""
    most = [0]
    go = parted._Run._step

    def watched(run: parted._Run, what: str, number: int) -> tuple[object, ...]:
        found = go(run, what, number)
        arrays = [*run.held.named_arrays().values(), *run.running]
        arrays += [a for a in found if isinstance(a, np.ndarray)]
        most[0] = max(most[0], sum({id(a): a.nbytes for a in arrays}.values()))
        return found

    monkeypatch.setattr(parted._Run, "_step", watched)
    return most


@pytest.mark.parametrize("device", ["reference", "plain"])
def test_budgets_are_kept(device: str, held: list[int]) -> None:
    net = model()
    feeds = feeds_of(net)
    everything = make(net, device, checkpoints="all").saved_residuals(feeds).total
    wanted, _ = results(make(net, device), feeds)
    for fraction in FRACTIONS:
        held[0] = 0
        run = make(net, device, memory_budget=fraction)
        came, _ = results(run, feeds)
        budget = min(fraction, 1.0) * everything
        _, pullback = run.vjp(feeds)
        between = sum(a.nbytes for name, a in pullback.held_arrays().items() if name not in feeds)
        assert between <= budget
        assert held[0] <= budget
        for name, array in wanted.items():
            np.testing.assert_allclose(came[name], array, rtol=0, atol=1e-13, err_msg=name)


def test_budgets_give_the_same_bits_on_compiled_kernels() -> None:
    net = model()
    feeds = feeds_of(net)
    wanted, _ = results(make(net, "cpu"), feeds)
    for fraction in FRACTIONS[:-1]:  # the last one needs parts of less than a tile
        came, _ = results(make(net, "cpu", memory_budget=fraction), feeds)
        for name, array in wanted.items():
            np.testing.assert_array_equal(came[name], array, err_msg=f"{fraction} {name}")


def test_bytes_and_fractions_mean_the_same() -> None:
    net = model()
    feeds = feeds_of(net)
    estimate = make(net, "plain").memory_estimate("all", feeds)
    half = make(net, "plain", memory_budget=0.5).saved_residuals(feeds)
    assert str(make(net, "plain", memory_budget=estimate.nbytes // 2).saved_residuals(feeds)) == str(half)


def test_the_fastest_way_that_fits_is_taken() -> None:
    net = model()
    shapes = {"x": (T, N, 3)}
    table = make(net, "plain").memory_estimates(shapes, dtype="float64")
    times = [row.time for row in table.rows]
    assert times[0] == min(times) == 1.0
    assert table.rows[0].policy == "default"  # which is as fast as `all`
    limit = make(net, "plain").memory_estimate("all", shapes, dtype="float64").nbytes // 4
    fitting = next(row for row in table.rows if row.nbytes <= limit)
    chosen = make(net, "plain", memory_budget=limit).saved_residuals(shapes, dtype="float64")
    assert chosen.total <= fitting.nbytes
    assert "policy" in str(table)


def test_plans_say_what_a_budget_has_chosen() -> None:
    net, shapes = model(), {"x": (T, N, 3)}
    run = make(net, "plain", memory_budget=0.25)
    found, whole = (run.memory_estimate(way, shapes, dtype="float64") for way in (None, "all"))
    kept = f"memory_budget 0.25: {readable(found.nbytes)} of {readable(whole.nbytes)} kept by {found.policy}, "
    assert f"{kept}predicted {found.time:.2f} times as long" in " ".join(str(run.plan(shapes, dtype="float64")).split())
    for plain in (make(net, "plain").plan(shapes), run.plan(shapes, backward=False)):
        assert "memory_budget" not in str(plain)


def test_an_impossible_budget_names_the_least_that_would_do() -> None:
    net = model()
    feeds = feeds_of(net)
    feeds["x"] = feeds["x"][:20]  # within the least bytes time grows with the square of steps
    with pytest.raises(ro.BudgetError, match=r"at least \d+ bytes") as caught:
        make(net, "plain", memory_budget=100).vjp(feeds)
    least = int(str(caught.value.wanted).split()[2])
    with pytest.raises(ro.BudgetError, match=r"0\.001 of what 'all' holds"):
        make(net, "plain", memory_budget=0.001).vjp(feeds)
    results(make(net, "plain", memory_budget=least), feeds)
    with pytest.raises(ro.BudgetError):
        make(net, "plain", memory_budget=least - 1).vjp(feeds)


def test_the_fraction_that_an_error_names_is_no_number_of_bytes() -> None:
    net = ro.Net("plain")
    net.outputs(y=ro.exp(net.input("x")))
    with pytest.raises(ro.BudgetError, match=r"at least 32 bytes, memory_budget=1\.0;"):
        make(net, "plain", memory_budget=0.5).vjp(x=np.ones(4))
    make(net, "plain", memory_budget=1.0).vjp(x=np.ones(4))


def test_a_busy_cell_within_budgets() -> None:
    net, feeds = busy_net(), busy_feeds(40)
    wanted, _ = results(make(net, "reference"), feeds)
    for fraction in (0.5, 0.2):
        came, _ = results(make(net, "plain", memory_budget=fraction), feeds)
        for name, array in wanted.items():
            limit = 1e-12 * max(1, np.abs(array).max())
            np.testing.assert_allclose(came[name], array, rtol=0, atol=limit, err_msg=name)


def test_policy_and_budget_exclude_each_other() -> None:
    with pytest.raises(ro.CheckpointError, match="not both"):
        ro.compile(model(), checkpoints="all", memory_budget=0.5)


def test_other_shapes_get_other_plans() -> None:
    net = model()
    run = make(net, "plain", memory_budget=12_000)
    for steps in (T, 1, 0, T // 2):
        feeds = {**feeds_of(net), "x": np.zeros((steps, N, 3))}
        came, _ = results(run, feeds)
        wanted, _ = results(make(net, "reference"), feeds)
        for name, array in wanted.items():
            np.testing.assert_allclose(came[name], array, rtol=0, atol=1e-13, err_msg=f"{steps} {name}")


def test_saved_residuals_are_what_is_held() -> None:
    net = model()
    feeds = feeds_of(net)
    for options in ({}, {"checkpoints": "all"}, {"checkpoints": "memory"}, {"memory_budget": 0.2}):
        run = make(net, "plain", **options)
        saved = run.saved_residuals(feeds)
        _, pullback = run.vjp(feeds)
        held = sum(a.nbytes for name, a in pullback.held_arrays().items() if name not in feeds)
        assert saved.total == held, options
        assert {blob.status for blob in saved.blobs} <= {"kept", "recomputed", "boundary", "alias"}
    assert any(blob.status == "alias" for blob in make(net, "plain").saved_residuals(feeds).blobs)
    assert "lstm/hidden_t_all" in str(make(net, "plain").saved_residuals(feeds))


def owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view shows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("seed", range(40))
def test_saved_residuals_of_random_nets_are_what_is_held(seed: int) -> None:
    made = ro.testing.random_net(seed)
    feeds = dict(made.feeds)
    run = ro.compile(made.net, device="reference")
    _, pullback = run.vjp(feeds, seed=seed)
    arrays = {name: array for name, array in pullback.held_arrays().items() if name not in feeds}
    held: dict[int, int] = {}
    for name in sorted(arrays, key=lambda name: ":" not in name):  # those of steps first: tensors over all time
        held.setdefault(id(owner(arrays[name])), arrays[name].nbytes)
    listed = run.saved_residuals(feeds).blobs
    inputs = sum(blob.nbytes for blob in listed if blob.name in feeds)
    assert sum(blob.nbytes for blob in listed) - inputs == sum(held.values())


def test_steps_within_steps_are_counted() -> None:
    """A cell that runs a recurrence over five features keeps the states of all its steps, of every step."""
    inner = ro.Net("inner")
    v, u = inner.inputs("v", "u")
    inner.outputs(u_t=ro.tanh(v + u))
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    steps = ro.transpose(x_t, perm=[1, 0, 2])
    swept = ro.recurrent_net(cell, inner, [("v", steps)], [("u", h)], {"u": "u_t"}, scope="inner")
    cell.outputs(h_t=ro.squeeze(swept[1], [0]) * 0.5)
    net = ro.Net("nested")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", net.input("x"))], [("h", net.input("h0"))], {"h": "h_t"})[0])
    shapes = {"x": (T, N, 5, 3), "h0": (N, 3)}
    saved = ro.compile(net).saved_residuals(shapes, dtype="float64")
    within = [blob.nbytes for blob in saved.blobs if blob.dtype == "uint8"]
    assert within == [T * (5 + 1) * N * 3 * 8]
    assert saved.total > 10_000 >= ro.compile(net, memory_budget=10_000).saved_residuals(shapes, dtype="float64").total


def test_estimates_before_any_data() -> None:
    run = make(model(), "plain")
    default, memory = (run.memory_estimate(policy, x=(1000, 16, 3)) for policy in (None, "memory"))
    parts = run.memory_estimate(Slots(8, steps=125), x=(1000, 16, 3))
    assert (
        default.time == 1.0 < memory.time < parts.time < run.memory_estimate(Slots(40, steps=25), x=(1000, 16, 3)).time
    )
    assert parts.nbytes < memory.nbytes < default.nbytes
    with pytest.raises(ro.CheckpointError):
        run.memory_estimate("nothing", x=(1000, 16, 3))


def test_a_run_estimates_what_it_does_itself() -> None:
    shapes = {"x": (T, N, 3)}
    run = make(model(), "plain", memory_budget=12_000)
    own = run.memory_estimate(None, shapes, dtype="float64")
    assert "slots" in own.policy
    assert own.nbytes <= 12_000 < run.memory_estimate("all", shapes, dtype="float64").nbytes
    assert make(model(), "plain", memory_budget=np.int64(12_000)).memory_estimate(None, shapes, dtype="float64") == own


def test_long_sequences_are_planned() -> None:
    shapes = {"x": (20_000, N, 3)}
    for budget in (4_000_000, 300_000, 0.1):
        run = ro.compile(model(), memory_budget=budget)
        assert run.saved_residuals(shapes).total <= run.memory_estimate(None, shapes).nbytes
    table = ro.compile(model()).memory_estimates(shapes)
    assert min(row.nbytes for row in table.rows) < 100_000
