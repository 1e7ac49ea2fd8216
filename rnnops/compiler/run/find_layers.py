"""The layers of a net, for `pullback.layers`. A stack of layers in one recurrence is split first.

**A stack in one recurrence** (`backward_parts`, `split_gradient`) gets one gradient op for each of its layers, the last
layer first. States that depend on each other over time are one layer. Gradients of a layer do not depend on layers
below. So all steps of one layer run before all steps of the layer below it. The gradient that it hands down at each
step becomes a sequence `[T, N, ...]`. Ops that run again do so in each layer that reads them.

rewrite: `dx, dw1, dw2 = RecurrentNetworkGradient(x, w1, w2, ...)`  -->
    `d, dw2 = RecurrentNetworkGradient(w2, ...); dx, dw1 = RecurrentNetworkGradient(x, w1, ..., d)`

Limits: a stack stays one layer if a blob that is handed down has no axis of rows, as a parameter that layers share.

**The layers of a net** (`find_layers`). Ops inside `with net.layer(name)` are one layer of this name, even if it is
opened more than once. Every other op with inputs is a layer of its own, with the names of all blobs that the op makes.
A recurrence that is split has one layer for each part, with the names of its states' results. Layers are in the order
of their first ops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rnnops.errors import GradientError
from rnnops.interpreter import Program
from rnnops.net.infer import ancestors
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import Recurrence, input_types
from rnnops.types import Type, is_float


@dataclass(frozen=True)
class LayerPart:
    """The backward step of one layer of a recurrence.

    Args:
        outputs: cell outputs that are the states of the layer.
        net: the ops of the backward step that belong to the layer.
        taken: blobs that layers above hand down to this layer.
        given: blob that this layer hands down -> the state output below whose gradient it is added to; `""` for none.
    """

    outputs: frozenset[str]
    net: Net
    taken: tuple[str, ...]
    given: Mapping[str, str]


def backward_parts(call: Call) -> tuple[LayerPart, ...]:
    """The layers of a RecurrentNetwork op in training form, the last one first; empty if it is one layer."""
    recurrence = Recurrence(call.op, call.net)
    net: Net = call.op.attributes["backward"]
    grads = dict(call.op.attributes["output_grads"])
    carried = {
        state.output: (grads[state.output], net.output_blobs[state.input])
        for state in recurrence.states
        if state.input in net.output_blobs and state.output in grads
    }
    groups = _groups(net, carried)
    if len(groups) < 2:
        return ()
    levels = _levels(net, [{carried[name][0] for name in group} for group in groups])
    results = _levels_of_results(recurrence, net, groups, levels)
    _, rows = recurrence.steps_and_batch(input_types(recurrence, call))
    crossing = _crossing(net, levels)
    if results is None or not all(_is_by_row(net, name, rows) for name in crossing):
        return ()
    if not crossing <= _ancestors(net, [*recurrence.sequences, *(state.input for state in recurrence.states)]):
        return ()
    goals = _goals(net, {grad: name for name, (grad, _) in carried.items()})
    return tuple(
        _part(net, frozenset(group), [name for name in results if results[name] == level], level, levels, goals)
        for level, group in enumerate(groups)
    )


def _groups(net: Net, carried: Mapping[str, tuple[str, str]]) -> list[list[str]]:
    """States in groups: states whose gradients reach each other are one group. A group that reaches another comes
    before it; else groups of later states come first."""
    follows = {name: {name} for name in carried}
    for name, (grad, _) in carried.items():
        reached = _descendants(net, grad)
        follows[name] |= {other for other, (_, result) in carried.items() if result in reached}
    for middle in carried:
        for name in carried:
            if middle in follows[name]:
                follows[name] |= follows[middle]
    ancestors = {name: {other for other in carried if name in follows[other]} for name in carried}
    order = list(carried)
    together = {frozenset(other for other in ancestors[name] if other in follows[name]) for name in carried}
    return sorted(
        (sorted(group, key=order.index) for group in together),
        key=lambda group: (len(ancestors[group[0]]), -order.index(group[0])),
    )


def _descendants(net: Net, name: str) -> set[str]:
    found = {name}
    for op in net.ops:
        if any(read in found for read in op.inputs):
            found.update(filter(None, op.outputs))
    return found


def _ancestors(net: Net, results: Sequence[str]) -> set[str]:
    """Blobs that these results depend on."""
    found = {net.output_blobs[name] for name in results if name in net.output_blobs}
    return found.union(*(filter(None, op.inputs) for op in ancestors(net, found)))


def _levels(net: Net, grads: Sequence[Collection[str]]) -> dict[str, int]:
    """Blob -> the first layer in which it can be computed. Blobs that depend on no gradient of a state are left out.

    Args:
        grads: for each layer, the gradients of its states.
    """
    levels = {name: level for level, names in enumerate(grads) for name in names}
    for op in net.ops:
        known = [levels[name] for name in op.inputs if name in levels]
        if known:
            levels.update((name, max(known)) for name in op.outputs if name)
    return levels


def _levels_of_results(
    recurrence: Recurrence, net: Net, groups: Sequence[Collection[str]], levels: Mapping[str, int]
) -> dict[str, int] | None:
    """Cell input -> the layer that gives its gradient. None if another layer gives the gradient of a state."""
    home = {name: level for level, group in enumerate(groups) for name in group}
    inputs = {state.input: home[state.output] for state in recurrence.states if state.output in home}
    found = {name: levels.get(blob, inputs.get(name, len(groups) - 1)) for name, blob in net.output_blobs.items()}
    return found if all(found[name] == level for name, level in inputs.items()) else None


def _crossing(net: Net, levels: Mapping[str, int]) -> set[str]:
    """Blobs of one layer that ops of another read."""
    found: set[str] = set()
    for op in net.ops:
        level = next((levels[name] for name in op.outputs if name in levels), None)
        if level is not None:
            found.update(name for name in op.inputs if levels.get(name, level) < level)
    return found


def _is_by_row(net: Net, name: str, rows: int) -> bool:
    kind = net.type_of(name)
    made = name not in net.input_names
    return made and kind is not None and is_float(kind.dtype) and kind.shape[:1] == (rows,)


def _goals(net: Net, totals: dict[str, str]) -> dict[str, str]:
    """Blob -> the state output whose gradient it is added to.

    Args:
        totals: gradient -> its state output. Sums that begin with such a gradient are put in here.
    """
    goals: dict[str, str] = {}
    for op in net.ops:
        if op.type == "Add" and op.inputs[0] in totals:
            totals[op.outputs[0]] = goals[op.inputs[1]] = totals[op.inputs[0]]
    return goals


def _part(
    net: Net,
    outputs: frozenset[str],
    results: Sequence[str],
    level: int,
    levels: Mapping[str, int],
    goals: Mapping[str, str],
) -> LayerPart:
    crossing = [name for name in levels if name in _crossing(net, levels)]
    readers = {
        name: max(levels[o] for op in net.ops if name in op.inputs for o in op.outputs if o) for name in crossing
    }
    given = {name: goals.get(name, "") for name in crossing if levels[name] == level and readers[name] > level}
    wanted = {**{name: net.output_blobs[name] for name in results}, **{name: name for name in given}}
    needed, ops = set(wanted.values()), []
    for op in reversed(net.ops):
        own = next((levels[name] for name in op.outputs if name in levels), level)
        if own == level and any(name in needed for name in op.outputs):
            ops.append(op)
            needed.update(filter(None, op.inputs))
    taken = tuple(name for name in crossing if name in needed and levels[name] < level)
    inputs = [spec for spec in net.input_specs if spec.name in needed]
    inputs += [Input(name, kind.dtype, kind.shape) for name in taken if (kind := net.type_of(name))]
    return LayerPart(outputs, net.with_ops(ops[::-1], wanted, inputs).snapshot(), taken, given)


def split_gradient(op: Op, net: str, parts: Sequence[LayerPart]) -> list[Op]:
    """A RecurrentNetworkGradient op as several, one for each part. `handed_down` names the blobs between them."""
    recurrence = Recurrence(op, net)
    ports = recurrence.ports()
    types = {name: Type(*row) for name, row in zip(ports, op.attributes["types"], strict=True)}
    steps, _ = recurrence.steps_and_batch(types)
    handed = {name: handed_down(op, name) for part in parts for name in part.given}
    for part in parts:
        kinds = {name: kind for name in part.given if (kind := part.net.type_of(name))}
        types.update((name, Type(kind.dtype, (steps, *kind.shape))) for name, kind in kinds.items())
    return [_split_op(op, recurrence, part, types, handed) for part in parts]


def handed_down(op: Op, name: str) -> str:
    """Name of the blob of the outer net with all steps of a blob of the step."""
    return f"{op.key}/{name}"


def _split_op(
    op: Op, recurrence: Recurrence, part: LayerPart, types: Mapping[str, Type], handed: Mapping[str, str]
) -> Op:
    ports, reads, results = recurrence.ports(), part.net.input_names, part.net.output_blobs
    sequences = (*recurrence.sequences, *part.taken, *part.given)
    here = [*sequences, *ports[len(recurrence.sequences) :]]
    bound = {name: blob for name, blob in zip(ports, op.inputs, strict=False) if name in reads}
    bound.update((name, handed[name]) for name in part.taken)
    made = {name: blob for name, blob in zip(ports, op.outputs, strict=True) if name in results}
    made.update((name, handed[name]) for name in part.given)
    grads = dict(op.attributes["output_grads"])
    seen = {name for name, grad in grads.items() if name in part.outputs or grad in reads}
    given = zip(
        (name for name in recurrence.output_names() for _ in range(2)), op.inputs[len(ports) + 1 :], strict=True
    )
    attributes = {
        **op.attributes,
        "inputs": sequences,
        "backward": part.net,
        "output_grads": tuple((name, grad) for name, grad in grads.items() if name in seen),
        "types": tuple((types[name].dtype, types[name].shape) for name in here),
    }
    inputs = [bound.get(name, "") for name in here] + [op.inputs[len(ports)]]
    inputs += [blob if name in seen else "" for name, blob in given]
    return Op(op.type, tuple(inputs), tuple(made.get(name, "") for name in here), attributes, op.layer)


OpPart = tuple[str, int]  # the key of an op, and which part of it


@dataclass(frozen=True)
class NetLayer:
    """One layer of a net.

    Args:
        names: its names; errors show the first one.
        ops: its forward ops. An op that is not split has part 0.
        reads: blobs that its ops read.
        makes: blobs that its ops make.
    """

    names: tuple[str, ...]
    ops: frozenset[OpPart] = frozenset()
    reads: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()


def find_layers(program: Program, parts: Mapping[str, Sequence[LayerPart]]) -> tuple[NetLayer, ...]:
    """The layers of a forward net, the last one first.

    Args:
        parts: key of a recurrence -> its parts, the last layer first.
    """
    layers: list[list[NetLayer]] = []
    places: dict[str, int] = {}
    for op in program.net.ops:
        if op.layer and op.layer not in places:
            places[op.layer] = len(layers)
            layers.append([NetLayer((op.layer,))])
        if op.layer:
            (before,) = layers[places[op.layer]]
            layers[places[op.layer]] = [_joined(before, op)]
        elif any(op.inputs):
            layers.append(_of_op(op, parts.get(op.key, ())))
    return tuple(layer for group in reversed(layers) for layer in group)


def layer_numbers(layers: Sequence[NetLayer], names: Sequence[str], argument: str, net: str) -> list[int]:
    """Positions of layers in backward order. Raises GradientError for a name that no layer has.

    Args:
        argument: the argument with the names, for errors.
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


