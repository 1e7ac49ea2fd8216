"""What the padding past a row's end holds reaches no gradient, and no output that lengths mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from masked_presets import PRESETS, D, H, preset

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda

Arrays = dict[str, np.ndarray]
Device = Callable[..., ro.Run]

T, N = 4, 4
LENGTHS = np.array([4, 0, 2, 1], "int32")
CUDA = Options(tile=2, around="rows", device=Cuda(lanes=2))
SMALL = Options(compiled=False, tile=2, around="rows")
PLAIN = {
    "reference": lambda net, **options: ro.compile(net, "reference", **options),
    "plain": lambda net, **options: ro.compile(net, "cpu", tuning=SMALL, **options),
}
SIMULATED = {"cuda": lambda net, **options: ro.compile(net, "cuda", tuning=CUDA, **options)}
every_device = pytest.mark.parametrize(
    "device", [*PLAIN.values(), pytest.param(SIMULATED["cuda"], marks=pytest.mark.cuda)], ids=[*PLAIN, *SIMULATED]
)
plain_devices = pytest.mark.parametrize("device", PLAIN.values(), ids=PLAIN)


def own_net(step: Any, drop: bool = False, masked: bool = True, **options: Any) -> ro.Net:
    """A net around `h = step(x, h, w)`, masked; what `step` returns behind it is an output that is not."""
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
    new, *others = step(x, h, w)
    cell.outputs(h_t=ro.select_valid(new, h, lengths, t, drop=drop), **{f"o{i}": o for i, o in enumerate(others)})
    net = ro.Net("model")
    xs, h0 = net.inputs("x", "h0")
    blobs = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, timestep="t", **options)
    net.outputs(*blobs[: 2 if masked else None])
    return net


def feeds_of(net: ro.Net, dtype: str = "float64", **shapes: tuple[int, ...]) -> Arrays:
    """Values from 0.1 to 1, the padding's too."""
    rng = np.random.default_rng(0)
    shapes = {"x": (T, N, D), **shapes, **{spec.name: spec.shape for spec in net.parameters}}
    arrays = {name: rng.uniform(0.1, 1, shape).astype(dtype) for name, shape in shapes.items()}
    return {**arrays, "lengths": LENGTHS}


def padded(feeds: Arrays, padding: str, *names: str) -> Arrays:
    """The feeds with something in the padding of sequences (`x` if none is named)."""
    arrays, over = dict(feeds), np.arange(len(feeds["x"]))[:, None] >= feeds["lengths"]
    for name in names or ("x",):
        array = arrays[name] = feeds[name].copy()
        large = np.finfo(array.dtype).max / 2
        kinds = {"zeros": [0.0], "large": [large, large, -large], "not finite": [np.nan, np.inf, -np.inf, large]}
        array[over] = np.resize(kinds[padding], array[over].shape)
    return arrays


def results_of(run: ro.Run, feeds: Arrays, **context: Any) -> Arrays:
    """Outputs and gradients, by name."""
    out, pullback = run.vjp(feeds, **context)
    rng = np.random.default_rng(1)
    grads = pullback({name: rng.uniform(-1, 1, array.shape).astype(array.dtype) for name, array in out.items()})
    return {**out, **{f"d {name}": np.asarray(grad) for name, grad in grads.items()}}


def check(run: ro.Run, feeds: Arrays, *names: str, **context: Any) -> None:
    """Results are finite, and the same bits whatever the padding of sequences holds."""
    wanted = results_of(run, feeds, **context)
    over = np.arange(len(feeds["x"]))[:, None] >= feeds["lengths"]
    for padding in ("zeros", "large", "not finite"):
        came = results_of(run, padded(feeds, padding, *names), **context)
        for name, array in wanted.items():
            assert np.isfinite(array).all(), name
            np.testing.assert_array_equal(came[name], array, err_msg=f"{name}, {padding}")
        assert not any(came[f"d {name}"][over].any() for name in names or ("x",))


@pytest.mark.covering(2)
@plain_devices
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"drop_states": True}, {"memory_optimization": True}, {"dim_out": [H, D]}])
@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, options: dict[str, Any], dtype: str, device: Device) -> None:
    net = preset(name, **options)
    check(device(net), feeds_of(net, dtype))


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["MILSTM", "LayerNormLSTM"])
def test_presets_on_cuda(name: str) -> None:
    net = preset(name, dim_out=[H, D])
    check(SIMULATED["cuda"](net), feeds_of(net, "float32"))


