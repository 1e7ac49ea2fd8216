"""Scatter and Gather families of ONNX beside onnx.reference; what is out of range is an error on every device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from one_node import Array, check_node, one_node, read

from rnnops.errors import RnnopsError
from rnnops.onnx import OnnxError

ROWS = np.array([[0, -1, 1], [2, 1, 0]])
PAIRS = np.array([[[0, 1], [-1, 0]], [[1, -2], [0, 0]]])


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(-2, 2, shape).astype("float32")


@pytest.mark.parametrize(
    ("opset", "reduction"), [(11, None), (13, None), (16, "add"), (16, "mul"), (18, "max"), (18, "min"), (18, "none")]
)
def test_scattered_elements_and_slices(opset: int, reduction: str | None, tmp_path: Path) -> None:
    attributes: dict[str, Any] = {} if reduction is None else {"reduction": reduction}
    feeds = {"x": floats(2, 3), "indices": ROWS, "updates": floats(2, 3) + np.float32(0.3)}
    model = one_node("ScatterElements", {"axis": -1, **attributes}, feeds, opset)
    found = check_node(model, feeds, tmp_path)
    assert [op.type for op in found.net.ops] == ["ScatterElements"]
    feeds = {"x": floats(3, 2, 4), "indices": PAIRS, "updates": floats(2, 2, 4)[::-1].copy()}
    check_node(one_node("ScatterND", attributes, feeds, opset, ["indices"]), feeds, tmp_path)


def test_the_former_name_of_scatter_elements(tmp_path: Path) -> None:
    feeds = {"x": floats(2, 3), "indices": ROWS, "updates": floats(2, 3) + 1}
    wanted = feeds["x"].copy()
    np.put_along_axis(wanted, ROWS, feeds["updates"], 1)
    found = check_node(one_node("Scatter", {"axis": 1}, feeds, 9), feeds, tmp_path, [wanted])
    assert [op.type for op in found.net.ops] == ["ScatterElements"]


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("columns", [1, 2])
def test_gathered_slices(batch: int, columns: int, tmp_path: Path) -> None:
    x, draw = floats(2, 3, 4, 5), np.random.default_rng(0)
    sizes = x.shape[batch : batch + columns]
    lead = x.shape[:batch]
    indices = np.stack([draw.integers(-size, size, (*lead, 6)) for size in sizes], -1)
    wanted = np.empty((*lead, 6, *x.shape[batch + columns :]), "float32")
    for place in np.ndindex(*lead, 6):
        wanted[place] = x[(*place[:batch], *indices[place])]
    attributes = {"batch_dims": batch} if batch else {}
    model = one_node("GatherND", attributes, {"x": x, "indices": indices}, 13, ["indices"])
    check_node(model, {"x": x, "indices": indices}, tmp_path, [wanted])


def test_elements_that_lie_next_to_each_other(tmp_path: Path) -> None:
    """One number for each index; integers and bools, too."""
    for x in (floats(3, 2), floats(3, 2) > 0, np.arange(6).reshape(3, 2)):
        indices = np.array([[0, 1], [-1, 0]], "int64")
        model = one_node("GatherND", {}, {"x": x, "indices": indices}, 13, ["indices"])
        check_node(model, {"x": x, "indices": indices}, tmp_path, [x[[0, -1], [1, 0]]])


WRONG: dict[str, tuple[str, dict[str, Array]]] = {
    "an element past the end": ("ScatterElements", {"indices": np.array([[0, 3, 0]]), "updates": floats(1, 3)}),
    "an element before the start": ("ScatterElements", {"indices": np.array([[0, -3, 0]]), "updates": floats(1, 3)}),
    "a slice past the end": ("ScatterND", {"indices": np.array([[2]]), "updates": floats(1, 3)}),
    "a pair past the end": ("ScatterND", {"indices": np.array([[0, 3]]), "updates": floats(1)}),
    "a slice that is not there": ("GatherND", {"indices": np.array([[2]])}),
    "a pair that is not there": ("GatherND", {"indices": np.array([[0, 3]])}),
}


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_out_of_range_is_an_error(name: str, reduction: str, tmp_path: Path) -> None:
    """Never another element."""
    op, rest = WRONG[name]
    feeds = {"x": floats(2, 3), **rest}
    attributes = {} if op == "GatherND" else {"reduction": reduction}
    net = read(one_node(op, attributes, feeds, 18, ["indices"]), tmp_path / "one.onnx").net
    for device in ("reference", "plain"):
        with pytest.raises(RnnopsError):
            DEVICES[device](net)({name: array for name, array in feeds.items() if name in net.input_names})


def test_the_number_of_axes_must_be_known(tmp_path: Path) -> None:
    feeds = {"x": floats(2, 3), "indices": np.array([[0]])}
    with pytest.raises(OnnxError, match="longer than the rank of the data"):
        read(one_node("GatherND", {}, feeds, 13), tmp_path / "one.onnx")
