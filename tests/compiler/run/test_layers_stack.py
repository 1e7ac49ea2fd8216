"""Layers inside one recurrence: a stack goes layer by layer, what cannot be taken apart stays one."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import random_arrays
from devices import DEVICES, device_name, on_device
from layer_runs import Arrays, by_layers, layers_of, plain, start

import rnnops as ro
from rnnops.compiler.run import layer_plan
from rnnops.compiler.run.compiled_scan import Options
from rnnops.testing.gradient_check import difference, tolerance_of

T, N, D = 6, 4, 3
LENGTHS = np.array([6, 2, 0, 5], "int32")


def sequence_net(
    kind: str = "LSTM", sizes: tuple[int, ...] = (4, 5, 4), lengths: bool = False, **options: bool
) -> ro.Net:
    net = ro.Net("stack")
    x, ends = net.inputs("x"), net.input("lengths", "int32") if lengths else None
    results = getattr(ro, kind)(net, x, ends, None, D, list(sizes), scope="s", **options)
    net.outputs(y=results[0], last=results[-1])
    return net


def feeds_of(net: ro.Net, dtype: str = "float64") -> Arrays:
    x = random_arrays(x=(T, N, D))["x"].astype(dtype)
    lengths = {"lengths": LENGTHS} if "lengths" in net.input_names else {}
    return {**ro.init_params(net, 0, dtype), "x": x, **lengths}


def assert_same(came: Arrays, wanted: Arrays, exact: bool) -> None:
    assert came.keys() == wanted.keys()
    for name, array in wanted.items():
        assert not exact or came[name].tobytes() == array.tobytes(), name
        assert difference(came[name], array) <= 10 * tolerance_of(array.dtype).limit(array), name


class Everything:
    """A set of all tensors there are."""

    def __and__(self, others: set[str]) -> set[str]:
        return others


def owners(names: list[list[str]]) -> list[set[str]]:
    """Which layers of the stack the parameters of each yield belong to."""
    return [
        {"layer_0" if "i2h" in name and "layer" not in name else name.split("/")[1] for name in row} for row in names
    ]


@pytest.mark.covering(2)
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("options", [{}, {"memory_optimization": True}, {"drop_states": True}], ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LayerNormMILSTM", "BasicRNN"])
def test_presets_go_layer_by_layer(kind: str, options: dict[str, bool], lengths: bool) -> None:
    net = sequence_net(kind, lengths=lengths, **options)
    feeds = feeds_of(net)
    run, params = on_device(net), [spec.name for spec in net.parameters]
    names, grads, _ = by_layers(run, feeds, wrt=params)
    assert owners(names) == [{"layer_2"}, {"layer_1"}, {"layer_0"}]
    assert_same(grads, plain(run, feeds, wrt=params), device_name() == "reference")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_stacks(dtype: str) -> None:
    net = sequence_net(lengths=True)
    feeds = feeds_of(net, dtype)
    run = ro.compile(net, threads=2, tuning=Options(tile=2))
    names, grads, _ = by_layers(run, feeds)
    assert len(names) == 3
    assert_same(grads, plain(run, feeds), False)


def test_a_compiled_stack_stays_one_where_its_layers_would_read_what_was_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Past the end of a row the forward pass stores what the backward pass in one piece reads."""
    answers = iter([Everything(), frozenset()])
    monkeypatch.setattr(layer_plan, "past_end_reads", lambda _: next(answers))
    net = sequence_net(lengths=True)
    run, feeds = DEVICES["plain"](net), feeds_of(net)
    names, grads, _ = by_layers(run, feeds)
    assert len(names) == 1
    assert_same(grads, plain(run, feeds), False)


@pytest.mark.usefixtures("device")
def test_layers_of_a_stack_are_called_by_their_results() -> None:
    """Also by those that nobody reads."""
    net = sequence_net()
    feeds = feeds_of(net)
    top, middle, bottom = layers_of(on_device(net), feeds)
    assert top == tuple(f"s/layer_2/{state}_{part}" for state in ("hidden_t", "cell_t") for part in ("all", "last"))
    assert middle[0] == "s/layer_1/hidden_t_all"
    frozen, *_ = by_layers(on_device(net), feeds, wrt=[p.name for p in net.parameters], freeze=middle[2])
    assert owners(frozen) == [{"layer_2"}, {"layer_1"}]
    assert bottom[-1] == "s/layer_0/cell_t_last"


