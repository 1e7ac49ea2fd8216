"""Bound weights of products as whole numbers of a byte each, with a scale for each column (`ops/int8_products.py`).

A weight is what stands on the right of a MatMul or a Gemm, in a cell too, and follows from bound inputs alone. What
else reads it reads it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from rnnops.compiler.rewrite.lift_from_cells import with_references, without_unread_references
from rnnops.errors import FeedError
from rnnops.net import Net
from rnnops.op import Input, Op
from rnnops.ops.int8_products import Columns, as_int8
from rnnops.recurrent.recurrence import Recurrence
from rnnops.scopes import free_name
from rnnops.types import Array


class Weight(NamedTuple):
    """A weight of a product: a blob, or its transpose, and what the product is multiplied by."""

    blob: str
    transposed: bool = False
    factor: float = 1.0


@dataclass
class _Names:
    """What weights are called in a net once they are stored.

    Args:
        fixed: blobs that may be weights, and how many axes they have.
        taken: names in the net.
        stored: names of whole numbers and of scales.
        first: the op that was the first to multiply with it.
    """

    fixed: Mapping[str, int]
    taken: set[str]
    stored: dict[Weight, tuple[str, str]] = field(default_factory=dict)
    first: dict[Weight, str] = field(default_factory=dict)

    def of(self, weight: Weight, op: str) -> tuple[str, str]:
        """The names of a weight's numbers and scales."""
        self.first.setdefault(weight, op)
        names = (free_name(f"{weight.blob}/{what}", self.taken) for what in ("int8", "scale"))
        return self.stored.get(weight) or self.stored.setdefault(weight, (next(names), next(names)))


def int8_weights(net: Net, bound: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[Net, dict[str, Array]]:
    """A net whose products have weights of int8, and what is bound in it.

    rewrite: `y = MatMul(x, w)`  -->  `y/whole = Int8MatMul(x, w/int8); y = Mul(y/whole, w/scale)`, and Gemm alike

    Args:
        bound: inputs of the net.
        given: what they follow from, for errors.

    Raises FeedError where there is no such weight, and for one that is not finite or not float32.
    """
    names = _Names({name: array.ndim for name, array in bound.items()}, _taken(net))
    changed = _with_int8(net, names)
    if not names.stored:
        hint = "Bind the weights: run.bind(**params, weights='int8')."
        raise FeedError("no bound input is a weight of a product", net=net.name, hint=hint)
    arrays = dict(bound)
    for weight, stored in names.stored.items():
        arrays.update(zip(stored, _columns(net, weight, bound[weight.blob], names.first[weight], given), strict=True))
    read = {name for op in changed.ops for name in op.inputs} | set(changed.output_blobs.values())
    specs = [spec for spec in changed.input_specs if spec.name in read or spec.name not in arrays]
    kept = changed.with_ops(changed.ops, inputs=specs).snapshot()
    return kept, {name: arrays[name] for name in kept.input_names if name in arrays}


def _columns(net: Net, weight: Weight, array: Array, op: str, given: Mapping[str, Array]) -> Columns:
    if array.dtype != np.float32:
        problem = "weights of int8 are for products of float32"
        raise FeedError(problem, net=net.name, op=op, blob=weight.blob, wanted="float32", came=array.dtype)
    if not np.isfinite(array).all():
        wrong = [name for name, one in given.items() if one.dtype.kind == "f" and not np.isfinite(one).all()]
        hint = f"Not finite: {', '.join(wrong) or 'what follows from what is bound'}."
        problem = "a weight that is not finite has no scale"
        raise FeedError(problem, net=net.name, op=op, blob=weight.blob, wanted="finite numbers", hint=hint)
    whole, scale = as_int8(np.ascontiguousarray(array.T if weight.transposed else array))
    return Columns(whole, np.asarray(scale * np.float32(weight.factor)))


def _taken(net: Net) -> set[str]:
    return {name for op in net.ops for name in op.outputs} | set(net.input_names)


def _with_int8(net: Net, names: _Names) -> Net:
    ops = [new for op in net.ops for new in _changed(op, net.name, names)]
    inputs = [Input(name) for stored in names.stored.values() for name in stored]
    return net.with_ops(ops, inputs=[*net.input_specs, *inputs]).snapshot() if inputs else net


def _changed(op: Op, net: str, names: _Names) -> Iterator[Op]:
    if op.type == "MatMul" and op.inputs[1] in names.fixed:
        yield from _product(op, op.inputs[0], Weight(op.inputs[1]), op.outputs[0], names)
    elif op.type == "Gemm" and op.inputs[1] in names.fixed:
        yield from _gemm(op, names)
    elif op.type == "RecurrentNetwork":
        yield _with_changed_cell(op, net, names)
    else:
        yield op


def _product(op: Op, left: str, weight: Weight, result: str, names: _Names) -> Iterator[Op]:
    whole, scale = names.of(weight, op.label)
    product = free_name(f"{op.key}/whole", names.taken)
    yield Op("Int8MatMul", (left, whole), (product,), {}, op.layer)
    scaling = "Mul" if names.fixed[weight.blob] < 3 else "ScaleColumns"
    yield Op(scaling, (product, scale), (result,), {}, op.layer)


def _gemm(op: Op, names: _Names) -> Iterator[Op]:
    """The parts of a Gemm, as it says them."""
    given = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0, **op.attributes}
    left, right, addend = (*op.inputs, "")[:3]
    if given["transA"]:
        turned = free_name(f"{op.key}/left", names.taken)
        yield Op("Transpose", (left,), (turned,), {}, op.layer)
        left = turned
    product = free_name(f"{op.key}/product", names.taken) if addend else op.outputs[0]
    yield from _product(op, left, Weight(right, bool(given["transB"]), given["alpha"]), product, names)
    if addend and given["beta"] != 1.0:
        factor, scaled = (free_name(f"{op.key}/{what}", names.taken) for what in ("beta", "addend"))
        yield Op("Constant", (), (factor,), {"value": given["beta"], "dtype": "float"}, op.layer)
        yield Op("Mul", (addend, factor), (scaled,), {}, op.layer)
        addend = scaled
    if addend:
        yield Op("Add", (product, addend), op.outputs, {}, op.layer)


def _with_changed_cell(op: Op, net: str, names: _Names) -> Op:
    """A recurrence whose cell has weights of int8, which come from around it."""
    recurrence = Recurrence(op, net)
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference" and blob in names.fixed}
    inner = _Names({name: names.fixed[blob] for name, blob in outer.items()}, _taken(recurrence.cell))
    cell = _with_int8(recurrence.cell, inner)
    more = dict[str, str]()
    for weight, own in inner.stored.items():
        label = f"{inner.first[weight]} in the cell of {op.label}"
        more.update(zip(own, names.of(weight._replace(blob=outer[weight.blob]), label), strict=True))
    changed = with_references(replace(op, attributes={**op.attributes, "cell": cell}), more)
    return without_unread_references(changed) if more else op
