"""The CPU device as a whole: the same bits for any number of threads and tiles, agreement for any vector width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agreement_cases import Arrays, D, H, N, T, assert_same_bits, feeds_of, lstm_net, own_cell_net, results
from devices import DEVICES, PLAIN

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.schedule import batch_axis
from rnnops.kernels.cpu.processor import WIDTHS

NETS: dict[str, Callable[[], ro.Net]] = {
    "lstm": lambda: lstm_net(memory_optimization=True),
    "own": own_cell_net,
    "own_reverse": lambda: own_cell_net(reverse=True),
}


@pytest.fixture
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as may be, however little there is to do."""
    monkeypatch.setattr(batch_axis, "LITTLE_WORK", 0)


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize(("name", "rows"), [("lstm", N), ("own", N), ("own", 1), ("own_reverse", 2)])
def test_threads_change_no_bit(name: str, rows: int) -> None:
    net = NETS[name]()
    feeds = feeds_of(net, rows=rows)
    one = results(net, feeds, threads=1)
    for threads in (2, 3, 5):
        assert_same_bits(results(net, feeds, threads=threads), one)


def wide_lstm(features: int) -> ro.Net:
    net = ro.Net("wide")
    net.outputs(h_all=ro.LSTM(net, net.input("xs"), None, None, D, features)[0])
    return net


COLUMNS: dict[str, Callable[[], ro.Net]] = {
    "lstm": lambda: wide_lstm(29),
    "uneven": lambda: wide_lstm(53),
    "gates": lambda: lstm_net(lengths=False, memory_optimization=True),
    **{name: NETS[name] for name in ("own", "own_reverse")},
}


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize(
    ("name", "rows"),
    [("lstm", 1), ("lstm", 2), ("uneven", 1), ("gates", 1), ("own", 1), ("own", 3), ("own_reverse", 1)],
)
def test_few_rows_share_out_columns(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net = COLUMNS[name]()
    feeds = feeds_of(net, steps=40, rows=rows, features=H if name == "gates" else 29)
    one = results(net, feeds, threads=1)
    monkeypatch.setattr(batch_axis, "WAIT", 0.0)
    monkeypatch.setattr(batch_axis, "CLEARLY", np.inf)
    for threads in (2, 5):
        kernels = ro.compile(net, threads=threads, tuning=Options()).plan(feeds).plan.compiled.kernels
        teams = [kernel.compiled.team for kernel in kernels]
        assert any(team.by_columns and team.threads == threads for team in teams)
        for _ in range(5):  # a wait too few would show now and then
            assert_same_bits(results(net, feeds, threads=threads), one)


def test_what_threads_share_out() -> None:
    """Rows; columns where threads would have few rows each and much to read; nothing where there is little to do."""

    def plan(rows: int, threads: int, features: int = 128) -> str:
        run = ro.compile(wide_lstm(features), threads=threads)
        return str(run.plan(xs=(50, rows, D), backward=False, dtype="float32"))

    few = "few rows a thread: threads share out columns of products in loops"
    assert few in plan(1, 2)
    assert "4 threads" in plan(1, 64)
    assert few in plan(3, 2, 512)
    assert "8 threads" in plan(1, 64, 256)
    assert few not in plan(32, 2)
    assert "2 threads" in plan(32, 2)
    assert "1 thread" in plan(1, 64, 8)


def sums_over_time(net: ro.Net) -> tuple[str, ...]:
    """Gradients of what is the same at every step."""
    return tuple(f"grad {name}" for name in net.input_names if name not in ("xs", "h0", "s0", "lengths"))


@pytest.mark.parametrize("name", NETS)
def test_tiles_change_no_bit_but_of_sums_over_time(name: str) -> None:
    net = NETS[name]()
    feeds = feeds_of(net)
    whole = results(net, feeds)
    for tile in (1, 2, T - 1, T):
        assert_same_bits(results(net, feeds, tile=tile), whole, sums_over_time(net))


@pytest.mark.parametrize(("dtype", "width"), [*(("float32", width) for width in WIDTHS), ("float64", 256)])
def test_vector_widths_agree(dtype: str, width: int) -> None:
    def device(net: ro.Net) -> ro.Run:
        return ro.compile(net, device="cpu", tuning=Options(width=width))

    net = own_cell_net()
    ro.testing.check_devices(net, feeds_of(net, dtype=dtype), {"cpu": device})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_nan_and_infinity_pass_through(device: str, value: float) -> None:
    """What the reference makes of them; rows that never meet them stay what they were."""
    net = own_cell_net()
    clean = feeds_of(net)
    feeds = {**clean, "xs": clean["xs"].copy()}
    feeds["xs"][2, 3, 0] = value
    with np.errstate(all="ignore"):
        wanted, came = (DEVICES[name](net)(feeds) for name in ("reference", device))
    calm = DEVICES[device](net)(clean)
    for name, array in wanted.items():
        finite = np.isfinite(array)
        np.testing.assert_array_equal(came[name][~finite], array[~finite], err_msg=name)
        np.testing.assert_allclose(came[name][finite], array[finite], rtol=1e-12, err_msg=name)
        others = np.delete(np.arange(N), 3)
        np.testing.assert_array_equal(came[name][:, others], calm[name][:, others], err_msg=name)


SIZES = [(1, 1, 1), (1, 2, 3), (2, 1, 1), (3, 2, 1), (2, 3, 17), (5, 1, 8)]  # T, N, H


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("steps", "rows", "features"), SIZES)
def test_small_sizes(steps: int, rows: int, features: int, reverse: bool) -> None:
    net = own_cell_net(reverse)
    ro.testing.check_devices(net, feeds_of(net, steps, rows, features=features), {"plain": DEVICES["plain"]})


