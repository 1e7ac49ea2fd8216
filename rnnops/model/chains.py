"""Chains of hidden states: the forward algorithm in logarithms, linear-chain CRF and hidden Markov model.

Lafferty, McCallum and Pereira 2001 (the CRF); Rabiner 1989, equations 18 to 21 (the forward algorithm). With `s_t` the
scores of a step and `A[i, j]` that of going from i to j: `a_t[j] = log sum_i exp(a_(t-1)[i] + A[i, j]) + s_t[j]`.
"""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.errors import ModelError
from rnnops.model.basic_layers import check_size
from rnnops.model.layer import Layer, sizes_of
from rnnops.net import Net
from rnnops.ops.comparison import cast, equal, less, where
from rnnops.ops.extrema import min as minimum
from rnnops.ops.indexing import gather
from rnnops.ops.loss import one_hot
from rnnops.ops.movement import squeeze, transpose, unsqueeze
from rnnops.ops.normalization import log_softmax
from rnnops.ops.reduction import reduce_log_sum_exp, reduce_mean, reduce_sum
from rnnops.ops.select import select_valid
from rnnops.recurrent import recurrent_net

STEP = "chain"


def log_partition(
    scores: Blob, start: Blob, transitions: Blob, end: Blob | None = None, lengths: Blob | None = None
) -> Blob:
    """The logarithm of the sum over all paths of the exponential of a path's score, `[N]`.

    Args:
        scores: [T, N, K]; start: [K], added to the first step's; transitions: [K, K], from by to.
        end: [K], added to the last step's of each row.
        lengths: [N] int32 or int64, None where all rows have length T; a longer one counts as T, and a row of length 0
            has a result of 0. Scores past an end are finite.
    """
    first, rest = scores[0] + start, scores[1:]
    step = Net(STEP)
    s_t, before, A = step.inputs("s_t", "before", "A")
    after = reduce_log_sum_exp(unsqueeze(before, [2]) + A, axes=[1], keepdims=0) + s_t
    references = {"A": transitions}
    if lengths is not None:
        lengths = _int32(lengths)
        left, t = step.input("left", "int32"), step.input("t", "int32")
        after = select_valid(after, before, left, t)
        references["left"] = lengths - np.int32(1)  # the first step is outside: step 0 of the recurrence is the second
    step.outputs(after=after)
    net = scores.net
    scope = next(
        name for name in (f"{STEP}_{k}" for k in range(len(net.blob_names) + 1)) if f"{name}/after_all" not in net
    )
    results = recurrent_net(
        net,
        step,
        inputs=[("s_t", rest)],
        initial_cell_inputs=[("before", first)],
        links={"before": "after"},
        timestep=None if lengths is None else "t",
        scope=scope,
        references=references,
    )
    last = squeeze(results[1], [0])
    sums = reduce_log_sum_exp(last if end is None else last + end, axes=[1], keepdims=0)
    return sums if lengths is None else where(lengths > np.int32(0), sums, 0.0)


class CRF(Layer):
    """A linear-chain conditional random field over the scores of another layer; its value is the loss.

    Args:
        tags: K.

    Parameters: `transitions [K, K]`, from by to, `start [K]`, `end [K]`, zeros.
    """

    def __init__(self, tags: int) -> None:
        self.tags = check_size("CRF", "tags", tags)

    def forward(self, scores: Blob, tags: Blob, lengths: Blob | None = None) -> Blob:
        """The mean over rows of the negative log probability of their tags, in nats.

        Args:
            scores: [T, N, K]; tags: [T, N] int32 or int64; lengths: as `log_partition`'s.
        """
        T, N, K = sizes_of(scores, 3, "[T, N, K]")
        if self.tags != K:
            raise ModelError("scores of another number of tags", blob=self.scope, wanted=self.tags, came=K)
        net = scores.net
        transitions = self.parameter(net, "transitions", (K, K), "zeros")
        start, end = (self.parameter(net, name, (K,), "zeros") for name in ("start", "end"))
        chosen = one_hot(tags, K, [0.0, 1.0])
        inside, final = _ends(net, T, N, lengths)
        pairs = reduce_sum((chosen[:-1] @ transitions) * chosen[1:], axes=[2], keepdims=0) * inside[1:]
        own = reduce_sum(scores * chosen, axes=[2], keepdims=0) * inside
        ended = reduce_sum(chosen * end, axes=[2], keepdims=0) * final
        began = reduce_sum(chosen[0] * start, axes=[1], keepdims=0) * inside[0]
        path = reduce_sum(own + ended, axes=[0], keepdims=0) + reduce_sum(pairs, axes=[0], keepdims=0) + began
        return reduce_mean(log_partition(scores, start, transitions, end, lengths) - path, axes=[0], keepdims=0)


class HMM(Layer):
    """A hidden Markov model of symbols; its value is the log likelihood of each row.

    Args:
        states: K; symbols: V.

    Parameters, of which a softmax over the last axis makes probabilities: `start [K]`, `transitions [K, K]`,
    `emissions [K, V]`.
    """

    def __init__(self, states: int, symbols: int) -> None:
        self.states, self.symbols = check_size("HMM", "states", states), check_size("HMM", "symbols", symbols)

    def forward(self, symbols: Blob, lengths: Blob | None = None) -> Blob:
        """log p of the symbols of each row, `[N]`.

        Args:
            symbols: [T, N] int32 or int64; lengths: as `log_partition`'s.
        """
        net, K = symbols.net, self.states
        shapes = {"start": (K,), "transitions": (K, K), "emissions": (K, self.symbols)}
        logs = {
            name: log_softmax(self.parameter(net, name, shape, ("normal", 0.0, 1.0)), axis=-1)
            for name, shape in shapes.items()
        }
        scores = gather(transpose(logs["emissions"], perm=[1, 0]), symbols, axis=0)
        return log_partition(scores, logs["start"], logs["transitions"], None, lengths)


def _ends(net: Net, T: int, N: int, lengths: Blob | None) -> tuple[Blob, Blob]:
    """1 up to a row's end, and 1 at its last step, `[T, N]`."""
    if lengths is None:
        return net.constant(np.ones((T, N))), net.constant(np.eye(T)[-1][:, None] * np.ones((T, N)))
    steps = net.constant(np.arange(T, dtype=np.int32)[:, None])
    inside, final = less(steps, _int32(lengths)), equal(steps, minimum(_int32(lengths), np.int32(T)) - np.int32(1))
    return cast(inside, "float"), cast(final, "float")


def _int32(lengths: Blob) -> Blob:
    return lengths if lengths.dtype == "int32" else cast(lengths, "int32")
