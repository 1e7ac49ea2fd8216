"""The model of digits.py in PyTorch: the same sizes, batches, optimizer and number of steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from contenders import Clock
from digits import HIDDEN, RATE, TRAIN, batches, data

GATES = ("reset", "update", "output")


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.scores = torch.nn.GRU(8, HIDDEN), torch.nn.Linear(HIDDEN, 10)

    def forward(self, rows):
        output, _ = self.rnn(rows)
        return self.scores(output[-1])


def start_from(model: Reader, params: Mapping[str, np.ndarray]) -> None:
    """Copy parameters of the other model into this one."""
    cell = "rnn.layer_0"
    arrays = {
        "rnn.weight_ih_l0": params[f"{cell}.i2h_w"],
        "rnn.bias_ih_l0": params[f"{cell}.i2h_b"],
        "rnn.weight_hh_l0": np.concatenate([params[f"{cell}.{gate}_gate_t_w"] for gate in GATES]),
        "rnn.bias_hh_l0": np.concatenate([params[f"{cell}.{gate}_gate_t_b"] for gate in GATES]),
        "scores.weight": params["scores.w"],
        "scores.bias": params["scores.b"],
    }
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def train(seed: int, start: Mapping[str, np.ndarray] | None = None) -> tuple[float, Clock]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rows, labels = (torch.from_numpy(array) for array in data())
    labels = labels.long()
    clock = Clock.start()
    model = Reader()
    if start is not None:
        start_from(model, start)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for batch in clock.steps(batches(seed)):
        loss = torch.nn.functional.cross_entropy(model(rows[:, batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(rows[:, TRAIN:]).argmax(-1) == labels[TRAIN:]).float().mean()), clock
