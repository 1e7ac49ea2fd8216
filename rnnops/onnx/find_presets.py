"""Finds the recurrences of a net that the presets `LSTM`, `GRU` and `BasicRNN` made, which ONNX has an op for.

A cell is a preset's if it has the same ops in the same places, whatever its blobs are called. Its weights are put into
the standard's order of gates by ops in the graph, so that they keep their names. With lengths a preset's results differ
from the standard's past a row's end; such a recurrence is written as a Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from rnnops.cells.base import RNNCell
from rnnops.cells.basic_rnn import BasicRNNCell
from rnnops.cells.gates import GATES
from rnnops.cells.gru import GRUCell
from rnnops.cells.lstm import LSTMCell
from rnnops.net import Net
from rnnops.onnx.find_layers import form
from rnnops.onnx.graph_writer import GraphWriter
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call

Weights: TypeAlias = Mapping[str, str]  # a parameter's name in the preset -> its name in the file


@dataclass(frozen=True)
class Preset:
    """A preset that is an ONNX op.

    Args:
        op, attributes: the node's; cell: an instance; weights: writes W, R and B in the order of the standard.
    """

    op: str
    attributes: Mapping[str, Any]
    cell: RNNCell
    weights: Callable[[GraphWriter, Weights, str], tuple[str, str, str]]


def find_preset(recurrence: Recurrence, call: Call) -> Preset | None:
    """The preset that a recurrence is, None where it is none or where its results are not those of the ONNX op."""
    states = recurrence.states
    steps = [kind.shape[0] if kind and kind.rank == 3 else 1 for kind in call.types[1 : 1 + len(states)]]
    plain = all((state.window, state.offset or 0, state.features) == (1, 0, None) for state in states)
    if len(recurrence.sequences) != 1 or not plain or set(steps) != {1} or recurrence.timestep is not None:
        return None
    if recurrence.step_outputs or any(call.op.outputs[2::2]):
        return None
    wanted = steps_of(recurrence)
    return next((preset for preset in presets(recurrence.cell) if steps_of(recurrence_of(preset.cell)) == wanted), None)


def presets(cell: Net) -> Iterator[Preset]:
    """Presets that a cell may be; numbers in it are forget biases that it may have."""
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
    """Whether a constant's value may be a forget bias."""
    return isinstance(value, float) and abs(value) < float("inf")


def recurrence_of(cell: RNNCell) -> Recurrence:
    """The recurrence of a cell in a net of its own."""
    net = Net("preset")
    cell.apply_over_sequence(net, net.input("x"))
    return Recurrence(net.ops[-1], net.name)


def steps_of(recurrence: Recurrence) -> tuple[object, ...]:
    """The ops of a cell, with numbers for blobs: inputs as they are bound, then results in order."""
    numbers = {name: k for k, name in enumerate(recurrence.ports())}
    rows: list[object] = []
    for op in recurrence.cell.ops:
        rows.append((op.type, tuple(numbers.get(name) for name in op.inputs), form(op), len(op.outputs)))
        numbers.update({name: len(numbers) + k for k, name in enumerate(op.outputs)})
    return (*rows, tuple(numbers[recurrence.cell.output_blobs[state.output]] for state in recurrence.states))


def write_preset(writer: GraphWriter, call: Call, preset: Preset) -> None:
    """Write the ONNX op of a preset, and what puts its inputs into the standard's layout."""
    recurrence, key = Recurrence(call.op, call.net), writer.name(call.op.key)
    template = recurrence_of(preset.cell)
    bound = dict(zip(template.ports(), writer.inputs_of(call), strict=True))
    weights = {name: bound[name] for name in template.references}
    hidden = call.output_types[0].shape[-1]
    states = [initial(writer, call, i, key) for i in range(len(recurrence.states))]
    last = [writer.name(name) if name else "" for name in call.op.outputs[1::2]]
    every = writer.fresh(f"{key}/directions") if call.op.outputs[0] else ""
    attributes = {**preset.attributes, "hidden_size": hidden if hidden not in writer.open_sizes else None}
    if recurrence.reverse:
        attributes["direction"] = "reverse"
    inputs = [bound[template.sequences[0]], *preset.weights(writer, weights, key), "", *states]
    writer.node(preset.op, inputs, [every, *last], **attributes)
    if every:
        axes = writer.sizes([1], f"{key}/axes")
        writer.node("Squeeze", [every, axes], [writer.name(call.op.outputs[0])])


