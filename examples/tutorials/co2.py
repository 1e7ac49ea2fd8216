"""Forecasts carbon dioxide in the air by a cell of its own, with weeks missing; docs/tutorials/co2.md explains it.

python examples/tutorials/co2.py --peer torch
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import statsmodels.api as sm
from contenders import Clock, arguments, compare
from statsmodels.tsa.ar_model import AutoReg

import rnnops as ro
from rnnops.model import Adam, Cosine

HIDDEN, WEEKS, OPEN, BATCH, STEPS, RATE, NORM = 8, 104, 26, 32, 600, 0.01, 1.0
WARM_UP, CONTEXT = 20, 300  # weeks that no error is taken of, and those that a long forecast begins with

Arrays = dict[str, np.ndarray]


@ro.cell
def forecaster(x, known, season, h, guess, level, *, w_x, w_s, w_h, b, w_out, b_out):
    seen = known * x + (1.0 - known) * guess  # a week that is missing is what the cell itself expected
    gate, new = ro.split((seen - level) @ w_x + season @ w_s + h @ w_h + b, 2, axis=-1)
    gate = ro.sigmoid(gate)
    h = gate * h + (1.0 - gate) * np.tanh(new)
    return dict(h=h, guess=seen + h @ w_out + b_out, level=seen)


def forecasts(hidden: int = HIDDEN) -> ro.Net:
    """Guesses of each next week, [T, N, 1], and the mean square of their errors."""
    H, net = hidden, ro.Net("co2")
    x, known, season, h, level, target, weight = net.inputs("x", "known", "season", "h", "level", "target", "weight")
    shapes = dict(w_x=(1, 2 * H), w_s=(2, 2 * H), w_h=(H, 2 * H), b=(2 * H,), w_out=(H, 1), b_out=(1,))
    params = {
        name: net.parameter(name, shape, ("xavier", shape[0]) if name.startswith("w") else "zeros")
        for name, shape in shapes.items()
    }
    _, ys = ro.scan(forecaster, x, known, season, h=h, guess=level, level=level, **params)
    error = (ys["guess"] - target) * weight
    loss = ro.reduce_sum(error * error, keepdims=0) / ro.reduce_sum(weight, keepdims=0)
    net.outputs(loss=loss, guess=ys["guess"])
    return net


class Series:
    """Weekly values above the first one, which of them are known, the time of year; where the held-out part begins."""

    def __init__(self) -> None:
        co2 = sm.datasets.co2.load_pandas().data["co2"]
        angle = 2 * np.pi * co2.index.dayofyear.to_numpy() / 365.25
        self.known = np.isfinite(co2.to_numpy()).astype("float32")
        self.level = np.nan_to_num(co2.to_numpy() - co2.iloc[0]).astype("float32")
        self.season = np.stack([np.sin(angle), np.cos(angle)], -1).astype("float32")
        self.end = int(0.8 * len(co2))

    def feeds(self, weeks: np.ndarray, hidden_from: int | None = None) -> Arrays:
        """Inputs for weeks [T, N], each column one row; from `hidden_from` on nothing is known but the calendar."""
        known, after = self.known[weeks][..., None], (weeks + 1) % len(self.level)
        if hidden_from is not None:
            known[hidden_from:] = 0
        weight = self.known[after][..., None]
        weight[:WARM_UP] = 0
        start = self.level[weeks[0]][:, None]
        found = dict(x=self.level[weeks][..., None], known=known, season=self.season[after], level=start)
        h = np.zeros((len(start), HIDDEN), "float32")
        return found | dict(h=h, target=self.level[after][..., None], weight=weight)


def batches(series: Series, seed: int) -> Iterator[Arrays]:
    """What each step is fed: rows of WEEKS from the training part, the last OPEN weeks of them hidden."""
    random = np.random.default_rng(seed)
    starts = np.flatnonzero(series.known[: series.end - WEEKS])
    for _ in range(STEPS):
        weeks = random.choice(starts, BATCH) + np.arange(WEEKS)[:, None]
        yield series.feeds(weeks, hidden_from=WEEKS - OPEN)


def errors(series: Series, guess: Callable[[Arrays], np.ndarray]) -> tuple[float, float]:
    """Root mean square errors, in ppm, of forecasts 1 and OPEN weeks ahead of all held-out weeks.

    Args:
        guess: feeds -> guesses [T, N, 1].
    """
    level, end = series.level, series.end
    one = guess(series.feeds(np.arange(len(level) - 1)[:, None]))[end - 1 :, 0, 0] - level[end:]
    last = np.arange(end - 1, len(level) - OPEN)  # the last week that is known
    weeks = last + np.arange(1 - CONTEXT, OPEN)[:, None]
    many = guess(series.feeds(weeks, hidden_from=CONTEXT))[-1, :, 0] - level[last + OPEN]
    return tuple(float(np.sqrt(np.mean(np.square(error)))) for error in (one, many))


def train(seed: int) -> tuple[tuple[float, float], Clock]:
    """Train; the errors 1 and OPEN weeks ahead."""
    series, clock = Series(), Clock.start()
    net, adam = forecasts(), Adam(Cosine(RATE, STEPS), max_norm=NORM)
    run, params = ro.compile(net, threads=1), ro.init_params(net, seed)
    state = adam.start(params)
    for feeds in clock.steps(batches(series, seed)):
        _, pullback = run.vjp(params, feeds, wrt=list(params))
        params, state = adam.update(params, pullback({"loss": 1.0}), state)
    return errors(series, lambda feeds: run(params, feeds)["guess"]), clock


def baselines(series: Series) -> Mapping[str, tuple[float, float]]:
    """Errors of the last value, of last year's with the change since, and of an autoregressive model with a season."""
    gaps = series.known == 0
    weeks = np.arange(len(gaps))
    y = np.where(gaps, np.interp(weeks, weeks[~gaps], series.level[~gaps]), series.level)
    turns = 2 * np.pi * np.outer(np.arctan2(*series.season.T) / (2 * np.pi), (1, 2, 3))
    change, waves = np.diff(y), np.concatenate([np.sin(turns), np.cos(turns)], -1)[1:]
    fitted = AutoReg(change[: series.end - 1], 13, exog=waves[: series.end - 1]).fit().params
    model = AutoReg(change, 13, exog=waves)
    found: dict[str, list[float]] = {"last value": [], "last year's, moved": [], "AR(13) with a season": []}
    for ahead in (1, OPEN):
        last = np.arange(series.end - 1, len(y) - ahead)
        moves = [model.predict(fitted, start=at, end=at + ahead - 1, dynamic=0 if ahead > 1 else False) for at in last]
        year = y[last + ahead - 52] - y[last - 52]
        for name, move in zip(found, (0 * year, year, np.sum(moves, -1)), strict=True):
            found[name].append(float(np.sqrt(np.mean(np.square(y[last] + move - y[last + ahead])))))
    return {name: (one, many) for name, (one, many) in found.items()}


def main() -> None:
    options = arguments(__doc__).parse_args()
    contenders = {"rnnops": train}
    if options.peer:
        from co2_torch import train as train_torch

        net = forecasts()
        contenders["PyTorch"] = train_torch
        contenders["PyTorch, from our start"] = lambda seed: train_torch(seed, ro.init_params(net, seed))
    for name, (one, many) in baselines(Series()).items():
        print(f"{name:24} {one:.4f} {many:.4f}")
    compare(contenders, options.seeds, f"ppm, root mean square error 1 and {OPEN} weeks ahead")


if __name__ == "__main__":
    main()