def two_layers(x: ro.Blob, h: ro.Blob, w: ro.Blob) -> list[ro.Blob]:
    """A residual connection around what is masked: the sum goes on past an end, the product does not."""
    total = x + h
    return [ro.tanh(total @ w), total]


STEPS: dict[str, Any] = {
    "residual": two_layers,
    "logarithm": lambda x, h, w: [ro.tanh(ro.log(x) @ w) + h],
    "logarithm of a product": lambda x, h, w: [ro.log(x @ w) + h],
    "length one": lambda x, h, w: [(x / ro.sqrt(ro.reduce_sum(x * x, axes=[1]))) @ w + h],
    "a parameter over an input": lambda x, h, w: [ro.tanh(h @ w + ro.reduce_max(w, keepdims=0) / x)],
    "power": lambda x, h, w: [ro.pow(x, 0.5) @ w + h],
    "bare normalization": lambda x, h, w: [ro.layer_normalization(x @ w, h, epsilon=0.0)],
    "softmax": lambda x, h, w: [ro.softmax(x @ w, axis=1) + ro.log_softmax(x, axis=-1) + h],
    "views": lambda x, h, w: [
        ro.squeeze(ro.transpose(ro.unsqueeze(ro.transpose(x @ w, perm=[1, 0]), [0]), perm=[2, 1, 0]), [2])
        + ro.concat([ro.slice(x, [1], [3], axes=[1]), ro.reshape(ro.reduce_max(h, axes=[1]), [-1, 1])], axis=1)
    ],
    "columns": lambda x, h, w: [ro.transpose(w @ ro.transpose(x, perm=[1, 0]), perm=[1, 0]) + h],
    "product of rows": lambda x, h, w: [ro.squeeze(ro.unsqueeze(x, [1]) @ (ro.unsqueeze(h, [2]) * w), [1])],
    "product of features": lambda x, h, w: [ro.unsqueeze((x @ w) @ ro.reduce_sum(w, axes=[0], keepdims=0), [1]) * h],
    "statistics": lambda x, h, w: [ro.reduce_mean(x @ w, axes=[1], keepdims=1) * ro.reduce_sum(x * h, [-1]) + h],
}


@every_device
@pytest.mark.parametrize("step", STEPS)
def test_own_cells(step: str, device: Device) -> None:
    net = own_net(STEPS[step])
    check(device(net), feeds_of(net, "float32", h0=(N, D), w=(D, D)))


@every_device
@pytest.mark.parametrize("drop", [False, True])
def test_what_is_not_masked_goes_on(device: Device, drop: bool) -> None:
    """The output past an end holds what follows from the padding; gradients of what is masked do not."""
    net = own_net(two_layers, drop=drop, masked=False)
    feeds, run = feeds_of(net, "float32", h0=(N, D), w=(D, D)), device(net)
    wanted, came = results_of(run, feeds), results_of(run, padded(feeds, "not finite"))
    for name in ("d x", "d h0", "d w", "h_t_all", "h_t_last"):
        np.testing.assert_array_equal(came[name], wanted[name], err_msg=name)
    over = np.arange(T)[:, None] >= LENGTHS
    assert np.isfinite(came["o0_all"][~over]).all()
    assert not np.isfinite(came["o0_all"][over]).all()


@every_device
def test_initial_states_of_rows_without_steps(device: Device) -> None:
    """Such a row hands its state on, and gives nothing to the others."""
    net = own_net(lambda x, h, w: [ro.tanh(x @ w + h @ w)])
    feeds = feeds_of(net, "float32", h0=(N, D), w=(D, D))
    run = device(net)
    wanted = results_of(run, feeds)
    feeds["h0"][1] = np.nan
    came = results_of(run, feeds)
    for name in ("d x", "d h0", "d w"):
        np.testing.assert_array_equal(came[name], wanted[name], err_msg=name)
    np.testing.assert_array_equal(came["h_t_last"][:, [0, 2, 3]], wanted["h_t_last"][:, [0, 2, 3]])
    assert np.isnan(came["h_t_all"][:, 1]).all()


