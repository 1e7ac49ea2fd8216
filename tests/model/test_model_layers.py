"""Layers and losses: against NumPy and ops, gradients of each, lengths, directions, states, bad arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.model import (
    RNN,
    Attention,
    Dense,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    mean_absolute_error,
    mean_squared_error,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)
from rnnops.net.blob import Blob
from rnnops.testing import check_gradient

T, N, D, H = 4, 3, 5, 6
Arrays = dict[str, np.ndarray]


def built(write: Callable[..., Any], **inputs: np.ndarray) -> tuple[ro.Net, Arrays]:
    """A net of one layer, with feeds for all that it reads."""
    net = ro.Net("layer", sizes_for="float64")
    blobs = {}
    for name, array in inputs.items():
        blobs[name] = net.input(name, None if array.dtype.kind == "f" else array.dtype, array.shape)
    results = write(**blobs)
    for place, blob in enumerate([results] if isinstance(results, Blob) else [results[0], *results[1]]):
        net.outputs(**{f"y{place}": blob})
    rng = np.random.default_rng(1)
    params = {spec.name: rng.normal(size=spec.shape) * 0.5 for spec in net.parameters}
    return net, {**inputs, **params}


def outputs_of(write: Callable[..., Any], **inputs: np.ndarray) -> tuple[list[np.ndarray], Arrays]:
    net, feeds = built(write, **inputs)
    return list(ro.compile(net, device="reference")(feeds).values()), feeds


def arrays(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


LENGTHS = np.array([4, 1, 3], np.int32)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (Dense(3, ro.tanh), {"x": arrays(2, N, D)}),
        (Dense(3, bias=False), {"x": arrays(D)}),
        (Embedding(7, 3), {"indices": np.array([[0, 6], [2, 2]], np.int32)}),
        (LayerNorm(), {"x": arrays(2, N, D)}),
        (LayerNorm(bias=False), {"x": arrays(D)}),
        (Dropout(0.4), {"x": arrays(N, D)}),
        *(
            (RNN(cell, H), {"x": arrays(T, N, D), "lengths": LENGTHS})
            for cell in ("lstm", "milstm", "layer_norm_lstm", "layer_norm_milstm", "gru", "basic_rnn")
        ),
        (RNN("lstm", H, layers=2, dropout=0.3, trainable_states=True), {"x": arrays(T, N, D)}),
        (RNN("gru", H, 2, bidirectional=True, linear_before_reset=True), {"x": arrays(T, N, D), "lengths": LENGTHS}),
        *(
            (Attention("lstm", H, kind), {"x": arrays(T, N, D), "encoder_outputs": arrays(5, N, H, seed=1)})
            for kind in ("regular", "recurrent", "dot", "soft_coverage")
        ),
        (
            Attention("gru", H, memory_optimization=True, trainable_states=True),
            {"x": arrays(T, N, D), "encoder_outputs": arrays(5, N, 4, seed=1), "encoder_lengths": LENGTHS},
        ),
    ],
)
def test_gradients(layer: Layer, inputs: Arrays) -> None:
    net, feeds = built(layer, **inputs)
    check_gradient(net, feeds, seed=1, sample=2)  # and directions through all elements


def test_dense_and_norm_by_hand() -> None:
    x = arrays(2, N, D)
    (y,), feeds = outputs_of(Dense(3, ro.sigmoid).named("top"), x=x)
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-(x @ feeds["top/w"].T + feeds["top/b"]))), rtol=1e-12)
    (y,), feeds = outputs_of(LayerNorm(epsilon=0.1).named("n"), x=x)
    centred = x - x.mean(axis=-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 0.1) * feeds["n/scale"] + feeds["n/b"]
    np.testing.assert_allclose(y, wanted, rtol=1e-12)


def test_embedding_rows() -> None:
    indices = np.array([[0, 6], [2, 2]], np.int64)
    (y,), feeds = outputs_of(Embedding(7, 3), indices=indices)
    np.testing.assert_array_equal(y, feeds["embedding/table"][indices])


@pytest.mark.parametrize("wrong", [-1, 7])
def test_an_embedding_has_no_negative_rows(wrong: int) -> None:
    net, feeds = built(Embedding(7, 3), indices=np.array([wrong, 2], np.int32))
    for device in ("reference", "cpu"):
        with pytest.raises(ro.RnnopsError, match=f"an index is out of range; wanted 0 to 6; got {wrong}"):
            ro.compile(net, device=device)(feeds)


def test_states_that_are_none_are_zeros() -> None:
    x, h = arrays(T, N, D), arrays(N, H, seed=2)
    (y, *_), feeds = outputs_of(lambda x, h: RNN("lstm", H).named("rnn")(x, None, [h, None]), x=x, h=h)
    net, _ = built(lambda x, h: RNN("lstm", H).named("rnn")(x, None, [h, h * 0.0]), x=x, h=h)
    np.testing.assert_array_equal(ro.compile(net, device="reference")(feeds)["y0"], y)
    encoder = arrays(5, N, 4, seed=1)
    for kind in ("regular", "soft_coverage"):
        layer = Attention("lstm", H, kind).named("decoder")
        given = [None] * (3 if kind == "regular" else 4)
        (y, *_), feeds = outputs_of(lambda x, e: layer(x, e, None, None, given), x=x, e=encoder)  # noqa: B023
        net, _ = built(lambda x, e: layer(x, e), x=x, e=encoder)  # noqa: B023
        np.testing.assert_array_equal(ro.compile(net, device="reference")(feeds)["y0"], y)


def test_lengths_of_another_integer_type() -> None:
    x = arrays(T, N, D)
    (y, _), feeds = outputs_of(RNN("gru", H), x=x, lengths=LENGTHS.astype("int64"))
    net, _ = built(RNN("gru", H), x=x, lengths=LENGTHS)
    np.testing.assert_array_equal(ro.compile(net, device="reference")({**feeds, "lengths": LENGTHS})["y0"], y)


def test_layers_of_an_rnn_follow_each_other() -> None:
    """A stack is its layers one after another; states come back layer by layer."""
    x = arrays(T, N, D)
    (y, *states), feeds = outputs_of(RNN("lstm", H, layers=2), x=x)
    below, above = (RNN("lstm", H).named(name) for name in ("below", "above"))
    net, _ = built(lambda x: (above(below(x)[0])[0], [*below(x)[1], *above(below(x)[0])[1]]), x=x)
    renamed = {
        name.replace("rnn/layer_0", "below/layer_0").replace("rnn/layer_1", "above/layer_0"): array
        for name, array in feeds.items()
    }
    out = list(ro.compile(net, device="reference")(renamed).values())
    for came, wanted in zip([y, *states], out, strict=True):
        np.testing.assert_allclose(came, wanted, rtol=1e-12)


@pytest.mark.parametrize("cell", ["gru", "milstm"])
def test_both_directions(cell: str) -> None:
    """The second half is the same layer on rows that are reversed within their lengths, reversed back."""
    x = arrays(T, N, D)
    (y, *states), feeds = outputs_of(RNN(cell, H, bidirectional=True), x=x, lengths=LENGTHS)
    turned = x.copy()
    for row, length in enumerate(LENGTHS):
        turned[:length, row] = x[:length, row][::-1]
    net, _ = built(RNN(cell, H), x=turned, lengths=LENGTHS)
    own = {name.replace("_reverse", ""): array for name, array in feeds.items() if "_reverse" in name}
    back, *back_states = ro.compile(net, device="reference")(own, x=turned, lengths=LENGTHS).values()
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(y[:length, row, H:], back[:length, row][::-1], rtol=1e-12)
    for came, wanted in zip(states[len(states) // 2 :], back_states, strict=True):
        np.testing.assert_allclose(came, wanted, rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"layers": 2}, {"layers": 2, "bidirectional": True}])
def test_states_can_be_carried(options: dict[str, Any]) -> None:
    """Two halves of a sequence give what the whole gives, for layers in one direction; both take what they gave."""
    x, layer = arrays(2 * T, N, D), RNN("lstm", H, **options).named("rnn")
    (whole, *last), feeds = outputs_of(layer, x=x)
    shapes = layer.state_shapes(D)  # type: ignore[attr-defined]
    assert shapes == [state.shape[2:] for state in last]
    net, _ = built(
        lambda x, **s: layer(x, None, list(s.values())),
        x=x[T:],
        **{f"s{k}": arrays(1, N, *shape) for k, shape in enumerate(shapes)},
    )
    run = ro.compile(net, device="reference")
    first, _ = built(layer, x=x[:T])
    params = {name: array for name, array in feeds.items() if name != "x"}
    half, *states = ro.compile(first, device="reference")(params, x=x[:T]).values()
    rest, *_ = run(params, {f"s{k}": state for k, state in enumerate(states)}, x=x[T:]).values()
    if "bidirectional" not in options:
        np.testing.assert_allclose(np.concatenate([half, rest]), whole, rtol=1e-12)
    assert np.isfinite(rest).all()


def test_states_start_from_zeros_or_parameters() -> None:
    net, _ = built(RNN("lstm", H), x=arrays(T, N, D))
    assert not any("initial" in name for name in net.input_names)
    net, _ = built(RNN("lstm", H, trainable_states=True), x=arrays(T, N, D))
    assert {"rnn/layer_0/initial_hidden_state", "rnn/layer_0/initial_cell_state"} < set(net.input_names)


class OwnCell(ro.cells.BasicRNNCell):
    """A cell of a user's own."""


