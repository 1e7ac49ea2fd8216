"""A character model of Python's own help texts, with an LSTM; docs/tutorials/text.md explains it.

python examples/tutorials/text.py --peer torch
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from math import log
from pydoc_data.topics import topics

import numpy as np
from contenders import Clock, arguments, compare

from rnnops.model import RNN, Adam, Cosine, Dense, Embedding, Model, Placeholder, softmax_cross_entropy

FEATURES, HIDDEN, T, N, STEPS, RATE, NORM = 32, 128, 64, 32, 1500, 0.004, 1.0


class Writer(Model):
    def __init__(self, symbols, deviation=1.0):
        self.features = Embedding(symbols, FEATURES, deviation)
        self.rnn, self.scores = RNN("lstm", HIDDEN), Dense(symbols)

    def forward(self, characters, h, c):  # [T, N], and the states before them [1, N, H]
        output, (h, c) = self.rnn(self.features(characters), None, (h, c))
        return self.scores(output), h, c

    def train_one_batch(self, characters, targets, h, c):
        scores, h, c = self.forward(characters, h, c)
        return self.minimize(softmax_cross_entropy(scores, targets)), h, c


def paragraphs(names: list[str]) -> dict[str, str]:
    """The different paragraphs of some topics, by their text without its line breaks."""
    found = [part for name in names for part in topics[name].split("\n\n")]
    return {" ".join(part.split()): part for part in found}


def texts() -> tuple[str, str]:
    """Training text and held-out text, that of every fifth topic; no paragraph of it stands in the training text."""
    names = sorted(topics)
    held_out = paragraphs(names[2::5])
    train = paragraphs([name for name in names if name not in names[2::5]])
    return "\n\n".join(train[key] for key in train if key not in held_out), "\n\n".join(held_out.values())


def data() -> tuple[np.ndarray, np.ndarray, str]:
    """Both texts as numbers of characters, and the characters."""
    train, held_out = texts()
    symbols = "".join(sorted(set(train + held_out)))
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    return *(np.array([numbers[one] for one in text], "int32") for text in (train, held_out)), symbols


def windows(text: np.ndarray) -> Iterator[tuple[bool, np.ndarray]]:
    """Windows of T + 1 characters of N places of the text, [T + 1, N], and whether they begin anew there."""
    streams = text[: len(text) // N * N].reshape(N, -1).T
    for step in range(STEPS):
        place = step % ((len(streams) - 1) // T) * T
        yield place == 0, streams[place : place + T + 1]


def compiled(seed: int, deviation: float = 1.0) -> Writer:
    model = Writer(len(data()[2]), deviation)
    model.set_optimizer(Adam(Cosine(RATE, STEPS), max_norm=NORM))
    window, state = Placeholder((T, N), "int32"), Placeholder((1, N, HIDDEN))
    return model.compile([window, window, state, state], seed=seed, threads=1)


def train(seed: int, deviation: float = 1.0) -> tuple[float, Clock]:
    """Train; bits per held-out character.

    Args:
        deviation: of the normal distribution that features of characters start from.
    """
    text, held_out, _ = data()
    clock = Clock.start()
    model = compiled(seed, deviation)
    h = c = zeros = np.zeros((1, N, HIDDEN), "float32")
    for anew, window in clock.steps(windows(text)):
        if anew:
            h = c = zeros
        _, h, c = model(window[:-1], window[1:], h, c)
    zero = zeros[:, :1]
    loss, _, _ = model.run(model.train_one_batch, held_out[:-1, None], held_out[1:, None], zero, zero)
    return float(loss) / log(2), clock


def baseline() -> float:
    """Bits by which a held-out character makes the compressed text longer."""
    train, held_out = (text.encode() for text in texts())
    return 8 * (len(lzma.compress(train + held_out)) - len(lzma.compress(train))) / len(held_out)


def main() -> None:
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--deviation", type=float, default=1.0, help="of the features that characters start from")
    options = parser.parse_args()
    contenders = {"rnnops": lambda seed: train(seed, options.deviation)}
    if options.peer:
        from text_torch import train as train_torch

        contenders["PyTorch"] = train_torch
        start = "PyTorch, from our start"
        contenders[start] = lambda seed: train_torch(seed, compiled(seed, options.deviation).get_params())
    print(f"lzma: {baseline():.4f}")
    compare(contenders, options.seeds, "bits per held-out character")


if __name__ == "__main__":
    main()
