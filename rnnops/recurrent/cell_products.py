"""Rewrites of products in cells: merged, split into heads, and summed in one order.

Products of a cell that share an operand as one product.

Where it pays: a product of few columns leaves most of a tile of vector registers unused, and has overheads at every
step. Measured on one thread for four gates, times apart / joined, forward and of a training step: over 100 steps of 16
rows 1.37 and 1.03 for 8 columns, 1.34 and 1.13 for 16, 1.16 and 1.08 for 32, 1.07 and 1.04 for 48, 1.0 from 64 on;
over 1000 steps of one row 2.9 and 1.7 for 16; over 30 steps of 4 rows 1.19 and 0.98: copying weights and their
gradients costs as much as is saved. So it is done for at most `NARROW` columns and at least `MANY` steps, and never in
outer nets, which run a product once.

Results are those of the products apart within rounding: what flows back to the shared operand is summed in one product.

Products of cells with a matrix for each head as products of their own, which run blocked and packed.

A batched product has no packed form; it runs as a loop over multiply-adds, in which each head reads its matrix from
memory as it lies. Split, four heads of an sLSTM of 256 features (T = 100, N = 32, one thread) take 0.83 of the time
forward and 0.80 in training. So it is done for matrices of `SMALLEST` rows and columns or more, and up to `MOST` heads.

Results agree within rounding: the sums of a product are one chain of multiply-adds then.

Sums of products in a cell as one op each, whose order of operands says in which order they are added.

A blocked product can be added to the product before it without a pass over memory, and a bias comes with the first one.
Which sums of a step build up like that must not depend on how much of the step a plan computes, or outputs would depend
on what is kept for the backward pass. So the order is chosen here, on the cell, before anything is kept. Products that
wait for no state come first, as they run for many steps at once, a bias behind the first; then products of states, then
all else.

Results agree with those of the sums as they were written within rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rnnops.interpreter import Program
from rnnops.loops import MATMULS
from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.base import MANY_OPERANDS
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.rewrites import rewritten
from rnnops.schema import Call, schema_of
from rnnops.scopes import free_name
from rnnops.types import FLOATS

NARROW = 32  # columns of a product
MANY = 50  # steps


def merge_products(program: Program, narrow: int = NARROW, many: int = MANY) -> Net:
    """Merge products in the cells of a net's recurrences.

    rewrite: `a = MatMul(x, v); b = MatMul(x, w)`  -->
        `a/weights = Concat(v, w, axis=1); a/joined = MatMul(x, a/weights); a, b = Split(a/joined, axis=-1)`

    Args:
        narrow: products with more columns stay as they are.
        many: recurrences with fewer steps stay as they are.
    """
    ops = [_with_merged_cell(call, narrow, many) for call in program.calls]
    return rewritten(program.net, ops)


def _with_merged_cell(call: Call, narrow: int, many: int) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    if recurrence.steps_and_batch(input_types(recurrence, call))[0] < many:
        return call.op
    stay = call.op.attributes.get("recompute", ())
    cell = merge_in_step(cell_program(recurrence, call), recurrence.references, stay, narrow)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def merge_in_step(step: Program, weights: Collection[str], stay: Collection[str] = (), narrow: int = NARROW) -> Net:
    """One product for those with the same left operand; the net itself where there are none.

    Args:
        weights: inputs that are the same at every step.
        stay: blobs whose products stay as they are.
    """
    groups: dict[tuple[str, str, str], list[Call]] = {}
    for call in step.calls:
        if _may_join(call, weights, narrow) and call.op.key not in stay:
            groups.setdefault((call.op.type, call.op.inputs[0], call.op.layer), []).append(call)
    joined = {id(calls[0]): calls for calls in groups.values() if len(calls) > 1}
    if not joined:
        return step.net
    gone = {id(call) for calls in joined.values() for call in calls}
    taken = set(step.types)
    ops: list[Op] = []
    for call in step.calls:
        ops += (
            _merged_products(joined[id(call)], taken) if id(call) in joined else [] if id(call) in gone else [call.op]
        )
    return step.net.with_ops(ops).snapshot()


def _may_join(call: Call, weights: Collection[str], narrow: int) -> bool:
    if call.op.type not in MATMULS:
        return False
    left, right = call.op.inputs
    rows = call.rank(0) > 1 and call.rank(1) == 2
    return left not in weights and right in weights and rows and 0 < call.shape(1)[1] <= narrow


def _merged_products(calls: Sequence[Call], taken: set[str]) -> list[Op]:
    first, layer = calls[0].op, calls[0].op.layer
    weights, product = (free_name(f"{first.key}/{what}", taken) for what in ("weights", "joined"))
    return [
        Op("Concat", tuple(call.op.inputs[1] for call in calls), (weights,), {"axis": 1}, layer),
        Op(first.type, (first.inputs[0], weights), (product,), first.attributes, layer),
        Op(
            "Split",
            (product,),
            tuple(call.op.key for call in calls),
            {"axis": -1, "split": tuple(call.shape(1)[1] for call in calls)},
            layer,
        ),
    ]


MOST = 16  # heads
SMALLEST = 16  # rows and columns of a matrix: below, a product's own overhead is larger
HEADS = -3  # the axis


def split_heads(program: Program) -> Net:
    """Split the batched products in the cells of a net's recurrences.

    rewrite: `y = MatMul(x, w)`, x [N, 4, 1, 64], w [4, 64, 64]  -->
        `y/left = Squeeze(Slice(x)); y/right = Squeeze(Slice(w)); y/part = MatMul(y/left, y/right)`, for each head,
        `y = Concat(Unsqueeze(y/part), ..., axis=1)`
    """
    ops = [_with_split_cell(call) for call in program.calls]
    return rewritten(program.net, ops)


def _with_split_cell(call: Call) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    stay = call.op.attributes.get("recompute", ())
    cell = split_in_step(cell_program(recurrence, call), recurrence.references, stay)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def split_in_step(step: Program, weights: Collection[str], stay: Collection[str] = ()) -> Net:
    """A step with its batched products split; the net itself where there are none.

    Args:
        weights: inputs that are the same at every step.
        stay: blobs whose products stay as they are.
    """
    fixed, taken, ops = set(weights), set(step.types), list[Op]()
    for call in step.calls:
        given = [name for name in call.op.inputs if name]
        if given and fixed.issuperset(given) and not schema_of(call.op.type).uses_context:
            fixed.update(call.op.outputs)
        split = call.op.key not in stay and _has_heads(call, fixed)
        ops += _heads(call, taken) if split else [call.op]
    return step.net.with_ops(ops).snapshot() if len(ops) > len(step.calls) else step.net


def _has_heads(call: Call, fixed: Collection[str]) -> bool:
    if call.op.type not in MATMULS:
        return False
    left, right = call.op.inputs
    if left in fixed or right not in fixed or call.rank(1) != 3 or call.rank(0) < 4:
        return False  # of three axes the first is the batch: what attention reads has a matrix for each row
    heads, inner, columns = call.shape(1)
    rows = call.shape(0)[HEADS:-1] == (heads, 1)  # of several rows a head, those of one head are no matrix
    return rows and 2 <= heads <= MOST and min(inner, columns) >= SMALLEST


def _heads(call: Call, taken: set[str]) -> Iterator[Op]:
    axis, layer, parts = call.rank(0) + HEADS, call.op.layer, list[str]()
    for head in range(call.shape(1)[0]):
        sides: list[str] = []
        for name, own in zip(call.op.inputs, (axis, 0), strict=True):
            part, side = (free_name(f"{call.op.key}/{what}", taken) for what in ("slice", "head"))
            where = {"starts": (head,), "ends": (head + 1,), "axes": (own,)}
            yield Op("Slice", (name,), (part,), where, layer)
            yield Op("Squeeze", (part,), (side,), {"axes": (own,)}, layer)
            sides.append(side)
        product, part = (free_name(f"{call.op.key}/{what}", taken) for what in ("product", "part"))
        yield Op(call.op.type, tuple(sides), (product,), call.op.attributes, layer)
        yield Op("Unsqueeze", (product,), (part,), {"axes": (axis,)}, layer)
        parts.append(part)
    yield Op("Concat", tuple(parts), call.op.outputs, {"axis": axis}, layer)


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
    ops = [_ordered_sum(call.op, joined, places) for call in step.calls if call.op.key not in gone]
    return step.net.with_ops(ops).snapshot()


def _ordered_sum(op: Op, joined: Mapping[str, Sequence[str]], places: _Places) -> Op:
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
