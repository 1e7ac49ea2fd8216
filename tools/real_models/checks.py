"""What a file is put through: read, equal to ONNX Runtime, gradients, exported and equal again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import rnnops as ro
from rnnops.onnx.compare import Session, distance
from rnnops.onnx.outline import products_of_file
from tools.real_models.feeds import make_feeds
from tools.real_models.table import RealFile

Arrays = Mapping[str, np.ndarray]
Runtime = Callable[[Path, Arrays], dict[str, np.ndarray]]
EXACT = 1e-4  # how far a product of quantised numbers may be from the exact one, over its largest value
SATURATED = "equal, but for sums of ONNX Runtime that stop at 16 bits"
SAMPLE = 4  # elements of each array that are moved by themselves in a check of gradients, beside random directions


@dataclass
class Row:
    """What came of a file; each field is a cell of the printed table.

    Args:
        verdict: `equal`, `refused as listed`, `SATURATED`, or what is wrong.
        error, gradient, again: largest differences: from ONNX Runtime over the largest value, of gradients from
            differences, of the exported file as `error`; None where it was not asked.
    """

    name: str
    verdict: str
    error: float | None = None
    gradient: float | None = None
    again: float | None = None

    @property
    def is_right(self) -> bool:
        return self.verdict in ("equal", "refused as listed", SATURATED)


def check_file(entry: RealFile, path: Path, runtime: Runtime) -> Row:
    """Put a file through all that the table asks for.

    Args:
        runtime: file and feeds -> outputs by name; what is compared with.
    """
    feeds = make_feeds(entry.feeds, input_dtypes(path))
    expected = runtime(path, feeds)
    try:
        model = ro.onnx.load_model(path, sizes=entry.sizes)
    except ro.onnx.OnnxError as error:
        listed = entry.refused and entry.refused in str(error)
        return Row(entry.name, "refused as listed" if listed else f"refused: {error}")
    if entry.refused:
        return Row(entry.name, f"is read now: take 'refused' out of the table ({entry.refused})")
    row = check_model(entry, model, feeds, expected, runtime)
    differs_once = entry.quantised and row.verdict != "equal" and (row.again or 0.0) <= entry.tolerance
    if differs_once and theirs_saturate(path, feeds):
        row.verdict = SATURATED
    return row


def theirs_saturate(path: Path, feeds: Arrays) -> bool:
    """Whether rnnops computes each quantised product exactly, and ONNX Runtime stops some sums at 16 bits.

    It does so on processors without VNNI (docs/onnx.md).
    """
    found = list(products_of_file(path, feeds, lambda model, given: Session(path, model)(given)))
    return all(one.ours <= EXACT for one in found) and any(one.saturates(EXACT) for one in found)


def check_model(entry: RealFile, model: Any, feeds: Arrays, expected: Arrays, runtime: Runtime) -> Row:
    """Put a model that was read through the rest."""
    out = ro.compile(model.net)(model.params, feeds)
    row = Row(entry.name, "equal", error=distance(out, expected))
    row.again = exported_again(model, feeds, out, runtime, feeds if entry.sized else None)
    if not entry.quantised:
        row.gradient = gradient_error(entry, model, feeds)
    if not max(row.error or 0.0, row.again) <= entry.tolerance:
        row.verdict = f"differs by more than {entry.tolerance:g} of the largest value"
    return row


def input_dtypes(path: Path) -> dict[str, str]:
    """Dtypes of a file's inputs, without those that have values in there."""
    graph = onnx.load(path, load_external_data=False).graph
    valued = {tensor.name for tensor in graph.initializer}
    numbers = {value.name: value.type.tensor_type.elem_type for value in graph.input if value.name not in valued}
    return {name: onnx.helper.tensor_dtype_to_np_dtype(number).name for name, number in numbers.items()}


def exported_again(model: Any, feeds: Arrays, out: Arrays, runtime: Runtime, shapes: Arrays | None = None) -> float:
    """How far the exported file is from the model, in ONNX Runtime; infinite where it is read as another net.

    Args:
        shapes: arrays whose sizes are written; what follows from them is read as constants then, so that nets differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.onnx"
        ro.onnx.export(model, path, shapes=shapes)
        again = ro.onnx.load_model(path)
        if shapes is None and str(again.net) != str(model.net):
            return float("inf")
        numbers = ro.compile(again.net)(again.params, feeds)
        return max(distance(numbers, out), distance(runtime(path, feeds), out))


def gradient_error(entry: RealFile, model: Any, feeds: Arrays) -> float:
    """The largest error of gradients in float64, along random directions and at a few elements.

    Floats that stand for integers are not moved.
    """
    arrays = {**model.params, **feeds}
    wide = {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in arrays.items()}
    moved = [name for name in wide if wide[name].dtype.kind == "f" and "integers" not in entry.feeds.get(name, ())]
    report = ro.testing.check_gradient(
        model.net, wide, wrt=moved, device="cpu", sample=SAMPLE, training=False, step=entry.difference
    )
    return float(report.error)
