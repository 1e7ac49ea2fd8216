"""The model of text.py in PyTorch: the same sizes, windows, optimizer and number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, log, pi

import numpy as np
import torch
from contenders import Clock
from text import FEATURES, HIDDEN, NORM, RATE, STEPS, N, data, windows

OUR_GATES, ITS_GATES = "ifog", "ifgo"


class Writer(torch.nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.features = torch.nn.Embedding(symbols, FEATURES)
        self.rnn, self.scores = torch.nn.LSTM(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, symbols)

    def loss(self, characters, targets, h, c):
        output, (h, c) = self.rnn(self.features(characters), (h, c))
        return torch.nn.functional.cross_entropy(self.scores(output).flatten(0, 1), targets.flatten()), h, c


def reordered(array: np.ndarray) -> np.ndarray:
    """Rows of four gates in PyTorch's order."""
    parts = dict(zip(OUR_GATES, np.split(array, 4), strict=True))
    return np.concatenate([parts[gate] for gate in ITS_GATES])


def start_from(model: Writer, params: Mapping[str, np.ndarray]) -> None:
    """Copy parameters of the other model into this one."""
    cell = "rnn.layer_0"
    arrays = {
        "features.weight": params["features.table"],
        "rnn.weight_ih_l0": reordered(params[f"{cell}.i2h_w"]),
        "rnn.bias_ih_l0": reordered(params[f"{cell}.i2h_b"]),
        "rnn.weight_hh_l0": reordered(params[f"{cell}.gates_t_w"]),
        "rnn.bias_hh_l0": reordered(params[f"{cell}.gates_t_b"]),
        "scores.weight": params["scores.w"],
        "scores.bias": params["scores.b"],
    }
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def train(seed: int, start: Mapping[str, np.ndarray] | None = None) -> tuple[float, Clock]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    text, held_out, symbols = data()
    clock = Clock.start()
    model = Writer(len(symbols))
    if start is not None:
        start_from(model, start)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + cos(pi * min(step / STEPS, 1))) / 2)
    h = c = zeros = torch.zeros(1, N, HIDDEN)
    for anew, window in clock.steps(windows(text)):
        h, c = (zeros, zeros) if anew else (h.detach(), c.detach())
        places = torch.from_numpy(window).long()
        loss, h, c = model.loss(places[:-1], places[1:], h, c)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        schedule.step()
    places, zero = torch.from_numpy(held_out).long()[:, None], zeros[:, :1]
    with torch.no_grad():
        return float(model.loss(places[:-1], places[1:], zero, zero)[0]) / log(2), clock
