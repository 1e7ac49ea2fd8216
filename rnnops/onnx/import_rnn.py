"""Reads LSTM, GRU and RNN nodes as recurrences: activations, one step, weights.

**One step as a cell**. Weights are transposed, `w [D, G H]` and `r [H, G H]` for G gates. Both biases are summed, but a
GRU with `linear_before_reset` keeps them apart. With lengths, `y` is zero past a row's end, and states stay.

**A node as recurrences**: weights are cut up outside of a cell, and each direction is one recurrence. With
`sequence_lens`, Y of a row is zero past the row's end, and Y_h and Y_c are its states at its end. In reverse, a row
starts at its own end. The standard does not say so, but ONNX Runtime does so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rnnops.errors import OnnxError
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.onnx.node import Node
from rnnops.ops.activation import elu, hard_sigmoid, leaky_relu, relu, sigmoid, softplus, softsign, tanh
from rnnops.ops.comparison import clip, greater_or_equal, identity, where
from rnnops.ops.indexing import select_valid
from rnnops.ops.movement import concat, split, squeeze, transpose, unsqueeze
from rnnops.ops.shapes import constant_of_shape, shape
from rnnops.recurrent import recurrent_net

Function: TypeAlias = Callable[[Blob, float, float], Blob]


@dataclass(frozen=True)
class ActivationKind:
    """A function of x, alpha and beta, and the defaults of alpha and beta.

    Args:
        must: True if implementations disagree on a default, so that the numbers must be given.
    """

    apply: Function
    alpha: float | None = None
    beta: float | None = None
    must: bool = False


KINDS = {
    "Affine": ActivationKind(lambda x, a, b: x * a + b, 1.0, 0.0, must=True),
    "Elu": ActivationKind(lambda x, a, b: elu(x, a), 1.0),
    "HardSigmoid": ActivationKind(lambda x, a, b: hard_sigmoid(x, a, b), 0.2, 0.5),
    "LeakyRelu": ActivationKind(lambda x, a, b: leaky_relu(x, a), 0.01),
    "Relu": ActivationKind(lambda x, a, b: relu(x)),
    "ScaledTanh": ActivationKind(lambda x, a, b: tanh(x * b) * a, 1.0, 1.0, must=True),
    "Sigmoid": ActivationKind(lambda x, a, b: sigmoid(x)),
    "Softplus": ActivationKind(lambda x, a, b: softplus(x)),
    "Softsign": ActivationKind(lambda x, a, b: softsign(x)),
    "Tanh": ActivationKind(lambda x, a, b: tanh(x)),
    "ThresholdedRelu": ActivationKind(lambda x, a, b: where(greater_or_equal(x, a), x, 0.0), 1.0),
}
BY_LOWER_NAME = {name.lower(): name for name in KINDS}


@dataclass(frozen=True)
class Activation:
    """One activation function with its numbers. A number is None if the function does not take it."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def __str__(self) -> str:
        """The name and the numbers, as in `Elu:0.5`."""
        return ":".join([self.name, *(repr(number) for number in (self.alpha, self.beta) if number is not None)])

    def __call__(self, x: Blob) -> Blob:
        return KINDS[self.name].apply(x, self.alpha or 0.0, self.beta or 0.0)


def read_activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """Activations in order. Each takes the next number of a list if it needs one, or its default at the list's end.

    Raises OnnxError for an unknown activation, and for numbers that are left over.
    """
    alpha, beta = iter(alphas), iter(betas)
    found = [_activation(name, alpha, beta) for name in names]
    if [*alpha, *beta]:
        raise OnnxError("activation_alpha or activation_beta has more numbers than the activations take")
    return found


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    known = BY_LOWER_NAME.get(name.lower())
    if known is None:
        raise OnnxError("unknown activation", wanted=", ".join(KINDS), came=name)
    kind = KINDS[known]
    return Activation(known, _number(known, kind.alpha, alphas), _number(known, kind.beta, betas))


def _number(name: str, default: float | None, given: Iterator[float]) -> float | None:
    """The next number. None if the activation does not take one. Numbers of ONNX are float32."""
    if default is None:
        return None
    number = next(given, None)
    if number is None and KINDS[name].must:
        raise OnnxError("an activation lacks its numbers", wanted="activation_alpha and activation_beta", came=name)
    return float(np.float32(default if number is None else number))


Gates = dict[str, Blob]


@dataclass(frozen=True)
class CellKind:
    """The parts of one of the three ops LSTM, GRU and RNN.

    Args:
        states: names of the states; gates: one letter for each; activations: default functions.
        write: writes a step into the cell and returns the new states.
    """

    op: str
    states: tuple[str, ...]
    gates: str
    activations: tuple[str, ...]
    write: Callable[[Cell], Sequence[Blob]]


