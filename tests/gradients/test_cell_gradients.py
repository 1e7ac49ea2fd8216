"""Every cell: all inputs and parameters against central differences; memory optimization changes no bit of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import check_gradient
from random_feeds import bits, random_feeds

import rnnops as ro

T, N, D, H, S, E = 3, 3, 2, 2, 3, 2
PRESETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "basic_rnn": (ro.BasicRNN, {}),
    "basic_rnn_relu": (ro.BasicRNN, {"activation": "relu"}),
    "lstm": (ro.LSTM, {}),
    "milstm": (ro.MILSTM, {}),
    "layer_norm_lstm": (ro.LayerNormLSTM, {}),
    "layer_norm_milstm": (ro.LayerNormMILSTM, {}),
    "gru": (ro.GRU, {}),
    "gru_linear_before_reset": (ro.GRU, {"linear_before_reset": True}),
}
LENGTHS = {"none": None, "unequal": [3, 1, 2], "with zeros": [0, 2, 0]}
STATE_SHAPES = {"none": None, "unequal": (N, H), "with zeros": (1, N, H)}
LENGTHS_AND_DROP = [
    ("none", False),
    *((lengths, drop) for lengths in ("unequal", "with zeros") for drop in (False, True)),
]
PARAMETERS = {
    "lstm": {"i2h_w", "i2h_b", "gates_t_w", "gates_t_b"},
    "milstm": {"i2h_w", "i2h_b", "prev_t_w", "prev_t_b", "alpha", "beta1", "beta2", "b"},
    "gru": {"i2h_w", "i2h_b", *(f"{gate}_gate_t_{part}" for gate in ("reset", "update", "output") for part in "wb")},
}


def build(kind: str, lengths: str, sizes: Any = H, **options: Any) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A preset over a sequence, with feeds: initial states are parameters, `[N, H]` or `[1, N, H]`."""
    preset, extra = PRESETS[kind]
    net = ro.Net(kind)
    x = net.input("x")
    rows = None if LENGTHS[lengths] is None else net.input("seq_lengths", "int32")
    layers = len(sizes) if isinstance(sizes, list) else 1
    count = layers * (2 if "lstm" in kind else 1)
    states = None if STATE_SHAPES[lengths] is None else [net.input(f"s{i}") for i in range(count)]
    results = preset(net, x, rows, states, D, sizes, scope="cell", **{**extra, **options})
    net.outputs(**{f"y{i}": blob for i, blob in enumerate(results)})
    given: dict[str, Any] = {"x": (T, N, D), **{f"s{i}": STATE_SHAPES[lengths] for i in range(count)}}
    if rows is not None:
        given["seq_lengths"] = np.array(LENGTHS[lengths], np.int32)
    return net, random_feeds(net, **given)


@pytest.mark.covering(1)  # each preset with rows of unequal length: the two tests below
@pytest.mark.parametrize(("lengths", "drop"), LENGTHS_AND_DROP)
@pytest.mark.parametrize("kind", PRESETS)
def test_presets(kind: str, lengths: str, drop: bool) -> None:
    net, feeds = build(kind, lengths, drop_states=drop, forget_bias=0.7)
    report = check_gradient(net, feeds)
    names = {row.name for row in report.inputs}
    assert {f"cell/{name}" for name in PARAMETERS.get(kind, ())} <= names
    optimized, _ = build(kind, lengths, drop_states=drop, forget_bias=0.7, memory_optimization=True)
    assert bits(optimized, feeds) == bits(net, feeds)


@pytest.mark.parametrize("kind", PRESETS)
def test_memory_optimization(kind: str) -> None:
    check_gradient(*build(kind, "unequal", memory_optimization=True))


@pytest.mark.parametrize("kind", PRESETS)
def test_only_the_last_state_is_used(kind: str) -> None:
    net, feeds = build(kind, "unequal", outputs_with_grads=(1,))
    check_gradient(net, feeds, outputs=["y1"])


@pytest.mark.parametrize("kind", ["lstm", "milstm", "gru", "basic_rnn_relu"])
def test_stacks(kind: str) -> None:
    for lengths, drop in (("none", False), ("with zeros", True)):
        net, feeds = build(kind, lengths, [2, 2], drop_states=drop, return_last_layer_only=False)
        check_gradient(net, feeds)
        optimized, _ = build(
            kind, lengths, [2, 2], drop_states=drop, return_last_layer_only=False, memory_optimization=True
        )
        assert bits(optimized, feeds) == bits(net, feeds)


