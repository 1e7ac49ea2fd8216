"""The benchmark of cells with matrix states runs, and its cells have the gradients that the reference has."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from bench.matrix_states import cells, measure

SMALL = cells(heads=2, width=4, channels=6, states=3)


def test_all_contenders_are_timed() -> None:
    found = measure(T=3, N=2, rounds=1, table=SMALL, beside_jax=False)
    names = set(found)
    assert names == {
        (name, what, label)
        for name in SMALL
        for what in ("forward", "training")
        for label in ("rnnops", "rnnops, all steps kept")
    }
    assert min(found.values()) > 0


def test_cells_mean_what_the_reference_says() -> None:
    for cell in SMALL.values():
        feeds = {name: array.astype("float64") for name, array in cell.feeds(3, 2).items()}
        ours, wanted = (ro.compile(cell.net(), device=device)(feeds)["y"] for device in ("cpu", "reference"))
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-12)
        assert ro.testing.check_gradient(cell.net(), feeds)
