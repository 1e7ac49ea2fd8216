"""The layers of a net: what `pullback.layers` goes through, one after the other, and what each is called.

Ops inside `with net.layer(name)` are one layer of this name, also where it is opened more than once. Every other op
that reads something is a layer of its own, called by the name of any blob that it makes; a recurrence that splits (a
stack) is one for each of its parts, called by the names of its states' results. Layers are in the order of their first
ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rnnops.compiler.layers.split_recurrence import Part
from rnnops.errors import GradientError
from rnnops.interpreter import Program
from rnnops.op import Op
from rnnops.recurrent.recurrence import Recurrence

OpPart = tuple[str, int]  # the key of an op, and which part of it


@dataclass(frozen=True)
class Layer:
    """One layer.

    Args:
        names: what it is called; the first one in errors.
        ops: forward ops, those that are one by key and part 0.
        reads: blobs that its ops read.
        makes: blobs that its ops make.
    """

    names: tuple[str, ...]
    ops: frozenset[OpPart] = frozenset()
    reads: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()


def find_layers(program: Program, parts: Mapping[str, Sequence[Part]]) -> tuple[Layer, ...]:
    """The layers of a forward net, the last one first.

    Args:
        parts: key of a recurrence -> its parts, the last layer first.
    """
    layers: list[list[Layer]] = []
    places: dict[str, int] = {}
    for op in program.net.ops:
        if op.layer and op.layer not in places:
            places[op.layer] = len(layers)
            layers.append([Layer((op.layer,))])
        if op.layer:
            (before,) = layers[places[op.layer]]
            layers[places[op.layer]] = [_joined(before, op)]
        elif any(op.inputs):
            layers.append(_of_op(op, parts.get(op.key, ())))
    return tuple(layer for group in reversed(layers) for layer in group)


def layer_numbers(layers: Sequence[Layer], names: Sequence[str], argument: str, net: str) -> list[int]:
    """Places of layers in backward order. Raises GradientError for a name that no layer has.

    Args:
        argument: what the names were given as.
    """
    known: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name in layer.names:
            known.setdefault(name, number)
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise GradientError(
                f"{argument} names no layer",
                net=net,
                blob=str(name),
                wanted=f"one of {', '.join(layer.names[0] for layer in layers) or 'none'}",
                hint="A layer is a net.layer(...), or an op outside of any, called by a blob that it makes.",
            )
    return [known[name] for name in names]


def _joined(layer: Layer, op: Op) -> Layer:
    reads, makes = layer.reads | set(filter(None, op.inputs)), layer.makes | set(filter(None, op.outputs))
    return Layer(layer.names, layer.ops | {(op.key, 0)}, reads, makes)


def _of_op(op: Op, parts: Sequence[Part]) -> list[Layer]:
    """One op as a layer, or as its parts."""
    if not parts:
        return [_joined(Layer(tuple(result_names(op))), op)]
    ports = dict(zip(Recurrence(op, "").ports(), op.inputs, strict=True))
    layers = []
    for k, part in enumerate(parts):
        used = {*part.net.input_names, *part.net.output_blobs}
        reads = frozenset(blob for name, blob in ports.items() if name in used)
        layers.append(Layer(_part_names(op, parts, k), frozenset({(op.key, k)}), reads))
    return layers


def _part_names(op: Op, parts: Sequence[Part], number: int) -> tuple[str, ...]:
    """Results of a part's states; the last layer has the outputs that are no states, too."""
    owners = _result_owners(op)
    others = set(owners) - {output for part in parts for output in part.outputs}
    mine = parts[number].outputs | (set() if number else others)
    return tuple(name for name, owner in zip(result_names(op), owners, strict=True) if owner in mine)


def _result_owners(op: Op) -> list[str]:
    """The cell output behind each name of a recurrence's result."""
    return [output for output in Recurrence(op, "").output_names() for _ in range(2)]


def result_names(op: Op) -> list[str]:
    """Names of an op's results; those that a recurrence would have, where nobody reads them."""
    if op.type != "RecurrentNetwork":
        return [name for name in op.outputs if name]
    owners, kinds = _result_owners(op), ("all", "last")
    plain = [f"{output}_{kinds[i % 2]}" for i, output in enumerate(owners)]
    pairs = list(zip(op.outputs, plain, strict=False))
    scope = next((name.removesuffix(suffix) for name, suffix in pairs if name.endswith(suffix)), "")
    return [name or f"{scope}{suffix}" for name, suffix in pairs]