@pytest.mark.parametrize("kind", PRESETS)
def test_unrolled_cells(kind: str) -> None:
    for lengths, drop in (("none", False), ("unequal", False), ("with zeros", True)):
        unrolled, feeds = build(kind, lengths, drop_states=drop, static_rnn_unroll_size=T)
        check_gradient(unrolled, feeds)
        stepped, _ = build(kind, lengths, drop_states=drop)
        results = []
        for net in (unrolled, stepped):
            out, pullback = ro.compile(net, device="reference").vjp({name: feeds[name] for name in net.input_names})
            results.append({**out, **pullback({name: np.cos(array) for name, array in out.items()})})
        assert results[0].keys() == results[1].keys()
        for name, array in results[0].items():
            np.testing.assert_allclose(results[1][name], array, rtol=0, atol=1e-13, err_msg=name)


def over_sequence(
    cell: ro.cells.RNNCell, net: ro.Net, lengths: list[int] | None, **more: Any
) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A cell over a sequence with trainable initial states, and feeds for the net."""
    rows = None if lengths is None else net.input("seq_lengths", "int32")
    output, states = cell.apply_over_sequence(net, net.input("x"), rows)
    net.outputs(output=output, **{f"state{i}": blob for i, blob in enumerate(states)})
    if lengths is not None:
        more["seq_lengths"] = np.array(lengths, np.int32)
    return net, random_feeds(net, x=(T, N, D), **more)


def mixed_stack(residual: list[int], memory: bool, ratio: float | None = None) -> ro.cells.MultiRNNCell:
    """Three cells of three kinds, each in dropout where there is a ratio."""
    options = {"memory_optimization": memory}
    cells: list[ro.cells.RNNCell] = [
        ro.cells.BasicRNNCell(D, H, name="one", **options),
        ro.cells.GRUCell(H, H, name="two", **options),
        ro.cells.LSTMCell(H, H, name="three", forget_bias=1.0, **options),
    ]
    return ro.cells.MultiRNNCell([ro.cells.DropoutCell(cell, ratio) for cell in cells], residual)


@pytest.mark.parametrize("residual", [[], [1], [2], [1, 2]], ids=str)
def test_residual_layers(residual: list[int]) -> None:
    net, feeds = over_sequence(mixed_stack(residual, False), ro.Net("stack"), [3, 0, 2])
    check_gradient(net, feeds)
    optimized, _ = over_sequence(mixed_stack(residual, True), ro.Net("stack"), [3, 0, 2])
    assert bits(optimized, feeds) == bits(net, feeds)


@pytest.mark.parametrize("training", [True, False])
def test_dropout_cells(training: bool) -> None:
    results = []
    for memory in (False, True):
        net, feeds = over_sequence(mixed_stack([1, 2], memory, 0.4), ro.Net("dropout"), [3, 1, 2])
        check_gradient(net, feeds, seed=11, training=training)
        results.append(bits(net, feeds, seed=11, training=training))
    assert results[0] == results[1]


def test_one_cell_used_twice() -> None:
    net = ro.Net("twice")
    cell = ro.cells.GRUCell(D, D, name="shared")
    first, _ = cell.apply_over_sequence(net, net.input("x"))
    second, states = cell.apply_over_sequence(net, first)
    net.outputs(first=first, second=second, last=states[1])
    check_gradient(net, random_feeds(net, x=(T, N, D)))


def test_single_steps() -> None:
    net = ro.Net("steps")
    cell = ro.cells.MILSTMCell(D, H, name="cell", drop_states=True)
    lengths, steps = net.input("seq_lengths", "int32"), [net.input(name, "int32") for name in ("t0", "t1")]
    x, states = net.input("x"), list(net.inputs("h", "c"))
    for step in steps:
        output, states = cell.apply(net, x, lengths, states, step)
    net.outputs(output=output, c=states[1])
    feeds = {f"t{i}": np.array([i], np.int32) for i in range(2)}
    feeds["seq_lengths"] = np.array([0, 1, 2], np.int32)
    check_gradient(net, random_feeds(net, x=(N, D), h=(N, H), c=(N, H), **feeds))


def test_unrolled_stacks() -> None:
    unrolled = ro.cells.UnrolledCell(mixed_stack([1, 2], False), T)
    net, feeds = over_sequence(unrolled, ro.Net("unrolled"), [3, 0, 2])
    check_gradient(net, feeds)
    stepped, _ = over_sequence(mixed_stack([1, 2], False), ro.Net("stepped"), [3, 0, 2])
    results = [
        ro.compile(one, device="reference")({name: feeds[name] for name in one.input_names}) for one in (net, stepped)
    ]
    for name, array in results[0].items():
        np.testing.assert_allclose(results[1][name], array, rtol=0, atol=1e-13, err_msg=name)