def test_any_cell() -> None:
    (y, _), feeds = outputs_of(RNN(OwnCell, H, activation="relu"), x=arrays(T, N, D))
    assert y.shape == (T, N, H)
    assert (y >= 0).all()
    assert "rnn/layer_0/i2h_w" in feeds


def test_attention_is_its_cell() -> None:
    x, encoder = arrays(T, N, D), arrays(5, N, 4, seed=1)
    (y, *states), feeds = outputs_of(Attention("lstm", H), x=x, encoder_outputs=encoder)
    assert y.shape == (T, N, H + 4)
    assert [state.shape for state in states] == [(1, N, H), (1, N, H), (1, N, 4)]

    def by_cell(x: Blob, encoder_outputs: Blob) -> Blob:
        decoder = ro.cells.LSTMCell(D, H, name="attention/decoder")
        cell = ro.cells.AttentionCell(4, encoder_outputs, None, decoder, H, "regular", name="attention/attention")
        return cell.apply_over_sequence(x.net, x, None, [x.net.constant(np.zeros(size)) for size in (H, H, 4)])[0]

    net, _ = built(by_cell, x=x, encoder_outputs=encoder)
    np.testing.assert_allclose(ro.compile(net, device="reference")(feeds)["y0"], y, rtol=1e-12)


