"""`recurrent_net` by hand: windows, offsets, reverse, state shapes, shared blobs, step outputs."""

from __future__ import annotations

import numpy as np
import pytest
from checks import check_gradient
from random_feeds import bits, random_feeds
from stepped_nets import SHAPES, D, N, T, plain_cell, stepped

import rnnops as ro


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("initial", [(D,), (N, D), (1, N, D)], ids=str)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_initial_states(initial: tuple[int, ...], reverse: bool, steps: int) -> None:
    net = stepped(plain_cell(), reverse=reverse)
    check_gradient(net, random_feeds(net, xs=(steps, N, D), h_prev_0=initial, **SHAPES))


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int) -> None:
    net = stepped(plain_cell())
    check_gradient(net, random_feeds(net, xs=(T, rows, D), h_prev_0=(D,), **SHAPES))


def lengths_cell(drop: int) -> ro.Net:
    cell = ro.Net("masked")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
    cell.outputs(h_t=ro.select_valid(ro.tanh(x_t + h_prev * 0.7), h_prev, lengths, t, drop))
    return cell


@pytest.mark.parametrize(("drop", "reverse"), [(0, False), (1, False), (0, True)])
def test_lengths(drop: int, reverse: bool) -> None:
    net = stepped(lengths_cell(drop), timestep="t", reverse=reverse)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h_prev_0=(N, D), lengths=np.array([4, 0, 2], np.int32)))


# -- windows -------------------------------------------------------------------------------------------------------


def window_cell(window: int) -> ro.Net:
    """Reads several earlier steps at once, `[window, N, D]`, each with its own weight."""
    cell = ro.Net("window")
    x_t, past, v = cell.inputs("x_t", "past", "v")
    cell.outputs(h_t=ro.sin(x_t + ro.reduce_sum(past * v, [0], keepdims=0)))
    return cell


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("window", "offset", "initial"),
    [
        (1, None, 1),
        (2, None, 2),
        (3, None, 3),
        (1, 0, 3),
        (1, 1, 3),
        (1, 2, 3),
        (2, 0, 3),
        (2, 1, 3),
        (2, 0, 2),
    ],
)
def test_windows(window: int, offset: int | None, initial: int, reverse: bool) -> None:
    link = ro.Link("h_t", window=window, offset=offset)
    net = stepped(window_cell(window), states=["past"], links={"past": link}, reverse=reverse)
    v = (window, 1, D) if window > 1 else (1, N, D)
    check_gradient(net, random_feeds(net, xs=(T, N, D), past_0=(initial, N, D), v=v))


def test_a_window_that_sees_more_than_there_is() -> None:
    """T below the window: initial steps reach the last step."""
    net = stepped(window_cell(3), states=["past"], links={"past": ro.Link("h_t", window=3)})
    check_gradient(net, random_feeds(net, xs=(2, N, D), past_0=(3, N, D), v=(3, 1, D)))


def test_a_window_that_is_a_state_and_kept_in_part() -> None:
    cell = ro.Net("convolution")
    x_t, past, w = cell.inputs("x_t", "past", "w")
    first, _, last = ro.split(past, 3, axis=0)
    mixed = ro.squeeze(first, [0]) * 0.3 + ro.squeeze(last, [0]) @ w
    cell.outputs(h_t=ro.tanh(mixed + x_t), seen=ro.reduce_max(past, [0], keepdims=0))
    net = stepped(cell, states=["past"], links={"past": ro.Link("h_t", window=3)})
    check_gradient(net, random_feeds(net, xs=(T, N, D), past_0=(3, N, D), w=(D, D)))


