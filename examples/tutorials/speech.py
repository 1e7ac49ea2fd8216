"""Tells nine speakers by a vowel with a GRU over rows of all lengths; docs/tutorials/speech.md explains it.

python examples/tutorials/speech.py --peer torch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from contenders import Clock, arguments, compare
from sklearn.linear_model import LogisticRegression
from sktime.datasets import load_japanese_vowels

import rnnops as ro
from rnnops.model import Adam

D, HIDDEN, SPEAKERS, BATCH, EPOCHS, RATE, NOISE = 12, 96, 9, 30, 40, 0.005, 0.5

Arrays = dict[str, np.ndarray]
Utterances = tuple[list[np.ndarray], np.ndarray]  # each [frames, D], and their speakers


def listener(training: bool) -> ro.Net:
    """Frames [T, N, D] to scores of the speakers after each frame; for training, to a loss."""
    net = ro.Net("listener")
    frames, lengths, h = net.input("frames"), net.input("lengths", "int32"), net.input("h")
    h_all, h_last = ro.GRU(net, frames, lengths, [h], D, HIDDEN, scope="gru", linear_before_reset=True)
    heard = h_all[-1] if training else h_all  # past a row's end its state stays: the last step has that of every row
    scores = heard @ net.parameter("w", (HIDDEN, SPEAKERS), ("xavier", HIDDEN)) + net.parameter(
        "b", (SPEAKERS,), "zeros"
    )
    if training:
        net.outputs(loss=ro.softmax_cross_entropy_loss(scores, net.input("speakers", "int32")))
    else:
        net.outputs(scores=scores, h_last=h_last)
    return net


def utterances(split: str) -> Utterances:
    """Utterances and speakers 0 to 8, as those who recorded them split them."""
    table, speakers = load_japanese_vowels(split, return_X_y=True)
    return [np.stack([np.asarray(series) for series in row], -1) for row in table.to_numpy()], speakers.astype(
        "int32"
    ) - 1


def data() -> tuple[Utterances, Utterances]:
    """Training and held-out utterances, scaled by mean and deviation of the training frames."""
    (train, speakers), (held_out, others) = utterances("train"), utterances("test")
    frames = np.concatenate(train)
    mean, deviation = frames.mean(0), frames.std(0)
    train, held_out = ([((row - mean) / deviation).astype("float32") for row in rows] for rows in (train, held_out))
    return (train, speakers), (held_out, others)


def padded(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows as one array [T, N, D], NaN past each end, and their lengths [N]."""
    lengths = np.array([len(row) for row in rows], "int32")
    frames = np.full((lengths.max(), len(rows), D), np.nan, "float32")
    for n, row in enumerate(rows):
        frames[: len(row), n] = row
    return frames, lengths


def batches(seed: int, rows: list[np.ndarray], speakers: np.ndarray) -> Iterator[Arrays]:
    """What each step is fed: utterances in a new order for each epoch, with noise of half their deviation."""
    random = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for batch in random.permutation(len(rows)).reshape(-1, BATCH):
            frames, lengths = padded([rows[n] for n in batch])
            frames += NOISE * random.normal(size=frames.shape).astype("float32")
            h = np.zeros((BATCH, HIDDEN), "float32")
            yield dict(frames=frames, lengths=lengths, h=h, speakers=speakers[batch])


def train(seed: int) -> tuple[float, Clock]:
    """Train; the part of held-out utterances whose speaker is found."""
    learnt, held_out = data()
    clock = Clock.start()
    net, adam = listener(training=True), Adam(RATE)
    run, params = ro.compile(net, threads=1), ro.init_params(net, seed)
    state = adam.start(params)
    for feeds in clock.steps(batches(seed, *learnt)):
        _, pullback = run.vjp(params, feeds, wrt=list(params))
        params, state = adam.update(params, pullback({"loss": 1.0}), state)
    return found(params, *held_out), clock


def found(params: Mapping[str, np.ndarray], rows: list[np.ndarray], speakers: np.ndarray) -> float:
    run = ro.compile(listener(training=False), threads=1)
    frames, lengths = padded(rows)
    scores = run(params, frames=frames, lengths=lengths, h=np.zeros((len(rows), HIDDEN), "float32"))["scores"]
    return float((scores[-1].argmax(-1) == speakers).mean())


def baseline() -> float:
    """Logistic regression on mean and deviation of each utterance's frames."""
    (rows, speakers), (others, wanted) = data()
    features = [np.array([[*row.mean(0), *row.std(0)] for row in one]) for one in (rows, others)]
    return LogisticRegression(max_iter=5000).fit(features[0], speakers).score(features[1], wanted)


def main() -> None:
    options = arguments(__doc__).parse_args()
    contenders = {"rnnops": train}
    if options.peer:
        from speech_torch import train as train_torch

        net = listener(training=True)
        contenders["PyTorch"] = train_torch
        contenders["PyTorch, from our start"] = lambda seed: train_torch(seed, ro.init_params(net, seed))
    print(f"logistic regression on mean and deviation of frames: {baseline():.4f}")
    compare(contenders, options.seeds, "of the held-out utterances")


if __name__ == "__main__":
    main()