# -- losses ------------------------------------------------------------------------------------------------------------

PAIR = {"y": arrays(2, 3), "target": arrays(2, 3, seed=1)}
LABELS = np.array([[0, 2, 1], [1, -1, 0]], np.int32)


@pytest.mark.parametrize(
    ("loss", "inputs", "wanted"),
    [
        (
            mean_squared_error,
            {"y": arrays(2, 3), "target": arrays(2, 3, seed=1)},
            lambda y, target: ((y - target) ** 2).mean(),
        ),
        (
            mean_absolute_error,
            {"y": arrays(2, 3), "target": arrays(2, 3, seed=1)},
            lambda y, target: abs(y - target).mean(),
        ),
        (
            sigmoid_cross_entropy,
            {"logits": 3 * arrays(2, 3), "target": np.eye(2, 3)},
            lambda logits, target: -np.where(target == 1, -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits))).mean(),
        ),
    ],
)
def test_losses_by_hand(loss: Callable[..., Blob], inputs: Arrays, wanted: Callable[..., float]) -> None:
    (came,), _ = outputs_of(loss, **inputs)
    np.testing.assert_allclose(came, wanted(**inputs), rtol=1e-12)
    net, feeds = built(loss, **inputs)
    check_gradient(net, feeds)


def test_cross_entropy_over_time_ignores_what_is_past_the_end() -> None:
    scores = arrays(2, 3, 4)
    (came,), _ = outputs_of(
        lambda scores, labels: softmax_cross_entropy(scores, labels, -1), scores=scores, labels=LABELS
    )
    log_shares = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    picked = [-log_shares[t, n, LABELS[t, n]] for t in range(2) for n in range(3) if LABELS[t, n] >= 0]
    np.testing.assert_allclose(came, np.mean(picked), rtol=1e-12)


