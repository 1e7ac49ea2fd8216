"""Sums of products in a cell as one op each, whose order of operands says in which order they are added.

A blocked product can be added to the product before it without a pass over memory, and a bias comes with the first one.
Which sums of a step build up like that must not depend on how much of the step a plan computes, or outputs would depend
on what is kept for the backward pass. So the order is chosen here, on the cell, before anything is kept. Products that
wait for no state come first, as they run for many steps at once, a bias behind the first; then products of states, then
all else.

Results agree with those of the sums as they were written within rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rnnops.interpreter import Program
from rnnops.loops import MATMULS
from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.base import MANY_OPERANDS
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.schema import Call
from rnnops.types import FLOATS

SUMS = ("Add", "Sum")


def order_sums(program: Program) -> Net:
    """Join the sums of products in the cells of a net's recurrences.

    rewrite: `a = x @ v; b = a + c; d = h @ u; e = d + f; y = b + e`  -->  `a = x @ v; d = h @ u; y = Sum(a, c, d, f)`
    """
    ops = [_with_ordered_cell(call) for call in program.calls]
    changed = any(op is not call.op for op, call in zip(ops, program.calls, strict=True))
    return program.net.with_ops(ops).snapshot() if changed else program.net


def _with_ordered_cell(call: Call) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    stay = call.op.attributes.get("recompute", ())
    states = [state.input for state in recurrence.states]
    cell = order_in_step(cell_program(recurrence, call), recurrence.references, states, stay)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def order_in_step(step: Program, weights: Collection[str], states: Collection[str], stay: Collection[str] = ()) -> Net:
    """A step with its sums of two products or more as one op each; the net itself where there are none.

    Args:
        weights: inputs that are the same at every step.
        states: inputs that depend on an earlier step.
        stay: blobs whose sums stay as they are.
    """
    inner = _inner_sums(step, stay)
    products = {name for call in step.calls if call.op.type in MATMULS for name in call.op.outputs}
    joined: dict[str, list[str]] = {}
    gone: set[str] = set()
    for call in step.calls:
        if call.op.type in SUMS and call.op.key not in inner:
            leaves, inside = _leaves(call, inner)
            several = len(products.intersection(leaves)) > 1 and 2 < len(leaves) <= MANY_OPERANDS
            if several and len(set(leaves)) == len(leaves):
                joined[call.op.key] = leaves
                gone |= inside
    if not joined:
        return step.net
    places = _Places.of(step, products, weights, states)
    ops = [_joined(call.op, joined, places) for call in step.calls if call.op.key not in gone]
    return step.net.with_ops(ops).snapshot()


def _joined(op: Op, joined: Mapping[str, Sequence[str]], places: _Places) -> Op:
    return replace(op, type="Sum", inputs=places.ordered(joined[op.key])) if op.key in joined else op


def _inner_sums(step: Program, stay: Collection[str]) -> dict[str, Call]:
    """Sums that only another sum of their type and layer reads, by name."""
    sums = {call.op.key: call for call in step.calls if call.op.type in SUMS and call.op.key not in stay}
    reads = Counter(name for call in step.calls for name in call.op.inputs)
    reads.update(step.net.output_blobs.values())
    return {
        name: sums[name]
        for call in step.calls
        if call.op.type in SUMS and step.types[call.op.key].dtype in FLOATS
        for name in call.op.inputs
        if name in sums
        and reads[name] == 1
        and step.types[name] == step.types[call.op.key]
        and sums[name].op.layer == call.op.layer
        and not step.net.is_capturable(name)
    }


def _leaves(call: Call, inner: Mapping[str, Call]) -> tuple[list[str], set[str]]:
    """The operands of a sum, an inner sum's in its place, and the inner sums. A sum may be thousands deep."""
    leaves: list[str] = []
    inside: set[str] = set()
    ahead = [*reversed(call.op.inputs)]
    while ahead:
        name = ahead.pop()
        if name in inner:
            inside.add(name)
            ahead += reversed(inner[name].op.inputs)
        else:
            leaves.append(name)
    return leaves, inside


@dataclass(frozen=True)
class _Places:
    """Where in a sum an operand comes.

    Args:
        products: blobs.
        fixed: blobs that are the same at every step.
        carried: blobs that depend on a state.
    """

    products: Collection[str]
    fixed: Collection[str]
    carried: Collection[str]

    @classmethod
    def of(cls, step: Program, products: Collection[str], weights: Collection[str], states: Collection[str]) -> _Places:
        fixed, carried = set(weights), set(states)
        for call in step.calls:
            read = {name for name in call.op.inputs if name}
            if read <= fixed:
                fixed.update(call.op.outputs)
            if read & carried:
                carried.update(call.op.outputs)
        return cls(products, fixed, carried)

    def ordered(self, leaves: Sequence[str]) -> tuple[str, ...]:
        """A product, the first bias, products, all else as it was; products of states come after others."""
        first, *products = sorted((name for name in leaves if name in self.products), key=self.carried.__contains__)
        others = [name for name in leaves if name not in self.products]
        bias = [name for name in others if name in self.fixed][:1]
        return (first, *bias, *products, *(name for name in others if name not in bias))
