"""The cell of co2.py in PyTorch, stepped by a Python loop: the same sizes, rows, optimizer and number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, pi

import numpy as np
import torch
from co2 import HIDDEN, NORM, RATE, STEPS, Series, batches, errors
from contenders import Clock


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        H = HIDDEN
        shapes = dict(w_x=(1, 2 * H), w_s=(2, 2 * H), w_h=(H, 2 * H), b=(2 * H,), w_out=(H, 1), b_out=(1,))
        for name, shape in shapes.items():  # as torch.nn.RNNCell and torch.nn.Linear begin
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape).uniform_(-(H**-0.5), H**-0.5)))

    def forward(self, x, known, season, h, level):
        guess, guesses = level, []
        for x_t, known_t, season_t in zip(x, known, season, strict=True):
            seen = known_t * x_t + (1 - known_t) * guess
            gate, new = ((seen - level) @ self.w_x + season_t @ self.w_s + h @ self.w_h + self.b).chunk(2, -1)
            gate = torch.sigmoid(gate)
            h = gate * h + (1 - gate) * torch.tanh(new)
            guess, level = seen + h @ self.w_out + self.b_out, seen
            guesses.append(guess)
        return torch.stack(guesses)


def train(seed: int, start: Mapping[str, np.ndarray] | None = None) -> tuple[tuple[float, float], Clock]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    series, clock = Series(), Clock.start()
    model = Forecaster()
    if start is not None:
        model.load_state_dict({name: torch.from_numpy(array) for name, array in start.items()})
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + cos(pi * step / STEPS)) / 2)
    for feeds in clock.steps(batches(series, seed)):
        tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
        target, weight = tensors.pop("target"), tensors.pop("weight")
        loss = (((model(**tensors) - target) * weight) ** 2).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        schedule.step()

    def guess(feeds):
        read = ("x", "known", "season", "h", "level")
        with torch.no_grad():
            return model(**{name: torch.from_numpy(feeds[name]) for name in read}).numpy()

    return errors(series, guess), clock
