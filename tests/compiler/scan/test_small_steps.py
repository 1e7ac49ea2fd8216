"""Steps so small that LLVM makes them part of the loop over time: one step still reads what the one before wrote."""

from __future__ import annotations

import numpy as np
import pytest
from devices import DEVICES
from scan_cases import recurrent

import rnnops as ro

T = 40


@pytest.mark.parametrize("window", [1, 3])
def test_every_step_sees_the_one_before(window: int) -> None:
    """One number a step: `h = 0.5 h' + sign(h') / 5`, which LLVM would gladly compute four steps at a time."""
    cell = ro.Net("small")
    h = cell.input("h")
    last = h if window == 1 else ro.squeeze(ro.slice(h, [-1], [9], [0]), [0])
    cell.outputs(h_t=last * 0.5 + ro.sign(last) * 0.2)
    net = recurrent(cell, {}, {"h": ro.Link("h_t", window=window)}, steps=T)
    h0 = np.full((window, 1, 1), 0.9)
    out, pullback = DEVICES["cpu"](net).vjp(h0=h0)
    wanted = [0.9]
    for _ in range(T):
        wanted.append(wanted[-1] * 0.5 + 0.2)
    np.testing.assert_allclose(out["h_t_all"].reshape(-1), wanted[1:], rtol=1e-14)
    grad = pullback({"h_t_last": np.ones((1, 1, 1))})["h0"]
    np.testing.assert_allclose(grad[-1], 0.5**T, rtol=1e-12)