def _joined(layer: NetLayer, op: Op) -> NetLayer:
    reads, makes = layer.reads | set(filter(None, op.inputs)), layer.makes | set(filter(None, op.outputs))
    return NetLayer(layer.names, layer.ops | {(op.key, 0)}, reads, makes)


def _of_op(op: Op, parts: Sequence[LayerPart]) -> list[NetLayer]:
    """One op as a layer, or as its parts."""
    if not parts:
        return [_joined(NetLayer(tuple(result_names(op))), op)]
    ports = dict(zip(Recurrence(op, "").ports(), op.inputs, strict=True))
    layers = []
    for k, part in enumerate(parts):
        used = {*part.net.input_names, *part.net.output_blobs}
        reads = frozenset(blob for name, blob in ports.items() if name in used)
        layers.append(NetLayer(_part_names(op, parts, k), frozenset({(op.key, k)}), reads))
    return layers


def _part_names(op: Op, parts: Sequence[LayerPart], number: int) -> tuple[str, ...]:
    """Names of the results of a part's states. The last layer also has the results that are not states."""
    owners = _result_owners(op)
    others = set(owners) - {output for part in parts for output in part.outputs}
    mine = parts[number].outputs | (set() if number else others)
    return tuple(name for name, owner in zip(result_names(op), owners, strict=True) if owner in mine)


def _result_owners(op: Op) -> list[str]:
    """The cell output behind each name of a recurrence's result."""
    return [output for output in Recurrence(op, "").output_names() for _ in range(2)]


def result_names(op: Op) -> list[str]:
    """Names of an op's results. Results of a recurrence that are not read have the names that they would have."""
    if op.type != "RecurrentNetwork":
        return [name for name in op.outputs if name]
    owners, kinds = _result_owners(op), ("all", "last")
    plain = [f"{output}_{kinds[i % 2]}" for i, output in enumerate(owners)]
    pairs = list(zip(op.outputs, plain, strict=False))
    scope = next((name.removesuffix(suffix) for name, suffix in pairs if name.endswith(suffix)), "")
    return [name or f"{scope}{suffix}" for name, suffix in pairs]
