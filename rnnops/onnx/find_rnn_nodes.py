"""Finds recurrences that can be written as LSTM, GRU or RNN nodes.

**Recurrences that were read from an LSTM, GRU or RNN node** are found by a second import. The name of an
imported cell is only a hint. A node is guessed from the name and from the surroundings of the recurrence, and is
imported once more into a small net. That net must be found in the whole net, op by op, with equal attributes and cells.
If it is not found, the recurrence is written as a Scan.

**Recurrences of the presets `LSTM`, `GRU` and `BasicRNN`**: ONNX has an op for each. A cell is a preset's if it has the
same ops in the same places, whatever its blobs are called. Ops in the graph put its weights into the standard's order
of gates, so the weights keep their names. With lengths a preset's results past a row's end differ from the standard's.
Such a recurrence is written as a Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from rnnops.cells.base import RNNCell
from rnnops.cells.gated import GATES, GRUCell, LSTMCell
from rnnops.cells.simple import BasicRNNCell
from rnnops.errors import OnnxError
from rnnops.interpreter import prune
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Op, format_value, is_net
from rnnops.net.schema import Call
from rnnops.net.text import format_net
from rnnops.onnx.export_ops import GraphWriter
from rnnops.onnx.import_rnn import CELL_KINDS, has_title, recurrent_layer
from rnnops.onnx.node import NEWEST_OPSET, Attributes, Node
from rnnops.onnx.open_sizes import MadeUpSizes, Probes
from rnnops.onnx.read_graph import result_names
from rnnops.ops.movement import concat, split, unsqueeze
from rnnops.recurrent.recurrence import Recurrence

PORTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
TRAINING_ONLY = ("recompute", "outputs_with_grads", "forward_only")


@dataclass
class FoundLayer:
    """Ops of a net that become one node.

    Args:
        op, attributes, inputs, outputs: of the node; members: keys of the ops; anchor: key of the op in whose place the
            node is written.
    """

    op: str
    attributes: dict[str, Any]
    inputs: list[str]
    outputs: list[str]
    members: set[str]
    anchor: str


def find_rnn_nodes(net: Net) -> list[FoundLayer]:
    """All groups of ops that become a node. No two groups share an op."""
    index, found = Index(net), []
    taken: set[str] = set()
    for op in net.ops:
        if op.type == "RecurrentNetwork" and op.key not in taken and has_title(op.attributes["cell"].name):
            layer = next(filter(None, (match(index, guess, op) for guess in guesses(index, op))), None)
            if layer is not None and taken.isdisjoint(layer.members):
                taken |= layer.members
                found.append(layer)
    return found


class Index:
    """Producers and readers of a net's blobs."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.producer = {name: op for op in net.ops for name in op.outputs if name}
        self.readers: dict[str, list[Op]] = {}
        for op in net.ops:
            for name in dict.fromkeys(filter(None, op.inputs)):
                self.readers.setdefault(name, []).append(op)
        self.outputs = set(net.output_blobs.values())


@dataclass(frozen=True)
class Guess:
    """A node that a recurrence may be: its attributes and the inputs that it has."""

    op: str
    attributes: Attributes
    given: frozenset[str]

    def pattern(self) -> tuple[Net, dict[str, str], list[str]]:
        """The node's ops, the blob for each of its inputs, and the blobs that are its results."""
        net = Net("pattern")
        places = {port: net.input(port, "int32" if port == "sequence_lens" else None) for port in PORTS}
        inputs = [blob if port in self.given else None for port, blob in places.items()]
        states = len(CELL_KINDS[self.op].states)
        node = Node(
            self.op, NEWEST_OPSET, self.attributes, net, [True] * (1 + states), Probes(MadeUpSizes(), "float32"), inputs
        )
        results = result_names(node, list(recurrent_layer(node)), [f"result {i}" for i in range(1 + states)])
        net.outputs(*map(net.blob, results))
        return prune(net), {port: places[port].name for port in self.given}, list(results)


def guesses(index: Index, op: Op) -> Iterator[Guess]:
    """Nodes that a recurrence may be, bidirectional ones first."""
    kind, own, options = title(op)
    reverse = bool(op.attributes.get("reverse"))
    partners = [] if reverse else [other for other in index.readers.get(op.inputs[0], ()) if is_partner(op, other)]
    forms = [("bidirectional", [*own, *title(other)[1]]) for other in partners]
    forms.append(("reverse" if reverse else "forward", own))
    for direction, names in forms:
        attributes = {"direction": ("string", direction), **written(names, options)}
        given = given_inputs(index, op)
        states = ("initial_h", "initial_c")[: len(CELL_KINDS[kind].states)]
        for inputs in dict.fromkeys([given, given.union(states)]):  # states may be zeros of the node's own, or inputs
            yield Guess(kind, attributes, inputs)


