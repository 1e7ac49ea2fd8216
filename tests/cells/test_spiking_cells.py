"""Spiking cells: the surrogate gradient, carried forward by hand; spikes beside snntorch."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro

T, N, D, H = 6, 2, 3, 5
A, R, STRENGTH = 0.8, 0.9, 1.8  # decays, and how far a threshold rises
Feeds = dict[str, np.ndarray]


def neurons(adaptive: bool) -> tuple[ro.Net, Feeds]:
    net, options = ro.Net("net"), {"decay": A, "dampening": 0.5, "name": "cell"}
    cell = ro.cells.ALIFCell(D, H, adaptation=R, **options) if adaptive else ro.cells.LIFCell(D, H, **options)
    spikes, states = cell.apply_over_sequence(net, net.input("x"))
    net.outputs(z=spikes, v=states[2])
    rng = np.random.default_rng(0)
    shapes = {spec.name: spec.shape or () for spec in net.parameters} | {"x": (T, N, D)}
    return net, {
        name: 6 * rng.normal(size=shape) if name == "x" else rng.normal(size=shape) for name, shape in shapes.items()
    }


def tangent(feeds: Feeds, along: Feeds, strength: float) -> tuple[Feeds, Feeds]:
    """Spikes and potentials of a loop, and their slopes along a direction, by the product rule."""
    W, dW, S, dS = feeds["cell/i2h_w"], along["cell/i2h_w"], feeds["cell/spikes_w"], along["cell/spikes_w"]
    names = [f"cell/initial_{state}_state" for state in ("spikes", "potential", "adaptation")]
    (z, v, u), (dz, dv, du) = ([np.zeros((N, H)) + one.get(name, 0.0) for name in names] for one in (feeds, along))
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("z", "v", "dz", "dv")}
    for x, dx in zip(feeds["x"], along["x"], strict=True):
        current = x @ W.T + feeds["cell/i2h_b"] + z @ S.T
        slope = dx @ W.T + x @ dW.T + along["cell/i2h_b"] + dz @ S.T + z @ dS.T
        level, dlevel = 1.0 + strength * u, strength * du
        v, dv = A * v + (1 - A) * current - level * z, A * dv + (1 - A) * slope - dlevel * z - level * dz
        u, du = R * u + (1 - R) * z, R * du + (1 - R) * dz
        level, dlevel = 1.0 + strength * u, strength * du
        above, dabove = (v - level) / level, (dv - dlevel) / level - (v - level) / level**2 * dlevel
        z, dz = np.where(above > 0, 1.0, 0.0), 0.5 * np.maximum(0.0, 1.0 - np.abs(above)) * dabove
        for name, array in (("z", z), ("v", v), ("dz", dz), ("dv", dv)):
            found[name].append(array)
    arrays = {name: np.stack(steps) for name, steps in found.items()}
    return {"z": arrays["z"], "v": arrays["v"]}, {"z": arrays["dz"], "v": arrays["dv"]}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_surrogate_gradient(adaptive: bool, device: str) -> None:
    net, feeds = neurons(adaptive)
    out, pullback = ro.compile(net, device=device).vjp(feeds)
    rng = np.random.default_rng(1)
    heads = {name: rng.normal(size=array.shape) for name, array in out.items()}
    grads = pullback(heads)
    assert 0.1 < out["z"].mean() < 0.9
    for _ in range(5):
        along = {name: rng.normal(size=array.shape) for name, array in feeds.items()}
        values, slopes = tangent(feeds, along, STRENGTH if adaptive else 0.0)
        for name, array in values.items():
            np.testing.assert_allclose(out[name], array, rtol=1e-10, atol=1e-12)
        wanted = sum((heads[name] * slope).sum() for name, slope in slopes.items())
        came = sum((grads[name] * along[name]).sum() for name in feeds)
        np.testing.assert_allclose(came, wanted, rtol=1e-9)


def test_spikes_of_snntorch() -> None:
    """Its leaky neuron takes currents as they are, and a threshold off after a spike; its numbers are float32."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    package = pytest.importorskip("snntorch", reason="snntorch is not installed")
    module, potential, spikes = package.Leaky(beta=0.9, threshold=1.0), torch.zeros(N, H), []
    net = ro.Net("net")
    net.outputs(z=ro.cells.LIFCell(H, H, decay=0.9, name="cell").apply_over_sequence(net, net.input("x"))[0])
    x = np.random.default_rng(0).uniform(0, 1, (20, N, H)).astype("float32")
    feeds = {**ro.init_params(net, 0), "x": x, "cell/i2h_w": np.eye(H, dtype="float32") / np.float32(0.1)}
    feeds["cell/spikes_w"] = np.zeros((H, H), "float32")
    for current in torch.tensor(x):
        fired, potential = module(current, potential)
        spikes.append(fired.detach().numpy())
    wanted = np.stack(spikes)
    assert 0.1 < wanted.mean() < 0.9
    np.testing.assert_array_equal(ro.compile(net)(feeds)["z"], wanted)


def test_numbers_of_neurons_that_are_none() -> None:
    for name in ("decay", "dampening", "threshold"):
        with pytest.raises(ro.NetError, match=f"{name} is not a finite number; got nan"):
            ro.cells.LIFCell(3, 4, **{name: np.nan})
    for decay in (-0.1, 1.5):
        with pytest.raises(ro.NetError, match="decay is out of range; wanted 0 to 1"):
            ro.cells.LIFCell(3, 4, decay=decay)
        with pytest.raises(ro.NetError, match="adaptation is out of range; wanted 0 to 1"):
            ro.cells.ALIFCell(3, 4, adaptation=decay)
    for cell, name in ((ro.cells.LSTMCell, "forget_bias"), (ro.cells.CoRNNCell, "dt"), (ro.cells.LTCCell, "elapsed")):
        with pytest.raises(ro.NetError, match=f"{name} is not a finite number; got inf"):
            cell(3, 4, **{name: np.inf})


def test_thresholds_are_positive() -> None:
    with pytest.raises(ro.NetError, match="threshold must be positive"):
        ro.cells.LIFCell(3, 4, threshold=0.0)
