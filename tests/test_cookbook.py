"""The cells of papers in `docs/cookbook.md` compute what loops over one row compute, written from the papers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnops as ro

PAGE = Path(__file__).parent.parent / "docs" / "cookbook.md"
T, N, D, H = 5, 2, 3, 4
Params = dict[str, np.ndarray]
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "ssd": {"x": (T, N, 2, 4), "b": (T, N, 3), "c": (T, N, 3), "dt": (T, N, 2), "a_log": (2,), "skip": (2,)},
    "legs": {"x": (T, N), "a": (H, H), "b": (H,)},
}


def ssd(p: Params, n: int) -> list[np.ndarray]:
    states, steps = np.zeros((2, 4, 3)), []
    for t in range(T):
        for head in range(2):
            x, dt = p["x"][t, n, head], p["dt"][t, n, head]
            states[head] *= np.exp(-np.exp(p["a_log"][head]) * dt)
            states[head] += np.outer(dt * x, p["b"][t, n])
        steps.append(states @ p["c"][t, n] + p["skip"][:, None] * p["x"][t, n])
    return steps


def legs(p: Params, n: int) -> list[np.ndarray]:
    m, steps = np.zeros(H), []
    for k in range(1, T + 1):
        m = (np.eye(H) - p["a"].T / k) @ m + p["b"] * p["x"][k - 1, n] / k
        steps.append(m)
    return steps


def named(name: str) -> dict[str, Any]:
    """What the page's block about the net of this name defines."""
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if f'ro.Net("{name}")' in one)
    names: dict[str, Any] = {"np": np, "ro": ro, "T": T, "N": N, "D": D, "H": H, "show": lambda net, **feeds: None}
    exec(block, names)
    return names


@pytest.mark.parametrize("loop", [ssd, legs])
def test_a_cell_of_a_paper_is_its_loop(loop: Callable[[Params, int], list[np.ndarray]]) -> None:
    cell, rng = named(loop.__name__)[loop.__name__], np.random.default_rng(0)
    feeds = {name: np.abs(rng.normal(size=shape)) / 2 for name, shape in SHAPES[loop.__name__].items()}
    net = ro.Net(loop.__name__)
    start = {name: np.zeros((2, 4, 3) if name == "S" else H) for name in cell.states}
    shapes = {"S": (2, 4, 3)} if "S" in start else None
    every = ro.scan(cell, *map(net.input, cell.sequences), **start, state_shapes=shapes)[1]
    net.outputs(y=every[cell.states[0]] if isinstance(every, dict) else every)
    wanted = np.stack([np.stack(loop(feeds, n)) for n in range(N)], axis=1)
    for device in ("reference", "cpu"):
        np.testing.assert_allclose(ro.compile(net, device)(feeds)["y"], wanted, rtol=1e-12, atol=1e-13)


def test_the_memory_of_a_constant_is_its_mean() -> None:
    """Legendre polynomials of a constant: the first coefficient, and no other one."""
    net = named("legs")["net"]
    m = ro.compile(net)(ro.init_params(net, 0, "float64"), x=np.ones((40, 1)))["m"]
    np.testing.assert_allclose(m[-1, 0], [1, 0, 0, 0], atol=1e-12)


def test_the_decoder_reads_its_own_words() -> None:
    net = named("decoder")["net"]
    p, h = ro.init_params(net, 0, "float64"), np.random.default_rng(0).normal(size=(N, H))
    said = ro.compile(net)(p, words=np.zeros((T, N), "int32"), h=h)["said"]
    word = np.zeros(N, "int32")
    for t in range(T):
        h = np.tanh(p["table"][word] + h @ p["w"])
        word = (h @ p["v"]).argmax(axis=-1)
        np.testing.assert_array_equal(said[t], word)


def test_spikes_have_the_slope_of_the_page() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(0.4, 0.3, (T, N, H)), rng.normal(0, 0.5, (H, H))
    out, pullback = ro.compile(named("spiking")["net"]).vjp(x=x, w=w)
    z, v, potentials = np.zeros((N, H)), np.zeros((N, H)), []
    for t in range(T):
        v = 0.9 * v + x[t] + z @ w - z
        z = (v > 1) * 1.0
        potentials.append(v)
        np.testing.assert_array_equal(out["z"][t], z)
    assert 0 < out["z"].mean() < 1
    grads, dv = pullback(np.ones_like(out["z"]))["x"], np.zeros((N, H))
    for t in reversed(range(T)):
        dz = 1 + dv @ w.T - dv
        dv = 0.9 * dv + dz * 0.3 * np.maximum(0, 1 - np.abs(potentials[t] - 1))
        np.testing.assert_allclose(grads[t], dv, rtol=1e-12, atol=1e-13)