def initial(writer: GraphWriter, call: Call, i: int, key: str) -> str:
    """An initial state as `[1, N, H]`."""
    name, kind = writer.inputs_of(call)[1 + i], call.types[1 + i]
    rank = 0 if kind is None else kind.rank
    if rank == 3:
        return name
    if rank == 2:
        return writer.result("Unsqueeze", [name, writer.sizes([0], f"{key}/axis")], f"{key}/initial")
    rows = writer.result("Shape", [writer.inputs_of(call)[0]], f"{key}/N", start=1, end=2)
    one = writer.sizes([1], f"{key}/one")
    shape = writer.result("Concat", [one, rows, one], f"{key}/initial_shape", axis=0)
    return writer.result("Expand", [name, shape], f"{key}/initial")


def lstm(writer: GraphWriter, names: Weights, key: str, forget_bias: float) -> tuple[str, str, str]:
    """Gates `ifog` as the standard's `iofc`."""
    order = [GATES.index(gate) for gate in "iofg"]
    w, r = (turned(writer, names[f"cell/{part}_w"], order, f"{key}/{part}") for part in ("i2h", "gates_t"))
    w_b, r_b = (pieces(writer, names[f"cell/{part}_b"], len(GATES), f"{key}/{part}_b") for part in ("i2h", "gates_t"))
    if forget_bias:
        number = writer.constant(forget_bias, writer.float_dtype, f"{key}/forget_bias")
        w_b[GATES.index("f")] = writer.result("Add", [w_b[GATES.index("f")], number], f"{key}/forget")
    return (
        layer(writer, w, key),
        layer(writer, r, key),
        layer(writer, joined(writer, [*take(w_b, order), *take(r_b, order)], key), key),
    )


def gru(writer: GraphWriter, names: Weights, key: str) -> tuple[str, str, str]:
    """Gates reset, update, output as the standard's `zrh`."""
    order, gates = [1, 0, 2], ("update", "reset", "output")
    w = turned(writer, names["cell/i2h_w"], order, f"{key}/i2h")
    r = joined(writer, [names[f"cell/{gate}_gate_t_w"] for gate in gates], key)
    w_b = take(pieces(writer, names["cell/i2h_b"], 3, f"{key}/i2h_b"), order)
    b = joined(writer, [*w_b, *(names[f"cell/{gate}_gate_t_b"] for gate in gates)], key)
    return layer(writer, w, key), layer(writer, r, key), layer(writer, b, key)


def basic_rnn(writer: GraphWriter, names: Weights, key: str) -> tuple[str, str, str]:
    """One gate, both biases."""
    b = joined(writer, [names["cell/i2h_b"], names["cell/gates_t_b"]], key)
    return layer(writer, names["cell/i2h_w"], key), layer(writer, names["cell/gates_t_w"], key), layer(writer, b, key)


def turned(writer: GraphWriter, name: str, order: Sequence[int], hint: str) -> str:
    """Blocks of rows in another order."""
    return joined(writer, take(pieces(writer, name, len(order), hint), order), hint)


def pieces(writer: GraphWriter, name: str, count: int, hint: str) -> list[str]:
    """Blocks of rows of one size."""
    names = [writer.fresh(f"{hint}/{k}") for k in range(count)]
    writer.node("Split", [name], names, axis=0, num_outputs=count)
    return names


def take(names: Sequence[str], order: Sequence[int]) -> list[str]:
    """Names in another order."""
    return [names[k] for k in order]


def joined(writer: GraphWriter, names: Sequence[str], hint: str) -> str:
    """Blocks of rows below each other."""
    return writer.result("Concat", names, f"{hint}/joined", axis=0)


def layer(writer: GraphWriter, name: str, hint: str) -> str:
    """With the axis of directions."""
    return writer.result("Unsqueeze", [name, writer.sizes([0], f"{hint}/axis")], f"{hint}/layer")
