"""Reads scikit-learn's handwritten digits row by row with a GRU; docs/tutorials/digits.md explains it.

python examples/tutorials/digits.py --peer torch
"""

from __future__ import annotations

import numpy as np
from contenders import Clock, arguments, compare
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from rnnops.model import RNN, Adam, Dense, Model, Placeholder, softmax_cross_entropy

HIDDEN, BATCH, EPOCHS, RATE, TRAIN = 64, 32, 20, 0.003, 1347


class Reader(Model):
    def __init__(self):
        self.rnn, self.scores = RNN("gru", HIDDEN, linear_before_reset=True), Dense(10)

    def forward(self, rows):  # [T, N, D]: eight rows of eight pixels
        output, _ = self.rnn(rows)
        return self.scores(output[-1])

    def train_one_batch(self, rows, labels):
        return self.minimize(softmax_cross_entropy(self.forward(rows), labels))


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images as sequences of rows [8, count, 8] with values from 0 to 1, and their digits."""
    digits = load_digits()
    return np.ascontiguousarray(digits.images.transpose(1, 0, 2) / 16, "float32"), digits.target.astype("int32")


def batches(seed: int) -> np.ndarray:
    """The images of each step, [steps, BATCH]: the training images in a new order for each epoch."""
    orders = np.random.default_rng(seed)
    whole = TRAIN // BATCH * BATCH
    return np.concatenate([orders.permutation(TRAIN)[:whole].reshape(-1, BATCH) for _ in range(EPOCHS)])


def compiled(seed: int) -> Reader:
    model = Reader()
    model.set_optimizer(Adam(RATE))
    return model.compile([Placeholder((8, BATCH, 8)), Placeholder((BATCH,), "int32")], seed=seed, threads=1)


def train(seed: int) -> tuple[float, Clock]:
    """Train; the part of the held-out digits that is read right."""
    rows, labels = data()
    clock = Clock.start()
    model = compiled(seed)
    for batch in clock.steps(batches(seed)):
        model(rows[:, batch], labels[batch])
    model.eval()
    return float((model(rows[:, TRAIN:]).argmax(-1) == labels[TRAIN:]).mean()), clock


def baseline() -> float:
    rows, labels = data()
    pixels = rows.transpose(1, 0, 2).reshape(-1, 64)
    model = LogisticRegression(max_iter=5000).fit(pixels[:TRAIN], labels[:TRAIN])
    return model.score(pixels[TRAIN:], labels[TRAIN:])


def main() -> None:
    options = arguments(__doc__).parse_args()
    contenders = {"rnnops": train}
    if options.peer:
        from digits_torch import train as train_torch

        contenders["PyTorch"] = train_torch
        contenders["PyTorch, from our start"] = lambda seed: train_torch(seed, compiled(seed).get_params())
    print(f"logistic regression on all pixels: {baseline():.4f}")
    compare(contenders, options.seeds, "of the held-out digits")


if __name__ == "__main__":
    main()
