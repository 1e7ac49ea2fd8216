"""What drivers are given: tensors and other arrays by their blobs, then scratch."""

from __future__ import annotations

from matrix_cells import case

import rnnops as ro
from rnnops.compiler.codegen.places import array_parameters


def test_arrays_are_named_in_order_and_say_whose_they_are() -> None:
    net, feeds = case("selective")
    (runner,) = ro.compile(net).plan(feeds).plan.compiled.forward.values()
    compiled = runner.compiled
    found = array_parameters(compiled.scan, compiled.plan, compiled.layouts)
    given = [one for one in found if one.name.startswith("x")]
    assert [one.name for one in given] == [f"x{i}" for i in range(len(given))]
    assert "tensor state h" in {one.blob for one in given}
    assert "A" in {one.blob for one in given}
    assert [one.name for one in found if one not in given] == ["w_float32"]
