"""Single steps, unrolled copies, dropout and shared weights of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from cell_runs import CELLS, LENGTHS, D, H, N, T, X, all_cells, random_params, run_of
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

PRESETS = [ro.BasicRNN, ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.LayerNormMILSTM, ro.GRU]


@pytest.mark.covering(2)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("name", list(all_cells(ro.Net("names"))))
def test_one_step_is_the_steps_of_the_sequence(name: str, lengths: np.ndarray | None) -> None:
    net = ro.Net("sequence")
    cell = all_cells(net)[name]
    seq_lengths = None if lengths is None else net.input("lengths", "int32")
    output, states = cell.apply_over_sequence(net, net.input("x"), seq_lengths)
    net.outputs(output=output, **{f"{i}": blob for i, blob in enumerate(states)})
    shared = {"encoder": random_arrays(e=(2, N, H))["e"]} | ({} if lengths is None else {"lengths": lengths})
    feeds, out, _ = run_of(net, x=X, **shared)
    single = ro.Net("single")
    cell = all_cells(single)[name]
    previous = [single.input(f"state_{i}") for i in range(len(states) // 2)]
    seq_lengths, timestep = (
        (None, None) if lengths is None else (single.input(n, "int32") for n in ("lengths", "timestep"))
    )
    output_t, new = cell.apply(single, single.input("x_t"), seq_lengths, previous, timestep)
    single.outputs(output=output_t, **{f"{i}": blob for i, blob in enumerate(new)})
    run = on_device(single)
    fed = {key: feeds[key] for key in single.input_names if key in feeds}
    for t in range(1, T):
        step = {f"state_{i}": out[f"{2 * i}"][t - 1] for i in range(len(previous))}
        step |= {} if lengths is None else {"timestep": np.array([t], "int32")}
        came = run({**fed, **step, "x_t": X[t]})
        np.testing.assert_allclose(came["output"], out["output"][t], rtol=1e-12, atol=1e-14)
        for i in range(len(previous)):
            np.testing.assert_allclose(came[f"{i}"], out[f"{2 * i}"][t], rtol=1e-12, atol=1e-14)


@pytest.mark.covering(2)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("name", list(all_cells(ro.Net("names"))))
def test_unrolled_cell_equals_the_recurrence(name: str, lengths: np.ndarray | None) -> None:
    results = []
    for unroll in (False, True):
        net = ro.Net("unrolled")
        cell = all_cells(net)[name]
        cell = ro.cells.UnrolledCell(cell, T) if unroll else cell
        seq_lengths = None if lengths is None else net.input("lengths", "int32")
        output, states = cell.apply_over_sequence(net, net.input("x"), seq_lengths)
        net.outputs(output=output, **{f"{i}": blob for i, blob in enumerate(states)})
        shared = {"encoder": random_arrays(e=(2, N, H))["e"]} | ({} if lengths is None else {"lengths": lengths})
        feeds = {
            **{
                key: random_arrays(3, v=spec.shape)["v"]
                for key, spec in sorted((spec.name, spec) for spec in net.parameters)
            },
            "x": X,
            **shared,
        }
        out, pullback = on_device(net).vjp(feeds)
        assert ("RecurrentNetwork" in {op.type for op in net.ops}) is not unroll
        results.append((out, pullback({key: np.ones_like(array) for key, array in out.items()})))
    (out, grads), (unrolled_out, unrolled_grads) = results
    for key, array in out.items():
        np.testing.assert_allclose(unrolled_out[key], array, rtol=1e-12, atol=1e-14, err_msg=key)
    assert grads.keys() == unrolled_grads.keys()
    for key, array in grads.items():
        np.testing.assert_allclose(unrolled_grads[key], array, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.covering(1)  # each cell unrolled on each device: above
@pytest.mark.parametrize("state", [(H,), (N, H), (1, N, H)])
@pytest.mark.parametrize("preset", PRESETS)
def test_static_unroll_of_presets(preset: Any, state: tuple[int, ...]) -> None:
    results = []
    for unroll in (None, T):
        net = ro.Net("preset")
        count = 1 if preset in (ro.BasicRNN, ro.GRU) else 2
        states = [net.input(f"s{i}") for i in range(2 * count)]
        out = preset(net, net.input("x"), None, states, D, [H, H], scope="s", static_rnn_unroll_size=unroll)
        net.outputs(**{f"{i}": blob for i, blob in enumerate(out)})
        results.append(run_of(net, x=X, **random_arrays(4, **{f"s{i}": state for i in range(2 * count)})))
    (_, out, grads), (_, unrolled_out, unrolled_grads) = results
    for name, array in out.items():
        np.testing.assert_allclose(unrolled_out[name], array, rtol=1e-12, atol=1e-14)
    for name, array in grads.items():
        np.testing.assert_allclose(unrolled_grads[name], array, rtol=1e-9, atol=1e-12)


# -- dropout ----------------------------------------------------------------------------------------------------


def dropped(forward_only: bool = False, ratio: float | None = 0.5) -> ro.Net:
    net = ro.Net("dropped")
    cell = ro.cells.DropoutCell(ro.cells.LSTMCell(D, 32, name="c", forward_only=forward_only), ratio)
    output, states = cell.apply_over_sequence(net, net.input("x"))
    net.outputs(output=output, hidden=states[0])
    return net


def test_dropout_touches_the_output_only_and_draws_anew_at_every_step() -> None:
    net = dropped()
    run, feeds = on_device(net), {**random_params(net), "x": X}
    out = run(feeds, training=True, seed=1)
    mask = out["output"] != 0
    np.testing.assert_allclose(out["output"], np.where(mask, 2 * out["hidden"], 0), rtol=1e-14)
    assert len({step.tobytes() for step in mask}) == T
    assert 0.3 < mask.mean() < 0.7
    np.testing.assert_array_equal(run(feeds)["output"], run(feeds)["hidden"])
    np.testing.assert_array_equal(run(feeds)["hidden"], out["hidden"])


@pytest.mark.parametrize(("forward_only", "ratio"), [(True, 0.5), (False, None), (False, 0.0)])
def test_dropout_that_is_off(forward_only: bool, ratio: float | None) -> None:
    net = dropped(forward_only, ratio)
    assert "Dropout" not in str(net)
    out = on_device(net)({**random_params(net), "x": X}, training=True)
    np.testing.assert_array_equal(out["output"], out["hidden"])


def test_dropout_between_layers_of_a_stack() -> None:
    net = ro.Net("stack")
    cells = [ro.cells.DropoutCell(ro.cells.GRUCell(D if i == 0 else H, H, name=f"layer_{i}"), 0.5) for i in range(2)]
    output, states = ro.cells.MultiRNNCell(cells).apply_over_sequence(net, net.input("x"))
    net.outputs(output=output, top=states[2])
    run, feeds = on_device(net), {**random_params(net), "x": X}
    first, again, other = (run(feeds, training=True, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_equal(first, again)
    assert not np.array_equal(first["top"], other["top"]), "the upper layer reads the lower one's dropped output"


# -- sharing ----------------------------------------------------------------------------------------------------


@pytest.mark.covering(1)
@pytest.mark.parametrize("cell_class", CELLS)
def test_one_cell_applied_twice_shares_its_weights(cell_class: Any) -> None:
    net = ro.Net("twice")
    cell = cell_class(D, H, name="c")
    x = net.input("x")
    first, states = cell.apply_over_sequence(net, x)
    second, _ = cell.apply_over_sequence(net, x * 2.0)
    net.outputs(first=first, second=second)
    assert len({spec.name for spec in net.parameters}) == len(net.parameters)
    assert states[0].name == "c/hidden_t_all"
    assert second.name == "apply_1/c/hidden_t_all"
    feeds, out, grads = run_of(net, x=X)
    total = {name: np.zeros_like(grad) for name, grad in grads.items() if name != "x"}
    for factor, name in ((1.0, "first"), (2.0, "second")):
        alone = ro.Net("alone")
        alone.outputs(y=cell_class(D, H, name="c").apply_over_sequence(alone, alone.input("x"))[0])
        came, pullback = on_device(alone).vjp({**feeds, "x": X * factor})
        np.testing.assert_array_equal(came["y"], out[name])
        for key, grad in pullback(np.ones_like(came["y"])).items():
            if key != "x":
                total[key] += grad
    for key, grad in total.items():
        np.testing.assert_allclose(grads[key], grad, rtol=1e-12, atol=1e-14)


def test_cells_of_one_name_share_and_cells_of_two_do_not() -> None:
    for names, count in ((("a", "a"), 6), (("a", "b"), 12)):
        net = ro.Net("named")
        for name in names:
            ro.cells.LSTMCell(D, H, name=name).apply_over_sequence(net, net.blob("x") if "x" in net else net.input("x"))
        assert len(net.parameters) == count


def test_presets_without_a_scope_get_names_of_their_own() -> None:
    net = ro.Net("unnamed")
    x = net.input("x")
    lower = ro.LSTM(net, x, None, None, D, H)[0]
    upper = ro.LSTM(net, lower, None, None, H, H)[0]
    assert lower.name == "lstm/hidden_t_all"
    assert upper.name == "lstm_1/hidden_t_all"
    other = ro.Net("taken")
    for name in ("lstm/a", "lstm_1/a", "lstm_2/a"):
        other.input(name)
    assert ro.LSTM(other, other.input("x"), None, None, D, H)[0].name == "lstm_3/hidden_t_all"


def test_name_scopes_prefix_presets_and_leave_named_cells_alone() -> None:
    net = ro.Net("scoped")
    x = net.input("x")
    with ro.name_scope("encoder"):
        preset = ro.GRU(net, x, None, None, D, H, scope="first")[0]
        unnamed = ro.GRU(net, preset, None, None, H, H)[0]
        named = ro.cells.GRUCell(H, H, name="absolute").apply_over_sequence(net, unnamed)[0]
    assert preset.name == "encoder/first/hidden_t_all"
    assert unnamed.name == "encoder/gru/hidden_t_all"
    assert named.name == "absolute/hidden_t_all"
    assert {spec.name.rpartition("/")[0] for spec in net.parameters} == {"encoder/first", "encoder/gru", "absolute"}
