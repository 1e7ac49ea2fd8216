"""ONNX ops that become several ops of rnnops, including float ops of the domain `com.microsoft`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnops.net.blob import Blob
from rnnops.onnx.import_ops import CONV, append, layer_normalization as normalized, sized
from rnnops.onnx.import_rnn import read_activations
from rnnops.onnx.node import Node, Rule, element_dtype
from rnnops.ops.activation import elu, gelu, hard_sigmoid, sigmoid, softplus, tanh
from rnnops.ops.arithmetic import abs as abs_, log, reciprocal, sqrt
from rnnops.ops.comparison import and_, cast, equal, greater, greater_or_equal, less, less_or_equal, not_, or_, where
from rnnops.ops.indexing import gather
from rnnops.ops.linear_algebra import gemm, matmul
from rnnops.ops.movement import concat, reshape, squeeze, transpose, unsqueeze
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.reduction import reduce_mean, reduce_prod, reduce_sum
from rnnops.ops.shapes import range as range_, shape
from rnnops.types import BOOL, is_float

MODES = ("DCR", "CRD")


def depth_to_space(node: Node) -> Sequence[Blob]:
    """Channels become blocks of an image. In mode CRD the channels of one block are neighbours."""
    x, size, channels, mode = settings(node)
    if channels % size**2:
        node.fail("the channels do not make whole blocks", wanted=f"a multiple of {size**2}", came=channels)
    rest = channels // size**2
    batch, image = shape(x, 0, 1), shape(x, 2)
    inner = [size, size, rest] if mode == "DCR" else [rest, size, size]
    split = reshape(x, concat(batch, node.net.constant(inner, "int64"), image, axis=0), allowzero=1)
    turned = transpose(split, [0, 3, 4, 1, 5, 2] if mode == "DCR" else [0, 1, 4, 2, 5, 3])
    wide = image * size
    return (reshape(turned, concat(batch, node.net.constant([rest], "int64"), wide, axis=0), allowzero=1),)


def space_to_depth(node: Node) -> Sequence[Blob]:
    """Blocks of an image become channels."""
    x, size, channels, mode = settings(node)
    batch, height, width = shape(x, 0, 1), shape(x, 2, 3) / size, shape(x, 3) / size
    block = [size]
    depth, rows, columns = (node.net.constant(list(sizes), "int64") for sizes in ([channels], block, block))
    split = reshape(x, concat(batch, depth, height, rows, width, columns, axis=0), allowzero=1)
    turned = transpose(split, [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4])
    deep = node.net.constant([channels * size**2], "int64")
    return (reshape(turned, concat(batch, deep, height, width, axis=0), allowzero=1),)


def settings(node: Node) -> tuple[Blob, int, int, str]:
    """The image, the side of a block, the number of channels (which must be fixed) and the mode."""
    x, size, mode = node.input(0), node.required("blocksize", "int"), node.attr("mode", "string", "DCR")
    dims = node.dims(x)
    channels = dims[1] if len(dims) == 4 else None
    if not isinstance(channels, int) or size < 1 or mode not in MODES:
        node.fail(
            "the image cannot be cut into blocks",
            wanted="four axes, a fixed number of channels, a blocksize of 1 or more, mode DCR or CRD",
            came=f"{list(dims)}, {size}, {mode}",
        )
    return x, size, channels, mode


BLOCK_RULES: dict[str, Rule] = {"DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth}


TINY = float(np.float32(1e-9))  # what MeanVarianceNormalization adds to the deviation, rounded as in a file
EPSILON = float(np.float32(1e-5))  # the default epsilon of all these ops


def batch(node: Node) -> Sequence[Blob | None]:
    """Normalizes with given statistics.

    Before op set 14, naming five results asked for batch statistics; that is refused.
    """
    if node.opset < 9 and node.attr("spatial", "int", 1) != 1:
        node.fail("statistics of every element are not supported", wanted="spatial=1")
    training = node.attr("training_mode", "int", 0) if node.opset >= 14 else 0
    if any(node.wanted[1:]) and not training:
        hint = "Export the model for inference, or in op set 14 or later."
        node.fail("statistics of the batch are results of training only", wanted="training_mode=1", hint=hint)
    epsilon, momentum = node.attr("epsilon", "float"), node.attr("momentum", "float")
    trained = {"training_mode": 1, "momentum": momentum} if training else {}
    return [*append(node, epsilon=epsilon, **trained), *[None] * (0 if training else 4)]


def instance(node: Node) -> Sequence[Blob]:
    """Normalizes each channel of each row by its own statistics."""
    x, rank = node.input(0), node.rank(node.input(0))
    if rank < 3:
        node.fail("there is no axis to normalize over", wanted="three axes or more", came=rank)
    unit = normal(x, list(range(2, rank)), node.attr("epsilon", "float", EPSILON))
    return (unit * per_channel(node.input(1), rank) + per_channel(node.input(2), rank),)


def group(node: Node) -> Sequence[Blob]:
    """Normalizes groups of channels. Scale and bias belong to groups before op set 21, and to channels since."""
    x, rank, groups = node.input(0), node.rank(node.input(0)), node.required("num_groups", "int")
    if node.opset >= 21 and node.attr("stash_type", "int", 1) != 1:
        node.fail("statistics of this element type are not supported", wanted="stash_type=1")
    unit = normal(reshape(x, [0, groups, -1]), [2], node.attr("epsilon", "float", EPSILON))
    scale, bias = node.input(1), node.input(2)
    if node.opset < 21:
        return (reshape(unit * per_channel(scale, 3) + per_channel(bias, 3), shape(x), allowzero=1),)
    return (reshape(unit, shape(x), allowzero=1) * per_channel(scale, rank) + per_channel(bias, rank),)


def lengths(node: Node) -> Sequence[Blob]:
    """Divides by sums of absolute values, or by roots of sums of squares.

    Where such a sum is 0, result and gradient are 0.
    """
    x, axis, p = node.input(0), node.attr("axis", "int", -1), node.attr("p", "int", 2)
    if p not in (1, 2):
        node.fail("a norm of this kind is not supported", wanted="p=1 or p=2", came=p)
    total = reduce_sum(abs_(x) if p == 1 else x * x, [axis])
    nothing = equal(total, 0.0)
    safe = where(nothing, 1.0, total)
    return (where(nothing, 0.0, x / (safe if p == 1 else sqrt(safe))),)


def mean_variance(node: Node) -> Sequence[Blob]:
    """Normalizes to mean 0 and variance 1 over axes."""
    x, axes = node.input(0), list(node.attr("axes", "ints", (0, 2, 3)))
    centred = x - reduce_mean(x, axes)
    return (centred / (sqrt(reduce_mean(centred * centred, axes)) + TINY),)


def normal(x: Blob, axes: list[int], epsilon: float) -> Blob:
    """`(x - mean) / sqrt(variance + epsilon)` over the axes."""
    centred = x - reduce_mean(x, axes)
    return centred * reciprocal(sqrt(reduce_mean(centred * centred, axes) + epsilon))


def per_channel(blob: Blob, rank: int) -> Blob:
    """One number for each channel or group, reshaped to broadcast with an array of this rank."""
    return reshape(blob, [-1, *(1,) * (rank - 2)]) if rank > 2 else blob


NORMALIZATION_RULES: dict[str, Rule] = {
    "BatchNormalization": batch,
    "GroupNormalization": group,
    "InstanceNormalization": instance,
    "LpNormalization": lengths,
    "MeanVarianceNormalization": mean_variance,
    "RMSNormalization": normalized,
}


INF = float("inf")
SIXTH = float(np.float32(1 / 6))  # rounded as in a file


def by_element(function: Callable[..., Blob], **defaults: float) -> Rule:
    """A rule for a function of the inputs. Its keywords are float attributes."""

    def rule(node: Node) -> Sequence[Blob]:
        given = {name: node.attr(name, "float", value) for name, value in defaults.items()}
        return (function(*(node.input(i) for i in range(len(node.inputs))), **given),)

    return rule


def shrink(x: Blob, bias: float, lambd: float) -> Blob:
    return where(less(x, -lambd), x + bias, where(greater(x, lambd), x - bias, 0.0))


def is_inf(node: Node) -> Sequence[Blob]:
    """True where a number is infinite. Attributes may exclude one sign."""
    x, signs = node.input(0), (("detect_negative", -INF), ("detect_positive", INF))
    found = [equal(x, value) for name, value in signs if node.attr(name, "int", 1)]
    return (or_(*found) if len(found) == 2 else found[0] if found else less(x, x),)


def size(node: Node) -> Sequence[Blob]:
    """The number of elements."""
    return (reduce_prod(shape(node.input(0)), keepdims=0),)


def reduction(of: Callable[[Blob], Blob], name: str, then: Callable[[Blob], Blob]) -> Rule:
    """A rule for the reduction `name` of `of(x)`, followed by `then`."""

    def rule(node: Node) -> Sequence[Blob]:
        node.inputs[0], node.op = of(node.input(0)), name
        (reduced,) = sized("axes", 18, keepdims="int", noop_with_empty_axes="int")(node)
        return (then(reduced),) if reduced is not None else ()

    return rule


def same(blob: Blob) -> Blob:
    return blob


def root(squares: Blob) -> Blob:
    """The square root, with gradient 0 at 0."""
    nothing = equal(squares, 0.0)
    return where(nothing, 0.0, sqrt(where(nothing, 1.0, squares)))


def trilu(node: Node) -> Sequence[Blob]:
    """Keeps a triangle of the last two axes: above and on a diagonal, or below and on it. The rest is 0."""
    x, upper = node.input(0), node.attr("upper", "int", 1)
    rows, columns = (extent(x, axis) for axis in (-2, -1))
    here, there = unsqueeze(range_(0, rows), [1]), range_(0, columns)
    diagonal = here + node.input(1) if node.has(1) else here
    kept = greater_or_equal(there, diagonal) if upper else less_or_equal(there, diagonal)
    return (and_(kept, x) if x.dtype == BOOL else where(kept, x, 0.0 if is_float(x.dtype) else 0),)


def gather_elements(node: Node) -> Sequence[Blob]:
    """Picks elements by their places in the flat array."""
    data, indices = node.input(0), node.input(1)
    rank, axis = node.rank(data), node.attr("axis", "int", 0)
    if node.rank(indices) != rank or not -rank <= axis < rank:
        node.fail("data and indices differ in rank, or the axis is wrong", came=[rank, node.rank(indices), axis])
    whole = cast(indices, "int64")
    along = [whole if i == axis % rank else numbers_along(whole, i, rank) for i in range(rank)]
    place = inside(along[0], data, 0)
    for i in range(1, rank):
        place = place * extent(data, i) + inside(along[i], data, i)
    return (gather(reshape(data, [-1]), place),)


def reverse_sequence(node: Node) -> Sequence[Blob]:
    """Turns the first steps of each row around and keeps the others. Rows and steps are one axis of the lookup."""
    x, lengths = node.input(0), cast(node.input(1), "int64")
    batch, time = node.attr("batch_axis", "int", 1), node.attr("time_axis", "int", 0)
    if {batch, time} != {0, 1}:
        node.fail("time and batch must be the first two axes", wanted="0 and 1", came=f"{time} and {batch}")
    steps, of_row = numbers_along(x, time, 2), unsqueeze(lengths, [time])
    source = inside(where(less(steps, of_row), of_row - 1 - steps, steps), x, time)
    rows = numbers_along(x, batch, 2)
    place = source * extent(x, 1) + rows if time == 0 else rows * extent(x, 1) + source
    flat = reshape(x, concat(unsqueeze(extent(x, 0) * extent(x, 1), [0]), shape(x, 2), axis=0), allowzero=1)
    return (gather(flat, place),)


def inside(index: Blob, data: Blob, axis: int) -> Blob:
    """Indices of an axis, counted from 0.

    An index out of range becomes a place beyond the array, which a lookup refuses.
    """
    last = extent(data, axis)
    from_start = where(less(index, 0), index + last, index)
    wrong = or_(less(from_start, 0), greater_or_equal(from_start, last))
    return where(wrong, reduce_prod(shape(data), keepdims=0) + 1, from_start)


def extent(x: Blob, axis: int) -> Blob:
    """The size of an axis, as a number without axes."""
    return squeeze(shape(x, axis, None if axis == -1 else axis + 1), [0])


def numbers_along(x: Blob, axis: int, rank: int) -> Blob:
    """0, 1, 2, ... along an axis of x, as an array of rank `rank`."""
    numbers = range_(0, extent(x, axis))
    return reshape(numbers, [-1 if i == axis else 1 for i in range(rank)])


GROUP_RULES: dict[str, Rule] = {
    "Celu": by_element(lambda x, alpha: elu(x / alpha) * alpha, alpha=1.0),
    "GatherElements": gather_elements,
    "HardSwish": by_element(lambda x: x * hard_sigmoid(x, SIXTH, 0.5)),
    "IsInf": is_inf,
    "IsNaN": by_element(lambda x: not_(equal(x, x))),
    "Mish": by_element(lambda x: x * tanh(softplus(x))),
    "PRelu": by_element(lambda x, slope: where(less(x, 0.0), slope * x, x)),
    "ReduceL1": reduction(abs_, "ReduceSum", same),
    "ReduceL2": reduction(same, "ReduceSumSquare", root),
    "ReduceLogSum": reduction(same, "ReduceSum", log),
    "ReverseSequence": reverse_sequence,
    "Shrink": by_element(shrink, bias=0.0, lambd=0.5),
    "Size": size,
    "Swish": by_element(lambda x, alpha: x * sigmoid(x * alpha), alpha=1.0),
    "ThresholdedRelu": by_element(lambda x, alpha: where(greater(x, alpha), x, 0.0), alpha=1.0),
    "Trilu": trilu,
    "Xor": by_element(lambda a, b: not_(equal(a, b))),
}


MOST = 2**24  # most elements of a table that a file may ask for
LONGEST = 2**17  # most elements of a window, some seconds of sound; transforms are far shorter
WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}
Array = np.ndarray[Any, Any]


def window(node: Node) -> Sequence[Blob]:
    """A sum of cosines, for a known number of elements."""
    size, periodic = number(node, 0), node.attr("periodic", "int", 1)
    if not 0 <= size <= LONGEST or (size == 1 and not periodic):
        node.fail("a window cannot have this size", wanted=f"from {1 if periodic else 2} to {LONGEST}", came=size)
    turn = 2 * np.pi * np.arange(size) / max(size if periodic else size - 1, 1)
    mean, once, twice = WINDOWS[node.op]
    return (typed_constant(node, mean - once * np.cos(turn) + twice * np.cos(2 * turn)),)


def mel_weights(node: Node) -> Sequence[Blob]:
    """Triangles over the bins of a spectrum, spaced evenly on the mel scale."""
    filters, length, rate = (number(node, i) for i in range(3))
    edges = [scalar(node, i) for i in (3, 4)]
    rows = length // 2 + 1
    if min(filters, length, rate) <= 0 or rows * filters > MOST or not -700 < edges[0] <= edges[1]:
        node.fail("a spectrum cannot have these numbers", came=[filters, length, rate, *edges])
    low, high = (2595 * np.log1p(edge / 700) / np.log(10) for edge in edges)
    mels = low + np.arange(filters + 2) * (high - low) / (filters + 2)
    hertz = 700 * np.expm1(mels / 2595 * np.log(10))
    points = np.floor((length + 1) * hertz / rate).astype(np.int64)
    if points[0] < 0 or points[-1] > rows:
        node.fail("the edges lie outside of the spectrum", wanted=f"bins from 0 to {rows}", came=points.tolist()[:9])
    bins = np.arange(rows)[:, None]
    left, centre, right = (points[None, i : i + filters] for i in range(3))
    rising = np.where(centre == left, 1.0, (bins - left) / np.maximum(centre - left, 1))
    falling = (right - bins) / np.maximum(right - centre, 1)
    found = np.where((bins >= centre) & (bins < right), falling, np.where((bins >= left) & (bins <= centre), rising, 0))
    return (typed_constant(node, found),)


def dft(node: Node) -> Sequence[Blob]:
    """A product with a table. The axis is the last but one for it, and each complex number has two elements."""
    x, rank = node.input(0), node.rank(node.input(0))
    axis = node.attr("axis", "int", 1) if node.opset < 20 else number(node, 2) if node.has(2) else -2
    inverse, one_sided = (bool(node.attr(name, "int", 0)) for name in ("inverse", "onesided"))
    if not -rank <= axis < rank or axis % rank == rank - 1:
        node.fail("the axis is not an axis of the signal", wanted=f"0 to {rank - 2}", came=axis)
    size, parts = fixed(node, x, axis % rank), fixed(node, x, rank - 1)
    length = number(node, 1) if node.has(1) else 2 * (size - 1) if inverse and one_sided else size
    perm = [*(i for i in range(rank - 1) if i != axis % rank), axis % rank, rank - 1]
    moved = perm != list(range(rank))
    table = fourier(node, size, parts, length, inverse, one_sided)
    y = transformed(node, transpose(x, perm) if moved else x, rank, table)
    return (transpose(y, [perm.index(i) for i in range(rank)]) if moved else y,)


def stft(node: Node) -> Sequence[Blob]:
    """Looks up frames of a signal, weights them, and transforms them by one product."""
    x, step, one_sided = node.input(0), number(node, 1), bool(node.attr("onesided", "int", 1))
    if node.rank(x) == 2:
        x = unsqueeze(x, [2])
    parts = fixed(node, x, 2)
    weights = node.optional(2)
    length = number(node, 3) if node.has(3) else fixed(node, weights, 0) if weights is not None else fixed(node, x, 1)
    if step <= 0 or not 0 < length <= MOST or (weights is not None and fixed(node, weights, 0) != length):
        node.fail("a frame must be as long as the window, and its step above 0", came=f"length {length}, step {step}")
    table = fourier(node, length, parts, length, inverse=False, one_sided=one_sided)
    first = range_(0, (extent(x, 1) - length) / step + 1) * step
    frames = gather(x, unsqueeze(first, [1]) + range_(0, length, net=node.net), 1)
    if weights is not None:
        frames = frames * unsqueeze(weights, [1])
    return (transformed(node, frames, 4, table),)


def fourier(node: Node, size: int, parts: int, length: int, inverse: bool, one_sided: bool) -> Array:
    """The table of a transform, [size, parts, bins, parts of the result]; parts are real, or real and imaginary."""
    if parts not in (1, 2) or length <= 0 or size <= 0 or 4 * size * length > MOST:
        node.fail("a transform of such sizes is not supported", came=f"{size} to {length}, {parts} parts")
    basis = np.eye(size) if parts == 1 else np.stack([np.eye(size), 1j * np.eye(size)], 1)
    rows = basis.reshape(size * parts, size)
    if inverse and one_sided:
        return np.fft.irfft(rows, length, 1).reshape(size, parts, length, 1)
    found = np.fft.ifft(rows, length, 1) if inverse else np.fft.fft(rows, length, 1)
    bins = length // 2 + 1 if one_sided else length
    both = np.stack([found.real, found.imag], -1)[:, :bins]
    return both.reshape(size, parts, bins, 2)


def transformed(node: Node, x: Blob, rank: int, table: Array) -> Blob:
    """The last two axes, multiplied by a table."""
    size, parts, bins, results = table.shape
    flat = reshape(x, [*[0] * (rank - 2), size * parts])
    matrix = table.reshape(size * parts, bins * results).astype(node.float_dtype)
    return reshape(matmul(flat, node.net.constant(matrix)), [*[0] * (rank - 2), bins, results])


def typed_constant(node: Node, array: Array) -> Blob:
    """A constant of the element type that the node names."""
    dtype = element_dtype(node.attr("output_datatype", "int", 1), f"the result of a {node.op}")
    return node.net.constant(array.astype(dtype), node.dtype(dtype))


def scalar(node: Node, i: int) -> float:
    """The number in input i. Raises OnnxError if it is not known before a run."""
    value = node.known_value(i)
    if value is None or value.size != 1:
        node.fail(f"input {i} must be one number known before a run", came=None if value is None else value.shape)
    return float(value.item())


def number(node: Node, i: int) -> int:
    """As `scalar`, for an integer."""
    return int(scalar(node, i))


def fixed(node: Node, x: Blob, axis: int) -> int:
    """The size of an axis. The file must fix it."""
    dims = node.dims(x)
    size = dims[axis] if -len(dims) <= axis < len(dims) else None
    if not isinstance(size, int):
        node.fail("a table needs a size that the file leaves open", hint="Give it: load(path, sizes={...}).")
    return size


SPECTRUM_RULES: dict[str, Rule] = {
    **dict.fromkeys(WINDOWS, window),
    "DFT": dft,
    "MelWeightMatrix": mel_weights,
    "STFT": stft,
}


def fused_conv(node: Node) -> Sequence[Blob]:
    """A convolution, an added array if there is one, and an activation."""
    (y,) = node.net.append("Conv", [node.input(0), node.input(1), node.optional(2)], node.given(CONV))
    y = y + node.input(3) if node.has(3) else y
    name, numbers_of = node.attr("activation", "string", ""), node.attr("activation_params", "floats", ())
    if not name:
        return (y,)
    (activation,) = read_activations([name], numbers_of[:1], numbers_of[1:])
    return (activation(y),)


def biased_gelu(approximate: str) -> Rule:
    """A rule for Gelu of an input, plus a bias if there is one."""

    def rule(node: Node) -> Sequence[Blob]:
        return (gelu(biased(node, node.input(0), 1), approximate),)

    return rule


def biased(node: Node, x: Blob, i: int) -> Blob:
    """x plus the i-th input, if that is given."""
    return x + node.input(i) if node.has(i) else x


def quick_gelu(node: Node) -> Sequence[Blob]:
    """`x sigmoid(alpha x)`."""
    x = node.input(0)
    return (x * sigmoid(x * node.attr("alpha", "float", 1.702)),)


def fused_matmul(node: Node) -> Sequence[Blob]:
    """A product times a number. The last two axes of each operand may be swapped first."""
    for name in ("transBatchA", "transBatchB"):
        if node.attr(name, "int", 0):
            node.fail(f"attribute '{name}' is not supported", wanted=0)
    product = matmul(*(turned(node, node.input(i), f"trans{side}") for i, side in enumerate("AB")))
    alpha = node.attr("alpha", "float", 1.0)
    return (product if alpha == 1.0 else product * alpha,)


def turned(node: Node, x: Blob, attribute: str) -> Blob:
    """x with its last two axes swapped if an attribute asks for it. A list has one axis and stays."""
    if not node.attr(attribute, "int", 0) or node.rank(x) < 2:
        return x
    axes = list(range(node.rank(x)))
    return transpose(x, perm=[*axes[:-2], axes[-1], axes[-2]])


def fused_gemm(node: Node) -> Sequence[Blob]:
    """Gemm, then one of the activations of recurrent ops."""
    options = {name: node.attr(name, "float", 1.0) for name in ("alpha", "beta")}
    turns = {name: node.attr(name, "int", 0) for name in ("transA", "transB")}
    y = gemm(node.input(0), node.input(1), node.optional(2), **options, **turns)
    given = [node.attr(f"activation_{name}", "float") for name in ("alpha", "beta")]
    numbers_of = [[] if number is None else [number] for number in given]
    (activation,) = read_activations([node.required("activation", "string")], *numbers_of)
    return (activation(y),)


def skip_layer_normalization(node: Node) -> Sequence[Blob | None]:
    """LayerNormalization of a sum, and the sum itself."""
    total = biased(node, node.input(0) + node.input(1), 4)
    epsilon = node.attr("epsilon", "float", 1e-12)
    return layer_normalization(total, node.input(2), node.optional(3), axis=-1, epsilon=epsilon), None, None, total


MICROSOFT_RULES: dict[str, Rule] = {
    "com.microsoft::BiasGelu": biased_gelu("none"),
    "com.microsoft::FastGelu": biased_gelu("tanh"),
    "com.microsoft::FusedConv": fused_conv,
    "com.microsoft::FusedGemm": fused_gemm,
    "com.microsoft::FusedMatMul": fused_matmul,
    "com.microsoft::Gelu": biased_gelu("none"),
    "com.microsoft::QuickGelu": quick_gelu,
    "com.microsoft::SkipLayerNormalization": skip_layer_normalization,
}
