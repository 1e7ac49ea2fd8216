"""Learn from a stream: a forecaster of weekly carbon dioxide that steps its parameters every week.

    pip install '.[tutorials]' && python examples/online_learning.py

The state of the cell follows element by element from the state before, so that `ro.online_net` gives exact gradients
at every step. Its memory does not grow with the number of weeks. Beside it the same cell, the same optimizer, and
back-propagation cut off after k weeks. The cell is not told the season: it has to remember it. Data: Keeling and
Whorf, weekly from 1958 to 2001, in statsmodels.
"""

from __future__ import annotations

import numpy as np

import rnnops as ro

H, RATE = 32, 0.003
YEAR = 52


@ro.cell
def forecaster(x, target, known, h, *, w, b, w_y, b_y):
    """A minimal gated unit over the last changes, and the error of what it expects of the next week."""
    keep, new = ro.split(x @ w + b, 2, -1)
    keep = ro.sigmoid(keep)
    h = keep * h + (1.0 - keep) * np.tanh(new)
    error = known * (h @ w_y + b_y - target)
    return {"h": h, "loss": ro.reduce_mean(error * error)}


def weeks() -> dict[str, np.ndarray]:
    """Changes from week to week in ppm, without the date; `known` is 0 where a week was not measured."""
    import statsmodels.api as sm

    co2 = sm.datasets.co2.load_pandas().data["co2"]
    change = co2.diff().to_numpy(np.float32)
    known = np.isfinite(change).astype(np.float32)
    change = np.nan_to_num(change)
    features = np.stack([change, known], -1)
    return {"x": features[1:-1, None], "target": change[2:, None, None], "known": known[2:, None, None]}


def parameters(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"w": (2, 2 * H), "b": (2 * H,), "w_y": (H, 1), "b_y": (1,)}
    drawn = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
    drawn["b"][:H] += np.log(np.linspace(1, 40, H))  # states last for one to forty weeks at first
    return {name: array.astype(np.float32) for name, array in drawn.items()}


def online(data: dict[str, np.ndarray]) -> np.ndarray:
    """The loss of each week, where parameters are stepped after each week."""
    params, optimizer = parameters(np.random.default_rng(0)), ro.model.Adam(RATE)
    kept = optimizer.start(params)
    sizes = {name: array.shape for name, array in params.items()}
    step = ro.online_net(forecaster, x=(1, 2), target=(1, 1), known=(1, 1), h=(1, H), **sizes)
    stream = ro.compile(step.net, threads=1).stream(step.states, shapes={"h": (1, H), **step.traces})
    losses, one = [], np.ones((1, 1), np.float32)
    for t in range(len(data["x"])):
        out = stream(**{name: array[t] for name, array in data.items()}, **params, d_loss=one)
        params, kept = optimizer.update(params, {name: out[f"d_{name}"] for name in params}, kept)
        losses.append(float(out["loss"][0, 0]))
    return np.array(losses)


def cut_off(data: dict[str, np.ndarray], k: int) -> np.ndarray:
    """The same where parameters are stepped every k weeks, by back-propagation through those."""
    params, optimizer = parameters(np.random.default_rng(0)), ro.model.Adam(RATE)
    kept = optimizer.start(params)
    net = ro.Net("cut_off")
    sequences = {name: net.input(name) for name in data}
    last, ys = ro.scan(forecaster, **sequences, h=net.input("h"))
    net.outputs(h=last["h"], losses=ys["loss"])
    run, h, losses = ro.compile(net, threads=1), np.zeros((1, H), np.float32), list[float]()
    for t in range(0, len(data["x"]), k):
        part = {name: array[t : t + k] for name, array in data.items()}
        out, pullback = run.vjp(part, params, h=h, wrt=list(params))
        params, kept = optimizer.update(params, pullback({"losses": np.ones_like(out["losses"])}), kept)
        h = out["h"]
        losses += out["losses"].ravel().tolist()
    return np.array(losses)


def main() -> None:
    data = weeks()
    ways = {"online": online(data), **{f"cut off after {k} weeks": cut_off(data, k) for k in (1, 8, YEAR)}}
    still = (data["known"] * data["target"] ** 2).ravel()
    print(f"mean square error of the next week's change, ppm^2, {len(still)} weeks")
    for name, losses in {"no change expected": still, **ways}.items():
        decades = [losses[10 * YEAR * i : 10 * YEAR * (i + 1)].mean() for i in range(4)]
        print(f"{name:26}" + " ".join(f"{value:7.4f}" for value in decades))


if __name__ == "__main__":
    main()