def busy_net(reverse: bool) -> ro.Net:
    """Two sequences and a window of two steps, dropout, a product of its own for each, a second state."""
    cell = ro.Net("busy")
    x, y, h, past, w, v = cell.inputs("x", "y", "h", "past", "w", "v")
    lengths, t = cell.input("lengths", "int32"), cell.input("t", "int32")
    drive = ro.dropout(x, 0.4) @ w + ro.reduce_sum(past, axes=[0], keepdims=0) * y + (h * y) @ v
    s_t = ro.select_valid(drive * 0.3, ro.squeeze(ro.slice(past, [1], [2], axes=[0]), [0]), lengths, t)
    cell.outputs(h_t=ro.select_valid(ro.tanh(drive), h, lengths, t), s_t=s_t)
    net = ro.Net("model")
    sequences, states = net.inputs("x", "y"), net.inputs("h0", "s0")
    links = {"h": "h_t", "past": ro.Link("s_t", window=2)}
    blobs = ro.recurrent_net(
        net,
        cell,
        list(zip("xy", sequences, strict=True)),
        list(zip(("h", "past"), states, strict=True)),
        links,
        timestep="t",
        reverse=reverse,
    )
    net.outputs(*blobs)
    return net


BUSY_SHAPES = {"y": (T, N, D), "h0": (N, D), "s0": (2, N, D), "w": (D, D), "v": (D, D)}


@every_device
@pytest.mark.parametrize("reverse", [False, True])
def test_several_sequences_windows_and_dropout(reverse: bool, device: Device) -> None:
    net = busy_net(reverse)
    check(device(net), feeds_of(net, "float32", **BUSY_SHAPES), "x", "y", seed=3)


@plain_devices
@pytest.mark.parametrize("saving", [{"memory_budget": 2000}, {"checkpoints": ro.checkpoints.Slots(2)}])
def test_in_parts(saving: dict[str, Any], device: Device) -> None:
    net = busy_net(False)
    lengths = np.array([9, 0, 4, 2], "int32")
    shapes = {**BUSY_SHAPES, "x": (9, N, D), "y": (9, N, D)}
    check(device(net, **saving), {**feeds_of(net, **shapes), "lengths": lengths}, "x", "y", seed=3)


@plain_devices
@pytest.mark.parametrize("lengths", [[0, 0, 0, 0], [1, 0, 1, 0], [1]])
def test_one_step_one_row_and_rows_that_are_all_over(lengths: list[int], device: Device) -> None:
    net = preset("MILSTM")
    steps = 1 if max(lengths) else T
    feeds = feeds_of(net, x=(steps, len(lengths), D)) | {"lengths": np.array(lengths, "int32")}
    check(device(net), feeds)
    check(device(net), feeds_of(net, x=(T, 1, D)) | {"lengths": np.array([2], "int32")})


def letters_net(mixes_rows: bool = False) -> ro.Net:
    """A recurrence over the letters of a word inside a masked one over words."""
    letter = ro.Net("letter")
    x, a, w, u = letter.inputs("x", "a", "w", "u")
    sums = x @ w + a @ u
    letter.outputs(a_t=ro.tanh(sums - ro.reduce_max(sums, axes=[0]) if mixes_rows else sums))
    word = ro.Net("word")
    letters, h = word.inputs("letters", "h")
    lengths, t = word.input("lengths", "int32"), word.input("t", "int32")
    steps = ro.transpose(letters, perm=[1, 0, 2])
    _, last = ro.recurrent_net(word, letter, [("x", steps)], [("a", h)], {"a": "a_t"})
    word.outputs(h_t=ro.select_valid(ro.squeeze(last, [0]) + h, h, lengths, t))
    net = ro.Net("text")
    words, h0 = net.inputs("x", "h0")
    net.outputs(*ro.recurrent_net(net, word, [("letters", words)], [("h", h0)], {"h": "h_t"}, timestep="t"))
    return net


@plain_devices
def test_cells_that_hold_recurrences(device: Device) -> None:
    net = letters_net()
    check(device(net), feeds_of(net, x=(T, N, 2, D), h0=(N, H), w=(D, H), u=(H, H)))


