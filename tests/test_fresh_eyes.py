"""What first users and adversaries stumbled over, each with its test."""

from __future__ import annotations

import numpy as np
import pytest
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")


def run(net: ro.Net, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    return on_device(net)(feeds)


def test_equality_builds_ops() -> None:
    """A mask written with `!=` masks; it is not a comparison of handles."""
    net = ro.Net("mask")
    ids, loss = net.input("ids", "int32"), net.inputs("loss")
    net.outputs(masked=ro.where(ids != 0, loss, 0.0), ones=ids == 1)
    out = run(net, ids=np.array([1, 0, 2], np.int32), loss=np.array([0.5, 0.7, 0.9]))
    assert out["masked"].tolist() == [0.5, 0.0, 0.9]
    assert out["ones"].tolist() == [True, False, False]


@pytest.mark.parametrize("function", [ro.sum, ro.mean, ro.max, ro.min])
def test_joining_functions_do_not_pass_for_reductions(function: object) -> None:
    net = ro.Net("n")
    with pytest.raises(ro.NetError, match="reduce_"):
        function(net.inputs("x"))  # type: ignore[operator]


def recurrence(cell: ro.Net, **options: object) -> ro.Net:
    net = ro.Net("n")
    xs, h0 = net.inputs("xs", "h0")
    references = {"w": net.inputs("v")} if "w" in cell.input_names else {}
    h_all, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references=references, **options)
    net.outputs(y=h_all)
    return net


def test_declared_shapes_of_a_cell_are_checked() -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=h + x * cell.parameter("w", (3,), "ones"))
    with pytest.raises(ro.RecurrentError, match=r"blob 'w'.*wanted \[3\].*got float64\[1\]"):
        run(recurrence(cell), xs=np.ones((2, 1, 3)), h0=np.zeros(3), v=np.full((1,), 2.0))


def test_declared_shapes_of_sequences_and_states_are_checked() -> None:
    cell = ro.Net("c")
    x, h = cell.input("x", None, (4, 3)), cell.inputs("h")
    cell.outputs(h_t=x + h)
    with pytest.raises(ro.RecurrentError, match=r"blob 'x'"):
        run(recurrence(cell), xs=np.ones((2, 2, 3)), h0=np.zeros(3))


def test_reverse_sees_a_dropped_state_behind_other_ops() -> None:
    cell = ro.Net("c")
    x, h, lengths, t = *cell.inputs("x", "h"), cell.input("lengths", "int32"), cell.input("t", "int32")
    cell.outputs(h_t=ro.identity(ro.select_valid(h + x, h, lengths, t, drop=1)))
    with pytest.raises(ro.RecurrentError, match="wipe its initial state"):
        recurrence(cell, timestep="t", reverse=True)


def test_masked_operands_are_refused() -> None:
    net = ro.Net("n")
    with pytest.raises(ro.NetError, match=r"\.filled"):
        net.inputs("x") + np.ma.masked_array([1.0, 1e9], [0, 1])


def test_two_outputs_of_one_blob_share_nothing() -> None:
    net = ro.Net("n")
    y = net.inputs("x") + 1.0
    net.outputs(a=y, b=y)
    out = run(net, x=np.ones(3))
    out["a"][:] = 99
    assert out["b"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("differentiated", [False, True])
def test_a_last_state_keeps_no_sequence_alive(differentiated: bool) -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = ro.Net("n")
    xs, h0 = net.inputs("xs", "h0")
    h_all, h_last = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"})
    net.outputs(last=h_last, total=ro.reduce_sum(h_all, keepdims=0))
    feeds = {"xs": np.ones((1000, 2, 2)), "h0": np.zeros((2, 2))}
    last = (on_device(net).vjp(feeds)[0] if differentiated else run(net, **feeds))["last"]
    assert last.base is None or last.base.nbytes < 1000


def test_results_that_both_are_outputs_stay_views_of_one_tensor() -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = ro.Net("n")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(*ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}))
    out = run(net, xs=np.ones((9, 2, 2)), h0=np.zeros((2, 2)))
    assert np.shares_memory(out["h_t_all"], out["h_t_last"])


def test_internal_names_make_way() -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = recurrence(cell)
    z = net.inputs("h_t_all/step_workspaces")
    net.outputs(z=z * z)
    feeds = {"xs": np.ones((2, 1, 3)), "h0": np.zeros(3), "h_t_all/step_workspaces": np.ones(2)}
    _, pullback = on_device(net).vjp(feeds)
    assert pullback({"z": np.ones(2)})["h_t_all/step_workspaces"].tolist() == [2.0, 2.0]


def test_a_left_out_input_of_a_recurrence_is_refused() -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x + h)
    with pytest.raises(ro.RnnopsError, match="left out"):
        ro.parse_net(str(recurrence(cell)).replace("RecurrentNetwork(xs,", "RecurrentNetwork(_,"))


@pytest.mark.parametrize("axis", ["a", 1.0, [0], True])
def test_odd_axes_are_named_errors(axis: object) -> None:
    net = ro.Net("n")
    net.outputs(y=ro.softmax(net.inputs("x"), axis))  # type: ignore[arg-type]
    with pytest.raises(ro.RnnopsError, match="axis"):
        run(net, x=np.ones((2, 3)))


@pytest.mark.parametrize("init", [("normal", 0, -1), ("uniform", 2, 1), ("xavier", 0), ("uniform", 0, float("nan"))])
def test_initializers_must_make_a_distribution(init: object) -> None:
    with pytest.raises(ro.NetError, match="distribution"):
        ro.Net("n").parameter("w", (2, 3), init)


@pytest.mark.parametrize("options", [{"reverse": "no"}, {"forward_only": "no"}, {"scope": 5}, {"scope": "/"}])
def test_odd_options_of_a_recurrence_are_refused(options: dict[str, object]) -> None:
    cell = ro.Net("c")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x + h)
    with pytest.raises(ro.RecurrentError, match=next(iter(options))):
        recurrence(cell, **options)


@pytest.mark.parametrize("dtype", [None, "q", "floaty"])
def test_dtypes_are_known_names(dtype: object) -> None:
    with pytest.raises(ro.NetError):
        ro.cast(ro.Net("n").inputs("x"), dtype)  # type: ignore[arg-type]


def test_a_decoder_that_ignores_the_context_is_refused() -> None:
    class Deaf(ro.cells.BasicRNNCell):
        def step(self, step, x_t, states, extra=()):  # type: ignore[no-untyped-def]
            return super().step(step, x_t, states)

    net = ro.Net("n")
    x, encoder = net.inputs("x", "encoder")
    cell = ro.cells.AttentionCell(4, encoder, None, Deaf(3, 5, name="deaf"), 5, "regular")
    with pytest.raises(ro.NetError, match="extra"):
        cell.apply_over_sequence(net, x)


def test_public_names_can_be_found() -> None:
    assert {"compile", "testing", "LSTM", "sigmoid", "Net"} <= set(dir(ro))
    assert "Any" not in dir(ro)