def test_extreme_logits_stay_finite() -> None:
    inputs = {"logits": np.array([1e4, -1e4, 1e4]), "target": np.array([1.0, 0.0, 0.0])}
    (came,), _ = outputs_of(sigmoid_cross_entropy, **inputs)
    assert came == pytest.approx(1e4 / 3)


# -- bad arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Dense(0), "units of Dense is not a size"),
        (lambda: Dense(True), "units of Dense"),
        (lambda: Dense(3, "tanh"), "the activation of Dense is not a function"),  # type: ignore[arg-type]
        (lambda: Embedding(3, 2.5), "size of Embedding"),  # type: ignore[arg-type]
        (lambda: LayerNorm(epsilon=-1), "epsilon of LayerNorm is out of range; wanted a number of 0 or more; got -1"),
        (lambda: LayerNorm(epsilon=float("nan")), "epsilon of LayerNorm"),
        (lambda: Dropout(1.0), "dropout ratio is out of range"),
        (lambda: Dropout(float("nan")), "dropout ratio"),
        (lambda: RNN("transformer", 3), "no such cell; wanted one of "),
        (lambda: RNN("lstm", 3, layers=0), "layers of RNN"),
        (lambda: RNN("lstm", 3, dropout=2), "dropout ratio"),
        (lambda: Attention(None, 3), "no such cell"),  # type: ignore[arg-type]
    ],
)
def test_layers_that_cannot_be(make: Callable[[], Layer], words: str) -> None:
    with pytest.raises(ro.ModelError, match=words):
        make()


@pytest.mark.parametrize(
    ("write", "inputs", "words"),
    [
        (RNN(lambda size, hidden, name: None, 3), {"x": arrays(T, N, D)}, "no cell came back"),
        (RNN("lstm", H, activation="tanh"), {"x": arrays(T, N, D)}, "activation"),
        (
            Attention("lstm", H, "no such kind"),
            {"x": arrays(T, N, D), "encoder_outputs": arrays(5, N, 4)},
            "attention type",
        ),
        (
            lambda x: RNN("lstm", H)(x, None, [x]),
            {"x": arrays(T, N, D)},
            "too few initial states|wrong number of states",
        ),
        (lambda x: RNN("lstm", D)(x, None, [x, x, x]), {"x": arrays(1, N, D)}, "too many initial states"),
        (
            lambda y, target: mean_squared_error(y, target),
            {"y": arrays(2, 3), "target": arrays(3)},
            "a loss of two shapes",
        ),
        (lambda x: (Dense(2)(x), [Dense(2)(x)]), {"x": arrays(D)}, "two layers have one name"),
    ],
)
def test_calls_that_cannot_be(write: Callable[..., Any], inputs: Arrays, words: str) -> None:
    with pytest.raises(ro.RnnopsError, match=words):
        built(write, **inputs)


def test_a_layer_needs_sizes() -> None:
    net = ro.Net("net")
    with pytest.raises(ro.ModelError, match="the shape of a layer's input is not known"):
        Dense(3)(net.input("x"))
