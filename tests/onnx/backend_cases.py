"""The ONNX project's own node tests, and what rnnops makes of each."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import rnnops as ro
from rnnops.onnx import load_model
from rnnops.onnx.load import READABLE

HALVES = ("float16", "bfloat16")
DEFINED = (  # ops that ONNX defines by simpler ones, and that are read as these
    *("AffineGrid", "Attention", "CastLike", "CausalConvWithState", "CenterCropPad", "LinearAttention"),
    *("NegativeLogLikelihoodLoss", "RotaryEmbedding", "SwiGLU"),
)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@cache
def cases() -> dict[str, Any]:
    """Name -> test case, of all whose nodes are ops of the set, alone or with others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return {case.name: case for case in found if all(mine(node) for node in case.model.graph.node)}


def chosen(every: bool) -> list[str]:
    """Names of cases: all, or a quarter of those that ONNX has of others, the same op written out as simpler ones."""
    written_out = [name for name in cases() if "_expanded" in name]
    left_out = set() if every else {name for number, name in enumerate(written_out) if number % 4}
    return [name for name in cases() if name not in left_out]


def few(names: list[str], count: int) -> list[str]:
    """The first cases of each op, so many: of one whose nodes are several, of the same ops."""
    seen, kept = Counter[frozenset[str]](), []
    for name in names:
        ops = frozenset(node.op_type for node in cases()[name].model.graph.node)
        seen[ops] += 1
        if seen[ops] <= count:
            kept.append(name)
    return kept


def mine(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in (*READABLE, *DEFINED)


@dataclass
class Outcome:
    """`passed`, `passed with constants`, or `refused` with the error.

    Args:
        model: as it was read for the first feeds, None where it was refused.
    """

    verdict: str
    reason: str = ""
    model: Any = None


def run_case(case: Any, folder: Path) -> Outcome:
    """Run a case on the reference device; a wrong result is an AssertionError."""
    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    try:
        models = [compare(case, path, feeds, wanted, {}) for feeds, wanted in case.data_sets]
        return Outcome("passed", model=models[0])
    except ro.RnnopsError as error:
        first = str(error)
    try:
        models = [compare(case, path, *pair, fixed_inputs(case, pair[0])) for pair in case.data_sets]
        return Outcome("passed with constants", model=models[0])
    except ro.RnnopsError:
        return Outcome("refused", first)


@cache
def outcome_of(name: str, folder: Path) -> Outcome:
    """What comes of a case; its file is written into the folder."""
    return run_case(cases()[name], folder)


def fixed_inputs(case: Any, feeds: list[Any]) -> dict[str, Any]:
    """Feeds that may decide shapes: everything but arrays of floats, and the scales of a Resize."""
    pairs = [(v, as_array(x)) for v, x in zip(case.model.graph.input, feeds, strict=False) if not isinstance(x, list)]
    resizes = [node for node in case.model.graph.node if node.op_type in ("Resize", "Upsample")]
    scales = {name for node in resizes for name in node.input[1:]}
    return {v.name: as_float(x, "float32") for v, x in pairs if v.name in scales or not is_data(v, x)}


def is_data(value: Any, array: Any) -> bool:
    return value.type.tensor_type.elem_type in FLOATS and np.ndim(array) > 0


def compare(case: Any, path: Path, feeds: list[Any], wanted: list[Any], constants: dict[str, Any]) -> Any:
    """Compare what a model computes, and return it."""
    model = load_model(path, constants)
    names = [value.name for value in case.model.graph.input]
    arrays = {
        name: as_float(as_array(feed), model.dtype)
        for name, feed in zip(names, feeds, strict=False)
        if name in model.net.input_names
    }
    out = ro.compile(model.net, device="reference")(model.params, arrays)
    for value, expected in zip(case.model.graph.output, wanted, strict=True):
        expected, got = as_array(expected), out[value.name]
        if expected.dtype.name in HALVES:  # what comes out as float is rounded by whoever wants the file's own type
            expected, got = (array.astype(expected.dtype).astype("float32") for array in (expected, got))
        assert got.dtype == expected.dtype, f"{value.name}: {got.dtype}, wanted {expected.dtype}"
        assert got.shape == expected.shape, f"{value.name}: {got.shape}, wanted {expected.shape}"
        tolerances = {"rtol": case.rtol, "atol": case.atol + rounding(case, expected)}
        if "attention" in case.name and "bf16" in case.name:  # whose expected values are rounded after each of many ops
            tolerances = {"rtol": 2**-6, "atol": 2**-7}
        np.testing.assert_allclose(got, expected, **tolerances)
    return model


def rounding(case: Any, expected: np.ndarray) -> float:
    """What expected values are off by: those of transforms are sums in float32, also where zero is right."""
    transforms = any(node.op_type == "DFT" for node in case.model.graph.node)
    return 1e-6 * float(np.abs(expected).max()) if transforms else 0.0


def as_float(array: np.ndarray, float_dtype: str) -> np.ndarray:
    """An array of half precision as float, others as they are."""
    return array.astype(float_dtype) if array.dtype.name in HALVES else array


def as_array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
