"""Sums over steps become results: rows are added up, then what is linear in sums is computed, once."""

from __future__ import annotations

import numpy as np
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.memory.memory import GRADIENT, SUMS, allocate
from rnnops.compiler.run.forward import Totals
from rnnops.compiler.targets.target import PLAIN_PYTHON

T, N, H = 4, 3, 2


def totals_of_scaled_bias() -> Totals:
    """Of `h_t = tanh(x + h) * (2 * b)`: the gradient of b is twice a sum over rows and steps.

    What is the same at every step has a name here, and stays in the step.
    """
    cell = ro.Net("cell")
    x, h, b = cell.inputs("x", "h", "b")
    cell.outputs(h_t=ro.tanh(x + h) * (b * 2.0).named("twice"))
    net = recurrent(cell, {"x": "xs"}, {"h": "h_t"})
    _, (backward,) = training_scans(net, xs=(T, N, H), h0=(N, H), b=(H,))
    return backward.totals


def test_rows_are_added_up_and_what_is_linear_in_sums_follows() -> None:
    totals = totals_of_scaled_bias()
    (owner,) = totals.over_rows
    sums = np.arange(N * H, dtype=float).reshape(N, H)
    found = totals.results({owner: sums}, {"b": np.ones(H)}, lambda buffer, zeros=False: allocate(buffer), PLAIN_PYTHON)
    (result,) = found.values()
    np.testing.assert_array_equal(result.reshape(-1), 2 * sums.sum(axis=0))


def test_the_memory_it_makes_is_known() -> None:
    totals = totals_of_scaled_bias()
    kinds = {buffer.kind for buffer in totals.made().values()}
    assert kinds <= {SUMS, GRADIENT}
    assert all(buffer.shape[-1] == H for buffer in totals.made().values())