@pytest.mark.parametrize(("steps", "rows"), [(0, 2), (2, 0), (0, 0)])
def test_nothing_to_do_is_left_to_the_interpreter(steps: int, rows: int) -> None:
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = ro.Net("outer")
    results = ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h_t"})
    net.outputs(y=results[0], last=results[1])
    feeds = {"xs": np.ones((steps, rows, H)), "h0": np.ones(H)}
    ro.testing.check_devices(net, feeds, {"cpu": DEVICES["cpu"], "plain": DEVICES["plain"]})


def strange_feeds(feeds: Arrays) -> dict[str, Arrays]:
    xs = feeds["xs"]
    wide = np.zeros((*xs.shape[:2], 2 * xs.shape[2]))
    wide[..., ::2] = xs
    locked = {name: array.copy() for name, array in feeds.items()}
    for array in locked.values():
        array.flags.writeable = False
    return {
        "read-only": locked,
        "every other number": {**feeds, "xs": wide[..., ::2]},
        "backwards": {**feeds, "xs": xs[::-1].copy()[::-1], "h0": feeds["h0"][:, ::-1].copy()[:, ::-1]},
        "turned": {**feeds, "u": np.asfortranarray(feeds["u"]), "xs": np.asfortranarray(xs)},
        "repeated": {**feeds, "h0": np.broadcast_to(feeds["h0"][0], feeds["h0"].shape)},
    }


@pytest.mark.parametrize("device", ["plain", "cpu"])
@pytest.mark.parametrize("kind", ["read-only", "every other number", "backwards", "turned", "repeated"])
def test_feeds_of_any_layout(kind: str, device: str) -> None:
    net = own_cell_net()
    feeds = strange_feeds(feeds_of(net))[kind]
    before = {name: array.copy() for name, array in feeds.items()}
    ro.testing.check_devices(net, feeds, {device: DEVICES[device]})
    for name, array in before.items():
        np.testing.assert_array_equal(feeds[name], array, err_msg=name)


@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_one_array_fed_twice(device: str) -> None:
    """As two states, and as a state and a matrix: nobody writes to it."""
    net = own_cell_net()
    feeds = feeds_of(net, rows=H)
    square = feeds["u"]
    ro.testing.check_devices(net, {**feeds, "h0": square, "u": square, "s0": square}, {device: DEVICES[device]})


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("wrt", [None, ["h0"], ["xs"], ["w", "s0"]])
def test_initial_states_of_any_rank_and_parts_of_the_gradients(rank: int, wrt: list[str] | None) -> None:
    net = own_cell_net()
    feeds = feeds_of(net)
    feeds["h0"] = {1: feeds["h0"][0], 2: feeds["h0"], 3: feeds["h0"][None]}[rank]
    ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]}, wrt=wrt)