# -- states --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "initial"),
    [
        ((), ()),
        ((), (N,)),
        ((), (1, N)),
        ((2, 3), (2, 3)),
        ((2, 3), (N, 2, 3)),
        ((2, 3), (1, N, 2, 3)),
    ],
    ids=str,
)
def test_state_shapes(features: tuple[int, ...], initial: tuple[int, ...]) -> None:
    cell = ro.Net("shaped")
    x_t, s_prev, w = cell.inputs("x_t", "s_prev", "w")
    cell.outputs(s_t=ro.tanh(s_prev * w + x_t))
    net = stepped(cell, states=["s_prev"], links={"s_prev": "s_t"}, state_shapes={"s_prev": features})
    check_gradient(net, random_feeds(net, xs=(T, N, *features), s_prev_0=initial, w=features))


def test_three_states_of_several_shapes() -> None:
    cell = ro.Net("three")
    x_t, a, b, c = cell.inputs("x_t", "a", "b", "c")
    total = ro.reduce_sum(b, [1, 2], keepdims=0)
    new_c = ro.sigmoid(c * 0.5 + total)
    cell.outputs(
        a_t=ro.tanh(x_t + a + ro.unsqueeze(c, [1])),
        c_t=new_c,
        b_t=ro.softsign(b + ro.unsqueeze(a, [1]) * ro.reshape(new_c, [-1, 1, 1])),
    )
    links = {"a": "a_t", "b": "b_t", "c": "c_t"}
    net = stepped(cell, states=["a", "b", "c"], links=links, state_shapes={"b": (3, D), "c": ()})
    check_gradient(net, random_feeds(net, xs=(T, N, D), a_0=(D,), b_0=(1, N, 3, D), c_0=(N,)))


def test_an_integer_state_counts() -> None:
    cell = ro.Net("counter")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    count = cell.input("count", "int32")
    cell.outputs(h_t=ro.tanh(x_t * (1.0 + ro.cast(count, "float")) + h_prev), count_t=count + 1)
    net = ro.Net("model")
    initial = [("h_prev", net.input("h0")), ("count", net.input("count0", "int32"))]
    links = {"h_prev": "h_t", "count": "count_t"}
    net.outputs(*ro.recurrent_net(net, cell, [("x_t", net.input("xs"))], initial, links))
    count = np.array([[0, 1], [2, 0], [5, 3]], np.int32)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h0=(N, D), count0=count))


def test_pass_through() -> None:
    """The output is a sum with the state itself, so every step's gradient reaches all earlier ones."""
    cell = ro.Net("sum")
    x_t, prev = cell.inputs("x_t", "prev")
    cell.outputs(out=x_t + prev)
    net = stepped(cell, states=["prev"], links={"prev": "out"})
    check_gradient(net, random_feeds(net, xs=(T, N, D), prev_0=(N, D)))


def test_outputs_that_are_inputs() -> None:
    """A shift register: states that are another state or the input as it is."""
    cell = ro.Net("shift")
    x_t, one, two = cell.inputs("x_t", "one", "two")
    cell.outputs(one_t=x_t, two_t=one, seen=two, product=one * two)
    net = stepped(cell, states=["one", "two"], links={"one": "one_t", "two": "two_t"})
    check_gradient(net, random_feeds(net, xs=(T, N, D), one_0=(N, D), two_0=(D,)))


# -- bindings ------------------------------------------------------------------------------------------------------


def test_one_blob_as_two_initial_states_and_a_reference() -> None:
    cell = ro.Net("shared")
    x_t, a, b, r = cell.inputs("x_t", "a", "b", "r")
    cell.outputs(a_t=ro.tanh(a + x_t * r), b_t=ro.sin(b * a))
    net = ro.Net("model")
    xs, h = net.inputs("xs", "h")
    links = {"a": "a_t", "b": "b_t"}
    results = ro.recurrent_net(net, cell, [("x_t", xs)], [("a", h), ("b", h)], links, references={"r": h})
    net.outputs(*results, h=h * 2.0)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h=(N, D)))


