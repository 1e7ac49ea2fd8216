"""Windows, Fourier transforms, mel filters and blocks of images beside NumPy and onnx.reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_node import Array, check_node, one_node, read

import rnnops as ro
from rnnops.onnx import OnnxError


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(-2, 2, shape).astype("float32")


def paired(x: Array) -> Array:
    """Complex numbers as pairs."""
    return np.stack([x.real, x.imag], -1).astype("float32")


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op: str, periodic: int, tmp_path: Path) -> None:
    for size, dtype in ((8, None), (5, 11)):
        attributes = {"periodic": periodic} | ({} if dtype is None else {"output_datatype": dtype})
        feeds = {"size": np.array(size)}
        model = one_node(op, attributes, feeds, 17, ["size"])
        found = read(model, tmp_path / "one.onnx")
        (out,) = ro.compile(found.net, device="reference")({}).values()
        turn = 2 * np.pi * np.arange(size) / (size - 1 + periodic)
        mean, once, twice = {
            "HannWindow": (0.5, 0.5, 0),
            "HammingWindow": (25 / 46, 21 / 46, 0),
            "BlackmanWindow": (0.42, 0.5, 0.08),
        }[op]
        wanted = mean - once * np.cos(turn) + twice * np.cos(2 * turn)
        np.testing.assert_allclose(out, wanted.astype("float64" if dtype else "float32"), rtol=1e-6, atol=1e-7)
    with pytest.raises(OnnxError, match="known before a run"):
        read(one_node(op, {}, {"size": np.array(5)}, 17), tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match="a window cannot have this size"):
        read(one_node(op, {}, {"size": np.array(2**40)}, 17, ["size"]), tmp_path / "one.onnx")


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("one_sided", [0, 1])
def test_transforms(opset: int, axis: int, parts: int, one_sided: int, tmp_path: Path) -> None:
    x = floats(3, 5, 4, parts)
    signal = x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]
    along = 2 if axis == -2 else axis
    for length in (None, 4, 7):
        feeds: dict[str, Array | None] = {"x": x, "length": None if length is None else np.array(length)}
        attributes: dict[str, Any] = {"onesided": one_sided}
        if opset < 20:
            attributes["axis"] = axis
        else:
            feeds["axis"] = np.array(axis)
        wanted = np.fft.fft(signal, length, along)
        if one_sided:
            wanted = np.take(wanted, np.arange(wanted.shape[along] // 2 + 1), along)
        constants = [name for name, array in feeds.items() if name != "x" and array is not None]
        model = one_node("DFT", attributes, feeds, opset, constants, open_sizes=False)
        check_node(model, feeds, tmp_path, [paired(wanted)])


def test_inverse_transforms(tmp_path: Path) -> None:
    x = floats(2, 5, 2)
    signal = x[..., 0] + 1j * x[..., 1]
    model = one_node("DFT", {"inverse": 1}, {"x": x}, 17, open_sizes=False)
    check_node(model, {"x": x}, tmp_path, [paired(np.fft.ifft(signal, axis=1))])
    model = one_node("DFT", {"inverse": 1, "onesided": 1}, {"x": x}, 17, open_sizes=False)
    check_node(model, {"x": x}, tmp_path, [np.fft.irfft(signal, axis=1)[..., None].astype("float32")])


@pytest.mark.parametrize("one_sided", [0, 1])
@pytest.mark.parametrize("form", ["window", "length", "both"])
def test_short_transforms(one_sided: int, form: str, tmp_path: Path) -> None:
    """Of signals whose length is open; the window may be trained."""
    x, window = floats(2, 23, 1), np.abs(floats(6))
    frames = np.stack([x[:, start : start + 6, 0] for start in range(0, 18, 4)], 1)
    weighted = frames * (window if form != "length" else 1)
    wanted = np.fft.rfft(weighted) if one_sided else np.fft.fft(weighted)
    feeds: dict[str, Array | None] = {
        "x": x,
        "step": np.array(4),
        "window": None if form == "length" else window,
        "length": None if form == "window" else np.array(6),
    }
    constants = [name for name, array in feeds.items() if name != "x" and array is not None]
    model = one_node("STFT", {"onesided": one_sided}, feeds, 17, constants)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1
    found = check_node(model, feeds, tmp_path, [paired(wanted)])
    assert set(found.params) == (set() if form == "length" else {"window"})


def test_windows_of_another_length_are_refused(tmp_path: Path) -> None:
    feeds = {"x": floats(2, 23, 1), "step": np.array(4), "window": floats(6), "length": np.array(5)}
    model = one_node("STFT", {}, feeds, 17, ["step", "window", "length"], open_sizes=False)
    with pytest.raises(OnnxError, match="a frame must be as long as the window"):
        read(model, tmp_path / "one.onnx")
    feeds["window"], feeds["step"] = floats(5), np.array(0)
    model = one_node("STFT", {}, feeds, 17, ["step", "window", "length"], open_sizes=False)
    with pytest.raises(OnnxError, match="its step above 0"):
        read(model, tmp_path / "one.onnx")


def test_sizes_that_a_table_needs(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match="a table needs a size"):
        read(one_node("DFT", {}, {"x": floats(2, 5, 1)}, 17), tmp_path / "one.onnx")
    feeds = {"x": floats(2, 5, 1), "length": np.array(2**40)}
    with pytest.raises(OnnxError, match="a transform of such sizes"):
        read(one_node("DFT", {}, feeds, 17, ["length"], open_sizes=False), tmp_path / "one.onnx")


@pytest.mark.parametrize(
    "numbers", [(8, 16, 8192, 0.0, 4096.0), (20, 256, 16000, 20.0, 8000.0), (40, 64, 16000, 0.0, 500.0)]
)
def test_mel_filters(numbers: tuple[float, ...], tmp_path: Path) -> None:
    names = ("filters", "length", "rate", "low", "high")
    feeds = {
        name: np.array(value, "float32" if i > 2 else "int64")
        for i, (name, value) in enumerate(zip(names, numbers, strict=True))
    }
    check_node(one_node("MelWeightMatrix", {}, feeds, 17, list(names)), feeds, tmp_path, gradient=False)
    feeds["filters"] = np.array(2**40)
    with pytest.raises(OnnxError, match="a spectrum cannot have these numbers"):
        read(one_node("MelWeightMatrix", {}, feeds, 17, list(names)), tmp_path / "one.onnx")


@pytest.mark.parametrize("mode", [None, "DCR", "CRD"])
def test_blocks(mode: str | None, tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"blocksize": 2} | ({} if mode is None else {"mode": mode})
    x = floats(3, 8, 5, 6)
    model = one_node("DepthToSpace", attributes, {"x": x}, 13)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 8
    check_node(model, {"x": x}, tmp_path)
    x = floats(3, 2, 4, 6)
    b, c, h, w = x.shape
    split = x.reshape(b, c, h // 2, 2, w // 2, 2)
    wanted = split.transpose((0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)).reshape(
        b, c * 4, h // 2, w // 2
    )
    model = one_node("SpaceToDepth", attributes, {"x": x}, 28 if mode else 13)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    check_node(model, {"x": x}, tmp_path, [wanted])


def test_channels_that_are_no_blocks(tmp_path: Path) -> None:
    model = one_node("DepthToSpace", {"blocksize": 2}, {"x": floats(1, 6, 2, 2)}, 13, open_sizes=False)
    with pytest.raises(OnnxError, match="channels do not make whole blocks"):
        read(model, tmp_path / "one.onnx")
    with pytest.raises(OnnxError, match="the image cannot be cut into blocks"):
        read(one_node("SpaceToDepth", {"blocksize": 2}, {"x": floats(2, 4, 4)}, 13), tmp_path / "one.onnx")
