"""Rewrites of nets: dead code, equal ops, numbers of random ops."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from operator import is_
from typing import Any

import numpy as np

from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import schema_of
from rnnops.net.text import is_net
from rnnops.sizes import Size


def rewritten(
    net: Net, ops: Sequence[Op], outputs: Mapping[str, str] | None = None, inputs: Sequence[Input] | None = None
) -> Net:
    """An immutable net with other ops, outputs and inputs; the net itself where it is immutable and has these.

    What later passes found of a net stays known then, as it is the same net.

    Args:
        ops: all of them, in order.
        outputs: output name -> blob; those of the net if left out.
        inputs: all of them, in order; those of the net if left out.
    """
    same_outputs = outputs is None or list(outputs.items()) == list(net.output_blobs.items())
    same_inputs = inputs is None or _are_these(inputs, net.input_specs)
    if same_outputs and same_inputs and _are_these(ops, net.ops):
        return net.snapshot()
    return net.with_ops(ops, outputs, inputs).snapshot()


def _are_these(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if the same objects come in the same order."""
    return len(values) == len(others) and all(map(is_, values, others))


def prune(net: Net, keep_inputs: Iterable[str] | None = None, outputs: Mapping[str, str] | None = None) -> Net:
    """Drop ops that no output needs; where an op can leave outputs out, blank unread ones.

    rewrite: `a = Exp(x); b = Tanh(x); return b`  -->  `b = Tanh(x); return b`

    Args:
        keep_inputs: inputs that stay though unused; all of them if left out.
        outputs: output name -> blob; those of the net if left out.
    """
    needed = set((net.output_blobs if outputs is None else outputs).values())
    ops = []
    for op in reversed(net.ops):
        if any(name in needed for name in op.outputs):
            needed.update(filter(None, op.inputs))  # else each op that leaves an output out were needed
            ops.append(_without_unread(op, needed) if schema_of(op.type).may_omit_outputs else op)
    stay = set(net.input_names) if keep_inputs is None else {*keep_inputs, *needed}
    inputs = [spec for spec in net.input_specs if spec.name in stay]
    return rewritten(net, ops[::-1], outputs, inputs)


def prune_cells(net: Net) -> Net:
    """Prune a net and the cells of its recurrences, cells inside cells included."""
    pruned = prune(net)
    return rewritten(pruned, [_with_pruned_cell(op) for op in pruned.ops])


def _with_pruned_cell(op: Op) -> Op:
    if not isinstance(op.attributes.get("cell"), Net):
        return op
    cell = prune_cells(op.attributes["cell"])
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name in cell)
    if cell is op.attributes["cell"] and recompute == op.attributes.get("recompute", ()):
        return op
    return replace(op, attributes={**op.attributes, "cell": cell, "recompute": recompute})


def _without_unread(op: Op, needed: set[str]) -> Op:
    outputs = tuple(name if name in needed else "" for name in op.outputs)
    return op if outputs == op.outputs else replace(op, outputs=outputs)


Key = tuple[Hashable, ...]


def merge_equal_ops(net: Net, keep: Collection[str] = ()) -> Net:
    """Drop ops that compute what an earlier op of their layer computes; nets in attributes are merged within first.

    Only ops that agree to the last bit of their attributes are equal; a random op is equal to one of the same ordinal.
    Blobs that were `.named`, that a recurrence is to recompute, or that are in `keep`, keep their ops.

    rewrite: `a = Exp(x); b = Exp(x); y = Add(a, b)`  -->  `a = Exp(x); y = Add(a, a)`
    """
    found: dict[Key, Op] = {}
    symbolic = _has_sizes(net)
    same: dict[str, str] = {}
    ops = []
    for before in net.ops:
        op = _renamed(merged_within(before), same)
        key = _key(op, symbolic)
        first = op if key is None else found.setdefault(key, op)
        if first is op or _is_kept(net, op, keep):
            ops.append(op)
        else:
            same.update((name, other) for name, other in zip(op.outputs, first.outputs, strict=True) if name)
    outputs = {name: same.get(blob, blob) for name, blob in net.output_blobs.items()}
    unchanged = all(a is b for a, b in zip(ops, net.ops, strict=False)) and len(ops) == len(net.ops)
    return net if unchanged else net.with_ops(ops, outputs=outputs).snapshot()


def merged_within(op: Op) -> Op:
    """The op with its nets merged."""
    recompute = op.attributes.get("recompute", ())
    nets = {name: merge_equal_ops(value, recompute) for name, value in op.attributes.items() if is_net(value)}
    changed = any(op.attributes[name] is not value for name, value in nets.items())
    return replace(op, attributes={**op.attributes, **nets}) if changed else op


