"""Sequences, initial states, links and windows of a recurrence against NumPy loops: outputs and all gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2


def decay_cell() -> ro.Net:
    cell = ro.Net("decay")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(x + h * w))
    return cell


def outer_net(cell: ro.Net, sequences: Any, states: dict[str, Any], **options: Any) -> ro.Net:
    """A net with inputs `<name>s` and `<name>0` for the sequences and states of a cell, and all results as outputs."""
    net = ro.Net("outer")
    inputs = [(name, net.input(f"{name}s")) for name in sequences]
    initial = [(name, net.input(f"{name}0")) for name in states]
    blobs = ro.recurrent_net(net, cell, inputs, initial, states, **options)
    net.outputs(**{blob.name: blob for blob in blobs})
    return net


def both(steps: list[np.ndarray], name: str = "h_t") -> dict[str, np.ndarray]:
    return {f"{name}_all": np.stack(steps), f"{name}_last": steps[-1][None]}


def test_one_sequence() -> None:
    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], h0
        for x in xs:
            h = np.tanh(x + h * w)
            steps.append(h)
        return both(steps)

    net = outer_net(decay_cell(), ["x"], {"h": "h_t"})
    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D), w=(D,)), loop)


def test_no_sequence() -> None:
    cell = ro.Net("free_running")
    h, w = cell.inputs("h", "w")
    cell.outputs(h_t=ro.tanh(h @ w))

    def loop(h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], h0
        for _ in range(T):
            h = np.tanh(h @ w)
            steps.append(h)
        return both(steps)

    assert_agrees(outer_net(cell, [], {"h": "h_t"}, steps=T), random_arrays(h0=(N, D), w=(D, D)), loop)


def test_no_sequence_and_a_one_dimensional_state_have_a_batch_of_one() -> None:
    cell = ro.Net("halving")
    cell.outputs(h_t=cell.inputs("h") * 0.5)
    out = on_device(outer_net(cell, [], {"h": "h_t"}, steps=2))(h0=np.ones(D))
    assert out["h_t_all"].tolist() == [[[0.5, 0.5]], [[0.25, 0.25]]]


def test_several_sequences_of_several_ranks_and_dtypes() -> None:
    cell = ro.Net("several")
    x, image, h = cell.inputs("x", "image", "h")
    on = cell.input("on", "bool")
    cell.outputs(h_t=ro.where(ro.unsqueeze(on, [1]), h * x + ro.reduce_sum(image, axes=[1, 2], keepdims=0), h))
    net = ro.Net("outer")
    xs, images, ons, h0 = net.input("xs"), net.input("images"), net.input("ons", "bool"), net.input("h0")
    blobs = ro.recurrent_net(net, cell, [("x", xs), ("image", images), ("on", ons)], [("h", h0)], {"h": "h_t"})
    net.outputs(h_t_all=blobs[0], h_t_last=blobs[1])

    def loop(xs: np.ndarray, images: np.ndarray, ons: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], h0
        for x, image, on in zip(xs, images, ons, strict=True):
            h = np.where(on[:, None], h * x + image.sum(axis=(1, 2)), h)
            steps.append(h)
        return both(steps)

    feeds = random_arrays(xs=(T, N, D), images=(T, N, 2, 2, D), h0=(N, D))
    assert_agrees(net, {**feeds, "ons": feeds["xs"][:, :, 0] > 0}, loop)


@pytest.mark.parametrize("shape", [(D,), (N, D), (1, N, D)])
def test_initial_state_of_one_two_and_three_dimensions(shape: tuple[int, ...]) -> None:
    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], np.broadcast_to(h0, (1, N, D))[0]
        for x in xs:
            h = np.tanh(x + h * w)
            steps.append(h)
        return both(steps)

    net = outer_net(decay_cell(), ["x"], {"h": "h_t"})
    assert_agrees(net, random_arrays(xs=(T, N, D), h0=shape, w=(D,)), loop)


@pytest.mark.parametrize("leading", [(), (N,), (1, N)])
@pytest.mark.parametrize("features", [(), (2, 3)])
def test_feature_axes_of_other_ranks(features: tuple[int, ...], leading: tuple[int, ...]) -> None:
    cell = ro.Net("decay")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(x + h * w))
    net = outer_net(cell, ["x"], {"h": "h_t"}, state_shapes={"h": features})

    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], np.broadcast_to(h0, (1, N, *features))[0]
        for x in xs:
            h = np.tanh(x + h * w)
            steps.append(h)
        return both(steps)

    assert_agrees(net, random_arrays(xs=(T, N, *features), h0=(*leading, *features), w=features), loop)


WINDOWS = [(1, None, 1), (2, None, 2), (3, None, 3), (1, 0, 3), (1, 2, 3), (2, 0, 3), (2, 1, 3)]


@pytest.mark.covering(2)
@pytest.mark.parametrize(("window", "offset", "L"), WINDOWS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_windows_and_offsets(window: int, offset: int | None, L: int, steps: int) -> None:
    """At t the input sees `window` steps of the tensor `[L + T]` from t + offset; gradients of overlaps add up."""
    cell = ro.Net("window")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(x + ro.reduce_sum(h * w, axes=[0], keepdims=0)) if window > 1 else ro.tanh(x + h * w))
    net = outer_net(cell, ["x"], {"h": ro.Link("h_t", window=window, offset=offset)})

    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        tensor = list(h0)
        for t, x in enumerate(xs):
            first = t + (offset or 0)
            tensor.append(np.tanh(x + (np.stack(tensor[first : first + window]) * w).sum(axis=0)))
        return both(tensor[L:])

    weight = (window, 1, D) if window > 1 else (D,)
    assert_agrees(net, random_arrays(xs=(steps, N, D), h0=(L, N, D), w=weight), loop)


def test_states_with_different_windows_in_one_cell() -> None:
    cell = ro.Net("mixed")
    x, a, b = cell.inputs("x", "a", "b")
    first, second = ro.split(b, 2, axis=0)
    cell.outputs(a_t=ro.tanh(a * ro.squeeze(first, [0])), b_t=x + a * ro.squeeze(second, [0]))
    net = outer_net(cell, ["x"], {"a": "a_t", "b": ro.Link("b_t", window=2)})

    def loop(xs: np.ndarray, a0: np.ndarray, b0: np.ndarray) -> dict[str, np.ndarray]:
        a, a_steps, b_steps = a0, [], list(b0)
        for x in xs:
            a, new = np.tanh(a * b_steps[-2]), x + a * b_steps[-1]
            a_steps.append(a)
            b_steps.append(new)
        return {**both(a_steps, "a_t"), **both(b_steps[2:], "b_t")}

    assert_agrees(net, random_arrays(xs=(T, N, D), a0=(D,), b0=(2, N, D)), loop)


def test_convolution_over_generated_elements_equals_the_whole_sequence() -> None:
    """Caffe2's reason for windows: a step by step convolution equals that of the whole sequence."""
    window = 3
    cell = ro.Net("convolution")
    x, seen, w = cell.inputs("x", "seen", "w")
    joined = ro.concat([seen, ro.unsqueeze(x, [0])], axis=0)
    cell.outputs(seen_t=ro.identity(x), y=ro.reduce_sum(joined * w, axes=[0], keepdims=0))
    net = outer_net(cell, ["x"], {"seen": ro.Link("seen_t", window=window)})

    def loop(xs: np.ndarray, seen0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        padded = np.concatenate([seen0, xs])
        ys = [(padded[t : t + window + 1] * w).sum(axis=0) for t in range(len(xs))]
        return {**both(list(xs), "seen_t"), **both(ys, "y")}

    assert_agrees(net, random_arrays(xs=(6, N, D), seen0=(window, N, D), w=(window + 1, 1, 1)), loop)


def test_integer_states_carry_but_have_no_gradient() -> None:
    cell = ro.Net("counted")
    x, h = cell.inputs("x", "h")
    count = cell.input("count", "int64")
    cell.outputs(h_t=h + x * ro.cast(count, "float"), count_t=count + 1)
    net = ro.Net("outer")
    xs, h0, count0 = net.input("xs"), net.input("h0"), net.input("count0", "int64")
    blobs = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0), ("count", count0)], {"h": "h_t", "count": "count_t"})
    net.outputs(h_t_all=blobs[0], h_t_last=blobs[1], count_t_last=blobs[3])

    def loop(xs: np.ndarray, h0: np.ndarray, count0: np.ndarray) -> dict[str, np.ndarray]:
        steps = list(h0 + np.cumsum([x * (count0 + t) for t, x in enumerate(xs)], axis=0))
        return {**both(steps), "count_t_last": count0[None] + len(xs)}

    feeds = {**random_arrays(xs=(T, N, D), h0=(N, D)), "count0": np.array([[0], [3], [5]])}
    _, grads = assert_agrees(net, feeds, loop)
    assert set(grads) == {"xs", "h0"}