@dataclass(frozen=True)
class CellOptions:
    """Attributes of a node that its cells share.

    Args:
        threshold: bound to which the inputs of activations are clipped; None for no clipping.
        input_forget: True if the forget gate of an LSTM is one minus its input gate.
        linear_before_reset: True if the product of a GRU comes before its reset gate.
        layout: True if the node is batch-major. The cell does not depend on it, but its name says it.
    """

    threshold: float | None
    input_forget: bool
    linear_before_reset: bool
    layout: bool


@dataclass
class Cell:
    """A cell while it is written.

    Args:
        functions: the activations; bound: names of all inputs but x, states and lengths (`w`, `r`, `b`, ...).
    """

    kind: CellKind
    functions: Sequence[Activation]
    bound: Sequence[str]
    lengths: bool
    options: CellOptions

    def build(self) -> Net:
        """The net of one step. Outputs are the states and, with lengths, `y`."""
        self.net = Net(self.title)
        self.x, *self.states = (self.net.input(name) for name in ("x", *map(previous, self.kind.states)))
        self.blobs: Gates = {name: self.net.input(name) for name in self.bound}
        new = self.kind.write(self)
        if self.lengths:
            new = self._masked(new)
        self.net.outputs(**dict(zip(self.kind.states, new, strict=True)))
        return self.net

    @property
    def title(self) -> str:
        """The cell's name, which lists its kind, activations and options: `LSTM Sigmoid Tanh Tanh clip=0.5`."""
        words = [self.kind.op, *map(str, self.functions)]
        words += [f"clip={self.options.threshold!r}"] if self.options.threshold is not None else []
        flags = ("input_forget", "linear_before_reset", "layout")
        return " ".join([*words, *(name for name in flags if getattr(self.options, name))])

    def act(self, i: int, x: Blob) -> Blob:
        """The i-th activation of the clipped x."""
        threshold = self.options.threshold
        return self.functions[i](x if threshold is None else clip(x, -threshold, threshold))

    def biased(self, x: Blob, name: str) -> Blob:
        """x plus a bias, if the cell has the bias."""
        return x + self.blobs[name] if name in self.blobs else x

    def peep(self, x: Blob, name: str, state: Blob) -> Blob:
        """x plus a state through a peephole, if the cell has the peephole."""
        return x + self.blobs[name] * state if name in self.blobs else x

    def _masked(self, new: Sequence[Blob]) -> list[Blob]:
        """States that stay past a row's end. Also declares the output `y`, which is zero there."""
        lengths, t = self.net.input("sequence_lens", "int32"), self.net.input("timestep", "int32")
        y = select_valid(new[0], self.states[0], lengths, t, drop=1)
        kept = [select_valid(blob, old, lengths, t) for blob, old in zip(new, self.states, strict=True)]
        self.net.outputs(y=y)
        return kept


def previous(state: str) -> str:
    """The name of the cell input that reads a state."""
    return f"{state}_prev"


def lstm(cell: Cell) -> Sequence[Blob]:
    """`c = f c' + i g`, `h = o h(c)`. Peepholes lead from c' to i and f, and from c to o."""
    h_prev, c_prev = cell.states
    gates = cell.biased(cell.x @ cell.blobs["w"] + h_prev @ cell.blobs["r"], "b")
    i, o, f, g = split(gates, 4, axis=-1)
    i = cell.act(0, cell.peep(i, "p_i", c_prev))
    f = 1.0 - i if cell.options.input_forget else cell.act(0, cell.peep(f, "p_f", c_prev))
    c = f * c_prev + i * cell.act(1, g)
    o = cell.act(0, cell.peep(o, "p_o", c))
    return o * cell.act(2, c), c


def gru(cell: Cell) -> Sequence[Blob]:
    """`h = (1 - z) g + z h'`. The reset gate multiplies h', or with linear_before_reset the product with h'."""
    (h_prev,) = cell.states
    x_z, x_r, x_g = split(cell.biased(cell.x @ cell.blobs["w"], "b"), 3, axis=-1)
    if cell.options.linear_before_reset:
        h_z, h_r, h_g = split(cell.biased(h_prev @ cell.blobs["r"], "rb"), 3, axis=-1)
    else:
        h_z, h_r = split(h_prev @ cell.blobs["r_zr"], 2, axis=-1)
    z, r = cell.act(0, x_z + h_z), cell.act(0, x_r + h_r)
    g = cell.act(1, x_g + (r * h_g if cell.options.linear_before_reset else (r * h_prev) @ cell.blobs["r_g"]))
    return ((1.0 - z) * g + z * h_prev,)


