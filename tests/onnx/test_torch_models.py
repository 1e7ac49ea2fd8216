"""Models that PyTorch exported give PyTorch's numbers: results, gradients of inputs and of every parameter.

`torch_models/` was written by `write_torch_models.py`; where PyTorch is installed, models are exported anew, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES

import rnnops as ro
from rnnops.onnx import OnnxModel, export, load, load_model

FOLDER = Path(__file__).parent / "torch_models"
NAMES = sorted(path.stem for path in FOLDER.glob("*.onnx"))
GATES = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}  # PyTorch's gates i f g o and r z n in the order of ONNX
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}  # both sides compute in float32

Array = np.ndarray[Any, Any]
Form = Callable[[Array], Array]


def forms(name: str) -> list[Form]:
    """How the exporter may have laid out a parameter: as it is, transposed, with its gates in ONNX's order."""
    found: list[Form] = [lambda x: x, lambda x: x.T]
    order = next((GATES[kind] for kind in GATES if kind in name), None)
    if order is not None:
        found.append(
            lambda x: np.concatenate([np.split(x, len(order))[k] for k in order]) if len(x) % len(order) == 0 else x
        )
    return found


def pieces(array: Array, gradient: Array) -> Iterator[tuple[Array, Array]]:
    """A file's parameter with its gradient, and its parts: one for each direction, and halves of biases."""
    yield array, gradient
    for part, grad in zip(array, gradient, strict=True) if array.ndim > 1 else ():
        yield part, grad
        yield from zip(np.split(part, 2), np.split(grad, 2), strict=True) if len(part) % 2 == 0 else ()


def parameter_gradients(
    name: str, stored: Any, model: OnnxModel, grads: dict[str, Array]
) -> dict[str, tuple[Array, Array]]:
    """For each of PyTorch's parameters found in the file, by value: its gradient here and there, in one layout."""
    found: dict[str, tuple[Array, Array]] = {}
    for array, gradient in ((a, g) for key in model.params for a, g in pieces(model.params[key], grads[key])):
        for key in (key.removeprefix("value/") for key in stored.files if key.startswith("value/")):
            for form in forms(name):
                if np.array_equal(form(stored[f"value/{key}"]), array):
                    found[key] = gradient, form(stored[f"grad/{key}"])
    return found


def check_against_torch(name: str, folder: Path, device: str) -> None:
    stored, model = np.load(folder / f"{name}.npz"), load_model(folder / f"{name}.onnx")
    feeds = {key.removeprefix("in/"): stored[key] for key in stored.files if key.startswith("in/")}
    out, pullback = DEVICES[device](model.net).vjp(model.params, feeds)
    for k, key in enumerate(model.net.output_blobs):
        np.testing.assert_allclose(out[key], stored[f"out/{k}"], **ROUNDING)
    grads = pullback({key: stored[f"weight/{k}"] for k, key in enumerate(model.net.output_blobs)})
    np.testing.assert_allclose(grads["x"], stored["grad/x"], **ROUNDING)
    matched = parameter_gradients(name, stored, model, grads)
    assert set(matched) == {key.removeprefix("value/") for key in stored.files if key.startswith("value/")}
    for here, there in matched.values():
        np.testing.assert_allclose(here, there, **ROUNDING)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_pytorch(name: str) -> None:
    check_against_torch(name, FOLDER, "reference")


@pytest.mark.parametrize(
    "name", ["lstm_bidirectional", "gru_lengths", "gru_state", "rnn", "sizes", "pads", "script_sizes", "script_pads"]
)
def test_numbers_are_those_of_pytorch_in_generated_code(name: str) -> None:
    check_against_torch(name, FOLDER, "plain")


def test_numbers_are_those_of_pytorch_in_compiled_code() -> None:
    check_against_torch("lstm_two_layers", FOLDER, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_numbers_are_those_of_pytorch_in_compiled_code_of_all(name: str) -> None:
    check_against_torch(name, FOLDER, "cpu")


@pytest.mark.parametrize("name", NAMES)
def test_exported_again_it_is_the_same_net(name: str, tmp_path: Path) -> None:
    model = load_model(FOLDER / f"{name}.onnx")
    export(model, tmp_path / "again.onnx")
    assert str(load(tmp_path / "again.onnx")) == str(model.net)


def test_rows_are_open() -> None:
    model = load_model(FOLDER / "lstm_two_layers.onnx")
    assert model.shapes == {"x": (5, "N", 2)}
    out = ro.compile(model.net, device="reference")(model.params, x=np.ones((5, 7, 2), "float32"))
    assert next(iter(out.values())).shape == (5, 7, 2)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_live_export(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: only the models kept in torch_models/ are read")
    pytest.importorskip("onnxscript", reason="onnxscript, which PyTorch's exporter needs, is not installed")
    import write_torch_models

    for name in ("lstm_bidirectional", "gru_lengths"):
        module, inputs = write_torch_models.modules()[name]
        write_torch_models.write(tmp_path, name, module, inputs)
        check_against_torch(name, tmp_path, "reference")
    for name in ("pads", "sizes"):
        write_torch_models.write_sized(tmp_path, name)
        check_against_torch(name, tmp_path, "reference")
        check_against_torch(f"script_{name}", tmp_path, "reference")
