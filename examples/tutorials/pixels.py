"""Reads digits pixel by pixel by a cell of a paper, written in PyTorch; docs/tutorials/pixels.md explains it.

python examples/tutorials/pixels.py --peer torch
"""

from __future__ import annotations

import torch
from contenders import Clock, arguments, compare
from digits import BATCH, TRAIN, batches, data

import rnnops.torch as rt

HIDDEN, RATE, STEPS = 96, 0.005, 840


class Oscillators(torch.nn.Module):
    """One step of coRNN (Rusch and Mishra 2021, arXiv 2010.00951): coupled, damped, driven by the input."""

    def __init__(self, D, H, step=0.3, frequency=1.0, damping=1.0):
        super().__init__()
        self.drive = torch.nn.Linear(D + 2 * H, H)
        self.step, self.frequency, self.damping = step, frequency, damping

    def forward(self, x, state):
        place, speed = state
        force = torch.tanh(self.drive(torch.cat([x, place, speed], -1)))
        speed = speed + self.step * (force - self.frequency * place - self.damping * speed)
        place = place + self.step * speed
        return place, speed


def looped(cell: Oscillators, xs: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The last place, by a loop over time."""
    for x in xs:
        state = cell(x, state)
    return state[0]


def pixels() -> tuple[torch.Tensor, torch.Tensor]:
    """Images as sequences of pixels [64, count, 1], and their digits."""
    rows, labels = data()
    return torch.from_numpy(rows.transpose(0, 2, 1).reshape(64, -1, 1)), torch.from_numpy(labels).long()


def train(seed: int, compiled: bool) -> tuple[float, Clock]:
    """Train; the part of the held-out digits that is read right."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    xs, labels = pixels()
    clock = Clock.start()
    cell, scores = Oscillators(1, HIDDEN), torch.nn.Linear(HIDDEN, 10)
    rnn = rt.RNN(cell) if compiled else None
    optimizer = torch.optim.Adam([*cell.parameters(), *scores.parameters()], RATE)

    def read(xs):
        zeros = torch.zeros(xs.shape[1], HIDDEN)
        last = looped(cell, xs, (zeros, zeros)) if rnn is None else rnn(xs, (zeros, zeros))[1][0]
        return scores(last)

    for batch in clock.steps(batches(seed)[:STEPS]):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(read(xs[:, batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return float((read(xs[:, TRAIN:]).argmax(-1) == labels[TRAIN:]).float().mean()), clock


def main() -> None:
    options = arguments(__doc__, seeds=3).parse_args()
    contenders = {"rnnops.torch.RNN": lambda seed: train(seed, True)}
    if options.peer:
        contenders["the cell in a loop"] = lambda seed: train(seed, False)
    compare(contenders, options.seeds, f"of the held-out digits after {STEPS} steps of {BATCH}")


if __name__ == "__main__":
    main()
