"""Losses of one number, and chains of hidden states (CRF, HMM), whose loss is a likelihood."""

from __future__ import annotations

import numpy as np

from rnnops.cells.attention import valid_steps
from rnnops.errors import ModelError
from rnnops.model.layer import Layer, sizes_of
from rnnops.model.layers import check_size, checked_indices
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.ops.activation import softplus
from rnnops.ops.arithmetic import abs as abs_
from rnnops.ops.comparison import cast, equal, less, min as minimum, where
from rnnops.ops.indexing import gather, select_valid
from rnnops.ops.loss import one_hot, softmax_cross_entropy_loss
from rnnops.ops.movement import reshape, squeeze, transpose, unsqueeze
from rnnops.ops.normalization import log_softmax
from rnnops.ops.reduction import reduce_log_sum_exp, reduce_mean, reduce_sum
from rnnops.recurrent import recurrent_net


def softmax_cross_entropy(scores: Blob, labels: Blob, ignore_index: int | None = None) -> Blob:
    """The mean of `-log(softmax(scores)[label])` over all labels that count.

    Args:
        scores: [..., C] float, before the softmax, of known sizes.
        labels: [...] int32 or int64.
        ignore_index: a label that is not counted, for example past the end of a row. Any other label outside 0 to C - 1
            is an error of the run.

    Returns:
        A blob of one number.

    Raises:
        ModelError: labels of another shape, or sizes that are not known.
        TypeRuleError: labels are not integers, or scores no floats.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> scores, labels = net.input("scores", shape=(2, 4)), net.input("labels", "int32", shape=(2,))
        >>> net.outputs(loss=ro.model.softmax_cross_entropy(scores, labels, ignore_index=-1))
        >>> run = ro.compile(net, device="reference")
        >>> round(float(np.exp(run(scores=np.zeros((2, 4)), labels=np.array([3, -1], "int32"))["loss"])), 6)
        4.0
    """
    *rows, C = sizes_of(scores, 1, "[..., C]")
    if tuple(rows) != sizes_of(labels, 0, "[...]"):
        came = f"{labels.type} for scores {scores.type}"
        raise ModelError("labels are scores' shape without the classes", blob=labels.name, wanted=rows, came=came)
    flat = reshape(scores, [-1, C]), reshape(labels, [-1])
    return softmax_cross_entropy_loss(*flat, ignore_index=ignore_index)


def mean_squared_error(y: Blob, target: Blob) -> Blob:
    """The mean of `(y - target) ** 2`.

    Args:
        y: any shape, float, of known sizes.
        target: of the same shape.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: y and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(loss=ro.model.mean_squared_error(net.input("y", shape=(2,)), net.input("target", shape=(2,))))
        >>> run = ro.compile(net, device="reference")
        >>> float(run(y=np.array([0.0, 3.0]), target=np.array([1.0, 0.0]))["loss"])
        5.0
    """
    _check_alike(y, target)
    error = y - target
    return reduce_mean(error * error, keepdims=0)


def mean_absolute_error(y: Blob, target: Blob) -> Blob:
    """The mean of `|y - target|`.

    Args:
        y: any shape, float, of known sizes.
        target: of the same shape.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: y and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(loss=ro.model.mean_absolute_error(net.input("y", shape=(2,)), net.input("target", shape=(2,))))
        >>> run = ro.compile(net, device="reference")
        >>> float(run(y=np.array([0.0, 3.0]), target=np.array([1.0, 0.0]))["loss"])
        2.0
    """
    _check_alike(y, target)
    return reduce_mean(abs_(y - target), keepdims=0)


def sigmoid_cross_entropy(logits: Blob, target: Blob) -> Blob:
    """The mean of `-target * log(sigmoid(logits)) - (1 - target) * log(1 - sigmoid(logits))`.

    Written as `softplus(logits) - target * logits`, which overflows nowhere.

    Args:
        logits: any shape, float, before the sigmoid, of known sizes.
        target: of the same shape, probabilities from 0 to 1.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: logits and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> logits, target = net.input("logits", shape=(2,)), net.input("target", shape=(2,))
        >>> net.outputs(loss=ro.model.sigmoid_cross_entropy(logits, target))
        >>> run = ro.compile(net, device="reference")
        >>> round(float(np.exp(run(logits=np.zeros(2), target=np.array([0.0, 1.0]))["loss"])), 6)
        2.0
    """
    _check_alike(logits, target)
    return reduce_mean(softplus(logits) - target * logits, keepdims=0)