@pytest.mark.parametrize("outputs", [["h_t_all"], ["h_t_last"], ["seen_all", "s_t_last"], ["seen_last"]])
def test_gradients_from_some_outputs(outputs: list[str]) -> None:
    net = own_cell_net()
    ro.testing.check_devices(net, feeds_of(net), {"plain": DEVICES["plain"]}, outputs=outputs)
    alone = net.with_ops(net.ops, {name: net.output_blobs[name] for name in outputs})
    ro.testing.check_devices(alone, feeds_of(net), {"plain": DEVICES["plain"]})


def test_forward_only_needs_no_more_than_two_steps_of_a_state() -> None:
    net = own_cell_net()
    last = net.with_ops(net.ops, {"h_t_last": net.output_blobs["h_t_last"]})
    ro.testing.check_devices(last, feeds_of(net), {"plain": DEVICES["plain"], "cpu": DEVICES["cpu"]}, gradients=False)


def dropout_net(nested: bool) -> ro.Net:
    """Two dropouts in a step, the second of what the first has left; or beside the sequence, in the outer net."""
    cell = ro.Net("noisy")
    x, h = cell.inputs("x", "h")
    first = ro.dropout(x, 0.3)
    cell.outputs(h_t=ro.tanh(ro.dropout(first + h, 0.5) + ro.dropout(h, 0.0)), kept=first)
    net = ro.Net("outer")
    xs = net.input("xs")
    noisy = ro.dropout(xs, 0.25) if nested else xs
    blobs = ro.recurrent_net(net, cell, [("x", noisy)], [("h", net.input("h0"))], {"h": "h_t"})
    net.outputs(**{blob.name: blob for blob in blobs})
    return net


@pytest.mark.covering(2)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_masks_are_the_references(seed: int, nested: bool, training: bool) -> None:
    net, rng = dropout_net(nested), np.random.default_rng(0)
    feeds = {"xs": rng.normal(size=(T, N, H)), "h0": rng.normal(size=(N, H))}
    ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]}, seed=seed, training=training)
    if seed and nested and training:
        ro.testing.check_devices(net, feeds, {"cpu": DEVICES["cpu"]}, seed=seed)


def test_integers_and_bools_in_a_step() -> None:
    cell = ro.Net("counts")
    x, n = cell.input("x"), cell.input("n", "int8")
    on, h = cell.input("on", "bool"), cell.input("h")
    up = ro.cast(ro.less(h, x), "int8") * 3 - n
    both = ro.and_(on, ro.less(ro.cast(up, "float"), 0.0))
    cell.outputs(h_t=ro.where(both, x, h * 0.5), n_t=up, some=both, wide=ro.cast(up, "int64"))
    net = ro.Net("outer")
    inputs = [("x", net.input("xs")), ("on", net.input("ons", "bool"))]
    states = [("h", net.input("h0")), ("n", net.input("n0", "int8"))]
    blobs = ro.recurrent_net(net, cell, inputs, states, {"h": "h_t", "n": "n_t"})
    net.outputs(**{blob.name: blob for blob in blobs})
    rng = np.random.default_rng(0)
    feeds = {
        "xs": rng.normal(size=(T, N, H)), "ons": rng.random((T, N, H)) < 0.5,
        "h0": rng.normal(size=(N, H)), "n0": rng.integers(-128, 128, (N, H)).astype("int8"),
    }  # fmt: skip
    ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"], "cpu": DEVICES["cpu"]})


def test_a_plain_run_is_the_same_module_as_a_compiled_one() -> None:
    """What tests run as plain Python is what is compiled."""
    assert not PLAIN.compiled
    net = own_cell_net()
    texts = []
    for device in ("plain", "cpu"):
        run = DEVICES[device](net)
        run(feeds_of(net))
        (plan,) = run._forward._plans.values()
        (kernel,) = plan.compiled.kernels
        texts.append(kernel.compiled.text.python())
    assert texts[0] == texts[1]