def is_partner(op: Op, other: Op) -> bool:
    """True if another recurrence may be the other direction of this one."""
    if other.type != "RecurrentNetwork" or not other.attributes.get("reverse"):
        return False
    name = other.attributes["cell"].name
    return has_title(name) and (title(op)[0], title(op)[2]) == (title(other)[0], title(other)[2])


def title(op: Op) -> tuple[str, list[str], tuple[str, ...]]:
    """The words of a cell's name: the op, its activations, other words."""
    kind, *words = op.attributes["cell"].name.split(" ")
    count = len(CELL_KINDS[kind].activations)
    return kind, words[:count], tuple(words[count:])


def written(names: Sequence[str], options: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Words of a cell's name as attributes of a node, with all numbers of activations."""
    parts = [name.split(":") for name in names]
    attributes: dict[str, tuple[str, Any]] = {"activations": ("strings", tuple(part[0] for part in parts))}
    for place, name in ((1, "activation_alpha"), (2, "activation_beta")):
        numbers = tuple(float(part[place]) for part in parts if len(part) > place)
        if numbers:
            attributes[name] = ("floats", numbers)
    for word in options:
        key, _, value = word.partition("=")
        attributes[key] = ("float", float(value)) if value else ("int", 1)
    return attributes


def given_inputs(index: Index, op: Op) -> frozenset[str]:
    """The inputs that the node has, judged by the blobs that the recurrence reads."""
    names = op.attributes["cell"].input_names
    given = {"X", "W", "R"}
    given |= {port for port, own in (("B", "b"), ("P", "p_i"), ("sequence_lens", "sequence_lens")) if own in names}
    sequences, states = len(op.attributes.get("inputs", ())), len(op.attributes.get("states", ()))
    for port, blob in zip(("initial_h", "initial_c"), op.inputs[sequences : sequences + states], strict=False):
        made = index.producer.get(blob)
        if made is None or made.type != "ConstantOfShape":
            given.add(port)
    return frozenset(given)


def match(index: Index, guess: Guess, anchor: Op) -> FoundLayer | None:
    """The layer that a guess describes, if it is found around a recurrence; else None."""
    try:
        pattern, ports, results = guess.pattern()
    except (OnnxError, ValueError, KeyError):  # the name of the cell was not a hint
        return None
    found = Matching(index, {name: op for op in pattern.ops for name in op.outputs if name})
    recurrences = [op for op in pattern.ops if op.type == "RecurrentNetwork"]
    if not found.unify(recurrences[0], anchor):
        return None
    if not all(found.search(op) for op in recurrences[1:]):
        return None
    for op in pattern.ops:
        if op.key not in found.ops:
            found.search(op)  # results that are not read may be missing
    outputs = [found.blobs.get(name, "") for name in results]
    return found.layer(guess, ports, outputs) if any(outputs) else None


@dataclass
class Matching:
    """A mapping from ops and blobs of a pattern to those of the net."""

    index: Index
    producer: Mapping[str, Op]
    blobs: dict[str, str] = field(default_factory=dict)
    ops: dict[str, Op] = field(default_factory=dict)

    def unify(self, pattern: Op, op: Op) -> bool:
        """Maps an op of the pattern to an op of the net, and the blobs that they read. False if they differ."""
        if pattern.key in self.ops:
            return self.ops[pattern.key] is op
        if (
            pattern.type != op.type
            or op.key in {other.key for other in self.ops.values()}
            or len(pattern.inputs) != len(op.inputs)
            or form(pattern) != form(op)
        ):
            return False
        self.ops[pattern.key] = op
        self.blobs.update({own: name for own, name in zip(pattern.outputs, op.outputs, strict=False) if own and name})
        return all(map(self._unify_blob, pattern.inputs, op.inputs))

    def search(self, pattern: Op) -> bool:
        """Finds an op of the net for an op of the pattern, among the readers of mapped blobs."""
        known = [self.blobs[name] for name in pattern.inputs if name in self.blobs]
        for op in self.index.readers.get(known[0], ()) if known else ():
            trial = Matching(self.index, self.producer, dict(self.blobs), dict(self.ops))
            if trial.unify(pattern, op):
                self.blobs, self.ops = trial.blobs, trial.ops
                return True
        return False

    def layer(self, guess: Guess, ports: Mapping[str, str], outputs: Sequence[str]) -> FoundLayer | None:
        """The layer, unless an op outside of it reads its inner blobs."""
        members = {op.key for op in self.ops.values()}
        inner = {name for op in self.ops.values() for name in op.outputs if name} - set(outputs)
        readers = {reader.key for name in inner for reader in self.index.readers.get(name, ())}
        if not readers <= members or inner & self.index.outputs:
            return None
        inputs = [self.blobs.get(ports[port], "") if port in ports else "" for port in PORTS]
        recurrences = [op.key for op in self.index.net.ops if op.key in members and op.type == "RecurrentNetwork"]
        attributes = {name: value for name, (_, value) in guess.attributes.items()}
        return FoundLayer(guess.op, attributes, inputs, list(outputs), members, recurrences[-1])

    def _unify_blob(self, own: str, name: str) -> bool:
        if own in self.blobs or not own:
            return self.blobs.get(own, "") == name
        if own in self.producer:
            made = self.index.producer.get(name)
            return made is not None and self.unify(self.producer[own], made) and self.blobs.get(own) == name
        self.blobs[own] = name
        return True


def form(op: Op) -> str:
    """An op's attributes as text, without those that concern only training."""
    parts = {key: value for key, value in op.attributes.items() if key not in TRAINING_ONLY}
    return str(
        {
            key: format_net(value, labelled=False) if is_net(value) else format_value(value)
            for key, value in sorted(parts.items())
        }
    )


Weights: TypeAlias = Mapping[str, Blob]  # name of a parameter in the preset -> the parameter


@dataclass(frozen=True)
class Preset:
    """A preset for which ONNX has an op.

    Args:
        op, attributes: of the node; cell: a cell to compare with; weights: makes W, R and B in the standard's order.
    """

    op: str
    attributes: Mapping[str, Any]
    cell: RNNCell
    weights: Callable[[Weights], tuple[Blob, Blob, Blob]]


def find_preset(recurrence: Recurrence, call: Call) -> Preset | None:
    """The preset of a recurrence. None if it has none, or if its results differ from those of the ONNX op."""
    states = recurrence.states
    steps = [kind.shape[0] if kind and kind.rank == 3 else 1 for kind in call.types[1 : 1 + len(states)]]
    plain = all((state.window, state.offset or 0, state.features) == (1, 0, None) for state in states)
    if len(recurrence.sequences) != 1 or not plain or set(steps) != {1} or recurrence.timestep is not None:
        return None
    if recurrence.step_outputs or any(call.op.outputs[2::2]):
        return None
    wanted = ops_of_cell(recurrence)
    return next(
        (preset for preset in presets(recurrence.cell) if ops_of_cell(recurrence_of(preset.cell)) == wanted), None
    )


def presets(cell: Net) -> Iterator[Preset]:
    """Presets that a cell may be. Constants in the cell are tried as forget biases."""
    numbers = {op.attributes["value"] for op in cell.ops if op.type == "Constant" and is_number(op.attributes["value"])}
    for bias in sorted({0.0, *numbers}):
        yield Preset("LSTM", {}, LSTMCell(1, 1, bias, name="cell"), partial(lstm, forget_bias=bias))
    for linear in (False, True):
        options = {"linear_before_reset": 1} if linear else {}
        yield Preset("GRU", options, GRUCell(1, 1, name="cell", linear_before_reset=linear), gru)
    for name in ("tanh", "relu"):
        attributes = {"activations": [name.capitalize()]}
        yield Preset("RNN", attributes, BasicRNNCell(1, 1, name="cell", activation=name), basic_rnn)


def is_number(value: object) -> bool:
    """True if a constant's value may be a forget bias."""
    return isinstance(value, float) and abs(value) < float("inf")


def recurrence_of(cell: RNNCell) -> Recurrence:
    """The recurrence of a cell in a net of its own."""
    net = Net("preset")
    cell.apply_over_sequence(net, net.input("x"))
    return Recurrence(net.ops[-1], net.name)


def ops_of_cell(recurrence: Recurrence) -> tuple[object, ...]:
    """The ops of a cell, with numbers for blobs: first inputs in the order of ports, then results of ops.

    Equal for equal cells.
    """
    numbers = {name: k for k, name in enumerate(recurrence.ports())}
    rows: list[object] = []
    for op in recurrence.cell.ops:
        rows.append((op.type, tuple(numbers.get(name) for name in op.inputs), form(op), len(op.outputs)))
        numbers.update({name: len(numbers) + k for k, name in enumerate(op.outputs)})
    return (*rows, tuple(numbers[recurrence.cell.output_blobs[state.output]] for state in recurrence.states))


def write_preset(writer: GraphWriter, call: Call, preset: Preset) -> None:
    """Writes the ONNX op of a preset, and ops that bring its inputs into the standard's layout."""
    recurrence, key = Recurrence(call.op, call.net), writer.name(call.op.key)
    template = recurrence_of(preset.cell)
    bound = dict(zip(template.ports(), writer.inputs_of(call), strict=True))
    kinds = dict(zip(template.ports(), call.types, strict=True))
    names = list(template.references)

    def layer(*blobs: Blob) -> list[Blob]:
        return [unsqueeze(part, [0]) for part in preset.weights(dict(zip(names, blobs, strict=True)))]

    weights = writer.written([bound[name] for name in names], [kinds[name] for name in names], key, layer)
    hidden = call.output_types[0].shape[-1]
    states = [initial(writer, call, i, key) for i in range(len(recurrence.states))]
    last = [writer.name(name) if name else "" for name in call.op.outputs[1::2]]
    every = writer.fresh(f"{key}/directions") if call.op.outputs[0] else ""
    attributes = {**preset.attributes, "hidden_size": hidden if hidden not in writer.open_sizes else None}
    if recurrence.reverse:
        attributes["direction"] = "reverse"
    inputs = [bound[template.sequences[0]], *weights, "", *states]
    writer.node(preset.op, inputs, [every, *last], **attributes)
    if every:
        writer.node("Squeeze", [every, [1]], [writer.name(call.op.outputs[0])])


def initial(writer: GraphWriter, call: Call, i: int, key: str) -> str:
    """An initial state as `[1, N, H]`."""
    name, kind = writer.inputs_of(call)[1 + i], call.types[1 + i]
    rank = 0 if kind is None else kind.rank
    if rank == 3:
        return name
    if rank == 2:
        return writer.result("Unsqueeze", [name, [0]], f"{key}/initial")
    rows = writer.result("Shape", [writer.inputs_of(call)[0]], f"{key}/N", start=1, end=2)
    shape = writer.result("Concat", [[1], rows, [1]], f"{key}/initial_shape", axis=0)
    return writer.result("Expand", [name, shape], f"{key}/initial")


def lstm(weights: Weights, forget_bias: float) -> tuple[Blob, Blob, Blob]:
    """LSTM weights: gates `ifog` in the standard's order `iofc`."""
    order, parts = [GATES.index(gate) for gate in "iofg"], ("i2h", "gates_t")
    w, r = (turned(weights[f"cell/{part}_w"], order) for part in parts)
    w_b, r_b = (list(split(weights[f"cell/{part}_b"], len(GATES), axis=0)) for part in parts)
    if forget_bias:
        w_b[GATES.index("f")] = w_b[GATES.index("f")] + forget_bias
    return w, r, concat([pieces[k] for pieces in (w_b, r_b) for k in order], axis=0)


def gru(weights: Weights) -> tuple[Blob, Blob, Blob]:
    """GRU weights: gates reset, update, output in the standard's order `zrh`."""
    order, gates = [1, 0, 2], ("update", "reset", "output")
    r, r_b = ([weights[f"cell/{gate}_gate_t_{kind}"] for gate in gates] for kind in "wb")
    w_b = split(weights["cell/i2h_b"], len(order), axis=0)
    return turned(weights["cell/i2h_w"], order), concat(r, axis=0), concat([*(w_b[k] for k in order), *r_b], axis=0)


def basic_rnn(weights: Weights) -> tuple[Blob, Blob, Blob]:
    """RNN weights: one gate, both biases."""
    b = concat([weights["cell/i2h_b"], weights["cell/gates_t_b"]], axis=0)
    return weights["cell/i2h_w"], weights["cell/gates_t_w"], b


def turned(weight: Blob, order: Sequence[int]) -> Blob:
    """A weight whose blocks of rows are in another order."""
    pieces = split(weight, len(order), axis=0)
    return concat([pieces[k] for k in order], axis=0)