def _check_alike(y: Blob, target: Blob) -> None:
    """Raise ModelError if a loss would broadcast."""
    if sizes_of(y, 0, "[...]") != sizes_of(target, 0, "[...]"):
        raise ModelError("a loss of two shapes", blob=target.name, wanted=y.type, came=target.type)


STEP = "chain"


def log_partition(
    scores: Blob, start: Blob, transitions: Blob, end: Blob | None = None, lengths: Blob | None = None
) -> Blob:
    """The logarithm of the sum, over all paths through K states, of the exponential of a path's score.

    The forward algorithm in logarithms, as a recurrence (Rabiner 1989, "A tutorial on hidden Markov models", equations
    18 to 21)::

        a_0[j] = start[j] + scores[0, n, j]
        a_t[j] = log(sum over i of exp(a_(t-1)[i] + transitions[i, j])) + scores[t, n, j]
        result = log(sum over j of exp(a_(T-1)[j] + end[j]))

    Args:
        scores: [T, N, K] float, T from 1.
        start: [K], added to the first step's.
        transitions: [K, K], from state i (row) to state j (column).
        end: [K], added to the scores of the last step of each row; None for zeros.
        lengths: [N] int32 or int64; None if all rows have length T. Larger lengths count as T. A row of length 0 has
            the result 0. Scores past the end of a row must be finite.

    Returns:
        A blob, [N].

    Raises:
        ModelError: scores of another rank.
        TypeRuleError: sizes do not fit. If they are not known yet, the run raises it.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> scores, A = net.input("scores", shape=(3, 1, 2)), net.constant(np.zeros((2, 2)))
        >>> net.outputs(z=ro.model.log_partition(scores, net.constant(np.zeros(2)), A))
        >>> run = ro.compile(net, device="reference")
        >>> np.exp(run(scores=np.zeros((3, 1, 2)))["z"])  # 2 ** 3 paths
        array([8.])
    """
    _check_rank(scores, 3, "[T, N, K]")
    first, rest = scores[0] + start, scores[1:]
    step = Net(STEP)
    s_t, before, A = step.inputs("s_t", "before", "A")
    after = reduce_log_sum_exp(unsqueeze(before, [2]) + A, axes=[1], keepdims=0) + s_t
    references = {"A": transitions}
    if lengths is not None:
        lengths = _int32(lengths)
        left, t = step.input("left", "int32"), step.input("t", "int32")
        after = select_valid(after, before, left, t)
        references["left"] = lengths - np.int32(1)  # step 0 of the recurrence is the second step of the sequence
    step.outputs(after=after)
    net = scores.net
    names = (f"{STEP}_{k}" for k in range(len(net.blob_names) + 1))
    scope = next(name for name in names if f"{name}/after_all" not in net)
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

    The score of a path is the sum of its scores, of `transitions` between neighbours, of `start` of its first tag and
    of `end` of its last tag. The loss is `log_partition` minus the score of the given tags. Lafferty, McCallum and
    Pereira 2001, "Conditional random fields", ICML.

    Trained parameters, below the layer's name, zeros at first: `transitions [K, K]` from row to column, `start [K]` and
    `end [K]`.

    Args:
        tags: how many there are, K.

    Raises:
        ModelError: tags is not a size.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> scores, tags = net.input("scores", shape=(3, 1, 2)), net.input("tags", "int32", shape=(3, 1))
        >>> net.outputs(loss=ro.model.CRF(2)(scores, tags))
        >>> run = ro.compile(net, device="reference")
        >>> out = run(ro.init_params(net, 0, "float64"), scores=np.zeros((3, 1, 2)), tags=np.zeros((3, 1), "int32"))
        >>> round(float(np.exp(out["loss"])), 6)  # one path of 2 ** 3
        8.0
    """

    def __init__(self, tags: int) -> None:
        self.tags = check_size("CRF", "tags", tags)

    def forward(self, scores: Blob, tags: Blob, lengths: Blob | None = None) -> Blob:
        """The mean over rows of the negative log probability of their tags, in nats.

        Args:
            scores: [T, N, K] float, of known sizes.
            tags: [T, N] int32 or int64. A tag outside 0 to K - 1 within a row's length is an error of the run.
            lengths: [N] int32 or int64, as for `log_partition`.

        Returns:
            A blob of one number.

        Raises:
            ModelError: scores of another rank or of another number of tags.
            TypeRuleError: tags have another shape, or are not integers.
        """
        T, N, K = sizes_of(scores, 3, "[T, N, K]")
        if self.tags != K:
            raise ModelError("scores of another number of tags", blob=self.scope, wanted=self.tags, came=K)
        net = scores.net
        transitions = self.parameter(net, "transitions", (K, K), "zeros")
        start, end = (self.parameter(net, name, (K,), "zeros") for name in ("start", "end"))
        chosen = one_hot(_checked(tags, K, lengths), K, [0.0, 1.0])
        inside, final = _ends(net, T, N, lengths)
        pairs = reduce_sum((chosen[:-1] @ transitions) * chosen[1:], axes=[2], keepdims=0) * inside[1:]
        own = reduce_sum(scores * chosen, axes=[2], keepdims=0) * inside
        ended = reduce_sum(chosen * end, axes=[2], keepdims=0) * final
        began = reduce_sum(chosen[0] * start, axes=[1], keepdims=0) * inside[0]
        path = reduce_sum(own + ended, axes=[0], keepdims=0) + reduce_sum(pairs, axes=[0], keepdims=0) + began
        return reduce_mean(log_partition(scores, start, transitions, end, lengths) - path, axes=[0], keepdims=0)


class HMM(Layer):
    """A hidden Markov model of symbols; its value is the log likelihood of each row.

    Rabiner 1989, "A tutorial on hidden Markov models". Trained parameters, below the layer's name: `start [K]`,
    `transitions [K, K]` from row to column, and `emissions [K, V]`. Initial values are normal with a deviation of 1. A
    softmax over the last axis turns them into probabilities.

    Args:
        states: how many there are, K.
        symbols: how many there are, V.

    Raises:
        ModelError: states or symbols is not a size.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(logs=ro.model.HMM(3, 2)(net.input("coins", "int32", shape=(1, 2))))
        >>> run = ro.compile(net, device="reference")
        >>> out = run(ro.init_params(net, 0, "float64"), coins=np.array([[0, 1]], "int32"))
        >>> round(float(np.exp(out["logs"]).sum()), 6)  # the likelihoods of all rows of length 1
        1.0
    """

    def __init__(self, states: int, symbols: int) -> None:
        self.states, self.symbols = check_size("HMM", "states", states), check_size("HMM", "symbols", symbols)

    def forward(self, symbols: Blob, lengths: Blob | None = None) -> Blob:
        """The logarithm of the probability of each row's symbols.

        Args:
            symbols: [T, N] int32 or int64. A symbol outside 0 to V - 1 within a row's length is an error of the run.
            lengths: [N] int32 or int64, as for `log_partition`.

        Returns:
            A blob, [N].

        Raises:
            ModelError: symbols of another rank.
            TypeRuleError: symbols are not integers.
        """
        _check_rank(symbols, 2, "[T, N]")
        net, K = symbols.net, self.states
        shapes = {"start": (K,), "transitions": (K, K), "emissions": (K, self.symbols)}
        logs = {
            name: log_softmax(self.parameter(net, name, shape, ("normal", 0.0, 1.0)), axis=-1)
            for name, shape in shapes.items()
        }
        scores = gather(transpose(logs["emissions"], perm=[1, 0]), _checked(symbols, self.symbols, lengths), axis=0)
        return log_partition(scores, logs["start"], logs["transitions"], None, lengths)


def _check_rank(blob: Blob, rank: int, wanted: str) -> None:
    """Raise ModelError for an input that is known to have another rank."""
    if not isinstance(blob, Blob) or (blob.type is not None and blob.type.rank != rank):
        came = blob.type if isinstance(blob, Blob) else type(blob).__name__
        raise ModelError(
            "an input of a chain has another rank", blob=getattr(blob, "name", None), wanted=wanted, came=came
        )


def _checked(indices: Blob, count: int, lengths: Blob | None) -> Blob:
    """Indices `[T, N]`, set to 0 past a row's end. An index outside 0 to count - 1 before it is an error of the run."""
    if lengths is not None:
        inside = transpose(valid_steps(indices, lengths), perm=[1, 0])
        indices = where(inside, indices, (np.int64 if indices.dtype == "int64" else np.int32)(0))
    return checked_indices(indices, count)


def _ends(net: Net, T: int, N: int, lengths: Blob | None) -> tuple[Blob, Blob]:
    """Two masks `[T, N]`: 1 before a row's end, and 1 at its last step."""
    if lengths is None:
        return net.constant(np.ones((T, N))), net.constant(np.eye(T)[-1][:, None] * np.ones((T, N)))
    steps = net.constant(np.arange(T, dtype=np.int32)[:, None])
    inside, final = less(steps, _int32(lengths)), equal(steps, minimum(_int32(lengths), np.int32(T)) - np.int32(1))
    return cast(inside, "float"), cast(final, "float")


def _int32(lengths: Blob) -> Blob:
    return lengths if lengths.dtype == "int32" else cast(lengths, "int32")
