"""Zoneout: one of both in training, their mean else, as the paper has it for the LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import sigmoid
from cell_runs import LENGTHS, D, H, N, T, X, random_params
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")


def zoned(rates: Any, lengths: bool = False, **options: Any) -> tuple[ro.Net, dict[str, np.ndarray]]:
    net = ro.Net("zoned")
    cell = ro.cells.ZoneoutCell(ro.cells.LSTMCell(D, H, name="c", **options), rates)
    ends = net.input("lengths", "int32") if lengths else None
    output, states = cell.apply_over_sequence(net, net.input("x"), ends)
    net.outputs(output=output, h=states[0], c=states[2])
    return net, {**random_params(net), "x": X, **({"lengths": LENGTHS} if lengths else {})}


def candidates(feeds: dict[str, np.ndarray], x: np.ndarray, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    """New states before anything is zoned out."""
    gates = x @ feeds["c/i2h_w"].T + feeds["c/i2h_b"] + h @ feeds["c/gates_t_w"].T + feeds["c/gates_t_b"]
    i, f, o, g = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def test_the_mean_when_not_training() -> None:
    net, feeds = zoned([0.1, 0.4])
    out = on_device(net)(feeds)
    h, c = feeds["c/initial_hidden_state"], feeds["c/initial_cell_state"]
    for t in range(T):
        new_h, new_c = candidates(feeds, X[t], h, c)
        h, c = 0.1 * h + 0.9 * new_h, 0.4 * c + 0.6 * new_c
        np.testing.assert_allclose(out["h"][t], h, rtol=1e-12)
        np.testing.assert_allclose(out["c"][t], c, rtol=1e-12)
    np.testing.assert_array_equal(out["output"], out["h"])


def test_one_of_both_in_training() -> None:
    net, feeds = zoned(0.5)
    out = on_device(net)(feeds, training=True, seed=3)
    h, c = (np.tile(feeds[f"c/initial_{kind}_state"], (N, 1)) for kind in ("hidden", "cell"))
    stayed = []
    for t in range(T):
        for before, new, came in zip((h, c), candidates(feeds, X[t], h, c), (out["h"][t], out["c"][t]), strict=True):
            stays = np.isclose(came, before, rtol=1e-12, atol=1e-14)
            assert (stays | np.isclose(came, new, rtol=1e-12, atol=1e-14)).all()
            stayed.append(stays)
        h, c = out["h"][t], out["c"][t]
    assert 0.3 < np.mean(stayed) < 0.7
    assert len({one.tobytes() for one in stayed}) > T


@pytest.mark.parametrize("drop", [False, True])
def test_rows_that_end(drop: bool) -> None:
    net, feeds = zoned(0.25, lengths=True, drop_states=drop)
    out = on_device(net)(feeds)
    assert np.array_equal(out["h"][2, 2], 0 * out["h"][1, 2] if drop else out["h"][1, 2])
    ro.testing.check_gradient(net, feeds, training=True, seed=1, sample=4)


def test_rates() -> None:
    net, feeds = zoned(0)
    plain = ro.Net("plain")
    plain.outputs(output=ro.cells.LSTMCell(D, H, name="c").apply_over_sequence(plain, plain.input("x"))[0])
    np.testing.assert_array_equal(on_device(net)(feeds, training=True)["output"], on_device(plain)(feeds)["output"])
    net, feeds = zoned([1, 0.0])
    np.testing.assert_allclose(on_device(net)(feeds)["h"][-1], np.tile(feeds["c/initial_hidden_state"], (N, 1)))
    for rates in (1.5, -0.1, "half", [0.5], [0.1, 0.2, 0.3], None):
        with pytest.raises(ro.NetError, match="rates of zoneout"):
            zoned(rates)
