"""CumProd and CumSum of ONNX beside onnx.reference; op sets before 26 get products of products."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from each import check_each
from one_node import check_node, one_node, reference_results

import rnnops as ro
from rnnops.onnx import OnnxError, export


def test_sums_and_products(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 5)).astype("float32")

    def check(case: tuple[str, int, int, int]) -> None:
        op, axis, exclusive, reverse = case
        feeds = {"x": x, "axis": np.array(axis)}
        model = one_node(op, {"exclusive": exclusive, "reverse": reverse}, feeds, 26, ["axis"])
        check_node(model, feeds, tmp_path, opset=26)

    check_each(product(("CumSum", "CumProd"), (0, -1), (0, 1), (0, 1)), check, str)


def test_older_op_sets_get_products_of_products(tmp_path: Path) -> None:
    for size, exclusive, reverse in product((0, 1, 5, 8), (0, 1), (0, 1)):
        net, x = ro.Net("net"), np.linspace(-1, 1.5, 2 * size, dtype="float32").reshape(2, size)
        net.outputs(y=ro.cumprod(net.input("x"), 1, exclusive, reverse))
        export(net, tmp_path / "net.onnx", shapes={"x": ("N", size)})
        came = reference_results(onnx.load(tmp_path / "net.onnx"), {"x": x})[0]
        wanted = ro.compile(net, device="reference")(x=x)["y"]
        np.testing.assert_allclose(came, wanted, rtol=1e-6)
        np.testing.assert_allclose(ro.compile(ro.onnx.load(tmp_path / "net.onnx"))(x=x)["y"], wanted, rtol=1e-6)
    with pytest.raises(OnnxError, match=r"CumProd.*the axis is open; wanted opset=26"):
        export(net, tmp_path / "net.onnx", shapes={"x": ("N", "T")})