def test_sequence_of_tokens_looks_rows_up_in_a_reference() -> None:
    cell = ro.Net("tokens")
    token, h, table = cell.input("token", "int32"), cell.input("h"), cell.input("table")
    cell.outputs(h_t=ro.tanh(ro.gather(table, token, axis=0) + h))
    net = ro.Net("outer")
    tokens, h0 = net.input("tokens", "int32"), net.input("h0")
    net.outputs(*ro.recurrent_net(net, cell, [("token", tokens)], [("h", h0)], {"h": "h_t"}))

    def loop(tokens: np.ndarray, h0: np.ndarray, table: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], h0
        for token in tokens:
            h = np.tanh(table[token] + h)
            steps.append(h)
        return both(steps)

    chosen = np.random.default_rng(0).integers(0, 4, (T, N)).astype("int32")
    assert_agrees(net, {**random_arrays(h0=(N, D), table=(5, D)), "tokens": chosen}, loop)


def test_timestep_is_an_int32_of_one_element() -> None:
    cell = ro.Net("timed")
    x, h = cell.inputs("x", "h")
    t = cell.input("t", "int32")
    cell.outputs(h_t=h + x * ro.cast(t, "float"), seen=t)
    net = outer_net(cell, ["x"], {"h": "h_t"}, timestep="t")

    def loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        steps = list(h0 + np.cumsum([x * t for t, x in enumerate(xs)], axis=0))
        return {**both(steps), **both([np.array([t], "int32") for t in range(len(xs))], "seen")}

    out, _ = assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D)), loop)
    assert out["seen_all"].dtype == np.int32
    assert out["seen_all"].tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("S", [N, 5])
def test_rows_may_mix_and_equal_sizes_are_no_special_case(S: int) -> None:
    """A reference whose size equals N by chance is not a batch, and a cell may mix its rows."""
    cell = ro.Net("mixing")
    x, h, m = cell.inputs("x", "h", "m")
    weights = ro.softmax(h @ ro.transpose(m, perm=[1, 0]), axis=-1)
    cell.outputs(h_t=ro.tanh(weights @ m + x + ro.reduce_mean(h, axes=[0])))
    net = outer_net(cell, ["x"], {"h": "h_t"})

    def loop(xs: np.ndarray, h0: np.ndarray, m: np.ndarray) -> dict[str, np.ndarray]:
        steps, h = [], h0
        for x in xs:
            powers = np.exp(h @ m.T)
            h = np.tanh(powers / powers.sum(axis=1, keepdims=True) @ m + x + h.mean(axis=0))
            steps.append(h)
        return both(steps)

    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D), m=(S, D)), loop)