def test_one_blob_as_two_sequences_and_a_reference() -> None:
    cell = ro.Net("attending")
    x_t, y_t, h_prev, memory = cell.inputs("x_t", "y_t", "h_prev", "memory")
    cell.outputs(h_t=ro.tanh(x_t * y_t + h_prev + ro.reduce_mean(memory, [0], keepdims=0)))
    net = ro.Net("model")
    xs = ro.sin(net.input("xs"))
    stepped(cell, net, [("x_t", xs), ("y_t", xs)], references={"memory": xs})
    check_gradient(net, random_feeds(net, xs=(T, N, D), h_prev_0=(D,)))


def test_several_sequences_of_several_ranks() -> None:
    cell = ro.Net("many")
    x_t, y_t, z_t, h_prev = cell.inputs("x_t", "y_t", "z_t", "h_prev")
    labels, flags = cell.input("labels", "int64"), cell.input("flags", "bool")
    picked = ro.gather(z_t, labels, axis=0)
    cell.outputs(h_t=ro.tanh(x_t + ro.unsqueeze(y_t, [1]) * h_prev + ro.where(ro.unsqueeze(flags, [1]), picked, 0.5)))
    net = ro.Net("model")
    sequences = [(name, net.input(f"{name}s")) for name in ("x_t", "y_t", "z_t")]
    sequences += [("labels", net.input("labels", "int64")), ("flags", net.input("flags", "bool"))]
    stepped(cell, net, sequences)
    check_gradient(
        net,
        random_feeds(
            net,
            x_ts=(T, N, D),
            y_ts=(T, N),
            z_ts=(T, N, D),
            h_prev_0=(N, D),
            labels=np.arange(T * N, dtype=np.int64).reshape(T, N) % N,
            flags=np.arange(T * N).reshape(T, N) % 3 > 0,
        ),
    )


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_no_sequence(steps: int) -> None:
    cell = ro.Net("free")
    h_prev, w = cell.inputs("h_prev", "w")
    cell.outputs(h_t=ro.sin(h_prev @ w))
    net = stepped(cell, sequences=[], steps=steps)
    check_gradient(net, random_feeds(net, h_prev_0=(N, D), w=(D, D)))


@pytest.mark.parametrize("reverse", [False, True])
def test_step_outputs_that_are_no_state(reverse: bool) -> None:
    cell = ro.Net("outputs")
    x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
    h_t = ro.tanh(x_t + h_prev @ w)
    cell.outputs(h_t=h_t, energy=ro.reduce_sum(h_t * h_t), logits=ro.softmax(h_t @ w), x=x_t, sign=ro.sign(h_t), unit=w)
    net = stepped(cell, reverse=reverse)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h_prev_0=(N, D), w=(D, D)))


def test_no_state_at_all() -> None:
    cell = ro.Net("map")
    x_t, w = cell.inputs("x_t", "w")
    cell.outputs(y=ro.relu(x_t @ w))
    net = stepped(cell, states=(), links={})
    check_gradient(net, random_feeds(net, xs=(T, N, D), w=(D, D)))


def test_the_timestep_is_read() -> None:
    cell = ro.Net("positions")
    x_t, h_prev, table = cell.inputs("x_t", "h_prev", "table")
    t = cell.input("t", "int32")
    row = ro.gather(table, t, axis=0)
    cell.outputs(h_t=ro.tanh(x_t + h_prev * row) * ro.cast(t + 1, "float"))
    net = stepped(cell, timestep="t", reverse=True)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h_prev_0=(N, D), table=(T + 1, D)))


@pytest.mark.parametrize("used", ["h_t_all", "h_t_last", "y_all", "y_last"])
def test_one_result_alone(used: str) -> None:
    cell = ro.Net("alone")
    x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
    h_t = ro.tanh(x_t + h_prev @ w)
    cell.outputs(h_t=h_t, y=h_t * x_t)
    net = stepped(cell)
    alone = ro.Net("alone")
    xs, h0, w = alone.inputs("xs", "h0", "w")
    options = {"outputs_with_grads": [used], "references": {"w": w}}
    ro.recurrent_net(alone, cell, [("x_t", xs)], [("h_prev", h0)], {"h_prev": "h_t"}, **options)
    alone.outputs(y=ro.exp(alone.blob(used)))
    check_gradient(alone, random_feeds(alone, xs=(T, N, D), h0=(N, D), w=(D, D)))
    check_gradient(net, random_feeds(net, xs=(T, N, D), h_prev_0=(N, D), w=(D, D)), outputs=[used])


