"""Models of one node, and all that is checked of one: results, devices, what export writes, the gradient."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from devices import DEVICES
from onnx import helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

import rnnops as ro
from rnnops.onnx import OnnxModel, export, load, load_model

Array = np.ndarray[Any, Any]


def one_node(
    op: str,
    attributes: Mapping[str, Any],
    feeds: Mapping[str, Array | None],
    opset: int,
    constants: Sequence[str] = (),
    results: int = 1,
    open_sizes: bool = True,
) -> Any:
    """A model of one node; inputs named in `constants` are its initializers, None ones are left out.

    Sizes of the others are open, equal ones of one name, but for those that initializers have; or none is open.
    """
    given = {name: array for name, array in feeds.items() if array is not None}
    fixed = {size for name in constants for size in given[name].shape}
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [size if size in fixed or not open_sizes else f"size_{size}" for size in array.shape],
        )
        for name, array in given.items()
        if name not in constants
    ]
    tensors = [numpy_helper.from_array(given[name], name) for name in constants]
    outputs = [helper.make_tensor_value_info(f"y{i}", 0, None) for i in range(results)]
    names = [name if array is not None else "" for name, array in feeds.items()]
    node = helper.make_node(op, names, [value.name for value in outputs], **attributes)
    graph = helper.make_graph([node], "one", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def read(model: Any, path: Path) -> OnnxModel:
    save(model, path)
    return load_model(path)


def reference_results(model: Any, feeds: Mapping[str, Array | None]) -> list[Array]:
    """What onnx.reference makes of a model."""
    inputs = {value.name for value in model.graph.input}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = ReferenceEvaluator(model).run(None, {name: feeds[name] for name in inputs})
    return [np.asarray(array) for array in found]


def check_node(
    model: Any,
    feeds: Mapping[str, Array | None],
    folder: Path,
    wanted: Sequence[Array] | None = None,
    devices: Sequence[str] = ("reference", "plain"),
    opset: int = 20,
    gradient: bool = True,
    tolerance: float = 1e-5,
) -> OnnxModel:
    """Compare with onnx.reference, or with `wanted`; write it again; check the gradient in float64."""
    found = read(model, folder / "one.onnx")
    given = {name: array for name, array in feeds.items() if array is not None and name in found.net.input_names}
    wanted = reference_results(model, feeds) if wanted is None else wanted
    for device in devices:
        out = DEVICES[device](found.net)({**found.params, **given})
        for name, expected in zip(out, wanted, strict=True):
            assert (out[name].dtype, out[name].shape) == (expected.dtype, expected.shape), f"{name} {device}"
            np.testing.assert_allclose(out[name], expected, rtol=tolerance, atol=tolerance, err_msg=f"{name} {device}")
    export(found, folder / "again.onnx", opset=opset)
    assert str(load(folder / "again.onnx")) == str(found.net)
    if gradient and any(array.dtype.kind == "f" for array in wanted):
        every = {**found.params, **given}
        wide = {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in every.items()}
        ro.testing.check_gradient(found.net, wide)
    return found