def rnn(cell: Cell) -> Sequence[Blob]:
    """`h = f(x w + h' r + b)`."""
    (h_prev,) = cell.states
    return (cell.act(0, cell.biased(cell.x @ cell.blobs["w"] + h_prev @ cell.blobs["r"], "b")),)


CELL_KINDS = {
    "LSTM": CellKind("LSTM", ("h", "c"), "iofg", ("Sigmoid", "Tanh", "Tanh"), lstm),
    "GRU": CellKind("GRU", ("h",), "zrg", ("Sigmoid", "Tanh"), gru),
    "RNN": CellKind("RNN", ("h",), "h", ("Tanh",), rnn),
}


def has_title(name: str) -> bool:
    """True if a cell's name has the form of `Cell.title`."""
    kind, *words = name.split(" ")
    return kind in CELL_KINDS and len(words) >= len(CELL_KINDS[kind].activations)


# Axes of X, W, R, B, sequence_lens, initial_h, initial_c, P: K directions, H hidden size, G rows of gates, B biases, P
# peepholes.
FORMS = ("TND", "KGD", "KGH", "KB", "N", "KNH", "KNH", "KP")
PROJECTION = (
    "An LSTM node has no projection (proj_size of PyTorch), and the file lacks its weights. "
    "Export such a layer as a Loop or Scan of its steps."
)
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass
class RnnNode:
    """A recurrent node with its attributes, which are checked."""

    node: Node
    kind: CellKind
    directions: tuple[bool, ...]
    activations: list[Activation]
    options: CellOptions


def read_layer(node: Node) -> RnnNode:
    """Attributes of the node, checked."""
    kind, direction = CELL_KINDS[node.op], node.attr("direction", "string", "forward")
    if direction not in DIRECTIONS:
        node.fail("unknown direction", wanted=", ".join(DIRECTIONS), came=direction)
    directions = DIRECTIONS[direction]
    names = node.attr("activations", "strings") or kind.activations * len(directions)
    if node.op == "RNN" and len(names) == 2 and len(directions) == 1:
        names = names[:1]  # the default has the activations of two directions
    if len(names) != len(kind.activations) * len(directions):
        node.fail("wrong number of activations", wanted=len(kind.activations) * len(directions), came=len(names))
    numbers = [node.attr(f"activation_{name}", "floats", ()) for name in ("alpha", "beta")]
    options = CellOptions(
        threshold=node.attr("clip", "float"),
        input_forget=node.op == "LSTM" and bool(node.attr("input_forget", "int", 0)),
        linear_before_reset=node.op == "GRU" and bool(node.attr("linear_before_reset", "int", 0)),
        layout=node.opset >= 14 and bool(node.attr("layout", "int", 0)),
    )
    return RnnNode(node, kind, directions, read_activations(names, *numbers), options)


def recurrent_layer(node: Node) -> Sequence[Blob | None]:
    """The rule of all three ops. Returns Y, Y_h and, for an LSTM, Y_c."""
    layer = read_layer(node)
    check_inputs(layer)
    x = transpose(node.input(0), perm=[1, 0, 2]) if layer.options.layout else node.input(0)
    parts, states = weights_by_direction(layer), states_by_direction(layer)
    results = [direction(layer, k, x, *pair) for k, pair in enumerate(zip(parts, states, strict=True))]
    y = joined([unsqueeze(result[0], [1]) for result in results], axis=1)
    lasts = [joined([result[1 + i] for result in results], axis=0) for i in range(len(layer.kind.states))]
    if not layer.options.layout:
        return y, *(identity(last) if len(results) == 1 else last for last in lasts)
    return transpose(y, perm=[2, 0, 1, 3]), *(transpose(last, perm=[1, 0, 2]) for last in lasts)


def check_inputs(layer: RnnNode) -> None:
    """Raise OnnxError for an input whose known shape differs from the standard's."""
    node = layer.node
    shapes = [None if blob is None else node.dims(blob) for blob in node.inputs[: len(FORMS)]]
    sizes = {"K": len(layer.directions), **sizes_of_gates(layer)}
    for i, (dims, form) in enumerate(zip(shapes, FORMS, strict=False)):
        if dims is None or node.known(node.input(i)) is None:
            continue
        if len(dims) != len(form):
            node.fail(f"input {i} has a wrong number of axes", wanted=len(form), came=len(dims))
        form = "NKH" if form == "KNH" and layer.options.layout else form
        wanted = [sizes.get(letter, dim) for letter, dim in zip(form, dims, strict=True)]
        if wrong := {letter for letter, dim, size in zip(form, dims, wanted, strict=True) if dim not in (None, size)}:
            hint = PROJECTION if node.op == "LSTM" and "H" in wrong else None
            node.fail(f"input {i} has wrong sizes", wanted=wanted, came=list(dims), hint=hint)


