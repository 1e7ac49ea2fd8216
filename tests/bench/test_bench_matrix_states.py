"""The benchmark of cells with matrix states runs, and its cells have the gradients that the reference has."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from bench.chunkwise import SEQUENCES, chunkwise_runs
from bench.matrix_states import cells, measure

SMALL = cells(heads=2, width=4, channels=6, states=3)


def test_all_contenders_are_timed() -> None:
    one = {"mlstm": SMALL["mlstm"]}
    found = measure(T=3, N=2, rounds=1, table=one, beside_jax=False)
    names = {key for key in found if "chunks" not in key[2]}
    assert names == {
        (name, what, label)
        for name in one
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


def test_chunks_compute_the_same() -> None:
    """Gradients of a row's sequences lie head by head there."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    cell = SMALL["mlstm"]
    feeds = {name: array.astype("float64") for name, array in cell.feeds(12, 2).items()}
    out, pullback = ro.compile(cell.net()).vjp(feeds)
    runs = chunkwise_runs(feeds, 1, steps=4)
    np.testing.assert_allclose(_as_ours(runs["forward"](), 2), out["y"], rtol=0, atol=1e-12)
    found, wanted = runs["training"](), pullback({"y": np.ones_like(out["y"])})
    for name in SEQUENCES:
        np.testing.assert_allclose(_as_ours(found[name], 2), wanted[name], rtol=0, atol=1e-12, err_msg=name)


def _as_ours(tensor: object, rows: int) -> np.ndarray:
    """`[rows and heads, chunks, steps, features]` as `[steps, rows, heads, features]`."""
    array = np.asarray(tensor)
    split = array.reshape(rows, array.shape[0] // rows, -1, array.shape[-1])
    return split.transpose(2, 0, 1, 3)