@pytest.mark.usefixtures("device")
def test_gradients_between_layers_of_a_stack() -> None:
    """What a layer adds to the gradients of the states below, as it is where both are recurrences of their own."""
    net = sequence_net(sizes=(4, 5))
    feeds = feeds_of(net)
    pullback, dy = start(on_device(net), feeds)
    found = [of for *_, of in pullback.layers(dy, output=["s/layer_1/hidden_t_all", "s/layer_0/hidden_t_all"])]
    assert [list(of) for of in found] == [["s/layer_0/hidden_t_all"], ["x"]]
    apart = ro.Net("apart")
    h, *_ = ro.cells.LSTMCell(D, 4, name="below").apply_over_sequence(apart, apart.input("x"))
    y, states = ro.cells.LSTMCell(4, 5, name="above").apply_over_sequence(apart, h.named("h"))
    apart.outputs(y=y, last=states[-1])
    renamed = {"s/i2h": "below/i2h", "s/layer_0": "below", "s/layer_1": "above"}
    same = {"x": feeds["x"]}
    for name, array in feeds.items():
        for old, new in renamed.items():
            if name.startswith(old):
                same[new + name.removeprefix(old)] = array
    pullback, _ = start(on_device(apart), same)
    wanted = [of for *_, of in pullback.layers(dy, output=["above/hidden_t_all", "h"])]
    np.testing.assert_allclose(found[0]["s/layer_0/hidden_t_all"], wanted[0]["h"], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found[1]["x"], wanted[1]["x"], rtol=1e-11, atol=1e-13)


@pytest.mark.usefixtures("device")
def test_a_stack_inside_a_layer_is_that_layer() -> None:
    net = ro.Net("one")
    with net.layer("encoder"):
        h, *_ = ro.LSTM(net, net.input("x"), None, None, D, [4, 4], scope="s")
    net.outputs(y=h)
    assert len(by_layers(on_device(net), feeds_of(net))[0]) == 1


def stepped(net: ro.Net, cell: ro.Net, states: dict[str, str], **options: object) -> ro.Net:
    x = net.input("x")
    initial = [(name, net.input(f"{name}0")) for name in states]
    results = ro.recurrent_net(net, cell, [("x_t", x)], initial, states, **options)
    net.outputs(**{f"y{k}": result for k, result in enumerate(results[::2])})
    return net


def two_layers(shared: bool = False, back: bool = False, skip: bool = False) -> ro.Net:
    """Two layers in one cell, `a` below `b`.

    Args:
        shared: both have one weight.
        back: `a` sees what `b` was before.
        skip: `b` sees the input, too, and an output adds both.
    """
    cell = ro.Net("cell")
    x_t, a, b, w, v = cell.inputs("x_t", "a", "b", "w", "v")
    a_t = ro.tanh(x_t @ w + a @ (v if shared else w) + (b if back else 0.0))
    b_t = ro.tanh(a_t @ v + b * 0.5 + (x_t if skip else 0.0))
    cell.outputs(a_t=a_t, b_t=b_t, **({"sum": ro.dropout(a_t, 0.3) + b_t} if skip else {}))
    return cell


def run_two(reverse: bool = False, **options: bool) -> tuple[ro.Run, Arrays]:
    net = stepped(ro.Net("net"), two_layers(**options), {"a": "a_t", "b": "b_t"}, reverse=reverse)
    feeds = random_arrays(x=(T, N, N), a0=(N, N), b0=(1, N, N), w=(N, N), v=(N, N))
    return on_device(net), feeds


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({}, [["b0", "v"], ["x", "a0", "w"]]),
        ({"skip": True}, [["b0", "v"], ["x", "a0", "w"]]),
        ({"shared": True}, [["x", "a0", "b0", "w", "v"]]),  # all sizes are equal: its gradient looks row by row
        ({"back": True}, [["x", "a0", "b0", "w", "v"]]),
    ],
    ids=str,
)
def test_what_splits_and_what_does_not(options: dict[str, bool], layers: list[list[str]], reverse: bool) -> None:
    run, feeds = run_two(reverse, **options)
    names, grads, _ = by_layers(run, feeds)
    assert [sorted(row) for row in names] == [sorted(row) for row in layers]
    assert_same(grads, plain(run, feeds), device_name() == "reference")


@pytest.mark.usefixtures("device")
def test_attention_is_one_layer() -> None:
    """The context goes back into the decoder: nothing in it comes first."""
    net = ro.Net("attention")
    x, encoder = net.inputs("x", "encoder")
    cell = ro.cells.LSTMWithAttentionCell(D, encoder, None, D, 4, "regular", name="decoder")
    net.outputs(y=cell.apply_over_sequence(net, x)[0])
    feeds = {**feeds_of(net), **random_arrays(encoder=(5, N, D))}
    run = on_device(net)
    names, grads, _ = by_layers(run, feeds)
    assert {f"decoder/{name}_w" for name in ("decoder/i2h", "decoder/gates_t", "attention_logits")} <= set(names[0])
    assert names[-1] == ["encoder"]  # what is made of it before the first step are layers of their own
    assert_same(grads, plain(run, feeds), device_name() == "reference")


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("steps", [0, 1])
def test_no_steps_or_one(steps: int) -> None:
    net = sequence_net(sizes=(4, 5))
    feeds = {**feeds_of(net), "x": np.ones((steps, N, D))}
    run = on_device(net)
    names, grads, _ = by_layers(run, feeds)
    assert len(names) == 2
    assert_same(grads, plain(run, feeds), device_name() == "reference")