def _renamed(op: Op, same: dict[str, str]) -> Op:
    inputs = tuple(same.get(name, name) for name in op.inputs)
    return op if inputs == op.inputs else replace(op, inputs=inputs)


def _is_kept(net: Net, op: Op, keep: Collection[str]) -> bool:
    return any(name in keep or net.is_capturable(name) for name in op.outputs if name)


def _key(op: Op, symbolic: bool) -> Key | None:
    """A key that equal ops share; None if an op is equal to no other, as it draws its own random numbers."""
    if schema_of(op.type).random and "ordinal" not in op.attributes:
        return None
    attributes = []
    for name, value in sorted(op.attributes.items()):
        exact = _exact(value, symbolic)
        if exact is None:
            return None
        attributes.append((name, exact))
    return (op.type, op.inputs, tuple(map(bool, op.outputs)), op.layer, *attributes)


def _exact(value: Any, symbolic: bool) -> Hashable | None:
    """A value such that equal ones are the same to the last bit: 0.0 is not -0.0, 1 is not True; None for no value.

    Args:
        symbolic: whether there are sizes that symbols stand for, which whole numbers may be equal to.
    """
    if is_net(value):
        return _net_key(value, symbolic)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        parts = tuple(_exact(part, symbolic) for part in value)
        return None if None in parts else ("tuple", *parts)
    return _Equal(value) if symbolic and type(value) in (Size, int) else (type(value).__name__, repr(value))


def _net_key(net: Net, symbolic: bool) -> Hashable | None:
    """Nets are equal where their inputs, ops and outputs are, names of blobs included."""
    ops = [(_key(op, symbolic), op.outputs) for op in net.ops]
    if any(key is None for key, _ in ops):
        return None
    inputs = tuple(
        (spec.name, spec.dtype, _exact(spec.shape, symbolic), repr(spec.initializer), spec.initializer)
        for spec in net.input_specs
    )
    return (net.float_dtype, inputs, tuple(ops), tuple(net.output_blobs.items()))


def _has_sizes(value: Any) -> bool:
    """True if there are sizes in a net, or in an attribute, that symbols stand for."""
    if is_net(value):
        attributes = (part for op in value.ops for part in op.attributes.values())
        return any(map(_has_sizes, chain((spec.shape for spec in value.input_specs), attributes)))
    return any(map(_has_sizes, value)) if isinstance(value, tuple) else type(value) is Size


class _Equal:
    """A whole number as part of a key: keys are compared by it and not hashed, which would pin a size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __hash__(self) -> int:
        return hash(_Equal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Equal) and self.size == other.size


def number_random_ops(net: Net, ordinals: Iterator[int] | None = None) -> Net:
    """Number random ops in order, those of cells where the cell stands; an op that has a number keeps it.

    So an op that a gradient runs again draws the same numbers again, however often its net is numbered.

    rewrite: `y, m = Dropout(x); z, n = Dropout(y)`  -->  `y, m = Dropout(x, ordinal=0); z, n = Dropout(y, ordinal=1)`

    Args:
        ordinals: the numbers to give; from 0 on, without those that ops have, if left out.
    """
    if ordinals is None:
        taken = set(_ordinals(net))
        ordinals = (number for number in count() if number not in taken)
    return rewritten(net, [_numbered_op(op, ordinals) for op in net.ops])


def _ordinals(net: Net) -> Iterator[int]:
    """The numbers that random ops have, in cells too."""
    for op in net.ops:
        for value in op.attributes.values():
            yield from _ordinals(value) if isinstance(value, Net) else ()
        if schema_of(op.type).random and "ordinal" in op.attributes:
            yield op.attributes["ordinal"]


def _numbered_op(op: Op, ordinals: Iterator[int]) -> Op:
    found: dict[str, Any] = {
        name: number_random_ops(value, ordinals) for name, value in op.attributes.items() if isinstance(value, Net)
    }
    if schema_of(op.type).random and "ordinal" not in op.attributes:
        found["ordinal"] = next(ordinals)
    changed = any(op.attributes.get(name) is not value for name, value in found.items())
    return replace(op, attributes={**op.attributes, **found}) if changed else op


def first_live_random_op(net: Net, training: bool) -> str | None:
    """The label of a random op that draws numbers, in training or outside of it; None where there is none."""
    for op in net.ops:
        if schema_of(op.type).draws(op, training):
            return op.label
        for value in op.attributes.values():
            if isinstance(value, Net) and (label := first_live_random_op(value, training)):
                return label
    return None


def draws(op: Op, training: bool) -> bool:
    """True if an op, or one in a cell of it, draws numbers."""
    cells = [value for value in op.attributes.values() if isinstance(value, Net)]
    return schema_of(op.type).draws(op, training) or any(first_live_random_op(cell, training) for cell in cells)