@plain_devices
@pytest.mark.parametrize("nested", [False, True])
def test_what_mixes_rows_reads_what_is_there(nested: bool, device: Device) -> None:
    """A row that is over takes part in what others get: results are those of the padding."""
    net = letters_net(mixes_rows=True) if nested else own_net(lambda x, h, w: [(x - ro.reduce_max(x, axes=[0])) @ w])
    shapes = {"x": (T, N, 2, D), "h0": (N, H), "w": (D, H), "u": (H, H)} if nested else {"h0": (N, D), "w": (D, D)}
    feeds = feeds_of(net, **shapes)
    wanted = results_of(PLAIN["reference"](net), padded(feeds, "zeros"))
    came = results_of(device(net), padded(feeds, "zeros"))
    for name, array in wanted.items():
        np.testing.assert_allclose(came[name], array, rtol=1e-11, err_msg=name)
    feeds["x"][3] *= 3
    assert (results_of(device(net), feeds)["h_t_last"] != wanted["h_t_last"]).any()


@plain_devices
@pytest.mark.parametrize("reverse", [False, True])
def test_unrolled_cells(reverse: bool, device: Device) -> None:
    net = ro.Net("model")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    cell = ro.cells.UnrolledCell(ro.cells.MILSTMCell(D, H, name="inner"), T)
    output, states = cell.apply_over_sequence(net, x, lengths, reverse=reverse)
    net.outputs(output, *states)
    check(device(net), feeds_of(net))


@plain_devices
def test_backward_layer_by_layer(device: Device) -> None:
    net = preset("MILSTM", dim_out=[H, D])
    feeds, run = feeds_of(net), device(net)
    found = []
    for arrays in (feeds, padded(feeds, "not finite")):
        out, pullback = run.vjp(arrays)
        layers = pullback.layers({name: np.ones_like(array) for name, array in out.items()})
        found.append(
            {name: grad.copy() for names, _, grads, _ in layers for name, grad in zip(names, grads, strict=True)}
        )
    assert found[0].keys() == {"x", *(spec.name for spec in net.parameters)}
    for name, wanted in found[0].items():
        np.testing.assert_array_equal(found[1][name], wanted, err_msg=name)


@every_device
@pytest.mark.parametrize("drop", [False, True])
def test_gradients_of_masked_results(drop: bool, device: Device) -> None:
    """Past an end a result is a copy of the last state, whose gradient counts; a zero put there has none."""
    net = own_net(lambda x, h, w: [ro.tanh(x @ w + h)], drop=drop)
    feeds = feeds_of(net, "float32", h0=(N, D), w=(D, D))
    grads = []
    for value in (0.0, np.nan):
        out, pullback = device(net).vjp(feeds)
        dy = {"h_t_all": np.ones_like(out["h_t_all"]), "h_t_last": np.zeros_like(out["h_t_last"])}
        dy["h_t_all"][2:, 2] = value
        grads.append(pullback(dy))
    if drop:
        for name, grad in grads[0].items():
            np.testing.assert_array_equal(grads[1][name], grad, err_msg=name)
    else:
        assert np.isnan(grads[1]["x"][:2, 2]).all()
        assert np.isnan(grads[1]["w"]).all()
        assert not np.isnan(np.delete(grads[1]["x"], 2, axis=1)).any()


@plain_devices
@pytest.mark.parametrize("kind", ["regular", "recurrent", "dot", "soft_coverage"])
def test_attention(kind: str, device: Device) -> None:
    """Padding of the decoder's input, while the context goes on past an end."""
    net = ro.Net("model")
    x, encoder, *states = net.inputs("x", "encoder", "h0", "c0", "e0")
    lengths, encoder_lengths = net.input("lengths", "int32"), net.input("encoder_lengths", "int32")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, encoder_lengths, D, H, kind)
    output, results = cell.apply_over_sequence(net, x, lengths, initial_states=states)
    net.outputs(output=output, **{f"out{i}": blob for i, blob in enumerate(results)})
    feeds = feeds_of(net, encoder=(6, N, H), h0=(N, H), c0=(N, H), e0=(N, H))
    check(device(net), {**feeds, "encoder_lengths": np.array([6, 1, 3, 4], "int32")})
