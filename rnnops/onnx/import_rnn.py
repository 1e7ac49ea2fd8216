"""LSTM, GRU and RNN nodes as recurrences: weights cut up outside, a cell, one recurrence for each direction.

With `sequence_lens` a row's Y is zero past its end and Y_h, Y_c are its states at its end; in reverse a row starts at
its own end. The standard does not say so, ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnops.blob import Blob
from rnnops.onnx.activations import Activation, read_activations
from rnnops.onnx.node import Node
from rnnops.onnx.rnn_cells import KINDS, Cell, Kind, previous
from rnnops.ops.comparison import identity
from rnnops.ops.movement import concat, split, squeeze, transpose, unsqueeze
from rnnops.ops.shapes import constant_of_shape, shape
from rnnops.recurrent import recurrent_net

RANKS = (3, 3, 3, 2, 1, 3, 3, 2)  # of X, W, R, B, sequence_lens, initial_h, initial_c, P
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass
class Layer:
    """A node's attributes and inputs under their names; `weights` etc. hold one blob for each direction."""

    node: Node
    kind: Kind
    directions: tuple[bool, ...]
    activations: list[Activation]
    batch_major: bool
    threshold: float | None
    input_forget: bool
    linear_before_reset: bool


def read_layer(node: Node) -> Layer:
    """Attributes of the node, checked."""
    kind, direction = KINDS[node.op], node.attr("direction", "string", "forward")
    if direction not in DIRECTIONS:
        node.fail("unknown direction", wanted=", ".join(DIRECTIONS), came=direction)
    directions = DIRECTIONS[direction]
    names = node.attr("activations", "strings") or kind.activations * len(directions)
    if node.op == "RNN" and len(names) == 2 and len(directions) == 1:
        names = names[:1]  # the default is written out for two directions
    if len(names) != len(kind.activations) * len(directions):
        node.fail("wrong number of activations", wanted=len(kind.activations) * len(directions), came=len(names))
    numbers = [node.attr(f"activation_{name}", "floats", ()) for name in ("alpha", "beta")]
    node.attr("hidden_size", "int")  # the weights say it
    return Layer(
        node,
        kind,
        directions,
        read_activations(names, *numbers),
        bool(node.attr("layout", "int", 0)) if node.opset >= 14 else False,
        node.attr("clip", "float"),
        bool(node.attr("input_forget", "int", 0)) if node.op == "LSTM" else False,
        bool(node.attr("linear_before_reset", "int", 0)) if node.op == "GRU" else False,
    )


def recurrent_layer(node: Node) -> Sequence[Blob | None]:
    """The rule of all three ops: Y, Y_h and, of an LSTM, Y_c."""
    layer = read_layer(node)
    check_ranks(node)
    x = transpose(node.input(0), perm=[1, 0, 2]) if layer.batch_major else node.input(0)
    parts, states = weights_by_direction(layer), states_by_direction(layer)
    results = [direction(layer, k, x, *pair) for k, pair in enumerate(zip(parts, states, strict=True))]
    y = joined(layer, [unsqueeze(result[0], [1]) for result in results], axis=1)
    lasts = [joined(layer, [result[1 + i] for result in results], axis=0) for i in range(len(layer.kind.states))]
    if not layer.batch_major:
        return y, *(identity(last) if len(results) == 1 else last for last in lasts)
    return transpose(y, perm=[2, 0, 1, 3]), *(transpose(last, perm=[1, 0, 2]) for last in lasts)


def check_ranks(node: Node) -> None:
    """Raise OnnxError for an input that is known to have another number of axes than the standard says."""
    for i, (blob, rank) in enumerate(zip(node.inputs, RANKS, strict=False)):
        known = None if blob is None else node.known(blob)
        if known is not None and known[0].rank != rank:
            node.fail(f"input {i} has a wrong number of axes", wanted=rank, came=known[0].rank)


def joined(layer: Layer, blobs: Sequence[Blob], axis: int) -> Blob:
    """Results of all directions, side by side."""
    return blobs[0] if len(blobs) == 1 else concat(list(blobs), axis=axis)


def weights_by_direction(layer: Layer) -> list[dict[str, Blob]]:
    """For each direction, what its cell reads beside x, under the cell's names, and its initial states."""
    node, linear = layer.node, layer.linear_before_reset
    parts = [
        matrices(layer.kind, w, r, linear)
        for w, r in zip(cut(layer, node.input(1)), cut(layer, node.input(2)), strict=True)
    ]
    for place, add in ((3, biases), (7, peepholes)):
        blob = node.optional(place) if place == 3 or layer.kind.op == "LSTM" else None
        for part, own in zip(parts, cut(layer, blob) if blob is not None else (), strict=False):
            part.update(add(layer, own))
    return parts


def cut(layer: Layer, blob: Blob) -> list[Blob]:
    """A blob with a leading axis for directions: one blob for each, without it."""
    pieces = split(blob, len(layer.directions), axis=0) if len(layer.directions) > 1 else (blob,)
    return [squeeze(piece, [0]) for piece in pieces]


def matrices(kind: Kind, w: Blob, r: Blob, linear: bool) -> dict[str, Blob]:
    """Weights as right factors; those of a GRU's candidate stand alone where a gate comes between."""
    w, r = transpose(w, perm=[1, 0]), transpose(r, perm=[1, 0])
    if kind.op != "GRU" or linear:
        return {"w": w, "r": r}
    z, reset, candidate = split(r, 3, axis=-1)
    return {"w": w, "r_zr": concat([z, reset], axis=-1), "r_g": candidate}


def biases(layer: Layer, b: Blob) -> dict[str, Blob]:
    """Input and recurrent bias, added up where both are added to the same thing."""
    w_b, r_b = split(b, 2, axis=-1)
    return {"b": w_b, "rb": r_b} if layer.linear_before_reset else {"b": w_b + r_b}


def peepholes(layer: Layer, p: Blob) -> dict[str, Blob]:
    """Peephole weights; a forget gate that follows from the input gate has none."""
    p_i, p_o, p_f = split(p, 3, axis=-1)
    return {"p_i": p_i, "p_o": p_o} if layer.input_forget else {"p_i": p_i, "p_o": p_o, "p_f": p_f}


def states_by_direction(layer: Layer) -> list[list[Blob]]:
    """For each direction its initial states, `[1, N, H]`, or zeros `[H]`."""
    node, count = layer.node, len(layer.directions)
    by_state = []
    for place in range(5, 5 + len(layer.kind.states)):
        given = node.optional(place)
        if given is None:
            by_state.append([constant_of_shape(node.net, shape(node.input(2), start=2, end=3))] * count)
            continue
        given = transpose(given, perm=[1, 0, 2]) if layer.batch_major else given
        by_state.append([given] if count == 1 else list(split(given, count, axis=0)))
    return [list(states) for states in zip(*by_state, strict=True)]


def direction(layer: Layer, k: int, x: Blob, part: dict[str, Blob], states: list[Blob]) -> tuple[Blob, ...]:
    """The recurrence of one direction: all steps of the output, then the last value of each state."""
    kind, lengths = layer.kind, layer.node.optional(4)
    count = len(kind.activations)
    functions = layer.activations[k * count : (k + 1) * count]
    options = (layer.threshold, layer.input_forget, layer.linear_before_reset, layer.batch_major)
    cell = Cell(kind, functions, list(part), lengths is not None, *options).build()
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
