"""Nets of single cells with random parameters, and how the tests of cells run them."""

from __future__ import annotations

import numpy as np
from by_hand import random_arrays
from devices import on_device

import rnnops as ro

T, N, D, H = 3, 3, 2, 5  # more steps than the plain device has in a tile
LENGTHS = np.array([3, 0, 2], "int32")
X = random_arrays(x=(T, N, D))["x"]
CELLS = [
    ro.cells.BasicRNNCell,
    ro.cells.LSTMCell,
    ro.cells.MILSTMCell,
    ro.cells.LayerNormLSTMCell,
    ro.cells.LayerNormMILSTMCell,
    ro.cells.GRUCell,
]


def random_params(net: ro.Net, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for all parameters, zeros and ones too."""
    shapes = {spec.name: spec.shape for spec in net.parameters}
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}


def run_of(
    net: ro.Net, **feeds: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Feeds with random parameters, outputs, and gradients of the sum of all outputs; a plain run gives the same."""
    feeds = {**random_params(net), **feeds}
    run = on_device(net)
    out, pullback = run.vjp(feeds)
    np.testing.assert_equal(run(feeds), out)
    return feeds, out, pullback({name: np.ones_like(array) for name, array in out.items()})


def all_cells(net: ro.Net) -> dict[str, ro.cells.RNNCell]:
    encoder = net.input("encoder")
    cells: dict[str, ro.cells.RNNCell] = {cell_class.__name__: cell_class(D, H) for cell_class in CELLS}
    cells["dropout"] = ro.cells.DropoutCell(ro.cells.LSTMCell(D, H, name="dropped"), 0.0)
    cells["stack"] = ro.cells.MultiRNNCell([ro.cells.LSTMCell(D, H, name="low"), ro.cells.GRUCell(H, H, name="high")])
    cells["attention"] = ro.cells.LSTMWithAttentionCell(H, encoder, None, D, H, "soft_coverage")
    return cells
