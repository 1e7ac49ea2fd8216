"""A RecurrentNetwork that comes from text is checked as one that is built."""

from __future__ import annotations

import pytest

import rnnops as ro


def text() -> str:
    cell = ro.Net("cell")
    x_t, h_prev, t = cell.input("x_t"), cell.input("h_prev"), cell.input("t", "int32")
    hidden = ro.tanh(x_t + h_prev + ro.cast(t, "float")).named("hidden")
    cell.outputs(h_t=hidden * 1.0)
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    h_all, _ = ro.recurrent_net(
        net,
        cell,
        [("x_t", xs)],
        [("h_prev", h0)],
        {"h_prev": "h_t"},
        timestep="t",
        recompute_blobs_on_backward=["hidden"],
    )
    net.outputs(y=h_all)
    return str(net)


def test_the_text_itself_is_right() -> None:
    assert str(ro.parse_net(text())) == text()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('states=[["h_prev", "h_t", 1, null, null]]', 'states=[["h_prev", "gone", 1, null, null]]', "link to nothing"),
        ('states=[["h_prev", "h_t", 1, null, null]]', 'states=[["h_prev", "h_t", 0, null, null]]', "out of range"),
        ('states=[["h_prev", "h_t", 1, null, null]]', 'states=[["h_prev", "h_t", 1, -1, null]]', "out of range"),
        ('states=[["h_prev", "h_t", 1, null, null]]', 'states=[["h_prev", "h_t", 1, null, ["a"]]]', "feature sizes"),
        ('states=[["h_prev", "h_t", 1, null, null]]', 'states=[["h_prev", "h_t"]]', "wrong form"),
        ('states=[["h_prev", "h_t", 1, null, null]]', "states=7", "not a list"),
        ('inputs=["x_t"]', 'inputs=["x_u"]', "no blob of the cell"),
        ('inputs=["x_t"]', 'inputs=["x_t", "x_t"]', "inputs"),
        ('timestep="t"', 'timestep="x_t"', "not bound once"),
        ('recompute=["hidden"]', 'recompute=["nothing"]', "no blob of the cell"),
        ('recompute=["hidden"]', 'recompute=["hidden"], steps="many"', "not a number"),
        ('recompute=["hidden"]', 'recompute=["hidden"], outputs_with_grads=["a"]', "names no result"),
        ('recompute=["hidden"]', 'recompute=["hidden"], backward=3', "not a net"),
    ],
)
def test_nonsense_is_named(old: str, new: str, problem: str) -> None:
    assert old in text()
    with pytest.raises(ro.RnnopsError, match=problem):
        ro.parse_net(text().replace(old, new))
