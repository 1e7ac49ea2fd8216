"""The order in which an Einsum multiplies many operands: the cheapest of few, a good one of many."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.ops.einsum import cheapest_order

SIZES = {"n": 64, "i": 8, "j": 100, "k": 100, "a": 2, "b": 500, "c": 3, "d": 400}


@pytest.mark.parametrize(
    ("operands", "result", "order"),
    [
        (("ni", "ijk", "nj"), "nk", ((0, 2), (0, 1))),  # no [n, j, k]
        (("ij", "njk", "kl"), "nil", ((0, 1), (0, 1))),
        (("ab", "bc", "cd"), "ad", ((0, 1), (0, 1))),
        (("ab", "bd", "dc"), "ac", ((0, 1), (0, 1))),
        (("bd", "dc", "ca"), "ba", ((1, 2), (0, 1))),
        (("b", "bd", "dc", "ca"), "a", ((0, 1), (0, 1), (0, 1))),
        (("ni",), "n", ()),
    ],
)
def test_order(operands: tuple[str, ...], result: str, order: tuple[tuple[int, int], ...]) -> None:
    sizes = {**SIZES, "l": 16}
    assert cheapest_order([tuple(labels) for labels in operands], set(result), sizes) == order


def test_many_operands_are_multiplied_in_any_order() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in [(5, 2), (2, 3), (3, 7), (7, 2), (2, 4), (4,)]]
    net = ro.Net("many")
    blobs = [net.input(f"x{i}") for i in range(len(arrays))]
    net.outputs(y=ro.einsum("ab,bc,cd,de,ef,f->a", *blobs))
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    np.testing.assert_allclose(ro.compile(net)(feeds)["y"], np.einsum("ab,bc,cd,de,ef,f->a", *arrays), 1e-12, 1e-12)
