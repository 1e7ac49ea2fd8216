"""The model of speech.py in PyTorch: the same sizes, batches, noise, optimizer and number of steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from contenders import Clock
from speech import HIDDEN, RATE, SPEAKERS, D, batches, data, padded
from torch.nn.utils.rnn import pack_padded_sequence

GATES = ("reset", "update", "output")


class Listener(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.scores = torch.nn.GRU(D, HIDDEN), torch.nn.Linear(HIDDEN, SPEAKERS)

    def forward(self, frames, lengths):
        packed = pack_padded_sequence(torch.from_numpy(frames), torch.from_numpy(lengths), enforce_sorted=False)
        return self.scores(self.rnn(packed)[1][0])  # the state after each row's last frame


def start_from(model: Listener, params: Mapping[str, np.ndarray]) -> None:
    """Copy parameters of the other model into this one."""
    arrays = {
        "rnn.weight_ih_l0": params["gru/i2h_w"],
        "rnn.bias_ih_l0": params["gru/i2h_b"],
        "rnn.weight_hh_l0": np.concatenate([params[f"gru/{gate}_gate_t_w"] for gate in GATES]),
        "rnn.bias_hh_l0": np.concatenate([params[f"gru/{gate}_gate_t_b"] for gate in GATES]),
        "scores.weight": params["w"].T,
        "scores.bias": params["b"],
    }
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def train(seed: int, start: Mapping[str, np.ndarray] | None = None) -> tuple[float, Clock]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    learnt, (rows, speakers) = data()
    clock = Clock.start()
    model = Listener()
    if start is not None:
        start_from(model, start)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for feeds in clock.steps(batches(seed, *learnt)):
        scores = model(feeds["frames"], feeds["lengths"])
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(feeds["speakers"]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(*padded(rows)).argmax(-1).numpy() == speakers).mean()), clock
