"""Models of a few parameters, and what NumPy makes of them."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from rnnops.model import RNN, Dense, Dropout, Embedding, Layer, LayerNorm, Model, Placeholder, mean_squared_error
from rnnops.model.losses import softmax_cross_entropy
from rnnops.net.blob import Blob

Arrays = dict[str, np.ndarray]
D, H, C = 5, 7, 4


class Perceptron(Model):
    """Two layers, `[N, D] -> [N, C]`."""

    def __init__(self) -> None:
        self.hidden, self.scores = Dense(H, ro.tanh), Dense(C)

    def forward(self, x: Blob) -> Blob:
        return self.scores(self.hidden(x))

    def train_one_batch(self, x: Blob, labels: Blob) -> tuple[Blob, Blob]:
        scores = self.forward(x)
        return scores, self.minimize(softmax_cross_entropy(scores, labels))


class Sequences(Model):
    """An LSTM and a projection, `[T, N, D] -> [T, N, C]`; carries states where they are given."""

    def __init__(self) -> None:
        self.lstm, self.projection = RNN("lstm", H), Dense(C, bias=False)

    def forward(self, x: Blob, lengths: Blob | None = None) -> Blob:
        output, _ = self.lstm(x, lengths)
        return self.projection(output)

    def train_one_batch(self, x: Blob, target: Blob, lengths: Blob | None = None) -> Blob:
        return self.minimize(mean_squared_error(self.forward(x, lengths), target))


class Block(Layer):
    """Normalises what it adds to."""

    def __init__(self, units: int) -> None:
        self.norm, self.dense = LayerNorm(), Dense(units, ro.relu)

    def forward(self, x: Blob) -> Blob:
        return x + self.dense(self.norm(x))


class Tagger(Model):
    """Everything that can go wrong by name: nested layers, lists, a layer used twice, dropout, two directions."""

    def __init__(self, words: int = 11, dropout: float = 0.25) -> None:
        self.embedding = Embedding(words, 6)
        self.blocks = [Block(6), Block(6)]
        self.rnn = RNN("gru", H, layers=2, bidirectional=True, dropout=dropout)
        self.dropout = Dropout(dropout)
        self.heads = {"tags": Dense(C)}

    def forward(self, words: Blob, lengths: Blob | None = None) -> dict[str, Blob]:
        x = self.embedding(words)
        for block in [*self.blocks, self.blocks[0]]:
            x = block(x)
        output, states = self.rnn(self.dropout(x), lengths)
        return {"scores": self.heads["tags"](output), "last": states[0]}

    def train_one_batch(self, words: Blob, tags: Blob, lengths: Blob | None = None) -> Blob:
        return self.minimize(softmax_cross_entropy(self.forward(words, lengths)["scores"], tags, ignore_index=-1))


def perceptron_batch(N: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)).astype("float32"), rng.integers(0, C, N).astype("int32")


def sequence_batch(T: int = 4, N: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, N, D)).astype("float32"), rng.normal(size=(T, N, C)).astype("float32")


def tagger_batch(T: int = 4, N: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    words, tags = rng.integers(0, 11, (T, N)).astype("int32"), rng.integers(0, C, (T, N)).astype("int32")
    lengths = np.maximum(1, T - np.arange(N)).astype("int32")
    tags[np.arange(T)[:, None] >= lengths] = -1
    return words, tags, lengths


PERCEPTRON = [Placeholder((6, D)), Placeholder((6,), "int32")]
SEQUENCES = [Placeholder((4, 3, D)), Placeholder((4, 3, C))]
TAGGER = [Placeholder((4, 3), "int32"), Placeholder((4, 3), "int32"), Placeholder((3,), "int32")]


# -- the same in NumPy, by hand ----------------------------------------------------------------------------------------


def perceptron_by_hand(params: Arrays, x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float, Arrays]:
    """Scores, loss and gradients in float64."""
    p = {name: array.astype("float64") for name, array in params.items()}
    h = np.tanh(x @ p["hidden.w"].T + p["hidden.b"])
    scores = h @ p["scores.w"].T + p["scores.b"]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(shares[rows, labels]).mean()
    d_scores = shares.copy()
    d_scores[rows, labels] -= 1
    d_scores /= len(x)
    d_hidden = d_scores @ p["scores.w"] * (1 - h * h)
    grads = {
        "scores.w": d_scores.T @ h, "scores.b": d_scores.sum(axis=0),
        "hidden.w": d_hidden.T @ x, "hidden.b": d_hidden.sum(axis=0),
    }  # fmt: skip
    return scores, float(loss), grads


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def sequences_by_hand(
    params: Arrays, x: np.ndarray, target: np.ndarray, lengths: np.ndarray | None = None
) -> tuple[np.ndarray, float, Arrays]:
    """Output, loss and gradients of the LSTM model in float64, by back-propagation through time."""
    p = {name.removeprefix("lstm.layer_0."): array.astype("float64") for name, array in params.items()}
    T, N, _ = x.shape
    ends = np.full(N, T) if lengths is None else lengths
    h, c, steps = np.zeros((N, H)), np.zeros((N, H)), []
    for t in range(T):
        gates = x[t] @ p["i2h_w"].T + p["i2h_b"] + h @ p["gates_t_w"].T + p["gates_t_b"]
        i, f, o = (sigmoid(gates[:, k * H : (k + 1) * H]) for k in range(3))
        g, live = np.tanh(gates[:, 3 * H :]), (t < ends)[:, None]
        before, h_before, c_new = c, h, f * c + i * g
        c, h = np.where(live, c_new, c), np.where(live, o * np.tanh(c_new), h)
        steps.append((i, f, o, g, before, h_before, c_new, live, h))
    hidden = np.stack([step[-1] for step in steps])
    y = hidden @ p["projection.w"].T
    d_y = 2 * (y - target) / y.size
    grads = {name: np.zeros_like(array) for name, array in p.items()}
    grads["projection.w"] = np.einsum("tnc,tnh->ch", d_y, hidden)
    d_h, d_c = np.zeros((N, H)), np.zeros((N, H))
    for t in range(T)[::-1]:
        i, f, o, g, c_before, h_before, c_new, live, _ = steps[t]
        d_h = d_h + d_y[t] @ p["projection.w"]
        d_new = np.where(live, d_h, 0)
        d_cell = np.where(live, d_c, 0) + d_new * o * (1 - np.tanh(c_new) ** 2)
        d_i, d_f = d_cell * g * i * (1 - i), d_cell * c_before * f * (1 - f)
        d_o, d_g = d_new * np.tanh(c_new) * o * (1 - o), d_cell * i * (1 - g * g)
        d_gates = np.concatenate([d_i, d_f, d_o, d_g], axis=1)
        grads["i2h_w"] += d_gates.T @ x[t]
        grads["gates_t_w"] += d_gates.T @ h_before
        grads["i2h_b"] += d_gates.sum(axis=0)
        grads["gates_t_b"] += d_gates.sum(axis=0)
        d_h = d_gates @ p["gates_t_w"] + np.where(live, 0, d_h)
        d_c = d_cell * f + np.where(live, 0, d_c)
    loss = float(((y - target) ** 2).mean())
    return (
        y,
        loss,
        {name if name.startswith("projection") else f"lstm.layer_0.{name}": grad for name, grad in grads.items()},
    )