def sizes_of_gates(layer: RnnNode) -> dict[str, int]:
    """The sizes that follow from `hidden_size`, or from the rows of R. Empty if neither is known."""
    node, gates = layer.node, len(layer.kind.gates)
    rows = node.dims(node.input(2))[1:2]
    hidden = node.attr("hidden_size", "int") or (rows[0] // gates if rows and isinstance(rows[0], int) else 0)
    return {"H": hidden, "G": gates * hidden, "B": 2 * gates * hidden, "P": 3 * hidden} if hidden else {}


def joined(blobs: Sequence[Blob], axis: int) -> Blob:
    """Joins the results of all directions."""
    return blobs[0] if len(blobs) == 1 else concat(list(blobs), axis=axis)


def weights_by_direction(layer: RnnNode) -> list[dict[str, Blob]]:
    """For each direction: the weights, biases and peepholes of its cell, by the cell's names."""
    node, linear = layer.node, layer.options.linear_before_reset
    parts = [
        matrices(layer.kind, w, r, linear)
        for w, r in zip(cut(layer, node.input(1)), cut(layer, node.input(2)), strict=True)
    ]
    for place, add in ((3, biases), (7, peepholes)):
        blob = node.optional(place) if place == 3 or layer.kind.op == "LSTM" else None
        for part, own in zip(parts, cut(layer, blob) if blob is not None else (), strict=False):
            part.update(add(layer, own))
    return parts


def cut(layer: RnnNode, blob: Blob) -> list[Blob]:
    """Cuts a blob along its leading axis of directions. Returns a blob without that axis for each."""
    pieces = split(blob, len(layer.directions), axis=0) if len(layer.directions) > 1 else (blob,)
    return [squeeze(piece, [0]) for piece in pieces]


def matrices(kind: CellKind, w: Blob, r: Blob, linear: bool) -> dict[str, Blob]:
    """Weights as right factors of products. A GRU's candidate has its own if a gate comes between."""
    w, r = transpose(w, perm=[1, 0]), transpose(r, perm=[1, 0])
    if kind.op != "GRU" or linear:
        return {"w": w, "r": r}
    z, reset, candidate = split(r, 3, axis=-1)
    return {"w": w, "r_zr": concat([z, reset], axis=-1), "r_g": candidate}


def biases(layer: RnnNode, b: Blob) -> dict[str, Blob]:
    """Input and recurrent biases. They are summed if both are added to the same term."""
    w_b, r_b = split(b, 2, axis=-1)
    return {"b": w_b, "rb": r_b} if layer.options.linear_before_reset else {"b": w_b + r_b}


def peepholes(layer: RnnNode, p: Blob) -> dict[str, Blob]:
    """Peephole weights. A forget gate that is computed from the input gate has none."""
    p_i, p_o, p_f = split(p, 3, axis=-1)
    return {"p_i": p_i, "p_o": p_o} if layer.options.input_forget else {"p_i": p_i, "p_o": p_o, "p_f": p_f}


def states_by_direction(layer: RnnNode) -> list[list[Blob]]:
    """For each direction: its initial states `[1, N, H]`, or zeros `[H]`."""
    node, count = layer.node, len(layer.directions)
    by_state = []
    for place in range(5, 5 + len(layer.kind.states)):
        given = node.optional(place)
        if given is None:
            by_state.append([constant_of_shape(node.net, shape(node.input(2), start=2, end=3))] * count)
            continue
        given = transpose(given, perm=[1, 0, 2]) if layer.options.layout else given
        by_state.append([given] if count == 1 else list(split(given, count, axis=0)))
    return [list(states) for states in zip(*by_state, strict=True)]


def direction(layer: RnnNode, k: int, x: Blob, part: dict[str, Blob], states: list[Blob]) -> tuple[Blob, ...]:
    """The recurrence of one direction. Returns all steps of the output, then the last value of each state."""
    kind, lengths = layer.kind, layer.node.optional(4)
    count = len(kind.activations)
    functions = layer.activations[k * count : (k + 1) * count]
    cell = Cell(kind, functions, list(part), lengths is not None, layer.options).build()
    results = recurrent_net(
        layer.node.net,
        cell,
        inputs=[("x", x)],
        initial_cell_inputs=list(zip(map(previous, kind.states), states, strict=True)),
        links={previous(state): state for state in kind.states},
        timestep=None if lengths is None else "timestep",
        scope="reverse" if layer.directions[k] else "forward",
        references=part if lengths is None else {**part, "sequence_lens": lengths},
        reverse=layer.directions[k],
    )
    every = results[0] if lengths is None else results[2 * len(kind.states)]
    return every, *results[1 : 2 * len(kind.states) : 2]