def test_an_optional_input_left_out_beside_a_result_that_nobody_reads() -> None:
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    cell.outputs(h_t=ro.sin(x_t + h_prev))
    net = ro.Net("model")
    initial = [("h_prev", net.input("h0"))]
    every, _ = ro.recurrent_net(net, cell, [("x_t", net.input("xs"))], initial, {"h_prev": "h_t"})
    net.outputs(y=ro.exp(ro.clip(every, max=0.4)))
    check_gradient(net, random_feeds(net, xs=(T, N, D), h0=(N, D)))


# -- gradients of initial states that are not wanted ----------------------------------------------------------------


def nested_cell() -> ro.Net:
    """A recurrence inside a cell, whose initial state is the state outside."""
    cell = ro.Net("outer")
    x_t, h_prev, *_ = cell.inputs("x_t", "h_prev", "w", "u")
    results = ro.recurrent_net(
        cell, plain_cell("inner"), [("x_t", ro.unsqueeze(x_t, [0]))], [("h_prev", h_prev)], {"h_prev": "h_t"}
    )
    cell.outputs(h_t=ro.tanh(ro.squeeze(results[0], [0]) + h_prev))
    return cell


ONE_STEP = {
    "plain": lambda: (stepped(plain_cell()), {"h_prev_0": (N, D), **SHAPES}),
    "reverse": lambda: (stepped(plain_cell(), reverse=True), {"h_prev_0": (D,), **SHAPES}),
    "nested": lambda: (stepped(nested_cell()), {"h_prev_0": (1, N, D), **SHAPES}),
    "window": lambda: (
        stepped(window_cell(3), states=["past"], links={"past": ro.Link("h_t", window=3)}),
        {"past_0": (3, N, D), "v": (3, 1, D)},
    ),
    "lengths": lambda: (
        stepped(lengths_cell(0), timestep="t"),
        {"h_prev_0": (N, D), "lengths": np.array([1, 0, 1], np.int32)},
    ),
}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ONE_STEP)
def test_the_other_gradients_of_one_step_are_the_same(kind: str, device: str) -> None:
    """At T = 1 nothing reads the gradient of a state but the caller; the others have the same bits without it."""
    net, shapes = ONE_STEP[kind]()
    feeds = random_feeds(net, xs=(1, N, D), **shapes)
    wrt = [name for name in ("xs", "w", "u", "v") if name in feeds]
    run = ro.compile(net, device=device)
    every, some = bits(run, feeds), bits(run, feeds, wrt=wrt)
    assert {f"grad {name}" for name in wrt} <= some.keys() < every.keys()
    assert some == {name: every[name] for name in some}
    given = {f"d_{name}": np.ones(array.shape) for name, array in run(feeds).items()}
    found = ro.compile(ro.gradient_net(net, wrt, **feeds), device=device)({**feeds, **given})
    wanted = run.vjp(feeds)[1]({name.removeprefix("d_"): one for name, one in given.items()})
    for name in wrt:
        np.testing.assert_allclose(found[f"d_{name}"], wanted[name], rtol=1e-13, atol=1e-15)


def test_a_step_that_hands_on_no_gradient_computes_none() -> None:
    net = stepped(plain_cell())
    run, shapes = ro.compile(net), {"h_prev_0": (N, D), **SHAPES}
    products = [
        str(run.plan(xs=(steps, N, D), **shapes, wrt=wrt).describe()).count("@")
        for steps, wrt in ((1, ["w", "u"]), (2, ["w", "u"]), (1, ["w", "u", "h_prev_0"]))
    ]
    assert products[1] == products[2] > products[0]
